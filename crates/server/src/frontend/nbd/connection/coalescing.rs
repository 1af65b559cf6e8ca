//! Receive coalescing: how long a connection pauses before its next receive, so that one receive
//! brings several requests.
//!
//! A receive, a submission and a send cost the same for one request as for twenty. A client that
//! has many requests outstanding, and sends them one by one, makes the loop pay that for each. A
//! short pause costs such a client nothing that it notices: replies to its other requests are on
//! their way meanwhile. Interrupt coalescing of NICs and NVMe controllers does the
//! same by fixed times.
//!
//! ```text
//!   receive ends --> requests taken --> answered, sent --> plan --> pause --> next receive
//! ```
//!
//! A pause is planned from what the connection did before: the mean time between its requests, the
//! mean number of requests in a receive, and its depth. The depth times the mean time between
//! requests is what a request takes to come round, from one of the client's sends to the next.

use tidegate_core::time::Nanos;

use crate::ring::Pause;

/// Longest mean time between requests, in nanoseconds, at which a connection pauses. The longest
/// pause then still brings one request more on average; beyond that a timer costs more than it
/// saves.
const GAP_NS_MAX: u32 = 14_000;
/// A pause takes at most this fraction of the client's round trip: 1 / [`ROUND_TRIP_PARTS`].
const ROUND_TRIP_PARTS: u64 = 10;
/// Mean number of requests in a receive from which on a connection does not pause: its client
/// batches by itself, and what a turn costs is divided by that many already.
const BATCH_MAX: u32 = 8;
/// Longest pause in times between requests. Half of [`BATCH_MAX`], so that pauses do not bring the
/// mean number of requests there by themselves. With twice both bounds a client that batched eleven
/// requests by itself lost a tenth of its IOPS.
const PAUSE_GAPS_MAX: u64 = 4;
/// Times between requests count as no longer than this, in nanoseconds, so that a pause of the
/// client is forgotten after some forty receives.
const GAP_NS_COUNTED_MAX: u64 = 1_000_000;
/// Time after which a depth that was seen counts no more, once or twice as long.
const DEPTH_EPOCH: Nanos = Nanos::from_millis(250);
/// Weight of a receive in the moving means: 1 / [`MEAN_PARTS`].
const MEAN_PARTS: u32 = 8;
/// The mean number of requests in a receive is counted in units of 1 / [`BATCH_PARTS`].
const BATCH_PARTS: u32 = 64;

/// Past of a connection's receives, and the plan for its next one.
#[derive(Debug)]
pub(super) struct Coalescing {
    /// Longest pause, by the latency bound of the VM.
    longest: Pause,
    /// Requests that were taken and are not answered yet.
    unanswered: u32,
    /// Largest number of them in this epoch, and in the one before.
    depths: [u32; 2],
    epoch_end: Nanos,
    /// Requests that the last receive brought.
    taken: u32,
    /// Loop time at which the last receive ended, and the time that its requests took to come.
    received_at: Nanos,
    interval: Nanos,
    pattern: Pattern,
}

/// Requests of a connection, as far as a pause depends on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pattern {
    /// Mean time between requests, in nanoseconds.
    gap_ns: u32,
    /// Mean number of requests in a receive, in units of 1/[`BATCH_PARTS`].
    batch_parts: u32,
    /// Lower bound of the requests that the client has outstanding.
    depth: u32,
}

impl Pattern {
    /// Returns the pause before the next receive, at most `longest`.
    fn pause(self, longest: Pause) -> Pause {
        if self.gap_ns > GAP_NS_MAX || self.batch_parts >= BATCH_MAX * BATCH_PARTS {
            return Pause::NONE;
        }
        let gap = u64::from(self.gap_ns);
        let by_round_trip = u64::from(self.depth) * gap / ROUND_TRIP_PARTS;
        let time = by_round_trip.min(gap * PAUSE_GAPS_MAX);
        let pause = Pause::at_most(Nanos(time)).min(longest);
        // A pause in which no request is to be expected only delays the next one.
        if pause.time().0 < gap {
            return Pause::NONE;
        }
        pause
    }
}

impl Coalescing {
    /// Creates the state of a new connection, which does not pause yet.
    pub(super) fn new(now: Nanos) -> Coalescing {
        Coalescing {
            longest: Pause::LONGEST,
            unanswered: 0,
            depths: [0; 2],
            epoch_end: now + DEPTH_EPOCH,
            taken: 0,
            received_at: now,
            interval: Nanos::ZERO,
            pattern: Pattern {
                gap_ns: GAP_NS_COUNTED_MAX as u32,
                batch_parts: 0,
                depth: 0,
            },
        }
    }

    /// Sets the longest pause.
    pub(super) fn set_longest(&mut self, longest: Pause) {
        self.longest = longest;
    }

    /// Notes the end of a receive that brought bytes.
    pub(super) fn received(&mut self, now: Nanos) {
        self.interval += now.since(self.received_at);
        self.received_at = now;
    }

    /// Notes that a request was taken.
    #[inline]
    pub(super) fn took_request(&mut self) {
        self.taken += 1;
        self.unanswered += 1;
        self.depths[0] = self.depths[0].max(self.unanswered);
    }

    /// Notes that a request was answered.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.unanswered -= 1;
    }

    /// Returns the pause before the receive that is submitted now.
    pub(super) fn plan(&mut self, now: Nanos) -> Pause {
        let taken = std::mem::take(&mut self.taken);
        // A receive without a request brought a part of a payload; the next one counts its time.
        if taken > 0 {
            let interval = std::mem::take(&mut self.interval);
            let gap = (interval.0 / u64::from(taken)).min(GAP_NS_COUNTED_MAX);
            // A receive has room for 585 requests.
            let batch = taken * BATCH_PARTS;
            let mean = |mean: u32, sample: u32| mean - mean / MEAN_PARTS + sample / MEAN_PARTS;
            self.pattern.gap_ns = mean(self.pattern.gap_ns, gap as u32);
            self.pattern.batch_parts = mean(self.pattern.batch_parts, batch);
        }
        if now >= self.epoch_end {
            self.epoch_end = now + DEPTH_EPOCH;
            self.depths = [self.unanswered, self.depths[0]];
        }
        self.pattern.depth = self.depths[0].max(self.depths[1]);
        self.pattern.pause(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn us(time: u64) -> Nanos {
        Nanos(time * 1000)
    }

    /// A client with `depth` requests outstanding, of which a receive brings `batch`, one in
    /// `gap_ns`; the pauses that were planned.
    fn pauses(depth: u32, batch: u32, gap_ns: u64, receives: u32) -> Vec<Pause> {
        let mut coalescing = Coalescing::new(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        // All come at once in the beginning.
        let mut arrived = depth;
        let mut plans = Vec::new();
        for _ in 0..receives {
            now += Nanos(gap_ns * u64::from(batch));
            coalescing.received(now);
            (0..arrived).for_each(|_| coalescing.took_request());
            (0..arrived).for_each(|_| coalescing.answered());
            plans.push(coalescing.plan(now));
            arrived = batch;
        }
        plans
    }

    fn last(depth: u32, batch: u32, gap_ns: u64) -> Pause {
        *pauses(depth, batch, gap_ns, 200).last().expect("some")
    }

    #[test]
    fn a_deep_client_that_sends_one_by_one_is_waited_for() {
        // Its requests come round in 32 * 7 us, and a tenth of that is 22 us.
        assert_eq!(last(32, 1, 7_000), Pause::at_most(us(22)));
        assert_eq!(last(128, 2, 7_000), Pause::LONGEST);
        // Four times the time between requests, in which the next four come.
        assert_eq!(last(128, 2, 2_000), Pause::at_most(us(8)));
    }

    #[test]
    fn a_client_that_is_shallow_slow_or_batches_by_itself_is_not_waited_for() {
        for depth in 1..10 {
            assert_eq!(last(depth, 1, 7_000), Pause::NONE, "depth {depth}");
        }
        assert_eq!(last(32, 1, 14_200), Pause::NONE);
        assert_eq!(last(32, 9, 3_000), Pause::NONE);
        assert!(last(32, 7, 3_000) != Pause::NONE);
    }

    #[test]
    fn a_new_connection_is_waited_for_once_its_pace_is_known() {
        let first = pauses(32, 1, 7_000, 100);
        let first = first.iter().position(|pause| *pause != Pause::NONE);
        // The mean begins at 875 us and falls by an eighth of its distance to 7 us with each
        // receive: 868 us * (7/8)^37 is the first such term below the 7 us that are left to 14 us.
        assert_eq!(first, Some(37));
    }

    #[test]
    fn a_depth_is_forgotten_after_two_epochs() {
        let receives = (2 * DEPTH_EPOCH.0 / 7_000) as u32;
        let all = pauses(32, 1, 7_000, receives + 2);
        assert!(all[receives as usize / 2 + 1] != Pause::NONE);
        assert_eq!(all.last(), Some(&Pause::NONE));
    }

    #[test]
    fn one_pause_of_the_client_ends_its_pauses_at_once() {
        let mut coalescing = Coalescing::new(Nanos::ZERO);
        coalescing.pattern = Pattern {
            gap_ns: 7_000,
            batch_parts: 2 * BATCH_PARTS,
            depth: 32,
        };
        coalescing.depths = [32, 32];
        coalescing.received(us(7));
        coalescing.took_request();
        assert!(coalescing.plan(us(7)) != Pause::NONE);
        coalescing.answered();
        coalescing.received(us(1007));
        coalescing.took_request();
        assert_eq!(coalescing.plan(us(1007)), Pause::NONE);
    }

    #[test]
    fn parts_of_a_payload_count_as_the_time_of_their_request() {
        let mut coalescing = Coalescing::new(Nanos::ZERO);
        for part in 1..=20 {
            coalescing.received(us(part));
            if part == 20 {
                coalescing.took_request();
            }
            coalescing.plan(us(part));
        }
        let mean = GAP_NS_COUNTED_MAX as u32 / 8 * 7 + 20_000 / 8;
        assert_eq!(coalescing.pattern.gap_ns, mean);
    }

    proptest! {
        #[test]
        fn a_pause_is_short_for_the_client_and_brings_a_request(
            gap_ns in prop_oneof![0u32..20_000, 0u32..=1_000_000],
            batch_parts in 0u32..=2 * BATCH_MAX * BATCH_PARTS,
            depth in 0u32..2000,
            longest in 0u64..=40,
        ) {
            let longest = Pause::at_most(us(longest));
            let pause = Pattern { gap_ns, batch_parts, depth }.pause(longest);
            let gap = u64::from(gap_ns);
            prop_assert!(pause <= longest && pause <= Pause::LONGEST);
            prop_assert!(pause.time().0 * ROUND_TRIP_PARTS <= u64::from(depth) * gap);
            if pause != Pause::NONE {
                prop_assert!(pause.time().0 >= gap);
                prop_assert!(gap_ns <= GAP_NS_MAX && batch_parts < BATCH_MAX * BATCH_PARTS);
                prop_assert!(depth >= 10);
            }
        }

        #[test]
        fn the_depth_of_the_plan_is_one_that_the_client_had(
            steps in proptest::collection::vec((1u64..30_000_000, 0u32..40, 0u32..40), 1..200),
        ) {
            let mut coalescing = Coalescing::new(Nanos::ZERO);
            let (mut now, mut unanswered) = (Nanos::ZERO, 0u32);
            // Depth of each step with its time.
            let mut depths = vec![(now, 0)];
            for (time, take, answer) in steps {
                now += Nanos(time);
                coalescing.received(now);
                (0..take).for_each(|_| coalescing.took_request());
                unanswered += take;
                depths.push((now, unanswered));
                let answer = answer.min(unanswered);
                (0..answer).for_each(|_| coalescing.answered());
                unanswered -= answer;
                coalescing.plan(now);
                let pattern = coalescing.pattern;
                prop_assert!(depths.iter().any(|(_, depth)| *depth == pattern.depth));
                // The deepest of an epoch is known until the end of the next.
                let recent = depths.iter().filter(|(at, _)| now.since(*at) < DEPTH_EPOCH);
                prop_assert!(pattern.depth >= recent.map(|(_, depth)| *depth).max().unwrap_or(0));
            }
        }
    }
}
