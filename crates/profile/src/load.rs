//! What one step of the plan asks of the device, and what is counted of it.
//!
//! ```text
//!   a point:  warm up --> stretch --> settle --> stretch ... --> run --> enough runs? --> done
//!                         one place   elsewhere                    '---- no: the next run
//! ```

use hdrhistogram::Histogram;
use tidegate_config::profile::Mix;
use tidegate_core::profile::{Access, Direction, TRUSTED_WITHIN_PERCENT};
use tidegate_core::time::Nanos;

use crate::addresses::{Addresses, Deck};
use crate::outcome::Taken;
use crate::plan::{Pace, Point};
use crate::statistics::{Run, mean, settled_after};

/// Longest time told apart: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Quantiles are within 1 %.
const DIGITS: u8 = 2;
/// Most runs of a point whose confidence interval is too wide to use, as a multiple of
/// [`Pace::runs_max`]. The interval narrows with the square root of the runs only, but by then a
/// disturbance has often ended.
const RUNS_OF_WIDE: usize = 3;

/// Returns a histogram for times of requests in nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
    histogram.expect("the bounds and digits are good")
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) direction: Direction,
    pub(crate) addr: u64,
    pub(crate) len: u32,
}

/// The bytes of a fill, or of conditioning.
#[derive(Debug)]
pub(crate) struct Bulk {
    addresses: Addresses,
    in_order: bool,
    size: u32,
    block: u32,
    span: u64,
    /// Bytes asked for, and to ask for.
    asked: u64,
    total: u64,
    end: Nanos,
}

impl Bulk {
    /// All of `span` once, in order, but for what `end` keeps from being written.
    pub(crate) fn fill(span: u64, size: u32, block: u32, end: Nanos) -> Bulk {
        Bulk {
            addresses: Addresses::new(Access::Random, size, span, 0),
            in_order: true,
            size,
            block,
            span,
            asked: 0,
            total: span,
            end,
        }
    }

    /// So often as many bytes as `span` has, at random.
    pub(crate) fn condition(span: u64, size: u32, times: u32, end: Nanos, seed: u64) -> Bulk {
        Bulk {
            addresses: Addresses::new(Access::Random, size, span, seed),
            in_order: false,
            size,
            block: size,
            span,
            asked: 0,
            total: span.saturating_mul(times.into()),
            end,
        }
    }

    pub(crate) fn next(&mut self, now: Nanos) -> Option<Wanted> {
        let left = self.total - self.asked;
        if now >= self.end || left < u64::from(self.block) {
            return None;
        }
        let (addr, len) = match self.in_order {
            true => {
                let whole = left.min(self.size.into()) / u64::from(self.block);
                (self.asked, (whole * u64::from(self.block)) as u32)
            }
            false => (self.addresses.next(), self.size),
        };
        debug_assert!(addr + u64::from(len) <= self.span);
        self.asked += u64::from(len);
        Some(Wanted {
            direction: Direction::Write,
            addr,
            len,
        })
    }

    /// Bytes asked for, and in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.asked, self.total)
    }

    pub(crate) fn taken(&self) -> Taken {
        Taken::Wrote { bytes: self.asked }
    }
}

/// Times of a run's requests.
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

    /// Mean, median and 99 %, in nanoseconds.
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
    /// Left out; so much of it has been.
    WarmUp { since: Nanos, ios: u64, bytes: u64 },
    /// On the way to another place; so many of those asked for before are still to come.
    Settle { since: Nanos, left: u64 },
    /// Counted since then, to the last that ended.
    Stretch { since: Nanos, last: Nanos, ios: u64 },
    /// Enough.
    Done,
}

/// A point that is being measured: a closed loop of so many requests.
#[derive(Debug)]
pub(crate) struct Load {
    point: Point,
    depth: u32,
    pace: Pace,
    addresses: Addresses,
    deck: Deck,
    phase: Phase,
    /// Stretches of the current run that are done.
    places: u32,
    run: Run,
    times: Times,
    runs: Vec<Run>,
    times_of: Vec<Times>,
    steady: bool,
    left_out: usize,
}

/// A stretch that begins now: what ends at this time, too, was before it.
fn stretch_from(now: Nanos) -> Phase {
    Phase::Stretch {
        since: now,
        last: now,
        ios: 0,
    }
}

impl Load {
    /// From `now` on.
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
            places: 0,
            run: Run { ios: 0, ns: 0 },
            times: Times::new(),
            runs: Vec::new(),
            times_of: Vec::new(),
            steady: false,
            left_out: 0,
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn next(&mut self) -> Option<Wanted> {
        if matches!(self.phase, Phase::Done) {
            return None;
        }
        let direction = match self.deck.draw() {
            true => Direction::Read,
            false => Direction::Write,
        };
        Some(Wanted {
            direction,
            addr: self.addresses.next(),
            len: self.point.size,
        })
    }

    /// A request has ended, which took `time`.
    pub(crate) fn completed(&mut self, now: Nanos, time: Nanos) {
        // Requests may end several at a time: those that end with the last of a stretch are its
        // own, all of them, and it ends once one comes later.
        if let Phase::Stretch { since, last, ios } = self.phase
            && now > last
        {
            self.stretch(since, last, ios);
        }
        match &mut self.phase {
            Phase::Done => {}
            Phase::WarmUp { since, ios, bytes } => {
                *ios += 1;
                *bytes += u64::from(self.point.size);
                let spent = now.since(*since);
                let wrote = !self.point.writes() || *bytes >= self.pace.warm_up_bytes;
                let enough = spent >= self.pace.warm_up
                    && *ios >= self.pace.warm_up_ios + 4 * u64::from(self.depth)
                    && wrote;
                // A slow device is not waited for without end.
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

    /// How many places a run goes to: random requests are everywhere at any time.
    fn places(&self) -> u32 {
        match self.point.access {
            Access::Sequential => self.pace.places.max(1),
            Access::Random => 1,
        }
    }

    fn longest_stretch(&self) -> Nanos {
        match self.pace.run_max {
            Nanos::MAX => Nanos::MAX,
            longest => Nanos(longest.0 / u64::from(self.places())),
        }
    }

    /// Ends a stretch at `last` where it is long enough.
    fn stretch(&mut self, since: Nanos, last: Nanos, ended: u64) {
        let places = self.places();
        let (spent, of_places) = (last.since(since), u64::from(places));
        let ios = (self.pace.run_ios).min(self.pace.run_bytes / u64::from(self.point.size));
        let need = (ios / of_places).max(u64::from(self.depth));
        let enough = spent.0 >= self.pace.run.0 / of_places && ended >= need;
        if ended == 0 || !(enough || spent >= self.longest_stretch()) {
            return;
        }
        // Every place counts as many requests, however many a fast one did in its time: what is
        // asked for is the time of a request anywhere, not the mean of the places' rates.
        self.run.ios += need;
        self.run.ns += (u128::from(spent.0) * u128::from(need) / u128::from(ended)) as u64;
        self.places += 1;
        if self.places == places {
            self.end_run();
        }
        if matches!(self.phase, Phase::Done) {
            return;
        }
        self.phase = match self.point.access {
            Access::Random => stretch_from(last),
            Access::Sequential => {
                self.addresses.go_elsewhere();
                // Those on their way, then those that waited for the device to get there.
                Phase::Settle {
                    since: last,
                    left: 4 * u64::from(self.depth),
                }
            }
        };
    }

    fn end_run(&mut self) {
        self.runs.push(self.run);
        self.times_of
            .push(std::mem::replace(&mut self.times, Times::new()));
        (self.run, self.places) = (Run { ios: 0, ns: 0 }, 0);
        let (n, keep) = (self.runs.len(), self.pace.runs_min);
        let settled = settled_after(&self.runs, keep);
        let sure = settled
            .and_then(|from| mean(&self.runs[from..]))
            .is_some_and(|mean| mean.within <= self.pace.within);
        if sure || n >= self.pace.runs_max && !self.goes_on(settled) {
            self.steady = settled.is_some();
            // Never steady: the later half is nearest to it.
            self.left_out = settled.unwrap_or(n / 2);
            self.phase = Phase::Done;
        }
    }

    /// Returns true if a point that has had [`Pace::runs_max`] runs is measured further, because
    /// its confidence interval is too wide to use. `settled` is the first run of the steady state.
    fn goes_on(&self, settled: Option<usize>) -> bool {
        let n = self.runs.len();
        let kept = &self.runs[settled.unwrap_or(n / 2)..];
        let wide = mean(kept).is_none_or(|mean| mean.within * 100.0 > TRUSTED_WITHIN_PERCENT);
        wide && n < RUNS_OF_WIDE * self.pace.runs_max
    }

    pub(crate) fn taken(&self) -> Taken {
        let mut times = Times::new();
        for of_run in &self.times_of[self.left_out..] {
            times.add(of_run);
        }
        Taken::Measured {
            depth: self.depth,
            runs: self.runs[self.left_out..].to_vec(),
            left_out: self.left_out,
            steady: self.steady,
            times_ns: times.summary(),
        }
    }
}
