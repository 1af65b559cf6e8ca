//! Options of `tidegate serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};

use super::objective_parts::PartArgs;
use super::value::parse_size;
use super::{Content, LogFormat, LogLevel};

/// Help text after the options.
pub(super) const HELP: &str = "\
SIGTERM and SIGINT stop the daemon once requests in flight are done; a second signal stops it at \
once. SIGHUP reads the configuration file again, applies what changed in its VMs, limit groups and \
policies, and logs which keys need a restart or --takeover.

--file serves disks without a configuration file, each as a VM named after its file, with the \
objective of the options. What attaches the disks is printed once they are served. \
--print-config prints the configuration that this stands for.

Examples:
  tidegate serve examples/quickstart.toml
  tidegate serve --file disk.raw --limit \"40 MB/s\"
  tidegate serve --file new.raw --size \"10 GiB\" --reservation \"500 IOPS\"
  tidegate serve --file a.raw --file b.raw --print-config > tidegate.toml";

/// Configuration file, or disks without one.
#[derive(Debug, ClapArgs)]
#[command(override_usage = "tidegate serve <CONFIG>\n       \
                            tidegate serve --file <DISK>... [OPTIONS]")]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath,
          required_unless_present = "disks", conflicts_with_all = [
              "disks", "size", "listen", "control_socket", "read_only", "format", "print_config",
          ])]
    pub(crate) config: Option<PathBuf>,
    /// Disk to serve without a configuration: a raw file or block device; may be repeated
    #[arg(long = "file", id = "disks", value_name = "DISK", value_hint = ValueHint::FilePath)]
    pub(crate) disks: Vec<PathBuf>,
    /// Size of disks whose file does not exist yet, which is then created, such as "10 GiB"
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "disks")]
    pub(crate) size: Option<u64>,
    /// Unix socket, or TCP address and port, of NBD clients [default: a unix socket in the user's
    /// runtime directory]
    #[arg(long, value_name = "PATH|ADDRESS", requires = "disks",
          value_hint = ValueHint::AnyPath)]
    pub(crate) listen: Option<ListenArg>,
    /// Unix socket of the control API [default: in the user's runtime directory]
    #[arg(long, value_name = "PATH", requires = "disks", value_hint = ValueHint::AnyPath)]
    pub(crate) control_socket: Option<PathBuf>,
    /// Refuse writes
    #[arg(long, requires = "disks")]
    pub(crate) read_only: bool,
    /// Content of the disks
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        requires = "disks"
    )]
    pub(crate) format: Content,
    /// Print the configuration of the options instead of serving it
    #[arg(long, requires = "disks")]
    pub(crate) print_config: bool,
    /// Objective of each disk's VM
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Take over from the daemon that runs, without dropping its clients
    #[arg(long, requires = "config")]
    pub(crate) takeover: bool,
    /// Return once the new daemon has taken over and serves in the background; fails if it is
    /// refused
    #[arg(long, requires = "takeover")]
    pub(crate) detach: bool,
    /// Log level; the log goes to standard error
    #[arg(
        long,
        value_enum,
        default_value = "info",
        env = "TIDEGATE_LOG",
        value_name = "LEVEL"
    )]
    pub(crate) log: LogLevel,
    /// Format of the log
    #[arg(
        long,
        value_enum,
        default_value = "text",
        env = "TIDEGATE_LOG_FORMAT",
        value_name = "FORMAT"
    )]
    pub(crate) log_format: LogFormat,
}

/// Place where NBD clients connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ListenArg {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// Address and port.
    Tcp(SocketAddr),
}

impl From<&str> for ListenArg {
    fn from(text: &str) -> ListenArg {
        match text.parse() {
            Ok(address) => ListenArg::Tcp(address),
            Err(_) => ListenArg::Unix(text.into()),
        }
    }
}
