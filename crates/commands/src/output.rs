//! Printing of results: tables, text or JSON, with colours on a terminal.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use tidegate_report::{Style, Table, printable};

use crate::args::{Format, Global};

/// Format and style of results on standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    style: Style,
}

impl Output {
    /// Chooses the format by `global`, and the style by standard output, `NO_COLOR` and `TERM`.
    pub(crate) fn new(global: &Global) -> Output {
        // https://no-color.org: set and not empty.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let style = if io::stdout().is_terminal() && colours {
            Style::Colour
        } else {
            Style::Plain
        };
        Output {
            format: global.output,
            style,
        }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn format(self) -> Format {
        self.format
    }

    pub(crate) fn style(self) -> Style {
        self.style
    }

    /// Prints text, with digits grouped on a terminal and plain elsewhere. Names in it cannot give
    /// orders to a terminal.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        write_out(&printable(&self.style.group_digits(text)))
    }

    /// Prints text for another program, such as a configuration: digits are never grouped.
    pub(crate) fn verbatim(self, text: &str) -> io::Result<()> {
        write_out(&printable(text))
    }

    /// Draws text on a terminal over the `drawn` lines of the last picture. Long lines are cut off
    /// at the terminal's edge, because wrapped lines would make the count of drawn lines wrong.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(crate) fn redraw(self, text: &str, drawn: usize) -> io::Result<()> {
        let text = self.style.group_digits(text);
        let text = printable(&text);
        write_out(&format!("{}\x1b[?7l{text}\x1b[?7h", erase(drawn)))
    }

    /// Clears the last picture, which had `drawn` lines.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(crate) fn clear(self, drawn: usize) -> io::Result<()> {
        write_out(&erase(drawn))
    }

    /// Prints a table.
    pub(crate) fn table(self, table: &Table) -> io::Result<()> {
        self.text(&table.render(self.style))
    }

    /// Prints a table that fits the terminal: columns of `dispensable` are left out, the first
    /// ones first, and named below it. Elsewhere than on a terminal the table is whole.
    pub(crate) fn table_in_width(self, mut table: Table, dispensable: &[&str]) -> io::Result<()> {
        let Some(width) = terminal_width() else {
            return self.table(&table);
        };
        let removed = table.fit_width(width, dispensable, self.style);
        self.table(&table)?;
        match &removed[..] {
            [] => Ok(()),
            all => self.text(&format!("\nleft out at this width: {}\n", all.join(", "))),
        }
    }

    /// Prints indented JSON.
    pub(crate) fn json<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value)? + "\n";
        Ok(self.text(&text)?)
    }

    /// Prints JSON on one line, for streams of JSON lines.
    pub(crate) fn json_line<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)? + "\n";
        Ok(self.text(&text)?)
    }
}

/// Returns the columns of the terminal that is standard output; `None` if it is none.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // A terminal that was never told its size says 0.
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Writes to standard output at once: a row of `--follow` must be seen, also through a pipe.
fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the escape sequence that moves the cursor up by `lines` and clears everything below.
fn erase(lines: usize) -> String {
    match lines {
        0 => String::new(),
        _ => format!("\x1b[{lines}A\x1b[J"),
    }
}

/// Prints a line on standard error. Unlike `eprintln!`, does not panic if standard error is closed.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let line = Style::Plain.group_digits(&line.to_string());
    let _ = writeln!(io::stderr(), "{}", printable(&line));
}

/// Returns true if the error is a closed pipe on standard output, as with `| head`.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_erased_by_as_many_lines_as_it_has() {
        assert_eq!(erase(0), "");
        assert_eq!(erase(3), "\x1b[3A\x1b[J");
    }
}
