//! JSON Schema (draft 2020-12) of a document, made from the tables of keys that its reader uses.
//!
//! The schema accepts every document that the reader accepts, except for a few undocumented
//! spellings such as `"NONE"`. It covers keys, types, choices, units and ranges of plain numbers;
//! checks of one value against another are left to the reader.

mod patterns;
mod policy;

use serde_json::{Map, Value, json};

use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};

/// Largest integer of TOML; a larger maximum is left out of the schema.
const LARGEST: u64 = i64::MAX as u64;

/// Returns the schema of a document whose top level is `file`. `registered` has the definitions,
/// each with its name, for keys of the kind [`KeyKind::Registered`].
pub fn json_schema(
    file: &'static SectionInfo,
    title: &str,
    registered: Vec<(&str, Value)>,
) -> Value {
    let mut schema = Map::new();
    schema.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("title".to_owned(), title.into());
    schema.extend(section(file));
    let sections = file.with_inner();
    let has_policies =
        (sections.iter().flat_map(|info| info.keys)).any(|key| key.kind == KeyKind::Policy);
    let policy = has_policies.then(|| ("policy", policy::schema()));
    let inner = sections.iter().skip(1);
    let definitions: Map<String, Value> = inner
        .map(|info| (info.name, section(info).into()))
        .chain(policy)
        .chain(registered)
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    schema.insert("$defs".to_owned(), definitions.into());
    schema.into()
}

/// Returns the schema of a table with the keys of `info` and no others.
fn section(info: &SectionInfo) -> Map<String, Value> {
    let is_required = |key: &&KeyInfo| matches!(key.default, KeyDefault::Required(_));
    let required: Vec<&str> = (info.keys.iter().filter(is_required))
        .map(|key| key.name)
        .collect();
    let properties: Map<String, Value> = (info.keys.iter())
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}

/// Returns the schema of a key: its values, its default and its description.
pub fn property(key: &KeyInfo) -> Value {
    let mut schema = value(key.kind, key);
    let has_unit = key.kind.numeric().is_some_and(|kind| kind != KeyKind::Mode);
    let help = match key.range() {
        range if range.is_empty() || !has_unit => key.help.to_owned(),
        range => format!("{} ({range})", key.help),
    };
    schema.insert("description".to_owned(), help.into());
    if let Some(default) = default(key) {
        schema.insert("default".to_owned(), default);
    }
    schema.into()
}

/// Returns a key's default in the document's notation; `None` if it has none.
fn default(key: &KeyInfo) -> Option<Value> {
    Some(match key.default {
        KeyDefault::Value(value) if key.kind == KeyKind::Count => value.into(),
        KeyDefault::Value(value) => key.written(value).into(),
        KeyDefault::Decimal(value) => value.into(),
        KeyDefault::Flag(value) => value.into(),
        KeyDefault::Text(text) => text.into(),
        KeyDefault::Required(_) | KeyDefault::Unset(_) => return None,
    })
}

/// Returns the schema of a kind of value, with the range of `key` for numbers.
fn value(kind: KeyKind, key: &KeyInfo) -> Map<String, Value> {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let schema = match kind {
        KeyKind::Flag => json!({ "type": "boolean" }),
        KeyKind::Count => count(key),
        KeyKind::Decimal { min, max } => {
            json!({ "type": "number", "minimum": min, "maximum": max })
        }
        KeyKind::Bytes => text(&patterns::size()),
        KeyKind::Duration => text(&patterns::duration()),
        KeyKind::Bandwidth => text(&patterns::bandwidth()),
        KeyKind::Rate => text(&patterns::rate()),
        KeyKind::Percent => text(patterns::PERCENT),
        KeyKind::Name => text(patterns::NAME),
        KeyKind::Mode => text(patterns::MODE),
        KeyKind::Form(form) => text(form.pattern),
        KeyKind::Text => json!({ "type": "string" }),
        KeyKind::Path => json!({ "type": "string", "minLength": 1 }),
        KeyKind::Choice(words) => json!({ "enum": words }),
        KeyKind::OneOf(kinds) => {
            let kinds: Vec<_> = kinds.iter().map(|kind| value(*kind, key)).collect();
            json!({ "anyOf": kinds })
        }
        KeyKind::List(kind) => json!({ "type": "array", "items": value(*kind, key) }),
        KeyKind::Table(section) => reference(section.name),
        KeyKind::Tables(section) => json!({ "type": "array", "items": reference(section.name) }),
        KeyKind::Policy => reference("policy"),
        KeyKind::Registered(name) => reference(name),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => unreachable!("every kind is an object of JSON"),
    }
}

fn count(key: &KeyInfo) -> Value {
    let mut schema = json!({ "type": "integer", "minimum": key.min });
    if key.max <= LARGEST {
        schema["maximum"] = key.max.into();
    }
    schema
}

fn reference(section: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{section}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: SectionInfo = SectionInfo {
        name: "inner",
        keys: &[KeyInfo::number("n", KeyKind::Count, 2, (1, 3), "how many")],
    };
    const FILE: SectionInfo = SectionInfo {
        name: "",
        keys: &[
            KeyInfo::new(
                "inner",
                KeyKind::Tables(&INNER),
                KeyDefault::Required("[[inner]]"),
                "tables",
            ),
            KeyInfo::number(
                "pause",
                KeyKind::Duration,
                1_000_000,
                (0, 1_000_000_000),
                "wait",
            ),
        ],
    };

    #[test]
    fn a_table_of_keys_becomes_a_schema() {
        let mut schema = json_schema(&FILE, "test", Vec::new());
        assert_eq!(schema["title"], "test");
        assert_eq!(schema["required"], json!(["inner"]));
        assert_eq!(schema["additionalProperties"], false);
        let inner = json!({
            "type": "array", "items": { "$ref": "#/$defs/inner" }, "description": "tables"
        });
        assert_eq!(schema["properties"]["inner"], inner);
        let pause = &schema["properties"]["pause"];
        assert_eq!(pause["default"], "1 ms");
        assert_eq!(pause["description"], "wait (0 s to 1 s)");
        let n = json!({
            "type": "object", "additionalProperties": false,
            "properties": { "n": {
                "type": "integer", "minimum": 1, "maximum": 3, "default": 2,
                "description": "how many (1 to 3)",
            } },
        });
        assert_eq!(schema["$defs"]["inner"].take(), n);
    }
}
