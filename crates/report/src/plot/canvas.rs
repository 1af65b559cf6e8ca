//! Canvas of a plot on a terminal: dots and marks in character cells.
//!
//! A cell holds dots of lines (two by four in braille, one by two in ASCII), or the mark of a
//! point, which hides them.

use super::Series;
use super::fitted::{Spot, points_to_mark};
use crate::text::clip;

/// Minimum distance in cells of marks along one line; closer points get none.
const MARKS_APART: usize = 6;
/// Dash patterns of series, used in turn: numbers of dots drawn and skipped.
const DASHES: [(usize, usize); 4] = [(1, 0), (4, 3), (1, 2), (9, 3)];

/// Characters of the left and the lower edge of a plot.
pub(super) struct Frame {
    /// Left edge at a tick.
    pub(super) left_tick: char,
    pub(super) left: char,
    pub(super) corner: char,
    pub(super) bottom: char,
    /// Lower edge at a tick.
    pub(super) bottom_tick: char,
}

/// Characters that a terminal can show.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Glyphs {
    /// Braille for lines, and shapes for marks.
    #[default]
    Unicode,
    /// ASCII only; other characters of names become `?`.
    Ascii,
}

impl Glyphs {
    /// Returns the dots of a cell, horizontally and vertically.
    fn dots(self) -> (usize, usize) {
        match self {
            Glyphs::Unicode => (2, 4),
            Glyphs::Ascii => (1, 2),
        }
    }

    /// Returns the character with these dots; bit `row * columns + column` stands for a dot.
    fn dotted(self, dots: u8) -> char {
        // Unicode numbers braille dots down the left column, down the right one, then the bottom
        // row.
        const BRAILLE: [u8; 8] = [0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80];
        match (self, dots) {
            (_, 0) => ' ',
            // Bit 0 is the upper dot, bit 1 the lower one.
            (Glyphs::Ascii, dots) => ['\'', '.', ':'][usize::from(dots & 3) - 1],
            (Glyphs::Unicode, dots) => {
                let set = (0..8).filter(|bit| dots >> bit & 1 == 1);
                let code = set.fold(0x2800, |code, bit| code | u32::from(BRAILLE[bit]));
                char::from_u32(code).expect("a braille pattern")
            }
        }
    }

    /// Returns the mark of a series; a letter if there are more series than shapes.
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

    /// Mark of a cell with points of several series.
    pub(super) const SEVERAL: char = '*';

    pub(super) fn frame(self) -> Frame {
        let [left_tick, left, corner, bottom, bottom_tick] = match self {
            Glyphs::Unicode => ['┤', '│', '└', '─', '┬'],
            Glyphs::Ascii => ['+', '|', '+', '-', '+'],
        };
        Frame {
            left_tick,
            left,
            corner,
            bottom,
            bottom_tick,
        }
    }

    pub(super) fn text(self, text: &str) -> String {
        match self {
            Glyphs::Unicode => text.to_owned(),
            Glyphs::Ascii => text.replace(|c: char| !c.is_ascii(), "?"),
        }
    }

    /// Returns the character that replaces text that is cut off.
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

/// Mark that a cell shows instead of dots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    None,
    /// Mark of the series with this index.
    Series(usize),
    Several,
}

#[derive(Clone, Copy)]
struct Cell {
    dots: u8,
    /// Series whose dots were drawn last.
    series: usize,
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
            series: 0,
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

    /// Returns true if a cell has points of several series.
    pub(super) fn has_shared_marks(&self) -> bool {
        self.cells.iter().any(|cell| cell.mark == Mark::Several)
    }

    /// Returns the dot at a position (0 to 1, from the left and from below), counted from the left
    /// and from above.
    fn dot(&self, x: f64, y: f64) -> (usize, usize) {
        let (across, down) = self.glyphs.dots();
        let of = |part: f64, dots: usize| (part * (dots - 1) as f64).round() as usize;
        (of(x, self.columns * across), of(1.0 - y, self.rows * down))
    }

    /// Returns the cell at a position (0 to 1, from the left and from below): column and row.
    pub(super) fn cell(&self, x: f64, y: f64) -> (usize, usize) {
        let (across, down) = self.glyphs.dots();
        let (x, y) = self.dot(x, y);
        (x / across, y / down)
    }

    fn set(&mut self, (x, y): (usize, usize), series: usize) {
        let (across, down) = self.glyphs.dots();
        let cell = &mut self.cells[y / down * self.columns + x / across];
        cell.dots |= 1 << (y % down * across + x % across);
        cell.series = series;
    }

    /// Draws a line between two dots. `drawn` counts the dots since the series began, so that
    /// dashes continue across its points.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), series: usize, drawn: &mut usize) {
        let (on, off) = DASHES[series % DASHES.len()];
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, i: usize| {
            // Integer interpolation, rounded to the nearest.
            (2 * (a * (steps - i) + b * i) + steps) / (2 * steps)
        };
        for i in 0..=steps {
            if *drawn % (on + off) < on {
                let dot = (between(from.0, to.0, i), between(from.1, to.1, i));
                self.set(dot, series);
            }
            // The last dot is also the first of the next line.
            *drawn += usize::from(i < steps);
        }
    }

    fn mark(&mut self, (column, row): (usize, usize), series: usize) {
        let mark = &mut self.cells[row * self.columns + column].mark;
        *mark = match *mark {
            Mark::None => Mark::Series(series),
            Mark::Series(other) if other == series => Mark::Series(series),
            Mark::Series(_) | Mark::Several => Mark::Several,
        };
    }

    /// Draws series `index` of a plot over what is there.
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
            for i in points_to_mark(&cells, MARKS_APART, index) {
                self.mark(cells[i], index);
            }
        }
    }

    /// Returns a row as characters, each with the series that it belongs to, without trailing
    /// spaces.
    pub(super) fn row(&self, row: usize) -> Vec<(char, Option<usize>)> {
        let cells = &self.cells[row * self.columns..][..self.columns];
        let mut before = None;
        let shown = cells.iter().map(|cell| {
            let (shown, series) = match cell.mark {
                Mark::Series(series) => (self.glyphs.mark(series), Some(series)),
                Mark::Several => (Glyphs::SEVERAL, None),
                // A space has no visible colour, so it continues the one before.
                Mark::None if cell.dots == 0 => (' ', before),
                Mark::None => (self.glyphs.dotted(cell.dots), Some(cell.series)),
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
