//! Access to hosts' daemons, and the transfers that run there.

use tidegate_core::jobs::Class;
use tidegate_place::Request;

/// Control sockets of hosts' daemons, as the driver uses them.
pub trait Daemons {
    /// Returns the VMs with disks on the daemon's devices and the deadline transfers they have.
    ///
    /// # Errors
    /// If the daemon does not answer, refuses, or is not understood.
    fn transfers(&self, socket: &str) -> Result<Vec<VmTransfer>, DaemonError>;

    /// Returns the VMs that the daemon serves.
    ///
    /// # Errors
    /// If the daemon does not answer, refuses, or is not understood.
    fn vms(&self, socket: &str) -> Result<Vec<ServedVm>, DaemonError>;

    /// Starts the deadline transfer of a VM.
    ///
    /// # Errors
    /// If the daemon does not answer or refuses.
    fn start(&self, socket: &str, vm: &str, request: &Request) -> Result<(), DaemonError>;
}

/// Failure to use a daemon. It shows the text of its source.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The daemon did not answer, or refused.
    #[error("{0}")]
    Refused(Box<dyn std::error::Error + Send + Sync>),
    /// The daemon could not be asked at all, or its answer was not understood.
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

/// VM on a device, with its deadline transfer if it has one.
#[derive(Clone, PartialEq, Debug)]
pub struct VmTransfer {
    /// Name of the VM.
    pub vm: String,
    /// Name of the device.
    pub device: String,
    /// Transfer at present.
    pub transfer: Option<LiveTransfer>,
}

/// Deadline transfer as a daemon reports it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LiveTransfer {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes moved.
    pub moved: u64,
    /// Seconds to its deadline; below zero once it is late.
    pub due_in_s: f64,
    /// I/O priority class.
    pub class: Class,
    /// Bytes per second over the daemon's last interval; `None`: not known, or its class changed.
    pub bytes_per_s: Option<u64>,
}

/// Choice of daemons that are asked for their transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask<'a> {
    /// All of them.
    All,
    /// All but that of this host.
    AllBut(&'a str),
    /// None.
    Nobody,
}

impl Ask<'_> {
    /// Returns true if the daemon of a host is asked.
    pub(crate) fn includes(self, host: &str) -> bool {
        match self {
            Ask::All => true,
            Ask::AllBut(other) => host != other,
            Ask::Nobody => false,
        }
    }
}
