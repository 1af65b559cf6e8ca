//! Facet of request slots and payload memory.

use super::request_budgets::{Holdings, Payload};
use super::{Engine, PayloadBounds, Refusal};
use crate::budget::{Bounds, Budget, buffer_bytes};
use crate::view::Life;
use tidegate_base::request::{ClientId, Op, ReqId, Request, VmId};
use tidegate_base::time::Nanos;

/// Read-only view of request slots and payload memory; see [`Engine::admission`].
pub struct Admission<'a> {
    pub(super) engine: &'a Engine,
}

impl<'a> Admission<'a> {
    /// Slots and memory that a VM holds, and its guaranteed parts of them.
    pub fn holdings(&self, vm: VmId) -> Holdings {
        let (vm, slots) = (vm.index(), &self.engine.budgets.slots);
        let mut holdings = Holdings {
            slots: slots.held(vm),
            slots_part: slots.guaranteed_part(vm),
            borrows: slots.exceeds_part(vm),
            ..Holdings::default()
        };
        if let Some(payload) = &self.engine.budgets.payload {
            let Payload { writes, reads, .. } = &**payload;
            holdings.payload = writes.held(vm) + reads.held(vm);
            holdings.payload_part = writes.guaranteed_part(vm);
            holdings.borrows |= writes.exceeds_part(vm) || reads.exceeds_part(vm);
        }
        holdings
    }

    /// Returns whether a VM waits for slots or memory that others hold beyond their parts.
    pub fn is_contended(&self) -> bool {
        let payload = self.engine.budgets.payload.as_ref();
        self.engine.budgets.slots.is_contended()
            || payload.is_some_and(|of| of.writes.is_contended() || of.reads.is_contended())
    }

    /// Request slots in use, claims included, and bytes of payload memory in use.
    pub fn in_use(&self) -> (u64, u64) {
        let payload = self.engine.budgets.payload.as_ref();
        let bytes = payload.map_or(0, |of| of.writes.used() + of.reads.used());
        (self.engine.budgets.slots.used(), bytes)
    }
}

/// Changes of request slots and payload memory; see [`Engine::admission_mut`].
pub struct AdmissionMut<'a> {
    pub(super) engine: &'a mut Engine,
}

impl AdmissionMut<'_> {
    /// Bounds payload memory: from now on a write needs some before it is taken, and a read before
    /// it is dispatched. A frontend returns what a request held with
    /// [`AdmissionMut::return_payload`]. To be called before the first VM is added; without,
    /// payload memory is not bounded and nothing is counted.
    ///
    /// Panics when there is a VM.
    pub fn bound_payload(&mut self, bounds: &PayloadBounds) {
        assert!(
            self.engine.view.queues.vms.is_empty(),
            "payload is bounded before the first VM comes"
        );
        let (bounds, vms) = (
            bounds.direction_bounds(),
            self.engine.config.max_vms as usize,
        );
        self.engine.budgets.payload = Some(Box::new(Payload {
            writes: Budget::new(bounds, vms),
            reads: Budget::new(bounds, vms),
            refused_replies: Vec::new(),
            unblocked: Vec::new(),
        }));
    }

    /// Leaves request slots and payload memory undivided: requests get them in the order of
    /// arrival, within the bounds. For reproductions of published experiments, whose systems did
    /// not divide them. To be called before the first VM is added: panics when there is one.
    pub fn leave_undivided(&mut self) {
        assert!(
            self.engine.view.queues.vms.is_empty(),
            "slots are divided before the first VM comes"
        );
        let bounds = Bounds {
            divided: false,
            ..self.engine.budgets.slots.bounds()
        };
        let vms = self.engine.config.max_vms as usize;
        self.engine.budgets.slots = Budget::new(bounds, vms);
        if let Some(payload) = &mut self.engine.budgets.payload {
            for budget in [&mut payload.writes, &mut payload.reads] {
                let bounds = Bounds {
                    divided: false,
                    ..budget.bounds()
                };
                *budget = Budget::new(bounds, vms);
            }
        }
    }

    /// Minimum number of requests that a client may hand in now; 0 also for one that was
    /// disconnected. Where it is 0 the next request is refused as [`Refusal::Full`].
    pub fn available_slots(&mut self, now: Nanos, client: ClientId) -> u32 {
        self.engine.view.queues.advance(now);
        let Some(client) = self.engine.directory.client(client) else {
            return 0;
        };
        let vm = client.vm as usize;
        if self.engine.view.queues.vms[vm].life != Life::Live {
            return 0;
        }
        self.engine
            .budgets
            .slots
            .available(self.engine.view.queues.now, vm) as u32
    }

    /// Takes a slot, and for a write memory for `len` bytes, for a request whose payload is still
    /// to come. It is handed in by [`AdmissionMut::handle_claimed_request`] or given up by
    /// [`AdmissionMut::return_claim`].
    ///
    /// # Errors
    /// [`Refusal::Full`] where there is none now: [`AdmissionMut::poll_unblocked`] says when to try
    /// again. [`Refusal::NotConnected`].
    pub fn claim(&mut self, now: Nanos, client: ClientId, op: Op, len: u32) -> Result<(), Refusal> {
        self.engine.view.queues.advance(now);
        let known = self
            .engine
            .directory
            .client(client)
            .ok_or(Refusal::NotConnected)?;
        let (vm, own_memory) = (known.vm as usize, known.own_memory);
        if self.engine.view.queues.vms[vm].life != Life::Live {
            return Err(Refusal::NotConnected);
        }
        self.engine.budgets.take_in(now, vm, own_memory, op, len)
    }

    /// Gives up the claim of a client with memory of its own, or of a request without payload.
    pub fn return_slot(&mut self, now: Nanos, vm: VmId) {
        self.engine.view.queues.advance(now);
        self.engine.budgets.slots.undo(vm.index(), 1);
        self.engine.leave_if_out(vm.index);
    }

    /// Gives up a claim whose request will not be handed in.
    pub fn return_claim(&mut self, now: Nanos, vm: VmId, op: Op, len: u32) {
        self.engine.view.queues.advance(now);
        self.engine.budgets.slots.undo(vm.index(), 1);
        if op == Op::Write
            && let Some(payload) = &mut self.engine.budgets.payload
        {
            payload.writes.undo(vm.index(), buffer_bytes(len));
        }
        self.engine.leave_if_out(vm.index);
    }

    /// Takes `len` bytes of the reads' memory for a reply that the frontend makes itself; returned
    /// like a read's. False: there is none now, and [`AdmissionMut::poll_unblocked`] says when to
    /// try again. Always true where payload memory is not bounded.
    pub fn take_reply(&mut self, now: Nanos, client: ClientId, len: u32) -> bool {
        self.engine.view.queues.advance(now);
        let Some(client) = self.engine.directory.client(client) else {
            return false;
        };
        let vm = client.vm as usize;
        let Some(payload) = &mut self.engine.budgets.payload else {
            return true;
        };
        let taken = payload
            .reads
            .take_or_wait(self.engine.view.queues.now, vm, buffer_bytes(len));
        if taken {
            // Taking ends the VM's wait in the budget: a read that still waits has to ask again.
            self.engine
                .active
                .unshelve(&mut self.engine.view, vm as u32);
            self.engine
                .active
                .set_lacks_memory(&mut self.engine.view, vm as u32, false);
        } else if !payload.refused_replies.contains(&(vm as u32)) {
            payload.refused_replies.push(vm as u32);
        }
        taken
    }

    /// Returns the memory of a request whose reply was sent, or whose reply is not wanted any more:
    /// of a request whose [`Done`](tidegate_base::request::Done) says that it holds some, or of
    /// [`AdmissionMut::take_reply`]. `op` selects the budget: the writes', or the reads' for
    /// anything else.
    pub fn return_payload(&mut self, now: Nanos, vm: VmId, op: Op, len: u32) {
        self.engine.view.queues.advance(now);
        let Some(payload) = &mut self.engine.budgets.payload else {
            return;
        };
        let amount = buffer_bytes(len);
        if op == Op::Write {
            payload
                .writes
                .give_back(self.engine.view.queues.now, vm.index(), amount);
        } else {
            payload
                .reads
                .give_back(self.engine.view.queues.now, vm.index(), amount);
            self.engine
                .budgets
                .feed_reads(&mut self.engine.view, &mut self.engine.active);
        }
        self.engine.leave_if_out(vm.index);
    }

    /// Returns the next VM of which a request was refused as [`Refusal::Full`] and would be taken
    /// now; to be called until `None` after every batch of completions and returns. A VM that still
    /// finds no room is returned again later.
    #[inline]
    pub fn poll_unblocked(&mut self) -> Option<VmId> {
        let mut ready = self.engine.budgets.slots.next_ready();
        if ready.is_none()
            && let Some(payload) = &mut self.engine.budgets.payload
        {
            ready = payload.unblocked.pop().map(|vm| vm as usize);
            ready = ready.or_else(|| payload.writes.next_ready());
        }
        ready.map(|vm| self.engine.view.vm_at(vm))
    }

    /// Takes a request whose slot and memory [`AdmissionMut::claim`] took. Its wait counts from
    /// `since`, the time at which it could have been taken, had there been a slot and memory.
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
        self.engine.hand_in(now, client, &request, since)
    }
}
