//! A third application beside two media servers: section 5.1.1, table 5.1 and figures 5.2 to 5.4.

use super::key::{Case, Change, Key};
use super::run::{Run, late_pct};
use super::{Cells, Claims, Figure, Found, basis, contested};
use crate::Sense;
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_5_2: Figure = Figure {
    name: "figure 5.2",
    keys,
    claims: before_and_after,
    plots: |found| {
        let all = CASES.into_iter().zip([
            "a: a third media server comes",
            "b: a research server comes",
        ]);
        all.filter_map(|(third, what)| around(found, third, what))
            .collect()
    },
    ..Figure::BARE
};

pub(super) const FIGURE_5_3: Figure = Figure {
    name: "figure 5.3",
    keys,
    claims: |found| Ok(compared(found).into_iter().collect()),
    plots: |found| both(found).into_iter().collect(),
    ..Figure::BARE
};

pub(super) const FIGURE_5_4: Figure = Figure {
    name: "figure 5.4",
    keys,
    cells,
    claims: |found| {
        let cells = cells(found)?;
        let fewer = |name: &str| -> Option<Said> {
            let of = |column: &str| {
                cells
                    .iter()
                    .find(|cell| cell.row == name && cell.column == column)
            };
            let (one, two) = (of("case1_pct")?.ours, of("case2_pct")?.ours);
            Some(Said::new(
                format!(
                    "application {name} misses at most half as many beside research (case 2) as in case 1"
                ),
                two <= one / 2.0,
                format!("{two:.1} % instead of {one:.1} %"),
            ))
        };
        Ok(["A", "C"].into_iter().filter_map(fewer).collect())
    },
    ..Figure::BARE
};

/// Case 1 and case 2 of table 5.1, by who the third is.
const CASES: [&str; 2] = ["c-media", "c-research"];
/// When it comes, in seconds: as the scenario has it.
const COMES: f64 = 60.0;

fn key(third: &'static str) -> Key {
    Key::new(Case::Media, "cfq", Change::Third(third))
}

fn keys() -> Vec<Key> {
    let measured = [1, 2].map(|vms| basis::streams(Case::Media, vms));
    measured.into_iter().chain(CASES.map(key)).collect()
}

fn runs<'a>(found: &Found<'a>) -> Option<[&'a Run; 2]> {
    let [one, two] = CASES.map(|third| found.of(key(third)));
    Some([one?, two?])
}

/// The place of `A`, `B` or `C`.
fn place(name: &str) -> Option<usize> {
    ["A", "B", "C"].iter().position(|of| *of == name)
}

fn cells(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 5.4", 1)?;
    let ours = |row: &[String], column: &str| {
        let [one, two] = runs(found)?;
        let run = if column == "case1_pct" { one } else { two };
        after(run, place(&row[0])?)
    };
    let contest = |cell: &crate::Cell| {
        let case = cell.column.replace("case", "case ").replace("_pct", "");
        (
            "deadlines missed".to_owned(),
            format!("{} in {case}", cell.row),
        )
    };
    Ok(contested(&table, Sense::Less, ours, contest))
}

/// Of a VM's requests that began before the third application came so many in a hundred were late.
fn before(run: &Run, vm: usize) -> Option<f64> {
    late_pct(run.responses(vm).iter().filter(|of| of.at < COMES), 0)
}

/// Of those that began from then on.
fn after(run: &Run, vm: usize) -> Option<f64> {
    run.missed_pct_since(vm, COMES)
}

fn before_and_after(found: &Found<'_>) -> Claims {
    let both = [(0, "A"), (1, "B")];
    let all = both
        .into_iter()
        .filter_map(|(vm, name)| of_one(found, vm, name));
    Ok(all.flatten().collect())
}

fn of_one(found: &Found<'_>, vm: usize, name: &str) -> Option<[Said; 2]> {
    let [one, two] = runs(found)?;
    let (alone, beside_media) = (before(one, vm)?, after(one, vm)?);
    let (quiet, beside_research) = (before(two, vm)?, after(two, vm)?);
    Some([
        Said::new(
            format!("a third with deadlines makes {name} miss most of its own (case 1)"),
            beside_media > 50.0 && beside_media > alone,
            format!("it misses {beside_media:.1} % after {alone:.1} %"),
        ),
        Said::new(
            format!(
                "one that has time and low priority leaves {name} nearly as it was: at most 10 points more are missed (case 2)"
            ),
            beside_research <= quiet + 10.0,
            format!("it misses {beside_research:.1} % after {quiet:.1} %"),
        ),
    ])
}

fn compared(found: &Found<'_>) -> Option<Said> {
    let [one, two] = runs(found)?;
    let mean = |run: &Run| {
        let all = run
            .responses(0)
            .iter()
            .filter(|response| response.at >= COMES);
        let (sum, count) = all.fold((0.0, 0_u32), |(sum, n), r| {
            (sum + r.took / r.deadline, n + 1)
        });
        sum / f64::from(count.max(1))
    };
    let (one, two) = (mean(one), mean(two));
    Some(Said::new(
        "A's requests take longer than their deadlines on average in case 1, less in case 2",
        one > 1.0 && two < 1.0,
        format!("they take {one:.2} and {two:.2} of them"),
    ))
}

/// So many of A's requests are drawn on either side.
const DRAWN: usize = 40;

fn axes(title: String) -> Plot {
    Plot::new(
        title,
        Axis::linear(
            "request, from the third application's coming on",
            Unit::Number,
        ),
        Axis::linear("time", Unit::Nanos).including(0.0),
    )
}

/// A's requests around the coming of the third, from -`before` on: which, how long, and how long it
/// might.
fn drawn(run: &Run, before: usize) -> Vec<(f64, f64, f64)> {
    let all = run.responses(0);
    let first = all.partition_point(|response| response.at < COMES);
    let from = first.saturating_sub(before);
    let all = all.iter().enumerate().skip(from).take(before + DRAWN);
    let point = |(i, r): (usize, &super::run::Response)| {
        (i as f64 - first as f64, 1e9 * r.took, 1e9 * r.deadline)
    };
    all.map(point).collect()
}

fn around(found: &Found<'_>, third: &'static str, what: &str) -> Option<Plot> {
    let points = drawn(found.of(key(third))?, DRAWN);
    let mut plot = axes(format!("Figure 5.2{what}"));
    plot.add(Series::line("deadline").points(points.iter().map(|p| (p.0, p.2))));
    plot.add(Series::marks("response").points(points.iter().map(|p| (p.0, p.1))));
    Some(plot)
}

fn both(found: &Found<'_>) -> Option<Plot> {
    let [one, two] = runs(found)?.map(|run| drawn(run, 0));
    let mut plot =
        axes("Figure 5.3: application A beside a third, in case 1 and case 2".to_owned());
    plot.add(Series::line("deadline").points(one.iter().map(|p| (p.0, p.2))));
    plot.add(Series::marks("case 1").points(one.iter().map(|p| (p.0, p.1))));
    plot.add(Series::marks("case 2").points(two.iter().map(|p| (p.0, p.1))));
    Some(plot)
}
