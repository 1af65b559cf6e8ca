//! Removal of VMs and disks: connections are closed as if their clients had vanished, waiting
//! requests are cancelled, and I/Os in flight end first and keep their memory until then.
//!
//! ```text
//!   served --RemoveVm, RemoveDisk--> Removal --no request, I/O, connection--> disks returned
//! ```
//!
//! The disks are returned to the sender of the command, because flushing and closing a file may
//! block.

use super::{Loop, recording, respond, sampler};
use crate::backing::Disk;
use crate::command::{CommandError, Reply};

/// Removal of a VM or a disk that waits for requests, I/Os and connections to end.
#[derive(Debug)]
pub(super) struct Removal {
    disks: Vec<usize>,
    /// Index of the VM if it is removed as well.
    vm: Option<usize>,
    reply: Reply<Vec<Disk>>,
}

impl Loop {
    /// Returns the indices of a VM and of its disk with this export name.
    pub(super) fn find_disk(&self, vm: &str, export: &str) -> Result<(usize, usize), CommandError> {
        let vm_index = self.vms.named(vm)?;
        let mut disks = self.vms[vm_index].disks.iter().copied();
        disks
            .find(|&at| self.device.disks[at].disk.export == export)
            .map(|at| (vm_index, at))
            .ok_or_else(|| CommandError::UnknownDisk {
                vm: vm.to_owned(),
                export: export.to_owned(),
            })
    }

    /// Removes a VM with its disks. Without `force` it is refused while a client is connected.
    pub(super) fn remove_vm(&mut self, name: &str, force: bool, reply: Reply<Vec<Disk>>) {
        let removable = self.vms.named(name).and_then(|at| {
            self.may_remove(&self.vms[at].disks, force)?;
            Ok(at)
        });
        let at = match removable {
            Ok(at) => at,
            Err(error) => return respond(reply, Err(error)),
        };
        let vm = &mut self.vms[at];
        // From here on the name is free, while the VM keeps its index until its last request ends.
        vm.is_removed = true;
        let (id, disks) = (vm.id, std::mem::take(&mut vm.disks));
        self.disconnect(&disks, "its VM was removed");
        sampler::sample_removed(self, at);
        let removed = self.engine.vms_mut().remove_vm(self.now, id);
        removed.expect("a VM of the loop is one of the engine");
        let vm = Some(at);
        self.removals.push(Removal { disks, vm, reply });
    }

    /// Removes a disk. Without `force` it is refused while a client is connected.
    pub(super) fn remove_disk(
        &mut self,
        vm: &str,
        export: &str,
        force: bool,
        reply: Reply<Vec<Disk>>,
    ) {
        let removable = self.find_disk(vm, export).and_then(|(vm_index, at)| {
            self.may_remove(&[at], force)?;
            Ok((vm_index, at))
        });
        let (vm_index, at) = match removable {
            Ok(indices) => indices,
            Err(error) => return respond(reply, Err(error)),
        };
        self.vms[vm_index].disks.retain(|&disk| disk != at);
        self.disconnect(&[at], "its disk was removed");
        let removed = self
            .engine
            .vms_mut()
            .remove_disk(self.now, self.device.disks[at].id);
        removed.expect("a disk of the loop is one of the engine");
        let disks = vec![at];
        self.removals.push(Removal {
            disks,
            vm: None,
            reply,
        });
    }

    fn may_remove(&self, disks: &[usize], force: bool) -> Result<(), CommandError> {
        if !force && self.is_any_resize_pending(disks) {
            return Err(CommandError::Refused(
                "one of its disks is being resized".to_owned(),
            ));
        }
        let connected = self.frontends.peers_on(disks).map(|(peer, disk)| {
            let export = &self.device.disks[disk].disk.export;
            format!("{peer} to {export:?}")
        });
        let connected: Vec<String> = connected.collect();
        if force || connected.is_empty() {
            Ok(())
        } else {
            Err(CommandError::InUse(connected))
        }
    }

    fn disconnect(&mut self, disks: &[usize], why: &str) {
        self.cancel_resizes(|disk| disks.contains(&disk), "the disk was removed");
        let (frontends, mut ctx) = self.frontends_and_context();
        frontends.disconnect(&mut ctx, disks, why);
        // A request that a fault rule stalls would delay the removal.
        for &disk in disks {
            self.end_stalls(Some(disk));
            let (device, mut parts) = self.device_and_parts();
            device.begin_close(&mut parts, Some(disk));
        }
    }

    /// Finishes the removals for which nothing is in flight any more.
    pub(super) fn finish_removals(&mut self) {
        let mut at = 0;
        while at < self.removals.len() {
            if self.is_busy(&self.removals[at]) {
                at += 1;
                continue;
            }
            // The last removal takes this index, so the loop looks at it again.
            let Removal { disks, vm, reply } = self.removals.swap_remove(at);
            recording::removed(self, vm, &disks);
            let disks = disks
                .into_iter()
                .map(|disk| self.detach_disk(disk))
                .collect();
            if let Some(vm) = vm {
                let left = &self.vms[vm];
                assert!(
                    left.is_removed && left.disks.is_empty(),
                    "VM {:?} leaves the table while it is served",
                    left.name
                );
                assert!(
                    !left.transfers.is_running(),
                    "VM {:?} leaves with a transfer that stays counted as running",
                    left.name
                );
                self.vms.remove(vm);
            }
            respond(reply, Ok(disks));
        }
    }

    fn is_busy(&self, removal: &Removal) -> bool {
        let of_disk = |disk: &usize| {
            self.device.disks[*disk].in_flight > 0
                || !self.device.disks[*disk].disk.medium.is_at_rest()
                || self.requests.any_of(|slot| slot.disk as usize == *disk)
                || self.frontends.count_on(&[*disk]) > 0
        };
        let of_vm = |vm: usize| self.requests.any_of(|slot| slot.vm as usize == vm);
        removal.disks.iter().any(of_disk) || removal.vm.is_some_and(of_vm)
    }

    /// Takes a disk out of the loop and frees its index and its range of the device.
    pub(super) fn detach_disk(&mut self, at: usize) -> Disk {
        let mut state = self.device.disks.remove(at);
        assert!(
            state.in_flight == 0 && state.disk.medium.is_at_rest(),
            "export {:?} is detached with {} I/Os in flight",
            state.disk.export,
            state.in_flight
        );
        // The engine has freed the disk's id, which may be another disk's by now.
        let by_id = &mut self.device.by_id[state.id.index()];
        if *by_id == at {
            *by_id = usize::MAX;
        }
        self.device.layout.release(state.base);
        state.disk.medium.detach(&mut self.ring);
        state.disk
    }
}
