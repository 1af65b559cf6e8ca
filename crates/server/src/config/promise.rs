//! What a VM is promised: what is in force, and by what it changes with the clock.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tidegate_config::{Schedule, objective};
use tidegate_core::objective::Objective;

use super::VmConfig;

impl VmConfig {
    /// All that it is promised, by the clock.
    pub fn promised(&self) -> Schedule {
        match &self.schedule {
            Some(schedule) => Schedule::clone(schedule),
            None => Schedule::from(self.objective),
        }
    }

    /// Promises it something else, the base of which is in force until somebody looks at the clock.
    pub fn promise(&mut self, promised: Schedule) {
        self.objective = *promised.base();
        self.schedule = by_the_clock(promised);
    }

    /// What it is promised at a time.
    pub fn promised_at(&self, time: Timestamp) -> &Objective {
        match &self.schedule {
            Some(schedule) => schedule.at(time).objective,
            None => &self.objective,
        }
    }

    /// The entries of its schedule that are over for good: their numbers, from one, and when they
    /// held.
    pub fn entries_over(&self) -> Vec<(usize, String)> {
        let now = Timestamp::now();
        let promised = self.promised();
        let entries = promised.entries().iter().enumerate();
        let over = entries.filter(|(at, _)| promised.is_over_at(*at).is_some_and(|end| end <= now));
        over.map(|(at, entry)| (at + 1, entry.when.to_string()))
            .collect()
    }

    /// Puts in force what its schedule says of a time.
    pub fn put_in_force(&mut self, time: Timestamp) {
        self.objective = *self.promised_at(time);
    }
}

/// A schedule as it is kept with a VM: one that says nothing is none.
pub fn by_the_clock(promised: Schedule) -> Option<Arc<Schedule>> {
    (!promised.is_constant()).then(|| Arc::new(promised))
}

/// A `[vm.objective]` in JSON: every part of the base, and the schedule, also where there is none.
pub fn words(promised: &Schedule) -> Value {
    let mut words = objective::to_json(promised.base());
    words["timezone"] = promised.timezone().into();
    words["schedule"] = match promised.entries() {
        [] => Value::Null,
        _ => promised.words().into(),
    };
    words
}
