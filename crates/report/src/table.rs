//! Tables with aligned columns, as wide as their content.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use crate::style::{Style, Tone, one_line};

/// Between two columns.
const GAP: &str = "  ";

/// Where a column's text stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// One cell: a text of one line and its tone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell without a tone. Line breaks and other control characters become spaces: a name
    /// somebody chose must not be able to move the reader's cursor.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell {
            text: one_line(text),
            tone: Tone::Normal,
        }
    }

    /// The same cell in a tone.
    pub fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    /// This text with another's behind it, in the other's tone.
    pub fn append(mut self, other: Cell) -> Cell {
        self.text.push_str(&other.text);
        Cell {
            tone: other.tone,
            ..self
        }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text)
    }
}

/// A table for people.
///
/// ```
/// use tidegate_report::{Align, Style, Table};
///
/// let mut table = Table::new([("VM", Align::Left), ("IOPS", Align::Right)]);
/// table.row(["oltp", "120"]);
/// table.row(["bulk", "9"]);
/// assert_eq!(table.render(Style::Plain), "VM    IOPS\noltp   120\nbulk     9\n");
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    /// `None`: a table without a heading.
    headings: Option<Vec<Cell>>,
    aligns: Vec<Align>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<Cell>),
    /// A line of its own across all columns, such as the name of a group.
    Line(Cell),
}

impl Table {
    /// An empty table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Table {
        let (headings, aligns) = columns
            .into_iter()
            .map(|(name, align)| (Cell::new(name).tone(Tone::Strong), align))
            .unzip();
        Table {
            headings: Some(headings),
            aligns,
            rows: Vec::new(),
        }
    }

    /// A table of names and what they stand for, without headings.
    pub fn facts() -> Table {
        Table {
            headings: None,
            aligns: vec![Align::Left, Align::Left],
            rows: Vec::new(),
        }
    }

    /// Appends a row. Cells that are missing are empty, too many are a mistake.
    ///
    /// # Panics
    /// When there are more cells than columns.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Table {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        assert!(
            cells.len() <= self.aligns.len(),
            "a row wider than its table"
        );
        self.rows.push(Row::Cells(cells));
        self
    }

    /// Appends a name and what it stands for, the name in a quiet tone.
    pub fn fact(&mut self, name: &str, value: impl Into<Cell>) -> &mut Table {
        self.row([Cell::new(name).tone(Tone::Faint), value.into()])
    }

    /// Appends a line across all columns. It does not widen any of them.
    pub fn line(&mut self, text: impl Into<Cell>) -> &mut Table {
        self.rows.push(Row::Line(text.into()));
        self
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, each line ended, none with blanks at its end.
    pub fn render(&self, style: Style) -> String {
        let widths = self.widths();
        let mut out = String::new();
        if let Some(headings) = &self.headings {
            self.render_cells(&mut out, headings, &widths, style);
        }
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.render_cells(&mut out, cells, &widths, style),
                Row::Line(cell) => {
                    let _ = writeln!(out, "{}", style.paint(cell.tone, &cell.text));
                }
            }
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.aligns.len()];
        let cells = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => Some(cells),
            Row::Line(_) => None,
        });
        for cells in self.headings.iter().chain(cells) {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = cell.width().max(*width);
            }
        }
        widths
    }

    fn render_cells(&self, out: &mut String, cells: &[Cell], widths: &[usize], style: Style) {
        // Blanks are owed until something follows them, so that no line ends in blanks.
        let mut owed = 0;
        for (i, cell) in cells.iter().enumerate() {
            if i > 0 {
                owed += GAP.len();
            }
            let room = widths[i] - cell.width();
            if self.aligns[i] == Align::Right {
                owed += room;
            }
            if !cell.text.is_empty() {
                out.extend(std::iter::repeat_n(' ', owed));
                out.push_str(&style.paint(cell.tone, &cell.text));
                owed = 0;
            }
            if self.aligns[i] == Align::Left {
                owed += room;
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([
            ("VM", Align::Left),
            ("MB/s", Align::Right),
            ("POLICY", Align::Left),
        ]);
        table.row(["oltp", "1.2", "mclock"]);
        table.row(["a-long-name", "118", ""]);
        table
    }

    #[test]
    fn numbers_stand_right_and_no_line_ends_in_blanks() {
        assert_eq!(
            sample().render(Style::Plain),
            "VM           MB/s  POLICY\n\
             oltp          1.2  mclock\n\
             a-long-name   118\n"
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new([("VM", Align::Left), ("N", Align::Right)]);
        table.row(["数据库", "1"]).row(["é", "2"]);
        assert_eq!(
            table.render(Style::Plain),
            "VM      N\n数据库  1\né       2\n"
        );
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let mut table = Table::new([("VM", Align::Left), ("N", Align::Right)]);
        table.row([
            Cell::from("a").tone(Tone::Good),
            Cell::from("1").tone(Tone::Bad),
        ]);
        assert_eq!(
            table.render(Style::Colour),
            "\x1b[1mVM\x1b[0m  \x1b[1mN\x1b[0m\n\x1b[32ma\x1b[0m   \x1b[31m1\x1b[0m\n"
        );
        assert_eq!(table.render(Style::Plain), "VM  N\na   1\n");
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut table = Table::facts();
        table.fact("name", "evil\x1b[2J\nrow");
        assert_eq!(table.render(Style::Plain), "name  evil [2J row\n");
    }

    #[test]
    fn lines_do_not_widen_columns() {
        let mut table = sample();
        table.line("a line that is much wider than any of the columns above it");
        let text = table.render(Style::Plain);
        assert!(text.starts_with("VM           MB/s"), "{text}");
    }
}
