//! Section 5.2: key-value stores of different layouts. Table II and figure 9.

use super::run::{Run, Second, mean};
use super::setup::{Case, Key};
use super::{Cells, Figure, PAPER, RunResults};
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const TABLE_2: Figure = Figure {
    name: "2",
    keys,
    cells: table_2,
    ..Figure::BARE
};

pub(super) const FIGURE_9: Figure = Figure {
    name: "figure 9",
    keys,
    plots: curves,
    ..Figure::BARE
};

pub(super) const FQ: &str = "fq";
pub(super) const VCUP: &str = "vcup";

pub(super) fn key(scheduler: &'static str) -> Key {
    Key::new(Case::Keys, scheduler)
}

fn keys() -> Vec<Key> {
    vec![key(FQ), key(VCUP)]
}

/// Columns of tables II and IV, of a VM under FQ and V-Cup.
pub(super) fn consolidated(vm: &str, column: &str, fq: &Run, vcup: &Run) -> Option<f64> {
    match column {
        "measured_mb_s" => Some(vcup.mb_s(vcup.vm_index(vm)?)),
        "beta_pct" => vcup.beta(vcup.vm_index(vm)?),
        "v_vcup_pct" => vcup.v(vcup.vm_index(vm)?),
        "v_fq_pct" => fq.v(fq.vm_index(vm)?),
        _ => None,
    }
}

fn runs<'a>(results: &RunResults<'a>) -> Option<(&'a Run, &'a Run)> {
    Some((results.run_for(key(FQ))?, results.run_for(key(VCUP))?))
}

fn table_2(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("2", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (fq, vcup) = runs(results)?;
        consolidated(&labels[0], column, fq, vcup)
    }))
}

fn curves(results: &RunResults<'_>) -> Vec<Plot> {
    let Some((fq, vcup)) = runs(results) else {
        return Vec::new();
    };
    [("FQ", fq), ("V-Cup over FQ", vcup)]
        .map(|(name, run)| bandwidths(&format!("Figure 9: four key-value VMs under {name}"), run))
        .into()
}

/// Plot of each VM's bandwidth over ten-second spans.
pub(super) fn bandwidths(title: &str, run: &Run) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::linear("time", Unit::Seconds).including(0.0),
        Axis::linear("bandwidth", Unit::BytesPerS).including(0.0),
    );
    for (vm, of) in run.vms().iter().enumerate() {
        let tens = run.all_seconds(vm).chunks_exact(10).enumerate();
        let of_ten = |seconds: &[Second]| mean(seconds, |second| second.bytes);
        let points = tens.map(|(i, seconds)| (10.0 * (i + 1) as f64, of_ten(seconds)));
        plot.add(Series::line(of.name.as_str()).points(points));
    }
    plot
}
