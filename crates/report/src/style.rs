//! Colours, and text that is safe to print.

/// Whether the reader's terminal understands colours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Style {
    /// Text alone.
    #[default]
    Plain,
    /// With ANSI colours.
    Colour,
}

/// Of the series of a plot, by turns. Bright ones are hard to read on white, dark ones on black.
const SERIES_CODES: [&str; 6] = ["36", "33", "35", "32", "34", "31"];

impl Style {
    /// `text` in a tone, or as it is where there are no colours.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        match (self, tone.code()) {
            (Style::Colour, Some(code)) => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }

    /// `text` in the colour of a plot's series `index`.
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

/// What a cell says about its value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Normal,
    /// As promised.
    Good,
    /// Not as promised.
    Bad,
    /// Worth a look.
    Warn,
    /// There, but not the point.
    Faint,
    /// The point.
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

/// Text in which line breaks and other control characters are spaces: a name somebody chose must
/// not be able to move the reader's cursor.
pub(crate) fn one_line(text: impl Into<String>) -> String {
    let text: String = text.into();
    match text.contains(char::is_control) {
        true => text.replace(char::is_control, " "),
        false => text,
    }
}
