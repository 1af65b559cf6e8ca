//! Schedules: a base objective, and entries that change parts of it at times of day or dates.
//!
//! ```text
//!   base --------------------------------------------------------------> in force
//!     +-- merged with entry 1 --- 18:00 to 23:00, mon to fri ---+
//!     +-- merged with entry 2 --- 2026-12-01T18:00 on ----------+   of those that hold
//!                                                                   now, the last one
//! ```
//!
//! Each entry is a change as the API takes it (RFC 7396), merged into the base and into no other
//! entry. The resulting objective is checked when the schedule is read, so every objective that can
//! come into force is known to be valid beforehand.
//!
//! Times are wall-clock times in a named time zone. The objective in force is a function of the
//! present time alone and needs no history, so that a clock that jumps needs no special case. No
//! function here reads the clock.

mod entry_times;
pub mod keys;
mod notation;
mod read;
#[cfg(test)]
mod tests;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use tidegate_core::objective::Objective;

use crate::diagnostic::ConfigErrors;
use crate::document;

pub use entry_times::{Days, When};
use entry_times::{Occurrence, dates};
pub use read::{from_field, future_time};

/// Maximum number of entries of a schedule.
pub const ENTRIES_MAX: usize = 64;
/// Days before now in which an entry that still holds may have begun: a weekly entry lasts at most
/// a day, and a shift of the time zone (DST) delays its end by less than another.
const DAYS_BACK: i32 = 2;
/// Days ahead that contain each weekly entry at least once, even if a shift of the time zone (DST)
/// skips one occurrence.
const DAYS_AHEAD: i32 = 15;

/// Objective that changes by the clock.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schedule {
    /// Objective outside of all entries.
    base: Objective,
    /// Time zone of all times; `None`: the host's.
    zone: Option<TimeZone>,
    entries: Vec<Entry>,
}

/// Change of the base objective, with the times at which it holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Times at which the entry holds.
    pub when: When,
    /// Applies the entry even if it does not fit the device.
    pub force: bool,
    /// Base objective with the change merged in.
    pub objective: Objective,
    /// Change as it was written.
    change: Map<String, Value>,
}

/// Objective in force at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InForce<'a> {
    /// Index of the entry, from 0; `None`: the base.
    pub entry: Option<usize>,
    /// Whole objective in force.
    pub objective: &'a Objective,
}

/// Change change of the objective in force.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change<'a> {
    /// Time of the change.
    pub at: Timestamp,
    /// Objective in force from that time on.
    pub in_force: InForce<'a>,
}

impl From<Objective> for Schedule {
    /// Creates a schedule that never changes.
    fn from(base: Objective) -> Schedule {
        Schedule {
            base,
            ..Schedule::default()
        }
    }
}

/// Merges a change in JSON, as the control API takes it, into an objective with its schedule, and
/// checks the result. Parts that are left out stay; `schedule` replaces the whole list of entries.
///
/// # Errors
/// All mistakes of the change and of the resulting objectives.
pub fn merge(current: &Schedule, change: &Value) -> Result<Schedule, ConfigErrors> {
    document::read_json(change, "", |field| from_field(field, current))
}

impl Schedule {
    /// Returns the objective outside of all entries.
    pub fn base(&self) -> &Objective {
        &self.base
    }

    /// Returns the entries in order. If several hold at a time, the last one is in force.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns true if there are no entries and no time zone: the schedule is written as its base
    /// alone.
    pub fn is_plain_objective(&self) -> bool {
        self.entries.is_empty() && self.zone.is_none()
    }

    /// Returns the IANA name of the schedule's own time zone, if it has one.
    pub fn timezone(&self) -> Option<&str> {
        self.zone.as_ref().and_then(TimeZone::iana_name)
    }

    /// Returns the time zone in use: the schedule's own, or the host's present one.
    pub fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or_else(TimeZone::system)
    }

    /// Returns the objective in force at a time.
    pub fn in_force_at(&self, now: Timestamp) -> InForce<'_> {
        // Most VMs have no schedule, and this is called for all of them: skip the time zone lookup.
        if self.entries.is_empty() {
            return self.in_force(None);
        }
        self.in_force(holding(&self.occurrences_around(now, 1), now))
    }

    /// Returns the next change to a different objective; `None` if there is none.
    pub fn next(&self, now: Timestamp) -> Option<Change<'_>> {
        let before = self.in_force_at(now);
        let mut from = vec![now];
        from.extend(self.one_time_bounds().into_iter().filter(|at| *at > now));
        // Weekly entries repeat, so two weeks from now and from each begin or end of a one-time
        // entry are enough: between those windows no other combination of entries can hold.
        for (i, &start) in from.iter().enumerate() {
            let far = SignedDuration::from_hours(24 * i64::from(DAYS_AHEAD));
            let far = start.checked_add(far).unwrap_or(Timestamp::MAX);
            let end = from.get(i + 1).map_or(far, |end| far.min(*end));
            let here = |at: &Timestamp| *at >= start && *at < end;
            // Two days more than the window, for entries that begin within and end behind it.
            let all = self.occurrences_around(start, DAYS_AHEAD + 2);
            let bounds = bounds(&all, now).into_iter().filter(here);
            let next = bounds.map(|at| Change {
                at,
                in_force: self.in_force(holding(&all, at)),
            });
            let mut changed = next.filter(|next| next.in_force.objective != before.objective);
            if let Some(changed) = changed.next() {
                return Some(changed);
            }
        }
        None
    }

    /// Returns the next time at which an entry begins or ends, and the schedule is to be evaluated
    /// again: of weekly entries today or tomorrow, of one-time entries without bound. `None`: there
    /// is none.
    pub fn next_bound(&self, now: Timestamp) -> Option<Timestamp> {
        bounds(&self.occurrences_around(now, 1), now)
            .first()
            .copied()
    }

    /// Returns all times after `now` at which an entry begins or ends, in order: of weekly entries
    /// within the next week, of one-time entries without bound.
    pub fn bounds(&self, now: Timestamp) -> Vec<Timestamp> {
        // One day more than a week, for changes of the clock.
        let mut all = bounds(&self.occurrences_around(now, 8), now);
        all.extend(self.one_time_bounds().into_iter().filter(|at| *at > now));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns pairs (earlier, later) of entry indices, from 0, where the later entry overrides the
    /// earlier one for a time, which is probably unintended. A one-time entry after a weekly one
    /// is an exception to it and is not reported.
    pub fn overlaps(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (later, b) in self.entries.iter().enumerate() {
            for (earlier, a) in self.entries[..later].iter().enumerate() {
                if a.when.is_hidden_by(&b.when) {
                    found.push((earlier, later));
                }
            }
        }
        found
    }

    /// Returns the time at which a one-time entry ends. `None`: the entry is weekly or has no end.
    pub fn end_of_entry(&self, entry: usize) -> Option<Timestamp> {
        match self.entries.get(entry)?.when {
            When::Once {
                until: Some(until), ..
            } => self.zone().to_timestamp(until).ok(),
            _ => None,
        }
    }

    /// Returns the objective of an entry, or the base for `None`.
    fn in_force(&self, entry: Option<usize>) -> InForce<'_> {
        let objective = entry.map_or(&self.base, |entry| &self.entries[entry].objective);
        InForce { entry, objective }
    }

    /// Returns the occurrences of weekly entries from [`DAYS_BACK`] days before `time` to
    /// `days_ahead` days after it, and of all one-time entries.
    fn occurrences_around(&self, time: Timestamp, days_ahead: i32) -> Vec<Occurrence> {
        let zone = self.zone();
        let today = time.to_zoned(zone.clone()).date();
        let instant = |time: DateTime| zone.to_timestamp(time).ok();
        let mut all = Vec::new();
        for (entry, it) in self.entries.iter().enumerate() {
            if let When::Once { at, until } = it.when {
                let end = until.map_or(Some(Timestamp::MAX), instant);
                all.extend(Occurrence::new(entry, instant(at), end));
            }
            let days = dates(today, -DAYS_BACK..=days_ahead).filter_map(|date| it.when.on(date));
            all.extend(
                days.filter_map(|(start, end)| {
                    Occurrence::new(entry, instant(start), instant(end))
                }),
            );
        }
        all
    }

    /// Returns the times at which one-time entries begin and end, in order.
    fn one_time_bounds(&self) -> Vec<Timestamp> {
        let zone = self.zone();
        let times = self.entries.iter().flat_map(|entry| match entry.when {
            When::Once { at, until } => [Some(at), until],
            When::Weekly { .. } => [None, None],
        });
        let mut all: Vec<_> = (times.flatten())
            .filter_map(|time| zone.to_timestamp(time).ok())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Returns the index of the last entry that holds at `now`.
fn holding(all: &[Occurrence], now: Timestamp) -> Option<usize> {
    let now = all.iter().filter(|it| it.start <= now && now < it.end);
    now.map(|it| it.entry).max()
}

/// Returns the begins and ends of occurrences after a time, in order.
fn bounds(all: &[Occurrence], after: Timestamp) -> Vec<Timestamp> {
    let times = all.iter().flat_map(|it| [it.start, it.end]);
    let mut bounds: Vec<_> = times
        .filter(|at| *at > after && *at < Timestamp::MAX)
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
}
