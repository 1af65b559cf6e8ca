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
fn time(duration: Nanos) -> String {
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
                let mut late = self.needs.iter().zip(vms).filter_map(|(need, vm)| {
                    Some((vm.name, need.bound.filter(|bound| !bound.holds())?))
                });
                late.next()
                    .map_or_else(String::new, |(name, bound)| late_reason(name, &bound))
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
        Some(takes) => write!(text, "with all promises the worst case is {}", time(takes)),
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
    match latencies.filter(|(asked, near)| near.0 > asked.0.saturating_mul(LONGER_MAX)) {
        None => format!(
            "the nearest that fits: {}",
            changed_parts(asked, near).join(", ")
        ),
        Some((asked, near)) => format!(
            "nothing near it fits: beside the rate that fits, a request may take {} instead of {}; \
             ask for a lower rate, or lower the promises of other VMs",
            time(near),
            time(asked)
        ),
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
    use super::*;

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
    }
}
