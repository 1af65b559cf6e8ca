//! What a VM was promised, read the same way from the file, the API and the command line.
//!
//! What is read is merged into what was there: a field that is not named stays, `null` and
//! `"none"` take it away, a table inside a table merges too (RFC 7396). In the file, what was
//! there is the default.

use tidegate_core::expect::{Expects, THOUSAND, Thousandths};
use tidegate_core::objective::{
    Burst, Group, GroupName, Limit, Objective, ObjectiveError, Priority, Rate,
};
use tidegate_core::time::Nanos;

use crate::diagnose::ConfigErrors;
use crate::document;
use crate::field::Field;
use crate::figure::RATE_EXAMPLES;
use crate::node::Value;
use crate::section::Section;

pub use crate::figure::parse_rate;

/// How long a burst lasts unless it says: QEMU's default.
const BURST_LENGTH: Nanos = Nanos::SECOND;
/// Longer than any guest waits before it gives a disk up.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);
/// NBD carries no more in one request.
const EXPECTED_SIZE_MAX: u64 = 32 << 20;
const PRIORITY_EXAMPLES: &str =
    "\"realtime\", \"best-effort\", \"best-effort 0\" (most) to \"best-effort 7\", or \"idle\"";
const GROUP_EXAMPLES: &str = "1 to 31 bytes of text: \"qfs\", or { name = \"qfs\", weight = 200 }";

const NO_CLOCK: &str = "a scenario changes objectives by [[event]], at times of its own; schedules are \
                        for a daemon's configuration and its API";

/// Merges a change in JSON into an objective, and checks the whole; [`schedule::merge`] takes schedules,
/// too.
///
/// [`schedule::merge`]: crate::schedule::merge
///
/// # Errors
/// Everything wrong with it; the objective in force stays as it is.
pub fn merge(base: &Objective, change: &serde_json::Value) -> Result<Objective, ConfigErrors> {
    document::read_json(change, "", |field| from_field(field, base))
}

/// Reads an objective's table over `base`, where nothing changes by the clock. `None`: something was
/// wrong and has been reported.
pub fn from_field(field: &Field<'_>, base: &Objective) -> Option<Objective> {
    let mut section = Section::of(field)?;
    let new = parts(&mut section, base);
    let mut by_the_clock = false;
    for key in ["timezone", "schedule"] {
        if let Some(field) = section.take(key) {
            by_the_clock = true;
            field.error("there is no time of day here", NO_CLOCK);
        }
    }
    section.finish();
    validated(field, new.filter(|_| !by_the_clock)?)
}

/// Reads the parts of an objective over `base`; whether they go together is another question.
pub(crate) fn parts(section: &mut Section<'_>, base: &Objective) -> Option<Objective> {
    let mut new = *base;
    // Every part is read, whatever became of the others.
    let good = [
        set(section, "reservation", Field::rate, &mut new.reservation),
        set(
            section,
            "limit",
            |field| limit(field, &base.limit),
            &mut new.limit,
        ),
        set(section, "target", Field::rate, &mut new.target),
        set(section, "weight", weight, &mut new.weight),
        set(
            section,
            "group",
            |field| group(field, base.group),
            &mut new.group,
        ),
        set(section, "latency", latency, &mut new.latency),
        set(section, "priority", priority, &mut new.priority),
        set(
            section,
            "expects",
            |field| expects(field, &base.expects),
            &mut new.expects,
        ),
    ];
    (!good.contains(&false)).then_some(new)
}

/// The objective that the table `field` is said to be, if its parts go together.
pub(crate) fn validated(field: &Field<'_>, objective: Objective) -> Option<Objective> {
    match objective.validate() {
        Ok(()) => Some(objective),
        Err(error) => {
            refuse(field, &error);
            None
        }
    }
}

/// Reads one part into `to`, which stays as it is where the part is not named.
fn set<'a, T>(
    section: &mut Section<'a>,
    key: &'static str,
    read: impl Fn(&Field<'a>) -> Option<T>,
    to: &mut T,
) -> bool {
    let Some(field) = section.take(key) else {
        return true;
    };
    match read(&field) {
        Some(value) => {
            *to = value;
            true
        }
        None => false,
    }
}

/// Nothing, in JSON's words or in ours.
pub(crate) fn is_none(field: &Field<'_>) -> bool {
    field.is_null()
        || matches!(&field.node.value, Value::Text(text) if text.eq_ignore_ascii_case("none"))
}

fn limit(field: &Field<'_>, base: &Limit) -> Option<Limit> {
    if is_none(field) {
        return Some(Limit::NONE);
    }
    if !matches!(field.node.value, Value::Table(_)) {
        return Some(Limit {
            total: field.rate()?,
            ..Limit::NONE
        });
    }
    let mut section = Section::of(field)?;
    let mut new = *base;
    let good = [
        set(&mut section, "total", Field::rate, &mut new.total),
        set(&mut section, "read", Field::rate, &mut new.read),
        set(&mut section, "write", Field::rate, &mut new.write),
        set(
            &mut section,
            "burst",
            |field| burst(field, base.burst),
            &mut new.burst,
        ),
    ];
    section.finish();
    good.iter().all(|good| *good).then_some(new)
}

fn burst(field: &Field<'_>, base: Option<Burst>) -> Option<Option<Burst>> {
    if is_none(field) {
        return Some(None);
    }
    let nothing = Burst {
        total: Rate::NONE,
        read: Rate::NONE,
        write: Rate::NONE,
        length: BURST_LENGTH,
    };
    let mut section = Section::of(field)?;
    let mut new = base.unwrap_or(nothing);
    let length = |field: &Field<'_>| field.duration(Nanos::from_millis(1)..=Nanos::from_secs(3600));
    let good = [
        set(&mut section, "total", Field::rate, &mut new.total),
        set(&mut section, "read", Field::rate, &mut new.read),
        set(&mut section, "write", Field::rate, &mut new.write),
        set(&mut section, "length", length, &mut new.length),
    ];
    section.finish();
    if good.contains(&false) {
        return None;
    }
    if new.total.is_none() && new.read.is_none() && new.write.is_none() {
        field.error(
            "a burst without a rate",
            "add total, read or write: total = \"2000 IOPS\"",
        );
        return None;
    }
    Some(Some(new))
}

fn weight(field: &Field<'_>) -> Option<u32> {
    if field.is_null() {
        return Some(Objective::DEFAULT_WEIGHT);
    }
    field
        .count(1..=Objective::MAX_WEIGHT.into())
        .and_then(|weight| u32::try_from(weight).ok())
}

/// `"NAME"`, or a table of its name and weight.
fn group(field: &Field<'_>, base: Option<Group>) -> Option<Option<Group>> {
    if is_none(field) {
        return Some(None);
    }
    let name = |field: &Field<'_>| match &field.node.value {
        Value::Text(text) if text.parse::<GroupName>().is_ok() => text.parse().ok(),
        _ => {
            field.refuse("a group's name", GROUP_EXAMPLES);
            None
        }
    };
    let Value::Table(_) = &field.node.value else {
        let named = Group::named(name(field)?);
        return Some(base.filter(|base| base.name == named.name).or(Some(named)));
    };
    let mut section = Section::of(field)?;
    let mut new = (base.map(|base| base.name), base.map(|base| base.weight));
    let good = [
        set(
            &mut section,
            "name",
            |field| name(field).map(Some),
            &mut new.0,
        ),
        set(
            &mut section,
            "weight",
            |field| weight(field).map(Some),
            &mut new.1,
        ),
    ];
    section.finish();
    if good.contains(&false) {
        return None;
    }
    let Some(name) = new.0 else {
        field.error("a group without a name", GROUP_EXAMPLES);
        return None;
    };
    let weight = new.1.unwrap_or(Objective::DEFAULT_WEIGHT);
    Some(Some(Group { name, weight }))
}

fn latency(field: &Field<'_>) -> Option<Option<Nanos>> {
    if is_none(field) {
        return Some(None);
    }
    field.duration(Nanos(1)..=LATENCY_MAX).map(Some)
}

fn priority(field: &Field<'_>) -> Option<Priority> {
    if is_none(field) {
        return Some(Priority::DEFAULT);
    }
    match &field.node.value {
        Value::Text(text) if text.parse::<Priority>().is_ok() => text.parse().ok(),
        _ => {
            field.refuse("a class of priority", PRIORITY_EXAMPLES);
            None
        }
    }
}

fn expects(field: &Field<'_>, base: &Expects) -> Option<Expects> {
    if is_none(field) {
        return Some(Expects::NOTHING);
    }
    let mut section = Section::of(field)?;
    let mut new = *base;
    let good = [
        set(
            &mut section,
            "reads",
            |field| unless_none(field, Field::thousandths),
            &mut new.reads,
        ),
        set(
            &mut section,
            "access",
            |field| unless_none(field, access),
            &mut new.sequential,
        ),
        set(
            &mut section,
            "size",
            |field| unless_none(field, size),
            &mut new.size,
        ),
    ];
    section.finish();
    good.iter().all(|good| *good).then_some(new)
}

/// What is said, or that nothing is.
fn unless_none<'a, T>(
    field: &Field<'a>,
    read: impl Fn(&Field<'a>) -> Option<T>,
) -> Option<Option<T>> {
    match is_none(field) {
        true => Some(None),
        false => read(field).map(Some),
    }
}

/// Sequential requests in thousandths: `random`, `sequential`, or `40 % sequential`.
fn access(field: &Field<'_>) -> Option<u32> {
    let part = match &field.node.value {
        Value::Text(text) => match text.trim() {
            "random" => Some(0),
            "sequential" => Some(THOUSAND),
            text => (text.strip_suffix("sequential"))
                .and_then(|part| part.parse().ok())
                .map(|Thousandths(part)| part),
        },
        _ => None,
    };
    if part.is_none() {
        field.refuse(
            "how requests lie",
            "\"random\", \"sequential\" or \"40 % sequential\"",
        );
    }
    part
}

fn size(field: &Field<'_>) -> Option<u32> {
    field
        .bytes(1..=EXPECTED_SIZE_MAX)
        .and_then(|bytes| u32::try_from(bytes).ok())
}

/// How an expected access is written; what `expects.access` takes.
pub fn access_word(sequential: u32) -> String {
    match sequential {
        0 => "random".to_owned(),
        THOUSAND => "sequential".to_owned(),
        part => format!("{} sequential", Thousandths(part)),
    }
}

/// Reports parts that contradict each other, at the part that was written.
fn refuse(objective: &Field<'_>, error: &ObjectiveError) {
    let (names, allowed): (Vec<&str>, _) = match error {
        ObjectiveError::Contradiction { low, high, .. } => (
            vec![*low, *high],
            format!("{low} at most as much as {high}: lower the one or raise the other"),
        ),
        ObjectiveError::BurstWithoutLimit { burst, limit } => (
            vec![*burst, *limit],
            format!("add the rate to {limit}, or leave it out of {burst}"),
        ),
        ObjectiveError::RateOutOfRange { what, .. } | ObjectiveError::ZeroNorm { what } => {
            (vec![*what], format!("a rate such as {RATE_EXAMPLES}"))
        }
        ObjectiveError::WeightOutOfRange { .. } => (vec!["weight"], "1 to 10000".to_owned()),
        ObjectiveError::GroupWeightOutOfRange { .. } => (vec!["group"], "1 to 10000".to_owned()),
        ObjectiveError::PriorityOutOfRange { .. } => {
            (vec!["priority"], PRIORITY_EXAMPLES.to_owned())
        }
        ObjectiveError::ZeroLatency => (vec!["latency"], "a bound such as \"10 ms\"".to_owned()),
        ObjectiveError::BurstLength { .. } => {
            (vec!["limit.burst.length"], "\"1 ms\" to \"1 h\"".to_owned())
        }
    };
    let what = error.to_string();
    let what = what
        .split_once(": lower")
        .map_or(what.as_str(), |(what, _)| what);
    let what = what.split_once(": add it").map_or(what, |(what, _)| what);
    let place = names.iter().find_map(|name| objective.find(name));
    place.as_ref().unwrap_or(objective).error(what, &allowed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_core::objective::OpsRate;

    #[test]
    fn what_is_expected_is_read_and_merged() {
        let merged = |base: &Objective, change| merge(base, &json!({ "expects": change }));
        let said = |change| merged(&Objective::default(), change).map(|o| o.expects);
        let whole = json!({ "reads": "70 %", "access": "40 % sequential", "size": "16 KiB" });
        let expects = Expects {
            reads: Some(700),
            sequential: Some(400),
            size: Some(16384),
        };
        assert_eq!(said(whole.clone()), Ok(expects));
        let base = merged(&Objective::default(), whole).expect("good");
        let changed = merged(&base, json!({ "access": "random", "size": null })).expect("good");
        let random = Expects {
            sequential: Some(0),
            size: None,
            ..expects
        };
        assert_eq!(changed.expects, random);
        let none = merged(&base, json!(null)).expect("good");
        assert_eq!(none, Objective::default());
        let wrong = json!({ "reads": 70, "access": "wild", "size": "0 B" });
        let errors = said(wrong).expect_err("all three are wrong").to_string();
        for part in ["expects.reads", "expects.access", "expects.size"] {
            assert!(errors.contains(part), "{errors}");
        }
        assert!(errors.contains("\"40 % sequential\""), "{errors}");
    }

    #[test]
    fn a_group_is_a_name_or_a_table_and_merges() {
        let merged = |base: &Objective, group| merge(base, &json!({ "group": group }));
        let read = |base: &Objective, group| merged(base, group).map(|o| o.group);
        let nobody = Objective::default();
        let group = |name: &str, weight| {
            let name = name.parse().expect("short");
            Ok(Some(Group { name, weight }))
        };
        assert_eq!(read(&nobody, json!("qfs")), group("qfs", 100));
        let table = json!({ "name": "qfs", "weight": 200 });
        assert_eq!(read(&nobody, table.clone()), group("qfs", 200));
        let base = merged(&nobody, table).expect("good");
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
            let said = read(&nobody, wrong.clone()).expect_err("wrong").to_string();
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

    proptest::proptest! {
        #[test]
        fn rates_survive_printing(per_s in 1u64..1 << 50, norm in proptest::option::of(1u32..), bytes in proptest::option::of(1u64..1 << 50)) {
            let rate = Rate { ops: Some(OpsRate { per_s, norm }), bytes_per_s: bytes };
            proptest::prop_assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
        }
    }
}
