//! Options of the commands that look at this host: `init` and `doctor`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};

/// Help text of `init` after the options.
pub(super) const INIT_HELP: &str = "\
The configuration has a [[device]] for each disk of the host, sockets and a store; VMs, a page \
for browsers and recordings are prepared behind a #. Disks with file systems, partitions or swap \
are not proposed as disks of VMs. Nothing is written to any disk.

Examples:
  tidegate init
  tidegate init /etc/tidegate.toml";

/// Help text of `doctor` after the options.
pub(super) const DOCTOR_HELP: &str = "\
Each check is ok, warn or fail, with what was found; for warn and fail also why it matters and \
the command that mends it. Nothing is changed. Run it as the daemon's user: limits and permissions \
are those of this process. Exits with 1 if a check fails.

Examples:
  tidegate doctor
  tidegate doctor /etc/tidegate.toml
  sudo -u tidegate tidegate doctor /etc/tidegate.toml -o json";

/// Options of `init`.
#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// File to write [default: standard output]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "file")]
    pub(crate) force: bool,
    /// Root of the files that describe the host
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,
}

/// Options of `doctor`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Configuration whose disks, sockets and directories are checked as well
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Root of the files that describe the host
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,
}
