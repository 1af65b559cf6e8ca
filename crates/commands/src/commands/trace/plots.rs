//! Plots of a trace: rate over time, sizes, and how hot addresses are.

use std::collections::BTreeMap;

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_report::{Axis, Plot, Point, Series, Unit};
use tidegate_workload::trace::{Record, Trace};

/// Number of intervals of time, and of regions of addresses.
const PARTS: usize = 60;

/// Returns the plots of a whole trace.
pub(super) fn plots(trace: &Trace) -> Vec<Plot> {
    vec![rates(trace), sizes(trace), heat(trace)]
}

/// Operations of a trace with their names; those without a request are left out.
fn operations(trace: &Trace) -> impl Iterator<Item = (&'static str, Op)> {
    let all = [
        ("reads", Op::Read),
        ("writes", Op::Write),
        ("discards", Op::Discard),
    ];
    let is_there = |op| trace.records.iter().any(|record| record.op == op);
    all.into_iter().filter(move |&(_, op)| is_there(op))
}

fn rates(trace: &Trace) -> Plot {
    let first = trace.records.first().map_or(Nanos::ZERO, |it| it.at);
    let last = trace.records.last().map_or(first, |it| it.at);
    // The last request lies in the last interval, and a trace of one time in the first.
    let width = (last.since(first).0 / PARTS as u64 + 1) as f64 / 1e9;
    let part = |record: &Record| (record.at.since(first).as_secs_f64() / width) as usize;
    let title = format!("Requests over time, in intervals of {width:.3} s");
    let mut plot = Plot::new(
        title,
        Axis::linear("time", Unit::Seconds).including(0.0),
        Axis::linear("IOPS", Unit::Number).including(0.0),
    );
    for (name, op) in operations(trace) {
        let mut counts = [0u64; PARTS];
        for record in trace.records.iter().filter(|record| record.op == op) {
            counts[part(record).min(PARTS - 1)] += 1;
        }
        let points = counts.iter().enumerate().map(|(i, &count)| {
            let middle = (i as f64 + 0.5) * width;
            Point::new(middle, count as f64 / width)
        });
        plot.add(Series::line(name).points(points).unmarked());
    }
    plot
}

fn sizes(trace: &Trace) -> Plot {
    let mut plot = Plot::new(
        "Sizes of requests: share of requests up to a size",
        Axis::log2("size", Unit::Bytes),
        Axis::linear("requests", Unit::Percent)
            .including(0.0)
            .including(100.0),
    );
    for (name, op) in operations(trace) {
        // By powers of two: a curve of every size would have as many points as there are sizes.
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for record in trace.records.iter().filter(|record| record.op == op) {
            // At most 2^30, the largest request.
            *counts.entry(record.len.next_power_of_two()).or_default() += 1;
        }
        let all: u64 = counts.values().sum();
        let mut below = 0;
        let points = counts.iter().map(|(&size, &count)| {
            below += count;
            Point::new(size.into(), below as f64 / all as f64 * 100.0)
        });
        plot.add(Series::line(name).points(points.collect::<Vec<_>>()));
    }
    plot
}

fn heat(trace: &Trace) -> Plot {
    let extent = trace.records.iter().map(Record::end).max().unwrap_or(1);
    let width = extent.div_ceil(PARTS as u64).max(1);
    let mut plot = Plot::new(
        "Heat of addresses: share of requests by where they begin, all disks",
        Axis::linear("address", Unit::Bytes).including(0.0),
        Axis::linear("requests", Unit::Percent).including(0.0),
    );
    let all = trace.records.len() as f64;
    for (name, op) in operations(trace) {
        let mut counts = [0u64; PARTS];
        for record in trace.records.iter().filter(|record| record.op == op) {
            counts[(record.offset / width) as usize] += 1;
        }
        let points = counts.iter().enumerate().map(|(i, &count)| {
            let middle = (i as f64 + 0.5) * width as f64;
            Point::new(middle, count as f64 / all * 100.0)
        });
        plot.add(Series::line(name).points(points).unmarked());
    }
    plot
}
