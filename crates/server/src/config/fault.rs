//! `[[vm.disk.fault]]`: fault rules of a disk, as in the body of the control API.

use tidegate_config::node::Value;
use tidegate_config::{ConfigErrors, Field, Section, document};
use tidegate_core::request::{IoError, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_units::Millionths;

use super::keys::fault as keys;
use super::keys::fault::{ERRORS, OPERATION_WORDS};
use crate::fault::{Effect, Faults, Ops, Rule, SECTOR};

/// Parses a fault rule from JSON, as the control API takes it.
///
/// # Errors
/// All mistakes in the rule.
pub fn from_json(json: &serde_json::Value) -> Result<Rule, ConfigErrors> {
    document::read_json(json, "", |field| from_field(field, None))
}

/// Returns the word for an operation in fault rules.
pub fn operation(op: Op) -> &'static str {
    let found = OPERATION_WORDS
        .iter()
        .find(|(_, ops)| *ops == Ops::only(op));
    found.map_or("any", |(word, _)| word)
}

/// Returns the word for an outcome in fault rules.
pub fn outcome(outcome: Outcome) -> &'static str {
    let found = ERRORS.iter().find(|(_, other)| *other == outcome);
    found.map_or("EIO", |(word, _)| word)
}

/// Reads the fault rules of a disk; `size` is the disk's size in bytes, if known. `None` if there
/// was an error, which has been reported.
pub(crate) fn read_all(fields: &[Field<'_>], size: Option<u64>) -> Option<Vec<Rule>> {
    // Reported at the first rule that is too many.
    if let Some(field) = fields.get(Faults::RULES_MAX) {
        let max = Faults::RULES_MAX;
        field.error(
            format!("{} rules for one disk", fields.len()),
            &format!("at most {max}: every request is checked against each"),
        );
        return None;
    }
    let rules: Vec<_> = (fields.iter())
        .map(|field| from_field(field, size))
        .collect();
    rules.into_iter().collect()
}

fn from_field(field: &Field<'_>, size: Option<u64>) -> Option<Rule> {
    let mut section = Section::with_keys(field, &keys::FAULT)?;
    // Spellings of earlier releases, accepted with a note.
    section.renamed("on", keys::OPERATIONS.name);
    section.renamed("for", keys::DURATION.name);
    let on = section.value(&keys::OPERATIONS, Ops::ANY, operations);
    let from = section.number(&keys::FROM);
    let length = section.field(&keys::LENGTH);
    let to = match (&length, from) {
        (None, _) => Some(u64::MAX),
        (Some(field), from) => field
            .number(&keys::LENGTH)
            // A range may reach beyond the end of the disk, which may grow.
            .and_then(|length| Some(from?.saturating_add(length))),
    };
    let every = section.number(&keys::EVERY);
    let probability_ppm = section.value(&keys::PROBABILITY, Millionths::WHOLE.0, probability);
    let seed = section.number(&keys::SEED);
    let after = section.number(&keys::AFTER);
    let lasts = section.number_if_any(&keys::DURATION);
    let count = section.number_if_any(&keys::COUNT);
    let stall = section.number_if_any(&keys::STALL);
    let operations = section.spelling_in_document(keys::OPERATIONS.name);
    let effect = effect(&mut section, on, operations);
    check(&section, on, from, size);
    section.finish();
    Some(Rule {
        on: on?,
        from: from?,
        to: to?,
        every: every?,
        probability_ppm: probability_ppm?,
        seed: seed?,
        after: Nanos(after?),
        lasts: lasts?.map(Nanos),
        count: count?,
        stall: Nanos(stall?.unwrap_or(0)),
        effect: effect?,
    })
}

/// Reads an operation, or a list of operations.
fn operations(field: &Field<'_>) -> Option<Ops> {
    if !matches!(field.node().value, Value::List(_)) {
        return field.choice(&OPERATION_WORDS);
    }
    let words = field.elements()?;
    if words.is_empty() {
        field.error(
            "the list is empty",
            "[\"write\", \"discard\"], or leave it out for any",
        );
        return None;
    }
    let read: Vec<_> = words
        .iter()
        .map(|word| word.choice(&OPERATION_WORDS))
        .collect();
    (read.into_iter()).try_fold(Ops::NONE, |all, ops| Some(all.union(ops?)))
}

/// Reads a probability such as `"0.1 %"`, in millionths.
fn probability(field: &Field<'_>) -> Option<u32> {
    let allowed = "more than 0 to 100 % with at most four decimals, such as \"0.1 %\"";
    if matches!(field.node().value, Value::Integer(_) | Value::Float(_)) {
        let found = field.describe();
        field.error(
            format!("{found} is a bare number, its unit is missing"),
            &format!("\"{found} %\""),
        );
        return None;
    }
    let text = field.text()?;
    match text.parse() {
        Ok(Millionths(ppm)) if ppm > 0 => Some(ppm),
        _ => {
            field.error(format!("{text:?} is not a probability"), allowed);
            None
        }
    }
}

/// Reads the word for an error. `ETIMEDOUT`, which a dying disk returns, gets its own message: NBD
/// cannot express it, but a stall can imitate it.
fn error_word(field: &Field<'_>) -> Option<Outcome> {
    if matches!(&field.node().value, Value::Text(text) if text == "ETIMEDOUT") {
        let allowed = "\"EIO\" with a stall of the same length: stall = \"30 s\"";
        field.error("NBD cannot return ETIMEDOUT", allowed);
        return None;
    }
    field.choice(&ERRORS)
}

/// Reads what a rule does; `operations` is the spelling of that key in the document.
fn effect(section: &mut Section<'_>, on: Option<Ops>, operations: &str) -> Option<Effect> {
    let (error, torn) = (section.field(&keys::ERROR), section.field(&keys::TORN));
    let answer = match &error {
        Some(field) => Some(error_word(field)?),
        None => None,
    };
    let Some(torn) = torn else {
        return match (answer, error) {
            (Some(Err(error)), _) => Some(Effect::Error(error)),
            (Some(Ok(())), Some(field)) => {
                let allowed = "only a torn request may be answered as successful: add torn";
                field.error("\"none\" is no error", allowed);
                None
            }
            _ => Some(Effect::None),
        };
    };
    let keep = torn.number(&keys::TORN)?;
    if !keep.is_multiple_of(SECTOR) {
        let what = format!("{} is not in whole sectors", torn.describe());
        torn.error(what, "a multiple of 512 B, or \"0 B\" for nothing at all");
        return None;
    }
    if on.is_some_and(|on| !on.within(Ops::CHANGES)) {
        let allowed =
            format!("{operations} = \"write\", \"discard\", \"write-zeroes\" or a list of these");
        torn.error("a read or a flush cannot be torn", &allowed);
        return None;
    }
    Some(Effect::Torn {
        keep,
        answer: answer.unwrap_or(Err(IoError::Io)),
    })
}

/// Reports keys that contradict each other or lack their counterpart.
fn check(section: &Section<'_>, on: Option<Ops>, from: Option<u64>, size: Option<u64>) {
    if !["error", "stall", "torn"]
        .iter()
        .any(|key| section.has(key))
    {
        let allowed = "error = \"EIO\", stall = \"2 s\", torn = \"512 B\", or a stall with one of \
                       the others";
        section.error("no effect is set", allowed);
    }
    if let Some(seed) = section.find("seed")
        && !section.has("probability")
    {
        seed.error(
            "seed without probability has no effect",
            "add a probability, or leave it out",
        );
    }
    let place = section.find("from").or_else(|| section.find("length"));
    if let Some(place) = place
        && on == Some(Ops::only(Op::Flush))
    {
        place.error("a flush has no range of bytes", "leave it out");
    }
    if let (Some(from), Some(size), Some(field)) = (from, size, section.find("from"))
        && from >= size
    {
        let size = tidegate_units::format_bytes(size);
        field.error(
            format!("{} is past the disk's end", field.describe()),
            &format!("less than its size, {size}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(json: serde_json::Value) -> String {
        let errors = from_json(&json).expect_err("refused").0;
        let message = |d: &tidegate_config::Diagnostic| {
            format!(
                "{}: {}; {}",
                d.field,
                d.what,
                d.allowed.as_deref().unwrap_or("")
            )
        };
        errors.iter().map(message).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_rule_says_which_requests_when_and_what() {
        let rule = from_json(&json!({
            "on": ["write", "discard"], "from": "1 GiB", "length": "64 MiB", "every": 7,
            "probability": "0.25 %", "seed": 3, "after": "10 s", "for": "5 s", "count": 100,
            "stall": "2 s", "torn": "1 KiB", "error": "ENOSPC",
        }));
        let read = Rule {
            on: Ops::only(Op::Write).union(Ops::only(Op::Discard)),
            from: 1 << 30,
            to: (1 << 30) + (64 << 20),
            every: 7,
            probability_ppm: 2500,
            seed: 3,
            after: Nanos::from_secs(10),
            lasts: Some(Nanos::from_secs(5)),
            count: Some(100),
            stall: Nanos::from_secs(2),
            effect: Effect::Torn {
                keep: 1024,
                answer: Err(IoError::NoSpace),
            },
        };
        assert_eq!(rule, Ok(read));
        let rule = from_json(&json!({ "error": "EIO" }));
        assert_eq!(rule, Ok(Rule::always(Effect::Error(IoError::Io))));
        let lost = from_json(&json!({ "on": "write", "torn": "0 B", "error": "none" }));
        let lost = lost.expect("good").effect;
        assert_eq!(
            lost,
            Effect::Torn {
                keep: 0,
                answer: Ok(())
            }
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_told_what_would() {
        for (json, message) in [
            (json!({}), "error = \"EIO\""),
            (
                json!({ "error": "none" }),
                "\"none\" is no error; only a torn",
            ),
            (
                json!({ "error": "ETIMEDOUT" }),
                "with a stall of the same length",
            ),
            (json!({ "error": "EROFS" }), "\"EIO\", \"ENOSPC\""),
            (json!({ "error": "EIO", "on": [] }), "the list is empty"),
            (json!({ "error": "EIO", "on": "trim" }), "\"discard\""),
            (json!({ "error": "EIO", "probability": 1 }), "\"1 %\""),
            (
                json!({ "error": "EIO", "probability": "0 %" }),
                "more than 0",
            ),
            (
                json!({ "error": "EIO", "probability": "101 %" }),
                "to 100 %",
            ),
            (
                json!({ "error": "EIO", "probability": "0.00001 %" }),
                "four decimals",
            ),
            (json!({ "error": "EIO", "seed": 1 }), "without probability"),
            (
                json!({ "error": "EIO", "on": "flush", "from": "1 MiB" }),
                "no range",
            ),
            (json!({ "error": "EIO", "every": 0 }), "out of range"),
            (json!({ "error": "EIO", "for": "0 s" }), "out of range"),
            (json!({ "stall": 2 }), "\"2 s\""),
            (json!({ "torn": "512 B" }), "cannot be torn"),
            (
                json!({ "torn": "512 B", "on": ["write", "read"] }),
                "cannot be torn",
            ),
            // Hints use the spelling in the document.
            (
                json!({ "torn": "512 B", "on": "read" }),
                "cannot be torn; on = \"write\"",
            ),
            (
                json!({ "torn": "512 B", "operations": "read" }),
                "cannot be torn; operations = \"write\"",
            ),
            (json!({ "torn": "100 B", "on": "write" }), "whole sectors"),
            (
                json!({ "eror": "EIO", "stall": "1 s" }),
                "did you mean `error`?",
            ),
        ] {
            let text = json.to_string();
            let answer = refused(json);
            assert!(answer.contains(message), "{text}: {answer}");
        }
    }
}
