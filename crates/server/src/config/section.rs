//! Reading a table field by field: each field is asked for by name, and what nobody asked for
//! is a mistake.

use std::fmt;

use super::diagnose::{Diagnostic, Issues, Span, nearest};
use super::field::Field;
use super::node::{Entry, Value};

/// Where a field is: what its table is called and the names that lead to it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Path {
    /// `vm "oltp"`, or nothing.
    label: String,
    /// `objective.limit`, or nothing.
    names: String,
}

impl Path {
    pub(crate) fn labelled(label: impl Into<String>) -> Path {
        Path {
            label: label.into(),
            names: String::new(),
        }
    }

    pub(crate) fn join(&self, name: &str) -> Path {
        let dot = if self.names.is_empty() || name.starts_with('[') {
            ""
        } else {
            "."
        };
        Path {
            label: self.label.clone(),
            names: format!("{}{dot}{name}", self.names),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.label.is_empty() && self.names.is_empty() {
            return Ok(());
        }
        let colon = if self.label.is_empty() || self.names.is_empty() {
            ""
        } else {
            ": "
        };
        write!(f, "{}{colon}{}", self.label, self.names)
    }
}

/// A table being read.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    entries: &'a [Entry],
    known: Vec<&'static str>,
    pub(crate) path: Path,
    pub(crate) span: Span,
    issues: &'a Issues,
}

impl<'a> Section<'a> {
    /// The entries of the table that `field` is.
    pub(super) fn new(entries: &'a [Entry], field: &Field<'a>) -> Section<'a> {
        Section {
            entries,
            known: Vec::new(),
            path: field.path.clone(),
            span: field.node.span.clone(),
            issues: field.issues,
        }
    }

    /// The field named `key`; from now on it is known.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Field {
            node: &entry.node,
            path: self.path.join(key),
            issues: self.issues,
        })
    }

    /// The field named `key`, and an error where it is missing.
    pub(crate) fn need(&mut self, key: &'static str, allowed: &str) -> Option<Field<'a>> {
        let field = self.take(key);
        if field.is_none() {
            self.error(format!("`{key}` is missing"), allowed);
        }
        field
    }

    /// The elements of a list of tables, `[[key]]`; none where it is missing.
    pub(crate) fn take_tables(&mut self, key: &'static str) -> Vec<Field<'a>> {
        let Some(field) = self.take(key) else {
            return Vec::new();
        };
        let heading = if key == "disk" { "vm.disk" } else { key };
        match &field.node.value {
            Value::List(list) => (list.iter().enumerate())
                .map(|(i, node)| Field {
                    node,
                    path: self.path.join(&format!("{key}[{i}]")),
                    issues: self.issues,
                })
                .collect(),
            // [vm] for [[vm]] is the most common mistake of all. Its content is read all the
            // same, for there may be more to say about it.
            Value::Table(_) => {
                field.error(
                    "one table, where a list of them is expected",
                    &format!("write [[{heading}]] with two brackets, once for each"),
                );
                vec![field]
            }
            _ => {
                field.refuse("a list of tables", &format!("[[{heading}]]"));
                Vec::new()
            }
        }
    }

    /// One of a few words, or `default` where it is missing.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        choices: &[(&str, T)],
    ) -> Option<T> {
        match self.take(key) {
            Some(field) => field.choice(choices),
            None => Some(default),
        }
    }

    /// The field named `key` once more.
    pub(crate) fn find(&self, key: &str) -> Option<Field<'a>> {
        self.entries()
            .find(|(entry, _)| entry.key == key)
            .map(|(_, field)| field)
    }

    /// Every field, asked for or not.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a Entry, Field<'a>)> + use<'a> {
        let (path, issues) = (self.path.clone(), self.issues);
        self.entries.iter().map(move |entry| {
            (
                entry,
                Field {
                    node: &entry.node,
                    path: path.join(&entry.key),
                    issues,
                },
            )
        })
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// An error about the table as a whole.
    pub(crate) fn error(&self, what: impl Into<String>, allowed: &str) {
        let diagnostic = Diagnostic::error(what).at(self.path.to_string(), &self.span);
        self.issues.push(diagnostic.allowing(allowed));
    }

    /// Reports every field that nobody asked for.
    pub(crate) fn finish(self) {
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                self.unknown(entry, &self.known);
            }
        }
    }

    /// Reports a field that is none of `known`.
    pub(crate) fn unknown(&self, entry: &Entry, known: &[&str]) {
        let allowed = match nearest(&entry.key, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        let what = format!("unknown key `{}`", entry.key);
        let diagnostic = Diagnostic::error(what).at(self.path.to_string(), &entry.key_span);
        self.issues.push(diagnostic.allowing(allowed));
    }
}
