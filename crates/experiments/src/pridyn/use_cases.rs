//! Use cases of section 4.1: table 4.1, figure 4.1 and the claims of the text.

use super::basis::{self, Basis, Kind, experiments};
use super::key::{Case, Change, Key, UseCase};
use super::priorities::was;
use super::run::Run;
use super::{Cells, Figure, RunResults, ordered_cells};
use crate::Sense;
use tidegate_core::transfers::Class;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const TABLE_4_1: Figure = Figure {
    name: "4.1",
    keys: || BOTH.into_iter().flat_map(basis::bounds).collect(),
    cells: latencies,
    ..Figure::BARE
};

pub(super) const SECTION_4_1: Figure = Figure {
    name: "section 4.1",
    keys: sweep_keys,
    cells: latency_reductions,
    ..Figure::BARE
};

pub(super) const FIGURE_4_1: Figure = Figure {
    name: "figure 4.1",
    keys: sweep_keys,
    plots: |results| {
        BOTH.into_iter()
            .filter_map(|which| plot(results, which))
            .collect()
    },
    ..Figure::BARE
};

const BOTH: [UseCase; 2] = [UseCase::One, UseCase::Two];

/// Index of the latency-sensitive application.
const FIRST: usize = 0;

fn name(which: UseCase) -> &'static str {
    match which {
        UseCase::One => "use case 1",
        UseCase::Two => "use case 2",
    }
}

/// Use case of a row such as `use case 1 best`.
fn use_case(row: &str) -> Option<UseCase> {
    BOTH.into_iter().find(|which| row.starts_with(name(*which)))
}

fn key(which: UseCase, experiment: usize) -> Key {
    Key::new(
        Case::UseCase(which),
        "pridyn_3",
        Change::Experiment(experiment),
    )
}

fn sweep_keys() -> Vec<Key> {
    let all = BOTH.into_iter().flat_map(|which| {
        experiments(which)
            .into_iter()
            .map(move |(n, _)| key(which, n))
    });
    all.chain((TABLE_4_1.keys)()).collect()
}

fn latencies(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("4.1", 1)?;
    let columns = ["A_or_read_s", "B_or_write1_s", "write2_s"];
    let ours = |row: &[String], column: &str| {
        let [default, best] = basis::bounds(use_case(&row[0])?);
        let key = if row[0].ends_with("best") {
            best
        } else {
            default
        };
        results
            .run_for(key)?
            .took(columns.iter().position(|of| *of == column)?)
    };
    let ordering = |cell: &crate::Cell| {
        let (case, how) = cell.row.rsplit_once(' ').unwrap_or((&cell.row, ""));
        (format!("{case}, {}", cell.column), how.to_owned())
    };
    Ok(ordered_cells(&table, Sense::Less, ours, ordering))
}

/// Experiment of a use case with its run.
struct ExperimentRun<'a> {
    /// Number of the experiment in the paper.
    number: usize,
    kind: Kind,
    /// Deadline of the first application in seconds.
    deadline_s: f64,
    run: &'a Run,
}

/// Experiments of a use case; `None` if a run is missing.
fn runs<'a>(results: &RunResults<'a>, which: UseCase) -> Option<Vec<ExperimentRun<'a>>> {
    let basis = Basis::from_runs(results.runs);
    let all = experiments(which).into_iter().map(|(number, kind)| {
        Some(ExperimentRun {
            number,
            kind,
            deadline_s: basis.deadline(which, number)?.as_secs_f64(),
            run: results.run_for(key(which, number))?,
        })
    });
    all.collect()
}

/// Mean reduction of the first application's latency in experiments with tight deadlines, in
/// percent of the default.
fn latency_reduction_percent(results: &RunResults<'_>, which: UseCase) -> Option<f64> {
    let default = Basis::from_runs(results.runs).bounds(which)?.default;
    let runs = runs(results, which)?;
    let tight = runs.iter().filter(|of| of.kind == Kind::Tight);
    let latencies: Option<Vec<f64>> = tight.map(|of| of.run.took(FIRST)).collect();
    let latencies = latencies?;
    // At least 1: without tight experiments the mean is 0 rather than NaN.
    let mean = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
    Some(100.0 * (1.0 - mean / default))
}

fn latency_reductions(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("section 4.1", 1)?;
    let ours = |row: &[String], _: &str| latency_reduction_percent(results, use_case(&row[0])?);
    let ordering = |cell: &crate::Cell| ("cut of latency".to_owned(), cell.row.clone());
    Ok(ordered_cells(&table, Sense::More, ours, ordering))
}

/// Experiments of a use case with deadlines of a kind: `easy`, `tight` or `impossible`.
fn of_kind<'a>(results: &RunResults<'a>, case: &str, kind: &str) -> Option<Vec<ExperimentRun<'a>>> {
    let kind = match kind {
        "easy" => Kind::Easy,
        "tight" => Kind::Tight,
        // The measures refuse any fourth word.
        _ => Kind::Impossible,
    };
    let runs = runs(results, use_case(case)?)?.into_iter();
    Some(runs.filter(|of| of.kind == kind).collect())
}

/// Time of the first application in each experiment of a kind, in seconds.
pub(super) fn latency(results: &RunResults<'_>, case: &str, kind: &str) -> Option<Vec<f64>> {
    let runs = of_kind(results, case, kind)?.into_iter();
    runs.map(|of| of.run.took(FIRST)).collect()
}

/// Deadlines of the first application in experiments of a kind, in seconds.
pub(super) fn deadlines(results: &RunResults<'_>, case: &str, kind: &str) -> Option<Vec<f64>> {
    let runs = of_kind(results, case, kind)?.into_iter();
    Some(runs.map(|of| of.deadline_s).collect())
}

/// Flag for each experiment of a kind: 1 if a VM had a class other than the default.
pub(super) fn class_changed(results: &RunResults<'_>, case: &str, kind: &str) -> Option<Vec<f64>> {
    let runs = of_kind(results, case, kind)?.into_iter();
    let changed = |ExperimentRun { run, .. }: ExperimentRun<'_>| {
        let mut seconds = (0..run.vms().len()).flat_map(|vm| run.seconds(vm));
        let other = |class: Option<Class>| class.is_some_and(|class| class != Class::BestEffort);
        f64::from(u8::from(seconds.any(|second| other(second.class))))
    };
    Some(runs.map(changed).collect())
}

/// Flag for each experiment of a kind: 1 if the first application had the lowest class.
pub(super) fn was_lowest(results: &RunResults<'_>, case: &str, kind: &str) -> Option<Vec<f64>> {
    let runs = of_kind(results, case, kind)?.into_iter();
    let flag = |of: ExperimentRun<'_>| f64::from(u8::from(was(of.run, FIRST, Class::Idle)));
    Some(runs.map(flag).collect())
}

/// Largest slowdown of another application in experiments of a kind, as a fraction of its default
/// time.
pub(super) fn largest_slowdown(results: &RunResults<'_>, case: &str, kind: &str) -> Option<f64> {
    let default = results.run_for(basis::bounds(use_case(case)?)[0])?;
    // Below any slowdown, for a use case without another application.
    let mut most = f64::MIN;
    for ExperimentRun { run, .. } in of_kind(results, case, kind)? {
        // From the second application on: the first is the one with the deadline.
        for vm in 1..run.vms().len() {
            most = most.max(run.took(vm)? / default.took(vm)? - 1.0);
        }
    }
    Some(most)
}

fn plot(results: &RunResults<'_>, which: UseCase) -> Option<Plot> {
    let runs = runs(results, which)?;
    let part = if which == UseCase::One { "a" } else { "b" };
    let mut plot = Plot::new(
        format!("Figure 4.1{part}: {}, by the first's deadline", name(which)),
        Axis::linear("experiment", Unit::Number),
        Axis::linear("latency", Unit::Seconds).including(0.0),
    );
    let deadlines = runs.iter().map(|of| (of.number as f64, of.deadline_s));
    plot.add(Series::line("deadline").points(deadlines));
    for (vm, application) in runs.first()?.run.vms().iter().enumerate() {
        let took: Option<Vec<(f64, f64)>> = (runs.iter())
            .map(|of| Some((of.number as f64, of.run.took(vm)?)))
            .collect();
        plot.add(Series::line(application.name.as_str()).points(took?));
    }
    Some(plot)
}
