//! Results of steps, and the profile that they make.

use tidegate_config::profile::{
    Measured, MeasuredBeside, MeasuredCurve, MeasuredDepth, MeasuredPoint, Mix,
};
use tidegate_core::profile::{BesideWrites, DepthPoint, Direction};
use tidegate_core::time::Nanos;

use crate::plan::{Depth, Plan, Point, SATURATED, Step, WritesPoint};
use crate::statistics::{Run, mean};

/// Result of a step of the plan. All values are integers, so that a result that was written to a
/// file and read again is equal.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Index of the step in the plan.
    pub step: usize,
    /// Measured values.
    #[serde(rename = "taken")]
    pub result: StepResult,
}

/// Measured values of a step.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
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
        #[serde(rename = "left_out")]
        unsteady_runs: usize,
        /// True if a steady state was reached.
        steady: bool,
        /// Mean, median and 99th percentile of the latency in those runs, in nanoseconds.
        times_ns: [u64; 3],
    },
    /// Measurement of reads under writes.
    #[serde(rename = "beside")]
    ReadsUnderWrites {
        /// Number of reads counted.
        reads: u64,
        /// Median latency of the reads in nanoseconds.
        p50_ns: u64,
        /// 99th percentile of the reads' latency in nanoseconds.
        p99_ns: u64,
    },
}

/// Returns the smallest depth whose rate of random reads is at least [`SATURATED`] of the best, or
/// the depth of the options. The plan has the depths in rising order.
pub(crate) fn saturating_depth(plan: &Plan, outcomes: &[Outcome]) -> u32 {
    if let Some(depth) = plan.options.depth {
        // At depth 0 no request would ever be submitted, and the measurement would not end.
        return depth.clamp(1, plan.target.depth_max);
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

/// Iterates over measured points with their depths, runs in the steady state, and latencies (mean,
/// median and 99th percentile in nanoseconds).
fn points<'a>(
    plan: &'a Plan,
    outcomes: &'a [Outcome],
) -> impl Iterator<Item = (Point, u32, &'a [Run], &'a [u64; 3])> {
    outcomes.iter().filter_map(|outcome| {
        let Some(Step::Measure(point)) = plan.steps.get(outcome.step) else {
            return None;
        };
        match &outcome.result {
            StepResult::Measured {
                depth,
                runs,
                times_ns,
                ..
            } => Some((*point, *depth, &runs[..], times_ns)),
            StepResult::Wrote { .. } | StepResult::ReadsUnderWrites { .. } => None,
        }
    })
}

/// Returns the bytes that requests may access: those that the fill has written, if there was one.
pub(crate) fn span(plan: &Plan, outcomes: &[Outcome]) -> u64 {
    let filled =
        outcomes.iter().find_map(
            |outcome| match (plan.steps.get(outcome.step), &outcome.result) {
                (Some(Step::Fill), StepResult::Wrote { bytes }) => Some(*bytes),
                _ => None,
            },
        );
    filled.unwrap_or(plan.target.span)
}

/// Returns the profile as its file holds it. `measured_on` is a date for people; it may be empty.
pub fn build_profile(plan: &Plan, outcomes: &[Outcome], measured_on: &str) -> Measured {
    let mut measured = Measured {
        device: plan.target.name.clone(),
        measured: measured_on.to_owned(),
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
        let within_percent = if mean.relative_half_width.is_finite() {
            mean.relative_half_width * 100.0
        } else {
            0.0
        };
        let run_count = runs.len() as u32;
        match (point.depth, point.mix) {
            (Depth::Saturating, _) => {
                let point_of_curve = MeasuredPoint {
                    size: point.size,
                    iops: mean.iops,
                    within_percent,
                    runs: run_count,
                };
                add_to_curve(&mut measured.curves, &point, point_of_curve);
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
                runs: run_count,
            }),
            (Depth::Of(_), Mix::Reads(_)) => {}
        }
    }
    measured
}

fn beside_writes(plan: &Plan, outcomes: &[Outcome]) -> Vec<MeasuredBeside> {
    let reads_under_writes =
        |outcome: &Outcome| match (plan.steps.get(outcome.step), &outcome.result) {
            (
                Some(Step::ReadsUnderWrites(point)),
                &StepResult::ReadsUnderWrites {
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
    outcomes.iter().filter_map(reads_under_writes).collect()
}

/// Adds a point to the curve of its mix and access pattern, which are those of `kind`.
fn add_to_curve(curves: &mut Vec<MeasuredCurve>, kind: &Point, point: MeasuredPoint) {
    let curve = (curves.iter_mut()).find(|c| (c.mix, c.access) == (kind.mix, kind.access));
    match curve {
        Some(curve) => curve.points.push(point),
        None => curves.push(MeasuredCurve {
            mix: kind.mix,
            access: kind.access,
            points: vec![point],
        }),
    }
}

/// Returns the notes for readers of the profile: what was not measured as planned.
fn notes(plan: &Plan, outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = Vec::new();
    if span(plan, outcomes) < plan.target.span {
        notes.push(format!(
            "filling was cut short: only the first {} were measured",
            tidegate_units::human::bytes(span(plan, outcomes))
        ));
    }
    let unsteady = outcomes
        .iter()
        .filter(|outcome| matches!(outcome.result, StepResult::Measured { steady: false, .. }));
    let unsteady: Vec<_> = unsteady
        .filter_map(|outcome| match plan.steps.get(outcome.step) {
            Some(Step::Measure(point)) => Some(describe(point)),
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

/// Describes a measurement of reads under writes, for people.
pub fn describe_reads_under_writes(point: &WritesPoint) -> String {
    let size = tidegate_units::format_bytes(point.size.into());
    let kind = Mix::All(Direction::Write).with(point.access);
    format!("4 KiB reads under {size} {kind} at depth {}", point.depth)
}

/// Describes a point for people: `4 KiB random reads`, with its depth if it has one.
pub fn describe(point: &Point) -> String {
    let size = tidegate_units::format_bytes(point.size.into());
    let kind = point.mix.with(point.access);
    match point.depth {
        Depth::Of(depth) => format!("{size} {kind} at depth {depth}"),
        Depth::Saturating => format!("{size} {kind}"),
    }
}
