//! Units that enter and leave their lanes, and the dispatcher's index with them.

use super::ActivePolicy;
use crate::facts::{Facts, NIL, flag, state};
use crate::roles::{Event, Interests, Stage};
use tidegate_base::request::{Lane, Op, ReqId};

/// State of a unit after an I/O of it was started.
pub(in crate::engine) struct LeftBehind {
    pub unit: ReqId,
    pub op: Op,
    /// Slot of the VM.
    pub vm: u32,
    /// The whole unit has gone.
    pub whole: bool,
    /// The I/O is the unit's first.
    pub begins: bool,
    /// The lane has no admitted unit any more.
    pub lane_left: bool,
    /// Request behind it whose first bytes went along.
    pub advanced: Option<u32>,
}

impl ActivePolicy {
    /// Splits a unit behind its first `reqs` guest requests into two that take its place. The half
    /// that came first stands first. Returns the half with the requests behind.
    pub(in crate::engine) fn split_unit(&mut self, facts: &mut Facts, unit: u32, reqs: u32) -> u32 {
        // A dispatcher may order by length or address, so the unit leaves its index first.
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

    /// Removes a unit from the dispatcher's index, if it is admitted.
    pub(in crate::engine) fn withdraw(&mut self, facts: &mut Facts, unit: u32) {
        if facts.queues.reqs.hot[unit as usize].state == state::ADMITTED {
            let id = facts.req_id(unit);
            self.roles.dispatcher.remove(facts, id);
        }
    }

    /// Inserts a unit into the dispatcher's index, if it is admitted.
    pub(in crate::engine) fn announce(&mut self, facts: &mut Facts, unit: u32) {
        if facts.queues.reqs.hot[unit as usize].state == state::ADMITTED {
            let id = facts.req_id(unit);
            self.roles.dispatcher.insert(facts, id);
        }
    }

    /// Takes an admitted unit out of its lane and the dispatcher's index until
    /// [`ActivePolicy::unpark`].
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

    /// Puts parked units of one VM back into their lanes, among the admitted ones, in the order of
    /// arrival.
    pub(in crate::engine) fn unpark(&mut self, facts: &mut Facts, mut parked: Vec<u32>) {
        parked.sort_unstable_by_key(|&slot| facts.queues.reqs.hot[slot as usize].seq);
        let Some(&first) = parked.first() else { return };
        let vm = facts.queues.reqs.hot[first as usize].vm;
        // Both lists are in order of arrival, so one pass over each lane finds all places.
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

    /// Takes a unit out of its lane and the dispatcher's index: its requests are cancelled or have
    /// failed, and wait no more.
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

    /// Has a request whose rest still waits go again from its beginning, alone.
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

    /// Returns whether a unit that goes now, wholly, may take adjacent units along.
    #[inline]
    pub(in crate::engine) fn is_followed(&self, facts: &Facts, unit: u32) -> bool {
        // Where rates are allocated the parts of a request are charged apart, so none is extended.
        let begun = facts.queues.reqs.hot[unit as usize].issued > 0;
        facts.queues.reqs.is_followed(unit) && !(self.fan_out.allocates && begun)
    }

    /// Returns whether requests of a VM may be cut to fill an I/O: only where its I/Os are kept
    /// below the device's largest.
    pub(in crate::engine) fn cuts(&self, facts: &Facts, vm: u32) -> bool {
        let largest = facts.queues.vms[vm as usize].largest_io;
        largest < facts.queues.device.spec.max_io && !self.fan_out.allocates
    }

    /// Returns whether a unit is so near the limit that no request is cut for the rest.
    pub(in crate::engine) fn is_full(&self, facts: &Facts, unit: u32, limit: u32) -> bool {
        let fill = u64::from(self.roles.regulator.fill());
        u64::from(facts.queues.reqs.left_of(unit)) * 100 >= u64::from(limit) * fill
    }

    /// Joins a waiting unit to the one before it on the disk, which goes now. To roles the waiting
    /// unit has gone, too.
    pub(in crate::engine) fn absorb(&mut self, facts: &mut Facts, unit: u32, next: u32) {
        facts.queues.unlink(next);
        facts.queues.reqs.append_unit(unit, next);
        let vm = facts.queues.reqs.hot[next as usize].vm;
        facts.ledgers[vm as usize].at_once().merged += 1;
        if !self.fan_out.by_lane {
            self.withdraw(facts, next);
        }
    }

    /// Merges a request into a waiting unit, at its end (`behind`) or at its beginning.
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

    /// Drops the rest of a failed request that still waits, so that no more parts of it start.
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

    /// Tells roles of the consequences of a started I/O: the dispatcher of a unit, or of a lane,
    /// that has gone; the regulator of the rate that was used.
    #[inline(always)]
    pub(in crate::engine) fn left_behind(&mut self, facts: &mut Facts, of: &LeftBehind) {
        if of.whole && (of.lane_left || !self.fan_out.by_lane) {
            self.roles.dispatcher.remove(facts, of.unit);
        }
        if !facts.queues.memory.shelf.is_empty() && (of.whole || of.begins) && of.op == Op::Read {
            // Reads that were shelved because of it may ask again. A read that begins to go in
            // parts has just got memory for all of them, and taking that ended its VM's wait in the
            // budget.
            self.unshelve(facts, of.vm);
        }
        if let Some(slot) = of.advanced
            && self.hears(Interests::ADVANCED)
        {
            let rest = facts.req_id(slot);
            self.emit(facts, &Event::Advanced(rest));
        }
        if self.stage == Stage::Dispatch {
            // The rate that was used may hold back the other lane, too: the total limit is common
            // to both.
            for lane in Lane::ALL {
                self.ask_gate(facts, of.vm, lane);
            }
        }
    }
}
