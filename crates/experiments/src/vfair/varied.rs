//! Section 5.1.1, one thing varied: VM1's reads (figure 11), and its requests outstanding (table
//! 4).

use super::fairness::{LESS_ON_SSD, NON_ON_SSD, VMS};
use super::run::Run;
use super::setup::{Change, Key};
use super::{BAPS, Cells, Figure, PAPER, RunResults, single};
use crate::findings::Sense;
use crate::ordering::with_orderings;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_11: Figure = Figure {
    name: "figure 11",
    keys: || by_reads().collect(),
    cells: errors,
    plots: read_ratio,
    // The many runs have the same causes as those of figure 9, whose variants are shown.
    explained: false,
    ..Figure::BARE
};

pub(super) const TABLE_4: Figure = Figure {
    name: "4",
    keys: || DEPTHS.map(by_depth).to_vec(),
    cells: depths,
    ..Figure::BARE
};

/// Percentages of reads of VM1.
pub(super) fn ratios() -> impl Iterator<Item = u8> {
    (0..=100).step_by(10)
}

pub(super) fn by_reads() -> impl Iterator<Item = Key> {
    ratios().map(|reads| LESS_ON_SSD.key(BAPS).with(Change::Reads(reads)))
}

/// Deviation of VM1 from its fair share, in percent, by percentage of reads.
fn off(results: &RunResults<'_>) -> Option<Vec<(u8, f64)>> {
    let error = |(reads, key)| {
        let run = results.run_for(key)?;
        let part = run.iops("vm1")? / run.fair_share("vm1")?;
        Some((reads, 100.0 * (part - 1.0)))
    };
    ratios().zip(by_reads()).map(error).collect()
}

fn largest(off: &[(u8, f64)]) -> Option<(u8, f64)> {
    let largest = off.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    largest.copied()
}

fn errors(results: &RunResults<'_>) -> Cells {
    let off = off(results).unwrap_or_default();
    // By size: the paper says how far off, not in which direction.
    let least = off.iter().map(|(_, off)| off.abs()).reduce(f64::min);
    let most = largest(&off).map(|(_, off)| off.abs());
    let figure = |name: &str| results.reference.figure(&format!("figure11.{name}"));
    let cells = [
        single(
            "figure 11",
            "vm1",
            "error_at_least_pct",
            figure("error_at_least_pct")?,
            least,
        ),
        single(
            "figure 11",
            "vm1",
            "error_at_most_pct",
            figure("error_at_most_pct")?,
            most,
        ),
    ];
    Ok(cells.into_iter().flatten().collect())
}

/// Percentage of reads at which VM1 deviates most from its fair share.
pub(super) fn farthest_reads(results: &RunResults<'_>) -> Option<f64> {
    largest(&off(results)?).map(|(reads, _)| f64::from(reads))
}

fn read_ratio(results: &RunResults<'_>) -> Vec<Plot> {
    let mut plot = Plot::new(
        "Figure 11: three VMs under BAPS, by VM1's reads",
        Axis::linear("reads of VM1", Unit::Percent),
        Axis::linear("IOPS", Unit::Number).including(0.0),
    );
    let mut curve = |name: String, of: &dyn Fn(&Run) -> Option<f64>| {
        let points = ratios().zip(by_reads());
        let points =
            points.filter_map(|(reads, key)| Some((f64::from(reads), of(results.run_for(key)?)?)));
        plot.add(Series::line(name).points(points));
    };
    for vm in VMS {
        curve(vm.to_owned(), &|run| run.iops(vm));
        curve(format!("fair share of {vm}"), &|run| run.fair_share(vm));
    }
    vec![plot]
}

/// Outstanding requests of VM1 in table 4.
const DEPTHS: [u32; 3] = [1, 2, 4];

pub(super) fn by_depth(depth: u32) -> Key {
    NON_ON_SSD.key(BAPS).with(Change::Depth(depth))
}

fn depths(results: &RunResults<'_>) -> Cells {
    let cells = results
        .reference
        .table("4", 1)?
        .cells(PAPER.name, |labels, _| {
            results
                .run_for(by_depth(labels.first()?.parse().ok()?))?
                .iops("vm1")
        });
    Ok(with_orderings(cells, |cell| {
        Some((
            cell.column.clone(),
            format!("iodepth {}", cell.row),
            Sense::More,
        ))
    }))
}
