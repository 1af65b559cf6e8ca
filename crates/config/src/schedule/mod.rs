//! Objectives by the clock: what holds always, and what of it is something else for a time.
//!
//! ```text
//!   base --------------------------------------------------------------> in force
//!     +-- merged with entry 1 --- 18:00 to 23:00, mon to fri ---+
//!     +-- merged with entry 2 --- 2026-12-01T18:00 on ----------+   of those that hold
//!                                                                   now, the last one
//! ```
//!
//! Each entry is a change as the API takes it (RFC 7396), merged over the base and over nothing
//! else, and the whole that comes of it is checked when it is read. So there are as many objectives
//! as entries and one more, all of them known to be good before the first comes in force.
//!
//! Times are those of a wall clock in a named time zone. What is in force is a function of the time
//! alone: whoever follows a schedule looks at the clock and needs to know nothing of what was
//! before, so that a clock that jumps is nothing special. Nothing here reads one.

pub mod keys;
mod read;
#[cfg(test)]
mod tests;
mod when;
mod words;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use tidegate_core::objective::Objective;

use crate::diagnose::ConfigErrors;
use crate::document;

pub use read::{from_field, time_to_come};
pub use when::{Days, When};
use when::{Occurrence, dates};

/// More entries than anybody keeps in mind.
pub const ENTRIES_MAX: usize = 64;
/// An entry holds for a day at most unless it comes once, and shifts of a zone move its end by less
/// than another.
const DAYS_BACK: i32 = 2;
/// What comes every week has come by then, even where a shift of the zone leaves it out once.
const DAYS_AHEAD: i32 = 15;

/// What is promised, by the clock.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schedule {
    /// What holds outside of every entry.
    base: Objective,
    /// `None`: the system's.
    zone: Option<TimeZone>,
    entries: Vec<Entry>,
}

/// A change of the base, and when it holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// When.
    pub when: When,
    /// Comes in force even where it does not fit the device.
    pub force: bool,
    /// What comes of the base and the change.
    pub objective: Objective,
    /// The change, in the words it was given.
    change: Map<String, Value>,
}

/// What is in force at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InForce<'a> {
    /// The place of the entry in the list, from zero; `None`: the base.
    pub entry: Option<usize>,
    /// All of what is promised.
    pub objective: &'a Objective,
}

/// What comes in force next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Next<'a> {
    /// When.
    pub at: Timestamp,
    /// What.
    pub then: InForce<'a>,
}

impl From<Objective> for Schedule {
    /// One that never changes.
    fn from(base: Objective) -> Schedule {
        Schedule {
            base,
            ..Schedule::default()
        }
    }
}

/// Merges a change in JSON into an objective with its schedule, and checks the whole. The control
/// API's. What is not named stays; a `schedule` replaces the list.
///
/// # Errors
/// Everything wrong with it; what is in force stays as it is.
pub fn merge(was: &Schedule, change: &Value) -> Result<Schedule, ConfigErrors> {
    document::read_json(change, "", |field| from_field(field, was))
}

impl Schedule {
    /// What holds outside of every entry.
    pub fn base(&self) -> &Objective {
        &self.base
    }

    /// The entries in their order: of those that hold at a time, the last one is in force.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether it says nothing beyond its base.
    pub fn is_constant(&self) -> bool {
        self.entries.is_empty() && self.zone.is_none()
    }

    /// The time zone it names.
    pub fn timezone(&self) -> Option<&str> {
        self.zone.as_ref().and_then(TimeZone::iana_name)
    }

    /// The time zone it goes by: the one it names, or what the system's is now.
    pub fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or_else(TimeZone::system)
    }

    /// What is in force at a time.
    pub fn at(&self, now: Timestamp) -> InForce<'_> {
        // Most have no entry, and are asked as often.
        match self.entries.is_empty() {
            true => self.in_force(None),
            false => self.in_force(holding(&self.around(now, 1), now)),
        }
    }

    /// When another objective comes in force, and which. `None`: never.
    pub fn next(&self, now: Timestamp) -> Option<Next<'_>> {
        let before = self.at(now);
        let mut from = vec![now];
        from.extend(self.once().into_iter().filter(|at| *at > now));
        // What comes every week is looked at for two weeks, from now and from each change of what
        // comes once: in between nothing is new.
        for (i, &start) in from.iter().enumerate() {
            let far = SignedDuration::from_hours(24 * i64::from(DAYS_AHEAD));
            let far = start.checked_add(far).unwrap_or(Timestamp::MAX);
            let end = from.get(i + 1).map_or(far, |end| far.min(*end));
            let here = |at: &Timestamp| *at >= start && *at < end;
            // With whatever begins up to there.
            let all = self.around(start, DAYS_AHEAD + 2);
            let bounds = bounds(&all, now).into_iter().filter(here);
            let next = bounds.map(|at| Next {
                at,
                then: self.in_force(holding(&all, at)),
            });
            let mut changed = next.filter(|next| next.then.objective != before.objective);
            if let Some(changed) = changed.next() {
                return Some(changed);
            }
        }
        None
    }

    /// The next time at which an entry begins or ends, as far as that is today or tomorrow: when to
    /// look at the clock again.
    pub fn next_bound(&self, now: Timestamp) -> Option<Timestamp> {
        bounds(&self.around(now, 1), now).first().copied()
    }

    /// Every time after `now` at which an entry begins or ends: of what comes every week the next
    /// week's, of what comes once all.
    pub fn bounds(&self, now: Timestamp) -> Vec<Timestamp> {
        let mut all = bounds(&self.around(now, 8), now);
        all.extend(self.once().into_iter().filter(|at| *at > now));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Entries that another, later one hides for a time, though it is no exception to them: pairs
    /// of places, from zero. What comes once is an exception to what comes every week before it.
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

    /// When an entry that comes once is over. `None`: it comes every week, or has no end.
    pub fn is_over_at(&self, entry: usize) -> Option<Timestamp> {
        match self.entries.get(entry)?.when {
            When::Once {
                until: Some(until), ..
            } => self.zone().to_timestamp(until).ok(),
            _ => None,
        }
    }

    fn in_force(&self, entry: Option<usize>) -> InForce<'_> {
        let objective = entry.map_or(&self.base, |entry| &self.entries[entry].objective);
        InForce { entry, objective }
    }

    /// When entries hold, from two days before a time to so many days after it, and whatever comes
    /// once.
    fn around(&self, time: Timestamp, days_ahead: i32) -> Vec<Occurrence> {
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

    /// When what comes once begins and ends, in order.
    fn once(&self) -> Vec<Timestamp> {
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

/// Of the entries that hold at a time the last.
fn holding(all: &[Occurrence], now: Timestamp) -> Option<usize> {
    let now = all.iter().filter(|it| it.start <= now && now < it.end);
    now.map(|it| it.entry).max()
}

/// When something begins or ends after a time, in order.
fn bounds(all: &[Occurrence], after: Timestamp) -> Vec<Timestamp> {
    let times = all.iter().flat_map(|it| [it.start, it.end]);
    let mut bounds: Vec<_> = times
        .filter(|at| *at > after && *at < Timestamp::MAX)
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
}
