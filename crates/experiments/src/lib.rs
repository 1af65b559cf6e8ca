//! The experiments of published papers, run in the simulator and set beside their figures.
//!
//! An experiment is a folder under `experiments/` (scenarios, the paper's figures as data, a
//! README) and a module here that says which runs there are and which of their results stands
//! beside which figure. What the paper claims is in the folder, too, in `claims.toml`: `claim`
//! reads and evaluates it. All that the papers have in common is in this frame:
//!
//! ```text
//!   paper.toml ---> Reference ----------+
//!   scenarios ----> runs (all cores) ---+--> cells, claims --> table for people, JSON
//! ```
//!
//! `frame` is that of papers whose runs are scenarios of disks: what a figure is, and from its
//! runs to its claims. `folder` reads the files of an experiment's folder, `fit` measures how near
//! a calibrated model comes to a paper's figures. Results are a function of the repository: no
//! clock, no file, no random seed from outside.

#![forbid(unsafe_code)]

mod claim;
mod contest;
mod findings;
mod fit;
mod flubber;
mod folder;
mod frame;
mod isacs;
mod pcos;
mod pool;
mod pridyn;
pub mod promises;
mod reference;
mod said;
mod show;
mod vcup;
mod vfair;

pub use contest::order;
pub use findings::{Cell, Claim, Contest, Entry, Findings, Sense, within};
pub use pool::each;
pub use reference::{Reference, Table as ReferenceTable};
pub use show::{claims, summary, tables};

use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_config::ConfigErrors;

/// A paper whose experiments can be run again.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Its tables that there is something to set beside; figures and sections are named.
    pub tables: &'static [&'static str],
    /// Those of them that there are curves of.
    pub curves: &'static [&'static str],
    /// Traces that it was measured with, which somebody may have.
    pub traces: &'static [TraceFile],
    /// Runs what is wanted.
    pub reproduce: fn(&Wanted, Progress<'_>) -> Result<Findings, ExperimentError>,
    /// Finds the free figures of its models again, by what may be used for that; the text of its
    /// `calibration.toml`. `None`: none is free.
    pub calibrate: Option<Calibrate>,
}

/// A trace that a paper was measured with: somebody who has it may run the experiment on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFile {
    /// The stream of requests that it stands for.
    pub stream: &'static str,
    /// Its file's name, as it is published.
    pub file: &'static str,
}

impl TraceFile {
    pub(crate) const fn new(stream: &'static str, file: &'static str) -> TraceFile {
        TraceFile { stream, file }
    }
}

/// How the free figures of a paper's models are found.
pub type Calibrate = fn(&Wanted, Progress<'_>) -> Result<String, ExperimentError>;

/// What is asked of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only this one of [`Paper::tables`].
    pub table: Option<String>,
    /// Threads; at least one is used.
    pub jobs: usize,
    /// Traces to be replayed instead of those that are built in, by [`TraceFile::stream`].
    pub traces: BTreeMap<&'static str, Arc<[u8]>>,
}

impl Wanted {
    /// Whether `table` is wanted.
    pub fn wants(&self, table: &str) -> bool {
        self.table.as_deref().is_none_or(|wanted| wanted == table)
    }
}

/// Hears how many of how many runs are done.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// All papers there are.
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

/// Why an experiment cannot be run: the folder is not what its module takes it for.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A scenario or a list of schedulers.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The paper's figures or a calibration.
    #[error("{file}: {what}")]
    Data {
        /// The file's name in the experiment's folder.
        file: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

impl ExperimentError {
    /// That something is wrong with a file.
    pub(crate) fn data(file: &'static str, what: impl ToString) -> ExperimentError {
        let what = what.to_string();
        ExperimentError::Data { file, what }
    }
}
