//! Section 3.2 and figure 3: what a limit of merging does to bandwidth, throughput and latency.

use super::run::Run;
use super::setup::{Case, Change, Key};
use super::{Claims, Figure, Found};
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_3: Figure = Figure {
    name: "figure 3",
    keys,
    plots,
    explained: false,
    ..Figure::BARE
};

/// Sizes of requests, in KiB.
const SIZES: [u32; 5] = [32, 64, 128, 256, 512];
/// Limits, in pages; the paper's steps of one page are left out where nothing happens.
const LIMITS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128];
/// A curve is flat where twice the limit adds no more.
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

/// The three panels of an order: bytes a second, I/Os a second and the time of one in milliseconds.
type Panel = fn(&Run) -> Option<f64>;
const PANELS: [(&str, Panel); 3] = [
    ("bandwidth", |run| Some(run.total_mb_s())),
    ("throughput", |run| Some(run.report.devices.first()?.iops)),
    ("latency", |run| {
        let device = run.report.devices.first()?;
        Some(1000.0 * device.depth / device.iops)
    }),
];

/// A panel's curve of requests of so many KiB, over all limits.
fn curve(found: &Found<'_>, random: bool, kib: u32, panel: Panel) -> Option<Vec<f64>> {
    let of = |pages: &u32| panel(found.of(key(random, kib, *pages))?);
    LIMITS.iter().map(of).collect()
}

/// How many times the least the most is.
fn spread(curve: &[f64]) -> f64 {
    let least = curve.iter().copied().fold(f64::INFINITY, f64::min);
    curve.iter().copied().fold(0.0, f64::max) / least
}

fn order(random: bool) -> &'static str {
    match random {
        true => "random",
        false => "sequential",
    }
}

/// Of both orders of reads.
pub(super) fn code(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for random in [false, true] {
        let curves = |panel: Panel| -> Option<Vec<Vec<f64>>> {
            SIZES
                .iter()
                .map(|kib| curve(found, random, *kib, panel))
                .collect()
        };
        let all: Option<Vec<_>> = PANELS.iter().map(|(_, panel)| curves(*panel)).collect();
        if let Some(all) = all {
            claims.extend(said(order(random), &all));
        }
    }
    Ok(claims)
}

/// Of one order: for each panel a curve a size.
fn said(order: &str, panels: &[Vec<Vec<f64>>]) -> Vec<Said> {
    let largest: Vec<f64> = panels
        .iter()
        .map(|of| spread(&of[SIZES.len() - 1]))
        .collect();
    let by_size: Vec<f64> = panels[0].iter().map(|curve| spread(curve)).collect();
    let listed: Vec<String> = by_size.iter().map(|x| format!("{x:.1}")).collect();
    // Where the curve of the largest size is flat, and what a request takes from there on.
    let (bandwidth, latency) = (&panels[0][SIZES.len() - 1], &panels[2][SIZES.len() - 1]);
    let most = bandwidth.iter().copied().fold(0.0, f64::max);
    let flat = bandwidth.iter().position(|x| x * FLAT >= most);
    let flat = flat.unwrap_or(LIMITS.len() - 1);
    let times = latency[LIMITS.len() - 1] / latency[flat];
    vec![
        Said::new(
            format!("a merge limit changes bandwidth, throughput and latency of {order} reads"),
            largest.iter().all(|times| *times >= FLAT),
            format!(
                "over all limits they differ by factors of {:.1}, {:.1} and {:.1} at 512 KiB",
                largest[0], largest[1], largest[2]
            ),
        ),
        Said::new(
            format!("the larger {order} reads are, the more a merge limit does to their bandwidth"),
            by_size.windows(2).all(|two| two[1] >= 0.95 * two[0]),
            format!("factors from 32 to 512 KiB are {}", listed.join(", ")),
        ),
        Said::new(
            format!("beyond a limit {order} reads gain no bandwidth, and an I/O takes longer"),
            flat + 1 < LIMITS.len() && times > FLAT,
            format!(
                "at 512 KiB 90 % of the most is there from {} KiB on, and an I/O takes {times:.1} \
                 times as long at the end",
                4 * LIMITS[flat]
            ),
        ),
    ]
}

fn plots(found: &Found<'_>) -> Vec<Plot> {
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
