//! vFair: the experiments of Lu, Saltaformaggio, Kompella, Xu: *vFair: Latency-Aware Fair Storage
//! Scheduling via Per-IO Cost-Based Differentiation* (SoCC 2015).
//!
//! A module for what belongs together: `motivation` is figure 1, `model_error` figure 6 with
//! `saturation` under it, `strategies` figure 8, `fairness` figures 9 and 10 and tables 2 and 3,
//! `varied` figure 11 and table 4, `bursts` figure 12, `applications` figures 13 and 14 and table 5.
//! `hosts` is one host or several in front of the disk, `setup` which runs there are, `run` what comes of one. The folder's README says how the guests
//! and the disks are modelled, and what was calibrated.

mod applications;
mod bursts;
mod calibrate;
mod fairness;
mod hosts;
mod model_error;
mod motivation;
mod run;
mod saturation;
mod setup;
mod strategies;
mod varied;

use crate::said::Said;
use crate::{Cell, ExperimentError, Findings, Paper, Progress, Reference, Wanted, pool};
use hosts::Hosts;
use run::Run;
use setup::{Change, Key, Without};
use std::collections::BTreeMap;
use tidegate_report::Plot;

pub(crate) const PAPER: Paper = Paper {
    name: "vfair",
    title: "vFair: Latency-Aware Fair Storage Scheduling via Per-IO Cost-Based Differentiation",
    tables: &[
        "figure 1",
        "figure 6",
        "figure 8",
        "figure 9",
        "figure 10",
        "2",
        "3",
        "figure 11",
        "4",
        "figure 12",
        "figure 13",
        "5",
        "figure 14",
    ],
    curves: &[
        "figure 6",
        "figure 9",
        "figure 10",
        "figure 11",
        "figure 12",
    ],
    traces: &[],
    reproduce,
    calibrate: Some(calibrate::calibrate),
};

const PAPER_TOML: &str = setup::embedded!("paper.toml");
const SATURATION_TOML: &str = setup::embedded!("scenarios/saturation.toml");

/// The schedulers that the paper compares, as its figures call them.
const SCHEDULERS: [&str; 3] = ["cfq", "mclock_ps", "vfair_baps"];
const BAPS: &str = "vfair_baps";

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
}

/// All of them in the order of the paper, but for figure 6, which has runs of another kind.
const FIGURES: [Figure; 12] = [
    motivation::FIGURE_1,
    strategies::FIGURE_8,
    fairness::FIGURE_9,
    fairness::FIGURE_10,
    fairness::TABLE_2,
    fairness::TABLE_3,
    varied::FIGURE_11,
    varied::TABLE_4,
    bursts::FIGURE_12,
    applications::FIGURE_13,
    applications::TABLE_5,
    applications::FIGURE_14,
];

/// What came of the runs, and what it is set beside.
struct Found<'a> {
    reference: &'a Reference,
    runs: &'a BTreeMap<Key, Run>,
    /// What is left out of vFair's runs.
    without: Without,
}

impl<'a> Found<'a> {
    fn of(&self, key: Key) -> Option<&'a Run> {
        let key = match key.is_vfair() {
            true => key.without(self.without),
            false => key,
        };
        self.runs.get(&key)
    }
}

/// A figure that stands in the text, and ours.
fn single(table: &str, row: &str, column: &str, theirs: f64, ours: Option<f64>) -> Option<Cell> {
    Cell::stated(PAPER.name, [table, row, column], theirs, ours)
}

fn no_plots(_: &Found<'_>) -> Vec<Plot> {
    Vec::new()
}

/// The runs that are wanted, with those of vFair's that show what a claim hangs on.
fn wanted_runs(wanted: &Wanted) -> Vec<Key> {
    let of = |figure: &&Figure| wanted.wants(figure.name);
    let mut keys: Vec<Key> = FIGURES.iter().filter(of).flat_map(|f| (f.keys)()).collect();
    // Figure 11 is many runs, and hangs on what figure 9 hangs on.
    let shown = FIGURES.iter().filter(of).filter(|f| f.name != "figure 11");
    let vfair = shown.flat_map(|f| (f.keys)()).filter(Key::is_vfair);
    // What several hosts hang on is shown for the paper's letter.
    let several = |key: &Key| matches!(key.change, Change::Hosts(hosts) if hosts != Hosts::One);
    let vfair = vfair.filter(|key| !several(key));
    let ablated = vfair.flat_map(|key| Without::ALL.map(|what| key.without(what)));
    keys.extend(ablated.collect::<Vec<_>>());
    keys.sort();
    keys.dedup();
    keys
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(PAPER_TOML)?;
    let keys = wanted_runs(wanted);
    let (mine, six) = (keys.len(), wanted.wants("figure 6"));
    let before = if six { model_error::runs() } else { 0 };
    let figure_6 = match six {
        true => model_error::reproduce(&reference, wanted, &mut |n, of| progress(n, of + mine))?,
        false => Findings::default(),
    };
    let scenarios = keys
        .iter()
        .map(setup::scenario)
        .collect::<Result<Vec<_>, _>>()?;
    let mut told = |n, of| progress(before + n, before + of);
    let runs = pool::each(&scenarios, wanted.jobs, &mut told, |s| Run::of(s.clone()));
    let runs: BTreeMap<Key, Run> = keys.into_iter().zip(runs).collect();
    gather(&reference, &runs, wanted, figure_6)
}

/// Sets what came of the runs beside the paper's figures.
fn gather(
    reference: &Reference,
    runs: &BTreeMap<Key, Run>,
    wanted: &Wanted,
    figure_6: Findings,
) -> Result<Findings, ExperimentError> {
    let found = |without| Found {
        reference,
        runs,
        without,
    };
    let wanted = || FIGURES.iter().filter(|figure| wanted.wants(figure.name));
    let whole = found(Without::Nothing);
    let mut findings = Findings::default();
    let mut six = Some(figure_6);
    for figure in wanted() {
        if figure.name != motivation::FIGURE_1.name
            && let Some(six) = six.take()
        {
            findings.append(six);
        }
        let mut ablated = Vec::new();
        for what in Without::ALL {
            let said = (figure.claims)(&found(what))?;
            ablated.push((what.phrase().to_owned(), said));
        }
        let claims = (figure.claims)(&whole)?.into_iter();
        findings.append(Findings {
            cells: (figure.cells)(&whole)?,
            claims: claims.map(|said| said.hangs_on(&ablated)).collect(),
            plots: (figure.plots)(&whole),
        });
    }
    findings.append(six.unwrap_or_default());
    let mut ablated = Vec::new();
    for what in Without::ALL {
        let mut cells = Vec::new();
        for figure in wanted() {
            cells.extend((figure.cells)(&found(what))?);
        }
        ablated.push((
            what.phrase().to_owned(),
            Said::order_goal(&cells).into_iter().collect(),
        ));
    }
    let goal = Said::order_goal(&findings.cells);
    let goal = goal.map(|said| said.hangs_on(&ablated));
    findings.claims.extend(goal);
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
            let scenario = setup::scenario(&key).expect("a scenario");
            let measured = scenario.devices.iter().all(|disk| disk.profile.is_some());
            assert!(measured || key.case == setup::Case::Motivation, "{key:?}");
        }
    }

    #[test]
    fn every_figure_is_listed_and_every_curve_is_of_one() {
        let mut names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        names.insert(1, "figure 6");
        let mut listed = PAPER.tables.to_vec();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(names, listed);
        assert!(PAPER.curves.iter().all(|curve| listed.contains(curve)));
    }

    /// What is found without a run is nothing, not a panic: that is what one figure alone asks for.
    #[test]
    fn what_was_not_run_is_left_out() {
        let reference = Reference::parse(PAPER_TOML).expect("the paper's");
        let wanted = Wanted::default();
        let none = BTreeMap::new();
        let found = gather(&reference, &none, &wanted, Findings::default()).expect("figures");
        assert_eq!((found.cells.len(), found.claims.len()), (0, 0));
    }
}
