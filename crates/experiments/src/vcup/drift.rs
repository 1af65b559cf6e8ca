//! Section 5.1.2 and figure 8: target revision, of three workloads beside each other.

use super::run::{Run, Second};
use super::setup::{Case, Key};
use super::{Claims, Figure, Found};
use crate::said::Said;
use tidegate_core::precision;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_8: Figure = Figure {
    name: "figure 8",
    keys: || vec![key()],
    claims,
    plots,
    ..Figure::BARE
};

const INTERVAL: usize = 10;
/// B within so many per cent is near.
const NEAR: f64 = 5.0;

fn key() -> Key {
    Key::new(Case::Drift, "vcup_10s")
}

/// B of each interval from the beginning on, in per cent.
fn errors(run: &Run, vm: usize) -> Vec<f64> {
    let intervals = run.all_seconds(vm).chunks_exact(INTERVAL);
    let error = |seconds: &[Second]| {
        let bytes: Vec<u64> = seconds.iter().map(|second| second.bytes).collect();
        precision::error(&bytes, run.target(vm)).map(|b| b as f64 / 1e4)
    };
    intervals.filter_map(error).collect()
}

fn claims(found: &Found<'_>) -> Claims {
    let Some(run) = found.of(key()) else {
        return Ok(Vec::new());
    };
    let mut claims = Vec::new();
    for (vm, of) in run.vms().iter().enumerate() {
        // What counts begins after a minute.
        let first = run.all_seconds(vm).len() - run.seconds(vm).len();
        let errors = errors(run, vm);
        let later = &errors[first / INTERVAL..];
        let near = later.iter().filter(|b| b.abs() <= NEAR).count();
        let worst = later
            .iter()
            .copied()
            .fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        claims.push(Said::new(
            format!(
                "B is within {NEAR:.0} % in each 10 s after the first minute ({})",
                of.name
            ),
            near == later.len(),
            format!("it is in {near} of {}, {worst:+.2} % at worst", later.len()),
        ));
    }
    Ok(claims)
}

fn plots(found: &Found<'_>) -> Vec<Plot> {
    let Some(run) = found.of(key()) else {
        return Vec::new();
    };
    let mut plot = Plot::new(
        "Figure 8: the error of three workloads beside each other",
        Axis::linear("time", Unit::Seconds).including(0.0),
        Axis::linear("B over the ten seconds before", Unit::Percent).including(0.0),
    );
    for (vm, of) in run.vms().iter().enumerate() {
        let points = errors(run, vm).into_iter().enumerate();
        let points = points.map(|(i, b)| (((i + 1) * INTERVAL) as f64, b));
        plot.add(Series::line(of.name.as_str()).points(points));
    }
    vec![plot]
}
