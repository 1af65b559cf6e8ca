//! Adding of VMs and disks, and resizing of disks.
//!
//! ```text
//!   StartResize --larger----> range of addresses reserved -----------+
//!       |                                                            v
//!       +-------smaller--> waiting requests beyond the end     replies from memory of the disk
//!                          fail, I/Os there end -------------> that moves or goes are sent
//!                                                                    |
//!   served with the new size <--FinishResize-- sender of the command extends or truncates the
//!                                              file or memory
//! ```
//!
//! An NBD client knows the size of its disk from the handshake and keeps to it until it connects
//! again. After growth it sees the old part; after shrinking, its requests beyond the end fail with
//! the protocol's error. The listener notifies front-ends of vhost-user once the catalogue of
//! volumes has the new size.

use tidegate_units::human::{bytes_and_count, exact_bytes};

use super::control::newly_judged_snapshot;
use super::device::{DiskState, Io};
use super::vms::VmArgs;
use super::{Loop, Phase, recording, respond};
use crate::backing::ActivationState;
use crate::backing::interface::ResizeWork;
use crate::backing::layout::Wanted;
use crate::command::{CommandError, NewDisk, NewVm, Reply, Resizing, VmSnapshot};
use crate::frontend::Volume;

/// Resize that begins once nothing is in flight beyond the disk's new end, and no reply is to be
/// sent from memory that moves or goes.
#[derive(Debug)]
pub(super) struct PendingResize {
    disk: usize,
    /// End up to which the disk's memory stays where it is.
    stays: u64,
    /// Number of replies that had ended when such ones were last looked for and found; `None`:
    /// there are none.
    waits_since: Option<u64>,
    resizing: Resizing,
    reply: Reply<Resizing>,
}

impl Loop {
    /// Adds a VM with its disks. Changes nothing if the VM or one of the disks is refused.
    pub(super) fn add_vm(&mut self, new: NewVm) -> Result<(VmSnapshot, Vec<Volume>), CommandError> {
        self.check_running()?;
        // Changes are made one after the other, but for one that took too long: meanwhile it may
        // have been asked for again, and the first one to come here counts.
        if self.vms.named(&new.name).is_ok() {
            let what = format!("VM {:?} is served already", new.name);
            return Err(CommandError::Refused(what));
        }
        let args = VmArgs {
            name: &new.name,
            background: new.background,
            objective: &new.objective,
            connections: self.admission.add_vm(new.max_connections),
        };
        let added = self.vms.add(&mut self.engine, self.now, args);
        let vm = added.map_err(|error| CommandError::Refused(error.to_string()))?;
        if let Some(exchange) = self.exchange.as_ref().filter(|_| new.background) {
            // With the first one the engine may have built its policy anew.
            exchange.repeat(&mut self.engine, self.now);
        }
        for disk in new.disks {
            if let Err(error) = self.place_disk(vm, disk) {
                let removed = self.engine.vms_mut().remove_vm(self.now, self.vms[vm].id);
                removed.expect("it was just added");
                for disk in self.vms.remove(vm).disks {
                    self.detach_disk(disk);
                }
                return Err(error);
            }
        }
        recording::vm_added(self, vm);
        let volumes = (self.vms[vm].disks.iter()).map(|&disk| self.device.volume(disk));
        let volumes = volumes.collect();
        Ok((newly_judged_snapshot(self, vm), volumes))
    }

    /// Adds a disk to a VM that is served. Changes nothing if it is refused.
    pub(super) fn add_disk(
        &mut self,
        vm: &str,
        new: NewDisk,
    ) -> Result<(VmSnapshot, Vec<Volume>), CommandError> {
        self.check_running()?;
        let vm = self.vms.named(vm)?;
        let at = self.place_disk(vm, new)?;
        recording::disk_added(self, vm, at);
        Ok((self.vm_snapshot(vm), vec![self.device.volume(at)]))
    }

    /// Refuses a command that adds work while the loop drains.
    pub(super) fn check_running(&self) -> Result<(), CommandError> {
        match self.phase {
            Phase::Running => Ok(()),
            _ => Err(CommandError::Refused("the daemon is stopping".to_owned())),
        }
    }

    /// Adds a disk to a VM and returns its index. Changes nothing if it is refused.
    fn place_disk(&mut self, vm: usize, new: NewDisk) -> Result<usize, CommandError> {
        let NewDisk { disk, at } = new;
        let (needs, has) = (
            disk.physical_block(),
            self.engine.config().device.physical_block,
        );
        if needs > has {
            // Requests are split at the device's blocks, whose size is fixed when the loop starts.
            return Err(CommandError::Refused(format!(
                "export {:?} has blocks of {}, and its device was started with blocks of {}; \
                 larger blocks need a disk in the configuration file and a restart",
                disk.export,
                exact_bytes(needs.into()),
                exact_bytes(has.into())
            )));
        }
        let size = disk.size;
        let base = self.device.layout.allocate(Wanted { size, at })?;
        let (engine, vms) = (&mut self.engine, &mut self.vms);
        let place = match self.device.add_disk(engine, vms, vm, disk, base) {
            Ok(place) => place,
            Err(error) => {
                self.device.layout.release(base);
                return Err(CommandError::Refused(error.to_string()));
            }
        };
        let state = &mut self.device.disks[place];
        if let Err(error) = state.disk.medium.attach(&mut self.ring) {
            let (id, export) = (state.id, state.disk.export.clone());
            self.vms[vm].disks.retain(|&disk| disk != place);
            let removed = self.engine.vms_mut().remove_disk(self.now, id);
            removed.expect("it was just added");
            self.detach_disk(place);
            let what = format!("export {export:?}: cannot register its file: {error}");
            return Err(CommandError::Refused(what));
        }
        Ok(place)
    }

    /// Starts the resizing of a disk. The answer has the work that the file needs. It comes once no
    /// I/O is in flight beyond the new end, and no reply is to be sent from the disk's own memory.
    pub(super) fn start_resize(
        &mut self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
        reply: Reply<Resizing>,
    ) {
        match self.try_start_resize(vm, export, size, force) {
            Ok((disk, resizing)) => {
                let moves = self.device.disks[disk].disk.medium.moves_at(size);
                let stays = if moves { 0 } else { size };
                let beyond = self.requests.has_disk_memory(disk, stays);
                self.pending_resizes.push(PendingResize {
                    disk,
                    stays,
                    waits_since: beyond.then(|| self.requests.disk_replies_ended()),
                    resizing,
                    reply,
                });
            }
            Err(error) => respond(reply, Err(error)),
        }
    }

    /// Reserves the disk's new range and returns its index and the work that its file needs.
    /// Changes nothing if it is refused.
    fn try_start_resize(
        &mut self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<(usize, Resizing), CommandError> {
        self.check_running()?;
        let (_, at) = self.find_disk(vm, export)?;
        let state = &mut self.device.disks[at];
        if state.resizing {
            let what = format!("export {export:?} is already being resized");
            return Err(CommandError::Refused(what));
        }
        let activation = state.disk.activation_state();
        if let Some(why) = activation.and_then(ActivationState::refusal) {
            let what = format!("export {export:?} cannot be resized: {why}");
            return Err(CommandError::Refused(what));
        }
        let now = state.disk.size;
        if size < now && !force {
            return Err(CommandError::Shrinks { now, size });
        }
        let unit = (state.disk.medium.size_unit()).max(state.disk.block_size);
        if size == 0 || !size.is_multiple_of(u64::from(unit)) {
            return Err(CommandError::Refused(format!(
                "a size of {} is not a positive multiple of {}, the disk's block",
                bytes_and_count(size),
                exact_bytes(unit.into())
            )));
        }
        // This can fail, for example without a free file descriptor, and must do so before any
        // change.
        let resizing = resizing(state, size)?;
        state.base = self.device.layout.resize(state.base, size)?;
        // The smaller of both sizes until the file has the new one.
        state.disk.size = size.min(now);
        state.disk.medium.expect_size(state.disk.size);
        state.resizing = true;
        let resized =
            self.engine
                .vms_mut()
                .resize_disk(self.now, state.id, state.base, state.disk.size);
        resized.expect("a disk of the loop is one of the engine");
        if size < now {
            // A stalled request beyond the new end would delay the resize.
            self.end_stalls(Some(at));
        }
        Ok((at, resizing))
    }

    /// Serves a disk with its new size, once its file has that size.
    pub(super) fn finish_resize(
        &mut self,
        vm: &str,
        export: &str,
        serial: u32,
        size: u64,
    ) -> Result<(VmSnapshot, Vec<Volume>), CommandError> {
        let (of, at) = self.find_disk(vm, export)?;
        let state = &mut self.device.disks[at];
        // Another disk may have been added under this name since the resize began.
        if state.serial != serial {
            let (vm, export) = (vm.to_owned(), export.to_owned());
            return Err(CommandError::UnknownDisk { vm, export });
        }
        assert!(
            state.resizing,
            "a resize of export {export:?} ends that never began"
        );
        assert!(
            !(state.disk.medium.moves_at(size) && self.requests.has_disk_memory(at, 0)),
            "export {export:?} moves while a reply is to be sent from its memory"
        );
        state.resizing = false;
        let memory = state.disk.medium.resize(size);
        // If the memory cannot be reserved, the disk keeps the size that it has.
        let size = memory.as_ref().map_or(state.disk.size, |()| size);
        state.base = self.device.layout.resize(state.base, size)?;
        state.disk.size = size;
        let resized = self
            .engine
            .vms_mut()
            .resize_disk(self.now, state.id, state.base, size);
        resized.expect("a disk of the loop is one of the engine");
        recording::disk_resized(self, at);
        memory.map_err(|error| {
            CommandError::Refused({
                let size = bytes_and_count(size);
                format!("cannot reserve {size} of memory: {error}")
            })
        })?;
        Ok((self.vm_snapshot(of), vec![self.device.volume(at)]))
    }

    /// Returns true if the resize of one of these disks is pending.
    pub(super) fn is_any_resize_pending(&self, disks: &[usize]) -> bool {
        self.pending_resizes.iter().any(|s| disks.contains(&s.disk))
    }

    /// Refuses the pending resizes of these disks.
    pub(super) fn cancel_resizes(&mut self, of: impl Fn(usize) -> bool, why: &str) {
        let pending = |resize: &mut PendingResize| of(resize.disk);
        for PendingResize { reply, .. } in self.pending_resizes.extract_if(.., pending) {
            respond(reply, Err(CommandError::Refused(why.to_owned())));
        }
    }

    /// Answers the commands of disks that no longer have an I/O in flight beyond their new end, or
    /// a reply from memory that moves or goes.
    pub(super) fn begin_resizes(&mut self) {
        let mut at = 0;
        while at < self.pending_resizes.len() {
            let pending = &mut self.pending_resizes[at];
            let (disk, ended) = (pending.disk, self.requests.disk_replies_ended());
            // A client may leave its replies for long, so they are not looked for in vain.
            if pending.waits_since.is_some_and(|since| since != ended) {
                let beyond = self.requests.has_disk_memory(disk, pending.stays);
                pending.waits_since = beyond.then_some(ended);
            }
            let end = self.device.disks[disk].disk.size;
            let beyond = |io: &Io| io.is_beyond(disk, end);
            if pending.waits_since.is_some() || self.device.ios.iter().any(beyond) {
                at += 1;
                continue;
            }
            // The last entry takes this index, so the loop looks at it again.
            let PendingResize {
                resizing, reply, ..
            } = self.pending_resizes.swap_remove(at);
            respond(reply, Ok(resizing));
        }
    }
}

/// Describes the work that gives a disk's file `size` bytes.
fn resizing(state: &DiskState, size: u64) -> Result<Resizing, CommandError> {
    let disk = &state.disk;
    let work = disk.medium.resize_work(size);
    let ResizeWork { file, tail } = work.map_err(CommandError::Refused)?;
    Ok(Resizing {
        file,
        tail,
        before: disk.size,
        serial: state.serial,
    })
}
