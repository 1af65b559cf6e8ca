//! Parts of an objective that the policy in force does not enforce. They are shown as warnings and
//! in answers of the API, so that no operator relies on a promise that is not kept.

use std::sync::LazyLock;

use serde::Serialize;
use tidegate_core::objective::Objective;
use tidegate_core::part::Enforces;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::{self, PolicySpec};

use crate::diagnostic::join_alternatives;
use crate::field::Field;
use crate::node::Value;
use crate::objective::promises;
use crate::schedule::Schedule;

/// Part of an objective that is not enforced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unenforced {
    /// Name of the part, such as `limit.burst`.
    pub part: &'static str,
    /// Value promised, with its unit.
    pub value: String,
    /// Policies that would enforce the part together with all other parts that any policy can
    /// enforce: names such as `mclock`, or a composition such as `token-bucket+mclock` where no
    /// named policy would.
    pub enforced_by: Vec<&'static str>,
}

impl Unenforced {
    /// Returns the warning: `policy fifo does not enforce the reservation (120 IOPS)`.
    pub fn warning(&self, policy: &str) -> String {
        format!(
            "policy {policy} does not enforce {} ({})",
            self.part, self.value
        )
    }

    /// Returns the help text of the warning: the policies that would enforce the part, if any.
    pub fn help(&self) -> String {
        match self.enforced_by.as_slice() {
            [] => "no policy enforces it yet: it is measured and reported only".to_owned(),
            names => {
                let names: Vec<String> = names.iter().map(|name| written(name)).collect();
                format!("policy {} enforces it", join_alternatives(&names))
            }
        }
    }
}

/// Returns a policy in the configuration's notation.
fn written(name: &str) -> String {
    match name.split('+').collect::<Vec<_>>().as_slice() {
        [regulator, dispatcher] => {
            format!("{{ regulator = {regulator:?}, dispatcher = {dispatcher:?} }}")
        }
        _ => format!("{name:?}"),
    }
}

/// Policies composed of each regulator with each dispatcher.
static COMPOSITIONS: LazyLock<Vec<PolicySpec>> = LazyLock::new(|| {
    let dispatchers = || policy::dispatchers().iter();
    policy::regulators()
        .iter()
        .flat_map(|r| dispatchers().map(|d| PolicySpec::composed(None, r.name, d.name)))
        .filter_map(Result::ok)
        .collect()
});

/// Named policies of the registry.
static NAMED: LazyLock<Vec<PolicySpec>> = LazyLock::new(|| {
    let names = policy::registry().iter().map(|info| info.name);
    names.filter_map(|n| PolicySpec::named(n).ok()).collect()
});

/// Returns the policies that enforce a part and everything else that `objective` promises; if there
/// are none, those that enforce the part alone.
fn enforcing(
    objective: &Objective,
    background: bool,
    enforced_parts: fn(&Enforces) -> bool,
) -> Vec<&'static str> {
    let by = |spec: &PolicySpec, part: fn(&Enforces) -> bool| part(&spec.enforces_for(background));
    // A part that no policy enforces would exclude every policy, so it is left out here.
    let asked: Vec<_> = promises()
        .filter(|promise| (promise.view)(objective).is_some())
        .map(|promise| promise.is_enforced)
        .filter(|&part| {
            let mut there = NAMED.iter().chain(COMPOSITIONS.iter());
            there.any(|spec| by(spec, part))
        })
        .collect();
    // Policies with the tuner are meant for targets; without one they are no useful advice.
    let tuned = |spec: &PolicySpec| objective.target.is_none() && spec.parts().0 == Some("tuner");
    let alone = |spec: &&PolicySpec| by(spec, enforced_parts) && !tuned(spec);
    let all = |spec: &&PolicySpec| alone(spec) && asked.iter().all(|&part| by(spec, part));
    let names = |specs: Vec<&'static PolicySpec>| specs.into_iter().map(PolicySpec::name).collect();
    let named: Vec<_> = NAMED.iter().filter(all).collect();
    if !named.is_empty() {
        return names(named);
    }
    match COMPOSITIONS.iter().find(all) {
        Some(composition) => names(vec![composition]),
        None => names(NAMED.iter().filter(alone).collect()),
    }
}

/// Returns the parts of `objective` that a policy with `enforces` does not enforce. `background`
/// selects the policies advised for background processes.
pub fn unenforced(objective: &Objective, enforces: &Enforces, background: bool) -> Vec<Unenforced> {
    promises()
        .filter(|promise| !(promise.is_enforced)(enforces))
        .filter_map(|promise| {
            let value = (promise.view)(objective)?;
            Some(Unenforced {
                part: promise.name,
                value,
                enforced_by: enforcing(objective, background, promise.is_enforced),
            })
        })
        .collect()
}

/// Returns the parts of `objective`, each with its value, that a change of policy puts in force:
/// enforced by `after` and not by `before`.
pub fn newly_enforced(
    objective: &Objective,
    before: &Enforces,
    after: &Enforces,
) -> Vec<(&'static str, String)> {
    promises()
        .filter(|promise| (promise.is_enforced)(after) && !(promise.is_enforced)(before))
        .filter_map(|promise| Some((promise.name, (promise.view)(objective)?)))
        .collect()
}

/// Warns at each part of the objective at `field` that `policy` does not enforce.
pub fn warn(field: &Field<'_>, objective: &Objective, policy: &PolicySpec, background: bool) {
    for part in unenforced(objective, &policy.enforces_for(background), background) {
        let place = field.find(part.part).unwrap_or_else(|| field.clone());
        place.warn(part.warning(policy.name()), &part.help());
    }
}

/// Warns at each part that an entry of the objective's schedule sets and `policy` does not enforce;
/// `field` is the objective.
pub fn warn_of_schedule(
    field: &Field<'_>,
    schedule: &Schedule,
    policy: &PolicySpec,
    background: bool,
) {
    let list = field.find("schedule");
    let list = list.filter(|list| matches!(list.node.value, Value::List(_)));
    let list = list.and_then(|list| list.elements()).unwrap_or_default();
    for (field, entry) in list.iter().zip(schedule.entries()) {
        let missing = unenforced(
            &entry.objective,
            &policy.enforces_for(background),
            background,
        );
        // Parts of the base objective have had their warning; only parts written here get one.
        for part in missing {
            if let Some(place) = field.find(part.part) {
                place.warn(part.warning(policy.name()), &part.help());
            }
        }
    }
}

/// Returns the names of the parts of an objective that a policy enforces.
pub fn enforced_parts(enforces: &Enforces) -> Vec<&'static str> {
    promises()
        .filter(|promise| (promise.is_enforced)(enforces))
        .map(|promise| promise.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::objective::{Limit, Rate};

    /// Returns the policies that would enforce each part that FIFO does not.
    fn would(objective: &Objective) -> Vec<(&'static str, Vec<&'static str>)> {
        let all = unenforced(objective, &Enforces::NONE, false);
        all.into_iter().map(|u| (u.part, u.enforced_by)).collect()
    }

    /// Policies of the registry that enforce these parts, but tuners only where one is asked for.
    fn named(parts: &[fn(&Enforces) -> bool], tuners: bool) -> Vec<&'static str> {
        let all = NAMED.iter().filter(|spec| {
            let enforces = spec.enforces_for(false);
            let fits = if tuners {
                enforces.target
            } else {
                spec.parts().0 != Some("tuner")
            };
            fits && parts.iter().all(|part| part(&enforces))
        });
        all.map(PolicySpec::name).collect()
    }

    #[test]
    fn what_a_change_of_policy_puts_in_force_is_what_only_the_new_one_enforces() {
        let objective = Objective {
            reservation: Rate::iops(100),
            latency: Some(tidegate_core::time::Nanos::from_millis(5)),
            ..Objective::default()
        };
        let of = |name| {
            let spec = PolicySpec::named(name).expect("registered");
            spec.enforces_for(false)
        };
        let (fifo, mclock) = (of("fifo"), of("mclock"));
        let named = |before: &Enforces, after: &Enforces| {
            let parts = newly_enforced(&objective, before, after);
            parts.into_iter().map(|(part, _)| part).collect::<Vec<_>>()
        };
        assert_eq!(named(&fifo, &mclock), ["reservation"]);
        assert_eq!(named(&mclock, &mclock), [""; 0]);
        assert_eq!(named(&mclock, &fifo), [""; 0]);
    }

    #[test]
    fn tuners_are_named_to_those_who_want_a_target() {
        let limited = Objective {
            limit: Limit::of_all(Rate::bytes(9_000_000)),
            ..Objective::default()
        };
        let untuned = named(&[|of| of.limit], false);
        assert!(untuned.contains(&"mclock"), "{untuned:?}");
        assert_eq!(would(&limited), [("limit", untuned)]);
        let precise = Objective {
            target: Rate::bytes(5_000_000),
            ..Objective::default()
        };
        let tuners = named(&[], true);
        assert!(tuners.contains(&"vcup-mclock"), "{tuners:?}");
        assert_eq!(would(&precise), [("target", tuners)]);
        // And whatever else they want, they want it with the target.
        let both = Objective {
            reservation: Rate::bytes(4_000_000),
            ..precise
        };
        let both_parts = named(&[|of| of.reservation], true);
        assert!(both_parts.contains(&"vcup-mclock"), "{both_parts:?}");
        assert_eq!(
            would(&both),
            [("reservation", both_parts.clone()), ("target", both_parts)]
        );
    }
}
