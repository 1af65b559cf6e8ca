//! Plots of VMs and devices over time, with what was promised, and of distributions.

use tidegate_core::objective::{Objective, Rate};
use tidegate_report::{Axis, Plot, Series, Unit};
use tidegate_units::human::duration;

/// Lines of a plot of all VMs; the rest is summed up in one more.
const LINES_MAX: usize = 6;
/// Mean size in bytes from which on the throughput of a VM that was promised no rate is shown in
/// bytes instead of requests.
const LARGE_REQUEST: f64 = 65_536.0;
/// Part of the highest other value up to which a limit is drawn: a limit far above all that
/// happened would press everything else down to the axis.
const LIMIT_SHOWN: f64 = 4.0;
/// Distance of two points, in shortest ones, from which on a line between them is broken.
const GAP_STEPS: f64 = 4.0;
/// Factor by which adjacent points of a distribution differ at least, in latency or in the part of
/// requests that take longer: less could not be told apart.
const DISTRIBUTION_STEP: f64 = 1.04;

/// Axis of time of a page's plots.
#[derive(Clone, Debug)]
pub(crate) struct TimeAxis {
    label: &'static str,
    unit: Unit,
    /// Length of the unit in seconds.
    length_s: f64,
    from_s: f64,
    to_s: f64,
    /// End of the warm-up; `None` without one.
    warm_up_s: Option<f64>,
    /// Times of day at moments in seconds, in their order.
    times_of_day: Vec<(f64, String)>,
}

impl TimeAxis {
    /// Creates an axis from one second to another one.
    pub(crate) fn new(label: &'static str, from_s: f64, to_s: f64) -> TimeAxis {
        let (unit, length_s) = Unit::of_span(to_s - from_s);
        TimeAxis {
            label,
            unit,
            length_s,
            from_s,
            to_s,
            warm_up_s: None,
            times_of_day: Vec::new(),
        }
    }

    /// Converts seconds to the unit of the axis.
    pub(crate) fn at(&self, seconds: f64) -> f64 {
        seconds / self.length_s
    }

    /// Ends of the axis in its unit.
    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.at(self.from_s), self.at(self.to_s))
    }

    /// Axis without ends of its own.
    pub(crate) fn unbounded(&self) -> Axis {
        let times = self.times_of_day.iter();
        let times = times.map(|(seconds, text)| (self.at(*seconds), text.clone()));
        Axis::linear(self.label, self.unit).with_labels_below(times)
    }

    /// Adds times of day at moments in seconds, in their order.
    pub(crate) fn with_times_of_day(self, times_of_day: Vec<(f64, String)>) -> TimeAxis {
        TimeAxis {
            times_of_day,
            ..self
        }
    }

    /// Shades the warm-up in all plots, from the begin to this second.
    pub(crate) fn with_warm_up(self, warm_up_s: f64) -> TimeAxis {
        TimeAxis {
            warm_up_s: (warm_up_s > self.from_s).then_some(warm_up_s),
            ..self
        }
    }

    /// Compact plot over the time.
    fn plot(&self, title: impl Into<String>, y: Axis) -> Plot {
        let mut plot = Plot::new(title, self.axis(), y);
        plot.compact();
        if let Some(end) = self.warm_up_s {
            let name = "warm-up, which does not count";
            plot.stretch(self.at(self.from_s), self.at(end), name);
        }
        plot
    }

    fn axis(&self) -> Axis {
        let (from, to) = self.ends();
        self.unbounded().including(from).including(to)
    }
}

/// Rates and latencies of a VM in an interval. A value that is not known is not a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct VmPoint {
    /// Middle of the interval, in seconds.
    pub(crate) at_s: f64,
    pub(crate) iops: f64,
    pub(crate) bytes_per_s: f64,
    /// `None`: no request was answered.
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
}

/// Load of a device in an interval. A value that is not known is not a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DevicePoint {
    /// Middle of the interval, in seconds.
    pub(crate) at_s: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) busy_percent: f64,
    /// Mean number of I/Os in flight.
    pub(crate) depth: f64,
}

/// VM over time, with what it was promised.
#[derive(Clone, Debug)]
pub(crate) struct VmOverTime {
    pub(crate) name: String,
    pub(crate) points: Vec<VmPoint>,
    /// Objectives, each from a time in seconds on; `None` from when on there is none.
    pub(crate) objectives: Vec<(f64, Option<Objective>)>,
}

/// Unit in which rates are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RateUnit {
    Requests,
    Bytes,
}

impl RateUnit {
    fn axis(self) -> Axis {
        let axis = match self {
            RateUnit::Requests => Axis::linear("IOPS", Unit::Number),
            RateUnit::Bytes => Axis::linear("throughput", Unit::BytesPerS),
        };
        axis.including(0.0)
    }

    fn name(self) -> &'static str {
        match self {
            RateUnit::Requests => "Requests per second",
            RateUnit::Bytes => "Throughput",
        }
    }

    fn value(self, point: &VmPoint) -> f64 {
        match self {
            RateUnit::Requests => point.iops,
            RateUnit::Bytes => point.bytes_per_s,
        }
    }

    fn part(self, rate: &Rate) -> Option<(f64, String)> {
        let part = match self {
            RateUnit::Requests => Rate {
                bytes_per_s: None,
                ..*rate
            },
            RateUnit::Bytes => Rate { ops: None, ..*rate },
        };
        let value = match self {
            RateUnit::Requests => part.ops?.per_s,
            RateUnit::Bytes => part.bytes_per_s?,
        };
        Some((value as f64, part.rounded()))
    }
}

/// Rate that an objective promises, as a line of a plot.
struct PromisedRate {
    kind: &'static str,
    value: f64,
    text: String,
}

/// Returns the rates that an objective promises in a unit.
fn promised(objective: &Objective, unit: RateUnit) -> Vec<PromisedRate> {
    let rates = [
        ("reservation", &objective.reservation),
        ("target", &objective.target),
        ("limit", &objective.limit.total),
    ];
    let promised = rates.into_iter().filter_map(|(kind, rate)| {
        let (value, text) = unit.part(rate)?;
        Some(PromisedRate { kind, value, text })
    });
    promised.collect()
}

impl VmOverTime {
    fn promises_rates_in(&self, unit: RateUnit) -> bool {
        let objectives = self.objectives.iter().filter_map(|it| it.1.as_ref());
        objectives
            .into_iter()
            .any(|it| !promised(it, unit).is_empty())
    }

    /// Units of the plots of its rates: those of its promises, or the one that suits its requests.
    fn units(&self) -> Vec<RateUnit> {
        let units = [RateUnit::Requests, RateUnit::Bytes];
        let promised: Vec<_> = (units.into_iter())
            .filter(|&unit| self.promises_rates_in(unit))
            .collect();
        if !promised.is_empty() {
            return promised;
        }
        let sum = |unit: RateUnit| {
            let values = self.points.iter().map(|point| unit.value(point));
            values.filter(|value| value.is_finite()).sum::<f64>()
        };
        match sum(RateUnit::Bytes) >= LARGE_REQUEST * sum(RateUnit::Requests) {
            true => vec![RateUnit::Bytes],
            false => vec![RateUnit::Requests],
        }
    }

    fn line(&self, time: &TimeAxis, value: impl Fn(&VmPoint) -> f64) -> Vec<(f64, f64)> {
        let points = self.points.iter();
        points.map(|it| (time.at(it.at_s), value(it))).collect()
    }

    /// Line of a quantile. It has gaps where there were no requests for several intervals; it
    /// passes over single ones, because a point alone could not be seen.
    fn quantile(
        &self,
        time: &TimeAxis,
        quantile: impl Fn(&VmPoint) -> Option<f64>,
    ) -> Vec<(f64, f64)> {
        let points = self.points.iter();
        let points = points.filter_map(|it| Some((time.at(it.at_s), quantile(it)?)));
        let known: Vec<(f64, f64)> = points.collect();
        let steps = known.windows(2).map(|two| two[1].0 - two[0].0);
        let longest = GAP_STEPS * steps.fold(f64::INFINITY, f64::min);
        let mut line: Vec<(f64, f64)> = Vec::with_capacity(known.len());
        for point in known {
            if line.last().is_some_and(|last| point.0 - last.0 > longest) {
                line.push((point.0, f64::NAN));
            }
            line.push(point);
        }
        line
    }

    /// Plots of its rates beside what was promised, one for each unit of a promise.
    ///
    /// Titles begin with `prefix`.
    pub(crate) fn rates(&self, time: &TimeAxis, prefix: &str) -> Vec<Plot> {
        let plots = self
            .units()
            .into_iter()
            .map(|unit| self.rate(time, prefix, unit));
        plots.collect()
    }

    fn rate(&self, time: &TimeAxis, prefix: &str, unit: RateUnit) -> Plot {
        let title = format!("{prefix}{}", unit.name());
        let mut plot = time.plot(title, unit.axis());
        let line = self.line(time, |point| unit.value(point));
        let most = line.iter().map(|point| point.1);
        let most = most.filter(|value| value.is_finite()).fold(0.0, f64::max);
        plot.add(Series::line("served").points(line).unmarked().with_gaps());
        match self.objectives.as_slice() {
            [(from, Some(objective))] if *from <= time.from_s => {
                let rates = promised(objective, unit);
                let floors = rates.iter().filter(|rate| rate.kind != "limit");
                let most = floors.map(|rate| rate.value).fold(most, f64::max);
                for rate in rates {
                    if rate.kind != "limit" || rate.value <= most * LIMIT_SHOWN {
                        plot.level(rate.value, format!("{} {}", rate.kind, rate.text));
                    }
                }
            }
            steps => {
                for kind in ["reservation", "target", "limit"] {
                    let value = |objective: &Objective| {
                        let rates = promised(objective, unit);
                        rates.iter().find(|it| it.kind == kind).map(|it| it.value)
                    };
                    add_steps(&mut plot, time, steps, kind, value);
                }
            }
        }
        plot
    }

    /// Plot of its latency beside what was promised. The title begins with `prefix`.
    pub(crate) fn latency(&self, time: &TimeAxis, prefix: &str) -> Plot {
        let y = Axis::log10("latency", Unit::Nanos);
        let mut plot = time.plot(format!("{prefix}Latency"), y);
        for (name, quantile) in [
            ("p99", (|it| it.p99_ns) as fn(&VmPoint) -> Option<f64>),
            ("p50", |it| it.p50_ns),
        ] {
            let points = self.quantile(time, quantile);
            plot.add(Series::line(name).points(points).unmarked().with_gaps());
        }
        let bound = |objective: &Objective| objective.latency.map(|bound| bound.0 as f64);
        match self.objectives.as_slice() {
            [(from, Some(objective))] if *from <= time.from_s => {
                if let Some(bound) = objective.latency {
                    plot.level(bound.0 as f64, bound_text(bound.0));
                }
            }
            steps => add_steps(&mut plot, time, steps, "promised", bound),
        }
        plot
    }

    /// Latency bound of its last objective, in nanoseconds.
    pub(crate) fn last_bound_ns(&self) -> Option<u64> {
        let mut objectives = self.objectives.iter().rev();
        let last = objectives.find_map(|it| it.1.as_ref());
        last.and_then(|objective| objective.latency).map(|it| it.0)
    }
}

/// Returns a latency bound in words.
fn bound_text(ns: u64) -> String {
    format!("promised: 99 % within {}", duration(ns))
}

/// Adds a line of what was promised, which changed during the run.
fn add_steps(
    plot: &mut Plot,
    time: &TimeAxis,
    steps: &[(f64, Option<Objective>)],
    name: &str,
    value: impl Fn(&Objective) -> Option<f64>,
) {
    let ends = steps.iter().skip(1).map(|step| step.0).chain([time.to_s]);
    let mut line: Vec<(f64, f64)> = Vec::new();
    let mut is_interrupted = false;
    for ((from, objective), to) in steps.iter().zip(ends) {
        let Some(value) = objective.as_ref().and_then(&value) else {
            is_interrupted = !line.is_empty();
            continue;
        };
        if is_interrupted {
            line.push((time.at(*from), f64::NAN));
            is_interrupted = false;
        }
        line.extend([(time.at(*from), value), (time.at(to), value)]);
    }
    if !line.is_empty() {
        plot.add(Series::line(name).points(line).unmarked().with_gaps());
    }
}

/// Plots of the throughput and the latency of all VMs: a line for each of the busiest, and the rest
/// summed up in the plot of throughput.
pub(crate) fn all_vms(time: &TimeAxis, vms: &[VmOverTime]) -> [Plot; 2] {
    let total = |vm: &VmOverTime| {
        let values = vm.points.iter().map(|point| point.bytes_per_s);
        values.filter(|value| value.is_finite()).sum::<f64>()
    };
    let mut by_total: Vec<(f64, &VmOverTime)> = vms.iter().map(|vm| (total(vm), vm)).collect();
    // Stable: VMs that moved as much stay in their order.
    by_total.sort_by(|a, b| b.0.total_cmp(&a.0));
    let bytes = |point: &VmPoint| point.bytes_per_s;
    let mut rates = time.plot("Throughput", RateUnit::Bytes.axis());
    let p99 = Axis::log10("latency, p99", Unit::Nanos);
    let mut latencies = time.plot("Latency, 99th percentile", p99);
    for (_, vm) in by_total.iter().take(LINES_MAX) {
        let line = vm.line(time, bytes);
        rates.add(Series::line(&vm.name).points(line).unmarked().with_gaps());
        let line = vm.quantile(time, |it| it.p99_ns);
        latencies.add(Series::line(&vm.name).points(line).unmarked().with_gaps());
    }
    let rest = by_total.get(LINES_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let lines: Vec<_> = rest.iter().map(|(_, vm)| vm.line(time, bytes)).collect();
        let name = format!("{} other VMs together", rest.len());
        let points = sum_of_lines(&lines);
        rates.add(Series::line(name).points(points).unmarked().with_gaps());
    }
    [rates, latencies]
}

/// Returns the sum of lines, with a point wherever one of them has one.
///
/// Between its points a line has the value at which it is drawn. Lines without a value at a time,
/// such as that of a VM which did not exist yet, add nothing; the sum is not a number where no line
/// has a value.
fn sum_of_lines(lines: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let mut times: Vec<f64> = lines.iter().flatten().map(|point| point.0).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let mut sums = vec![f64::NAN; times.len()];
    for line in lines {
        let mut next = 0;
        for (&time, sum) in times.iter().zip(&mut sums) {
            while line.get(next).is_some_and(|point| point.0 < time) {
                next += 1;
            }
            let before = next.checked_sub(1).map(|before| line[before]);
            let value = match (before, line.get(next)) {
                (_, Some(&(at, value))) if at == time => value,
                (Some(from), Some(to)) => {
                    from.1 + (to.1 - from.1) * (time - from.0) / (to.0 - from.0)
                }
                _ => f64::NAN,
            };
            if value.is_finite() {
                *sum = value + if sum.is_nan() { 0.0 } else { *sum };
            }
        }
    }
    times.into_iter().zip(sums).collect()
}

/// Plots of the rate and the latency of one VM under several policies, of which each has a name.
pub(crate) fn under_policies(time: &TimeAxis, runs: &[(&str, &VmOverTime)]) -> Vec<Plot> {
    let Some((_, first)) = runs.first() else {
        return Vec::new();
    };
    let unit = first.units()[0];
    let mut rates = time.plot(unit.name(), unit.axis());
    let p99 = Axis::log10("latency, p99", Unit::Nanos);
    let mut latencies = time.plot("Latency, 99th percentile", p99);
    for (name, vm) in runs {
        let line = vm.line(time, |point| unit.value(point));
        rates.add(Series::line(*name).points(line).unmarked().with_gaps());
        let line = vm.quantile(time, |it| it.p99_ns);
        latencies.add(Series::line(*name).points(line).unmarked().with_gaps());
    }
    let mut bounds: Vec<u64> = runs
        .iter()
        .filter_map(|run| run.1.last_bound_ns())
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    for bound in bounds {
        latencies.level(bound as f64, bound_text(bound));
    }
    vec![rates, latencies]
}

/// Plots of a device's load over time: utilisation, I/Os in flight and throughput.
///
/// `of_depth` says which number of I/Os in flight is shown of an interval.
pub(crate) fn device(time: &TimeAxis, of_depth: &str, points: &[DevicePoint]) -> Vec<Plot> {
    let line = |value: fn(&DevicePoint) -> f64| {
        let points = points.iter();
        let points = points.map(move |it| (time.at(it.at_s), value(it)));
        points.collect::<Vec<_>>()
    };
    let plot = |what: &str, y: Axis, series: &str, points: Vec<(f64, f64)>| {
        let mut plot = time.plot(what, y.including(0.0));
        plot.add(Series::line(series).points(points).unmarked().with_gaps());
        plot
    };
    let known = |value: fn(&DevicePoint) -> f64| points.iter().any(|it| value(it).is_finite());
    let mut plots = vec![plot(
        "Utilisation",
        Axis::linear("time with I/Os in flight", Unit::Percent).including(100.0),
        "busy",
        line(|it| it.busy_percent),
    )];
    if known(|it| it.depth) {
        plots.push(plot(
            "Queue depth",
            Axis::linear("I/Os in flight", Unit::Number),
            of_depth,
            line(|it| it.depth),
        ));
    }
    plots.push(plot(
        "Throughput",
        Axis::linear("throughput", Unit::BytesPerS),
        "all VMs",
        line(|it| it.bytes_per_s),
    ));
    plots
}

/// Distribution of latencies: upper bounds in nanoseconds with counts, in ascending order.
pub(crate) type Distribution = Vec<(u64, u64)>;

/// Plot of cumulative distributions of latencies, with a latency bound.
pub(crate) fn distributions(
    title: &str,
    curves: &[(&str, Distribution)],
    bound_ns: Option<u64>,
) -> Plot {
    let x = Axis::log10("latency", Unit::Nanos);
    let mut plot = Plot::new(title, x, Axis::nines("requests answered within"));
    plot.compact();
    for (name, cells) in curves {
        let points = cumulative(cells);
        plot.add(Series::line(*name).points(points).unmarked().with_gaps());
    }
    if let Some(bound) = bound_ns {
        plot.threshold(bound as f64, bound_text(bound));
    }
    plot
}

/// Returns the points of a cumulative distribution in per cent, so many as can be told apart. The
/// n-th of N requests is at (n - 0.5) / N (Hazen 1914), so that the last one is below 100 %.
fn cumulative(cells: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
        return Vec::new();
    };
    let total = cells.iter().map(|cell| cell.1).sum::<u64>() as f64;
    let mut points = vec![(first.0 as f64, 0.0)];
    let mut below = 0;
    for &(bound, count) in cells {
        below += count;
        let point = (bound as f64, 100.0 * (below as f64 - 0.5) / total);
        let before = points.last().copied().unwrap_or(point);
        let apart = point.0 >= before.0 * DISTRIBUTION_STEP
            || (100.0 - point.1) * DISTRIBUTION_STEP <= 100.0 - before.1;
        if apart || bound == last.0 {
            points.push(point);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_ends_below_100_and_has_few_points() {
        let cells: Vec<(u64, u64)> = (1..=100_000).map(|ns| (ns, 1)).collect();
        let points = cumulative(&cells);
        assert!(points.len() < 700, "{}", points.len());
        assert_eq!(points[0], (1.0, 0.0));
        assert_eq!(points.last(), Some(&(100_000.0, 99.9995)));
        assert!(points.windows(2).all(|two| two[0].1 <= two[1].1));
        assert_eq!(cumulative(&[]), []);
        assert_eq!(cumulative(&[(7, 1)]), [(7.0, 0.0), (7.0, 50.0)]);
    }

    fn vm(name: &str, objectives: Vec<(f64, Option<Objective>)>) -> VmOverTime {
        let point = |second: u32| VmPoint {
            at_s: f64::from(second) + 0.5,
            iops: 10.0,
            bytes_per_s: 40_960.0,
            p50_ns: Some(1e6),
            p99_ns: (second > 0).then_some(2e6),
        };
        VmOverTime {
            name: name.to_owned(),
            points: (0..10).map(point).collect(),
            objectives,
        }
    }

    fn reservation(iops: u64) -> Objective {
        Objective {
            reservation: Rate::iops(iops),
            latency: Some(tidegate_core::time::Nanos::from_millis(iops)),
            ..Objective::default()
        }
    }

    fn drawn(plot: &Plot) -> String {
        tidegate_report::svg(std::slice::from_ref(plot))
    }

    #[test]
    fn promises_are_levels_or_steps_where_they_change() {
        let time = TimeAxis::new("time", 0.0, 10.0);
        let constant = vm("a", vec![(0.0, Some(reservation(40)))]);
        let text: String = constant.rates(&time, "").iter().map(drawn).collect();
        assert!(
            text.contains("Level &quot;reservation 40 IOPS&quot; at 40."),
            "{text}"
        );
        let text = drawn(&constant.latency(&time, ""));
        assert!(text.contains("promised: 99 % within 40 ms"), "{text}");
        let changed = vec![
            (0.0, Some(reservation(40))),
            (4.0, Some(reservation(20))),
            (8.0, None),
        ];
        let text: String = vm("a", changed)
            .rates(&time, "")
            .iter()
            .map(drawn)
            .collect();
        assert!(
            text.contains("Line &quot;reservation&quot; of 4 points"),
            "{text}"
        );
    }

    #[test]
    fn a_promise_is_one_line_over_the_times_in_which_it_is_in_force() {
        let time = TimeAxis::new("time", 0.0, 10.0);
        let late: String = vm("a", vec![(5.0, Some(reservation(40)))])
            .rates(&time, "")
            .iter()
            .map(drawn)
            .collect();
        assert!(
            late.contains("Line &quot;reservation&quot; of 2 points"),
            "{late}"
        );
        assert!(!late.contains("Level"), "{late}");
        let interrupted = vec![
            (0.0, Some(reservation(40))),
            (3.0, None),
            (6.0, Some(reservation(40))),
        ];
        let text: String = vm("a", interrupted)
            .rates(&time, "")
            .iter()
            .map(drawn)
            .collect();
        assert_eq!(
            text.matches("Line &quot;reservation&quot;").count(),
            1,
            "{text}"
        );
    }

    #[test]
    fn a_time_without_requests_breaks_the_line_of_latency() {
        let time = TimeAxis::new("time", 0.0, 10.0);
        let mut pausing = vm("a", vec![]);
        for point in &mut pausing.points[3..8] {
            point.p99_ns = None;
        }
        // Second 0 has none either, and seconds 1, 2, 8 and 9 have one.
        let line = pausing.quantile(&time, |it| it.p99_ns);
        let finite: Vec<bool> = line.iter().map(|point| point.1.is_finite()).collect();
        assert_eq!(finite, [true, true, false, true, true]);
        let text = drawn(&pausing.latency(&time, ""));
        assert!(!text.contains("left out"), "{text}");
    }

    #[test]
    fn vms_without_a_line_of_their_own_are_summed_up() {
        let time = TimeAxis::new("time", 0.0, 10.0);
        let vms: Vec<_> = (0..20).map(|n| vm(&format!("vm-{n}"), vec![])).collect();
        let text = drawn(&all_vms(&time, &vms)[0]);
        assert!(text.contains("14 other VMs together"), "{text}");
        assert!(text.contains(">vm-5</text>") && !text.contains(">vm-6</text>"));
    }

    #[test]
    fn lines_are_summed_up_by_time() {
        let nan = f64::NAN;
        let lines = [
            vec![(0.0, 10.0), (1.0, 20.0), (2.0, nan), (4.0, 10.0)],
            // Idle from 0.5 to 3.
            vec![(0.5, 0.0), (3.0, 0.0), (4.0, 6.0)],
            vec![(2.0, nan)],
        ];
        let sum = sum_of_lines(&lines);
        let expected = [
            (0.0, 10.0),
            (0.5, 15.0),
            (1.0, 20.0),
            (2.0, 0.0),
            (3.0, 0.0),
            (4.0, 16.0),
        ];
        assert_eq!(sum, expected);
        assert!(sum_of_lines(&lines[2..])[0].1.is_nan(), "no value is known");
        assert_eq!(sum_of_lines(&[]), []);
    }
}
