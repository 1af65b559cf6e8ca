//! The guests: VMs, their disks, and clients that ask for things.

use super::{Event, What, World, control, figure};
use crate::checker::content::Shadow;
use crate::checker::durability::Durable;
use crate::checker::ledger::SECTOR;
use crate::checker::{Verdict, answers, ensure, refusals};
use crate::fault::Kind;
use crate::torture::media::Media;
use crate::torture::swarm::{DiskPlan, VmPlan, Work};
use tidegate_core::engine::{DiskSpec, Refusal};
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, DiskId, Done, Op, Request, VmId};
use tidegate_core::time::Nanos;

/// A VM there is or was.
pub(super) struct Guest {
    pub(super) id: VmId,
    /// Every objective it had, the last one in force.
    pub(super) objectives: Vec<Objective>,
    /// Requests and bytes it has asked for.
    pub(super) asked: (u64, u64),
    /// Bytes that went to the device for it, again or not.
    pub(super) started: u64,
}

/// A disk there is or was, numbered as in the ledger.
pub(super) struct Disk {
    pub(super) id: DiskId,
    pub(super) guest: usize,
    pub(super) spec: DiskSpec,
    /// Bytes that are its own from where it lies on.
    pub(super) room: u64,
    pub(super) media: Media,
    pub(super) shadow: Shadow,
    pub(super) durable: Durable,
    /// Where its hot spot begins, in sectors.
    hot: u64,
}

/// A client.
pub(super) struct Client {
    pub(super) disk: usize,
    /// Its handle, or the last one it had.
    id: ClientId,
    connected: bool,
    work: Work,
    /// Requests it knows to be open.
    open: u32,
    /// It will ask.
    armed: bool,
    /// It was told that there is no room.
    waits: bool,
    quiet_until: Nanos,
    left_in_burst: u32,
    /// The sector where its stream goes on.
    next: u64,
    pub(super) deaf_until: Nanos,
    /// Answers that it has not looked at.
    unread: u32,
}

impl Client {
    /// It is not connected any more, and knows of no request.
    pub(super) fn leave(&mut self) {
        self.connected = false;
        (self.open, self.unread, self.waits) = (0, 0, false);
    }
}

/// No faults add to so many: a run is to stay short.
pub(super) const MANY_DISKS: usize = 64;

/// How much of a disk its hot spot is, in sectors.
const HOT: u64 = 32;

impl World<'_, '_> {
    pub(super) fn add_vm(&mut self, plan: &VmPlan) -> Verdict {
        let clock = self.clock();
        let added = match plan.background {
            true => self.engine.add_background(clock, &plan.objective),
            false => self.engine.add_vm(clock, &plan.objective),
        };
        let added = added.ok();
        self.ledger.vm_added(added)?;
        let Some(id) = added else { return Ok(()) };
        self.write(What::VmAdded, control::in_short(id, &plan.objective));
        self.guests.push(Guest {
            id,
            objectives: vec![plan.objective],
            asked: (0, 0),
            started: 0,
        });
        self.promises_changed();
        let guest = self.guests.len() - 1;
        for disk in &plan.disks {
            self.add_disk(guest, disk)?;
        }
        Ok(())
    }

    pub(super) fn add_a_disk(&mut self) -> Verdict {
        if self.disks.len() >= MANY_DISKS {
            return Ok(());
        }
        let guest = self.chance.index(self.guests.len());
        let plan = self.swarm.disk(&mut self.fresh);
        self.add_disk(guest, &plan)
    }

    fn add_disk(&mut self, guest: usize, plan: &DiskPlan) -> Verdict {
        let vm = self.guests[guest].id;
        let spec = DiskSpec {
            base: self.next_base + plan.gap,
            size: plan.sectors * SECTOR,
            read_only: plan.read_only,
        };
        let added = self.engine.add_disk(vm, spec).ok();
        let live = self.ledger.is_live(vm);
        ensure!(
            Refusals,
            added.is_some() == live,
            "a disk for {vm:?}: {added:?}, though its being there is {live}"
        );
        let Some(id) = added else { return Ok(()) };
        self.next_base = spec.base + spec.size;
        let number = self.ledger.disk_added(id, vm, spec);
        let figures = [number.into(), vm.index() as u64, spec.size, spec.base, 0];
        self.write(What::DiskAdded, figures);
        if self.by_slot.len() <= id.index() {
            self.by_slot.resize(id.index() + 1, 0);
        }
        self.by_slot[id.index()] = number;
        let sectors = plan.sectors as usize;
        self.disks.push(Disk {
            id,
            guest,
            spec,
            room: spec.size,
            media: Media::new(sectors),
            shadow: Shadow::new(number, sectors),
            durable: Durable::new(sectors),
            hot: self.fresh.below(plan.sectors.saturating_sub(HOT)),
        });
        for work in &plan.clients {
            self.add_client(number as usize, *work)?;
        }
        Ok(())
    }

    fn add_client(&mut self, disk: usize, work: Work) -> Verdict {
        let client = self.clients.len() as u32;
        let opened = self.engine.connect(self.disks[disk].id);
        ensure!(
            Refusals,
            opened.is_ok(),
            "disk {disk} cannot be opened: {opened:?}"
        );
        let Ok(id) = opened else { return Ok(()) };
        self.ledger.connected(id, disk as u32);
        self.write(What::Connected, [client.into(), disk as u64, 0, 0, 0]);
        self.clients.push(Client {
            disk,
            id,
            connected: true,
            work,
            open: 0,
            armed: false,
            waits: false,
            quiet_until: Nanos::ZERO,
            left_in_burst: work.burst,
            next: self.fresh.below(self.disks[disk].spec.size / SECTOR),
            deaf_until: Nanos::ZERO,
            unread: 0,
        });
        let begin = self.load.below(self.swarm.span.0 / 16 + 1);
        self.arm(client, self.now + Nanos(begin));
        Ok(())
    }

    /// The client will ask at that time, unless it will anyway.
    fn arm(&mut self, number: u32, at: Nanos) {
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
        let said = self.engine.room(id);
        let clock = self.clock();
        let taken = self.engine.handle_request(clock, id, request);
        let refused = taken.err();
        refusals::check(&self.ledger, id, &request, said, refused)?;
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
        self.floors.push(floors);
        self.askers.push(number);
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

    pub(super) fn vanish(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.leave();
        let id = client.id;
        self.write(What::Vanished, [number as u64, 0, 0, 0, 0]);
        let clock = self.clock();
        self.engine.handle_disconnect(clock, id);
        self.ledger.disconnected(id);
        self.somebody_has_gone();
    }

    pub(super) fn somebody_has_gone(&mut self) {
        let now = self.engine.view().now();
        self.ledger.note_all_over(now, &mut self.over);
    }

    pub(super) fn come_back(&mut self, number: u32) -> Verdict {
        let client = &self.clients[number as usize];
        let disk = client.disk;
        let (connected, vm) = (client.connected, self.guests[self.disks[disk].guest].id);
        if connected || !self.running {
            return Ok(());
        }
        let live = self.ledger.is_disk_live(disk as u32);
        let opened = self.engine.connect(self.disks[disk].id).ok();
        ensure!(
            Refusals,
            opened.is_some() == live,
            "client {number} opens a disk of {vm:?}: {opened:?}, though its being there is {live}"
        );
        let Some(id) = opened else { return Ok(()) };
        self.ledger.connected(id, disk as u32);
        self.write(What::Connected, [number.into(), disk as u64, 0, 0, 0]);
        let client = &mut self.clients[number as usize];
        (client.id, client.connected) = (id, true);
        client.deaf_until = Nanos::ZERO;
        self.arm(number, self.now);
        Ok(())
    }
}
