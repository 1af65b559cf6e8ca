//! Back-merging at dispatch: units that continue a unit are merged into its I/O.
//!
//! Requests merge on arrival while there is room (`arrival`). A request that finds none, or finds
//! the unit it continues gone in part, waits as a unit of its own; but the unit before it is marked
//! (`flag::FOLLOWED` of its slot), and so is the front half when a unit is split. Where a marked
//! request's last byte goes to the device and the I/O may be longer, the units that continue it go
//! along, whole. So a limit that rises joins units that already wait, and the last part of a large
//! request does not go alone.
//!
//! For a VM whose I/Os are kept below the device's largest
//! ([`Knob::MergeLimit`](crate::roles::Knob)) the next request may also be cut: as much of it as
//! still fits goes along, up to a physical block, and the rest waits on. So its I/Os come near the
//! limit, wherever requests begin and end (Li et al., ToS 2017, sections 3.3 and 4.1: segments of 4
//! KiB merge up to the limit). An I/O that is near the limit by itself is left as it is
//! ([`Regulator::fill`](crate::roles::Regulator::fill)): the part behind a cut begins where no
//! request did, and crosses one more boundary of an array's stripes.
//!
//! Units that go along wait admitted in the same lane, a few places behind: none passes a regulator
//! that did not admit it, and the lane's gate is open. Dispatchers are told that a unit has left
//! ([`Dispatcher::remove`](crate::roles::Dispatcher::remove)), or begins further on
//! ([`Event::Advanced`](crate::roles::Event)); a dispatcher that reckons with the length of its
//! pick names that as the maximum. Where a controller allocates rates, dispatchers charge the parts
//! of a request apart, and parts are not back-merged.

use super::Engine;
use crate::view::Hot;

/// First bytes of a one-request unit that go along with the unit before it.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub slot: u32,
    pub bytes: u32,
}

impl Engine {
    /// Joins to a unit that goes now, wholly, the units that continue it, up to `budget` bytes in
    /// all. Returns the head of the next one that goes along in part, if any.
    #[inline(never)]
    pub(super) fn gather(&mut self, unit: u32, budget: u32) -> Option<Head> {
        let Hot { vm, op, .. } = self.view.queues.reqs.hot[unit as usize];
        let limit = self.control.merge_size_max(&self.view, vm, op);
        let (most, block) = (budget.min(limit), self.config.device.physical_block);
        while self.active.is_followed(&self.view, unit) {
            let room = most.saturating_sub(self.view.queues.reqs.bytes_left(unit));
            if room == 0 {
                return None;
            }
            // The mark is a hint: the unit that followed may have gone or been cancelled.
            let next = self.view.queues.reqs.continuation(unit)?;
            let Hot {
                unit_len,
                unit_reqs,
                ..
            } = self.view.queues.reqs.hot[next as usize];
            // The whole unit goes along, and the one behind it may follow.
            if unit_len <= room {
                if !self.budgets.may_go_along(&mut self.view, next) {
                    return None;
                }
                self.active.absorb(&mut self.view, unit, next);
                continue;
            }
            let (fit, cut) = (
                self.view.queues.reqs.whole_requests_in(next, room),
                self.view.queues.reqs.cut(next, room, block),
            );
            let may_cut = cut > 0 && !self.active.is_full(&self.view, unit, limit);
            // Without a whole request that fits, only a cut could extend the I/O.
            if !self.active.may_cut(&self.view, vm) || (fit == 0 && !may_cut) {
                return None;
            }
            if unit_reqs == 1 {
                if !self.budgets.may_go_along(&mut self.view, next) {
                    return None;
                }
                // The rest keeps its place in the queue: only one request of an I/O is ever cut.
                let (slot, bytes) = (next, cut);
                return Some(Head { slot, bytes });
            }
            // Split off the requests that fit, or the one to be cut; the next round takes them.
            self.active.split_unit(&mut self.view, next, fit.max(1));
        }
        None
    }
}
