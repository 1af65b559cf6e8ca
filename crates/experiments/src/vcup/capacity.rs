//! Section 5.4: as many sequential readers as the array can do. Figure 11, and tables V and VI,
//! which `paper.toml` names 5 and 6.

use super::run::Run;
use super::setup::{Case, Change, Key};
use super::{Cells, Figure, PAPER, RunResults};

pub(super) const FIGURE_11: Figure = Figure {
    name: "figure 11",
    keys: || {
        ["fq", "vcup"]
            .into_iter()
            .flat_map(|scheduler| READERS.map(|readers| key(scheduler, readers)))
            .collect()
    },
    cells: totals,
    ..Figure::BARE
};

pub(super) const TABLE_5: Figure = Figure {
    name: "5",
    keys: || READERS.map(|readers| key("vcup", readers)).to_vec(),
    cells: |results| of_each(results, "5", Run::beta),
    ..Figure::BARE
};

pub(super) const TABLE_6: Figure = Figure {
    name: "6",
    keys: TABLE_5.keys,
    cells: |results| of_each(results, "6", Run::v),
    ..Figure::BARE
};

/// Number of VMs, and the target of each in MB/s.
pub(super) const READERS: [(usize, u64); 4] = [(4, 60), (5, 55), (6, 50), (7, 45)];

pub(super) fn key(scheduler: &'static str, (count, target): (usize, u64)) -> Key {
    Key::new(Case::Readers, scheduler).with(Change::Vms { count, target })
}

/// Readers of a row, whose label is their number.
fn readers_of_row(labels: &[String]) -> Option<(usize, u64)> {
    let count: usize = labels.first()?.parse().ok()?;
    READERS.into_iter().find(|(vms, _)| *vms == count)
}

fn totals(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 11", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let readers = readers_of_row(labels)?;
        let scheduler = match column {
            "total_fq_mb_s" => "fq",
            "total_vcup_mb_s" => "vcup",
            _ => return None,
        };
        results
            .run_for(key(scheduler, readers))
            .map(Run::total_mb_s)
    }))
}

/// Figure of each VM under V-Cup.
fn of_each(results: &RunResults<'_>, table: &str, figure: fn(&Run, usize) -> Option<f64>) -> Cells {
    let table = results.reference.table(table, 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run = results.run_for(key("vcup", readers_of_row(labels)?))?;
        let vm: usize = column.strip_prefix("vm")?.parse().ok()?;
        // Columns count VMs from 1.
        figure(run, vm.checked_sub(1)?)
    }))
}

/// Mean over the VMs of a run.
fn mean(run: &Run, metric: impl Fn(&Run, usize) -> f64) -> f64 {
    let vms = run.vms().len();
    (0..vms).map(|vm| metric(run, vm)).sum::<f64>() / vms.max(1) as f64
}

/// Mean over the VMs, for each number of readers.
pub(super) fn means(
    results: &RunResults<'_>,
    scheduler: &'static str,
    metric: impl Fn(&Run, usize) -> f64,
) -> Option<Vec<f64>> {
    let one = |readers| Some(mean(results.run_for(key(scheduler, readers))?, &metric));
    READERS.into_iter().map(one).collect()
}
