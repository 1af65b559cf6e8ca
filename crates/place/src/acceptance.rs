//! Set of the transfers that a host would accept, computed once per state of the host.
//!
//! The admission controller looks at one property of a new transfer: whether its rate suffices,
//! that is, the rate that it needs. Its decision is therefore a function of this one number, and
//! constant between the rates that the search visits. A few ranges of rates describe the decision
//! for every transfer, so a host can be skipped, and the oldest acceptable waiting request found,
//! without another admission test.

use tidegate_core::time::Nanos;

use crate::class_search::search;
use crate::what_if::WhatIf;
use crate::{HostSnapshot, MAX_VMS, Request};

/// Set of the transfers that a host accepts in its current state, by the rate they need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acceptance {
    /// Inclusive ranges of rates in bytes per second; disjoint and ascending.
    ranges: Vec<(u64, u64)>,
    valid_until: Nanos,
    free: u64,
}

impl Acceptance {
    /// Computes the set for the state in `snapshot`.
    pub fn for_snapshot(snapshot: &HostSnapshot<'_>) -> Acceptance {
        let mut all = Acceptance::none();
        if snapshot.vms.len() >= MAX_VMS {
            return all;
        }
        let mut what_if = WhatIf::new(snapshot);
        all.free = what_if.total().saturating_sub(what_if.needed());
        // Each search also returns up to which rate its result holds; the next one starts above.
        let mut from = 1;
        loop {
            let found = search(&mut what_if, from);
            if found.verdict.is_ok() {
                all.add(from, found.up_to);
            }
            match found.up_to.checked_add(1) {
                Some(next) => from = next,
                None => break,
            }
        }
        all.valid_until = what_if.valid_until();
        all
    }

    /// Acceptance of a host that accepts no transfer.
    pub(crate) fn none() -> Acceptance {
        Acceptance {
            ranges: Vec::new(),
            valid_until: Nanos::MAX,
            free: 0,
        }
    }

    fn add(&mut self, from: u64, to: u64) {
        match self.ranges.last_mut() {
            // Adjacent ranges are merged, so lookups see few of them.
            Some(last) if last.1 + 1 == from => last.1 = to,
            _ => self.ranges.push((from, to)),
        }
    }

    /// Returns whether the host accepts a transfer that needs `rate` bytes per second.
    pub fn takes(&self, rate: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < rate);
        self.ranges.get(at).is_some_and(|range| range.0 <= rate)
    }

    /// Highest rate of an accepted transfer in bytes per second; 0: none is accepted.
    pub fn max_rate(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    /// End of validity, provided that no VM comes, goes, makes progress or changes class
    /// before.
    pub fn valid_until(&self) -> Nanos {
        self.valid_until
    }

    /// Free bandwidth in bytes per second: bandwidth of the disk with one more transfer, less the
    /// rates that the running transfers need.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Returns the shortest deadline, at least the request's own, with which the host would accept
    /// a transfer of this size.
    pub fn nearest(&self, request: &Request) -> Option<Nanos> {
        let rate = request.rate();
        if self.takes(rate) {
            return Some(request.deadline());
        }
        let below = self.ranges.iter().rev().filter(|range| range.1 < rate);
        // Needed rates are rounded up, so a narrow range may contain the rate of no deadline.
        below
            .filter_map(|range| request.deadline_at(range.1))
            .find(|&deadline| {
                Request::new(request.bytes(), deadline).is_ok_and(|with| self.takes(with.rate()))
            })
    }
}
