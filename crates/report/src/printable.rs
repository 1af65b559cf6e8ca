//! Text from outside that is shown to people: names of disks, paths, words of files.
//!
//! A terminal takes some characters as orders: to move its cursor, to change its title, to write
//! text from right to left. Text that an attacker chooses could hide a line of a table or a log, or
//! make one up.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns true for a character that is not shown but changes how others are: control characters,
/// line separators, and marks of the writing direction (Unicode's Bidi_Control).
pub(crate) fn is_order(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Returns text of one or more lines in which characters that are orders to a terminal are written
/// as in JSON, `\u001b`. Line feeds, tabs and colours (`ESC [ digits m`) stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_order(c) && !matches!(c, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = colour_len(rest) {
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        if is_order(c) && !matches!(c, '\n' | '\t') {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// Returns text as [`printable`] does, on one line: line feeds within it are written as `\n`.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    let (line, end) = match text.strip_suffix('\n') {
        Some(line) => (line, "\n"),
        None => (text, ""),
    };
    match printable(line) {
        Cow::Borrowed(same) if !same.contains('\n') => Cow::Borrowed(text),
        line => Cow::Owned(line.replace('\n', "\\n") + end),
    }
}

/// Returns the length of the colour that a text begins with; `None` if it begins otherwise.
fn colour_len(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_a_terminal_are_written_out() {
        for (text, shown) in [
            ("plain", "plain"),
            ("größer, 大きい, 🦀", "größer, 大きい, 🦀"),
            ("a\x1b[2J\x07b", "a\\u001b[2J\\u0007b"),
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            // A control sequence in one character, as terminals of eight bits have it.
            ("\u{9b}2J", "\\u009b2J"),
            ("\r\x7f", "\\u000d\\u007f"),
            (
                "\u{202e}gpj.exe\u{2066}\u{2028}",
                "\\u202egpj.exe\\u2066\\u2028",
            ),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("\x1b[1;31", "\\u001b[1;31"),
            ("two\nlines\tof text\n", "two\nlines\tof text\n"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(printable_line("a\nb\n"), "a\\nb\n");
        assert_eq!(
            printable_line("a\nERROR forged\x1b[A"),
            "a\\nERROR forged\\u001b[A"
        );
        assert!(matches!(printable_line("a\n"), Cow::Borrowed("a\n")));
        assert_eq!(printable_line(""), "");
    }
}
