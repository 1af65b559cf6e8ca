//! Section 5.1.2 and figure 12: a VM with a request rate of its own beside one that is always
//! backlogged.

use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{BAPS, Cells, Figure, PAPER, RunResults};
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_12: Figure = Figure {
    name: "figure 12",
    keys,
    cells,
    plots,
    ..Figure::BARE
};

/// Request rates of VM1, per second.
pub(super) const RATES: [u32; 5] = [200, 400, 800, 1600, 3200];

fn key(rate: u32) -> Key {
    Key::new(Case::Bursts, Disk::Ssd, BAPS).with(Change::Rate(rate))
}

pub(super) fn keys() -> Vec<Key> {
    RATES.map(key).to_vec()
}

fn runs<'a>(results: &RunResults<'a>) -> Option<Vec<&'a Run>> {
    RATES
        .iter()
        .map(|rate| results.run_for(key(*rate)))
        .collect()
}

fn cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 12", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run = results.run_for(key(labels.first()?.parse().ok()?))?;
        match column {
            "vm1_iops" => run.iops("vm1"),
            "vm2_iops" => run.iops("vm2"),
            "utilisation_pct" => run.utilisation(),
            _ => None,
        }
    }))
}

/// Smaller of VM1's largest request rate and its fair share, in requests per second.
pub(super) fn due(results: &RunResults<'_>) -> Option<f64> {
    let share = results.run_for(key(RATES[0]))?.fair_share("vm1")?;
    Some(share.min(f64::from(RATES[RATES.len() - 1])))
}

fn plots(results: &RunResults<'_>) -> Vec<Plot> {
    let Some(runs) = runs(results) else {
        return Vec::new();
    };
    let mut plot = Plot::new(
        "Figure 12: a VM that asks at a rate beside one that always waits",
        Axis::linear("VM1 asks for", Unit::Number).including(0.0),
        Axis::linear("IOPS", Unit::Number).including(0.0),
    );
    for vm in ["vm1", "vm2"] {
        let points = runs.iter().zip(RATES);
        let points = points.filter_map(|(run, rate)| Some((f64::from(rate), run.iops(vm)?)));
        plot.add(Series::line(vm).points(points));
    }
    vec![plot]
}
