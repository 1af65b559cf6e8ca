//! Flubber: Two-level Disk Scheduling in Virtualized Environment (Jin, Ling, Ibrahim, Cao, Wu,
//! Antoniu), section 4: tables 2 to 6, figure 4, the waits of section 4.5, and what the text says.
//!
//! The folder's README says how the guests and the disk are modelled, and what was calibrated.

mod calibrate;
mod curves;
mod measures;
mod setup;
mod tables;

use crate::claim::Measure;
use crate::fitted::{Calibration, Group};
use crate::frame::{self, Claims, Code, Experiment, Runs};
use crate::{Cell, ExperimentError, Paper, folder};
use setup::{Ablation, Case, Key, Run, SCHEDULERS};
use tables::FIGURES;
use tidegate_sim::scenario::Scenario;

pub(crate) const PAPER: Paper = Paper {
    name: "flubber",
    title: "Flubber: Two-level Disk Scheduling in Virtualized Environment",
    tables: &frame::names(&FIGURES),
    plots: &["figure 4"],
    traces: &[],
    reproduce: |wanted, progress| frame::reproduce(&Flubber, wanted, progress),
    calibration: Some(Calibration {
        fit: calibrate::calibrate,
        text: folder::embedded!("flubber", "calibration.toml"),
        reference: PAPER_TOML,
        groups: || vec![Group::new(&["free.*"], &["*"])],
    }),
};

const PAPER_TOML: &str = folder::embedded!("flubber", "paper.toml");

type Figure = frame::Figure<Flubber>;
type RunResults<'a> = frame::RunResults<'a, Flubber>;

/// Interval factors of table 2; all other runs use the last but one.
const BETAS: [u64; 5] = [1, 2, 8, 32, 128];

/// Key of Flubber with an interval factor of table 2.
fn beta(factor: u64) -> Key {
    Key::new(Case::Read, "flubber").with_beta(factor)
}

/// Run of a case under a scheduler, by the scheduler's name in the paper's figures.
fn named<'a>(results: &RunResults<'a>, case: Case, scheduler: &str) -> Option<&'a Run> {
    let scheduler = SCHEDULERS.iter().find(|name| **name == scheduler)?;
    results.run_for(Key::new(case, scheduler))
}

/// Experiments of the paper.
struct Flubber;

impl Experiment for Flubber {
    type Key = Key;
    type Run = Run;
    type Variant = Ablation;

    const REFERENCE: &'static str = PAPER_TOML;
    const FIGURES: &'static [Figure] = &FIGURES;
    const CLAIMS: &'static str = folder::embedded!("flubber", "claims.toml");
    const MEASURES: &'static [&'static [Measure<Flubber>]] = &[measures::MEASURES];
    const CODE: &'static [(&'static str, Code<Flubber>)] = measures::CODE;

    fn varied(key: Key, without: Ablation) -> Option<Key> {
        Some(key.without(without))
    }

    fn scenario(&self, key: &Key, _: &Runs<Flubber>) -> Result<Scenario, ExperimentError> {
        setup::scenario(key)
    }

    fn run(scenario: Scenario) -> Run {
        Run::simulate(scenario)
    }

    fn goals(_: &RunResults<'_>, cells: &[Cell]) -> Claims {
        Ok(measures::goals(cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sound() {
        frame::tests::is_sound::<Flubber>(50, setup::scenario);
    }
}
