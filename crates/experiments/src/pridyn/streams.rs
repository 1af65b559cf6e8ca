//! Streams of requests with deadlines: section 4.2, figures 4.5 to 4.7.

use super::key::{Case, Change, Key, Reading};
use super::{Figure, RunResults, basis, ordered_cells};
use crate::Sense;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_4_5: Figure = Figure {
    name: "figure 4.5",
    keys: || with_measured(TENTHS.map(|tenths| web("cfq", tenths)).to_vec()),
    cells: |results| {
        let table = results.reference.table("figure 4.5", 1)?;
        let ours = |row: &[String], _: &str| {
            // Rounded: a delta such as 0.3 is not a whole number of tenths in binary.
            let tenths = (row[0].parse::<f64>().ok()? * 10.0).round() as u32;
            results.run_for(web("cfq", tenths))?.all_missed_pct()
        };
        let ordering =
            |cell: &crate::Cell| ("deadlines missed".to_owned(), format!("delta {}", cell.row));
        Ok(ordered_cells(&table, Sense::Less, ours, ordering))
    },
    plots: |results| {
        let ours = curve(results, "cfq").map(|curve| vec![("web streams under CFQ", curve)]);
        let printed = curve(&results.varied(Reading::Printed), "cfq")
            .map(|curve| vec![("with equation 4.1 as printed", curve)]);
        let series = [ours, printed].into_iter().flatten().flatten().collect();
        by_tolerance("Figure 4.5: deadlines missed by delta", series)
    },
    ..Figure::BARE
};

pub(super) const FIGURE_4_6: Figure = Figure {
    name: "figure 4.6",
    keys: || with_measured(BOTH.map(beside_research).to_vec()),
    cells: |results| {
        let table = results.reference.table("figure 4.6", 1)?;
        let ours = |_: &[String], column: &str| {
            let scheduler = if column == "with_pct" {
                "pridyn"
            } else {
                "cfq"
            };
            results.run_for(beside_research(scheduler))?.missed_pct(WEB)
        };
        let ordering = |cell: &crate::Cell| {
            (
                "deadlines missed".to_owned(),
                cell.column.replace("_pct", " PriDyn"),
            )
        };
        Ok(ordered_cells(&table, Sense::Less, ours, ordering))
    },
    plots: |results| responses(results).into_iter().collect(),
    ..Figure::BARE
};

pub(super) const FIGURE_4_7: Figure = Figure {
    name: "figure 4.7",
    keys: || {
        let all = BOTH
            .into_iter()
            .flat_map(|scheduler| TENTHS.map(|tenths| web(scheduler, tenths)));
        with_measured(all.collect())
    },
    plots: |results| {
        let mut series = Vec::new();
        for (name, scheduler, reading) in [
            ("without PriDyn", "cfq", results.variant),
            ("with PriDyn", "pridyn", results.variant),
            ("with figure 3.3 as printed", "pridyn", Reading::Literal),
        ] {
            series.extend(curve(&results.varied(reading), scheduler).map(|curve| (name, curve)));
        }
        by_tolerance(
            "Figure 4.7b: deadlines missed by both of two web streams",
            series,
        )
    },
    ..Figure::BARE
};

/// Deltas, in tenths.
const TENTHS: [u32; 9] = [2, 3, 4, 5, 6, 7, 8, 9, 10];
/// Schedulers without PriDyn and with it.
const BOTH: [&str; 2] = ["cfq", "pridyn"];
/// Index of the stream with strict deadlines beside research.
const WEB: usize = 0;
/// Index of the stream of research.
const RESEARCH: usize = 1;
const STRICT: u32 = 3;
/// Number of streams.
const VMS: usize = 2;

fn web(scheduler: &'static str, tenths: u32) -> Key {
    Key::new(Case::Web, scheduler, Change::Tolerance { vms: VMS, tenths })
}

fn beside_research(scheduler: &'static str) -> Key {
    let tenths = STRICT;
    Key::new(
        Case::WebResearch,
        scheduler,
        Change::Tolerance { vms: VMS, tenths },
    )
}

/// Adds the runs that measure the disk's throughput.
fn with_measured(keys: Vec<Key>) -> Vec<Key> {
    let measured = (1..=VMS).map(|vms| basis::streams(Case::Web, vms));
    measured.chain(keys).collect()
}

/// Missed deadlines at each delta, in percent; `None` if a run is missing.
fn curve(results: &RunResults<'_>, scheduler: &'static str) -> Option<Vec<f64>> {
    let of = |tenths: &u32| results.run_for(web(scheduler, *tenths))?.all_missed_pct();
    TENTHS.iter().map(of).collect()
}

/// Missed deadlines of one of the two streams at each delta, in percent.
fn curve_of(results: &RunResults<'_>, scheduler: &'static str, vm: usize) -> Option<Vec<f64>> {
    let of = |tenths: &u32| results.run_for(web(scheduler, *tenths))?.missed_pct(vm);
    TENTHS.iter().map(of).collect()
}

/// Deadlines missed at each delta, in percent, by both streams or one of them.
pub(super) fn missed_by_delta(
    results: &RunResults<'_>,
    scheduler: &'static str,
    of: &str,
) -> Option<Vec<f64>> {
    match of {
        "first" => curve_of(results, scheduler, 0),
        "second" => curve_of(results, scheduler, 1),
        _ => curve(results, scheduler),
    }
}

/// Missed deadlines of a VM in the run of web beside research, in percent.
pub(super) fn beside_missed(
    results: &RunResults<'_>,
    scheduler: &'static str,
    vm: &str,
) -> Option<f64> {
    let vm = if vm == "web" { WEB } else { RESEARCH };
    results.run_for(beside_research(scheduler))?.missed_pct(vm)
}

/// Mean time of a web request beside research, in ms.
pub(super) fn web_ms(results: &RunResults<'_>, scheduler: &'static str) -> Option<f64> {
    let all = results.run_for(beside_research(scheduler))?.responses(WEB);
    let sum = all.iter().map(|response| response.took).sum::<f64>();
    Some(1e3 * sum / all.len().max(1) as f64)
}

/// Throughput of research beside web requests, in MB/s.
pub(super) fn research_mb_s(results: &RunResults<'_>, scheduler: &'static str) -> Option<f64> {
    let run = results.run_for(beside_research(scheduler))?;
    Some(run.rate(RESEARCH).unwrap_or(0.0) / 1e6)
}

fn by_tolerance(title: &str, series: Vec<(&str, Vec<f64>)>) -> Vec<Plot> {
    if series.is_empty() {
        return Vec::new();
    }
    let mut plot = Plot::new(
        title,
        Axis::linear("delta", Unit::Number),
        Axis::linear("deadlines missed", Unit::Percent)
            .including(0.0)
            .including(100.0),
    );
    for (name, curve) in series {
        let deltas = TENTHS.map(|tenths| f64::from(tenths) / 10.0);
        plot.add(Series::line(name).points(deltas.into_iter().zip(curve)));
    }
    vec![plot]
}

/// Number of requests in the plot.
const DRAWN: usize = 60;

fn responses(results: &RunResults<'_>) -> Option<Plot> {
    let mut plot = Plot::new(
        "Figure 4.6: the first web requests beside research",
        Axis::linear("request", Unit::Number),
        Axis::linear("time", Unit::Nanos).including(0.0),
    );
    for (name, scheduler) in [("without PriDyn", "cfq"), ("with PriDyn", "pridyn")] {
        let run = results.run_for(beside_research(scheduler))?;
        let drawn = run.responses(WEB).iter().take(DRAWN).enumerate();
        // Deadlines are the same under both, and drawn once.
        if scheduler == "cfq" {
            let deadlines = drawn.clone().map(|(i, r)| (i as f64, 1e9 * r.deadline));
            plot.add(Series::line("deadline").points(deadlines));
        }
        let took = drawn.map(|(i, r)| (i as f64, 1e9 * r.took));
        plot.add(Series::marks(name).points(took));
    }
    Some(plot)
}
