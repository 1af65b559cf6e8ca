//! I/O Strength-Aware Credit Scheduler for Virtualized Environments (Lee, Yu), section 5: tables 3 to 8, of which
//! figures 7 to 12 show the spread, and what section 5.4 says of figures 13 to 15.
//!
//! The folder's README says how the testbed is modelled, and what was calibrated.

mod calibrate;
mod claims;
mod run;
mod setup;
mod tables;

use crate::{ExperimentError, Findings, Paper, Progress, Reference, Wanted};
use setup::{Case, Free, Policy};

pub(crate) const PAPER: Paper = Paper {
    name: "isacs",
    title: "I/O Strength-Aware Credit Scheduler for Virtualized Environments",
    tables: &["3", "4", "5", "6", "7", "8", "section 5.4"],
    curves: &[],
    traces: &[],
    reproduce,
    calibrate: Some(calibrate::calibrate),
};

/// Rounds of what only serves to explain.
const FEW_ROUNDS: u64 = 2;
/// The schedulers of the comparison.
const BOTH: [Policy; 2] = [Policy::Credit2, Policy::Isacs];
/// The same with one run-queue.
const SHARED: [Policy; 2] = [Policy::Credit2Shared, Policy::IsacsShared];

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(setup::PAPER_TOML)?;
    let free = Free::read()?;
    let cases = tables::cases(&reference, wanted)?;
    let keys = |policies: &[Policy]| -> Vec<(Case, Policy)> {
        let of = |&case: &Case| policies.iter().map(move |&policy| (case, policy));
        cases.iter().flat_map(of).collect()
    };
    let jobs = wanted.jobs;
    let mut runs = run::all(&keys(&BOTH), &free, run::ROUNDS, jobs, progress);
    let explaining: Vec<Policy> = SHARED.into_iter().chain(Policy::ABLATED).collect();
    let few = run::all(&keys(&explaining), &free, FEW_ROUNDS, jobs, progress);
    runs.extend(few);
    let found = |policies: [Policy; 2]| {
        let cells = tables::cells(&reference, &runs, policies, wanted)?;
        let claims = claims::claims(&reference, &runs, policies, &cells, wanted)?;
        Ok::<_, ExperimentError>((cells, claims))
    };
    let (cells, claims) = found(BOTH)?;
    let mut ablated = vec![(Policy::IsacsShared.phrase().to_owned(), found(SHARED)?.1)];
    for policy in Policy::ABLATED {
        let claims = found([Policy::Credit2, policy])?.1;
        ablated.push((policy.phrase().to_owned(), claims));
    }
    let shared = found(SHARED)?.1.into_iter();
    let shared = shared.map(|said| said.named(|claim| format!("with one run-queue, {claim}")));
    let claims = claims.into_iter().map(|said| said.hangs_on(&ablated));
    let shared = shared.map(|said| said.hangs_on(&[]));
    Ok(Findings {
        cells,
        claims: claims.chain(shared).collect(),
        plots: Vec::new(),
    })
}
