//! Loads of a step: bulk writes, and the closed loop of a measured point with its phases.
//!
//! ```text
//!   a point:  warm up --> stretch --> settle --> stretch ... --> run --> enough runs? --> done
//!                         one place   elsewhere                    '---- no: the next run
//! ```
//!
//! - *place*: address at which a stream of sequential requests starts; a run visits several,
//! - *stretch*: counted requests at one place; a run is one stretch at each of its places,
//! - *settle*: uncounted requests after a move to another place.
//!
//! ```text
//!   bulk writes:  next --> submitted --> next ... until all bytes are submitted, or the end
//! ```

use hdrhistogram::Histogram;
use tidegate_config::profile::Mix;
use tidegate_core::profile::{Access, Direction, TRUSTED_WITHIN_PERCENT};
use tidegate_core::time::Nanos;

use crate::addresses::{Addresses, Deck};
use crate::outcome::StepResult;
use crate::plan::{Pace, Point};
use crate::statistics::{Run, mean, settled_after};

/// Upper end of the latency histograms: 1 h in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of the latency histograms: quantiles are exact to 1 %.
const DIGITS: u8 = 2;
/// Maximum number of runs of a point whose confidence interval is too wide, as a multiple of
/// [`Pace::runs_max`]. The interval narrows only with the square root of the runs, but by then a
/// disturbance has often ended.
const RUNS_MAX_FACTOR_IF_IMPRECISE: usize = 3;

/// Returns a histogram of latencies in nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
    histogram.expect("the bounds and digits are good")
}

/// Number of rounds of the queue after which the requests in flight are those of a steady load: the
/// first ones find an idle device, or one that has to seek.
pub(crate) const QUEUE_ROUNDS: u64 = 4;

/// Request to be submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) direction: Direction,
    pub(crate) addr: u64,
    pub(crate) len: u32,
}

/// Bulk writes that fill or condition the device.
#[derive(Debug)]
pub(crate) struct Bulk {
    addresses: Addresses,
    in_order: bool,
    size: u32,
    block: u32,
    span: u64,
    /// Bytes submitted so far, and bytes to submit in total.
    submitted_bytes: u64,
    total: u64,
    end: Nanos,
}

impl Bulk {
    /// Creates bulk writes of all of `span` once, sequentially, until `end` at the latest.
    pub(crate) fn fill(span: u64, size: u32, block: u32, end: Nanos) -> Bulk {
        Bulk {
            addresses: Addresses::new(Access::Random, size, span, 0),
            in_order: true,
            size,
            block,
            span,
            submitted_bytes: 0,
            total: span,
            end,
        }
    }

    /// Creates random bulk writes of `times` times `span` bytes, until `end` at the latest.
    pub(crate) fn condition(span: u64, size: u32, times: u32, end: Nanos, seed: u64) -> Bulk {
        Bulk {
            addresses: Addresses::new(Access::Random, size, span, seed),
            in_order: false,
            size,
            block: size,
            span,
            submitted_bytes: 0,
            total: span.saturating_mul(times.into()),
            end,
        }
    }

    /// Returns the next bulk write; `None` at the end. The caller must submit it: its bytes count
    /// as submitted.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Request> {
        let left = self.total - self.submitted_bytes;
        if now >= self.end || left < u64::from(self.block) {
            return None;
        }
        let (addr, len) = if self.in_order {
            let whole = left.min(self.size.into()) / u64::from(self.block);
            (self.submitted_bytes, (whole * u64::from(self.block)) as u32)
        } else {
            (self.addresses.next(), self.size)
        };
        assert!(
            addr + u64::from(len) <= self.span,
            "a bulk write of {len} bytes at {addr} leaves the span of {} bytes",
            self.span
        );
        self.submitted_bytes += u64::from(len);
        Some(Request {
            direction: Direction::Write,
            addr,
            len,
        })
    }

    /// Returns the bytes submitted so far, and the bytes in total.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.submitted_bytes, self.total)
    }

    pub(crate) fn result(&self) -> StepResult {
        StepResult::Wrote {
            bytes: self.submitted_bytes,
        }
    }
}

/// Latencies of a run's requests.
#[derive(Clone, Debug)]
struct Times {
    histogram: Histogram<u64>,
    sum_ns: u64,
    count: u64,
}

impl Times {
    fn new() -> Times {
        Times {
            histogram: histogram(),
            sum_ns: 0,
            count: 0,
        }
    }

    fn record(&mut self, time: Nanos) {
        self.histogram.saturating_record(time.0.max(1));
        self.sum_ns = self.sum_ns.saturating_add(time.0);
        self.count += 1;
    }

    fn add(&mut self, other: &Times) {
        (self.histogram.add(&other.histogram)).expect("the same bounds");
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.count += other.count;
    }

    /// Returns mean, median and 99th percentile in nanoseconds.
    fn summary(&self) -> [u64; 3] {
        let quantile = |q| self.histogram.value_at_quantile(q);
        [
            self.sum_ns / self.count.max(1),
            quantile(0.5),
            quantile(0.99),
        ]
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Not counted; with the requests and bytes that have ended since.
    WarmUp { since: Nanos, ios: u64, bytes: u64 },
    /// Not counted, after a move to another place; `left` requests must end before the next
    /// stretch.
    Settle { since: Nanos, left: u64 },
    /// Counted since `since`; `last` is the time of the last end.
    Stretch { since: Nanos, last: Nanos, ios: u64 },
    /// The point is complete.
    Done,
}

/// Measurement of a point by a closed loop of `depth` requests.
#[derive(Debug)]
pub(crate) struct Load {
    point: Point,
    depth: u32,
    pace: Pace,
    addresses: Addresses,
    deck: Deck,
    phase: Phase,
    /// Number of completed stretches of the present run.
    stretches_done: u32,
    run: Run,
    times: Times,
    runs: Vec<Run>,
    times_of_runs: Vec<Times>,
    steady: bool,
    unsteady_runs: usize,
}

/// Begins a stretch at `now`; completions at exactly `now` belong to the phase before it.
fn stretch_from(now: Nanos) -> Phase {
    Phase::Stretch {
        since: now,
        last: now,
        ios: 0,
    }
}

impl Load {
    /// Starts the measurement at `now`.
    pub(crate) fn new(
        point: Point,
        depth: u32,
        pace: &Pace,
        span: u64,
        seed: u64,
        now: Nanos,
    ) -> Load {
        Load {
            point,
            depth,
            pace: pace.clone(),
            addresses: Addresses::new(point.access, point.size, span, seed),
            deck: match point.mix {
                Mix::All(direction) => {
                    Deck::new(1000 * u32::from(direction == Direction::Read), seed)
                }
                Mix::Reads(thousandths) => Deck::new(thousandths, seed),
            },
            phase: Phase::WarmUp {
                since: now,
                ios: 0,
                bytes: 0,
            },
            stretches_done: 0,
            run: Run { ios: 0, ns: 0 },
            times: Times::new(),
            runs: Vec::new(),
            times_of_runs: Vec::new(),
            steady: false,
            unsteady_runs: 0,
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn next(&mut self) -> Option<Request> {
        if matches!(self.phase, Phase::Done) {
            return None;
        }
        Some(Request {
            direction: self.deck.draw(),
            addr: self.addresses.next(),
            len: self.point.size,
        })
    }

    /// Records the end of a request that took `time`.
    pub(crate) fn completed(&mut self, now: Nanos, time: Nanos) {
        // Several requests may end at the same time. All that end with the last of a stretch belong
        // to it, so it is closed by the first end at a later time.
        if let Phase::Stretch { since, last, ios } = self.phase
            && now > last
        {
            self.close_stretch(since, last, ios);
        }
        match &mut self.phase {
            Phase::Done => {}
            Phase::WarmUp { since, ios, bytes } => {
                *ios += 1;
                *bytes += u64::from(self.point.size);
                let spent = now.since(*since);
                let wrote = !self.point.writes() || *bytes >= self.pace.warm_up_bytes;
                let enough = spent >= self.pace.warm_up
                    && *ios >= self.pace.warm_up_ios + QUEUE_ROUNDS * u64::from(self.depth)
                    && wrote;
                // On a slow device warm-up ends by time, whatever has ended.
                if enough || spent >= self.pace.warm_up + self.pace.run_max {
                    self.phase = stretch_from(now);
                }
            }
            Phase::Settle { since, left } => {
                *left = left.saturating_sub(1);
                if *left == 0 || now.since(*since) >= self.longest_stretch() {
                    self.phase = stretch_from(now);
                }
            }
            Phase::Stretch { since, last, ios } if now > *since => {
                (*last, *ios) = (now, *ios + 1);
                self.times.record(time);
            }
            Phase::Stretch { .. } => {}
        }
    }

    /// Number of places that a run visits; random requests are everywhere at any time.
    fn places_per_run(&self) -> u32 {
        match self.point.access {
            Access::Sequential => self.pace.places.max(1),
            Access::Random => 1,
        }
    }

    fn longest_stretch(&self) -> Nanos {
        match self.pace.run_max {
            Nanos::MAX => Nanos::MAX,
            longest => Nanos(longest.0 / u64::from(self.places_per_run())),
        }
    }

    /// Closes a stretch at `last` if it is long enough; `ended` requests have ended in it.
    fn close_stretch(&mut self, since: Nanos, last: Nanos, ended: u64) {
        let places = self.places_per_run();
        let (spent, of_places) = (last.since(since), u64::from(places));
        let ios = (self.pace.run_ios).min(self.pace.run_bytes / u64::from(self.point.size));
        // At least one round of the queue, so that requests of another place are no large part.
        let need = (ios / of_places).max(u64::from(self.depth));
        let enough = spent.0 >= self.pace.run.0 / of_places && ended >= need;
        if ended == 0 || !(enough || spent >= self.longest_stretch()) {
            return;
        }
        // Every place counts as the same number of requests, although a fast one did more in its
        // time: the result is the mean time of a request anywhere, not the mean rate of places.
        self.run.ios += need;
        self.run.ns += (u128::from(spent.0) * u128::from(need) / u128::from(ended)) as u64;
        self.stretches_done += 1;
        if self.stretches_done == places {
            self.end_run();
        }
        if matches!(self.phase, Phase::Done) {
            return;
        }
        self.phase = match self.point.access {
            Access::Random => stretch_from(last),
            Access::Sequential => {
                self.addresses.move_to_next_place();
                // In-flight requests of the old place, then those that waited for the device to
                // seek.
                Phase::Settle {
                    since: last,
                    left: QUEUE_ROUNDS * u64::from(self.depth),
                }
            }
        };
    }

    fn end_run(&mut self) {
        self.runs.push(self.run);
        self.times_of_runs
            .push(std::mem::replace(&mut self.times, Times::new()));
        (self.run, self.stretches_done) = (Run { ios: 0, ns: 0 }, 0);
        let n = self.runs.len();
        let settled = settled_after(&self.runs, self.pace.runs_min);
        let is_precise = settled
            .and_then(|from| mean(&self.runs[from..]))
            .is_some_and(|mean| mean.relative_half_width <= self.pace.half_width_max);
        if is_precise || n >= self.pace.runs_max && !self.needs_more_runs(settled) {
            self.steady = settled.is_some();
            // Without a steady state the later half of the runs is nearest to one.
            self.unsteady_runs = settled.unwrap_or(n / 2);
            self.phase = Phase::Done;
        }
    }

    /// Returns true if a point with [`Pace::runs_max`] runs is measured further because its
    /// confidence interval is too wide. `settled` is the index of the first run of the steady
    /// state.
    fn needs_more_runs(&self, settled: Option<usize>) -> bool {
        let n = self.runs.len();
        let kept = &self.runs[settled.unwrap_or(n / 2)..];
        let wide =
            mean(kept).is_none_or(|mean| mean.relative_half_width * 100.0 > TRUSTED_WITHIN_PERCENT);
        wide && n < RUNS_MAX_FACTOR_IF_IMPRECISE * self.pace.runs_max
    }

    pub(crate) fn result(&self) -> StepResult {
        let mut times = Times::new();
        for run_times in &self.times_of_runs[self.unsteady_runs..] {
            times.add(run_times);
        }
        StepResult::Measured {
            depth: self.depth,
            runs: self.runs[self.unsteady_runs..].to_vec(),
            unsteady_runs: self.unsteady_runs,
            steady: self.steady,
            times_ns: times.summary(),
        }
    }
}
