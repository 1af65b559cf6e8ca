//! `/metrics`: everything counted, for Prometheus.
//!
//! Each metric is declared once, in one of the tables below, with its help text and its unit; a
//! test holds the operating guide against the same tables. Values come from the
//! loops' snapshots at the time of the scrape, so that counting costs the loops nothing beyond
//! what they count anyway.

mod jobs;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::estimator::LearntKind;
use tidegate_core::precision::{INTERVAL_S, MILLION};
use tidegate_core::request::{Lane, Op};
use tidegate_core::roles::Throttle;
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;
use tidegate_core::watch::{Drift, Parting};

use crate::command::{DeviceSnapshot, DiskSnapshot, VmSnapshot};
use crate::config::unenforced;
use crate::control::stats::op_name;
use crate::control::view::kind_name;

/// What `/metrics` is: OpenMetrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram bounds are powers of two nanoseconds, 2^15 (33 us) to 2^35 (34 s): they fall on
/// bounds of the histograms that are counted, so that no count lands on the wrong side.
const FIRST_BOUND: u32 = 15;
const LAST_BOUND: u32 = 35;

/// What a metric is, and how it is read of a `T`.
struct Metric<T> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    read: Read<T>,
}

/// How a metric is read; where there are several values, each with the label that tells them
/// apart.
enum Read<T> {
    Gauge(fn(&T) -> f64),
    /// Absent where there is nothing to say.
    Maybe(fn(&T) -> Option<f64>),
    Counter(fn(&T) -> f64),
    Counters(&'static str, fn(&T) -> Vec<(&'static str, f64)>),
    Gauges(&'static str, fn(&T) -> Vec<(String, f64)>),
    Histograms(
        &'static str,
        for<'a> fn(&'a T) -> Vec<(&'static str, &'a Histogram)>,
    ),
}

impl<T> Read<T> {
    fn kind(&self) -> MetricType {
        match self {
            Read::Gauge(_) | Read::Maybe(_) | Read::Gauges(..) => MetricType::Gauge,
            Read::Counter(_) | Read::Counters(..) => MetricType::Counter,
            Read::Histograms(..) => MetricType::Histogram,
        }
    }
}

const fn plain<T>(name: &'static str, help: &'static str, read: Read<T>) -> Metric<T> {
    Metric {
        name,
        help,
        unit: None,
        read,
    }
}

const fn seconds<T>(name: &'static str, help: &'static str, read: Read<T>) -> Metric<T> {
    Metric {
        name,
        help,
        unit: Some(Unit::Seconds),
        read,
    }
}

const fn bytes<T>(name: &'static str, help: &'static str, read: Read<T>) -> Metric<T> {
    Metric {
        name,
        help,
        unit: Some(Unit::Bytes),
        read,
    }
}

static OF_DEVICE: &[Metric<DeviceSnapshot>] = &[
    plain(
        "policy",
        "The policy in force has the value 1",
        Read::Gauges("policy", |d| vec![(d.policy.name().to_owned(), 1.0)]),
    ),
    plain(
        "depth",
        "I/Os in flight at most",
        Read::Gauge(|d| d.facts.spec.depth.into()),
    ),
    plain(
        "in_flight",
        "I/Os with the device now",
        Read::Gauge(|d| d.facts.in_flight.into()),
    ),
    plain(
        "queued",
        "Units waiting for the device now",
        Read::Gauge(|d| d.facts.queued.into()),
    ),
    plain(
        "requests",
        "Guest requests inside the engine now, waiting or in flight",
        Read::Gauge(|d| d.facts.requests.into()),
    ),
    plain(
        "started",
        "I/Os handed to the device",
        Read::Counter(|d| d.facts.started as f64),
    ),
    plain(
        "ended",
        "I/Os that ended",
        Read::Counter(|d| d.facts.ended as f64),
    ),
    plain(
        "errors",
        "I/Os that failed",
        Read::Counter(|d| d.facts.errors as f64),
    ),
    seconds(
        "deliberate_wait",
        "Time in which the policy left room at the device unused on purpose",
        Read::Counter(|d| d.facts.deliberate.as_secs_f64()),
    ),
    plain(
        "waits_begun",
        "How often the policy in force left the device waiting for a request that might come",
        Read::Counter(|d| d.waits.unwrap_or_default().begun as f64),
    ),
    plain(
        "waits_succeeded",
        "Those of them that such a request ended",
        Read::Counter(|d| d.waits.unwrap_or_default().succeeded as f64),
    ),
    plain(
        "profile_ratio",
        "Time that passed by the time that the profile gives for what was done; above 1: slower",
        Read::Maybe(|d| d.drift.map(|drift| drift.ratio)),
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
        "I/Os in flight that were found to be enough for its throughput; absent where none are looked for",
        Read::Maybe(|d| d.adapted_depth.map(f64::from)),
    ),
    plain(
        "learnt_cap_iops",
        "I/Os a second that something in front of the device lets pass; absent where nothing is known",
        Read::Maybe(|d| d.learnt_cap?.iops),
    ),
    plain(
        "learnt_cap_bytes_per_second",
        "Bytes a second that something in front of the device lets pass; absent where nothing is known",
        Read::Maybe(|d| Some(d.learnt_cap?.bytes_per_s? as f64)),
    ),
    plain(
        "learnt_cost_seconds",
        "Time of the full device that an I/O of each kind takes, of the mean size seen; absent where nothing is learnt",
        Read::Gauges("kind", |d| {
            learnt_of_kinds(d, |kind| kind.cost.time_ps / 1e12)
        }),
    ),
    plain(
        "learnt_cost_within",
        "Half the width of its 90 % interval, in parts of it",
        Read::Gauges("kind", |d| learnt_of_kinds(d, |kind| kind.cost.within)),
    ),
];

/// A figure of each kind of I/O that was seen.
fn learnt_of_kinds(device: &DeviceSnapshot, get: fn(&LearntKind) -> f64) -> Vec<(String, f64)> {
    let kinds = device.learnt_costs.iter().flat_map(|learnt| &learnt.kinds);
    let seen = kinds.filter(|kind| kind.ios > 0);
    seen.map(|kind| (kind_name(kind), get(kind))).collect()
}

static OF_VM: &[Metric<VmSnapshot>] = &[
    plain(
        "clients",
        "Connected clients",
        Read::Gauge(|vm| vm.clients.into()),
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
        "disks_failed",
        "Disks that refuse requests because their backing failed",
        Read::Gauge(|vm| vm.disks.iter().filter(|disk| disk.failed.is_some()).count() as f64),
    ),
    plain(
        "unenforced",
        "Parts of the objective that the policy in force does not enforce have the value 1",
        Read::Gauges("part", |vm| {
            let parts = unenforced(&vm.objective, &vm.honours, vm.background);
            parts
                .into_iter()
                .map(|part| (part.part.to_owned(), 1.0))
                .collect()
        }),
    ),
    plain(
        "operations",
        "Guest requests that ended well",
        Read::Counters("operation", |vm| by_op(vm, |vm, op| vm.stats.op(op).ops)),
    ),
    plain(
        "failures",
        "Guest requests that failed",
        Read::Counters("operation", |vm| by_op(vm, |vm, op| vm.stats.op(op).errors)),
    ),
    bytes(
        "transferred",
        "Bytes of guest requests that ended well",
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
        "Guest requests that joined a waiting one",
        Read::Counter(|vm| vm.stats.merged as f64),
    ),
    plain(
        "split",
        "Device I/Os beyond the first that guest requests were split into",
        Read::Counter(|vm| vm.stats.split as f64),
    ),
    plain(
        "cancelled",
        "Guest requests whose client vanished before they started",
        Read::Counter(|vm| vm.stats.cancelled as f64),
    ),
    plain(
        "precision_error_ratio",
        "B: by how much the bandwidth of the last five minutes is above the target, relative to it; absent \
         without a target in bytes a second",
        Read::Maybe(|vm| Some(ratio(vm.precision(INTERVAL_S).error? as f64))),
    ),
    plain(
        "precision_absolute_error_ratio",
        "Beta: the mean of |B| over intervals of 30 s in which the VM had something outstanding",
        Read::Maybe(|vm| Some(ratio(vm.precision(INTERVAL_S).absolute_error? as f64))),
    ),
    plain(
        "precision_variability_ratio",
        "V: how far its seconds of the last five minutes are off their mean on average, relative to it; \
         absent where nothing moved",
        Read::Maybe(|vm| Some(ratio(vm.precision(INTERVAL_S).variability? as f64))),
    ),
    plain(
        "inadequate",
        "1 where the VM asks for its target and the device does not do it; absent where nothing tunes it",
        Read::Maybe(|vm| Some(f64::from(u8::from(vm.tuning?.inadequate.is_some())))),
    ),
    plain(
        "inadequate_bytes_per_second",
        "What the VM had of late, where that is less than its target because the device does not do more",
        Read::Maybe(|vm| Some(vm.tuning?.inadequate?.bytes_per_s as f64)),
    ),
    plain(
        "tuning_aim_bytes_per_second",
        "What the VM's tuner aims at, so that its target comes out",
        Read::Maybe(|vm| Some(vm.tuning?.aim? as f64)),
    ),
    bytes(
        "tuning_merge_limit",
        "The largest device I/O that the VM's tuner lets it have now",
        Read::Maybe(|vm| Some(vm.tuning?.merge_limit?.into())),
    ),
    plain(
        "tuning_throttle_bytes_per_second",
        "How fast the VM's I/Os may follow each other; absent while nothing but its merge limit holds it",
        Read::Maybe(|vm| match vm.tuning?.throttle {
            Throttle::Exactly(bytes) | Throttle::AtMost(bytes) => Some(bytes as f64),
            Throttle::Off | Throttle::Ios(_) => None,
        }),
    ),
    plain(
        "tuning_throttle_iops",
        "How many device I/Os a second the VM may have; absent where its target names none",
        Read::Maybe(|vm| match vm.tuning?.throttle {
            Throttle::Ios(thousandths) => Some(thousandths as f64 / 1000.0),
            Throttle::Off | Throttle::Exactly(_) | Throttle::AtMost(_) => None,
        }),
    ),
    seconds(
        "tuning_window",
        "How long each action of the VM's tuner holds",
        Read::Maybe(|vm| Some(vm.tuning?.window.as_secs_f64())),
    ),
    plain(
        "tuning_settled",
        "1 where the VM's tuner looks for no better window",
        Read::Maybe(|vm| Some(f64::from(u8::from(vm.tuning?.settled)))),
    ),
    plain(
        "tuning_range_bytes_per_second",
        "The bandwidths at one page an I/O and at the best merge limit, where they were measured: no more \
         than the highest can be promised",
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
        "Where the time of guest requests went: regulated (own limit or credits), queued (others were \
         served), merged (with another request), deliberate (room left unused), device",
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
];

static OF_DISK: &[Metric<DiskSnapshot>] = &[
    plain(
        "fault_rules",
        "Rules by which the disk misbehaves on purpose",
        Read::Gauge(|disk| disk.faults.len() as f64),
    ),
    plain(
        "faults_injected",
        "Guest requests that such a rule has struck",
        Read::Counter(|disk| disk.faults_injected as f64),
    ),
];

/// Of millionths.
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

/// Everything, as OpenMetrics text.
pub(crate) fn render(devices: Vec<DeviceSnapshot>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshots(devices)));
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Snapshots(Vec<DeviceSnapshot>);

impl Collector for Snapshots {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in OF_DEVICE {
            encode_all(
                &mut encoder,
                "device",
                metric,
                self.0
                    .iter()
                    .map(|device| (vec![("device", device.name.clone())], device)),
            )?;
        }
        for metric in OF_VM.iter().chain(jobs::OF_VM) {
            encode_all(
                &mut encoder,
                "vm",
                metric,
                self.0.iter().flat_map(|device| {
                    device.vms.iter().map(|vm| {
                        (
                            vec![("vm", vm.name.clone()), ("device", device.name.clone())],
                            vm,
                        )
                    })
                }),
            )?;
        }
        for metric in OF_DISK {
            let vms = self.0.iter().flat_map(|device| &device.vms);
            let disks = vms.flat_map(|vm| {
                vm.disks.iter().map(|disk| {
                    let labels = vec![
                        ("export", disk.export.clone()),
                        ("vm", vm.name.clone()),
                        ("device", vm.device.clone()),
                    ];
                    (labels, disk)
                })
            });
            encode_all(&mut encoder, "disk", metric, disks)?;
        }
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

fn encode_all<'a, T: 'a>(
    encoder: &mut DescriptorEncoder,
    of: &str,
    metric: &Metric<T>,
    all: impl Iterator<Item = (Labels, &'a T)>,
) -> fmt::Result {
    let name = format!("tidegate_{of}_{}", metric.name);
    let (unit, kind) = (metric.unit.as_ref(), metric.read.kind());
    let mut encoder = encoder.encode_descriptor(&name, metric.help, unit, kind)?;
    for (labels, one) in all {
        let with = |name: &'static str, value: &str| {
            labels
                .iter()
                .cloned()
                .chain([(name, value.to_owned())])
                .collect::<Labels>()
        };
        match &metric.read {
            Read::Gauge(read) => encoder.encode_family(&labels)?.encode_gauge(&read(one))?,
            Read::Maybe(read) => {
                if let Some(number) = read(one) {
                    encoder.encode_family(&labels)?.encode_gauge(&number)?;
                }
            }
            Read::Counter(read) => encode_counter(encoder.encode_family(&labels)?, read(one))?,
            Read::Gauges(label, read) => {
                for (value, number) in read(one) {
                    encoder
                        .encode_family(&with(label, &value))?
                        .encode_gauge(&number)?;
                }
            }
            Read::Counters(label, read) => {
                for (value, number) in read(one) {
                    encode_counter(encoder.encode_family(&with(label, value))?, number)?;
                }
            }
            Read::Histograms(label, read) => {
                for (value, histogram) in read(one) {
                    encode_histogram(encoder.encode_family(&with(label, value))?, histogram)?;
                }
            }
        }
    }
    Ok(())
}

fn encode_counter(mut encoder: MetricEncoder, value: f64) -> fmt::Result {
    encoder.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>)
}

fn encode_histogram(mut encoder: MetricEncoder, histogram: &Histogram) -> fmt::Result {
    let sum = histogram.sum().as_secs_f64();
    encoder.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets(histogram), None)
}

/// Upper bounds in seconds and what lies between each and the one before.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = (FIRST_BOUND..=LAST_BOUND)
        .map(|shift| (Nanos(1 << shift).as_secs_f64(), 0))
        .chain([(f64::INFINITY, 0)])
        .collect();
    let last = buckets.len() - 1;
    for (upper, count) in histogram.iter() {
        // The first bound that is not below this bucket's.
        let shift = u64::BITS - upper.0.saturating_sub(1).leading_zeros();
        let index = shift.saturating_sub(FIRST_BOUND) as usize;
        buckets[index.min(last)].1 += count;
    }
    buckets
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::control::tests::snapshot;

    #[test]
    fn every_metric_is_declared_once_with_help_and_said_for_every_vm() {
        let text = render(vec![
            snapshot("disk0", &["oltp", "bulk"]),
            snapshot("disk1", &["dss"]),
        ]);
        assert!(text.ends_with("# EOF\n"), "{text}");
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        let declared = OF_DEVICE.len() + OF_VM.len() + jobs::OF_VM.len() + OF_DISK.len();
        assert_eq!(names.len(), declared);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), declared, "a metric is there twice");
        for line in [
            "tidegate_device_policy{device=\"disk0\",policy=\"mclock\"} 1.0",
            "tidegate_vm_operations_total{vm=\"bulk\",device=\"disk0\",operation=\"write\"} 0.0",
            "tidegate_vm_unenforced{vm=\"oltp\",device=\"disk0\",part=\"latency\"} 1.0",
            "# UNIT tidegate_vm_queue_time_seconds seconds",
            "tidegate_vm_jobs_ended_total{vm=\"bulk\",device=\"disk0\",outcome=\"missed\"} 0.0",
            "tidegate_disk_fault_rules{export=\"dss\",vm=\"dss\",device=\"disk1\"} 0.0",
            "tidegate_disk_faults_injected_total{export=\"oltp\",vm=\"oltp\",device=\"disk0\"} 0.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_operating_guide_names_every_metric() {
        let guide = include_str!("../../../docs/operating.md");
        let of_device = OF_DEVICE.iter().map(|m| ("device", m.name));
        let of_disk = OF_DISK.iter().map(|m| ("disk", m.name));
        let of_vm = OF_VM.iter().chain(jobs::OF_VM).map(|m| ("vm", m.name));
        for (of, name) in of_device.chain(of_vm).chain(of_disk) {
            let name = format!("tidegate_{of}_{name}");
            assert!(
                guide.contains(&name),
                "docs/operating.md does not name {name}"
            );
        }
    }

    #[test]
    fn no_time_is_counted_below_a_bound_it_exceeds() {
        let mut histogram = Histogram::default();
        for nanos in [1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 36] {
            histogram.record(Nanos(nanos));
        }
        let buckets = buckets(&histogram);
        let at = |shift: u32| buckets[(shift - FIRST_BOUND) as usize].1;
        assert_eq!((at(FIRST_BOUND), at(20), at(21)), (1, 1, 2));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 1)));
        assert_eq!(
            buckets.iter().map(|(_, n)| n).sum::<u64>(),
            histogram.count()
        );
    }
}
