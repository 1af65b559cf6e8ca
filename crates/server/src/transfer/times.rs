//! Arithmetic on times of transfers, and their text forms.

use jiff::{Timestamp, Unit};
use tidegate_core::time::Nanos;

/// Rounds a time to the millisecond, the resolution in which transfers are shown and distinguished.
pub(crate) fn to_the_millisecond(time: Timestamp) -> Timestamp {
    // Rounding fails only at the maximum of the type.
    time.round(Unit::Millisecond).unwrap_or(time)
}

/// Returns the time from `from` to `to`; 0 if `to` is earlier.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Nanos {
    let nanos = from.duration_until(to).as_nanos();
    Nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

/// Returns `time` plus `span`, at most [`Timestamp::MAX`].
pub(crate) fn after(time: Timestamp, span: Nanos) -> Timestamp {
    let span = jiff::SignedDuration::from_nanos_i128(span.0.into());
    time.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Returns `time` minus `span`, at least [`Timestamp::MIN`].
pub(crate) fn before(time: Timestamp, span: Nanos) -> Timestamp {
    let span = jiff::SignedDuration::from_nanos_i128(span.0.into());
    time.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// Formats a span of time: `350 ms`, `4.2 s`, `40 s`, `12 min 5 s`, `3 h 20 min`, `2 d 5 h`.
pub(crate) fn span(span: Nanos) -> String {
    let s = span.0 / Nanos::SECOND.0;
    let rounded = span.0.saturating_add(Nanos::SECOND.0 / 2) / Nanos::SECOND.0;
    let two = |whole: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {small}"),
    };
    match s {
        0 => format!("{} ms", span.0.div_ceil(1_000_000)),
        1..10 => {
            let tenths = span.0 / (Nanos::SECOND.0 / 10);
            two_digits(tenths)
        }
        10..120 => format!("{rounded} s"),
        120..3600 => two(rounded / 60, "min", rounded % 60, "s"),
        3600..172_800 => {
            let minutes = rounded / 60;
            two(minutes / 60, "h", minutes % 60, "min")
        }
        _ => {
            let hours = rounded / 3600;
            two(hours / 24, "d", hours % 24, "h")
        }
    }
}

/// Formats tenths of a second: `4.2 s`, `4 s`.
fn two_digits(tenths: u64) -> String {
    match tenths % 10 {
        0 => format!("{} s", tenths / 10),
        rest => format!("{}.{rest} s", tenths / 10),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::transfer) const BEGUN: &str = "2026-11-22T14:02:10.5Z";

    pub(in crate::transfer) fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn times_are_reckoned_to_and_fro_and_never_before_nothing() {
        let begun = time(BEGUN);
        let due = after(begun, Nanos::from_secs(60));
        assert_eq!(due, time("2026-11-22T14:03:10.5Z"));
        assert_eq!(between(begun, due), Nanos::from_secs(60));
        assert_eq!(between(due, begun), Nanos::ZERO);
        assert_eq!(
            after(begun, Nanos::MAX),
            time("2611-06-13T13:36:44.209551615Z")
        );
        assert_eq!(after(Timestamp::MAX, Nanos::MAX), Timestamp::MAX);
        assert_eq!(before(due, Nanos::from_secs(60)), begun);
        assert_eq!(
            to_the_millisecond(time("2026-11-22T14:02:10.123456789Z")),
            time("2026-11-22T14:02:10.123Z")
        );
    }

    #[test]
    fn spans_are_said_as_people_say_them() {
        for (nanos, message) in [
            (0, "0 ms"),
            (1, "1 ms"),
            (350_000_000, "350 ms"),
            (4_250_000_000, "4.2 s"),
            (4_000_000_000, "4 s"),
            (40_400_000_000, "40 s"),
            (119_600_000_000, "120 s"),
            (125_000_000_000, "2 min 5 s"),
            (3_599_600_000_000, "60 min"),
            (3_600_000_000_000, "1 h"),
            (12_000_000_000_000, "3 h 20 min"),
            (190_800_000_000_000, "2 d 5 h"),
        ] {
            assert_eq!(span(Nanos(nanos)), message, "{nanos}");
        }
    }
}
