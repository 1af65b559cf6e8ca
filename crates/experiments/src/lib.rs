//! Experiments of published papers, run in the simulator and compared with the papers' figures.
//!
//! An experiment is a folder under `experiments/` (scenarios, the paper's figures as data, a
//! README) and a module here that maps runs and their results to the paper's figures. The paper's
//! claims are in the folder's `claims.toml`, which `claim` reads and evaluates. Everything that the
//! papers have in common is in this frame:
//!
//! ```text
//!   paper.toml ---> Reference ----------+
//!   scenarios ----> runs (all cores) ---+--> cells, claims --> table for people, JSON
//! ```
//!
//! `frame` is for papers whose runs are disk scenarios: from the runs of a figure to its claims.
//! `folder` reads the files of an experiment's folder, `fit` measures the distance of a calibrated
//! model from a paper's figures. Results are a function of the repository: there is no clock, no
//! file and no random seed from outside. [`distributed`] prepares and judges what live hosts do;
//! whoever runs them gives it their rates.

#![forbid(unsafe_code)]

mod claim;
mod claim_result;
mod findings;
mod fit;
mod fitted;
mod flubber;
mod folder;
mod frame;
mod isacs;
mod ordering;
mod page;
mod pattern;
mod pcos;
mod pool;
mod pridyn;
pub mod promises;
mod reference;
mod show;
mod vcup;
mod verdict;
mod vfair;

pub use findings::{Ablation, Cell, Claim, Entry, Findings, Ordering, Sense, within};
pub use fitted::{Calibrate, Calibration, Fitted, list as list_fitted};
pub use ordering::{Comparisons, order};
pub use page::page;
pub use pool::map_parallel;
pub use reference::{Reference, Table as ReferenceTable};
pub use show::{Count, Counts, claims, contradictions, counts, reasons, summary, tables, verdicts};
pub use verdict::{Impossible, Note, Origin, Reason, Scope, Verdict};
pub use vfair::distributed;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_config::ConfigErrors;

/// Paper whose experiments can be run again.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Name on the command line.
    pub name: &'static str,
    /// Title in one line.
    pub title: &'static str,
    /// Tables that can be compared; figures and sections by their names.
    pub tables: &'static [&'static str],
    /// Members of `tables` that have plots.
    pub plots: &'static [&'static str],
    /// Traces of the paper's measurements, which users may supply.
    pub traces: &'static [TraceFile],
    /// Runs what is wanted and returns the findings.
    pub reproduce: fn(&Wanted, Progress<'_>) -> Result<Findings, ExperimentError>,
    /// Calibration of the paper's models. `None` if they have no free parameters.
    pub calibration: Option<Calibration>,
}

/// Trace of a paper's measurements; a user who has it can run the experiment on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFile {
    /// Stream of requests that it stands for.
    pub stream: &'static str,
    /// File name as published.
    pub file: &'static str,
}

impl TraceFile {
    pub(crate) const fn new(stream: &'static str, file: &'static str) -> TraceFile {
        TraceFile { stream, file }
    }
}

/// Selection of a paper's experiments.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Single member of [`Paper::tables`]; `None` for all.
    pub table: Option<String>,
    /// Number of threads; 0 counts as 1.
    pub threads: usize,
    /// Traces to replay instead of the built-in ones, by [`TraceFile::stream`].
    pub traces: BTreeMap<&'static str, Arc<[u8]>>,
}

impl Wanted {
    /// Returns `true` if `table` is wanted.
    pub fn wants(&self, table: &str) -> bool {
        self.table.as_deref().is_none_or(|wanted| wanted == table)
    }
}

/// Callback with the number of runs that are done and the number of all runs.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// All papers.
pub fn papers() -> &'static [Paper] {
    &[
        flubber::PAPER,
        vfair::PAPER,
        vcup::PAPER,
        pridyn::PAPER,
        pcos::PAPER,
        isacs::PAPER,
    ]
}

/// Error of an experiment: a file of its folder that is malformed, or that does not match its
/// module.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Malformed scenario or list of schedulers.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Malformed figures of the paper, or calibration.
    #[error("{file}: {what}")]
    Data {
        /// Name of the file in the experiment's folder, or path of the user's own file.
        file: Cow<'static, str>,
        /// Mistake in the file.
        what: String,
    },
}

impl ExperimentError {
    /// Creates an error about a file.
    pub(crate) fn data(file: impl Into<Cow<'static, str>>, what: impl ToString) -> ExperimentError {
        ExperimentError::Data {
            file: file.into(),
            what: what.to_string(),
        }
    }
}
