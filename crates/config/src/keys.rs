//! Keys of a section said once: the reader and the tables of the documentation come from the same
//! [`KeyInfo`].

use std::fmt::Write as _;

use tidegate_core::time::Nanos;
use tidegate_device::units::{format_bytes, format_duration};

/// What the value of a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// Whole number without a unit.
    Count,
    /// Size in bytes with its unit.
    Bytes,
    /// Span of time with its unit, kept in nanoseconds.
    Duration,
    /// Path of a file.
    Path,
}

/// What holds where a key is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyDefault {
    /// Refused: the key is required, and this is how it is written.
    Required(&'static str),
    /// Number in the unit of the key's kind.
    Value(u64),
}

/// One key of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyInfo {
    /// Its name, left of the `=`.
    pub name: &'static str,
    /// What its value is.
    pub kind: KeyKind,
    /// What holds where it is left out.
    pub default: KeyDefault,
    /// Smallest value allowed, of kinds that are numbers.
    pub min: u64,
    /// Largest value allowed, of kinds that are numbers.
    pub max: u64,
    /// What it does, in Markdown.
    pub help: &'static str,
}

/// A section and its keys, in the order in which messages and documentation name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionInfo {
    /// Its heading without brackets: `store`.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [KeyInfo],
}

impl KeyInfo {
    /// A value as it is written in a document, without quotes.
    fn written(&self, value: u64) -> String {
        match self.kind {
            KeyKind::Bytes => format_bytes(value),
            KeyKind::Duration => format_duration(Nanos(value)),
            KeyKind::Count | KeyKind::Path => value.to_string(),
        }
    }

    /// The row of the documentation's table.
    fn row(&self) -> String {
        let range = || format!("{} to {}", self.written(self.min), self.written(self.max));
        let value = match self.kind {
            KeyKind::Count => range(),
            KeyKind::Bytes => format!("size, {}", range()),
            KeyKind::Duration => format!("time, {}", range()),
            KeyKind::Path => "path".to_owned(),
        };
        let default = match (self.default, self.kind) {
            (KeyDefault::Required(_), _) => "required".to_owned(),
            (KeyDefault::Value(value), KeyKind::Count) => value.to_string(),
            (KeyDefault::Value(value), _) => format!("`\"{}\"`", self.written(value)),
        };
        format!("| `{}` | {value} | {default} | {} |", self.name, self.help)
    }
}

impl SectionInfo {
    /// Whether a key of this name is in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
    }

    /// `text`, a page of the documentation, with the table between this section's markers written
    /// anew: `<!-- keys of [store] -->` and `<!-- end of keys -->`. `None`: the markers are missing.
    pub fn refill(&self, text: &str) -> Option<String> {
        let begin = format!("<!-- keys of [{}] -->\n", self.name);
        let (before, rest) = text.split_once(&begin)?;
        let (_, after) = rest.split_once("<!-- end of keys -->")?;
        let head = "| key | value | default | |\n|---|---|---|---|\n";
        let mut page = format!("{before}{begin}\n{head}");
        for key in self.keys {
            // Writing to a string cannot fail.
            _ = writeln!(page, "{}", key.row());
        }
        Some(format!("{page}\n<!-- end of keys -->{after}"))
    }
}
