//! Schedules, as text with units.

use jiff::Timestamp;
use tidegate_api::schedule::{NextChangeView, ScheduleView};
use tidegate_config::Schedule;

use super::objective;

/// Returns a schedule as it stands at a time; `held` is why the objective that is due is not in
/// force.
pub(crate) fn schedule(schedule: &Schedule, now: Timestamp, held: Option<String>) -> ScheduleView {
    let local = |at: Timestamp| at.to_zoned(schedule.zone()).to_string();
    let next = schedule.next(now).map(|next| NextChangeView {
        at: local(next.at),
        // Rounded up: a client that waits for so long finds the entry in force.
        in_s: (now.duration_until(next.at).unsigned_abs().as_nanos()).div_ceil(1_000_000_000)
            as u64,
        // People count the entries from 1.
        entry: next.in_force.entry.map(|at| at + 1),
        objective: objective(next.in_force.objective),
    });
    ScheduleView {
        timezone: schedule.timezone().map(str::to_owned),
        now: local(now),
        base: objective(schedule.base()),
        entries: schedule.entries_to_json(),
        entry: schedule.in_force_at(now).entry.map(|at| at + 1),
        not_applied_because: held,
        next,
    }
}
