//! What is asked of PCOS beyond the thesis: that nothing it lets in makes a job miss, and that it
//! lets in nearly all that an oracle would.

use super::figures::key;
use super::house::{Case, Setting};
use super::{Figure, Found, Ran, Rule, Way, Who};

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

fn judged() -> impl Iterator<Item = (Case, u32)> {
    let both = Case::BOTH.into_iter();
    both.flat_map(|case| TOLERANCES.map(|tolerance| (case, tolerance)))
}

/// Runs of a case at these deltas; `None`: one was not run.
pub(super) fn judged_runs<'a>(found: &Found<'a>, case: Case, who: Who) -> Option<Vec<&'a Ran>> {
    let runs = TOLERANCES.iter();
    runs.map(|tolerance| found.of(case, *tolerance, who))
        .collect()
}
