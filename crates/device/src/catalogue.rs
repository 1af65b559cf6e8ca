//! The catalogue: device models described in TOML, some of them built in.
//!
//! An entry has a name, a description and one table that says which model it is and holds its
//! figures. The built-in entries are the files of `devices/` in the source tree; a user's own
//! file is read by the caller and given to [`parse`].

use crate::hdd::{FigureError, Hdd, HddFigures};
use crate::model::{Model, Spec};
use serde::Deserialize;
use tidegate_core::names::nearest;

/// Name and text of each built-in entry.
const BUILT_IN: &[(&str, &str)] = &[(
    "hdd-7200-1tb",
    include_str!("../../../devices/hdd-7200-1tb.toml"),
)];

/// A device description that was checked: a model can be built from it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is called; the name of its [`Spec`].
    pub name: String,
    /// One line for people.
    pub description: String,
    pub(crate) prototype: Prototype,
}

/// A device at time zero, from which others are copied.
#[derive(Clone, Debug)]
pub(crate) enum Prototype {
    Hdd(Hdd),
}

impl Entry {
    /// What the device is.
    pub fn spec(&self) -> &Spec {
        match &self.prototype {
            Prototype::Hdd(hdd) => hdd.spec(),
        }
    }

    /// A device at time zero.
    pub fn build(&self) -> Box<dyn Model> {
        match &self.prototype {
            Prototype::Hdd(hdd) => Box::new(hdd.fresh(hdd.spec().queue_depth)),
        }
    }
}

/// Why a device description could not be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// No built-in entry has this name.
    #[error("no device is called \"{name}\"{}; known are: {}",
        .nearest.map(|n| format!(", did you mean \"{n}\"?")).unwrap_or_default(),
        .known.join(", "))]
    UnknownName {
        /// What was asked for.
        name: String,
        /// The built-in name most like it, if one is.
        nearest: Option<&'static str>,
        /// Every built-in name.
        known: Vec<&'static str>,
    },
    /// The text is not a device description: says line, field, what was found and what is
    /// allowed.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where the text is from.
        origin: String,
        /// What the parser says, over several lines.
        message: String,
    },
    /// A figure is out of range.
    #[error("{origin}, line {line}: {source}")]
    Figure {
        /// Where the text is from.
        origin: String,
        /// The line of the figure, from one.
        line: usize,
        /// Which figure, and what it may be.
        source: FigureError,
    },
}

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    name: String,
    description: String,
    hdd: HddFigures,
}

/// The names of the built-in entries, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The built-in entries themselves, in order: for listings with descriptions.
///
/// # Panics
/// Never: a test parses them all.
pub fn entries() -> impl Iterator<Item = Entry> {
    BUILT_IN.iter().map(|(name, text)| {
        parse(text, name).unwrap_or_else(|e| panic!("a built-in device is wrong: {e}"))
    })
}

/// A built-in entry by name.
///
/// # Errors
/// When there is none; the error lists those there are, and the nearest.
pub fn load(name: &str) -> Result<Entry, CatalogueError> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return parse(text, name);
    }
    Err(CatalogueError::UnknownName {
        name: name.to_owned(),
        nearest: nearest(name, names()),
        known: names().collect(),
    })
}

/// Parses a device description. `origin` is what errors call it: a file's path.
///
/// # Errors
/// When it is not TOML, a field is missing, unknown or lacks its unit, or a figure is out of
/// range.
pub fn parse(text: &str, origin: &str) -> Result<Entry, CatalogueError> {
    let raw: RawEntry = toml::from_str(text).map_err(|e| CatalogueError::Syntax {
        origin: origin.to_owned(),
        message: e.to_string().trim_end().to_owned(),
    })?;
    let hdd = Hdd::new(&raw.name, &raw.hdd).map_err(|source| CatalogueError::Figure {
        origin: origin.to_owned(),
        line: line_of(text, &source.field),
        source,
    })?;
    Ok(Entry {
        name: raw.name,
        description: raw.description,
        prototype: Prototype::Hdd(hdd),
    })
}

/// The line, from one, of a field given by its path. The text has been parsed before.
fn line_of(text: &str, path: &str) -> usize {
    let Ok(document) = toml::de::DeTable::parse(text) else {
        return 1;
    };
    let mut start = document.span().start;
    let mut table = Some(document.get_ref());
    for key in path.split('.') {
        let Some(value) = table.and_then(|t| t.get(key)) else {
            break;
        };
        start = value.span().start;
        table = value.get_ref().as_table();
    }
    text[..start].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> &'static str {
        BUILT_IN[0].1
    }

    #[test]
    fn every_built_in_entry_parses_under_its_own_name() {
        for (name, entry) in names().zip(entries()) {
            assert_eq!(entry.name, name);
            assert_eq!(entry.spec().name, name);
            assert!(!entry.description.is_empty());
            assert_eq!(entry.build().in_flight(), 0);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_the_nearest() {
        let message = load("hdd-7200-1t").unwrap_err().to_string();
        assert_eq!(
            message,
            "no device is called \"hdd-7200-1t\", did you mean \"hdd-7200-1tb\"?; \
             known are: hdd-7200-1tb"
        );
        let message = load("nvme").unwrap_err().to_string();
        assert_eq!(
            message,
            "no device is called \"nvme\"; known are: hdd-7200-1tb"
        );
    }

    #[test]
    fn a_bare_number_is_refused_with_line_and_field() {
        let wrong = text().replace("rotation = \"7200 rpm\"", "rotation = 7200");
        let message = parse(&wrong, "my.toml").unwrap_err().to_string();
        assert!(
            message.starts_with("my.toml: TOML parse error at line "),
            "{message}"
        );
        assert!(message.contains("rotation = 7200"), "{message}");
        assert!(message.contains("such as \"7200 rpm\""), "{message}");
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let wrong = text().replace("zones = 30", "zones = 30\nplatters = 2");
        let message = parse(&wrong, "my.toml").unwrap_err().to_string();
        assert!(message.contains("unknown field `platters`"), "{message}");
        assert!(
            message.contains("command_overhead"),
            "lists what is allowed: {message}"
        );
    }

    #[test]
    fn a_figure_out_of_range_is_refused_with_its_line() {
        let refuse = |from: &str, to: &str, expected: &str| {
            assert!(text().contains(from));
            let wrong = text().replace(from, to);
            let line = 1 + wrong[..wrong.find(to).unwrap()].matches('\n').count();
            let message = parse(&wrong, "my.toml").unwrap_err().to_string();
            let start = format!("my.toml, line {line}: {expected}");
            assert!(message.starts_with(&start), "{message}\nnot\n{start}");
        };
        refuse(
            "average = \"8.5 ms\"",
            "average = \"14 ms\"",
            "hdd.seek.average: found 14 ms, ",
        );
        refuse(
            "inner_rate = \"83 MB/s\"",
            "inner_rate = \"200 MB/s\"",
            "hdd.inner_rate: found 200 MB/s, allowed: 1 MB/s to outer_rate (175 MB/s)",
        );
        refuse(
            "queue_depth = 32",
            "queue_depth = 0",
            "hdd.queue_depth: found 0, allowed: 1 to 256",
        );
        refuse(
            "interface_rate = \"600 MB/s\"",
            "interface_rate = \"100 MB/s\"",
            "hdd.interface_rate: found 100 MB/s, allowed: ",
        );
        refuse(
            "capacity = \"1000204886016 B\"",
            "capacity = \"1000 B\"",
            "hdd.capacity: found ",
        );
    }
}
