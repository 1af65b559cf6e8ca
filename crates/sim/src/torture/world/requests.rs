//! Requests of clients, and the answers to them.

use super::{EventKind, TortureWorld, outcome_code};
use crate::checker::{Verdict, answers, refusals};
use crate::fault::Kind;
use tidegate_core::engine::Refusal;
use tidegate_core::request::{Done, Op, Request};
use tidegate_core::time::Nanos;

impl TortureWorld<'_, '_> {
    /// Submits a client's next request, if it may have another one.
    pub(super) fn submit_request(&mut self, number: u32) -> Verdict {
        let client = &mut self.inventory.clients[number as usize];
        client.is_scheduled = false;
        if client.reads_again_at <= self.now {
            client.outstanding -= std::mem::take(&mut client.unread);
        }
        let nonsense = self.faults.strikes(Kind::Nonsense);
        let client = &self.inventory.clients[number as usize];
        // Nonsense is submitted without a connection, too: the engine must refuse it.
        if !self.running
            || (!client.connected && !nonsense)
            || client.outstanding >= client.work.depth
        {
            return Ok(());
        }
        let client = &mut self.inventory.clients[number as usize];
        let disk = &self.inventory.disks[client.disk];
        let tag = self.checks.ledger.next_number();
        let request = if nonsense {
            self.load.nonsense(disk.spec.size, tag)
        } else {
            self.load.draw(client, disk, tag)
        };
        match self.hand_in(number, request)? {
            None => self.asked(number),
            Some(Refusal::Full) => self.inventory.clients[number as usize].found_no_room = true,
            // After any other refusal the client retries after 10 us; room is announced, these are
            // not.
            Some(_) => self.inventory.schedule_request(
                &mut self.schedule,
                number,
                self.now + Nanos(10_000),
            ),
        }
        Ok(())
    }

    fn asked(&mut self, number: u32) {
        let gap = self.load.gap();
        let client = &mut self.inventory.clients[number as usize];
        client.record_accepted(self.now);
        if client.outstanding < client.work.depth {
            self.inventory
                .schedule_request(&mut self.schedule, number, self.now + gap);
        }
    }

    /// Submits a request to the engine and checks the response against the bounds.
    pub(super) fn hand_in(
        &mut self,
        number: u32,
        mut request: Request,
    ) -> Result<Option<Refusal>, crate::checker::Broken> {
        // Nonsense may be a flush with a range, which the engine's caller never passes.
        if request.op == Op::Flush {
            (request.offset, request.len) = (0, 0);
        }
        let id = self.inventory.clients[number as usize].id;
        let clock = self.faults.clock(self.now);
        // Before the request, which may take the last slot.
        let said = self.engine.admission_mut().available_slots(clock, id);
        let (engine, inventory) = (&self.engine, &self.inventory);
        let part = self.checks.part_of(engine, inventory, number);
        let has_memory = (self.checks).has_memory(engine, inventory, number, &request);
        let taken = self.engine.handle_request(clock, id, request);
        let refused = taken.err();
        refusals::check(
            &self.checks.ledger,
            id,
            &request,
            said,
            part,
            has_memory,
            refused,
        )?;
        let (op, fua) = (request.op as u64, (request.fua as u64) << 4);
        let figures = [
            request.tag,
            number.into(),
            op | fua,
            request.offset,
            request.len.into(),
        ];
        if refused.is_some() {
            self.record(EventKind::Refused, figures);
            return Ok(refused);
        }
        self.record(EventKind::Accepted, figures);
        self.accepted += 1;
        let now = self.engine.view().now();
        self.checks.ledger.accepted(id, &request, now);
        let entry = self.checks.ledger.entries.last().expect("it was accepted");
        self.checks.charges.accepted(entry.vm, request.op);
        let mut floors = self.requests.empty_floors();
        let disk = &mut self.inventory.disks[entry.disk as usize];
        disk.shadow.submitted(entry, &mut floors);
        let owner = &mut self.inventory.vms[disk.vm];
        owner.requests += 1;
        owner.request_bytes += request.len as u64;
        let vm = entry.vm;
        let holds = self.checks.budgets.is_bounded() && request.op == Op::Write;
        self.requests.add(number, floors, holds);
        if holds {
            self.checks.ledger.memory_taken(vm);
            self.checks.budgets.taken(vm, Op::Write, request.len)?;
        }
        Ok(None)
    }

    /// Handles an answer of the engine.
    pub(super) fn answer(&mut self, done: &Done) -> Verdict {
        let number = answers::answered(&mut self.checks.ledger, done)?;
        let figures = [number.into(), outcome_code(done.outcome), 0, 0, 0];
        self.record(EventKind::Answered, figures);
        let account = &done.account;
        // Times of requests are part of the digest, so that a change of them shows.
        let waited = account.admission + account.queued;
        for part in [account.regulated, waited, account.device] {
            self.journal.mix(part.0);
        }
        let entry = &self.checks.ledger.entries[number as usize];
        self.checks.charges.answered(done, entry.request.len);
        let ended = self.checks.ended(number);
        self.checks
            .transfers
            .answered(done, entry.request.len, ended);
        let well = done.outcome.is_ok();
        let disk = &mut self.inventory.disks[entry.disk as usize];
        disk.shadow.answered(entry, well);
        if well {
            disk.durable.answered(entry);
        }
        self.requests.answered(number);
        let asker = self.requests.client(number);
        let client = &mut self.inventory.clients[asker as usize];
        if client.id != entry.client || !client.connected {
            return Ok(()); // asked before it vanished
        }
        if client.reads_again_at > self.now {
            client.unread += 1;
            return Ok(());
        }
        client.outstanding = client.outstanding.saturating_sub(1);
        let think = self.load.think(client.work.think);
        if self.running {
            self.inventory
                .schedule_request(&mut self.schedule, asker, self.now + think);
        }
        Ok(())
    }
}
