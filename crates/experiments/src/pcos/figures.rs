//! Figures 5.11 to 5.14, which the thesis draws without values on their axes, and the need for PCOS
//! that section 5.1.1 states.

use super::host::{Case, MEDIA, Setting};
use super::learning::INTERVAL;
use super::run::Outcome;
use super::{Admission, Configuration, Figure, Key, Rule, RunResults};
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const SECTION_5_1_1: Figure = Figure {
    name: "section 5.1.1",
    keys: |configuration| {
        let who = [
            Admission::Nobody,
            Admission::Everybody,
            Admission::Pcos(configuration.rule),
        ];
        let both = Case::BOTH.into_iter();
        both.flat_map(|case| {
            who.into_iter()
                .flat_map(move |who| all(configuration, case, who))
        })
        .collect()
    },
    plots: |results| {
        Case::BOTH
            .iter()
            .filter_map(|case| need_plot(results, *case))
            .collect()
    },
    others: &OTHERS,
};

pub(super) const FIGURE_5_11: Figure = Figure {
    name: "figure 5.11",
    keys: |configuration| {
        all(
            configuration,
            Case::Web,
            Admission::Pcos(configuration.rule),
        )
    },
    plots: |results| {
        delta_plot(results, Case::Web, "Figure 5.11: web requests")
            .into_iter()
            .collect()
    },
    others: &OTHERS,
};

pub(super) const FIGURE_5_12: Figure = Figure {
    name: "figure 5.12",
    keys: |configuration| {
        all(
            configuration,
            Case::Research,
            Admission::Pcos(configuration.rule),
        )
    },
    plots: |results| {
        let title = "Figure 5.12: research requests";
        delta_plot(results, Case::Research, title)
            .into_iter()
            .collect()
    },
    others: &OTHERS,
};

pub(super) const FIGURE_5_13: Figure = Figure {
    name: "figure 5.13",
    keys: |configuration| {
        let both = Case::BOTH.into_iter();
        both.flat_map(|case| all(configuration, case, Admission::Pcos(configuration.rule)))
            .collect()
    },
    plots: |results| compared_plot(results).into_iter().collect(),
    others: &OTHERS,
};

pub(super) const FIGURE_5_14: Figure = Figure {
    name: "figure 5.14",
    keys: |configuration| {
        [Admission::Nobody, Admission::Pcos(configuration.rule)]
            .map(|who| key(configuration.setting, Case::Research, SHOWN, who))
            .to_vec()
    },
    plots: |results| used_plot(results).into_iter().collect(),
    others: &OTHERS,
};

const OTHERS: [Configuration; 4] = [
    Configuration::new(Setting::One, Rule::Printed),
    Configuration::new(Setting::One, Rule::Ends),
    Configuration::new(Setting::Several, Rule::Ours),
    Configuration::new(Setting::Long, Rule::Ours),
];
/// Deltas of the media servers, in thousandths, from the point at which two servers that share the
/// disk evenly meet their deadlines on average. The thesis does not state the range.
pub(super) const TOLERANCES: [u32; 9] = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000];
/// Delta of PriDyn's section 5.1.1, in thousandths: two media servers meet nine in ten of their
/// deadlines.
const SHOWN: u32 = 2500;

pub(super) fn key(setting: Setting, case: Case, tolerance: u32, who: Admission) -> Key {
    Key {
        setting,
        case,
        tolerance,
        who,
    }
}

fn all(configuration: Configuration, case: Case, who: Admission) -> Vec<Key> {
    TOLERANCES
        .map(|tolerance| key(configuration.setting, case, tolerance, who))
        .to_vec()
}

/// Figure at each delta; `None` if a run is missing.
pub(super) fn curve(
    results: &RunResults<'_>,
    case: Case,
    who: Admission,
    of: impl Fn(&Outcome) -> f64,
) -> Option<Vec<f64>> {
    let one = |tolerance: &u32| Some(of(&results.of(case, *tolerance, who)?.outcome));
    TOLERANCES.iter().map(one).collect()
}

pub(super) fn let_in(outcome: &Outcome) -> f64 {
    outcome.begun.len() as f64
}

/// Bandwidth in MB/s of each media server and of all newcomers together, by interval.
fn rates(outcome: &Outcome) -> Vec<[f64; MEDIA + 1]> {
    let rate = |bytes: u64| bytes as f64 / INTERVAL.as_secs_f64() / 1e6;
    let one = |moved: &Vec<u64>| {
        let new = moved[MEDIA..].iter().sum();
        [rate(moved[0]), rate(moved[1]), rate(new)]
    };
    outcome.moved.iter().skip(1).map(one).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0_u32), |(sum, n), x| (sum + x, n + 1));
    sum / f64::from(n.max(1))
}

/// Mean bandwidth of all VMs, in MB/s.
pub(super) fn total_mb_s(outcome: &Outcome) -> f64 {
    mean(rates(outcome).into_iter().map(|of| of.iter().sum()))
}

/// Mean bandwidth of the admitted requests, in MB/s.
pub(super) fn newcomers_mb_s(outcome: &Outcome) -> f64 {
    mean(rates(outcome).into_iter().map(|of| of[MEDIA]))
}

/// Run of figure 5.14; `None` if it is missing.
pub(super) fn shown<'a>(results: &RunResults<'a>, who: Admission) -> Option<&'a Outcome> {
    Some(&results.of(Case::Research, SHOWN, who)?.outcome)
}

fn deltas() -> impl Iterator<Item = f64> {
    TOLERANCES.into_iter().map(|of| f64::from(of) / 1e3)
}

fn parts_of_most(values: &[f64]) -> Vec<f64> {
    let most = values.iter().copied().fold(0.0, f64::max);
    values
        .iter()
        .map(|x| if most > 0.0 { 100.0 * x / most } else { 0.0 })
        .collect()
}

fn percent_plot(title: &str, y: &str, series: Vec<(&str, Vec<f64>)>) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::linear("delta of the media servers", Unit::Number),
        Axis::linear(y, Unit::Percent)
            .including(0.0)
            .including(100.0),
    );
    for (name, values) in series {
        plot.add(Series::line(name).points(deltas().zip(values)));
    }
    plot
}

fn delta_plot(results: &RunResults<'_>, case: Case, title: &str) -> Option<Plot> {
    let of = |of: fn(&Outcome) -> f64| {
        curve(
            results,
            case,
            Admission::Pcos(results.configuration.rule),
            of,
        )
    };
    let series = vec![
        ("let in", parts_of_most(&of(let_in)?)),
        ("discarded", parts_of_most(&of(|of| of.discarded as f64)?)),
        ("average delay", parts_of_most(&of(Outcome::mean_wait)?)),
    ];
    Some(percent_plot(title, "of the largest", series))
}

fn compared_plot(results: &RunResults<'_>) -> Option<Plot> {
    let of = |case| {
        curve(
            results,
            case,
            Admission::Pcos(results.configuration.rule),
            let_in,
        )
    };
    let [web, research] = [of(Case::Web)?, of(Case::Research)?];
    let all = parts_of_most(&[web.as_slice(), &research].concat());
    let (web, research) = all.split_at(TOLERANCES.len());
    let series = vec![("web", web.to_vec()), ("research", research.to_vec())];
    let title = "Figure 5.13: requests that are let in";
    Some(percent_plot(title, "of the largest", series))
}

fn need_plot(results: &RunResults<'_>, case: Case) -> Option<Plot> {
    let missed = |who| curve(results, case, who, Outcome::media_missed_pct);
    let series = vec![
        ("without", missed(Admission::Nobody)?),
        ("all let in", missed(Admission::Everybody)?),
        ("PCOS", missed(Admission::Pcos(results.configuration.rule))?),
    ];
    let title = format!(
        "Section 5.1.1: what media servers miss beside {} requests",
        case.name()
    );
    Some(percent_plot(&title, "deadlines missed", series))
}

fn used_plot(results: &RunResults<'_>) -> Option<Plot> {
    let rates = rates(shown(results, Admission::Pcos(results.configuration.rule))?);
    let mut plot = Plot::new(
        "Figure 5.14: bandwidth of the media servers and, above them, of research requests",
        Axis::linear("time", Unit::Seconds),
        Axis::linear("bandwidth, stacked", Unit::BytesPerS).including(0.0),
    );
    for (name, upto) in [("media 1", 1), ("media 2", 2), ("research", 3)] {
        let point = |(i, of): (usize, &[f64; MEDIA + 1])| {
            let at = (i + 2) as f64 * INTERVAL.as_secs_f64();
            (at, 1e6 * of[..upto].iter().sum::<f64>())
        };
        plot.add(Series::line(name).points(rates.iter().enumerate().map(point)));
    }
    Some(plot)
}
