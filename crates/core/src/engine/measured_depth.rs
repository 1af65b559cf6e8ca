//! Queue depth of a device whose latency bounds nothing guarantees, by measured latencies.
//!
//! Where costs are not known, or the promises do not all fit in the worst case, no depth is known
//! to keep every bound. The worst case then demands the smallest depth, even if requests take a
//! twentieth of their bound, which costs a hard disk half of its work; without costs it demands
//! nothing, even if requests are late. So the depth grows while requests use little of their
//! bounds, and falls before they use them up. Promises that fit keep the depth of the worst case,
//! because a guarantee must not depend on the load of the last seconds.

use crate::attainment::BoundUse;

/// Requests with a latency bound from which on the depth may grow: fewer say too little.
const ANSWERED_MIN: u32 = 10;
/// Reciprocal of the part by which the depth grows. Latencies grow no faster than the depth, so
/// they are seen between half and three quarters of the bound before they exceed it.
const GROWTH: u32 = 8;
/// Reciprocal of the share of a second's requests that may be late: 1 %.
const REQUESTS_PER_LATE_ONE: u32 = 100;

/// Depths between which latencies decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct DepthRange {
    /// Depth while nothing was measured.
    pub(super) start: u32,
    /// Least depth. On flash it is `start`, because requests that wait for the erasure of a block
    /// wait no shorter at a smaller depth: by trial, the depth fell to one and throughput with it.
    pub(super) least: u32,
    /// Configured depth.
    pub(super) most: u32,
}

/// Largest queue depth by measured latencies.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct MeasuredDepth {
    /// Largest depth; `None`: nothing was measured.
    depth: Option<u32>,
    /// Requests since the depth changed.
    seen: BoundUse,
}

impl MeasuredDepth {
    /// Returns the largest depth: `start` of the range until something was measured, and never
    /// below its `least`, which may have risen since.
    pub(super) fn depth(&self, range: DepthRange) -> u32 {
        self.depth.unwrap_or(range.start).max(range.least)
    }

    /// Forgets what was measured. Returns whether there was anything.
    pub(super) fn reset(&mut self) -> bool {
        core::mem::take(self).depth.is_some()
    }

    /// Takes the requests of the last second, and updates the depth. `in_force`: the depth in
    /// force, which the load or another bound may keep below this one. Returns whether the depth
    /// changed.
    pub(super) fn update(&mut self, last: BoundUse, in_force: u32, range: DepthRange) -> bool {
        let DepthRange { start, least, most } = range;
        assert!(
            (1..=start).contains(&least) && start <= most,
            "no depths to choose from: {range:?}"
        );
        assert!(
            last.nearly_late.max(last.over_half) <= last.answered,
            "more requests were slow than were answered: {last:?}"
        );
        let depth = self.depth(range);
        self.seen.answered = self.seen.answered.saturating_add(last.answered);
        self.seen.over_half = self.seen.over_half.saturating_add(last.over_half);
        let next = if is_more_than_one_in_hundred(last.nearly_late, last.answered) {
            (in_force.min(depth) / 2).max(least).min(depth)
        } else if is_more_than_one_in_hundred(self.seen.over_half, self.seen.answered) {
            // Neither much room nor danger: measured anew.
            self.seen = BoundUse::default();
            depth
        } else if in_force >= depth && self.seen.answered >= ANSWERED_MIN {
            (depth + (depth / GROWTH).max(1)).min(most)
        } else {
            depth
        };
        if next != depth {
            self.seen = BoundUse::default();
            self.depth = Some(next);
        }
        next != depth
    }
}

/// Returns whether more than 1 % of `all` are `some`.
fn is_more_than_one_in_hundred(some: u32, all: u32) -> bool {
    some.saturating_mul(REQUESTS_PER_LATE_ONE) > all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(answered: u32) -> BoundUse {
        BoundUse {
            answered,
            ..BoundUse::default()
        }
    }

    fn from(start: u32) -> DepthRange {
        DepthRange {
            start,
            least: 1,
            most: 32,
        }
    }

    #[test]
    fn the_depth_grows_while_requests_take_less_than_half_of_their_bound() {
        let mut measured = MeasuredDepth::default();
        assert_eq!(measured.depth(from(1)), 1);
        assert!(measured.update(quick(10), 1, from(1)));
        assert_eq!(measured.depth(from(1)), 2);
        assert!(!measured.update(quick(9), 2, from(1)), "too few requests");
        assert!(measured.update(quick(1), 2, from(1)), "ten by now");
        assert_eq!(measured.depth(from(1)), 3);
        assert!(
            !measured.update(quick(10), 2, from(1)),
            "the load uses less"
        );
        for depth in 3..40 {
            measured.update(quick(10), depth, from(1));
        }
        assert_eq!(measured.depth(from(1)), 32);
    }

    #[test]
    fn the_depth_stays_while_some_requests_take_more_than_half_of_their_bound() {
        let mut measured = MeasuredDepth::default();
        measured.update(quick(10), 4, from(4));
        let some = BoundUse {
            answered: 100,
            over_half: 2,
            nearly_late: 1,
        };
        assert!(!measured.update(some, 5, from(4)));
        assert_eq!(measured.depth(from(4)), 5);
        assert!(measured.update(quick(10), 5, from(4)), "they no longer do");
    }

    #[test]
    fn the_depth_in_force_is_halved_before_requests_are_late() {
        let mut measured = MeasuredDepth::default();
        let slow = BoundUse {
            answered: 100,
            over_half: 2,
            nearly_late: 2,
        };
        assert!(measured.update(slow, 12, from(32)));
        assert_eq!(measured.depth(from(32)), 6, "half of what was in force");
        for depth in [6, 3, 1] {
            measured.update(slow, depth, from(32));
        }
        assert_eq!(measured.depth(from(32)), 1);
        assert!(measured.reset());
        assert_eq!(measured.depth(from(32)), 32);
        let flash = DepthRange {
            least: 32,
            ..from(32)
        };
        assert!(
            !measured.update(slow, 12, flash),
            "no less than at the start"
        );
    }

    #[test]
    fn a_least_depth_that_rises_raises_what_was_measured_before() {
        let flash = |start| DepthRange {
            start,
            least: start,
            most: 32,
        };
        let mut measured = MeasuredDepth::default();
        measured.update(quick(10), 4, flash(4));
        assert_eq!(measured.depth(flash(4)), 5);
        assert_eq!(measured.depth(flash(16)), 16);
    }
}
