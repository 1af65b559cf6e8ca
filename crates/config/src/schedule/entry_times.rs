//! Times at which an entry of a schedule holds.

use std::fmt;
use std::ops::RangeInclusive;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{Span, Timestamp};

const DAY: i32 = 24 * 3600;
const WEEK: i32 = 7 * DAY;

/// Times at which an entry holds, on the wall clock of its schedule's time zone.
///
/// A time of day that a shift of the zone (DST) skips is moved later by the length of the shift; a
/// time of day that occurs twice means the first. An entry that begins and ends within a skipped
/// hour does not hold on that day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// Repeated every week.
    Weekly {
        /// Days on which the entry begins.
        days: Days,
        /// Time of day at which the entry begins.
        from: Time,
        /// Time of day at which the entry ends; on the next day if not after `from`.
        until: Time,
    },
    /// Holds once.
    Once {
        /// Date and time at which the entry begins.
        at: DateTime,
        /// Date and time at which the entry ends, after `at`; `None`: never.
        until: Option<DateTime>,
    },
}

/// Days of the week, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Days(u8);

/// Names of days, from Monday on.
pub(super) const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Days {
    /// All seven days.
    pub const ALL: Days = Days(0x7f);

    /// Creates a set from day numbers (Monday is 0); numbers above 6 are ignored. `None` if empty.
    pub fn from_numbers(days: impl IntoIterator<Item = usize>) -> Option<Days> {
        let bits = (days.into_iter().filter(|day| *day < 7)).fold(0, |bits, day| bits | 1 << day);
        (bits != 0).then_some(Days(bits))
    }

    /// Returns true if `day` is in the set.
    pub fn has(self, day: Weekday) -> bool {
        self.numbers()
            .any(|number| number == day.to_monday_zero_offset() as usize)
    }

    /// Iterates over the names of the days, such as `mon`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.numbers().map(|number| DAY_NAMES[number])
    }

    /// Iterates over the numbers of the days; Monday is 0.
    fn numbers(self) -> impl Iterator<Item = usize> {
        (0..7).filter(move |number| self.0 >> number & 1 == 1)
    }
}

/// Span of time, `start` included and `end` excluded, in which an entry holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrence {
    pub(super) entry: usize,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

impl Occurrence {
    /// Creates an occurrence; `None` if it is empty or one of its times is out of the clock's
    /// range.
    pub(super) fn new(
        entry: usize,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Option<Occurrence> {
        let (start, end) = (start?, end?);
        (start < end).then_some(Occurrence { entry, start, end })
    }
}

impl When {
    /// Returns true if a later entry overlaps this one and is not a one-time exception to a weekly
    /// entry.
    pub(super) fn is_hidden_by(&self, later: &When) -> bool {
        match (self, later) {
            (When::Weekly { .. }, When::Once { .. }) => false,
            (When::Weekly { .. }, When::Weekly { .. }) => {
                (self.in_week()).any(|a| later.in_week().any(|b| meet_in_week(a, b)))
            }
            (When::Once { at, until }, When::Once { at: b, until: end }) => {
                end.is_none_or(|end| *at < end) && until.is_none_or(|until| *b < until)
            }
            (When::Once { at, until }, When::Weekly { .. }) => {
                // Nine days suffice: an entry longer than a week overlaps every weekly one.
                let mut days = dates(at.date(), -1..=8).filter_map(|date| later.on(date));
                days.any(|(start, end)| end > *at && until.is_none_or(|until| start < until))
            }
        }
    }

    /// Returns begin and end of a weekly entry that begins on `date`; `None` if it does not begin
    /// then, or is a one-time entry.
    pub(super) fn on(&self, date: Date) -> Option<(DateTime, DateTime)> {
        let When::Weekly { days, from, until } = self else {
            return None;
        };
        let last = if until > from {
            date
        } else {
            date.tomorrow().ok()?
        };
        (days.has(date.weekday())).then(|| (date.to_datetime(*from), last.to_datetime(*until)))
    }

    /// Iterates over the begins of a weekly entry, in seconds from Monday 00:00, each with the
    /// duration in seconds; empty for a one-time entry.
    fn in_week(&self) -> impl Iterator<Item = (i32, i32)> {
        let (days, from, until) = match self {
            When::Weekly { days, from, until } => (*days, seconds(*from), seconds(*until)),
            When::Once { .. } => (Days(0), 0, 0),
        };
        let length = if until > from {
            until - from
        } else {
            until - from + DAY
        };
        let starts = days.numbers().map(move |day| day as i32 * DAY + from);
        starts.map(move |start| (start, length))
    }
}

/// Iterates over the dates at the given offsets, in days, from `around`.
pub(super) fn dates(around: Date, days: RangeInclusive<i32>) -> impl Iterator<Item = Date> {
    days.filter_map(move |days| around.checked_add(Span::new().days(days)).ok())
}

/// Returns true if two spans (begin in the week, length, in seconds) overlap; either may reach into
/// the next week.
fn meet_in_week((a, a_length): (i32, i32), (b, b_length): (i32, i32)) -> bool {
    (b - a).rem_euclid(WEEK) < a_length || (a - b).rem_euclid(WEEK) < b_length
}

fn seconds(time: Time) -> i32 {
    i32::from(time.hour()) * 3600 + i32::from(time.minute()) * 60 + i32::from(time.second())
}

/// Writes `18:00 to 23:00 on mon, tue` or `2026-12-01 18:00 to 2026-12-02 06:00`.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = |at: &DateTime| format!("{} {}", at.date(), time_word(at.time()));
        match self {
            When::Weekly { days, from, until } => {
                write!(f, "{} to {}", time_word(*from), time_word(*until))?;
                match *days {
                    Days::ALL => write!(f, " every day"),
                    days => write!(f, " on {}", days.names().collect::<Vec<_>>().join(", ")),
                }
            }
            When::Once { at, until: None } => write!(f, "from {} on", moment(at)),
            When::Once {
                at,
                until: Some(until),
            } => write!(f, "{} to {}", moment(at), moment(until)),
        }
    }
}

/// Returns a time of day as `18:00`, with seconds if they are not 0.
pub(super) fn time_word(time: Time) -> String {
    match time.second() {
        0 => format!("{:02}:{:02}", time.hour(), time.minute()),
        second => format!("{:02}:{:02}:{second:02}", time.hour(), time.minute()),
    }
}
