//! Keys of a section said once: the reader, the tables of the documentation and the JSON Schema
//! come from the same [`KeyInfo`].
//!
//! ```text
//!                     +--> Section::with_keys, Section::number ...   the reader
//!   SectionInfo ------+--> SectionInfo::refill                       docs/configuration.md
//!     KeyInfo ...     +--> schema::of                                `tidegate schema`
//! ```

mod table;

use tidegate_core::part::{ParamInfo, ParamKind};
use tidegate_core::time::Nanos;
use tidegate_units::{format_bandwidth, format_bytes, format_duration};

const HOUR_NS: u64 = 3_600_000_000_000;
/// Numbers from here on are no bound: 2^64 bytes is not even the end of a largest disk.
const NO_MAX: u64 = u64::MAX - 1;

/// Kinds of values that a key takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyKind {
    /// `true` or `false`.
    Flag,
    /// Whole number without a unit.
    Count,
    /// Plain number, whole or with decimals, without a unit.
    Decimal {
        /// Smallest number allowed.
        min: f64,
        /// Largest number allowed.
        max: f64,
    },
    /// Size in bytes with its unit.
    Bytes,
    /// Span of time with its unit, kept in nanoseconds.
    Duration,
    /// Bytes a second with their unit.
    Bandwidth,
    /// Rate in IOPS, bytes a second or both; `"none"` is no rate.
    Rate,
    /// Part of the whole in percent: `"70 %"`.
    Percent,
    /// Name that can stand in a URL, a metric and a table ([`is_name`](crate::figure::is_name)).
    Name,
    /// Text in quotes, of any form.
    Text,
    /// Text in quotes, of a certain form.
    Form(&'static TextForm),
    /// Path of a file.
    Path,
    /// File mode in octal digits: `"0660"`.
    Mode,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Value of any of these kinds.
    OneOf(&'static [KeyKind]),
    /// List of values of one kind.
    List(&'static KeyKind),
    /// Table, `[key]`.
    Table(&'static SectionInfo),
    /// List of tables, `[[key]]`.
    Tables(&'static SectionInfo),
    /// Scheduling policy: a name, or a table of its parts and their parameters.
    Policy,
    /// Name, or table of a name and parameters, of what a registry lists; `schema::of` is given
    /// the definition of this name.
    Registered(&'static str),
}

/// Form of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextForm {
    /// Name in the documentation, without an article: `time of day`.
    pub what: &'static str,
    /// Regular expression (ECMA 262) that every text of the form matches as a whole. Texts that it
    /// matches may still be refused by the reader.
    pub pattern: &'static str,
}

/// Value in force where a key is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyDefault {
    /// Refused: the key is required, and this is how it is written.
    Required(&'static str),
    /// Number in the unit of the key's kind.
    Value(u64),
    /// Plain number with decimals.
    Decimal(f64),
    /// `true` or `false`.
    Flag(bool),
    /// Text, without its quotes.
    Text(&'static str),
    /// None of its own; the words, in Markdown, say what holds then. May be empty.
    Unset(&'static str),
}

/// One key of a section.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyInfo {
    /// Name of the key, left of the `=`.
    pub name: &'static str,
    /// Kind of the key's value.
    pub kind: KeyKind,
    /// Value in force where the key is left out.
    pub default: KeyDefault,
    /// Smallest value allowed, of kinds that are whole numbers.
    pub min: u64,
    /// Largest value allowed, of kinds that are whole numbers.
    pub max: u64,
    /// Effect of the key, in Markdown.
    pub help: &'static str,
}

/// A section and its keys, in the order in which messages and documentation name them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SectionInfo {
    /// Heading without brackets: `vm.disk`.
    pub name: &'static str,
    /// Keys of the section.
    pub keys: &'static [KeyInfo],
}

impl KeyKind {
    /// The kind that is a whole number, with or without a unit, where values are of several kinds.
    pub fn numeric(self) -> Option<KeyKind> {
        match self {
            KeyKind::Count
            | KeyKind::Bytes
            | KeyKind::Duration
            | KeyKind::Bandwidth
            | KeyKind::Mode => Some(self),
            KeyKind::OneOf(kinds) => kinds.iter().find_map(|kind| kind.numeric()),
            KeyKind::List(kind) => kind.numeric(),
            _ => None,
        }
    }
}

impl KeyInfo {
    /// A key whose value is no number, or any number of its kind.
    pub const fn new(
        name: &'static str,
        kind: KeyKind,
        default: KeyDefault,
        help: &'static str,
    ) -> KeyInfo {
        KeyInfo {
            name,
            kind,
            default,
            min: 0,
            max: u64::MAX,
            help,
        }
    }

    /// A number from `min` to `max` in the unit of `kind`, `default` where it is left out.
    pub const fn number(
        name: &'static str,
        kind: KeyKind,
        default: u64,
        (min, max): (u64, u64),
        help: &'static str,
    ) -> KeyInfo {
        KeyInfo::new(name, kind, KeyDefault::Value(default), help).within(min, max)
    }

    /// `true` or `false`, `default` where it is left out.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> KeyInfo {
        KeyInfo::new(name, KeyKind::Flag, KeyDefault::Flag(default), help)
    }

    /// The key with a range, in the unit of its kind.
    pub const fn within(self, min: u64, max: u64) -> KeyInfo {
        assert!(min <= max, "an empty range");
        KeyInfo { min, max, ..self }
    }

    /// The key under another name, with another default and help.
    pub const fn named(
        self,
        name: &'static str,
        default: KeyDefault,
        help: &'static str,
    ) -> KeyInfo {
        KeyInfo {
            name,
            ..self.with(default, help)
        }
    }

    /// The key with another default and help, where another section has it, too.
    pub const fn with(self, default: KeyDefault, help: &'static str) -> KeyInfo {
        KeyInfo {
            default,
            help,
            ..self
        }
    }

    /// The number that holds where the key is left out.
    ///
    /// # Panics
    /// If its default is no number.
    pub const fn default_number(&self) -> u64 {
        match self.default {
            KeyDefault::Value(value) => value,
            _ => panic!("the key's default is no number"),
        }
    }

    /// A number in the unit of the key's kind as it is written in a document, without quotes.
    pub fn written(&self, value: u64) -> String {
        match self.kind.numeric() {
            Some(KeyKind::Bytes) => format_bytes(value),
            Some(KeyKind::Duration) if value == 0 => "0 s".to_owned(),
            Some(KeyKind::Duration) if value.is_multiple_of(HOUR_NS) => {
                format!("{} h", value / HOUR_NS)
            }
            Some(KeyKind::Duration) => format_duration(Nanos(value)),
            Some(KeyKind::Bandwidth) => format_bandwidth(value),
            Some(KeyKind::Mode) => format!("{value:04o}"),
            _ => value.to_string(),
        }
    }

    /// The range of a whole number in words: `1 to 1024`, `from 4 KiB`; empty where every number
    /// goes.
    pub fn range(&self) -> String {
        match (self.min, self.max) {
            (0, NO_MAX..) => String::new(),
            (min, NO_MAX..) => format!("from {}", self.written(min)),
            (min, max) => format!("{} to {}", self.written(min), self.written(max)),
        }
    }
}

impl From<&ParamInfo> for KeyInfo {
    /// A policy's parameter as a key of its table.
    fn from(param: &ParamInfo) -> KeyInfo {
        let (kind, default) = match param.kind {
            ParamKind::Bytes => (KeyKind::Bytes, KeyDefault::Value(param.default)),
            ParamKind::Duration => (KeyKind::Duration, KeyDefault::Value(param.default)),
            ParamKind::Count => (KeyKind::Count, KeyDefault::Value(param.default)),
            ParamKind::Flag => (KeyKind::Flag, KeyDefault::Flag(param.default != 0)),
            ParamKind::Choice(words) => {
                let default = usize::try_from(param.default).ok();
                let word = default.and_then(|at| words.get(at).copied());
                let default = word.map_or(KeyDefault::Unset(""), KeyDefault::Text);
                (KeyKind::Choice(words), default)
            }
        };
        KeyInfo::new(param.name, kind, default, param.help).within(param.min, param.max)
    }
}

impl SectionInfo {
    /// Returns true if a key of this name is in the section.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The key of this name.
    pub fn find(&self, name: &str) -> Option<&'static KeyInfo> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The section and all sections in it, each once, those that contain others before them.
    pub fn with_inner(&'static self) -> Vec<&'static SectionInfo> {
        fn inner(kind: &KeyKind, found: &mut Vec<&'static SectionInfo>) {
            match kind {
                KeyKind::Table(section) | KeyKind::Tables(section) => add(section, found),
                KeyKind::OneOf(kinds) => kinds.iter().for_each(|kind| inner(kind, found)),
                KeyKind::List(kind) => inner(kind, found),
                _ => {}
            }
        }
        fn add(section: &'static SectionInfo, found: &mut Vec<&'static SectionInfo>) {
            if !found.contains(&section) {
                found.push(section);
                section.keys.iter().for_each(|key| inner(&key.kind, found));
            }
        }
        let mut found = Vec::new();
        add(self, &mut found);
        found
    }
}

/// The words of a list of choices, for [`KeyKind::Choice`].
pub const fn words<const N: usize, T>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = choices[at].0;
        at += 1;
    }
    words
}

/// The keys of two lists, the first's before the second's, for a section that has those of another.
///
/// # Panics
/// If `N` is not their number.
pub const fn joined<const N: usize>(first: &[KeyInfo], second: &[KeyInfo]) -> [KeyInfo; N] {
    assert!(
        first.len() + second.len() == N && !first.is_empty(),
        "the number of all keys"
    );
    let mut keys = [first[0]; N];
    let mut at = 0;
    while at < N {
        keys[at] = if at < first.len() {
            first[at]
        } else {
            second[at - first.len()]
        };
        at += 1;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [(&str, u8); 2] = [("slow", 1), ("fast", 2)];
    const SPEED: KeyInfo = KeyInfo::new(
        "speed",
        KeyKind::Choice(&words(&WORDS)),
        KeyDefault::Text("slow"),
        "",
    );
    const SIZE: KeyInfo = KeyInfo::number("size", KeyKind::Bytes, 4096, (512, 1 << 20), "");
    const INNER: SectionInfo = SectionInfo {
        name: "outer.inner",
        keys: &[SPEED],
    };
    const TABLE: KeyInfo = KeyInfo::new(
        "inner",
        KeyKind::OneOf(&[KeyKind::Flag, KeyKind::Table(&INNER)]),
        KeyDefault::Unset(""),
        "",
    );
    const OUTER: SectionInfo = SectionInfo {
        name: "outer",
        keys: &joined::<2>(&[SIZE], &[TABLE]),
    };

    #[test]
    fn sections_are_found_within_others_and_keys_within_sections() {
        let names: Vec<_> = OUTER.with_inner().iter().map(|info| info.name).collect();
        assert_eq!(names, ["outer", "outer.inner"]);
        assert!(OUTER.has("size") && OUTER.has("inner") && !OUTER.has("speed"));
        let speed = INNER.find("speed").expect("listed");
        assert_eq!(speed.kind, KeyKind::Choice(&["slow", "fast"]));
    }

    #[test]
    fn a_range_has_the_unit_of_its_kind() {
        assert_eq!(SIZE.range(), "512 B to 1 MiB");
        assert_eq!(SIZE.within(0, u64::MAX).range(), "");
        assert_eq!(SIZE.within(512, u64::MAX).range(), "from 512 B");
        let mode = KeyInfo::number("mode", KeyKind::Mode, 0o600, (0, 0o777), "");
        assert_eq!(mode.range(), "0000 to 0777");
    }
}
