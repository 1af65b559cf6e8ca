//! What clients ask for, and what they are answered.

use super::guests::HOT;
use super::{Event, What, World, figure};
use crate::checker::ledger::SECTOR;
use crate::checker::{Verdict, answers, refusals};
use crate::fault::Kind;
use tidegate_core::engine::Refusal;
use tidegate_core::request::{Done, Op, Request};
use tidegate_core::time::Nanos;

impl World<'_, '_> {
    /// The client will ask at that time, unless it will anyway.
    pub(super) fn arm(&mut self, number: u32, at: Nanos) {
        let client = &mut self.clients[number as usize];
        if !client.armed {
            client.armed = true;
            let at = at.max(client.quiet_until);
            self.at(at, Event::Ask(number));
        }
    }

    /// A client asks for something, if it may.
    pub(super) fn ask(&mut self, number: u32) -> Verdict {
        let client = &mut self.clients[number as usize];
        client.armed = false;
        if client.deaf_until <= self.now {
            client.open -= std::mem::take(&mut client.unread);
        }
        let nonsense = self.strikes(Kind::Nonsense);
        let client = &self.clients[number as usize];
        if !self.running || (!client.connected && !nonsense) || client.open >= client.work.depth {
            return Ok(());
        }
        let request = match nonsense {
            true => self.nonsense(number),
            false => self.draw(number),
        };
        match self.hand_in(number, request)? {
            None => self.asked(number),
            Some(Refusal::Full) => self.clients[number as usize].waits = true,
            Some(_) => self.arm(number, self.now + Nanos(10_000)),
        }
        Ok(())
    }

    fn asked(&mut self, number: u32) {
        let gap = Nanos(self.load.below(2000));
        let client = &mut self.clients[number as usize];
        client.open += 1;
        if client.work.burst > 0 {
            client.left_in_burst -= 1;
            if client.left_in_burst == 0 {
                client.left_in_burst = client.work.burst;
                client.quiet_until = self.now + client.work.silence;
            }
        }
        if client.open < client.work.depth {
            self.arm(number, self.now + gap);
        }
    }

    fn draw(&mut self, number: u32) -> Request {
        let dice = &mut self.load;
        let client = &mut self.clients[number as usize];
        let (work, disk) = (client.work, &self.disks[client.disk]);
        let all: u32 = work.mix.iter().sum();
        let mut drawn = dice.below(all.into()) as u32;
        let mut op = Op::Read;
        for (candidate, often) in Op::ALL.into_iter().zip(work.mix) {
            if drawn < often {
                op = candidate;
                break;
            }
            drawn -= often;
        }
        if disk.spec.read_only && op != Op::Flush {
            op = Op::Read;
        }
        let size = disk.spec.size / SECTOR;
        let count = dice.octaves(work.sectors.0, work.sectors.1).min(size);
        // Its disk may have become shorter.
        client.next = client.next.min(size);
        let first = if dice.chance(work.sequential) {
            match work.downwards {
                true => client.next.checked_sub(count).unwrap_or(size - count),
                false if client.next + count <= size => client.next,
                false => 0,
            }
        } else if dice.chance(work.hot) {
            (disk.hot + dice.below(HOT)).min(size - count)
        } else {
            dice.range(0, size - count)
        };
        if op != Op::Flush {
            client.next = match work.downwards {
                true => first,
                false => first + count,
            };
        }
        let data = op != Op::Flush;
        Request {
            op,
            offset: first * SECTOR * data as u64,
            len: (count * SECTOR) as u32 * data as u32,
            fua: dice.chance(work.fua),
            keep_allocated: op == Op::WriteZeroes && dice.chance(work.keep),
            tag: self.ledger.next_number(),
        }
    }

    /// A request that is mostly refused.
    fn nonsense(&mut self, number: u32) -> Request {
        let size = self.disks[self.clients[number as usize].disk].spec.size;
        let dice = &mut self.load;
        let sectors = |n: u64| n * SECTOR;
        let (offset, len) = match dice.below(4) {
            0 => (u64::MAX - dice.below(SECTOR), SECTOR),
            1 => (size - SECTOR, sectors(2)),
            2 => (sectors(dice.below(size / SECTOR)), 0),
            _ => (0, SECTOR),
        };
        Request {
            op: dice.pick(&Op::ALL),
            offset,
            len: len as u32,
            fua: dice.chance(500),
            keep_allocated: false,
            tag: self.ledger.next_number(),
        }
    }

    /// Hands a request to the engine and holds what it says against the bounds.
    pub(super) fn hand_in(
        &mut self,
        number: u32,
        mut request: Request,
    ) -> Result<Option<Refusal>, crate::checker::Broken> {
        if request.op == Op::Flush {
            (request.offset, request.len) = (0, 0);
        }
        let id = self.clients[number as usize].id;
        let clock = self.clock();
        let said = self.engine.room(clock, id);
        let part = self.part_of(number);
        let has_memory = self.has_memory(number, &request);
        let taken = self.engine.handle_request(clock, id, request);
        let refused = taken.err();
        refusals::check(&self.ledger, id, &request, said, part, has_memory, refused)?;
        let (op, fua) = (request.op as u64, (request.fua as u64) << 4);
        let figures = [
            request.tag,
            number.into(),
            op | fua,
            request.offset,
            request.len.into(),
        ];
        if refused.is_some() {
            self.write(What::Refused, figures);
            return Ok(refused);
        }
        self.write(What::Accepted, figures);
        self.tally.requests += 1;
        let now = self.engine.view().now();
        self.ledger.accepted(id, &request, now);
        let entry = self.ledger.entries.last().expect("it was accepted");
        self.charges.accepted(entry.vm, request.op);
        let mut floors = self.spare_floors.pop().unwrap_or_default();
        floors.clear();
        let disk = &mut self.disks[entry.disk as usize];
        disk.shadow.submitted(entry, &mut floors);
        let guest = &mut self.guests[disk.guest];
        guest.asked.0 += 1;
        guest.asked.1 += request.len as u64;
        let vm = entry.vm;
        self.floors.push(floors);
        self.askers.push(number);
        let holds = self.budgets.is_bounded() && request.op == Op::Write;
        self.fed.push(holds);
        if holds {
            self.ledger.memory_taken(vm);
            self.budgets.taken(vm, Op::Write, request.len)?;
        }
        Ok(None)
    }

    /// The engine has answered a request.
    pub(super) fn answer(&mut self, done: &Done) -> Verdict {
        let number = answers::answered(&mut self.ledger, done)?;
        let figures = [number.into(), figure(done.outcome), 0, 0, 0];
        self.write(What::Answered, figures);
        let account = &done.account;
        for part in [account.regulated, account.queued, account.device] {
            self.journal.mix(part.0);
        }
        let entry = &self.ledger.entries[number as usize];
        self.charges.answered(done, entry.request.len);
        let ended = entry.over_at.unwrap_or(entry.arrived);
        self.jobs.answered(done, entry.request.len, ended);
        let well = done.outcome.is_ok();
        let disk = &mut self.disks[entry.disk as usize];
        disk.shadow.answered(entry, well);
        if well {
            disk.durable.answered(entry);
        }
        let floors = std::mem::take(&mut self.floors[number as usize]);
        self.spare_floors.push(floors);
        let asker = self.askers[number as usize];
        let client = &mut self.clients[asker as usize];
        if client.id != entry.client || !client.connected {
            return Ok(()); // asked before it vanished
        }
        if client.deaf_until > self.now {
            client.unread += 1;
            return Ok(());
        }
        client.open = client.open.saturating_sub(1);
        let think = Nanos(self.load.range(0, client.work.think.0));
        if self.running {
            self.arm(asker, self.now + think);
        }
        Ok(())
    }

    /// Answers were given: who found no room tries again.
    pub(super) fn room_again(&mut self) {
        for number in 0..self.clients.len() {
            if std::mem::take(&mut self.clients[number].waits) && self.running {
                self.arm(number as u32, self.now);
            }
        }
    }
}
