//! Section 5.3: servers of four kinds, each alone with a rising target (figure 10), and together
//! (table IV).

use super::keys::consolidated;
use super::run::{Run, STATISTICAL_INTERVAL_S, Second, beta, mean, v};
use super::setup::{Ablation, Case, Change, Key, STEP, STEP_MB_S};
use super::{Cells, Claims, Figure, PAPER, RunResults};
use crate::claim::{Item, Series};
use crate::claim_result::ClaimResult;
use tidegate_core::time::Nanos;
use tidegate_report::{Axis, Plot, Series as Curve, Unit};

pub(super) const FIGURE_10: Figure = Figure {
    name: "figure 10",
    keys: || STAIRCASES.map(|(vm, top)| staircase_key(vm, top)).to_vec(),
    cells: figure_10_cells,
    plots: figure_10_plots,
    ..Figure::BARE
};

pub(super) const TABLE_4: Figure = Figure {
    name: "4",
    keys: || ["fq", "vcup"].map(table_4_key).to_vec(),
    cells: table_4_cells,
    ..Figure::BARE
};

/// Servers with a rising target, and its last value in MB/s.
const STAIRCASES: [(&str, u64); 4] = [("web", 45), ("mail", 25), ("file", 50), ("video", 50)];
/// Seconds at the begin of a step that its bandwidth, beta and V leave out.
const SETTLING_S: usize = 30;
/// Time in seconds within which a new target is to be reached.
const CONVERGENCE_LIMIT_S: usize = 10;
/// Length in seconds of the window whose mean decides whether a target is reached.
const CONVERGENCE_WINDOW_S: usize = 5;
/// Deviation of that mean from the target, as a fraction, up to which the target is reached.
const CONVERGENCE_TOLERANCE: f64 = 0.05;

fn staircase_key(vm: &'static str, top: u64) -> Key {
    Key::new(Case::Servers, "vcup").with(Change::Staircase { vm, top })
}

fn table_4_key(scheduler: &'static str) -> Key {
    Key::new(Case::Servers, scheduler)
}

fn table_4_cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("4", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (fq, vcup) = (
            results.run_for(table_4_key("fq"))?,
            results.run_for(table_4_key("vcup"))?,
        );
        consolidated(&labels[0], column, fq, vcup)
    }))
}

/// Step of a staircase.
struct Step<'a> {
    vm: &'static str,
    /// Target in bytes per second.
    target: u64,
    seconds: &'a [Second],
}

impl Step<'_> {
    fn bytes(&self) -> Vec<u64> {
        // A step that is cut off may be shorter than the time to settle.
        let later = &self.seconds[SETTLING_S.min(self.seconds.len())..];
        later.iter().map(|second| second.bytes).collect()
    }

    fn mb_s(&self) -> f64 {
        mean(&self.seconds[SETTLING_S.min(self.seconds.len())..], |s| {
            s.bytes
        }) / 1e6
    }

    /// Seconds until the begin of the first window whose mean is near the target.
    fn convergence_s(&self) -> Option<usize> {
        let is_near = |window: &[Second]| {
            let ratio = mean(window, |second| second.bytes) / self.target as f64;
            (ratio - 1.0).abs() <= CONVERGENCE_TOLERANCE
        };
        // Samples are of a second each, so that the index is the time.
        self.seconds.windows(CONVERGENCE_WINDOW_S).position(is_near)
    }

    fn is_inadequate(&self) -> bool {
        self.seconds
            .last()
            .is_some_and(|second| second.tuned.inadequate)
    }

    fn name(&self) -> String {
        format!("{} at {} MB/s", self.vm, self.target / 1_000_000)
    }
}

fn steps_of<'a>(run: &'a Run, vm: &'static str) -> Vec<Step<'a>> {
    let length = (STEP.0 / Nanos::SECOND.0) as usize;
    // The scenario has one VM. Steps count from 1, as targets are multiples of the rise.
    let steps = run.all_seconds(0).chunks_exact(length).zip(1u64..);
    let step = |(seconds, n)| Step {
        vm,
        target: n * STEP_MB_S * 1_000_000,
        seconds,
    };
    steps.map(step).collect()
}

/// All steps of all staircases.
fn steps<'a>(results: &RunResults<'a>) -> Option<Vec<Step<'a>>> {
    let mut all = Vec::new();
    for (vm, top) in STAIRCASES {
        all.extend(steps_of(results.run_for(staircase_key(vm, top))?, vm));
    }
    Some(all)
}

/// Bandwidth of the first and last step of each staircase.
fn figure_10_cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 10", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (vm, top) = STAIRCASES.into_iter().find(|(vm, _)| *vm == labels[0])?;
        let steps = steps_of(results.run_for(staircase_key(vm, top))?, vm);
        match column {
            "first_mb_s" => steps.first().map(Step::mb_s),
            _ => steps.last().map(Step::mb_s),
        }
    }))
}

/// Figure of each step, labelled with the step's name; steps without the figure are left out.
fn step_figures(
    results: &RunResults<'_>,
    figure: impl Fn(&Step<'_>) -> Option<f64>,
) -> Option<Series> {
    let item = |step: &Step<'_>| {
        let label = step.name();
        figure(step).map(|value| Item { label, value })
    };
    Some(steps(results)?.iter().filter_map(item).collect())
}

/// beta of each step in percent, without the last step of mail: its target exceeds the capacity, as
/// [`inadequate_targets`] checks.
pub(super) fn step_betas(results: &RunResults<'_>) -> Option<Series> {
    step_figures(results, |step| {
        let last_of_mail = step.vm == "mail" && step.target == 25_000_000;
        let beta = || beta(&step.bytes(), step.target, STATISTICAL_INTERVAL_S);
        (!last_of_mail).then(beta).flatten()
    })
}

/// V of each step in percent.
pub(super) fn step_vs(results: &RunResults<'_>) -> Option<Series> {
    step_figures(results, |step| v(&step.bytes()))
}

/// Number of steps.
pub(super) fn step_count(results: &RunResults<'_>) -> Option<usize> {
    Some(steps(results)?.len())
}

/// Evaluates the claim that the capacity is reported as inadequate for the last step of mail only.
pub(super) fn inadequate_targets(results: &RunResults<'_>) -> Claims {
    let steps = steps(results).into_iter();
    Ok(steps.map(|steps| inadequate(&steps)).collect())
}

/// Evaluates the time to a new target under the paper's algorithm, and with Tidegate's additions.
pub(super) fn convergences(results: &RunResults<'_>) -> Claims {
    let mut claims: Vec<ClaimResult> = steps(results)
        .map(|steps| convergence(&steps))
        .into_iter()
        .collect();
    // Once, beside the unchanged algorithm; other variants do not compare themselves.
    if results.variant == Ablation::Unchanged
        && !claims.is_empty()
        && let Some(added) = self::steps(&results.varied(Ablation::WithAdditions))
    {
        claims.push(convergence(&added).named(|claim| format!("with what Tidegate adds {claim}")));
    }
    Ok(claims)
}

fn inadequate(steps: &[Step<'_>]) -> ClaimResult {
    let reported: Vec<String> = steps
        .iter()
        .filter(|step| step.is_inadequate())
        .map(|step| format!("{} ({:.1})", step.name(), step.mb_s()))
        .collect();
    ClaimResult::new(
        "only the target of mail at 25 MB/s exceeds the capacity",
        reported.len() == 1 && reported[0].starts_with("mail at 25"),
        if reported.is_empty() {
            "no target is reported as inadequate".to_owned()
        } else {
            format!("reported for {} (MB/s reached)", reported.join(", "))
        },
    )
}

/// Evaluates the time to a new target over all changes that can be followed: without the first
/// step, and without those where the capacity is inadequate.
fn convergence(steps: &[Step<'_>]) -> ClaimResult {
    let changes = steps
        .iter()
        // The first step has no target before it to change from.
        .filter(|step| step.target > STEP_MB_S * 1_000_000);
    let changes = changes.filter(|step| !step.is_inadequate());
    let times: Vec<(Option<usize>, String)> = changes
        .map(|step| (step.convergence_s(), step.name()))
        .collect();
    let in_time = times
        .iter()
        .filter(|(time, _)| time.is_some_and(|time| time <= CONVERGENCE_LIMIT_S))
        .count();
    // A target that was never reached is the slowest of all.
    let slowest = (times.iter()).max_by_key(|(time, _)| time.unwrap_or(usize::MAX));
    let slowest = match slowest {
        Some((Some(time), step)) => format!("; the slowest takes {time} s ({step})"),
        Some((None, step)) => format!("; never reached: {step}"),
        None => String::new(),
    };
    ClaimResult::new(
        format!("a new target is reached within {CONVERGENCE_LIMIT_S} s"),
        in_time == times.len(),
        format!("it is in {in_time} of {} changes{slowest}", times.len()),
    )
}

fn figure_10_plots(results: &RunResults<'_>) -> Vec<Plot> {
    let Some(steps) = steps(results) else {
        return Vec::new();
    };
    let plot = |title: &str, unit: Unit, figure: &dyn Fn(&Step<'_>) -> Option<f64>| {
        let mut plot = Plot::new(
            format!("Figure 10: {title} by the target"),
            Axis::linear("target", Unit::BytesPerS).including(0.0),
            Axis::linear(title, unit).including(0.0),
        );
        for (vm, _) in STAIRCASES {
            let points = steps.iter().filter(|step| step.vm == vm);
            let points = points.filter_map(|step| Some((step.target as f64, figure(step)?)));
            plot.add(Curve::line(vm).points(points));
        }
        plot
    };
    vec![
        plot("bandwidth", Unit::BytesPerS, &|step| {
            Some(step.mb_s() * 1e6)
        }),
        plot("beta", Unit::Percent, &|step| {
            beta(&step.bytes(), step.target, STATISTICAL_INTERVAL_S)
        }),
        plot("V", Unit::Percent, &|step| v(&step.bytes())),
    ]
}
