//! Our figures beside the paper's.

use super::Runs;
use super::setup::{Case, Run, SCHEDULERS};
use crate::contest::{Contest, Sense};
use crate::{Cell, ExperimentError, Reference, Wanted};

const PAPER: &str = "flubber";

/// Requests of sysbench: 2 GiB in requests of 16 KiB, and its default number of random ones.
const SEQUENTIAL_REQUESTS: f64 = 131_072.0;
const RANDOM_REQUESTS: f64 = 10_000.0;

/// Everything that is wanted, in the order of the paper.
pub(super) fn cells(
    reference: &Reference,
    runs: &Runs<'_>,
    wanted: &Wanted,
) -> Result<Vec<Cell>, ExperimentError> {
    let mut cells = Vec::new();
    for (table, of) in [
        ("2", table2 as fn(&Reference, &Runs<'_>) -> _),
        ("3", table3),
        ("4", table4),
        ("5", table5),
        ("6", table6),
        ("figure 4", figure4),
        ("section 4.5", waits),
    ] {
        if wanted.wants(table) {
            cells.extend(of(reference, runs)?);
        }
    }
    Ok(cells)
}

type Cells = Result<Vec<Cell>, ExperimentError>;

/// The same with what each competes in: `contest` says about what, who and which way.
fn competing(
    cells: Vec<Cell>,
    contest: impl Fn(&Cell) -> Option<(String, String, Sense)>,
) -> Vec<Cell> {
    let with = |mut cell: Cell| {
        cell.contest = contest(&cell).map(|(about, who, sense)| Contest { about, who, sense });
        cell
    };
    cells.into_iter().map(with).collect()
}

fn table2(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let table = reference.table("2", 1)?;
    let cells = table.cells(PAPER, |labels, column| {
        let run = runs.of_beta(labels.first()?.parse().ok()?)?;
        let (vm, figure) = column.split_once('_')?;
        let vm = format!("{vm}_read");
        match figure {
            "avg_iops" => run.iops(&vm),
            "max_iops" => run.iops_max(&vm),
            "avg_delay_ms" => run.delay(&vm),
            "max_delay_ms" => run.delay_max(&vm),
            _ => None,
        }
    });
    Ok(competing(cells, |cell| {
        let sense = match cell.column.split_once('_')?.1 {
            "avg_iops" => Sense::More,
            "avg_delay_ms" => Sense::Less,
            // The extremes of a series have no order that means anything.
            _ => return None,
        };
        Some((cell.column.clone(), format!("beta {}", cell.row), sense))
    }))
}

/// The case and the tenant of a row such as `read/seq_read`.
fn case_and_vm(labels: &[String]) -> Option<(Case, &str)> {
    let (case, vm) = labels.first()?.split_once('/')?;
    Some((Case::named(case)?, vm))
}

fn table3(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let cells = reference.table("3", 1)?.cells(PAPER, |labels, column| {
        let (case, vm) = case_and_vm(labels)?;
        runs.named(case, column)?.time(vm)
    });
    Ok(competing(cells, |cell| {
        Some((cell.row.clone(), cell.column.clone(), Sense::Less))
    }))
}

/// Requests of the guests' processes a second, over the time until the last of them is done:
/// what the paper's average of the server comes to.
fn server_iops(run: &Run) -> f64 {
    (2.0 * SEQUENTIAL_REQUESTS + RANDOM_REQUESTS) / run.report.duration_s
}

fn table4(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let cells = reference.table("4", 1)?.cells(PAPER, |labels, column| {
        let run = runs.named(Case::Mixed, labels.first()?)?;
        match column {
            "server_avg_iops" => Some(server_iops(run)),
            time => run.time(time.strip_suffix("_s")?),
        }
    });
    Ok(competing(cells, |cell| {
        let sense = match cell.column.as_str() {
            "server_avg_iops" => Sense::More,
            _ => Sense::Less,
        };
        Some((cell.column.clone(), cell.row.clone(), sense))
    }))
}

fn table5(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let cells = reference.table("5", 1)?.cells(PAPER, |labels, column| {
        let (case, vm) = case_and_vm(labels)?;
        runs.named(case.with_backup()?, column)?.time(vm)
    });
    Ok(competing(cells, |cell| {
        Some((cell.row.clone(), cell.column.clone(), Sense::Less))
    }))
}

fn table6(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let cells = reference.table("6", 2)?.cells(PAPER, |labels, column| {
        let run = runs.named(Case::named(labels.first()?)?, labels.get(1)?)?;
        let [zero, within, outside] = run.distances();
        match column {
            "d_zero" => Some(zero),
            "d_nonzero_within_5e7" => Some(within),
            "within_5e7" => Some(zero + within),
            "outside_5e7" => Some(outside),
            _ => None,
        }
    });
    Ok(competing(cells, |cell| {
        let sense = match cell.column.as_str() {
            "d_zero" => Sense::More,
            "outside_5e7" => Sense::Less,
            // What is left once these two are known.
            _ => return None,
        };
        let (case, who) = cell.row.split_once('/')?;
        Some((format!("{case} {}", cell.column), who.to_owned(), sense))
    }))
}

/// A figure that stands in the text, and ours.
fn single(table: &str, row: &str, column: &str, theirs: f64, ours: Option<f64>) -> Option<Cell> {
    Cell::stated(PAPER, [table, row, column], theirs, ours)
}

fn figure4(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let mut cells = Vec::new();
    for scheduler in SCHEDULERS {
        let theirs = reference.figure(&format!("feedback.rnd_write_avg_latency_ms.{scheduler}"))?;
        let run = runs.of(Case::Write, scheduler);
        let ours = run.and_then(|run| run.delay("rnd_write"));
        let column = "rnd_write_avg_latency_ms";
        cells.extend(single("figure 4", scheduler, column, theirs, ours));
    }
    Ok(competing(cells, |cell| {
        Some((cell.column.clone(), cell.row.clone(), Sense::Less))
    }))
}

fn waits(reference: &Reference, runs: &Runs<'_>) -> Cells {
    let mut cells = Vec::new();
    for (name, case) in [
        ("read", Case::Read),
        ("write", Case::Write),
        ("mixed", Case::Mixed),
    ] {
        let theirs = reference.figure(&format!("wait_success_pct.{name}"))?;
        let ours = runs.of(case, "flubber").and_then(Run::wait_success);
        cells.extend(single(
            "section 4.5",
            name,
            "wait_success_pct",
            theirs,
            ours,
        ));
    }
    Ok(cells)
}
