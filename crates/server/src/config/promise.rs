//! Objective of a VM with its schedule: what is in force now, and what is at another time.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tidegate_config::{Schedule, objective, policy_view};
use tidegate_core::objective::Objective;
use tidegate_core::part::ParamKind;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;

use super::VmConfig;

impl VmConfig {
    /// Returns the complete objective: the base with the schedule.
    pub fn promised(&self) -> Schedule {
        match &self.schedule {
            Some(schedule) => Schedule::clone(schedule),
            None => Schedule::from(self.objective),
        }
    }

    /// Replaces the complete objective; its base is in force until the schedule is applied.
    pub fn promise(&mut self, promised: Schedule) {
        self.objective = *promised.base();
        self.schedule = by_the_clock(promised);
    }

    /// Returns the objective at a time.
    pub fn promised_at(&self, time: Timestamp) -> &Objective {
        match &self.schedule {
            Some(schedule) => schedule.in_force_at(time).objective,
            None => &self.objective,
        }
    }

    /// Returns the entries of the schedule that have ended for good: their numbers, from 1, and
    /// their times.
    pub fn entries_over(&self) -> Vec<(usize, String)> {
        let now = Timestamp::now();
        let promised = self.promised();
        let entries = promised.entries().iter().enumerate();
        let over =
            entries.filter(|(at, _)| promised.end_of_entry(*at).is_some_and(|end| end <= now));
        over.map(|(at, entry)| (at + 1, entry.when.to_string()))
            .collect()
    }

    /// Puts the objective at a time in force.
    pub fn put_in_force(&mut self, time: Timestamp) {
        self.objective = *self.promised_at(time);
    }
}

/// Returns a schedule for [`VmConfig::schedule`]; `None` if it has no entries.
pub fn by_the_clock(promised: Schedule) -> Option<Arc<Schedule>> {
    (!promised.is_plain_objective()).then(|| Arc::new(promised))
}

/// Returns the JSON of a `[vm.objective]`: every part of the base, and the schedule, `null` where
/// not set.
pub fn words(promised: &Schedule) -> Value {
    let mut words = objective::to_json(promised.base());
    words["timezone"] = promised.timezone().into();
    words["schedule"] = match promised.entries() {
        [] => Value::Null,
        _ => promised.entries_to_json().into(),
    };
    words
}

/// Returns the JSON of a policy that [`policy::read`](super::policy::read) reads.
pub fn policy_words(policy: &dyn Policy) -> Value {
    let view = policy_view::policy(policy);
    let mut words = serde_json::Map::new();
    if view.name.contains('+') {
        let controller = view.controller.unwrap_or_else(|| "none".to_owned());
        words.insert("controller".to_owned(), controller.into());
        words.insert("regulator".to_owned(), view.regulator.into());
        words.insert("dispatcher".to_owned(), view.dispatcher.into());
    } else {
        words.insert("name".to_owned(), view.name.into());
    }
    let spec = PolicySpec::behind(policy);
    for (info, value) in policy.params().iter().copied() {
        // A parameter of another tuner has no effect, and is refused.
        if spec.is_some_and(|spec| spec.tuner_needed_by(info.name).is_some()) {
            continue;
        }
        let value = match info.kind {
            ParamKind::Count => value.into(),
            ParamKind::Flag => (value != 0).into(),
            kind => policy_view::with_unit(kind, value).into(),
        };
        words.insert(info.name.to_owned(), value);
    }
    Value::Object(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_again_with_its_parameters() {
        let read = |words| tidegate_config::policy::read(&words).expect("a policy");
        for policy in PolicySpec::every_composition() {
            assert_eq!(read(policy_words(policy)), *policy);
        }
        let parts = serde_json::json!({
            "controller": "none", "regulator": "token-bucket", "dispatcher": "mclock",
            "cost_size": "64 KiB",
        });
        let policy = read(parts);
        assert_eq!(read(policy_words(&policy)), policy);
    }
}
