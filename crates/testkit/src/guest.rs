//! Handles of a VM with its disk and client, and an entry of the log of dispatches.

use tidegate_core::request::{ClientId, DeviceIo, DiskId, VmId};

/// Dispatched I/O.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Time of the dispatch in nanoseconds.
    pub at: u64,
    /// I/O as the engine returned it.
    pub io: DeviceIo,
}

/// A VM with one disk and one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// Handle of the VM.
    pub vm: VmId,
    /// Handle of the disk.
    pub disk: DiskId,
    /// Client that has the disk open.
    pub client: ClientId,
}
