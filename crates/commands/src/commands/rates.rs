//! Rates and latencies of VMs between two answers of the daemon.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_api::objective::ObjectiveView;
use tidegate_api::stats::{StatsView, VmStatsView};
use tidegate_api::vm::VmView;

/// Rates of one VM in one interval; field names are those of `-o json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct VmRates {
    pub(super) vm: String,
    pub(super) policy: String,
    pub(super) seconds: f64,
    pub(super) iops: f64,
    pub(super) mb_s: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) queue_p99_ms: Option<f64>,
    pub(super) device_p99_ms: Option<f64>,
    pub(super) pending: u32,
    pub(super) in_flight: u32,
    pub(super) failed: u64,
    pub(super) background: bool,
    /// Objective at the end of the interval.
    pub(super) objective: ObjectiveView,
    /// Parts of the objective that the policy does not enforce.
    pub(super) not_enforced: Vec<String>,
}

impl VmRates {
    /// Returns the rates of all VMs between two answers, in the order of the second. VMs that are
    /// not in both, or not in `views`, are left out.
    pub(super) fn between_answers(
        before: &StatsView,
        now: &StatsView,
        views: &[VmView],
    ) -> Vec<VmRates> {
        // Indexed by name, because there may be thousands of VMs.
        let before: BTreeMap<&str, &VmStatsView> =
            (before.vms.iter()).map(|vm| (vm.vm.as_str(), vm)).collect();
        let views: BTreeMap<&str, &VmView> =
            (views.iter()).map(|vm| (vm.name.as_str(), vm)).collect();
        let between = |vm: &VmStatsView| {
            let name = vm.vm.as_str();
            VmRates::between(before.get(name)?, vm, views.get(name)?)
        };
        now.vms.iter().filter_map(between).collect()
    }

    /// Returns the rates of a VM between two answers; `None` if the daemon restarted in between.
    pub(super) fn between(before: &VmStatsView, now: &VmStatsView, vm: &VmView) -> Option<VmRates> {
        // Clock and counters only go backwards if the daemon restarted, hence `checked_sub`.
        let seconds = now.taken_at_ns.checked_sub(before.taken_at_ns)? as f64 / 1e9;
        let per_s = |now: u64, before: u64| Some(now.checked_sub(before)? as f64 / seconds);
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        // Reads and writes are not merged: the p99 of both together would hide the slower kind
        // where it is rare. The worse of the two stands for both.
        let both = |read: Option<u64>, write: Option<u64>| ms(read.max(write));
        let errors = |stats: &VmStatsView| stats.operations.iter().map(|op| op.errors).sum::<u64>();
        let (queue, queue_before) = (&now.queue_time, &before.queue_time);
        let (device, device_before) = (&now.service_time, &before.service_time);
        // Two answers with one time have no rates.
        (seconds > 0.0).then_some(())?;
        Some(VmRates {
            vm: now.vm.clone(),
            policy: now.policy.clone(),
            seconds,
            iops: per_s(now.requests(), before.requests())?,
            mb_s: per_s(now.bytes(), before.bytes())? / 1e6,
            p50_ms: ms(now.latency.quantile_since(&before.latency, 0.5)),
            p99_ms: ms(now.latency.quantile_since(&before.latency, 0.99)),
            queue_p99_ms: both(
                queue.read.quantile_since(&queue_before.read, 0.99),
                queue.write.quantile_since(&queue_before.write, 0.99),
            ),
            device_p99_ms: both(
                device.read.quantile_since(&device_before.read, 0.99),
                device.write.quantile_since(&device_before.write, 0.99),
            ),
            pending: now.pending,
            in_flight: now.in_flight,
            failed: errors(now).saturating_sub(errors(before)),
            background: vm.background,
            objective: vm.objective.clone(),
            not_enforced: vm.not_enforced.iter().map(|p| p.part.clone()).collect(),
        })
    }
}
