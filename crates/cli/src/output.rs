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

/// Prints a line on standard error. `eprintln!` panics where nobody reads that any more, which is no
/// reason for a command to end.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// True where the reader of our output has closed it.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
