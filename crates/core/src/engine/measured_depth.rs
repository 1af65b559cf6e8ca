//! Queue depth that latency bounds leave, by measured latencies.
//!
//! The worst case of a plan assumes the worst of all mixes at once: long random writes, every
//! burst, the background's longest part. The depth that keeps every bound then may be a tenth of
//! what the device needs for its throughput, while requests take a twentieth of their bound: on the
//! model of a SATA SSD a bound of 20 ms left a queue of one I/O and a quarter of the work, with a
//! 99th percentile of 2 ms. Where promises do not fit, or costs are not known, no depth keeps every
//! bound in the worst case. So the worst case is where the depth begins. It grows while requests
//! use little of their bounds, and falls before they use them up.

use crate::attainment::BoundUse;

/// Requests with a latency bound from which on the depth may grow: fewer say too little.
const ANSWERED_MIN: u32 = 10;
/// Reciprocal of the part by which the depth grows. Latencies grow no faster than the depth, so
/// they are seen between half and three quarters of the bound before they exceed it.
const GROWTH: u32 = 8;
/// Requests with a latency bound from which on the depth may grow within a second: 1 % of them is
/// one.
const ANSWERED_MANY: u32 = 100;
/// Reciprocal of the share of a second's requests that may be late: 1 %.
const REQUESTS_PER_LATE_ONE: u32 = 100;
/// Reciprocal of the share of requests whose lateness tells within a second that the load is
/// another one: a tenth. An erasure of flash delays fewer.
const REQUESTS_PER_LATE_ONE_OF_PART: u32 = 10;

/// Span of time that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Span {
    /// Part of a second.
    Part,
    /// Second, with its last part.
    Second,
}

/// Depths between which latencies decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct DepthRange {
    /// Depth while nothing was measured.
    pub(super) start: u32,
    /// Least depth. It is `start` where that depth keeps every bound in the worst case, and on
    /// flash, because requests that wait for the erasure of a block wait no shorter at a smaller
    /// depth: by trial, the depth fell to one and throughput with it.
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
    /// Requests of this second.
    second: BoundUse,
    /// Depth at which requests were last about to be late, until a larger one has been in force.
    too_deep: Option<u32>,
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

    /// Takes the requests answered since the last call, and updates the depth. `ended`: what ends
    /// now. `in_force`: the depth in force, which the load or another bound may keep below this
    /// one. Returns whether the depth changed.
    pub(super) fn update(
        &mut self,
        last: BoundUse,
        ended: Span,
        in_force: u32,
        range: DepthRange,
    ) -> bool {
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
        self.seen.add(last);
        self.second.add(last);
        let second = match ended {
            Span::Part => None,
            Span::Second => Some(core::mem::take(&mut self.second)),
        };
        let next = if self.is_too_deep(last, second) {
            let in_force = in_force.min(depth);
            self.too_deep = Some(in_force);
            (in_force / 2).max(least).min(depth)
        } else if in_force >= depth {
            self.grown(depth, ended).min(most)
        } else {
            depth
        };
        if next != depth {
            self.too_deep = self.too_deep.filter(|&too_deep| next <= too_deep);
            (self.seen, self.second) = (BoundUse::default(), BoundUse::default());
            self.depth = Some(next);
        }
        next != depth
    }

    /// Returns whether requests are about to be late: by those since the last call, or by those of
    /// a second that ends.
    fn is_too_deep(&self, last: BoundUse, second: Option<BoundUse>) -> bool {
        let late = last.nearly_late;
        let are_many_late = last.answered >= ANSWERED_MIN
            && late.saturating_mul(REQUESTS_PER_LATE_ONE_OF_PART) > last.answered;
        let is_second_late =
            |second: BoundUse| is_more_than_one_in_hundred(second.nearly_late, second.answered);
        are_many_late || second.is_some_and(is_second_late)
    }

    /// Returns a depth that is larger than `depth` if requests leave room for it. Latencies grow
    /// no faster than the depth: those below a quarter of the bound stay below half of it at twice
    /// the depth.
    fn grown(&mut self, depth: u32, ended: Span) -> u32 {
        let seen = self.seen;
        let enough = match ended {
            Span::Part => ANSWERED_MANY,
            Span::Second => ANSWERED_MIN,
        };
        if is_more_than_one_in_hundred(seen.over_half, seen.answered) {
            // Neither much room nor danger: measured anew.
            if ended == Span::Second {
                self.seen = BoundUse::default();
            }
            depth
        } else if seen.answered < enough {
            depth
        } else if self.too_deep.is_none_or(|too_deep| depth * 2 < too_deep)
            && !is_more_than_one_in_hundred(seen.over_quarter, seen.answered)
        {
            depth * 2
        } else if ended == Span::Second {
            depth + (depth / GROWTH).max(1)
        } else {
            depth
        }
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

    /// A hundred requests, some of which took more than a quarter and half of their bound, and some
    /// more than three quarters.
    fn hundred(over_half: u32, nearly_late: u32) -> BoundUse {
        BoundUse {
            answered: 100,
            over_quarter: 100,
            over_half,
            nearly_late,
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
    fn the_depth_doubles_while_requests_take_less_than_a_quarter_of_their_bound() {
        let mut measured = MeasuredDepth::default();
        assert_eq!(measured.depth(from(1)), 1);
        assert!(measured.update(quick(10), Span::Second, 1, from(1)));
        assert_eq!(measured.depth(from(1)), 2);
        assert!(!measured.update(quick(9), Span::Second, 2, from(1)), "few");
        assert!(measured.update(quick(1), Span::Second, 2, from(1)), "ten");
        assert_eq!(measured.depth(from(1)), 4);
        let lower = measured.update(quick(100), Span::Second, 2, from(1));
        assert!(!lower, "the load uses less");
        for depth in 4..40 {
            measured.update(quick(10), Span::Second, depth, from(1));
        }
        assert_eq!(measured.depth(from(1)), 32);
    }

    #[test]
    fn within_a_second_a_hundred_requests_are_needed() {
        let mut measured = MeasuredDepth::default();
        assert!(!measured.update(quick(99), Span::Part, 1, from(1)));
        assert!(measured.update(quick(1), Span::Part, 1, from(1)));
        assert_eq!(measured.depth(from(1)), 2);
    }

    #[test]
    fn the_depth_grows_by_an_eighth_while_requests_take_less_than_half_of_their_bound() {
        let mut measured = MeasuredDepth::default();
        assert!(!measured.update(hundred(1, 0), Span::Part, 16, from(16)));
        assert!(measured.update(hundred(1, 0), Span::Second, 16, from(16)));
        assert_eq!(measured.depth(from(16)), 18);
        assert!(measured.update(hundred(1, 0), Span::Second, 18, from(16)));
        assert_eq!(measured.depth(from(16)), 20);
    }

    #[test]
    fn the_depth_stays_while_some_requests_take_more_than_half_of_their_bound() {
        let mut measured = MeasuredDepth::default();
        assert!(!measured.update(hundred(2, 1), Span::Second, 4, from(4)));
        assert_eq!(measured.depth(from(4)), 4);
        let longer = measured.update(quick(10), Span::Second, 4, from(4));
        assert!(longer, "they no longer do");
    }

    #[test]
    fn the_depth_in_force_is_halved_before_requests_are_late() {
        let slow = hundred(2, 2);
        let mut measured = MeasuredDepth::default();
        assert!(measured.update(slow, Span::Second, 12, from(32)));
        assert_eq!(measured.depth(from(32)), 6, "half of what was in force");
        for depth in [6, 3, 1] {
            measured.update(slow, Span::Second, depth, from(32));
        }
        assert_eq!(measured.depth(from(32)), 1);
        assert!(measured.reset());
        assert_eq!(measured.depth(from(32)), 32);
        let flash = DepthRange {
            least: 32,
            ..from(32)
        };
        assert!(
            !measured.update(slow, Span::Second, 12, flash),
            "no less than at the start"
        );
    }

    #[test]
    fn many_late_requests_halve_the_depth_within_a_second() {
        let mut measured = MeasuredDepth::default();
        let some = BoundUse {
            answered: 20,
            over_quarter: 2,
            over_half: 2,
            nearly_late: 2,
        };
        assert!(!measured.update(some, Span::Part, 16, from(16)));
        let many = BoundUse {
            over_quarter: 3,
            over_half: 3,
            nearly_late: 3,
            ..some
        };
        assert!(measured.update(many, Span::Part, 16, from(16)));
        assert_eq!(measured.depth(from(16)), 8);
        // The second ends with what is left of it: the late ones were taken into account.
        assert!(!measured.update(quick(9), Span::Second, 8, from(16)));
    }

    #[test]
    fn the_second_counts_all_of_its_parts() {
        let mut measured = MeasuredDepth::default();
        assert!(!measured.update(hundred(1, 1), Span::Part, 16, from(16)));
        assert!(!measured.update(hundred(2, 2), Span::Part, 16, from(16)));
        assert!(measured.update(quick(50), Span::Second, 16, from(16)));
        assert_eq!(measured.depth(from(16)), 8);
    }

    #[test]
    fn a_depth_that_was_too_deep_is_approached_slowly() {
        let mut measured = MeasuredDepth::default();
        let mut depths = Vec::new();
        measured.update(hundred(2, 2), Span::Second, 20, from(20));
        for _ in 0..12 {
            let depth = measured.depth(from(20));
            depths.push(depth);
            measured.update(quick(100), Span::Second, depth, from(20));
        }
        assert_eq!(depths, [10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 32, 32]);
    }

    #[test]
    fn a_least_depth_that_rises_raises_what_was_measured_before() {
        let flash = |start| DepthRange {
            start,
            least: start,
            most: 32,
        };
        let mut measured = MeasuredDepth::default();
        measured.update(quick(10), Span::Second, 4, flash(4));
        assert_eq!(measured.depth(flash(4)), 8);
        assert_eq!(measured.depth(flash(16)), 16);
    }
}
