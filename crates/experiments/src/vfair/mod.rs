//! vFair: the experiments of Lu, Saltaformaggio, Kompella, Xu: *vFair: Latency-Aware Fair Storage
//! Scheduling via Per-IO Cost-Based Differentiation* (SoCC 2015), as far as they are here.
//!
//! A module an experiment of the paper: `model_error` is figure 6. `saturation` is what all of them
//! start from, the throughput of a device that is saturated with one kind of request, and the
//! profile that is made of it.

mod model_error;
mod saturation;

use crate::{ExperimentError, Findings, Paper, Progress, Reference, Wanted};

pub(crate) const PAPER: Paper = Paper {
    name: "vfair",
    title: "vFair: Latency-Aware Fair Storage Scheduling via Per-IO Cost-Based Differentiation",
    tables: &["figure 6"],
    curves: &["figure 6"],
    reproduce,
    calibrate: None,
};

macro_rules! embedded {
    ($file:literal) => {
        include_str!(concat!("../../../../experiments/vfair/", $file))
    };
}

const PAPER_TOML: &str = embedded!("paper.toml");
const SATURATION_TOML: &str = embedded!("scenarios/saturation.toml");

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(PAPER_TOML)?;
    let mut findings = Findings::default();
    if wanted.wants("figure 6") {
        findings = model_error::reproduce(&reference, wanted, progress)?;
    }
    Ok(findings)
}
