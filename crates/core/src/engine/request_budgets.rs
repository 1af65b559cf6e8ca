//! Intake: resources that a request needs before it is inside, and a read before it goes to the
//! device.
//!
//! Request slots and payload memory are scarce. A [`Budget`] each divides them, so that no VM waits
//! for resources that another VM holds beyond its part.
//!
//! ```text
//!   any request:  slot ------------------------------------------------> given back when answered
//!   write:        slot + memory, before its payload comes (claim) -----> when its reply was sent
//!   read:         slot; memory when it is dispatched ------------------> when its reply was sent
//! ```
//!
//! A queued read holds no memory: memory goes to reads in the policy's order. Writes and reads have
//! budgets of their own, since a write holds its memory while it waits for the policy: a read must
//! never wait for that.
//!
//! A VM whose next read finds no memory has its read lane closed until there is some. Only where a
//! read that holds memory already waits in that lane (the rest of one that goes in parts, or one
//! that goes again) the lane stays open, and the read that lacks memory is shelved instead: out of
//! its lane and of the dispatcher's index.

use super::active::ActivePolicy;
use super::{Engine, Refusal};
use crate::budget::{Bounds, Budget, Shares, buffer_bytes};
use crate::view::{Life, View, flag, shut};
use tidegate_base::objective::Objective;
use tidegate_base::request::{Lane, Op};
use tidegate_base::time::Nanos;

/// Bounds of payload memory; see
/// [`AdmissionMut::bound_payload`](super::AdmissionMut::bound_payload).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadBounds {
    /// Bytes for all VMs.
    pub total: u64,
    /// Bytes for one VM; a single request may be larger.
    pub per_vm: u64,
    /// Bytes of the largest request.
    pub largest: u32,
}

/// Origin of the memory in which a client's payloads lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadMemory {
    /// Memory of the frontend, bounded by
    /// [`AdmissionMut::bound_payload`](super::AdmissionMut::bound_payload).
    Bounded,
    /// Memory that the client brings along, such as a guest's: its requests need slots only.
    Own,
}

impl PayloadBounds {
    /// Bytes kept for requests larger than their VM's part: one for writes and one for reads.
    fn reserve(&self) -> u64 {
        buffer_bytes(self.largest)
    }

    /// Returns whether the reserves are inside the total: only where half of it is left.
    fn holds_reserves(&self) -> bool {
        // Two reserves, for writes and for reads, are at most half of the total then.
        4 * self.reserve() <= self.total
    }

    /// Maximum bytes in use. Exceeds `total` only where that is less than four of the largest
    /// request.
    pub fn max_in_use(&self) -> u64 {
        if self.holds_reserves() {
            self.total
        } else {
            self.total + 2 * self.reserve()
        }
    }

    /// Bytes divided among VMs for writes; as many again for reads.
    pub fn per_direction(&self) -> u64 {
        let divided = if self.holds_reserves() {
            self.total - 2 * self.reserve()
        } else {
            self.total
        };
        divided / 2
    }

    /// Bounds of the writes' budget and of the reads', which are alike.
    ///
    /// # Panics
    /// If there is no memory to divide, or the largest request has no bytes.
    pub(super) fn direction_bounds(&self) -> Bounds {
        assert!(
            self.per_direction() > 0 && self.largest > 0,
            "no payload memory for requests: {self:?}"
        );
        Bounds {
            total: self.per_direction(),
            // The configured bound covers writes and reads together.
            per_member: self.per_vm / 2,
            reserve: self.reserve(),
            divided: true,
        }
    }
}

/// Budgets of payload memory, for writes and for reads.
pub(super) struct Payload {
    pub writes: Budget,
    pub reads: Budget,
    /// VMs for which a frontend was refused memory for a reply.
    pub refused_replies: Vec<u32>,
    /// VMs of `refused_replies` that may have the memory now; taken by `poll_unblocked`.
    pub unblocked: Vec<u32>,
}

impl Payload {
    /// Has a frontend ask again for replies that were refused to a VM. Taking memory for a VM ends
    /// its wait in the budget, whatever the wait was for, so the reply would not be remembered
    /// there.
    #[inline]
    fn ask_replies_again(&mut self, vm: u32) {
        if self.refused_replies.is_empty() {
            return;
        }
        let of_vm = |&other: &u32| other == vm;
        if let Some(at) = self.refused_replies.iter().position(of_vm) {
            self.refused_replies.swap_remove(at);
            self.unblocked.push(vm);
        }
    }
}

/// Budgets of all resources that requests need; see the [module](self).
pub(super) struct RequestBudgets {
    pub slots: Budget,
    pub payload: Option<Box<Payload>>,
}

impl RequestBudgets {
    /// Creates budgets of `requests` slots, of which one VM has at most `per_vm`, for `vms` VMs.
    /// Payload memory is not bounded.
    pub(super) fn new(requests: u32, per_vm: u32, vms: u32) -> RequestBudgets {
        let bounds = Bounds {
            total: requests.into(),
            per_member: per_vm.into(),
            // Every request needs one slot, so none is larger than a VM's part.
            reserve: 0,
            divided: true,
        };
        RequestBudgets {
            slots: Budget::new(bounds, vms as usize),
            payload: None,
        }
    }

    pub(super) fn add(&mut self, vm: usize, objective: &Objective) {
        self.slots.add(vm, Shares::of_slots(objective));
        if let Some(payload) = &mut self.payload {
            payload.writes.add(vm, Shares::of_memory(objective));
            payload.reads.add(vm, Shares::of_memory(objective));
        }
    }

    pub(super) fn change(&mut self, vm: usize, objective: &Objective) {
        self.slots.change(vm, Shares::of_slots(objective));
        if let Some(payload) = &mut self.payload {
            payload.writes.change(vm, Shares::of_memory(objective));
            payload.reads.change(vm, Shares::of_memory(objective));
        }
    }

    pub(super) fn remove(&mut self, vm: usize) {
        self.slots.remove(vm);
        if let Some(payload) = &mut self.payload {
            payload.writes.remove(vm);
            payload.reads.remove(vm);
            // The slot's next VM must not be offered what the former one waited for.
            payload.unblocked.retain(|&other| other as usize != vm);
            payload
                .refused_replies
                .retain(|&other| other as usize != vm);
        }
    }

    /// Returns whether a VM holds a slot or memory.
    pub(super) fn holds_any(&self, vm: usize) -> bool {
        let payload = self.payload.as_ref();
        self.slots.held(vm) > 0
            || payload.is_some_and(|of| of.writes.held(vm) > 0 || of.reads.held(vm) > 0)
    }

    /// Returns the slot of an answered request to the budget.
    #[inline]
    pub(super) fn answered(&mut self, now: Nanos, vm: usize) {
        self.slots.give_back(now, vm, 1);
    }

    /// Returns whether payload memory is bounded: then reads need some to be dispatched.
    #[inline]
    pub(super) fn bounds_payload(&self) -> bool {
        self.payload.is_some()
    }

    /// Takes a slot for a VM, and memory for a write unless the client has memory of its own.
    #[inline(always)]
    pub(super) fn take_in(
        &mut self,
        now: Nanos,
        vm: usize,
        own_memory: bool,
        op: Op,
        len: u32,
    ) -> Result<(), Refusal> {
        if op == Op::Write && !own_memory && self.bounds_payload() {
            return self.take_write_in(now, vm, len);
        }
        if self.slots.take_or_wait(now, vm, 1) {
            Ok(())
        } else {
            Err(Refusal::Full)
        }
    }

    #[inline(never)]
    fn take_write_in(&mut self, now: Nanos, vm: usize, len: u32) -> Result<(), Refusal> {
        let amount = buffer_bytes(len);
        let payload = self.payload.as_mut().expect("it is bounded");
        if !payload.writes.take_or_wait(now, vm, amount) {
            return Err(Refusal::Full);
        }
        // Undone, not given back: a return counts as service, by which the VM may borrow more.
        if !self.slots.take_or_wait(now, vm, 1) {
            payload.writes.undo(vm, amount);
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Takes memory for a unit that goes to the device now, where it needs some. False: there is
    /// none, and the unit waits out of the dispatcher's reach.
    #[inline]
    pub(super) fn feed(&mut self, view: &mut View, active: &mut ActivePolicy, unit: u32) -> bool {
        let this = &view.queues.reqs.hot[unit as usize];
        if !self.bounds_payload() || this.op != Op::Read {
            return true;
        }
        // A part of a read that has begun, or a read into the client's own memory.
        if this.unit_reqs == 1 && this.flags & flag::HOLDS != 0 {
            return true;
        }
        self.take_read_memory(view, active, unit)
    }

    #[inline(never)]
    pub(super) fn take_read_memory(
        &mut self,
        view: &mut View,
        active: &mut ActivePolicy,
        unit: u32,
    ) -> bool {
        let amount = view.queues.reqs.missing_memory(unit);
        let (vm, now) = (view.queues.reqs.hot[unit as usize].vm, view.queues.now);
        let payload = self.payload.as_mut().expect("it is bounded");
        let unit_reqs = view.queues.reqs.hot[unit as usize].unit_reqs;
        if unit_reqs > 1 && amount > payload.reads.bounds().reserve {
            // Each read gets a buffer of its own, so many short ones in a unit may need more than
            // the largest request, which the reserve is made for.
            active.split_unit(view, unit, unit_reqs / 2);
            return false;
        }
        if amount == 0 || payload.reads.take_or_wait(now, vm as usize, amount) {
            payload.ask_replies_again(vm);
            view.queues.reqs.mark_held(unit);
            return true;
        }
        // Set only while the device is idle: without it the read would wait for itself.
        if core::mem::take(&mut view.queues.memory.overdraws) {
            payload.reads.overdraw(vm as usize, amount);
            payload.ask_replies_again(vm);
            view.queues.reqs.mark_held(unit);
            return true;
        }
        active.hold_for_memory(view, unit);
        false
    }

    /// Takes memory as [`RequestBudgets::feed`] does, for a unit that would only go along: without
    /// memory it simply stays where it is.
    pub(super) fn may_go_along(&mut self, view: &mut View, unit: u32) -> bool {
        if !self.bounds_payload() || view.queues.reqs.hot[unit as usize].op != Op::Read {
            return true;
        }
        let amount = view.queues.reqs.missing_memory(unit);
        let (vm, now) = (view.queues.reqs.hot[unit as usize].vm, view.queues.now);
        let payload = self.payload.as_mut().expect("it is bounded");
        let fed = amount == 0 || payload.reads.try_take(now, vm as usize, amount);
        if fed {
            view.queues.reqs.mark_held(unit);
        }
        fed
    }

    /// Returns whether a VM's reads wait for memory that will not be offered to them: its holder
    /// waits in the closed lane, or the budget knows of no wait.
    pub(super) fn waits_in_vain(&self, view: &View, vm: u32) -> bool {
        let lacks_memory =
            view.queues.vms[vm as usize].shut[Lane::Read.index()] & shut::LACKS_MEMORY != 0;
        let payload = self.payload.as_ref();
        lacks_memory
            && (view.queues.holder_waits(vm)
                || payload.is_some_and(|payload| !payload.reads.is_waiting(vm as usize)))
    }

    /// Opens the read lane of a VM whose reads lack memory, before some of them may be cancelled.
    /// The next read that still lacks memory waits anew.
    #[inline]
    pub(super) fn ask_for_memory_again(
        &mut self,
        view: &mut View,
        active: &mut ActivePolicy,
        vm: u32,
    ) {
        if view.queues.vms[vm as usize].shut[Lane::Read.index()] & shut::LACKS_MEMORY != 0
            && let Some(payload) = &mut self.payload
        {
            // A refused reply waits in the same budget, and must not lose its turn.
            if !payload.refused_replies.contains(&vm) {
                payload.reads.stop_waiting(vm as usize);
            }
            active.set_lacks_memory(view, vm, false);
        }
    }

    /// Opens the read lanes of VMs that may have memory again, in the order of their turns in the
    /// budget.
    pub(super) fn feed_reads(&mut self, view: &mut View, active: &mut ActivePolicy) {
        while let Some(payload) = &mut self.payload
            && let Some(vm) = payload.reads.next_ready()
        {
            let vm = vm as u32;
            payload.ask_replies_again(vm);
            active.unshelve(view, vm);
            active.set_lacks_memory(view, vm, false);
        }
    }
}

/// Payload memory of a VM as it stands; see [`Admission::holdings`](super::Admission::holdings).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Holdings {
    /// Request slots held, and the VM's guaranteed part of them.
    pub slots: u64,
    /// Guaranteed part of the request slots.
    pub slots_part: u64,
    /// Bytes of payload memory held by writes and reads; 0 where it is not bounded.
    pub payload: u64,
    /// Guaranteed part of the payload memory, in bytes, for writes and as much again for reads; 0
    /// where it is not bounded.
    pub payload_part: u64,
    /// More is held than the guaranteed parts: something is borrowed.
    pub borrows: bool,
}

impl Engine {
    /// Frees the slot of a removed VM once none of its requests is inside and it holds nothing.
    pub(super) fn leave_if_out(&mut self, vm: u32) {
        let of_vm = &self.view.queues.vms[vm as usize];
        if of_vm.life == Life::Leaving
            && of_vm.requests == 0
            && !self.budgets.holds_any(vm as usize)
        {
            self.vm_left(vm);
        }
    }
}
