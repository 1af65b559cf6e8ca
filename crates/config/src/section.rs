//! Reading of tables key by key: each key is taken, and keys that were not taken are reported as
//! unknown.
//!
//! Keys of a table with a [`SectionInfo`] are taken by their [`KeyInfo`], which also says whether
//! they are required: [`Section::field`], [`Section::value`] and the functions for one kind of
//! value. Keys that depend on the document are taken by name: [`Section::take`],
//! [`Section::need`], [`Section::read`].

use tidegate_core::names::nearest;

use crate::diagnostic::{Diagnostic, Issues, Span};
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, SectionInfo};
use crate::names::Names;
use crate::node::{Entry, Value};
use crate::other_systems;
use crate::path::Path;

/// Table being read, with the keys taken so far.
#[derive(Debug)]
pub struct Section<'a> {
    entries: &'a [Entry],
    known: Vec<&'static str>,
    /// Old spellings of keys, each with the present name; an empty name for a key that moved.
    renamed: Vec<(&'static str, &'static str)>,
    /// Keys that the table may have; `None`: exactly those that the reader takes.
    info: Option<&'static SectionInfo>,
    path: Path,
    span: Span,
    issues: &'a Issues,
}

impl<'a> Section<'a> {
    /// Opens a table. `None`: the field is not a table, which has been reported.
    pub fn open(field: &Field<'a>) -> Option<Section<'a>> {
        let Value::Table(entries) = &field.node.value else {
            field.error(format!("found {}, expected a table", field.describe()), "");
            return None;
        };
        Some(Section {
            entries,
            known: Vec::new(),
            renamed: Vec::new(),
            info: None,
            path: field.path.clone(),
            span: field.node.span.clone(),
            issues: field.issues,
        })
    }

    /// Opens a table that may have only the keys of `info`. `None`: the field is not a table, which
    /// has been reported.
    pub fn with_keys(field: &Field<'a>, info: &'static SectionInfo) -> Option<Section<'a>> {
        let info = Some(info);
        Section::open(field).map(|section| Section { info, ..section })
    }

    /// Accepts the old spelling `old` for the key `name`, with a note if the document uses it. Both
    /// spellings together are an error. Call before the key is taken, always as `name`.
    pub fn renamed(&mut self, old: &'static str, name: &'static str) {
        self.renamed.push((old, name));
        let Some(entry) = self.entries.iter().find(|entry| entry.key == old) else {
            return;
        };
        let field = self.field_of(entry);
        if self.entries.iter().any(|entry| entry.key == name) {
            let what = format!("the old spelling of `{name}`, which is given, too");
            // Neither wins: the two may differ, and either could be the forgotten one.
            return field.error(what, &format!("leave out `{old}`"));
        }
        field.note_old_spelling(&format!("`{name}`"));
    }

    /// Takes the key `old`, which has moved to `new`, such as `` `at` of [[vm.disk]] ``, and adds a
    /// note if the document uses it.
    pub fn take_old(&mut self, old: &'static str, new: &str) -> Option<Field<'a>> {
        // An empty name keeps the key from being reported as unknown and from being suggested.
        self.renamed.push((old, ""));
        let field = self.find(old)?;
        field.note_old_spelling(new);
        Some(field)
    }

    /// Returns a key's spelling in the document, for messages: its name, or an old spelling that
    /// the document uses.
    pub fn spelling_in_document(&self, key: &'static str) -> &'static str {
        let mut spellings = self.renamed.iter().filter(|(_, name)| *name == key);
        let is_there = |name: &str| self.entries.iter().any(|entry| entry.key == name);
        let old = spellings.find(|(old, _)| is_there(old) && !is_there(key));
        old.map_or(key, |(old, _)| old)
    }

    /// Returns the entry of a key, under its name or an old spelling.
    fn entry(&self, key: &str) -> Option<&'a Entry> {
        let named = |name: &str| self.entries.iter().find(|entry| entry.key == name);
        let old = |(old, name): &(&'static str, &str)| (*name == key).then_some(*old);
        let mut old = self.renamed.iter().filter_map(old);
        named(key).or_else(|| old.find_map(named))
    }

    /// Returns the field of an entry of this table.
    fn field_of(&self, entry: &'a Entry) -> Field<'a> {
        Field {
            node: &entry.node,
            path: self.path.key(&entry.key),
            issues: self.issues,
        }
    }

    /// Takes a key by its description; reports it if it is required and missing.
    pub fn field(&mut self, key: &KeyInfo) -> Option<Field<'a>> {
        match key.default {
            KeyDefault::Required(example) => self.need(key.name, example),
            _ => self.take(key.name),
        }
    }

    /// Takes a key by its description and reads it with `read`; returns `default` where it is left
    /// out. `None`: the value is wrong, or the key is required and missing, which has been
    /// reported.
    pub fn value<T>(
        &mut self,
        key: &KeyInfo,
        default: T,
        read: impl FnOnce(&Field<'a>) -> Option<T>,
    ) -> Option<T> {
        match (self.field(key), key.default) {
            (Some(field), _) => read(&field),
            (None, KeyDefault::Required(_)) => None,
            (None, _) => Some(default),
        }
    }

    /// Takes a key that is a whole number and returns it in the unit of its kind. `None`: the value
    /// is wrong, or the key is required and missing, which has been reported.
    ///
    /// # Panics
    /// If the key is optional and its default is not a number.
    pub fn number(&mut self, key: &KeyInfo) -> Option<u64> {
        match key.default {
            KeyDefault::Value(default) => self.value(key, default, |field| field.number(key)),
            KeyDefault::Required(_) => self.field(key)?.number(key),
            _ => unreachable!("`{}` has no number as its default", key.name),
        }
    }

    /// Takes an optional key that is a whole number: `Some(None)` where it is left out, `None`
    /// where it is wrong, which has been reported.
    pub fn number_if_any(&mut self, key: &KeyInfo) -> Option<Option<u64>> {
        self.value(key, None, |field| field.number(key).map(Some))
    }

    /// Takes a key that is `true` or `false`. `None`: the value is neither, which has been
    /// reported.
    ///
    /// # Panics
    /// If the key's default is not a flag.
    pub fn flag(&mut self, key: &KeyInfo) -> Option<bool> {
        let KeyDefault::Flag(default) = key.default else {
            unreachable!("the default of `{}` is not a flag", key.name);
        };
        self.value(key, default, Field::flag)
    }

    /// Takes a key that is one of the words of `choices`. `None`: the value is another word, or the
    /// key is required and missing, which has been reported.
    ///
    /// # Panics
    /// If the key is optional and its default is not one of the words.
    pub fn word<T: Copy>(&mut self, key: &KeyInfo, choices: &[(&str, T)]) -> Option<T> {
        let Some(field) = self.field(key) else {
            return match key.default {
                KeyDefault::Text(default) => {
                    let found = choices.iter().find(|(word, _)| *word == default);
                    Some(found.expect("the default is one of the words").1)
                }
                KeyDefault::Required(_) => None,
                _ => unreachable!("`{}` has no word as its default", key.name),
            };
        };
        field.choice(choices)
    }

    /// Takes the key of a name that every `what` (`"VM"`) must have and that must not be in
    /// `names_in_use`, and adds it there. `None`: the name is invalid or missing, which has been
    /// reported.
    pub fn unique_name(
        &mut self,
        key: &KeyInfo,
        what: &str,
        names_in_use: &mut Names,
    ) -> Option<String> {
        claim_name(&self.field(key)?, what, names_in_use)
    }

    /// Takes a key by its name: returns its field if present, and marks the key as known.
    pub fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        let listed = self.info.is_none_or(|info| info.has(key));
        // Only in debug builds, because every key of every document passes here; tests read all
        // sections.
        debug_assert!(listed, "`{key}` is not in the section's table of keys");
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entry(key).map(|entry| self.field_of(entry))
    }

    /// Takes a required key by its name and reports it if missing; `allowed` is the help text.
    pub fn need(&mut self, key: &'static str, allowed: &str) -> Option<Field<'a>> {
        let field = self.take(key);
        if field.is_none() {
            self.error(format!("`{key}` is missing"), allowed);
        }
        field
    }

    /// Takes a list of tables, `[[key]]`; empty where left out. A single table `[key]` is reported
    /// as an error and still returned.
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
            // [vm] for [[vm]] is a common mistake; the table is still returned, so that mistakes in
            // it are reported as well.
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

    /// Takes a key by its name and reads it with `read`; returns `default` where it is left out.
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

    /// Takes the key `name` as [`Section::unique_name`] does, in a table without a description of
    /// its keys; `example` is shown where it is missing.
    pub fn require_unique_name(
        &mut self,
        what: &str,
        example: &str,
        names_in_use: &mut Names,
    ) -> Option<String> {
        let field = self.need("name", &format!("a name of its own: name = {example:?}"))?;
        claim_name(&field, what, names_in_use)
    }

    /// Returns the field of a key without taking it.
    pub fn find(&self, key: &str) -> Option<Field<'a>> {
        self.entry(key).map(|entry| self.field_of(entry))
    }

    /// Iterates over all entries with their fields, taken or not.
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

    /// Returns true if the table has the key, under its name or an old spelling.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Reports an error about the table as a whole.
    pub fn error(&self, what: impl Into<String>, allowed: &str) {
        let diagnostic = Diagnostic::error(what).located_at(self.path.to_string(), &self.span);
        self.issues.push(diagnostic.allowing(allowed));
    }

    /// Reports every key that was not taken as unknown, with the most similar known key.
    ///
    /// # Panics
    /// In debug builds, if a key of the section's [`SectionInfo`] was never taken.
    pub fn finish(self) {
        // A key that is described but never read would be accepted without an effect.
        for key in self.info.iter().flat_map(|info| info.keys) {
            debug_assert!(self.known.contains(&key.name), "`{}` is not read", key.name);
        }
        for entry in self.entries {
            let key = entry.key.as_str();
            let old = self.renamed.iter().any(|(old, _)| *old == key);
            if !self.known.contains(&key) && !old {
                self.unknown(entry, &self.known);
            }
        }
    }

    /// Reports an unknown key, with the most similar of `known`.
    pub fn unknown(&self, entry: &Entry, known: &[&str]) {
        // JSON has no places.
        let is_json = self.issues.place(&entry.key_span).is_none();
        let foreign = other_systems::help(&entry.key, self.entries, &self.path.heading, is_json);
        let near = || nearest(&entry.key, known.iter().copied());
        let allowed = match foreign.or_else(|| near().map(|near| format!("did you mean `{near}`?")))
        {
            Some(help) => help,
            None => format!("known keys: {}", known.join(", ")),
        };
        let what = format!("unknown key `{}`", entry.key);
        let diagnostic = Diagnostic::error(what).located_at(self.path.to_string(), &entry.key_span);
        self.issues.push(diagnostic.allowing(allowed));
    }
}

/// Reads a name and adds it to the names in use, which reports a repeated one.
fn claim_name(field: &Field<'_>, what: &str, names_in_use: &mut Names) -> Option<String> {
    let name = field.name()?;
    names_in_use.claim(&name, what, field);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn single_brackets_error_names_the_full_heading() {
        fn list<'a>(field: &Field<'a>, key: &'static str) -> Vec<Field<'a>> {
            let mut section = Section::open(field).expect("a table");
            let list = section.take_tables(key);
            section.finish();
            list
        }
        // The label is what the table is called; the heading is what it is written under.
        let message = |text: &str, outer: &'static str, inner: &'static str| {
            let refused = document::read(text, "f.toml", |root| {
                for field in list(root, outer) {
                    list(&field.labelled(outer), inner);
                }
                Some(())
            });
            refused.map(|_| ()).unwrap_err().to_string()
        };
        let vm = message("[[vm]]\n[vm.job]\n", "vm", "job");
        assert!(vm.starts_with("error: vm[0].job: one table"), "{vm}");
        assert!(vm.contains("help: write [[vm.job]] with two"), "{vm}");
        let background = message("[[background]]\njob = 3\n", "background", "job");
        assert!(
            background.contains("like [[background.job]]"),
            "{background}"
        );
        let event = message("[event]\n", "event", "at");
        assert!(event.contains("write [[event]] with two"), "{event}");
    }

    #[test]
    fn old_spelling_is_read_with_a_note_and_refused_beside_the_new_one() {
        let read = |text: &str| {
            let loaded = document::read(text, "f.toml", |root| {
                let mut list = Section::open(root)?.take_tables("vm");
                let first = list.drain(..).map(|field| {
                    let mut section = Section::open(&field)?;
                    section.renamed("hogs", "busy_processes");
                    assert_eq!(section.has("busy_processes"), !text.contains("hogss"));
                    let count = section.read("busy_processes", 0, |field| field.count(0..=9));
                    section.finish();
                    count
                });
                first.collect::<Option<Vec<_>>>()
            });
            loaded.map_err(|refused| refused.to_string())
        };
        let new = read("[[vm]]\nbusy_processes = 2\n").expect("good");
        assert_eq!((new.config, new.notes.len()), (vec![2], 0));
        let old = read("[[vm]]\nhogs = 2\n[[vm]]\nhogs = 3\n").expect("good");
        assert_eq!((old.config, old.warnings.len()), (vec![2, 3], 0));
        let notes: Vec<String> = old.notes.iter().map(ToString::to_string).collect();
        assert_eq!(
            notes,
            [
                "note: vm[0].hogs: the old spelling of `busy_processes`\n  --> f.toml:2:8\n  |\n\
              2 | hogs = 2\n  |        ^\n  \
              help: it is accepted for one release; this file has it 2 times"
            ]
        );
        let both = read("[[vm]]\nhogs = 2\nbusy_processes = 3\n").unwrap_err();
        assert!(both.contains("which is given, too"), "{both}");
        assert!(both.contains("help: leave out `hogs`"), "{both}");
        let typo = read("[[vm]]\nhogss = 2\n").unwrap_err();
        assert!(typo.contains("known keys: busy_processes"), "{typo}");
        let wrong = read("[[vm]]\nhogs = 20\n").unwrap_err();
        assert!(wrong.starts_with("error: vm[0].hogs: 20 is out"), "{wrong}");
    }
}
