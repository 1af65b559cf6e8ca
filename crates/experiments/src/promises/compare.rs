//! A policy's outcome in a cell beside those of other policies.

use super::outcome::{Measured, Outcome, Promise, Unit, VmOutcome};

/// Part by which a promised measure may be worse than the best one's.
const WITHIN: f64 = 0.25;
/// Difference in a measure that counts as better or worse.
const PARETO: f64 = 0.10;
/// Points of device time, and of precision, that count as no difference.
const POINTS: f64 = 1.0;
const PRECISION: f64 = 0.1;
/// Nanoseconds of latency that count as no difference, on flash and on a hard disk.
const FLASH_NS: f64 = 200_000.0;
const HDD_NS: f64 = 5_000_000.0;
/// Part of the best one's work that has to be done, on flash and on a hard disk.
const FLASH_WORK: f64 = 0.97;
const HDD_WORK: f64 = 0.90;

/// Verdict on a policy in a cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// Promises that were missed.
    pub missed: Vec<String>,
    /// Others that keep every promise which the policy keeps; empty: nobody else does.
    pub peers: Vec<String>,
    /// Failures against the peers, in words.
    pub failures: Vec<String>,
}

impl Verdict {
    /// True when every promise was kept and no peer does better.
    pub fn is_good(&self) -> bool {
        self.missed.is_empty() && self.failures.is_empty()
    }
}

/// Compares the outcome of a policy with those of others by their names.
pub fn compare(own: &Outcome, others: &[(String, Outcome)], flash: bool) -> Verdict {
    let peers: Vec<&(String, Outcome)> = (others.iter())
        .filter(|(_, other)| is_peer(own, other))
        .collect();
    let mut failures = Vec::new();
    for (name, other) in &peers {
        if let Some(how) = dominates(own, other) {
            failures.push(format!("{name} is better in {how} and worse in nothing"));
        }
    }
    for (key, measured) in measures(own) {
        let of_peer = |(name, other): &&(String, Outcome)| {
            let found = measures(other).find(|(other, _)| *other == key);
            found.map(|(_, measured)| (name.clone(), measured.value))
        };
        let sign = if measured.unit == Unit::Served {
            -1.0
        } else {
            1.0
        };
        let best =
            (peers.iter().filter_map(of_peer)).min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)));
        if let Some((name, best)) = best
            && is_behind(&measured, best, flash)
        {
            let (own, best) = (
                said(&measured),
                said(&Measured {
                    value: best,
                    ..measured
                }),
            );
            failures.push(format!("{key} is {own}, with {name} {best}"));
        }
    }
    let needed = if flash { FLASH_WORK } else { HDD_WORK };
    let best = peers.iter().max_by(|a, b| a.1.work.total_cmp(&b.1.work));
    if let Some((name, best)) = best
        && own.work < best.work * needed
    {
        let part = 100.0 * own.work / best.work;
        failures.push(format!("work is {part:.1} % of that with {name}"));
    }
    Verdict {
        missed: own.missed(),
        peers: peers.iter().map(|(name, _)| name.clone()).collect(),
        failures,
    }
}

/// True if the other keeps every promise that the first keeps, and gives no VM without a promise
/// less than half of what the first gives it.
fn is_peer(own: &Outcome, other: &Outcome) -> bool {
    let kept = other.kept();
    let keeps_all = own.kept().iter().all(|key| kept.contains(key));
    let fair = (own.vms.iter().zip(&other.vms))
        .filter(|(vm, _)| vm.promises.is_empty())
        .all(|(own, other)| other.bytes_per_s >= own.bytes_per_s / 2.0);
    other.given_up.is_empty() && keeps_all && fair
}

/// Measures of the promises of a run, by key.
fn measures(outcome: &Outcome) -> impl Iterator<Item = (String, Measured)> {
    let of_vm = |vm: &VmOutcome| {
        let name = vm.name.clone();
        let promises = vm.promises.clone().into_iter();
        promises.filter_map(move |promise| {
            Some((Promise::key(&name, &promise.part), promise.measured?))
        })
    };
    outcome.vms.iter().flat_map(of_vm)
}

/// Measures by which the other is better, if it is worse in none.
fn dominates(own: &Outcome, other: &Outcome) -> Option<String> {
    let mut better = Vec::new();
    for (key, own) in measures(own) {
        let found = measures(other).find(|(other, _)| *other == key);
        let Some((_, other)) = found else { continue };
        let (own, other) = match own.unit {
            Unit::Served => (1.0 / own.value.max(1e-9), 1.0 / other.value.max(1e-9)),
            // Whole points and tenths are no differences.
            Unit::Points => (own.value.max(POINTS), other.value.max(POINTS)),
            Unit::Precision => (own.value.max(PRECISION), other.value.max(PRECISION)),
            Unit::P99 => (own.value, other.value),
        };
        if other > own * (1.0 + PARETO) {
            return None;
        }
        if own > other * (1.0 + PARETO) {
            better.push(key);
        }
    }
    (!better.is_empty()).then(|| better.join(", "))
}

/// True if a measure is farther from the best one than is allowed.
fn is_behind(own: &Measured, best: f64, flash: bool) -> bool {
    let slack = match own.unit {
        Unit::Served => return own.value < best * (1.0 - WITHIN),
        Unit::P99 if flash => FLASH_NS,
        Unit::P99 => HDD_NS,
        Unit::Points => POINTS,
        Unit::Precision => PRECISION,
    };
    own.value > best * (1.0 + WITHIN) && own.value > best + slack
}

/// A measure in words.
fn said(measured: &Measured) -> String {
    let value = measured.value;
    match measured.unit {
        Unit::Served => format!("{:.1} % of the promised rate", 100.0 * value),
        Unit::P99 => format!("{:.3} ms", value / 1e6),
        Unit::Points => format!("{value:.1} points off"),
        Unit::Precision => format!("{value:.2} % off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(p99_ms: f64, kept: bool, other_bytes: f64, work: f64) -> Outcome {
        let value = p99_ms * 1e6;
        let unit = Unit::P99;
        let vm = |name: &str, promises, bytes_per_s| VmOutcome {
            name: name.to_owned(),
            iops: 1.0,
            bytes_per_s,
            p50_ns: 1,
            p99_ns: 1,
            device_time: 0.5,
            promises,
        };
        let latency = Promise {
            part: "latency".to_owned(),
            promised: "4 ms".to_owned(),
            seconds: 100,
            missed: 0,
            devices: 0,
            kept: Some(kept),
            measured: Some(Measured { value, unit }),
        };
        Outcome {
            seconds: 100,
            requests: 1,
            given_up: Vec::new(),
            work,
            vms: vec![
                vm("db", vec![latency], 1.0),
                vm("bulk", Vec::new(), other_bytes),
            ],
        }
    }

    fn verdict(own: &Outcome, other: Outcome) -> Verdict {
        compare(own, &[("other".to_owned(), other)], true)
    }

    #[test]
    fn only_who_keeps_as_much_and_starves_nobody_is_a_peer() {
        let own = outcome(1.0, true, 100.0, 1.0);
        let peers = |other| verdict(&own, other).peers.len();
        assert_eq!(peers(outcome(1.0, true, 50.0, 1.0)), 1);
        assert_eq!(peers(outcome(1.0, true, 49.0, 1.0)), 0);
        assert_eq!(peers(outcome(0.1, false, 100.0, 1.0)), 0);
    }

    #[test]
    fn a_peer_that_is_better_in_something_and_worse_in_nothing_fails_a_policy() {
        let own = outcome(1.0, true, 100.0, 1.0);
        assert!(verdict(&own, outcome(0.95, true, 100.0, 1.0)).is_good());
        let beaten = verdict(&own, outcome(0.9, true, 100.0, 1.0));
        assert_eq!(beaten.failures.len(), 1, "{beaten:?}");
        // More than a quarter, and more than 0.2 ms.
        let far = verdict(&own, outcome(0.7, true, 100.0, 1.0));
        assert_eq!(far.failures.len(), 2, "{far:?}");
    }

    #[test]
    fn work_counts_by_the_kind_of_device() {
        let own = outcome(1.0, true, 100.0, 0.96);
        let other = ("other".to_owned(), outcome(1.0, true, 100.0, 1.0));
        assert!(!compare(&own, &[other.clone()], true).is_good());
        assert!(compare(&own, &[other], false).is_good());
        let missed = outcome(1.0, false, 100.0, 1.0);
        assert_eq!(compare(&missed, &[], true).missed, ["db.latency"]);
    }
}
