//! Section 5.6 and figure 14: targets of both bandwidth and IOPS, by PI throttling and the merge
//! limit, compared with DRR.

use super::run::{Run, Second, v};
use super::setup::{Case, Change, Key};
use super::{Cells, Figure, PAPER, RunResults};
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_14: Figure = Figure {
    name: "figure 14",
    keys: || vec![pi(), drr()],
    cells,
    plots,
    ..Figure::BARE
};

fn pi() -> Key {
    Key::new(Case::Throughput, "vcup_pi")
}

/// DRR run with the bandwidth targets as limits.
fn drr() -> Key {
    Key::new(Case::Throughput, "drr").with(Change::Limits)
}

fn beta_of(run: &Run, server: &str, targets: &Run) -> Option<f64> {
    let vm = run.vm_index(server)?;
    let bytes: Vec<u64> = run.seconds(vm).iter().map(|second| second.bytes).collect();
    // DRR has limits in place of targets, so that the targets of the V-Cup run count.
    super::run::beta(
        &bytes,
        targets.target(vm),
        super::run::STATISTICAL_INTERVAL_S,
    )
}

fn cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 14", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (pi, drr) = (results.run_for(pi())?, results.run_for(drr())?);
        let server = labels[0].as_str();
        match column {
            "vcup_iops" => Some(pi.ios(pi.vm_index(server)?)),
            "vcup_beta_pct" => beta_of(pi, server, pi),
            "drr_beta_pct" => beta_of(drr, server, pi),
            _ => None,
        }
    }))
}

/// V of the rate of a VM's I/Os, and of their mean size.
fn steadiness(seconds: &[Second]) -> Option<[f64; 2]> {
    let rates: Vec<u64> = seconds.iter().map(|second| second.ios).collect();
    // A second without I/Os has no mean size.
    let sizes = seconds.iter().filter_map(|s| s.bytes.checked_div(s.ios));
    Some([v(&rates)?, v(&sizes.collect::<Vec<_>>())?])
}

/// V of each VM's I/O rate (`iops`) or I/O size, under `vcup` or `drr`.
pub(super) fn of_each(results: &RunResults<'_>, scheduler: &str, which: &str) -> Option<Vec<f64>> {
    let run = results.run_for(if scheduler == "drr" { drr() } else { pi() })?;
    let one = |vm| {
        let [rate, size] = steadiness(run.seconds(vm))?;
        Some(if which == "iops" { rate } else { size })
    };
    (0..run.vms().len()).map(one).collect()
}

fn plots(results: &RunResults<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (name, key) in [("V-Cup", pi()), ("DRR", drr())] {
        let Some(run) = results.run_for(key) else {
            continue;
        };
        let mut plot = Plot::new(
            format!("Figure 14: I/Os a second under {name}"),
            Axis::linear("time", Unit::Seconds).including(0.0),
            Axis::linear("I/Os a second", Unit::Number).including(0.0),
        );
        for (vm, of) in run.vms().iter().enumerate() {
            let points = run.seconds(vm).iter().enumerate();
            let points = points.map(|(i, second)| (i as f64, second.ios as f64));
            plot.add(Series::line(of.name.as_str()).points(points));
        }
        plots.push(plot);
    }
    plots
}
