//! Schedules, as text with units.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_config::Schedule;

use super::ObjectiveView;

/// What of a VM's objective changes by the clock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleView {
    /// The time zone it names; `null`: the system's.
    pub timezone: Option<String>,
    /// The time there, and which zone that is.
    pub now: String,
    /// What is promised outside of all entries.
    pub base: ObjectiveView,
    /// The entries, as they are written.
    pub entries: Vec<Value>,
    /// The number of the entry, from one, that is to be in force now; `null`: the base.
    pub entry: Option<usize>,
    /// Why what is to be in force is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// What comes next; `null`: nothing else ever does.
    pub next: Option<NextView>,
}

/// What comes in force next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NextView {
    /// When, in the schedule's time zone.
    pub at: String,
    /// Seconds until then, rounded up.
    pub in_s: u64,
    /// The number of the entry, from one; `null`: the base.
    pub entry: Option<usize>,
    /// All of what is promised then.
    pub objective: ObjectiveView,
}

impl ScheduleView {
    /// Shows a schedule at a time.
    pub fn new(schedule: &Schedule, now: Timestamp, held: Option<String>) -> ScheduleView {
        let local = |at: Timestamp| at.to_zoned(schedule.zone()).to_string();
        let next = schedule.next(now).map(|next| NextView {
            at: local(next.at),
            in_s: (now.duration_until(next.at).unsigned_abs().as_nanos()).div_ceil(1_000_000_000)
                as u64,
            entry: next.then.entry.map(|at| at + 1),
            objective: ObjectiveView::new(next.then.objective),
        });
        ScheduleView {
            timezone: schedule.timezone().map(str::to_owned),
            now: local(now),
            base: ObjectiveView::new(schedule.base()),
            entries: schedule.words(),
            entry: schedule.at(now).entry.map(|at| at + 1),
            held,
            next,
        }
    }
}
