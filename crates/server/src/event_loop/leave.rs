//! Removal of VMs and disks: connections are closed as if their clients had vanished, waiting
//! requests are cancelled, and I/Os in flight end first and keep their memory until then.
//!
//! ```text
//!   there --RemoveVm, RemoveDisk--> leaving --nothing in flight, no client--> given back
//! ```
//!
//! The disks go back to whoever asked: flushing and closing a file takes its time.

use super::{Loop, answer_ended};
use crate::backing::Disk;
use crate::command::{CommandError, Reply};

/// A VM or a disk that was removed and is not quite gone.
#[derive(Debug)]
pub(super) struct Leaving {
    disks: Vec<usize>,
    /// The VM goes, too.
    vm: Option<usize>,
    reply: Reply<Vec<Disk>>,
}

impl Loop {
    /// The places of a VM and of one of its disks.
    pub(super) fn disk_named(
        &self,
        vm: &str,
        export: &str,
    ) -> Result<(usize, usize), CommandError> {
        let of = self.vms.named(vm)?;
        let mut disks = self.vms[of].disks.iter().copied();
        disks
            .find(|&at| self.device.disks[at].disk.export == export)
            .map(|at| (of, at))
            .ok_or_else(|| CommandError::UnknownDisk {
                vm: vm.to_owned(),
                export: export.to_owned(),
            })
    }

    pub(super) fn remove_vm(&mut self, name: &str, force: bool, reply: Reply<Vec<Disk>>) {
        let removable = self.vms.named(name).and_then(|at| {
            self.may_remove(&self.vms[at].disks, force)?;
            Ok(at)
        });
        let at = match removable {
            Ok(at) => at,
            Err(error) => return answer_ended(reply.send(Err(error))),
        };
        let vm = &mut self.vms[at];
        vm.leaving = true;
        let (id, disks) = (vm.id, std::mem::take(&mut vm.disks));
        self.cut_off(&disks, "its VM was removed");
        let removed = self.engine.tenants_mut().remove_vm(self.now, id);
        removed.expect("a VM of the loop is one of the engine");
        let vm = Some(at);
        self.leaving.push(Leaving { disks, vm, reply });
    }

    pub(super) fn remove_disk(
        &mut self,
        vm: &str,
        export: &str,
        force: bool,
        reply: Reply<Vec<Disk>>,
    ) {
        let removable = self.disk_named(vm, export).and_then(|(of, at)| {
            self.may_remove(&[at], force)?;
            Ok((of, at))
        });
        let (of, at) = match removable {
            Ok(places) => places,
            Err(error) => return answer_ended(reply.send(Err(error))),
        };
        self.vms[of].disks.retain(|&disk| disk != at);
        self.cut_off(&[at], "its disk was removed");
        let removed = self
            .engine
            .tenants_mut()
            .remove_disk(self.now, self.device.disks[at].id);
        removed.expect("a disk of the loop is one of the engine");
        let disks = vec![at];
        self.leaving.push(Leaving {
            disks,
            vm: None,
            reply,
        });
    }

    fn may_remove(&self, disks: &[usize], force: bool) -> Result<(), CommandError> {
        if self.is_shrinking(disks) {
            return Err(CommandError::Refused(
                "a disk of it is being made shorter".to_owned(),
            ));
        }
        let connected = self.frontends.peers_of(disks).map(|(peer, disk)| {
            let export = &self.device.disks[disk].disk.export;
            format!("{peer} to {export:?}")
        });
        let connected: Vec<String> = connected.collect();
        match force || connected.is_empty() {
            true => Ok(()),
            false => Err(CommandError::InUse(connected)),
        }
    }

    fn cut_off(&mut self, disks: &[usize], why: &str) {
        let (frontends, mut hall) = self.frontends_and_hall();
        frontends.cut_off(&mut hall, disks, why);
        // What a fault rule holds up would hold up the end.
        disks.iter().for_each(|&disk| self.end_stalls(Some(disk)));
    }

    /// Lets go what was removed and has come to rest.
    pub(super) fn leave_further(&mut self) {
        let mut at = 0;
        while at < self.leaving.len() {
            if self.is_busy(&self.leaving[at]) {
                at += 1;
                continue;
            }
            let Leaving { disks, vm, reply } = self.leaving.swap_remove(at);
            let disks = disks.into_iter().map(|disk| self.take_out(disk)).collect();
            if let Some(vm) = vm {
                self.vms.remove(vm);
            }
            answer_ended(reply.send(Ok(disks)));
        }
    }

    fn is_busy(&self, leaving: &Leaving) -> bool {
        let of_disk = |disk: &usize| {
            self.device.disks[*disk].in_flight > 0
                || !self.device.disks[*disk].disk.medium.is_at_rest()
                || self.requests.any_of(|slot| slot.disk as usize == *disk)
                || self.frontends.count_of(&[*disk]) > 0
        };
        let of_vm = |vm: usize| self.requests.any_of(|slot| slot.vm as usize == vm);
        leaving.disks.iter().any(of_disk) || leaving.vm.is_some_and(of_vm)
    }

    /// Takes a disk out of the loop: its place on the device and in the tables is free.
    pub(super) fn take_out(&mut self, at: usize) -> Disk {
        let mut state = self.device.disks.remove(at);
        // Its number may be another disk's by now: the engine let it go when it was removed.
        let by_id = &mut self.device.by_id[state.id.index()];
        if *by_id == at {
            *by_id = usize::MAX;
        }
        self.device.layout.release(state.base);
        state.disk.medium.detach(&mut self.ring);
        state.disk
    }
}
