//! A third application beside two media servers: section 5.1.1, table 5.1 and figures 5.2 to 5.4 of
//! Jain's thesis, which the module [`pridyn`](super) cites.

use super::key::{Case, Change, Key};
use super::run::{Run, late_pct};
use super::{Cells, Figure, RunResults, basis, ordered_cells};
use crate::Sense;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_5_2: Figure = Figure {
    name: "figure 5.2",
    keys,
    plots: |results| {
        let all = CASES.into_iter().zip([
            "a: a third media server comes",
            "b: a research server comes",
        ]);
        all.filter_map(|(third, what)| figure_5_2_plot(results, third, what))
            .collect()
    },
    ..Figure::BARE
};

pub(super) const FIGURE_5_3: Figure = Figure {
    name: "figure 5.3",
    keys,
    plots: |results| figure_5_3_plot(results).into_iter().collect(),
    ..Figure::BARE
};

pub(super) const FIGURE_5_4: Figure = Figure {
    name: "figure 5.4",
    keys,
    cells,
    ..Figure::BARE
};

/// Third applications of cases 1 and 2 of table 5.1.
const CASES: [&str; 2] = ["c-media", "c-research"];
/// Arrival of the third application, in seconds, as in the scenario.
const ARRIVAL_S: f64 = 60.0;

fn key(third: &'static str) -> Key {
    Key::new(Case::Media, "cfq", Change::Third(third))
}

fn keys() -> Vec<Key> {
    let measured = [1, 2].map(|vms| basis::streams(Case::Media, vms));
    measured.into_iter().chain(CASES.map(key)).collect()
}

fn runs<'a>(results: &RunResults<'a>) -> Option<[&'a Run; 2]> {
    let [one, two] = CASES.map(|third| results.run_for(key(third)));
    Some([one?, two?])
}

/// Index of application `A`, `B` or `C`.
fn application_index(name: &str) -> Option<usize> {
    ["A", "B", "C"].iter().position(|of| *of == name)
}

fn cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 5.4", 1)?;
    let ours = |row: &[String], column: &str| {
        let [one, two] = runs(results)?;
        let run = match column {
            "case1_pct" => one,
            "case2_pct" => two,
            _ => return None,
        };
        after(run, application_index(&row[0])?)
    };
    let ordering = |cell: &crate::Cell| {
        let case = cell.column.replace("case", "case ").replace("_pct", "");
        (
            "deadlines missed".to_owned(),
            format!("{} in {case}", cell.row),
        )
    };
    Ok(ordered_cells(&table, Sense::Less, ours, ordering))
}

/// Late requests in percent of those that began before the third application arrived.
fn before(run: &Run, vm: usize) -> Option<f64> {
    // Unfinished requests all began after the arrival: those that began before have ended.
    late_pct(run.responses(vm).iter().filter(|of| of.at < ARRIVAL_S), 0)
}

/// Late requests in percent of those that began after the third application arrived.
fn after(run: &Run, vm: usize) -> Option<f64> {
    run.missed_pct_since(vm, ARRIVAL_S)
}

/// Run of `case 1` or `case 2`.
fn run_of<'a>(results: &RunResults<'a>, case: &str) -> Option<&'a Run> {
    let [one, two] = runs(results)?;
    match case {
        "case 1" => Some(one),
        "case 2" => Some(two),
        _ => None,
    }
}

/// Late requests of a VM in percent, of those that began before the third application arrived or
/// after it.
pub(super) fn missed(results: &RunResults<'_>, when: &str, case: &str, name: &str) -> Option<f64> {
    let (run, vm) = (run_of(results, case)?, application_index(name)?);
    match when {
        "before" => before(run, vm),
        "later" => after(run, vm),
        _ => None,
    }
}

/// Mean response time of A's requests after the arrival, as a fraction of their deadlines.
pub(super) fn mean_response_to_deadline_ratio(results: &RunResults<'_>, case: &str) -> Option<f64> {
    let all = run_of(results, case)?.responses(0).iter();
    let all = all.filter(|response| response.at >= ARRIVAL_S);
    let (sum, count) = all.fold((0.0, 0_u32), |(sum, n), r| {
        (sum + r.took / r.deadline, n + 1)
    });
    Some(sum / f64::from(count.max(1)))
}

/// Number of A's requests in the plot on either side of the arrival.
const DRAWN: usize = 40;

fn axes(title: String) -> Plot {
    Plot::new(
        title,
        Axis::linear(
            "requests after the arrival of the third application",
            Unit::Number,
        ),
        Axis::linear("time", Unit::Nanos).including(0.0),
    )
}

/// Requests of A around the arrival, from -`before` on: number, response time and deadline in
/// nanoseconds.
fn points_around_arrival(run: &Run, before: usize) -> Vec<(f64, f64, f64)> {
    let all = run.responses(0);
    let first = all.partition_point(|response| response.at < ARRIVAL_S);
    // Fewer than `before` may have begun by then.
    let from = first.saturating_sub(before);
    let all = all.iter().enumerate().skip(from).take(before + DRAWN);
    let point = |(i, r): (usize, &super::run::Response)| {
        // Numbers count from the arrival, so that requests before it are negative.
        (i as f64 - first as f64, 1e9 * r.took, 1e9 * r.deadline)
    };
    all.map(point).collect()
}

fn figure_5_2_plot(results: &RunResults<'_>, third: &'static str, what: &str) -> Option<Plot> {
    let points = points_around_arrival(results.run_for(key(third))?, DRAWN);
    let mut plot = axes(format!("Figure 5.2{what}"));
    plot.add(Series::line("deadline").points(points.iter().map(|p| (p.0, p.2))));
    plot.add(Series::marks("response").points(points.iter().map(|p| (p.0, p.1))));
    Some(plot)
}

fn figure_5_3_plot(results: &RunResults<'_>) -> Option<Plot> {
    let [one, two] = runs(results)?.map(|run| points_around_arrival(run, 0));
    let mut plot =
        axes("Figure 5.3: application A beside a third, in case 1 and case 2".to_owned());
    plot.add(Series::line("deadline").points(one.iter().map(|p| (p.0, p.2))));
    plot.add(Series::marks("case 1").points(one.iter().map(|p| (p.0, p.1))));
    plot.add(Series::marks("case 2").points(two.iter().map(|p| (p.0, p.1))));
    Some(plot)
}
