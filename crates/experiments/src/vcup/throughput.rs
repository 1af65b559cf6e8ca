//! Section 5.6 and figure 14: bandwidth and IOPS held together, by PI throttling and the merge
//! limit, beside DRR.

use super::capacity::with_added;
use super::run::{Run, Second, v};
use super::setup::{Case, Change, Key};
use super::{Cells, Claims, Figure, Found, PAPER, goals};
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_14: Figure = Figure {
    name: "figure 14",
    keys: || vec![pi(), drr()],
    cells,
    claims,
    plots,
    ..Figure::BARE
};

fn pi() -> Key {
    Key::new(Case::Throughput, "vcup_pi")
}

/// The bandwidths are its limits.
fn drr() -> Key {
    Key::new(Case::Throughput, "drr").with(Change::Limits)
}

fn beta_of(run: &Run, server: &str, targets: &Run) -> Option<f64> {
    let vm = run.place(server)?;
    let bytes: Vec<u64> = run.seconds(vm).iter().map(|second| second.bytes).collect();
    super::run::beta(&bytes, targets.target(vm), super::run::SI)
}

fn cells(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 14", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (pi, drr) = (found.of(pi())?, found.of(drr())?);
        let server = labels[0].as_str();
        match column {
            "vcup_iops" => Some(pi.ios(pi.place(server)?)),
            "vcup_beta_pct" => beta_of(pi, server, pi),
            "drr_beta_pct" => beta_of(drr, server, pi),
            _ => None,
        }
    }))
}

/// How steady the rate of a VM's I/Os and their mean size are, as V.
fn steadiness(seconds: &[Second]) -> Option<[f64; 2]> {
    let rates: Vec<u64> = seconds.iter().map(|second| second.ios).collect();
    let sizes = seconds.iter().filter_map(|s| s.bytes.checked_div(s.ios));
    Some([v(&rates)?, v(&sizes.collect::<Vec<_>>())?])
}

fn claims(found: &Found<'_>) -> Claims {
    let (Some(tuned), Some(rival)) = (found.of(pi()), found.of(drr())) else {
        return Ok(Vec::new());
    };
    let mut claims = with_added(found, |found| {
        let cells = cells(found)?;
        Ok(goals::beta(
            "figure 14",
            &goals::column(&cells, "vcup_beta_pct"),
        ))
    })?;
    let cells = cells(found)?;
    let near: Vec<_> = goals::column(&cells, "vcup_iops");
    let shown = near
        .iter()
        .map(|cell| format!("{:.2} ({})", cell.ours, cell.row));
    claims.push(Said::new(
        "IOPS are the paper's within 1 %",
        near.iter().all(|cell| cell.is_within(0.01)),
        format!("they are {}", shown.collect::<Vec<_>>().join(", ")),
    ));
    let (ours, theirs) = (
        goals::column(&cells, "vcup_beta_pct"),
        goals::column(&cells, "drr_beta_pct"),
    );
    let both = ours.iter().zip(&theirs);
    let shown = both
        .clone()
        .map(|(a, b)| format!("{:.2} after {:.2}", a.ours, b.ours));
    claims.push(Said::new(
        "beta is smaller than under DRR",
        both.clone().all(|(vcup, drr)| vcup.ours < drr.ours),
        format!("it is {} %", shown.collect::<Vec<_>>().join(", ")),
    ));
    for (which, what) in [(0, "IOPS are"), (1, "the mean size of I/Os is")] {
        let of = |run: &Run| -> Option<Vec<f64>> {
            let vms = 0..run.vms().len();
            vms.map(|vm| Some(steadiness(run.seconds(vm))?[which]))
                .collect()
        };
        let (Some(vcup), Some(drr)) = (of(tuned), of(rival)) else {
            continue;
        };
        let shown = vcup
            .iter()
            .zip(&drr)
            .map(|(a, b)| format!("{a:.2} after {b:.2}"));
        claims.push(Said::new(
            format!("{what} steadier than under DRR"),
            vcup.iter().zip(&drr).all(|(vcup, drr)| vcup < drr),
            format!("V is {} %", shown.collect::<Vec<_>>().join(", ")),
        ));
    }
    Ok(claims)
}

fn plots(found: &Found<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (name, key) in [("V-Cup", pi()), ("DRR", drr())] {
        let Some(run) = found.of(key) else { continue };
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
