//! Payload memory: what requests hold until their replies have reached their clients.

use super::{Event, World};
use crate::checker::ledger::Part;
use crate::checker::{Verdict, budgets, ensure};
use tidegate_core::budget::{Shares, buffer_bytes};
use tidegate_core::objective::Objective;
use tidegate_core::request::{Done, Op, Request, VmId};
use tidegate_core::time::Nanos;

/// A reply that is on its way to its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    vm: VmId,
    op: Op,
    len: u32,
}

impl World<'_, '_> {
    /// Objectives of all VMs that hold something or may, this one's first.
    fn objectives(&self, vm: VmId) -> Vec<Objective> {
        let of = |id: VmId| {
            let guest = self.guests.iter().find(|guest| guest.id == id);
            *(guest.expect("it was added").objectives.last()).expect("it has one")
        };
        // One that was removed keeps its part until the last of it is out.
        let view = self.engine.view();
        let there = |id: VmId| id.index() < view.vm_slots() && view.vm_at(id.index()) == id;
        let others = self.guests.iter().map(|guest| guest.id);
        let others = others.filter(|&id| id != vm && there(id));
        core::iter::once(vm).chain(others).map(of).collect()
    }

    /// Guaranteed part of the request slots of a client's VM; 0 for one that is gone.
    pub(super) fn part_of(&self, number: u32) -> u64 {
        let disk = &self.disks[self.clients[number as usize].disk];
        let vm = self.guests[disk.guest].id;
        if !self.ledger.is_live(vm) {
            return 0;
        }
        let shares: Vec<Shares> = self.objectives(vm).iter().map(Shares::of_slots).collect();
        budgets::parts(self.swarm.config.max_requests.into(), &shares)[0]
    }

    /// Whether a request finds payload memory for certain, if it needs some to be taken.
    pub(super) fn has_memory(&self, number: u32, request: &Request) -> bool {
        if request.op != Op::Write || !self.budgets.is_bounded() {
            return true;
        }
        let disk = &self.disks[self.clients[number as usize].disk];
        let vm = self.guests[disk.guest].id;
        if !self.ledger.is_live(vm) {
            return true;
        }
        let need = buffer_bytes(request.len);
        let objectives = self.objectives(vm);
        self.budgets.fits(vm, Op::Write, need, &objectives)
    }

    /// Reads that go to the device for the first time have taken memory.
    pub(super) fn reads_fed(&mut self, op: Op, parts: &[Part]) -> Verdict {
        if op != Op::Read || !self.budgets.is_bounded() {
            return Ok(());
        }
        for part in parts {
            let number = part.number as usize;
            if !core::mem::replace(&mut self.fed[number], true) {
                let entry = &self.ledger.entries[number];
                let (vm, len) = (entry.vm, entry.request.len);
                self.ledger.memory_taken(vm);
                self.budgets.taken(vm, Op::Read, len)?;
            }
        }
        Ok(())
    }

    /// The engine has finished a request: its reply takes its time, and then its memory is free.
    pub(super) fn reply(&mut self, done: &Done) -> Verdict {
        let number = done.tag as usize;
        let holds = self.budgets.is_bounded() && self.fed[number];
        let len = self.ledger.entries[number].request.len;
        ensure!(
            Budgets,
            done.payload == if holds { len } else { 0 },
            "request {number} of {len} bytes ended with {} bytes of memory; it held some: {holds}",
            done.payload
        );
        if !holds {
            return Ok(());
        }
        let reply = Reply {
            vm: done.vm,
            op: done.op,
            len,
        };
        let most = self.swarm.replies.0;
        if most == 0 || !self.running || !self.ledger.is_live(done.vm) {
            return self.reply_sent(reply);
        }
        let place = self.replies.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.replies.push(None);
            self.replies.len() - 1
        });
        self.replies[place] = Some(reply);
        let takes = Nanos(self.reply_dice.octaves(1, most));
        self.at(self.now + takes, Event::Sent(place as u32));
        Ok(())
    }

    /// A reply has reached its client, if it has not been given up meanwhile.
    pub(super) fn sent(&mut self, place: u32) -> Verdict {
        match self.replies[place as usize].take() {
            Some(reply) => self.reply_sent(reply),
            None => Ok(()),
        }
    }

    fn reply_sent(&mut self, reply: Reply) -> Verdict {
        let Reply { vm, op, len } = reply;
        self.budgets.returned(vm, op, len);
        self.memory_came_back = true;
        // No time passes for the engine: answers that it has given are timed by the checkers after
        // this.
        let now = self.engine.view().now();
        self.engine.return_payload(now, vm, op, len);
        self.ledger.memory_returned(vm);
        while self.engine.poll_unblocked().is_some() {}
        self.room_again();
        Ok(())
    }

    /// Nobody waits for replies of these any more: of one VM, or of all.
    pub(super) fn give_up_replies(&mut self, of: Option<VmId>) -> Verdict {
        for place in 0..self.replies.len() {
            let meant = |reply: &Reply| of.is_none_or(|vm| vm == reply.vm);
            if self.replies[place].as_ref().is_some_and(meant) {
                self.sent(place as u32)?;
            }
        }
        Ok(())
    }

    /// Whether replies hold memory whose return will be told.
    pub(super) fn replies_are_out(&self) -> bool {
        self.replies.iter().any(Option::is_some)
    }

    /// Nobody's reads wait for memory that is there for them.
    pub(super) fn nobody_lacks_its_part(&self) -> Verdict {
        if !self.budgets.is_bounded() {
            return Ok(());
        }
        for guest in &self.guests {
            if !self.ledger.is_live(guest.id) || !self.engine.view().lacks_memory(guest.id) {
                continue;
            }
            let waiting = self.ledger.open.iter().map(|&number| number as usize);
            let waiting = waiting.filter(|&number| {
                let entry = &self.ledger.entries[number];
                entry.vm == guest.id && entry.request.op == Op::Read && !self.fed[number]
            });
            let need = waiting.map(|number| buffer_bytes(self.ledger.entries[number].request.len));
            let need = need.sum();
            let objectives = self.objectives(guest.id);
            ensure!(
                Budgets,
                !self.budgets.fits(guest.id, Op::Read, need, &objectives),
                "reads of {:?} wait for memory, and all of their {need} bytes fit its part",
                guest.id
            );
        }
        Ok(())
    }
}
