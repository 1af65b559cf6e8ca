//! Interface of a driver to VMs and their disks: statistics, objectives, attainment, adding and
//! removing.

mod disk_limits;
mod limit_use;

pub use limit_use::LimitId;

use super::disk_limits as limits;
use super::disks::DiskSpec;
use super::transfer_accounts;
use super::{Engine, EngineError};
use crate::attainment::{PartAttainment, PartRecord, PartSeconds, StateAtClose};
use crate::interference::VmTimes;
use crate::roles::Event;
use crate::stats::{Ledger, VmStats};
use crate::tuning::Tuning;
use crate::view::{Life, NIL, Queues, Requests, Vm, state};
use core::cell::Ref;
use tidegate_base::bandwidth_samples::BandwidthSamples;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::Objective;
use tidegate_base::request::{DiskId, IoError, Lane, Op, VmId};
use tidegate_base::time::Nanos;

/// Read-only view of VMs and their disks; see [`Engine::vms`].
#[derive(Clone, Copy)]
pub struct Vms<'a> {
    pub(super) engine: &'a Engine,
}

impl<'a> Vms<'a> {
    /// State of the controller's tuning of a VM to its target; `None`: it does not tune the VM, or
    /// there is no such VM.
    pub fn tuning(&self, vm: VmId) -> Option<Tuning> {
        self.engine.check_vm(vm).ok()?;
        self.engine
            .active
            .roles
            .controller
            .as_ref()?
            .tuning(&self.engine.view, vm)
    }

    /// Statistics of a VM, including counts that are not in its ledger yet.
    ///
    /// # Panics
    /// If the handle was never given out, or its VM was removed.
    pub fn vm_stats(&self, vm: VmId) -> Ref<'a, VmStats> {
        self.engine.view.stats(vm)
    }

    /// Time of a VM's requests since it was added, by cause, and the VMs behind which they were.
    /// [`VmTimes::reply`] is zero: the engine does not know it.
    ///
    /// # Panics
    /// If the handle was never given out, or its VM was removed.
    pub fn times(&self, vm: VmId) -> VmTimes {
        let stats = self.vm_stats(vm);
        VmTimes {
            requests: stats.total_ops(),
            account: stats.account,
            reply: Nanos::ZERO,
            attribution: *self.engine.interference.attribution(vm.index()),
        }
    }

    /// Bytes that a VM moved in each of the last seconds up to `now`, for its precision. The
    /// seconds begin anew when its `target` in bytes per second changes.
    ///
    /// # Panics
    /// If the handle was never given out, or its VM was removed.
    pub fn vm_seconds(&self, now: Nanos, vm: VmId) -> BandwidthSamples {
        let view = &self.engine.view;
        let (vm_state, ledger) = (&view.queues.vms[vm.index()], &view.ledgers[vm.index()]);
        let second = BandwidthSamples::second_number(now.max(view.queues.now));
        let has_requests = vm_state.requests > 0;
        ledger.seconds(second, has_requests, vm_state.arrived, vm_state.answered)
    }

    /// Objective in force for a VM.
    pub fn objective(&self, vm: VmId) -> &'a Objective {
        self.engine.view.objective(vm)
    }

    /// Number of a VM's guest requests that wait, those that limits of its disks hold included.
    pub fn pending(&self, vm: VmId) -> u32 {
        self.engine.view.waiting(vm) + self.limited(vm)
    }

    /// Number of a VM's guest requests that limits of its disks hold.
    pub fn limited(&self, vm: VmId) -> u32 {
        let limits = self.engine.disk_limits.as_ref();
        limits.map_or(0, |limits| limits.waiting(vm.index))
    }

    /// Number of a VM's device I/Os in flight.
    pub fn in_flight(&self, vm: VmId) -> u32 {
        self.engine.view.in_flight(vm)
    }

    /// Numbers of a VM's requests that arrived and that ended, modulo 2^32: a cheap way to see
    /// whether its statistics have changed.
    pub fn request_numbers(&self, vm: VmId) -> [u32; 2] {
        let of_vm = &self.engine.view.queues.vms[vm.index()];
        [of_vm.arrived, of_vm.answered]
    }

    /// Attainment of each part of a VM's objective up to the last whole second before `now`; empty
    /// for a VM without promises.
    pub fn attainment(&self, now: Nanos, vm: VmId) -> Vec<PartAttainment> {
        let state = self.state_at_close(vm);
        self.engine.attainment.view(now, vm.index(), state)
    }

    /// Exports the attainment of a VM, to be persisted.
    pub fn export_attainment(&self, now: Nanos, vm: VmId) -> Vec<PartRecord> {
        let state = self.state_at_close(vm);
        self.engine.attainment.export(now, vm.index(), state)
    }

    fn state_at_close(&self, vm: VmId) -> StateAtClose {
        let queues = &self.engine.view.queues;
        queues.vms[vm.index()].state_at_close(&queues.device)
    }

    /// Exports what the policy's controller has learnt of a VM; `None`: nothing worth persisting.
    ///
    /// # Errors
    /// If there is no such VM.
    pub fn export_learnt(&self, vm: VmId) -> Result<Option<Blob>, EngineError> {
        self.engine.check_vm(vm)?;
        let controller = self.engine.active.roles.controller.as_ref();
        Ok(controller.and_then(|controller| controller.export(&self.engine.view, vm)))
    }
}

/// Changes of VMs and their disks; see [`Engine::vms_mut`].
pub struct VmsMut<'a> {
    pub(super) engine: &'a mut Engine,
}

impl VmsMut<'_> {
    /// Adds a VM.
    ///
    /// # Errors
    /// If the objective contradicts itself, or there are `max_vms` VMs.
    pub fn add_vm(&mut self, now: Nanos, objective: &Objective) -> Result<VmId, EngineError> {
        self.add(now, objective, false)
    }

    /// Adds a background process of the host, such as a backup: like a VM, but with what the
    /// VMs leave of the device. See [`View::is_background`](crate::view::View::is_background).
    ///
    /// # Errors
    /// As [`VmsMut::add_vm`].
    pub fn add_background(
        &mut self,
        now: Nanos,
        objective: &Objective,
    ) -> Result<VmId, EngineError> {
        self.add(now, objective, true)
    }

    fn add(
        &mut self,
        now: Nanos,
        objective: &Objective,
        background: bool,
    ) -> Result<VmId, EngineError> {
        self.engine.view.queues.advance(now);
        objective.validate()?;
        let max = self.engine.config.max_vms as u64;
        let index = self
            .engine
            .free_vm
            .pop()
            .ok_or(EngineError::Full { what: "VM", max })?;
        let slot = index as usize;
        self.make_room(slot);
        // The slot's former VM would be taken for this one.
        assert!(
            self.engine.view.queues.vms[slot].life == Life::Free,
            "VM slot {slot} of the free list is {:?}",
            self.engine.view.queues.vms[slot].life
        );
        // The slot comes first, because the steps below read the VM's life and kind; those after
        // the objective is stored read that.
        let generation = self.engine.view.queues.vms[slot].generation;
        self.engine.view.queues.vms[slot] = Vm {
            generation,
            life: Life::Live,
            background,
            ..Vm::vacant()
        };
        self.engine
            .active
            .bound_by_regulator(&mut self.engine.view, slot);
        if let Some(splitting) = &mut self.engine.control.splitting {
            splitting.vm_added(index);
        }
        self.engine.budgets.add(slot, objective);
        self.engine.attainment.add(slot);
        self.engine.interference.add(slot, generation);
        self.set_promise(slot, objective);
        self.engine.view.objectives[slot] = *objective;
        self.engine.view.allocations[slot] = 0;
        // The slot's former VM must not leave its statistics.
        self.engine.view.ledgers[slot] = Ledger::default();
        self.engine.view.begin_seconds(slot);
        (self.engine.control).promise_changed(&self.engine.view, index, None);
        let now = self.engine.view.queues.now;
        self.engine.promises.changed(now);
        let id = VmId { index, generation };
        if let Some(estimator) = &mut self.engine.view.estimator {
            estimator.reset_vm(id);
        }
        transfer_accounts::expect_transfers(&mut self.engine.view, id);
        self.engine.active.tell_limits(&mut self.engine.view, id);
        if background && !self.engine.active.roles.dispatcher.serves_background() {
            // The first one: the dispatcher is rebuilt with a queue for background processes, and
            // the new roles are told of this VM with all others.
            let policy = self.engine.active.policy.clone();
            self.engine.set_policy(now, &*policy);
        } else {
            self.engine
                .active
                .emit(&mut self.engine.view, &Event::VmAdded(id));
        }
        Ok(id)
    }

    /// Makes room for a VM in a slot.
    fn make_room(&mut self, slot: usize) {
        if self.engine.view.queues.vms.len() <= slot {
            self.engine
                .view
                .queues
                .vms
                .resize_with(slot + 1, Vm::vacant);
            self.engine
                .view
                .objectives
                .resize(slot + 1, Objective::default());
            self.engine.view.allocations.resize(slot + 1, 0);
            self.engine.active.fan_out.reserve(slot + 1);
        }
        if self.engine.view.ledgers.len() <= slot {
            self.engine
                .view
                .ledgers
                .resize_with(slot + 1, Ledger::default);
        }
    }

    /// Has attainment judge the VM in a slot by this objective from now on. Background processes
    /// only get what VMs leave: nothing is promised to them.
    fn set_promise(&mut self, slot: usize, objective: &Objective) {
        let Queues {
            now, vms, device, ..
        } = &mut self.engine.view.queues;
        let of_vm = &mut vms[slot];
        let (state, background) = (of_vm.state_at_close(device), of_vm.background);
        let attainment = &mut self.engine.attainment;
        of_vm.judged = !background && attainment.change(*now, slot, objective, state);
    }

    /// Changes a VM's objective. The token buckets of its limits keep their state: what a VM has
    /// used beyond a limit is not written off.
    ///
    /// # Errors
    /// If the objective contradicts itself, or there is no such VM.
    pub fn set_objective(
        &mut self,
        now: Nanos,
        vm: VmId,
        objective: &Objective,
    ) -> Result<(), EngineError> {
        self.engine.view.queues.advance(now);
        self.engine.check_vm(vm)?;
        objective.validate()?;
        let before = core::mem::replace(&mut self.engine.view.objectives[vm.index()], *objective);
        if before.target.bytes_per_s != objective.target.bytes_per_s {
            // Seconds under another target say nothing about the precision of this one.
            self.engine.view.begin_seconds(vm.index());
        }
        let view = &self.engine.view;
        let control = &mut self.engine.control;
        control.promise_changed(view, vm.index, before.latency);
        self.engine.promises.changed(view.queues.now);
        self.engine.budgets.change(vm.index(), objective);
        self.set_promise(vm.index(), objective);
        self.engine
            .budgets
            // A larger part may have made room for reads that wait for memory.
            .feed_reads(&mut self.engine.view, &mut self.engine.active);
        self.engine.active.tell_limits(&mut self.engine.view, vm);
        self.engine
            .active
            .emit(&mut self.engine.view, &Event::VmChanged(vm));
        Ok(())
    }

    /// Closes the seconds of a VM's attainment before `now`, as its own requests do, and returns
    /// those that were judged, by [`Part`](crate::attainment::Part); `None` for a VM without
    /// promises. Cheaper than [`Vms::attainment`].
    ///
    /// # Panics
    /// If the handle was never given out.
    pub fn close_attainment(&mut self, now: Nanos, vm: VmId) -> Option<[PartSeconds; 5]> {
        let state = self.engine.vms().state_at_close(vm);
        self.engine.attainment.close_seconds(now, vm.index(), state)
    }

    /// Forgets the attainment of a VM up to `now`, as after a warm-up.
    ///
    /// # Errors
    /// If there is no such VM.
    pub fn forget_attainment(&mut self, now: Nanos, vm: VmId) -> Result<(), EngineError> {
        self.engine.view.queues.advance(now);
        self.engine.check_vm(vm)?;
        let state = self.engine.vms().state_at_close(vm);
        self.engine.attainment.reset_vm(now, vm.index(), state);
        Ok(())
    }

    /// Continues with the attainment that [`Vms::export_attainment`] gave `ago` seconds ago.
    /// Counts of a promise that has changed since are dropped; its history stays.
    ///
    /// # Errors
    /// If there is no such VM.
    pub fn import_attainment(
        &mut self,
        now: Nanos,
        vm: VmId,
        ago: u32,
        records: &[PartRecord],
    ) -> Result<(), EngineError> {
        self.engine.view.queues.advance(now);
        self.engine.check_vm(vm)?;
        let attainment = &mut self.engine.attainment;
        attainment.import(self.engine.view.queues.now, vm.index(), ago, records);
        Ok(())
    }

    /// Removes a VM with its disks and connections: waiting requests are answered as cancelled,
    /// those in flight when they end.
    ///
    /// # Errors
    /// If there is no such VM.
    pub fn remove_vm(&mut self, now: Nanos, vm: VmId) -> Result<(), EngineError> {
        // First, while the VM is live: it also checks the handle.
        self.engine.transfers_mut().end_transfer(now, vm)?;
        self.engine.view.queues.vms[vm.index()].life = Life::Leaving;
        let view = &self.engine.view;
        let latency = view.objectives[vm.index()].latency;
        let control = &mut self.engine.control;
        control.promise_changed(view, vm.index, latency);
        self.engine.promises.changed(view.queues.now);
        // A phantom request keeps `requests` above 0, so that the cancellations below cannot free
        // the slot while it is still in use.
        self.engine.view.queues.vms[vm.index()].requests += 1;
        self.engine
            .cancel_waiting(vm.index, IoError::Cancelled, |_, _| true);
        for slot in self.engine.directory.disks_of(vm.index) {
            limits::cancel(self.engine, slot, IoError::Cancelled, |_, _| true);
            limits::forget(self.engine, slot);
            self.engine.cancel_flushes(slot, None);
        }
        for slot in self
            .engine
            .directory
            .connected(|client| client.vm == vm.index)
        {
            self.engine.directory.release_client(slot);
        }
        self.engine.view.queues.vms[vm.index()].requests -= 1;
        self.engine.leave_if_out(vm.index);
        Ok(())
    }

    /// Imports the learnt state of these VMs into the policy's controller; it may come from another
    /// engine. VMs that are added, removed or changed afterwards may invalidate it, so all of them
    /// should exist already. Returns the refused imports; for their VMs nothing has changed.
    pub fn import_learnt<'a>(
        &mut self,
        now: Nanos,
        learnt: impl IntoIterator<Item = (VmId, &'a Blob)>,
    ) -> Vec<(VmId, BlobError)> {
        self.import(now, learnt, false)
    }

    /// Imports as [`VmsMut::import_learnt`] does, for VMs whose disks were at another place of the
    /// device when the state was learnt: the parts that depend on the place are learnt anew.
    pub fn import_moved<'a>(
        &mut self,
        now: Nanos,
        learnt: impl IntoIterator<Item = (VmId, &'a Blob)>,
    ) -> Vec<(VmId, BlobError)> {
        self.import(now, learnt, true)
    }

    fn import<'a>(
        &mut self,
        now: Nanos,
        learnt: impl IntoIterator<Item = (VmId, &'a Blob)>,
        moved: bool,
    ) -> Vec<(VmId, BlobError)> {
        self.engine.view.queues.advance(now);
        let mut refused = Vec::new();
        for (vm, blob) in learnt {
            let taken = match (
                self.engine.check_vm(vm),
                &mut self.engine.active.roles.controller,
            ) {
                (Err(_), _) => Err(BlobError::Unwanted("the VM does not exist or was removed")),
                (_, None) => Err(BlobError::Unwanted("the policy has no controller")),
                (_, Some(controller)) if moved => {
                    controller.import_moved(&self.engine.view, vm, blob)
                }
                (_, Some(controller)) => controller.import(&self.engine.view, vm, blob),
            };
            refused.extend(taken.err().map(|error| (vm, error)));
        }
        if let Some(controller) = &mut self.engine.active.roles.controller {
            // Once for all VMs: what is learnt may depend on the others.
            controller.imported(&self.engine.view, &mut self.engine.active.fan_out.knobs);
        }
        self.engine.active.follow_up(&mut self.engine.view);
        refused
    }

    /// Adds a disk to a VM.
    ///
    /// # Errors
    /// If there is no such VM, or the range is empty or beyond 64 bits.
    pub fn add_disk(&mut self, vm: VmId, spec: DiskSpec) -> Result<DiskId, EngineError> {
        self.engine.check_vm(vm)?;
        spec.check()?;
        let disk = self.engine.directory.add_disk(vm.index, spec);
        let slots = self.engine.directory.disk_slots();
        self.engine.flushes.make_room(slots);
        if let Some(hung) = &mut self.engine.hung {
            hung.make_room(slots);
        }
        Ok(disk)
    }

    /// Removes a disk of a VM with its connections: waiting requests are answered as cancelled,
    /// those in flight when they end. The VM's other disks go on.
    ///
    /// # Errors
    /// If there is no such disk.
    pub fn remove_disk(&mut self, now: Nanos, disk: DiskId) -> Result<(), EngineError> {
        self.engine.view.queues.advance(now);
        let vm = self.engine.directory.known_disk(disk)?.vm;
        let index = disk.index;
        self.engine.directory.begin_leaving(index);
        self.engine
            .cancel_waiting(vm, IoError::Cancelled, |view, slot| {
                view.queues.reqs.cold[slot as usize].disk == index
            });
        limits::cancel(self.engine, index, IoError::Cancelled, |_, _| true);
        limits::forget(self.engine, index);
        self.engine.cancel_flushes(index, None);
        for slot in self
            .engine
            .directory
            .connected(|client| client.disk == index)
        {
            self.engine.directory.release_client(slot);
        }
        self.engine.directory.end_leaving(index);
        Ok(())
    }

    /// Changes place and size of a disk; its bytes keep their offsets. Waiting requests beyond a
    /// new, nearer end fail with [`IoError::BeyondEnd`]; those in flight there end normally, and
    /// are not repeated.
    ///
    /// # Errors
    /// If there is no such disk, or the range is empty or beyond 64 bits.
    pub fn resize_disk(
        &mut self,
        now: Nanos,
        disk: DiskId,
        base: u64,
        size: u64,
    ) -> Result<(), EngineError> {
        self.engine.view.queues.advance(now);
        let of_disk = self.engine.directory.known_disk(disk)?;
        let (vm, before) = (of_disk.vm, of_disk.spec);
        let after = DiskSpec {
            base,
            size,
            ..before
        };
        after.check()?;
        // Before the move: addresses are still those of the former place.
        if size < before.size {
            let is_beyond = |reqs: &Requests, slot: u32| {
                let hot = &reqs.hot[slot as usize];
                reqs.cold[slot as usize].disk == disk.index
                    && hot.addr - before.base + u64::from(hot.len) > size
            };
            let error = IoError::BeyondEnd;
            self.engine
                .cancel_waiting(vm, error, |view, slot| is_beyond(&view.queues.reqs, slot));
            limits::cancel(self.engine, disk.index, error, is_beyond);
        }
        if base != before.base {
            self.move_requests(vm, disk.index, base.wrapping_sub(before.base));
        }
        self.engine.directory.set_spec(disk.index, after);
        Ok(())
    }

    /// Moves the addresses of all requests for a disk by `by` bytes, modulo 2^64. Dispatchers that
    /// order by address see them removed and inserted. Regulators are not told, because the VM and
    /// the size of a request stay.
    fn move_requests(&mut self, vm: u32, disk: u32, by: u64) {
        // Shelved reads are in no lane, so the walk below would miss them.
        self.engine.active.unshelve(&mut self.engine.view, vm);
        let mut waiting = Vec::new();
        for lane in Lane::ALL {
            let mut unit = self.engine.view.queues.vms[vm as usize].lanes[lane.index()].head;
            while unit != NIL {
                // A unit's requests are all of one disk.
                if self.engine.view.queues.reqs.cold[unit as usize].disk == disk {
                    waiting.push(unit);
                }
                unit = self.engine.view.queues.reqs.hot[unit as usize].next;
            }
        }
        // A dispatcher may order by address, so units leave its index before theirs change.
        for &unit in &waiting {
            self.engine
                .active
                .remove_from_index(&mut self.engine.view, unit);
        }
        let Requests { hot, cold, .. } = &mut self.engine.view.queues.reqs;
        for (hot, cold) in hot.iter_mut().zip(cold) {
            // Also requests in flight, which may have to be repeated. A flush has no address.
            if hot.state != state::FREE && hot.op != Op::Flush && cold.disk == disk {
                hot.addr = hot.addr.wrapping_add(by);
            }
        }
        for unit in waiting {
            self.engine
                .active
                .insert_into_index(&mut self.engine.view, unit);
        }
    }
}
