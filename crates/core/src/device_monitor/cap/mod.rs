//! Learning of a cap in front of the device, so that queues stay where the policy orders them.
//!
//! A hypervisor or a cloud bounds a disk by a token bucket of I/Os or bytes per second. I/Os beyond
//! it queue in the bucket, first come, first served, out of the policy's reach. So once a cap is
//! known, I/Os go at [`PACE_64THS`](pace::PACE_64THS) / 64 of it, and the queue is the engine's.
//!
//! ```text
//!             pinned for 3 s, and          half in flight,          the queue in the
//!             the device can do more       the same rate            bucket is gone
//!   Searching ----------------------> Test ---------------> Drain ------------------> Paced
//!      ^  ^                            |                      ^                         |
//!      |  +-- the rate fell: no cap ---+                      |   I/Os queue up: is it  |
//!      |                                                   Measure <-- another cap now? +
//!      +---- the device itself is the limit, or the cap was in nobody's way for so long +
//! ```
//!
//! **Recognition.** For three seconds at least two I/Os were in flight, and the rate of I/Os or of
//! bytes stayed the same, while the device could do more: its profile's time for the work is at
//! most 80 % of the elapsed time; without a profile, it did a quarter more of the same before, in
//! I/Os and in bytes (while the bucket had a burst left). Each I/O must also have taken longer than
//! at saturation, or than in that earlier second: with few in flight a device is slow without a
//! cap, too. Then the test: for a second only half as many I/Os may be in flight. A device that had
//! room would lose throughput; behind a cap only latency falls (Little's law). An adapted depth is
//! so small that no queue forms behind the cap, and half of it would show nothing: then for a
//! second twice as many and two more may be in flight. A device that had room would deliver more.
//!
//! **Kind of cap.** With I/Os of one size both rates are pinned, and the capped one is unknown:
//! then an I/O may go while either rate has room for it. As soon as sizes change, one of the two
//! rates is exceeded, and was not capped ([`CapRates::narrow`](cap_rates::CapRates::narrow)).
//!
//! **Change of the cap.** Behind a lower cap I/Os queue up: for 100 ms there are never as few in
//! flight as usual. Then a second is measured, with a few in flight and no pace: its rate is the
//! cap. To find a higher one, every 10 s in which the cap is in the way, I/Os go faster by an
//! eighth, by a quarter or at twice the rate in turn, for a second, or for as long as the tokens
//! that the pace has saved in the bucket could last; the probe ends as soon as I/Os queue up. The
//! rate that passes is the new cap, and the next second tries twice of it. If the measurement fits
//! neither the known cap nor a cap of the other kind, the cap is forgotten and learnt anew.

mod cap_rates;
mod detection;
mod in_flight_baseline;
mod pace;
mod probe;

use super::window_meter::Window;
use cap_rates::{CapRates, Evidence, Throughput};
use detection::{SUSPECT_SECONDS, Second, TEST_PAUSE_MIN};
use in_flight_baseline::InFlightBaseline;
use pace::{CATCH_UP_MAX, Pace};
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::time::Nanos;

/// Name and version of the persisted state.
const BLOB_NAME: &str = "cap-learner";
const VERSION: u16 = 1;

/// I/Os in a second below which it is not evaluated: lower caps are not learnt.
const WINDOW_IOS_MIN: u64 = 8;
/// Time for which I/Os must have queued up for the cap to have changed; longer where I/Os are few.
const QUEUE_TIME_MIN: Nanos = Nanos::from_millis(100);
/// Interval between probes for a higher cap.
const PROBE_INTERVAL: Nanos = Nanos(10 * Nanos::SECOND.0);
/// Time after which a cap that held nothing back is forgotten.
const UNUSED_CAP_LIFETIME: Nanos = Nanos(600 * Nanos::SECOND.0);
/// Seconds after which tokens saved in the bucket are used up, so that a rate above the cap is
/// another cap.
const TOKENS_USED_UP_S: u32 = 4;
/// I/Os in flight behind a cap that may be usual, if half of those at its recognition are fewer.
const USUAL_IN_FLIGHT_MAX: u32 = 4;
/// Longest drain: I/Os that hang are not waited for.
const DRAIN_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);
/// Time after which a test or a measurement stops to bound I/Os in flight, in case some hang.
const BOUND_TIME_MAX: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Cap in front of the device, as learnt or assumed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntCap {
    /// Cap in I/Os per second; `None`: not capped.
    pub iops: Option<f64>,
    /// Cap in bytes per second; `None`: not capped.
    pub bytes_per_s: Option<u64>,
    /// True if only one of the two is capped, and it is not known which, since all I/Os had one
    /// size.
    pub either: bool,
    /// Time since which some cap has been known.
    pub since: Nanos,
}

/// State of the learning; see the diagram of the [module](self).
#[derive(Clone, Copy, Debug)]
enum State {
    /// No cap is known; looks for one.
    Searching,
    /// Tests a suspected cap with at most `bound` in flight: a rate that holds confirms it.
    Test {
        bound: u32,
        at: Throughput,
        rates: CapRates,
    },
    /// Tests a suspected cap with up to `depth` in flight, more than the adapted depth `in_flight`:
    /// a rate that does not rise confirms it.
    Raise {
        depth: u32,
        in_flight: u32,
        at: Throughput,
        rates: CapRates,
    },
    /// Nothing goes until the queue in the bucket is gone, or until the time.
    Drain { until: Nanos },
    /// I/Os go at the pace of the cap, times `scale` 64ths.
    Paced { scale: u64 },
    /// Measures the rate that passes, with at most `bound` in flight and no pace; `second` counts
    /// from 1.
    Measure { bound: u32, second: u32 },
}

/// State of the learning; see the [module](self).
pub(super) struct CapLearner {
    state: State,
    /// Begin of the present state, and of its windows.
    since: Nanos,
    /// Known cap.
    rates: Option<CapRates>,
    /// Rates that a queue in the bucket showed last, before a probe raised them; `None`: not
    /// raised since.
    before: Option<CapRates>,
    /// Time since which some cap has been known.
    known_since: Nanos,
    pace: Pace,
    /// Last seconds; the newest comes last.
    seconds: [Second; SUSPECT_SECONDS],
    /// Number of consecutive seconds up to now that look capped.
    suspect_run: usize,
    /// Second with the most I/Os by workload class, and the mean time of an I/O in it in
    /// picoseconds.
    earlier: Box<[(Throughput, u128); Window::PATTERNS]>,
    /// Depth in force and the configured one, where adaption keeps it smaller.
    pub(super) adapted: Option<(u32, u32)>,
    /// Earliest time of the next test, and the pause after it if it fails.
    test_at: Nanos,
    test_pause: Nanos,
    /// I/Os in flight that are usual behind the cap, and the most that this may be.
    usual: u32,
    usual_most: u32,
    /// Factor on the measured usual number; doubled after each false alarm.
    patience: u32,
    /// Measurement of the usual number, after the queue in the bucket was gone.
    baseline: Option<InFlightBaseline>,
    /// Bytes of the largest I/O in the last second.
    largest: u32,
    /// Last time at which no more than the usual number were in flight.
    seen_few: Nanos,
    /// Time for which more than usual must be in flight to count as a queue.
    queued_up: Nanos,
    /// Earliest time of the next probe, and the number of probes of this cap.
    probe_at: Nanos,
    probes: usize,
    /// Time at which the last probe began to go faster.
    probed: Nanos,
    /// Last time at which the cap was in the way.
    used: Nanos,
    /// Cap that [`CapLearner::take_change`] returned last.
    announced: Option<LearntCap>,
}

impl CapLearner {
    /// Creates a learner that knows no cap.
    pub(super) fn new(now: Nanos) -> CapLearner {
        let nothing = Second {
            at: Throughput { ios: 0, bytes: 0 },
            largest: 0,
            len: Nanos::ZERO,
            in_flight: 0,
        };
        CapLearner {
            state: State::Searching,
            since: now,
            rates: None,
            before: None,
            patience: 1,
            known_since: now,
            pace: Pace::NONE,
            seconds: [nothing; SUSPECT_SECONDS],
            suspect_run: 0,
            earlier: Box::new([(Throughput { ios: 0, bytes: 0 }, 0); Window::PATTERNS]),
            adapted: None,
            test_at: Nanos::ZERO,
            test_pause: TEST_PAUSE_MIN,
            usual: 1,
            usual_most: 1,
            baseline: None,
            largest: 0,
            seen_few: now,
            queued_up: QUEUE_TIME_MIN,
            probe_at: now,
            probes: 0,
            probed: now,
            used: now,
            announced: None,
        }
    }

    /// Returns the depth that the test needs, where it is more than the adapted one.
    pub(super) fn wanted_depth(&self) -> Option<u32> {
        match self.state {
            State::Raise { depth, .. } => Some(depth),
            _ => None,
        }
    }

    /// Returns the known cap.
    pub(super) fn cap(&self) -> Option<LearntCap> {
        let rates = self.rates?;
        Some(LearntCap {
            iops: rates.ios.map(|milli| milli as f64 / 1000.0),
            bytes_per_s: rates.bytes,
            either: rates.either,
            since: self.known_since,
        })
    }

    /// Starts with a cap known from outside; I/Os and bytes per second.
    pub(super) fn assume(&mut self, now: Nanos, ios: Option<u64>, bytes: Option<u64>) {
        if ios.is_some() || bytes.is_some() {
            // Rates of I/Os are kept in thousandths.
            let ios = ios.map(|rate| rate.saturating_mul(1000));
            self.begin_with(now, ios, bytes, false);
        }
    }

    /// Starts with a cap, in thousandths of an I/O and bytes per second. Its `reach` is zero: rates
    /// that passed in another life prove nothing today.
    fn begin_with(&mut self, now: Nanos, ios: Option<u64>, bytes: Option<u64>, either: bool) {
        let rates = CapRates {
            // At least one a second: at a rate of zero nothing would ever go.
            ios: ios.map(|rate| rate.max(1000)),
            bytes: bytes.map(|rate| rate.max(1)),
            either,
            reach: Throughput { ios: 0, bytes: 0 },
        };
        self.adopt(now, rates, USUAL_IN_FLIGHT_MAX);
    }

    /// Returns the state of the known cap, to be persisted.
    pub(super) fn export(&self) -> Option<Blob> {
        let rates = self.rates?;
        let mut blob = Blob::new(BLOB_NAME, VERSION);
        blob.push_u64(rates.ios.unwrap_or(0))
            .push_u64(rates.bytes.unwrap_or(0))
            .push_u64(rates.either.into());
        Some(blob)
    }

    /// Starts with a persisted cap.
    pub(super) fn import(&mut self, now: Nanos, learnt: &Blob) -> Result<(), BlobError> {
        let mut fields = learnt.fields(BLOB_NAME, VERSION)?;
        let (ios, bytes, either) = (fields.u64()?, fields.u64()?, fields.u64()?);
        fields.end()?;
        let known = [ios, bytes].map(|rate| (rate > 0).then_some(rate));
        let [ios, bytes] = match (known, either) {
            // "Either" needs both rates, of which one is the cap; anything else is no state of this
            // learner.
            ([Some(_), _] | [_, Some(_)], 0) | ([Some(_), Some(_)], 1) => known,
            _ => {
                let value = format!("({ios}, {bytes}, {either})");
                let what = "cap (I/Os, bytes, 1 if either)";
                return Err(BlobError::Value { what, value });
            }
        };
        self.begin_with(now, ios, bytes, either == 1);
        Ok(())
    }

    /// Adopts a cap and drains its queue; `usual_most` bounds the I/Os in flight that are usual
    /// behind it.
    fn adopt(&mut self, now: Nanos, rates: CapRates, usual_most: u32) {
        self.usual_most = usual_most.max(USUAL_IN_FLIGHT_MAX);
        (self.patience, self.rates, self.before) = (1, Some(rates), None);
        (self.known_since, self.used) = (now, now);
        (self.probe_at, self.probes) = (now + PROBE_INTERVAL, 0);
        self.drain(now);
    }

    /// Takes the cap if it differs by 5 % or more from the one announced last; `Some(None)`: it is
    /// gone.
    pub(super) fn take_change(&mut self) -> Option<Option<LearntCap>> {
        let differs = |a: f64, b: f64| (a - b).abs() > 0.05 * b;
        let cap = self.cap();
        let same = match (&cap, &self.announced) {
            (None, None) => true,
            (Some(now), Some(before)) => {
                let alike = |a: Option<f64>, b: Option<f64>| match (a, b) {
                    (Some(a), Some(b)) => !differs(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                let bytes = |cap: &LearntCap| cap.bytes_per_s.map(|rate| rate as f64);
                alike(now.iops, before.iops) && alike(bytes(now), bytes(before))
            }
            _ => false,
        };
        if same {
            return None;
        }
        self.announced = cap;
        Some(cap)
    }

    /// Charges an I/O with data to the pace.
    pub(super) fn started(&mut self, now: Nanos, bytes: u32) {
        if let State::Paced { .. } = self.state {
            self.pace.spend(now, bytes);
        }
    }

    /// Returns the time until which nothing may go, if any, and `true` if a window begins here.
    /// `waits`: a unit would go.
    pub(super) fn hold(
        &mut self,
        now: Nanos,
        in_flight: u32,
        waits: bool,
    ) -> (Option<Nanos>, bool) {
        match self.state {
            State::Searching | State::Raise { .. } => (None, false),
            State::Test { bound, .. } | State::Measure { bound, .. } => {
                let over = self.since + BOUND_TIME_MAX;
                ((in_flight >= bound && now < over).then_some(over), false)
            }
            State::Drain { until } => {
                if in_flight > 0 && now < until {
                    return (Some(until), false);
                }
                self.enter(State::Paced { scale: 64 }, now);
                (self.pace, self.baseline) = (Pace::NONE, Some(InFlightBaseline::new(now)));
                self.set_pace(64, now);
                // The last I/O may have passed just now, with the bucket in debt for it.
                self.pace.spend(now + CATCH_UP_MAX, self.largest);
                let due = self.pace.due();
                ((due > now).then_some(due), true)
            }
            State::Paced { scale } => {
                if in_flight <= self.usual {
                    self.seen_few = now;
                } else if now.since(self.seen_few) > self.queued_up {
                    return self.queue_up(scale, now);
                }
                let due = self.pace.due();
                let long = Nanos(self.queued_up.0 * 2);
                if let Some(baseline) = &mut self.baseline
                    && let Some(usual) = baseline.update(now, in_flight, waits && due > now, long)
                {
                    let usual = usual.saturating_mul(self.patience);
                    self.usual = usual.clamp(1, self.usual_most);
                    (self.baseline, self.seen_few) = (None, now);
                }
                ((due > now).then_some(due), false)
            }
        }
    }

    /// Enters a state.
    fn enter(&mut self, state: State, now: Nanos) {
        (self.state, self.since, self.seen_few) = (state, now, now);
    }

    /// Sets the pace to `scale` 64ths of the cap's.
    fn set_pace(&mut self, scale: u64, now: Nanos) {
        if let Some(rates) = &self.rates {
            self.pace.set(rates, scale, now);
        }
    }

    /// Handles a queue behind the cap: ends a probe, or measures a cap that may have changed.
    fn queue_up(&mut self, scale: u64, now: Nanos) -> (Option<Nanos>, bool) {
        // The probe went faster than the cap and queued up: the cap still holds.
        if scale > 64 {
            self.probe_at = now + PROBE_INTERVAL;
            return self.drain(now);
        }
        // More than usual, so that the bucket never runs dry while its rate is measured.
        let bound = 2 * self.usual + 2;
        self.enter(State::Measure { bound, second: 1 }, now);
        (None, true)
    }

    /// Stops I/Os until those in flight are back; returns what [`CapLearner::hold`] does.
    fn drain(&mut self, now: Nanos) -> (Option<Nanos>, bool) {
        let until = now + DRAIN_MAX;
        // Until the usual number is measured behind the empty bucket.
        self.usual = self.usual_most;
        self.enter(State::Drain { until }, now);
        (Some(until), true)
    }

    /// Evaluates a window. Returns `true` if the next one begins anew, in another state.
    pub(super) fn window(&mut self, window: &Window) -> bool {
        let (now, at) = (window.end, Throughput::in_window(window));
        self.largest = window.largest as u32;
        match self.state {
            State::Searching => self.search(window, at),
            State::Test {
                at: before, rates, ..
            } => {
                self.finish_test(window, at, before, rates);
                true
            }
            State::Raise {
                in_flight,
                at: before,
                rates,
                ..
            } => {
                self.finish_raise(window, at, before, in_flight, rates);
                true
            }
            State::Drain { .. } => false,
            State::Measure { bound, second } => {
                // Too few I/Os for a rate: a cap that low is not one that this learner keeps.
                if window.ios < WINDOW_IOS_MIN {
                    self.drop_cap(now);
                    return true;
                }
                if let Some(rates) = &mut self.rates {
                    let mut after = *rates;
                    let found = after.measured_after(self.before, at, window.largest);
                    if found == Evidence::Over && second < TOKENS_USED_UP_S {
                        let second = second + 1;
                        self.enter(State::Measure { bound, second }, now);
                        return true;
                    }
                    *rates = after;
                    self.before = None;
                    match found {
                        // Even this many in flight are usual: the cap holds nothing back.
                        Evidence::Same if self.usual >= self.usual_most => {
                            self.postpone_test(now);
                            return true;
                        }
                        Evidence::Same => self.patience *= 2,
                        Evidence::More => {}
                        Evidence::Over | Evidence::Other => {
                            self.drop_cap(now);
                            return true;
                        }
                    }
                }
                self.drain(now);
                true
            }
            State::Paced { scale } => {
                self.evaluate_pace(window, at, scale);
                false
            }
        }
    }

    /// Drops the cap and looks for another.
    fn drop_cap(&mut self, now: Nanos) {
        (self.rates, self.before, self.suspect_run) = (None, None, 0);
        self.enter(State::Searching, now);
    }

    /// Changes the pace alone: I/Os in flight and their usual number stay valid.
    fn enter_pace(&mut self, scale: u64, now: Nanos) {
        self.set_pace(scale, now);
        self.state = State::Paced { scale };
    }
}
