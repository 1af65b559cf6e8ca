//! Section 5.5: V-Cup over mClock. Figures 12 and 13, table VII.

use super::keys::bandwidths;
use super::run::{Run, Second, mean, v};
use super::setup::{Case, Change, Key};
use super::{Cells, Figure, PAPER, RunResults};
use tidegate_report::Plot;

pub(super) const FIGURE_12: Figure = Figure {
    name: "figure 12",
    keys: || SETTINGS.map(alone).to_vec(),
    explained: false,
    ..Figure::BARE
};

pub(super) const FIGURE_13: Figure = Figure {
    name: "figure 13",
    keys: || VMS.map(key).to_vec(),
    plots: |results| VMS.iter().filter_map(|vms| curve(results, *vms)).collect(),
    ..Figure::BARE
};

pub(super) const TABLE_7: Figure = Figure {
    name: "7",
    keys: FIGURE_13.keys,
    cells: table_7,
    ..Figure::BARE
};

/// Reservations and limits of VM1 in figure 12, in IOPS.
const SETTINGS: [(u64, u64); 3] = [(100, 200), (100, 250), (100, 100)];
const VMS: [usize; 3] = [1, 2, 3];

fn alone((reservation, limit): (u64, u64)) -> Key {
    Key::new(Case::Floors, "mclock").with(Change::Iops { reservation, limit })
}

pub(super) fn key(vms: usize) -> Key {
    Key::new(Case::Floors, "vcup_mclock").with(Change::First(vms))
}

fn counts(seconds: &[Second], of: impl Fn(&Second) -> u64) -> Option<f64> {
    v(&seconds.iter().map(of).collect::<Vec<_>>())
}

/// Figure of VM1 alone with a reservation and a limit, such as `100 to 200`.
pub(super) fn of_alone(results: &RunResults<'_>, setting: &str, figure: &str) -> Option<f64> {
    let (reservation, limit) = setting.split_once(" to ")?;
    let run = results.run_for(alone((reservation.parse().ok()?, limit.parse().ok()?)))?;
    let seconds = run.seconds(0);
    match figure {
        "iops" => Some(mean(seconds, |second| second.requests)),
        "V of IOPS" => counts(seconds, |second| second.requests),
        _ => counts(seconds, |second| second.bytes),
    }
}

fn curve(results: &RunResults<'_>, vms: usize) -> Option<Plot> {
    let title = format!("Figure 13: {vms} key-value VMs under V-Cup over mClock");
    Some(bandwidths(&title, results.run_for(key(vms))?))
}

fn table_7(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("7", 2)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run: &Run = results.run_for(key(labels[0].parse().ok()?))?;
        let vm = run.vm_index(column)?;
        match labels[1].as_str() {
            "beta_pct" => run.beta(vm),
            _ => run.v(vm),
        }
    }))
}
