//! Goals for PCOS beyond the thesis: no admitted request makes a transfer miss, and nearly all
//! requests that an oracle would admit are admitted.

use super::figures::key;
use super::host::{Case, Setting};
use super::{Admission, Configuration, Figure, Rule, RunResult, RunResults};

pub(super) const ACCEPTANCE: Figure = Figure {
    name: "acceptance",
    keys: |configuration| {
        let mut all = Vec::new();
        for (case, tolerance) in judged() {
            all.extend(
                [Admission::Audited(configuration.rule), Admission::Oracle]
                    .map(|who| key(configuration.setting, case, tolerance, who)),
            );
        }
        all
    },
    plots: |_| Vec::new(),
    others: &[
        Configuration::new(Setting::One, Rule::Printed),
        Configuration::new(Setting::One, Rule::Ends),
        Configuration::new(Setting::Long, Rule::Ours),
        Configuration::new(Setting::Asked, Rule::Ours),
        Configuration::new(Setting::Asked, Rule::Ends),
        Configuration::new(Setting::Limited, Rule::Ours),
        Configuration::new(Setting::Told, Rule::Ours),
    ],
};

/// Deltas of the media servers at which decisions are tried, in thousandths: strict, that of
/// section 5.1.1, lenient.
const TOLERANCES: [u32; 3] = [1500, 2500, 4000];

fn judged() -> impl Iterator<Item = (Case, u32)> {
    let both = Case::BOTH.into_iter();
    both.flat_map(|case| TOLERANCES.map(|tolerance| (case, tolerance)))
}

/// Runs of a case at these deltas; `None` if one is missing.
pub(super) fn judged_runs<'a>(
    results: &RunResults<'a>,
    case: Case,
    who: Admission,
) -> Option<Vec<&'a RunResult>> {
    let runs = TOLERANCES.iter();
    runs.map(|tolerance| results.of(case, *tolerance, who))
        .collect()
}
