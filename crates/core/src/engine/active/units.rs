//! Units enter and leave their unlink, and the dispatcher hears of it.

use super::ActivePolicy;
use crate::facts::{Facts, NIL, flag, state};
use crate::roles::{Event, Interests, Stage};
use tidegate_base::request::{Lane, Op, ReqId};

/// A unit of which an I/O has gone.
pub(in crate::engine) struct LeftBehind {
    pub unit: ReqId,
    pub op: Op,
    /// Slot of the VM.
    pub vm: u32,
    /// All of it has gone.
    pub whole: bool,
    /// Nothing of it had gone before.
    pub begins: bool,
    /// Its lane has no admitted unit any more.
    pub lane_left: bool,
    /// The request behind it of which the first bytes went along.
    pub advanced: Option<u32>,
}

impl ActivePolicy {
    /// Splits a unit behind its first `reqs` guest requests into two that take its place. The half
    /// that came first stands first. Returns the half with the requests behind.
    pub(in crate::engine) fn split_unit(&mut self, facts: &mut Facts, unit: u32, reqs: u32) -> u32 {
        self.withdraw(facts, unit);
        let next = facts.queues.unlink(unit);
        let (rest, in_order) = facts.queues.reqs.divide(unit, reqs);
        let [ahead, behind] = in_order;
        facts.queues.link(behind, next);
        facts.queues.link(ahead, behind);
        for slot in in_order {
            self.announce(facts, slot);
        }
        rest
    }

    /// Splits a unit into one for each of its guest requests.
    pub(in crate::engine) fn break_up(&mut self, facts: &mut Facts, unit: u32) {
        let mut rest = unit;
        while facts.queues.reqs.hot[rest as usize].unit_reqs > 1 {
            rest = self.split_unit(facts, rest, 1);
        }
    }

    /// An admitted unit leaves the dispatcher's index.
    pub(in crate::engine) fn withdraw(&mut self, facts: &mut Facts, unit: u32) {
        if facts.queues.reqs.hot[unit as usize].state == state::ADMITTED {
            let id = facts.req_id(unit);
            self.roles.dispatcher.remove(facts, id);
        }
    }

    /// An admitted unit enters the dispatcher's index.
    pub(in crate::engine) fn announce(&mut self, facts: &mut Facts, unit: u32) {
        if facts.queues.reqs.hot[unit as usize].state == state::ADMITTED {
            let id = facts.req_id(unit);
            self.roles.dispatcher.insert(facts, id);
        }
    }

    /// Takes an admitted unit out of its lane and of the dispatcher's index until
    /// [`Engine::unpark`].
    pub(in crate::engine) fn take_out(&mut self, facts: &mut Facts, unit: u32) {
        let (vm, lane) = {
            let hot = &facts.queues.reqs.hot[unit as usize];
            (hot.vm, hot.op.lane())
        };
        facts.queues.unlink(unit);
        let id = facts.req_id(unit);
        self.roles.dispatcher.remove(facts, id);
        facts.queues.reqs.hot[unit as usize].state = state::PARKED;
        self.ask_gate(facts, vm, lane);
    }

    /// Puts units of one VM back into their unlink, among those that are admitted, in the order of
    /// arrival.
    pub(in crate::engine) fn unpark(&mut self, facts: &mut Facts, mut parked: Vec<u32>) {
        parked.sort_unstable_by_key(|&slot| facts.queues.reqs.hot[slot as usize].seq);
        let Some(&first) = parked.first() else { return };
        let vm = facts.queues.reqs.hot[first as usize].vm;
        let mut next = facts.queues.vms[vm as usize].lanes.map(|lane| lane.head);
        for slot in parked {
            let (seq, lane) = {
                let hot = &facts.queues.reqs.hot[slot as usize];
                (hot.seq, hot.op.lane())
            };
            let next = &mut next[lane.index()];
            while *next != NIL {
                let hot = &facts.queues.reqs.hot[*next as usize];
                if hot.state != state::ADMITTED || hot.seq > seq {
                    break;
                }
                *next = hot.next;
            }
            facts.queues.reqs.hot[slot as usize].state = state::ADMITTED;
            facts.queues.link(slot, *next);
            self.ask_gate(facts, vm, lane);
            self.announce(facts, slot);
            self.let_holder_go(facts, slot);
        }
    }

    /// Out of the lane and the dispatcher's index: its requests wait no more.
    pub(in crate::engine) fn take_back(&mut self, facts: &mut Facts, unit: u32) {
        let id = facts.req_id(unit);
        let hot = &facts.queues.reqs.hot[unit as usize];
        let (admitted, vm, reqs) = (hot.state == state::ADMITTED, hot.vm, hot.unit_reqs);
        facts.queues.unlink(unit);
        facts.queues.vms[vm as usize].waiting -= reqs;
        if admitted {
            self.roles.dispatcher.remove(facts, id);
        }
        if self.hears(Interests::CANCELLED) {
            self.emit(facts, &Event::Cancelled(id));
        }
    }

    /// A request whose rest still waits goes from its beginning.
    pub(in crate::engine) fn begin_again(&mut self, facts: &mut Facts, slot: u32) {
        self.withdraw(facts, slot);
        let hot = &mut facts.queues.reqs.hot[slot as usize];
        debug_assert_eq!(hot.unit_reqs, 1, "what has begun to go is alone");
        hot.issued = 0;
        hot.flags = (hot.flags & !flag::AGAIN) | flag::ALONE;
        facts.queues.begin_wait(slot);
        self.announce(facts, slot);
        self.let_holder_go(facts, slot);
    }

    /// Returns whether a unit that goes now, wholly, may find company.
    #[inline]
    pub(in crate::engine) fn is_followed(&self, facts: &Facts, unit: u32) -> bool {
        let begun = facts.queues.reqs.hot[unit as usize].issued > 0;
        facts.queues.reqs.is_followed(unit) && !(self.fan_out.allocates && begun)
    }

    /// Whether requests of a VM that would fit an I/O may be cut all the same.
    pub(in crate::engine) fn cuts(&self, facts: &Facts, vm: u32) -> bool {
        let largest = facts.queues.vms[vm as usize].largest_io;
        largest < facts.queues.device.spec.max_io && !self.fan_out.allocates
    }

    /// Whether what goes of a unit is so near a limit that no request is cut for the rest.
    pub(in crate::engine) fn is_full(&self, facts: &Facts, unit: u32, limit: u32) -> bool {
        let fill = u64::from(self.roles.regulator.fill());
        u64::from(facts.queues.reqs.left_of(unit)) * 100 >= u64::from(limit) * fill
    }

    /// A waiting unit joins the one before it on the disk, which goes now. To roles it has gone,
    /// too.
    pub(in crate::engine) fn absorb(&mut self, facts: &mut Facts, unit: u32, next: u32) {
        facts.queues.unlink(next);
        facts.queues.reqs.append_unit(unit, next);
        let vm = facts.queues.reqs.hot[next as usize].vm;
        facts.ledgers[vm as usize].at_once().merged += 1;
        if !self.fan_out.by_lane {
            self.withdraw(facts, next);
        }
    }

    /// A request joins a waiting unit, at its end (`behind`) or at its beginning.
    #[inline(never)]
    pub(in crate::engine) fn join(
        &mut self,
        facts: &mut Facts,
        unit: u32,
        slot: u32,
        behind: bool,
    ) {
        facts.queues.reqs.append(unit, slot, behind);
        let vm = facts.queues.reqs.hot[slot as usize].vm;
        facts.ledgers[vm as usize].at_once().merged += 1;
        if self.hears(Interests::MERGED) {
            let (into, by) = (facts.req_id(unit), facts.req_id(slot));
            self.emit(facts, &Event::Merged { into, by });
        }
    }

    /// A request that has failed asks for no more parts.
    #[cold]
    pub(in crate::engine) fn drop_rest(&mut self, facts: &mut Facts, slot: u32) {
        if facts.queues.reqs.hot[slot as usize].state != state::ADMITTED
            && facts.queues.reqs.hot[slot as usize].state != state::PENDING
        {
            return;
        }
        self.take_back(facts, slot);
        facts.queues.reqs.hot[slot as usize].state = state::STARTED;
    }

    /// Tells roles what an I/O of a unit has left behind: the dispatcher of a unit, or of a lane,
    /// that has gone; the regulator of what was spent.
    #[inline(always)]
    pub(in crate::engine) fn left_behind(&mut self, facts: &mut Facts, of: &LeftBehind) {
        if of.whole && (of.lane_left || !self.fan_out.by_lane) {
            self.roles.dispatcher.remove(facts, of.unit);
        }
        if !facts.queues.memory.shelf.is_empty() && (of.whole || of.begins) && of.op == Op::Read {
            // Reads that were shelved for it may be asked again. One that begins to go in parts has
            // just got memory for all of them, and with that the budget has forgotten that its VM
            // waits for some.
            self.unshelve(facts, of.vm);
        }
        if let Some(slot) = of.advanced
            && self.hears(Interests::ADVANCED)
        {
            let rest = facts.req_id(slot);
            self.emit(facts, &Event::Advanced(rest));
        }
        if self.stage == Stage::Dispatch {
            // What was spent may hold back the other lane too: the total is common to both.
            for lane in Lane::ALL {
                self.ask_gate(facts, of.vm, lane);
            }
        }
    }
}
