//! Results of steps, and the profile that they make.

use tidegate_config::profile::{
    Measured, MeasuredBeside, MeasuredCurve, MeasuredDepth, MeasuredPoint, Mix,
};
use tidegate_core::profile::{BesideWrites, DepthPoint, Direction};
use tidegate_core::time::Nanos;

use crate::plan::{BesidePoint, Depth, Plan, Point, SATURATED, Step};
use crate::statistics::{Run, mean};

/// Result of a step of the plan. All values are integers, so that a result that was written to a
/// file and read again is equal.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Index of the step in the plan.
    pub step: usize,
    /// Measured values.
    pub taken: Taken,
}

/// Measured values of a step.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// Bulk writes; a fill that was cut short has written the beginning of the span.
    Wrote {
        /// Bytes written.
        bytes: u64,
    },
    /// Measurement of a point.
    Measured {
        /// Queue depth.
        depth: u32,
        /// Runs in the steady state.
        runs: Vec<Run>,
        /// Number of runs before the steady state, which are discarded.
        left_out: usize,
        /// True if a steady state was reached.
        steady: bool,
        /// Mean, median and 99th percentile of the latency in those runs, in nanoseconds.
        times_ns: [u64; 3],
    },
    /// Measurement of reads beside writes.
    Beside {
        /// Number of reads counted.
        reads: u64,
        /// Median latency of the reads in nanoseconds.
        p50_ns: u64,
        /// 99th percentile of the reads' latency in nanoseconds.
        p99_ns: u64,
    },
}

/// Returns the smallest depth whose rate of random reads is nearly the best.
pub(crate) fn saturating_depth(plan: &Plan, outcomes: &[Outcome]) -> u32 {
    if let Some(depth) = plan.options.depth {
        return depth.min(plan.target.depth_max);
    }
    // The plan begins with random reads of the smallest size at each depth.
    let first = plan.steps.iter().find_map(|step| match step {
        Step::Measure(point) => Some(*point),
        _ => None,
    });
    let rates: Vec<(u32, f64)> = points(plan, outcomes)
        .filter(|(point, ..)| {
            let like = |first: Point| {
                (point.mix, point.access, point.size) == (first.mix, first.access, first.size)
            };
            matches!(point.depth, Depth::Of(_)) && first.is_some_and(like)
        })
        .filter_map(|(_, depth, runs, _)| Some((depth, mean(runs)?.iops)))
        .collect();
    let best = rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
    let enough = rates.iter().find(|rate| rate.1 >= best * SATURATED);
    enough.map_or(plan.target.depth_max, |rate| rate.0)
}

/// Iterates over measured points with their depths, runs and latencies.
fn points<'a>(
    plan: &'a Plan,
    outcomes: &'a [Outcome],
) -> impl Iterator<Item = (Point, u32, &'a [Run], &'a [u64; 3])> {
    outcomes.iter().filter_map(|outcome| {
        let Some(Step::Measure(point)) = plan.steps.get(outcome.step) else {
            return None;
        };
        match &outcome.taken {
            Taken::Measured {
                depth,
                runs,
                times_ns,
                ..
            } => Some((*point, *depth, &runs[..], times_ns)),
            Taken::Wrote { .. } | Taken::Beside { .. } => None,
        }
    })
}

/// Returns the bytes that requests may access: those that the fill has written, if there was one.
pub(crate) fn span(plan: &Plan, outcomes: &[Outcome]) -> u64 {
    let filled =
        outcomes.iter().find_map(
            |outcome| match (plan.steps.get(outcome.step), &outcome.taken) {
                (Some(Step::Fill), Taken::Wrote { bytes }) => Some(*bytes),
                _ => None,
            },
        );
    filled.unwrap_or(plan.target.span)
}

/// Returns the profile as its file holds it. `when` is a date for people; it may be empty.
pub fn measured(plan: &Plan, outcomes: &[Outcome], when: &str) -> Measured {
    let mut measured = Measured {
        device: plan.target.name.clone(),
        measured: when.to_owned(),
        depth: saturating_depth(plan, outcomes),
        span: span(plan, outcomes),
        notes: notes(plan, outcomes),
        curves: Vec::new(),
        latency: Vec::new(),
        beside_writes: beside_writes(plan, outcomes),
    };
    for (point, depth, runs, times) in points(plan, outcomes) {
        let Some(mean) = mean(runs) else { continue };
        let [time, p50, p99] = times.map(Nanos);
        // A single run has no interval; the file has 0 for it.
        let within_percent = if mean.within.is_finite() {
            mean.within * 100.0
        } else {
            0.0
        };
        let of_runs = runs.len() as u32;
        match (point.depth, point.mix) {
            (Depth::Saturating, _) => {
                let point_of_curve = MeasuredPoint {
                    size: point.size,
                    iops: mean.iops,
                    within_percent,
                    runs: of_runs,
                };
                add(&mut measured.curves, &point, point_of_curve);
            }
            (Depth::Of(_), Mix::All(direction)) => measured.latency.push(MeasuredDepth {
                point: DepthPoint {
                    direction,
                    access: point.access,
                    size: point.size,
                    depth,
                    iops: mean.iops,
                    mean: time,
                    p50,
                    p99,
                },
                within_percent,
                runs: of_runs,
            }),
            (Depth::Of(_), Mix::Reads(_)) => {}
        }
    }
    measured
}

fn beside_writes(plan: &Plan, outcomes: &[Outcome]) -> Vec<MeasuredBeside> {
    let one = |outcome: &Outcome| match (plan.steps.get(outcome.step), &outcome.taken) {
        (
            Some(Step::BesideWrites(point)),
            &Taken::Beside {
                reads: reads @ 1..,
                p50_ns,
                p99_ns,
            },
        ) => Some(MeasuredBeside {
            point: BesideWrites {
                access: point.access,
                size: point.size,
                depth: point.depth,
                p50: Nanos(p50_ns),
                p99: Nanos(p99_ns),
            },
            reads,
        }),
        _ => None,
    };
    outcomes.iter().filter_map(one).collect()
}

fn add(curves: &mut Vec<MeasuredCurve>, of: &Point, point: MeasuredPoint) {
    let found = (curves.iter_mut()).find(|c| (c.mix, c.access) == (of.mix, of.access));
    match found {
        Some(curve) => curve.points.push(point),
        None => curves.push(MeasuredCurve {
            mix: of.mix,
            access: of.access,
            points: vec![point],
        }),
    }
}

/// Returns the notes for readers of the profile: what was not measured as planned.
fn notes(plan: &Plan, outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = Vec::new();
    if span(plan, outcomes) < plan.target.span {
        notes.push("filling took too long: only its start was measured".to_owned());
    }
    let unsteady = outcomes
        .iter()
        .filter(|outcome| matches!(outcome.taken, Taken::Measured { steady: false, .. }));
    let unsteady: Vec<_> = unsteady
        .filter_map(|outcome| match plan.steps.get(outcome.step) {
            Some(Step::Measure(point)) => Some(in_words(point)),
            _ => None,
        })
        .collect();
    if let [first, others @ ..] = &unsteady[..] {
        let others = match others.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        notes.push(format!("no steady state: {first}{others}"));
    }
    notes
}

/// Describes a measurement of reads beside writes, for people.
pub fn beside_in_words(point: &BesidePoint) -> String {
    let size = tidegate_units::format_bytes(point.size.into());
    let kind = Mix::All(Direction::Write).with(point.access);
    format!("reads beside {size} {kind} at depth {}", point.depth)
}

/// Describes a point for people: `4 KiB random reads`, with its depth if it has one.
pub fn in_words(point: &Point) -> String {
    let size = tidegate_units::format_bytes(point.size.into());
    let kind = point.mix.with(point.access);
    match point.depth {
        Depth::Of(depth) => format!("{size} {kind} at depth {depth}"),
        Depth::Saturating => format!("{size} {kind}"),
    }
}
