//! PriDyn: the experiments of Jain: *Performance Specific I/O Scheduling Framework for Cloud Storage* (thesis, 2015),
//! chapters 1, 3, 4 and section 5.1.
//!
//! A module for what belongs together: `tenancy` is figures 1.2 to 1.5 and 4.4, `priorities` figure 3.4, `use_cases` table
//! 4.1, section 4.1 and figure 4.1, `streams` figures 4.5 to 4.7, `third` figures 5.2 to 5.4. `setup` says which runs there
//! are, `basis` what some of them follow from, `run` what comes of one. The folder's README says how the testbed is
//! modelled, and what was calibrated.

mod basis;
mod calibrate;
mod folder;
mod priorities;
mod run;
mod setup;
mod streams;
mod tenancy;
mod third;
mod use_cases;

use crate::said::Said;
use crate::{
    Cell, Contest, ExperimentError, Findings, Paper, Progress, Reference, Sense, Wanted, pool,
};
use basis::Basis;
use folder::Folder;
use run::{Run, Runs};
use setup::{Key, Reading};
use tidegate_report::Plot;

pub(crate) const PAPER: Paper = Paper {
    name: "pridyn",
    title: "PriDyn: Performance Specific I/O Scheduling Framework for Cloud Storage",
    tables: &[
        "figure 1.2",
        "figure 1.3",
        "figure 1.4",
        "figure 1.5",
        "figure 3.4",
        "4.1",
        "section 4.1",
        "figure 4.1",
        "figure 4.4",
        "figure 4.5",
        "figure 4.6",
        "figure 4.7",
        "figure 5.2",
        "figure 5.3",
        "figure 5.4",
    ],
    curves: &[
        "figure 1.2",
        "figure 1.3",
        "figure 3.4",
        "figure 4.1",
        "figure 4.5",
        "figure 4.6",
        "figure 4.7",
        "figure 5.2",
        "figure 5.3",
    ],
    traces: folder::TRACES,
    reproduce,
    calibrate: Some(calibrate::calibrate),
};

const PAPER_TOML: &str = setup::embedded!("paper.toml");

type Cells = Result<Vec<Cell>, ExperimentError>;
type Claims = Result<Vec<Said>, ExperimentError>;

/// One of the thesis' tables or figures.
struct Figure {
    name: &'static str,
    /// The runs that it is made of.
    keys: fn() -> Vec<Key>,
    cells: fn(&Found<'_>) -> Cells,
    claims: fn(&Found<'_>) -> Claims,
    plots: fn(&Found<'_>) -> Vec<Plot>,
}

/// All of them in the order of the thesis.
const FIGURES: [Figure; 15] = [
    tenancy::FIGURE_1_2,
    tenancy::FIGURE_1_3,
    tenancy::FIGURE_1_4,
    tenancy::FIGURE_1_5,
    priorities::FIGURE_3_4,
    use_cases::TABLE_4_1,
    use_cases::SECTION_4_1,
    use_cases::FIGURE_4_1,
    tenancy::FIGURE_4_4,
    streams::FIGURE_4_5,
    streams::FIGURE_4_6,
    streams::FIGURE_4_7,
    third::FIGURE_5_2,
    third::FIGURE_5_3,
    third::FIGURE_5_4,
];

/// What came of the runs, and what it is set beside.
struct Found<'a> {
    reference: &'a Reference,
    runs: &'a Runs,
    basis: &'a Basis,
    reading: Reading,
}

impl<'a> Found<'a> {
    fn of(&self, key: Key) -> Option<&'a Run> {
        self.runs.get(&key.read(self.reading))
    }

    /// The same runs, read otherwise.
    fn read(&self, reading: Reading) -> Found<'a> {
        Found { reading, ..*self }
    }
}

fn no_cells(_: &Found<'_>) -> Cells {
    Ok(Vec::new())
}

fn no_claims(_: &Found<'_>) -> Claims {
    Ok(Vec::new())
}

fn no_plots(_: &Found<'_>) -> Vec<Plot> {
    Vec::new()
}

/// The figures of a table, each of which competes with those that share `about`.
fn contested(
    table: &crate::ReferenceTable,
    sense: Sense,
    ours: impl FnMut(&[String], &str) -> Option<f64>,
    contest: impl Fn(&Cell) -> (String, String),
) -> Vec<Cell> {
    let mut cells = table.cells(PAPER.name, ours);
    for cell in &mut cells {
        let (about, who) = contest(cell);
        cell.contest = Some(Contest { about, who, sense });
    }
    cells
}

/// The runs that are wanted, read in every way.
fn wanted_runs(wanted: &Wanted) -> Vec<Key> {
    let figures = FIGURES.iter().filter(|figure| wanted.wants(figure.name));
    let ours: Vec<Key> = figures.flat_map(|figure| (figure.keys)()).collect();
    let others = Reading::OTHERS.into_iter();
    let others = others.flat_map(|reading| ours.iter().map(move |key| key.read(reading)));
    let mut keys: Vec<Key> = others.chain(ours.iter().copied()).collect();
    let before: Vec<Key> = keys.iter().flat_map(basis::before).collect();
    keys.extend(before);
    keys.sort();
    keys.dedup();
    keys
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(PAPER_TOML)?;
    let folder = Folder {
        traces: wanted.traces.clone(),
        ..Folder::default()
    };
    let (runs, basis) = run_all(&wanted_runs(wanted), &folder, wanted.jobs, progress)?;
    gather(&reference, &runs, &basis, wanted)
}

/// Runs what follows from the files alone, then what follows from that.
fn run_all(
    keys: &[Key],
    folder: &Folder,
    jobs: usize,
    progress: Progress<'_>,
) -> Result<(Runs, Basis), ExperimentError> {
    let (later, first): (Vec<Key>, Vec<Key>) = keys
        .iter()
        .copied()
        .partition(|key| !basis::before(key).is_empty());
    let mut runs = Runs::new();
    let mut basis = Basis::default();
    let mut before = 0;
    for part in [first, later] {
        let scenarios = part.iter().map(|key| setup::scenario(key, folder, &basis));
        let scenarios = scenarios.collect::<Result<Vec<_>, _>>()?;
        let mut hear = |done: usize, _: usize| progress(before + done, keys.len());
        let done = pool::each(&scenarios, jobs, &mut hear, |s| Run::of(s.clone()));
        before += part.len();
        runs.extend(part.into_iter().zip(done));
        basis = Basis::of(&runs);
    }
    Ok((runs, basis))
}

/// Sets what came of the runs beside the thesis' figures.
fn gather(
    reference: &Reference,
    runs: &Runs,
    basis: &Basis,
    wanted: &Wanted,
) -> Result<Findings, ExperimentError> {
    let ours = Found {
        reference,
        runs,
        basis,
        reading: Reading::Ours,
    };
    let mut findings = Findings::default();
    let mut orders: Vec<(Reading, Vec<Cell>)> = Vec::new();
    for figure in FIGURES.iter().filter(|figure| wanted.wants(figure.name)) {
        let mut others = Vec::new();
        for reading in Reading::OTHERS {
            let found = ours.read(reading);
            others.push((reading.phrase().to_owned(), (figure.claims)(&found)?));
            match orders.iter_mut().find(|(of, _)| *of == reading) {
                Some((_, cells)) => cells.extend((figure.cells)(&found)?),
                None => orders.push((reading, (figure.cells)(&found)?)),
            }
        }
        let claims = (figure.claims)(&ours)?.into_iter();
        findings.append(Findings {
            cells: (figure.cells)(&ours)?,
            claims: claims.map(|said| said.hangs_on(&others)).collect(),
            plots: (figure.plots)(&ours),
        });
    }
    let orders: Vec<(String, Vec<Said>)> = orders
        .iter()
        .map(|(reading, cells)| {
            let said = Said::order_goal(cells).into_iter().collect();
            (reading.phrase().to_owned(), said)
        })
        .collect();
    let order = Said::order_goal(&findings.cells);
    findings
        .claims
        .extend(order.map(|said| said.hangs_on(&orders)));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use basis::{Bounds, Capacity};

    fn made_up() -> Basis {
        let bounds = Some(Bounds {
            default: 90.0,
            best: 60.0,
        });
        let capacity = Some(Capacity {
            alone: 54_000_000,
            two: 37_000_000,
        });
        Basis {
            one: bounds,
            two: bounds,
            web: capacity,
            media: capacity,
        }
    }

    #[test]
    fn every_run_can_be_made() {
        let keys = wanted_runs(&Wanted::default());
        assert!(keys.len() > 100, "{}", keys.len());
        for key in keys {
            setup::scenario(&key, &Folder::default(), &made_up()).expect("a scenario");
        }
    }

    #[test]
    fn what_others_follow_from_follows_from_nothing() {
        let before = wanted_runs(&Wanted::default());
        let mut before = before.iter().flat_map(basis::before);
        assert!(before.all(|key| basis::before(&key).is_empty()));
    }

    #[test]
    fn every_figure_is_listed_and_every_curve_is_of_one() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names, PAPER.tables);
        assert!(PAPER.curves.iter().all(|curve| names.contains(curve)));
    }

    /// The thesis' steps to the letter lower, raise and give up a reader that nothing helps, again and again.
    #[test]
    fn no_class_swings_where_a_deadline_cannot_be_met_but_as_printed() {
        let ours = priorities::impossible();
        let printed = ours.read(Reading::Literal);
        let keys = [&[ours, printed][..], &basis::before(&ours)].concat();
        let (runs, _) = run_all(&keys, &Folder::default(), 2, &mut |_, _| {}).expect("runs");
        let most = |key: &Key| {
            let run = &runs[key];
            let turns = (0..run.vms().len()).map(|vm| run.turns(vm));
            turns.max().expect("somebody")
        };
        assert!(most(&ours) <= priorities::TURNS, "{}", most(&ours));
        assert!(most(&printed) > priorities::TURNS, "{}", most(&printed));
    }

    /// What is found without a run is nothing, not a panic: that is what one figure alone asks for.
    #[test]
    fn what_was_not_run_is_left_out() {
        let reference = Reference::parse(PAPER_TOML).expect("the thesis'");
        let wanted = Wanted::default();
        let found = gather(&reference, &Runs::new(), &Basis::default(), &wanted);
        let found = found.expect("figures");
        assert_eq!((found.cells.len(), found.claims.len()), (0, 0));
    }
}
