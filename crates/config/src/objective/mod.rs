//! Reader of a VM's objective, for the file, the API and the command line alike.
//!
//! A document is merged into an earlier objective (RFC 7396): a field that is left out stays,
//! `null` and `"none"` remove it, and tables are merged field by field. A configuration file is
//! merged into the default objective.

mod expects;
mod group;
pub mod limit;
mod part;
mod parts;
mod rate;
mod read;

use tidegate_core::objective::{Objective, ObjectiveError};

use crate::diagnostic::ConfigErrors;
use crate::document;
use crate::field::Field;
use crate::figure::RATE_EXAMPLES;
use crate::section::Section;

pub use self::expects::access_word;
pub use self::part::{FlagInfo, NoneMeans, ObjectivePart, Promise};
pub(crate) use self::parts::read as parts;
pub use self::parts::{KEYS, PARTS, change, flag_for_foreign, flags, promises, to_json};
pub(crate) use self::read::{NONE, is_none};

const NO_CLOCK: &str = "in a scenario, change objectives with [[event]]; schedules are for the \
                        daemon's configuration and the control API";

/// Merges a change in JSON into an objective without a schedule, and checks the result.
/// [`schedule::merge`] takes schedules as well.
///
/// [`schedule::merge`]: crate::schedule::merge
///
/// # Errors
/// All mistakes of the change and of the resulting objective.
pub fn merge(base: &Objective, change: &serde_json::Value) -> Result<Objective, ConfigErrors> {
    document::read_json(change, "", |field| from_field(field, base))
}

/// Reads an objective without a schedule and merges it into `base`. `None`: something was wrong,
/// which has been reported.
pub fn from_field(field: &Field<'_>, base: &Objective) -> Option<Objective> {
    let mut section = Section::open(field)?;
    let new = parts(&mut section, base);
    let mut by_the_clock = false;
    // Names repeated from `schedule::keys`: that module imports this one.
    for key in ["timezone", "schedule"] {
        if let Some(field) = section.take(key) {
            by_the_clock = true;
            field.error("a scenario has no time of day", NO_CLOCK);
        }
    }
    section.finish();
    validated(field, new.filter(|_| !by_the_clock)?)
}

/// Returns `objective` if its parts do not contradict each other; reports them at `field`
/// otherwise.
pub(crate) fn validated(field: &Field<'_>, objective: Objective) -> Option<Objective> {
    match objective.validate() {
        Ok(()) => Some(objective),
        Err(error) => {
            refuse(field, &error);
            None
        }
    }
}

/// Way out of a contradiction with a burst that the document of a change does not name.
const REMOVE_BURST: &str = "remove the burst in force: limit.burst = \"none\"";

/// Returns true if a document, of an objective or of a limit alone, names a burst. Otherwise a
/// burst comes from the base objective, and the author of the change may not know of it.
fn has_burst(document: &Field<'_>) -> bool {
    let limit = document.find("limit");
    limit.as_ref().unwrap_or(document).find("burst").is_some()
}

/// Reports a contradiction at the first of its parts that the document has.
fn refuse(objective: &Field<'_>, error: &ObjectiveError) {
    let (names, allowed): (Vec<&str>, _) = match error {
        ObjectiveError::Contradiction { low, high, .. } => {
            let mut advice = format!("{low} must not exceed {high}: lower {low} or raise {high}");
            if high.starts_with("limit.burst") && !has_burst(objective) {
                advice.push_str(&format!(", or {REMOVE_BURST}"));
            }
            (vec![*low, *high], advice)
        }
        ObjectiveError::BurstWithoutLimit { burst, limit } => {
            let advice = if has_burst(objective) {
                format!("add the rate to {limit}, or leave it out of {burst}")
            } else {
                format!("add the rate of {burst} to {limit}, or {REMOVE_BURST}")
            };
            (vec![*burst, *limit], advice)
        }
        ObjectiveError::RateOutOfRange { what, .. } | ObjectiveError::ZeroNorm { what } => {
            (vec![*what], format!("a rate such as {RATE_EXAMPLES}"))
        }
        ObjectiveError::NormalisedRateTooHigh { what, .. } => (
            vec![*what],
            "a lower rate, or a smaller normalisation size".to_owned(),
        ),
        ObjectiveError::ExpectsOutOfRange { what, min, max, .. } => {
            (vec![*what], format!("{min} to {max}"))
        }
        ObjectiveError::WeightOutOfRange { .. } => (vec!["weight"], "1 to 10000".to_owned()),
        ObjectiveError::GroupWeightOutOfRange { .. } => (vec!["group"], "1 to 10000".to_owned()),
        ObjectiveError::PriorityOutOfRange { .. } => {
            (vec!["priority"], parts::PRIORITY_EXAMPLES.to_owned())
        }
        ObjectiveError::ZeroLatency => (vec!["latency"], "a bound such as \"10 ms\"".to_owned()),
        ObjectiveError::BurstLength { .. } => {
            (vec!["limit.burst.length"], "\"1 ms\" to \"1 h\"".to_owned())
        }
    };
    // Without the advice that these two errors give themselves: `allowed` has it with the keys of
    // the document.
    let what = match error {
        ObjectiveError::Contradiction {
            low,
            low_value,
            high,
            high_value,
        } => format!("{low} ({low_value}) is above {high} ({high_value})"),
        ObjectiveError::BurstWithoutLimit { burst, limit } => {
            format!("{burst} names a rate that {limit} does not limit")
        }
        other => other.to_string(),
    };
    let place = names.iter().find_map(|name| objective.find(name));
    // A part that comes from the base objective has no place in the document.
    place.as_ref().unwrap_or(objective).error(what, &allowed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_core::expected_workload::{ExpectedWorkload, THOUSAND};
    use tidegate_core::objective::Group;

    #[test]
    fn what_is_expected_is_read_and_merged() {
        let merged = |base: &Objective, change| merge(base, &json!({ "expects": change }));
        let said = |change| merged(&Objective::default(), change).map(|o| o.expects);
        let whole = json!({
            "reads": "70 %", "access": "40 % sequential", "size": "16 KiB", "iops": 500, "burst": 8,
        });
        let expects = ExpectedWorkload {
            reads: Some(700),
            sequential: Some(400),
            size: Some(16384),
            iops: Some(500),
            burst: Some(8),
        };
        assert_eq!(said(whole.clone()), Ok(expects));
        let base = merged(&Objective::default(), whole).expect("good");
        let change = json!({ "access": "random", "size": null, "burst": "none" });
        let changed = merged(&base, change).expect("good");
        let random = ExpectedWorkload {
            sequential: Some(0),
            size: None,
            burst: None,
            ..expects
        };
        assert_eq!(changed.expects, random);
        let none = merged(&base, json!(null)).expect("good");
        assert_eq!(none, Objective::default());
        let wrong = json!({ "reads": 70, "access": "wild", "size": "0 B", "iops": 0,
            "burst": 65_537 });
        let errors = said(wrong).expect_err("all of them are wrong").to_string();
        for part in ["reads", "access", "size", "iops", "burst"] {
            let part = &format!("expects.{part}");
            assert!(errors.contains(part), "{errors}");
        }
        assert!(errors.contains("\"40 % sequential\""), "{errors}");
    }

    #[test]
    fn a_burst_in_force_that_a_new_limit_contradicts_is_named_with_the_way_to_remove_it() {
        let with_burst = json!({ "total": "500 IOPS", "burst": { "total": "900 IOPS" } });
        let base = json!({ "limit": with_burst });
        let base = merge(&Objective::default(), &base).expect("good");
        let disk = |change: &serde_json::Value| {
            document::read_json(change, "", |field| limit::merged(field, &base.limit))
        };
        let burst = json!({ "total": "900 IOPS" });
        let cases = [
            // The burst has no limit of its unit any more, or is below it.
            (json!({ "total": "5 MB/s" }), true),
            (json!({ "total": "1000 IOPS" }), true),
            (json!({ "total": "5 MB/s", "burst": burst }), false),
            (json!({ "total": "1000 IOPS", "burst": burst }), false),
        ];
        for (limit, is_removed) in cases {
            let of_vm = merge(&base, &json!({ "limit": limit })).map(|objective| objective.limit);
            for read in [of_vm, disk(&limit)] {
                let message = read.expect_err("a contradiction").to_string();
                let advice = "or remove the burst in force: limit.burst = \"none\"";
                assert_eq!(message.contains(advice), is_removed, "{limit}: {message}");
            }
        }
        let removed = json!({ "limit": { "total": "5 MB/s", "burst": "none" } });
        let changed = merge(&base, &removed).expect("the burst is removed");
        assert_eq!(changed.limit.burst, None);
    }

    #[test]
    fn a_group_is_a_name_or_a_table_and_merges() {
        let merged = |base: &Objective, group| merge(base, &json!({ "group": group }));
        let read = |base: &Objective, group| merged(base, group).map(|o| o.group);
        let default = Objective::default();
        let group = |name: &str, weight| {
            let name = name.parse().expect("short");
            Ok(Some(Group { name, weight }))
        };
        assert_eq!(read(&default, json!("qfs")), group("qfs", 100));
        let table = json!({ "name": "qfs", "weight": 200 });
        assert_eq!(read(&default, table.clone()), group("qfs", 200));
        let base = merged(&default, table).expect("good");
        assert_eq!(read(&base, json!({ "weight": 7 })), group("qfs", 7));
        assert_eq!(read(&base, json!("qfs")), group("qfs", 200));
        assert_eq!(read(&base, json!("other")), group("other", 100));
        assert_eq!(read(&base, json!(null)), Ok(None));
        for wrong in [
            json!({ "weight": 7 }),
            json!(""),
            json!(7),
            json!({ "name": "q", "weight": 0 }),
        ] {
            let said = read(&default, wrong.clone())
                .expect_err("wrong")
                .to_string();
            assert!(said.contains("group"), "{wrong}: {said}");
        }
    }

    #[test]
    fn every_access_is_read_as_it_is_written() {
        for part in 0..=THOUSAND {
            let change = json!({ "expects": { "access": access_word(part) } });
            let objective = merge(&Objective::default(), &change).expect("good");
            assert_eq!(objective.expects.sequential, Some(part));
        }
    }
}
