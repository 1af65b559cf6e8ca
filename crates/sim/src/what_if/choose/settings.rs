//! Settings that a search tries, and how well they did.

use crate::report::Promise;
use crate::what_if::{Figures, Part, WhatIf, WhatIfError};
use crate::world::World;
use serde::Serialize;
use std::collections::BTreeMap;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Longest time at the beginning of a replay that is not judged: policies learn of the device.
const WARM_UP_MAX: Nanos = Nanos::from_secs(5);
/// Part of a replay that is not judged, at most.
const WARM_UP_PART: u64 = 10;
/// Cost of each setting that differs from those in force, as a part of the VMs' throughput: a gain
/// that is smaller is not worth a change.
const CHANGE_COST: f64 = 0.02;

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

/// Quality of settings; less is better. Promises come first, then throughput.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub(super) struct Score {
    /// Promises that are missed.
    pub(super) missed: usize,
    /// Sum over these of the part of the seconds that were missed.
    shortfall: f64,
    /// Throughput lost against the settings in force, as a mean over all VMs, and the cost of
    /// changes.
    loss: f64,
}

/// Replays a part under settings that hold all the time.
///
/// # Errors
/// If the settings cannot be in force there.
pub(super) fn replay(part: &Part, settings: &Settings, vms: usize) -> Result<Outcome, WhatIfError> {
    let objectives: BTreeMap<usize, Objective> = (part.vms.iter().enumerate())
        .map(|(local, &place)| (local, settings.objectives[place]))
        .collect();
    let mut scenario = part.what_if.scenario(Some(&settings.policy), &objectives)?;
    let warm_up = Nanos(part.what_if.duration.0 / WARM_UP_PART).min(WARM_UP_MAX);
    // Promises are judged by whole seconds.
    scenario.frame.warm_up = Nanos(warm_up.0 / Nanos::SECOND.0 * Nanos::SECOND.0);
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    let mut outcome = Outcome {
        vms: vec![None; vms],
        requests: report.requests,
    };
    for (vm, &place) in report.vms.into_iter().zip(&part.vms) {
        outcome.vms[place] = Some(VmOutcome {
            figures: Figures::of_rates(&vm.rates),
            promises: vm.promises,
        });
    }
    Ok(outcome)
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

    /// Returns true if a VM misses a promise other than its limit.
    pub(super) fn suffers(&self, vm: usize) -> bool {
        self.missed()
            .any(|(place, promise)| place == vm && promise.part != "limit")
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
        Score {
            missed: self.missed().count(),
            shortfall: self.shortfall(None),
            loss: mean + changes * CHANGE_COST,
        }
    }
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
