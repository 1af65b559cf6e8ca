//! PriDyn: the experiments of Jain: *Performance Specific I/O Scheduling Framework for Cloud
//! Storage* (thesis, 2015), chapters 1, 3, 4 and section 5.1.
//!
//! Modules by subject: `tenancy` is figures 1.2 to 1.5 and 4.4, `priorities` figure 3.4,
//! `use_cases` table 4.1, section 4.1 and figure 4.1, `streams` figures 4.5 to 4.7, `third` figures
//! 5.2 to 5.4. `setup` defines the runs, `basis` has results that other runs depend on, `run` the
//! results of a run. The folder's README documents the model of the testbed and its calibration.

pub(crate) mod basis;
mod calibrate;
pub(crate) mod folder;
pub(crate) mod key;
mod measures;
mod priorities;
mod run;
pub(crate) mod setup;
mod streams;
mod tenancy;
mod third;
mod use_cases;

use crate::claim::Measure;
use crate::fitted::{Calibration, Group};
use crate::frame::{self, Cells, Claims, Code, Experiment, Runs};
use crate::ordering::with_orderings;
use crate::{Cell, ExperimentError, Paper, ReferenceTable, Sense, folder as files};
use basis::Basis;
use folder::Folder;
use key::{Key, Reading};
use run::Run;
use tidegate_sim::scenario::Scenario;

pub(crate) const PAPER: Paper = Paper {
    name: "pridyn",
    title: "PriDyn: Performance Specific I/O Scheduling Framework for Cloud Storage",
    tables: &frame::names(&FIGURES),
    plots: &[
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
    reproduce: |wanted, progress| {
        let folder = Folder {
            traces: wanted.traces.clone(),
            ..Folder::default()
        };
        frame::reproduce(&Pridyn { folder }, wanted, progress)
    },
    calibration: Some(Calibration {
        fit: calibrate::calibrate,
        text: files::embedded!("pridyn", "calibration.toml"),
        reference: PAPER_TOML,
        groups: || {
            let bulk = ["outer_rate", "io_size", "bulk.*"];
            vec![
                Group::new(&bulk, &["figure 1.2*", "table 4.1*"]),
                Group::new(&["streams.*"], &["figure 4.4*"]),
            ]
        },
    }),
};

const PAPER_TOML: &str = files::embedded!("pridyn", "paper.toml");

type Figure = frame::Figure<Pridyn>;
type RunResults<'a> = frame::RunResults<'a, Pridyn>;

/// Tables and figures in the order of the thesis.
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

/// Cells of a table, each compared with those of the same subject.
fn ordered_cells(
    table: &ReferenceTable,
    sense: Sense,
    ours: impl FnMut(&[String], &str) -> Option<f64>,
    ordering: impl Fn(&Cell) -> (String, String),
) -> Vec<Cell> {
    with_orderings(table.cells(PAPER.name, ours), |cell| {
        let (about, who) = ordering(cell);
        Some((about, who, sense))
    })
}

/// Experiments of the thesis.
struct Pridyn {
    folder: Folder,
}

impl Experiment for Pridyn {
    type Key = Key;
    type Run = Run;
    type Variant = Reading;

    const REFERENCE: &'static str = PAPER_TOML;
    const FIGURES: &'static [Figure] = &FIGURES;
    const CLAIMS: &'static str = files::embedded!("pridyn", "claims.toml");
    const MEASURES: &'static [&'static [Measure<Pridyn>]] = &[measures::MEASURES];
    const CODE: &'static [(&'static str, Code<Pridyn>)] = measures::CODE;

    fn varied(key: Key, reading: Reading) -> Option<Key> {
        Some(key.read(reading))
    }

    fn before(key: &Key) -> Vec<Key> {
        basis::before(key)
    }

    fn scenario(&self, key: &Key, before: &Runs<Pridyn>) -> Result<Scenario, ExperimentError> {
        setup::scenario(key, &self.folder, &Basis::from_runs(before))
    }

    fn run(scenario: Scenario) -> Run {
        Run::simulate(scenario)
    }
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
    fn it_is_sound() {
        frame::tests::is_sound::<Pridyn>(100, |key| {
            setup::scenario(key, &Folder::default(), &made_up())
        });
    }

    #[test]
    fn what_others_follow_from_follows_from_nothing() {
        let before = frame::keys::<Pridyn>(&crate::Wanted::default());
        let mut before = before.iter().flat_map(basis::before);
        assert!(before.all(|key| basis::before(&key).is_empty()));
    }

    /// The thesis' steps to the letter lower, raise and give up a reader that nothing helps, again
    /// and again.
    #[test]
    fn no_class_swings_where_a_deadline_cannot_be_met_but_as_printed() {
        let ours = priorities::impossible();
        let printed = ours.read(Reading::Literal);
        let keys = [&[ours, printed][..], &basis::before(&ours)].concat();
        let folder = Folder::default();
        let runs = frame::run_all(&Pridyn { folder }, &keys, 2, &mut |_, _| {}).expect("runs");
        let most = |key: &Key| {
            let run = &runs[key];
            let turns = (0..run.vms().len()).map(|vm| run.turns(vm));
            turns.max().expect("somebody")
        };
        assert!(most(&ours) <= priorities::TURNS, "{}", most(&ours));
        assert!(most(&printed) > priorities::TURNS, "{}", most(&printed));
    }
}
