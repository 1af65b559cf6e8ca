//! Figures 5.11 to 5.14, which the thesis draws without figures on their axes, and what section
//! 5.1.1 needs PCOS for.

use super::house::{Case, MEDIA, Setting};
use super::learning::INTERVAL;
use super::run::Outcome;
use super::{Figure, Found, Key, Rule, Way, Who};
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const SECTION_5_1_1: Figure = Figure {
    name: "section 5.1.1",
    keys: |way| {
        let who = [Who::Nobody, Who::Everybody, Who::Pcos(way.rule)];
        let both = Case::BOTH.into_iter();
        both.flat_map(|case| who.into_iter().flat_map(move |who| all(way, case, who)))
            .collect()
    },
    claims: |found| {
        Case::BOTH
            .iter()
            .filter_map(|case| need(found, *case))
            .flatten()
            .collect()
    },
    plots: |found| {
        Case::BOTH
            .iter()
            .filter_map(|case| need_plot(found, *case))
            .collect()
    },
    others: &OTHERS,
};

pub(super) const FIGURE_5_11: Figure = Figure {
    name: "figure 5.11",
    keys: |way| all(way, Case::Web, Who::Pcos(way.rule)),
    claims: |found| by_delta(found, Case::Web).unwrap_or_default(),
    plots: |found| {
        delta_plot(found, Case::Web, "Figure 5.11: web requests")
            .into_iter()
            .collect()
    },
    others: &OTHERS,
};

pub(super) const FIGURE_5_12: Figure = Figure {
    name: "figure 5.12",
    keys: |way| all(way, Case::Research, Who::Pcos(way.rule)),
    claims: |found| by_delta(found, Case::Research).unwrap_or_default(),
    plots: |found| {
        let title = "Figure 5.12: research requests";
        delta_plot(found, Case::Research, title)
            .into_iter()
            .collect()
    },
    others: &OTHERS,
};

pub(super) const FIGURE_5_13: Figure = Figure {
    name: "figure 5.13",
    keys: |way| {
        let both = Case::BOTH.into_iter();
        both.flat_map(|case| all(way, case, Who::Pcos(way.rule)))
            .collect()
    },
    claims: |found| compared(found).unwrap_or_default(),
    plots: |found| compared_plot(found).into_iter().collect(),
    others: &OTHERS,
};

pub(super) const FIGURE_5_14: Figure = Figure {
    name: "figure 5.14",
    keys: |way| {
        [Who::Nobody, Who::Pcos(way.rule)]
            .map(|who| key(way.setting, Case::Research, SHOWN, who))
            .to_vec()
    },
    claims: |found| used(found).unwrap_or_default(),
    plots: |found| used_plot(found).into_iter().collect(),
    others: &OTHERS,
};

const OTHERS: [Way; 4] = [
    Way::new(Setting::One, Rule::Printed),
    Way::new(Setting::One, Rule::Ends),
    Way::new(Setting::Several, Rule::Ours),
    Way::new(Setting::Long, Rule::Ours),
];
/// Delta of the media servers, in thousandths: from where two that share the disk evenly are at
/// their deadlines on average. The thesis does not tell its range.
pub(super) const TOLERANCES: [u32; 9] = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000];
/// The one that PriDyn's section 5.1.1 has: two of them keep nine in ten of their deadlines.
const SHOWN: u32 = 2500;
/// What is a rise or a fall from one delta to the next may go back by this part of the largest.
const SLACK: f64 = 0.05;

pub(super) fn key(setting: Setting, case: Case, tolerance: u32, who: Who) -> Key {
    Key {
        setting,
        case,
        tolerance,
        who,
    }
}

fn all(way: Way, case: Case, who: Who) -> Vec<Key> {
    TOLERANCES
        .map(|tolerance| key(way.setting, case, tolerance, who))
        .to_vec()
}

/// A figure by delta; `None`: it was not run.
fn curve(
    found: &Found<'_>,
    case: Case,
    who: Who,
    of: impl Fn(&Outcome) -> f64,
) -> Option<Vec<f64>> {
    let one = |tolerance: &u32| Some(of(&found.of(case, *tolerance, who)?.outcome));
    TOLERANCES.iter().map(one).collect()
}

fn let_in(outcome: &Outcome) -> f64 {
    outcome.begun.len() as f64
}

fn listed(values: &[f64], digits: usize) -> String {
    let all: Vec<String> = values.iter().map(|x| format!("{x:.digits$}")).collect();
    let by = if values.len() > 1 {
        " (by delta, 1 to 5)"
    } else {
        ""
    };
    all.join(", ") + by
}

/// It rises from the first to the last, and goes back nowhere by much.
fn rises(values: &[f64]) -> bool {
    let most = values.iter().copied().fold(0.0, f64::max);
    let goes_on = |two: &[f64]| two[1] >= two[0] - SLACK * most;
    values.windows(2).all(goes_on) && values.last() > values.first()
}

fn falls(values: &[f64]) -> bool {
    let negative: Vec<f64> = values.iter().rev().copied().collect();
    rises(&negative)
}

fn by_delta(found: &Found<'_>, case: Case) -> Option<Vec<Said>> {
    let name = case.name();
    let accepted = curve(found, case, Who::Pcos(found.way.rule), let_in)?;
    let discarded = curve(
        found,
        case,
        Who::Pcos(found.way.rule),
        Outcome::discarded_pct,
    )?;
    let waits = curve(found, case, Who::Pcos(found.way.rule), |of| {
        1e3 * of.mean_wait()
    })?;
    let none = discarded.iter().all(|pct| *pct == 0.0);
    let some = match case {
        Case::Web => Said::new(
            format!(
                "the larger the media servers' delta, the smaller a part of {name} requests is \
                 discarded"
            ),
            falls(&discarded),
            format!("discarded are {} %", listed(&discarded, 1)),
        ),
        Case::Research => Said::new(
            format!("no {name} request is discarded"),
            none,
            format!("discarded are {} %", listed(&discarded, 1)),
        ),
    };
    let wait = Said::new(
        format!("the larger the media servers' delta, the shorter {name} requests wait"),
        falls(&waits) && accepted.iter().all(|n| *n > 0.0),
        format!("the mean is {} ms", listed(&waits, 1)),
    );
    let mut claims = vec![
        Said::new(
            format!("the larger the media servers' delta, the more {name} requests are let in"),
            rises(&accepted),
            format!("let in are {}", listed(&accepted, 0)),
        ),
        some,
        wait,
    ];
    if case == Case::Web {
        claims.push(Said::new(
            "some web requests are discarded",
            !none,
            format!("discarded are {} %", listed(&discarded, 1)),
        ));
    }
    Some(claims)
}

fn compared(found: &Found<'_>) -> Option<Vec<Said>> {
    let of = |case| curve(found, case, Who::Pcos(found.way.rule), let_in);
    let wait = |case| {
        curve(found, case, Who::Pcos(found.way.rule), |of| {
            1e3 * of.mean_wait()
        })
    };
    let [web, research] = [of(Case::Web)?, of(Case::Research)?];
    let [web_waits, research_waits] = [wait(Case::Web)?, wait(Case::Research)?];
    let shorter = web_waits.iter().zip(&research_waits);
    let shorter = shorter.filter(|(web, research)| research <= web).count();
    Some(vec![
        Said::new(
            "more research than web requests are let in at every delta",
            web.iter()
                .zip(&research)
                .all(|(web, research)| research > web),
            format!(
                "{} research, {} web requests",
                listed(&research, 0),
                listed(&web, 0)
            ),
        ),
        Said::new(
            "research requests generally wait less than web requests: at more than half of the \
             deltas",
            2 * shorter > TOLERANCES.len(),
            format!("they do at {shorter} of {}", TOLERANCES.len()),
        ),
    ])
}

/// So many points more are not "a performance degradation".
const NEARLY: f64 = 2.0;

/// That those that run miss no more than without newcomers, though `some` are let in at every
/// delta.
fn unharmed(case: Case, some: bool, alone: &[f64], with: &[f64]) -> Said {
    let more = alone.iter().zip(with).map(|(alone, with)| with - alone);
    let most = more.fold(f64::MIN, f64::max);
    Said::new(
        format!(
            "with PCOS the media servers miss nearly no more deadlines than without {} requests: \
             {NEARLY:.0} points at most",
            case.name()
        ),
        some && most <= NEARLY,
        format!(
            "missed are {} %, without newcomers {}{}",
            listed(with, 1),
            listed(alone, 1),
            if some {
                ""
            } else {
                "; at some delta nobody is let in"
            }
        ),
    )
}

fn need(found: &Found<'_>, case: Case) -> Option<[Said; 2]> {
    let missed = |who| curve(found, case, who, Outcome::media_missed_pct);
    let [alone, open, pcos] = [
        missed(Who::Nobody)?,
        missed(Who::Everybody)?,
        missed(Who::Pcos(found.way.rule))?,
    ];
    let some = curve(found, case, Who::Pcos(found.way.rule), let_in)?;
    let worse = open.iter().zip(&pcos).all(|(open, pcos)| open > pcos);
    Some([
        Said::new(
            format!(
                "where all {} requests are let in at once, the media servers miss more than with \
                 PCOS, at every delta",
                case.name()
            ),
            worse,
            format!("{} %, with PCOS {}", listed(&open, 1), listed(&pcos, 1)),
        ),
        unharmed(case, some.iter().all(|n| *n > 0.0), &alone, &pcos),
    ])
}

/// In MB/s, in each interval, of each VM; those of newcomers are one.
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

fn used(found: &Found<'_>) -> Option<Vec<Said>> {
    let of = |who| Some(&found.of(Case::Research, SHOWN, who)?.outcome);
    let (alone, pcos) = (of(Who::Nobody)?, of(Who::Pcos(found.way.rule))?);
    let total = |outcome| mean(rates(outcome).into_iter().map(|of| of.iter().sum()));
    let new = mean(rates(pcos).into_iter().map(|of| of[MEDIA]));
    Some(vec![
        Said::new(
            "research requests that are let in raise the disk's use in all",
            total(pcos) > total(alone),
            format!(
                "{:.1} MB/s instead of {:.1}, {new:.1} of them of research requests",
                total(pcos),
                total(alone)
            ),
        ),
        unharmed(
            Case::Research,
            !pcos.begun.is_empty(),
            &[alone.media_missed_pct()],
            &[pcos.media_missed_pct()],
        ),
    ])
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

fn delta_plot(found: &Found<'_>, case: Case, title: &str) -> Option<Plot> {
    let of = |of: fn(&Outcome) -> f64| curve(found, case, Who::Pcos(found.way.rule), of);
    let series = vec![
        ("let in", parts_of_most(&of(let_in)?)),
        ("discarded", parts_of_most(&of(|of| of.discarded as f64)?)),
        ("average delay", parts_of_most(&of(Outcome::mean_wait)?)),
    ];
    Some(percent_plot(title, "of the largest", series))
}

fn compared_plot(found: &Found<'_>) -> Option<Plot> {
    let of = |case| curve(found, case, Who::Pcos(found.way.rule), let_in);
    let [web, research] = [of(Case::Web)?, of(Case::Research)?];
    let all = parts_of_most(&[web.as_slice(), &research].concat());
    let (web, research) = all.split_at(TOLERANCES.len());
    let series = vec![("web", web.to_vec()), ("research", research.to_vec())];
    let title = "Figure 5.13: requests that are let in";
    Some(percent_plot(title, "of the largest", series))
}

fn need_plot(found: &Found<'_>, case: Case) -> Option<Plot> {
    let missed = |who| curve(found, case, who, Outcome::media_missed_pct);
    let series = vec![
        ("without", missed(Who::Nobody)?),
        ("all let in", missed(Who::Everybody)?),
        ("PCOS", missed(Who::Pcos(found.way.rule))?),
    ];
    let title = format!(
        "Section 5.1.1: what media servers miss beside {} requests",
        case.name()
    );
    Some(percent_plot(&title, "deadlines missed", series))
}

fn used_plot(found: &Found<'_>) -> Option<Plot> {
    let rates = rates(
        &found
            .of(Case::Research, SHOWN, Who::Pcos(found.way.rule))?
            .outcome,
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_goes_back_nowhere_by_much_and_gets_somewhere() {
        assert!(rises(&[1.0, 50.0, 46.0, 100.0]));
        assert!(!rises(&[1.0, 50.0, 44.0, 100.0]));
        assert!(!rises(&[100.0, 99.0, 98.0]));
        assert!(!rises(&[0.0, 0.0]));
        assert!(falls(&[100.0, 46.0, 50.0, 1.0]));
        assert!(!falls(&[1.0, 2.0]));
    }
}
