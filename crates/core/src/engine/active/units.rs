//! Units that enter and leave their lanes, and the dispatcher's index with them.

use super::ActivePolicy;
use crate::roles::{Event, Interests};
use crate::view::{NIL, View, flag, state};
use tidegate_base::request::{Op, ReqId};

/// State of a unit after an I/O of it was started.
pub(in crate::engine) struct IoStarted {
    /// Unit of which the I/O is the whole or a part.
    pub unit: ReqId,
    /// Operation of the unit.
    pub op: Op,
    /// Slot of the VM.
    pub vm: u32,
    /// True if the whole unit has been dispatched.
    pub unit_done: bool,
    /// True if the I/O is the unit's first.
    pub first_io: bool,
    /// True if the lane has no admitted unit any more.
    pub lane_emptied: bool,
    /// Following request whose first bytes were included in this I/O.
    pub trimmed_follower: Option<u32>,
}

impl ActivePolicy {
    /// Splits a unit behind its first `reqs` guest requests into two that take its place. The half
    /// that came first stands first. Returns the half with the requests behind.
    pub(in crate::engine) fn split_unit(&mut self, view: &mut View, unit: u32, reqs: u32) -> u32 {
        // A dispatcher may order by length or address, so the unit leaves its index first.
        self.remove_from_index(view, unit);
        let next = view.queues.unlink(unit);
        let (rest, in_order) = view.queues.reqs.divide(unit, reqs);
        let [ahead, behind] = in_order;
        // From the back, as `link` puts a unit before another one.
        view.queues.link(behind, next);
        view.queues.link(ahead, behind);
        for slot in in_order {
            self.insert_into_index(view, slot);
        }
        rest
    }

    /// Splits a unit into one for each of its guest requests.
    pub(in crate::engine) fn break_up(&mut self, view: &mut View, unit: u32) {
        let mut rest = unit;
        while view.queues.reqs.hot[rest as usize].unit_reqs > 1 {
            rest = self.split_unit(view, rest, 1);
        }
    }

    /// Removes a unit from the dispatcher's index, if it is admitted.
    pub(in crate::engine) fn remove_from_index(&mut self, view: &mut View, unit: u32) {
        if view.queues.reqs.hot[unit as usize].state == state::ADMITTED {
            let id = view.req_id(unit);
            self.roles.dispatcher.remove(view, id);
        }
    }

    /// Inserts a unit into the dispatcher's index, if it is admitted.
    pub(in crate::engine) fn insert_into_index(&mut self, view: &mut View, unit: u32) {
        if view.queues.reqs.hot[unit as usize].state == state::ADMITTED {
            let id = view.req_id(unit);
            self.roles.dispatcher.insert(view, id);
        }
    }

    /// Takes an admitted unit out of its lane and the dispatcher's index until
    /// [`ActivePolicy::unpark`].
    pub(in crate::engine) fn park(&mut self, view: &mut View, unit: u32) {
        let (vm, lane) = {
            let hot = &view.queues.reqs.hot[unit as usize];
            (hot.vm, hot.op.lane())
        };
        debug_assert_eq!(
            view.queues.reqs.hot[unit as usize].state,
            state::ADMITTED,
            "unit {unit} is parked that no dispatcher could pick"
        );
        view.queues.unlink(unit);
        let id = view.req_id(unit);
        self.roles.dispatcher.remove(view, id);
        view.queues.reqs.hot[unit as usize].state = state::PARKED;
        self.ask_gate(view, vm, lane);
    }

    /// Puts parked units of one VM back into their lanes, among the admitted ones, in the order of
    /// arrival.
    pub(in crate::engine) fn unpark(&mut self, view: &mut View, mut parked: Vec<u32>) {
        // Numbers of arrival differ, so an unstable sort gives one order.
        parked.sort_unstable_by_key(|&slot| view.queues.reqs.hot[slot as usize].seq);
        let Some(&first) = parked.first() else { return };
        let vm = view.queues.reqs.hot[first as usize].vm;
        debug_assert!(
            parked.iter().all(|&slot| {
                let hot = &view.queues.reqs.hot[slot as usize];
                hot.vm == vm && hot.state == state::PARKED
            }),
            "units go back to a lane that are another VM's, or were not parked"
        );
        // Both lists are in order of arrival, so one pass over each lane finds all places.
        let mut next = view.queues.vms[vm as usize].lanes.map(|lane| lane.head);
        for slot in parked {
            let (seq, lane) = {
                let hot = &view.queues.reqs.hot[slot as usize];
                (hot.seq, hot.op.lane())
            };
            let next = &mut next[lane.index()];
            while *next != NIL {
                let hot = &view.queues.reqs.hot[*next as usize];
                if hot.state != state::ADMITTED || hot.seq > seq {
                    break;
                }
                *next = hot.next;
            }
            view.queues.reqs.hot[slot as usize].state = state::ADMITTED;
            view.queues.link(slot, *next);
            self.ask_gate(view, vm, lane);
            self.insert_into_index(view, slot);
            self.open_holders_lane(view, slot);
        }
    }

    /// Takes a unit out of its lane and the dispatcher's index, because its requests are cancelled
    /// or have failed.
    pub(in crate::engine) fn cancel_waiting(&mut self, view: &mut View, unit: u32) {
        let id = view.req_id(unit);
        let hot = &view.queues.reqs.hot[unit as usize];
        let (admitted, vm, reqs) = (hot.state == state::ADMITTED, hot.vm, hot.unit_reqs);
        view.queues.unlink(unit);
        view.queues.vms[vm as usize].waiting -= reqs;
        if admitted {
            self.roles.dispatcher.remove(view, id);
        }
        if self.hears(Interests::CANCELLED) {
            self.emit(view, &Event::Cancelled(id));
        }
    }

    /// Resets a partly dispatched request so that it is dispatched again from its first byte,
    /// unmerged.
    pub(in crate::engine) fn restart_request(&mut self, view: &mut View, slot: u32) {
        self.remove_from_index(view, slot);
        let hot = &mut view.queues.reqs.hot[slot as usize];
        debug_assert_eq!(hot.unit_reqs, 1, "a partly dispatched unit is one request");
        hot.issued = 0;
        hot.flags = (hot.flags & !flag::AGAIN) | flag::ALONE;
        // The time with the device counts as such; from now on the request waits once more.
        view.queues.begin_wait(slot);
        self.insert_into_index(view, slot);
        self.open_holders_lane(view, slot);
    }

    /// Returns true if units that continue a unit may be merged into the I/O that dispatches all of
    /// it.
    #[inline]
    pub(in crate::engine) fn is_followed(&self, view: &View, unit: u32) -> bool {
        // Where rates are allocated the parts of a request are charged apart, so none is extended.
        let begun = view.queues.reqs.hot[unit as usize].issued > 0;
        view.queues.reqs.is_followed(unit) && !(self.fan_out.allocates && begun)
    }

    /// Returns true if requests of a VM may be cut to fill an I/O: only where its I/Os are kept
    /// below the device's largest.
    pub(in crate::engine) fn may_cut(&self, view: &View, vm: u32) -> bool {
        let largest = view.queues.vms[vm as usize].largest_io;
        // With allocated rates each part of a request is charged, so a cut would cost its VM.
        largest < view.queues.device.spec.max_io && !self.fan_out.allocates
    }

    /// Returns true if a unit is so near the limit that no request is cut to fill the rest.
    pub(in crate::engine) fn is_full(&self, view: &View, unit: u32, limit: u32) -> bool {
        let fill = u64::from(self.roles.regulator.fill());
        u64::from(view.queues.reqs.bytes_left(unit)) * 100 >= u64::from(limit) * fill
    }

    /// Merges a waiting unit into the one before it on the disk, which is being dispatched. For
    /// roles the waiting unit is dispatched, too.
    pub(in crate::engine) fn absorb(&mut self, view: &mut View, unit: u32, next: u32) {
        debug_assert!(
            may_share_io(view, unit, next),
            "one I/O for two VMs or operations"
        );
        view.queues.unlink(next);
        view.queues.reqs.append_unit(unit, next);
        let vm = view.queues.reqs.hot[next as usize].vm;
        view.ledgers[vm as usize].merged();
        // A dispatcher that orders lanes holds no entry of a unit behind a lane's head.
        if !self.fan_out.by_lane {
            self.remove_from_index(view, next);
        }
    }

    /// Merges a request into a waiting unit, at its end (`behind`) or at its beginning.
    #[inline(never)]
    pub(in crate::engine) fn join(&mut self, view: &mut View, unit: u32, slot: u32, behind: bool) {
        debug_assert!(
            may_share_io(view, unit, slot),
            "one I/O for two VMs or operations"
        );
        view.queues.reqs.append(unit, slot, behind);
        let vm = view.queues.reqs.hot[slot as usize].vm;
        view.ledgers[vm as usize].merged();
        if self.hears(Interests::MERGED) {
            let (into, by) = (view.req_id(unit), view.req_id(slot));
            self.emit(view, &Event::Merged { into, by });
        }
    }

    /// Drops the rest of a failed request that still waits, so that no more parts of it start.
    #[cold]
    pub(in crate::engine) fn drop_rest(&mut self, view: &mut View, slot: u32) {
        let waits = matches!(
            view.queues.reqs.hot[slot as usize].state,
            state::ADMITTED | state::PENDING
        );
        if !waits {
            return;
        }
        self.cancel_waiting(view, slot);
        // Out of all queues; its parts in flight end the request.
        view.queues.reqs.hot[slot as usize].state = state::STARTED;
    }

    /// Notifies roles of the consequences of a started I/O: the dispatcher of a unit or a lane that
    /// is completely dispatched, the regulator of the rate that was used.
    #[inline(always)]
    pub(in crate::engine) fn after_io_started(&mut self, view: &mut View, io: &IoStarted) {
        if io.unit_done && (io.lane_emptied || !self.fan_out.by_lane) {
            self.roles.dispatcher.remove(view, io.unit);
        }
        if !view.queues.memory.shelf.is_empty()
            && (io.unit_done || io.first_io)
            && io.op == Op::Read
        {
            // Reads that were shelved because this unit had the first claim on memory may claim
            // some again. A read that is dispatched in parts got memory for all of them with the
            // first, which ended its VM's wait in the budget.
            self.unshelve(view, io.vm);
        }
        if let Some(slot) = io.trimmed_follower
            && self.hears(Interests::ADVANCED)
        {
            let rest = view.req_id(slot);
            self.emit(view, &Event::Advanced(rest));
        }
        // The rate that was used may hold back the other lane, too: the total limit is common to
        // both.
        self.ask_both_lanes(view, io.vm);
    }
}

/// Returns `true` if two requests are of one VM and one operation, as all requests of a unit are.
fn may_share_io(view: &View, one: u32, other: u32) -> bool {
    let [one, other] = [one, other].map(|slot| &view.queues.reqs.hot[slot as usize]);
    one.vm == other.vm && one.op == other.op
}
