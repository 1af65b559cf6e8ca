//! Access to hosts' daemons, and the transfers that run there.

use tidegate_api::cluster::PlacementClaim;
use tidegate_core::transfers::Class;
use tidegate_place::Request;

/// Access to the daemons of hosts by their control sockets.
pub trait Daemons {
    /// Returns the name of the cluster's host that the daemon says it is; `None`: it joins no
    /// cluster, or is of a version that does not say.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    fn host(&self, socket: &str) -> Result<Option<String>, DaemonError>;

    /// Returns the VMs with disks on the daemon's devices, with their deadline transfers.
    ///
    /// # Errors
    /// The daemon does not answer, refuses, or its answer is not understood.
    fn transfers(&self, socket: &str) -> Result<Vec<VmTransfer>, DaemonError>;

    /// Returns the VMs that the daemon serves.
    ///
    /// # Errors
    /// The daemon does not answer, refuses, or its answer is not understood.
    fn vms(&self, socket: &str) -> Result<Vec<ServedVm>, DaemonError>;

    /// Starts the deadline transfer of a VM. A daemon that has joined the cluster checks the
    /// placement; for others it is `None`. `socket` is `None` for a host without one.
    ///
    /// # Errors
    /// [`DaemonError::Unanswered`] if the request was sent and no answer came, so that the transfer
    /// may have begun; another one if it surely has not: the daemon refuses or cannot be reached.
    fn start(
        &self,
        socket: Option<&str>,
        vm: &str,
        request: &Request,
        placement: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError>;
}

/// Error of a daemon; displays the text of its source, if it has one.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The daemon did not answer, as behind a dead socket, or refused the request.
    #[error("{0}")]
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// The request was sent and no answer came, so that it may have been carried out.
    #[error("{0}")]
    Unanswered(Box<dyn std::error::Error + Send + Sync>),
    /// The daemon cannot be asked from this machine, so that nothing was sent.
    #[error("{0}")]
    NotAsked(&'static str),
    /// No request could be sent, because the socket's path is not valid, or the answer was not
    /// understood.
    #[error("{0}")]
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// The daemon that answers is not the host's.
    #[error("the daemon at {socket} is not that of host {host:?}: {}", statement(says.as_deref()))]
    OtherHost {
        /// Name of the host.
        host: String,
        /// Control socket of the host.
        socket: String,
        /// Name of the host that the daemon says it is; `None`: it joins no cluster.
        says: Option<String>,
    },
}

/// Returns the statement of a daemon about its host.
fn statement(says: Option<&str>) -> String {
    match says {
        Some(other) => format!("it is that of host {other:?}"),
        None => "it has not joined the cluster, and the host's has".to_owned(),
    }
}

/// VM that a daemon serves on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedVm {
    /// Name of the VM.
    pub vm: String,
    /// Name of the device.
    pub device: String,
}

/// VM on a device, with its current deadline transfer, if any.
#[derive(Clone, PartialEq, Debug)]
pub struct VmTransfer {
    /// Name of the VM.
    pub vm: String,
    /// Name of the device.
    pub device: String,
    /// Current transfer.
    pub transfer: Option<LiveTransfer>,
}

/// Deadline transfer as a daemon reports it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LiveTransfer {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes moved so far.
    pub moved: u64,
    /// Seconds until its deadline; negative once it is late.
    pub due_in_s: f64,
    /// I/O priority class.
    pub class: Class,
    /// Rate over the daemon's last interval in bytes per second; `None`: unknown, or the class
    /// changed.
    pub bytes_per_s: Option<u64>,
}

/// Selection of daemons that a session asks for their transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DaemonSelection<'a> {
    /// All daemons.
    All,
    /// All daemons but that of the named host.
    AllExcept(&'a str),
    /// No daemon.
    None,
}

impl DaemonSelection<'_> {
    /// Returns whether the daemon of a host is asked.
    pub(crate) fn includes(self, host: &str) -> bool {
        match self {
            DaemonSelection::All => true,
            DaemonSelection::AllExcept(other) => host != other,
            DaemonSelection::None => false,
        }
    }
}
