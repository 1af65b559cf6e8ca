//! Plots as lines of text. Series differ in their marks and dashes, so that colours are not needed.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::canvas::{Canvas, Glyphs};
use super::fitted::{Fitted, Spot};
use super::scale::{Tick, label};
use super::{Plot, Series};
use crate::style::{Style, Tone};
use crate::text::wrap;

/// Minimum width in columns and height in lines of a plot.
const MIN_SIZE: (usize, usize) = (24, 3);
/// Maximum width in columns and height in lines of a plot.
const MAX_SIZE: (usize, usize) = (1000, 1000);

/// Columns between two entries of the legend.
const ENTRY_GAP: usize = 3;

/// Size and capabilities of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Screen {
    /// Columns; no line is longer. At least 24 are used.
    pub width: usize,
    /// Lines between the axes, at least 3; title, labels and legend are added.
    pub height: usize,
    /// Use of colours.
    pub style: Style,
    /// Characters that the terminal can show.
    pub glyphs: Glyphs,
}

/// Plot on a screen: its canvas, the ticks of the y axis and the margin.
struct TextLayout<'a> {
    fitted: Fitted<'a>,
    screen: Screen,
    canvas: Canvas,
    y_ticks: Vec<Tick>,
    /// Columns left of the frame.
    margin: usize,
}

impl Plot {
    /// Renders the plot as text; every line is ended, and none has trailing spaces.
    pub fn render(&self, screen: &Screen) -> String {
        TextLayout::new(self, *screen).render()
    }
}

impl<'a> TextLayout<'a> {
    fn new(plot: &'a Plot, screen: Screen) -> TextLayout<'a> {
        let fitted = Fitted::new(plot);
        let screen = Screen {
            width: screen.width.clamp(MIN_SIZE.0, MAX_SIZE.0),
            height: screen.height.clamp(MIN_SIZE.1, MAX_SIZE.1),
            ..screen
        };
        // One column is enough: this canvas only maps the positions of ticks to rows.
        let rows = Canvas::new(screen.glyphs, 1, screen.height);
        let y_ticks = fitted.y.ticks((screen.height / 2).min(8), |ticks| {
            let row = |tick: &Tick| rows.cell(0.0, tick.at).1;
            ticks.windows(2).all(|pair| row(&pair[0]) > row(&pair[1]))
        });
        let labels = y_ticks.iter().map(|tick| tick.label.len());
        // Labels are usually short; a long one gets at most half of the width.
        let margin = labels.max().unwrap_or(0).min(screen.width / 2) + 1;
        let mut canvas = Canvas::new(screen.glyphs, screen.width - margin - 1, screen.height);
        for (i, level) in plot.levels.iter().enumerate() {
            let spot = |x| Spot {
                x,
                y: fitted.y.position(level.at),
                interval: None,
            };
            if fitted.plot.y.scale.shows(level.at) {
                let line = Series::line(&level.name);
                canvas.draw(plot.series.len() + i, &line, &[vec![spot(0.0), spot(1.0)]]);
            }
        }
        // In reverse order, so that the first series is on top.
        for (i, runs) in fitted.series.iter().enumerate().rev() {
            canvas.draw(i, &plot.series[i], runs);
        }
        TextLayout {
            fitted,
            screen,
            canvas,
            y_ticks,
            margin,
        }
    }

    fn render(&self) -> String {
        let Screen { style, glyphs, .. } = self.screen;
        let plot = self.fitted.plot;
        let mut out = String::new();
        let mut line = |text: &str| {
            let _ = writeln!(out, "{}", text.trim_end());
        };
        for text in self.wrapped(&plot.title) {
            line(&style.paint(Tone::Strong, &text));
        }
        line(&glyphs.clip(&plot.y.heading(), self.screen.width));
        (0..self.screen.height).for_each(|row| line(&self.row(row)));
        let (edge, labels) = self.x_axis();
        line(&edge);
        line(&labels);
        let heading = glyphs.clip(&plot.x.heading(), self.canvas.columns());
        let before = self.margin + 1 + (self.canvas.columns() - heading.width()) / 2;
        line(&format!("{:before$}{heading}", ""));
        self.legend().iter().for_each(|text| line(text));
        for text in self.stretches().iter().flat_map(|it| self.wrapped(it)) {
            line(&text);
        }
        for text in self.fitted.notes.iter().flat_map(|note| self.wrapped(note)) {
            line(&style.paint(Tone::Warn, &text));
        }
        out
    }

    /// Renders a line between the axes, with the y axis's label.
    fn row(&self, row: usize) -> String {
        let frame = self.screen.glyphs.frame();
        let room = self.margin - 1;
        let is_here = |tick: &&Tick| self.canvas.cell(0.0, tick.at).1 == row;
        let mut text = match self.y_ticks.iter().find(is_here) {
            Some(tick) => {
                let label = self.screen.glyphs.clip(&tick.label, room);
                format!("{label:>room$} {}", frame.left_tick)
            }
            None => format!("{:room$} {}", "", frame.left),
        };
        let mut cells = self.canvas.row(row);
        if self.fitted.is_empty() && row == self.screen.height / 2 {
            // The words replace the begin of a reference line that crosses this row.
            let words = self
                .screen
                .glyphs
                .clip(" nothing to plot", self.canvas.columns());
            cells.drain(..words.width().min(cells.len()));
            text.push_str(&words);
        }
        for run in cells.chunk_by(|a, b| a.1 == b.1) {
            let shown: String = run.iter().map(|(c, _)| c).collect();
            match run[0].1 {
                Some(series) => text.push_str(&self.screen.style.paint_series(series, &shown)),
                None => text.push_str(&shown),
            }
        }
        text
    }

    /// Renders the lower edge, and the labels below it.
    fn x_axis(&self) -> (String, String) {
        let frame = self.screen.glyphs.frame();
        let column = |tick: &Tick| self.canvas.cell(tick.at, 0.0).0;
        // A label is centred below its tick, within the terminal.
        let begin = |tick: &Tick| {
            let (width, at) = (tick.label.len(), self.margin + 1 + column(tick));
            let last = self.screen.width.saturating_sub(width);
            at.saturating_sub(width / 2).min(last)
        };
        // At least two spaces between labels, because some contain one themselves.
        let apart = |pair: &[Tick]| begin(&pair[0]) + pair[0].label.len() + 2 <= begin(&pair[1]);
        // A label with its gap takes five columns at least.
        let most = (self.canvas.columns() / 5).clamp(2, 12);
        let ticks = (self.fitted.x).ticks(most, |ticks| ticks.windows(2).all(apart));
        let mut axis: Vec<char> = vec![frame.bottom; self.canvas.columns()];
        let mut labels = String::new();
        for tick in &ticks {
            axis[column(tick)] = frame.bottom_tick;
            let blanks = begin(tick) - labels.len();
            let _ = write!(labels, "{:blanks$}{}", "", tick.label);
        }
        let axis: String = axis.into_iter().collect();
        (
            format!("{:1$}{2}{axis}", "", self.margin, frame.corner),
            labels,
        )
    }

    /// Returns the names of thresholds with their places, and of stretches with their begins and
    /// ends.
    fn stretches(&self) -> Vec<String> {
        let x = &self.fitted.plot.x;
        let stretches = self.fitted.plot.stretches.iter();
        let line = |it: &super::Stretch| {
            let (from, to) = (label(it.from, x.unit), label(it.to, x.unit));
            format!("{}: {} from {from} to {to}", it.name, x.heading())
        };
        let thresholds = self.fitted.plot.thresholds.iter();
        let threshold = |it: &super::Line| {
            let at = label(it.at, x.unit);
            format!("{}: {} at {at}", it.name, x.heading())
        };
        thresholds
            .map(threshold)
            .chain(stretches.map(line))
            .collect()
    }

    /// Renders the legend on as many lines as necessary.
    fn legend(&self) -> Vec<String> {
        let Screen {
            style,
            glyphs,
            width,
            ..
        } = self.screen;
        let indent = (self.margin + 1).min(width / 4);
        let plot = self.fitted.plot;
        let names = plot.series.iter().map(|series| &series.name);
        let names = names.chain(plot.levels.iter().map(|level| &level.name));
        let mut entries: Vec<(usize, String)> = (names.enumerate())
            .map(|(i, name)| {
                let mark = glyphs.mark(i).to_string();
                let name = glyphs.clip(name, width - indent - 2);
                (
                    name.width() + 2,
                    format!("{} {name}", style.paint_series(i, &mark)),
                )
            })
            .collect();
        if self.canvas.has_shared_marks() {
            let entry = format!("{} more than one", Glyphs::SEVERAL);
            entries.push((entry.len(), entry));
        }
        let mut lines: Vec<String> = Vec::new();
        // Full, so that the first entry begins a line.
        let mut used = width;
        for (columns, entry) in entries {
            match (lines.last_mut()).filter(|_| used + ENTRY_GAP + columns <= width) {
                Some(line) => {
                    let _ = write!(line, "{:ENTRY_GAP$}{entry}", "");
                    used += ENTRY_GAP + columns;
                }
                None => {
                    lines.push(format!("{:indent$}{entry}", ""));
                    used = indent + columns;
                }
            }
        }
        lines
    }

    /// Wraps text at the terminal's width.
    fn wrapped(&self, text: &str) -> Vec<String> {
        let glyphs = self.screen.glyphs;
        wrap(&glyphs.text(text), self.screen.width, glyphs.ellipsis())
    }
}
