//! Comparison of a policy's outcome in a cell with those of other policies.

use super::mix::Demand;
use super::outcome::{Measured, Outcome, Promise, Unit, VmOutcome};

/// Largest part by which a promised measure may be worse than the best peer's.
const MAX_LAG_BEHIND_BEST: f64 = 0.25;
/// Smallest relative difference in a measure that counts as better or worse.
const PARETO_MARGIN: f64 = 0.10;
/// Difference in a share that is ignored, in points of device time.
const POINTS: f64 = 1.0;
/// Difference in precision that is ignored, in percent.
const PRECISION: f64 = 0.1;
/// Difference in latency that is ignored on flash, in nanoseconds.
const FLASH_NS: f64 = 200_000.0;
/// Difference in latency that is ignored on a hard disk, in nanoseconds: half a revolution.
const HDD_NS: f64 = 5_000_000.0;
/// Required part of the best peer's work on flash.
const FLASH_WORK: f64 = 0.97;
/// Required part of the best peer's work on a hard disk.
const HDD_WORK: f64 = 0.90;

/// Verdict on a policy in a cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// Keys of missed promises.
    pub missed: Vec<String>,
    /// True if the promises of the cell do not fit the device together, and some of them were kept:
    /// then missed ones are judged beside other policies only. A policy that keeps none of them is
    /// not excused, because any policy could keep some.
    pub infeasible: bool,
    /// Names of other policies that keep every promise which this one keeps; empty: none does.
    pub peers: Vec<String>,
    /// Messages on demands not met, and on measures in which a peer is better.
    pub failures: Vec<String>,
}

impl Verdict {
    /// True if every promise was kept, or not all of them fit the device, every demand was met, and
    /// no peer does better.
    pub fn is_good(&self) -> bool {
        (self.missed.is_empty() || self.infeasible) && self.failures.is_empty()
    }
}

/// Conditions of a comparison besides the outcomes.
#[derive(Clone, Debug)]
pub struct Basis {
    /// True if the device is a flash disk, false for a hard disk.
    pub flash: bool,
    /// Demands of the mix.
    pub demand: Demand,
    /// Outcome under `fifo` of a complete run; `None` if the mix makes no demand relative to it.
    pub fifo: Option<Outcome>,
}

/// Compares the outcome of a policy with those of other policies, given with their names.
pub fn compare(own: &Outcome, others: &[(String, Outcome)], basis: &Basis) -> Verdict {
    let flash = basis.flash;
    let peers: Vec<&(String, Outcome)> = (others.iter())
        .filter(|(_, other)| is_peer(own, other))
        .collect();
    let mut failures = demands(own, basis);
    let better = peers.iter().filter_map(|(name, other)| {
        let how = dominates(own, other)?;
        Some(format!("{name} (better in {how}, worse in no measure)"))
    });
    let better: Vec<String> = better.collect();
    if !better.is_empty() {
        failures.push(format!("dominated by {}", better.join(", ")));
    }
    for (key, measured) in measures(own) {
        failures.extend(behind_best(&key, measured, &peers, flash));
    }
    let needed = if flash { FLASH_WORK } else { HDD_WORK };
    let best = peers.iter().max_by(|a, b| a.1.work.total_cmp(&b.1.work));
    // A device that does all that its profile says is not left idle. It may do more by a mix whose
    // I/Os the profile overprices, such as random writes to a small part of a flash disk.
    let is_idle = own.work < 1.0;
    if let Some((name, best)) = best
        && is_idle
        && own.work < best.work * needed
    {
        let part = 100.0 * own.work / best.work;
        failures.push(format!("work is {part:.1} % of that with {name}"));
    }
    Verdict {
        missed: own.missed(),
        infeasible: !own.infeasible.is_empty() && !own.kept().is_empty(),
        peers: peers.iter().map(|(name, _)| name.clone()).collect(),
        failures,
    }
}

/// Messages on demands of the mix that are not met.
fn demands(own: &Outcome, basis: &Basis) -> Vec<String> {
    let mut failures = Vec::new();
    let vm = |outcome: &Outcome, name: &str| {
        let mut vms = outcome.vms.iter();
        vms.find(|vm| vm.name == name).cloned()
    };
    if let Some(name) = &basis.demand.p99_within_bound
        && let Some(vm) = vm(own, name)
        && let Some(bound) = vm.bound_ns
        && vm.p99_ns > bound
    {
        let (p99, bound) = (vm.p99_ns as f64 / 1e6, bound as f64 / 1e6);
        failures.push(format!("{name}'s p99 is {p99:.3} ms, its bound {bound} ms"));
    }
    if let (Some(demand), Some(fifo)) = (&basis.demand.of_fifo, &basis.fifo)
        && let (Some(own), Some(fifo)) = (vm(own, &demand.vm), vm(fifo, &demand.vm))
        && own.bytes_per_s < fifo.bytes_per_s * demand.percent / 100.0
    {
        let part = 100.0 * own.bytes_per_s / fifo.bytes_per_s;
        failures.push(format!(
            "{} has {part:.2} % of its bandwidth with fifo",
            demand.vm
        ));
    }
    failures
}

/// Message on a measure that is too far behind the best peer's; `None`: near enough.
fn behind_best(
    key: &str,
    measured: Measured,
    peers: &[&(String, Outcome)],
    flash: bool,
) -> Option<String> {
    // More is better of `Served` alone; the sign makes the best of all units the smallest.
    let sign = if measured.unit == Unit::Served {
        -1.0
    } else {
        1.0
    };
    let of_peer = |(name, other): &&(String, Outcome)| {
        let found = measures(other).find(|(other, _)| other == key);
        found.map(|(_, measured)| (name.clone(), measured.value))
    };
    let of_peers = peers.iter().filter_map(of_peer);
    let (name, best) = of_peers.min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)))?;
    is_behind(&measured, best, flash).then(|| {
        let value = best;
        let (own, best) = (
            describe(&measured),
            describe(&Measured { value, ..measured }),
        );
        format!("{key} is {own}, with {name} {best}")
    })
}

/// True if the other keeps every promise that the first keeps, and gives each VM that is promised
/// nothing, or no more than a limit, at least half of what the first gives it.
fn is_peer(own: &Outcome, other: &Outcome) -> bool {
    let kept = other.kept();
    let keeps_all = own.kept().iter().all(|key| kept.contains(key));
    // Names need not be compared: all outcomes of a cell have the VMs of its mix, in order.
    let fair = (own.vms.iter().zip(&other.vms))
        .filter(|(vm, _)| !vm.is_promised_service())
        .all(|(own, other)| other.bytes_per_s >= own.bytes_per_s / 2.0);
    // An aborted run has kept nothing for the whole time.
    other.given_up.is_empty() && keeps_all && fair
}

/// Measures of a run's promises, by key.
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

/// Measures in which the other is better; `None` if there is none, or if it is worse in one.
fn dominates(own: &Outcome, other: &Outcome) -> Option<String> {
    let mut better = Vec::new();
    for (key, own) in measures(own) {
        let found = measures(other).find(|(other, _)| *other == key);
        // A measure that the other policy does not have cannot be worse there.
        let Some((_, other)) = found else { continue };
        let (own, other) = match own.unit {
            // Inverted, so that less is better of every unit; 1e-9 stands for no service at all.
            Unit::Served => (1.0 / own.value.max(1e-9), 1.0 / other.value.max(1e-9)),
            // Errors below a point of share or 0.1 % of precision count as that much: the relative
            // margin of near-zero errors would be tiny. Latencies are never near zero.
            Unit::Points => (own.value.max(POINTS), other.value.max(POINTS)),
            Unit::Precision => (own.value.max(PRECISION), other.value.max(PRECISION)),
            Unit::P99 => (own.value, other.value),
        };
        if other > own * (1.0 + PARETO_MARGIN) {
            return None;
        }
        if own > other * (1.0 + PARETO_MARGIN) {
            better.push(key);
        }
    }
    (!better.is_empty()).then(|| better.join(", "))
}

/// True if a measure is farther behind the best than allowed.
fn is_behind(own: &Measured, best: f64, flash: bool) -> bool {
    let slack = match own.unit {
        Unit::Served => return own.value < best * (1.0 - MAX_LAG_BEHIND_BEST),
        Unit::P99 if flash => FLASH_NS,
        Unit::P99 => HDD_NS,
        Unit::Points => POINTS,
        Unit::Precision => PRECISION,
    };
    // Both: a large factor of a tiny difference is of no consequence.
    own.value > best * (1.0 + MAX_LAG_BEHIND_BEST) && own.value > best + slack
}

/// Measure with its unit, for messages.
fn describe(measured: &Measured) -> String {
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
    use super::super::mix::OfFifo;
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
            bound_ns: Some(4_000_000),
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
            infeasible: String::new(),
            vms: vec![
                vm("db", vec![latency], 1.0),
                vm("bulk", Vec::new(), other_bytes),
            ],
        }
    }

    fn verdict(own: &Outcome, other: Outcome) -> Verdict {
        compare(own, &[("other".to_owned(), other)], &basis(true))
    }

    fn basis(flash: bool) -> Basis {
        let demand = Demand::default();
        Basis {
            flash,
            demand,
            fifo: None,
        }
    }

    #[test]
    fn peers_keep_as_much_and_starve_no_vm() {
        let own = outcome(1.0, true, 100.0, 1.0);
        let peers = |other| verdict(&own, other).peers.len();
        assert_eq!(peers(outcome(1.0, true, 50.0, 1.0)), 1);
        assert_eq!(peers(outcome(1.0, true, 49.0, 1.0)), 0);
        assert_eq!(peers(outcome(0.1, false, 100.0, 1.0)), 0);
    }

    #[test]
    fn a_dominating_peer_fails_a_policy() {
        let own = outcome(1.0, true, 100.0, 1.0);
        assert!(verdict(&own, outcome(0.95, true, 100.0, 1.0)).is_good());
        let beaten = verdict(&own, outcome(0.9, true, 100.0, 1.0));
        let reason = "dominated by other (better in db.latency, worse in no measure)";
        assert_eq!(beaten.failures, [reason]);
        // Worse by more than a quarter, and by more than 0.2 ms.
        let far = verdict(&own, outcome(0.7, true, 100.0, 1.0));
        assert_eq!(far.failures.len(), 2, "{far:?}");
    }

    #[test]
    fn work_counts_by_the_kind_of_device() {
        let own = outcome(1.0, true, 100.0, 0.96);
        let other = ("other".to_owned(), outcome(1.0, true, 100.0, 1.0));
        assert!(!compare(&own, std::slice::from_ref(&other), &basis(true)).is_good());
        assert!(compare(&own, &[other], &basis(false)).is_good());
        let missed = outcome(1.0, false, 100.0, 1.0);
        assert_eq!(compare(&missed, &[], &basis(true)).missed, ["db.latency"]);
    }

    #[test]
    fn demands_of_a_mix_are_judged_without_peers() {
        let own = outcome(1.0, true, 98.0, 1.0);
        let mut basis = basis(true);
        basis.demand = Demand {
            p99_within_bound: Some("db".to_owned()),
            of_fifo: Some(OfFifo {
                vm: "bulk".to_owned(),
                percent: 99.0,
            }),
        };
        basis.fifo = Some(outcome(80.0, false, 100.0, 1.0));
        assert_eq!(compare(&own, &[], &basis).failures.len(), 1);
        let mut slow = outcome(1.0, true, 99.5, 1.0);
        assert!(compare(&slow, &[], &basis).is_good());
        slow.vms[0].p99_ns = 4_000_001;
        assert_eq!(compare(&slow, &[], &basis).failures.len(), 1);
    }
}
