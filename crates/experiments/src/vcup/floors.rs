//! Section 5.5: V-Cup over mClock. Figures 12 and 13, table VII.

use super::capacity::with_added;
use super::keys::bandwidths;
use super::run::{Run, Second, mean, v};
use super::setup::{Case, Change, Key};
use super::{Cells, Claims, Figure, Found, PAPER, goals};
use crate::said::Said;
use tidegate_report::Plot;

pub(super) const FIGURE_12: Figure = Figure {
    name: "figure 12",
    keys: || SETTINGS.map(alone).to_vec(),
    claims: uncontrolled,
    explained: false,
    ..Figure::BARE
};

pub(super) const FIGURE_13: Figure = Figure {
    name: "figure 13",
    keys: || VMS.map(key).to_vec(),
    claims: controlled,
    plots: |found| VMS.iter().filter_map(|vms| curve(found, *vms)).collect(),
    ..Figure::BARE
};

pub(super) const TABLE_7: Figure = Figure {
    name: "7",
    keys: FIGURE_13.keys,
    cells: table_7,
    claims: precise,
    ..Figure::BARE
};

/// VM1's reservation and limit in figure 12, IOPS.
const SETTINGS: [(u64, u64); 3] = [(100, 200), (100, 250), (100, 100)];
const VMS: [usize; 3] = [1, 2, 3];

fn alone((reservation, limit): (u64, u64)) -> Key {
    Key::new(Case::Floors, "mclock").with(Change::Iops { reservation, limit })
}

fn key(vms: usize) -> Key {
    Key::new(Case::Floors, "vcup_mclock").with(Change::First(vms))
}

fn counts(seconds: &[Second], of: impl Fn(&Second) -> u64) -> Option<f64> {
    v(&seconds.iter().map(of).collect::<Vec<_>>())
}

fn uncontrolled(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for (reservation, limit) in SETTINGS {
        let Some(run) = found.of(alone((reservation, limit))) else {
            continue;
        };
        let seconds = run.seconds(0);
        let iops = mean(seconds, |second| second.requests);
        let (Some(rate), Some(bandwidth)) = (
            counts(seconds, |s| s.requests),
            counts(seconds, |s| s.bytes),
        ) else {
            continue;
        };
        claims.push(Said::new(
            format!("mClock keeps VM1 at {reservation} to {limit} IOPS"),
            iops >= 0.99 * reservation as f64 && iops <= 1.01 * limit as f64,
            format!("it has {iops:.1}"),
        ));
        claims.push(Said::new(
            format!("VM1's bandwidth varies all the same, more than its IOPS ({reservation} to {limit} IOPS)"),
            bandwidth > rate,
            format!("V of its bandwidth is {bandwidth:.2} %, of its IOPS {rate:.2} %"),
        ));
    }
    Ok(claims)
}

fn controlled(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for vms in VMS {
        let Some(run) = found.of(key(vms)) else {
            continue;
        };
        let part = |vm: usize| run.mb_s(vm) * 1e6 / run.target(vm) as f64 - 1.0;
        let parts: Vec<f64> = (0..run.vms().len()).map(part).collect();
        let shown = (0..parts.len()).map(|vm| format!("{:.2}", run.mb_s(vm)));
        claims.push(Said::new(
            format!("over mClock each of {vms} has its 5, 6 and 7 MB/s within 5 %"),
            parts.iter().all(|part| part.abs() <= 0.05),
            format!("they have {} MB/s", shown.collect::<Vec<_>>().join(", ")),
        ));
    }
    Ok(claims)
}

fn curve(found: &Found<'_>, vms: usize) -> Option<Plot> {
    let title = format!("Figure 13: {vms} key-value VMs under V-Cup over mClock");
    Some(bandwidths(&title, found.of(key(vms))?))
}

fn table_7(found: &Found<'_>) -> Cells {
    let table = found.reference.table("7", 2)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run: &Run = found.of(key(labels[0].parse().ok()?))?;
        let vm = run.place(column)?;
        match labels[1].as_str() {
            "beta_pct" => run.beta(vm),
            _ => run.v(vm),
        }
    }))
}

fn precise(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for measure in ["beta", "v"] {
        claims.extend(with_added(found, |found| {
            let cells = table_7(found)?;
            let of: Vec<_> = cells.iter().filter(|c| c.row.contains(measure)).collect();
            Ok(match measure {
                "beta" => goals::beta("table 7", &of),
                _ => goals::v("table 7", &of),
            })
        })?);
    }
    Ok(claims)
}
