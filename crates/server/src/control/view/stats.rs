//! Counters of VMs.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_api::stats::{
    AccountView, BehindView, ByDirection, DeviceTimesView, OpView, SizeView, TimeView, VmStatsView,
};
use tidegate_config::stat_views;
use tidegate_core::bandwidth_samples::SECONDS_KEPT;
use tidegate_core::interference::{Interval, VmTimes};
use tidegate_core::request::{Lane, Op, VmId};
use tidegate_core::stats::{Histogram, VmStats};

use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::labels::op_name;

/// VMs whose histograms are shown with their buckets.
#[derive(Clone, Debug)]
pub(crate) enum Buckets<'a> {
    All,
    Of(BTreeSet<&'a str>),
}

impl Buckets<'_> {
    fn has(&self, vm: &str) -> bool {
        match self {
            Buckets::All => true,
            Buckets::Of(names) => names.contains(vm),
        }
    }
}

/// Returns the times of a device's I/Os for all its VMs together, with buckets.
pub(crate) fn device_times(device: &DeviceSnapshot) -> DeviceTimesView {
    let mut sum = Histogram::default();
    for vm in &device.vms {
        for lane in [Lane::Read, Lane::Write] {
            sum.add(vm.stats.service_time(lane));
        }
    }
    DeviceTimesView {
        device: device.name.clone(),
        service_time: stat_views::times(&sum, true),
    }
}

/// Returns the counters of a device's VMs, or of `only` one of them, with the buckets of the
/// histograms of some.
/// `interval` is the statistical interval of beta in seconds, 1 to
/// [`SECONDS_KEPT`].
pub(crate) fn stats(
    device: &DeviceSnapshot,
    only: Option<&str>,
    buckets: &Buckets<'_>,
    interval: u32,
) -> Vec<VmStatsView> {
    assert!(
        (1..=SECONDS_KEPT as u32).contains(&interval),
        "no seconds are kept for an interval of {interval} s"
    );
    // A map, because there may be thousands of VMs and each lists those it has waited behind.
    let names = device.vms.iter().map(|vm| (vm.id, vm.name.as_str()));
    let names: BTreeMap<VmId, &str> = names.collect();
    let view = |vm: &VmSnapshot| vm_stats(device, &names, vm, buckets.has(&vm.name), interval);
    let wanted = device
        .vms
        .iter()
        .filter(|vm| only.is_none_or(|name| vm.name == name));
    wanted.map(view).collect()
}

fn vm_stats(
    device: &DeviceSnapshot,
    names: &BTreeMap<VmId, &str>,
    vm: &VmSnapshot,
    buckets: bool,
    interval: u32,
) -> VmStatsView {
    let stats: &VmStats = &vm.stats;
    let by_direction = |of: &dyn Fn(Lane) -> TimeView| ByDirection {
        read: of(Lane::Read),
        write: of(Lane::Write),
    };
    VmStatsView {
        vm: vm.name.clone(),
        device: device.name.clone(),
        policy: device.policy.name().to_owned(),
        taken_at_ns: device.taken_at.0,
        clients: vm.clients,
        pending: vm.pending,
        in_flight: vm.in_flight,
        operations: operations(stats),
        sequential_reads: stats.sequential_reads,
        sequential_writes: stats.sequential_writes,
        merged: stats.merged,
        split: stats.split,
        cancelled: stats.cancelled,
        queue_time: by_direction(&|lane| stat_views::times(stats.queue_time(lane), buckets)),
        service_time: by_direction(&|lane| stat_views::times(stats.service_time(lane), buckets)),
        latency: stat_views::times(&stats.latency, buckets),
        reply_time: by_direction(&|lane| stat_views::times(&vm.reply_time[lane as usize], buckets)),
        account: AccountView {
            regulated_ns: stats.account.regulated.0,
            // Clients know no time before admission: it counts as queued here.
            queued_ns: (stats.account.admission + stats.account.queued).0,
            merged_wait_ns: stats.account.merged_wait.0,
            deliberate_ns: stats.account.deliberate.0,
            device_ns: stats.account.device.0,
        },
        think_time_ns: stats.think_time.0,
        waited_behind: (Interval::between(&VmTimes::default(), &vm.times)
            .culprits
            .iter())
        .map(|culprit| BehindView {
            // The VM may have been removed since.
            vm: (*names.get(&culprit.vm).unwrap_or(&"(removed)")).to_owned(),
            ns: culprit.total().0,
        })
        .collect(),
        sizes: sizes(stats),
        precision: stat_views::precision(&vm.precision(interval)),
        attainment: vm
            .attainment
            .iter()
            .map(stat_views::attainment::view)
            .collect(),
    }
}

fn operations(stats: &VmStats) -> Vec<OpView> {
    let view = |op: Op| {
        let count = stats.op(op);
        OpView {
            operation: op_name(op).to_owned(),
            requests: count.ops,
            bytes: count.bytes,
            errors: count.errors,
            arrived: count.arrived,
        }
    };
    Op::ALL.into_iter().map(view).collect()
}

fn sizes(stats: &VmStats) -> Vec<SizeView> {
    let last = stats.sizes.len() - 1;
    (stats.sizes.iter().enumerate())
        .map(|(class, &requests)| SizeView {
            // Class n ends at 512 * 2^n bytes; the last class has no end.
            up_to_bytes: (class < last).then(|| 512 << class),
            requests,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;

    #[test]
    fn quantiles_of_an_interval_leave_out_what_was_before() {
        let mut histogram = Histogram::default();
        (0..1000).for_each(|_| histogram.record(Nanos::from_millis(1)));
        let before = stat_views::times(&histogram, true);
        assert_eq!(before.quantile_since(&before, 0.99), None);
        (0..100).for_each(|_| histogram.record(Nanos::from_millis(80)));
        let after = stat_views::times(&histogram, true);
        let median = after.quantile_since(&before, 0.5).expect("there were some");
        assert!((80_000_000..85_000_000).contains(&median), "{median}");
        assert!(after.p50_ns < 2_000_000);
    }

    #[test]
    fn the_classes_of_sizes_name_their_ends() {
        let view = sizes(&VmStats::default());
        assert_eq!(view[0].up_to_bytes, Some(512));
        assert_eq!(view[3].up_to_bytes, Some(4096));
        assert_eq!(view.last().and_then(|last| last.up_to_bytes), None);
    }
}
