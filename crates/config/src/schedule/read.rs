//! Reader of an objective with its schedule.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{self, TimeZone};
use serde_json::{Map, Value as Json};
use tidegate_core::names::nearest;
use tidegate_core::objective::Objective;

use super::entry_times::{DAY_NAMES, dates};
use super::keys;
use super::{Days, ENTRIES_MAX, Entry, Schedule, When};
use crate::field::Field;
use crate::node::Value;
use crate::objective;
use crate::section::Section;

/// Help text for a time of day.
const TIME_HELP: &str = "\"18:00\", on the clock of its timezone";
/// Help text for a date with a time.
const DATE_TIME_HELP: &str = "\"2026-12-01T18:00\", on the clock of its timezone";
/// Help text for a future time.
const FUTURE_TIME_HELP: &str = "\"14:03\", \"2026-12-01T18:00\" or \"2026-12-01T18:00:00+01:00\"";
/// Help text for days of the week.
const DAYS_HELP: &str =
    "a list such as [\"mon\", \"fri\"], of mon, tue, wed, thu, fri, sat and sun";
/// Maximum length in bytes of a time zone's name; the longest IANA name has 32.
const ZONE_MAX: usize = 64;

/// Reads an objective's table, including `schedule` and `timezone`, and merges it into `current`.
/// `None`: something was wrong, which has been reported.
pub fn from_field(field: &Field<'_>, current: &Schedule) -> Option<Schedule> {
    let mut section = Section::with_keys(field, &keys::OBJECTIVE)?;
    let base = objective::parts(&mut section, &current.base);
    let zone = match section.field(&keys::TIMEZONE) {
        Some(field) => read_zone(&field),
        None => Some(current.zone.clone()),
    };
    let listed = take_entries(&mut section);
    section.finish();
    let base = base.and_then(|base| objective::validated(field, base));
    let entries = match (listed, &base) {
        // Entries are read even if the base is refused, so that their mistakes are reported too.
        (Some(listed), base) => {
            read_entries(field, &listed, base.as_ref().unwrap_or(&current.base))
        }
        (None, Some(base)) => rebased(field, &current.entries, base),
        (None, None) => None,
    };
    Some(Schedule {
        base: base?,
        zone: zone?,
        entries: entries?,
    })
}

/// Returns the fields of the entries in the document; `None`: no `schedule`, present entries stay.
fn take_entries<'a>(section: &mut Section<'a>) -> Option<Vec<Field<'a>>> {
    let named = section.field(&keys::SCHEDULE)?;
    if objective::is_none(&named) {
        return Some(Vec::new());
    }
    Some(section.take_tables(keys::SCHEDULE.name))
}

/// Reads all entries. `None`: there are too many, or one is wrong, which has been reported.
fn read_entries(field: &Field<'_>, listed: &[Field<'_>], base: &Objective) -> Option<Vec<Entry>> {
    if listed.len() > ENTRIES_MAX {
        let what = format!("a schedule of {} entries is too long", listed.len());
        let place = field
            .find(keys::SCHEDULE.name)
            .unwrap_or_else(|| field.clone());
        place.error(what, &format!("at most {ENTRIES_MAX} entries"));
        return None;
    }
    let entries: Vec<_> = listed.iter().map(|field| read_entry(field, base)).collect();
    entries.into_iter().collect()
}

/// Merges the changes of existing entries into a new base; reports those that contradict it.
fn rebased(field: &Field<'_>, entries: &[Entry], base: &Objective) -> Option<Vec<Entry>> {
    let rebased = entries.iter().enumerate().map(|(i, entry)| {
        match objective::merge(base, &Json::Object(entry.change.clone())) {
            Ok(objective) => Some(Entry {
                objective,
                ..entry.clone()
            }),
            Err(errors) => {
                let why = errors.0.first().map_or("refused", |error| &error.what);
                field.error(
                    format!(
                        "this contradicts entry {} of the schedule ({}): {why}",
                        i + 1,
                        entry.when
                    ),
                    "change that entry in the same request, or before",
                );
                None
            }
        }
    });
    // Collected first, so that all entries are checked and reported.
    let rebased: Vec<_> = rebased.collect();
    rebased.into_iter().collect()
}

fn read_entry(field: &Field<'_>, base: &Objective) -> Option<Entry> {
    let mut section = Section::with_keys(field, &keys::ENTRY)?;
    let when = read_times(field, &mut section);
    let force = section.flag(&keys::FORCE);
    let parts = objective::parts(&mut section, base);
    section.finish();
    let change = change_without_times(field);
    if change.is_empty() {
        field.error(
            "changes nothing",
            "a part of an objective: target = \"50 MB/s\"",
        );
        return None;
    }
    Some(Entry {
        when: when?,
        force: force?,
        objective: objective::validated(field, parts?)?,
        change,
    })
}

/// Returns the entry's change of the objective as written: all keys but those of its times.
fn change_without_times(field: &Field<'_>) -> Map<String, Json> {
    match field.node().to_json() {
        Json::Object(mut keys) => {
            keys.retain(|key, _| !keys::WHEN.has(key));
            keys
        }
        _ => Map::new(),
    }
}

fn read_times(field: &Field<'_>, section: &mut Section<'_>) -> Option<When> {
    let (at, from) = (section.field(&keys::AT), section.field(&keys::FROM));
    let (until, days) = (section.field(&keys::UNTIL), section.field(&keys::DAYS));
    let weekly = from.as_ref().or(days.as_ref());
    match (at, weekly, &until) {
        (Some(at), None, until) => read_once(&at, until.as_ref()),
        (None, None, None) => {
            let allowed = "from = \"18:00\" and until = \"23:00\", or at = \"2026-12-01T18:00\"";
            field.error("the times of this entry are missing", allowed);
            None
        }
        (None, ..) => {
            let from = from.map_or(Some(Time::midnight()), |field| time(&field, false));
            let until = until.map_or(Some(Time::midnight()), |field| time(&field, true));
            let days = days.map_or(Some(Days::ALL), |field| some_days(&field));
            Some(When::Weekly {
                days: days?,
                from: from?,
                until: until?,
            })
        }
        (Some(_), Some(weekly), _) => {
            let what = "a weekly entry cannot have `at`, which is for an entry that holds once";
            weekly.error(what, "at and until, or from, until and days");
            None
        }
    }
}

fn read_once(at: &Field<'_>, until: Option<&Field<'_>>) -> Option<When> {
    let begins = moment(at);
    let until = match until {
        Some(field) => {
            let ends = moment(field)?;
            if begins.is_some_and(|begins| ends <= begins) {
                field.error(
                    "ends before it begins",
                    "a time after `at`, or leave it out",
                );
                return None;
            }
            Some(ends)
        }
        None => None,
    };
    Some(When::Once { at: begins?, until })
}

/// Returns text in quotes, or a TOML date or time as written.
fn written<'a>(field: &Field<'a>) -> Option<&'a str> {
    match &field.node().value {
        Value::Text(text) | Value::Date(text) => Some(text.trim()),
        _ => None,
    }
}

/// Reads a time of day; `24:00` is allowed as an end and means midnight.
fn time(field: &Field<'_>, is_end: bool) -> Option<Time> {
    let read = written(field).and_then(|text| match text {
        "24:00" if is_end => Some(Time::midnight()),
        text => parse_time(text),
    });
    if read.is_none() {
        field.refuse("a time of day", TIME_HELP);
    }
    read
}

/// Reads a date with a time.
fn moment(field: &Field<'_>) -> Option<DateTime> {
    let read = written(field).and_then(parse_moment);
    if read.is_none() {
        field.refuse("a date and a time", DATE_TIME_HELP);
    }
    read
}

/// Reads a future time: a time of day (`14:03`, the next one), a date and time in `zone`, or a
/// timestamp with its own UTC offset.
pub fn future_time(field: &Field<'_>, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let read = written(field).and_then(|text| {
        let absolute = text.parse::<Timestamp>().ok();
        absolute.or_else(|| parse_wall_clock(text, now, zone))
    });
    match read {
        Some(time) if time > now => return Some(time),
        Some(_) => field.error(
            format!("{} is in the past", field.describe()),
            "a time in the future",
        ),
        None => field.refuse("a time in the future", FUTURE_TIME_HELP),
    }
    None
}

/// Parses a time of day, the next one after `now`, or a date and time, both in `zone`.
fn parse_wall_clock(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let at = |moment: DateTime| zone.to_timestamp(moment).ok();
    let Some(time) = parse_time(text) else {
        return at(parse_moment(text)?);
    };
    // Today, or tomorrow if the time of day has passed.
    let days = dates(zone.to_datetime(now).date(), 0..=1);
    let mut times = days.filter_map(|date| at(date.to_datetime(time)));
    times.find(|time| *time > now)
}

/// Parses a date and time: `2026-12-01T18:00`.
fn parse_moment(text: &str) -> Option<DateTime> {
    let (date, time) = text.split_once(['T', ' '])?;
    Some(parse_date(date)?.to_datetime(parse_time(time)?))
}

/// Parses `18:00` or `18:00:30` and nothing else: ignoring a trailing UTC offset would give another
/// time.
fn parse_time(text: &str) -> Option<Time> {
    let parts = digits(text, ':', &[2, 2, 2]).or_else(|| digits(text, ':', &[2, 2]))?;
    let second = parts.get(2).copied().unwrap_or(0);
    let small = |n: i16| i8::try_from(n).ok();
    Time::new(small(parts[0])?, small(parts[1])?, small(second)?, 0).ok()
}

/// Parses a date: `2026-12-01`.
fn parse_date(text: &str) -> Option<Date> {
    let parts = digits(text, '-', &[4, 2, 2])?;
    let small = |n: i16| i8::try_from(n).ok();
    Date::new(parts[0], small(parts[1])?, small(parts[2])?).ok()
}

/// Splits `text` at `between` into numbers with exactly the given numbers of digits.
fn digits(text: &str, between: char, lengths: &[usize]) -> Option<Vec<i16>> {
    let parts: Vec<&str> = text.split(between).collect();
    let fits = |(part, length): (&&str, &usize)| {
        part.len() == *length && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.len() != lengths.len() || !parts.iter().zip(lengths).all(fits) {
        return None;
    }
    parts.iter().map(|part| part.parse().ok()).collect()
}

/// Reads a list of days of the week, at least one.
fn some_days(field: &Field<'_>) -> Option<Days> {
    let Value::List(list) = &field.node().value else {
        field.refuse("days of the week", DAYS_HELP);
        return None;
    };
    if list.is_empty() {
        field.error("an empty list of days", DAYS_HELP);
        return None;
    }
    let choices: Vec<(&str, usize)> = DAY_NAMES.into_iter().zip(0..).collect();
    let numbers: Vec<_> = (field.elements()?.iter())
        .map(|field| field.choice(&choices))
        .collect();
    // Collected first, so that every wrong day is reported.
    Days::from_numbers(numbers.into_iter().collect::<Option<Vec<_>>>()?)
}

/// Reads the IANA name of a time zone. `Some(None)`: the host's, written `none`; `None`: the name
/// is unknown, which has been reported.
fn read_zone(field: &Field<'_>) -> Option<Option<TimeZone>> {
    if objective::is_none(field) {
        return Some(None);
    }
    let name = field.text()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "+-_/".contains(c);
    let found = (name.len() <= ZONE_MAX && name.chars().all(is_name))
        .then(|| TimeZone::get(name).ok())
        .flatten();
    // A zone without an IANA name could not be written back into a document.
    let found = found.filter(|zone| zone.iana_name().is_some());
    if found.is_none() {
        let known: Vec<String> = tz::db().available().map(|name| name.to_string()).collect();
        let near = nearest(name, known.iter().map(String::as_str));
        let allowed = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => "a name of the IANA time zone database: \"Europe/Berlin\", \"UTC\"".to_owned(),
        };
        field.error(format!("unknown time zone {}", field.describe()), &allowed);
    }
    found.map(Some)
}
