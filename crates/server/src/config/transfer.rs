//! Deadline transfers as the control API takes them: a size and a deadline.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_api::cluster::PlacementClaim;
use tidegate_config::schedule::future_time;
use tidegate_config::{ConfigErrors, Field, Section, document};
use tidegate_core::time::Nanos;

use crate::transfer::{Due, TransferOrder, between};

/// Maximum size in bytes: more than any disk holds, and small enough that sums do not overflow.
const BYTES_MAX: u64 = 1 << 60;
/// Maximum time until the deadline, a year.
const DEADLINE_MAX: Nanos = Nanos::from_secs(365 * 86_400);
/// Maximum tolerance: a hundred times the duration that the device needs is no deadline any more.
const TOLERANCE_MAX: f64 = 100.0;
const THOUSANDTHS: f64 = 1e3;

const SIZE: &str = "bytes to read and write in total: \"2 GiB\"";
const WHEN: &str = "one of deadline = \"60 s\", by = \"14:03\" and tolerance = 0.3, such as \
                    {\"deadline\": \"60 s\"}";

/// Returns whether size in bytes and time until the deadline are within what a transfer may have.
pub(crate) fn is_in_range(bytes: u64, deadline: Nanos) -> bool {
    (1..=BYTES_MAX).contains(&bytes) && (Nanos(1)..=DEADLINE_MAX).contains(&deadline)
}

/// Parses a transfer from JSON: `size`, and one of `deadline`, `by` or `tolerance`. `now` is the
/// present time, and times of day are in the time zone `zone`.
///
/// # Errors
/// All mistakes in the JSON.
pub fn from_json(
    json: &serde_json::Value,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<TransferOrder, ConfigErrors> {
    placed_from_json(json, now, zone).map(|(order, _)| order)
}

/// Parses a transfer as [`from_json`] does, with the `placement` by a cluster if it has one.
///
/// # Errors
/// All mistakes in the JSON.
pub fn placed_from_json(
    json: &serde_json::Value,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<(TransferOrder, Option<PlacementClaim>), ConfigErrors> {
    document::read_json(json, "", |field| {
        let mut section = Section::open(field)?;
        let size = section.need("size", SIZE);
        let bytes = size.and_then(|size| size.bytes(1..=BYTES_MAX));
        let due = due(&mut section, now, zone);
        let placement = section.read("placement", None, |field| claim(field).map(Some));
        section.finish();
        let placement = placement?;
        let order = TransferOrder {
            bytes: bytes?,
            due: due?,
            replace: false,
            most: None,
            placed_ns: placement.as_ref().map(|placement| placement.begun_ns),
        };
        Some((order, placement))
    })
}

fn claim(field: &Field<'_>) -> Option<PlacementClaim> {
    let mut section = Section::open(field)?;
    let host = section.need("host", "the name of a host: \"a\"");
    let host = host.and_then(|host| host.name());
    let begun = section.need("begun_ns", "the time of the placement: 1764417600000000000");
    let begun_ns = begun.and_then(|begun| begun.count(0..=u64::MAX));
    let reserved = section.need("reserved_bytes_per_s", "bytes a second, such as 0");
    let reserved_bytes_per_s = reserved.and_then(|reserved| reserved.count(0..=u64::MAX));
    let device = section.read("device", None, |field| field.name().map(Some));
    section.finish();
    Some(PlacementClaim {
        host: host?,
        begun_ns: begun_ns?,
        reserved_bytes_per_s: reserved_bytes_per_s?,
        device: device?,
    })
}

fn due(section: &mut Section<'_>, now: Timestamp, zone: &TimeZone) -> Option<Due> {
    let (deadline, by) = (section.take("deadline"), section.take("by"));
    let named = [deadline, by, section.take("tolerance")];
    match &named {
        [Some(deadline), None, None] => deadline.duration(Nanos(1)..=DEADLINE_MAX).map(Due::In),
        [None, Some(by), None] => time_by(by, now, zone).map(Due::At),
        [None, None, Some(tolerance)] => {
            let part = tolerance.decimal(0.0..=TOLERANCE_MAX)?;
            Some(Due::Tolerance((part * THOUSANDTHS).round() as u64))
        }
        [None, None, None] => {
            section.error("no deadline is set", WHEN);
            None
        }
        _ => {
            // The error is reported at the last key, as the one that is too many.
            if let Some(field) = named.iter().flatten().last() {
                field.error("more than one deadline is set", WHEN);
            }
            None
        }
    }
}

fn time_by(field: &Field<'_>, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let by = future_time(field, now, zone)?;
    if between(now, by) > DEADLINE_MAX {
        field.error(
            format!("{} is too far ahead", field.describe()),
            "within a year",
        );
        return None;
    }
    Some(by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(json: &Value) -> Result<TransferOrder, ConfigErrors> {
        let now = "2026-11-22T14:02:30+01:00".parse().expect("a time");
        let zone = TimeZone::get("Europe/Berlin").expect("it is known");
        from_json(json, now, &zone)
    }

    #[test]
    fn a_transfer_is_due_after_a_time_or_at_one_or_by_what_the_device_does() {
        let due = |json| read(&json).expect("good").due;
        let at = |text: &str| Due::At(text.parse().expect("a time"));
        assert_eq!(
            due(json!({ "size": "2 GiB", "deadline": "60 s" })),
            Due::In(Nanos::from_secs(60))
        );
        assert_eq!(
            due(json!({ "size": "2 GiB", "tolerance": 0.3 })),
            Due::Tolerance(300)
        );
        for (by, expected) in [
            ("14:03", "2026-11-22T13:03:00Z"),
            ("14:02:31", "2026-11-22T13:02:31Z"),
            // A time that has passed today is taken to be tomorrow's.
            ("14:02", "2026-11-23T13:02:00Z"),
            ("2026-12-01T06:00", "2026-12-01T05:00:00Z"),
            ("2026-12-01T06:00:00Z", "2026-12-01T06:00:00Z"),
        ] {
            assert_eq!(
                due(json!({ "size": "1 B", "by": by })),
                at(expected),
                "{by}"
            );
        }
        let bytes = read(&json!({ "size": "2 GiB", "by": "14:03" })).map(|transfer| transfer.bytes);
        assert_eq!(bytes.expect("good"), 2 << 30);
    }

    #[test]
    fn a_placement_by_a_cluster_is_read_or_refused_at_its_keys() {
        let order = |placement| json!({ "size": "1 B", "deadline": "1 s", "placement": placement });
        let placed = |json: &Value| {
            let now = "2026-11-22T14:02:30+01:00".parse().expect("a time");
            placed_from_json(json, now, &TimeZone::UTC).map(|(_, placement)| placement)
        };
        let whole = json!({ "host": "a", "begun_ns": u64::MAX, "reserved_bytes_per_s": 7 });
        let claim = placed(&order(whole)).expect("good").expect("a placement");
        assert_eq!((claim.begun_ns, claim.reserved_bytes_per_s), (u64::MAX, 7));
        assert_eq!((claim.host.as_str(), claim.device), ("a", None));
        let none = placed(&json!({ "size": "1 B", "deadline": "1 s" }));
        assert_eq!(none.expect("good"), None);
        for (wrong, at) in [
            (
                json!({ "begun_ns": 1, "reserved_bytes_per_s": 7 }),
                "placement",
            ),
            (
                json!({ "host": "a", "begun_ns": -1, "reserved_bytes_per_s": 7 }),
                "placement.begun_ns",
            ),
            (
                json!({ "host": "a", "begun_ns": 1, "reserved_bytes_per_s": 7, "more": 1 }),
                "placement",
            ),
        ] {
            let errors = placed(&order(wrong)).expect_err(at);
            assert!(
                errors.0.iter().any(|error| error.field == at),
                "{at}: {:?}",
                errors.0
            );
        }
    }

    /// Asserts that an order is rejected at this field, with parts of the message and of the hint.
    fn assert_refused(json: &serde_json::Value, [at, what, allowed]: [&str; 3]) {
        let errors = read(json).expect_err("no job");
        let fits = errors.0.iter().any(|error| {
            let advice = error.allowed.as_deref().unwrap_or_default();
            error.field == at && error.what.contains(what) && advice.contains(allowed)
        });
        assert!(fits, "{json}: {:?}", errors.0);
    }

    #[test]
    fn what_is_no_transfer_is_told_what_is_wrong_where_and_what_would_be_right() {
        for (json, at, what, allowed) in [
            (
                json!({ "deadline": "60 s" }),
                "",
                "`size` is missing",
                "2 GiB",
            ),
            (
                json!({ "size": 5, "deadline": "60 s" }),
                "size",
                "unit is missing",
                "5 B",
            ),
            (
                json!({ "size": "0 B", "deadline": "60 s" }),
                "size",
                "out of range",
                "from 1 B",
            ),
            (
                json!({ "size": "1 B", "dedline": "1 s" }),
                "",
                "unknown key `dedline`",
                "`deadline`",
            ),
        ] {
            assert_refused(&json, [at, what, allowed]);
        }
    }

    #[test]
    fn a_time_that_cannot_be_is_told_where_and_what_would_be_right() {
        for (json, at, what, allowed) in [
            (
                json!({ "size": "1 B" }),
                "",
                "no deadline is set",
                "deadline = \"60 s\"",
            ),
            (
                json!({ "size": "1 B", "deadline": "1 s", "by": "14:03" }),
                "by",
                "more than one",
                "one of deadline",
            ),
            (
                json!({ "size": "1 B", "deadline": "0 s" }),
                "deadline",
                "out of range",
                "from 1 ns",
            ),
            (
                json!({ "size": "1 B", "by": "soon" }),
                "by",
                "expected a time in the future",
                "14:03",
            ),
            (
                json!({ "size": "1 B", "by": "2026-11-22T14:02" }),
                "by",
                "is in the past",
                "a time in the future",
            ),
            (
                json!({ "size": "1 B", "by": "2036-11-22T14:02" }),
                "by",
                "too far",
                "within a year",
            ),
            (
                json!({ "size": "1 B", "tolerance": -0.1 }),
                "tolerance",
                "out of range",
                "from 0 to 100",
            ),
        ] {
            assert_refused(&json, [at, what, allowed]);
        }
    }
}
