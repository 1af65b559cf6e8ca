//! I/O Strength-Aware Credit Scheduler for Virtualized Environments (Lee, Yu), section 5: tables 3
//! to 8, of which figures 7 to 12 show the spread, and what section 5.4 says of figures 13 to 15.
//!
//! The folder's README says how the testbed is modelled, and what was calibrated.

mod calibrate;
mod case;
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
use policy::{Change, Policy, Scheduler};

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

/// Number of rounds of explanatory runs without packets.
const FEW_ROUNDS: u64 = 1;
/// Number of rounds of runs that only figures need.
const FIGURE_ROUNDS: u64 = 5;

/// Claims about another pair of policies than Credit2 and ISACS, and what is said of each.
type Other = ([Policy; 2], fn(&str) -> String);

/// Pairs whose claims are reported by themselves: the testbeds that the paper may have had as well,
/// and our own scheduler in ISACS's place.
const OTHERS: [Other; 4] = [
    (Policy::both(Change::QueuePerCore), |claim| {
        format!("with a run-queue per pCPU, {claim}")
    }),
    (Policy::both(Change::Release4123), |claim| {
        format!("with the resets of Xen 4.12.3, {claim}")
    }),
    (OURS, |claim| claim.replace("ISACS", "io-turns")),
    (
        [
            Policy::new(Scheduler::Credit2, Change::QueuePerCore),
            Policy::new(Scheduler::IoTurns, Change::QueuePerCore),
        ],
        |claim| {
            let claim = claim.replace("ISACS", "io-turns");
            format!("with a run-queue per pCPU, {claim}")
        },
    ),
];
/// Own scheduler in ISACS's place.
const OURS: [Policy; 2] = [Policy::CREDIT2, Policy::IO_TURNS];

/// Runs of all cases: of the compared schedulers, of those that explain, and of figures.
fn runs(
    cases: &[case::Case],
    free: &Calibration,
    wanted: &Wanted,
    progress: Progress<'_>,
) -> run::Runs {
    let jobs = wanted.threads;
    let compared = [Policy::CREDIT2, Policy::ISACS, Policy::IO_TURNS];
    let keys = run::keys(cases, &compared);
    let mut runs = run::run_all(&keys, free, run::ROUNDS, jobs, progress);
    let explaining = Change::ALL.into_iter().flat_map(Policy::both);
    let explaining = explaining.chain(OTHERS.into_iter().flat_map(|(pair, _)| pair));
    let mut keys = run::keys(cases, &explaining.collect::<Vec<_>>());
    // Cases that were run with more rounds need no explanatory runs.
    keys.retain(|key| !runs.has(key));
    // A round has few packets, so their mean needs all rounds; of other explanatory runs the
    // direction of an effect is enough, and one round shows it.
    let (packets, others): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|(case, _)| case.is_of_packets());
    runs.extend(run::run_all(&packets, free, run::ROUNDS, jobs, progress));
    runs.extend(run::run_all(&others, free, FEW_ROUNDS, jobs, progress));
    let further = figures::further_cases(wanted, cases);
    let keys = run::keys(&further, &compared);
    runs.extend(run::run_all(&keys, free, FIGURE_ROUNDS, jobs, progress));
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
    let (cells, claims) = found(Policy::both(Change::Nothing))?;
    let mut ablated = Vec::new();
    for change in Change::ALL {
        let claims = found(Policy::both(change))?.1;
        ablated.push((change.phrase().to_owned(), claims));
    }
    let mut judged = impossibles.judge_all(claims, &ablated);
    for (pair, name) in OTHERS {
        // Claims about other pairs are reported by themselves, under another name, and not
        // explained.
        let claims = found(pair)?.1.into_iter();
        judged.extend(impossibles.judge_all(claims.map(|claim| claim.named(name)), &[]));
    }
    Ok(Findings {
        cells,
        claims: judged,
        plots: figures::plots(&runs, wanted),
        notes: claim::notes(file.notes, &reference)?,
        impossible: impossibles.into_results(),
    })
}
