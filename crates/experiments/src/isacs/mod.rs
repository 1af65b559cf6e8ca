//! I/O Strength-Aware Credit Scheduler for Virtualized Environments (Lee, Yu), section 5: tables 3
//! to 8, of which figures 7 to 12 show the spread, and what section 5.4 says of figures 13 to 15.
//!
//! The folder's README says how the testbed is modelled, and what was calibrated.

mod calibrate;
mod claims;
mod figures;
mod free_parameters;
mod points;
mod policy;
mod run;
mod setup;
mod tables;

use crate::{ExperimentError, Findings, Paper, Progress, Reference, Wanted, claim, fitted};
use claim::Impossibles;
use claims::Compared;
use free_parameters::Calibration;
use policy::Policy;

const TABLES: &[&str] = &["3", "4", "5", "6", "7", "8", "section 5.4"];

pub(crate) const PAPER: Paper = Paper {
    name: "isacs",
    title: "I/O Strength-Aware Credit Scheduler for Virtualized Environments",
    tables: TABLES,
    plots: TABLES,
    traces: &[],
    reproduce,
    calibration: Some(fitted::Calibration {
        fit: calibrate::calibrate,
        text: free_parameters::CALIBRATION_TOML,
        reference: setup::PAPER_TOML,
        groups: || points::POINTS.iter().map(points::Point::group).collect(),
    }),
};

/// Number of rounds of explanatory runs.
const FEW_ROUNDS: u64 = 1;
/// Number of rounds of runs that only figures need.
const FIGURE_ROUNDS: u64 = 5;
/// Schedulers of the comparison.
const BOTH: [Policy; 2] = [Policy::Credit2, Policy::Isacs];
/// Schedulers with one run-queue.
const SHARED: [Policy; 2] = [Policy::Credit2Shared, Policy::IsacsShared];
/// Schedulers that look again at the end of the rate limit.
const LOOKING: [Policy; 2] = [Policy::Credit2LooksAgain, Policy::IsacsLooksAgain];

/// Runs of all cases: of the compared schedulers, of those that explain, and of figures.
fn runs(
    cases: &[setup::Case],
    free: &Calibration,
    wanted: &Wanted,
    progress: Progress<'_>,
) -> run::Runs {
    let jobs = wanted.threads;
    let compared = [Policy::Credit2, Policy::Isacs, Policy::IoTurns];
    let mut runs = run::run_all(
        &run::keys(cases, &compared),
        free,
        run::ROUNDS,
        jobs,
        progress,
    );
    let explaining = SHARED.into_iter().chain(LOOKING).chain(Policy::ABLATED);
    let explaining: Vec<Policy> = explaining.chain([Policy::IoTurnsShared]).collect();
    // Explanatory runs need the direction of an effect only, so few rounds suffice.
    let explaining = run::keys(cases, &explaining);
    runs.extend(run::run_all(&explaining, free, FEW_ROUNDS, jobs, progress));
    let further = figures::further_cases(wanted, cases);
    let further = run::keys(&further, &compared);
    runs.extend(run::run_all(&further, free, FIGURE_ROUNDS, jobs, progress));
    runs
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(setup::PAPER_TOML)?;
    let cases = tables::cases(&reference, wanted)?;
    let runs = runs(&cases, &Calibration::read()?, wanted, progress);
    let file = claim::read_file(claims::CLAIMS)?;
    let impossibles = Impossibles::evaluate(file.impossible, &reference)?;
    let specs = file.claims;
    let found = |policies: [Policy; 2]| {
        let cells = impossibles.mark(tables::cells(&reference, &runs, policies, wanted)?);
        let compared = Compared {
            reference: &reference,
            runs: &runs,
            policies,
            cells: &cells,
        };
        let claims = compared.claims(&specs, wanted)?;
        Ok::<_, ExperimentError>((cells, claims))
    };
    let (cells, claims) = found(BOTH)?;
    // Credit2 stays as it is: each change is one of ISACS.
    let alone = Policy::ABLATED.map(|policy| [Policy::Credit2, policy]);
    let mut ablated = Vec::new();
    for pair in [SHARED, LOOKING].into_iter().chain(alone) {
        ablated.push((pair[1].phrase().to_owned(), found(pair)?.1));
    }
    let mut said = impossibles.judge_all(claims, &ablated);
    let shared = |claim: &str| format!("with one run-queue, {claim}");
    let ours = |claim: &str| claim.replace("ISACS", "credit2-io");
    for (pair, name) in [
        (SHARED, &shared as &dyn Fn(&str) -> String),
        ([Policy::Credit2, Policy::IoTurns], &ours),
        ([Policy::Credit2Shared, Policy::IoTurnsShared], &|claim| {
            shared(&ours(claim))
        }),
    ] {
        // Claims about other pairs are reported by themselves, under another name, and not
        // explained.
        let claims = found(pair)?.1.into_iter();
        said.extend(impossibles.judge_all(claims.map(|said| said.named(name)), &[]));
    }
    Ok(Findings {
        cells,
        claims: said,
        plots: figures::plots(&runs, wanted),
        notes: claim::notes(file.notes, &reference)?,
        impossible: impossibles.into_results(),
    })
}
