//! Access to hosts' daemons, and the transfers that run there.

use tidegate_api::cluster::PlacementClaim;
use tidegate_core::transfers::Class;
use tidegate_place::Request;

/// Access to the daemons of hosts by their control sockets.
pub trait Daemons {
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
    /// placement; for others it is `None`.
    ///
    /// # Errors
    /// [`DaemonError::Unanswered`] if the request was sent and no answer came, so that the transfer
    /// may have begun; another one if it surely has not: the daemon refuses or cannot be reached.
    fn start(
        &self,
        socket: &str,
        vm: &str,
        request: &Request,
        placement: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError>;
}

/// Error of a daemon; displays the text of its source.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The daemon did not answer, as behind a dead socket, or refused the request.
    #[error("{0}")]
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// The request was sent and no answer came, so that it may have been carried out.
    #[error("{0}")]
    Unanswered(Box<dyn std::error::Error + Send + Sync>),
    /// No request could be sent, because the socket's path is not valid, or the answer was not
    /// understood.
    #[error("{0}")]
    Failed(Box<dyn std::error::Error + Send + Sync>),
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
