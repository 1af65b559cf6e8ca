//! Answer of a replay under other policies, objectives or devices.

use serde::Serialize;
use tidegate_core::policy::Policy;
use tidegate_recording::Recording;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_sim::report::{Promise, Report};
use tidegate_sim::what_if::{Figures, RecordedVm, Reproduction, WhatIf};
use tidegate_units::human::{count, duration, percent, rate};

use super::RunReport;
use crate::output::Output;
use crate::rate_table::{self, mb_per_s};
use crate::recording_file::gaps_text;

/// Error of a replay beyond which its answers are shown with a warning.
const ERROR_MAX: f64 = 0.1;

/// Answer to the question.
#[derive(Serialize)]
pub(super) struct Answer {
    /// Model of the simulated device.
    pub(super) device: String,
    pub(super) duration_s: f64,
    #[serde(flatten)]
    missing: Missing,
    /// Agreement of the replay under the recording's own policy with the recording.
    pub(super) own_policy: String,
    reproduction: Reproduction,
    pub(super) vms: Vec<Vm>,
}

/// Requests and limits that a recording lacks.
#[derive(Clone, Default, Serialize)]
pub(super) struct Missing {
    /// Gaps of the recording.
    pub(super) gaps: usize,
    /// Requests that are known to be missing.
    #[serde(rename = "missing_requests")]
    pub(super) requests: u64,
    /// VMs whose disks have limits, which are not replayed.
    pub(super) disk_limits: Vec<String>,
}

impl Missing {
    pub(super) fn new(recording: &Recording, what_if: &WhatIf) -> Missing {
        let limited = what_if.vms.iter().filter(|vm| vm.disk_limits);
        Missing {
            gaps: recording.gaps.len(),
            requests: recording.summary.dropped + recording.summary.lost,
            disk_limits: limited.map(|vm| vm.name.clone()).collect(),
        }
    }

    /// Returns sentences about them; none if nothing is missing.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let gaps = (self.gaps > 0).then(|| {
            format!(
                "The recording has {}; {} requests are known to be missing.",
                gaps_text(self.gaps),
                count(self.requests)
            )
        });
        let limits = (!self.disk_limits.is_empty()).then(|| {
            format!(
                "Disks of {} have limits, which are not replayed: a recording does not have them.",
                self.disk_limits.join(", ")
            )
        });
        gaps.into_iter().chain(limits)
    }
}

/// Returns how well a replay under the recording's own policy agrees with the recording, and what
/// follows, in sentences.
pub(super) fn agreement(policy: &str, reproduction: Reproduction) -> Vec<String> {
    let Reproduction {
        throughput_error,
        latency_error,
    } = reproduction;
    let mut notes = vec![format!(
        "Under its own policy ({policy}) the replay differs from the recording by {} in throughput \
         and {} in latency (median of all VMs).",
        percent(throughput_error, 1.0),
        percent(latency_error, 1.0)
    )];
    if throughput_error.max(latency_error) > ERROR_MAX {
        let text = "Differences between policies that are not clearly larger mean nothing.";
        notes.push(text.to_owned());
    }
    notes
}

/// VM with what was inferred, and its figures.
#[derive(Serialize)]
pub(super) struct Vm {
    pub(super) name: String,
    requests: usize,
    /// True if requests wait for answers.
    closed: bool,
    depth: usize,
    think_ns: Option<u64>,
    evidence: &'static str,
    /// True if its results depend on an inference that leaves doubt.
    inferred: bool,
    recorded: Figures,
    pub(super) policies: Vec<PolicyResult>,
}

/// Result of a VM under a policy.
#[derive(Serialize)]
pub(super) struct PolicyResult {
    policy: String,
    /// True for the replay under the recording's own policy and objectives.
    own: bool,
    #[serde(flatten)]
    figures: Figures,
    pub(super) promises: Vec<Promise>,
}

impl Answer {
    pub(super) fn new(
        what_if: &WhatIf,
        model: &str,
        reports: &[RunReport],
        missing: Missing,
    ) -> Answer {
        let own_policy = what_if.policy().name().to_owned();
        let figures = |index: usize, vm: &RecordedVm, report: &Report| {
            Figures::of_simulated(vm, &report.vms[index], what_if.duration)
        };
        let result = |index: usize, vm: &RecordedVm, run: &RunReport| {
            let (policy, report) = run;
            PolicyResult {
                policy: policy
                    .as_ref()
                    .map_or(&*own_policy, Policy::name)
                    .to_owned(),
                own: policy.is_none(),
                figures: figures(index, vm, report),
                promises: report.vms[index].promises.clone(),
            }
        };
        let vms = what_if.vms.iter().enumerate();
        let own = &reports[0].1;
        let pairs: Vec<_> = (vms.clone())
            .map(|(index, vm)| (vm.recorded, figures(index, vm, own)))
            .collect();
        Answer {
            device: model.to_owned(),
            duration_s: what_if.duration.as_secs_f64(),
            missing,
            reproduction: Reproduction::new(&pairs),
            vms: vms
                .map(|(index, vm)| Vm {
                    name: vm.name.clone(),
                    requests: vm.inference.chains.iter().map(Vec::len).sum(),
                    closed: vm.inference.closed,
                    depth: vm.inference.depth,
                    think_ns: vm.inference.think.map(|think| think.0),
                    evidence: vm.inference.evidence.text(),
                    inferred: vm.is_inferred(),
                    recorded: vm.recorded,
                    policies: reports.iter().map(|run| result(index, vm, run)).collect(),
                })
                .collect(),
            own_policy,
        }
    }

    pub(super) fn text(&self, out: Output) -> String {
        let style = out.style();
        let mut text = self.inferences().render(style) + "\n" + &self.results().render(style);
        for note in self.notes() {
            text += &format!("\n{note}");
        }
        text + "\n"
    }

    /// Returns how far the results can be trusted, in sentences.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.vms.iter().any(|vm| vm.inferred) {
            notes.push("* depends on the inference about the VM's requests\n".to_owned());
        }
        notes.extend(agreement(&self.own_policy, self.reproduction));
        notes.extend(self.missing.notes());
        notes
    }

    pub(super) fn inferences(&self) -> Table {
        let mut table = Table::new([
            ("VM", Align::Left),
            ("REQUESTS", Align::Right),
            ("DEPTH", Align::Right),
            ("THINK", Align::Right),
            ("REPLAYED", Align::Left),
            ("BECAUSE", Align::Left),
        ]);
        for vm in &self.vms {
            let mark = if vm.inferred { " *" } else { "" };
            let how = if vm.closed {
                "when answered"
            } else {
                "at its times"
            };
            table.row([
                Cell::from(format!("{}{mark}", vm.name)).tone(Tone::Strong),
                count(vm.requests as u64).into(),
                vm.depth.to_string().into(),
                vm.think_ns.map_or("-".to_owned(), duration).into(),
                how.into(),
                vm.evidence.into(),
            ]);
        }
        table
    }

    pub(super) fn results(&self) -> Table {
        let more = [("P99.9", Align::Right), ("KEPT", Align::Left)];
        let mut table = Table::new(rate_table::BY_POLICY.into_iter().chain(more));
        for vm in &self.vms {
            let mark = if vm.inferred { " *" } else { "" };
            let name = Cell::from(format!("{}{mark}", vm.name)).tone(Tone::Strong);
            table.row(row(
                name,
                "recorded".to_owned(),
                &vm.recorded,
                Cell::from(""),
            ));
            for result in &vm.policies {
                let own = if result.own { ", own" } else { "" };
                let policy = format!("{}{own}", result.policy);
                table.row(row(
                    Cell::from(""),
                    policy,
                    &result.figures,
                    kept(&result.promises),
                ));
            }
        }
        table
    }
}

fn row(name: Cell, policy: String, figures: &Figures, kept: Cell) -> [Cell; 8] {
    [
        name,
        policy.into(),
        rate(figures.iops).into(),
        mb_per_s(figures.bytes_per_s).into(),
        duration(figures.p50_ns).into(),
        duration(figures.p99_ns).into(),
        duration(figures.p999_ns).into(),
        kept,
    ]
}

/// Returns how many of the promises that were judged are kept, and the parts that are not.
fn kept(promises: &[Promise]) -> Cell {
    let judged = promises.iter().filter(|promise| promise.kept.is_some());
    let missed: Vec<&str> = (judged.clone())
        .filter(|promise| promise.kept == Some(false))
        .map(|promise| promise.part)
        .collect();
    match (judged.count(), missed.len()) {
        (0, _) => Cell::from("-"),
        (all, 0) => Cell::from(format!("{all} of {all}")).tone(Tone::Good),
        (all, n) => {
            let text = format!("{} of {all}, not {}", all - n, missed.join(", "));
            Cell::from(text).tone(Tone::Bad)
        }
    }
}
