//! Metrics of objectives and their attainment: at most 60 series per VM.

use tidegate_core::attainment::{Cause, PartAttainment};
use tidegate_core::objective::Rate;

use super::{Metric, Read, plain, seconds};
use crate::command::VmSnapshot;

/// Most series of this table per VM, so that a daemon with 1,000 VMs can still be scraped.
#[cfg(test)]
const MOST_SERIES: usize = 60;

pub(super) static VM_METRICS: &[Metric<VmSnapshot>] = &[
    plain(
        "promised_iops",
        "Requests a second that the objective promises or allows",
        Read::Gauges("part", |vm| {
            rates(vm, |rate| rate.ops.map(|ops| ops.per_s as f64))
        }),
    ),
    plain(
        "promised_bytes_per_second",
        "Bytes a second that the objective promises or allows",
        Read::Gauges("part", |vm| {
            rates(vm, |rate| rate.bytes_per_s.map(|bytes| bytes as f64))
        }),
    ),
    seconds(
        "promised_latency",
        "Bound on the time from a request's arrival to its answer; absent without one",
        Read::OptionalGauge(|vm| Some(vm.objective.latency?.as_secs_f64())),
    ),
    plain(
        "weight",
        "Weight of the VM among VMs with requests",
        Read::Gauge(|vm| vm.objective.weight.into()),
    ),
    plain(
        "promise_kept_ratio",
        "Share of the seconds of the last hour in which the part of the objective was kept; absent \
         while nothing was judged",
        Read::Gauges("part", |vm| {
            let parts = vm.attainment.iter().filter_map(|it| {
                let hour = it.last_hour;
                let missed = f64::from(hour.missed) / f64::from(hour.judged);
                (hour.judged > 0).then(|| (it.part.name().to_owned(), 1.0 - missed))
            });
            parts.collect()
        }),
    ),
    seconds(
        "promise_kept",
        "Seconds in which the part of the objective was kept; of transfer, deadline transfers",
        Read::Counters("part", |vm| by_part(vm, |it| it.kept_s)),
    ),
    seconds(
        "promise_missed",
        "Seconds in which the part of the objective was missed; of transfer, deadline transfers",
        Read::Counters("part", |vm| by_part(vm, PartAttainment::missed)),
    ),
    seconds(
        "promise_stalled",
        "Seconds in which the part would be missed but no I/O of the device ended for 100 ms; they \
         count as neither kept nor missed",
        Read::Counters("part", |vm| by_part(vm, |it| it.stalled_s)),
    ),
    seconds(
        "promise_missed_by",
        "Missed seconds of all parts by cause: own_limit, others, device, policy (it does not \
         enforce the limit)",
        Read::Counters("cause", |vm| {
            let of = |cause: Cause| {
                let missed = vm.attainment.iter().map(|it| it.missed_s[cause as usize]);
                (cause.name(), missed.sum::<u64>() as f64)
            };
            Cause::ALL.map(of).to_vec()
        }),
    ),
    seconds(
        "latency",
        "Time from a guest request's arrival to its end, all operations",
        Read::Histogram(|vm| &vm.stats.latency),
    ),
];

fn rates(vm: &VmSnapshot, of: fn(&Rate) -> Option<f64>) -> Vec<(String, f64)> {
    let objective = &vm.objective;
    let rates = [
        ("reservation", &objective.reservation),
        ("target", &objective.target),
        ("limit", &objective.limit.total),
        ("limit_read", &objective.limit.read),
        ("limit_write", &objective.limit.write),
    ];
    let set = rates.into_iter();
    set.filter_map(|(part, rate)| Some((part.to_owned(), of(rate)?)))
        .collect()
}

fn by_part(vm: &VmSnapshot, of: fn(&PartAttainment) -> u64) -> Vec<(&'static str, f64)> {
    let parts = vm.attainment.iter();
    parts.map(|it| (it.part.name(), of(it) as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::sample_snapshot::snapshot;
    use crate::listener::HandshakeCounts;
    use crate::metrics::render;
    use tidegate_core::attainment::{Part, Window};
    use tidegate_core::objective::{Limit, Objective, OpsRate};
    use tidegate_core::time::Nanos;

    fn attainment(part: Part) -> PartAttainment {
        let window = Window {
            judged: 200,
            missed: 1,
        };
        PartAttainment {
            part,
            best_effort: false,
            kept_s: 199,
            missed_s: [0, 1, 0, 0],
            stalled_s: 2,
            asked_less_s: 3,
            requests: 4,
            late: 5,
            worst: Nanos::SECOND,
            last_missed_ago_s: Some(6),
            last_5_minutes: window,
            last_hour: window,
            last_day: window,
        }
    }

    #[test]
    fn a_vm_that_is_promised_everything_has_at_most_sixty_series() {
        let rate = Rate {
            ops: Some(OpsRate {
                per_s: 100,
                norm: None,
            }),
            bytes_per_s: Some(1 << 20),
        };
        let mut device = snapshot("disk0", &["db"]);
        device.vms[0].objective = Objective {
            reservation: rate,
            target: rate,
            limit: Limit {
                total: rate,
                read: rate,
                write: rate,
                burst: None,
            },
            latency: Some(Nanos::SECOND),
            ..Objective::default()
        };
        device.vms[0].attainment = Part::ALL.map(attainment).to_vec();
        let text = render(
            vec![device],
            Vec::new(),
            HandshakeCounts::default(),
            None,
            None,
        );
        let names: Vec<String> = VM_METRICS
            .iter()
            .map(|metric| format!("tidegate_vm_{}", metric.name))
            .collect();
        let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
        let is_ours = |line: &&str| {
            let name = line.split('{').next().unwrap_or_default();
            names.iter().any(|ours| {
                let units = [ours.clone(), format!("{ours}_seconds")];
                let all = units
                    .iter()
                    .flat_map(|n| suffixes.map(|end| format!("{n}{end}")));
                all.into_iter().any(|full| full == name)
            })
        };
        let series = text.lines().filter(|line| line.contains("vm=\"db\""));
        let series = series.filter(is_ours).count();
        assert!((50..=MOST_SERIES).contains(&series), "{series}\n{text}");
        for line in [
            "tidegate_vm_promised_iops{vm=\"db\",device=\"disk0\",part=\"limit_read\"} 100.0",
            "tidegate_vm_promised_latency_seconds{vm=\"db\",device=\"disk0\"} 1.0",
            "tidegate_vm_promise_kept_ratio{vm=\"db\",device=\"disk0\",part=\"target\"} 0.995",
            "tidegate_vm_promise_kept_seconds_total{vm=\"db\",device=\"disk0\",part=\"limit\"} \
             199.0",
            "tidegate_vm_promise_missed_by_seconds_total{vm=\"db\",device=\"disk0\",\
             cause=\"others\"} 5.0",
            "tidegate_vm_latency_seconds_count{vm=\"db\",device=\"disk0\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
