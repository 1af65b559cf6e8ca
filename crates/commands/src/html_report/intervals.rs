//! Results over time in bounded memory: where a run has more intervals than a plot shows, adjacent
//! ones are counted together. Quantiles come from merged distributions, never from other quantiles.

use tidegate_core::attainment::PartAttainment;
use tidegate_core::time::Nanos;
use tidegate_report::State;
use tidegate_sim::report::{DeviceRow, Row, Times};

use super::plots::{DevicePoint, VmPoint};

/// Most intervals that are kept; an even number, because pairs are counted together.
const INTERVALS_MAX: usize = 240;
/// Intervals of a run whose duration is known.
const INTERVALS_WANTED: u64 = 120;
/// Interval at the begin of a run whose duration is not known.
const FIRST_INTERVAL: Nanos = Nanos::from_millis(100);

/// Returns the length of intervals for a run: a round number. `duration` is `None` for a run that
/// ends when all is done.
pub(crate) fn length(duration: Option<Nanos>) -> Nanos {
    let Some(duration) = duration else {
        return FIRST_INTERVAL;
    };
    let least = (duration.0 / INTERVALS_WANTED).max(1);
    let power = 10_u64.pow(least.ilog10());
    let round = [1, 2, 5, 10].into_iter().map(|digit| digit * power);
    Nanos(round.into_iter().find(|&it| it >= least).unwrap_or(least))
}

/// Interval that can be counted together with the next one.
pub(crate) trait Interval {
    /// Adds the interval that follows.
    fn extend(&mut self, next: &Self);
}

/// Intervals in the order of time, at most [`INTERVALS_MAX`].
#[derive(Clone, Debug)]
pub(crate) struct Intervals<T> {
    all: Vec<T>,
    /// Number of added intervals that are counted together in each.
    in_each: usize,
    /// Number of them in the last one.
    in_last: usize,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Intervals {
            all: Vec::new(),
            in_each: 1,
            in_last: 0,
        }
    }
}

impl<T: Interval> Intervals<T> {
    /// Adds the next interval.
    pub(crate) fn add(&mut self, next: T) {
        if self.in_last < self.in_each
            && let Some(last) = self.all.last_mut()
        {
            last.extend(&next);
            self.in_last += 1;
            return;
        }
        if self.all.len() == INTERVALS_MAX {
            self.halve();
        }
        self.all.push(next);
        self.in_last = 1;
    }

    /// Counts pairs together. All intervals are full when there are as many as may be.
    fn halve(&mut self) {
        let mut pairs = Vec::with_capacity(INTERVALS_MAX);
        for (n, interval) in self.all.drain(..).enumerate() {
            match pairs.last_mut() {
                Some(last) if n % 2 == 1 => T::extend(last, &interval),
                _ => pairs.push(interval),
            }
        }
        self.all = pairs;
        self.in_each *= 2;
    }

    /// Intervals so far.
    pub(crate) fn all(&self) -> &[T] {
        &self.all
    }
}

/// Distribution of latencies.
#[derive(Clone, Default, Debug)]
struct Latencies {
    /// Upper bounds of a histogram's buckets in nanoseconds with counts, in ascending order. Their
    /// number is bounded by that of the histogram's buckets.
    buckets: Vec<(u64, u64)>,
    /// Longest latency in nanoseconds; the upper bound of its bucket may lie above it.
    longest: u64,
}

impl Latencies {
    fn new(times: &Times) -> Latencies {
        let buckets = times.buckets();
        Latencies {
            buckets: buckets.map(|(bound, count)| (bound.0, count)).collect(),
            longest: times.longest().0,
        }
    }

    /// Adds another distribution.
    fn add(&mut self, other: &Latencies) {
        self.longest = self.longest.max(other.longest);
        let mut sum = Vec::with_capacity(self.buckets.len().max(other.buckets.len()));
        let (own, others) = (self.buckets.iter(), other.buckets.iter());
        let (mut own, mut others) = (own.peekable(), others.peekable());
        loop {
            let next = match (own.peek(), others.peek()) {
                (Some(a), Some(b)) if a.0 > b.0 => others.next(),
                (Some(_), _) => own.next(),
                (None, _) => others.next(),
            };
            let Some(&(bound, count)) = next else {
                break;
            };
            match sum.last_mut() {
                Some((last, sum)) if *last == bound => *sum += count,
                _ => sum.push((bound, count)),
            }
        }
        self.buckets = sum;
    }

    /// Returns the upper bound of a quantile; `None` without latencies.
    fn quantile(&self, q: f64) -> Option<f64> {
        let total: u64 = self.buckets.iter().map(|cell| cell.1).sum();
        // The nearest rank, as histograms count; the first for the 0-quantile.
        let rank = ((q * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().find(|cell| {
            seen += cell.1;
            seen >= rank
        });
        found.map(|cell| cell.0.min(self.longest) as f64)
    }
}

/// Requests of a VM in an interval.
#[derive(Clone, Debug)]
pub(crate) struct VmInterval {
    from_s: f64,
    to_s: f64,
    requests: f64,
    bytes: f64,
    latencies: Latencies,
}

impl VmInterval {
    /// Returns the interval of a row.
    pub(crate) fn of_row(row: &Row) -> VmInterval {
        let span = row.time_s - row.began_s;
        VmInterval {
            from_s: row.began_s,
            to_s: row.time_s,
            requests: row.rates.iops * span,
            bytes: row.rates.bytes_per_s * span,
            latencies: Latencies::new(&row.latency),
        }
    }

    /// Returns the rates and quantiles of the interval.
    pub(crate) fn point(&self) -> VmPoint {
        let span = self.to_s - self.from_s;
        VmPoint {
            at_s: (self.from_s + self.to_s) / 2.0,
            iops: self.requests / span,
            bytes_per_s: self.bytes / span,
            p50_ns: self.latencies.quantile(0.5),
            p99_ns: self.latencies.quantile(0.99),
        }
    }
}

impl Interval for VmInterval {
    fn extend(&mut self, next: &VmInterval) {
        self.to_s = next.to_s;
        self.requests += next.requests;
        self.bytes += next.bytes;
        self.latencies.add(&next.latencies);
    }
}

/// Load of a device in an interval.
#[derive(Clone, Debug)]
pub(crate) struct DeviceInterval {
    from_s: f64,
    to_s: f64,
    bytes: f64,
    busy_s: f64,
    /// Time in flight, summed over all I/Os, in seconds.
    in_flight_s: f64,
}

impl DeviceInterval {
    /// Returns the interval of a row.
    pub(crate) fn of_row(row: &DeviceRow) -> DeviceInterval {
        let span = row.time_s - row.began_s;
        DeviceInterval {
            from_s: row.began_s,
            to_s: row.time_s,
            bytes: row.bytes_per_s * span,
            busy_s: row.busy * span,
            in_flight_s: row.depth * span,
        }
    }

    /// Returns the rates of the interval.
    pub(crate) fn point(&self) -> DevicePoint {
        let span = self.to_s - self.from_s;
        DevicePoint {
            at_s: (self.from_s + self.to_s) / 2.0,
            bytes_per_s: self.bytes / span,
            busy_percent: 100.0 * self.busy_s / span,
            depth: self.in_flight_s / span,
        }
    }
}

impl Interval for DeviceInterval {
    fn extend(&mut self, next: &DeviceInterval) {
        self.to_s = next.to_s;
        self.bytes += next.bytes;
        self.busy_s += next.busy_s;
        self.in_flight_s += next.in_flight_s;
    }
}

/// Seconds of a promise by verdict.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Verdicts {
    pub(crate) kept_s: u64,
    pub(crate) missed_s: u64,
    pub(crate) stalled_s: u64,
}

impl Verdicts {
    /// Returns the verdicts on a part of an objective so far.
    pub(crate) fn of_part(part: &PartAttainment) -> Verdicts {
        Verdicts {
            kept_s: part.kept_s,
            missed_s: part.missed(),
            stalled_s: part.stalled_s,
        }
    }

    /// Adds the verdicts of another time.
    pub(crate) fn add(&mut self, other: Verdicts) {
        self.kept_s += other.kept_s;
        self.missed_s += other.missed_s;
        self.stalled_s += other.stalled_s;
    }

    fn all(self) -> u64 {
        self.kept_s + self.missed_s + self.stalled_s
    }

    /// Returns what came since `before`; everything where the count has begun anew.
    fn since(self, before: Verdicts) -> Verdicts {
        let anew = self.kept_s < before.kept_s
            || self.missed_s < before.missed_s
            || self.stalled_s < before.stalled_s;
        let before = if anew { Verdicts::default() } else { before };
        Verdicts {
            kept_s: self.kept_s - before.kept_s,
            missed_s: self.missed_s - before.missed_s,
            stalled_s: self.stalled_s - before.stalled_s,
        }
    }

    /// Returns the state to show: the worst; `None` if nothing was judged.
    fn state(self) -> Option<State> {
        match self {
            it if it.missed_s > 0 => Some(State::Missed),
            it if it.stalled_s > 0 => Some(State::Stalled),
            it if it.kept_s > 0 => Some(State::Kept),
            _ => None,
        }
    }
}

/// Verdicts on a promise in an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PromiseInterval {
    from_s: f64,
    to_s: f64,
    verdicts: Verdicts,
}

impl Interval for PromiseInterval {
    fn extend(&mut self, next: &PromiseInterval) {
        self.to_s = next.to_s;
        self.verdicts.add(next.verdicts);
    }
}

impl PromiseInterval {
    /// Creates an interval.
    pub(crate) fn new(from_s: f64, to_s: f64, verdicts: Verdicts) -> PromiseInterval {
        PromiseInterval {
            from_s,
            to_s,
            verdicts,
        }
    }

    /// Returns the span to show with its state; `None` if nothing was judged.
    pub(crate) fn span(&self) -> Option<(f64, f64, State)> {
        Some((self.from_s, self.to_s, self.verdicts.state()?))
    }
}

/// Promise over time, from counts that only grow, or begin anew.
#[derive(Clone, Default, Debug)]
pub(crate) struct PromiseOverTime {
    counted: Verdicts,
    at_s: f64,
    intervals: Intervals<PromiseInterval>,
}

impl PromiseOverTime {
    /// Begins at a time.
    pub(crate) fn begin(at_s: f64) -> PromiseOverTime {
        PromiseOverTime {
            at_s,
            ..PromiseOverTime::default()
        }
    }

    /// Adds the count of a time. A second is judged once the requests due in it are, so a count may
    /// have several seconds at once, which then stand for as much time.
    pub(crate) fn sample(&mut self, at_s: f64, count: Verdicts) {
        let new = count.since(self.counted);
        self.counted = count;
        let judged_s = new.all() as f64;
        // Nothing new yet: the next verdicts may be about this time, too.
        if judged_s == 0.0 && at_s - self.at_s < VERDICT_DELAY_S {
            return;
        }
        if judged_s > 0.0 && judged_s < at_s - self.at_s {
            let idle = PromiseInterval::new(self.at_s, at_s - judged_s, Verdicts::default());
            self.intervals.add(idle);
            self.at_s = at_s - judged_s;
        }
        self.intervals
            .add(PromiseInterval::new(self.at_s, at_s, new));
        self.at_s = at_s;
    }

    /// Returns spans with their states.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (f64, f64, State)> + '_ {
        self.intervals
            .all()
            .iter()
            .filter_map(PromiseInterval::span)
    }
}

/// Time after which a second without a verdict counts as one in which nothing was asked for.
const VERDICT_DELAY_S: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_round_and_give_at_most_the_wanted_number() {
        for (duration, expected) in [
            (Nanos::from_secs(120), Nanos::from_secs(1)),
            (Nanos::from_secs(60), Nanos::from_millis(500)),
            (Nanos::from_secs(3600), Nanos::from_secs(50)),
            (Nanos(1), Nanos(1)),
        ] {
            assert_eq!(length(Some(duration)), expected);
        }
        assert_eq!(length(None), FIRST_INTERVAL);
    }

    fn latencies(nanos: &[u64]) -> Latencies {
        let mut times = Times::default();
        nanos.iter().for_each(|&ns| times.record(Nanos(ns)));
        Latencies::new(&times)
    }

    fn interval(second: u64, latency: u64) -> VmInterval {
        VmInterval {
            from_s: second as f64,
            to_s: second as f64 + 1.0,
            requests: 1.0,
            bytes: 4096.0,
            latencies: latencies(&[latency]),
        }
    }

    #[test]
    fn a_long_run_has_as_many_points_as_a_short_one_and_loses_nothing() {
        let mut intervals = Intervals::default();
        let seconds = 100_000;
        for second in 0..seconds {
            intervals.add(interval(second, (second % 100 + 1) * 1_000_000));
        }
        let all = intervals.all();
        assert!(all.len() <= INTERVALS_MAX && all.len() > INTERVALS_MAX / 4);
        let requests: f64 = all.iter().map(|it| it.requests).sum();
        assert_eq!(requests, seconds as f64);
        assert!(all.windows(2).all(|two| two[0].to_s == two[1].from_s));
        let point = all[0].point();
        assert_eq!(point.iops, 1.0);
        // Each interval has hundreds of seconds, whose latencies are 1 to 100 ms.
        assert!((45e6..=56e6).contains(&point.p50_ns.expect("some")));
        assert!((98e6..=100e6).contains(&point.p99_ns.expect("some")));
        // Memory is that of different latencies, not of requests.
        assert!(all.iter().all(|it| it.latencies.buckets.len() <= 100));
    }

    #[test]
    fn different_longest_latencies_take_no_more_memory() {
        let mut sum = Latencies::default();
        let all = 1_000_000..1_010_000;
        let mut times = Times::default();
        for ns in all.clone() {
            sum.add(&latencies(&[ns]));
            times.record(Nanos(ns));
        }
        assert_eq!(sum.buckets, Latencies::new(&times).buckets);
        assert_eq!(sum.quantile(1.0), Some((all.end - 1) as f64));
    }

    #[test]
    fn distributions_are_added_in_order() {
        let of = |buckets: &[(u64, u64)]| Latencies {
            buckets: buckets.to_vec(),
            longest: buckets.last().map_or(0, |bucket| bucket.0),
        };
        let mut sum = of(&[(1, 1), (5, 2)]);
        sum.add(&of(&[(1, 3), (3, 1), (9, 1)]));
        assert_eq!(sum.buckets, [(1, 4), (3, 1), (5, 2), (9, 1)]);
        assert_eq!(sum.quantile(0.5), Some(1.0));
        assert_eq!(sum.quantile(0.99), Some(9.0));
        assert_eq!(Latencies::default().quantile(0.5), None);
    }

    #[test]
    fn verdicts_that_come_late_fill_the_time_before_them() {
        let count = |kept_s, missed_s| Verdicts {
            kept_s,
            missed_s,
            stalled_s: 0,
        };
        let mut promise = PromiseOverTime::begin(0.0);
        promise.sample(1.0, count(0, 0));
        promise.sample(2.0, count(2, 0));
        promise.sample(3.0, count(2, 1));
        // Nothing to judge for a long time, then a second that was kept.
        promise.sample(8.0, count(2, 1));
        promise.sample(10.0, count(3, 1));
        // The warm-up is over, and the count begins anew.
        promise.sample(11.0, count(1, 0));
        let spans: Vec<_> = promise.spans().collect();
        assert_eq!(
            spans,
            [
                (0.0, 2.0, State::Kept),
                (2.0, 3.0, State::Missed),
                (9.0, 10.0, State::Kept),
                (10.0, 11.0, State::Kept)
            ]
        );
    }
}
