//! `tidegate vcpu compare`: all vCPU schedulers on a fixed grid of hosts.

use anyhow::Result;
use serde::Serialize;
use tidegate_report::{Align, Table};
use tidegate_vcpu::compare::{
    CELLS, Cell, CellResult, Contender, LATENCY_GOAL, OWN, Outcome, SHARE_GOAL, Verdict,
    contenders, run_cell,
};

use crate::args::VcpuCompareArgs;
use crate::output::Output;
use crate::progress::DelayedBar;

/// Comparison as JSON.
#[derive(Serialize)]
struct CompareView<'a> {
    seed: u64,
    /// Scheduler that the goals are about.
    own: &'static str,
    latency_goal: f64,
    share_goal: f64,
    /// Verdict on the cells that a scheduler may be tuned on.
    tuning: Verdict,
    /// Verdict on the cells that are held out.
    held_out: Verdict,
    cells: &'a [CellResult],
}

/// Measure of an outcome, for one table.
struct Measure {
    title: &'static str,
    text: fn(&Outcome) -> String,
}

const MEASURES: [Measure; 5] = [
    Measure {
        title: "99th percentile of round trips, ms (! packets left unanswered)",
        text: |outcome| {
            let lost = if outcome.unanswered > 0 { "!" } else { "" };
            format!("{lost}{:.3}", outcome.p99_ms)
        },
    },
    Measure {
        title: "Median of round trips, ms",
        text: |outcome| format!("{:.3}", outcome.p50_ms),
    },
    Measure {
        title: "Largest distance of a VM from its fair share, %",
        text: |outcome| format!("{:.2}", 100.0 * outcome.share_error),
    },
    Measure {
        title: "Switches per second",
        text: |outcome| format!("{:.0}", outcome.switches_per_s),
    },
    Measure {
        title: "Preemptions per second",
        text: |outcome| format!("{:.0}", outcome.preemptions_per_s),
    },
];

/// Runs every contender in the chosen cells and prints a table for each measure, and the goals.
pub(in crate::commands) fn compare(args: &VcpuCompareArgs, out: Output) -> Result<()> {
    let cells: Vec<&Cell> = if args.cells.is_empty() {
        let wanted = |cell: &&Cell| !(args.tuning && cell.held_out);
        CELLS.iter().filter(wanted).collect()
    } else {
        args.cells.clone()
    };
    let contenders = contenders();
    let results = run_all(&cells, &contenders, args.seed);
    let judged = |held_out: bool| {
        let part = results.iter().filter(|cell| cell.held_out == held_out);
        Verdict::of(part)
    };
    let (tuning, held_out) = (judged(false), judged(true));
    if out.is_json() {
        return out.json(&CompareView {
            seed: args.seed,
            own: OWN,
            latency_goal: LATENCY_GOAL,
            share_goal: SHARE_GOAL,
            tuning,
            held_out,
            cells: &results,
        });
    }
    for measure in &MEASURES {
        out.text(&format!("{}\n\n", measure.title))?;
        out.table(&table(measure, &results, &contenders))?;
        out.text("\n")?;
    }
    let goals = [("tuning", tuning), ("held out (*)", held_out)];
    let goals = goals.iter().filter(|(_, verdict)| verdict.cells > 0);
    let goals: String = goals.map(|(what, verdict)| goal(what, verdict)).collect();
    Ok(out.text(&goals)?)
}

fn run_all(cells: &[&Cell], contenders: &[Contender], seed: u64) -> Vec<CellResult> {
    let total = (cells.len() * contenders.len()) as u64;
    let mut progress = DelayedBar::new(total, "simulating");
    let mut done = 0;
    let mut results = Vec::with_capacity(cells.len());
    for cell in cells {
        let outcomes = contenders.iter().map(|contender| {
            progress.set(done, || format!("{} under {}", cell.name, contender.name));
            done += 1;
            run_cell(cell, contender, seed)
        });
        results.push(CellResult::new(cell, outcomes.collect()));
    }
    results
}

fn table(measure: &Measure, results: &[CellResult], contenders: &[Contender]) -> Table {
    let first = [("CELL", Align::Left)];
    let rest = contenders.iter().map(|c| (c.name, Align::Right));
    let mut table = Table::new(first.into_iter().chain(rest));
    for result in results {
        let mark = if result.held_out { " *" } else { "" };
        let first = [format!("{}{mark}", result.cell)];
        let rest = result.outcomes.iter().map(measure.text);
        table.row(first.into_iter().chain(rest));
    }
    table
}

/// Verdict on a part of the grid, with the worst cell of each goal.
fn goal(what: &str, verdict: &Verdict) -> String {
    let percent = |worst: Option<(&str, f64)>| {
        worst.map_or("none".to_owned(), |(cell, part)| {
            format!("{cell}, {:.1} %", 100.0 * part)
        })
    };
    format!(
        "{OWN}, {what}: p99 at most {:.0} % of the best of the others in {} of {} mixed cells \
         (worst: {}); shares within {:.0} % of fair in {} of {} (worst: {})\n",
        100.0 * LATENCY_GOAL,
        verdict.latency_met,
        verdict.mixed_cells,
        percent(verdict.worst_latency),
        100.0 * SHARE_GOAL,
        verdict.shares_met,
        verdict.cells,
        percent(verdict.worst_share),
    )
}
