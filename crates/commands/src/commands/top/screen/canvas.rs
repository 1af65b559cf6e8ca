//! Drawing of text with tones into the cells of a terminal.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use tidegate_report::{Align, Cell, Glyphs, Style as Colours, Tone, printable_line};

pub(crate) use crate::commands::top::names::width_of;

/// Colours and characters that the terminal shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    pub(crate) colours: Colours,
    pub(crate) glyphs: Glyphs,
}

/// Levels of a sparkline, from the lowest.
const LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_LEVELS: [&str; 8] = ["_", ".", ",", "-", "=", "+", "*", "#"];

impl Look {
    /// Returns the style of a tone. Without colours, emphasis stays.
    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        match (tone, self.colours) {
            (Tone::Strong, _) => plain.add_modifier(Modifier::BOLD),
            (Tone::Normal, _) | (_, Colours::Plain) => plain,
            (Tone::Good, Colours::Colour) => plain.fg(Color::Green),
            (Tone::Bad, Colours::Colour) => plain.fg(Color::Red),
            (Tone::Warn, Colours::Colour) => plain.fg(Color::Yellow),
            (Tone::Faint, Colours::Colour) => plain.add_modifier(Modifier::DIM),
        }
    }

    /// Returns the mark of text that was cut off.
    pub(crate) fn ellipsis(self) -> &'static str {
        match self.glyphs {
            Glyphs::Unicode => "…",
            Glyphs::Ascii => "~",
        }
    }

    /// Returns values as a line of one character each, by the highest of them; blanks where there
    /// is none.
    pub(crate) fn sparkline(self, values: &[Option<f64>]) -> String {
        let levels = match self.glyphs {
            Glyphs::Unicode => LEVELS,
            Glyphs::Ascii => ASCII_LEVELS,
        };
        let highest = values.iter().flatten().copied().fold(0.0, f64::max);
        let level = |value: &Option<f64>| match value {
            None => " ",
            Some(value) if highest > 0.0 => {
                let level = (value / highest * (levels.len() - 1) as f64).round();
                levels[(level as usize).min(levels.len() - 1)]
            }
            Some(_) => levels[0],
        };
        values.iter().map(level).collect()
    }

    /// Returns text as it is shown: without orders to the terminal, digits grouped, and in ASCII
    /// where the terminal has no more.
    pub(crate) fn shown(self, text: &str) -> String {
        let text = self.colours.group_digits(text);
        // Colours are orders, too, and they would come from a name.
        let text = printable_line(&text).replace(char::is_control, " ");
        match self.glyphs {
            Glyphs::Unicode => text,
            Glyphs::Ascii => text
                .chars()
                .map(|c| if c.is_ascii() { c } else { '?' })
                .collect(),
        }
    }

    /// Returns text that is at most `width` columns wide, with a mark where it was cut off.
    pub(crate) fn cut<'a>(self, text: &'a str, width: usize) -> Cow<'a, str> {
        if width_of(text) <= width {
            return Cow::Borrowed(text);
        }
        let mut out = String::new();
        let mut used = 0;
        for part in Span::raw(text).styled_graphemes(Style::new()) {
            used += width_of(part.symbol);
            // The mark takes a column.
            if used + 1 > width {
                break;
            }
            out.push_str(part.symbol);
        }
        if width > 0 {
            out.push_str(self.ellipsis());
        }
        Cow::Owned(out)
    }
}

/// Part of the terminal that is drawn into.
pub(crate) struct Canvas<'a> {
    pub(crate) buffer: &'a mut Buffer,
    pub(crate) area: Rect,
    pub(crate) look: Look,
    /// True if the values are old: they are drawn faintly.
    pub(crate) is_stale: bool,
}

impl Canvas<'_> {
    pub(crate) fn width(&self) -> usize {
        self.area.width.into()
    }

    pub(crate) fn height(&self) -> usize {
        self.area.height.into()
    }

    /// Draws text at a column of a row, cut at `width` columns, and returns the column behind it.
    pub(crate) fn text(
        &mut self,
        (x, y): (usize, usize),
        width: usize,
        text: &str,
        tone: Tone,
    ) -> usize {
        let width = width.min(self.width().saturating_sub(x));
        if y >= self.height() || width == 0 {
            return x;
        }
        let style = self.look.style(tone);
        let shown = self.look.shown(text);
        let cut = self.look.cut(&shown, width);
        let (left, top) = (self.area.x + x as u16, self.area.y + y as u16);
        let (end, _) = self.buffer.set_stringn(left, top, &cut, width, style);
        usize::from(end - self.area.x)
    }

    /// Draws a cell of a table within `width` columns.
    pub(crate) fn cell(&mut self, (x, y): (usize, usize), width: usize, cell: &Cell, align: Align) {
        let shown = self.look.shown(cell.text());
        let blanks = match align {
            Align::Left => 0,
            Align::Right => width.saturating_sub(width_of(&shown)),
        };
        let tone = match cell.tone_of() {
            Tone::Normal | Tone::Strong if self.is_stale => Tone::Faint,
            tone => tone,
        };
        self.text((x + blanks, y), width - blanks, cell.text(), tone);
    }

    /// Draws pieces of a line one after the other.
    pub(crate) fn pieces(&mut self, (mut x, y): (usize, usize), pieces: &[Cell]) {
        for piece in pieces {
            x = self.text((x, y), self.width(), piece.text(), piece.tone_of());
        }
    }

    /// Marks a row as selected. Reversed video is seen without colours, too.
    pub(crate) fn select(&mut self, y: usize) {
        let (x, y) = (self.area.x, self.area.y + y as u16);
        let row = Rect::new(x, y, self.area.width, 1).intersection(self.area);
        self.buffer
            .set_style(row, Style::new().add_modifier(Modifier::REVERSED));
    }

    /// Marks columns of a row, such as the heading of the column that is sorted by.
    pub(crate) fn underline(&mut self, (x, y): (usize, usize), width: usize) {
        let (x, y) = (self.area.x + x as u16, self.area.y + y as u16);
        let cells = Rect::new(x, y, width as u16, 1).intersection(self.area);
        let style = Style::new().add_modifier(Modifier::UNDERLINED);
        self.buffer.set_style(cells, style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICODE: Look = Look {
        colours: Colours::Colour,
        glyphs: Glyphs::Unicode,
    };
    const ASCII: Look = Look {
        colours: Colours::Plain,
        glyphs: Glyphs::Ascii,
    };

    #[test]
    fn text_is_cut_by_its_width_with_a_mark() {
        assert_eq!(UNICODE.cut("oltp", 4), "oltp");
        assert_eq!(UNICODE.cut("oltp-1", 4), "olt…");
        assert_eq!(ASCII.cut("oltp-1", 4), "olt~");
        assert_eq!(UNICODE.cut("数据库", 5), "数据…", "two columns each");
        assert_eq!(UNICODE.cut("数据库", 4), "数…");
        assert_eq!(UNICODE.cut("ab", 1), "…");
        assert_eq!(UNICODE.cut("ab", 0), "");
    }

    #[test]
    fn names_give_no_orders_to_the_terminal() {
        let name = "x\u{1b}[2J\u{202e}y\nz";
        assert_eq!(UNICODE.shown(name), "x\\u001b[2J\\u202ey\\nz");
        assert_eq!(UNICODE.shown("\u{1b}[31mred\tx"), " [31mred x");
        assert_eq!(ASCII.shown("größe"), "gr??e");
    }

    #[test]
    fn a_sparkline_goes_to_its_highest_value() {
        let values = [None, Some(0.0), Some(50.0), Some(100.0)];
        assert_eq!(UNICODE.sparkline(&values), " ▁▅█");
        assert_eq!(ASCII.sparkline(&values), " _=#");
        assert_eq!(UNICODE.sparkline(&[Some(0.0), None]), "▁ ");
    }

    #[test]
    fn emphasis_stays_without_colours() {
        assert_eq!(ASCII.style(Tone::Bad), Style::new());
        assert_eq!(ASCII.style(Tone::Strong), UNICODE.style(Tone::Strong));
        assert_ne!(UNICODE.style(Tone::Bad), Style::new());
    }
}
