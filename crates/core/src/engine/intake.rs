//! Intake: what a request needs before it is inside, and a read before it goes to the device.
//!
//! Request slots and payload memory are scarce and divided by a [`Budget`] each, so that nobody waits
//! for what another VM holds beyond its part.
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
//! A VM whose next read finds no memory has its read lane closed until there is some. Only where
//! a read that holds memory already waits in that lane (the rest of one that goes in parts, or one that
//! goes again) the lane stays open, and the read that lacks memory is shelved instead: out of its
//! lane and of the dispatcher's index.

use super::{Engine, Refusal};
use crate::budget::{Bounds, Budget, Shares, buffer_bytes};
use crate::facts::{Hot, Life, flag, shut};
use crate::roles::{Event, Interests};
use tidegate_base::objective::Objective;
use tidegate_base::request::{ClientId, Lane, Op, ReqId, Request, VmId};
use tidegate_base::time::Nanos;

/// Bounds of payload memory; see [`Engine::bound_payload`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadBounds {
    /// Bytes for all VMs.
    pub total: u64,
    /// Bytes for one VM; a single request may be larger.
    pub per_vm: u64,
    /// Bytes of the largest request.
    pub largest: u32,
}

impl PayloadBounds {
    /// Bytes kept for requests larger than their VM's part: one for writes and one for reads.
    fn reserve(&self) -> u64 {
        buffer_bytes(self.largest)
    }

    /// Whether the reserves are inside the total: only where half of it is left.
    fn holds_reserves(&self) -> bool {
        4 * self.reserve() <= self.total
    }

    /// Bytes in use at most. More than `total` only where that is less than four of the largest
    /// request.
    pub fn most(&self) -> u64 {
        match self.holds_reserves() {
            true => self.total,
            false => self.total + 2 * self.reserve(),
        }
    }

    /// Bytes that are divided among VMs for writes, and as many for reads.
    pub fn each(&self) -> u64 {
        let divided = match self.holds_reserves() {
            true => self.total - 2 * self.reserve(),
            false => self.total,
        };
        divided / 2
    }

    /// Bounds of the writes' budget and of the reads', which are alike.
    fn of_each(&self) -> Bounds {
        Bounds {
            total: self.each(),
            per_member: self.per_vm / 2,
            reserve: self.reserve(),
            divided: true,
        }
    }
}

/// Payload memory's budgets.
struct Payload {
    writes: Budget,
    reads: Budget,
    /// VMs of which a frontend was refused memory for a reply, and those of them that may have it now.
    refused_replies: Vec<u32>,
    unblocked: Vec<u32>,
}

impl Payload {
    /// Has a frontend ask again for replies that were refused to a VM. Whoever takes memory for a VM ends its wait
    /// for some, whatever the wait was for.
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

/// Budgets of all that requests need; see the [module](self).
pub(super) struct Intake {
    slots: Budget,
    payload: Option<Box<Payload>>,
}

impl Intake {
    /// Budgets of `requests` slots, of which one VM has at most `per_vm`, for `vms` VMs. Payload
    /// memory is not bounded.
    pub(super) fn new(requests: u32, per_vm: u32, vms: u32) -> Intake {
        let bounds = Bounds {
            total: requests.into(),
            per_member: per_vm.into(),
            reserve: 0,
            divided: true,
        };
        Intake {
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
            payload.unblocked.retain(|&other| other as usize != vm);
            payload
                .refused_replies
                .retain(|&other| other as usize != vm);
        }
    }

    /// Whether a VM holds a slot or memory.
    pub(super) fn holds(&self, vm: usize) -> bool {
        let payload = self.payload.as_ref();
        self.slots.held(vm) > 0
            || payload.is_some_and(|of| of.writes.held(vm) > 0 || of.reads.held(vm) > 0)
    }

    /// A request is answered: its slot is free.
    #[inline]
    pub(super) fn answered(&mut self, now: Nanos, vm: usize) {
        self.slots.give_back(now, vm, 1);
    }

    /// Whether reads need memory to be dispatched.
    #[inline]
    pub(super) fn bounds_payload(&self) -> bool {
        self.payload.is_some()
    }
}

/// Payload memory of a VM as it stands; see [`Engine::holdings`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Holdings {
    /// Request slots held, and the VM's guaranteed part of them.
    pub slots: u64,
    /// Guaranteed part of the request slots.
    pub slots_part: u64,
    /// Bytes of payload memory held by writes and reads; 0 where it is not bounded.
    pub payload: u64,
    /// Guaranteed part of the payload memory, in bytes, for writes and as much again for reads; 0 where
    /// it is not bounded.
    pub payload_part: u64,
    /// More is held than the parts: something is borrowed.
    pub borrows: bool,
}

impl Engine {
    /// Bounds payload memory: from now on a write needs some before it is taken, and a read before it is
    /// dispatched. A frontend returns what a request held with [`Engine::return_payload`]. To be called
    /// before the first VM is added; without, payload memory is not bounded and nothing is counted.
    ///
    /// Panics when there is a VM.
    pub fn bound_payload(&mut self, bounds: &PayloadBounds) {
        assert!(
            self.facts.vms.is_empty(),
            "payload is bounded before the first VM comes"
        );
        let (bounds, vms) = (bounds.of_each(), self.config.max_vms as usize);
        self.intake.payload = Some(Box::new(Payload {
            writes: Budget::new(bounds, vms),
            reads: Budget::new(bounds, vms),
            refused_replies: Vec::new(),
            unblocked: Vec::new(),
        }));
    }

    /// Leaves request slots and payload memory undivided: whoever comes first has what there is within the
    /// bounds. For reproductions of published experiments, whose systems did not divide them. To
    /// be called before the first VM is added: panics when there is one.
    pub fn leave_undivided(&mut self) {
        assert!(
            self.facts.vms.is_empty(),
            "slots are divided before the first VM comes"
        );
        let bounds = Bounds {
            divided: false,
            ..self.intake.slots.bounds()
        };
        let vms = self.config.max_vms as usize;
        self.intake.slots = Budget::new(bounds, vms);
        if let Some(payload) = &mut self.intake.payload {
            for budget in [&mut payload.writes, &mut payload.reads] {
                let bounds = Bounds {
                    divided: false,
                    ..budget.bounds()
                };
                *budget = Budget::new(bounds, vms);
            }
        }
    }

    /// How many requests a client may hand in now at least; 0 also for one that is gone. Where it is 0 the
    /// next one is refused as [`Refusal::Full`].
    pub fn room(&mut self, now: Nanos, client: ClientId) -> u32 {
        self.advance(now);
        let Ok(client) = self.client(client) else {
            return 0;
        };
        let vm = client.vm as usize;
        if self.facts.vms[vm].life != Life::Live {
            return 0;
        }
        self.intake.slots.room(self.facts.now, vm) as u32
    }

    /// Takes a slot, and for a write memory for `len` bytes, for a request whose payload is still to
    /// come. It is handed in by [`Engine::handle_claimed_request`] or given up by
    /// [`Engine::return_claim`].
    ///
    /// # Errors
    /// [`Refusal::Full`] where there is none now: [`Engine::poll_unblocked`] says when to try again.
    /// [`Refusal::NotConnected`].
    pub fn claim(&mut self, now: Nanos, client: ClientId, op: Op, len: u32) -> Result<(), Refusal> {
        self.advance(now);
        let known = self.client(client).map_err(|_| Refusal::NotConnected)?;
        let vm = known.vm as usize;
        if self.facts.vms[vm].life != Life::Live {
            return Err(Refusal::NotConnected);
        }
        self.take_in(vm, op, len)
    }

    /// Takes a VM's slot, and a write's memory.
    #[inline(always)]
    pub(super) fn take_in(&mut self, vm: usize, op: Op, len: u32) -> Result<(), Refusal> {
        if op == Op::Write && self.intake.bounds_payload() {
            return self.take_write_in(vm, len);
        }
        match self.intake.slots.take(self.facts.now, vm, 1) {
            true => Ok(()),
            false => Err(Refusal::Full),
        }
    }

    #[inline(never)]
    fn take_write_in(&mut self, vm: usize, len: u32) -> Result<(), Refusal> {
        let (now, amount) = (self.facts.now, buffer_bytes(len));
        let payload = self.intake.payload.as_mut().expect("it is bounded");
        if !payload.writes.take(now, vm, amount) {
            return Err(Refusal::Full);
        }
        if !self.intake.slots.take(now, vm, 1) {
            payload.writes.undo(vm, amount);
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Gives a claim up: its request will not be handed in.
    pub fn return_claim(&mut self, now: Nanos, vm: VmId, op: Op, len: u32) {
        self.advance(now);
        self.intake.slots.undo(vm.index(), 1);
        if op == Op::Write
            && let Some(payload) = &mut self.intake.payload
        {
            payload.writes.undo(vm.index(), buffer_bytes(len));
        }
        self.leave_if_out(vm.index);
    }

    /// Takes `len` bytes of the reads' memory for a reply that the frontend makes itself; returned like
    /// a read's. False: there is none now, and [`Engine::poll_unblocked`] says when to try again. Always
    /// true where payload memory is not bounded.
    pub fn take_reply(&mut self, now: Nanos, client: ClientId, len: u32) -> bool {
        self.advance(now);
        let Ok(client) = self.client(client) else {
            return false;
        };
        let vm = client.vm as usize;
        let Some(payload) = &mut self.intake.payload else {
            return true;
        };
        let taken = payload.reads.take(self.facts.now, vm, buffer_bytes(len));
        if taken {
            // The budget takes it that the VM waits no more: a read that does asks again.
            self.unshelve(vm as u32);
            self.set_starved(vm as u32, false);
        } else if !payload.refused_replies.contains(&(vm as u32)) {
            payload.refused_replies.push(vm as u32);
        }
        taken
    }

    /// Gives back the memory of a request whose reply was sent, or that nobody waits for: of one of
    /// whose [`Done`](tidegate_base::request::Done) says that it holds some, or of
    /// [`Engine::take_reply`]. `op` tells whose it was: a write's, or anything else's.
    pub fn return_payload(&mut self, now: Nanos, vm: VmId, op: Op, len: u32) {
        self.advance(now);
        let Some(payload) = &mut self.intake.payload else {
            return;
        };
        let amount = buffer_bytes(len);
        if op == Op::Write {
            payload.writes.give_back(self.facts.now, vm.index(), amount);
        } else {
            payload.reads.give_back(self.facts.now, vm.index(), amount);
            self.feed_reads();
        }
        self.leave_if_out(vm.index);
    }

    /// The next VM of which a request was refused as [`Refusal::Full`] and would be taken now. To be asked
    /// until `None` after every batch of completions and returns. Whoever still finds no room is told
    /// again.
    #[inline]
    pub fn poll_unblocked(&mut self) -> Option<VmId> {
        let mut ready = self.intake.slots.next_ready();
        if ready.is_none()
            && let Some(payload) = &mut self.intake.payload
        {
            ready = payload.unblocked.pop().map(|vm| vm as usize);
            ready = ready.or_else(|| payload.writes.next_ready());
        }
        ready.map(|vm| self.facts.vm_at(vm))
    }

    /// Slots and memory that a VM holds, and its parts of them.
    pub fn holdings(&self, vm: VmId) -> Holdings {
        let (vm, slots) = (vm.index(), &self.intake.slots);
        let mut holdings = Holdings {
            slots: slots.held(vm),
            slots_part: slots.part(vm),
            borrows: slots.exceeds_part(vm),
            ..Holdings::default()
        };
        if let Some(payload) = &self.intake.payload {
            let Payload { writes, reads, .. } = &**payload;
            holdings.payload = writes.held(vm) + reads.held(vm);
            holdings.payload_part = writes.part(vm);
            holdings.borrows |= writes.exceeds_part(vm) || reads.exceeds_part(vm);
        }
        holdings
    }

    /// Whether a VM waits for what others hold beyond their parts.
    pub fn is_contended(&self) -> bool {
        let payload = self.intake.payload.as_ref();
        self.intake.slots.is_contended()
            || payload.is_some_and(|of| of.writes.is_contended() || of.reads.is_contended())
    }

    /// Request slots in use, claims included, and bytes of payload memory in use.
    pub fn in_use(&self) -> (u64, u64) {
        let payload = self.intake.payload.as_ref();
        let bytes = payload.map_or(0, |of| of.writes.used() + of.reads.used());
        (self.intake.slots.used(), bytes)
    }

    /// Memory for a unit that goes to the device now, where it needs some. False: there is none, and
    /// the unit waits out of the dispatcher's reach.
    #[inline]
    pub(super) fn feed(&mut self, unit: u32) -> bool {
        let this = &self.facts.hot[unit as usize];
        if !self.intake.bounds_payload() || this.op != Op::Read {
            return true;
        }
        if this.unit_reqs == 1 && this.flags & flag::HOLDS != 0 {
            return true;
        }
        self.take_read_memory(unit)
    }

    #[inline(never)]
    fn take_read_memory(&mut self, unit: u32) -> bool {
        let amount = self.lacks(unit);
        let (vm, now) = (self.facts.hot[unit as usize].vm, self.facts.now);
        let payload = self.intake.payload.as_mut().expect("it is bounded");
        let unit_reqs = self.facts.hot[unit as usize].unit_reqs;
        if unit_reqs > 1 && amount > payload.reads.bounds().reserve {
            // Many short reads in one unit count for more than the largest request: a buffer each.
            self.split_unit(unit, unit_reqs / 2);
            return false;
        }
        if amount == 0 || payload.reads.take(now, vm as usize, amount) {
            payload.ask_replies_again(vm);
            self.mark_held(unit);
            return true;
        }
        if core::mem::take(&mut self.overdraws) {
            payload.reads.overdraw(vm as usize, amount);
            payload.ask_replies_again(vm);
            self.mark_held(unit);
            return true;
        }
        self.starve(unit);
        false
    }

    /// As [`Engine::feed`], for a unit that would only go along: it does not wait for memory.
    pub(super) fn may_go_along(&mut self, unit: u32) -> bool {
        if !self.intake.bounds_payload() || self.facts.hot[unit as usize].op != Op::Read {
            return true;
        }
        let amount = self.lacks(unit);
        let (vm, now) = (self.facts.hot[unit as usize].vm, self.facts.now);
        let payload = self.intake.payload.as_mut().expect("it is bounded");
        let fed = amount == 0 || payload.reads.try_take(now, vm as usize, amount);
        if fed {
            self.mark_held(unit);
        }
        fed
    }

    /// Bytes of memory that a unit's reads need and do not hold.
    fn lacks(&self, unit: u32) -> u64 {
        let lacking = |slot: u32| {
            let Hot { len, flags, .. } = self.facts.hot[slot as usize];
            match flags & flag::HOLDS {
                0 => buffer_bytes(len),
                _ => 0,
            }
        };
        self.chain(unit).map(lacking).sum()
    }

    fn mark_held(&mut self, unit: u32) {
        let Hot {
            unit_reqs,
            chain_first: mut slot,
            ..
        } = self.facts.hot[unit as usize];
        for _ in 0..unit_reqs {
            let this = &mut self.facts.hot[slot as usize];
            this.flags |= flag::HOLDS;
            slot = this.chain_next;
        }
    }

    /// A unit's reads lack memory: it must not be picked again before there is some.
    fn starve(&mut self, unit: u32) {
        let vm = self.facts.hot[unit as usize].vm;
        if self.holder_waits(vm) {
            self.shelve(unit);
        } else {
            self.set_starved(vm, true);
        }
    }

    /// Whether a read that holds memory waits in its VM's lane: nothing may stop that one.
    pub(super) fn holder_waits(&self, vm: u32) -> bool {
        self.facts.vms[vm as usize].holders > 0
    }

    pub(super) fn set_starved(&mut self, vm: u32, starved: bool) {
        let of_vm = &mut self.facts.vms[vm as usize];
        let id = of_vm.id(vm);
        let reasons = &mut of_vm.shut[Lane::Read.index()];
        let (was_open, before) = (*reasons == 0, *reasons);
        if starved {
            *reasons |= shut::STARVED;
        } else {
            *reasons &= !shut::STARVED;
        }
        let (open, changed) = (*reasons == 0, *reasons != before);
        if changed && starved {
            self.starved += 1;
            self.asks_starved = true;
        } else if changed {
            self.starved -= 1;
        }
        if open != was_open {
            let roles = &mut self.roles;
            roles.dispatcher.gate(&self.facts, id, Lane::Read, open);
        }
        if self.hears(Interests::MEMORY) && changed {
            self.told_of_memory = true;
            self.emit(&Event::Memory(id));
        }
    }

    fn shelve(&mut self, unit: u32) {
        let vm = self.facts.hot[unit as usize].vm;
        self.facts.vms[vm as usize].shelved = true;
        self.shelf.push(unit);
        self.take_out(unit);
    }

    /// Puts a VM's shelved reads back into their lane.
    #[inline]
    pub(super) fn unshelve(&mut self, vm: u32) {
        if self.facts.vms[vm as usize].shelved {
            self.put_back(vm);
        }
    }

    #[cold]
    fn put_back(&mut self, vm: u32) {
        self.facts.vms[vm as usize].shelved = false;
        let hot = &self.facts.hot;
        let shelved = self
            .shelf
            .extract_if(.., |&mut unit| hot[unit as usize].vm == vm);
        let shelved = shelved.collect();
        self.unpark(shelved);
    }

    /// All shelved reads stand in their lanes again.
    pub(super) fn unshelve_all(&mut self) {
        while let Some(&unit) = self.shelf.first() {
            self.put_back(self.facts.hot[unit as usize].vm);
        }
    }

    /// A read that holds memory comes back into its lane, which must let it go.
    pub(super) fn let_holder_go(&mut self, slot: u32) {
        let Hot {
            vm,
            op,
            chain_first,
            ..
        } = self.facts.hot[slot as usize];
        let holds = self.facts.hot[chain_first as usize].flags & flag::HOLDS != 0;
        if op == Op::Read && holds {
            self.set_starved(vm, false);
        }
    }

    /// Whether a VM's reads wait for memory that nobody will offer them: what holds it waits in the lane
    /// that is closed, or the budget knows of no wait.
    pub(super) fn waits_in_vain(&self, vm: u32) -> bool {
        let starved = self.facts.vms[vm as usize].shut[Lane::Read.index()] & shut::STARVED != 0;
        let payload = self.intake.payload.as_ref();
        starved
            && (self.holder_waits(vm)
                || payload.is_some_and(|payload| !payload.reads.is_waiting(vm as usize)))
    }

    /// Opens the read lane of a VM whose reads lack memory, before some of them may be cancelled. The next
    /// read that still lacks memory waits anew.
    #[inline]
    pub(super) fn ask_for_memory_again(&mut self, vm: u32) {
        if self.facts.vms[vm as usize].shut[Lane::Read.index()] & shut::STARVED != 0
            && let Some(payload) = &mut self.intake.payload
        {
            if !payload.refused_replies.contains(&vm) {
                payload.reads.stop_waiting(vm as usize);
            }
            self.set_starved(vm, false);
        }
    }

    /// Memory came back: the lanes of those that may have some are opened in the order of their turns.
    pub(super) fn feed_reads(&mut self) {
        while let Some(payload) = &mut self.intake.payload
            && let Some(vm) = payload.reads.next_ready()
        {
            let vm = vm as u32;
            payload.ask_replies_again(vm);
            self.unshelve(vm);
            self.set_starved(vm, false);
        }
    }

    /// A VM that was removed goes once nothing of it is inside and it holds nothing.
    pub(super) fn leave_if_out(&mut self, vm: u32) {
        let of_vm = &self.facts.vms[vm as usize];
        if of_vm.life == Life::Leaving && of_vm.requests == 0 && !self.intake.holds(vm as usize) {
            self.vm_left(vm);
        }
    }

    /// Takes a request for which [`Engine::claim`] took what it needs. Its wait counts from `since`: when it
    /// could have been taken, had there been a slot and memory.
    ///
    /// # Errors
    /// See [`Refusal`]; never [`Refusal::Full`]. The claim stays with the caller then.
    pub fn handle_claimed_request(
        &mut self,
        now: Nanos,
        client: ClientId,
        request: Request,
        since: Nanos,
    ) -> Result<ReqId, Refusal> {
        self.hand_in(now, client, &request, Some(since))
    }
}
