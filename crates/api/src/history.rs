//! History of a VM or a device: what it did, interval by interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer to `GET /v1/vms/{name}/history` and `GET /v1/devices/{name}/history`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    /// Name of the VM; absent in the history of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// Name of the device; absent in the history of a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Begin of the span in milliseconds since 1970, rounded down to the step.
    pub from_ms: u64,
    /// End of the span, exclusive.
    pub to_ms: u64,
    /// Length of an interval in seconds. Points of 1 s are as the VM was visited, so their
    /// intervals may be some hundredths of a second longer or shorter.
    pub step_s: u64,
    /// Intervals in which something happened, the oldest first.
    pub intervals: Vec<IntervalView>,
    /// Spans in which the daemon recorded, the oldest first. In a gap between intervals the VM was
    /// idle if it lies within one of them; otherwise the daemon did not run.
    pub recorded: Vec<SpanView>,
    /// Latencies of the requests of the span as `[upper bound in ns, number]`, where the query
    /// asks for them and the step is 10 s or more; without those of windows whose histogram had no
    /// room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(u64, u64)>,
}

/// Answer to `GET /v1/history/vms`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoriesView {
    /// Histories of VMs in the order of the query.
    pub vms: Vec<HistoryView>,
    /// VMs of the query that are not served and have no history.
    pub missing: Vec<String>,
}

/// Interval of a history.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct IntervalView {
    /// Begin in milliseconds since 1970.
    pub from_ms: u64,
    /// End, exclusive.
    pub to_ms: u64,
    /// Time of the interval in which the VM was active, in milliseconds: what rates are to be
    /// divided by.
    pub observed_ms: u64,
    /// Counters by name, each with its unit; those that are absent are 0. Times by cause, such as
    /// `queued_us`, are sums over all requests.
    pub values: BTreeMap<String, u64>,
    /// Latencies of requests that were answered; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyView>,
    /// VMs that requests waited behind, the longest wait first. Empty in intervals of 1 s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<BehindMicrosView>,
}

impl IntervalView {
    /// Returns a counter; 0 if it is absent.
    pub fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }
}

/// Quantiles of latencies in nanoseconds: upper bounds, usually at most 6 % above the true values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LatencyView {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Another VM whose I/Os requests waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BehindMicrosView {
    /// Name of the VM, `(removed)` if it was removed before the sample.
    pub vm: String,
    /// Time in microseconds, an estimate.
    pub waited_us: u64,
}

/// Span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SpanView {
    /// Begin in milliseconds since 1970.
    pub from_ms: u64,
    /// End, exclusive.
    pub to_ms: u64,
}

/// Answer to `GET /v1/history`: the state of the history itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryStatusView {
    /// False if the configuration turns the history off; the other fields are empty then.
    pub enabled: bool,
    /// Begin of the oldest point of 1 s, in milliseconds since 1970; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_1s_ms: Option<u64>,
    /// Begin of the oldest point of 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_10s_ms: Option<u64>,
    /// Memory in use for points, in bytes.
    pub memory_bytes: u64,
    /// Times that an event loop had to send its samples later; none is lost by that.
    pub delayed: u64,
    /// Files; absent if the history is kept in memory alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<HistoryFilesView>,
}

/// State of the history's files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryFilesView {
    /// Directory.
    pub directory: String,
    /// Sizes together, in bytes.
    pub bytes: u64,
    /// Largest size together, in bytes.
    pub max_bytes: u64,
    /// Blocks of points that were not written, because the disk failed or was too slow.
    pub dropped: u64,
    /// Reason why nothing is written now; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// Devices whose disks are on the block device of the directory, so that writes of the history
    /// compete with their VMs' I/O.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_devices: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn an_interval_leaves_out_what_it_lacks() {
        let interval = IntervalView {
            from_ms: 1000,
            to_ms: 2000,
            observed_ms: 990,
            values: [("reads".to_owned(), 3)].into(),
            latency: None,
            behind: Vec::new(),
        };
        let text = r#"{"from_ms":1000,"to_ms":2000,"observed_ms":990,"values":{"reads":3}}"#;
        round_trip(&interval, text);
        assert_eq!((interval.value("reads"), interval.value("writes")), (3, 0));
    }

    #[test]
    fn a_history_in_memory_has_no_files() {
        let status = HistoryStatusView {
            enabled: true,
            ..HistoryStatusView::default()
        };
        round_trip(&status, r#"{"enabled":true,"memory_bytes":0,"delayed":0}"#);
    }
}
