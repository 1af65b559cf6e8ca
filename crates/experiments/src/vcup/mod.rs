//! V-Cup: the experiments of Li, Jiang, Feng, Shi: *Customizable SLO and Its Near-Precise
//! Enforcement for Storage Bandwidth* (ToS 2017).
//!
//! Modules by subject: `merging` is figure 3, `windows` figures 6 and 7, `drift` figure 8, `keys`
//! table 2 and figure 9, `servers` figure 10 and table 4, `capacity` figure 11 and tables 5 and 6,
//! `floors` figures 12 and 13 and table 7, `throughput` figure 14. `setup` defines the runs, `run`
//! their results. The folder's README documents the models of guests and arrays and their
//! calibration.

mod calibrate;
mod capacity;
mod drift;
mod floors;
mod keys;
mod measures;
mod merging;
mod run;
mod servers;
mod setup;
mod throughput;
mod windows;

use crate::claim::Measure;
use crate::fitted::{Calibration, Group};
use crate::frame::{self, Cells, Claims, Code, Experiment, Runs};
use crate::{ExperimentError, Paper, folder};
use run::Run;
use setup::{Ablation, Key};
use tidegate_sim::scenario::Scenario;

pub(crate) const PAPER: Paper = Paper {
    name: "vcup",
    title: "V-Cup: Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth",
    tables: &frame::names(&FIGURES),
    plots: &[
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
    reproduce: |wanted, progress| frame::reproduce(&Vcup, wanted, progress),
    calibration: Some(Calibration {
        fit: calibrate::calibrate,
        text: folder::embedded!("vcup", "calibration.toml"),
        reference: PAPER_TOML,
        groups: || vec![Group::new(&["array.*"], &["figure 11*"])],
    }),
};

const PAPER_TOML: &str = folder::embedded!("vcup", "paper.toml");

type Figure = frame::Figure<Vcup>;
type RunResults<'a> = frame::RunResults<'a, Vcup>;

/// Tables and figures in the order of the paper.
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

/// Experiments of the paper.
struct Vcup;

impl Experiment for Vcup {
    type Key = Key;
    type Run = Run;
    type Variant = Ablation;

    const REFERENCE: &'static str = PAPER_TOML;
    const FIGURES: &'static [Figure] = &FIGURES;
    const CLAIMS: &'static str = folder::embedded!("vcup", "claims.toml");
    const MEASURES: &'static [&'static [Measure<Vcup>]] = &[measures::MEASURES];
    const CODE: &'static [(&'static str, Code<Vcup>)] = measures::CODE;

    fn varied(key: Key, without: Ablation) -> Option<Key> {
        Some(key.without(without))
    }

    fn scenario(&self, key: &Key, _: &Runs<Vcup>) -> Result<Scenario, ExperimentError> {
        setup::scenario(key)
    }

    fn run(scenario: Scenario) -> Run {
        Run::simulate(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sound() {
        frame::tests::is_sound::<Vcup>(100, setup::scenario);
    }
}
