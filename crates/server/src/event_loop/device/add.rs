//! A disk among those of a device: at the start, and while it is served.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_core::engine::{DiskSpec, Engine, EngineError};

use super::super::PAYLOAD_MAX;
use super::super::vms::Vms;
use super::{Device, DiskState, inject};
use crate::backing::dsync::Durably;
use crate::backing::range_lock::RangeLocks;
use crate::backing::{Disk, Medium};
use crate::frontend::Volume;
use crate::ring::{Ring, clock};

impl Device {
    /// Tells the engine, and its VM, of a disk that lies at `base`; its place. It is closed where
    /// the engine refuses.
    pub(in super::super) fn add_disk(
        &mut self,
        engine: &mut Engine,
        vms: &mut Vms,
        vm: usize,
        disk: Disk,
        base: u64,
    ) -> Result<usize, EngineError> {
        let spec = DiskSpec {
            base,
            size: disk.size,
            read_only: disk.read_only,
        };
        let id = engine.tenants_mut().add_disk(vms[vm].id, spec)?;
        let instant = match &disk.medium {
            Medium::Memory(_) => false,
            Medium::File(open) => open.facts.in_memory,
        };
        let at = self.disks.insert(DiskState {
            serial: next_serial(),
            base,
            vm,
            id,
            file: None,
            locks: RangeLocks::default(),
            resizing: false,
            instant,
            in_flight: 0,
            hung: None,
            survey: None,
            faults: inject::armed(&disk, clock()),
            injected: 0,
            disk,
        });
        vms[vm].disks.push(at);
        let places = self.by_id.len().max(id.index() + 1);
        self.by_id.resize(places, usize::MAX);
        self.by_id[id.index()] = at;
        Ok(at)
    }

    /// Describes a disk for whoever offers it to clients.
    pub(in super::super) fn volume(&self, at: usize) -> Volume {
        let state = &self.disks[at];
        let disk = &state.disk;
        Volume {
            serial: state.serial,
            name: disk.export.clone(),
            size: disk.size,
            block_size: disk.block_size,
            physical_block: disk.physical_block(),
            payload_max: PAYLOAD_MAX,
            read_only: disk.read_only,
            rotational: self.model.as_ref().is_some_and(|m| m.spec().rotational),
        }
    }
}

impl DiskState {
    /// Takes its file, if it has one, into the ring's table.
    pub(in super::super) fn register(&mut self, ring: &mut Ring) -> io::Result<()> {
        if let Medium::File(open) = &self.disk.medium {
            let file = ring.add_file(open.file.try_clone()?.into())?;
            if open.facts.durably == Durably::Sync {
                // An unknown file system may call its server already at submission, as FUSE does
                // for a file's attributes. One that does not answer would stop the loop with every
                // disk on it.
                ring.set_aside(file);
            }
            self.file = Some(file);
        }
        Ok(())
    }
}

/// Numbers that a client's choice of a disk is recognised by, whatever happened since.
fn next_serial() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
