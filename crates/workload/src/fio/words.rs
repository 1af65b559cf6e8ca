//! The options that hold for one job, and reading their values.

use super::known::{self, Use};
use super::lines::{Line, Part};
use super::report::{Kind, Remarks, Span, nearest};
use super::value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use tidegate_core::time::Nanos;

/// An option that is read, as the last line of it says.
#[derive(Clone, Debug)]
pub(super) struct Word<'a> {
    /// By its first name.
    pub(super) name: &'static str,
    pub(super) value: Option<&'a str>,
    /// The section it stands in.
    pub(super) section: &'a str,
    pub(super) span: Span,
}

/// The options of one job: those of `[global]` before it, then its own.
pub(super) struct Words<'a, 'r> {
    words: BTreeMap<&'static str, Word<'a>>,
    kb_base: u64,
    remarks: &'r mut Remarks,
}

/// Sorts one section's lines into `words`. What is not known, cannot be done or plays no part
/// is said once, here.
pub(super) fn collect<'a>(
    part: &Part<'a>,
    lenient: bool,
    words: &mut BTreeMap<&'static str, Word<'a>>,
    remarks: &mut Remarks,
) {
    for line in &part.lines {
        let Some((name, usage)) = known::find(line.name) else {
            unknown(part, line, lenient, remarks);
            continue;
        };
        let at = (part.name, line.name);
        match usage {
            Use::Ignored(why) => {
                let what = format!("ignored: {why}");
                remarks.say(Kind::Note, at, &line.name_span, what, None);
            }
            // A flag without a value is 1.
            Use::Refused(_, harmless) if harmless.contains(&line.value.unwrap_or("1")) => {}
            Use::Refused(why, _) => {
                let what = format!("not supported: {why}");
                remarks.say(severity(lenient), at, &line.name_span, what, None);
            }
            Use::Read if name != "description" && line.value.is_some_and(|v| v.contains('$')) => {
                let what = "variables such as ${NAME} and $jobname are not replaced here";
                let help = Some("write the value itself".to_owned());
                remarks.say(Kind::Error, at, &line.span, what, help);
            }
            Use::Read => {
                let word = Word {
                    name,
                    value: line.value,
                    section: part.name,
                    span: line.span.clone(),
                };
                // The later of the two says which it is.
                if name == "rwmixread" || name == "rwmixwrite" {
                    words.remove("rwmixread");
                    words.remove("rwmixwrite");
                }
                words.insert(name, word);
            }
        }
    }
}

fn severity(lenient: bool) -> Kind {
    if lenient { Kind::Warning } else { Kind::Error }
}

fn unknown(part: &Part, line: &Line, lenient: bool, remarks: &mut Remarks) {
    let help = nearest(line.name, known::names()).map(|name| format!("did you mean {name:?}?"));
    let what = "no option that is known here";
    let at = (part.name, line.name);
    remarks.say(severity(lenient), at, &line.name_span, what, help);
}

impl<'a, 'r> Words<'a, 'r> {
    pub(super) fn new(
        words: BTreeMap<&'static str, Word<'a>>,
        remarks: &'r mut Remarks,
    ) -> Words<'a, 'r> {
        let mut words = Words {
            words,
            kb_base: 1024,
            remarks,
        };
        let bases = [("1024", 1024), ("1000", 1000)];
        words.kb_base = words.one_of("kb_base", &bases).unwrap_or(1024);
        words
    }

    /// The option as it stands.
    pub(super) fn word(&self, name: &str) -> Option<Word<'a>> {
        self.words.get(name).cloned()
    }

    /// Says that an option is wrong.
    pub(super) fn wrong(&mut self, word: &Word, what: impl Into<String>, help: impl Display) {
        let help = Some(help.to_string()).filter(|help| !help.is_empty());
        let at = (word.section, word.name);
        self.remarks.say(Kind::Error, at, &word.span, what, help);
    }

    /// Says how an option is taken.
    pub(super) fn note(&mut self, word: &Word, what: impl Into<String>) {
        let at = (word.section, word.name);
        self.remarks.say(Kind::Note, at, &word.span, what, None);
    }

    /// The option and its text; one without is an error.
    pub(super) fn text(&mut self, name: &str, help: &str) -> Option<(Word<'a>, &'a str)> {
        let word = self.word(name)?;
        match word.value {
            Some(value) if !value.is_empty() => Some((word, value)),
            _ => {
                self.wrong(&word, "needs a value", help);
                None
            }
        }
    }

    /// Reads a value by `parse`; `kb_base` is passed on to it.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        help: &str,
        parse: impl FnOnce(&str, u64) -> Option<T>,
    ) -> Option<T> {
        let (word, text) = self.text(name, help)?;
        let value = parse(text, self.kb_base);
        if value.is_none() {
            self.misread(&word, text, help);
        }
        value
    }

    /// Says that a value cannot be read.
    pub(super) fn misread(&mut self, word: &Word, text: &str, help: &str) {
        if text.starts_with('(') {
            let what = format!("arithmetic such as {text:?} is not done here");
            self.wrong(word, what, "write the result");
        } else {
            self.wrong(word, format!("{text:?} cannot be read"), help);
        }
    }

    /// A whole number within `range`.
    pub(super) fn integer(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.parsed(name, value::INTEGER, value::integer)?;
        if range.contains(&number) {
            return Some(number);
        }
        let help = match *range.end() {
            u64::MAX => format!("at least {}", range.start()),
            end => format!("{} to {end}", range.start()),
        };
        let word = self.word(name)?;
        self.wrong(&word, format!("{number} is out of range"), help);
        None
    }

    /// A time; a bare number counts in units of `bare`.
    pub(super) fn time(&mut self, name: &str, bare: Nanos) -> Option<Nanos> {
        self.parsed(name, value::TIME, |text, _| value::time(text, bare))
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&mut self, name: &str, known: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let find = |text: &str, _| known.iter().find(|(name, _)| *name == text).copied();
        self.parsed(name, &names.join(", "), find)
            .map(|(_, value)| value)
    }

    /// Set without a value, or to 1; 0 is not set.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.word(name) {
            Some(Word { value: None, .. }) => true,
            Some(_) => self.one_of(name, &[("0", false), ("1", true)]) == Some(true),
            None => false,
        }
    }
}
