//! Admission and the gates of lanes.

use super::ActivePolicy;
use crate::engine::timers::debug_assert_to_come;
use crate::roles::{Event, Gate, Interests, Stage};
use crate::view::{Hot, NIL, View, Vm, shut, state};
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{Lane, ReqId, VmId};

impl ActivePolicy {
    /// Creates timers for all gates that the regulator may shut.
    pub(in crate::engine) fn make_gates(&mut self, max_vms: u32) {
        let lanes = match self.stage {
            // Without gates there are no timers.
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

    /// Takes in a new unit at the end of its lane. Its place is given by slot of the VM, lane, and
    /// whether the payload lies in the client's own memory: then the lane is open for it.
    #[inline(always)]
    pub(in crate::engine) fn take_in(
        &mut self,
        view: &mut View,
        id: ReqId,
        (vm, lane, own_memory): (u32, Lane, bool),
        alone: bool,
        pending: bool,
    ) {
        let place = [vm, lane.index() as u32];
        self.take_in_unit(view, id, place, alone, pending);
        if own_memory {
            // The lane may be closed for lack of payload memory, which this request does not need.
            view.queues.count_holder(id.index);
            self.open_holders_lane(view, id.index);
        }
    }

    /// Takes in a new unit at the end of its lane, `alone` there or not. A `pending` one is
    /// admitted as far as the regulator lets it; otherwise it is admitted already.
    #[inline(always)]
    fn take_in_unit(
        &mut self,
        view: &mut View,
        id: ReqId,
        [vm, lane]: [u32; 2],
        alone: bool,
        pending: bool,
    ) {
        if pending {
            return self.admit_new(view, id, vm);
        }
        if self.hears(Interests::ARRIVED) {
            self.emit(view, &Event::Arrived(id));
        }
        if alone && self.stage == Stage::Dispatch {
            self.ask_lane_gate(view, vm, Lane::ALL[lane as usize]);
        }
        // A dispatcher that orders lanes only needs to know that the lane is no longer empty.
        if alone || !self.fan_out.by_lane {
            self.roles.dispatcher.insert(view, id);
        }
    }

    /// Announces a unit that waits for admission, and admits it if the regulator lets it.
    #[inline(never)]
    fn admit_new(&mut self, view: &mut View, id: ReqId, vm: u32) {
        self.emit(view, &Event::Arrived(id));
        self.admit(view, vm);
    }

    /// Admits a VM's units in the order of arrival, as far as the regulator lets them.
    pub(in crate::engine) fn admit(&mut self, view: &mut View, vm: u32) {
        if view.queues.vms[vm as usize].background {
            return;
        }
        let vm_id = view.vm_at(vm as usize);
        // Admission has one gate for both lanes, whose timer stands in the first one's place.
        let timer = vm as usize * Lane::ALL.len();
        self.gates.remove(timer);
        while let Some(head) = view.pending_head(vm_id) {
            match self.roles.regulator.gate(view, head) {
                Gate::Pass => self.admit_unit(view, vm, head),
                Gate::Until(due) => {
                    debug_assert_to_come(view, due, "an admission");
                    self.gates.set(timer, due);
                    break;
                }
                // No timer: the regulator reopens the gate itself.
                Gate::Blocked => break,
            }
        }
        // Roles read this (`View::may_enter`) also for VMs with nothing pending.
        let spent = !self.roles.regulator.admits(view, vm_id);
        view.queues.vms[vm as usize].spent = spent;
    }

    /// Admits a VM's first pending unit.
    pub(in crate::engine) fn admit_unit(&mut self, view: &mut View, vm: u32, head: ReqId) {
        let slot = head.index;
        debug_assert_eq!(
            view.queues.reqs.hot[slot as usize].state,
            state::PENDING,
            "{head:?} is admitted without waiting for it"
        );
        let Hot { next, op, .. } = view.queues.reqs.hot[slot as usize];
        view.queues.vms[vm as usize].lanes[op.lane().index()].pending = next;
        view.queues.reqs.hot[slot as usize].state = state::ADMITTED;
        view.queues.device.pending -= 1;
        let (now, deliberate) = (view.queues.now, view.queues.deliberate_time());
        let shut = view.queues.shut_time(vm, op.lane());
        let cold = &mut view.queues.reqs.cold[slot as usize];
        // With parts in flight it became pending again by a policy swap, and is not waiting.
        if cold.outstanding == 0 {
            cold.admitted(now, shut, deliberate);
        }
        self.emit(view, &Event::Admitted(head));
        // After the event: a dispatcher may count the wait from the admission it just heard of.
        self.roles.dispatcher.insert(view, head);
    }

    /// Asks the regulator whether the first unit of a lane (or, at admission, the VM's next unit)
    /// may go.
    #[inline]
    pub(in crate::engine) fn ask_gate(&mut self, view: &mut View, vm: u32, lane: Lane) {
        match self.stage {
            Stage::Open => {}
            Stage::Admission => self.admit(view, vm),
            Stage::Dispatch => {
                let of_vm = &view.queues.vms[vm as usize];
                // The open gate of an empty lane stays open, and has no timer.
                if of_vm.lanes[lane.index()].head != NIL || of_vm.shut[lane.index()] != 0 {
                    self.ask_lane_gate(view, vm, lane);
                }
            }
        }
    }

    /// Asks the regulator whether the first unit of each lane may go, where it does so at dispatch.
    #[inline(always)]
    pub(in crate::engine) fn ask_both_lanes(&mut self, view: &mut View, vm: u32) {
        if self.stage != Stage::Dispatch {
            return;
        }
        let of_vm = &view.queues.vms[vm as usize];
        // Open gates of empty lanes stay open, as in `ask_gate`.
        let [reads, writes] = &of_vm.lanes;
        if reads.head != NIL || writes.head != NIL || of_vm.shut != [0, 0] {
            for lane in Lane::ALL {
                self.ask_gate(view, vm, lane);
            }
        }
    }

    /// Asks the regulator for the gate of a lane that is shut or not empty.
    #[inline(never)]
    fn ask_lane_gate(&mut self, view: &mut View, vm: u32, lane: Lane) {
        let of_vm = &view.queues.vms[vm as usize];
        let is_shut = of_vm.shut[lane.index()] & shut::REGULATED != 0;
        let gate = match of_vm.lanes[lane.index()].head {
            // An empty lane is held back by nothing, so its closed time must not run on.
            NIL => Gate::Pass,
            _ => {
                let regulator = &self.roles.regulator;
                regulator.lane_gate(view, of_vm.id(vm), lane)
            }
        };
        // Open gates have no timers, so there is nothing to remove.
        if is_shut || gate != Gate::Pass {
            self.change_gate(view, vm, lane, gate);
        }
    }

    /// Sets the timer of a lane's gate that is shut, or was until now, and opens or shuts it.
    #[inline(never)]
    fn change_gate(&mut self, view: &mut View, vm: u32, lane: Lane, gate: Gate) {
        let timer = vm as usize * Lane::ALL.len() + lane.index();
        match gate {
            Gate::Until(due) => {
                debug_assert_to_come(view, due, "a lane's opening");
                self.gates.set(timer, due);
            }
            Gate::Pass | Gate::Blocked => {
                self.gates.remove(timer);
            }
        }
        self.set_gate(view, vm, lane, gate == Gate::Pass);
    }

    /// Opens or shuts a lane's gate. The dispatcher is told only if the lane changes: lack of
    /// memory may keep it closed all the same.
    pub(in crate::engine) fn set_gate(&mut self, view: &mut View, vm: u32, lane: Lane, open: bool) {
        let now = view.queues.now;
        let of_vm = &mut view.queues.vms[vm as usize];
        let was_closed = of_vm.is_closed(lane);
        if !of_vm.set_regulated(lane, !open, now) {
            return;
        }
        let (id, is_closed) = (of_vm.id(vm), of_vm.is_closed(lane));
        if is_closed != was_closed {
            let roles = &mut self.roles;
            roles.dispatcher.gate(view, id, lane, !is_closed);
        }
    }

    /// Opens all gates and lanes of VMs, before another policy takes over.
    pub(in crate::engine) fn open_all_gates(&mut self, view: &mut View, vms: &[VmId]) {
        view.queues.memory.vms_lacking = 0;
        for vm in vms {
            for lane in Lane::ALL {
                let of_vm = &mut view.queues.vms[vm.index()];
                of_vm.set_regulated(lane, false, view.queues.now);
                // VMs that lack memory find out at their next read.
                of_vm.shut[lane.index()] = 0;
            }
            view.queues.vms[vm.index()].spent = false;
        }
    }
}
