//! `/metrics`: counters and gauges for Prometheus, in OpenMetrics text or its own text format.
//!
//! Each metric is declared once, in one of the tables below, with its help text and its unit; a
//! test compares the operating guide with the tables. Values come from snapshots of the event loops
//! at the time of the scrape, so metrics cost the loops nothing beyond the counting itself.

mod cluster;
mod devices;
mod exchange;
mod exposition;
mod handshakes;
mod history;
mod promises;
mod schedules;
mod transfers;
mod vms;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;

use crate::command::{DeviceSnapshot, DiskSnapshot};
use crate::disk_file_monitor::State;
use crate::history::Status;
use crate::listener::HandshakeCounts;
use crate::membership::MembershipStatus;
use crate::sandbox;
use crate::timekeeping::{CONTROL_STALLS, JUMPS, LOOP_STALLS};
use devices::DEVICE_METRICS;
pub(crate) use exposition::Exposition;
pub(crate) use schedules::Scheduled;
use vms::VM_METRICS;

/// Exponents of the first and last bound of exported histograms, in powers of two nanoseconds: 2^15
/// (33 us) to 2^35 (34 s). They coincide with bounds of the internal histograms, so that no count
/// lands on the wrong side.
const FIRST_BOUND: u32 = 15;
const LAST_BOUND: u32 = 35;

/// Declaration of a metric whose values are read from a `T`.
struct Metric<T> {
    name: &'static str,
    /// Name until this release, under which the metric is still exported; the next release drops
    /// it.
    formerly: Option<&'static str>,
    /// Values of the label that had another name then: each with its old name.
    old_values: &'static [(&'static str, &'static str)],
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
        formerly: None,
        old_values: &[],
        help,
        unit: None,
        read,
    }
}

const fn seconds<T>(name: &'static str, help: &'static str, read: Read<T>) -> Metric<T> {
    Metric {
        name,
        formerly: None,
        old_values: &[],
        help,
        unit: Some(Unit::Seconds),
        read,
    }
}

const fn bytes<T>(name: &'static str, help: &'static str, read: Read<T>) -> Metric<T> {
    Metric {
        name,
        formerly: None,
        old_values: &[],
        help,
        unit: Some(Unit::Bytes),
        read,
    }
}

/// Adds the name that a metric had until this release.
const fn renamed<T>(formerly: &'static str, mut metric: Metric<T>) -> Metric<T> {
    metric.formerly = Some(formerly);
    metric
}

/// Adds the name that a metric had until this release, with the values that its label had then.
const fn relabelled<T>(
    formerly: &'static str,
    old_values: &'static [(&'static str, &'static str)],
    metric: Metric<T>,
) -> Metric<T> {
    let mut metric = renamed(formerly, metric);
    metric.old_values = old_values;
    metric
}

static DISK_METRICS: &[Metric<DiskSnapshot>] = &[
    plain(
        "media",
        "1 for the state of the disk's file: whole, gone, shrunk or replaced",
        Read::Gauges("state", |disk| {
            let is = disk.media.into_iter();
            let all =
                is.flat_map(|is| State::ALL.map(|state| (state, f64::from(u8::from(state == is)))));
            all.map(|(state, one)| (state.name().to_owned(), one))
                .collect()
        }),
    ),
    plain(
        "inactive",
        "1 while the disk is not served: incoming, handed over or locked by another process",
        Read::Gauge(|disk| {
            let refusal = disk.activation.and_then(|state| state.refusal());
            f64::from(u8::from(refusal.is_some()))
        }),
    ),
    plain(
        "fault_rules",
        "Fault rules of the disk",
        Read::Gauge(|disk| disk.faults.len() as f64),
    ),
    plain(
        "faults_injected",
        "Guest requests that a fault rule failed, delayed or tore",
        Read::Counter(|disk| disk.faults_injected as f64),
    ),
    plain(
        "bounced",
        "I/Os copied through a bounce buffer: range or memory not aligned for direct I/O",
        Read::Counter(|disk| disk.bounced as f64),
    ),
    seconds(
        "oldest_io",
        "Age of the disk's oldest I/O in flight; 0 while there is none",
        Read::Gauge(|disk| disk.oldest_io.unwrap_or_default().as_secs_f64()),
    ),
    plain(
        "hung",
        "1 while the disk hangs: none of its I/Os ends although those of other disks do",
        Read::Gauge(|disk| disk.hung.map_or(0.0, |_| 1.0)),
    ),
];

static BUILD_METRICS: &[Metric<()>] = &[plain(
    "info",
    "1, with the version of the running daemon",
    Read::Gauges("version", |()| {
        vec![(env!("CARGO_PKG_VERSION").to_owned(), 1.0)]
    }),
)];

static SANDBOX_METRICS: &[Metric<()>] = &[plain(
    "violations",
    "System calls of confined threads that the sandbox refused; any is a bug or an attack",
    Read::Counter(|()| sandbox::count() as f64),
)];

static TIME_METRICS: &[Metric<()>] = &[
    plain(
        "stalls",
        "Times that a timer came a second late or more, by the thread that it was for, over all \
         loops: the machine was paused or overloaded, the process was stopped, or a call of the \
         thread blocked; a suspended machine counts for the control thread alone",
        Read::Counters("thread", |()| {
            let all = [("control", &CONTROL_STALLS), ("loop", &LOOP_STALLS)];
            all.map(|(thread, stalls)| (thread, stalls.times() as f64))
                .into()
        }),
    ),
    seconds(
        "stalled",
        "Time by which those timers came late",
        Read::Counters("thread", |()| {
            let all = [("control", &CONTROL_STALLS), ("loop", &LOOP_STALLS)];
            all.map(|(thread, stalls)| (thread, stalls.length().as_secs_f64()))
                .into()
        }),
    ),
    plain(
        "clock_jumps",
        "Times that the wall clock jumped by a second or more, against the time since the machine \
         started",
        Read::Counter(|()| JUMPS.times() as f64),
    ),
];

/// Renders all metrics as OpenMetrics text.
pub(crate) fn render(
    devices: Vec<impl Into<Arc<DeviceSnapshot>>>,
    scheduled: Vec<Scheduled>,
    handshakes: HandshakeCounts,
    history: Option<Status>,
    membership: Option<MembershipStatus>,
) -> String {
    // A registry per scrape, because the collector owns the snapshots.
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshots {
        devices: devices.into_iter().map(Into::into).collect(),
        scheduled,
        handshakes,
        history,
        membership,
    }));
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Snapshots {
    devices: Vec<Arc<DeviceSnapshot>>,
    scheduled: Vec<Scheduled>,
    handshakes: HandshakeCounts,
    /// State of the history; `None` if it is turned off.
    history: Option<Status>,
    /// Membership in a cluster; `None` for a daemon that joins none.
    membership: Option<MembershipStatus>,
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
                    .map(|device| (vec![("device", device.name.clone())], &**device)),
            )?;
        }
        for metric in exchange::EXCHANGE_METRICS {
            let arrays = self.devices.iter().filter_map(|device| {
                let exchange = device.exchange.as_ref()?;
                let labels = vec![
                    ("array", exchange.array.clone()),
                    ("device", device.name.clone()),
                ];
                Some((labels, exchange))
            });
            encode_all(&mut encoder, "exchange", metric, arrays)?;
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
        self.encode_daemon(&mut encoder)
    }
}

impl Snapshots {
    /// Encodes metrics of the daemon as a whole.
    fn encode_daemon(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (of, metrics) in [
            ("build", BUILD_METRICS),
            ("sandbox", SANDBOX_METRICS),
            ("time", TIME_METRICS),
        ] {
            for metric in metrics {
                let daemon = std::iter::once((Labels::new(), &()));
                encode_all(encoder, of, metric, daemon)?;
            }
        }
        for metric in handshakes::HANDSHAKE_METRICS {
            let daemon = std::iter::once((Labels::new(), &self.handshakes));
            encode_all(encoder, "handshakes", metric, daemon)?;
        }
        for metric in history::HISTORY_METRICS {
            let daemon = self.history.iter().map(|status| (Labels::new(), status));
            encode_all(encoder, "history", metric, daemon)?;
        }
        for metric in cluster::CLUSTER_METRICS {
            let daemon = self.membership.iter().map(|status| (Labels::new(), status));
            encode_all(encoder, "cluster", metric, daemon)?;
        }
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

/// Name and help text that a metric is exported with.
struct Naming<'a> {
    /// Name without the suffix for the unit.
    name: &'a str,
    help: &'a str,
    /// Values of the label to be replaced, each with its replacement.
    values: &'static [(&'static str, &'static str)],
}

fn encode_all<'a, T: 'a>(
    encoder: &mut DescriptorEncoder,
    of: &str,
    metric: &Metric<T>,
    all: impl Iterator<Item = (Labels, &'a T)> + Clone,
) -> fmt::Result {
    let name = format!("tidegate_{of}_{}", metric.name);
    let naming = Naming {
        name: &name,
        help: metric.help,
        values: &[],
    };
    encode_as(encoder, &naming, metric, all.clone())?;
    let Some(formerly) = metric.formerly else {
        return Ok(());
    };
    let unit = metric.unit.as_ref();
    let suffix = unit.map_or_else(String::new, |unit| format!("_{}", unit.as_str()));
    let naming = Naming {
        name: &format!("tidegate_{of}_{formerly}"),
        help: &format!("deprecated: use {name}{suffix}"),
        values: metric.old_values,
    };
    encode_as(encoder, &naming, metric, all)
}

fn encode_as<'a, T: 'a>(
    encoder: &mut DescriptorEncoder,
    naming: &Naming<'_>,
    metric: &Metric<T>,
    all: impl Iterator<Item = (Labels, &'a T)>,
) -> fmt::Result {
    let (unit, kind) = (metric.unit.as_ref(), metric.read.kind());
    let mut encoder = encoder.encode_descriptor(naming.name, naming.help, unit, kind)?;
    for (labels, one) in all {
        let with = |label: &'static str, value: &str| {
            let replaced = naming.values.iter().find(|(now, _)| *now == value);
            let value = replaced.map_or(value, |(_, old)| old);
            let labels = labels.iter().cloned();
            labels
                .chain([(label, value.to_owned())])
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
            Read::Counter(read) if labels.is_empty() => {
                encoder.encode_counter(&read(one), None::<&Exemplar<NoLabelSet, f64>>)?;
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
    debug_assert_eq!(
        buckets.iter().map(|(_, count)| count).sum::<u64>(),
        histogram.count(),
        "the buckets' sum is the count that is exported beside them"
    );
    buckets
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::command::sample_snapshot::snapshot;
    use crate::history::FilesState;
    use crate::membership::Membership;
    use std::collections::BTreeMap;

    /// Returns the name of each metric without its unit's suffix, and its deprecated name.
    fn declared() -> Vec<(String, Option<&'static str>)> {
        fn names<T>(
            of: &'static str,
            metrics: &[Metric<T>],
        ) -> Vec<(String, Option<&'static str>)> {
            let name = |metric: &Metric<T>| format!("tidegate_{of}_{}", metric.name);
            metrics.iter().map(|m| (name(m), m.formerly)).collect()
        }
        [
            names("device", DEVICE_METRICS),
            names("exchange", exchange::EXCHANGE_METRICS),
            names("vm", VM_METRICS),
            names("vm", promises::VM_METRICS),
            names("vm", transfers::VM_METRICS),
            names("vm", schedules::VM_METRICS),
            names("disk", DISK_METRICS),
            names("build", BUILD_METRICS),
            names("sandbox", SANDBOX_METRICS),
            names("time", TIME_METRICS),
            names("handshakes", handshakes::HANDSHAKE_METRICS),
            names("history", history::HISTORY_METRICS),
            names("cluster", cluster::CLUSTER_METRICS),
        ]
        .concat()
    }

    #[test]
    fn a_deprecated_name_has_the_values_of_its_metric() {
        let text = render(
            vec![snapshot("disk0", &["oltp"])],
            vec![Scheduled {
                vm: "oltp".to_owned(),
                device: "disk0".to_owned(),
                held: true,
            }],
            HandshakeCounts::default(),
            None,
            None,
        );
        let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
        let renamed: BTreeMap<&str, &str> = helps
            .filter_map(|help| {
                let (old, now) = help.split_once(" deprecated: use ")?;
                Some((old, now.trim_end_matches('.')))
            })
            .collect();
        let formerly = declared().into_iter().filter(|(_, old)| old.is_some());
        assert_eq!(renamed.len(), formerly.count(), "{renamed:?}");
        let samples = |name: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            lines
                .filter(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_total"))
                .map(str::to_owned)
                .collect()
        };
        let values = VM_METRICS.iter().flat_map(|metric| metric.old_values);
        for (old, now) in renamed {
            assert!(text.contains(&format!("# TYPE {now} ")), "{old} {now}");
            let mut expected = samples(now);
            if old == "tidegate_vm_spent_seconds" {
                for sample in &mut expected {
                    for (now, old) in values.clone() {
                        *sample = sample.replace(&format!("\"{now}\""), &format!("\"{old}\""));
                    }
                }
                assert_eq!(expected.len(), 5, "causes");
            }
            assert_eq!(samples(old), expected, "{old} {now}");
        }
    }

    fn failing_history() -> Status {
        Status {
            oldest_fine_ms: None,
            oldest_ms: Some(1000),
            memory_bytes: 5000,
            delayed: 2,
            files: Some(FilesState {
                bytes: 7000,
                failing: Some("no space left".to_owned()),
                dropped: 3,
                ..FilesState::default()
            }),
        }
    }

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
        let history = failing_history();
        let membership = Some(Membership::new("a").status());
        let text = render(
            devices,
            scheduled.into(),
            handshakes,
            Some(history),
            membership,
        );
        assert!(text.ends_with("# EOF\n"), "{text}");
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        let all = declared();
        let old = all.iter().filter(|(_, old)| old.is_some()).count();
        let declared = all.len() + old;
        assert_eq!(names.len(), declared);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), declared, "a metric is there twice");
        for line in [
            "tidegate_device_policy{device=\"disk0\",policy=\"mclock\"} 1.0",
            "tidegate_vm_operations_total{vm=\"bulk\",device=\"disk0\",operation=\"write\"} 0.0",
            "tidegate_vm_unenforced{vm=\"oltp\",device=\"disk0\",part=\"latency\"} 1.0",
            "# UNIT tidegate_vm_queue_time_seconds seconds",
            "tidegate_vm_transfers_ended_total{vm=\"bulk\",device=\"disk0\",\
             outcome=\"missed\"} 0.0",
            "tidegate_vm_schedule_not_applied{vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_vm_schedule_not_applied{vm=\"bulk\",device=\"disk0\"} 1.0",
            "tidegate_handshakes_half_open 3.0",
            "tidegate_handshakes_ended_total{why=\"displaced_by_peer\"} 4.0",
            "tidegate_vm_max_connections{vm=\"oltp\",device=\"disk0\"} 64.0",
            "tidegate_vm_connections_refused_total{vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_disk_fault_rules{export=\"dss\",vm=\"dss\",device=\"disk1\"} 0.0",
            "tidegate_disk_faults_injected_total{export=\"oltp\",vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_disk_bounced_total{export=\"oltp\",vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_disk_oldest_io_seconds{export=\"oltp\",vm=\"oltp\",device=\"disk0\"} 0.0",
            "tidegate_device_oldest_io_seconds{device=\"disk0\"} 0.0",
            "tidegate_history_memory_bytes 5000.0",
            "tidegate_history_files_bytes 7000.0",
            "tidegate_history_failing 1.0",
            "tidegate_history_dropped_total 3.0",
            "tidegate_history_delayed_total 2.0",
            "tidegate_cluster_joined 0.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_documentation_names_every_metric() {
        let guide = concat!(
            include_str!("../../../docs/monitoring.md"),
            include_str!("../../../docs/exchange.md")
        );
        for (name, _) in declared() {
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
