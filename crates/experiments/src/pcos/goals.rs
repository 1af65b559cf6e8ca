//! Goals for PCOS beyond the thesis: no admitted request makes a transfer miss, and nearly all
//! requests that an oracle would admit are admitted.

use super::figures::key;
use super::host::{Case, Setting};
use super::{Admission, Configuration, Figure, Rule, RunResult, RunResults};

pub(super) const ACCEPTANCE: Figure = Figure {
    name: "acceptance",
    keys: |configuration| {
        let mut keys = Vec::new();
        for (case, tolerance) in judged_cases() {
            keys.extend(
                [Admission::Audited(configuration.rule), Admission::Oracle]
                    .map(|admission| key(configuration.setting, case, tolerance, admission)),
            );
        }
        keys
    },
    plots: |_| Vec::new(),
    others: &[
        Configuration::new(Setting::OneVm, Rule::AsPrinted),
        Configuration::new(Setting::OneVm, Rule::LateUnprotected),
        Configuration::new(Setting::NoPauses, Rule::Tidegate),
        Configuration::new(Setting::NoPauses, Rule::LateUnprotected),
        Configuration::new(Setting::OneVm, Rule::TransferEnds),
        Configuration::new(Setting::LargeRequests, Rule::Tidegate),
        Configuration::new(Setting::NoPermanentLoad, Rule::Tidegate),
        Configuration::new(Setting::NoPermanentLoad, Rule::LateUnprotected),
        Configuration::new(Setting::NoPermanentLoad, Rule::TransferEnds),
        Configuration::new(Setting::LimitedVms, Rule::Tidegate),
        Configuration::new(Setting::KnownLimits, Rule::Tidegate),
    ],
};

/// Deltas of the media servers at which decisions are tried, in thousandths: strict, that of
/// section 5.1.1, lenient.
const JUDGED_DELTAS_THOUSANDTHS: [u32; 3] = [1500, 2500, 4000];

/// Cases and deltas of the runs whose decisions are tried.
fn judged_cases() -> impl Iterator<Item = (Case, u32)> {
    let both = Case::BOTH.into_iter();
    both.flat_map(|case| JUDGED_DELTAS_THOUSANDTHS.map(|tolerance| (case, tolerance)))
}

/// Runs of a case at these deltas; `None` if one is missing.
pub(super) fn judged_runs<'a>(
    results: &RunResults<'a>,
    case: Case,
    admission: Admission,
) -> Option<Vec<&'a RunResult>> {
    let runs = JUDGED_DELTAS_THOUSANDTHS.iter();
    runs.map(|tolerance| results.run_for(case, *tolerance, admission))
        .collect()
}
