//! Options of `tidegate vhost-user-blk`, with the names that QEMU's conventions for vhost-user
//! back-ends give them.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum, ValueHint};

use super::LogLevel;

#[derive(Debug, ClapArgs)]
pub(crate) struct VhostUserBlkArgs {
    /// Disk: a file or block device with raw content
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) blk_file: Option<PathBuf>,
    /// Unix socket to make, for one front-end after the other
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) socket_path: Option<PathBuf>,
    /// Inherited unix socket, connected or listening, for one front-end
    #[arg(long, value_name = "FDNUM", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) fd: Option<i32>,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Content of the disk
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Content,
    /// Print the supported features as JSON and exit; other options are ignored
    #[arg(long)]
    pub(crate) print_capabilities: bool,
    /// Log level; the log goes to standard error
    #[arg(
        long,
        value_enum,
        default_value = "warn",
        env = "TIDEGATE_LOG",
        value_name = "LEVEL"
    )]
    pub(crate) log: LogLevel,
}

/// Content that a disk may have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum Content {
    /// Raw, and refused if it looks like an image of another format
    #[default]
    Probe,
    /// Raw, whatever it looks like
    Raw,
}
