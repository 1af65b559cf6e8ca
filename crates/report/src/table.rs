//! Tables with aligned columns, as wide as their content. They have no borders, so that each row is
//! a line for `grep` and `awk`; comfy-table computes the layout.

use comfy_table::{CellAlignment, ContentArrangement, presets};
use unicode_width::UnicodeWidthStr;

use crate::style::{Style, Tone, one_line};
use crate::text::wrap_whole;

/// Spaces between two columns.
const GAP: u16 = 2;
/// Least width of a column that is wrapped.
const LEAST_WRAPPED: usize = 12;

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// Cell of a table: text of one line, and its tone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a cell in normal tone. Control characters become spaces, so that a name from outside
    /// cannot move the terminal's cursor.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell {
            text: one_line(text),
            tone: Tone::Normal,
        }
    }

    /// Returns the cell in another tone.
    pub fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the tone.
    pub fn tone_of(&self) -> Tone {
        self.tone
    }

    /// Appends another cell's text. The result has the other's tone: a cell has one tone, and the
    /// appended part, such as a verdict, is the one that needs it.
    pub fn append(mut self, other: Cell) -> Cell {
        self.text.push_str(&other.text);
        Cell {
            tone: other.tone,
            ..self
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text)
    }
}

/// Table for people.
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
    /// Column names; `None`: no heading.
    headings: Option<Vec<Cell>>,
    aligns: Vec<Align>,
    rows: Vec<Row>,
}

/// Row of a table.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    /// Cells of the first columns.
    Cells(Vec<Cell>),
    /// Line across all columns, such as the name of a group.
    Line(Cell),
}

impl Table {
    /// Creates an empty table with these columns.
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

    /// Creates an empty table of two columns without heading, for names and their values.
    pub fn properties() -> Table {
        Table {
            headings: None,
            aligns: vec![Align::Left, Align::Left],
            rows: Vec::new(),
        }
    }

    /// Appends a row. Missing cells are empty.
    ///
    /// # Panics
    /// If there are more cells than columns.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Table {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        assert!(
            cells.len() <= self.aligns.len(),
            "a row wider than its table"
        );
        self.rows.push(Row::Cells(cells));
        self
    }

    /// Appends a row of a name, in secondary tone, and its value.
    pub fn property(&mut self, name: &str, value: impl Into<Cell>) -> &mut Table {
        self.row([Cell::new(name).tone(Tone::Faint), value.into()])
    }

    /// Appends a line across all columns; it does not affect their widths.
    pub fn line(&mut self, text: impl Into<Cell>) -> &mut Table {
        self.rows.push(Row::Line(text.into()));
        self
    }

    /// Returns the headings; `None` for a table without.
    pub(crate) fn headings(&self) -> Option<&[Cell]> {
        self.headings.as_deref()
    }

    /// Returns the alignment of each column.
    pub(crate) fn aligns(&self) -> &[Align] {
        &self.aligns
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes columns by their headings, the first of `dispensable` first, until each line of
    /// cells has at most `width` columns of the terminal. Returns the headings removed.
    pub fn fit_width<'a>(
        &mut self,
        width: usize,
        dispensable: &[&'a str],
        style: Style,
    ) -> Vec<&'a str> {
        let mut removed = Vec::new();
        for &heading in dispensable {
            if self.width(style) <= width {
                break;
            }
            let headings = self.headings.as_deref().unwrap_or_default();
            let Some(at) = headings.iter().position(|cell| cell.text == heading) else {
                continue;
            };
            self.remove_column(at);
            removed.push(heading);
        }
        removed
    }

    /// Wraps the cells of columns between words, by their headings, so that each line of cells has
    /// at most `width` columns of the terminal, or as few as there can be. The wrapped columns
    /// share what others leave them: narrow ones stay as they are. A table that fits is not
    /// changed.
    pub fn wrap_width(&mut self, width: usize, columns: &[&str], style: Style) {
        let before = self.width(style);
        if before <= width {
            return;
        }
        let headings = self.headings.as_deref().unwrap_or_default();
        let is_wrapped = |at: &usize| columns.contains(&headings[*at].text.as_str());
        let wrapped = (0..headings.len()).filter(is_wrapped);
        let mut wrapped: Vec<(usize, usize)> = wrapped.map(|at| (at, self.width_of(at))).collect();
        let all: usize = wrapped.iter().map(|(_, width)| width).sum();
        let mut room = (width + all).saturating_sub(before);
        wrapped.sort_by_key(|&(_, width)| width);
        let count = wrapped.len();
        for (i, (_, width)) in wrapped.iter_mut().enumerate() {
            *width = (*width).min(room / (count - i)).max(LEAST_WRAPPED);
            room = room.saturating_sub(*width);
        }
        let rows = std::mem::take(&mut self.rows);
        self.rows = (rows.into_iter())
            .flat_map(|row| match row {
                Row::Cells(cells) => wrap_cells(cells, &wrapped),
                line @ Row::Line(_) => vec![line],
            })
            .collect();
    }

    /// Returns the columns of the terminal that a column's cells take.
    fn width_of(&self, at: usize) -> usize {
        let rows = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => cells.get(at),
            Row::Line(_) => None,
        });
        let heading = self.headings.iter().map(|headings| &headings[at]);
        let widths = rows.chain(heading).map(|cell| cell.text.width());
        widths.max().unwrap_or(0)
    }

    /// Returns the columns of the terminal that the widest line of cells takes.
    fn width(&self, style: Style) -> usize {
        let laid_out = self.lay_out(style);
        let lines = laid_out.lines();
        lines.map(|line| line.trim_end().width()).max().unwrap_or(0)
    }

    fn remove_column(&mut self, at: usize) {
        self.aligns.remove(at);
        if let Some(headings) = &mut self.headings {
            headings.remove(at);
        }
        for row in &mut self.rows {
            // Missing cells at the end of a row are empty.
            if let Row::Cells(cells) = row
                && at < cells.len()
            {
                cells.remove(at);
            }
        }
    }

    /// Formats the table; every line is ended, and none has trailing spaces.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        for line in self.lines(style) {
            for piece in &line {
                out.push_str(&style.paint(piece.tone, &piece.text));
            }
            out.push('\n');
        }
        out
    }

    /// Returns the lines of the table as pieces that each have one tone, for output that has
    /// colours of its own. The pieces of a line joined are the line that
    /// [`render`](Table::render) gives without colours.
    pub fn lines(&self, style: Style) -> Vec<Vec<Cell>> {
        let laid_out = self.lay_out(style);
        // One line for each row of cells: no cell has a line break, and none is wrapped.
        let mut lines = laid_out.lines();
        let mut cells = |cells: &[Cell]| {
            let line = lines.next().unwrap_or_default();
            pieces(&line, cells, style)
        };
        let headings = self
            .headings
            .iter()
            .map(|headings| Row::Cells(headings.clone()));
        let rows = headings.chain(self.rows.iter().cloned());
        rows.map(|row| match row {
            Row::Cells(row) => cells(&row),
            Row::Line(cell) => vec![Cell {
                text: style.group_digits(&cell.text),
                tone: cell.tone,
            }],
        })
        .collect()
    }

    /// Aligns headings and rows of cells, without their tones.
    fn lay_out(&self, style: Style) -> comfy_table::Table {
        let texts = |cells: &[Cell]| -> Vec<comfy_table::Cell> {
            let texts = cells.iter().map(|cell| style.group_digits(&cell.text));
            texts.map(comfy_table::Cell::new_owned).collect()
        };
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        if let Some(headings) = &self.headings {
            table.set_header(texts(headings));
        }
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                table.add_row(texts(cells));
            }
        }
        for (column, align) in table.column_iter_mut().zip(&self.aligns) {
            column.set_padding((0, GAP));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        table
    }
}

/// Breaks cells into rows, by the widths of the columns that are wrapped.
fn wrap_cells(cells: Vec<Cell>, wrapped: &[(usize, usize)]) -> Vec<Row> {
    let columns = cells.into_iter().enumerate().map(|(at, cell)| {
        let width = wrapped.iter().find(|column| column.0 == at);
        let Some(&(_, width)) = width.filter(|_| !cell.text.is_empty()) else {
            return vec![cell];
        };
        let texts = wrap_whole(&cell.text, width).into_iter();
        texts.map(|text| Cell { text, ..cell }).collect()
    });
    let columns: Vec<Vec<Cell>> = columns.collect();
    let lines = columns.iter().map(Vec::len).max().unwrap_or(0);
    let row = |line: usize| {
        let cells = columns.iter().map(|cells| cells.get(line).cloned());
        Row::Cells(cells.map(Option::unwrap_or_default).collect())
    };
    (0..lines).map(row).collect()
}

/// Divides a laid-out line into its cells with their tones and the blanks between them, without
/// trailing spaces.
fn pieces(line: &str, cells: &[Cell], style: Style) -> Vec<Cell> {
    let mut pieces = Vec::new();
    let mut push = |text: &str, tone| {
        if !text.is_empty() {
            pieces.push(Cell {
                text: text.to_owned(),
                tone,
            });
        }
    };
    let mut rest = line;
    for cell in cells.iter().filter(|cell| !cell.text.is_empty()) {
        let text = style.group_digits(&cell.text);
        // Only padding lies between two cells, so the next occurrence of the text is the cell
        // itself.
        let Some((blanks, behind)) = rest.split_once(&text) else {
            break;
        };
        push(blanks, Tone::Normal);
        push(&text, cell.tone);
        rest = behind;
    }
    push(rest.trim_end(), Tone::Normal);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn columns_are_wrapped_between_words_and_narrow_ones_stay() {
        let mut table = Table::new([
            ("POLICY", Align::Left),
            ("ENFORCES", Align::Left),
            ("DESCRIPTION", Align::Left),
        ]);
        table.row([
            "mclock",
            "weight, limit",
            "reservation, limit and weight of each VM",
        ]);
        table.row(["fifo", "", "first in, first out"]);
        let mut same = table.clone();
        let columns = ["ENFORCES", "DESCRIPTION"];
        same.wrap_width(63, &columns, Style::Plain);
        assert_eq!(same.render(Style::Plain), table.render(Style::Plain));
        table.wrap_width(43, &columns, Style::Plain);
        assert_eq!(
            table.render(Style::Plain),
            "POLICY  ENFORCES       DESCRIPTION\n\
             mclock  weight, limit  reservation, limit\n                       \
             and weight of each\n                       VM\n\
             fifo                   first in, first out\n"
        );
        table.wrap_width(10, &columns, Style::Plain);
        let lines = table.render(Style::Plain);
        assert!(lines.lines().all(|line| line.len() <= 36), "{lines}");
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
    fn dispensable_columns_go_until_a_table_fits() {
        let heads = ["VM", "DEVICE", "WAITING"].map(|name| (name, Align::Left));
        let mut table = Table::new(heads);
        table.row(["oltp", "disk0", "7"]).row(["bulk"]);
        let whole = "VM    DEVICE  WAITING\noltp  disk0   7\nbulk\n";
        let drops = ["WAITING", "NONE", "DEVICE"];
        assert!(table.fit_width(21, &drops, Style::Plain).is_empty());
        assert_eq!(table.render(Style::Plain), whole);
        assert_eq!(table.fit_width(20, &drops, Style::Plain), ["WAITING"]);
        assert_eq!(
            table.render(Style::Plain),
            "VM    DEVICE\noltp  disk0\nbulk\n"
        );
        // Not narrower than what has to stay.
        assert_eq!(table.fit_width(1, &drops, Style::Plain), ["DEVICE"]);
        assert_eq!(table.render(Style::Plain), "VM\noltp\nbulk\n");
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
    fn digits_are_grouped_for_people_and_plain_for_scripts() {
        let mut table = Table::new([("VM", Align::Left), ("N", Align::Right)]);
        table.row(["a".to_owned(), tidegate_units::human::count(12_345)]);
        assert_eq!(table.render(Style::Plain), "VM      N\na   12345\n");
        let colour = table.render(Style::Colour);
        assert!(colour.ends_with("a   12 345\n"), "{colour:?}");
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut table = Table::properties();
        table.property("name", "evil\x1b[2J\nrow");
        assert_eq!(table.render(Style::Plain), "name  evil [2J row\n");
    }

    #[test]
    fn lines_do_not_widen_columns() {
        let mut table = sample();
        table.line("a line that is much wider than any of the columns above it");
        let text = table.render(Style::Plain);
        assert!(text.starts_with("VM           MB/s"), "{text}");
    }

    #[test]
    fn a_cell_of_blanks_or_with_blanks_around_it_stays_in_its_place() {
        let mut table = Table::new([("A", Align::Right), ("B", Align::Left)]);
        table.row([" x", " y"]).row(["long", ""]).row(["  ", "z"]);
        let text = table.render(Style::Plain);
        assert_eq!(text, "   A  B\n   x   y\nlong\n      z\n");
    }

    proptest! {
        #[test]
        fn every_row_is_a_line_and_colours_change_no_blank(
            rows in prop::collection::vec(prop::collection::vec("[ -~é数]{0,9}", 3), 0..6),
        ) {
            let columns = [("A", Align::Left), ("B", Align::Right), ("C", Align::Left)];
            let mut table = Table::new(columns);
            for row in &rows {
                let toned = |text: &String| Cell::from(text.as_str()).tone(Tone::Bad);
                table.row(row.iter().map(toned)).line("a line");
            }
            let plain = table.render(Style::Plain);
            prop_assert_eq!(plain.lines().count(), 1 + 2 * rows.len());
            let colour = table.render(Style::Colour);
            let bare = ["\x1b[31m", "\x1b[1m", "\x1b[0m"];
            let bare = bare.iter().fold(colour, |text, code| text.replace(code, ""));
            prop_assert_eq!(bare, plain);
        }
    }
}
