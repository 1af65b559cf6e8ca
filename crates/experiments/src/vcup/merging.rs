//! Section 3.2 and figure 3: effect of the merge limit on bandwidth, throughput and latency.

use super::run::Run;
use super::setup::{Case, Change, Key};
use super::{Figure, RunResults};
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_3: Figure = Figure {
    name: "figure 3",
    keys,
    plots,
    ..Figure::BARE
};

/// Request sizes in KiB.
const SIZES: [u32; 5] = [32, 64, 128, 256, 512];
/// Merge limits in pages; the paper's steps of one page are left out where the curves are flat.
const LIMITS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128];
/// Size of a page, the unit of the paper's merge limits, in KiB.
const PAGE_KIB: f64 = 4.0;
/// Ratio of a curve's maximum to a value from which on the curve counts as flat: within 10 % of
/// the maximum.
const FLAT_MAX_RATIO: f64 = 1.1;

fn key(random: bool, kib: u32, pages: u32) -> Key {
    Key::new(Case::Merging, "merging").with(Change::Merge { random, kib, pages })
}

fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    for random in [false, true] {
        for kib in SIZES {
            keys.extend(LIMITS.map(|pages| key(random, kib, pages)));
        }
    }
    keys
}

/// Panels of an access order: bytes per second, I/Os per second, and time of an I/O in
/// milliseconds.
type Panel = fn(&Run) -> Option<f64>;
const PANELS: [(&str, Panel); 3] = [
    ("bandwidth", |run| Some(run.total_mb_s())),
    ("throughput", |run| Some(run.report.devices.first()?.iops)),
    ("latency", |run| {
        let device = run.report.devices.first()?;
        // Little's law: the mean number in flight over the rate is the mean time, here in ms.
        Some(1000.0 * device.depth / device.iops)
    }),
];

/// Curve of a panel over all limits, for requests of `kib` KiB.
fn curve(results: &RunResults<'_>, random: bool, kib: u32, panel: Panel) -> Option<Vec<f64>> {
    let value_at = |pages: &u32| panel(results.run_for(key(random, kib, *pages))?);
    LIMITS.iter().map(value_at).collect()
}

/// Ratio of the largest to the smallest value.
fn spread(curve: &[f64]) -> f64 {
    let minimum = curve.iter().copied().fold(f64::INFINITY, f64::min);
    curve.iter().copied().fold(0.0, f64::max) / minimum
}

/// Name of an access order in `claims.toml` and in plots.
fn order_name(random: bool) -> &'static str {
    if random { "random" } else { "sequential" }
}

/// Curves over all limits by request size, for reads in an order.
fn curves_by_size(results: &RunResults<'_>, order: &str, panel: Panel) -> Option<Vec<Vec<f64>>> {
    let random = order == order_name(true);
    let curves = SIZES.iter().map(|kib| curve(results, random, *kib, panel));
    curves.collect()
}

/// Ratio of the largest to the smallest value in each panel, for the largest reads in an order.
pub(super) fn largest_spreads(results: &RunResults<'_>, order: &str) -> Option<Vec<f64>> {
    let spread_in = |(_, panel): &(&str, Panel)| {
        let curves = curves_by_size(results, order, *panel)?;
        Some(spread(&curves[SIZES.len() - 1]))
    };
    PANELS.iter().map(spread_in).collect()
}

/// Ratio of the largest to the smallest bandwidth, by request size, for reads in an order.
pub(super) fn bandwidth_spreads(results: &RunResults<'_>, order: &str) -> Option<Vec<f64>> {
    let curves = curves_by_size(results, order, PANELS[0].1)?;
    Some(curves.iter().map(|curve| spread(curve)).collect())
}

/// Range of merge limits over which the bandwidth of the largest reads is flat.
pub(super) struct FlatRange {
    /// Smallest limit of the range in KiB.
    pub(super) limit_kib: f64,
    /// Factor by which an I/O takes longer at the largest limit than at the smallest of the range.
    pub(super) latency_factor: f64,
}

/// Returns the range of limits over which the bandwidth of the largest reads in an order is flat.
pub(super) fn flat_range(results: &RunResults<'_>, order: &str) -> Option<FlatRange> {
    let largest_reads =
        |panel| Some(curves_by_size(results, order, panel)?.swap_remove(SIZES.len() - 1));
    let (bandwidth, latency) = (largest_reads(PANELS[0].1)?, largest_reads(PANELS[2].1)?);
    let maximum = bandwidth.iter().copied().fold(0.0, f64::max);
    let first = bandwidth
        .iter()
        .position(|value| value * FLAT_MAX_RATIO >= maximum)
        .unwrap_or(LIMITS.len() - 1);
    Some(FlatRange {
        limit_kib: PAGE_KIB * f64::from(LIMITS[first]),
        latency_factor: latency[LIMITS.len() - 1] / latency[first],
    })
}

fn plots(results: &RunResults<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for random in [false, true] {
        for (name, panel) in PANELS {
            let order = order_name(random);
            let unit = match name {
                "bandwidth" => "MB/s",
                "throughput" => "I/Os per second",
                _ => "ms per I/O",
            };
            let mut plot = Plot::new(
                format!("Figure 3: {name} of {order} reads by the merge limit"),
                Axis::log2("merge limit", Unit::Bytes),
                Axis::linear(unit, Unit::Number).including(0.0),
            );
            for kib in SIZES {
                // A panel without one of its curves would suggest that there is none.
                let Some(curve) = curve(results, random, kib, panel) else {
                    return Vec::new();
                };
                let limits = LIMITS.map(|pages| f64::from(pages) * PAGE_KIB * 1024.0);
                plot.add(Series::line(format!("{kib} KiB")).points(limits.into_iter().zip(curve)));
            }
            plots.push(plot);
        }
    }
    plots
}
