//! Objectives of a VM over time: the base, the schedule and what is in force.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tidegate_config::{Schedule, objective};
use tidegate_core::objective::Objective;

use super::VmConfig;

impl VmConfig {
    /// Returns the base objective with the schedule.
    pub fn promised(&self) -> Schedule {
        match &self.schedule {
            Some(schedule) => Schedule::clone(schedule),
            None => Schedule::from(self.objective),
        }
    }

    /// Sets objective and schedule. The base is in force until [`VmConfig::put_in_force`] is
    /// called.
    pub fn promise(&mut self, promised: Schedule) {
        self.objective = *promised.base();
        self.schedule = by_the_clock(promised);
    }

    /// Returns the objective at a time.
    pub fn promised_at(&self, time: Timestamp) -> &Objective {
        match &self.schedule {
            Some(schedule) => schedule.at(time).objective,
            None => &self.objective,
        }
    }

    /// Returns the entries of the schedule that will never hold again, by their numbers from one
    /// and with the times at which they held.
    pub fn entries_over(&self) -> Vec<(usize, String)> {
        let now = Timestamp::now();
        let promised = self.promised();
        let entries = promised.entries().iter().enumerate();
        let over = entries.filter(|(at, _)| promised.is_over_at(*at).is_some_and(|end| end <= now));
        over.map(|(at, entry)| (at + 1, entry.when.to_string()))
            .collect()
    }

    /// Puts the objective of a time in force.
    pub fn put_in_force(&mut self, time: Timestamp) {
        self.objective = *self.promised_at(time);
    }
}

/// Returns a schedule as [`VmConfig::schedule`] has it: `None` if it has no entries.
pub fn by_the_clock(promised: Schedule) -> Option<Arc<Schedule>> {
    (!promised.is_constant()).then(|| Arc::new(promised))
}

/// Converts an objective with its schedule to JSON, with every part of the base and `null` without
/// a schedule.
pub fn words(promised: &Schedule) -> Value {
    let mut words = objective::to_json(promised.base());
    words["timezone"] = promised.timezone().into();
    words["schedule"] = match promised.entries() {
        [] => Value::Null,
        _ => promised.words().into(),
    };
    words
}
