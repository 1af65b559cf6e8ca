//! Learning of a provider-side rate limit ("cap") below the device, so that requests queue in the
//! engine, where the policy orders them.
//!
//! A hypervisor or a cloud provider limits a disk by a token bucket of I/Os or bytes per second.
//! I/Os beyond it queue in the bucket, first come, first served, out of the policy's reach. Once a
//! cap is known, I/Os are therefore dispatched at [`PACE_64THS`](pace::PACE_64THS) / 64 of it.
//!
//! ```text
//!               constant rate for 3 s,   the rate holds with    the bucket's
//!               though the device has    other I/Os in flight   queue is empty
//!               room
//!   Searching ----------> Test, or Raise ---------> Drain ------------------> Paced
//!      ^  ^               (adapted depth)             ^                         |
//!      |  +-- the rate changed: no cap ----+          |      I/Os queue up      |
//!      |                                              +------- Measure <--------+
//!      +---- the device itself is the limit, or the cap limits nothing for 600 s
//! ```
//!
//! # Recognition
//! A cap is suspected after three seconds with at least two I/Os in flight in which
//! - the rate of I/Os or of bytes was constant ("pinned"), and
//! - the device could have done more. With a profile: its time for the work is at most 80 % of the
//!   elapsed time. Without one: an earlier second had a quarter more I/Os and bytes of the same
//!   kind, while the bucket still had tokens for a burst. And
//! - each I/O took longer than at saturation, or than in that earlier second, because a device with
//!   few I/Os in flight is slow without a cap, too.
//!
//! `Test` then allows half as many I/Os in flight for a second. A device that had room loses
//! throughput; behind a cap only the latency falls (Little's law). An adapted queue depth is too
//! small for a queue to form in the bucket, and half of it would show nothing. `Raise` then allows
//! twice as many I/Os and two more; a device that had room would deliver more.
//!
//! # Kind of cap
//! With I/Os of one size both rates are constant, and it is unknown which one is capped: an I/O is
//! dispatched while either rate has room for it. Once sizes change, one of the two rates is
//! exceeded, and was not capped ([`CapRates::narrow`](cap_rates::CapRates::narrow)).
//!
//! # Change of the cap
//! Behind a lower cap I/Os queue up: for 100 ms there are always more in flight than the baseline,
//! which was measured with an empty bucket. `Measure` then lets a few I/Os through for a second
//! without a pace: their rate is the cap. If it fits neither the known cap nor one of the other
//! kind, the cap is dropped and searched anew.
//!
//! To find a higher cap, the pace is probed every 10 s in which the cap limits the load: at 9/8,
//! 5/4 and twice the rate in turn, for a second or as long as the tokens that the pace has left in
//! the bucket could last. A probe ends as soon as I/Os queue up. A higher rate that passes is the
//! new cap, and the next second probes at twice that rate.

mod cap_rates;
mod detection;
mod in_flight_baseline;
mod pace;
mod probe;

use super::window_meter::Window;
use cap_rates::{CapRates, Evidence, Throughput};
use detection::{SUSPECT_SECONDS, Second, TEST_PAUSE_MIN};
use in_flight_baseline::InFlightBaseline;
use pace::{CATCH_UP_MAX, Pace, SCALE_ONE};
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
/// Time after which a cap that limited nothing is dropped.
const UNUSED_CAP_LIFETIME: Nanos = Nanos(600 * Nanos::SECOND.0);
/// Seconds after which tokens saved in the bucket are used up, so that a rate above the cap is
/// another cap.
const TOKENS_USED_UP_S: u32 = 4;
/// Least upper bound for the baseline of I/Os in flight, for caps that were recognised with fewer
/// in flight.
const BASELINE_MAX_FLOOR: u32 = 4;
/// Longest drain: I/Os that hang are not waited for.
const DRAIN_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);
/// Time after which a test or a measurement stops to bound I/Os in flight, in case some hang.
const BOUND_TIME_MAX: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Smallest relative change of a cap that is announced.
const ANNOUNCED_CHANGE_MIN: f64 = 0.05;

/// Provider-side rate limit of the device, as learnt or assumed.
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

/// Phase of the learning; see the diagram of the [module](self).
#[derive(Clone, Copy, Debug)]
enum State {
    /// No cap is known; looks for one.
    Searching,
    /// Tests a suspected cap with at most `bound` in flight: a rate that holds confirms it.
    Test {
        bound: u32,
        throughput: Throughput,
        rates: CapRates,
    },
    /// Tests a suspected cap with up to `depth` in flight, more than the adapted depth `in_flight`:
    /// a rate that does not rise confirms it.
    Raise {
        depth: u32,
        in_flight: u32,
        throughput: Throughput,
        rates: CapRates,
    },
    /// No I/O is dispatched until the queue in the bucket is empty, or until the time.
    Drain { until: Nanos },
    /// I/Os are dispatched at the pace of the cap times `scale` / [`SCALE_ONE`].
    Paced { scale: u64 },
    /// Measures the rate that passes, with at most `bound` in flight and no pace; `second` counts
    /// from 1.
    Measure { bound: u32, second: u32 },
}

/// Time until which no I/O may be dispatched, as [`CapLearner::hold`] returns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hold {
    /// End of the hold; `None`: I/Os may be dispatched.
    pub(super) until: Option<Nanos>,
    /// True if the phase has changed, so that a measuring window begins now.
    pub(super) window_restarts: bool,
}

/// State machine that learns the cap of one device; see the [module](self).
pub(super) struct CapLearner {
    state: State,
    /// Begin of the present state, and of its windows.
    since: Nanos,
    /// Known cap.
    rates: Option<CapRates>,
    /// Rates that a queue in the bucket showed last, before a probe raised them; `None`: not
    /// raised since.
    rates_before_probe: Option<CapRates>,
    /// Time since which some cap has been known.
    known_since: Nanos,
    pace: Pace,
    /// Last seconds; the newest comes last.
    seconds: [Second; SUSPECT_SECONDS],
    /// Number of consecutive seconds up to now that look capped.
    suspect_run: usize,
    /// Second with the most I/Os by workload class, and the mean time of an I/O in it in
    /// picoseconds.
    best_seconds: Box<[(Throughput, u128); Window::PATTERNS]>,
    /// Depth in force and the configured one, where adaption keeps it smaller.
    pub(super) adapted: Option<(u32, u32)>,
    /// Earliest time of the next test, and the pause after it if it fails.
    test_at: Nanos,
    test_pause: Nanos,
    /// I/Os in flight at the pace of the cap with an empty bucket; more are a queue in it.
    baseline: u32,
    /// Upper bound of `baseline`.
    baseline_max: u32,
    /// Factor on the measured baseline; doubled after each false alarm.
    baseline_factor: u32,
    /// Measurement of the baseline, from the time at which the bucket was empty.
    baseline_meter: Option<InFlightBaseline>,
    /// Bytes of the largest I/O in the last second.
    largest: u32,
    /// Last time at which no more than `baseline` I/Os were in flight.
    last_at_baseline: Nanos,
    /// Time for which more than `baseline` I/Os must be in flight to count as a queue.
    queue_time: Nanos,
    /// Earliest time of the next probe, and the number of probes of this cap.
    probe_at: Nanos,
    probes: usize,
    /// Time at which the last probe began.
    last_probe_started: Nanos,
    /// Last time at which the cap limited the load.
    last_limiting: Nanos,
    /// Cap that [`CapLearner::take_change`] returned last.
    announced: Option<LearntCap>,
}

impl CapLearner {
    /// Creates a learner that knows no cap.
    pub(super) fn new(now: Nanos) -> CapLearner {
        let nothing = Second {
            throughput: Throughput { ios: 0, bytes: 0 },
            largest: 0,
            len: Nanos::ZERO,
            in_flight: 0,
        };
        CapLearner {
            state: State::Searching,
            since: now,
            rates: None,
            rates_before_probe: None,
            baseline_factor: 1,
            known_since: now,
            pace: Pace::NONE,
            seconds: [nothing; SUSPECT_SECONDS],
            suspect_run: 0,
            best_seconds: Box::new([(Throughput { ios: 0, bytes: 0 }, 0); Window::PATTERNS]),
            adapted: None,
            test_at: Nanos::ZERO,
            test_pause: TEST_PAUSE_MIN,
            baseline: 1,
            baseline_max: 1,
            baseline_meter: None,
            largest: 0,
            last_at_baseline: now,
            queue_time: QUEUE_TIME_MIN,
            probe_at: now,
            probes: 0,
            last_probe_started: now,
            last_limiting: now,
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

    /// Starts with a cap, in thousandths of an I/O and bytes per second. Its `reach` is zero,
    /// because rates that passed in an earlier engine prove nothing now.
    fn begin_with(&mut self, now: Nanos, ios: Option<u64>, bytes: Option<u64>, either: bool) {
        let rates = CapRates {
            // At least one a second: at a rate of zero no I/O would ever be dispatched.
            ios: ios.map(|rate| rate.max(1000)),
            bytes: bytes.map(|rate| rate.max(1)),
            either,
            reach: Throughput { ios: 0, bytes: 0 },
        };
        self.adopt(now, rates, BASELINE_MAX_FLOOR);
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

    /// Adopts a cap and drains its queue; `baseline_max` bounds the baseline of I/Os in flight
    /// behind it.
    fn adopt(&mut self, now: Nanos, rates: CapRates, baseline_max: u32) {
        assert!(
            rates.ios.is_some() || rates.bytes.is_some(),
            "a cap has a rate"
        );
        self.baseline_max = baseline_max.max(BASELINE_MAX_FLOOR);
        self.baseline_factor = 1;
        (self.rates, self.rates_before_probe) = (Some(rates), None);
        (self.known_since, self.last_limiting) = (now, now);
        (self.probe_at, self.probes) = (now + PROBE_INTERVAL, 0);
        self.drain(now);
    }

    /// Takes the cap if it differs by more than [`ANNOUNCED_CHANGE_MIN`] from the one announced
    /// last; `Some(None)`: it is gone.
    pub(super) fn take_change(&mut self) -> Option<Option<LearntCap>> {
        let differs = |a: f64, b: f64| (a - b).abs() > ANNOUNCED_CHANGE_MIN * b;
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

    /// Returns the time until which no I/O may be dispatched. `waits`: a unit waits for dispatch.
    pub(super) fn hold(&mut self, now: Nanos, in_flight: u32, waits: bool) -> Hold {
        let hold_until = |until| Hold {
            until,
            window_restarts: false,
        };
        match self.state {
            State::Searching | State::Raise { .. } => hold_until(None),
            State::Test { bound, .. } | State::Measure { bound, .. } => {
                let over = self.since + BOUND_TIME_MAX;
                hold_until((in_flight >= bound && now < over).then_some(over))
            }
            State::Drain { until } => {
                if in_flight > 0 && now < until {
                    return hold_until(Some(until));
                }
                self.enter(State::Paced { scale: SCALE_ONE }, now);
                self.pace = Pace::NONE;
                self.baseline_meter = Some(InFlightBaseline::new(now));
                self.set_pace(SCALE_ONE, now);
                // The last I/O may have passed just now, with the bucket in debt for it. Charged
                // from `now` on: `spend` allows for a delay of `CATCH_UP_MAX`, which this time
                // cancels.
                self.pace.spend(now + CATCH_UP_MAX, self.largest);
                let due = self.pace.due();
                Hold {
                    until: (due > now).then_some(due),
                    window_restarts: true,
                }
            }
            State::Paced { scale } => {
                if in_flight <= self.baseline {
                    self.last_at_baseline = now;
                } else if now.since(self.last_at_baseline) > self.queue_time {
                    return self.handle_queue(scale, now);
                }
                let due = self.pace.due();
                let long = Nanos(self.queue_time.0 * 2);
                if let Some(meter) = &mut self.baseline_meter
                    && let Some(mean) = meter.update(now, in_flight, waits && due > now, long)
                {
                    let baseline = mean.saturating_mul(self.baseline_factor);
                    self.baseline = baseline.clamp(1, self.baseline_max);
                    (self.baseline_meter, self.last_at_baseline) = (None, now);
                }
                hold_until((due > now).then_some(due))
            }
        }
    }

    /// Enters a state.
    fn enter(&mut self, state: State, now: Nanos) {
        if let State::Test { bound, .. } | State::Measure { bound, .. } = state {
            assert!(bound > 0, "a bound of 0 I/Os in flight measures nothing");
        }
        (self.state, self.since, self.last_at_baseline) = (state, now, now);
    }

    /// Sets the pace to `scale` / [`SCALE_ONE`] of the cap's.
    fn set_pace(&mut self, scale: u64, now: Nanos) {
        if let Some(rates) = &self.rates {
            self.pace.set(rates, scale, now);
        }
    }

    /// Handles a queue behind the cap: ends a probe, or measures a cap that may have changed.
    fn handle_queue(&mut self, scale: u64, now: Nanos) -> Hold {
        // The probe went faster than the cap and queued up: the cap still holds.
        if scale > SCALE_ONE {
            self.probe_at = now + PROBE_INTERVAL;
            return self.drain(now);
        }
        // More than the baseline, so that the bucket's queue never runs dry while its rate is
        // measured.
        let bound = 2 * self.baseline + 2;
        self.enter(State::Measure { bound, second: 1 }, now);
        Hold {
            until: None,
            window_restarts: true,
        }
    }

    /// Stops I/Os until those in flight are back.
    fn drain(&mut self, now: Nanos) -> Hold {
        let until = now + DRAIN_MAX;
        // Until the baseline is measured behind the empty bucket.
        self.baseline = self.baseline_max;
        self.enter(State::Drain { until }, now);
        Hold {
            until: Some(until),
            window_restarts: true,
        }
    }

    /// Evaluates a window. Returns `true` if the next one begins anew, in another state.
    pub(super) fn window(&mut self, window: &Window) -> bool {
        let (now, throughput) = (window.end, Throughput::in_window(window));
        self.largest = window.largest as u32;
        match self.state {
            State::Searching => self.search(window, throughput),
            State::Test {
                throughput: before,
                rates,
                ..
            } => {
                self.finish_test(window, throughput, before, rates);
                true
            }
            State::Raise {
                in_flight,
                throughput: before,
                rates,
                ..
            } => {
                self.finish_raise(window, throughput, before, in_flight, rates);
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
                    let before = self.rates_before_probe;
                    let evidence = after.measured_after(before, throughput, window.largest);
                    if evidence == Evidence::Over && second < TOKENS_USED_UP_S {
                        let second = second + 1;
                        self.enter(State::Measure { bound, second }, now);
                        return true;
                    }
                    *rates = after;
                    self.rates_before_probe = None;
                    match evidence {
                        // The baseline cannot grow further, so queues cannot be recognised.
                        Evidence::Same if self.baseline >= self.baseline_max => {
                            self.postpone_test(now);
                            return true;
                        }
                        Evidence::Same => self.baseline_factor *= 2,
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
                self.evaluate_pace(window, throughput, scale);
                false
            }
        }
    }

    /// Drops the cap and looks for another.
    fn drop_cap(&mut self, now: Nanos) {
        (self.rates, self.rates_before_probe, self.suspect_run) = (None, None, 0);
        self.enter(State::Searching, now);
    }

    /// Changes the pace alone: I/Os in flight and their baseline stay valid.
    fn enter_pace(&mut self, scale: u64, now: Nanos) {
        assert!(scale >= SCALE_ONE, "a probe is slower than the cap's pace");
        self.set_pace(scale, now);
        self.state = State::Paced { scale };
    }
}
