//! Which jobs a host would take, all of them at once.
//!
//! All that the admission controller asks of a newcomer is whether it would be in time, and that is
//! whether it would have the rate it needs. So what comes of a newcomer is a function of this one
//! number, and from one visited rate to the next the same: a handful of ranges, reckoned once for a
//! state of the host, says of every job whether it would be taken. With that a host is passed over,
//! and the oldest of all that wait found, without asking it again.

use tidegate_core::time::Nanos;

use crate::class_search::search;
use crate::what_if::WhatIf;
use crate::{HostSnapshot, MOST, Request};

/// The jobs that a host would take as it is, by the rate they need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acceptance {
    /// From, up to and with; apart, in ascending order.
    ranges: Vec<(u64, u64)>,
    until: Nanos,
    free: u64,
}

impl Acceptance {
    /// Jobs that a host would take as the snapshot has it.
    pub fn of(snapshot: &HostSnapshot<'_>) -> Acceptance {
        let mut all = Acceptance::none();
        if snapshot.tenants.len() >= MOST {
            return all;
        }
        let mut what_if = WhatIf::new(snapshot);
        all.free = what_if.total().saturating_sub(what_if.needed());
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
        all.until = what_if.holds_until();
        all
    }

    /// Of a host that takes nobody.
    pub(crate) fn none() -> Acceptance {
        Acceptance {
            ranges: Vec::new(),
            until: Nanos::MAX,
            free: 0,
        }
    }

    fn add(&mut self, from: u64, to: u64) {
        match self.ranges.last_mut() {
            Some(last) if last.1 + 1 == from => last.1 = to,
            _ => self.ranges.push((from, to)),
        }
    }

    /// Whether a job is taken that needs so many bytes a second.
    pub fn takes(&self, rate: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < rate);
        self.ranges.get(at).is_some_and(|range| range.0 <= rate)
    }

    /// What a job may need at most, in bytes a second; 0: none is taken.
    pub fn most(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    /// It holds up to this time, as long as nobody comes, goes, moves on or has another class.
    pub fn until(&self) -> Nanos {
        self.until
    }

    /// Free bandwidth: what its disk would do in all with one more on it, less what those that run
    /// need in order to be in time.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// The shortest deadline, no shorter than its own, with which a job of this size would be
    /// taken.
    pub fn nearest(&self, request: &Request) -> Option<Nanos> {
        let rate = request.rate();
        if self.takes(rate) {
            return Some(request.deadline());
        }
        let below = self.ranges.iter().rev().filter(|range| range.1 < rate);
        // Rates are rounded: a narrow range may have no deadline of its own.
        below
            .filter_map(|range| request.deadline_at(range.1))
            .find(|&deadline| {
                Request::new(request.bytes(), deadline).is_ok_and(|with| self.takes(with.rate()))
            })
    }
}
