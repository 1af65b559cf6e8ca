//! Tables whose columns fit the width of the terminal: columns that matter less are left out, and
//! room that is left goes to those that need it.

use tidegate_report::{Align, Cell, Tone};

use super::canvas::{Canvas, width_of};

/// Column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) align: Align,
    /// Width without which the column is left out.
    pub(crate) least: usize,
    /// Width up to which it grows.
    pub(crate) most: usize,
    /// Rank among the columns that are left out where there is no room, the lowest first.
    pub(crate) rank: u8,
    /// False if the column is left out however wide the terminal is.
    pub(crate) has_use: bool,
}

impl Column {
    pub(crate) const fn left(heading: &'static str, least: usize, rank: u8) -> Column {
        Column {
            heading,
            align: Align::Left,
            least,
            most: least,
            rank,
            has_use: true,
        }
    }

    pub(crate) const fn right(heading: &'static str, least: usize, rank: u8) -> Column {
        Column {
            align: Align::Right,
            ..Column::left(heading, least, rank)
        }
    }

    /// Returns the column, which is left out unless it is of use.
    pub(crate) fn only_if(self, has_use: bool) -> Column {
        Column { has_use, ..self }
    }

    /// Returns the column with a larger width where there is room.
    pub(crate) fn up_to(mut self, most: usize) -> Column {
        self.most = most.max(self.least);
        self
    }
}

/// Returns the width of each column, or `None` where it is left out. Columns are one blank apart.
pub(crate) fn fit(columns: &[Column], width: usize) -> Vec<Option<usize>> {
    let least = |column: &Column| column.has_use.then_some(column.least);
    let mut widths: Vec<Option<usize>> = columns.iter().map(least).collect();
    let used = |widths: &[Option<usize>]| {
        let shown = widths.iter().flatten();
        shown
            .map(|width| width + 1)
            .sum::<usize>()
            .saturating_sub(1)
    };
    while used(&widths) > width {
        let shown = (0..columns.len()).filter(|&i| widths[i].is_some());
        let Some(least) = shown.min_by_key(|&i| columns[i].rank) else {
            break;
        };
        widths[least] = None;
    }
    let mut left = width.saturating_sub(used(&widths));
    for (column, width) in columns.iter().zip(&mut widths) {
        if let Some(width) = width {
            let more = left.min(column.most - column.least);
            *width += more;
            left -= more;
        }
    }
    widths
}

/// Draws the headings of columns in a row; the column `sorted` is underlined.
pub(crate) fn headings(
    canvas: &mut Canvas<'_>,
    y: usize,
    columns: &[Column],
    widths: &[Option<usize>],
    sorted: Option<usize>,
) {
    let mut x = 0;
    for (i, (column, width)) in columns.iter().zip(widths).enumerate() {
        let Some(width) = *width else { continue };
        let cell = Cell::from(column.heading).tone(Tone::Strong);
        canvas.cell((x, y), width, &cell, column.align);
        if sorted == Some(i) {
            let used = width_of(column.heading).min(width);
            let blanks = match column.align {
                Align::Left => 0,
                Align::Right => width - used,
            };
            canvas.underline((x + blanks, y), used);
        }
        x += width + 1;
    }
}

/// Draws the cells of a row.
pub(crate) fn row(
    canvas: &mut Canvas<'_>,
    y: usize,
    columns: &[Column],
    widths: &[Option<usize>],
    cells: &[Cell],
) {
    let mut x = 0;
    for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
        if let Some(width) = *width {
            canvas.cell((x, y), width, cell, column.align);
            x += width + 1;
        }
    }
}

/// Returns the first of `len` rows to show in `room` rows so that row `selected` is among them, in
/// the middle where possible.
pub(crate) fn first_row(len: usize, room: usize, selected: usize) -> usize {
    selected
        .saturating_sub(room / 2)
        .min(len.saturating_sub(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_low_rank_go_first_and_room_goes_to_those_that_grow() {
        let columns = [
            Column::left("A", 4, 9),
            Column::left("B", 4, 1).up_to(10),
            Column::right("C", 4, 5).up_to(6),
        ];
        assert_eq!(fit(&columns, 14), [Some(4), Some(4), Some(4)]);
        assert_eq!(fit(&columns, 13), [Some(4), None, Some(6)]);
        assert_eq!(fit(&columns, 8), [Some(4), None, None]);
        assert_eq!(fit(&columns, 3), [None, None, None]);
        assert_eq!(fit(&columns, 17), [Some(4), Some(7), Some(4)]);
        assert_eq!(fit(&columns, 99), [Some(4), Some(10), Some(6)]);
        let columns = columns.map(|column| Column {
            has_use: column.heading != "A",
            ..column
        });
        assert_eq!(fit(&columns, 99), [None, Some(10), Some(6)]);
    }

    #[test]
    fn the_selected_row_is_always_shown() {
        for len in 1..20 {
            for selected in 0..len {
                let first = first_row(len, 5, selected);
                assert!(
                    (first..first + 5).contains(&selected),
                    "{selected} of {len}"
                );
                assert!(first == 0 || first + 5 <= len, "no blank rows at the end");
            }
        }
    }
}
