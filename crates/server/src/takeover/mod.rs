//! Takeover of a running daemon by a new one: the messages and descriptors that go between them on
//! a unix socket. Decision record 0017 has the reasons.
//!
//! ```text
//!   new daemon                              running daemon
//!     Hello            ------------------->   says its version, or refuses
//!     (configuration)  <-------------------   Plan: listening sockets, files of disks, VMs
//!     Prepare          ------------------->   refuses changes, closes its store
//!     (opens, starts)  <-------------------   Prepared
//!     Pause            ------------------->   receives nothing more, lets I/O in flight end
//!     (checks)         <-------------------   State: connections, what was learnt
//!     Taken            ------------------->   ends; until here it can go on as before
//!     (serves)         <-------------------   Yours
//!     Supervised       ------------------->   (under systemd) ends, with a failure
//! ```
//!
//! If either process ends before `Yours`, the other one goes on with everything.

mod channel;
mod error;
mod lifeline;
mod limit_state;
mod message;
mod taking;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub(crate) use channel::Channel;
pub use error::TakeoverError;
pub(crate) use lifeline::{Lifeline, LifelineEnd};
pub use message::FORMAT;
pub(crate) use message::{
    ClientPlan, ConnectionState, DeviceState, DiskPlan, DiskSummary, Hello, LimitGroupPlan,
    Message, Plan, PolicyPlan, Problem, Reader, Service, SessionPlan, SocketPlan, State, VmPlan,
};
pub(crate) use taking::other_format;
pub use taking::{Inherited, Taking};

use crate::config::{Config, ListenAddress};

/// Returns the path of the socket at which a daemon with this configuration can be taken over:
/// beside the socket of its control API. `None` if that is no unix socket.
pub fn socket_path(config: &Config) -> Option<PathBuf> {
    match &config.control.main.address {
        ListenAddress::Unix { path, .. } => Some(beside(path)),
        ListenAddress::Tcp(_) | ListenAddress::VhostUser { .. } => None,
    }
}

fn beside(control: &Path) -> PathBuf {
    let mut name = control.file_name().unwrap_or_default().to_owned();
    name.push(".takeover");
    control.with_file_name(name)
}
