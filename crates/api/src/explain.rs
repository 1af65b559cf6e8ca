//! Explanation of a VM's latencies: where the time of its requests went, and behind whom.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::history::SpanView;

/// Answer to `GET /v1/vms/{name}/explain`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainView {
    /// Span that was asked for.
    pub asked: SpanView,
    /// Span that is explained: the one that was asked for, or the slowest part of it.
    pub explained: SpanView,
    /// True if the slowest part was looked for.
    pub searched: bool,
    /// Device of the VM; absent if the VM is not served any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The explanation in English sentences; times of day are in the daemon's time zone.
    pub sentences: Vec<String>,
    /// The explanation in figures.
    pub diagnosis: Diagnosis,
}

/// Explanation of a VM's request times in an interval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// Name of the VM that is explained.
    pub vm: String,
    /// Main cause.
    pub verdict: Verdict,
    /// VMs to blame if others are the main cause, the largest first.
    pub culprits: Vec<String>,
    /// Time that shares are of.
    pub basis: Basis,
    /// Mean latency in nanoseconds.
    pub mean_ns: u64,
    /// Mean latency before; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_before_ns: Option<u64>,
    /// 99th percentile of the latency in nanoseconds; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// 99th percentile before; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_before_ns: Option<u64>,
    /// Time in which the busy device ended nothing, in nanoseconds.
    pub stalled_ns: u64,
    /// The VM's disk hung.
    pub hung: bool,
    /// Requests that waited, or were with the device, when the interval ended, if none was
    /// answered.
    pub unanswered: u64,
    /// Longest I/O of the device; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_io: Option<LongestIoFacts>,
    /// Parts of the VM's objective that were missed in the interval.
    pub missed: Vec<MissedPart>,
    /// Device of the VM; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The VM has a reservation.
    #[serde(default)]
    pub reserved: bool,
    /// The VM has a limit, beside those of its disks.
    #[serde(default)]
    pub limited: bool,
    /// NBD export names of the VM's disks with limits, their own or shared; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited_disks: Vec<String>,
    /// Commands that double the limits of the VM's disks, their own and shared ones, in a shell's
    /// notation; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raise_disk_limits: Vec<String>,
    /// The promises of the VM's device do not fit it together at the time of the answer.
    #[serde(default)]
    pub promises_unfit: bool,
    /// Causes, the largest first.
    pub findings: Vec<Finding>,
    /// Facts that are missing.
    pub gaps: Vec<Gap>,
}

/// Main cause of a VM's request time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Other VMs: [`Diagnosis::culprits`]. The policy may also have left the device idle for them.
    Others,
    /// The VM's own limit.
    OwnLimit,
    /// The VM's own requests.
    OwnLoad,
    /// The device, which was slower than usual; no VM is to blame.
    Device,
    /// Service by the device, as far as is known as fast as usual.
    Service,
    /// The policy's deliberate waits, not for other VMs.
    Policy,
    /// Replies that were not sent at once.
    Reply,
    /// The VM was no slower than before.
    NotSlower,
    /// No request of the VM was answered in the interval.
    NoRequests,
    /// No cause is known for most of the time.
    Unknown,
}

/// Time that the shares of findings are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// All time of the interval's requests.
    Total,
    /// Time that a request took more than before.
    Increase,
}

/// Cause of a part of a VM's request time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Requests of another VM or background process.
    Vm,
    /// Requests of other VMs that are not named.
    OtherVms,
    /// The VM's own limit or credits.
    OwnLimit,
    /// Other requests of the VM itself.
    OwnLoad,
    /// The device, which was slower than usual. Where shares are of [`Basis::Increase`], its
    /// service that took longer, too.
    Device,
    /// Service by the device.
    Service,
    /// The policy, which left the device idle on purpose.
    Policy,
    /// The way back: replies that were not sent at once.
    Reply,
    /// No known cause.
    Unknown,
}

/// Reliability of a share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Few samples.
    Low,
    /// Some samples, or device times that are assumed.
    Medium,
    /// Many samples, or exact counters.
    High,
}

/// Cause with its part of the time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Cause.
    pub cause: Cause,
    /// Name of the VM, where one is the cause; `(removed)` for one that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// Part of the time, 0 to 1; see [`Diagnosis::basis`].
    pub share: f64,
    /// Mean time of a request of this cause, in nanoseconds.
    pub mean_ns: u64,
    /// Mean time before; absent: there is nothing to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_ns: Option<u64>,
    /// Traffic of the VM; absent: no VM is the cause, or it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<CulpritFacts>,
    /// Reliability of the share.
    pub confidence: Confidence,
    /// Changes that may help, the most likely first.
    pub remedies: Vec<Remedy>,
}

/// Traffic of a culprit in the interval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CulpritFacts {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean size of its reads and writes in bytes; 0 without any.
    pub mean_size: u64,
    /// Most of its requests.
    pub mostly: Mostly,
    /// The VM has a limit.
    pub limited: bool,
    /// The VM is a background process of the host.
    pub background: bool,
}

/// Kind of most of a VM's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mostly {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes, and other requests without data.
    Flushes,
}

/// Change that may help.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Remedy {
    /// A limit on a VM. The rate, half of its present one, is to start from.
    Limit {
        /// Name of the VM.
        vm: String,
        /// Bandwidth in bytes a second; 0: the VM moves no data.
        bytes_per_s: u64,
        /// Requests a second.
        iops: u64,
    },
    /// A reservation for the VM that is explained, of its present rate.
    Reserve {
        /// Requests a second.
        iops: u64,
    },
    /// A higher limit, or none, for the VM that is explained.
    RaiseLimit,
    /// Fewer requests at a time, or a faster device.
    LessLoad,
    /// A look at the device: its log, its temperature, its free space.
    CheckDevice,
    /// Another policy, or its parameters for deliberate waits.
    OtherPolicy,
}

/// Longest I/O of the device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LongestIoFacts {
    /// Time that it took, in nanoseconds.
    pub ns: u64,
    /// Name of its VM; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// True for a flush.
    pub is_flush: bool,
}

/// Part of an objective that was missed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MissedPart {
    /// Part, such as `latency`.
    pub part: String,
    /// Seconds in which it was missed.
    pub missed_s: u64,
    /// Seconds in which it was judged.
    pub judged_s: u64,
}

/// Fact that a diagnosis lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// Causes were not kept then, as in a history that an older daemon wrote.
    NoCauses,
    /// No request was sampled: whose requests it waited for is not known.
    NoSamples,
    /// Few requests were sampled: shares are rough.
    FewSamples,
    /// There is nothing to compare with.
    NoBaseline,
    /// Device times are assumed, so others' parts may be off.
    AssumedCosts,
    /// Not all requests were recorded, so remedies cannot be simulated.
    NoRecording,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn a_finding_has_what_is_known_of_the_culprit() {
        let finding = Finding {
            cause: Cause::Vm,
            vm: Some("backup".to_owned()),
            share: 0.5,
            mean_ns: 7,
            before_ns: None,
            culprit: Some(CulpritFacts {
                iops: 8.0,
                bytes_per_s: 4096.5,
                mean_size: 512,
                mostly: Mostly::Writes,
                limited: false,
                background: true,
            }),
            confidence: Confidence::Medium,
            remedies: vec![Remedy::Reserve { iops: 40 }, Remedy::CheckDevice],
        };
        round_trip(
            &finding,
            concat!(
                r#"{"cause":"vm","vm":"backup","share":0.5,"mean_ns":7,"#,
                r#""culprit":{"iops":8.0,"bytes_per_s":4096.5,"mean_size":512,"#,
                r#""mostly":"writes","limited":false,"background":true},"#,
                r#""confidence":"medium","#,
                r#""remedies":[{"kind":"reserve","iops":40},{"kind":"check_device"}]}"#
            ),
        );
    }
}
