//! Moments of the past, as options and queries name them: `-15m`, `15 min`, `14:02`,
//! `2026-11-28T14:02:00Z`.

use std::fmt;

use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp, Zoned};
use tidegate_core::time::Nanos;

/// Spellings of a moment, for messages.
pub const ALLOWED: &str = "now, a time ago (-15m, 15 min, 2h, 1d), a time of day (14:02), a date \
                           and time (2026-11-28 14:02, 2026-11-28T14:02:00Z), or seconds since \
                           1970";

/// Least number that is taken for seconds since 1970. A smaller one may as well be meant as that
/// many seconds or minutes ago.
const SECONDS_MIN: i64 = 1_000_000_000;

/// Moment of the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// So long before the present time.
    Ago(Nanos),
    /// Point in time.
    At(Timestamp),
}

/// Text that is no moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAMoment(String);

impl fmt::Display for NotAMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a time: give {ALLOWED}", self.0)
    }
}

impl std::error::Error for NotAMoment {}

/// Parses a span of time such as `15m`, `90 s`, `2 h`, `15 min` or `1d`.
pub fn parse_span(text: &str) -> Option<Nanos> {
    const DAY: u64 = 86_400 * Nanos::SECOND.0;
    let text = text.trim();
    let number = |unit| {
        let number = text.strip_suffix(unit).map(str::trim_end);
        number.filter(|number| number.ends_with(|c: char| c.is_ascii_digit()))
    };
    // `m` is no unit of the configuration, because it may be taken for milli or mega.
    if let Some(minutes) = number("m") {
        return tidegate_units::parse_duration(&format!("{minutes}min")).ok();
    }
    match number("d") {
        Some(days) => days.parse::<u64>().ok()?.checked_mul(DAY).map(Nanos),
        None => tidegate_units::parse_duration(text).ok(),
    }
}

impl Moment {
    /// Present time.
    pub const NOW: Moment = Moment::Ago(Nanos::ZERO);

    /// Parses a moment. `now` gives the day and the zone of times without them.
    ///
    /// # Errors
    /// If the text is none of the spellings of [`ALLOWED`].
    pub fn parse(text: &str, now: &Zoned) -> Result<Moment, NotAMoment> {
        let trimmed = text.trim();
        let local = |at: DateTime| Some(at.to_zoned(now.time_zone().clone()).ok()?.timestamp());
        // A lone number is no time of day.
        let of_today = || {
            let time = trimmed
                .contains(':')
                .then(|| trimmed.parse::<Time>().ok())??;
            local(now.date().to_datetime(time))
        };
        let seconds = || {
            let seconds = trimmed.parse::<i64>().ok().filter(|&s| s >= SECONDS_MIN)?;
            Timestamp::from_second(seconds).ok()
        };
        let at = || {
            let absolute = seconds().or_else(|| trimmed.parse::<Timestamp>().ok());
            let dated = || trimmed.parse::<DateTime>().ok().and_then(local);
            absolute.or_else(dated).or_else(of_today)
        };
        let moment = match trimmed {
            "now" => Some(Moment::NOW),
            _ => parse_span(trimmed.strip_prefix('-').unwrap_or(trimmed))
                .map(Moment::Ago)
                .or_else(|| at().map(Moment::At)),
        };
        moment.ok_or_else(|| NotAMoment(text.to_owned()))
    }

    /// Returns the point in time, with the present one.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::Ago(ago) => {
                let ago = SignedDuration::from_nanos(i64::try_from(ago.0).unwrap_or(i64::MAX));
                now.checked_sub(ago).unwrap_or(Timestamp::MIN)
            }
            Moment::At(at) => at,
        }
    }
}

/// Writes the moment such that [`Moment::parse`] reads it, in any zone.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Moment::NOW => f.write_str("now"),
            Moment::Ago(ago) => write!(f, "-{}", tidegate_units::format_duration(ago)),
            Moment::At(at) => at.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-03-01T12:30:00+01:00[Europe/Berlin]"
            .parse()
            .expect("a time")
    }

    fn at(text: &str) -> Result<String, NotAMoment> {
        let moment = Moment::parse(text, &now())?;
        Ok(moment.at(now().timestamp()).to_string())
    }

    #[test]
    fn a_moment_is_a_time_ago_a_time_of_day_a_date_or_seconds() {
        for (text, expected) in [
            ("now", "2026-03-01T11:30:00Z"),
            ("-15m", "2026-03-01T11:15:00Z"),
            ("15m", "2026-03-01T11:15:00Z"),
            ("15 min", "2026-03-01T11:15:00Z"),
            ("-15 min", "2026-03-01T11:15:00Z"),
            ("-90s", "2026-03-01T11:28:30Z"),
            ("-500ms", "2026-03-01T11:29:59.5Z"),
            ("-2h", "2026-03-01T09:30:00Z"),
            ("1 d", "2026-02-28T11:30:00Z"),
            ("14:02", "2026-03-01T13:02:00Z"),
            ("14:02:30", "2026-03-01T13:02:30Z"),
            ("2026-02-28 14:02", "2026-02-28T13:02:00Z"),
            ("2026-02-28T14:02:00", "2026-02-28T13:02:00Z"),
            ("2026-02-28T14:02:00Z", "2026-02-28T14:02:00Z"),
            ("2026-02-28T14:02:00+05:00", "2026-02-28T09:02:00Z"),
            ("1700000000", "2023-11-14T22:13:20Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "-",
            "15",
            "-15",
            "-x",
            "25:00",
            "yesterday",
            "2026-13-01 00:00",
            "99999999999999999999",
            "99999999999999999d",
        ] {
            let refused = at(wrong).expect_err(wrong).to_string();
            assert!(refused.contains("15 min"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn what_is_written_is_read_in_any_zone() {
        for text in ["now", "-15m", "90 s", "14:02", "2026-02-28T14:02:00.25Z"] {
            let moment = Moment::parse(text, &now()).expect(text);
            let elsewhere = now().with_time_zone(jiff::tz::TimeZone::UTC);
            let read = Moment::parse(&moment.to_string(), &elsewhere);
            assert_eq!(read, Ok(moment), "{text}");
        }
    }
}
