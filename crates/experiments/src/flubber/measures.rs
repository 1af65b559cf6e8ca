//! Measures that `claims.toml` names, and claims that are no comparisons of them.

use super::setup::{Ablation, Case, Key, Run};
use super::{BETAS, Flubber, RunResults, beta};
use crate::claim::{Measure, Series, series};
use crate::claim_result::ClaimResult;
use crate::frame::{Claims, Code};
use crate::{Cell, within};

/// Deviation from the paper, as a fraction, up to which a predicted time counts as near.
const NEAR_DEVIATION: f64 = 0.15;
/// Deviation, as a fraction, up to which a rate counts as the promised one.
const ROUNDING: f64 = 0.01;

const CASES: &[&str] = &["read", "write", "mixed"];
const VMS: &[&str] = &["seq_read", "rnd_read", "seq_write", "rnd_write", "rnd_rw"];

pub(super) const MEASURES: &[Measure<Flubber>] = &[
    // Requests a second of a VM under Flubber with each interval factor of table 2.
    Measure {
        name: "beta_iops",
        arguments: &[&["seq_read", "rnd_read"]],
        evaluate: |results, vm| by_beta(results, |run| iops(results, run, vm[0])),
    },
    // The largest delay of a VM, in ms, with each of them.
    Measure {
        name: "beta_delay_max",
        arguments: &[&["seq_read"]],
        evaluate: |results, vm| {
            let whole = counts_whole_runs(results);
            by_beta(results, |run| run.delay_max(vm[0], whole))
        },
    },
    // Requests a second of a VM under Flubber while all VMs are busy, as its block layer merges
    // them.
    Measure {
        name: "iops",
        arguments: &[CASES, VMS],
        evaluate: |results, arguments| under_flubber(results, arguments, iops),
    },
    // Mean delay of a VM under Flubber, in ms.
    Measure {
        name: "delay",
        arguments: &[CASES, VMS],
        evaluate: |results, arguments| under_flubber(results, arguments, delay),
    },
    // Execution time of a VM under Flubber, in seconds.
    Measure {
        name: "time",
        arguments: &[CASES, VMS],
        evaluate: |results, arguments| under_flubber(results, arguments, |_, run, vm| run.time(vm)),
    },
    // Part of the sequential reader's requests, in percent, that are done under CFQ with priorities
    // before the random reader ends.
    Measure {
        name: "done_before_random_reader",
        arguments: &[],
        evaluate: |results, _| done_before_random_reader(results).map(|share| series([share])),
    },
];

pub(super) const CODE: &[(&str, Code<Flubber>)] = &[("settles", settles)];

fn by_beta(results: &RunResults<'_>, of: impl Fn(&Run) -> Option<f64>) -> Option<Series> {
    let all = BETAS
        .iter()
        .map(|factor| of(results.run_for(beta(*factor))?));
    Some(series(all.collect::<Option<Vec<f64>>>()?))
}

fn under_flubber(
    results: &RunResults<'_>,
    arguments: &[&str],
    figure: fn(&RunResults<'_>, &Run, &str) -> Option<f64>,
) -> Option<Series> {
    let run = results.run_for(Key::new(Case::named(arguments[0])?, "flubber"))?;
    Some(series([figure(results, run, arguments[1])?]))
}

/// Returns whether rates are counted over each VM's whole run, as they were before table 2 was read
/// as counting only what both VMs do side by side.
pub(super) fn counts_whole_runs(results: &RunResults<'_>) -> bool {
    results.variant == Ablation::WholeRuns
}

/// Requests per second of a VM.
pub(super) fn iops(results: &RunResults<'_>, run: &Run, vm: &str) -> Option<f64> {
    if counts_whole_runs(results) {
        run.iops(vm)
    } else {
        run.iops_together(vm)
    }
}

/// Mean delay of a VM, in milliseconds.
pub(super) fn delay(results: &RunResults<'_>, run: &Run, vm: &str) -> Option<f64> {
    if counts_whole_runs(results) {
        run.delay(vm)
    } else {
        run.delay_together(vm)
    }
}

/// Section 4.3.1: real time starves best effort.
fn done_before_random_reader(results: &RunResults<'_>) -> Option<f64> {
    let run = results.run_for(Key::new(Case::Read, "cfq_priority"))?;
    let end = run.time("rnd_read")?;
    let (mut before, mut all) = (0.0, 0.0);
    for row in run.rows.iter().filter(|row| row.vm == "seq_read") {
        all += row.rates.iops;
        // Rows are of a second each, so that rates add up to requests.
        before += if row.time_s < end {
            row.rates.iops
        } else {
            0.0
        };
    }
    Some(100.0 * before / f64::max(all, 1.0))
}

/// Writers of figure 4, with the IOPS that each was promised.
pub(super) const WRITERS: [(&str, f64); 2] = [("seq_write", 1200.0), ("rnd_write", 600.0)];

/// Figure 4: both VMs reach their promised throughput within 5 s and keep it.
fn settles(results: &RunResults<'_>) -> Claims {
    let within_s = results.reference.figure("feedback.settles_within_s")?;
    let Some(run) = results.run_for(Key::new(Case::Write, "flubber")) else {
        return Ok(Vec::new());
    };
    let [(seq_write, seq_due), (rnd_write, rnd_due)] = WRITERS;
    let both = (run.five_seconds(seq_write).into_iter()).zip(run.five_seconds(rnd_write));
    // Smaller fraction of the promised throughput in each span, with the throughput of both.
    let kept: Vec<(f64, (f64, f64))> = both
        .map(|(seq, rnd)| (f64::min(seq / seq_due, rnd / rnd_due), (seq, rnd)))
        .collect();
    let met = |(part, _): &(f64, _)| *part >= 1.0 - ROUNDING;
    let first = kept.iter().position(met);
    let best = kept.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let detail = match (first, best) {
        (Some(first), _) => format!(
            "both have it from {first} s on, measured over five seconds, and in {} of the {} \
             seconds after that",
            kept[first..].iter().filter(|span| met(span)).count(),
            kept.len() - first
        ),
        (None, Some((_, (seq, rnd)))) => format!(
            "in no five seconds do both have it; in the best the sequential writer has {seq:.0} \
             IOPS and the random one {rnd:.0}"
        ),
        (None, None) => "it ends within five seconds".to_owned(),
    };
    Ok(vec![ClaimResult::new(
        format!("with feedback both writers have their throughput within {within_s:.0} s"),
        first.is_some_and(|first| first as f64 <= within_s),
        detail,
    )])
}

/// Evaluates the goals for all figures together.
pub(super) fn goals(cells: &[Cell]) -> Vec<ClaimResult> {
    let mut claims: Vec<ClaimResult> = ClaimResult::order_goal(cells).into_iter().collect();
    let is_time = |cell: &&Cell| {
        // The server's average in table 4 is a rate, not a time.
        matches!(cell.table.as_str(), "3" | "4" | "5") && cell.column != "server_avg_iops"
    };
    let (near, all) = within(cells.iter().filter(is_time), NEAR_DEVIATION);
    if all > 0 {
        let share = 100.0 * near as f64 / all as f64;
        let goal = ClaimResult::new(
            "predicted execution times are within 15 % of the paper's on 80 % of the cells",
            share >= 80.0,
            format!("they are on {near} of {all}, {share:.0} %"),
        );
        claims.push(goal.identified("times", ""));
    }
    claims
}
