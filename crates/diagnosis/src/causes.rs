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
    /// their wait is divided as the waits of the others.
    pub(crate) fn of(interval: &Interval) -> Means {
        let requests = interval.requests.max(1) as f64;
        let time = |class: Class| interval.time(class).0 as f64 / requests;
        let waited = interval.culprits.iter().map(|it| it.waited.0 as f64);
        let behind_named: f64 = waited.sum::<f64>() / requests;
        // Causes for which heads of merged units wait before the device.
        let heads = behind_named + time(Class::OwnLimit) + time(Class::OwnRequests);
        let merged = time(Class::MergedWait);
        let factor = if heads > 0.0 { merged / heads } else { 0.0 };
        let grown = |time: f64| time * (1.0 + factor);
        let unknown = time(Class::Unknown) + if heads > 0.0 { 0.0 } else { merged };
        let vms = interval.culprits.iter().map(|it| {
            let [waited, inside] = [it.waited, it.inside].map(|it| it.0 as f64 / requests);
            (it.vm, grown(waited) + inside)
        });
        Means {
            causes: vec![
                (Cause::OtherVms, interval.unnamed.0 as f64 / requests),
                (Cause::OwnLimit, grown(time(Class::OwnLimit))),
                (
                    Cause::OwnLoad,
                    grown(time(Class::OwnRequests)) + time(Class::Admission),
                ),
                (
                    Cause::Device,
                    time(Class::Service) + time(Class::SlowDevice),
                ),
                (Cause::Policy, time(Class::Deliberate)),
                (Cause::Reply, time(Class::Reply)),
                (Cause::Unknown, unknown),
            ],
            vms: vms.collect(),
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
    use tidegate_core::interference::CulpritTime;

    #[test]
    fn merged_waits_are_divided_as_those_of_the_heads() {
        let vm = VmId::from_bits(3);
        let mut interval = Interval {
            requests: 10,
            times: [Nanos::ZERO; CLASSES],
            culprits: vec![CulpritTime {
                vm,
                waited: Nanos(300),
                inside: Nanos(50),
            }],
            ..Interval::default()
        };
        interval.times[Class::Others as usize] = Nanos(350);
        interval.times[Class::OwnRequests as usize] = Nanos(100);
        interval.times[Class::MergedWait as usize] = Nanos(400);
        let means = Means::of(&interval);
        assert_eq!(means.behind(vm), 65.0);
        assert_eq!(means.time(Cause::OwnLoad), 20.0);
        assert!((means.total() - 85.0).abs() < 1e-9);
    }
}
