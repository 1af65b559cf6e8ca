//! Mistakes of a configuration and their places.
//!
//! A reader collects [`Diagnostic`]s. At the end each gets its line and column, and all are shown
//! in the order of the text.

use std::cell::RefCell;
use std::fmt;
use std::iter;
use std::ops::Range;

use serde::Serialize;

/// Byte range in a text; `0..0` where there is no text (JSON).
pub type Span = Range<usize>;

/// Maximum number of characters of a line that a message quotes; of a longer line only the number
/// is shown.
const EXCERPT_MAX: usize = 160;

/// Severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Document refused.
    Error,
    /// Setting accepted, but without the effect that it seems to have.
    Warning,
    /// Setting accepted in a spelling that will go out of use.
    Note,
}

/// Mistake, warning or note about a configuration or a request, with its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// Field concerned, such as `vm "oltp": objective.limit`; empty for the file as a whole.
    #[serde(rename = "where")]
    pub field: String,
    /// Problem found.
    pub what: String,
    /// Allowed values, or the way to correct the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Place in the text; `None` in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    #[serde(skip)]
    span: Span,
    /// Place of an earlier occurrence, such as the first use of a name.
    #[serde(skip)]
    first: Option<Span>,
    /// The line in the text is not quoted.
    #[serde(skip)]
    hides_line: bool,
}

/// Place in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// Path of the file, as given.
    pub file: String,
    /// Line, from one.
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
    /// Text of the line, and the number of characters to underline.
    #[serde(skip)]
    excerpt: Option<(String, usize)>,
}

impl Diagnostic {
    /// Creates an error about the whole document, without a place.
    pub fn error(what: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            field: String::new(),
            what: what.into(),
            allowed: None,
            place: None,
            span: 0..0,
            first: None,
            hides_line: false,
        }
    }

    /// Sets the help text; an empty `allowed` means none.
    pub fn allowing(mut self, allowed: impl Into<String>) -> Diagnostic {
        self.allowed = Some(allowed.into()).filter(|allowed| !allowed.is_empty());
        self
    }

    /// Sets the field concerned and its place in the text.
    pub fn located_at(mut self, field: impl Into<String>, span: &Span) -> Diagnostic {
        self.field = field.into();
        self.span = span.clone();
        self
    }

    /// Adds the line of an earlier occurrence to the help text.
    pub fn after(mut self, first: &Span) -> Diagnostic {
        self.first = Some(first.clone());
        self
    }

    /// Leaves out the line in the text, which has a secret.
    pub fn without_line(mut self) -> Diagnostic {
        self.hides_line = true;
        self
    }

    /// Turns the diagnostic into a warning.
    pub fn warning(mut self) -> Diagnostic {
        self.severity = Severity::Warning;
        self
    }

    fn locate(&mut self, source: &Source) {
        if let Some(first) = self.first.take() {
            let line = source.place(&first).line;
            self.what = format!("{}, first on line {line}", self.what);
        }
        let mut place = source.place(&self.span);
        place.excerpt.take_if(|_| self.hides_line);
        self.place = Some(place);
    }
}

/// Text being read, with its name in messages.
#[derive(Debug)]
struct Source {
    file: String,
    text: String,
    /// Byte at which each line begins, in order.
    lines: Vec<usize>,
}

impl Source {
    fn new(file: String, text: String) -> Source {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = iter::once(0).chain(after_breaks).collect();
        Source { file, text, lines }
    }

    fn place(&self, span: &Span) -> Place {
        let text = self.text.as_str();
        let start = floor_char_boundary(text, span.start);
        // A span may end inside a character if the TOML parser stopped there.
        let end = floor_char_boundary(text, span.end).max(start);
        // The first line begins at 0, so there is always one.
        let number = self.lines.partition_point(|&begin| begin <= start);
        let line_start = self.lines[number - 1];
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let line = &text[line_start..line_end];
        // Only the first line is underlined, with one mark at least.
        let meant = text[start..end.min(line_end).max(start)]
            .chars()
            .count()
            .max(1);
        let excerpt = (!line.trim().is_empty() && line.chars().count() <= EXCERPT_MAX)
            // A control character would move the mark away from its column, or clear the terminal.
            .then(|| (line.replace(char::is_control, " "), meant));
        Place {
            file: self.file.clone(),
            line: number,
            column: text[line_start..start].chars().count() + 1,
            excerpt,
        }
    }
}

/// Returns the largest character boundary at or below `at`, at most the text's length.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        match self.field.as_str() {
            "" => write!(f, "{severity}: {}", self.what)?,
            field => write!(f, "{severity}: {field}: {}", self.what)?,
        }
        if let Some(place) = &self.place {
            write!(f, "\n  --> {place}")?;
        }
        match &self.allowed {
            Some(allowed) => write!(f, "\n  help: {allowed}"),
            None => Ok(()),
        }
    }
}

/// Writes `file:line:column`, and below it the line with the mistake underlined.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)?;
        let Some((line, meant)) = &self.excerpt else {
            return Ok(());
        };
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(self.column - 1);
        let mark = "^".repeat(*meant);
        write!(
            f,
            "\n{margin} |\n{number} | {line}\n{margin} | {indent}{mark}"
        )
    }
}

/// All mistakes and warnings of a refused configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors(pub Vec<Diagnostic>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects diagnostics while a configuration is read.
#[derive(Default, Debug)]
pub(crate) struct Issues {
    list: RefCell<Vec<Diagnostic>>,
    /// Old spellings, which are never a reason to refuse a document.
    notes: RefCell<Vec<Diagnostic>>,
    /// Text being read; `None` for JSON.
    source: Option<Source>,
}

impl Issues {
    /// Creates an empty collection for a text; `file` is its name in messages.
    pub(crate) fn for_text(file: &str, text: &str) -> Issues {
        Issues {
            list: RefCell::default(),
            notes: RefCell::default(),
            source: Some(Source::new(file.to_owned(), text.to_owned())),
        }
    }

    /// Returns the line and column of a span; `None` for JSON.
    pub(crate) fn place(&self, span: &Span) -> Option<Place> {
        Some(self.source.as_ref()?.place(span))
    }

    pub(crate) fn push(&self, diagnostic: Diagnostic) {
        self.list.borrow_mut().push(diagnostic);
    }

    /// Adds a note about an old spelling.
    pub(crate) fn note(&self, diagnostic: Diagnostic) {
        self.notes.borrow_mut().push(Diagnostic {
            severity: Severity::Note,
            ..diagnostic
        });
    }

    /// Removes the notes and returns the first of each kind, in the order of the text, with the
    /// number of occurrences in its help text.
    pub(crate) fn take_notes(&self) -> Vec<Diagnostic> {
        let mut all = self.notes.take();
        // Readers take keys in their own order, not in that of the text.
        all.sort_by_key(|note| note.span.start);
        let mut first: Vec<(Diagnostic, usize)> = Vec::new();
        for note in all {
            match first.iter_mut().find(|(other, _)| other.what == note.what) {
                Some((_, count)) => *count += 1,
                None => first.push((note, 1)),
            }
        }
        let described = |(mut note, count): (Diagnostic, usize)| {
            if let Some(source) = &self.source {
                note.locate(source);
            }
            let release = "it is accepted for one release";
            note.allowing(match count {
                1 => release.to_owned(),
                _ => format!("{release}; this file has it {count} times"),
            })
        };
        first.into_iter().map(described).collect()
    }

    /// Returns all errors and warnings, for a text in its order and with line and column.
    pub(crate) fn into_list(self) -> Vec<Diagnostic> {
        let mut list = self.list.into_inner();
        if let Some(source) = &self.source {
            // Errors before warnings at the same place. A value that is read twice reports its
            // mistake twice.
            list.sort_by_key(|d| (d.span.start, d.severity == Severity::Warning));
            list.dedup();
            list.iter_mut().for_each(|d| d.locate(source));
        }
        list
    }
}

/// Returns names quoted and joined, `"a", "b" or "c"`, for messages on allowed values.
pub fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    join_alternatives(&quoted)
}

/// Returns alternatives joined as in a sentence: `a, b or c`, or `nothing` if there are none.
pub fn join_alternatives(alternatives: &[String]) -> String {
    match alternatives.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_and_survive_odd_spans() {
        let text = "name = \"é\" x\nsecond\n";
        for (span, line, column) in [
            (13..14, 1, 13),
            (9..9, 1, 9),
            (8..900, 1, 9),
            (900..901, 3, 1),
        ] {
            let place = Issues::for_text("file", text).place(&span).unwrap();
            assert_eq!((place.line, place.column), (line, column), "{span:?}");
        }
    }

    #[test]
    fn lines_are_quoted_up_to_160_characters_of_any_length_in_bytes() {
        for (characters, is_quoted) in [(EXCERPT_MAX, true), (EXCERPT_MAX + 1, false)] {
            let place = Issues::for_text("file", &"é".repeat(characters)).place(&(0..2));
            assert_eq!(place.unwrap().excerpt.is_some(), is_quoted, "{characters}");
        }
    }

    #[test]
    fn a_diagnostic_shows_its_line() {
        let issues = Issues::for_text("f.toml", "a = 1\nb = 3\n");
        issues.push(
            Diagnostic::error("bad")
                .located_at("b", &(10..11))
                .allowing("2"),
        );
        assert_eq!(
            issues.into_list()[0].to_string(),
            "error: b: bad\n  --> f.toml:2:5\n  |\n2 | b = 3\n  |     ^\n  help: 2"
        );
    }
}
