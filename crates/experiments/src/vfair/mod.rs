//! vFair: the experiments of Lu, Saltaformaggio, Kompella, Xu: *vFair: Latency-Aware Fair Storage
//! Scheduling via Per-IO Cost-Based Differentiation* (SoCC 2015).
//!
//! Modules by subject: `motivation` is figure 1, `model_error` figure 6 with `saturation` under it,
//! `strategies` figure 8, `fairness` figures 9 and 10 and tables 2 and 3, `varied` figure 11 and
//! table 4, `bursts` figure 12, `applications` figures 13 and 14 and table 5, and
//! `distributed` table 5 on live hosts. `hosts` puts one host
//! or several in front of the disk, `setup` defines the runs, `run` their results. The folder's
//! README documents the models of guests and disks and their calibration.

mod ablation;
mod applications;
mod bursts;
mod calibrate;
pub mod distributed;
mod fairness;
mod hosts;
mod measures;
mod model_error;
mod motivation;
mod run;
mod saturation;
mod setup;
mod strategies;
mod varied;

use crate::claim::Measure;
use crate::fitted::{Calibration, Group};
use crate::frame::{self, Cells, Code, Experiment, Runs};
use crate::{Cell, ExperimentError, Paper, folder};
use ablation::Ablation;
use run::Run;
use setup::Key;
use tidegate_sim::scenario::Scenario;

pub(crate) const PAPER: Paper = Paper {
    name: "vfair",
    title: "vFair: Latency-Aware Fair Storage Scheduling via Per-IO Cost-Based Differentiation",
    tables: &frame::names(&FIGURES),
    plots: &[
        "figure 6",
        "figure 9",
        "figure 10",
        "figure 11",
        "figure 12",
    ],
    traces: &[],
    reproduce: |wanted, progress| frame::reproduce(&Vfair, wanted, progress),
    calibration: Some(Calibration {
        fit: calibrate::calibrate,
        text: folder::embedded!("vfair", "calibration.toml"),
        reference: PAPER_TOML,
        groups: || {
            let alone = &["alone.native", "alone.virtualised"];
            vec![
                Group::new(&["ssd.*"], &["figure 9*", "figure 10*"]).stated(alone),
                Group::new(&["hdd.*"], &["table 2*", "table 3*"]),
            ]
        },
    }),
};

const PAPER_TOML: &str = folder::embedded!("vfair", "paper.toml");

/// Schedulers that the paper compares, by their names in its figures.
const SCHEDULERS: [&str; 3] = ["cfq", "mclock_ps", "vfair_baps"];
const BAPS: &str = "vfair_baps";

type Figure = frame::Figure<Vfair>;
type RunResults<'a> = frame::RunResults<'a, Vfair>;

/// Tables and figures in the order of the paper.
const FIGURES: [Figure; 13] = [
    motivation::FIGURE_1,
    model_error::FIGURE_6,
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

/// Figure that the paper's text states, beside ours.
fn single(table: &str, row: &str, column: &str, theirs: f64, ours: Option<f64>) -> Option<Cell> {
    Cell::stated(PAPER.name, [table, row, column], theirs, ours)
}

/// Experiments of the paper.
struct Vfair;

impl Experiment for Vfair {
    type Key = Key;
    type Run = Run;
    type Variant = Ablation;

    const REFERENCE: &'static str = PAPER_TOML;
    const FIGURES: &'static [Figure] = &FIGURES;
    const CLAIMS: &'static str = folder::embedded!("vfair", "claims.toml");
    const MEASURES: &'static [&'static [Measure<Vfair>]] = &[measures::MEASURES];
    const CODE: &'static [(&'static str, Code<Vfair>)] = &[("estimates", model_error::code)];

    fn varied(key: Key, without: Ablation) -> Option<Key> {
        key.with_ablation(without)
    }

    fn scenario(&self, key: &Key, _: &Runs<Vfair>) -> Result<Scenario, ExperimentError> {
        setup::scenario(key)
    }

    fn run(scenario: Scenario) -> Run {
        Run::simulate(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wanted;
    use setup::Case;

    #[test]
    fn it_is_sound() {
        frame::tests::is_sound::<Vfair>(100, setup::scenario);
    }

    #[test]
    fn disks_that_are_shared_are_measured() {
        for key in frame::keys::<Vfair>(&Wanted::default()) {
            let disks = setup::scenario(&key).expect("a scenario").devices;
            // Figure 1 has a disk of its own, and those that are saturated are being measured.
            let apart = matches!(
                key.case,
                Case::Motivation | Case::Virtualised | Case::Saturation
            );
            let measured = disks.iter().all(|disk| disk.scheduling.profile.is_some());
            assert!(measured || apart, "{key:?}");
        }
    }

    #[test]
    fn what_is_too_much_to_run_again_is_left_as_it_is() {
        let wanted = Wanted {
            table: Some("figure 11".to_owned()),
            ..Wanted::default()
        };
        assert_eq!(frame::keys::<Vfair>(&wanted).len(), 11);
        let several = setup::Change::Hosts(hosts::Hosts::InStep);
        let of = |name| Key::new(Case::Qfs, setup::Disk::Ssd, name).with(several);
        assert_eq!(of(BAPS).with_ablation(Ablation::WithAdditions), None);
        assert_eq!(of(BAPS).with_ablation(Ablation::CommonFeedback), None);
        for (name, without) in [
            ("cfq", Ablation::WithAdditions),
            (BAPS, Ablation::NoSpareBlocks),
        ] {
            assert_eq!(of(name).with_ablation(without), Some(of(name)));
        }
    }
}
