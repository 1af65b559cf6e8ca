//! Messages about a fit.

use core::fmt::Write as _;

use super::{Assumed, Bound, Device, Fit, PlannedVm, Resource, SECOND_PS, evaluate, nearest};
use tidegate_base::objective::Objective;
use tidegate_base::time::Nanos;
use tidegate_units::Thousandths;
use tidegate_units::human::{bytes_and_count, exact_bytes};

/// Part of a second of device time, rounded up: `40.2 %`.
pub(super) fn part(time_ps: u64) -> Thousandths {
    let part = (u128::from(time_ps) * 1000).div_ceil(u128::from(SECOND_PS));
    Thousandths(u32::try_from(part).unwrap_or(u32::MAX))
}

/// Time as a user would write it: up to three decimals without trailing zeroes.
pub(super) fn time(duration: Nanos) -> String {
    let text = duration.to_string();
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

impl Fit {
    /// Sentence that names the scarce resource; empty if all promises fit.
    pub fn reason(&self, vms: &[PlannedVm<'_>]) -> String {
        match self.short_of() {
            None => String::new(),
            Some(Resource::DeviceTime) => format!(
                "the promises need {} of the device's time, of which at most {} may be promised",
                part(self.time_ps),
                part(self.budget_ps)
            ),
            Some(Resource::Latency) => {
                let bounds = self.needs.iter().zip(vms);
                let late = bounds.filter_map(|(need, vm)| {
                    let bound = need.bound.filter(|bound| !bound.holds())?;
                    let millionths = u128::from(bound.takes?.0) * 1_000_000;
                    Some((
                        millionths / u128::from(bound.asked.0.max(1)),
                        vm.name,
                        bound,
                    ))
                });
                // The tightest decides. Reversed, because the last of several equal ones is taken.
                let late: Vec<_> = late.collect();
                let tightest = late.iter().rev().max_by_key(|(part, ..)| part);
                tightest.map_or_else(String::new, |(_, name, bound)| late_reason(name, bound))
            }
            Some(Resource::Capacity) => format!(
                "the disks have {} in total, more than the device's capacity of {}",
                bytes_and_count(self.disk_bytes),
                bytes_and_count(self.capacity.unwrap_or_default())
            ),
        }
    }
}

fn late_reason(name: &str, bound: &Bound) -> String {
    let mut text = format!(
        "the latency bound of {} of VM {name} cannot be met: ",
        time(bound.asked)
    );
    // The demand-bound test gives the maximum where the envelopes alone exceed the device: the
    // queue then grows without end. Writing to a string cannot fail.
    let _ = match bound.takes.filter(|takes| takes.0 < u64::MAX) {
        Some(takes) => write!(text, "what is due within it takes up to {}", time(takes)),
        None => write!(
            text,
            "requests with latency bounds need more than all of the device's time"
        ),
    };
    if let Some(alone) = bound.alone {
        let _ = write!(text, " ({} alone on the device)", time(alone));
    }
    text
}

/// Returns why promises do not fit with the objective of one VM, and what would fit instead.
/// `None`: all of them fit.
pub fn refusal(
    device: &Device<'_>,
    vms: &[PlannedVm<'_>],
    index: usize,
    assumed: &Assumed,
) -> Option<(String, String)> {
    let fit = evaluate(device, vms, assumed);
    fit.short_of()?;
    let (name, need) = (vms[index].name, &fit.needs[index]);
    let mut reason = fit.reason(vms);
    if need.time_ps > 0 && fit.short_of() == Some(Resource::DeviceTime) {
        let _ = write!(reason, "; VM {name} alone needs {}", part(need.time_ps));
    }
    let instead = match nearest(device, vms, index, assumed) {
        Some(near) => nearest_words(vms[index].objective, &near),
        None if vms[index].objective.expects.size.is_none() => format!(
            "set expects.size of VM {name}: without it, requests of {} are assumed",
            exact_bytes(need.load.longest.into())
        ),
        None => format!(
            "no objective of VM {name} fits: lower the promises of other VMs, or move disks to \
             another device"
        ),
    };
    Some((reason, instead))
}

/// Number of times that a latency bound may be longer than the one asked for, and still be advice.
const LONGER_MAX: u64 = 100;

/// Names the nearest objective that fits, unless its latency bound is far from the one asked for.
fn nearest_words(asked: &Objective, near: &Objective) -> String {
    let latencies = asked.latency.zip(near.latency);
    let Some((bound, longer)) =
        latencies.filter(|(asked, near)| near.0 > asked.0.saturating_mul(LONGER_MAX))
    else {
        return format!(
            "the nearest that fits: {}",
            changed_parts(asked, near).join(", ")
        );
    };
    let (longer, bound) = (time(longer), time(bound));
    let has_floor = !(asked.reservation.is_none() && asked.target.is_none());
    if has_floor {
        format!(
            "nothing near it fits: beside the rate that fits, a request may take {longer} instead \
             of {bound}; ask for a lower rate, or lower the promises of other VMs"
        )
    } else {
        format!(
            "nothing near it fits: a request may take {longer} instead of {bound}; lower the \
             promises of other VMs"
        )
    }
}

/// Parts in which `near` differs from `asked`, each as a line of a configuration's
/// `[vm.objective]`.
pub fn changed_parts(asked: &Objective, near: &Objective) -> Vec<String> {
    let mut parts = Vec::new();
    let rates = [
        ("reservation", &asked.reservation, &near.reservation),
        ("target", &asked.target, &near.target),
    ];
    for (key, asked, near) in rates {
        if asked != near {
            parts.push(format!("{key} = \"{near}\""));
        }
    }
    if asked.latency != near.latency {
        let latency = near.latency.map_or_else(|| "none".to_owned(), time);
        parts.push(format!("latency = \"{latency}\""));
    }
    if let Some(size) = near.expects.size.filter(|_| asked.expects != near.expects) {
        parts.push(format!("expects.size = \"{}\"", exact_bytes(size.into())));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::Queueing;
    use super::*;
    use crate::profile::{Access, Curve, DepthPoint, Direction, Profile};
    use tidegate_base::expected_workload::ExpectedWorkload;

    #[test]
    fn the_bound_that_is_missed_most_is_named() {
        let curve = |iops| Curve::new(&[(4096, iops)]).expect("a curve");
        let point = DepthPoint {
            direction: Direction::Read,
            access: Access::Random,
            size: 4096,
            depth: 1,
            iops: 100.0,
            mean: Nanos::from_millis(10),
            p50: Nanos::from_millis(10),
            p99: Nanos::from_millis(10),
        };
        let both = [curve(100.0), curve(100.0)];
        let profile = Profile::new(both, None, Vec::new(), vec![point]);
        let device = Device {
            profile: &profile,
            depth: 1,
            max_io: 4096,
            merge_limit: 0,
            capacity: None,
            queueing: Queueing::default(),
        };
        let objectives = [20, 5, 5].map(|ms| Objective {
            latency: Some(Nanos::from_millis(ms)),
            expects: ExpectedWorkload {
                iops: Some(1),
                ..ExpectedWorkload::NOTHING
            },
            ..Objective::default()
        });
        let vms = objectives.iter().zip(["a", "b", "c"]);
        let vms: Vec<_> = vms.map(|(it, name)| PlannedVm::new(name, it)).collect();
        let fit = evaluate(&device, &vms, &Assumed::default());
        assert!(
            fit.needs
                .iter()
                .all(|need| need.bound.is_some_and(|it| !it.holds()))
        );
        let reason = fit.reason(&vms);
        assert!(
            reason.starts_with("the latency bound of 5 ms of VM b cannot be met"),
            "{reason}"
        );
    }

    #[test]
    fn a_latency_bound_far_from_the_one_asked_for_is_no_advice() {
        let within = |ms| Objective {
            latency: Some(Nanos::from_millis(ms)),
            ..Objective::default()
        };
        let words = nearest_words(&within(10), &within(1000));
        assert_eq!(words, "the nearest that fits: latency = \"1 s\"");
        let words = nearest_words(&within(10), &within(88_200));
        assert!(words.contains("88.2 s instead of 10 ms"), "{words}");
        assert!(!words.contains("latency = "), "{words}");
        assert!(!words.contains("rate"), "none was asked for: {words}");
    }
}
