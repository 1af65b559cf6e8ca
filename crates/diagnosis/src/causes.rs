//! Division of a VM's time by cause, from the classes of its requests' time.

use tidegate_api::explain::Cause;
use tidegate_core::interference::{CLASSES, Class, Interval};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_history::column::{Column, Values};

/// Returns the time by class of what the history has. `lacks_classes`: the queueing and the time
/// with the device were not divided.
pub(crate) fn classes_of(values: &Values, lacks_classes: bool) -> [Nanos; CLASSES] {
    Class::ALL.map(|class| {
        let column = match class {
            Class::Admission => Column::Admission,
            Class::OwnLimit => Column::Regulated,
            Class::Others => Column::BehindOthers,
            Class::OwnRequests => Column::OwnRequests,
            Class::MergedWait => Column::MergedWait,
            Class::Deliberate => Column::Deliberate,
            Class::Service if lacks_classes => Column::AtDevice,
            Class::Service => Column::Service,
            Class::SlowDevice => Column::SlowDevice,
            Class::Unknown if lacks_classes => Column::Queued,
            Class::Unknown => Column::Unknown,
            Class::Reply => Column::Reply,
        };
        Nanos(values[column] * 1000)
    })
}

/// Mean nanoseconds of a request by cause.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Means {
    /// All causes but named VMs, each once.
    pub(crate) causes: Vec<(Cause, f64)>,
    /// Named VMs.
    pub(crate) vms: Vec<(VmId, f64)>,
}

impl Means {
    /// Takes the means of an interval. Merged requests waited for the request that they joined, so
    /// their wait is divided as all time of others before the device. Without samples the time with
    /// the device has no known cause: it may be that of other VMs.
    pub(crate) fn of(interval: &Interval) -> Means {
        let requests = interval.requests.max(1) as f64;
        let mean = |time: Nanos| time.0 as f64 / requests;
        let time = |class: Class| mean(interval.time(class));
        let waits = &interval.waits;
        let exact_waits = [Class::OwnLimit, Class::Deliberate, Class::Unknown].map(time);
        let divided_waits = [waits.own, waits.slow, waits.unnamed].map(mean);
        let behind_named = interval.culprits.iter().map(|it| mean(it.waited));
        // Time for which heads of merged units wait before the device.
        let heads: f64 = exact_waits
            .into_iter()
            .chain(divided_waits)
            .chain(behind_named)
            .sum();
        let merged = time(Class::MergedWait);
        let factor = if heads > 0.0 { merged / heads } else { 0.0 };
        let with_merged = |all: f64, wait: f64| all + wait * factor;
        let exact = |class: Class| with_merged(time(class), time(class));
        let vms = interval.culprits.iter();
        let vms = vms.map(|it| (it.vm, with_merged(mean(it.total()), mean(it.waited))));
        let unnamed = with_merged(mean(interval.unnamed), mean(waits.unnamed));
        let own = with_merged(time(Class::OwnRequests), mean(waits.own));
        let slow = with_merged(time(Class::SlowDevice), mean(waits.slow));
        let unknown = exact(Class::Unknown) + if heads > 0.0 { 0.0 } else { merged };
        let (service, unknown) = if interval.samples > 0 {
            (time(Class::Service), unknown)
        } else {
            (0.0, unknown + time(Class::Service))
        };
        Means {
            causes: vec![
                (Cause::OtherVms, unnamed),
                (Cause::OwnLimit, exact(Class::OwnLimit)),
                (Cause::OwnLoad, own + time(Class::Admission)),
                (Cause::Device, slow),
                (Cause::Service, service),
                (Cause::Policy, exact(Class::Deliberate)),
                (Cause::Reply, time(Class::Reply)),
                (Cause::Unknown, unknown),
            ],
            vms: vms.collect(),
        }
    }

    /// Returns the means with the service counted as the device's: where causes are compared with
    /// what is usual, service that takes longer is a slower device.
    pub(crate) fn with_service_as_device(&self) -> Means {
        let device = self.time(Cause::Device) + self.time(Cause::Service);
        let causes = self.causes.iter().map(|&(cause, time)| match cause {
            Cause::Device => (cause, device),
            Cause::Service => (cause, 0.0),
            _ => (cause, time),
        });
        Means {
            causes: causes.collect(),
            vms: self.vms.clone(),
        }
    }

    /// Mean time of a request over all causes.
    pub(crate) fn total(&self) -> f64 {
        let vms = self.vms.iter().map(|it| it.1);
        vms.chain(self.causes.iter().map(|it| it.1)).sum()
    }

    /// Mean time of a cause.
    pub(crate) fn time(&self, cause: Cause) -> f64 {
        self.causes
            .iter()
            .find(|it| it.0 == cause)
            .map_or(0.0, |it| it.1)
    }

    /// Mean time behind a named VM.
    pub(crate) fn behind(&self, vm: VmId) -> f64 {
        self.vms.iter().find(|it| it.0 == vm).map_or(0.0, |it| it.1)
    }

    /// Mean time behind all other VMs.
    pub(crate) fn behind_others(&self) -> f64 {
        self.vms.iter().map(|it| it.1).sum::<f64>() + self.time(Cause::OtherVms)
    }

    /// Time that each cause has more than in `before`; none for those that have less.
    pub(crate) fn growth(&self, before: &Means) -> Means {
        Means {
            causes: (self.causes.iter())
                .map(|&(cause, time)| (cause, (time - before.time(cause)).max(0.0)))
                .collect(),
            vms: (self.vms.iter())
                .map(|&(vm, time)| (vm, (time - before.behind(vm)).max(0.0)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::interference::{CulpritTime, WaitTimes};

    fn interval(times: &[(Class, u64)]) -> Interval {
        let mut interval = Interval {
            requests: 10,
            samples: 60,
            ..Interval::default()
        };
        for &(class, ns) in times {
            interval.times[class as usize] = Nanos(ns);
        }
        interval
    }

    #[test]
    fn merged_waits_are_divided_as_those_of_the_heads() {
        let vm = VmId::from_bits(3);
        let times = [
            (Class::Others, 350),
            (Class::OwnRequests, 100),
            (Class::MergedWait, 400),
        ];
        let mut interval = interval(&times);
        interval.culprits.push(CulpritTime {
            vm,
            waited: Nanos(300),
            inside: Nanos(50),
        });
        interval.waits.own = Nanos(100);
        let means = Means::of(&interval);
        assert_eq!(means.behind(vm), 65.0);
        assert_eq!(means.time(Cause::OwnLoad), 20.0);
        assert!((means.total() - 85.0).abs() < 1e-9);
        // Time inside the device is none for which heads wait before it.
        interval.waits.own = Nanos::ZERO;
        let means = Means::of(&interval);
        assert_eq!((means.behind(vm), means.time(Cause::OwnLoad)), (75.0, 10.0));
    }

    #[test]
    fn merged_waits_are_shared_by_every_cause_before_the_device() {
        let times = [
            (Class::Others, 100),
            (Class::OwnRequests, 50),
            (Class::SlowDevice, 2000),
            (Class::Deliberate, 100),
            (Class::Unknown, 40),
            (Class::Service, 10),
            (Class::MergedWait, 14_000),
        ];
        let mut interval = interval(&times);
        interval.unnamed = Nanos(100);
        interval.waits = WaitTimes {
            own: Nanos(5),
            slow: Nanos(2000),
            unnamed: Nanos(55),
        };
        let means = Means::of(&interval);
        // Heads wait 2200, so that each of these nanoseconds stands for 14000/2200 merged ones.
        let factor = 14_000.0 / 2200.0;
        for (cause, all, wait) in [
            (Cause::Device, 200.0, 200.0),
            (Cause::OtherVms, 10.0, 5.5),
            (Cause::OwnLoad, 5.0, 0.5),
            (Cause::Policy, 10.0, 10.0),
            (Cause::Unknown, 4.0, 4.0),
            (Cause::Service, 1.0, 0.0),
        ] {
            let expected: f64 = all + wait * factor;
            let is = means.time(cause);
            assert!((is - expected).abs() < 1e-9, "{cause:?}: {is} {expected}");
        }
        assert!((means.total() - 1630.0).abs() < 1e-9);
    }

    #[test]
    fn time_with_the_device_has_no_known_cause_without_samples() {
        let mut interval = interval(&[(Class::Service, 100), (Class::OwnLimit, 50)]);
        interval.samples = 0;
        let means = Means::of(&interval);
        let of = [Cause::Service, Cause::Unknown, Cause::OwnLimit].map(|it| means.time(it));
        assert_eq!(of, [0.0, 10.0, 5.0]);
    }
}
