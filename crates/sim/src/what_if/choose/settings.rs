//! Settings that a search tries, and how well they did.

use crate::report::Promise;
use crate::what_if::{Figures, WhatIf};
use serde::Serialize;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_policies::policy::PolicySpec;

/// Cost of each setting that differs from those in force, as a part of the VMs' throughput: a gain
/// that is smaller is not worth a change.
const CHANGE_COST: f64 = 0.02;

/// Cost of promises that the policy does not enforce, if all are such, as a part of the VMs'
/// throughput: they are kept only as long as the load stays as it was recorded.
const UNENFORCED_COST: f64 = 0.2;

/// Promises as places of VMs and names of parts.
pub(super) type Promises = Vec<(usize, &'static str)>;

/// Name of the promise that a limit is.
pub(super) const LIMIT: &str = "limit";

/// Policy and objectives that are in force all the time.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Policy of the device.
    pub policy: PolicySpec,
    /// Objectives by the place of a VM in [`WhatIf::vms`].
    pub objectives: Vec<Objective>,
}

impl Settings {
    /// Returns the settings in force at the end of the recording.
    pub fn in_force(what_if: &WhatIf) -> Settings {
        Settings {
            policy: what_if.last_policy().clone(),
            objectives: (what_if.vms.iter())
                .map(|vm| *vm.last_objective())
                .collect(),
        }
    }

    /// Returns the number of settings in which these differ from `other`: the policy, each of its
    /// parameters, and each VM's objective.
    pub fn changes_from(&self, other: &Settings) -> usize {
        use tidegate_core::policy::Policy as _;
        let objectives = self.objectives.iter().zip(&other.objectives);
        let objectives = objectives.filter(|(ours, theirs)| ours != theirs).count();
        if self.policy.parts() != other.policy.parts() {
            return objectives + 1;
        }
        let params = self.policy.params().iter().zip(other.policy.params());
        objectives + params.filter(|(ours, theirs)| ours != theirs).count()
    }

    /// Returns the part of the promised rates and latency bounds that the policy does not enforce.
    fn unenforced(&self) -> f64 {
        use tidegate_core::policy::Policy as _;
        let enforces = self.policy.enforces();
        let (mut promised, mut unenforced) = (0u32, 0u32);
        for objective in &self.objectives {
            for (is_none, is_enforced) in [
                (objective.reservation.is_none(), enforces.reservation),
                (objective.target.is_none(), enforces.target),
                (objective.latency.is_none(), enforces.latency),
            ] {
                promised += u32::from(!is_none);
                unenforced += u32::from(!is_none && !is_enforced);
            }
        }
        f64::from(unenforced) / f64::from(promised.max(1))
    }
}

/// Results of a replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Results by the place of a VM in [`WhatIf::vms`]; `None` if it had no request.
    pub vms: Vec<Option<VmOutcome>>,
    /// Requests that were simulated.
    pub requests: u64,
}

/// Results of a VM.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VmOutcome {
    /// Throughput and latencies.
    #[serde(flatten)]
    pub figures: Figures,
    /// Promises with their verdicts.
    pub promises: Vec<Promise>,
}

/// Quality of settings; less is better. Promises come first, then throughput, then how soon what
/// waits is served.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub(super) struct Score {
    /// Promises that are missed.
    pub(super) missed: usize,
    /// Sum over these of the part of the seconds that were missed.
    shortfall: f64,
    /// Throughput lost against the settings in force, as a mean over all VMs, the cost of changes
    /// and that of promises that the policy does not enforce.
    loss: f64,
    /// VMs with a limit that was raised. A VM that suffers from its own limit has more requests
    /// waiting the longer it does, and the search sees only those of its slice: a raised limit may
    /// be enough for them, and serve those at the end of the recording for seconds too slowly.
    raised: usize,
}

/// Returns the part of the judged seconds in which a promise was missed.
fn missed_part(promise: &Promise) -> f64 {
    promise.missed_s as f64 / promise.judged_s.max(1) as f64
}

impl Outcome {
    /// Iterates over the promises that are missed, with the places of their VMs.
    pub fn missed(&self) -> impl Iterator<Item = (usize, &Promise)> {
        self.promises()
            .filter(|(_, promise)| promise.kept == Some(false))
    }

    /// Iterates over all promises, with the places of their VMs.
    pub fn promises(&self) -> impl Iterator<Item = (usize, &Promise)> {
        let vms = self.vms.iter().enumerate();
        let vms = vms.filter_map(|(place, vm)| Some((place, vm.as_ref()?)));
        vms.flat_map(|(place, vm)| vm.promises.iter().map(move |promise| (place, promise)))
    }

    /// Returns the promises of `settings` that nothing judged: their VMs stay, and had too few
    /// requests. Limits are not among them: who asks for nothing exceeds none.
    pub(super) fn unjudged(&self, what_if: &WhatIf, settings: &Settings) -> Promises {
        let vms = settings.objectives.iter().enumerate();
        let stay = vms.filter(|(vm, _)| what_if.vms[*vm].stays());
        let promised = stay.flat_map(|(vm, objective)| {
            let promised =
                move |(name, is_none): (&'static str, bool)| (!is_none).then_some((vm, name));
            [
                ("reservation", objective.reservation.is_none()),
                ("target", objective.target.is_none()),
                ("latency", objective.latency.is_none()),
            ]
            .into_iter()
            .filter_map(promised)
        });
        let is_judged = |key: &(usize, &'static str)| {
            let mut promises = self.promises();
            promises.any(|(vm, promise)| (vm, promise.part) == *key && promise.kept.is_some())
        };
        promised.filter(|key| !is_judged(key)).collect()
    }

    /// Returns true if a VM misses a promise other than its limit.
    pub(super) fn suffers(&self, vm: usize) -> bool {
        self.missed()
            .any(|(place, promise)| place == vm && promise.part != LIMIT)
    }

    /// Returns the limit of a VM if it is missed.
    fn missed_limit(&self, vm: usize) -> Option<&Promise> {
        let mut missed = self.missed();
        let is_limit = |(place, promise): &(usize, &Promise)| *place == vm && promise.part == LIMIT;
        missed.find(is_limit).map(|(_, promise)| promise)
    }

    /// Returns the sum over missed promises of the part of the seconds that were missed; with `vm`,
    /// of that VM alone.
    pub(super) fn shortfall(&self, vm: Option<usize>) -> f64 {
        let of = self
            .missed()
            .filter(|(place, _)| vm.is_none_or(|vm| vm == *place));
        // Not `sum`, which of nothing is -0.
        of.fold(0.0, |sum, (_, promise)| sum + missed_part(promise))
    }

    /// Rates the outcome of `settings` against that of the settings in force.
    pub(super) fn score(
        &self,
        settings: &Settings,
        in_force: &Settings,
        before: &Outcome,
    ) -> Score {
        let pairs = self.vms.iter().zip(&before.vms);
        let losses: Vec<f64> = pairs
            .filter_map(|(is, was)| Some(lost(&was.as_ref()?.figures, &is.as_ref()?.figures)))
            .collect();
        let mean = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        let changes = settings.changes_from(in_force) as f64;
        let mut missed: Vec<&Promise> = self.missed().map(|(_, promise)| promise).collect();
        // To drop or to raise a limit keeps no promise: one that was missed stays missed.
        let mut raised = 0;
        let limits = settings.objectives.iter().zip(&in_force.objectives);
        for (vm, (is, was)) in limits.enumerate() {
            if !is_looser(&is.limit, &was.limit) {
                continue;
            }
            raised += usize::from(!is.limit.is_none());
            if self.missed_limit(vm).is_none() {
                missed.extend(before.missed_limit(vm));
            }
        }
        Score {
            missed: missed.len(),
            shortfall: missed.into_iter().map(missed_part).fold(0.0, |a, b| a + b),
            loss: mean + changes * CHANGE_COST + settings.unenforced() * UNENFORCED_COST,
            raised,
        }
    }
}

/// Returns true if a limit lets through more than another in some respect.
pub(super) fn is_looser(is: &Limit, was: &Limit) -> bool {
    let higher = |is: Option<u64>, was: Option<u64>| match (is, was) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(is), Some(was)) => is > was,
    };
    let norm = |rate: &Rate| rate.ops.and_then(|ops| ops.norm);
    let looser = |is: &Rate, was: &Rate| {
        // Rates of requests of other sizes cannot be compared.
        let is_other = is.ops.is_some() && was.ops.is_some() && norm(is) != norm(was);
        is_other
            || higher(is.ops.map(|ops| ops.per_s), was.ops.map(|ops| ops.per_s))
            || higher(is.bytes_per_s, was.bytes_per_s)
    };
    looser(&is.total, &was.total)
        || looser(&is.read, &was.read)
        || looser(&is.write, &was.write)
        || (is.burst.is_some() && is.burst != was.burst)
}

/// Returns the part of the throughput that was lost; more throughput makes up for nothing.
fn lost(was: &Figures, is: &Figures) -> f64 {
    let (was, is) = match was.bytes_per_s {
        // Flushes and discards move no bytes.
        0.0 => (was.iops, is.iops),
        bytes => (bytes, is.bytes_per_s),
    };
    match was {
        0.0 => 0.0,
        was => (1.0 - is / was).max(0.0),
    }
}
