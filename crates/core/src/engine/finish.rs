//! Device I/Os end, clients vanish: who is answered, who goes again.

use super::Engine;
use crate::facts::{Facts, Hot, Life, NIL, flag, state};
use crate::roles::{Event, Interests};
use crate::stats::Answer;
use tidegate_base::request::{ClientId, Done, IoError, IoId, Lane, Op, Outcome};
use tidegate_base::time::Nanos;
use tidegate_capacity::jobs::JobOutcome;

impl Engine {
    /// A device I/O ended. Panics on an I/O that is not in flight: a driver that reports one
    /// twice would otherwise answer somebody else's request.
    pub fn handle_completion(&mut self, now: Nanos, id: IoId, outcome: Outcome) {
        self.advance(now);
        let slot = &mut self.in_flight[id.index()];
        assert!(
            slot.live && slot.generation == id.generation,
            "{id:?} is not in flight"
        );
        slot.live = false;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.free_io;
        self.free_io = id.index;
        let (first, reqs, took) = (slot.first, slot.reqs, self.facts.now.since(slot.started));
        let (vm, op, disk) = (slot.io.vm, slot.io.op, slot.io.disk);
        let (counted, part) = (slot.counted, slot.part);
        if self.hung.is_some() {
            self.note_end(disk.index, counted);
        }
        let device = &mut self.facts.device;
        device.ended += 1;
        device.parts.ended += u64::from(part);
        device.errors += outcome.is_err() as u64;
        let of_vm = &mut self.facts.vms[vm.index()];
        of_vm.in_flight -= 1;
        device.background.ended += u64::from(of_vm.background);
        if counted {
            self.leave_device(id, outcome, took);
        }
        if self.any_hung {
            // Before its requests end: they are looked for where they wait.
            self.revive(disk.index);
        }
        if op == Op::Flush {
            self.end_flush(disk.index);
        }
        let again = outcome.is_err() && reqs > 1 && op != Op::Flush;
        let mut at = first;
        let mut requeued = NIL;
        for _ in 0..reqs {
            // Ending a request frees its slot, so the next one is looked up first.
            let this = at;
            at = self.facts.hot[this as usize].chain_next;
            self.facts.cold[this as usize].part_ended(self.facts.now);
            match again {
                true => requeued = self.failed_in_company(this, requeued),
                false => self.end_part(this, outcome),
            }
        }
    }

    /// An I/O that counted has ended: whoever learns from the device hears of it, and the roles do.
    #[inline(always)]
    fn leave_device(&mut self, id: IoId, outcome: Outcome, took: Nanos) {
        let slot = &self.in_flight[id.index()];
        let (vm, op, len) = (slot.io.vm, slot.io.op, slot.io.len);
        if let Some(watch) = &mut self.watch {
            watch.ended(self.facts.now, slot.kind, slot.io.len, outcome.is_ok());
        }
        if let Some(estimator) = &mut self.facts.estimator {
            let deepest = self.limit.min(self.roles.dispatcher.depth());
            estimator.ended(self.facts.now, &slot.io, outcome.is_ok(), deepest);
        }
        let device = &mut self.facts.device;
        device.in_flight -= 1;
        device.parts.in_flight -= u32::from(slot.part);
        device.last_end = self.facts.now;
        let of_vm = &self.facts.vms[vm.index()];
        device.background.in_flight -= u32::from(of_vm.background);
        if self.depth_control.is_some() {
            self.count_end(op, len, outcome.is_ok());
        }
        if self.hears(Interests::ENDED) {
            let event = Event::Ended {
                io: &self.in_flight[id.index()].io,
                outcome,
                took,
            };
            self.ears.tell(&mut self.roles, &self.facts, &event);
            self.follow_up();
        }
    }

    /// The parts of one request have ended so far, and this one so.
    #[inline(always)]
    fn end_part(&mut self, slot: u32, outcome: Outcome) {
        if let Err(error) = outcome {
            self.facts.cold[slot as usize].error.get_or_insert(error);
            self.drop_rest(slot);
        }
        if self.facts.cold[slot as usize].outstanding > 0 {
            return;
        }
        let Hot { state, flags, .. } = self.facts.hot[slot as usize];
        match state {
            _ if flags & flag::AGAIN != 0 => {
                self.go_again(slot, NIL);
            }
            state::STARTED => self.finish(slot),
            _ => self.begin_wait(slot),
        }
    }

    /// An I/O of several requests failed of which this was one, whole or in part: it goes again by itself,
    /// so that the error hits only the one it belongs to. Not before its other parts have ended, so that
    /// the device never has the same bytes of it twice.
    #[cold]
    fn failed_in_company(&mut self, slot: u32, behind: u32) -> u32 {
        self.facts.hot[slot as usize].flags |= flag::AGAIN;
        match self.facts.cold[slot as usize].outstanding {
            0 => self.go_again(slot, behind),
            _ => behind,
        }
    }

    /// Nothing of a request is in flight any more that is to go again. `behind`: the one that was
    /// requeued before it; returns what the next one is to be requeued behind.
    #[cold]
    fn go_again(&mut self, slot: u32, behind: u32) -> u32 {
        if self.facts.cold[slot as usize].error.is_some() {
            // Its own, of a part that went alone; or it was cancelled.
            self.finish(slot);
            return behind;
        }
        match self.facts.hot[slot as usize].state {
            state::STARTED => self.requeue_alone(slot, behind),
            _ => {
                self.begin_again(slot);
                behind
            }
        }
    }

    /// A request whose rest still waits goes from its beginning.
    fn begin_again(&mut self, slot: u32) {
        self.withdraw(slot);
        let hot = &mut self.facts.hot[slot as usize];
        debug_assert_eq!(hot.unit_reqs, 1, "what has begun to go is alone");
        hot.issued = 0;
        hot.flags = (hot.flags & !flag::AGAIN) | flag::ALONE;
        self.begin_wait(slot);
        self.announce(slot);
        self.let_holder_go(slot);
    }

    /// A request that has failed asks for no more parts.
    #[cold]
    fn drop_rest(&mut self, slot: u32) {
        if self.facts.hot[slot as usize].state != state::ADMITTED
            && self.facts.hot[slot as usize].state != state::PENDING
        {
            return;
        }
        self.take_back(slot);
        self.facts.hot[slot as usize].state = state::STARTED;
    }

    /// A request that has gone wholly goes again by itself. Those of an I/O stand at the front of their
    /// lane, in their old order.
    #[cold]
    fn requeue_alone(&mut self, slot: u32, behind: u32) -> u32 {
        let seq = self.facts.hot[slot as usize].seq;
        let hot = &self.facts.hot[slot as usize];
        let (vm, lane) = (hot.vm, hot.op.lane());
        let client = self.facts.cold[slot as usize].client;
        let gone = !self.clients[client as usize].connected
            || self.facts.vms[vm as usize].life != Life::Live;
        if gone || self.is_beyond_end(slot) {
            let error = match gone {
                true => IoError::Cancelled,
                false => IoError::BeyondEnd,
            };
            self.facts.cold[slot as usize].error = Some(error);
            self.finish(slot);
            return behind;
        }
        self.make_unit(slot, state::ADMITTED, seq);
        self.begin_wait(slot);
        let hot = &mut self.facts.hot[slot as usize];
        hot.issued = 0;
        hot.flags = (hot.flags & !flag::AGAIN) | flag::ALONE;
        let next = match behind {
            NIL => self.facts.vms[vm as usize].lanes[lane.index()].head,
            behind => self.facts.hot[behind as usize].next,
        };
        self.facts.vms[vm as usize].waiting += 1;
        self.link(slot, next);
        self.ask_gate(vm, lane);
        self.announce(slot);
        self.let_holder_go(slot);
        slot
    }

    fn end_flush(&mut self, disk_slot: u32) {
        let disk = &mut self.disks[disk_slot as usize];
        disk.flushing = false;
        if disk.flushes > 0 {
            self.express.push_back(disk_slot);
        }
    }

    /// Answers a request: it leaves the engine here.
    #[inline(always)]
    pub(super) fn finish(&mut self, slot: u32) {
        let vm = self.facts.hot[slot as usize].vm;
        self.facts.pass_seconds(vm as usize, true);
        let Facts {
            now,
            device,
            hot,
            cold,
            vms,
            ledgers,
            jobs,
            ..
        } = &mut self.facts;
        let (this, cold) = (&mut hot[slot as usize], &cold[slot as usize]);
        let (op, len) = (this.op, this.len);
        let behind = match cold.behind {
            NIL => None,
            other => Some(vms[other as usize].id(other)),
        };
        let of_vm = &mut vms[vm as usize];
        let client = &mut self.clients[cold.client as usize];
        let outcome = cold.error.map_or(Ok(()), Err);
        let account = cold.account(*now);
        self.done.push(Done {
            req: this.id(slot),
            tag: cold.tag,
            client: client.id(cold.client),
            vm: of_vm.id(vm),
            op,
            outcome,
            account,
            payload: if this.flags & flag::HOLDS == 0 {
                0
            } else {
                len
            },
        });
        let ledger = &mut ledgers[vm as usize];
        if outcome == Err(IoError::Cancelled) {
            ledger.at_once().cancelled += 1;
        } else {
            let answer = Answer {
                account,
                behind,
                len,
                op,
                well: outcome.is_ok(),
            };
            ledger.answered(&mut of_vm.answered, answer);
        }
        let counts = of_vm.has_job && outcome.is_ok() && op.merges();
        let job_done = counts
            && jobs
                .as_mut()
                .is_some_and(|jobs| jobs.moved(vm as usize, len));
        assert!(this.state != state::FREE, "a request ends only once");
        this.state = state::FREE;
        this.generation = this.generation.wrapping_add(1);
        this.next = core::mem::replace(&mut self.free_req, slot);
        device.requests -= 1;
        of_vm.requests -= 1;
        self.intake.answered(*now, vm as usize);
        if of_vm.requests == 0 {
            of_vm.quiet_since = *now;
        }
        // Nobody goes in parts, or waits, for what has but the rest of the device.
        if let Some(sharing) = &mut self.sharing
            && !of_vm.background
        {
            sharing.answered();
            if of_vm.requests == 0 {
                sharing.went_quiet(*now, vm);
            }
        }
        client.requests -= 1;
        // Clients and VMs that only waited for this request go with it.
        let leaving = of_vm.life == Life::Leaving;
        let client_left = !client.connected && client.requests == 0;
        let client = cold.client;
        if self.hears(Interests::ANSWERED)
            && let Some(done) = self.done.last()
        {
            let event = Event::Answered(done);
            self.ears.tell(&mut self.roles, &self.facts, &event);
            self.follow_up();
        }
        if job_done {
            self.finish_job(vm, JobOutcome::Done);
            self.look_at_jobs(true);
        }
        if client_left {
            self.free_client_slot(client);
        }
        if leaving {
            self.leave_if_out(vm);
        }
    }

    /// A client vanished: what waits is answered as cancelled, what is in flight is answered
    /// when it ends. Harmless when it was disconnected before.
    pub fn handle_disconnect(&mut self, now: Nanos, client: ClientId) {
        self.advance(now);
        let Ok(known) = self.client(client) else {
            return;
        };
        let (vm, disk) = (known.vm, known.disk);
        self.cancel_waiting(vm, IoError::Cancelled, |facts, slot| {
            facts.cold[slot as usize].client == client.index
        });
        self.cancel_flushes(disk, Some(client));
        self.release_client(client.index);
    }

    /// Takes out of a VM's lanes what is `meant`, and answers it with an error.
    pub(super) fn cancel_waiting(
        &mut self,
        vm: u32,
        error: IoError,
        meant: impl Fn(&Facts, u32) -> bool,
    ) {
        self.unshelve(vm);
        self.ask_for_memory_again(vm);
        if self.any_hung {
            self.unpark_vm(vm);
        }
        for lane in Lane::ALL {
            let mut unit = self.facts.vms[vm as usize].lanes[lane.index()].head;
            while unit != NIL {
                let meant = |slot: u32| meant(&self.facts, slot);
                let (mine, all) = (
                    self.chain(unit).filter(|&slot| meant(slot)).count() as u32,
                    self.facts.hot[unit as usize].unit_reqs,
                );
                if mine > 0 && mine < all {
                    // Company of others: split it, then look at each by itself.
                    let prev = self.facts.hot[unit as usize].prev;
                    let first = self.facts.vms[vm as usize].lanes[lane.index()].head == unit;
                    self.break_up(unit);
                    unit = match first {
                        true => self.facts.vms[vm as usize].lanes[lane.index()].head,
                        false => self.facts.hot[prev as usize].next,
                    };
                    continue;
                }
                let next = self.facts.hot[unit as usize].next;
                if mine > 0 {
                    self.cancel_unit(unit, error);
                }
                unit = next;
            }
            self.ask_gate(vm, lane);
        }
    }

    fn cancel_unit(&mut self, unit: u32, error: IoError) {
        self.take_back(unit);
        let reqs = self.facts.hot[unit as usize].unit_reqs;
        let mut at = self.facts.hot[unit as usize].chain_first;
        for _ in 0..reqs {
            let this = at;
            at = self.facts.hot[this as usize].chain_next;
            self.cancel_request(this, error);
        }
    }

    /// Out of the lane and the dispatcher's index: its requests wait no more.
    fn take_back(&mut self, unit: u32) {
        let id = self.facts.req_id(unit);
        let hot = &self.facts.hot[unit as usize];
        let (admitted, vm, reqs) = (hot.state == state::ADMITTED, hot.vm, hot.unit_reqs);
        self.unlink(unit);
        self.facts.vms[vm as usize].waiting -= reqs;
        if admitted {
            self.roles.dispatcher.remove(&self.facts, id);
        }
        if self.hears(Interests::CANCELLED) {
            self.emit(&Event::Cancelled(id));
        }
    }

    #[cold]
    fn cancel_request(&mut self, slot: u32, error: IoError) {
        let hot = &mut self.facts.hot[slot as usize];
        let (vm, lane) = (hot.vm, hot.op.lane());
        let passenger = hot.state == state::PASSENGER;
        hot.state = state::STARTED;
        let (shut, deliberate) = (self.shut_time(vm, lane), self.deliberate_time());
        let now = self.facts.now;
        let cold = &mut self.facts.cold[slot as usize];
        cold.error.get_or_insert(error);
        if cold.outstanding == 0 {
            cold.end_wait(now, passenger, shut, deliberate);
            self.finish(slot);
        }
    }

    /// A new wait begins: time that its lane was shut before does not count.
    #[inline(never)]
    fn begin_wait(&mut self, slot: u32) {
        let hot = &self.facts.hot[slot as usize];
        let (shut, deliberate) = (
            self.shut_time(hot.vm, hot.op.lane()),
            self.deliberate_time(),
        );
        self.facts.cold[slot as usize].begin_wait(shut, deliberate);
    }

    /// Cancels a disk's waiting flushes, of one client or of all.
    pub(super) fn cancel_flushes(&mut self, disk_slot: u32, of: Option<ClientId>) {
        let disk = &mut self.disks[disk_slot as usize];
        let mut at = disk.flush_first;
        let waiting = disk.flushes;
        disk.flush_first = NIL;
        disk.flush_last = NIL;
        disk.flushes = 0;
        for _ in 0..waiting {
            let this = at;
            at = self.facts.hot[this as usize].chain_next;
            self.facts.hot[this as usize].chain_next = NIL;
            if of.is_none_or(|c| self.facts.cold[this as usize].client == c.index) {
                self.facts.vms[self.facts.hot[this as usize].vm as usize].waiting -= 1;
                self.cancel_request(this, IoError::Cancelled);
                continue;
            }
            let disk = &mut self.disks[disk_slot as usize];
            match disk.flush_last {
                NIL => disk.flush_first = this,
                last => self.facts.hot[last as usize].chain_next = this,
            }
            disk.flush_last = this;
            disk.flushes += 1;
        }
        if self.disks[disk_slot as usize].flushes == 0 {
            self.express.retain(|&waiting| waiting != disk_slot);
        }
    }

    /// For tests and checkers: nothing waits, nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.facts.device.requests == 0 && self.facts.device.in_flight == 0
    }
}
