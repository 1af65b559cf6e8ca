//! Metrics of devices.

use tidegate_core::device_monitor::{Drift, DriftDirection};
use tidegate_core::estimator::LearntKind;

use super::{Metric, Read, plain, renamed, seconds};
use crate::command::DeviceSnapshot;
use crate::labels::kind_name;

pub(super) static DEVICE_METRICS: &[Metric<DeviceSnapshot>] = &[
    plain(
        "policy",
        "The policy in force has the value 1",
        Read::Gauges("policy", |d| vec![(d.policy.name().to_owned(), 1.0)]),
    ),
    plain(
        "depth",
        "Maximum number of I/Os in flight, as configured",
        Read::Gauge(|d| d.stats.spec.depth.into()),
    ),
    renamed(
        "promises_given_way",
        plain(
            "suspended_objectives",
            "Parts of objectives that are suspended because the device is slower than promised; \
             background processes count as one",
            Read::Gauges("part", |d| {
                let down = d.stepped_down;
                vec![
                    ("background".to_owned(), u32::from(down.background).into()),
                    ("transfer".to_owned(), down.transfers.into()),
                    ("target".to_owned(), down.targets.into()),
                    ("latency".to_owned(), down.latencies.into()),
                ]
            }),
        ),
    ),
    plain(
        "write_pace_bytes_per_second",
        "Rate that writes without a promise are held to, because promised requests are late beside \
         them",
        Read::OptionalGauge(|d| d.write_pace.map(|rate| rate as f64)),
    ),
    plain(
        "in_flight",
        "I/Os in flight that count against the queue depth",
        Read::Gauge(|d| d.stats.in_flight.into()),
    ),
    renamed(
        "uncounted",
        plain(
            "in_flight_hung",
            "I/Os in flight of disks that hang, which do not count against the queue depth",
            Read::Gauge(|d| d.uncounted.into()),
        ),
    ),
    seconds(
        "oldest_io",
        "Age of the oldest I/O in flight; 0 while there is none",
        Read::Gauge(|d| d.oldest_io.unwrap_or_default().as_secs_f64()),
    ),
    plain(
        "queued",
        "Units waiting for the device now",
        Read::Gauge(|d| d.stats.queued.into()),
    ),
    plain(
        "requests",
        "Guest requests inside the engine now, waiting or in flight",
        Read::Gauge(|d| d.stats.requests.into()),
    ),
    plain(
        "recorded_requests",
        "Requests passed to the recorder since the recording was switched on; 0 while it is off",
        Read::Counter(|d| d.recording.map_or(0.0, |it| it.written as f64)),
    ),
    plain(
        "recording_dropped_requests",
        "Requests that are missing in the recording, because the recorder did not keep up",
        Read::Counter(|d| d.recording.map_or(0.0, |it| it.dropped as f64)),
    ),
    plain(
        "started",
        "I/Os handed to the device",
        Read::Counter(|d| d.stats.started as f64),
    ),
    plain(
        "ended",
        "I/Os that ended",
        Read::Counter(|d| d.stats.ended as f64),
    ),
    plain(
        "errors",
        "I/Os that failed",
        Read::Counter(|d| d.stats.errors as f64),
    ),
    renamed(
        "deliberate_wait",
        seconds(
            "anticipation",
            "Time in which the policy in force kept the device idle in anticipation of a request",
            Read::Counter(|d| d.stats.deliberate.as_secs_f64()),
        ),
    ),
    renamed(
        "waits_begun",
        plain(
            "anticipations",
            "Times that the policy in force kept the device idle in anticipation of a request",
            Read::Counter(|d| d.waits.unwrap_or_default().begun as f64),
        ),
    ),
    renamed(
        "waits_succeeded",
        plain(
            "anticipations_succeeded",
            "Times that such a request came while the device was kept idle for it",
            Read::Counter(|d| d.waits.unwrap_or_default().succeeded as f64),
        ),
    ),
    plain(
        "profile_ratio",
        "Elapsed device time relative to what the profile gives for the same I/Os; above 1: slower",
        Read::OptionalGauge(|d| d.drift.map(|drift| drift.ratio)),
    ),
    plain(
        "profile_drifted",
        "1 for the direction in which the device deviates from its profile: slower or faster",
        Read::Gauges("device_is", |d| {
            let sides = [DriftDirection::Slower, DriftDirection::Faster];
            let parted = |drift: Drift, side| f64::from(u8::from(drift.direction == Some(side)));
            let all = d
                .drift
                .map(|drift| sides.map(|side| (side.name().to_owned(), parted(drift, side))));
            all.into_iter().flatten().collect()
        }),
    ),
    plain(
        "adapted_depth",
        "Adapted queue depth, within all bounds; absent where the depth is not adapted",
        Read::OptionalGauge(|d| d.adapted_depth.map(|adapted| f64::from(adapted.depth))),
    ),
    renamed(
        "learnt_cap_iops",
        plain(
            "estimated_cap_iops",
            "Estimated cap in front of the device, such as a cloud's, in I/Os a second; absent if \
             none is known",
            Read::OptionalGauge(|d| d.learnt_cap?.iops),
        ),
    ),
    renamed(
        "learnt_cap_bytes_per_second",
        plain(
            "estimated_cap_bytes_per_second",
            "Estimated cap in front of the device, such as a cloud's, in bytes a second; absent if \
             none is known",
            Read::OptionalGauge(|d| Some(d.learnt_cap?.bytes_per_s? as f64)),
        ),
    ),
    renamed(
        "learnt_cost",
        seconds(
            "estimated_io_cost",
            "Estimated device time of an I/O of each kind and its mean size, at full load; absent \
             while unknown",
            Read::Gauges("kind", |d| {
                // Picoseconds to seconds.
                learnt_of_kinds(d, |kind| kind.cost.time_ps / 1e12)
            }),
        ),
    ),
    renamed(
        "learnt_cost_within",
        plain(
            "estimated_io_cost_error_ratio",
            "Half the width of the 90 % confidence interval of the estimated cost, relative to it",
            Read::Gauges("kind", |d| {
                learnt_of_kinds(d, |kind| kind.cost.relative_half_width)
            }),
        ),
    ),
];

/// Returns a figure of each kind of I/O that was seen.
fn learnt_of_kinds(device: &DeviceSnapshot, get: fn(&LearntKind) -> f64) -> Vec<(String, f64)> {
    let kinds = device.learnt_costs.iter().flat_map(|learnt| &learnt.kinds);
    let seen = kinds.filter(|kind| kind.ios > 0);
    seen.map(|kind| (kind_name(kind), get(kind))).collect()
}
