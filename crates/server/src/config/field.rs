//! Reading a value: as text, a figure with its unit, one of a few words.

use std::ops::RangeInclusive;

use tidegate_core::time::Nanos;
use tidegate_device::units::{self, UnitError, UnitErrorKind};

use super::diagnose::{Diagnostic, Issues, nearest, one_of};
use super::node::{Node, Value};
use super::section::{Path, Section};

/// A value being read.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: Path,
    pub(super) issues: &'a Issues,
}

impl<'a> Field<'a> {
    /// The root of a tree.
    pub(crate) fn root(node: &'a Node, path: Path, issues: &'a Issues) -> Field<'a> {
        Field { node, path, issues }
    }

    /// The same value under another name.
    pub(crate) fn at(&self, path: Path) -> Field<'a> {
        Field {
            path,
            ..self.clone()
        }
    }

    pub(crate) fn diagnostic(&self, what: impl Into<String>) -> Diagnostic {
        Diagnostic::error(what).at(self.path.to_string(), &self.node.span)
    }

    pub(crate) fn error(&self, what: impl Into<String>, allowed: &str) {
        self.issues.push(self.diagnostic(what).allowing(allowed));
    }

    pub(crate) fn push(&self, diagnostic: Diagnostic) {
        self.issues.push(diagnostic);
    }

    /// Found something of another kind.
    pub(crate) fn refuse(&self, expected: &str, example: &str) {
        self.error(
            format!("found {}, expected {expected}", self.node.describe()),
            &format!("write it like {example}"),
        );
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// The field at the end of a dotted path below this one, or as far down as it is written.
    pub(crate) fn find(&self, names: &str) -> Option<Field<'a>> {
        let mut found = None;
        let mut at = self.clone();
        for name in names.split('.') {
            let Value::Table(entries) = &at.node.value else {
                break;
            };
            let Some(entry) = entries.iter().find(|entry| entry.key == name) else {
                break;
            };
            at = Field {
                node: &entry.node,
                path: at.path.join(name),
                issues: at.issues,
            };
            found = Some(at.clone());
        }
        found
    }

    /// The value as a table.
    pub(crate) fn section(&self) -> Option<Section<'a>> {
        match &self.node.value {
            Value::Table(entries) => Some(Section::new(entries, self)),
            _ => {
                self.error(
                    format!("found {}, expected a table", self.node.describe()),
                    "",
                );
                None
            }
        }
    }

    /// The elements of a list.
    pub(crate) fn elements(&self) -> Option<Vec<Field<'a>>> {
        let Value::List(list) = &self.node.value else {
            self.refuse("a list", "[\"one\", \"two\"]");
            return None;
        };
        let field = |(i, node)| Field {
            node,
            path: self.path.join(&format!("[{i}]")),
            issues: self.issues,
        };
        Some(list.iter().enumerate().map(field).collect())
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.refuse("text", "\"name\", in quotes");
                None
            }
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match &self.node.value {
            Value::Bool(b) => Some(*b),
            _ => {
                self.error(
                    format!("found {}, expected true or false", self.node.describe()),
                    "true or false, without quotes",
                );
                None
            }
        }
    }

    /// A whole number without a unit.
    pub(crate) fn count(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        let Value::Integer(n) = self.node.value else {
            let quotes = match &self.node.value {
                Value::Text(text) if text.parse::<u64>().is_ok() => ", without quotes",
                _ => "",
            };
            let what = format!("found {}, expected a whole number", self.node.describe());
            self.error(what, &format!("{allowed}{quotes}"));
            return None;
        };
        match u64::try_from(n).ok().filter(|n| range.contains(n)) {
            Some(n) => Some(n),
            None => {
                self.error(format!("{n} is out of range"), &allowed);
                None
            }
        }
    }

    /// A number of bytes with its unit.
    pub(crate) fn bytes(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let n = self.figure(units::Quantity::Bytes, units::parse_bytes)?;
        self.within(n, range, |n| units::Bytes(n).to_string())
    }

    /// A span of time with its unit.
    pub(crate) fn duration(&self, range: RangeInclusive<Nanos>) -> Option<Nanos> {
        let ns = self.figure(units::Quantity::Duration, units::parse_duration)?;
        self.within(ns, range, units::format_duration)
    }

    fn within<T: PartialOrd + Copy>(
        &self,
        value: T,
        range: RangeInclusive<T>,
        format: impl Fn(T) -> String,
    ) -> Option<T> {
        if range.contains(&value) {
            return Some(value);
        }
        self.error(
            format!("{} is out of range", self.node.describe()),
            &format!(
                "from {} to {}",
                format(*range.start()),
                format(*range.end())
            ),
        );
        None
    }

    fn figure<T>(
        &self,
        quantity: units::Quantity,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        match &self.node.value {
            Value::Text(text) => match parse(text) {
                Ok(value) => return Some(value),
                Err(error) => {
                    let (what, allowed) = explain(&error);
                    self.error(what, &allowed);
                }
            },
            Value::Integer(_) | Value::Float(_) => {
                self.error(
                    format!(
                        "{} is a bare number, its unit is missing",
                        self.node.describe()
                    ),
                    &suggest(quantity, &self.node.describe()),
                );
            }
            _ => self.refuse(quantity.name(), &format!("\"{}\"", quantity.example())),
        }
        None
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let names = || choices.iter().map(|(name, _)| *name);
        let Value::Text(text) = &self.node.value else {
            self.error(
                format!(
                    "found {}, expected one of a few words",
                    self.node.describe()
                ),
                &one_of(names()),
            );
            return None;
        };
        match choices.iter().find(|(name, _)| name == text) {
            Some((_, value)) => Some(*value),
            None => {
                let allowed = match nearest(text, names()) {
                    Some(near) => format!("did you mean {near:?}? Allowed: {}", one_of(names())),
                    None => one_of(names()),
                };
                self.error(format!("found {}", self.node.describe()), &allowed);
                None
            }
        }
    }

    /// A file mode such as `"0660"`.
    pub(crate) fn mode(&self) -> Option<u32> {
        let allowed = "three or four octal digits in quotes up to \"0777\", such as \"0660\"";
        let Value::Text(text) = &self.node.value else {
            let what = format!(
                "found {}, expected a file mode in quotes",
                self.node.describe()
            );
            self.error(what, allowed);
            return None;
        };
        let digits = matches!(text.len(), 3 | 4) && text.bytes().all(|b| b.is_ascii_digit());
        match u32::from_str_radix(text, 8)
            .ok()
            .filter(|&mode| digits && mode <= 0o777)
        {
            Some(mode) => Some(mode),
            None => {
                self.error(
                    format!("{} is not a file mode", self.node.describe()),
                    allowed,
                );
                None
            }
        }
    }

    /// A name that can stand in a URL, a metric and a table.
    pub(crate) fn name(&self) -> Option<String> {
        let text = self.text()?;
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.chars().all(good) && (1..=64).contains(&text.len()) && !text.starts_with('.') {
            return Some(text.to_owned());
        }
        self.error(
            format!("{} cannot be a name", self.node.describe()),
            "1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'",
        );
        None
    }
}

/// What was found and what is allowed instead, of a figure.
pub(crate) fn explain(error: &UnitError) -> (String, String) {
    let (found, quantity) = (&error.found, error.quantity);
    let example = quantity.example();
    let units = || {
        format!(
            "with one of the units {}, such as {example:?}",
            quantity.allowed()
        )
    };
    match error.kind {
        UnitErrorKind::NoUnit => {
            let what = format!("{found:?} is a bare number, its unit is missing");
            (what, suggest(quantity, found.trim()))
        }
        UnitErrorKind::NotANumber => (
            format!("{found:?} is not {}", quantity.name()),
            format!("a decimal number {}", units()),
        ),
        UnitErrorKind::UnknownUnit => (format!("{found:?} has an unknown unit"), units()),
        UnitErrorKind::NotWhole | UnitErrorKind::TooLarge => (
            error.to_string(),
            format!("{} such as {example:?}", quantity.name()),
        ),
    }
}

/// A bare number with the units it may have been meant in.
fn suggest(quantity: units::Quantity, number: &str) -> String {
    let likely = match quantity {
        units::Quantity::Bytes => ["B", "KiB", "MiB", "GiB"].as_slice(),
        units::Quantity::Duration => &["us", "ms", "s"],
        units::Quantity::Bandwidth => &["kB/s", "MB/s"],
        units::Quantity::Rotation => &["rpm"],
    };
    let figures: Vec<String> = likely
        .iter()
        .map(|unit| format!("{number} {unit}"))
        .collect();
    one_of(figures.iter().map(String::as_str))
}
