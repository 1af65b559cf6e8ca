//! Reading of single values: text, figures with units, choices.
//!
//! Every reading method returns `None` if the value has another type or is out of range, and has
//! then reported what was found and what is allowed.

use std::ops::RangeInclusive;

use tidegate_core::names::nearest;
use tidegate_core::objective::Rate;
use tidegate_core::time::Nanos;
use tidegate_units::{self as units, Thousandths, UnitError};

use crate::diagnostic::{Diagnostic, Issues, Place, one_of};
use crate::figure::{self, explain_unit, suggest};
use crate::keys::{KeyInfo, KeyKind};
use crate::name_form::{NAME_FORM, is_name};
use crate::node::{Node, Value};
use crate::path::Path;

/// Value being read, with its place and the collection for mistakes.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: Path,
    pub(crate) issues: &'a Issues,
}

impl<'a> Field<'a> {
    /// Creates the field of a document's root.
    pub(crate) fn root(node: &'a Node, path: Path, issues: &'a Issues) -> Field<'a> {
        Field { node, path, issues }
    }

    /// Returns the value and its place in the text.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Returns a field with another value in place of this one, for a document whose values are
    /// replaced before it is read. Messages keep the places that the nodes of `node` have.
    pub fn with_node<'n>(&self, node: &'n Node) -> Field<'n>
    where
        'a: 'n,
    {
        Field {
            node,
            path: self.path.clone(),
            issues: self.issues,
        }
    }

    /// Returns the value as messages name it: `a list`, `120`, `"oltp"`.
    pub fn describe(&self) -> String {
        self.node.describe()
    }

    /// Returns the field, with messages below it labelled by `kind` and the table's `name`
    /// (`vm "oltp"`); unchanged if the table has no name.
    pub fn labelled(&self, kind: &str) -> Field<'a> {
        let name = self.find("name").map(|field| &field.node.value);
        match name {
            Some(Value::Text(name)) if !name.is_empty() => Field {
                path: self.path.relabelled(format!("{kind} {name:?}")),
                ..self.clone()
            },
            _ => self.clone(),
        }
    }

    /// Returns the place of the value, for mistakes found after reading. `None` in JSON.
    pub fn place(&self) -> Option<Place> {
        self.issues.place(&self.node.span)
    }

    /// Creates an error at this place, to be completed and given to [`Field::push`].
    pub fn diagnostic(&self, what: impl Into<String>) -> Diagnostic {
        Diagnostic::error(what).located_at(self.path.to_string(), &self.node.span)
    }

    /// Reports an error at this place; `allowed` may be empty.
    pub fn error(&self, what: impl Into<String>, allowed: &str) {
        self.push(self.diagnostic(what).allowing(allowed));
    }

    /// Reports a warning at this place.
    pub fn warn(&self, what: impl Into<String>, allowed: &str) {
        self.push(self.diagnostic(what).allowing(allowed).warning());
    }

    /// Notes an old spelling here; `new` is the new one, such as `` `at` ``.
    pub fn note_old_spelling(&self, new: &str) {
        let what = format!("the old spelling of {new}");
        self.issues.note(self.diagnostic(what));
    }

    /// Reports a diagnostic.
    pub fn push(&self, diagnostic: Diagnostic) {
        self.issues.push(diagnostic);
    }

    /// Reports that a value of another type was expected.
    pub fn refuse(&self, expected: &str, example: &str) {
        self.error(
            format!("found {}, expected {expected}", self.describe()),
            &format!("write it like {example}"),
        );
    }

    /// Returns true for JSON's `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// Returns the field at the end of a dotted path below this one, or the deepest field on the
    /// path that exists. `None` if not even the first does.
    pub fn find(&self, names: &str) -> Option<Field<'a>> {
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
                path: at.path.key(name),
                issues: at.issues,
            };
            found = Some(at.clone());
        }
        found
    }

    /// Reads a list and returns its elements.
    pub fn elements(&self) -> Option<Vec<Field<'a>>> {
        let Value::List(list) = &self.node.value else {
            self.refuse("a list", "[\"one\", \"two\"]");
            return None;
        };
        let field = |(i, node)| Field {
            node,
            path: self.path.element(i),
            issues: self.issues,
        };
        Some(list.iter().enumerate().map(field).collect())
    }

    /// Reads any text in quotes.
    pub fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.refuse("text", "\"name\", in quotes");
                None
            }
        }
    }

    /// Reads `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        match &self.node.value {
            Value::Bool(b) => Some(*b),
            _ => {
                self.error(
                    format!("found {}, expected true or false", self.describe()),
                    "true or false, without quotes",
                );
                None
            }
        }
    }

    /// Reads a whole number without a unit.
    pub fn count(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        let Value::Integer(n) = self.node.value else {
            // A number in quotes is the likely mistake, so the help text names it.
            let quotes = match &self.node.value {
                Value::Text(text) if text.parse::<u64>().is_ok() => ", without quotes",
                _ => "",
            };
            let what = format!("found {}, expected a whole number", self.describe());
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

    /// Reads a whole number in the range of `key` and returns it in the unit of the key's kind,
    /// such as bytes or nanoseconds.
    ///
    /// # Panics
    /// If the key's kind is not a whole number.
    pub fn number(&self, key: &KeyInfo) -> Option<u64> {
        match key.kind.numeric() {
            Some(KeyKind::Count) => self.count(key.min..=key.max),
            Some(KeyKind::Bytes) => self.bytes(key.min..=key.max),
            Some(KeyKind::Bandwidth) => self.bandwidth(key.min..=key.max),
            Some(KeyKind::Duration) => {
                (self.duration(Nanos(key.min)..=Nanos(key.max))).map(|time| time.0)
            }
            Some(KeyKind::Mode) => self.mode().map(u64::from),
            _ => unreachable!("`{}` is no whole number", key.name),
        }
    }

    /// Reads a decimal number without a unit, in the range of the kind of `key`.
    ///
    /// # Panics
    /// If the key's kind is not [`KeyKind::Decimal`].
    pub fn plain_number(&self, key: &KeyInfo) -> Option<f64> {
        match key.kind {
            KeyKind::Decimal { min, max } => self.decimal(min..=max),
            _ => unreachable!("`{}` is no plain number", key.name),
        }
    }

    /// Reads a number, whole or with decimals, without a unit, such as a share or an exponent.
    /// Figures with units have exact readers of their own.
    pub fn decimal(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        let number = match &self.node.value {
            Value::Integer(n) => Some(*n as f64),
            // Decimals stay text until here, so that figures with units are read exactly.
            Value::Float(text) => text.parse().ok(),
            _ => None,
        };
        let Some(number) = number else {
            // A number in quotes is the likely mistake, so the help text names it.
            let quotes = match &self.node.value {
                Value::Text(text) if text.parse::<f64>().is_ok() => ", without quotes",
                _ => "",
            };
            let what = format!("found {}, expected a number", self.describe());
            self.error(what, &format!("{allowed}{quotes}"));
            return None;
        };
        // NaN is in no range and refused here.
        if range.contains(&number) {
            return Some(number);
        }
        self.error(format!("{} is out of range", self.describe()), &allowed);
        None
    }

    /// Reads a size with its unit and returns bytes.
    pub fn bytes(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let n = self.figure(units::Quantity::Bytes, units::parse_bytes)?;
        self.within(n, range, |n| units::Bytes(n).to_string())
    }

    /// Reads a duration with its unit.
    pub fn duration(&self, range: RangeInclusive<Nanos>) -> Option<Nanos> {
        let ns = self.figure(units::Quantity::Duration, units::parse_duration)?;
        self.within(ns, range, units::format_duration)
    }

    /// Reads a bandwidth with its unit and returns bytes a second.
    pub fn bandwidth(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let rate = self.figure(units::Quantity::Bandwidth, units::parse_bandwidth)?;
        self.within(rate, range, units::format_bandwidth)
    }

    /// Reads a percentage such as `"70 %"` and returns thousandths.
    pub fn thousandths(&self) -> Option<u32> {
        let read = match &self.node.value {
            Value::Text(text) => text.parse().ok(),
            _ => None,
        };
        if read.is_none() {
            self.refuse("a percentage", "\"70 %\", from \"0 %\" to \"100 %\"");
        }
        read.map(|Thousandths(part)| part)
    }

    /// Reads a rate in IOPS, bytes a second or both; `none`, in JSON also `null`, is
    /// [`Rate::NONE`].
    pub fn rate(&self) -> Option<Rate> {
        match &self.node.value {
            Value::Null => Some(Rate::NONE),
            Value::Text(text) => match units::parse_rate(text) {
                Ok(rate) => Some(rate),
                Err(error) => {
                    let (what, allowed) = figure::explain_rate(&error);
                    self.error(what, &allowed);
                    None
                }
            },
            // Never guessed: 500 may be IOPS or bytes a second.
            Value::Integer(_) | Value::Float(_) => {
                let found = self.node.describe();
                self.error(
                    format!("{found} is a bare number, its unit is missing"),
                    &format!("\"{found} IOPS\", \"{found} IOPS @ 16 KiB\" or \"{found} MB/s\""),
                );
                None
            }
            _ => {
                self.refuse("a rate", figure::RATE_EXAMPLES);
                None
            }
        }
    }

    /// Returns `value` if it is in `range`, and reports it otherwise.
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
            format!("{} is out of range", self.describe()),
            &format!(
                "from {} to {}",
                format(*range.start()),
                format(*range.end())
            ),
        );
        None
    }

    /// Reads a figure with a unit; reports a missing or unknown unit with likely ones.
    fn figure<T>(
        &self,
        quantity: units::Quantity,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        match &self.node.value {
            Value::Text(text) => match parse(text) {
                Ok(value) => return Some(value),
                Err(error) => {
                    let (what, allowed) = explain_unit(&error);
                    self.error(what, &allowed);
                }
            },
            Value::Integer(_) | Value::Float(_) => {
                self.error(
                    format!("{} is a bare number, its unit is missing", self.describe()),
                    &suggest(quantity, &self.describe()),
                );
            }
            _ => self.refuse(
                quantity.with_article(),
                &format!("\"{}\"", quantity.example()),
            ),
        }
        None
    }

    /// Reads one of the words of `choices` and returns its value.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let names = || choices.iter().map(|(name, _)| *name);
        let Value::Text(text) = &self.node.value else {
            self.error(
                format!("found {}, expected one of a few words", self.describe()),
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
                self.error(format!("found {}", self.describe()), &allowed);
                None
            }
        }
    }

    /// Reads a name that must be one of `names`, which are names of a `what` (`"device"`).
    pub fn reference<'n>(
        &self,
        what: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<&'a str> {
        let wanted = self.text()?;
        if names.clone().any(|name| name == wanted) {
            return Some(wanted);
        }
        let allowed = match nearest(wanted, names.clone()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are: {}", one_of(names)),
        };
        self.error(format!("there is no {what} {wanted:?}"), &allowed);
        None
    }

    /// Reads a file mode such as `"0660"`.
    pub fn mode(&self) -> Option<u32> {
        let allowed = "three or four octal digits in quotes up to \"0777\", such as \"0660\"";
        let Value::Text(text) = &self.node.value else {
            let what = format!("found {}, expected a file mode in quotes", self.describe());
            self.error(what, allowed);
            return None;
        };
        // `from_str_radix` also accepts a sign, which is no file mode.
        let digits = matches!(text.len(), 3 | 4) && text.bytes().all(|b| b.is_ascii_digit());
        match u32::from_str_radix(text, 8)
            .ok()
            .filter(|&mode| digits && mode <= 0o777)
        {
            Some(mode) => Some(mode),
            None => {
                self.error(format!("{} is not a file mode", self.describe()), allowed);
                None
            }
        }
    }

    /// Reads a name that is valid in URLs, metric labels and tables ([`is_name`]).
    pub fn name(&self) -> Option<String> {
        let text = self.text()?;
        if is_name(text) {
            return Some(text.to_owned());
        }
        self.error(format!("{} cannot be a name", self.describe()), NAME_FORM);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T>(value: &str, read: impl Fn(&Field<'_>) -> Option<T>) -> Result<T, String> {
        let issues = Issues::default();
        let node = Node::from_toml(&format!("x = {value}"), &issues).expect("it is TOML");
        let root = Field::root(&node, Path::default(), &issues);
        let value = read(&root.find("x").expect("it is there"));
        let first = |d: &Diagnostic| format!("{}; {}", d.what, d.allowed.as_deref().unwrap_or(""));
        match issues.into_list().first() {
            Some(diagnostic) => Err(first(diagnostic)),
            None => value.ok_or_else(|| "nothing is reported".to_owned()),
        }
    }

    #[test]
    fn decimals_are_plain_numbers_in_their_range() {
        let read = |value| said(value, |field| field.decimal(0.0..=1.5));
        assert_eq!(read("0.9"), Ok(0.9));
        assert_eq!(read("1"), Ok(1.0));
        assert_eq!(read("1_0e-1"), Ok(1.0));
        let allowed = "a number from 0 to 1.5";
        for out in ["nan", "inf", "-0.1", "2"] {
            assert_eq!(read(out), Err(format!("{out} is out of range; {allowed}")));
        }
        let text = format!("found \"0.9\", expected a number; {allowed}, without quotes");
        assert_eq!(read("\"0.9\""), Err(text));
        let list = format!("found a list, expected a number; {allowed}");
        assert_eq!(read("[]"), Err(list));
    }

    #[test]
    fn a_reference_is_to_something_there_is() {
        let names = || ["disk0", "spare"].into_iter();
        let read = |value| {
            said(value, |field| {
                field.reference("device", names()).map(str::to_owned)
            })
        };
        assert_eq!(read("\"spare\""), Ok("spare".to_owned()));
        let near = "there is no device \"disc0\"; did you mean \"disk0\"?";
        assert_eq!(read("\"disc0\""), Err(near.to_owned()));
        let far = "there is no device \"x\"; there are: \"disk0\" or \"spare\"";
        assert_eq!(read("\"x\""), Err(far.to_owned()));
    }
}
