//! Section 5.1.1: precision by length of the window (figure 6), and the window that window revision
//! settles on (figure 7).

use super::run::{Run, Second, beta, v};
use super::setup::{Ablation, Case, Change, Key, Load};
use super::{Cells, Figure, PAPER, RunResults};
use crate::claim::{Item, Series};
use tidegate_report::{Axis, Plot, Series as Curve, Unit};

pub(super) const FIGURE_6: Figure = Figure {
    name: "figure 6",
    keys: || {
        FIXED
            .iter()
            .flat_map(|load| WINDOWS_MS.map(|ms| key(*load, ms)))
            .collect()
    },
    plots: phase_curves,
    ..Figure::BARE
};

pub(super) const FIGURE_7: Figure = Figure {
    name: "figure 7",
    keys: || {
        let both = |load: &Load| {
            [
                key(*load, 0),
                key(*load, 0).without(Ablation::WithAdditions),
            ]
        };
        VARIED.iter().flat_map(both).collect()
    },
    cells: settled_cells,
    plots: searches,
    ..Figure::BARE
};

const fn load(name: &'static str, target: u64) -> Load {
    let letters = name.as_bytes();
    Load {
        name,
        // Names as in the paper: order, operation, and `var` for varied sizes.
        random: letters[0] == b'R',
        writes: letters[1] == b'W',
        varied: letters.len() > 2,
        target,
    }
}

/// Loads of figure 6, for which the paper states no targets: those of figure 7 with the same order
/// and operation, and for random writes that of random reads.
const FIXED: [Load; 4] = [load("SR", 40), load("SW", 15), load("RR", 3), load("RW", 3)];
const VARIED: [Load; 3] = [load("SRvar", 40), load("RRvar", 3), load("SWvar", 15)];
const WINDOWS_MS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Parameter BEST_V, in percent.
const GOOD_V: f64 = 5.0;
/// Statistical interval of section 5.1, in seconds.
const INTERVAL: usize = 10;

fn key(load: Load, window_ms: u64) -> Key {
    Key::new(Case::Single, "vcup_10s").with(Change::Load { load, window_ms })
}

fn bytes(seconds: &[Second]) -> Vec<u64> {
    seconds.iter().map(|second| second.bytes).collect()
}

/// beta and V at each window, in percent.
fn precision(results: &RunResults<'_>, load: Load) -> Option<Vec<[f64; 2]>> {
    let of = |ms: &u64| {
        let run = results.run_for(key(load, *ms))?;
        let samples = bytes(run.seconds(0));
        Some([beta(&samples, run.target(0), INTERVAL)?, v(&samples)?])
    };
    WINDOWS_MS.iter().map(of).collect()
}

/// beta or V at each window of a load of figure 6, labelled with the window.
pub(super) fn by_window(results: &RunResults<'_>, load: &str, of: &str) -> Option<Series> {
    let load = FIXED.iter().find(|known| known.name == load)?;
    let all = WINDOWS_MS.iter().zip(precision(results, *load)?);
    let item = |(ms, [beta, v]): (&u64, [f64; 2])| Item {
        label: ms.to_string(),
        value: if of == "beta" { beta } else { v },
    };
    Some(all.map(item).collect())
}

fn phase_curves(results: &RunResults<'_>) -> Vec<Plot> {
    let plot = |which: usize, name: &str| {
        let mut plot = Plot::new(
            format!("Figure 6: {name} by the window"),
            Axis::log2("window in ms", Unit::Number),
            Axis::linear(name, Unit::Percent).including(0.0),
        );
        for load in FIXED {
            let all = precision(results, load).unwrap_or_default();
            let points = WINDOWS_MS.iter().zip(all);
            let points = points.map(|(ms, both)| (*ms as f64, both[which]));
            plot.add(Curve::line(load.name).points(points));
        }
        plot
    };
    vec![plot(0, "beta"), plot(1, "V")]
}

/// Search for a window: the windows that were measured, each with B and V, and the result if it
/// ended.
struct Search {
    measured: Vec<(u64, f64, f64)>,
    settled_ms: Option<u64>,
    /// Number of seconds that it took.
    ended: usize,
}

/// First search of a run, from the tuner's state in each second.
fn search(run: &Run) -> Search {
    let mut measured = Vec::new();
    let mut settled_ms = None;
    let (mut window, mut before, mut ended) = (0, None, 0);
    for second in run.all_seconds(0) {
        ended += 1;
        let tuned = second.tuned;
        // A change of the figures marks the end of an interval.
        let ended = tuned.precision.filter(|_| tuned.precision != before);
        // Without a window before it the interval belongs to no search.
        if let Some((b, v)) = ended.filter(|_| window > 0) {
            measured.push((window, b, v));
        }
        (window, before) = (tuned.window_ms, tuned.precision);
        if tuned.settled {
            settled_ms = Some(tuned.window_ms);
            break;
        }
    }
    Search {
        measured,
        settled_ms,
        ended,
    }
}

fn settled_cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 7", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let load = VARIED.iter().find(|load| load.name == labels[0])?;
        let search = search(results.run_for(key(*load, 0))?);
        match column {
            "ws_ms" => search.settled_ms.map(|ms| ms as f64),
            "v_pct" => search.measured.last().map(|(.., v)| *v),
            _ => None,
        }
    }))
}

/// Key of the search of a load of figure 7.
pub(super) fn key_of(load: &str) -> Option<Key> {
    let load = VARIED.iter().find(|known| known.name == load)?;
    Some(key(*load, 0))
}

/// Run of a load of figure 7.
fn varied<'a>(results: &RunResults<'a>, load: &str) -> Option<&'a Run> {
    results.run_for(key_of(load)?)
}

/// Describes the search of a load in words.
pub(super) fn searched(results: &RunResults<'_>, load: &str) -> Option<String> {
    let search = search(varied(results, load)?);
    let steps = search.measured.iter();
    let steps = steps.map(|(ms, b, v)| format!("{ms} ms: V {v:.2} %, B {b:+.2} %"));
    let steps = steps.collect::<Vec<_>>().join("; ");
    Some(match search.settled_ms {
        _ if steps.is_empty() => "no window is searched".to_owned(),
        Some(ms) => format!("it settles on {ms} ms after {steps}"),
        None => format!("it does not settle after {steps}"),
    })
}

/// Number of intervals in the search of a load, and `true` if the search ended.
pub(super) fn intervals(results: &RunResults<'_>, load: &str) -> Option<(f64, bool)> {
    let search = search(varied(results, load)?);
    Some((search.measured.len() as f64, search.settled_ms.is_some()))
}

/// V of a load from the end of its search on, in percent; `None` if it does not end.
pub(super) fn settled_v(results: &RunResults<'_>, load: &str) -> Option<f64> {
    let run = varied(results, load)?;
    let search = search(run);
    search.settled_ms?;
    v(&bytes(run.all_seconds(0).get(search.ended..)?))
}

/// V of a load in each of its first intervals, in percent, for as many intervals as window revision
/// may need.
pub(super) fn first_v(results: &RunResults<'_>, load: &str) -> Option<Vec<f64>> {
    let most = results.reference.figure("revision.iterations").ok()? as usize;
    let samples = bytes(varied(results, load)?.all_seconds(0));
    let intervals = samples.chunks_exact(INTERVAL).take(most);
    Some(intervals.filter_map(v).collect())
}

/// Number, from 1 on, of the interval from which on V stays below 5 %. A single quiet interval does
/// not count.
pub(super) fn steady_from(results: &RunResults<'_>, load: &str) -> Option<f64> {
    let all = first_v(results, load)?;
    let last = all.iter().rposition(|v| *v > GOOD_V);
    // The interval after the last bad one, counted from 1.
    Some(last.map_or(1, |last| last + 2) as f64)
}

/// Results with what Tidegate adds, beside the change of the present variant if it has both.
pub(super) fn added<'a>(results: &RunResults<'a>) -> RunResults<'a> {
    match results.variant {
        Ablation::CutRequests => results.varied(Ablation::CutRequests),
        _ => results.varied(Ablation::WithAdditions),
    }
}

fn searches(results: &RunResults<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for load in VARIED {
        let Some(run) = results.run_for(key(load, 0)) else {
            continue;
        };
        let mut plot = Plot::new(
            format!("Figure 7: {} and its windows", load.name),
            Axis::linear("time", Unit::Seconds).including(0.0),
            Axis::linear("bandwidth in 100 kB/s, window in ms", Unit::Number).including(0.0),
        );
        let at = |of: &dyn Fn(&Second) -> f64| -> Vec<(f64, f64)> {
            let seconds = run.all_seconds(0).iter().enumerate();
            seconds.map(|(i, second)| (i as f64, of(second))).collect()
        };
        plot.add(Curve::line("bandwidth").points(at(&|s| s.bytes as f64 / 1e5)));
        plot.add(Curve::line("window").points(at(&|s| s.tuned.window_ms as f64)));
        plots.push(plot);
    }
    plots
}
