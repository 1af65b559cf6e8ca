//! Report of a replay under other policies as a page for a browser.

use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Page, Table};
use tidegate_units::human::duration;

use super::RunReport;
use super::answer::Answer;
use crate::html_report::plots::{self, Distribution, TimeAxis, VmOverTime};
use crate::html_report::{self, Verdict};

/// Writes the page. `reports` has the policy and the report of each run, `past` the VMs of each
/// over time.
pub(super) fn page(
    answer: &Answer,
    recording: &str,
    reports: &[RunReport],
    past: &[Vec<VmOverTime>],
) -> String {
    let mut page = Page::new(&format!("What if: {recording}"));
    let mut facts = Table::properties();
    facts.property("recording", recording);
    facts.property("device", answer.device.as_str());
    facts.property("time", duration((answer.duration_s * 1e9) as u64));
    facts.property("simulator", concat!("tidegate ", env!("CARGO_PKG_VERSION")));
    page.section("summary", "Summary").table("facts", &facts);
    for note in answer.notes() {
        page.paragraph(&note);
    }
    page.section("results", "Results")
        .table("vm-table", &answer.results());
    page.section("replay", "How requests were replayed");
    page.table("inferences", &answer.inferences());
    page.section("each-vm", "Each VM over time, under each policy");
    let names: Vec<String> = reports.iter().map(|run| run_name(answer, &run.0)).collect();
    let verdicts = answer.vms.iter().map(|vm| {
        let promises = vm.policies.iter().flat_map(|it| &it.promises);
        (vm.name.as_str(), Verdict::on(promises.map(|it| it.kept)))
    });
    let verdicts: Vec<_> = verdicts.collect();
    let time = TimeAxis::new("time", 0.0, answer.duration_s);
    html_report::each_vm(&mut page, &verdicts, |index| {
        let runs = names.iter().map(String::as_str);
        let vms: Vec<(&str, &VmOverTime)> = runs.zip(past.iter().map(|vms| &vms[index])).collect();
        let mut plots = plots::under_policies(&time, &vms);
        let curves = reports.iter().zip(&names).map(|((_, report), name)| {
            let vm = &report.vms[index];
            (name.as_str(), html_report::latencies(vm))
        });
        let curves: Vec<(&str, Distribution)> = curves.collect();
        let bound = vms.last().and_then(|(_, vm)| vm.last_bound_ns());
        plots.push(plots::distributions(
            "Distribution of latency",
            &curves,
            bound,
        ));
        plots
    });
    page.finish()
}

/// Returns the name of a run: its policy, marked if it is the recording's own with its own
/// objectives.
fn run_name(answer: &Answer, policy: &Option<PolicySpec>) -> String {
    match policy {
        Some(policy) => policy.name().to_owned(),
        None => format!("{}, own", answer.own_policy),
    }
}
