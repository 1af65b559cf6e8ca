//! Loss of throughput by sharing a disk: sections 1.3.2, 1.3.3 and 4.2.1, figures 1.2 to 1.5 and
//! 4.4.

use super::key::{Case, Change, Key};
use super::run::Run;
use super::{Figure, RunResults, basis, ordered_cells};
use crate::Sense;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_1_2: Figure = Figure {
    name: "figure 1.2",
    keys: records_keys,
    cells: |results| {
        let table = results.reference.table("figure 1.2", 1)?;
        let ours = |row: &[String], _: &str| {
            let (vms, native) = writers(&row[0])?;
            mean_mb_s(results, vms, *RECORDS.last()?, native)
        };
        let ordering = |cell: &crate::Cell| ("a writer's MB/s".to_owned(), cell.row.clone());
        Ok(ordered_cells(&table, Sense::More, ours, ordering))
    },
    plots: |results| {
        by_record(
            results,
            "Figure 1.2: what a writer has on average",
            mean_mb_s,
        )
    },
    ..Figure::BARE
};

pub(super) const FIGURE_1_3: Figure = Figure {
    name: "figure 1.3",
    keys: records_keys,
    cells: |results| {
        let table = results.reference.table("figure 1.3", 1)?;
        Ok(table.cells(super::PAPER.name, |row, _| {
            let (vms, native) = writers(&row[0])?;
            total_mb_s(results, vms, *RECORDS.last()?, native)
        }))
    },
    plots: |results| {
        by_record(
            results,
            "Figure 1.3: what writers have together",
            total_mb_s,
        )
    },
    ..Figure::BARE
};

pub(super) const FIGURE_1_4: Figure = Figure {
    name: "figure 1.4",
    keys: operations_keys,
    ..Figure::BARE
};

pub(super) const FIGURE_1_5: Figure = Figure {
    name: "figure 1.5",
    keys: operations_keys,
    ..Figure::BARE
};

pub(super) const FIGURE_4_4: Figure = Figure {
    name: "figure 4.4",
    keys: || {
        (1..=STREAMS)
            .map(|vms| basis::streams(Case::Web, vms))
            .collect()
    },
    cells: |results| {
        let table = results.reference.table("figure 4.4", 1)?;
        let ours = |row: &[String], _: &str| streams_mb_s(results, writers(&row[0])?.0);
        let ordering = |cell: &crate::Cell| ("all streams' MB/s".to_owned(), cell.row.clone());
        Ok(ordered_cells(&table, Sense::More, ours, ordering))
    },
    ..Figure::BARE
};

/// Record sizes in KiB.
const RECORDS: [u32; 6] = [4, 16, 64, 128, 256, 1024];
/// Largest number of VMs.
const VMS: usize = 3;
/// Largest number of streams.
const STREAMS: usize = 3;
/// Combinations of readers and writers.
const OPERATIONS: [&str; 7] = ["R", "W", "RR", "RW", "WW", "RRW", "RWW"];

fn key(vms: usize, kib: u32, native: bool) -> Key {
    Key::new(Case::Records, "cfq", Change::Records { vms, kib, native })
}

fn records_keys() -> Vec<Key> {
    let natively = RECORDS.map(|kib| key(1, kib, true));
    let vms = (1..=VMS).flat_map(|vms| RECORDS.map(|kib| key(vms, kib, false)));
    natively.into_iter().chain(vms).collect()
}

fn operations(all: &'static str) -> Key {
    Key::new(Case::Operations, "cfq", Change::Operations(all))
}

fn operations_keys() -> Vec<Key> {
    OPERATIONS.map(operations).to_vec()
}

/// Number of writers, and `true` for native, by the row's name: `host`, or `2 VMs`.
fn writers(row: &str) -> Option<(usize, bool)> {
    match row {
        "host" => Some((1, true)),
        _ => Some((row.split(' ').next()?.parse().ok()?, false)),
    }
}

/// Total throughput of the writers at each record size, in MB/s.
pub(super) fn all_writers(results: &RunResults<'_>, row: &str) -> Option<Vec<f64>> {
    let (vms, native) = writers(row)?;
    curve(results, total_mb_s, vms, native)
}

/// Mean throughput per writer at each record size, in MB/s.
pub(super) fn each_writer(results: &RunResults<'_>, row: &str) -> Option<Vec<f64>> {
    let (vms, native) = writers(row)?;
    curve(results, mean_mb_s, vms, native)
}

/// Total throughput of 1 to 3 streams, in MB/s.
pub(super) fn all_streams(results: &RunResults<'_>) -> Option<Vec<f64>> {
    (1..=STREAMS)
        .map(|vms| streams_mb_s(results, vms))
        .collect()
}

fn total_mb_s(results: &RunResults<'_>, vms: usize, kib: u32, native: bool) -> Option<f64> {
    Some(results.run_for(key(vms, kib, native))?.total() / 1e6)
}

fn mean_mb_s(results: &RunResults<'_>, vms: usize, kib: u32, native: bool) -> Option<f64> {
    Some(total_mb_s(results, vms, kib, native)? / vms as f64)
}

/// Figure by number of VMs, record size and `true` for native.
type ByRecord = fn(&RunResults<'_>, usize, u32, bool) -> Option<f64>;

/// Figure of `vms` VMs at each record size; `None` if a run is missing.
fn curve(results: &RunResults<'_>, of: ByRecord, vms: usize, native: bool) -> Option<Vec<f64>> {
    RECORDS
        .iter()
        .map(|kib| of(results, vms, *kib, native))
        .collect()
}

fn by_record(results: &RunResults<'_>, title: &str, of: ByRecord) -> Vec<Plot> {
    let mut plot = Plot::new(
        title,
        Axis::log2("record", Unit::Bytes),
        Axis::linear("MB/s", Unit::Number).including(0.0),
    );
    let all = [
        ("host", 1, true),
        ("1 VM", 1, false),
        ("2 VMs", 2, false),
        ("3 VMs", 3, false),
    ];
    for (name, vms, native) in all {
        let Some(curve) = curve(results, of, vms, native) else {
            // A plot without one of its curves would suggest that there is none.
            return Vec::new();
        };
        let bytes = RECORDS.map(|kib| f64::from(kib) * 1024.0);
        plot.add(Series::line(name).points(bytes.into_iter().zip(curve)));
    }
    vec![plot]
}

/// Combinations by name: a single one, or all with more than one VM.
fn combinations(name: &str) -> impl Iterator<Item = &'static str> {
    let is = move |all: &&str| *all == name || (name == "all" && all.len() > 1);
    OPERATIONS.into_iter().filter(is)
}

/// Figure of a VM of a combination.
type OfVm = fn(&Run, usize) -> Option<f64>;

/// Figure of each VM of these combinations; `None` if a run is missing.
fn of_each(results: &RunResults<'_>, name: &str, of: OfVm) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for combination in combinations(name) {
        let run = results.run_for(operations(combination))?;
        for vm in 0..combination.len() {
            all.push(of(run, vm)?);
        }
    }
    Some(all)
}

/// Bandwidth of each VM of a combination, in MB/s.
pub(super) fn rates(results: &RunResults<'_>, name: &str) -> Option<Vec<f64>> {
    of_each(results, name, |run, vm| Some(run.rate(vm)? / 1e6))
}

/// Time of each VM of a combination, in seconds.
pub(super) fn times(results: &RunResults<'_>, name: &str) -> Option<Vec<f64>> {
    of_each(results, name, Run::took)
}

/// Bandwidth of each VM of a combination as a fraction of its bandwidth alone.
pub(super) fn kept(results: &RunResults<'_>, name: &str) -> Option<Vec<f64>> {
    let [reader, writer] = ["R", "W"].map(|alone| rates(results, alone));
    let (reader, writer) = (*reader?.first()?, *writer?.first()?);
    // One entry per VM, in the order of `rates`.
    let alone = combinations(name).flat_map(str::chars);
    let alone = alone.map(|what| if what == 'R' { reader } else { writer });
    let beside = rates(results, name)?.into_iter();
    Some(
        beside
            .zip(alone)
            .map(|(beside, alone)| beside / alone)
            .collect(),
    )
}

/// Mean time of the VMs of each combination with this many VMs (`2 VMs`), in seconds.
pub(super) fn mean_times(results: &RunResults<'_>, vms: &str) -> Option<Vec<f64>> {
    let count: usize = vms.split(' ').next()?.parse().ok()?;
    let all = OPERATIONS.iter().filter(|all| all.len() == count);
    let mean = |all: &&str| Some(times(results, all)?.iter().sum::<f64>() / count as f64);
    all.map(mean).collect()
}

fn streams_mb_s(results: &RunResults<'_>, vms: usize) -> Option<f64> {
    Some(
        results
            .run_for(basis::streams(Case::Web, vms))
            .map(Run::total)?
            / 1e6,
    )
}
