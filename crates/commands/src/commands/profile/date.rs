//! Today's date.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns today's date in UTC: `2026-11-21`.
pub(super) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let (year, month, day) = date(since.map_or(0, |since| since.as_secs() / 86_400));
    format!("{year}-{month:02}-{day:02}")
}

/// Returns year, month and day of the Gregorian calendar, `days` after 1 January 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut left) = (1970, days);
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= months[month] {
        left -= months[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_are_dates() {
        for (days, is) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_454, (2026, 1, 1)),
            (20_778, (2026, 11, 21)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), is, "{days}");
        }
    }
}
