//! Handles of a VM with its disk and client, and an entry of the log of dispatches.

use tidegate_core::request::{ClientId, DeviceIo, DiskId, VmId};

/// One I/O that went to the device.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Time of the dispatch in nanoseconds.
    pub at: u64,
    /// The I/O as the engine gave it.
    pub io: DeviceIo,
}

/// A VM with one disk and one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// The VM.
    pub vm: VmId,
    /// Its disk.
    pub disk: DiskId,
    /// The client that has the disk open.
    pub client: ClientId,
}
