//! Flubber: Two-level Disk Scheduling in Virtualized Environment (Jin, Ling, Ibrahim, Cao, Wu,
//! Antoniu), section 4: tables 2 to 6, figure 4, the waits of section 4.5, and what the text says.
//!
//! The folder's README says how the guests and the disk are modelled, and what was calibrated.

mod calibrate;
mod claims;
mod curves;
mod percent;
mod setup;
mod tables;

use crate::{ExperimentError, Findings, Paper, Progress, Reference, Wanted, pool};
use setup::{Case, Key, Run, SCHEDULERS, Without};
use std::collections::BTreeMap;

pub(crate) const PAPER: Paper = Paper {
    name: "flubber",
    title: "Flubber: Two-level Disk Scheduling in Virtualized Environment",
    tables: &["2", "3", "4", "5", "6", "figure 4", "section 4.5"],
    curves: &["figure 4"],
    traces: &[],
    reproduce,
    calibrate: Some(calibrate::calibrate),
};

/// The interval factors of table 2; the last but one is that of all the rest.
const BETAS: [u64; 5] = [1, 2, 8, 32, 128];

/// What came of the runs that were wanted, with something left out of Flubber's.
#[derive(Clone, Copy)]
struct Runs<'a> {
    all: &'a BTreeMap<Key, Run>,
    without: Without,
}

impl<'a> Runs<'a> {
    fn of(&self, case: Case, scheduler: &'static str) -> Option<&'a Run> {
        self.get(Key::new(case, scheduler))
    }

    /// Flubber's with an interval factor of table 2.
    fn of_beta(&self, factor: u64) -> Option<&'a Run> {
        self.get(beta(factor))
    }

    /// One of the paper's schedulers by its name in the figures.
    fn named(&self, case: Case, scheduler: &str) -> Option<&'a Run> {
        let scheduler = SCHEDULERS.iter().find(|name| **name == scheduler)?;
        self.of(case, scheduler)
    }

    fn get(&self, key: Key) -> Option<&'a Run> {
        let key = match key.scheduler {
            "flubber" => key.without(self.without),
            _ => key,
        };
        self.all.get(&key)
    }
}

fn beta(beta: u64) -> Key {
    Key::new(Case::Read, "flubber").with("beta", beta)
}

fn wanted_runs(wanted: &Wanted) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut all = |case, schedulers: &[&'static str]| {
        keys.extend(schedulers.iter().map(|name| Key::new(case, name)));
    };
    for (table, cases) in [
        ("3", &[Case::Read, Case::Write][..]),
        ("4", &[Case::Mixed]),
        ("6", &[Case::Read, Case::Write, Case::Mixed]),
        ("figure 4", &[Case::Write]),
    ] {
        if wanted.wants(table) {
            cases.iter().for_each(|&case| all(case, &SCHEDULERS));
        }
    }
    if wanted.wants("5") {
        all(Case::ReadBackup, &SCHEDULERS[1..]);
        all(Case::WriteBackup, &SCHEDULERS[1..]);
    }
    if wanted.wants("section 4.5") {
        for case in [Case::Read, Case::Write, Case::Mixed] {
            all(case, &["flubber"]);
        }
    }
    if wanted.wants("2") {
        keys.extend(BETAS.map(beta));
    }
    // What claims hang on that do not hold.
    let flubber = keys.iter().filter(|key| key.scheduler == "flubber");
    let ablated = flubber.flat_map(|key| Without::ALL.map(|what| key.clone().without(what)));
    keys.extend(ablated.collect::<Vec<_>>());
    keys.sort();
    keys.dedup();
    keys
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(setup::PAPER_TOML)?;
    let keys = wanted_runs(wanted);
    let scenarios = keys
        .iter()
        .map(setup::scenario)
        .collect::<Result<Vec<_>, _>>()?;
    let runs = pool::each(&scenarios, wanted.jobs, progress, |s| Run::of(s.clone()));
    let runs: BTreeMap<Key, Run> = keys.into_iter().zip(runs).collect();
    let found = |without| {
        let runs = Runs {
            all: &runs,
            without,
        };
        let cells = tables::cells(&reference, &runs, wanted)?;
        let claims = claims::claims(&reference, &runs, &cells, wanted)?;
        Ok::<_, ExperimentError>((cells, claims))
    };
    let (cells, claims) = found(Without::Nothing)?;
    let mut ablated = Vec::new();
    for what in Without::ALL {
        ablated.push((what.phrase(), found(what)?.1));
    }
    let whole = Runs {
        all: &runs,
        without: Without::Nothing,
    };
    let wanted_curve = wanted.wants("figure 4").then(|| curves::settling(&whole));
    let plots = wanted_curve.flatten().into_iter().collect();
    let claims = claims.into_iter().map(|said| said.hangs_on(&ablated));
    Ok(Findings {
        cells,
        claims: claims.collect(),
        plots,
    })
}
