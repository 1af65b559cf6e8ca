//! When an entry of a schedule holds.

use std::fmt;
use std::ops::RangeInclusive;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{Span, Timestamp};

const DAY: i32 = 24 * 3600;
const WEEK: i32 = 7 * DAY;

/// When an entry holds, on the wall clock of its schedule's time zone.
///
/// A time that a shift of the zone leaves out counts as much later as the shift is long; of one
/// that comes twice the first counts. So an entry that begins and ends within an hour that is left
/// out does not hold on that day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// Every week.
    Weekly {
        /// The days on which it begins.
        days: Days,
        /// From then on.
        from: Time,
        /// Until then; on the next day where it is not after `from`.
        until: Time,
    },
    /// Once.
    Once {
        /// From then on.
        at: DateTime,
        /// Until then, which is after `at`; `None`: for good.
        until: Option<DateTime>,
    },
}

/// Days of the week, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Days(u8);

/// Their names, from Monday on.
pub(super) const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Days {
    /// All of them.
    pub const ALL: Days = Days(0x7f);

    /// Days by their numbers, Monday being 0. `None` where there is none.
    pub fn of(days: impl IntoIterator<Item = usize>) -> Option<Days> {
        let bits = (days.into_iter().filter(|day| *day < 7)).fold(0, |bits, day| bits | 1 << day);
        (bits != 0).then_some(Days(bits))
    }

    /// Whether a day is one of them.
    pub fn has(self, day: Weekday) -> bool {
        self.numbers()
            .any(|number| number == day.to_monday_zero_offset() as usize)
    }

    /// Their names, such as `mon`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.numbers().map(|number| DAY_NAMES[number])
    }

    /// Their numbers, Monday being 0.
    fn numbers(self) -> impl Iterator<Item = usize> {
        (0..7).filter(move |number| self.0 >> number & 1 == 1)
    }
}

/// An entry holds from `start` on, and at `end` no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrence {
    pub(super) entry: usize,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

impl Occurrence {
    /// `None` where it holds at no time, or at none that a clock can show.
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
    /// Whether a later entry takes a part of this one's time, and is no exception to it.
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
                // What lasts longer than a week meets whatever comes every week.
                let mut days = dates(at.date(), -1..=8).filter_map(|date| later.on(date));
                days.any(|(start, end)| end > *at && until.is_none_or(|until| start < until))
            }
        }
    }

    /// When it begins and ends if it begins on that day, as what comes every week does.
    pub(super) fn on(&self, date: Date) -> Option<(DateTime, DateTime)> {
        let When::Weekly { days, from, until } = self else {
            return None;
        };
        let last = match until > from {
            true => date,
            false => date.tomorrow().ok()?,
        };
        (days.has(date.weekday())).then(|| (date.to_datetime(*from), last.to_datetime(*until)))
    }

    /// When it begins in the week, and how long it holds, in seconds.
    fn in_week(&self) -> impl Iterator<Item = (i32, i32)> {
        let (days, from, until) = match self {
            When::Weekly { days, from, until } => (*days, seconds(*from), seconds(*until)),
            When::Once { .. } => (Days(0), 0, 0),
        };
        let length = match until > from {
            true => until - from,
            false => until - from + DAY,
        };
        let starts = days.numbers().map(move |day| day as i32 * DAY + from);
        starts.map(move |start| (start, length))
    }
}

/// The days around one.
pub(super) fn dates(around: Date, days: RangeInclusive<i32>) -> impl Iterator<Item = Date> {
    days.filter_map(move |days| around.checked_add(Span::new().days(days)).ok())
}

/// Whether two spans of a week meet, of which either may reach into the next.
fn meet_in_week((a, a_length): (i32, i32), (b, b_length): (i32, i32)) -> bool {
    (b - a).rem_euclid(WEEK) < a_length || (a - b).rem_euclid(WEEK) < b_length
}

fn seconds(time: Time) -> i32 {
    i32::from(time.hour()) * 3600 + i32::from(time.minute()) * 60 + i32::from(time.second())
}

/// `18:00 to 23:00 on mon, tue`, `2026-12-01 18:00 to 2026-12-02 06:00`.
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
            When::Once { at, until: None } => write!(f, "{} on", moment(at)),
            When::Once {
                at,
                until: Some(until),
            } => write!(f, "{} to {}", moment(at), moment(until)),
        }
    }
}

/// A time of day as it is written: `18:00`, with seconds where it has some.
pub(super) fn time_word(time: Time) -> String {
    match time.second() {
        0 => format!("{:02}:{:02}", time.hour(), time.minute()),
        second => format!("{:02}:{:02}:{second:02}", time.hour(), time.minute()),
    }
}
