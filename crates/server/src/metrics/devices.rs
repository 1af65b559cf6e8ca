//! Metrics of devices.

use tidegate_core::estimator::LearntKind;
use tidegate_core::watch::{Drift, Parting};

use super::{Metric, Read, plain, seconds};
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
        "I/Os in flight at most",
        Read::Gauge(|d| d.stats.spec.depth.into()),
    ),
    plain(
        "promises_given_way",
        "Promises that give way because the device is slower than promised; background processes \
         count as one",
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
    plain(
        "in_flight",
        "I/Os with the device now that count against its depth",
        Read::Gauge(|d| d.stats.in_flight.into()),
    ),
    plain(
        "uncounted",
        "I/Os with the device now that do not count against its depth: those of disks that hang",
        Read::Gauge(|d| d.uncounted.into()),
    ),
    seconds(
        "oldest_io",
        "Age of the oldest I/O with the device; 0 while there is none",
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
    seconds(
        "deliberate_wait",
        "Time in which the policy left room at the device unused on purpose",
        Read::Counter(|d| d.stats.deliberate.as_secs_f64()),
    ),
    plain(
        "waits_begun",
        "Times that the policy in force left the device waiting for a request that might come",
        Read::Counter(|d| d.waits.unwrap_or_default().begun as f64),
    ),
    plain(
        "waits_succeeded",
        "Deliberate waits of the policy in force that such a request ended",
        Read::Counter(|d| d.waits.unwrap_or_default().succeeded as f64),
    ),
    plain(
        "profile_ratio",
        "Elapsed device time relative to what the profile gives for the same I/Os; above 1: slower",
        Read::OptionalGauge(|d| d.drift.map(|drift| drift.ratio)),
    ),
    plain(
        "profile_drifted",
        "The side to which the device has parted from its profile has the value 1",
        Read::Gauges("device_is", |d| {
            let sides = [Parting::Slower, Parting::Faster];
            let parted = |drift: Drift, side| f64::from(u8::from(drift.parted == Some(side)));
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
    plain(
        "learnt_cap_iops",
        "Learnt cap below the device's own limit in I/Os a second; absent if none is known",
        Read::OptionalGauge(|d| d.learnt_cap?.iops),
    ),
    plain(
        "learnt_cap_bytes_per_second",
        "Learnt cap below the device's own limit in bytes a second; absent if none is known",
        Read::OptionalGauge(|d| Some(d.learnt_cap?.bytes_per_s? as f64)),
    ),
    plain(
        "learnt_cost_seconds",
        "Time of the full device that an I/O of each kind takes, of the mean size seen; absent \
         where nothing is learnt",
        Read::Gauges("kind", |d| {
            // Picoseconds to seconds.
            learnt_of_kinds(d, |kind| kind.cost.time_ps / 1e12)
        }),
    ),
    plain(
        "learnt_cost_within",
        "Half the width of the 90 % confidence interval of learnt_cost_seconds, relative to it",
        Read::Gauges("kind", |d| learnt_of_kinds(d, |kind| kind.cost.within)),
    ),
];

/// Returns a figure of each kind of I/O that was seen.
fn learnt_of_kinds(device: &DeviceSnapshot, get: fn(&LearntKind) -> f64) -> Vec<(String, f64)> {
    let kinds = device.learnt_costs.iter().flat_map(|learnt| &learnt.kinds);
    let seen = kinds.filter(|kind| kind.ios > 0);
    seen.map(|kind| (kind_name(kind), get(kind))).collect()
}
