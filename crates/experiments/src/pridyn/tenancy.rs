//! What VMs lose by sharing a disk: sections 1.3.2, 1.3.3 and 4.2.1, figures 1.2 to 1.5 and 4.4.

use super::key::{Case, Change, Key};
use super::run::Run;
use super::{Claims, Figure, Found, basis, contested};
use crate::Sense;
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_1_2: Figure = Figure {
    name: "figure 1.2",
    keys: records_keys,
    cells: |found| {
        let table = found.reference.table("figure 1.2", 1)?;
        let ours = |row: &[String], _: &str| {
            let (vms, native) = writers(&row[0])?;
            mean_mb_s(found, vms, *RECORDS.last()?, native)
        };
        let contest = |cell: &crate::Cell| ("a writer's MB/s".to_owned(), cell.row.clone());
        Ok(contested(&table, Sense::More, ours, contest))
    },
    plots: |found| by_record(found, "Figure 1.2: what a writer has on average", mean_mb_s),
    ..Figure::BARE
};

pub(super) const FIGURE_1_3: Figure = Figure {
    name: "figure 1.3",
    keys: records_keys,
    cells: |found| {
        let table = found.reference.table("figure 1.3", 1)?;
        Ok(table.cells(super::PAPER.name, |row, _| {
            let (vms, native) = writers(&row[0])?;
            total_mb_s(found, vms, *RECORDS.last()?, native)
        }))
    },
    plots: |found| by_record(found, "Figure 1.3: what writers have together", total_mb_s),
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
    cells: |found| {
        let table = found.reference.table("figure 4.4", 1)?;
        let ours = |row: &[String], _: &str| streams_mb_s(found, writers(&row[0])?.0);
        let contest = |cell: &crate::Cell| ("all streams' MB/s".to_owned(), cell.row.clone());
        Ok(contested(&table, Sense::More, ours, contest))
    },
    ..Figure::BARE
};

/// Sizes of records, in KiB.
const RECORDS: [u32; 6] = [4, 16, 64, 128, 256, 1024];
/// As many VMs as there are at most.
const VMS: usize = 3;
const STREAMS: usize = 3;
/// All combinations of reads and writes that are tried.
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

/// How many write, and whether natively, by the row's name: `host`, or `2 VMs`.
fn writers(row: &str) -> Option<(usize, bool)> {
    match row {
        "host" => Some((1, true)),
        _ => Some((row.split(' ').next()?.parse().ok()?, false)),
    }
}

/// What writers have together at each record size, in MB/s.
pub(super) fn all_writers(found: &Found<'_>, row: &str) -> Option<Vec<f64>> {
    let (vms, native) = writers(row)?;
    curve(found, total_mb_s, vms, native)
}

/// What each of them has.
pub(super) fn each_writer(found: &Found<'_>, row: &str) -> Option<Vec<f64>> {
    let (vms, native) = writers(row)?;
    curve(found, mean_mb_s, vms, native)
}

/// What 1 to 3 streams have together, in MB/s.
pub(super) fn all_streams(found: &Found<'_>) -> Option<Vec<f64>> {
    (1..=STREAMS).map(|vms| streams_mb_s(found, vms)).collect()
}

fn total_mb_s(found: &Found<'_>, vms: usize, kib: u32, native: bool) -> Option<f64> {
    Some(found.of(key(vms, kib, native))?.total() / 1e6)
}

fn mean_mb_s(found: &Found<'_>, vms: usize, kib: u32, native: bool) -> Option<f64> {
    Some(total_mb_s(found, vms, kib, native)? / vms as f64)
}

/// Figures by record size.
type ByRecord = fn(&Found<'_>, usize, u32, bool) -> Option<f64>;

/// A figure of so many VMs at each record size; `None`: it was not run.
fn curve(found: &Found<'_>, of: ByRecord, vms: usize, native: bool) -> Option<Vec<f64>> {
    RECORDS
        .iter()
        .map(|kib| of(found, vms, *kib, native))
        .collect()
}

fn by_record(found: &Found<'_>, title: &str, of: ByRecord) -> Vec<Plot> {
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
        let Some(curve) = curve(found, of, vms, native) else {
            return Vec::new();
        };
        let bytes = RECORDS.map(|kib| f64::from(kib) * 1024.0);
        plot.add(Series::line(name).points(bytes.into_iter().zip(curve)));
    }
    vec![plot]
}

/// Alone, a reader first; then each of all combinations of more.
type OfVm<'a> = &'a dyn Fn(&'static str, usize) -> Option<f64>;

/// What each VM of each combination has beside what it has alone: combination, VM, beside, alone.
fn pairs(of: OfVm<'_>) -> Option<Vec<(&'static str, usize, f64, f64)>> {
    let mut pairs = Vec::new();
    for all in OPERATIONS.iter().filter(|all| all.len() > 1) {
        for (vm, what) in all.chars().enumerate() {
            let alone = of(if what == 'R' { "R" } else { "W" }, 0)?;
            pairs.push((*all, vm, of(all, vm)?, alone));
        }
    }
    Some(pairs)
}

/// In words: `RW 20.1 and 21.0, ...`.
fn told(of: OfVm<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for all in OPERATIONS {
        let values: Option<Vec<String>> = (0..all.len())
            .map(|vm| Some(format!("{:.1}", of(all, vm)?)))
            .collect();
        parts.push(format!("{all} {}", values?.join(" and ")));
    }
    Some(parts.join(", "))
}

/// Figure 1.4.
pub(super) fn rates(found: &Found<'_>) -> Claims {
    let rate = |all, vm| Some(found.of(operations(all))?.rate(vm)? / 1e6);
    Ok(beside(&rate, "MB/s", |beside, alone| beside < alone).unwrap_or_default())
}

/// Figure 1.5.
pub(super) fn times(found: &Found<'_>) -> Claims {
    let took = |all, vm| found.of(operations(all))?.took(vm);
    Ok(latencies(&took).unwrap_or_default())
}

/// A figure is near another within so much of it: "equally for all the applications".
const EQUALLY: f64 = 0.25;

fn beside(of: OfVm<'_>, unit: &str, worse: impl Fn(f64, f64) -> bool) -> Option<Vec<Said>> {
    let (pairs, told) = (pairs(of)?, told(of)?);
    let drops = pairs.iter().map(|(_, _, beside, alone)| beside / alone);
    let (least, most) = drops.fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
    let even = OPERATIONS.iter().filter(|all| all.len() > 1).all(|all| {
        let of_all = pairs
            .iter()
            .filter(|pair| pair.0 == *all)
            .map(|pair| pair.2 / pair.3);
        let (a, b) = of_all.fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        b <= a * (1.0 + EQUALLY)
    });
    Some(vec![
        Said::new(
            "a single read or write has most; beside any other it has far less, at most two thirds",
            pairs
                .iter()
                .all(|(_, _, beside, alone)| worse(*beside, *alone))
                && most <= 2.0 / 3.0,
            format!("{told} {unit}"),
        ),
        Said::new(
            "those beside each other lose alike, whatever they do: within a quarter",
            even,
            format!(
                "they keep {:.0} to {:.0} % of what they have alone: {told} {unit}",
                100.0 * least,
                100.0 * most
            ),
        ),
    ])
}

fn latencies(of: OfVm<'_>) -> Option<Vec<Said>> {
    let mean = |all: &'static str| -> Option<f64> {
        let each: Option<Vec<f64>> = (0..all.len()).map(|vm| of(all, vm)).collect();
        Some(each?.iter().sum::<f64>() / all.len() as f64)
    };
    let of_count = |count: usize| -> Option<Vec<f64>> {
        let all = OPERATIONS.iter().filter(|all| all.len() == count);
        all.map(|all| mean(all)).collect()
    };
    let (one, two, three) = (of_count(1)?, of_count(2)?, of_count(3)?);
    let least = |of: &[f64]| of.iter().copied().fold(f64::MAX, f64::min);
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    Some(vec![Said::new(
        "the more operations run beside each other, the longer each takes, whatever they are",
        most(&one) < least(&two) && most(&two) < least(&three),
        format!("{} s", told(of)?),
    )])
}

fn streams_mb_s(found: &Found<'_>, vms: usize) -> Option<f64> {
    Some(found.of(basis::streams(Case::Web, vms)).map(Run::total)? / 1e6)
}
