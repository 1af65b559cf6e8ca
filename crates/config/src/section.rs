//! Reading a table field by field: each field is asked for by name, and what nobody asked for
//! is a mistake.

use tidegate_core::names::nearest;
use tidegate_core::time::Nanos;

use crate::diagnose::{Diagnostic, Issues, Span};
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};
use crate::names::Names;
use crate::node::{Entry, Value};
use crate::path::Path;

/// A table being read.
#[derive(Debug)]
pub struct Section<'a> {
    entries: &'a [Entry],
    known: Vec<&'static str>,
    /// What the table may say; `None`: what the reader asks for.
    info: Option<&'static SectionInfo>,
    path: Path,
    span: Span,
    issues: &'a Issues,
}

impl<'a> Section<'a> {
    /// The table that `field` is. `None`: it is none, which has been reported.
    pub fn of(field: &Field<'a>) -> Option<Section<'a>> {
        let Value::Table(entries) = &field.node.value else {
            field.error(format!("found {}, expected a table", field.describe()), "");
            return None;
        };
        Some(Section {
            entries,
            known: Vec::new(),
            info: None,
            path: field.path.clone(),
            span: field.node.span.clone(),
            issues: field.issues,
        })
    }

    /// The table that `field` is, which may have the keys of `info` and no other. `None`: it is no
    /// table, which has been reported.
    pub fn with_keys(field: &Field<'a>, info: &'static SectionInfo) -> Option<Section<'a>> {
        let info = Some(info);
        Section::of(field).map(|section| Section { info, ..section })
    }

    /// The field of a key, and an error where it is required and missing.
    pub fn required(&mut self, key: &KeyInfo) -> Option<Field<'a>> {
        match key.default {
            KeyDefault::Required(example) => self.need(key.name, example),
            KeyDefault::Value(_) => self.take(key.name),
        }
    }

    /// The field of a key that is a number, in the unit of its kind. `None`: it is wrong, or is
    /// required and missing, which has been reported.
    pub fn number(&mut self, key: &KeyInfo) -> Option<u64> {
        let field = match key.default {
            KeyDefault::Required(example) => self.need(key.name, example)?,
            KeyDefault::Value(default) => match self.take(key.name) {
                Some(field) => field,
                None => return Some(default),
            },
        };
        match key.kind {
            KeyKind::Count => field.count(key.min..=key.max),
            KeyKind::Bytes => field.bytes(key.min..=key.max),
            KeyKind::Duration => {
                (field.duration(Nanos(key.min)..=Nanos(key.max))).map(|time| time.0)
            }
            KeyKind::Path => unreachable!("a path is no number"),
        }
    }

    /// The field named `key`; from now on it is known.
    pub fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        let listed = self.info.is_none_or(|info| info.has(key));
        debug_assert!(listed, "`{key}` is not in the section's table of keys");
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Field {
            node: &entry.node,
            path: self.path.key(key),
            issues: self.issues,
        })
    }

    /// The field named `key`, and an error where it is missing; `allowed` says what to write.
    pub fn need(&mut self, key: &'static str, allowed: &str) -> Option<Field<'a>> {
        let field = self.take(key);
        if field.is_none() {
            self.error(format!("`{key}` is missing"), allowed);
        }
        field
    }

    /// The elements of a list of tables, `[[key]]`; none where it is missing. One table where a
    /// list is expected is an error, and is read all the same.
    pub fn take_tables(&mut self, key: &'static str) -> Vec<Field<'a>> {
        let Some(field) = self.take(key) else {
            return Vec::new();
        };
        let heading = &field.path.heading;
        match &field.node.value {
            Value::List(list) => (list.iter().enumerate())
                .map(|(i, node)| Field {
                    node,
                    path: field.path.element(i),
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

    /// The field named `key` as `read` reads it, or `default` where it is missing.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Field<'a>) -> Option<T>,
    ) -> Option<T> {
        match self.take(key) {
            Some(field) => read(&field),
            None => Some(default),
        }
    }

    /// The `name` that every `what` (`"VM"`) must have, each its own; `example` is one.
    pub fn own_name(&mut self, what: &str, example: &str, taken: &mut Names) -> Option<String> {
        let field = self.need("name", &format!("a name of its own: name = {example:?}"))?;
        let name = field.name()?;
        taken.claim(&name, what, &field);
        Some(name)
    }

    /// One of a few words, or `default` where it is missing.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.read(key, default, |field| field.choice(choices))
    }

    /// The field named `key` once more; it becomes no more known than it was.
    pub fn find(&self, key: &str) -> Option<Field<'a>> {
        self.entries()
            .find(|(entry, _)| entry.key == key)
            .map(|(_, field)| field)
    }

    /// Every field, asked for or not.
    pub fn entries(&self) -> impl Iterator<Item = (&'a Entry, Field<'a>)> + use<'a> {
        let (path, issues) = (self.path.clone(), self.issues);
        self.entries.iter().map(move |entry| {
            (
                entry,
                Field {
                    node: &entry.node,
                    path: path.key(&entry.key),
                    issues,
                },
            )
        })
    }

    /// Whether there is a field named `key`.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// An error about the table as a whole.
    pub fn error(&self, what: impl Into<String>, allowed: &str) {
        let diagnostic = Diagnostic::error(what).at(self.path.to_string(), &self.span);
        self.issues.push(diagnostic.allowing(allowed));
    }

    /// Reports every field that nobody asked for, with the known one that may have been meant.
    ///
    /// # Panics
    /// In debug builds, where a key of the section's table was never asked for.
    pub fn finish(self) {
        for key in self.info.iter().flat_map(|info| info.keys) {
            debug_assert!(self.known.contains(&key.name), "`{}` is not read", key.name);
        }
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                self.unknown(entry, &self.known);
            }
        }
    }

    /// Reports a field that is none of `known`.
    pub fn unknown(&self, entry: &Entry, known: &[&str]) {
        let allowed = match nearest(&entry.key, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        let what = format!("unknown key `{}`", entry.key);
        let diagnostic = Diagnostic::error(what).at(self.path.to_string(), &entry.key_span);
        self.issues.push(diagnostic.allowing(allowed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn one_bracket_for_two_is_answered_with_the_whole_heading() {
        fn list<'a>(field: &Field<'a>, key: &'static str) -> Vec<Field<'a>> {
            let mut section = Section::of(field).expect("a table");
            let list = section.take_tables(key);
            section.finish();
            list
        }
        // The label is what the table is called; the heading is what it is written under.
        let said = |text: &str, outer: &'static str, inner: &'static str| {
            let refused = document::read(text, "f.toml", |root| {
                for field in list(root, outer) {
                    list(&field.labelled(outer), inner);
                }
                Some(())
            });
            refused.map(|_| ()).unwrap_err().to_string()
        };
        let vm = said("[[vm]]\n[vm.job]\n", "vm", "job");
        assert!(vm.starts_with("error: vm[0].job: one table"), "{vm}");
        assert!(vm.contains("help: write [[vm.job]] with two"), "{vm}");
        let background = said("[[background]]\njob = 3\n", "background", "job");
        assert!(
            background.contains("like [[background.job]]"),
            "{background}"
        );
        let event = said("[event]\n", "event", "at");
        assert!(event.contains("write [[event]] with two"), "{event}");
    }
}
