//! Dots and marks in the cells of a terminal.
//!
//! A cell holds dots of lines (two by four with braille, one by two in ASCII), or the mark of a
//! point, which hides them.

use super::Series;
use super::fitted::{Spot, marked};
use super::text::clip;

/// Marks on one line are this many cells apart where points are closer.
const MARKS_APART: usize = 6;
/// Dots drawn, and dots not drawn, of the lines of each series, by turns.
const DASHES: [(usize, usize); 4] = [(1, 0), (4, 3), (1, 2), (9, 3)];

/// Which characters a terminal can show.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Glyphs {
    /// Braille for lines, shapes for marks.
    #[default]
    Unicode,
    /// ASCII alone; other characters of names become `?`.
    Ascii,
}

impl Glyphs {
    /// Dots of a cell, across and down.
    fn dots(self) -> (usize, usize) {
        match self {
            Glyphs::Unicode => (2, 4),
            Glyphs::Ascii => (1, 2),
        }
    }

    /// A cell with these dots, bit `row * columns + column`.
    fn dotted(self, dots: u8) -> char {
        // Braille numbers its dots down the left, down the right, and the bottom row last.
        const BRAILLE: [u8; 8] = [0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80];
        match (self, dots) {
            (_, 0) => ' ',
            (Glyphs::Ascii, dots) => ['\'', '.', ':'][usize::from(dots & 3) - 1],
            (Glyphs::Unicode, dots) => {
                let set = (0..8).filter(|bit| dots >> bit & 1 == 1);
                let code = set.fold(0x2800, |code, bit| code | u32::from(BRAILLE[bit]));
                char::from_u32(code).expect("a braille pattern")
            }
        }
    }

    /// The mark of a series. Letters where shapes are used up.
    pub(super) fn mark(self, series: usize) -> char {
        const LETTERS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let shapes = match self {
            Glyphs::Unicode => ['●', '▲', '■', '◆', '○', '△', '□', '◇'],
            Glyphs::Ascii => ['o', 'x', '+', '#', '%', '&', '$', '='],
        };
        let letter = |i: usize| char::from(LETTERS[i % LETTERS.len()]);
        let shape = shapes.get(series).copied();
        shape.unwrap_or_else(|| letter(series - shapes.len()))
    }

    /// The mark of points of several series in one cell.
    pub(super) const SEVERAL: char = '*';

    /// The left edge, with and without a tick; the corner; the lower edge, without and with one.
    pub(super) fn frame(self) -> [char; 5] {
        match self {
            Glyphs::Unicode => ['┤', '│', '└', '─', '┬'],
            Glyphs::Ascii => ['+', '|', '+', '-', '+'],
        }
    }

    pub(super) fn text(self, text: &str) -> String {
        match self {
            Glyphs::Unicode => text.to_owned(),
            Glyphs::Ascii => text.replace(|c: char| !c.is_ascii(), "?"),
        }
    }

    /// What stands in place of text that is cut off.
    pub(super) fn ellipsis(self) -> char {
        match self {
            Glyphs::Unicode => '…',
            Glyphs::Ascii => '~',
        }
    }

    pub(super) fn clip(self, text: &str, width: usize) -> String {
        clip(&self.text(text), width, self.ellipsis())
    }
}

/// What a cell shows in place of dots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    None,
    Of(usize),
    Several,
}

#[derive(Clone, Copy)]
struct Cell {
    dots: u8,
    /// Whose dots came last.
    ink: usize,
    mark: Mark,
}

pub(super) struct Canvas {
    glyphs: Glyphs,
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    pub(super) fn new(glyphs: Glyphs, columns: usize, rows: usize) -> Canvas {
        let empty = Cell {
            dots: 0,
            ink: 0,
            mark: Mark::None,
        };
        Canvas {
            glyphs,
            columns,
            rows,
            cells: vec![empty; columns * rows],
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Whether a cell has points of several series.
    pub(super) fn has_shared_marks(&self) -> bool {
        self.cells.iter().any(|cell| cell.mark == Mark::Several)
    }

    /// The dot at a place, from the left and from above.
    fn dot(&self, x: f64, y: f64) -> (usize, usize) {
        let (across, down) = self.glyphs.dots();
        let of = |part: f64, dots: usize| (part * (dots - 1) as f64).round() as usize;
        (of(x, self.columns * across), of(1.0 - y, self.rows * down))
    }

    /// The cell at a place, its column and its row.
    pub(super) fn cell(&self, x: f64, y: f64) -> (usize, usize) {
        let (across, down) = self.glyphs.dots();
        let (x, y) = self.dot(x, y);
        (x / across, y / down)
    }

    fn set(&mut self, (x, y): (usize, usize), ink: usize) {
        let (across, down) = self.glyphs.dots();
        let cell = &mut self.cells[y / down * self.columns + x / across];
        cell.dots |= 1 << (y % down * across + x % across);
        cell.ink = ink;
    }

    /// A line between two dots; `drawn` counts the dots along it from where it began, dashes going
    /// on across its points.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), ink: usize, drawn: &mut usize) {
        let (on, off) = DASHES[ink % DASHES.len()];
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, i: usize| {
            // Rounded to the nearest.
            (2 * (a * (steps - i) + b * i) + steps) / (2 * steps)
        };
        for i in 0..=steps {
            if *drawn % (on + off) < on {
                let dot = (between(from.0, to.0, i), between(from.1, to.1, i));
                self.set(dot, ink);
            }
            // The last dot is the first of the next line.
            *drawn += usize::from(i < steps);
        }
    }

    fn mark(&mut self, (column, row): (usize, usize), series: usize) {
        let mark = &mut self.cells[row * self.columns + column].mark;
        *mark = match *mark {
            Mark::None => Mark::Of(series),
            Mark::Of(other) if other == series => Mark::Of(series),
            Mark::Of(_) | Mark::Several => Mark::Several,
        };
    }

    /// Draws the series `index` of a plot, over what is there.
    pub(super) fn draw(&mut self, index: usize, series: &Series, runs: &[Vec<Spot>]) {
        for spot in runs.iter().flatten() {
            if let Some((low, high)) = spot.interval {
                let (x, top) = self.dot(spot.x, high);
                let (_, bottom) = self.dot(spot.x, low);
                (top..=bottom).for_each(|y| self.set((x, y), index));
            }
        }
        if !series.joined {
            for spot in runs.iter().flatten() {
                self.mark(self.cell(spot.x, spot.y), index);
            }
            return;
        }
        let mut drawn = 0;
        for pair in runs.iter().flat_map(|run| run.windows(2)) {
            let ends = [pair[0], pair[1]].map(|spot| self.dot(spot.x, spot.y));
            self.line(ends[0], ends[1], index, &mut drawn);
        }
        for run in runs {
            let cells: Vec<_> = run.iter().map(|spot| self.cell(spot.x, spot.y)).collect();
            for i in marked(&cells, MARKS_APART, index) {
                self.mark(cells[i], index);
            }
        }
    }

    /// A row, as characters with the series that they belong to, without blanks at its end.
    pub(super) fn row(&self, row: usize) -> Vec<(char, Option<usize>)> {
        let cells = &self.cells[row * self.columns..][..self.columns];
        let mut before = None;
        let shown = cells.iter().map(|cell| {
            let (shown, series) = match cell.mark {
                Mark::Of(series) => (self.glyphs.mark(series), Some(series)),
                Mark::Several => (Glyphs::SEVERAL, None),
                // A blank has no colour, and is no reason to change it.
                Mark::None if cell.dots == 0 => (' ', before),
                Mark::None => (self.glyphs.dotted(cell.dots), Some(cell.ink)),
            };
            before = series;
            (shown, series)
        });
        let mut shown: Vec<_> = shown.collect();
        let end = shown.iter().rposition(|(c, _)| *c != ' ');
        shown.truncate(end.map_or(0, |end| end + 1));
        shown
    }
}
