//! `/v1/stats`: what was counted for each VM since the daemon started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_config::told::PrecisionView;
use tidegate_core::request::{Lane, Op, VmId};
use tidegate_core::stats::{Histogram, VmStats};

use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::labels::op_name;

/// Counters of all VMs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StatsView {
    /// One for each VM, in the order of the devices.
    pub vms: Vec<VmStatsView>,
}

/// What was counted for one VM.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VmStatsView {
    /// The VM.
    pub vm: String,
    /// Its device.
    pub device: String,
    /// The policy in force there.
    pub policy: String,
    /// The loop's clock when this was taken: the difference of two is the time between them.
    pub taken_at_ns: u64,
    /// Connected clients.
    pub clients: u32,
    /// Requests waiting.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// By operation: `read`, `write`, `flush`, `discard`, `write_zeroes`.
    pub operations: Vec<OpView>,
    /// Reads that continued an earlier request.
    pub sequential_reads: u64,
    /// Writes that continued an earlier request.
    pub sequential_writes: u64,
    /// Guest requests that joined a waiting one.
    pub merged: u64,
    /// Device I/Os beyond the first that guest requests were split into.
    pub split: u64,
    /// Guest requests whose client vanished.
    pub cancelled: u64,
    /// From arrival to first service.
    pub queue_time: ByDirection,
    /// With the device.
    pub service_time: ByDirection,
    /// From arrival to end.
    pub latency: TimeView,
    /// Time from the parse of a request until its reply is sent; empty from daemons without this
    /// figure.
    #[serde(default)]
    pub reply_time: ByDirection,
    /// Where all the time went.
    pub account: AccountView,
    /// Mean time between an answer and the next request of an idle VM.
    pub think_time_ns: u64,
    /// The VMs it waited behind most, an estimate.
    pub waited_behind: Vec<BehindView>,
    /// How many requests of which size; a flush has none and is counted in the first class.
    pub sizes: Vec<SizeView>,
    /// How precisely its bandwidth was held in the last five minutes, or since it has the target it has.
    pub precision: PrecisionView,
}

/// Counters of one operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpView {
    /// Which.
    pub operation: String,
    /// Guest requests that ended well.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Guest requests that failed.
    pub errors: u64,
    /// Guest requests that came, also those that wait, failed or were cancelled.
    pub arrived: u64,
}

/// Times of reads, and of everything that changes the disk.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ByDirection {
    /// Reads.
    pub read: TimeView,
    /// Everything else.
    pub write: TimeView,
}

/// A histogram of times.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TimeView {
    /// How many.
    pub count: u64,
    /// Exact mean.
    pub mean_ns: u64,
    /// Half are below; as the other quantiles at most 6 % too large.
    pub p50_ns: u64,
    /// 95 % are below.
    pub p95_ns: u64,
    /// 99 % are below.
    pub p99_ns: u64,
    /// 99.9 % are below.
    pub p999_ns: u64,
    /// The largest, exact.
    pub max_ns: u64,
    /// Upper bound in nanoseconds and count of each bucket that holds something; only with
    /// `?buckets=true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(u64, u64)>,
}

/// Where the time of a VM's requests went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountView {
    /// Held back by the VM's own limit or credits.
    pub regulated_ns: u64,
    /// Ready, waiting for the device's turn.
    pub queued_ns: u64,
    /// Waiting as a passenger of another request.
    pub merged_wait_ns: u64,
    /// The device had room that was left unused on purpose.
    pub deliberate_ns: u64,
    /// With the device.
    pub device_ns: u64,
}

/// A VM that was waited behind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BehindView {
    /// Which.
    pub vm: String,
    /// How long, over all requests.
    pub ns: u64,
}

/// Requests of a class of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SizeView {
    /// The largest size of the class; `null` for the last, which has no end.
    pub up_to_bytes: Option<u64>,
    /// How many.
    pub requests: u64,
}

impl VmStatsView {
    /// Shows what was counted for the VMs of a device; `interval`: the statistical interval of beta in
    /// seconds, 1 to [`KEPT`](tidegate_core::seconds::KEPT).
    pub fn all(device: &DeviceSnapshot, buckets: bool, interval: u32) -> Vec<VmStatsView> {
        // There may be thousands, and each has waited behind some.
        let names = device.vms.iter().map(|vm| (vm.id, vm.name.as_str()));
        let names: BTreeMap<VmId, &str> = names.collect();
        let view = |vm| VmStatsView::new(device, &names, vm, buckets, interval);
        device.vms.iter().map(view).collect()
    }

    fn new(
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
            queue_time: by_direction(&|lane| TimeView::new(stats.queue_time(lane), buckets)),
            service_time: by_direction(&|lane| TimeView::new(stats.service_time(lane), buckets)),
            latency: TimeView::new(&stats.latency, buckets),
            reply_time: by_direction(&|lane| TimeView::new(&vm.reply_time[lane as usize], buckets)),
            account: AccountView {
                regulated_ns: stats.account.regulated.0,
                queued_ns: stats.account.queued.0,
                merged_wait_ns: stats.account.merged_wait.0,
                deliberate_ns: stats.account.deliberate.0,
                device_ns: stats.account.device.0,
            },
            think_time_ns: stats.think_time.0,
            waited_behind: (stats.waited_behind())
                .map(|(other, waited)| BehindView {
                    // It may be long gone.
                    vm: (*names.get(&other).unwrap_or(&"(removed)")).to_owned(),
                    ns: waited.0,
                })
                .collect(),
            sizes: sizes(stats),
            precision: PrecisionView::new(&vm.precision(interval)),
        }
    }

    /// Requests that ended well, of all operations.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|op| op.requests).sum()
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        let moved = |op: &&OpView| matches!(op.operation.as_str(), "read" | "write");
        self.operations
            .iter()
            .filter(moved)
            .map(|op| op.bytes)
            .sum()
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
            up_to_bytes: (class < last).then(|| 512 << class),
            requests,
        })
        .collect()
}

impl TimeView {
    fn new(histogram: &Histogram, buckets: bool) -> TimeView {
        TimeView {
            count: histogram.count(),
            mean_ns: histogram.mean().0,
            p50_ns: histogram.quantile(0.5).0,
            p95_ns: histogram.quantile(0.95).0,
            p99_ns: histogram.quantile(0.99).0,
            p999_ns: histogram.quantile(0.999).0,
            max_ns: histogram.max().0,
            buckets: match buckets {
                true => histogram.iter().map(|(upper, n)| (upper.0, n)).collect(),
                false => Vec::new(),
            },
        }
    }

    /// The `q`-quantile, in nanoseconds, of the times counted between `earlier` and now. Both
    /// must have been asked for with their buckets. `None` where there were none.
    pub fn quantile_since(&self, earlier: &TimeView, q: f64) -> Option<u64> {
        let before = |upper: u64| {
            let found = earlier
                .buckets
                .binary_search_by_key(&upper, |&(upper, _)| upper);
            found.map_or(0, |i| earlier.buckets[i].1)
        };
        let new: Vec<(u64, u64)> = (self.buckets.iter())
            .map(|&(upper, n)| (upper, n.saturating_sub(before(upper))))
            .collect();
        let total: u64 = new.iter().map(|(_, n)| n).sum();
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        new.into_iter().find_map(|(upper, n)| {
            seen += n;
            (total > 0 && seen >= rank).then_some(upper.min(self.max_ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;

    #[test]
    fn quantiles_of_an_interval_leave_out_what_was_before() {
        let mut histogram = Histogram::default();
        (0..1000).for_each(|_| histogram.record(Nanos::from_millis(1)));
        let before = TimeView::new(&histogram, true);
        assert_eq!(before.quantile_since(&before, 0.99), None);
        (0..100).for_each(|_| histogram.record(Nanos::from_millis(80)));
        let after = TimeView::new(&histogram, true);
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
