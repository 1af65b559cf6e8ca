//! Plots of the paper's curves.

use super::RunResults;
use super::measures::WRITERS;
use super::setup::{Case, Key};
use tidegate_report::{Axis, Plot, Series, Unit};

/// Figure 4a: throughput of two writers under Flubber over time, beside the promised throughput;
/// `None` if the run is missing.
pub(super) fn settling(results: &RunResults<'_>) -> Option<Plot> {
    let run = results.run_for(Key::new(Case::Write, "flubber"))?;
    let mut plot = Plot::new(
        "Figure 4: two writers under Flubber",
        Axis::linear("time", Unit::Seconds).including(0.0),
        Axis::linear("IOPS over the five seconds from then on", Unit::Number).including(0.0),
    );
    let curves = WRITERS.map(|(vm, promised)| {
        let means = run.five_seconds(vm);
        // A run shorter than a window has no points.
        let last = means.len().saturating_sub(1) as f64;
        let due = Series::line(format!("promised to {vm}"));
        let due = due.points([(0.0, promised), (last, promised)]);
        let seconds = means.into_iter().enumerate();
        let had = Series::line(vm).points(seconds.map(|(i, mean)| (i as f64, mean)));
        (had, due)
    });
    // Curves before the lines they are compared with, so that they get the first colours.
    let (had, due): (Vec<_>, Vec<_>) = curves.into_iter().unzip();
    for series in had.into_iter().chain(due) {
        plot.add(series);
    }
    Some(plot)
}
