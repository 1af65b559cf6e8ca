//! What came of a step, and what all of them make: the profile.

use tidegate_config::profile::{
    Measured, MeasuredBeside, MeasuredCurve, MeasuredDepth, MeasuredPoint, Mix,
};
use tidegate_core::profile::{BesideWrites, DepthPoint, Direction};
use tidegate_core::time::Nanos;

use crate::plan::{BesidePoint, Depth, Plan, Point, SATURATED, Step};
use crate::statistics::{Run, mean};

/// What came of a step. All of it whole numbers, so that one that was kept in a file and read
/// again is the same.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Which step of the plan.
    pub step: usize,
    /// What came of it.
    pub taken: Taken,
}

/// What came of a step.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// Bytes were written; a fill that was cut short has written those at the start.
    Wrote {
        /// So many.
        bytes: u64,
    },
    /// A point was measured.
    Measured {
        /// Requests outstanding.
        depth: u32,
        /// The runs in its steady state.
        runs: Vec<Run>,
        /// Runs before it, which are left out.
        left_out: usize,
        /// Whether it came to a steady state at all.
        steady: bool,
        /// Mean time of a request in those runs, and what 50 % and 99 % took at most, in
        /// nanoseconds.
        times_ns: [u64; 3],
    },
    /// Reads were measured beside writes.
    Beside {
        /// Reads that were counted.
        reads: u64,
        /// What half of them took at most, in nanoseconds.
        p50_ns: u64,
        /// What 99 of 100 took at most, in nanoseconds.
        p99_ns: u64,
    },
}

/// The smallest depth whose rate is nearly the best, by what was measured of random reads.
pub(crate) fn saturating_depth(plan: &Plan, outcomes: &[Outcome]) -> u32 {
    if let Some(depth) = plan.options.depth {
        return depth.min(plan.target.depth_max);
    }
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

/// Measured points with their depths, runs and times.
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

/// Bytes that requests may go to, after what came of filling.
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

/// What was measured, as the file holds it. `when` is for people; empty where it does not matter.
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
        let within_percent = match mean.within.is_finite() {
            true => mean.within * 100.0,
            false => 0.0,
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

/// What whoever reads the result should know.
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

/// Reads beside writes, for people.
pub fn beside_in_words(point: &BesidePoint) -> String {
    let size = tidegate_units::format_bytes(point.size.into());
    let kind = Mix::All(Direction::Write).with(point.access);
    format!("reads beside {size} {kind} at depth {}", point.depth)
}

/// A point, for people: `4 KiB random reads`, with its depth where it has one.
pub fn in_words(point: &Point) -> String {
    let size = tidegate_units::format_bytes(point.size.into());
    let kind = point.mix.with(point.access);
    match point.depth {
        Depth::Of(depth) => format!("{size} {kind} at depth {depth}"),
        Depth::Saturating => format!("{size} {kind}"),
    }
}
