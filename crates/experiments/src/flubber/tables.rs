//! Figures of the simulation beside the paper's.

use super::measures::{counts_whole_runs, delay, iops};
use super::setup::{Case, Key, Run, SCHEDULERS};
use super::{BETAS, Figure, PAPER, RunResults, beta, curves, named};
use crate::Cell;
use crate::findings::Sense;
use crate::frame::Cells;
use crate::ordering::with_orderings;

/// Requests of sysbench: 2 GiB in requests of 16 KiB, and its default number of random ones.
const SEQUENTIAL_REQUESTS: f64 = 131_072.0;
/// Number of random requests of sysbench, its default.
const RANDOM_REQUESTS: f64 = 10_000.0;

/// Tables and figures in the order of the paper; `claims.toml` has its claims about them.
pub(super) const FIGURES: [Figure; 7] = [
    Figure {
        name: "2",
        keys: || BETAS.map(beta).to_vec(),
        cells: table2,
        ..Figure::BARE
    },
    Figure {
        name: "3",
        keys: || under(&[Case::Read, Case::Write], &SCHEDULERS),
        cells: table3,
        ..Figure::BARE
    },
    Figure {
        name: "4",
        keys: || under(&[Case::Mixed], &SCHEDULERS),
        cells: table4,
        ..Figure::BARE
    },
    Figure {
        name: "5",
        keys: || under(&[Case::ReadBackup, Case::WriteBackup], &SCHEDULERS[1..]),
        cells: table5,
        ..Figure::BARE
    },
    Figure {
        name: "6",
        keys: || under(&ALONE, &SCHEDULERS),
        cells: table6,
        ..Figure::BARE
    },
    Figure {
        name: "figure 4",
        keys: || under(&[Case::Write], &SCHEDULERS),
        cells: figure4,
        plots: |results| curves::settling(results).into_iter().collect(),
        ..Figure::BARE
    },
    Figure {
        name: "section 4.5",
        keys: || under(&ALONE, &["flubber"]),
        cells: waits,
        ..Figure::BARE
    },
];

/// Cases without a backup.
const ALONE: [Case; 3] = [Case::Read, Case::Write, Case::Mixed];

/// Keys of these cases under these schedulers.
fn under(cases: &[Case], schedulers: &[&'static str]) -> Vec<Key> {
    let of = |&case: &Case| schedulers.iter().map(move |name| Key::new(case, name));
    cases.iter().flat_map(of).collect()
}

fn table2(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("2", 1)?;
    let whole = counts_whole_runs(results);
    let cells = table.cells(PAPER.name, |labels, column| {
        let run = results.run_for(beta(labels.first()?.parse().ok()?))?;
        let (vm, figure) = column.split_once('_')?;
        let vm = format!("{vm}_read");
        match figure {
            "avg_iops" => iops(results, run, &vm),
            "max_iops" => run.iops_max(&vm, whole),
            "avg_delay_ms" => delay(results, run, &vm),
            "max_delay_ms" => run.delay_max(&vm, whole),
            _ => None,
        }
    });
    Ok(with_orderings(cells, |cell| {
        let sense = match cell.column.split_once('_')?.1 {
            "avg_iops" => Sense::More,
            "avg_delay_ms" => Sense::Less,
            // The order of extremes of a series has no meaning.
            _ => return None,
        };
        Some((cell.column.clone(), format!("beta {}", cell.row), sense))
    }))
}

/// Case and VM of a row such as `read/seq_read`.
fn case_and_vm(labels: &[String]) -> Option<(Case, &str)> {
    let (case, vm) = labels.first()?.split_once('/')?;
    Some((Case::named(case)?, vm))
}

fn table3(results: &RunResults<'_>) -> Cells {
    let cells = results
        .reference
        .table("3", 1)?
        .cells(PAPER.name, |labels, column| {
            let (case, vm) = case_and_vm(labels)?;
            named(results, case, column)?.time(vm)
        });
    Ok(with_orderings(cells, |cell| {
        Some((cell.row.clone(), cell.column.clone(), Sense::Less))
    }))
}

/// Requests of all guest processes per second until the last of them is done, which corresponds to
/// the paper's average of the server.
fn server_iops(run: &Run) -> f64 {
    // Mixed case: two sequential guests and a random one.
    (2.0 * SEQUENTIAL_REQUESTS + RANDOM_REQUESTS) / run.report.duration_s
}

fn table4(results: &RunResults<'_>) -> Cells {
    let cells = results
        .reference
        .table("4", 1)?
        .cells(PAPER.name, |labels, column| {
            let run = named(results, Case::Mixed, labels.first()?)?;
            match column {
                "server_avg_iops" => Some(server_iops(run)),
                time => run.time(time.strip_suffix("_s")?),
            }
        });
    Ok(with_orderings(cells, |cell| {
        let sense = match cell.column.as_str() {
            "server_avg_iops" => Sense::More,
            _ => Sense::Less,
        };
        Some((cell.column.clone(), cell.row.clone(), sense))
    }))
}

fn table5(results: &RunResults<'_>) -> Cells {
    let cells = results
        .reference
        .table("5", 1)?
        .cells(PAPER.name, |labels, column| {
            let (case, vm) = case_and_vm(labels)?;
            named(results, case.with_backup()?, column)?.time(vm)
        });
    Ok(with_orderings(cells, |cell| {
        Some((cell.row.clone(), cell.column.clone(), Sense::Less))
    }))
}

fn table6(results: &RunResults<'_>) -> Cells {
    let cells = results
        .reference
        .table("6", 2)?
        .cells(PAPER.name, |labels, column| {
            let run = named(results, Case::named(labels.first()?)?, labels.get(1)?)?;
            let [zero, within, outside] = run.distances();
            match column {
                "d_zero" => Some(zero),
                "d_nonzero_within_5e7" => Some(within),
                "within_5e7" => Some(zero + within),
                "outside_5e7" => Some(outside),
                _ => None,
            }
        });
    Ok(with_orderings(cells, |cell| {
        let sense = match cell.column.as_str() {
            "d_zero" => Sense::More,
            "outside_5e7" => Sense::Less,
            // The remaining share follows from these two.
            _ => return None,
        };
        let (case, who) = cell.row.split_once('/')?;
        Some((format!("{case} {}", cell.column), who.to_owned(), sense))
    }))
}

/// Figure that the paper's text states, beside ours.
fn single(table: &str, row: &str, column: &str, theirs: f64, ours: Option<f64>) -> Option<Cell> {
    Cell::stated(PAPER.name, [table, row, column], theirs, ours)
}

fn figure4(results: &RunResults<'_>) -> Cells {
    let mut cells = Vec::new();
    for scheduler in SCHEDULERS {
        let theirs = results
            .reference
            .figure(&format!("feedback.rnd_write_avg_latency_ms.{scheduler}"))?;
        let run = results.run_for(Key::new(Case::Write, scheduler));
        let ours = run.and_then(|run| run.delay("rnd_write"));
        let column = "rnd_write_avg_latency_ms";
        cells.extend(single("figure 4", scheduler, column, theirs, ours));
    }
    Ok(with_orderings(cells, |cell| {
        Some((cell.column.clone(), cell.row.clone(), Sense::Less))
    }))
}

fn waits(results: &RunResults<'_>) -> Cells {
    let mut cells = Vec::new();
    for (name, case) in [
        ("read", Case::Read),
        ("write", Case::Write),
        ("mixed", Case::Mixed),
    ] {
        let theirs = results
            .reference
            .figure(&format!("wait_success_pct.{name}"))?;
        let ours = results
            .run_for(Key::new(case, "flubber"))
            .and_then(Run::wait_success);
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
