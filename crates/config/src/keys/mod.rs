//! Descriptions of keys, from which the reader, the tables of the documentation and the JSON Schema
//! are made.
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
/// Maxima from here on count as no maximum (the largest disk has 2^64 - 1 bytes).
const NO_MAX: u64 = u64::MAX - 1;

/// Kinds of values that a key takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyKind {
    /// `true` or `false`.
    Flag,
    /// Whole number without a unit.
    Count,
    /// Number without a unit, whole or with decimals.
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
    /// Percentage: `"70 %"`.
    Percent,
    /// Name, valid in URLs, metric labels and tables ([`is_name`](crate::name_form::is_name)).
    Name,
    /// Any text in quotes.
    Text,
    /// Text in quotes that matches a pattern.
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
    /// Name, or table of a name and parameters, of an entry of a registry; `schema::of` gets the
    /// definition under this name.
    Registered(&'static str),
}

/// Form of a text, given by a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextForm {
    /// Name in the documentation, without an article: `time of day`.
    pub what: &'static str,
    /// Regular expression (ECMA 262) that every valid text matches. The reader may refuse further
    /// texts.
    pub pattern: &'static str,
}

/// Default of a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyDefault {
    /// No default: the key is required; the text is an example of it.
    Required(&'static str),
    /// Number in the unit of the key's kind.
    Value(u64),
    /// Number with decimals, without a unit.
    Decimal(f64),
    /// `true` or `false`.
    Flag(bool),
    /// Text, without its quotes.
    Text(&'static str),
    /// No fixed value; the text, in Markdown, describes the effect and may be empty.
    Unset(&'static str),
}

/// Key of a section.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyInfo {
    /// Name of the key, left of the `=`.
    pub name: &'static str,
    /// Kind of the key's value.
    pub kind: KeyKind,
    /// Default of the key.
    pub default: KeyDefault,
    /// Minimum, in the unit of the kind; for kinds that are whole numbers.
    pub min: u64,
    /// Maximum, in the unit of the kind; for kinds that are whole numbers.
    pub max: u64,
    /// Effect of the key, in Markdown.
    pub help: &'static str,
}

/// Section with its keys, in the order of messages and documentation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SectionInfo {
    /// Heading without brackets: `vm.disk`.
    pub name: &'static str,
    /// Keys of the section.
    pub keys: &'static [KeyInfo],
}

impl KeyKind {
    /// Returns the kind that is a whole number, with or without a unit, among the kinds of a value.
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
    /// Creates a key without a range.
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

    /// Creates an optional key that is a number from `min` to `max`; default and range are in the
    /// unit of `kind`.
    pub const fn number(
        name: &'static str,
        kind: KeyKind,
        default: u64,
        (min, max): (u64, u64),
        help: &'static str,
    ) -> KeyInfo {
        // The documentation would name a default that the reader refuses.
        assert!(
            min <= default && default <= max,
            "a default outside of its range"
        );
        KeyInfo::new(name, kind, KeyDefault::Value(default), help).within(min, max)
    }

    /// Creates an optional key that is `true` or `false`.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> KeyInfo {
        KeyInfo::new(name, KeyKind::Flag, KeyDefault::Flag(default), help)
    }

    /// Sets the range, in the unit of the key's kind.
    pub const fn within(self, min: u64, max: u64) -> KeyInfo {
        assert!(min <= max, "an empty range");
        KeyInfo { min, max, ..self }
    }

    /// Returns the key with another name, default and help text.
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

    /// Returns the key with another default and help text, for use in another section.
    pub const fn with(self, default: KeyDefault, help: &'static str) -> KeyInfo {
        KeyInfo {
            default,
            help,
            ..self
        }
    }

    /// Returns the default in the unit of the key's kind.
    ///
    /// # Panics
    /// If the default is not a whole number.
    pub const fn default_number(&self) -> u64 {
        match self.default {
            KeyDefault::Value(value) => value,
            _ => panic!("the key's default is not a number"),
        }
    }

    /// Returns a value, given in the unit of the key's kind, in the document's notation without
    /// quotes.
    pub fn written(&self, value: u64) -> String {
        match self.kind.numeric() {
            Some(KeyKind::Bytes) => format_bytes(value),
            // `format_duration` would write `0 ns`.
            Some(KeyKind::Duration) if value == 0 => "0 s".to_owned(),
            // Ranges end at whole hours, which `format_duration` writes in seconds.
            Some(KeyKind::Duration) if value.is_multiple_of(HOUR_NS) => {
                format!("{} h", value / HOUR_NS)
            }
            Some(KeyKind::Duration) => format_duration(Nanos(value)),
            Some(KeyKind::Bandwidth) => format_bandwidth(value),
            Some(KeyKind::Mode) => format!("{value:04o}"),
            _ => value.to_string(),
        }
    }

    /// Returns the range as text: `1 to 1024`, `from 4 KiB`; empty if there is none.
    pub fn range(&self) -> String {
        match (self.min, self.max) {
            (0, NO_MAX..) => String::new(),
            (min, NO_MAX..) => format!("from {}", self.written(min)),
            (min, max) => format!("{} to {}", self.written(min), self.written(max)),
        }
    }
}

impl From<&ParamInfo> for KeyInfo {
    /// Converts a policy's parameter into a key of the policy's table.
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

    /// Returns the key named `name`.
    pub fn find(&self, name: &str) -> Option<&'static KeyInfo> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Returns the section and all sections inside it, each once, outer sections first.
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

/// Returns the words of a list of choices, for [`KeyKind::Choice`].
pub const fn words<const N: usize, T>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = choices[at].0;
        at += 1;
    }
    words
}

/// Joins two lists of keys, for a section that includes the keys of another.
///
/// # Panics
/// If `N` is not the number of keys in both lists.
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
