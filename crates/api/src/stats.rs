//! Counters of VMs since the daemon started.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attainment::AttainmentView;
use crate::tuning::PrecisionView;

/// Counters of all VMs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// Counters of each VM, in the order of the devices.
    pub vms: Vec<VmStatsView>,
    /// Times of I/Os of each device; only with `?buckets_of=`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceTimesView>,
}

/// Times of a device's I/Os.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceTimesView {
    /// Name of the device.
    pub device: String,
    /// Time that I/Os of all its VMs spend in flight, with buckets. VMs that were removed are not
    /// in it any more.
    pub service_time: TimeView,
}

/// Counters of one VM.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VmStatsView {
    /// Name of the VM.
    pub vm: String,
    /// Name of its device.
    pub device: String,
    /// Name of the policy in force on the device.
    pub policy: String,
    /// Clock of the device's event loop, in nanoseconds, when the counters were read; only
    /// differences have a meaning.
    pub taken_at_ns: u64,
    /// NBD connections to the VM's exports.
    pub clients: u32,
    /// Requests waiting in the scheduler.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Counters by operation: `read`, `write`, `flush`, `discard`, `write_zeroes`.
    pub operations: Vec<OpView>,
    /// Reads that began where an earlier request of the VM ended.
    pub sequential_reads: u64,
    /// Writes that began where an earlier request of the VM ended.
    pub sequential_writes: u64,
    /// Guest requests merged with one that was waiting.
    pub merged: u64,
    /// Extra device I/Os from splitting large guest requests.
    pub split: u64,
    /// Guest requests dropped because their connection ended first.
    pub cancelled: u64,
    /// Time from arrival until a request's first I/O is handed to the device.
    pub queue_time: ByDirection,
    /// Time that I/Os spend in flight at the device.
    pub service_time: ByDirection,
    /// Time from arrival to completion.
    pub latency: TimeView,
    /// Time from parsing a request until its reply is sent; empty from daemons without this field.
    #[serde(default)]
    pub reply_time: ByDirection,
    /// Sum of all requests' times, by what they waited for.
    pub account: AccountView,
    /// Mean time in nanoseconds from a reply to the next request of an idle VM.
    pub think_time_ns: u64,
    /// VMs that this VM was behind, before the device and inside of it, longest time first: an
    /// estimate, of the eight heaviest of late only.
    pub waited_behind: Vec<BehindView>,
    /// Requests by size; flushes count in the first class.
    pub sizes: Vec<SizeView>,
    /// Precision of the VM's bandwidth in the last five minutes, or since its target last changed.
    pub precision: PrecisionView,
    /// Attainment of each judged part of the objective; empty from daemons without this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attainment: Vec<AttainmentView>,
}

impl VmStatsView {
    /// Returns the number of successful requests of all operations.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|op| op.requests).sum()
    }

    /// Returns the number of bytes read and written.
    pub fn bytes(&self) -> u64 {
        let moved = |op: &&OpView| matches!(op.operation.as_str(), "read" | "write");
        self.operations
            .iter()
            .filter(moved)
            .map(|op| op.bytes)
            .sum()
    }
}

/// Counters of one operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OpView {
    /// Name of the operation.
    pub operation: String,
    /// Successful guest requests.
    pub requests: u64,
    /// Bytes of the successful requests.
    pub bytes: u64,
    /// Guest requests that failed.
    pub errors: u64,
    /// Guest requests that arrived, including those that wait, failed or were cancelled.
    pub arrived: u64,
}

/// Times of reads, and of operations that change the disk.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct ByDirection {
    /// Times of reads.
    pub read: TimeView,
    /// Times of writes, discards, write-zeroes and flushes.
    pub write: TimeView,
}

/// Histogram of durations.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct TimeView {
    /// Number of samples.
    pub count: u64,
    /// Mean in nanoseconds, exact.
    pub mean_ns: u64,
    /// Median in nanoseconds; quantiles are at most 6 % too large.
    pub p50_ns: u64,
    /// 95th percentile in nanoseconds.
    pub p95_ns: u64,
    /// 99th percentile in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile in nanoseconds.
    pub p999_ns: u64,
    /// Maximum in nanoseconds, exact.
    pub max_ns: u64,
    /// Upper bound in nanoseconds and count of each non-empty bucket, ascending; only with
    /// `?buckets=true`, or of the VMs of `?buckets_of=`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(u64, u64)>,
}

impl TimeView {
    /// Returns the `q`-quantile, in nanoseconds, of the durations recorded between `earlier` and
    /// this view; `None` if there were none, or if a view lacks its buckets. Both must be of one
    /// daemon, without a restart in between. The result is at most the maximum since its start.
    pub fn quantile_since(&self, earlier: &TimeView, q: f64) -> Option<u64> {
        if earlier.count > 0 && earlier.buckets.is_empty() {
            return None;
        }
        let before = |upper: u64| {
            let position = earlier
                .buckets
                .binary_search_by_key(&upper, |&(upper, _)| upper);
            position.map_or(0, |i| earlier.buckets[i].1)
        };
        let new: Vec<(u64, u64)> = (self.buckets.iter())
            .map(|&(upper, n)| (upper, n.saturating_sub(before(upper))))
            .collect();
        let total: u64 = new.iter().map(|(_, n)| n).sum();
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        new.into_iter().find_map(|(upper, n)| {
            seen += n;
            // A bucket's upper bound may exceed every duration in it.
            (total > 0 && seen >= rank).then_some(upper.min(self.max_ns))
        })
    }
}

/// Sum of a VM's request times in nanoseconds, by what the requests waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountView {
    /// Time throttled by the regulator: by the VM's own limit or credits.
    pub regulated_ns: u64,
    /// Time eligible, while the device served others.
    pub queued_ns: u64,
    /// Time of merged requests, spent waiting with the request that they joined.
    pub merged_wait_ns: u64,
    /// Time in which the policy kept the device idle on purpose (anticipation, as in CFQ).
    pub deliberate_ns: u64,
    /// Time in flight at the device.
    pub device_ns: u64,
}

/// VM behind which another VM's requests waited.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BehindView {
    /// Name of the VM; `(removed)` for a VM that no longer exists.
    pub vm: String,
    /// Time waited in nanoseconds, summed over all requests.
    pub ns: u64,
}

/// Number of requests of a size class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SizeView {
    /// Largest size of the class in bytes; `null` for the last class, which has no bound.
    pub up_to_bytes: Option<u64>,
    /// Requests of the class.
    pub requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    const NO_TIMES: &str =
        r#"{"count":0,"mean_ns":0,"p50_ns":0,"p95_ns":0,"p99_ns":0,"p999_ns":0,"max_ns":0}"#;

    fn op(operation: &str, requests: u64, bytes: u64) -> OpView {
        OpView {
            operation: operation.to_owned(),
            requests,
            bytes,
            errors: 1,
            arrived: requests + 1,
        }
    }

    fn stats() -> VmStatsView {
        VmStatsView {
            attainment: Vec::new(),
            vm: "oltp".to_owned(),
            device: "disk0".to_owned(),
            policy: "fifo".to_owned(),
            taken_at_ns: 1,
            clients: 2,
            pending: 3,
            in_flight: 4,
            operations: vec![op("read", 5, 4096), op("flush", 2, 7), op("write", 3, 512)],
            sequential_reads: 5,
            sequential_writes: 6,
            merged: 7,
            split: 8,
            cancelled: 9,
            queue_time: ByDirection::default(),
            service_time: ByDirection::default(),
            latency: TimeView::default(),
            reply_time: ByDirection::default(),
            account: AccountView {
                regulated_ns: 1,
                queued_ns: 2,
                merged_wait_ns: 3,
                deliberate_ns: 4,
                device_ns: 5,
            },
            think_time_ns: 10,
            waited_behind: vec![BehindView {
                vm: "bulk".to_owned(),
                ns: 11,
            }],
            sizes: vec![
                SizeView {
                    up_to_bytes: Some(512),
                    requests: 1,
                },
                SizeView {
                    up_to_bytes: None,
                    requests: 2,
                },
            ],
            precision: PrecisionView {
                seconds: 0,
                idle_seconds: 0,
                interval_s: 30,
                mean_bytes_per_s: None,
                target_bytes_per_s: None,
                error_percent: None,
                absolute_error_percent: None,
                variability_percent: None,
            },
        }
    }

    /// Text of [`stats`], with or without reply times.
    fn text(reply_time: &str) -> String {
        let by_direction = format!(r#"{{"read":{NO_TIMES},"write":{NO_TIMES}}}"#);
        let op = |name: &str, requests: u64, bytes: u64| {
            let ended = format!(r#""requests":{requests},"bytes":{bytes}"#);
            let arrived = requests + 1;
            format!(r#"{{"operation":"{name}",{ended},"errors":1,"arrived":{arrived}}}"#)
        };
        let operations = [op("read", 5, 4096), op("flush", 2, 7), op("write", 3, 512)].join(",");
        let parts = [
            r#"{"vm":"oltp","device":"disk0","policy":"fifo","taken_at_ns":1,"clients":2"#,
            &format!(r#""pending":3,"in_flight":4,"operations":[{operations}]"#),
            r#""sequential_reads":5,"sequential_writes":6,"merged":7,"split":8,"cancelled":9"#,
            &format!(r#""queue_time":{by_direction},"service_time":{by_direction}"#),
            &format!(r#""latency":{NO_TIMES}{reply_time}"#),
            r#""account":{"regulated_ns":1,"queued_ns":2,"merged_wait_ns":3,"deliberate_ns":4"#,
            r#""device_ns":5},"think_time_ns":10,"waited_behind":[{"vm":"bulk","ns":11}]"#,
            r#""sizes":[{"up_to_bytes":512,"requests":1},{"up_to_bytes":null,"requests":2}]"#,
            r#""precision":{"seconds":0,"idle_seconds":0,"interval_s":30}}"#,
        ];
        parts.join(",")
    }

    #[test]
    fn counters_are_read_as_they_are_written() {
        let reply_time = format!(r#","reply_time":{{"read":{NO_TIMES},"write":{NO_TIMES}}}"#);
        round_trip(&stats(), &text(&reply_time));
        let all = StatsView {
            vms: vec![stats()],
            devices: Vec::new(),
        };
        round_trip(&all, &format!(r#"{{"vms":[{}]}}"#, text(&reply_time)));
        // Daemons that do not know when replies were sent.
        let early: VmStatsView = serde_json::from_str(&text("")).expect("complete");
        assert_eq!(early, stats());
    }

    #[test]
    fn requests_count_all_operations_and_bytes_only_reads_and_writes() {
        assert_eq!((stats().requests(), stats().bytes()), (10, 4608));
    }

    #[test]
    fn buckets_are_pairs_and_absent_unless_asked_for() {
        let time = TimeView {
            count: 3,
            max_ns: 900,
            buckets: vec![(512, 2), (1024, 1)],
            ..TimeView::default()
        };
        let head = r#"{"count":3,"mean_ns":0,"p50_ns":0,"p95_ns":0,"p99_ns":0,"p999_ns":0,"#;
        let tail = r#""max_ns":900,"buckets":[[512,2],[1024,1]]}"#;
        round_trip(&time, &format!("{head}{tail}"));
        round_trip(&TimeView::default(), NO_TIMES);
    }

    #[test]
    fn a_quantile_of_an_interval_is_that_of_its_own_times() {
        let times = |buckets: &[(u64, u64)]| TimeView {
            max_ns: 900,
            buckets: buckets.to_vec(),
            ..TimeView::default()
        };
        let before = times(&[(512, 1000)]);
        assert_eq!(before.quantile_since(&before, 0.5), None);
        let after = times(&[(256, 1), (512, 1001), (1024, 2)]);
        let quantile = |q| after.quantile_since(&before, q);
        assert_eq!(quantile(0.25), Some(256));
        assert_eq!(quantile(0.5), Some(512));
        assert_eq!(quantile(1.0), Some(900), "no time is above the maximum");
    }
}
