//! Section 3.2 and figure 3: effect of the merge limit on bandwidth, throughput and latency.

use super::run::Run;
use super::setup::{Case, Change, Key};
use super::{Figure, RunResults};
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_3: Figure = Figure {
    name: "figure 3",
    keys,
    plots,
    explained: false,
    ..Figure::BARE
};

/// Request sizes in KiB.
const SIZES: [u32; 5] = [32, 64, 128, 256, 512];
/// Merge limits in pages; the paper's steps of one page are left out where the curves are flat.
const LIMITS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128];
/// Gain of twice the limit up to which a curve counts as flat.
const FLAT: f64 = 1.1;

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
        Some(1000.0 * device.depth / device.iops)
    }),
];

/// Curve of a panel over all limits, for requests of `kib` KiB.
fn curve(found: &RunResults<'_>, random: bool, kib: u32, panel: Panel) -> Option<Vec<f64>> {
    let of = |pages: &u32| panel(found.of(key(random, kib, *pages))?);
    LIMITS.iter().map(of).collect()
}

/// Ratio of the largest to the smallest value.
fn spread(curve: &[f64]) -> f64 {
    let least = curve.iter().copied().fold(f64::INFINITY, f64::min);
    curve.iter().copied().fold(0.0, f64::max) / least
}

fn order(random: bool) -> &'static str {
    if random { "random" } else { "sequential" }
}

/// Curves over all limits by request size, for reads in an order.
fn by_size(found: &RunResults<'_>, of: &str, panel: Panel) -> Option<Vec<Vec<f64>>> {
    let random = of == order(true);
    let curves = SIZES.iter().map(|kib| curve(found, random, *kib, panel));
    curves.collect()
}

/// Ratio of the largest to the smallest value in each panel, for the largest reads in an order.
pub(super) fn largest_spreads(found: &RunResults<'_>, order: &str) -> Option<Vec<f64>> {
    let of = |(_, panel): &(&str, Panel)| {
        let curves = by_size(found, order, *panel)?;
        Some(spread(&curves[SIZES.len() - 1]))
    };
    PANELS.iter().map(of).collect()
}

/// Ratio of the largest to the smallest bandwidth, by request size, for reads in an order.
pub(super) fn bandwidth_spreads(found: &RunResults<'_>, order: &str) -> Option<Vec<f64>> {
    let curves = by_size(found, order, PANELS[0].1)?;
    Some(curves.iter().map(|curve| spread(curve)).collect())
}

/// Smallest limit from which on the bandwidth of the largest reads is flat, in KiB, and the factor
/// by which an I/O takes longer at the largest limit.
pub(super) fn flat(found: &RunResults<'_>, order: &str) -> Option<(f64, f64)> {
    let of = |panel| Some(by_size(found, order, panel)?.swap_remove(SIZES.len() - 1));
    let (bandwidth, latency) = (of(PANELS[0].1)?, of(PANELS[2].1)?);
    let most = bandwidth.iter().copied().fold(0.0, f64::max);
    let flat = bandwidth.iter().position(|x| x * FLAT >= most);
    let flat = flat.unwrap_or(LIMITS.len() - 1);
    let times = latency[LIMITS.len() - 1] / latency[flat];
    // A page is 4 KiB.
    Some((4.0 * f64::from(LIMITS[flat]), times))
}

fn plots(found: &RunResults<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for random in [false, true] {
        for (name, panel) in PANELS {
            let order = order(random);
            let unit = match name {
                "bandwidth" => "MB/s",
                "throughput" => "I/Os a second",
                _ => "ms an I/O",
            };
            let mut plot = Plot::new(
                format!("Figure 3: {name} of {order} reads by the merge limit"),
                Axis::log2("merge limit", Unit::Bytes),
                Axis::linear(unit, Unit::Number).including(0.0),
            );
            for kib in SIZES {
                let Some(curve) = curve(found, random, kib, panel) else {
                    return Vec::new();
                };
                let limits = LIMITS.map(|pages| f64::from(pages) * 4096.0);
                plot.add(Series::line(format!("{kib} KiB")).points(limits.into_iter().zip(curve)));
            }
            plots.push(plot);
        }
    }
    plots
}
