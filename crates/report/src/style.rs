//! Terminal colours, and removal of control characters from text.

use tidegate_units::human::GROUP;

use crate::printable::is_order;

/// Support of colours by the reader's terminal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Style {
    /// Text without escape sequences.
    #[default]
    Plain,
    /// ANSI colours.
    Colour,
}

/// ANSI codes of the series of a plot, used in turn; bright variants are hard to read on white,
/// dark ones on black.
const SERIES_CODES: [&str; 6] = ["36", "33", "35", "32", "34", "31"];

impl Style {
    /// Returns `text` with grouped digits: spaces in place of [`GROUP`] with colours, which only a
    /// person's terminal has; nothing without them, because scripts read plain digits. A terminal
    /// without colours (`NO_COLOR`) gets plain digits, too.
    pub fn group_digits(self, text: &str) -> String {
        match self {
            Style::Colour => text.replace(GROUP, " "),
            Style::Plain => text.replace(GROUP, ""),
        }
    }

    /// Returns `text` in the colour of `tone`, or unchanged without colours.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        match (self, tone.code()) {
            (Style::Colour, Some(code)) => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }

    /// Returns `text` in the colour of a plot's series `index`.
    pub(crate) fn paint_series(self, index: usize, text: &str) -> String {
        match self {
            Style::Colour => {
                let code = SERIES_CODES[index % SERIES_CODES.len()];
                format!("\x1b[{code}m{text}\x1b[0m")
            }
            Style::Plain => text.to_owned(),
        }
    }
}

/// Meaning of a cell, which determines its colour.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tone {
    /// No emphasis.
    #[default]
    Normal,
    /// Kept promise.
    Good,
    /// Missed promise.
    Bad,
    /// Warning.
    Warn,
    /// Secondary text.
    Faint,
    /// Emphasis.
    Strong,
}

impl Tone {
    fn code(self) -> Option<&'static str> {
        match self {
            Tone::Normal => None,
            Tone::Good => Some("32"),
            Tone::Bad => Some("31"),
            Tone::Warn => Some("33"),
            Tone::Faint => Some("2"),
            Tone::Strong => Some("1"),
        }
    }
}

/// Replaces line breaks and other orders to a terminal by spaces, so that a name from outside can
/// neither move the cursor nor turn a row around.
pub(crate) fn one_line(text: impl Into<String>) -> String {
    let text: String = text.into();
    if text.contains(is_order) {
        text.replace(is_order, " ")
    } else {
        text
    }
}
