//! Printing: tables or JSON, colours or none, and no panic when the reader has gone.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use tidegate_report::{Style, Table};

use crate::args::{Format, Global};

/// Where results go and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    style: Style,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Output {
        // https://no-color.org: set and not empty.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let style = match io::stdout().is_terminal() && colours {
            true => Style::Colour,
            false => Style::Plain,
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

    /// Prints text as it is.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Draws text on a terminal over the `drawn` lines of it that were drawn before. Lines are cut
    /// off at the terminal's edge: wrapped, they would be more than were counted, and what is left
    /// of the last picture would pile up.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn redraw(self, text: &str, drawn: usize) -> io::Result<()> {
        self.text(&format!("{}\x1b[?7l{text}\x1b[?7h", erase(drawn)))
    }

    /// Clears what `redraw` drew last.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn clear(self, drawn: usize) -> io::Result<()> {
        self.text(&erase(drawn))
    }

    /// Prints a table.
    pub(crate) fn table(self, table: &Table) -> io::Result<()> {
        self.text(&table.render(self.style))
    }

    /// Prints JSON for people who read JSON.
    pub(crate) fn json<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value)? + "\n";
        Ok(self.text(&text)?)
    }

    /// Prints JSON on a line of its own, for a stream of them.
    pub(crate) fn json_line<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)? + "\n";
        Ok(self.text(&text)?)
    }
}

/// Up over so many lines, clearing what is below.
fn erase(lines: usize) -> String {
    match lines {
        0 => String::new(),
        _ => format!("\x1b[{lines}A\x1b[J"),
    }
}

/// Prints a line on standard error. `eprintln!` panics where nobody reads that any more, which is
/// no reason for a command to end.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// True where the reader of our output has closed it.
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
