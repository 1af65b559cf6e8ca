//! Streams of requests with deadlines: section 4.2, figures 4.5 to 4.7.

use super::key::{Case, Change, Key, Reading};
use super::run::Run;
use super::{Claims, Figure, Found, basis, contested};
use crate::Sense;
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_4_5: Figure = Figure {
    name: "figure 4.5",
    keys: || with_measured(TENTHS.map(|tenths| web("cfq", tenths)).to_vec()),
    cells: |found| {
        let table = found.reference.table("figure 4.5", 1)?;
        let ours = |row: &[String], _: &str| {
            let tenths = (row[0].parse::<f64>().ok()? * 10.0).round() as u32;
            found.of(web("cfq", tenths))?.all_missed_pct()
        };
        let contest =
            |cell: &crate::Cell| ("deadlines missed".to_owned(), format!("delta {}", cell.row));
        Ok(contested(&table, Sense::Less, ours, contest))
    },
    claims: tolerance_claims,
    plots: |found| {
        let ours = curve(found, "cfq").map(|curve| vec![("web streams under CFQ", curve)]);
        let printed = curve(&found.varied(Reading::Printed), "cfq")
            .map(|curve| vec![("with equation 4.1 as printed", curve)]);
        let series = [ours, printed].into_iter().flatten().flatten().collect();
        by_tolerance("Figure 4.5: deadlines missed by delta", series)
    },
    ..Figure::BARE
};

pub(super) const FIGURE_4_6: Figure = Figure {
    name: "figure 4.6",
    keys: || with_measured(BOTH.map(beside_research).to_vec()),
    cells: |found| {
        let table = found.reference.table("figure 4.6", 1)?;
        let ours = |_: &[String], column: &str| {
            let scheduler = if column == "with_pct" {
                "pridyn"
            } else {
                "cfq"
            };
            found.of(beside_research(scheduler))?.missed_pct(WEB)
        };
        let contest = |cell: &crate::Cell| {
            (
                "deadlines missed".to_owned(),
                cell.column.replace("_pct", " PriDyn"),
            )
        };
        Ok(contested(&table, Sense::Less, ours, contest))
    },
    claims: research_claims,
    plots: |found| responses(found).into_iter().collect(),
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
    claims: both_claims,
    plots: |found| {
        let mut series = Vec::new();
        for (name, scheduler, reading) in [
            ("without PriDyn", "cfq", found.variant),
            ("with PriDyn", "pridyn", found.variant),
            ("with figure 3.3 as printed", "pridyn", Reading::Literal),
        ] {
            series.extend(curve(&found.varied(reading), scheduler).map(|curve| (name, curve)));
        }
        by_tolerance(
            "Figure 4.7b: deadlines missed by both of two web streams",
            series,
        )
    },
    ..Figure::BARE
};

/// Delta, in tenths.
const TENTHS: [u32; 9] = [2, 3, 4, 5, 6, 7, 8, 9, 10];
/// Without PriDyn, and with it.
const BOTH: [&str; 2] = ["cfq", "pridyn"];
/// The stream with strict deadlines beside research, and its delta.
const WEB: usize = 0;
const RESEARCH: usize = 1;
const STRICT: u32 = 3;
/// Two streams.
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

/// With the runs that say what the disk does for so many.
fn with_measured(keys: Vec<Key>) -> Vec<Key> {
    let measured = (1..=VMS).map(|vms| basis::streams(Case::Web, vms));
    measured.chain(keys).collect()
}

/// By delta; `None`: it was not run.
fn curve(found: &Found<'_>, scheduler: &'static str) -> Option<Vec<f64>> {
    let of = |tenths: &u32| found.of(web(scheduler, *tenths))?.all_missed_pct();
    TENTHS.iter().map(of).collect()
}

/// Of one of the two streams.
fn curve_of(found: &Found<'_>, scheduler: &'static str, vm: usize) -> Option<Vec<f64>> {
    let of = |tenths: &u32| found.of(web(scheduler, *tenths))?.missed_pct(vm);
    TENTHS.iter().map(of).collect()
}

fn listed(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|x| format!("{x:.0}")).collect();
    values.join(", ")
}

fn tolerance_claims(found: &Found<'_>) -> Claims {
    let Some(curve) = curve(found, "cfq") else {
        return Ok(Vec::new());
    };
    let told = format!("with delta from 0.2 to 1.0 {} % are", listed(&curve));
    Ok(vec![
        Said::new(
            "the smaller delta, the more deadlines are missed by two streams without PriDyn",
            curve.windows(2).all(|two| two[1] <= two[0]) && curve[0] > curve[TENTHS.len() - 1],
            told.clone(),
        ),
        Said::new(
            "nearly all are missed with a delta of 0.2, at least 90 %",
            curve[0] >= 90.0,
            told.clone(),
        ),
        Said::new(
            "nearly none are with one of 1.0, at most 10 %",
            curve[TENTHS.len() - 1] <= 10.0,
            told,
        ),
    ])
}

/// At most half of those without: the goal wherever the thesis shows that.
fn halved(about: &str, without: f64, with: f64) -> Said {
    Said::new(
        format!("PriDyn at least halves the deadlines missed ({about})"),
        with <= without / 2.0,
        format!("{with:.1} % instead of {without:.1} %"),
    )
}

fn research_claims(found: &Found<'_>) -> Claims {
    let runs: Option<Vec<&Run>> = BOTH
        .iter()
        .map(|scheduler| found.of(beside_research(scheduler)))
        .collect();
    let Some(runs) = runs else {
        return Ok(Vec::new());
    };
    let [without, with] = [runs[0], runs[1]];
    let missed = |run: &Run, vm| run.missed_pct(vm);
    let (Some(a), Some(b)) = (missed(without, WEB), missed(with, WEB)) else {
        return Ok(Vec::new());
    };
    let mean = |run: &Run| {
        let all = run.responses(WEB);
        1e3 * all.iter().map(|response| response.took).sum::<f64>() / all.len().max(1) as f64
    };
    let mut claims = vec![
        halved("web beside research", a, b),
        Said::new(
            "web requests take less time with PriDyn",
            mean(with) < mean(without),
            format!(
                "{:.0} ms on average instead of {:.0}",
                mean(with),
                mean(without)
            ),
        ),
    ];
    if let (Some(a), Some(b)) = (missed(without, RESEARCH), missed(with, RESEARCH)) {
        claims.push(Said::new(
            "research, which has time, misses next to nothing all the same: at most 10 %",
            b <= 10.0,
            format!(
                "{b:.1} %, {a:.1} % without PriDyn; it has {:.1} MB/s instead of {:.1}",
                with.rate(RESEARCH).unwrap_or(0.0) / 1e6,
                without.rate(RESEARCH).unwrap_or(0.0) / 1e6
            ),
        ));
    }
    Ok(claims)
}

fn both_claims(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for vm in 0..VMS {
        let [Some(without), Some(with)] = BOTH.map(|scheduler| curve_of(found, scheduler, vm))
        else {
            return Ok(Vec::new());
        };
        claims.push(fewer(&format!("stream {}", vm + 1), &without, &with));
    }
    let [Some(without), Some(with)] = BOTH.map(|scheduler| curve(found, scheduler)) else {
        return Ok(Vec::new());
    };
    claims.push(fewer("both together", &without, &with));
    Ok(claims)
}

/// That fewer are missed at every delta at which any are.
fn fewer(about: &str, without: &[f64], with: &[f64]) -> Said {
    let both = without.iter().zip(with);
    Said::new(
        format!("with PriDyn fewer deadlines are missed at every delta ({about})"),
        both.clone()
            .all(|(without, with)| with < without || *without == 0.0),
        format!(
            "with delta from 0.2 to 1.0 {} % instead of {} %",
            listed(with),
            listed(without)
        ),
    )
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

/// So many requests are drawn.
const DRAWN: usize = 60;

fn responses(found: &Found<'_>) -> Option<Plot> {
    let mut plot = Plot::new(
        "Figure 4.6: the first web requests beside research",
        Axis::linear("request", Unit::Number),
        Axis::linear("time", Unit::Nanos).including(0.0),
    );
    for (name, scheduler) in [("without PriDyn", "cfq"), ("with PriDyn", "pridyn")] {
        let run = found.of(beside_research(scheduler))?;
        let drawn = run.responses(WEB).iter().take(DRAWN).enumerate();
        if scheduler == "cfq" {
            let deadlines = drawn.clone().map(|(i, r)| (i as f64, 1e9 * r.deadline));
            plot.add(Series::line("deadline").points(deadlines));
        }
        let took = drawn.map(|(i, r)| (i as f64, 1e9 * r.took));
        plot.add(Series::marks(name).points(took));
    }
    Some(plot)
}
