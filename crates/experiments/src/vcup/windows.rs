//! Section 5.1.1: how precise windows of each length are (figure 6), and the one that WR settles on
//! (figure 7).

use super::run::{Run, Second, beta, v};
use super::setup::{Case, Change, Key, Load, Without};
use super::{Cells, Claims, Figure, Found, PAPER};
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_6: Figure = Figure {
    name: "figure 6",
    keys: || {
        FIXED
            .iter()
            .flat_map(|load| WINDOWS_MS.map(|ms| key(*load, ms)))
            .collect()
    },
    plots: phase_curves,
    explained: false,
    ..Figure::BARE
};

pub(super) const FIGURE_7: Figure = Figure {
    name: "figure 7",
    keys: || {
        let both = |load: &Load| [key(*load, 0), key(*load, 0).without(Without::Letter)];
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
        random: letters[0] == b'R',
        writes: letters[1] == b'W',
        varied: letters.len() > 2,
        target,
    }
}

/// Figure 6 tells no targets: those of figure 7 for the same order and operation, and for random
/// writes that of random reads.
const FIXED: [Load; 4] = [load("SR", 40), load("SW", 15), load("RR", 3), load("RW", 3)];
const VARIED: [Load; 3] = [load("SRvar", 40), load("RRvar", 3), load("SWvar", 15)];
const WINDOWS_MS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// BEST_V, in per cent.
const GOOD_V: f64 = 5.0;
/// The statistical interval of section 5.1, in seconds.
const INTERVAL: usize = 10;

fn key(load: Load, window_ms: u64) -> Key {
    Key::new(Case::Single, "vcup_10s").with(Change::Load { load, window_ms })
}

fn bytes(seconds: &[Second]) -> Vec<u64> {
    seconds.iter().map(|second| second.bytes).collect()
}

/// beta and V at each window.
fn precision(found: &Found<'_>, load: Load) -> Option<Vec<[f64; 2]>> {
    let of = |ms: &u64| {
        let run = found.of(key(load, *ms))?;
        let samples = bytes(run.seconds(0));
        Some([beta(&samples, run.target(0), INTERVAL)?, v(&samples)?])
    };
    WINDOWS_MS.iter().map(of).collect()
}

/// Figure 6: curves of V and beta have their least between their ends.
pub(super) fn phases(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for load in FIXED {
        let Some(all) = precision(found, load) else {
            continue;
        };
        for (which, name) in [(1, "V"), (0, "beta")] {
            let curve: Vec<f64> = all.iter().map(|both| both[which]).collect();
            let least = (0..curve.len()).min_by(|a, b| curve[*a].total_cmp(&curve[*b]));
            let least = least.unwrap_or(0);
            let last = curve.len() - 1;
            claims.push(Said::new(
                format!(
                    "{name} falls as windows become shorter, and rises where they are too short \
                     ({})",
                    load.name
                ),
                0 < least && least < last,
                format!(
                    "it is {:.2} % at 1024 ms, {:.2} % at {} ms and {:.2} % at 1 ms",
                    curve[last], curve[least], WINDOWS_MS[least], curve[0]
                ),
            ));
        }
    }
    Ok(claims)
}

fn phase_curves(found: &Found<'_>) -> Vec<Plot> {
    let plot = |which: usize, name: &str| {
        let mut plot = Plot::new(
            format!("Figure 6: {name} by the window"),
            Axis::log2("window in ms", Unit::Number),
            Axis::linear(name, Unit::Percent).including(0.0),
        );
        for load in FIXED {
            let all = precision(found, load).unwrap_or_default();
            let points = WINDOWS_MS.iter().zip(all);
            let points = points.map(|(ms, both)| (*ms as f64, both[which]));
            plot.add(Series::line(load.name).points(points));
        }
        plot
    };
    vec![plot(0, "beta"), plot(1, "V")]
}

/// A search: each window that was measured with B and V, and where it ended, if it did.
struct Search {
    measured: Vec<(u64, f64, f64)>,
    settled_ms: Option<u64>,
    /// After so many seconds.
    ended: usize,
}

/// The first search of a run, by what the tuner told each second.
fn search(run: &Run) -> Search {
    let mut measured = Vec::new();
    let mut settled_ms = None;
    let (mut window, mut before, mut ended) = (0, None, 0);
    for second in run.all_seconds(0) {
        ended += 1;
        let tuned = second.tuned;
        let told = tuned.precision.filter(|_| tuned.precision != before);
        if let Some((b, v)) = told.filter(|_| window > 0) {
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

fn settled_cells(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 7", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let load = VARIED.iter().find(|load| load.name == labels[0])?;
        let search = search(found.of(key(*load, 0))?);
        match column {
            "ws_ms" => search.settled_ms.map(|ms| ms as f64),
            "v_pct" => search.measured.last().map(|(.., v)| *v),
            _ => None,
        }
    }))
}

/// Figure 7: the search for a window.
pub(super) fn settled_claims(found: &Found<'_>) -> Claims {
    let most = found.reference.figure("revision.iterations")?;
    let cells = settled_cells(found)?;
    let mut claims = Vec::new();
    for load in VARIED {
        let Some(run) = found.of(key(load, 0)) else {
            continue;
        };
        let search = search(run);
        let steps = search.measured.iter();
        let steps = steps.map(|(ms, b, v)| format!("{ms} ms: V {v:.2} %, B {b:+.2} %"));
        let steps = steps.collect::<Vec<_>>().join("; ");
        let ended = match search.settled_ms {
            Some(ms) => format!("it settles on {ms} ms"),
            None => "it does not settle".to_owned(),
        };
        let theirs = cells
            .iter()
            .find(|c| c.row == load.name && c.column == "ws_ms");
        if let Some(cell) = theirs {
            claims.push(Said::new(
                format!("WR settles on {:.0} ms ({})", cell.theirs, load.name),
                cell.ours == cell.theirs,
                match steps.is_empty() {
                    true => "no window is searched".to_owned(),
                    false => format!("{ended} after {steps}"),
                },
            ));
        }
        let intervals = search.measured.len();
        claims.push(Said::new(
            format!("WR needs at most {most:.0} intervals ({})", load.name),
            search.settled_ms.is_some() && intervals as f64 <= most,
            format!("it needs {intervals}"),
        ));
        let after = run.all_seconds(0).get(search.ended..).unwrap_or(&[]);
        if let (Some(v), true) = (v(&bytes(after)), search.settled_ms.is_some()) {
            claims.push(Said::new(
                format!("once WR has settled V is at most twice 5 % ({})", load.name),
                v <= 10.0,
                format!("it is {v:.2} % from then on"),
            ));
        }
        let with_ours = found.varied(Without::Letter);
        let added = with_ours.of(key(load, 0));
        claims.extend(added.map(|added| soon_steady(load, most as usize, added, run)));
    }
    Ok(claims)
}

/// That what Tidegate adds is steady before WR would be.
fn soon_steady(load: Load, most: usize, added: &Run, letter: &Run) -> Said {
    let by_interval = |run: &Run| -> Vec<f64> {
        let samples = bytes(run.all_seconds(0));
        samples
            .chunks_exact(INTERVAL)
            .take(most)
            .filter_map(v)
            .collect()
    };
    let told = |all: &[f64]| {
        all.iter()
            .map(|v| format!("{v:.1}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (ours, letters) = (by_interval(added), by_interval(letter));
    // From some interval on, not in one that happens to be quiet.
    let steady = ours
        .iter()
        .rposition(|v| *v > GOOD_V)
        .map_or(0, |last| last + 1);
    Said::new(
        format!(
            "with what Tidegate adds V is below 5 % in fewer than {most} intervals ({})",
            load.name
        ),
        steady + 1 < most && !ours.is_empty(),
        format!(
            "over the first intervals it is {} %; by the paper's letter {} %",
            told(&ours),
            told(&letters)
        ),
    )
}

fn searches(found: &Found<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for load in VARIED {
        let Some(run) = found.of(key(load, 0)) else {
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
        plot.add(Series::line("bandwidth").points(at(&|s| s.bytes as f64 / 1e5)));
        plot.add(Series::line("window").points(at(&|s| s.tuned.window_ms as f64)));
        plots.push(plot);
    }
    plots
}
