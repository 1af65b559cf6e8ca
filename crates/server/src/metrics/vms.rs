//! Metrics of VMs, except for deadline transfers and attainment.

use tidegate_core::precision::{INTERVAL_S, MILLION};
use tidegate_core::request::{Lane, Op};
use tidegate_core::stats::Histogram;
use tidegate_core::tuning::Throttle;

use super::{Metric, Read, bytes, plain, seconds};
use crate::command::VmSnapshot;
use crate::config::unenforced;
use crate::labels::op_name;

pub(super) static VM_METRICS: &[Metric<VmSnapshot>] = &[
    plain(
        "clients",
        "Connected clients",
        Read::Gauge(|vm| vm.clients.into()),
    ),
    plain(
        "max_connections",
        "Clients that may be connected at a time",
        Read::Gauge(|vm| vm.connections.counts().max.into()),
    ),
    plain(
        "connections_refused",
        "Clients that were refused because max_connections were connected",
        Read::Counter(|vm| vm.connections.counts().refused as f64),
    ),
    plain(
        "pending",
        "Guest requests waiting now",
        Read::Gauge(|vm| vm.pending.into()),
    ),
    plain(
        "in_flight",
        "Device I/Os in flight now",
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
        "Request slots that the VM holds",
        Read::Gauge(|vm| vm.holdings.slots as f64),
    ),
    plain(
        "request_slots_part",
        "The VM's guaranteed part of the device's request slots",
        Read::Gauge(|vm| vm.holdings.slots_part as f64),
    ),
    bytes(
        "payload",
        "Payload memory that the VM holds",
        Read::Gauge(|vm| vm.holdings.payload as f64),
    ),
    bytes(
        "payload_part",
        "The VM's guaranteed part of the payload memory for writes, and as much again for reads",
        Read::Gauge(|vm| vm.holdings.payload_part as f64),
    ),
    plain(
        "disks_failed",
        "Disks that refuse requests because their backing failed",
        Read::Gauge(|vm| vm.disks.iter().filter(|disk| disk.failed.is_some()).count() as f64),
    ),
    plain(
        "unenforced",
        "Parts of the objective that the policy in force does not enforce have the value 1",
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
        "Guest requests that continued one of the 32 before",
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
        "Device I/Os beyond the first that guest requests were split into",
        Read::Counter(|vm| vm.stats.split as f64),
    ),
    plain(
        "cancelled",
        "Guest requests that were dropped because their client disconnected before they started",
        Read::Counter(|vm| vm.stats.cancelled as f64),
    ),
    plain(
        "precision_error_ratio",
        "B: by how much the bandwidth of the last five minutes is above the target, relative to \
         it; absent without a target in bytes a second",
        Read::OptionalGauge(|vm| Some(ratio(vm.precision(INTERVAL_S).error? as f64))),
    ),
    plain(
        "precision_absolute_error_ratio",
        "Beta: the mean of |B| over intervals of 30 s in which the VM had something outstanding",
        Read::OptionalGauge(|vm| Some(ratio(vm.precision(INTERVAL_S).absolute_error? as f64))),
    ),
    plain(
        "precision_variability_ratio",
        "V: how far its seconds of the last five minutes are off their mean on average, relative \
         to it; absent where nothing moved",
        Read::OptionalGauge(|vm| Some(ratio(vm.precision(INTERVAL_S).variability? as f64))),
    ),
    plain(
        "inadequate",
        "1 if the VM's load reaches its target and the device does not deliver it; absent without \
         tuning",
        Read::OptionalGauge(|vm| Some(f64::from(u8::from(vm.tuning?.inadequate.is_some())))),
    ),
    plain(
        "inadequate_bytes_per_second",
        "Recent bandwidth of the VM while it is below its target because the device does not \
         deliver more",
        Read::OptionalGauge(|vm| Some(vm.tuning?.inadequate?.bytes_per_s as f64)),
    ),
    plain(
        "tuning_aim_bytes_per_second",
        "Bandwidth that the VM's tuner aims at to reach the target",
        Read::OptionalGauge(|vm| Some(vm.tuning?.aim? as f64)),
    ),
    bytes(
        "tuning_merge_limit",
        "Largest device I/O that the VM's tuner allows now",
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
    seconds(
        "spent",
        "Where the time of guest requests went: regulated (own limit or credits), queued (others \
         were served), merged (with another request), deliberate (room left unused), device",
        Read::Counters("cause", spent),
    ),
    seconds(
        "queue_time",
        "From a guest request's arrival to its first service, and between its parts",
        Read::Histograms("direction", |vm| by_lane(|lane| vm.stats.queue_time(lane))),
    ),
    seconds(
        "service_time",
        "A guest request's time with the device",
        Read::Histograms("direction", |vm| {
            by_lane(|lane| vm.stats.service_time(lane))
        }),
    ),
    seconds(
        "reply_time",
        "From the parse of a guest request to its reply sent, its payload's way in included",
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

fn spent(vm: &VmSnapshot) -> Vec<(&'static str, f64)> {
    let account = &vm.stats.account;
    [
        ("regulated", account.regulated),
        ("queued", account.queued),
        ("merged", account.merged_wait),
        ("deliberate", account.deliberate),
        ("device", account.device),
    ]
    .map(|(cause, time)| (cause, time.as_secs_f64()))
    .to_vec()
}
