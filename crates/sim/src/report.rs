//! Results of a simulation as plain data.

mod operations;
mod responses;

pub use crate::device::Times;
pub use crate::processors::{CpuReport, VmCpuReport};
pub use operations::{OperationReport, Operations};
pub use responses::{Deadlines, Response, Responses};

use crate::device::{DeviceTally, Distances, PrecisionResult, PromiseResult, Tally};
use crate::scenario::VmSpec;
use serde::Serialize;
use tidegate_api::interference::InterferenceTimes;
use tidegate_api::stats::TimeView;
use tidegate_api::tuning::{PrecisionView, TuningView};
use tidegate_config::stat_views;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Results of a whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Title of the scenario.
    pub title: String,
    /// Seed of the scenario.
    pub seed: u64,
    /// Simulated time, in seconds.
    pub duration_s: f64,
    /// Warm-up before counting began, in seconds.
    pub warm_up_s: f64,
    /// Devices in the order of the scenario.
    pub devices: Vec<DeviceReport>,
    /// VMs and background processes in the order of the scenario.
    pub vms: Vec<VmReport>,
    /// pCPUs of the host; `None` where they are not simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuReport>,
    /// Requests answered in the whole run, including the warm-up.
    pub requests: u64,
}

/// Results of a device over the run after the warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Name of the device.
    pub name: String,
    /// Name of its model.
    pub model: String,
    /// Policy in force at the end.
    pub policy: String,
    /// Device I/Os per second. Guest requests may have been merged or split.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Fraction of the time with at least one I/O in flight, 0 to 1.
    pub busy: f64,
    /// Mean number of I/Os in flight.
    pub depth: f64,
    /// Anticipatory waits of the last policy, from the begin of the run or of the policy; `None` if
    /// the policy never waits for a request that might come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<DeviceWaits>,
    /// I/Os by the distance from the end of one I/O to the start of the next.
    pub distances: Vec<Distance>,
}

/// Waits of a device for requests that might come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceWaits {
    /// Waits begun.
    pub begun: u64,
    /// Waits that ended with such a request.
    pub succeeded: u64,
}

/// Number of I/Os in a range of distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Distance {
    /// Upper bound of the distance in bytes; the entry before is the lower bound. `None` for all
    /// distances beyond the last bound.
    pub up_to_bytes: Option<u64>,
    /// Number of I/Os.
    pub ios: u64,
}

/// Results of a VM or background process over the part of the run in which it was active: from the
/// start of its first workload to its last answer, or to its removal.
#[derive(Clone, Debug, Serialize)]
pub struct VmReport {
    /// Name of the VM.
    pub name: String,
    /// Name of its device.
    pub device: String,
    /// `true` for a process of the host.
    pub background: bool,
    /// Time over which its rates are taken, in seconds.
    pub time_s: f64,
    /// Rates and latencies.
    #[serde(flatten)]
    pub rates: Rates,
    /// Times of its requests from arrival at the scheduler to the answer there, in the daemon's
    /// buckets; delays outside of the scheduler are not included.
    pub served: TimeView,
    /// Mean components of its requests' latency.
    pub waits: Waits,
    /// Time of its requests by cause, and the VMs behind which they were.
    pub interference: InterferenceTimes,
    /// Response times of its transfers, with or without deadlines; `None` if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
    /// Parts of its objective, with the verdict on each.
    pub promises: Vec<Promise>,
    /// Precision of its bandwidth over the whole seconds after the warm-up, at most the last day of
    /// them, or since its target in bytes per second changed.
    pub precision: PrecisionView,
    /// Tuning at the end; `None` if nothing tunes the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningView>,
    /// Counts and latencies of every operation; `None` unless they were kept.
    #[serde(skip)]
    pub operations: Option<Operations>,
    /// Share of the pCPUs; `None` where they are not simulated, and for a background process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<VmCpuReport>,
}

/// Rates and latencies over a span of time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rates {
    /// Guest requests of all operations per second.
    pub iops: f64,
    /// Reads per second.
    pub read_iops: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Mean latency from the guest's issue to its answer; `None` if nothing was answered.
    pub latency_mean_ns: Option<u64>,
    /// Median latency.
    pub latency_p50_ns: Option<u64>,
    /// 99th percentile of the latency.
    pub latency_p99_ns: Option<u64>,
    /// 99.9th percentile of the latency.
    pub latency_p999_ns: Option<u64>,
    /// Longest latency.
    pub latency_max_ns: Option<u64>,
}

/// Mean components of a request's latency, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Waits {
    /// Time inside the guest, and on the way to the scheduler and back.
    pub guest_ns: u64,
    /// Time held back by the VM's own limit or credits.
    pub regulated_ns: u64,
    /// Time ready to go while the device served other requests.
    pub queued_ns: u64,
    /// Time as part of a merged unit until that unit was dispatched.
    pub merged_ns: u64,
    /// Time for which the device was left idle on purpose.
    pub deliberate_ns: u64,
    /// Time with the device.
    pub device_ns: u64,
}

/// Part of a VM's objective, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// Part and figure, such as `reservation 40 IOPS`.
    pub what: String,
    /// Verdict; `None` if there was nothing to judge it by.
    pub kept: Option<bool>,
    /// Explanation of the verdict, with figures.
    pub detail: String,
    /// Name of the part.
    pub part: &'static str,
    /// Seconds that were judged.
    pub judged_s: u64,
    /// Seconds among `judged_s` that were missed.
    pub missed_s: u64,
    /// Seconds that were missed while the device stalled; they are not among `judged_s`.
    pub stalled_s: u64,
    /// Kept seconds in which the VM asked for less than it was promised.
    pub asked_less_s: u64,
    /// Cause of most missed seconds; `None`: none was missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// Longest time by which a request was late.
    pub worst_ns: u64,
}

/// Rates of a VM in one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// End of the interval, in seconds.
    pub time_s: f64,
    /// Begin of the interval, in seconds.
    #[serde(skip)]
    pub began_s: f64,
    /// Latencies of all requests in the interval.
    #[serde(skip)]
    pub latency: Times,
    /// Name of the VM.
    pub vm: String,
    /// Rates and latencies in the interval.
    #[serde(flatten)]
    pub rates: Rates,
    /// Time of its requests in the interval by cause, and the VMs behind which they were.
    pub interference: InterferenceTimes,
    /// Response times of transfers that were done in the interval; `None` if the VM has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
}

/// Load of a device in one interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceRow {
    /// Index of the device in the scenario.
    pub device: usize,
    /// Begin of the interval, in seconds.
    pub began_s: f64,
    /// End of the interval, in seconds.
    pub time_s: f64,
    /// Device I/Os per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Fraction of the time with at least one I/O in flight, 0 to 1.
    pub busy: f64,
    /// Mean number of I/Os in flight.
    pub depth: f64,
}

impl DeviceRow {
    /// Computes the load of the device with this index from `began` to `ended`.
    pub fn new(device: usize, did: &DeviceTally, began: Nanos, ended: Nanos) -> DeviceRow {
        let loads = Loads::new(did, ended.since(began));
        DeviceRow {
            device,
            began_s: began.as_secs_f64(),
            time_s: ended.as_secs_f64(),
            iops: loads.iops,
            bytes_per_s: loads.bytes_per_s,
            busy: loads.busy,
            depth: loads.depth,
        }
    }
}

/// Load of a device over a span of time.
struct Loads {
    iops: f64,
    bytes_per_s: f64,
    busy: f64,
    depth: f64,
}

impl Loads {
    fn new(did: &DeviceTally, span: Nanos) -> Loads {
        let per_s = |n: f64| match span {
            Nanos::ZERO => 0.0,
            span => n / span.as_secs_f64(),
        };
        Loads {
            iops: per_s(did.ios as f64),
            bytes_per_s: per_s(did.bytes as f64),
            busy: per_s(did.busy.as_secs_f64()),
            // Nanoseconds in flight for each second of the span.
            depth: per_s(did.in_flight_sum as f64 / 1e9),
        }
    }
}

impl Rates {
    /// Computes the rates of a tally over `span`.
    pub fn new(tally: &Tally, span: Nanos) -> Rates {
        let per_s = |n: u64| match span {
            Nanos::ZERO => 0.0,
            span => n as f64 / span.as_secs_f64(),
        };
        let of = |counts: &[u64], op: Op| per_s(counts[op as usize]);
        let of_some = |time: Nanos| (tally.total_ops() > 0).then_some(time.0);
        Rates {
            iops: per_s(tally.total_ops()),
            read_iops: of(&tally.ops, Op::Read),
            write_iops: of(&tally.ops, Op::Write),
            bytes_per_s: per_s(tally.data_bytes()),
            read_bytes_per_s: of(&tally.bytes, Op::Read),
            write_bytes_per_s: of(&tally.bytes, Op::Write),
            errors: tally.errors,
            latency_mean_ns: of_some(tally.mean()),
            latency_p50_ns: of_some(tally.quantile(0.5)),
            latency_p99_ns: of_some(tally.quantile(0.99)),
            latency_p999_ns: of_some(tally.quantile(0.999)),
            latency_max_ns: of_some(tally.latency.longest()),
        }
    }
}

impl Waits {
    /// Computes the means of a tally.
    pub fn new(tally: &Tally) -> Waits {
        // Failed requests have an account of their time too.
        let requests = tally.total_ops() + tally.errors;
        let mean = |sum: Nanos| sum.0.checked_div(requests).unwrap_or(0);
        let account = &tally.account;
        Waits {
            // The latency's mean is of requests that ended well, the account's of all; `since`
            // stops at 0.
            guest_ns: tally.mean().since(Nanos(mean(account.total()))).0,
            regulated_ns: mean(account.regulated),
            queued_ns: mean(account.admission + account.queued),
            merged_ns: mean(account.merged_wait),
            deliberate_ns: mean(account.deliberate),
            device_ns: mean(account.device),
        }
    }
}

impl VmReport {
    /// Assembles the results of a VM over `span`. `judged` lists the parts of its objectives in the
    /// order in which they came into force; `held` is the precision of its bandwidth.
    pub fn new(
        spec: &VmSpec,
        device: &str,
        tally: &Tally,
        judged: &[PromiseResult],
        held: &PrecisionResult,
        span: Nanos,
    ) -> VmReport {
        VmReport {
            name: spec.name.clone(),
            device: device.to_owned(),
            background: spec.background,
            time_s: span.as_secs_f64(),
            rates: Rates::new(tally, span),
            served: stat_views::times(&tally.served, false),
            waits: Waits::new(tally),
            interference: InterferenceTimes::default(),
            responses: None,
            promises: promises(judged),
            precision: stat_views::precision(&held.precision),
            tuning: held.tuning.as_ref().map(stat_views::tuning),
            operations: Operations::new(tally),
            cpu: None,
        }
    }

    /// Adds the response times of transfers.
    #[must_use]
    pub fn with_responses(self, responses: Option<Responses>) -> VmReport {
        VmReport { responses, ..self }
    }

    /// Adds where the time of its requests went.
    #[must_use]
    pub fn with_interference(self, interference: InterferenceTimes) -> VmReport {
        VmReport {
            interference,
            ..self
        }
    }

    /// Adds the share of the pCPUs.
    #[must_use]
    pub fn with_cpu(self, cpu: Option<VmCpuReport>) -> VmReport {
        VmReport { cpu, ..self }
    }
}

impl DeviceReport {
    /// Assembles the results of a device over `span`.
    pub fn new(
        (name, model, policy): (&str, &str, &str),
        did: &DeviceTally,
        distances: &Distances,
        span: Nanos,
    ) -> Self {
        let loads = Loads::new(did, span);
        DeviceReport {
            name: name.to_owned(),
            model: model.to_owned(),
            policy: policy.to_owned(),
            iops: loads.iops,
            bytes_per_s: loads.bytes_per_s,
            busy: loads.busy,
            depth: loads.depth,
            waits: None,
            distances: (distances.counts())
                .map(|(up_to_bytes, ios)| Distance { up_to_bytes, ios })
                .collect(),
        }
    }

    /// Adds the anticipatory waits of its policy.
    #[must_use]
    pub fn with_waits(self, waits: Option<tidegate_core::roles::Waits>) -> Self {
        let waits = waits.map(|waits| DeviceWaits {
            begun: waits.begun,
            succeeded: waits.succeeded,
        });
        DeviceReport { waits, ..self }
    }
}

/// Verdicts on promises in the order in which they were made. A promise that was withdrawn and made
/// again is reported once, with both attainments added up.
fn promises(judged: &[PromiseResult]) -> Vec<Promise> {
    let mut all: Vec<PromiseResult> = Vec::new();
    for promise in judged {
        // Few promises a VM: a search costs less than a map.
        match all.iter_mut().find(|other| other.terms == promise.terms) {
            Some(sum) => sum.attainment.add(&promise.attainment),
            None => all.push(promise.clone()),
        }
    }
    all.into_iter().map(verdict).collect()
}

fn verdict(promise: PromiseResult) -> Promise {
    let PromiseResult {
        what, attainment, ..
    } = promise;
    Promise {
        what,
        kept: attainment.is_kept(),
        detail: stat_views::attainment::detail(&attainment),
        part: attainment.part.name(),
        judged_s: attainment.judged(),
        missed_s: attainment.missed(),
        stalled_s: attainment.stalled_s,
        asked_less_s: attainment.asked_less_s,
        cause: attainment.main_cause().map(|cause| cause.name()),
        worst_ns: attainment.worst.0,
    }
}
