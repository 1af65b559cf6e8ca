//! Measures that `claims.toml` names.

use super::figures::{self, admitted, curve, shown_run};
use super::goals::judged_runs;
use super::host::Case;
use super::run::Outcome;
use super::{Admission, Pcos, RunResult, RunResults};
use crate::claim::{Measure, Series, series};

const CASES: &[&str] = &["web", "research"];
/// Admission policies by name.
const ADMISSIONS: &[&str] = &["none", "all", "pcos"];

fn case(name: &str) -> Option<Case> {
    Case::BOTH.into_iter().find(|case| case.name() == name)
}

/// Admission policy of a run by its name.
fn admission(results: &RunResults<'_>, name: &str) -> Admission {
    match name {
        "none" => Admission::RejectAll,
        "all" => Admission::AdmitAll,
        // `measure` has let only the three words through.
        _ => Admission::Pcos(results.configuration.rule),
    }
}

/// Measure under PCOS at each delta of the media servers.
fn under_pcos(results: &RunResults<'_>, name: &str, figure: fn(&Outcome) -> f64) -> Option<Series> {
    curve(results, case(name)?, admission(results, "pcos"), figure).map(series)
}

pub(super) const MEASURES: &[Measure<Pcos>] = &[
    // Requests that are admitted at each delta.
    Measure {
        name: "let_in",
        arguments: &[CASES],
        evaluate: |results, arguments| under_pcos(results, arguments[0], admitted),
    },
    // Requests that are discarded at each delta, in percent.
    Measure {
        name: "discarded",
        arguments: &[CASES],
        evaluate: |results, arguments| under_pcos(results, arguments[0], Outcome::discarded_pct),
    },
    // Mean wait of admitted requests at each delta, in ms.
    Measure {
        name: "wait",
        arguments: &[CASES],
        evaluate: |results, arguments| {
            under_pcos(results, arguments[0], |run| 1e3 * run.mean_wait())
        },
    },
    // Deadlines that the media servers miss at each delta, in percent.
    Measure {
        name: "missed",
        arguments: &[CASES, ADMISSIONS],
        evaluate: |results, arguments| {
            let admission = admission(results, arguments[1]);
            curve(
                results,
                case(arguments[0])?,
                admission,
                Outcome::media_missed_pct,
            )
            .map(series)
        },
    },
    // A figure of the run that figure 5.14 shows, of research requests: how many are admitted,
    // deadlines that the media servers miss, in percent, MB/s of all VMs and of the requests.
    Measure {
        name: "shown",
        arguments: &[
            &["let in", "missed", "MB/s", "MB/s of requests"],
            ADMISSIONS,
        ],
        evaluate: |results, arguments| {
            let run = shown_run(results, admission(results, arguments[1]))?;
            Some(series([match arguments[0] {
                "let in" => admitted(run),
                "missed" => run.media_missed_pct(),
                "MB/s" => figures::total_mb_s(run),
                _ => figures::newcomers_mb_s(run),
            }]))
        },
    },
    // A count of decisions that were tried at each of three deltas: admitted requests; those of
    // them that did harm, to media servers, to others, or that were late themselves; those
    // that the oracle would have admitted where PCOS was asked, and those of them that were
    // admitted; and those that PCOS and the oracle admitted by themselves.
    Measure {
        name: "judged",
        arguments: &[
            CASES,
            &[
                "let in",
                "harm",
                "to media",
                "to others",
                "to itself",
                "possible",
                "taken",
                "own",
                "oracle",
            ],
        ],
        evaluate: |results, arguments| {
            let admission = match arguments[1] {
                "oracle" => Admission::Oracle,
                _ => Admission::Audited(results.configuration.rule),
            };
            let runs = judged_runs(results, case(arguments[0])?, admission)?;
            Some(series(
                runs.into_iter().map(|run| count(run, arguments[1]) as f64),
            ))
        },
    },
];

/// A count of a run's decisions, by its name.
fn count(run: &RunResult, name: &str) -> usize {
    let [media, others, itself] = run.audit.harmed();
    match name {
        "let in" => run.audit.admitted,
        "harm" => run.audit.harms.len(),
        "to media" => media,
        "to others" => others,
        "to itself" => itself,
        "possible" => run.audit.possible,
        "taken" => run.audit.taken,
        _ => run.outcome.begun.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CLAIMS, PAPER, PAPER_TOML};
    use super::*;
    use crate::claim::{self, Call, Item, Measures};
    use crate::{Claim, ExperimentError, Reference};

    #[test]
    fn claims_name_what_there_is() {
        let reference = Reference::parse(PAPER_TOML).expect("TOML");
        claim::tests::are_sound(CLAIMS, &reference, PAPER.tables, &[MEASURES], &[]);
    }

    /// Series by their measures, `let_in(web)`; measures that are not there have these figures.
    struct Figures<'a>(&'a [(&'a str, &'a [f64])], &'a [f64]);

    impl Measures for Figures<'_> {
        fn measure(&self, call: &Call) -> Result<Option<Vec<Item>>, ExperimentError> {
            let name = format!("{}({})", call.name, call.arguments.join(", "));
            let found = self.0.iter().find(|(known, _)| *known == name);
            let figures = found.map_or(self.1, |(_, figures)| figures);
            Ok(Some(series(figures.iter().copied())))
        }
    }

    /// Result of the first claim of the file with this id.
    fn result_of(id: &str, figures: &Figures<'_>) -> Claim {
        let specs = claim::read(CLAIMS).expect("claims");
        let spec = specs.iter().find(|spec| spec.id == id).expect("the claim");
        let result_of = spec.evaluate(figures).expect("figures").expect("all");
        result_of.with_ablations(&[])
    }

    #[test]
    fn monotony_claims_allow_setbacks_of_5_percent_and_need_a_change() {
        let rises =
            |all: &[f64]| result_of("web-let-in", &Figures(&[("let_in(web)", all)], &[])).holds;
        assert!(rises(&[1.0, 50.0, 46.0, 100.0]));
        assert!(!rises(&[1.0, 50.0, 44.0, 100.0]));
        assert!(!rises(&[100.0, 99.0, 98.0]));
        assert!(!rises(&[0.0, 0.0]));
        let falls = |all: &[f64]| {
            result_of(
                "web-discarded-part",
                &Figures(&[("discarded(web)", all)], &[]),
            )
            .holds
        };
        assert!(falls(&[100.0, 46.0, 50.0, 1.0]));
        assert!(!falls(&[100.0, 44.0, 50.0, 1.0]));
        assert!(!falls(&[1.0, 2.0]));
    }

    #[test]
    fn unharmed_claim_holds_only_with_admitted_requests_at_every_delta() {
        let result_of = |admitted: &[f64], missed: &[f64]| {
            let all = [("let_in(web)", admitted), ("missed(web, pcos)", missed)];
            result_of("unharmed", &Figures(&all, &[10.0, 20.0]))
        };
        let none = "; at some delta no request is let in.";
        let unharmed = result_of(&[1.0, 3.0], &[12.0, 20.0]);
        assert!(
            unharmed.holds && !unharmed.detail.ends_with(none),
            "{unharmed:?}"
        );
        assert!(!result_of(&[1.0, 3.0], &[12.1, 20.0]).holds);
        let harmed = result_of(&[1.0, 0.0], &[12.0, 20.0]);
        assert!(!harmed.holds && harmed.detail.ends_with(none), "{harmed:?}");
    }
}
