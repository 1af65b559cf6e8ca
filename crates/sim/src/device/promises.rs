//! Promises to a simulated VM, with the engine's attainment of each.

use tidegate_core::attainment::{Part, PartAttainment};
use tidegate_core::engine::Vms;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;

/// Promise to a VM with its attainment while it was in force.
#[derive(Clone, Debug)]
pub struct PromiseResult {
    /// Promise in words, such as `reservation 40 IOPS`, with rates as exact as they were set:
    /// promises are told apart by it.
    pub terms: String,
    /// Promise in words for a table, with rounded rates.
    pub what: String,
    /// Attainment of the promise.
    pub attainment: PartAttainment,
}

/// Promises to a VM that are not in force any more.
#[derive(Clone, Debug, Default)]
pub(super) struct PastPromises(Vec<PromiseResult>);

/// Describes the promise of a part of an objective, with rates as `text` formats them; `None` if it
/// promises nothing.
fn describe(objective: &Objective, part: Part, text: fn(&Rate) -> String) -> Option<String> {
    let rate =
        |name: &str, rate: &Rate| (!rate.is_none()).then(|| format!("{name} {}", text(rate)));
    match part {
        Part::Reservation => rate("reservation", &objective.reservation),
        Part::Target => rate("target", &objective.target),
        Part::Latency => {
            let bound = tidegate_units::format_duration(objective.latency?);
            Some(format!("latency {bound}"))
        }
        Part::Limit => {
            let limit = &objective.limit;
            let rates = [
                rate("limit", &limit.total),
                rate("limit on reads", &limit.read),
                rate("limit on writes", &limit.write),
            ];
            let rates: Vec<String> = rates.into_iter().flatten().collect();
            (!rates.is_empty()).then(|| rates.join(", "))
        }
        // A simulated VM's transfers are reported with its responses.
        Part::Transfer => None,
    }
}

/// Exact description of a promise.
fn terms(objective: &Objective, part: Part) -> Option<String> {
    describe(objective, part, Rate::to_string)
}

/// Promises of an objective that is in force, with their attainment up to `now`.
fn in_force(vms: Vms<'_>, now: Nanos, vm: VmId, objective: &Objective) -> Vec<PromiseResult> {
    (vms.attainment(now, vm).into_iter())
        .filter_map(|attainment| {
            Some(PromiseResult {
                terms: terms(objective, attainment.part)?,
                what: describe(objective, attainment.part, Rate::rounded)?,
                attainment,
            })
        })
        .collect()
}

impl PastPromises {
    /// Keeps the promises that end at `now` because `after` takes the place of `before`; `None`:
    /// the VM leaves.
    pub(super) fn keep(
        &mut self,
        vms: Vms<'_>,
        now: Nanos,
        vm: VmId,
        before: &Objective,
        after: Option<&Objective>,
    ) {
        let ends = |it: &PromiseResult| {
            let next = after.and_then(|after| terms(after, it.attainment.part));
            // A promise that stays as it was goes on, and is not over.
            next.as_ref() != Some(&it.terms)
        };
        let all = in_force(vms, now, vm, before);
        self.0.extend(all.into_iter().filter(ends));
    }

    /// Clears all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// All promises so far, those in force last; `vm`: the VM's handle, if it is there.
    pub(super) fn past_and_present(
        &self,
        vms: Vms<'_>,
        now: Nanos,
        vm: Option<VmId>,
        objective: &Objective,
    ) -> Vec<PromiseResult> {
        let mut all = self.0.clone();
        all.extend(
            vm.into_iter()
                .flat_map(|vm| in_force(vms, now, vm, objective)),
        );
        all
    }
}
