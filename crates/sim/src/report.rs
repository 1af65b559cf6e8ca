//! What a simulation found out, as plain data.

mod responses;

pub use crate::processors::{CpuReport, VmCpuReport};
pub use responses::{Deadlines, Response, Responses};

use crate::device::{DeviceTally, Distances, PrecisionResult, PromiseResult, Tally};
use crate::scenario::Tenant;
use serde::Serialize;
use tidegate_api::stats::TimeView;
use tidegate_api::tuning::{PrecisionView, TuningView};
use tidegate_config::told;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the scenario shows.
    pub title: String,
    /// Its seed.
    pub seed: u64,
    /// Simulated time, in seconds.
    pub duration_s: f64,
    /// Part of it before anything was counted, in seconds.
    pub warm_up_s: f64,
    /// The devices.
    pub devices: Vec<DeviceReport>,
    /// Their tenants.
    pub vms: Vec<VmReport>,
    /// The processors that they run on; `None`: not simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuReport>,
    /// Requests answered in all, also in the warm-up.
    pub requests: u64,
}

/// A device over the whole run.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Its policy at the end.
    pub policy: String,
    /// I/Os a second: guest requests may have been merged or split.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// The part of the time in which it had something to do, 0 to 1.
    pub busy: f64,
    /// I/Os in flight on average.
    pub depth: f64,
    /// How often its last policy left it waiting for a request that might come, from the begin of
    /// the run or the policy; `None`: it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<DeviceWaits>,
    /// How far it went from the end of one I/O to the start of the next.
    pub distances: Vec<Distance>,
}

/// Waits of a device for requests that might come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceWaits {
    /// Waits begun.
    pub begun: u64,
    /// Those that such a request ended.
    pub succeeded: u64,
}

/// I/Os by how far the device went for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Distance {
    /// No farther than so many bytes, and farther than the entry before; `None`: beyond all.
    pub up_to_bytes: Option<u64>,
    /// So many I/Os.
    pub ios: u64,
}

/// A tenant over the part of the run in which it had something to do: from the start of its first
/// job to its last answer, or to when it left.
#[derive(Clone, Debug, Serialize)]
pub struct VmReport {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// It is a process of the host, not a VM.
    pub background: bool,
    /// The time that its rates are over, in seconds.
    pub time_s: f64,
    /// What was counted.
    #[serde(flatten)]
    pub rates: Rates,
    /// Time of its requests from arrival at the scheduler to the answer there, as the daemon counts
    /// it: delays outside of it are not in it.
    pub served: TimeView,
    /// Where the time of its requests went.
    pub waits: Waits,
    /// Of what it asks for in many requests, with deadlines or without; `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
    /// Promises, and whether they were kept.
    pub promises: Vec<Promise>,
    /// How precisely its bandwidth was held over the whole seconds after the warm-up, at most the
    /// last day of them, or since its target in bytes a second was another one.
    pub precision: PrecisionView,
    /// How it is tuned at the end; `None`: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningView>,
    /// Its part of the processors; `None`: these are not simulated, or it is no VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<VmCpuReport>,
}

/// Rates and latencies over a span of time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rates {
    /// Guest requests a second, of all operations.
    pub iops: f64,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes read and written a second.
    pub bytes_per_s: f64,
    /// Bytes read a second.
    pub read_bytes_per_s: f64,
    /// Bytes written a second.
    pub write_bytes_per_s: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Mean latency, from the guest's wish to its answer; `None`: nothing was answered.
    pub latency_mean_ns: Option<u64>,
    /// Half of the requests took at most this long.
    pub latency_p50_ns: Option<u64>,
    /// 99 in 100.
    pub latency_p99_ns: Option<u64>,
    /// 999 in 1,000.
    pub latency_p999_ns: Option<u64>,
    /// The longest.
    pub latency_max_ns: Option<u64>,
}

/// Where the time of a tenant's requests went: means a request, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Waits {
    /// Inside the guest, and on the way to the scheduler and back.
    pub guest_ns: u64,
    /// PrecisionResult back by its own limit or credits.
    pub regulated_ns: u64,
    /// Ready, while the device served others.
    pub queued_ns: u64,
    /// As a passenger of a request it was merged with.
    pub merged_ns: u64,
    /// The device was left idle on purpose.
    pub deliberate_ns: u64,
    /// With the device.
    pub device_ns: u64,
}

/// Something a tenant was promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// What, such as `reservation 40 IOPS`.
    pub what: String,
    /// Whether it was kept; `None`: there was nothing to judge it by.
    pub kept: Option<bool>,
    /// How far it was or was not.
    pub detail: String,
    /// Part of the objective.
    pub part: &'static str,
    /// Seconds that were judged.
    pub judged_s: u64,
    /// Seconds among `judged_s` that were missed.
    pub missed_s: u64,
    /// Seconds that were missed while the device stalled; they are not among `judged_s`.
    pub stalled_s: u64,
    /// Kept seconds in which it asked for less than it was promised.
    pub asked_less_s: u64,
    /// Cause of most missed seconds; `None`: none was missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// Longest time by which a request was late.
    pub worst_ns: u64,
}

/// A tenant over one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// End of the interval, in seconds.
    pub time_s: f64,
    /// The tenant.
    pub vm: String,
    /// What was counted.
    #[serde(flatten)]
    pub rates: Rates,
    /// Of tasks that were done in it; `None`: the tenant has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
}

impl Rates {
    /// Of what was counted in `span`.
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
    /// Of what was counted.
    pub fn new(tally: &Tally) -> Waits {
        let requests = tally.total_ops() + tally.errors;
        let mean = |sum: Nanos| sum.0.checked_div(requests).unwrap_or(0);
        let account = &tally.account;
        Waits {
            guest_ns: tally.mean().since(Nanos(mean(account.total()))).0,
            regulated_ns: mean(account.regulated),
            queued_ns: mean(account.queued),
            merged_ns: mean(account.merged_wait),
            deliberate_ns: mean(account.deliberate),
            device_ns: mean(account.device),
        }
    }
}

impl VmReport {
    /// Of a tenant, over `span`; `judged`: what it was promised, one after the other; `held`: how
    /// precisely.
    pub fn new(
        tenant: &Tenant,
        device: &str,
        tally: &Tally,
        judged: &[PromiseResult],
        held: &PrecisionResult,
        span: Nanos,
    ) -> VmReport {
        VmReport {
            name: tenant.name.clone(),
            device: device.to_owned(),
            background: tenant.background,
            time_s: span.as_secs_f64(),
            rates: Rates::new(tally, span),
            served: told::times(&tally.served, false),
            waits: Waits::new(tally),
            responses: None,
            promises: promises(judged),
            precision: told::precision(&held.precision),
            tuning: held.tuning.as_ref().map(told::tuning),
            cpu: None,
        }
    }

    /// With what came of its tasks.
    #[must_use]
    pub fn with_responses(self, responses: Option<Responses>) -> VmReport {
        VmReport { responses, ..self }
    }

    /// With its part of the processors.
    #[must_use]
    pub fn with_cpu(self, cpu: Option<VmCpuReport>) -> VmReport {
        VmReport { cpu, ..self }
    }
}

impl DeviceReport {
    /// Of a device, over `span`.
    pub fn new(
        (name, model, policy): (&str, &str, &str),
        did: &DeviceTally,
        distances: &Distances,
        span: Nanos,
    ) -> Self {
        let per_s = |n: f64| match span {
            Nanos::ZERO => 0.0,
            span => n / span.as_secs_f64(),
        };
        DeviceReport {
            name: name.to_owned(),
            model: model.to_owned(),
            policy: policy.to_owned(),
            iops: per_s(did.ios as f64),
            bytes_per_s: per_s(did.bytes as f64),
            busy: per_s(did.busy.as_secs_f64()),
            depth: per_s(did.in_flight_sum as f64 / 1e9),
            waits: None,
            distances: (distances.counts())
                .map(|(up_to_bytes, ios)| Distance { up_to_bytes, ios })
                .collect(),
        }
    }

    /// With the waits of its policy.
    #[must_use]
    pub fn with_waits(self, waits: Option<tidegate_core::roles::Waits>) -> Self {
        let waits = waits.map(|waits| DeviceWaits {
            begun: waits.begun,
            succeeded: waits.succeeded,
        });
        DeviceReport { waits, ..self }
    }
}

/// Promises as the engine judged them, in the order in which they were made. One that was taken
/// back and made again is one.
fn promises(judged: &[PromiseResult]) -> Vec<Promise> {
    let mut all: Vec<PromiseResult> = Vec::new();
    for promise in judged {
        match all.iter_mut().find(|other| other.what == promise.what) {
            Some(sum) => sum.attainment.add(&promise.attainment),
            None => all.push(promise.clone()),
        }
    }
    all.into_iter().map(verdict).collect()
}

fn verdict(promise: PromiseResult) -> Promise {
    let PromiseResult { what, attainment } = promise;
    Promise {
        what,
        kept: attainment.is_kept(),
        detail: told::attainment::detail(&attainment),
        part: attainment.part.name(),
        judged_s: attainment.judged(),
        missed_s: attainment.missed(),
        stalled_s: attainment.stalled_s,
        asked_less_s: attainment.asked_less_s,
        cause: attainment.main_cause().map(|cause| cause.name()),
        worst_ns: attainment.worst.0,
    }
}
