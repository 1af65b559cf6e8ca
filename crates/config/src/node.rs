//! Tree of values with their places, made from TOML or JSON.
//!
//! Configuration files and the control API describe objectives and policies with the same keys.
//! Both are turned into this tree, which one reader reads; unlike a derived deserializer, that
//! reader goes on after the first mistake.

use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Issues, Span};

/// Value and its place in the text.
#[derive(Clone, Debug)]
pub struct Node {
    /// Value at this place.
    pub value: Value,
    /// Byte range in the text; `0..0` in JSON.
    pub span: Span,
}

/// Value of TOML or JSON.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text in quotes.
    Text(String),
    /// Whole number.
    Integer(i128),
    /// Number with a decimal point or exponent, as written.
    Float(String),
    /// `true` or `false`.
    Bool(bool),
    /// Date or time of TOML, as written.
    Date(String),
    /// `null` of JSON.
    Null,
    /// List such as `[1, 2]`, or the tables of a `[[heading]]`.
    List(Vec<Node>),
    /// Table such as `{ a = 1 }`, or the keys below a `[heading]`, in the order of the text.
    Table(Vec<Entry>),
}

/// Key of a table with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the key.
    pub key: String,
    /// Byte range of the key in the text; `0..0` in JSON.
    pub key_span: Span,
    /// Value of the key.
    pub node: Node,
}

/// Maximum length in bytes of a value that a message repeats.
const REPEATED_MAX: usize = 80;

/// Returns a help text if the value on the line of byte `at` lacks its quotes. The TOML parser's
/// own message would mislead: a word that begins with `t` or `f` is taken for a broken `true` or
/// `false`.
fn unquoted(text: &str, at: usize) -> Option<String> {
    let line_start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let (key, value) = text[line_start..].lines().next()?.split_once('=')?;
    let (key, value) = (key.trim(), value.split('#').next()?.trim());
    let word = value.starts_with(|first: char| first.is_alphabetic() || first == '/');
    let figure = value.starts_with(|first: char| first.is_ascii_digit()) && value.contains(' ');
    let plain = !value.contains(|c: char| c.is_control() || "\"'{[".contains(c));
    let meant = (word || figure) && plain && value.len() <= REPEATED_MAX;
    meant.then(|| format!("text and figures with units stand in quotes: {key} = \"{value}\""))
}

impl Node {
    /// Parses TOML. Reports all syntax errors that the parser can recover from, then returns
    /// `None`.
    pub(crate) fn from_toml(text: &str, issues: &Issues) -> Option<Node> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            let span = table.span();
            return Some(Node {
                value: from_table(table.get_ref()),
                span,
            });
        }
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let what = format!("not TOML: {}", error.message());
            let help = unquoted(text, span.start).unwrap_or_default();
            issues.push(Diagnostic::error(what).located_at("", &span).allowing(help));
        }
        None
    }

    /// Converts a JSON value.
    pub fn from_json(json: &serde_json::Value) -> Node {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            // Integers up to u64::MAX, exactly; everything else stays text until it is read.
            Json::Number(n) => match n.as_i64().map(i128::from).or(n.as_u64().map(i128::from)) {
                Some(n) => Value::Integer(n),
                None => Value::Float(n.to_string()),
            },
            Json::String(s) => Value::Text(s.clone()),
            Json::Array(list) => Value::List(list.iter().map(Node::from_json).collect()),
            Json::Object(map) => Value::Table(
                map.iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_span: 0..0,
                        node: Node::from_json(value),
                    })
                    .collect(),
            ),
        };
        Node { value, span: 0..0 }
    }

    /// Converts the value to JSON. Dates and numbers beyond 64 bits become text.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Text(text) | Value::Date(text) => text.as_str().into(),
            Value::Integer(n) => {
                i64::try_from(*n).map_or_else(|_| n.to_string().into(), Json::from)
            }
            Value::Float(text) => {
                let number = text.parse::<f64>();
                number.map_or_else(|_| text.as_str().into(), Json::from)
            }
            Value::Bool(b) => (*b).into(),
            Value::Null => Json::Null,
            Value::List(list) => list.iter().map(Node::to_json).collect::<Vec<_>>().into(),
            Value::Table(entries) => {
                let fields = entries.iter();
                let fields = fields.map(|entry| (entry.key.clone(), entry.node.to_json()));
                Json::Object(fields.collect())
            }
        }
    }

    /// Returns the value as messages name it: `a list`, `120`, `"oltp"`.
    pub fn describe(&self) -> String {
        match &self.value {
            // Long texts are cut to 57 characters and "...", so that messages stay on one line.
            Value::Text(text) if text.chars().count() > 60 => {
                format!("{:?}...", text.chars().take(57).collect::<String>())
            }
            Value::Text(text) => format!("{text:?}"),
            Value::Integer(n) => n.to_string(),
            Value::Float(text) => text.clone(),
            Value::Bool(b) => b.to_string(),
            Value::Date(text) => format!("the date {text}"),
            Value::Null => "null".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

fn from_table(table: &DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_span: key.span(),
            node: Node {
                value: from_value(value.get_ref()),
                span: value.span(),
            },
        })
        .collect();
    // The parser sorts keys by name; messages and schedules need the order of the text.
    entries.sort_by_key(|entry| entry.key_span.start);
    Value::Table(entries)
}

fn from_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(n) => match i128::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Integer(n),
            // Beyond 128 bits: kept as written, to be refused with the range of its key.
            Err(_) => Value::Float(n.to_string()),
        },
        DeValue::Float(n) => Value::Float(n.as_str().to_owned()),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(list) => Value::List(
            list.iter()
                .map(|v| Node {
                    value: from_value(v.get_ref()),
                    span: v.span(),
                })
                .collect(),
        ),
        DeValue::Table(table) => from_table(table),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_value_without_its_quotes_is_shown_with_them() {
        let help = |text: &str| {
            let found = crate::document::read(text, "t.toml", |_| Some(()));
            let errors = found.expect_err("no TOML").0;
            errors[0].allowed.clone().unwrap_or_default()
        };
        for (text, quoted) in [
            ("kind = file", "kind = \"file\""),
            ("a = 1\nname = disk0 # one\nb = 2", "name = \"disk0\""),
            ("size = 16 MiB", "size = \"16 MiB\""),
            ("path = /var/a.raw", "path = \"/var/a.raw\""),
        ] {
            let said = help(text);
            assert!(
                said.ends_with(&format!("quotes: {quoted}")),
                "{text}: {said}"
            );
        }
        for text in [
            "[[vm]",
            "a = \"open",
            "a = [1,, 2]",
            "a = { b = }",
            "a = 1\na = 2",
        ] {
            assert_eq!(help(text), "", "{text}");
        }
    }
}
