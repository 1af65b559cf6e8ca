//! Section 5.1.2 and figure 8: target revision with three workloads side by side.

use super::run::{Run, Second};
use super::setup::{Case, Key};
use super::{Figure, RunResults};
use tidegate_core::precision;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_8: Figure = Figure {
    name: "figure 8",
    keys: || vec![key()],
    plots,
    ..Figure::BARE
};

/// Length of an error's interval in seconds.
const INTERVAL: usize = 10;

fn key() -> Key {
    Key::new(Case::Drift, "vcup_10s")
}

/// B of each interval since the begin of the run, in percent.
fn errors(run: &Run, vm: usize) -> Vec<f64> {
    // A last interval that is cut off is left out.
    let intervals = run.all_seconds(vm).chunks_exact(INTERVAL);
    let error = |seconds: &[Second]| {
        let bytes: Vec<u64> = seconds.iter().map(|second| second.bytes).collect();
        // Errors are in millionths.
        precision::error(&bytes, run.target(vm)).map(|b| b as f64 / 1e4)
    };
    intervals.filter_map(error).collect()
}

/// B of each interval of a VM after the first minute, in percent.
pub(super) fn later_errors(results: &RunResults<'_>, vm: &str) -> Option<Vec<f64>> {
    let run = results.run_for(key())?;
    let vm = run.vm_index(vm)?;
    // Counting begins after a minute.
    let first = run.all_seconds(vm).len() - run.seconds(vm).len();
    errors(run, vm).get(first / INTERVAL..).map(<[f64]>::to_vec)
}

fn plots(results: &RunResults<'_>) -> Vec<Plot> {
    let Some(run) = results.run_for(key()) else {
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
