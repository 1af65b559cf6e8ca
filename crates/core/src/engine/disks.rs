//! Specification of disks, and clients that connect to them at run time.

use super::{Engine, EngineError, PayloadMemory};
use crate::view::Life;
use tidegate_base::request::{ClientId, DiskId};

/// A disk of a VM: a range of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpec {
    /// First byte on the device. The engine has no order between requests of disks that overlap,
    /// so a driver with data on the device keeps its disks apart.
    pub base: u64,
    /// Size in bytes, at least 1.
    pub size: u64,
    /// Refuses every operation but reads and flushes.
    pub read_only: bool,
}

impl DiskSpec {
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let (base, size) = (self.base, self.size);
        if size > 0 && base.checked_add(size).is_some() {
            Ok(())
        } else {
            Err(EngineError::DiskRange { base, size })
        }
    }
}

impl Engine {
    /// Connects a client whose payloads lie in bounded memory; see [`Engine::connect_with`].
    ///
    /// # Errors
    /// When there is no such disk.
    pub fn connect(&mut self, disk: DiskId) -> Result<ClientId, EngineError> {
        self.connect_with(disk, PayloadMemory::Bounded)
    }

    /// Connects a client whose payloads lie in `memory`.
    ///
    /// # Errors
    /// [`EngineError::Unknown`] if the disk does not exist or its VM was removed.
    pub fn connect_with(
        &mut self,
        disk: DiskId,
        memory: PayloadMemory,
    ) -> Result<ClientId, EngineError> {
        let vm = self.directory.known_disk(disk)?.vm;
        if self.view.queues.vms[vm as usize].life != Life::Live {
            return Err(EngineError::Unknown { what: "the VM" });
        }
        // Requests follow, whose times are then counted without an allocation.
        self.view.ledgers[vm as usize].reserve();
        Ok(self
            .directory
            .connect(disk.index, memory == PayloadMemory::Own))
    }
}
