//! `/metrics`: counters and gauges in OpenMetrics text, for Prometheus.
//!
//! Each metric is declared once, in one of the tables below, with its help text and its unit; a
//! test compares the operating guide with the tables. Values come from snapshots of the event loops
//! at the time of the scrape, so metrics cost the loops nothing beyond the counting itself.

mod devices;
mod handshakes;
mod promises;
mod schedules;
mod transfers;
mod vms;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;

use crate::command::{DeviceSnapshot, DiskSnapshot};
use crate::media::State;
use crate::reception::HandshakeCounts;
use devices::DEVICE_METRICS;
pub(crate) use schedules::Scheduled;
use vms::VM_METRICS;

/// Content type of the answer: OpenMetrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Exponents of the first and last bound of exported histograms, in powers of two nanoseconds: 2^15
/// (33 us) to 2^35 (34 s). They coincide with bounds of the internal histograms, so that no count
/// lands on the wrong side.
const FIRST_BOUND: u32 = 15;
const LAST_BOUND: u32 = 35;

/// Declaration of a metric whose values are read from a `T`.
struct Metric<T> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    read: Read<T>,
}

/// Type of a metric and function that reads its value; where there are several values, each has the
/// label that distinguishes it.
enum Read<T> {
    Gauge(fn(&T) -> f64),
    /// Gauge that is absent while it has no value.
    OptionalGauge(fn(&T) -> Option<f64>),
    Counter(fn(&T) -> f64),
    Counters(&'static str, fn(&T) -> Vec<(&'static str, f64)>),
    Gauges(&'static str, fn(&T) -> Vec<(String, f64)>),
    Histogram(fn(&T) -> &Histogram),
    Histograms(
        &'static str,
        for<'a> fn(&'a T) -> Vec<(&'static str, &'a Histogram)>,
    ),
}

impl<T> Read<T> {
    fn kind(&self) -> MetricType {
        match self {
            Read::Gauge(_) | Read::OptionalGauge(_) | Read::Gauges(..) => MetricType::Gauge,
            Read::Counter(_) | Read::Counters(..) => MetricType::Counter,
            Read::Histogram(_) | Read::Histograms(..) => MetricType::Histogram,
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

static DISK_METRICS: &[Metric<DiskSnapshot>] = &[
    plain(
        "media",
        "The state of the disk's file has the value 1",
        Read::Gauges("state", |disk| {
            let is = disk.media.into_iter();
            let all =
                is.flat_map(|is| State::ALL.map(|state| (state, f64::from(u8::from(state == is)))));
            all.map(|(state, one)| (state.name().to_owned(), one))
                .collect()
        }),
    ),
    plain(
        "fault_rules",
        "Fault rules of the disk",
        Read::Gauge(|disk| disk.faults.len() as f64),
    ),
    plain(
        "faults_injected",
        "Guest requests that a fault rule has struck",
        Read::Counter(|disk| disk.faults_injected as f64),
    ),
    seconds(
        "oldest_io",
        "Age of the disk's oldest I/O with the device; 0 while it has none there",
        Read::Gauge(|disk| disk.oldest_io.unwrap_or_default().as_secs_f64()),
    ),
    plain(
        "hung",
        "1 while the disk hangs: its I/Os do not end although those of other disks do; it gets one \
         I/O at a time",
        Read::Gauge(|disk| disk.hung.map_or(0.0, |_| 1.0)),
    ),
];

static BUILD_METRICS: &[Metric<()>] = &[plain(
    "info",
    "The version of the running daemon has the value 1",
    Read::Gauges("version", |()| {
        vec![(env!("CARGO_PKG_VERSION").to_owned(), 1.0)]
    }),
)];

/// Renders all metrics as OpenMetrics text.
pub(crate) fn render(
    devices: Vec<DeviceSnapshot>,
    scheduled: Vec<Scheduled>,
    handshakes: HandshakeCounts,
) -> String {
    // A registry per scrape, because the collector owns the snapshots.
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshots {
        devices,
        scheduled,
        handshakes,
    }));
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Snapshots {
    devices: Vec<DeviceSnapshot>,
    scheduled: Vec<Scheduled>,
    handshakes: HandshakeCounts,
}

impl Collector for Snapshots {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in DEVICE_METRICS {
            encode_all(
                &mut encoder,
                "device",
                metric,
                self.devices
                    .iter()
                    .map(|device| (vec![("device", device.name.clone())], device)),
            )?;
        }
        for metric in VM_METRICS
            .iter()
            .chain(promises::VM_METRICS)
            .chain(transfers::VM_METRICS)
        {
            encode_all(
                &mut encoder,
                "vm",
                metric,
                self.devices.iter().flat_map(|device| {
                    device.vms.iter().map(|vm| {
                        (
                            vec![("vm", vm.name.clone()), ("device", device.name.clone())],
                            vm,
                        )
                    })
                }),
            )?;
        }
        for metric in schedules::VM_METRICS {
            let all = self.scheduled.iter().map(|vm| {
                let labels = vec![("vm", vm.vm.clone()), ("device", vm.device.clone())];
                (labels, vm)
            });
            encode_all(&mut encoder, "vm", metric, all)?;
        }
        for metric in DISK_METRICS {
            let vms = self.devices.iter().flat_map(|device| &device.vms);
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
        for metric in BUILD_METRICS {
            encode_all(
                &mut encoder,
                "build",
                metric,
                [(Labels::new(), &())].into_iter(),
            )?;
        }
        for metric in handshakes::HANDSHAKE_METRICS {
            let daemon = std::iter::once((Labels::new(), &self.handshakes));
            encode_all(&mut encoder, "handshakes", metric, daemon)?;
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
            // `encode_family` without labels would write empty braces.
            Read::Gauge(read) if labels.is_empty() => encoder.encode_gauge(&read(one))?,
            Read::Gauge(read) => encoder.encode_family(&labels)?.encode_gauge(&read(one))?,
            Read::OptionalGauge(read) => {
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
            Read::Histogram(read) => {
                encode_histogram(encoder.encode_family(&labels)?, read(one))?;
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

/// Returns the upper bounds in seconds, each with the count between it and the bound before.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = (FIRST_BOUND..=LAST_BOUND)
        .map(|shift| (Nanos(1 << shift).as_secs_f64(), 0))
        .chain([(f64::INFINITY, 0)])
        .collect();
    let last = buckets.len() - 1;
    for (upper, count) in histogram.iter() {
        // Exponent of the smallest exported bound that is not below this bucket's upper end.
        let shift = u64::BITS - upper.0.saturating_sub(1).leading_zeros();
        let index = shift.saturating_sub(FIRST_BOUND) as usize;
        buckets[index.min(last)].1 += count;
    }
    buckets
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::command::sample::snapshot;

    #[test]
    fn every_metric_is_declared_once_with_help_and_said_for_every_vm() {
        let devices = vec![
            snapshot("disk0", &["oltp", "bulk"]),
            snapshot("disk1", &["dss"]),
        ];
        let scheduled = [("oltp", false), ("bulk", true)].map(|(vm, held)| Scheduled {
            vm: vm.to_owned(),
            device: "disk0".to_owned(),
            held,
        });
        let handshakes = HandshakeCounts {
            half_open: 3,
            displaced_by_peer: 4,
            ..HandshakeCounts::default()
        };
        let text = render(devices, scheduled.into(), handshakes);
        assert!(text.ends_with("# EOF\n"), "{text}");
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        let of_vm = VM_METRICS.len() + promises::VM_METRICS.len() + transfers::VM_METRICS.len();
        let of_vm = of_vm + schedules::VM_METRICS.len() + BUILD_METRICS.len();
        let of_daemon = handshakes::HANDSHAKE_METRICS.len();
        let declared = DEVICE_METRICS.len() + of_vm + DISK_METRICS.len() + of_daemon;
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
            "tidegate_vm_schedule_held{vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_vm_schedule_held{vm=\"bulk\",device=\"disk0\"} 1.0",
            "tidegate_handshakes_half_open 3.0",
            "tidegate_handshakes_ended_total{why=\"displaced_by_peer\"} 4.0",
            "tidegate_vm_max_connections{vm=\"oltp\",device=\"disk0\"} 64.0",
            "tidegate_vm_connections_refused_total{vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_disk_fault_rules{export=\"dss\",vm=\"dss\",device=\"disk1\"} 0.0",
            "tidegate_disk_faults_injected_total{export=\"oltp\",vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_disk_oldest_io_seconds{export=\"oltp\",vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_device_oldest_io_seconds{device=\"disk0\"} 0.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_documentation_names_every_metric() {
        let guide = include_str!("../../../docs/monitoring.md");
        let of_device = DEVICE_METRICS.iter().map(|m| ("device", m.name));
        let of_disk = DISK_METRICS.iter().map(|m| ("disk", m.name));
        let of_vm = VM_METRICS
            .iter()
            .chain(promises::VM_METRICS)
            .chain(transfers::VM_METRICS);
        let of_vm = of_vm.map(|m| ("vm", m.name));
        let of_vm = of_vm.chain(BUILD_METRICS.iter().map(|m| ("build", m.name)));
        let of_schedule = schedules::VM_METRICS.iter().map(|m| ("vm", m.name));
        let of_daemon = handshakes::HANDSHAKE_METRICS
            .iter()
            .map(|m| ("handshakes", m.name));
        let all = (of_device.chain(of_vm).chain(of_schedule)).chain(of_disk.chain(of_daemon));
        for (of, name) in all {
            let name = format!("tidegate_{of}_{name}");
            assert!(
                guide.contains(&name),
                "docs/monitoring.md does not name {name}"
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
