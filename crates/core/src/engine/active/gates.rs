//! Admission and the gates of lanes.

use super::ActivePolicy;
use crate::facts::{Facts, Hot, NIL, Vm, shut, state};
use crate::roles::{Event, Gate, Interests, Stage};
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{Lane, ReqId, VmId};

impl ActivePolicy {
    /// Creates timers for all gates that the regulator may shut.
    pub(in crate::engine) fn make_gates(&mut self, max_vms: u32) {
        let lanes = match self.stage {
            Stage::Open => 0,
            Stage::Admission | Stage::Dispatch => max_vms as usize * Lane::ALL.len(),
        };
        self.gates = IndexedHeap::with_capacity(lanes);
    }

    /// Returns whether new units of a VM wait for admission.
    #[inline]
    pub(in crate::engine) fn holds_at_admission(&self, of_vm: &Vm) -> bool {
        self.stage == Stage::Admission && !of_vm.background
    }

    /// Takes in a new unit at the end of its lane, `alone` there or not. A `pending` one is
    /// admitted as far as the regulator lets it; otherwise it is admitted already.
    #[inline(always)]
    pub(in crate::engine) fn unit_came(
        &mut self,
        facts: &mut Facts,
        id: ReqId,
        [vm, lane]: [u32; 2],
        alone: bool,
        pending: bool,
    ) {
        if pending {
            return self.admit_new(facts, id, vm);
        }
        if self.hears(Interests::ARRIVED) {
            self.emit(facts, &Event::Arrived(id));
        }
        if alone && self.stage == Stage::Dispatch {
            self.ask_gate(facts, vm, Lane::ALL[lane as usize]);
        }
        // A dispatcher that orders lanes only needs to know that the lane is no longer empty.
        if alone || !self.fan_out.by_lane {
            self.roles.dispatcher.insert(facts, id);
        }
    }

    /// Announces a unit that waits for admission, and admits it if the regulator lets it.
    #[inline(never)]
    fn admit_new(&mut self, facts: &mut Facts, id: ReqId, vm: u32) {
        self.emit(facts, &Event::Arrived(id));
        self.admit(facts, vm);
    }

    /// Admits a VM's units in the order of arrival, as far as the regulator lets them.
    pub(in crate::engine) fn admit(&mut self, facts: &mut Facts, vm: u32) {
        if facts.queues.vms[vm as usize].background {
            return;
        }
        let vm_id = facts.vm_at(vm as usize);
        let timer = vm as usize * Lane::ALL.len();
        self.gates.remove(timer);
        while let Some(head) = facts.pending_head(vm_id) {
            match self.roles.regulator.gate(facts, head) {
                Gate::Pass => self.admit_unit(facts, vm, head),
                Gate::Until(due) => {
                    self.gates.set(timer, due);
                    break;
                }
                Gate::Blocked => break,
            }
        }
        // Roles read this (`Facts::may_enter`) also for VMs with nothing pending.
        let spent = !self.roles.regulator.admits(facts, vm_id);
        facts.queues.vms[vm as usize].spent = spent;
    }

    /// Admits a VM's first pending unit.
    pub(in crate::engine) fn admit_unit(&mut self, facts: &mut Facts, vm: u32, head: ReqId) {
        let slot = head.index;
        let Hot { next, op, .. } = facts.queues.reqs.hot[slot as usize];
        facts.queues.vms[vm as usize].lanes[op.lane().index()].pending = next;
        facts.queues.reqs.hot[slot as usize].state = state::ADMITTED;
        facts.queues.device.pending -= 1;
        let (now, deliberate) = (facts.queues.now, facts.queues.deliberate_time());
        let shut = facts.queues.shut_time(vm, op.lane());
        let cold = &mut facts.queues.reqs.cold[slot as usize];
        // With parts in flight it became pending again by a policy swap, and is not waiting.
        if cold.outstanding == 0 {
            cold.admitted(now, shut, deliberate);
        }
        self.emit(facts, &Event::Admitted(head));
        self.roles.dispatcher.insert(facts, head);
    }

    /// Asks the regulator whether the first unit of a lane (or, at admission, the VM's next unit)
    /// may go.
    #[inline]
    pub(in crate::engine) fn ask_gate(&mut self, facts: &mut Facts, vm: u32, lane: Lane) {
        match self.stage {
            Stage::Open => {}
            Stage::Admission => self.admit(facts, vm),
            Stage::Dispatch => {
                let of_vm = &facts.queues.vms[vm as usize];
                let is_shut = of_vm.shut[lane.index()] & shut::REGULATED != 0;
                // The open gate of an empty lane stays open, and has no timer.
                if is_shut || of_vm.lanes[lane.index()].head != NIL {
                    self.ask_lane_gate(facts, vm, lane, is_shut);
                }
            }
        }
    }

    /// Asks the regulator for the gate of a lane that is shut or not empty.
    #[inline(never)]
    fn ask_lane_gate(&mut self, facts: &mut Facts, vm: u32, lane: Lane, is_shut: bool) {
        let timer = vm as usize * Lane::ALL.len() + lane.index();
        let of_vm = &facts.queues.vms[vm as usize];
        let gate = match of_vm.lanes[lane.index()].head {
            NIL => Gate::Pass,
            _ => {
                let regulator = &self.roles.regulator;
                regulator.lane_gate(facts, of_vm.id(vm), lane)
            }
        };
        match gate {
            // Open gates have no timers, so there is nothing to remove.
            Gate::Pass if !is_shut => return,
            Gate::Until(due) => self.gates.set(timer, due),
            Gate::Pass | Gate::Blocked => {
                self.gates.remove(timer);
            }
        }
        self.set_gate(facts, vm, lane, gate == Gate::Pass);
    }

    /// Opens or shuts a lane's gate. The dispatcher is told only if the lane changes: lack of
    /// memory may keep it closed all the same.
    pub(in crate::engine) fn set_gate(
        &mut self,
        facts: &mut Facts,
        vm: u32,
        lane: Lane,
        open: bool,
    ) {
        let now = facts.queues.now;
        let of_vm = &mut facts.queues.vms[vm as usize];
        let was_closed = of_vm.is_closed(lane);
        if !of_vm.set_regulated(lane, !open, now) {
            return;
        }
        let (id, is_closed) = (of_vm.id(vm), of_vm.is_closed(lane));
        if is_closed != was_closed {
            let roles = &mut self.roles;
            roles.dispatcher.gate(facts, id, lane, !is_closed);
        }
    }

    /// Opens all gates and lanes of VMs, before another policy takes over.
    pub(in crate::engine) fn open_all_gates(&mut self, facts: &mut Facts, vms: &[VmId]) {
        facts.queues.memory.starved = 0;
        for vm in vms {
            for lane in Lane::ALL {
                let of_vm = &mut facts.queues.vms[vm.index()];
                of_vm.set_regulated(lane, false, facts.queues.now);
                // VMs that lack memory find out at their next read.
                of_vm.shut[lane.index()] = 0;
            }
            facts.queues.vms[vm.index()].spent = false;
        }
    }
}
