//! V-Cup: the experiments of Li, Jiang, Feng, Shi: *Customizable SLO and Its Near-Precise Enforcement for Storage
//! Bandwidth* (ToS 2017).
//!
//! A module for what belongs together: `merging` is figure 3, `windows` figures 6 and 7, `drift` figure 8, `keys` table 2
//! and figure 9, `servers` figure 10 and table 4, `capacity` figure 11 and tables 5 and 6, `floors` figures 12 and 13 and
//! table 7, `throughput` figure 14. `setup` says which runs there are, `run` what comes of one, `goals` what is asked
//! of every table of beta and V. The folder's README says how guests and arrays are modelled, and what was calibrated.

mod calibrate;
mod capacity;
mod drift;
mod floors;
mod goals;
mod keys;
mod merging;
mod run;
mod servers;
mod setup;
mod throughput;
mod windows;

use crate::said::Said;
use crate::{Cell, ExperimentError, Findings, Paper, Progress, Reference, Wanted, pool};
use run::{Run, Runs};
use setup::{Key, Without};
use tidegate_report::Plot;

pub(crate) const PAPER: Paper = Paper {
    name: "vcup",
    title: "V-Cup: Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth",
    tables: &[
        "figure 3",
        "figure 6",
        "figure 7",
        "figure 8",
        "2",
        "figure 9",
        "figure 10",
        "4",
        "figure 11",
        "5",
        "6",
        "figure 12",
        "figure 13",
        "7",
        "figure 14",
    ],
    curves: &[
        "figure 3",
        "figure 6",
        "figure 7",
        "figure 8",
        "figure 9",
        "figure 10",
        "figure 13",
        "figure 14",
    ],
    traces: &[],
    reproduce,
    calibrate: Some(calibrate::calibrate),
};

const PAPER_TOML: &str = setup::embedded!("paper.toml");

type Cells = Result<Vec<Cell>, ExperimentError>;
type Claims = Result<Vec<Said>, ExperimentError>;

/// One of the paper's tables or figures.
struct Figure {
    name: &'static str,
    /// The runs that it is made of.
    keys: fn() -> Vec<Key>,
    cells: fn(&Found<'_>) -> Cells,
    claims: fn(&Found<'_>) -> Claims,
    plots: fn(&Found<'_>) -> Vec<Plot>,
    /// Whether it is shown what its claims hang on.
    ablated: bool,
}

/// All of them in the order of the paper.
const FIGURES: [Figure; 15] = [
    merging::FIGURE_3,
    windows::FIGURE_6,
    windows::FIGURE_7,
    drift::FIGURE_8,
    keys::TABLE_2,
    keys::FIGURE_9,
    servers::FIGURE_10,
    servers::TABLE_4,
    capacity::FIGURE_11,
    capacity::TABLE_5,
    capacity::TABLE_6,
    floors::FIGURE_12,
    floors::FIGURE_13,
    floors::TABLE_7,
    throughput::FIGURE_14,
];

/// What came of the runs, and what it is set beside.
struct Found<'a> {
    reference: &'a Reference,
    runs: &'a Runs,
    /// What is left out.
    without: Without,
}

impl<'a> Found<'a> {
    fn of(&self, key: Key) -> Option<&'a Run> {
        self.runs.get(&key.without(self.without))
    }

    /// The same runs with something left out.
    fn without(&self, without: Without) -> Found<'a> {
        Found {
            reference: self.reference,
            runs: self.runs,
            without,
        }
    }

    fn is_whole(&self) -> bool {
        self.without == Without::Nothing
    }
}

fn no_cells(_: &Found<'_>) -> Cells {
    Ok(Vec::new())
}

fn no_plots(_: &Found<'_>) -> Vec<Plot> {
    Vec::new()
}

/// The runs that are wanted, with those that show what a claim hangs on.
fn wanted_runs(wanted: &Wanted) -> Vec<Key> {
    let mut keys = Vec::new();
    for figure in FIGURES.iter().filter(|figure| wanted.wants(figure.name)) {
        let all = (figure.keys)();
        if figure.ablated {
            let ablated = all
                .iter()
                .flat_map(|key| Without::ALL.map(|what| key.without(what)));
            keys.extend(ablated);
        }
        keys.extend(all);
    }
    keys.sort();
    keys.dedup();
    keys
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(PAPER_TOML)?;
    let runs = run_all(wanted_runs(wanted), wanted.jobs, progress)?;
    gather(&reference, &runs, wanted)
}

/// Runs them, the longest first, so that no core waits for one of them at the end.
fn run_all(keys: Vec<Key>, jobs: usize, progress: Progress<'_>) -> Result<Runs, ExperimentError> {
    let scenarios = keys.iter().map(setup::scenario);
    let scenarios = scenarios.collect::<Result<Vec<_>, _>>()?;
    let mut all: Vec<_> = keys.into_iter().zip(scenarios).collect();
    all.sort_by_key(|(_, s)| std::cmp::Reverse(s.duration.0 * s.tenants.len() as u64));
    let done = pool::each(&all, jobs, progress, |(_, s)| Run::of(s.clone()));
    Ok(all.into_iter().map(|(key, _)| key).zip(done).collect())
}

/// Sets what came of the runs beside the paper's figures.
fn gather(
    reference: &Reference,
    runs: &Runs,
    wanted: &Wanted,
) -> Result<Findings, ExperimentError> {
    let whole = Found {
        reference,
        runs,
        without: Without::Nothing,
    };
    let mut findings = Findings::default();
    for figure in FIGURES.iter().filter(|figure| wanted.wants(figure.name)) {
        let mut ablated = Vec::new();
        for what in Without::ALL.into_iter().filter(|_| figure.ablated) {
            let said = (figure.claims)(&whole.without(what))?;
            ablated.push((what.phrase().to_owned(), said));
        }
        let claims = (figure.claims)(&whole)?.into_iter();
        findings.append(Findings {
            cells: (figure.cells)(&whole)?,
            claims: claims.map(|said| said.hangs_on(&ablated)).collect(),
            plots: (figure.plots)(&whole),
        });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_can_be_made() {
        let keys = wanted_runs(&Wanted::default());
        assert!(keys.len() > 100, "{}", keys.len());
        for key in keys {
            setup::scenario(&key).expect("a scenario");
        }
    }

    #[test]
    fn every_figure_is_listed_and_every_curve_is_of_one() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names, PAPER.tables);
        assert!(PAPER.curves.iter().all(|curve| names.contains(curve)));
    }

    /// What is found without a run is nothing, not a panic: that is what one figure alone asks for.
    #[test]
    fn what_was_not_run_is_left_out() {
        let reference = Reference::parse(PAPER_TOML).expect("the paper's");
        let found = gather(&reference, &Runs::new(), &Wanted::default()).expect("figures");
        assert_eq!((found.cells.len(), found.claims.len()), (0, 0));
    }
}
