//! VMs and policies come, change and go at run time; disks and clients in `disks`.

use super::{Ears, Engine, EngineError};
use crate::facts::{Facts, Life, NIL, Vm, state};
use crate::policy::Policy;
use crate::roles::Roles;
use crate::roles::{Consumed, Event, Stage};
use crate::stats::Ledger;
use tidegate_base::learnt::{Blob, BlobError};
use tidegate_base::objective::Objective;
use tidegate_base::request::{IoError, Lane, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::jobs::JobOutcome;

impl Engine {
    /// Adds a VM.
    ///
    /// # Errors
    /// When the objective contradicts itself, or `max_vms` are there.
    pub fn add_vm(&mut self, now: Nanos, objective: &Objective) -> Result<VmId, EngineError> {
        self.add_tenant(now, objective, false)
    }

    /// Adds a background process of the host, such as a backup: like a VM, but with what the
    /// VMs leave of the device. See [`Facts::is_background`](crate::facts::Facts::is_background).
    ///
    /// # Errors
    /// As [`Engine::add_vm`].
    pub fn add_background(
        &mut self,
        now: Nanos,
        objective: &Objective,
    ) -> Result<VmId, EngineError> {
        self.add_tenant(now, objective, true)
    }

    fn add_tenant(
        &mut self,
        now: Nanos,
        objective: &Objective,
        background: bool,
    ) -> Result<VmId, EngineError> {
        self.advance(now);
        objective.validate()?;
        let max = self.config.max_vms as u64;
        let index = self
            .free_vm
            .pop()
            .ok_or(EngineError::Full { what: "VM", max })?;
        let slot = index as usize;
        if self.facts.vms.len() <= slot {
            self.facts.vms.resize_with(slot + 1, Vm::vacant);
            self.facts.objectives.resize(slot + 1, Objective::default());
            self.facts.allocations.resize(slot + 1, 0);
            self.ears.reserve(slot + 1);
        }
        if self.facts.ledgers.len() <= slot {
            self.facts.ledgers.resize_with(slot + 1, Ledger::default);
        }
        let generation = self.facts.vms[slot].generation;
        self.facts.vms[slot] = Vm {
            generation,
            life: Life::Live,
            background,
            ..Vm::vacant()
        };
        self.bound_by_regulator(slot);
        if let Some(sharing) = &mut self.sharing {
            sharing.vm_added(index);
        }
        self.intake.add(slot, objective);
        self.facts.objectives[slot] = *objective;
        self.facts.allocations[slot] = 0;
        self.facts.ledgers[slot] = Ledger::default();
        self.facts.begin_seconds(slot);
        let id = VmId { index, generation };
        if let Some(estimator) = &mut self.facts.estimator {
            estimator.forget(id);
        }
        self.expect_jobs(id);
        self.tell_limits(id);
        if background && !self.roles.dispatcher.serves_background() {
            // The first one: from now on something must stand around the dispatcher.
            let policy = self.policy.clone();
            self.set_policy(now, &*policy);
        } else {
            self.emit(&Event::VmAdded(id));
        }
        Ok(id)
    }

    /// Changes what a VM was promised. What its limit had used stays used.
    ///
    /// # Errors
    /// When the objective contradicts itself, or there is no such VM.
    pub fn set_objective(
        &mut self,
        now: Nanos,
        vm: VmId,
        objective: &Objective,
    ) -> Result<(), EngineError> {
        self.advance(now);
        self.check_vm(vm)?;
        objective.validate()?;
        let before = core::mem::replace(&mut self.facts.objectives[vm.index()], *objective);
        if before.target.bytes_per_s != objective.target.bytes_per_s {
            // What came of another target says nothing of this one.
            self.facts.begin_seconds(vm.index());
        }
        self.intake.change(vm.index(), objective);
        self.feed_reads();
        self.tell_limits(vm);
        self.emit(&Event::VmChanged(vm));
        Ok(())
    }

    /// Removes a VM with its disks and clients: what waits is answered as cancelled, what is
    /// in flight is answered when it ends.
    ///
    /// # Errors
    /// When there is no such VM.
    pub fn remove_vm(&mut self, now: Nanos, vm: VmId) -> Result<(), EngineError> {
        self.advance(now);
        self.check_vm(vm)?;
        let end = self.finish_job(vm.index, JobOutcome::Cancelled);
        self.look_at_jobs(end.is_some());
        self.facts.vms[vm.index()].life = Life::Leaving;
        // Held by the VM itself until its last request is out: see `vm_left`.
        self.facts.vms[vm.index()].requests += 1;
        self.cancel_waiting(vm.index, IoError::Cancelled, |_, _| true);
        for slot in 0..self.disks.len() as u32 {
            let disk = &self.disks[slot as usize];
            if disk.live && disk.vm == vm.index {
                self.cancel_flushes(slot, None);
            }
        }
        for slot in 0..self.clients.len() as u32 {
            let client = &self.clients[slot as usize];
            if client.connected && client.vm == vm.index {
                self.release_client(slot);
            }
        }
        self.facts.vms[vm.index()].requests -= 1;
        self.leave_if_out(vm.index);
        Ok(())
    }

    /// The last request of a removed VM is out: its slots may be used again.
    pub(super) fn vm_left(&mut self, vm: u32) {
        let id = self.facts.vm_at(vm as usize);
        self.set_starved(vm, false);
        self.spent_before.remove(id);
        self.emit(&Event::VmRemoved(id));
        self.expect_no_jobs(id);
        for slot in 0..self.disks.len() as u32 {
            let disk = &self.disks[slot as usize];
            if disk.live && disk.vm == vm {
                self.free_disk_slot(slot);
            }
        }
        self.intake.remove(vm as usize);
        self.feed_reads();
        let vacated = &mut self.facts.vms[vm as usize];
        vacated.life = Life::Free;
        vacated.generation = vacated.generation.wrapping_add(1);
        self.free_vm.push(vm);
        // A VM's histograms are by far the most of what it takes: after a crowd they go.
        let there = |of_vm: &Vm| of_vm.life != Life::Free;
        let needed = self.facts.vms.iter().rposition(there).map_or(0, |i| i + 1);
        self.facts.ledgers.truncate(needed);
    }

    /// Changes the policy under load: everything waiting goes into the new one in the order
    /// of arrival, what is in flight is announced to it, and consumed limits stay consumed.
    pub fn set_policy(&mut self, now: Nanos, policy: &dyn Policy) {
        self.advance(now);
        self.unshelve_all();
        self.unpark_all();
        let vms: Vec<VmId> = self.present().collect();
        let consumed: Vec<Consumed> = vms
            .iter()
            .map(|&vm| {
                let of_regulator = self.roles.regulator.consumed(&self.facts, vm);
                let of_policy = of_regulator.or(self.roles.dispatcher.consumed(&self.facts, vm));
                of_policy.or(self.spent_before.consumed(self.facts.now, vm).debts())
            })
            .collect();
        for (&vm, consumed) in vms.iter().zip(&consumed) {
            self.spent_before.adopt(self.facts.now, vm, consumed);
        }
        self.open_all_gates(&vms);
        self.facts.device.deliberate = self.deliberate_time();
        self.waiting_since = None;
        self.pick_at = Nanos::MAX;
        self.policy = policy.to_shared();
        let (max_vms, max_requests) = (self.config.max_vms, self.config.max_requests);
        let roles = match vms.iter().any(|&vm| self.facts.is_background(vm)) {
            true => policy.build_with_background(max_vms, max_requests),
            false => policy.build(max_vms, max_requests),
        };
        self.roles = match &self.wrap {
            Some(wrap) => wrap(roles),
            None => roles,
        };
        self.ears = Ears::new(&self.roles, self.facts.vms.len());
        self.estimate_costs();
        self.facts.allocations.fill(0);
        self.stage = self.roles.regulator.stage();
        self.make_gates();
        self.set_all_waiting(self.stage == Stage::Admission, &vms);
        if self.facts.profile.is_some() {
            self.emit(&Event::ProfileChanged);
        }
        // Whoever is let in now would be put into an index that is made below of all who are.
        self.ears.asking = true;
        for (&vm, consumed) in vms.iter().zip(&consumed) {
            self.bound_by_regulator(vm.index());
            self.emit(&Event::VmAdded(vm));
            self.roles.regulator.adopt(&self.facts, vm, consumed);
            self.roles.dispatcher.adopt(&self.facts, vm, consumed);
        }
        for index in 0..self.in_flight.len() {
            if self.in_flight[index].live && self.in_flight[index].counted {
                let io = self.in_flight[index].io;
                self.emit(&Event::Inherited(&io));
            }
        }
        for unit in self.facts.admitted_in_order() {
            self.roles.dispatcher.insert(&self.facts, unit);
        }
        self.ears.asking = false;
        for vm in vms {
            for lane in Lane::ALL {
                self.ask_gate(vm.index, lane);
            }
        }
        self.ask_reopened();
        self.hand_jobs_on();
    }

    /// What the policy's controller has learnt of a VM that is worth keeping; `None`: nothing.
    ///
    /// # Errors
    /// When there is no such VM.
    pub fn export_learnt(&self, vm: VmId) -> Result<Option<Blob>, EngineError> {
        self.check_vm(vm)?;
        let controller = self.roles.controller.as_ref();
        Ok(controller.and_then(|controller| controller.export(&self.facts, vm)))
    }

    /// Has the policy's controller take over what was learnt of these VMs, which may have been by
    /// another engine. VMs that come, go or change afterwards may void it, so all of them ought to
    /// be there. Returns those that were refused; for them nothing has changed.
    pub fn import_learnt<'a>(
        &mut self,
        now: Nanos,
        learnt: impl IntoIterator<Item = (VmId, &'a Blob)>,
    ) -> Vec<(VmId, BlobError)> {
        self.take_over(now, learnt, false)
    }

    /// The same of VMs whose disks lie elsewhere than where it was learnt: what was learnt of the disks is
    /// found out anew, the rest is taken over.
    pub fn import_moved<'a>(
        &mut self,
        now: Nanos,
        learnt: impl IntoIterator<Item = (VmId, &'a Blob)>,
    ) -> Vec<(VmId, BlobError)> {
        self.take_over(now, learnt, true)
    }

    fn take_over<'a>(
        &mut self,
        now: Nanos,
        learnt: impl IntoIterator<Item = (VmId, &'a Blob)>,
        moved: bool,
    ) -> Vec<(VmId, BlobError)> {
        self.advance(now);
        let mut refused = Vec::new();
        for (vm, blob) in learnt {
            let taken = match (self.check_vm(vm), &mut self.roles.controller) {
                (Err(_), _) => Err(BlobError::Unwanted("the VM is not there (any more)")),
                (_, None) => Err(BlobError::Unwanted("the policy has no controller")),
                (_, Some(controller)) if moved => controller.import_moved(&self.facts, vm, blob),
                (_, Some(controller)) => controller.import(&self.facts, vm, blob),
            };
            refused.extend(taken.err().map(|error| (vm, error)));
        }
        if let Some(controller) = &mut self.roles.controller {
            controller.imported(&self.facts, &mut self.ears.knobs);
        }
        self.follow_up();
        refused
    }

    /// Puts something around the roles of the policy in force, now and after every swap: a
    /// checker that watches them, or a part that is kept outside this crate.
    pub fn wrap_roles(&mut self, now: Nanos, wrap: impl Fn(Roles) -> Roles + Send + 'static) {
        self.wrap = Some(Box::new(wrap));
        let policy = self.policy.clone();
        self.set_policy(now, &*policy);
    }

    /// A VM's requests are merged up to so many bytes, and split above them, within what the device
    /// allows.
    pub(super) fn bound_ios(&mut self, slot: usize, bytes: u32) {
        let (max_io, merge_limit) = (self.config.device.max_io, self.config.merge_limit);
        let of_vm = &mut self.facts.vms[slot];
        of_vm.largest_io = bytes.clamp(1, max_io);
        of_vm.merge_limit = merge_limit.min(of_vm.largest_io);
    }

    /// The same by what the regulator has for those that no controller tunes.
    pub(super) fn bound_by_regulator(&mut self, slot: usize) {
        let bytes = match self.facts.vms[slot].background {
            true => u32::MAX,
            false => self.roles.regulator.merge_limit(),
        };
        self.bound_ios(slot, bytes);
    }

    /// Limits that no role may keep have to follow objectives all the same.
    fn tell_limits(&mut self, vm: VmId) {
        let objective = &self.facts.objectives[vm.index()];
        self.spent_before.set(self.facts.now, vm, objective);
    }

    /// VMs that are there or not quite gone, in the order of their slots.
    fn present(&self) -> impl Iterator<Item = VmId> + '_ {
        let slots = 0..self.facts.vms.len();
        slots
            .filter(|&i| self.facts.vms[i].life != Life::Free)
            .map(|i| self.facts.vm_at(i))
    }

    fn open_all_gates(&mut self, vms: &[VmId]) {
        self.starved = 0;
        for vm in vms {
            for lane in Lane::ALL {
                let of_vm = &mut self.facts.vms[vm.index()];
                of_vm.set_regulated(lane, false, self.facts.now);
                // Whoever lacks memory finds out anew.
                of_vm.shut[lane.index()] = 0;
            }
            self.facts.vms[vm.index()].spent = false;
        }
    }

    /// Everything of VMs that waits becomes pending again, or all of it admitted, with how long it was held
    /// until here. The background always is.
    fn set_all_waiting(&mut self, pending: bool, vms: &[VmId]) {
        let Facts {
            now,
            hot,
            cold,
            vms: of_vms,
            device,
            ..
        } = &mut self.facts;
        device.pending = 0;
        for (hot, cold) in hot.iter_mut().zip(cold) {
            if hot.state == state::PENDING || hot.state == state::ADMITTED {
                let shut = of_vms[hot.vm as usize].shut_time(hot.op.lane(), *now);
                cold.settle(*now, shut);
                let held = pending && !of_vms[hot.vm as usize].background;
                device.pending += u32::from(held);
                hot.state = if held {
                    state::PENDING
                } else {
                    state::ADMITTED
                };
            }
        }
        for vm in vms {
            let of_vm = &mut of_vms[vm.index()];
            for queue in &mut of_vm.lanes {
                let held = pending && !of_vm.background;
                queue.pending = if held { queue.head } else { NIL };
            }
        }
    }

    pub(super) fn check_vm(&self, vm: VmId) -> Result<(), EngineError> {
        let known = self.facts.vms.get(vm.index());
        let live = known.is_some_and(|v| v.generation == vm.generation && v.life == Life::Live);
        if live {
            Ok(())
        } else {
            Err(EngineError::Unknown { what: "the VM" })
        }
    }
}
