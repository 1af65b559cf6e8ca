//! Round times of day in the span of a report.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::past::Span;

/// Most times of an axis.
const MOST: u64 = 6;
/// Distances in seconds between two times.
const STEPS_S: [u64; 18] = [
    10,
    30,
    60,
    2 * 60,
    5 * 60,
    10 * 60,
    15 * 60,
    30 * 60,
    3600,
    2 * 3600,
    3 * 3600,
    6 * 3600,
    12 * 3600,
    DAY_S,
    2 * DAY_S,
    7 * DAY_S,
    14 * DAY_S,
    30 * DAY_S,
];
const DAY_S: u64 = 24 * 3600;

/// Returns round times of a zone in a span, each with its place in seconds before the end.
pub(super) fn times_of_day(span: &Span, zone: &TimeZone) -> Vec<(f64, String)> {
    let length_s = (span.to_ms - span.from_ms) / 1000;
    let step_s = STEPS_S.into_iter().find(|step| length_s / step <= MOST);
    let step_ms = step_s.unwrap_or(length_s / MOST + 1) * 1000;
    let format = match (step_ms / 1000, length_s) {
        (..60, _) => "%H:%M:%S",
        (_, ..=DAY_S) => "%H:%M",
        (..DAY_S, _) => "%m-%d %H:%M",
        _ => "%m-%d",
    };
    let zoned = |ms: u64| {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        let at = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
        at.to_zoned(zone.clone())
    };
    // Round by the clock of the zone, as it is at the begin.
    let offset_ms = i64::from(zoned(span.from_ms).offset().seconds()) * 1000;
    let local = span.from_ms.saturating_add_signed(offset_ms);
    let first = local.div_ceil(step_ms) * step_ms;
    let first = first.saturating_add_signed(-offset_ms);
    let step = usize::try_from(step_ms).unwrap_or(usize::MAX);
    (first..=span.to_ms)
        .step_by(step)
        .map(|ms| (span.seconds(ms), zoned(ms).strftime(format).to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: &str, length_s: u64, zone: &str) -> Vec<(f64, String)> {
        let from: Timestamp = from.parse().expect("a time");
        let from_ms = u64::try_from(from.as_millisecond()).expect("after 1970");
        let span = Span {
            from_ms,
            to_ms: from_ms + length_s * 1000,
            step_s: 1,
        };
        times_of_day(&span, &TimeZone::get(zone).expect("a zone"))
    }

    #[test]
    fn times_are_round_in_their_zone_and_few() {
        let hour = labels("2026-11-28T13:26:30Z", 3600, "Europe/Berlin");
        let texts: Vec<&str> = hour.iter().map(|label| label.1.as_str()).collect();
        assert_eq!(
            texts,
            ["14:30", "14:40", "14:50", "15:00", "15:10", "15:20"]
        );
        assert_eq!((hour[0].0, hour[3].0), (-3390.0, -1590.0));
        // Half an hour off the others.
        let india = labels("2026-11-28T13:26:30Z", 6 * 3600, "Asia/Kolkata");
        assert_eq!(india[0], (-(6.0 * 3600.0 - 210.0), "19:00".to_owned()));
        let days = labels("2026-11-26T13:26:30Z", 2 * 86_400, "UTC");
        assert_eq!(days[0].1, "11-27 00:00");
        let short = labels("2026-11-28T13:26:31Z", 60, "UTC");
        assert_eq!((short[0].0, &*short[0].1), (-51.0, "13:26:40"));
        for length_s in [
            1,
            59,
            61,
            299,
            3599,
            86_399,
            86_401,
            90 * 86_400,
            900 * 86_400,
        ] {
            let found = labels("2026-03-28T13:26:30Z", length_s, "Europe/Berlin");
            assert!(found.len() <= MOST as usize + 1, "{length_s}: {found:?}");
            let is_in = |label: &(f64, String)| (-(length_s as f64)..=0.0).contains(&label.0);
            assert!(found.iter().all(is_in), "{length_s}: {found:?}");
        }
    }
}
