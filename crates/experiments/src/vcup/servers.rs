//! Section 5.3: servers of four kinds, each alone with a rising target (figure 10), and together
//! (table IV).

use super::keys::consolidated;
use super::run::{Run, SI, Second, beta, mean, v};
use super::setup::{Ablation, Case, Change, Key, STEP};
use super::{Cells, Claims, Figure, PAPER, RunResults};
use crate::claim::{Item, Series};
use crate::claim_result::ClaimResult;
use tidegate_core::time::Nanos;
use tidegate_report::{Axis, Plot, Series as Curve, Unit};

pub(super) const FIGURE_10: Figure = Figure {
    name: "figure 10",
    keys: || STAIRS.map(|(vm, top)| stairs(vm, top)).to_vec(),
    cells: ends,
    plots: staircases,
    ..Figure::BARE
};

pub(super) const TABLE_4: Figure = Figure {
    name: "4",
    keys: || ["fq", "vcup"].map(together).to_vec(),
    cells: table_4,
    ..Figure::BARE
};

/// Servers with a rising target, and its last value in MB/s; steps are 5 MB/s.
const STAIRS: [(&str, u64); 4] = [("web", 45), ("mail", 25), ("file", 50), ("video", 50)];
/// Seconds at the begin of a step that do not count.
const SETTLING: usize = 30;
/// Time within which a new target is to be reached, in seconds: the begin of [`FIVE`] seconds whose
/// mean deviates by at most [`NEAR`].
const SOON: usize = 10;
const FIVE: usize = 5;
const NEAR: f64 = 0.05;

fn stairs(vm: &'static str, top: u64) -> Key {
    Key::new(Case::Servers, "vcup").with(Change::Staircase { vm, top })
}

fn together(scheduler: &'static str) -> Key {
    Key::new(Case::Servers, scheduler)
}

fn table_4(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("4", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (fq, vcup) = (results.of(together("fq"))?, results.of(together("vcup"))?);
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
        let later = &self.seconds[SETTLING.min(self.seconds.len())..];
        later.iter().map(|second| second.bytes).collect()
    }

    fn mb_s(&self) -> f64 {
        mean(&self.seconds[SETTLING.min(self.seconds.len())..], |s| {
            s.bytes
        }) / 1e6
    }

    /// Seconds until the begin of the first five whose mean is near the target.
    fn reached(&self) -> Option<usize> {
        let near =
            |five: &[Second]| (mean(five, |s| s.bytes) / self.target as f64 - 1.0).abs() <= NEAR;
        self.seconds.windows(FIVE).position(near)
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
    let steps = run.all_seconds(0).chunks_exact(length).zip(1u64..);
    let step = |(seconds, n)| Step {
        vm,
        target: n * 5_000_000,
        seconds,
    };
    steps.map(step).collect()
}

/// All steps of all staircases.
fn steps<'a>(results: &RunResults<'a>) -> Option<Vec<Step<'a>>> {
    let mut all = Vec::new();
    for (vm, top) in STAIRS {
        all.extend(steps_of(results.of(stairs(vm, top))?, vm));
    }
    Some(all)
}

fn ends(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 10", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (vm, top) = STAIRS.into_iter().find(|(vm, _)| *vm == labels[0])?;
        let steps = steps_of(results.of(stairs(vm, top))?, vm);
        match column {
            "first_mb_s" => steps.first().map(Step::mb_s),
            _ => steps.last().map(Step::mb_s),
        }
    }))
}

/// Figure of each step, labelled with the step's name; steps without the figure are left out.
fn of_steps(results: &RunResults<'_>, of: impl Fn(&Step<'_>) -> Option<f64>) -> Option<Series> {
    let item = |step: &Step<'_>| {
        let label = step.name();
        of(step).map(|value| Item { label, value })
    };
    Some(steps(results)?.iter().filter_map(item).collect())
}

/// beta of each step in percent, without the last step of mail.
pub(super) fn step_betas(results: &RunResults<'_>) -> Option<Series> {
    of_steps(results, |step| {
        let last_of_mail = step.vm == "mail" && step.target == 25_000_000;
        let beta = || beta(&step.bytes(), step.target, SI);
        (!last_of_mail).then(beta).flatten()
    })
}

/// V of each step in percent.
pub(super) fn step_vs(results: &RunResults<'_>) -> Option<Series> {
    of_steps(results, |step| v(&step.bytes()))
}

/// Number of steps.
pub(super) fn step_count(results: &RunResults<'_>) -> Option<usize> {
    Some(steps(results)?.len())
}

/// Evaluates the claim that only the last step of mail is reported as inadequate.
pub(super) fn beyond(results: &RunResults<'_>) -> Claims {
    let steps = steps(results).into_iter();
    Ok(steps.map(|steps| inadequate(&steps)).collect())
}

/// Evaluates the time to a new target, by the paper's letter and with Tidegate's additions.
pub(super) fn convergences(results: &RunResults<'_>) -> Claims {
    let mut claims: Vec<ClaimResult> = steps(results)
        .map(|steps| convergence(&steps))
        .into_iter()
        .collect();
    if results.variant == Ablation::Nothing
        && !claims.is_empty()
        && let Some(added) = self::steps(&results.varied(Ablation::Letter))
    {
        claims.push(convergence(&added).named(|claim| format!("with what Tidegate adds {claim}")));
    }
    Ok(claims)
}

fn inadequate(steps: &[Step<'_>]) -> ClaimResult {
    let told: Vec<String> = steps
        .iter()
        .filter(|step| step.is_inadequate())
        .map(|step| format!("{} ({:.1})", step.name(), step.mb_s()))
        .collect();
    ClaimResult::new(
        "mail at 25 MB/s is beyond what can be had, and nothing else is",
        told.len() == 1 && told[0].starts_with("mail at 25"),
        if told.is_empty() {
            "no capacity is told to be inadequate".to_owned()
        } else {
            format!("told of {}", told.join(", "))
        },
    )
}

/// Evaluates the time to a new target over all changes that can be followed: without the first
/// step, and without those where the capacity is inadequate.
fn convergence(steps: &[Step<'_>]) -> ClaimResult {
    let changes = steps.iter().filter(|step| step.target > 5_000_000);
    let changes = changes.filter(|step| !step.is_inadequate());
    let times: Vec<(Option<usize>, String)> =
        changes.map(|step| (step.reached(), step.name())).collect();
    let soon = times
        .iter()
        .filter(|(at, _)| at.is_some_and(|at| at <= SOON));
    let soon = soon.count();
    let slowest = times.iter().max_by_key(|(at, _)| at.unwrap_or(usize::MAX));
    let slowest = match slowest {
        Some((Some(at), who)) => format!("; the slowest takes {at} s ({who})"),
        Some((None, who)) => format!("; never by {who}"),
        None => String::new(),
    };
    ClaimResult::new(
        format!("a new target is reached within {SOON} s"),
        soon == times.len(),
        format!("it is in {soon} of {} changes{slowest}", times.len()),
    )
}

fn staircases(results: &RunResults<'_>) -> Vec<Plot> {
    let Some(steps) = steps(results) else {
        return Vec::new();
    };
    let plot = |title: &str, unit: Unit, of: &dyn Fn(&Step<'_>) -> Option<f64>| {
        let mut plot = Plot::new(
            format!("Figure 10: {title} by the target"),
            Axis::linear("target", Unit::BytesPerS).including(0.0),
            Axis::linear(title, unit).including(0.0),
        );
        for (vm, _) in STAIRS {
            let points = steps.iter().filter(|step| step.vm == vm);
            let points = points.filter_map(|step| Some((step.target as f64, of(step)?)));
            plot.add(Curve::line(vm).points(points));
        }
        plot
    };
    vec![
        plot("bandwidth", Unit::BytesPerS, &|step| {
            Some(step.mb_s() * 1e6)
        }),
        plot("beta", Unit::Percent, &|step| {
            beta(&step.bytes(), step.target, SI)
        }),
        plot("V", Unit::Percent, &|step| v(&step.bytes())),
    ]
}
