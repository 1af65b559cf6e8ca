//! Tokenizer of job files: sections, and the options in them.

use super::report::{Kind, Remarks, Span};

/// Section with its options in order.
#[derive(Debug)]
pub(super) struct RawSection<'a> {
    pub(super) name: &'a str,
    /// Place of the name in the header.
    pub(super) span: Span,
    pub(super) lines: Vec<Line<'a>>,
}

impl RawSection<'_> {
    /// Returns true for a global section; fio compares only the first six letters of the name.
    pub(super) fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// Option: `name=value`, or a name alone.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) name_span: Span,
    pub(super) value: Option<&'a str>,
    /// Place of the value, or of the name if there is no value.
    pub(super) span: Span,
}

/// Splits a text into sections. Lines that are neither section, option, comment nor blank are
/// errors.
pub(super) fn parts<'a>(text: &'a str, remarks: &mut Remarks) -> Vec<RawSection<'a>> {
    let mut parts: Vec<RawSection> = vec![];
    let mut at = 0;
    for line in text.split('\n') {
        let start = at;
        at += line.len() + 1;
        // As in fio, a comment may begin anywhere in a line.
        let end = line.find(['#', ';']).unwrap_or(line.len());
        // A byte order mark, which editors of some systems write, is no part of the first line.
        let skip = if start == 0 && line.starts_with('\u{feff}') {
            '\u{feff}'.len_utf8().min(end)
        } else {
            0
        };
        let span = trimmed(text, start + skip..start + end);
        if span.is_empty() {
            continue;
        }
        if text[span.clone()].starts_with('[') {
            parts.extend(header(text, span, remarks));
            continue;
        }
        let line = option(text, span);
        let Some(part) = parts.last_mut() else {
            let help = Some("begin with [global] or the name of a job".to_owned());
            let what = "an option outside of a section";
            remarks.add(Kind::Error, ("", line.name), &line.name_span, what, help);
            continue;
        };
        // Job files are read without access to other files: the text is the argument.
        if line.name == "include" || line.name.starts_with("include ") {
            let what = "other files are not included";
            let help = Some("put its lines in this file".to_owned());
            let of = (part.name, "include");
            remarks.add(Kind::Error, of, &line.name_span, what, help);
            continue;
        }
        part.lines.push(line);
    }
    parts
}

fn header<'a>(text: &'a str, span: Span, remarks: &mut Remarks) -> Option<RawSection<'a>> {
    let inner = text[span.clone()]
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .filter(|name| !name.trim().is_empty());
    if inner.is_none() {
        let what = "a section needs a name between [ and ], and a line of its own";
        remarks.add(Kind::Error, ("", ""), &span, what, None);
        return None;
    }
    let name = trimmed(text, span.start + 1..span.end - 1);
    Some(RawSection {
        name: &text[name.clone()],
        span: name,
        lines: vec![],
    })
}

fn option(text: &str, span: Span) -> Line<'_> {
    match text[span.clone()].find('=') {
        None => Line {
            name: &text[span.clone()],
            name_span: span.clone(),
            value: None,
            span,
        },
        Some(equals) => {
            let name_span = trimmed(text, span.start..span.start + equals);
            let value = trimmed(text, span.start + equals + 1..span.end);
            Line {
                name: &text[name_span.clone()],
                name_span,
                value: Some(&text[value.clone()]),
                span: value,
            }
        }
    }
}

/// Returns a span without the blanks at its ends.
fn trimmed(text: &str, span: Span) -> Span {
    let part = &text[span.clone()];
    let start = span.start + part.len() - part.trim_start().len();
    start..start + part.trim().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(text: &str) -> (Vec<String>, Vec<String>) {
        let mut remarks = Remarks::default();
        let parts = parts(text, &mut remarks);
        let mut seen = vec![];
        for part in &parts {
            assert_eq!(&text[part.span.clone()], part.name);
            seen.push(format!("[{}]", part.name));
            for line in &part.lines {
                assert_eq!(&text[line.name_span.clone()], line.name);
                assert_eq!(&text[line.span.clone()], line.value.unwrap_or(line.name));
                seen.push(format!("{} {:?}", line.name, line.value));
            }
        }
        let messages = remarks.located("f", text);
        (
            seen,
            messages.into_iter().map(|remark| remark.what).collect(),
        )
    }

    #[test]
    fn comments_and_blanks_do_not_matter() {
        let text = "; first\n\n# second\r\n  [ a ] ; third\r\n\tbs = 4k # fourth\n norandommap;x\n";
        let (seen, messages) = taken_apart(text);
        assert_eq!(seen, ["[a]", "bs Some(\"4k\")", "norandommap None"]);
        assert!(messages.is_empty(), "{messages:?}");
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        assert_eq!(taken_apart("\u{feff}[a]\nthread").0, ["[a]", "thread None"]);
    }

    #[test]
    fn values_keep_what_follows_the_first_equals_sign() {
        let (seen, _) = taken_apart("[a]\nname=b=c\nsize=\n");
        assert_eq!(seen, ["[a]", "name Some(\"b=c\")", "size Some(\"\")"]);
    }

    #[test]
    fn lines_without_a_meaning_are_reported() {
        for (text, what) in [
            ("bs=4k\n", "an option outside of a section"),
            ("[a\n", "a section needs a name"),
            ("[]\n", "a section needs a name"),
            ("[ ]\n", "a section needs a name"),
            ("[\n", "a section needs a name"),
            ("[\u{fffd}\n", "a section needs a name"),
            ("[a] bs=4k\n", "a section needs a name"),
            ("[a]\ninclude other.fio\n", "other files are not included"),
        ] {
            let (_, messages) = taken_apart(text);
            assert!(
                messages.len() == 1 && messages[0].starts_with(what),
                "{text}: {messages:?}"
            );
        }
    }
}
