//! Metrics of VMs, except for deadline transfers and attainment.

use tidegate_core::precision::{INTERVAL_S, MILLION};
use tidegate_core::request::{Lane, Op};
use tidegate_core::stats::Histogram;
use tidegate_core::tuning::Throttle;

use super::{Metric, Read, bytes, plain, relabelled, renamed, seconds};
use crate::command::VmSnapshot;
use crate::config::unenforced;
use crate::labels::op_name;

pub(super) static VM_METRICS: &[Metric<VmSnapshot>] = &[
    renamed(
        "clients",
        plain(
            "connections",
            "Open NBD connections",
            Read::Gauge(|vm| vm.clients.into()),
        ),
    ),
    plain(
        "max_connections",
        "Maximum number of open NBD connections",
        Read::Gauge(|vm| vm.connections.counts().max.into()),
    ),
    plain(
        "connections_refused",
        "NBD connections that were refused because max_connections were open",
        Read::Counter(|vm| vm.connections.counts().refused as f64),
    ),
    plain(
        "pending",
        "Guest requests waiting",
        Read::Gauge(|vm| vm.pending.into()),
    ),
    plain(
        "in_flight",
        "Device I/Os in flight",
        Read::Gauge(|vm| vm.in_flight.into()),
    ),
    plain(
        "waiting_connections",
        "Connections that are not read from because the VM has no request slot or payload memory \
         left",
        Read::Gauge(|vm| vm.stalled.into()),
    ),
    plain(
        "request_slots",
        "Request slots in use",
        Read::Gauge(|vm| vm.holdings.slots as f64),
    ),
    renamed(
        "request_slots_part",
        plain(
            "request_slots_guaranteed",
            "Request slots of the device that are guaranteed to the VM",
            Read::Gauge(|vm| vm.holdings.slots_part as f64),
        ),
    ),
    bytes(
        "payload",
        "Payload memory in use",
        Read::Gauge(|vm| vm.holdings.payload as f64),
    ),
    renamed(
        "payload_part",
        bytes(
            "payload_guaranteed",
            "Payload memory for writes that is guaranteed to the VM, and as much again for reads",
            Read::Gauge(|vm| vm.holdings.payload_part as f64),
        ),
    ),
    plain(
        "disks_failed",
        "Disks that refuse requests because their file or block device failed",
        Read::Gauge(|vm| vm.disks.iter().filter(|disk| disk.failed.is_some()).count() as f64),
    ),
    plain(
        "unenforced",
        "1 for each part of the objective that the policy in force does not enforce",
        Read::Gauges("part", |vm| {
            let parts = unenforced(&vm.objective, &vm.enforces, vm.background);
            parts
                .into_iter()
                .map(|part| (part.part.to_owned(), 1.0))
                .collect()
        }),
    ),
    plain(
        "operations",
        "Guest requests that succeeded",
        Read::Counters("operation", |vm| by_op(vm, |vm, op| vm.stats.op(op).ops)),
    ),
    plain(
        "failures",
        "Guest requests that failed",
        Read::Counters("operation", |vm| by_op(vm, |vm, op| vm.stats.op(op).errors)),
    ),
    bytes(
        "transferred",
        "Bytes of guest requests that succeeded",
        Read::Counters("operation", |vm| by_op(vm, |vm, op| vm.stats.op(op).bytes)),
    ),
    plain(
        "sequential",
        "Guest requests that continued one of the 32 requests before them",
        Read::Counters("operation", |vm| {
            let (reads, writes) = (vm.stats.sequential_reads, vm.stats.sequential_writes);
            vec![("read", reads as f64), ("write", writes as f64)]
        }),
    ),
    plain(
        "merged",
        "Guest requests that were merged with a waiting one",
        Read::Counter(|vm| vm.stats.merged as f64),
    ),
    plain(
        "split",
        "Device I/Os beyond the first of each guest request that was split",
        Read::Counter(|vm| vm.stats.split as f64),
    ),
    plain(
        "cancelled",
        "Guest requests that were dropped because their client disconnected before they started",
        Read::Counter(|vm| vm.stats.cancelled as f64),
    ),
    plain(
        "precision_error_ratio",
        "B: deviation of the mean bandwidth of the last five minutes from the target, relative to \
         the target; absent without a target in bytes a second",
        Read::OptionalGauge(|vm| Some(ratio(vm.precision(INTERVAL_S).error? as f64))),
    ),
    plain(
        "precision_absolute_error_ratio",
        "Beta: mean of |B| over intervals of 30 s in which the VM had requests outstanding",
        Read::OptionalGauge(|vm| Some(ratio(vm.precision(INTERVAL_S).absolute_error? as f64))),
    ),
    plain(
        "precision_variability_ratio",
        "V: mean deviation of the bandwidth of single seconds of the last five minutes from their \
         mean, relative to it; absent if no data moved",
        Read::OptionalGauge(|vm| Some(ratio(vm.precision(INTERVAL_S).variability? as f64))),
    ),
    renamed(
        "inadequate",
        plain(
            "target_unreachable",
            "1 if the VM's load would reach its target but the device does not deliver it; absent \
         without tuning",
            Read::OptionalGauge(|vm| Some(f64::from(u8::from(vm.tuning?.inadequate.is_some())))),
        ),
    ),
    renamed(
        "inadequate_bytes_per_second",
        plain(
            "target_achieved_bytes_per_second",
            "Recent bandwidth of the VM; absent unless the device does not deliver the VM's target",
            Read::OptionalGauge(|vm| Some(vm.tuning?.inadequate?.bytes_per_s as f64)),
        ),
    ),
    plain(
        "tuning_aim_bytes_per_second",
        "Bandwidth that the VM's tuner aims at to reach the target",
        Read::OptionalGauge(|vm| Some(vm.tuning?.aim? as f64)),
    ),
    bytes(
        "tuning_merge_limit",
        "Maximum size of a device I/O, set by the VM's tuner",
        Read::OptionalGauge(|vm| Some(vm.tuning?.merge_limit?.into())),
    ),
    plain(
        "tuning_throttle_bytes_per_second",
        "Rate limit that the VM's tuner sets; absent while only the merge limit throttles the VM",
        Read::OptionalGauge(|vm| match vm.tuning?.throttle {
            Throttle::Exactly(bytes) | Throttle::AtMost(bytes) => Some(bytes as f64),
            Throttle::Off | Throttle::Ios(_) => None,
        }),
    ),
    plain(
        "tuning_throttle_iops",
        "Limit of device I/Os a second that the VM's tuner sets; absent without a target in IOPS",
        Read::OptionalGauge(|vm| match vm.tuning?.throttle {
            Throttle::Ios(thousandths) => Some(thousandths as f64 / 1000.0),
            Throttle::Off | Throttle::Exactly(_) | Throttle::AtMost(_) => None,
        }),
    ),
    seconds(
        "tuning_window",
        "Interval between two actions of the VM's tuner",
        Read::OptionalGauge(|vm| Some(vm.tuning?.window.as_secs_f64())),
    ),
    plain(
        "tuning_settled",
        "1 if the VM's tuner has settled on a window",
        Read::OptionalGauge(|vm| Some(f64::from(u8::from(vm.tuning?.settled)))),
    ),
    plain(
        "tuning_range_bytes_per_second",
        "Bandwidths measured at one page an I/O and at the best merge limit; no target above the \
         highest is feasible",
        Read::Gauges("end", |vm| {
            let range = vm.tuning.and_then(|tuning| tuning.range);
            let ends = range.map(|range| [("lowest", range.lowest), ("highest", range.highest)]);
            let ends = ends.into_iter().flatten();
            ends.map(|(end, bytes)| (end.to_owned(), bytes as f64))
                .collect()
        }),
    ),
    relabelled(
        "spent",
        &[("throttled", "regulated"), ("anticipation", "deliberate")],
        seconds(
            "request_time",
            "Time of guest requests by cause: throttled (own limit or credits), queued (others \
             were served), merged (waiting with another request), anticipation (device kept idle \
             by the policy), device (in flight)",
            Read::Counters("cause", request_time),
        ),
    ),
    seconds(
        "queue_time",
        "Time from a guest request's arrival to the device, and between its parts",
        Read::Histograms("direction", |vm| by_lane(|lane| vm.stats.queue_time(lane))),
    ),
    seconds(
        "service_time",
        "Time of a guest request with the device",
        Read::Histograms("direction", |vm| {
            by_lane(|lane| vm.stats.service_time(lane))
        }),
    ),
    seconds(
        "reply_time",
        "Time from the parse of a guest request to its reply sent, reception of the payload \
         included",
        Read::Histograms("direction", |vm| {
            by_lane(|lane| &vm.reply_time[lane as usize])
        }),
    ),
];

/// Converts millionths to a ratio.
fn ratio(millionths: f64) -> f64 {
    millionths / MILLION as f64
}

fn by_op(vm: &VmSnapshot, of: fn(&VmSnapshot, Op) -> u64) -> Vec<(&'static str, f64)> {
    Op::ALL
        .into_iter()
        .map(|op| (op_name(op), of(vm, op) as f64))
        .collect()
}

fn by_lane<'a>(of: impl Fn(Lane) -> &'a Histogram) -> Vec<(&'static str, &'a Histogram)> {
    vec![("read", of(Lane::Read)), ("write", of(Lane::Write))]
}

fn request_time(vm: &VmSnapshot) -> Vec<(&'static str, f64)> {
    let account = &vm.stats.account;
    [
        ("throttled", account.regulated),
        ("queued", account.admission + account.queued),
        ("merged", account.merged_wait),
        ("anticipation", account.deliberate),
        ("device", account.device),
    ]
    .map(|(cause, time)| (cause, time.as_secs_f64()))
    .to_vec()
}
