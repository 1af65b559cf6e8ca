//! Device I/Os end, clients vanish: who is answered, who goes again.

use super::{Engine, InFlight};
use crate::facts::{Life, NIL, flag, state};
use crate::request::{ClientId, Done, IoError, IoId, Lane, Op, Outcome};
use crate::roles::{Event, Interests};
use crate::time::Nanos;

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
        let InFlight {
            io,
            first,
            reqs,
            started,
            ..
        } = *slot;
        let device = &mut self.facts.device;
        device.in_flight -= 1;
        device.ended += 1;
        device.errors += outcome.is_err() as u64;
        device.last_end = self.facts.now;
        self.facts.vms[io.vm.index()].in_flight -= 1;
        if self.hears(Interests::ENDED) {
            let took = self.facts.now.since(started);
            self.emit(&Event::Ended {
                io: &io,
                outcome,
                took,
            });
        }
        if io.op == Op::Flush {
            self.end_flush(io.disk.index);
        }
        let again = outcome.is_err() && reqs > 1 && io.op != Op::Flush;
        let mut at = first;
        let mut requeued_first = NIL;
        for _ in 0..reqs {
            // Ending a request frees its slot, so the next one is looked up first.
            let this = at;
            at = self.facts.hot[this as usize].chain_next;
            let cold = &mut self.facts.cold[this as usize];
            cold.outstanding -= 1;
            if cold.outstanding == 0 {
                cold.account.device += self.facts.now.since(cold.since);
                cold.since = self.facts.now;
                if self.facts.hot[this as usize].state != state::STARTED {
                    self.renew_marks(this);
                }
            }
            match again {
                true => requeued_first = self.requeue_alone(this, requeued_first),
                false => self.end_part(this, outcome),
            }
        }
    }

    /// The parts of one request have ended so far, and this one so.
    fn end_part(&mut self, slot: u32, outcome: Outcome) {
        if let Err(error) = outcome {
            self.facts.cold[slot as usize].error.get_or_insert(error);
            self.drop_rest(slot);
        }
        let hot = &self.facts.hot[slot as usize];
        if hot.state == state::STARTED && self.facts.cold[slot as usize].outstanding == 0 {
            self.finish(slot);
        }
    }

    /// A request that has failed asks for no more parts.
    fn drop_rest(&mut self, slot: u32) {
        if self.facts.hot[slot as usize].state != state::ADMITTED
            && self.facts.hot[slot as usize].state != state::PENDING
        {
            return;
        }
        self.take_back(slot);
        self.facts.vms[self.facts.hot[slot as usize].vm as usize].waiting -= 1;
        self.facts.hot[slot as usize].state = state::STARTED;
    }

    /// An I/O of several requests failed: each goes again by itself, so that the error hits
    /// only the one it belongs to. They stand at the front of their lane, in their old order.
    /// `behind`: the one that was requeued before it.
    fn requeue_alone(&mut self, slot: u32, behind: u32) -> u32 {
        let seq = self.facts.hot[slot as usize].seq;
        let hot = &self.facts.hot[slot as usize];
        let (vm, lane) = (hot.vm, hot.op.lane());
        let client = self.facts.cold[slot as usize].client;
        if self.client(client).is_err() || self.facts.vms[vm as usize].life != Life::Live {
            self.facts.cold[slot as usize].error = Some(IoError::Cancelled);
            self.finish(slot);
            return behind;
        }
        self.make_unit(slot, state::ADMITTED, seq);
        self.renew_marks(slot);
        let hot = &mut self.facts.hot[slot as usize];
        hot.issued = 0;
        hot.flags |= flag::ALONE;
        let next = match behind {
            NIL => self.facts.vms[vm as usize].lanes[lane.index()].head,
            behind => self.facts.hot[behind as usize].next,
        };
        self.facts.vms[vm as usize].waiting += 1;
        self.link(slot, next);
        self.ask_gate(vm, lane);
        self.announce(slot);
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
    pub(super) fn finish(&mut self, slot: u32) {
        let hot = &self.facts.hot[slot as usize];
        let cold = &self.facts.cold[slot as usize];
        let (vm, op, len) = (hot.vm, hot.op, hot.len);
        let done = Done {
            req: self.facts.req_id(slot),
            tag: cold.tag,
            client: cold.client,
            vm: self.facts.vm_at(vm as usize),
            op,
            outcome: cold.error.map_or(Ok(()), Err),
            account: cold.account,
        };
        let client = cold.client;
        let stats = &mut self.facts.stats[vm as usize];
        match done.outcome {
            Err(IoError::Cancelled) => stats.cancelled += 1,
            outcome => stats.ended(op, len, outcome.is_ok(), &done.account),
        }
        self.free_req(slot);
        let of_vm = &mut self.facts.vms[vm as usize];
        of_vm.requests -= 1;
        if of_vm.requests == 0 {
            of_vm.quiet_since = self.facts.now;
        }
        self.done.push_back(done);
        if self.hears(Interests::ANSWERED) {
            self.emit(&Event::Answered(&done));
        }
        self.leave(client, vm);
    }

    /// A client vanished: what waits is answered as cancelled, what is in flight is answered
    /// when it ends. Harmless when it was disconnected before.
    pub fn handle_disconnect(&mut self, now: Nanos, client: ClientId) {
        self.advance(now);
        let Ok(known) = self.client(client) else {
            return;
        };
        let (vm, disk) = (known.vm, known.disk);
        self.cancel_waiting(vm, Some(client));
        self.cancel_flushes(disk, Some(client));
        self.release_client(client.index);
    }

    /// Cancels what waits in a VM's lanes, of one client or of all.
    pub(super) fn cancel_waiting(&mut self, vm: u32, of: Option<ClientId>) {
        for lane in Lane::ALL {
            let mut unit = self.facts.vms[vm as usize].lanes[lane.index()].head;
            while unit != NIL {
                let theirs =
                    |slot: u32| of.is_none_or(|c| self.facts.cold[slot as usize].client == c);
                let (mine, all) = (
                    self.chain(unit).filter(|&slot| theirs(slot)).count() as u32,
                    self.facts.hot[unit as usize].unit_reqs,
                );
                if mine > 0 && mine < all {
                    // Company of several clients: split it, then look at each by itself.
                    let prev = self.facts.hot[unit as usize].prev;
                    self.break_up(unit);
                    unit = match prev {
                        NIL => self.facts.vms[vm as usize].lanes[lane.index()].head,
                        prev => self.facts.hot[prev as usize].next,
                    };
                    continue;
                }
                let next = self.facts.hot[unit as usize].next;
                if mine > 0 {
                    self.cancel_unit(unit);
                }
                unit = next;
            }
            self.ask_gate(vm, lane);
        }
    }

    fn cancel_unit(&mut self, unit: u32) {
        self.take_back(unit);
        let reqs = self.facts.hot[unit as usize].unit_reqs;
        let mut at = self.facts.hot[unit as usize].chain_first;
        for _ in 0..reqs {
            let this = at;
            at = self.facts.hot[this as usize].chain_next;
            self.cancel_request(this);
        }
    }

    /// Out of the lane and the dispatcher's index.
    fn take_back(&mut self, unit: u32) {
        let id = self.facts.req_id(unit);
        let admitted = self.facts.hot[unit as usize].state == state::ADMITTED;
        self.unlink(unit);
        if admitted {
            self.roles.dispatcher.remove(&self.facts, id);
        }
        if self.hears(Interests::CANCELLED) {
            self.emit(&Event::Cancelled(id));
        }
    }

    fn cancel_request(&mut self, slot: u32) {
        let hot = &mut self.facts.hot[slot as usize];
        let (vm, lane) = (hot.vm, hot.op.lane());
        let passenger = hot.state == state::PASSENGER;
        hot.state = state::STARTED;
        self.facts.vms[vm as usize].waiting -= 1;
        let (shut, deliberate) = (self.shut_time(vm, lane), self.deliberate_time());
        let cold = &mut self.facts.cold[slot as usize];
        cold.error.get_or_insert(IoError::Cancelled);
        if cold.outstanding == 0 {
            cold.end_wait(self.facts.now, passenger, shut, deliberate);
            self.finish(slot);
        }
    }

    /// A new wait begins: time that its lane was shut before does not count.
    fn renew_marks(&mut self, slot: u32) {
        let hot = &self.facts.hot[slot as usize];
        let marks = (
            self.shut_time(hot.vm, hot.op.lane()),
            self.deliberate_time(),
        );
        let cold = &mut self.facts.cold[slot as usize];
        (cold.shut_mark, cold.deliberate_mark) = marks;
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
            if of.is_none_or(|c| self.facts.cold[this as usize].client == c) {
                self.cancel_request(this);
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

    /// A request left: clients and VMs that only waited for it go too.
    fn leave(&mut self, client: ClientId, vm: u32) {
        let slot = &mut self.clients[client.index()];
        slot.requests -= 1;
        if !slot.connected && slot.requests == 0 {
            self.free_client_slot(client.index);
        }
        if self.facts.vms[vm as usize].life == Life::Leaving
            && self.facts.vms[vm as usize].requests == 0
        {
            self.vm_left(vm);
        }
    }

    /// For tests and checkers: nothing waits, nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.facts.device.requests == 0 && self.facts.device.in_flight == 0
    }
}
