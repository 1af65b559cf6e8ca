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
        let admissions = [
            Admission::RejectAll,
            Admission::AdmitAll,
            Admission::Pcos(configuration.rule),
        ];
        let both = Case::BOTH.into_iter();
        both.flat_map(|case| {
            admissions
                .into_iter()
                .flat_map(move |admission| keys_by_delta(configuration, case, admission))
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
        keys_by_delta(
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
        keys_by_delta(
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
        both.flat_map(|case| {
            keys_by_delta(configuration, case, Admission::Pcos(configuration.rule))
        })
        .collect()
    },
    plots: |results| compared_plot(results).into_iter().collect(),
    others: &OTHERS,
};

pub(super) const FIGURE_5_14: Figure = Figure {
    name: "figure 5.14",
    keys: |configuration| {
        [Admission::RejectAll, Admission::Pcos(configuration.rule)]
            .map(|admission| {
                key(
                    configuration.setting,
                    Case::Research,
                    SHOWN_DELTA,
                    admission,
                )
            })
            .to_vec()
    },
    plots: |results| used_plot(results).into_iter().collect(),
    others: &OTHERS,
};

const OTHERS: [Configuration; 8] = [
    Configuration::new(Setting::OneVm, Rule::AsPrinted),
    Configuration::new(Setting::OneVm, Rule::LateUnprotected),
    Configuration::new(Setting::NoPauses, Rule::Tidegate),
    Configuration::new(Setting::NoPauses, Rule::AsPrinted),
    Configuration::new(Setting::NoPauses, Rule::LateUnprotected),
    Configuration::new(Setting::OneVm, Rule::TransferEnds),
    Configuration::new(Setting::FourVms, Rule::Tidegate),
    Configuration::new(Setting::LargeRequests, Rule::Tidegate),
];
/// Deltas of the media servers, in thousandths, from the point at which two servers that share the
/// disk evenly meet their deadlines on average. The thesis does not state the range.
pub(super) const TOLERANCES: [u32; 9] = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000];
/// Delta of PriDyn's section 5.1.1, in thousandths: two media servers meet nine in ten of their
/// deadlines.
const SHOWN_DELTA: u32 = 2500;

/// Intervals at the begin of a run that figure 5.14 and the mean rates leave out: those of
/// [`MEDIA_ALONE`](super::run::MEDIA_ALONE).
const SKIPPED_INTERVALS: usize = 1;

pub(super) fn key(setting: Setting, case: Case, tolerance: u32, admission: Admission) -> Key {
    Key {
        setting,
        case,
        tolerance,
        admission,
    }
}

/// Keys of the runs of a case under a policy, by delta.
fn keys_by_delta(configuration: Configuration, case: Case, admission: Admission) -> Vec<Key> {
    TOLERANCES
        .map(|tolerance| key(configuration.setting, case, tolerance, admission))
        .to_vec()
}

/// Figure at each delta; `None` if a run is missing.
pub(super) fn curve(
    results: &RunResults<'_>,
    case: Case,
    admission: Admission,
    figure: impl Fn(&Outcome) -> f64,
) -> Option<Vec<f64>> {
    let value_at = |tolerance: &u32| {
        Some(figure(
            &results.run_for(case, *tolerance, admission)?.outcome,
        ))
    };
    TOLERANCES.iter().map(value_at).collect()
}

/// Number of admitted requests.
pub(super) fn admitted(outcome: &Outcome) -> f64 {
    outcome.begun.len() as f64
}

/// Bandwidth in MB/s of each media server and of all newcomers together, by interval. The first
/// interval is left out: no newcomer may begin in it ([`SKIPPED_INTERVALS`]).
fn rates(outcome: &Outcome) -> Vec<[f64; MEDIA + 1]> {
    let rate = |bytes: u64| bytes as f64 / INTERVAL.as_secs_f64() / 1e6;
    let rates_of = |moved: &Vec<u64>| {
        let new = moved[MEDIA..].iter().sum();
        [rate(moved[0]), rate(moved[1]), rate(new)]
    };
    let intervals = outcome.moved.iter().skip(SKIPPED_INTERVALS);
    intervals.map(rates_of).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0_u32), |(sum, n), x| (sum + x, n + 1));
    // A run shorter than the intervals that are left out has the mean 0.
    sum / f64::from(n.max(1))
}

/// Mean bandwidth of all VMs, in MB/s.
pub(super) fn total_mb_s(outcome: &Outcome) -> f64 {
    mean(rates(outcome).into_iter().map(|rates| rates.iter().sum()))
}

/// Mean bandwidth of the admitted requests, in MB/s.
pub(super) fn newcomers_mb_s(outcome: &Outcome) -> f64 {
    mean(rates(outcome).into_iter().map(|rates| rates[MEDIA]))
}

/// Run of figure 5.14; `None` if it is missing.
pub(super) fn shown_run<'a>(results: &RunResults<'a>, admission: Admission) -> Option<&'a Outcome> {
    Some(
        &results
            .run_for(Case::Research, SHOWN_DELTA, admission)?
            .outcome,
    )
}

fn deltas() -> impl Iterator<Item = f64> {
    TOLERANCES
        .into_iter()
        .map(|tolerance| f64::from(tolerance) / 1e3)
}

/// Values in percent of the largest one.
fn percent_of_largest(values: &[f64]) -> Vec<f64> {
    let largest = values.iter().copied().fold(0.0, f64::max);
    values
        .iter()
        .map(|x| {
            // Nothing admitted anywhere is a curve at 0.
            if largest > 0.0 {
                100.0 * x / largest
            } else {
                0.0
            }
        })
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
    let admission = Admission::Pcos(results.configuration.rule);
    let percents = |figure: fn(&Outcome) -> f64| {
        curve(results, case, admission, figure).map(|values| percent_of_largest(&values))
    };
    let series = vec![
        ("admitted", percents(admitted)?),
        ("discarded", percents(|outcome| outcome.discarded as f64)?),
        ("average delay", percents(Outcome::mean_wait)?),
    ];
    Some(percent_plot(title, "percent of the largest value", series))
}

fn compared_plot(results: &RunResults<'_>) -> Option<Plot> {
    let admitted_in = |case| {
        curve(
            results,
            case,
            Admission::Pcos(results.configuration.rule),
            admitted,
        )
    };
    let [web, research] = [admitted_in(Case::Web)?, admitted_in(Case::Research)?];
    // Together, so that both curves have one scale.
    let all = percent_of_largest(&[web.as_slice(), &research].concat());
    let (web, research) = all.split_at(TOLERANCES.len());
    let series = vec![("web", web.to_vec()), ("research", research.to_vec())];
    let title = "Figure 5.13: admitted requests";
    Some(percent_plot(title, "percent of the largest value", series))
}

fn need_plot(results: &RunResults<'_>, case: Case) -> Option<Plot> {
    let missed = |admission| curve(results, case, admission, Outcome::media_missed_pct);
    let series = vec![
        ("none admitted", missed(Admission::RejectAll)?),
        ("all admitted", missed(Admission::AdmitAll)?),
        ("PCOS", missed(Admission::Pcos(results.configuration.rule))?),
    ];
    let title = format!(
        "Section 5.1.1: deadlines missed by the media servers beside {} requests",
        case.name()
    );
    Some(percent_plot(&title, "deadlines missed", series))
}

fn used_plot(results: &RunResults<'_>) -> Option<Plot> {
    let rates = rates(shown_run(
        results,
        Admission::Pcos(results.configuration.rule),
    )?);
    let mut plot = Plot::new(
        "Figure 5.14: bandwidth of the media servers and, above them, of research requests",
        Axis::linear("time", Unit::Seconds),
        Axis::linear("bandwidth, stacked", Unit::BytesPerS).including(0.0),
    );
    for (name, upto) in [("media 1", 1), ("media 2", 2), ("research", 3)] {
        let point = |(i, rates): (usize, &[f64; MEDIA + 1])| {
            // A rate stands at the end of its interval.
            let end = (SKIPPED_INTERVALS + i + 1) as f64 * INTERVAL.as_secs_f64();
            (end, 1e6 * rates[..upto].iter().sum::<f64>())
        };
        plot.add(Series::line(name).points(rates.iter().enumerate().map(point)));
    }
    Some(plot)
}
