//! The way of a request: from its guest to the engine and back.
//!
//! ```text
//!              delay           room                         delay
//!   issue ------------> submit -----> engine --> done ----------------> answer
//!                         | none        ^         |                       |
//!                         v             |         | its tenant is gone    |
//!                  the guest's queue ---+         +---------> end <-------+
//!                             its turn in the line
//! ```
//!
//! Where the machine's processors are simulated, they stand in the place of both delays
//! ([`super::errand`]).

use super::errand::Errand;
use super::events::Event;
use super::{Host, Pending};
use tidegate_core::engine::Refusal;
use tidegate_core::request::{Done, IoError, Op, Request};
use tidegate_core::time::Nanos;
use tidegate_workload::stream::Io;

impl Host {
    /// A worker asks for something; the slot that it has while it is outstanding.
    pub(super) fn issue(&mut self, worker: u32, io: Io, since: Nanos) -> u32 {
        let pending = Pending {
            io,
            worker,
            since,
            ended: Ok(()),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.pending[slot as usize] = pending;
                slot
            }
            None => {
                self.pending.push(pending);
                self.pending.len() as u32 - 1
            }
        };
        let guest = &mut self.guests[self.workers[worker as usize].tenant as usize];
        guest.outstanding += 1;
        guest.seconds.asked();
        if let Some(errands) = &mut self.errands {
            errands.ask(Errand::Issue(slot));
            return slot;
        }
        match &guest.delay.submit {
            Some(delay) => {
                let at = self.now + delay.draw(&mut guest.rng);
                self.events.plan(at, Event::Submit(slot));
            }
            None => self.submit(slot),
        }
        slot
    }

    /// A request reaches the scheduler.
    pub(super) fn submit(&mut self, slot: u32) {
        let worker = self.pending[slot as usize].worker;
        let tenant = self.workers[worker as usize].tenant;
        let guest = &self.guests[tenant as usize];
        if guest.engine.is_none() {
            // Its tenant was removed while it was on its way.
            return self.end(slot);
        }
        // Nothing of its own is overtaken.
        if guest.refused.is_empty() && self.hand_in(slot, self.now) {
            return;
        }
        let refused = &mut self.guests[tenant as usize].refused;
        refused.push_back((slot, self.now));
    }

    fn line_up(&mut self, tenant: u32) {
        let guest = &mut self.guests[tenant as usize];
        if !guest.in_line {
            guest.in_line = true;
            self.line.push_back(tenant);
        }
    }

    /// Hands a request to the engine that could have been taken since then; false: there is no
    /// room.
    fn hand_in(&mut self, slot: u32, since: Nanos) -> bool {
        let Pending { io, worker, .. } = self.pending[slot as usize];
        let guest = &self.guests[self.workers[worker as usize].tenant as usize];
        let (_, client) = guest.engine.expect("only asked while its tenant is there");
        let request = Request {
            op: io.op,
            offset: io.offset,
            len: io.len,
            fua: io.fua,
            keep_allocated: false,
            tag: slot.into(),
        };
        let engine = &mut self.engines[guest.host];
        let taken = if since == self.now {
            engine.handle_request(self.now, client, request)
        } else {
            engine
                .claim(self.now, client, request.op, request.len)
                .and_then(|()| engine.handle_claimed_request(self.now, client, request, since))
        };
        match taken {
            Ok(_) => true,
            Err(Refusal::Full) => false,
            Err(refusal) => panic!("a checked scenario asked for {request:?}: {refusal}"),
        }
    }

    /// There may be room again: those whom the engine would take now hand in one request each by
    /// turns.
    pub(super) fn try_again(&mut self) {
        loop {
            for host in 0..self.engines.len() {
                while let Some(vm) = self.engines[host].poll_unblocked() {
                    self.line_up(self.by_vm[host][vm.index()]);
                }
            }
            if self.line.is_empty() {
                return;
            }
            while let Some(tenant) = self.line.pop_front() {
                let guest = &mut self.guests[tenant as usize];
                guest.in_line = false;
                let Some(&(slot, since)) = guest.refused.front() else {
                    continue;
                };
                if self.hand_in(slot, since) {
                    let guest = &mut self.guests[tenant as usize];
                    guest.refused.pop_front();
                    if !guest.refused.is_empty() {
                        self.line_up(tenant);
                    }
                }
            }
        }
    }

    /// The engine has finished a request.
    pub(super) fn done(&mut self, done: &Done) {
        let slot = done.tag as u32;
        let pending = &mut self.pending[slot as usize];
        pending.ended = done.outcome;
        let tenant = self.workers[pending.worker as usize].tenant;
        let guest = &mut self.guests[tenant as usize];
        if done.payload > 0 {
            let engine = &mut self.engines[guest.host];
            engine.return_payload(self.now, done.vm, done.op, done.payload);
        }
        if guest.engine.is_none() || done.outcome == Err(IoError::Cancelled) {
            // Its tenant was removed.
            return self.end(slot);
        }
        guest.tally.account(&done.account);
        if let Some(errands) = &mut self.errands {
            return errands.ask(Errand::Answer(slot));
        }
        let mut at = self.now;
        if let Some(delay) = &guest.delay.complete {
            at += delay.draw(&mut guest.rng);
        }
        if let Some(takes) = &guest.delay.processor {
            at = at.max(guest.processor_free) + takes.draw(&mut guest.rng);
            guest.processor_free = at;
        }
        // Even a delay of no time lets what else happens now come first.
        match guest.delay.complete.is_none() && guest.delay.processor.is_none() {
            true => self.answer(slot),
            false => self.events.plan(at, Event::Answer(slot)),
        }
    }

    /// An answer reaches its guest.
    pub(super) fn answer(&mut self, slot: u32) {
        let Pending {
            io,
            worker,
            since,
            ended,
        } = self.pending[slot as usize];
        self.end(slot);
        let guest = &mut self.guests[self.workers[worker as usize].tenant as usize];
        if guest.engine.is_none() {
            // Its tenant was removed while the answer was on its way.
            return;
        }
        self.answered += 1;
        self.last_end = self.now;
        guest.last_answer = self.now;
        let latency = self.now.since(since);
        match ended {
            Ok(()) => {
                guest.tally.answered(io.op, io.len, latency);
                if matches!(io.op, Op::Read | Op::Write) {
                    guest.seconds.moved(io.len);
                }
                if io.op != Op::Flush {
                    guest.watch.answered(io.len, latency);
                }
            }
            Err(_) => guest.tally.errors += 1,
        }
        if self.workers[worker as usize].tasks.is_some() {
            self.answered_of_task(worker, slot, io.len);
        }
        self.advance(worker);
        let guest = &mut self.guests[self.workers[worker as usize].tenant as usize];
        if guest.outstanding == 0 {
            guest.watch.quiet();
        }
    }

    /// A request is over, answered or not.
    pub(super) fn end(&mut self, slot: u32) {
        let pending = &mut self.pending[slot as usize];
        pending.since = Nanos::MAX;
        let worker = &mut self.workers[pending.worker as usize];
        worker.answered();
        self.guests[worker.tenant as usize].outstanding -= 1;
        self.free.push(slot);
    }
}
