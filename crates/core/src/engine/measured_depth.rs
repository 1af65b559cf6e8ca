//! Queue depth that latency bounds leave, by measured latencies.
//!
//! The worst case of a plan assumes the worst of all mixes at once: long random writes, every
//! burst, the background's longest part. The depth that keeps every bound then may be a tenth of
//! what the device needs for its throughput, while requests take a twentieth of their bound: on the
//! model of a SATA SSD a bound of 20 ms left a queue of one I/O and a quarter of the work, with a
//! 99th percentile of 2 ms. Where promises do not fit, or costs are not known, no depth keeps every
//! bound in the worst case. So the worst case is where the depth begins. It grows while requests
//! use little of their bounds, and falls before they use them up.
//!
//! In a second without a request that has a bound, no bound is at risk. Before the first such
//! request the depth is the configured one, and that of the worst case from its answer on. Later it
//! doubles in each of these seconds: a VM with a request now and then meets each depth before the
//! next larger one.

use crate::attainment::BoundUse;

/// Requests with a latency bound from which on the depth may grow: fewer say too little.
const ANSWERED_MIN: u32 = 10;
/// Reciprocal of the part by which the depth grows. Latencies grow no faster than the depth, so
/// they are seen between half and three quarters of the bound before they exceed it.
const GROWTH: u32 = 8;
/// Reciprocal of the share of a second's requests that may be late: 1 %.
const REQUESTS_PER_LATE_ONE: u32 = 100;
/// Reciprocal of the share of requests whose lateness tells within a second that the load is
/// another one: a tenth. An erasure of flash delays fewer.
const REQUESTS_PER_LATE_ONE_OF_PART: u32 = 10;

/// Seconds for which a depth stays below one at which requests were about to be late, where a
/// smaller one keeps every bound: trying it again costs at most one second, of 200.
const HOLD_SECONDS: u32 = 200;
/// Seconds after a fall in which the depth falls on because of what was sent before it.
const AFTERMATH_SECONDS: u32 = 3;

/// Span of time that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Span {
    /// Part of a second.
    Part,
    /// Second, with its last part.
    Second,
    /// Second in which no request with a latency bound was answered, and none waits.
    IdleSecond,
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
    /// The depth `start` keeps every bound in the worst case.
    pub(super) guaranteed: bool,
}

/// Knowledge of requests with a latency bound: has one come?
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Asked {
    /// Not known yet: no second has ended.
    #[default]
    Unknown,
    /// No request with a bound has come.
    NotYet,
    /// The first ones have come in this second. Those that were sent beside the deeper queue of
    /// before are among its answers, so the second tells nothing of the depth in force.
    InThisSecond,
    /// Requests with a bound have come, and more may come at any time.
    Yes,
}

/// Largest queue depth by measured latencies.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct MeasuredDepth {
    /// Largest depth; `None`: nothing was measured.
    depth: Option<u32>,
    /// Until a request with a bound has come, the depth is the configured one.
    asked: Asked,
    /// Requests since the depth changed.
    seen: BoundUse,
    /// Requests of this second.
    second: BoundUse,
    /// The depth fell in this second.
    fell: bool,
    /// Depth at which requests were last about to be late; `None`: it may be tried again.
    too_deep: Option<u32>,
    /// Seconds for which that holds, where a depth keeps every bound.
    hold: u32,
}

impl MeasuredDepth {
    /// Returns the largest depth: `start` of the range until something was measured, and never
    /// below its `least`, which may have risen since.
    pub(super) fn depth(&self, range: DepthRange) -> u32 {
        if self.asked == Asked::NotYet {
            return range.most;
        }
        self.depth.unwrap_or(range.start).max(range.least)
    }

    /// Forgets what was measured. Returns whether there was anything.
    pub(super) fn reset(&mut self) -> bool {
        let before = core::mem::take(self);
        before.asked == Asked::NotYet || before.depth.is_some()
    }

    /// Returns whether a second ends, given the answers since the last call, in which no request
    /// with a bound was answered.
    pub(super) fn is_unanswered_second(&self, last: BoundUse) -> bool {
        self.second.answered == 0 && last.answered == 0
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
        let DepthRange {
            start, least, most, ..
        } = range;
        assert!(
            (1..=start).contains(&least) && start <= most,
            "no depths to choose from: {range:?}"
        );
        assert!(
            last.nearly_late.max(last.over_half) <= last.answered,
            "more requests were slow than were answered: {last:?}"
        );
        if self.asked != Asked::Yes {
            let before = self.depth(range);
            let asked = self.asked_after(last, ended, range);
            let asked_before = core::mem::replace(&mut self.asked, asked);
            if asked != Asked::Yes || asked_before == Asked::InThisSecond {
                return self.depth(range) != before;
            }
        }
        let depth = self.depth(range);
        self.seen.add(last);
        self.second.add(last);
        let next = if self.is_too_deep(last, ended, range) {
            self.fall(in_force.min(depth), ended, range)
        } else if in_force < depth {
            // A shallower queue says nothing about this one.
            self.seen = BoundUse::default();
            depth
        } else {
            match ended {
                Span::Part => depth,
                Span::Second => self.grown(depth, last, range).min(most),
                Span::IdleSecond => self.larger(depth, true, range).min(most),
            }
        };
        if ended != Span::Part {
            (self.second, self.fell) = (BoundUse::default(), false);
            self.hold = self.hold.saturating_sub(1);
            if range.guaranteed && self.hold == 0 {
                self.too_deep = None;
            }
        }
        if next != depth {
            self.too_deep = self.too_deep.filter(|&too_deep| next <= too_deep);
            self.seen = BoundUse::default();
            self.depth = Some(next);
        }
        next != depth
    }

    /// Returns whether a request with a bound has come, until one has and its second has ended.
    fn asked_after(&self, last: BoundUse, ended: Span, range: DepthRange) -> Asked {
        // Where the worst case allows every depth, seconds are not told from idle ones.
        let one_waits = ended == Span::Second && range.start < range.most;
        let has_come = last.answered > 0 || one_waits;
        match self.asked {
            Asked::NotYet if has_come && range.start < range.most => Asked::InThisSecond,
            Asked::Unknown | Asked::NotYet if has_come => Asked::Yes,
            Asked::Unknown | Asked::NotYet if ended == Span::IdleSecond => Asked::NotYet,
            Asked::InThisSecond if ended != Span::Part => Asked::Yes,
            asked => asked,
        }
    }

    /// Returns whether requests are about to be late: by those since the last call, or by those of
    /// a second that ends. Once a second, since later answers are to requests from before.
    fn is_too_deep(&self, last: BoundUse, ended: Span, range: DepthRange) -> bool {
        if self.fell {
            return false;
        }
        let late = last.nearly_late;
        let are_many_late = last.answered >= ANSWERED_MIN
            && late.saturating_mul(REQUESTS_PER_LATE_ONE_OF_PART) > last.answered;
        let second = self.second;
        let is_second_late = is_more_than_one_in_hundred(second.nearly_late, second.answered)
            || (range.guaranteed && last.vms_nearly_late > 0);
        are_many_late || (ended != Span::Part && is_second_late)
    }

    /// Returns the depth below `in_force`, with which requests were about to be late.
    fn fall(&mut self, in_force: u32, ended: Span, range: DepthRange) -> u32 {
        let is_aftermath = self.hold > HOLD_SECONDS - AFTERMATH_SECONDS;
        let before = self.too_deep.filter(|_| is_aftermath);
        self.too_deep = Some(in_force.max(before.unwrap_or(0)));
        (self.hold, self.fell) = (HOLD_SECONDS, true);
        // Many late requests within a second are those of another load: the worst case is near.
        let is_another_load = range.guaranteed && ended == Span::Part;
        let lower = if is_another_load { 1 } else { in_force / 2 };
        lower.max(range.least).min(self.depth(range))
    }

    /// Returns a depth that is larger than `depth` if requests leave room for it. `last`: the last
    /// ones of the second that ends. Latencies grow no faster than the depth: those below a quarter
    /// of the bound stay below half of it at twice the depth.
    fn grown(&mut self, depth: u32, last: BoundUse, range: DepthRange) -> u32 {
        let seen = self.seen;
        let by_vms = |vms: u32| range.guaranteed && vms > 0;
        if is_more_than_one_in_hundred(seen.over_half, seen.answered) || by_vms(last.vms_over_half)
        {
            // Neither much room nor danger: measured anew.
            self.seen = BoundUse::default();
            if range.guaranteed && self.too_deep.is_none() {
                // Not the aftermath of a fall: the next one has a depth of its own.
                let hold = HOLD_SECONDS - AFTERMATH_SECONDS;
                (self.too_deep, self.hold) = (Some(depth * 2), hold);
            }
            return depth;
        }
        if seen.answered < ANSWERED_MIN {
            return depth;
        }
        let is_quick = !is_more_than_one_in_hundred(seen.over_quarter, seen.answered)
            && !by_vms(last.vms_over_quarter);
        self.larger(depth, is_quick, range)
    }

    /// Returns a depth that is larger than `depth`: twice that if `is_quick`, unless requests were
    /// about to be late with it, or otherwise an eighth more.
    fn larger(&self, depth: u32, is_quick: bool, range: DepthRange) -> u32 {
        let may_double = self.too_deep.is_none_or(|too_deep| depth * 2 < too_deep);
        let next = if is_quick && may_double {
            depth * 2
        } else {
            depth + (depth / GROWTH).max(1)
        };
        match self.too_deep {
            Some(too_deep) if range.guaranteed => next.min(too_deep * 3 / 4).max(depth),
            _ => next,
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
            ..BoundUse::default()
        }
    }

    fn from(start: u32) -> DepthRange {
        DepthRange {
            start,
            least: 1,
            most: 32,
            guaranteed: false,
        }
    }

    /// The depth `start` keeps every bound.
    fn guaranteed(start: u32) -> DepthRange {
        DepthRange {
            least: start,
            guaranteed: true,
            ..from(start)
        }
    }

    /// Returns the depth after each of a number of seconds with quick requests.
    fn quick_seconds(measured: &mut MeasuredDepth, seconds: u32, range: DepthRange) -> Vec<u32> {
        let depths = (0..seconds).map(|_| {
            let depth = measured.depth(range);
            measured.update(quick(100), Span::Second, depth, range);
            measured.depth(range)
        });
        depths.collect()
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
        let lower = measured.update(quick(1000), Span::Second, 2, from(1));
        assert!(!lower, "the load uses less");
        let few = measured.update(quick(9), Span::Second, 4, from(1));
        assert!(!few, "requests beside a shallower queue do not count");
        assert_eq!(quick_seconds(&mut measured, 4, from(1)), [8, 16, 32, 32]);
    }

    #[test]
    fn before_the_first_request_with_a_bound_the_depth_is_the_configured_one() {
        let nothing = BoundUse::default();
        let mut measured = MeasuredDepth::default();
        let range = guaranteed(1);
        assert!(!measured.update(nothing, Span::Part, 1, range));
        assert!(measured.update(nothing, Span::IdleSecond, 1, range));
        assert_eq!(measured.depth(range), 32);
        assert!(!measured.update(nothing, Span::Part, 32, range));
        assert!(!measured.update(nothing, Span::IdleSecond, 32, range));
        assert_eq!(measured.depth(range), 32);
        // The first answers lower it. What they and others of their second took is the deeper
        // queue's: as a warning it would hold the depth down for minutes.
        let late = BoundUse {
            vms_over_quarter: 1,
            vms_over_half: 1,
            vms_nearly_late: 1,
            ..hundred(100, 100)
        };
        assert!(measured.update(late, Span::Part, 32, range));
        assert_eq!(measured.depth(range), 1);
        assert!(!measured.update(late, Span::Part, 1, range));
        assert!(!measured.update(late, Span::Second, 1, range));
        assert_eq!(quick_seconds(&mut measured, 4, range), [2, 4, 8, 16]);
    }

    #[test]
    fn a_first_request_that_waits_lowers_the_depth_at_the_end_of_its_second() {
        let nothing = BoundUse::default();
        let mut measured = MeasuredDepth::default();
        let range = from(4);
        measured.update(nothing, Span::IdleSecond, 4, range);
        assert_eq!(measured.depth(range), 32);
        assert!(measured.update(nothing, Span::Second, 32, range));
        assert_eq!(measured.depth(range), 4);
        // Once its second is over, the next request may meet twice the depth at most.
        measured.update(nothing, Span::Second, 4, range);
        measured.update(nothing, Span::IdleSecond, 4, range);
        assert_eq!(measured.depth(range), 8);
        assert!(measured.reset());
        measured.update(nothing, Span::IdleSecond, 4, range);
        assert!(measured.reset(), "the depth was another one");
        assert_eq!(measured.depth(range), 4);
    }

    #[test]
    fn the_depth_doubles_in_seconds_without_a_request_up_to_one_that_was_too_deep() {
        let nothing = BoundUse::default();
        let mut measured = MeasuredDepth::default();
        let range = guaranteed(1);
        measured.update(quick(1), Span::Second, 1, range);
        let idle = |measured: &mut MeasuredDepth| {
            let depth = measured.depth(range);
            measured.update(nothing, Span::IdleSecond, depth, range);
            measured.depth(range)
        };
        assert_eq!([(); 3].map(|()| idle(&mut measured)), [2, 4, 8]);
        // A request now and then is late beside eight others.
        let late = BoundUse {
            answered: 1,
            over_quarter: 1,
            over_half: 1,
            nearly_late: 1,
            vms_over_quarter: 1,
            vms_over_half: 1,
            vms_nearly_late: 1,
            ..nothing
        };
        assert!(measured.update(late, Span::Second, 8, range));
        let held = [(); 100].map(|()| idle(&mut measured));
        assert_eq!(held.iter().max(), Some(&6), "three quarters");
    }

    #[test]
    fn the_depth_does_not_grow_within_a_second() {
        let mut measured = MeasuredDepth::default();
        assert!(!measured.update(quick(500), Span::Part, 1, from(1)));
        assert!(measured.update(quick(0), Span::Second, 1, from(1)));
        assert_eq!(measured.depth(from(1)), 2);
    }

    #[test]
    fn the_depth_grows_by_an_eighth_while_requests_take_less_than_half_of_their_bound() {
        let mut measured = MeasuredDepth::default();
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
    fn many_late_requests_halve_the_depth_within_a_second_and_once() {
        let mut measured = MeasuredDepth::default();
        let some = BoundUse {
            answered: 20,
            over_quarter: 2,
            over_half: 2,
            nearly_late: 2,
            ..BoundUse::default()
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
        assert!(!measured.update(many, Span::Part, 8, from(16)), "as before");
        assert!(!measured.update(many, Span::Second, 8, from(16)));
        assert!(measured.update(many, Span::Part, 8, from(16)), "still");
        assert_eq!(measured.depth(from(16)), 4);
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
        measured.update(hundred(2, 2), Span::Second, 20, from(20));
        assert_eq!(
            quick_seconds(&mut measured, 11, from(20)),
            [11, 12, 13, 14, 15, 16, 18, 20, 22, 32, 32]
        );
    }

    #[test]
    fn a_guaranteed_depth_is_returned_to_at_once_and_left_with_care() {
        let mut measured = MeasuredDepth::default();
        let range = guaranteed(2);
        assert_eq!(quick_seconds(&mut measured, 4, range), [4, 8, 16, 32]);
        assert!(measured.update(hundred(50, 50), Span::Part, 32, range));
        assert_eq!(measured.depth(range), 2);
        // The rest of this second counts for nothing.
        assert!(!measured.update(hundred(50, 50), Span::Second, 2, range));
        let held = quick_seconds(&mut measured, 198, range);
        assert_eq!(held[..3], [4, 8, 16]);
        assert_eq!(held.iter().max(), Some(&24), "three quarters");
        assert_eq!(quick_seconds(&mut measured, 4, range).last(), Some(&32));
    }

    #[test]
    fn one_vm_that_is_late_lowers_a_guaranteed_depth() {
        let mut measured = MeasuredDepth::default();
        let range = guaranteed(1);
        quick_seconds(&mut measured, 5, range);
        let rare = BoundUse {
            vms_over_quarter: 1,
            vms_over_half: 1,
            vms_nearly_late: 1,
            ..quick(1000)
        };
        assert!(!measured.update(rare, Span::Part, 32, range));
        assert!(measured.update(rare, Span::Second, 32, range));
        assert_eq!(measured.depth(range), 16);
        let near = BoundUse {
            vms_nearly_late: 0,
            ..rare
        };
        assert!(!measured.update(near, Span::Second, 16, range));
        let quicker = BoundUse {
            vms_over_half: 0,
            ..near
        };
        assert!(measured.update(quicker, Span::Second, 16, range));
        assert_eq!(measured.depth(range), 18);
    }

    #[test]
    fn a_guaranteed_depth_at_which_some_took_over_half_is_not_doubled_again() {
        let mut measured = MeasuredDepth::default();
        let range = guaranteed(1);
        quick_seconds(&mut measured, 4, range);
        assert!(!measured.update(hundred(2, 0), Span::Second, 16, range));
        let held = quick_seconds(&mut measured, 100, range);
        assert_eq!(held.iter().max(), Some(&24));
    }

    #[test]
    fn a_fall_after_a_warning_holds_the_depth_below_its_own() {
        let mut measured = MeasuredDepth::default();
        let range = guaranteed(1);
        quick_seconds(&mut measured, 4, range);
        assert!(!measured.update(hundred(2, 0), Span::Second, 16, range));
        assert!(measured.update(hundred(2, 2), Span::Second, 16, range));
        let held = quick_seconds(&mut measured, 100, range);
        assert_eq!(held.iter().max(), Some(&12));
    }

    #[test]
    fn a_least_depth_that_rises_raises_what_was_measured_before() {
        let flash = |start| DepthRange {
            least: start,
            ..from(start)
        };
        let mut measured = MeasuredDepth::default();
        measured.update(quick(10), Span::Second, 4, flash(4));
        assert_eq!(measured.depth(flash(4)), 8);
        assert_eq!(measured.depth(flash(16)), 16);
    }
}
