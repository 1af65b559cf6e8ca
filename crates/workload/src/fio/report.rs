//! Messages about a job file, with their places in it.

use std::fmt;
use std::ops::Range;

/// Byte range in the text of a job file.
pub(super) type Span = Range<usize>;

/// Longest line in bytes that is shown as an excerpt; of longer ones the number says more.
const EXCERPT_MAX: usize = 160;

/// Severity of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The file is refused.
    Error,
    /// An option that would change the workload was ignored.
    Warning,
    /// The file is read as it says; an interpretation, or an option without effect.
    Note,
}

/// Message about a place in a job file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// Severity.
    pub kind: Kind,
    /// Name of the section; empty for the file as a whole.
    pub section: String,
    /// Name of the option; empty for a section as a whole.
    pub option: String,
    /// Message.
    pub what: String,
    /// Allowed values, or the correction.
    pub help: Option<String>,
    /// Place in the file.
    pub place: Place,
}

/// Place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Text of the line, and number of its characters that are marked; `None`: too long, or blank.
    excerpt: Option<(String, usize)>,
}

impl Place {
    fn new(file: &str, text: &str, span: &Span) -> Place {
        let (start, end) = (span.start, span.end);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let line = &text[line_start..line_end];
        // A span may reach into the next line; the mark has at least one character.
        let meant = text[start..end.min(line_end)].chars().count().max(1);
        Place {
            file: file.to_owned(),
            line: line_of(text, start),
            column: text[line_start..start].chars().count() + 1,
            excerpt: (!line.trim().is_empty() && line.len() <= EXCERPT_MAX)
                // Control characters such as tabs would move the mark away from its text.
                .then(|| (line.trim_end().replace(char::is_control, " "), meant)),
        }
    }
}

/// Returns the line of a byte offset, counted from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|&b| b == b'\n').count() + 1
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match self.kind {
            Kind::Error => f.write_str("error: ")?,
            Kind::Warning => f.write_str("warning: ")?,
            Kind::Note => write!(f, "note: {}:{}: ", place.file, place.line)?,
        }
        match (self.section.as_str(), self.option.as_str()) {
            ("", "") => {}
            ("", option) => write!(f, "{option}: ")?,
            (section, "") => write!(f, "[{section}]: ")?,
            (section, option) => write!(f, "[{section}] {option}: ")?,
        }
        f.write_str(&self.what)?;
        if self.kind == Kind::Note {
            return Ok(());
        }
        write!(f, "\n  --> {}:{}:{}", place.file, place.line, place.column)?;
        if let Some((line, meant)) = &place.excerpt {
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(place.column - 1);
            let mark = "^".repeat(*meant);
            let excerpt = format!("{margin} |\n{number} | {line}\n{margin} | {indent}{mark}");
            write!(f, "\n{excerpt}")?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Refusal of a job file: all errors, in the order of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FioErrors(pub Vec<Remark>);

impl fmt::Display for FioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, remark) in self.0.iter().enumerate() {
            let gap = if i > 0 { "\n\n" } else { "" };
            write!(f, "{gap}{remark}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FioErrors {}

/// Collector of messages while a file is read.
#[derive(Default)]
pub(super) struct Remarks(Vec<(Span, Remark)>);

impl Remarks {
    /// Adds a message about the text at `span`.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        (section, option): (&str, &str),
        span: &Span,
        what: impl Into<String>,
        help: Option<String>,
    ) {
        let remark = Remark {
            kind,
            section: section.to_owned(),
            option: option.to_owned(),
            what: what.into(),
            help,
            // Filled in by `located`, which has the text.
            place: Place {
                file: String::new(),
                line: 0,
                column: 0,
                excerpt: None,
            },
        };
        self.0.push((span.clone(), remark));
    }

    /// Returns all messages in the order of the text, with their places. Duplicates are dropped,
    /// because the options of `[global]` are read again for every section.
    pub(super) fn located(mut self, file: &str, text: &str) -> Vec<Remark> {
        self.0
            .sort_by(|(a, x), (b, y)| (a.start, x.kind, &x.what).cmp(&(b.start, y.kind, &y.what)));
        self.0.dedup();
        let located = self.0.into_iter().map(|(span, mut remark)| {
            remark.place = Place::new(file, text, &span);
            remark
        });
        located.collect()
    }
}

/// Returns the name that is nearest to `found`, if it is a typing mistake away.
pub(super) fn nearest<'a>(
    found: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // The cut bounds the table of distances, whatever a file calls an option.
    let found: Vec<char> = found.to_lowercase().chars().take(64).collect();
    // One mistake in three letters; more would suggest unrelated names.
    let allowed = (found.len() / 3).max(1);
    names
        .into_iter()
        // Names are ASCII, so that bytes are letters; a large difference in length needs no table.
        .filter(|name| name.len().abs_diff(found.len()) <= allowed)
        .map(|name| (distance(&found, name.as_bytes()), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// Returns the number of letters to change, add, leave out or swap with their neighbour.
fn distance(a: &[char], b: &[u8]) -> usize {
    // Optimal string alignment: rows for the letters read so far, and the two before for swaps.
    let same = |i: usize, j: usize| a[i - 1] == char::from(b[j - 1]);
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(!same(i, j));
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j) {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_typing_mistake_away() {
        let known = ["iodepth", "runtime", "rw", "bssplit"];
        assert_eq!(nearest("iodpeth", known), Some("iodepth"));
        assert_eq!(nearest("RunTimes", known), Some("runtime"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }

    #[test]
    fn an_error_shows_its_line() {
        let text = "[a]\nbs=4x\n";
        let mut remarks = Remarks::default();
        let help = Some("4k".to_owned());
        remarks.add(Kind::Error, ("a", "bs"), &(7..9), "bad", help);
        assert_eq!(
            remarks.located("f.fio", text)[0].to_string(),
            "error: [a] bs: bad\n  --> f.fio:2:4\n  |\n2 | bs=4x\n  |    ^^\n  help: 4k"
        );
    }

    #[test]
    fn a_note_is_one_line() {
        let mut remarks = Remarks::default();
        remarks.add(Kind::Note, ("a", "direct"), &(4..5), "so be it", None);
        assert_eq!(
            remarks.located("f.fio", "[a]\ndirect=1\n")[0].to_string(),
            "note: f.fio:2: [a] direct: so be it"
        );
    }
}
