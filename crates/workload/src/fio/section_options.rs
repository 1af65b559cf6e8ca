//! Options of one section, and typed access to their values.

use super::option_list::{self, Treatment};
use super::report::{Kind, Remarks, Span, nearest};
use super::tokenizer::{Line, RawSection};
use super::value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use tidegate_core::time::Nanos;

/// Option that is read, with the value of its last line.
#[derive(Clone, Debug)]
pub(super) struct Word<'a> {
    /// Primary name.
    pub(super) name: &'static str,
    pub(super) value: Option<&'a str>,
    /// Name of the section that contains it.
    pub(super) section: &'a str,
    pub(super) span: Span,
}

/// Options of one section: those of `[global]` before it, overridden by its own.
pub(super) struct Words<'a, 'r> {
    words: BTreeMap<&'static str, Word<'a>>,
    kb_base: u64,
    remarks: &'r mut Remarks,
}

/// Adds one section's lines to `words`. Unknown, unsupported and ignored options are reported here,
/// once.
pub(super) fn collect<'a>(
    part: &RawSection<'a>,
    lenient: bool,
    words: &mut BTreeMap<&'static str, Word<'a>>,
    remarks: &mut Remarks,
) {
    for line in &part.lines {
        let Some((name, usage)) = option_list::find(line.name) else {
            unknown(part, line, lenient, remarks);
            continue;
        };
        let at = (part.name, line.name);
        match usage {
            Treatment::Ignored(why) => {
                let what = format!("ignored: {why}");
                remarks.add(Kind::Note, at, &line.name_span, what, None);
            }
            // An option without a value counts as 1.
            Treatment::Refused(_, harmless) if harmless.contains(&line.value.unwrap_or("1")) => {}
            Treatment::Refused(why, _) => {
                let what = format!("not supported: {why}");
                remarks.add(severity(lenient), at, &line.name_span, what, None);
            }
            Treatment::Read
                if name != "description" && line.value.is_some_and(|v| v.contains('$')) =>
            {
                let what = "variables such as ${NAME} and $jobname are not expanded";
                let help = Some("write the value itself".to_owned());
                remarks.add(Kind::Error, at, &line.span, what, help);
            }
            Treatment::Read => {
                let word = Word {
                    name,
                    value: line.value,
                    section: part.name,
                    span: line.span.clone(),
                };
                // The later one of both determines the mix.
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

fn unknown(part: &RawSection, line: &Line, lenient: bool, remarks: &mut Remarks) {
    let help =
        nearest(line.name, option_list::names()).map(|name| format!("did you mean {name:?}?"));
    let what = "unknown option";
    let at = (part.name, line.name);
    remarks.add(severity(lenient), at, &line.name_span, what, help);
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

    /// Returns an option as it is written.
    pub(super) fn word(&self, name: &str) -> Option<Word<'a>> {
        self.words.get(name).cloned()
    }

    /// Reports an error in an option.
    pub(super) fn error(&mut self, word: &Word, what: impl Into<String>, help: impl Display) {
        let help = Some(help.to_string()).filter(|help| !help.is_empty());
        let at = (word.section, word.name);
        self.remarks.add(Kind::Error, at, &word.span, what, help);
    }

    /// Reports the interpretation of an option.
    pub(super) fn note(&mut self, word: &Word, what: impl Into<String>) {
        let at = (word.section, word.name);
        self.remarks.add(Kind::Note, at, &word.span, what, None);
    }

    /// Returns an option and its value; a missing value is an error.
    pub(super) fn text(&mut self, name: &str, help: &str) -> Option<(Word<'a>, &'a str)> {
        let word = self.word(name)?;
        match word.value {
            Some(value) if !value.is_empty() => Some((word, value)),
            _ => {
                self.error(&word, "needs a value", help);
                None
            }
        }
    }

    /// Parses an option's value by `parse`, which gets `kb_base`.
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

    /// Reports a value that cannot be parsed.
    pub(super) fn misread(&mut self, word: &Word, text: &str, help: &str) {
        if text.starts_with('(') {
            let what = format!("arithmetic such as {text:?} is not supported");
            self.error(word, what, "write the result");
        } else {
            self.error(word, format!("{text:?} cannot be read"), help);
        }
    }

    /// Reads an integer within `range`.
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
        self.error(&word, format!("{number} is out of range"), help);
        None
    }

    /// Reads a time; a number without a unit counts in units of `bare`.
    pub(super) fn time(&mut self, name: &str, bare: Nanos) -> Option<Nanos> {
        self.parsed(name, value::TIME, |text, _| value::time(text, bare))
    }

    /// Reads one of a few words.
    pub(super) fn one_of<T: Copy>(&mut self, name: &str, known: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let find = |text: &str, _| known.iter().find(|(name, _)| *name == text).copied();
        self.parsed(name, &names.join(", "), find)
            .map(|(_, value)| value)
    }

    /// Reads a flag: true without a value or with 1, false with 0 or if it is missing.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.word(name) {
            Some(Word { value: None, .. }) => true,
            Some(_) => self.one_of(name, &[("0", false), ("1", true)]) == Some(true),
            None => false,
        }
    }
}
