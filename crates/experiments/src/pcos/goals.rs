//! What is asked of PCOS beyond the thesis: that nothing it lets in makes a job miss, and that it
//! lets in nearly all that an oracle would.

use super::figures::key;
use super::house::{Case, Setting};
use super::{Figure, Found, Ran, Rule, Way, Who};
use crate::said::Said;

pub(super) const ACCEPTANCE: Figure = Figure {
    name: "acceptance",
    keys: |way| {
        let mut all = Vec::new();
        for (case, tolerance) in judged() {
            all.extend(
                [Who::Audited(way.rule), Who::Oracle]
                    .map(|who| key(way.setting, case, tolerance, who)),
            );
        }
        all
    },
    claims: |found| {
        Case::BOTH
            .iter()
            .filter_map(|case| said(found, *case))
            .flatten()
            .collect()
    },
    plots: |_| Vec::new(),
    others: &[
        Way::new(Setting::One, Rule::Printed),
        Way::new(Setting::One, Rule::Ends),
        Way::new(Setting::Long, Rule::Ours),
        Way::new(Setting::Asked, Rule::Ours),
        Way::new(Setting::Asked, Rule::Ends),
        Way::new(Setting::Limited, Rule::Ours),
        Way::new(Setting::Told, Rule::Ours),
    ],
};

/// Deltas of the media servers at which decisions are tried, in thousandths: strict, that of
/// section 5.1.1, lenient.
const TOLERANCES: [u32; 3] = [1500, 2500, 4000];
/// Of what the oracle lets in, in a hundred.
const NEARLY_ALL: f64 = 90.0;

fn judged() -> impl Iterator<Item = (Case, u32)> {
    let both = Case::BOTH.into_iter();
    both.flat_map(|case| TOLERANCES.map(|tolerance| (case, tolerance)))
}

fn runs<'a>(found: &Found<'a>, case: Case, who: Who) -> Option<Vec<&'a Ran>> {
    TOLERANCES
        .iter()
        .map(|tolerance| found.of(case, *tolerance, who))
        .collect()
}

fn said(found: &Found<'_>, case: Case) -> Option<[Said; 3]> {
    let (ours, theirs) = (
        runs(found, case, Who::Audited(found.way.rule))?,
        runs(found, case, Who::Oracle)?,
    );
    let name = case.name();
    let listed = |of: &dyn Fn(&Ran) -> String| {
        let all: Vec<String> = ours.iter().map(|ran| of(ran)).collect();
        all.join(", ")
    };
    let harms: usize = ours.iter().map(|ran| ran.audit.harms.len()).sum();
    let least = ours
        .iter()
        .map(|ran| ran.audit.taken_pct())
        .fold(f64::MAX, f64::min);
    let own = ours.iter().zip(&theirs).map(|(ours, theirs)| {
        let [ours, theirs] = [ours, theirs].map(|ran| ran.outcome.begun.len());
        (ours, theirs, 100.0 * ours as f64 / theirs.max(1) as f64)
    });
    let own: Vec<_> = own.collect();
    let counts: Vec<String> = own.iter().map(|(a, b, _)| format!("{a} of {b}")).collect();
    Some([
        Said::new(
            format!("nothing that PCOS lets in makes a job miss ({name})"),
            harms == 0 && ours.iter().all(|ran| ran.audit.let_in > 0),
            format!(
                "with delta 1.5, 2.5 and 4 so many did of those let in: {}",
                listed(&|ran| {
                    let [media, others, own] = ran.audit.harmed();
                    format!(
                        "{} of {} ({media} media servers, {others} others, {own} itself)",
                        ran.audit.harms.len(),
                        ran.audit.let_in
                    )
                })
            ),
        ),
        Said::new(
            format!(
                "it lets in {NEARLY_ALL:.0} % of what the oracle would, asked where PCOS is asked \
                 ({name})"
            ),
            least >= NEARLY_ALL,
            format!(
                "{} are",
                listed(&|ran| format!("{} of {}", ran.audit.taken, ran.audit.possible))
            ),
        ),
        Said::new(
            format!("it lets in {NEARLY_ALL:.0} % as many as the oracle does by itself ({name})"),
            own.iter().all(|(.., pct)| *pct >= NEARLY_ALL),
            counts.join(", "),
        ),
    ])
}
