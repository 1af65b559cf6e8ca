//! Plots as SVG: a document without scripts, fonts or other external resources, which follows the
//! reader's light or dark scheme and has the same bytes on every machine.
//!
//! Series differ in shape and dashes as well as in colour. Elements have no ids, so that several
//! documents can be embedded in one page.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::fitted::{Fitted, Spot, counted, points_to_mark};
use super::scale::{Tick, label};
use super::{Plot, Scale, labels_below, svg_style};
use crate::text::{clip, wrap};

pub(crate) use super::svg_text::escape;
pub(super) use super::svg_text::{COLUMN_WIDTH, text};

/// Width of a document in SVG units.
pub(super) const WIDTH: f64 = 720.0;
/// Height of the frame in SVG units.
const FRAME_HEIGHT: f64 = 340.0;
/// Width of a compact plot in SVG units: two fit side by side on a page.
const COMPACT_WIDTH: f64 = 480.0;
/// Height of the frame of a compact plot in SVG units.
const COMPACT_FRAME_HEIGHT: f64 = 220.0;
/// Distance from the upper edge to the frame, in SVG units.
const TOP_MARGIN: f64 = 48.0;
/// Additional space above the frame for the names of stretches, the shaded ranges of the x axis.
const STRETCH_NAMES_HEIGHT: f64 = 16.0;
/// Minimum distance from the frame to the right edge, in SVG units.
const RIGHT_MARGIN: f64 = 24.0;
/// Baseline of the title.
const TITLE_BASELINE: f64 = 28.0;
/// Distance of a stretch's name from the frame below it.
const STRETCH_NAME_GAP: f64 = 5.0;
/// Height of the tick labels and the name of the x axis below the frame.
const AXIS_BAND: f64 = 56.0;
/// Distance from the frame down to the baseline of the x axis's tick labels.
const X_TICK_BASELINE: f64 = 18.0;
/// Distance from the frame down to the baseline of the x axis's name.
const X_NAME_BASELINE: f64 = 40.0;
/// Distance of the y axis's tick labels from the frame.
const Y_TICK_GAP: f64 = 7.0;
/// Distance of the y axis's name, which is turned, from the left edge.
const Y_NAME_X: f64 = 18.0;
/// Width left of the y axis's tick labels, for the axis's name.
const Y_NAME_WIDTH: f64 = 40.0;
/// Distance from the middle of a line of text down to its baseline: a third of the font's 13 units.
const BASELINE_SHIFT: f64 = 4.5;
/// Place of a level's name beside the left end of its reference line: to the right, and above.
const LEVEL_NAME_SHIFT: (f64, f64) = (8.0, 6.0);
/// Distance of the baseline of the first threshold's name from the upper edge of the frame.
const THRESHOLD_NAME_BASELINE: f64 = 15.0;
/// Distance from the frame down to the baseline of the first line of the legend.
const LEGEND_BASELINE: f64 = 68.0;
/// Length of a line in the legend, with the mark in its middle.
const LEGEND_LINE: f64 = 26.0;
/// Height of the sample of a stretch in the legend.
const LEGEND_STRETCH_HEIGHT: f64 = 12.0;
/// Width of a line or mark in the legend, with the gap to its name.
const LEGEND_MARK_WIDTH: f64 = 34.0;
/// Distance between two entries of the legend.
const LEGEND_GAP: f64 = 18.0;
/// Half of the width of the bar at an end of an interval.
const INTERVAL_BAR: f64 = 3.0;
/// Distance from the frame to a label at a line's end.
const LABEL_GAP: f64 = 8.0;
/// Line height of legend and notes.
const LINE_HEIGHT: f64 = 20.0;
/// Approximate width of a column of a label, which is bold.
const LABEL_COLUMN_WIDTH: f64 = 8.2;
/// Minimum distance of marks along one line; closer points get none.
const MARKS_APART: usize = 24;
/// Character that replaces text that is cut off.
const ELLIPSIS: char = '…';

/// Marks as paths around the current point: circle, square, triangle, diamond, cross, plus,
/// inverted triangle, hourglass. Their number has no common divisor with that of the colours, so
/// that pairs of both repeat late.
const MARKS: [&str; 8] = [
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "m-3-3h6v6h-6z",
    "m0-4l4 7h-8z",
    "m0-4.5l4.5 4.5-4.5 4.5-4.5-4.5z",
    "m-3.5-3.5l7 7m0-7l-7 7",
    "m-4 0h8m-4-4v8",
    "m0 4l4-7h-8z",
    "m-3.5-4h7l-7 8h7z",
];

/// Renders plots as one SVG document, one below the other.
pub fn svg(plots: &[Plot]) -> String {
    document(plots, &format!("<style>\n{}</style>\n", svg_style::rules()))
}

/// Renders a plot as an element of a page that has the style sheet of plots.
pub(crate) fn embedded(plot: &Plot) -> String {
    document(std::slice::from_ref(plot), "")
}

/// Renders plots one below the other, with an element for their style.
fn document(plots: &[Plot], style: &str) -> String {
    let mut body = String::new();
    let (mut width, mut height) = (0.0, 0.0);
    for plot in plots {
        let drawing = Drawing::new(plot);
        let _ = writeln!(
            body,
            "<g role=\"img\" transform=\"translate(0 {height:.1})\">"
        );
        body.push_str(&drawing.render());
        body.push_str("</g>\n");
        height += drawing.height();
        width = drawing.width.max(width);
    }
    let titles: Vec<String> = plots.iter().map(|plot| escape(&plot.title)).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tidegate-plot\" \
         viewBox=\"0 0 {width} {height:.1}\" width=\"{width}\" height=\"{height:.1}\">\n\
         <title>{}</title>\n{style}\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        titles.join("; "),
    )
}

/// Layout of one plot, relative to its upper left corner.
struct Drawing<'a> {
    fitted: Fitted<'a>,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    width: f64,
    frame_height: f64,
    /// Distance of the frame from the left edge.
    left: f64,
    /// Distance of the frame from the right edge.
    right: f64,
    /// Distance of the frame from the upper edge.
    above: f64,
    /// Entries of the legend below the plot.
    legend: Vec<LegendEntry>,
    legend_lines: usize,
    /// Lines of notes below the legend.
    notes: Vec<String>,
}

/// Entry of the legend below a plot.
struct LegendEntry {
    /// Distance of its left end from the left edge.
    left: f64,
    /// Line of the legend, from 0.
    line: usize,
    sample: Sample,
    name: String,
}

/// Sample of what an entry of the legend names.
enum Sample {
    /// Series with this index.
    Series(usize),
    /// Level or threshold.
    Line,
    Stretch,
}

impl<'a> Drawing<'a> {
    fn new(plot: &'a Plot) -> Drawing<'a> {
        let fitted = Fitted::new(plot);
        let (width, frame_height) = match plot.compact {
            true => (COMPACT_WIDTH, COMPACT_FRAME_HEIGHT),
            false => (WIDTH, FRAME_HEIGHT),
        };
        let y_ticks = fitted.y.ticks(if plot.compact { 6 } else { 8 }, |_| true);
        let widest = y_ticks.iter().map(|tick| tick.label.len()).max();
        // Labels of ticks may have up to 24 columns. They are ASCII, so a byte is a column.
        let left = Y_NAME_WIDTH + widest.unwrap_or(0).min(24) as f64 * COLUMN_WIDTH;
        let right = right_margin(plot, width);
        let across = |tick: &Tick| tick.at * (width - right - left);
        let x_ticks = fitted.x.ticks(10, |ticks| {
            ticks.windows(2).all(|pair| {
                // Two columns between neighbours.
                let columns = pair[0].label.len().max(pair[1].label.len()) + 2;
                across(&pair[1]) - across(&pair[0]) >= columns as f64 * COLUMN_WIDTH
            })
        });
        let mut drawing = Drawing {
            x_ticks,
            y_ticks,
            width,
            frame_height,
            left,
            right,
            above: if plot.compact || plot.stretches.is_empty() {
                TOP_MARGIN
            } else {
                TOP_MARGIN + STRETCH_NAMES_HEIGHT
            },
            legend: Vec::new(),
            legend_lines: 0,
            notes: fitted
                .notes
                .iter()
                .flat_map(|note| wrap(note, columns(width - RIGHT_MARGIN - left), ELLIPSIS))
                .collect(),
            fitted,
        };
        if !plot.labelled {
            drawing.place_legend();
        }
        drawing
    }

    fn place_legend(&mut self) {
        let plot = self.fitted.plot;
        let series = plot.series.iter().enumerate();
        let mut entries: Vec<_> = series
            .map(|(n, series)| (Sample::Series(n), series.name.as_str()))
            .collect();
        // There is no room for the names of levels and stretches within a compact plot.
        if plot.compact {
            let named = self.shown_levels().chain(self.shown_thresholds());
            entries.extend(named.map(|line| (Sample::Line, line.name.as_str())));
            let stretches = plot.stretches.iter();
            entries.extend(stretches.map(|it| (Sample::Stretch, it.name.as_str())));
        }
        let (mut legend, mut lines) = (Vec::new(), 0);
        // Full, so that the first entry opens a line.
        let mut from = self.width;
        for (sample, name) in entries {
            let room = self.width - RIGHT_MARGIN - self.left - LEGEND_MARK_WIDTH;
            let name = clip(name, columns(room), ELLIPSIS);
            let width = LEGEND_MARK_WIDTH + name.width() as f64 * COLUMN_WIDTH;
            if from + width > self.width - RIGHT_MARGIN {
                from = self.left;
                lines += 1;
            }
            legend.push(LegendEntry {
                left: from,
                line: lines - 1,
                sample,
                name,
            });
            from += width + LEGEND_GAP;
        }
        (self.legend, self.legend_lines) = (legend, lines);
    }

    fn height(&self) -> f64 {
        let lines = self.legend_lines + self.notes.len();
        let axis = AXIS_BAND + labels_below::height(&self.fitted.plot.x);
        self.above + self.frame_height + axis + lines as f64 * LINE_HEIGHT
    }

    /// Converts a position within the frame (0 to 1) into coordinates.
    fn coordinates(&self, x: f64, y: f64) -> (f64, f64) {
        (
            self.left + x * (self.width - self.right - self.left),
            self.above + (1.0 - y) * self.frame_height,
        )
    }

    fn render(&self) -> String {
        let mut out = String::new();
        let plot = self.fitted.plot;
        let _ = writeln!(out, "<title>{}</title>", escape(&plot.title));
        let _ = writeln!(out, "<desc>{}</desc>", escape(&self.describe()));
        let title = clip(
            &plot.title,
            // Titles are larger than other text, which `columns` counts in.
            columns(self.width - 2.0 * RIGHT_MARGIN) * 3 / 4,
            ELLIPSIS,
        );
        let at = (RIGHT_MARGIN, TITLE_BASELINE);
        text(&mut out, "class=\"title\"", at, &title);
        self.stretches(&mut out);
        self.axes(&mut out);
        self.levels(&mut out);
        // In reverse order, so that the first series is on top.
        for i in (0..plot.series.len()).rev() {
            self.series(&mut out, i);
        }
        self.names_of_levels(&mut out);
        if plot.labelled {
            self.labels(&mut out);
        }
        self.legend_and_notes(&mut out);
        out
    }

    /// Draws the shaded stretches of the x axis, with their names above the frame.
    fn stretches(&self, out: &mut String) {
        let plot = self.fitted.plot;
        for it in &plot.stretches {
            if !(plot.x.scale.shows(it.from) && plot.x.scale.shows(it.to)) {
                continue;
            }
            let ((from, top), (to, _)) = (
                self.coordinates(self.fitted.x.position(it.from), 1.0),
                self.coordinates(self.fitted.x.position(it.to), 1.0),
            );
            let width = to - from;
            rect(out, "stretch", (from, top), (width, self.frame_height));
            if plot.compact {
                // The name is in the legend.
                continue;
            }
            let name = clip(&it.name, columns(width), ELLIPSIS);
            let middle = "class=\"aside\" text-anchor=\"middle\"";
            let at = ((from + to) / 2.0, top - STRETCH_NAME_GAP);
            text(out, middle, at, &name);
        }
    }

    /// Draws the reference lines of levels and thresholds.
    fn levels(&self, out: &mut String) {
        let mut lines = String::new();
        for threshold in self.shown_thresholds() {
            let (x, top) = self.coordinates(self.fitted.x.position(threshold.at), 1.0);
            let (_, bottom) = self.coordinates(0.0, 0.0);
            let _ = write!(lines, "M{x:.1} {top:.1}V{bottom:.1}");
        }
        for level in self.shown_levels() {
            let (left, y) = self.coordinates(0.0, self.fitted.y.position(level.at));
            let (right, _) = self.coordinates(1.0, 0.0);
            let _ = write!(lines, "M{left:.1} {y:.1}H{right:.1}");
        }
        if !lines.is_empty() {
            let _ = writeln!(out, "<path class=\"level\" d=\"{lines}\"/>");
        }
    }

    /// Draws the names of levels and thresholds, after the series so that they stay readable.
    fn names_of_levels(&self, out: &mut String) {
        // Those of a compact plot are in its legend.
        if self.fitted.plot.compact {
            return;
        }
        let (from, to) = (self.left, self.width - self.right);
        let (gap, up) = LEVEL_NAME_SHIFT;
        // Names beside the right and the left end of a level or threshold.
        let draw = |out: &mut String, left: bool, (x, y): (f64, f64), name: &str| {
            let (anchor, x, room) = match left {
                true => ("", x + gap, to - x - gap),
                false => (" text-anchor=\"end\"", x - gap, x - gap - from),
            };
            let name = clip(name, columns(room), ELLIPSIS);
            text(out, &format!("class=\"aside\"{anchor}"), (x, y), &name);
        };
        let position = |level: &super::Line| self.fitted.y.position(level.at);
        let mut levels: Vec<_> = self.shown_levels().collect();
        levels.sort_by(|a, b| position(a).total_cmp(&position(b)));
        let (mut left, mut last) = (true, f64::INFINITY);
        for level in levels {
            let (_, y) = self.coordinates(0.0, position(level));
            // The name of a level just above another one is at the other end.
            left = last - y >= LINE_HEIGHT || !left;
            last = y;
            let x = if left { from } else { to };
            draw(out, left, (x, y - up), &level.name);
        }
        for (n, threshold) in self.shown_thresholds().enumerate() {
            let at = self.fitted.x.position(threshold.at);
            let (x, top) = self.coordinates(at, 1.0);
            let y = top + THRESHOLD_NAME_BASELINE + n as f64 * LINE_HEIGHT;
            draw(out, at < 0.5, (x, y), &threshold.name);
        }
    }

    fn shown_levels(&self) -> impl Iterator<Item = &super::Line> {
        let plot = self.fitted.plot;
        let levels = plot.levels.iter();
        levels.filter(|level| plot.y.scale.shows(level.at))
    }

    fn shown_thresholds(&self) -> impl Iterator<Item = &super::Line> {
        let plot = self.fitted.plot;
        let thresholds = plot.thresholds.iter();
        thresholds.filter(|it| plot.x.scale.shows(it.at))
    }

    /// Draws the names of lines at their right ends, with at least a line's height between them.
    fn labels(&self, out: &mut String) {
        let plot = self.fitted.plot;
        let mut ends: Vec<(f64, usize)> = Vec::new();
        for (i, runs) in self.fitted.series.iter().enumerate() {
            if let Some(last) = runs.last().and_then(|run| run.last()) {
                ends.push((self.coordinates(last.x, last.y).1, i));
            }
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        // From the lowest one upwards, so that none leaves the frame at the bottom.
        let mut below = self.above + self.frame_height + LINE_HEIGHT;
        for (y, _) in ends.iter_mut().rev() {
            *y = y.min(below - LINE_HEIGHT);
            below = *y;
        }
        let x = self.width - self.right + LABEL_GAP;
        for (y, i) in ends {
            let class = format!("class=\"label t{}\"", i % svg_style::COLOURS);
            let room = ((self.right - LABEL_GAP) / LABEL_COLUMN_WIDTH) as usize;
            let name = clip(&plot.series[i].name, room, ELLIPSIS);
            text(out, &class, (x, y + BASELINE_SHIFT), &name);
        }
    }

    fn axes(&self, out: &mut String) {
        let plot = self.fitted.plot;
        let ((left, bottom), (right, top)) =
            (self.coordinates(0.0, 0.0), self.coordinates(1.0, 1.0));
        let mut grid = String::new();
        for tick in &self.x_ticks {
            let (x, _) = self.coordinates(tick.at, 0.0);
            let _ = write!(grid, "M{x:.1} {top:.1}V{bottom:.1}");
        }
        for tick in &self.y_ticks {
            let (_, y) = self.coordinates(0.0, tick.at);
            let _ = write!(grid, "M{left:.1} {y:.1}H{right:.1}");
        }
        let _ = writeln!(out, "<path class=\"grid\" d=\"{grid}\"/>");
        let frame = format!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}");
        let _ = writeln!(out, "<path class=\"frame\" d=\"{frame}\"/>");
        for tick in &self.x_ticks {
            let (x, y) = self.coordinates(tick.at, 0.0);
            let at = (x, y + X_TICK_BASELINE);
            text(out, "text-anchor=\"middle\"", at, &tick.label);
        }
        for tick in &self.y_ticks {
            let (x, y) = self.coordinates(0.0, tick.at);
            let at = (x - Y_TICK_GAP, y + BASELINE_SHIFT);
            text(out, "text-anchor=\"end\"", at, &tick.label);
        }
        let heading = clip(&plot.x.heading(), columns(right - left), ELLIPSIS);
        labels_below::draw(
            out,
            &plot.x,
            (left, right),
            (bottom, X_TICK_BASELINE),
            |value| self.coordinates(self.fitted.x.position(value), 0.0).0,
        );
        let name = X_NAME_BASELINE + labels_below::height(&plot.x);
        let below = ((left + right) / 2.0, bottom + name);
        text(out, "text-anchor=\"middle\"", below, &heading);
        let middle = (top + bottom) / 2.0;
        let turned =
            format!("text-anchor=\"middle\" transform=\"rotate(-90 {Y_NAME_X} {middle:.1})\"");
        text(
            out,
            &turned,
            (Y_NAME_X, middle),
            &clip(&plot.y.heading(), columns(self.frame_height), ELLIPSIS),
        );
        if self.fitted.is_empty() {
            let at = ((left + right) / 2.0, middle);
            text(
                out,
                "class=\"note\" text-anchor=\"middle\"",
                at,
                "nothing to plot",
            );
        }
    }

    fn series(&self, out: &mut String, index: usize) {
        let series = &self.fitted.plot.series[index];
        let runs = &self.fitted.series[index];
        let path = |spots: &mut dyn Iterator<Item = (f64, f64)>| {
            let mut path = String::new();
            for (i, (x, y)) in spots.enumerate() {
                let (x, y) = self.coordinates(x, y);
                let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
            }
            path
        };
        let mut draw = |class: String, path: String| {
            if !path.is_empty() {
                let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
            }
        };
        let colour = index % svg_style::COLOURS;
        let mut bars = String::new();
        let bounds = |spot: &Spot| spot.interval.unwrap_or((spot.y, spot.y));
        let mut band = String::new();
        for run in runs {
            if series.band && run.len() > 1 {
                let high = run.iter().map(|spot| (spot.x, bounds(spot).1));
                let low = run.iter().rev().map(|spot| (spot.x, bounds(spot).0));
                band += &format!("{}Z", path(&mut high.chain(low)));
                continue;
            }
            for spot in run.iter().filter(|spot| spot.interval.is_some()) {
                let ((x, low), (_, high)) = (
                    self.coordinates(spot.x, bounds(spot).0),
                    self.coordinates(spot.x, bounds(spot).1),
                );
                let _ = write!(bars, "M{x:.1} {low:.1}V{high:.1}");
                for y in [low, high] {
                    let _ = write!(
                        bars,
                        "M{:.1} {y:.1}h{}",
                        x - INTERVAL_BAR,
                        2.0 * INTERVAL_BAR
                    );
                }
            }
        }
        draw(format!("f{colour} band"), band);
        draw(format!("s{colour}"), bars);
        if series.joined {
            let lines = runs
                .iter()
                .map(|run| path(&mut run.iter().map(|spot| (spot.x, spot.y))));
            // With its name at its end, a line needs no dashes to be distinguished.
            let class = if self.fitted.plot.labelled {
                format!("s{colour} line named")
            } else {
                format!("s{colour} line d{}", index % svg_style::DASHES.len())
            };
            draw(class, lines.collect());
        }
        draw(format!("s{colour} f{colour}"), self.marks(index));
    }

    /// Returns the marks of the points of a series as a path.
    fn marks(&self, index: usize) -> String {
        let series = &self.fitted.plot.series[index];
        let mut marks = String::new();
        let bare = series.joined && !series.marked;
        let runs = self.fitted.series[index].iter();
        // A line of a single point could not be seen.
        for run in runs.filter(|run| !bare || run.len() == 1) {
            let places: Vec<_> = run
                .iter()
                .map(|spot| self.coordinates(spot.x, spot.y))
                .collect();
            let whole: Vec<_> = places
                .iter()
                .map(|&(x, y)| (x as usize, y as usize))
                .collect();
            let apart = if series.joined { MARKS_APART } else { 0 };
            for i in points_to_mark(&whole, apart, index) {
                let (x, y) = places[i];
                let _ = write!(marks, "M{x:.1} {y:.1}{}", MARKS[index % MARKS.len()]);
            }
        }
        marks
    }

    /// Draws legend and notes.
    fn legend_and_notes(&self, out: &mut String) {
        let axis = labels_below::height(&self.fitted.plot.x);
        let first = self.above + self.frame_height + LEGEND_BASELINE + axis;
        for entry in &self.legend {
            let (x, y) = (
                entry.left,
                first + entry.line as f64 * LINE_HEIGHT - BASELINE_SHIFT,
            );
            let line = format!("d=\"M{x:.1} {y:.1}h{LEGEND_LINE}\"");
            match entry.sample {
                Sample::Series(i) => self.legend_series(out, i, (x, y), &line),
                Sample::Line => {
                    let _ = writeln!(out, "<path class=\"level\" {line}/>");
                }
                Sample::Stretch => {
                    let at = (x, y - LEGEND_STRETCH_HEIGHT / 2.0);
                    rect(out, "stretch", at, (LEGEND_LINE, LEGEND_STRETCH_HEIGHT));
                }
            }
            let at = (x + LEGEND_MARK_WIDTH, y + BASELINE_SHIFT);
            text(out, "", at, &entry.name);
        }
        for (i, note) in self.notes.iter().enumerate() {
            let y = first + (self.legend_lines + i) as f64 * LINE_HEIGHT;
            text(out, "class=\"note\"", (self.left, y), note);
        }
    }

    /// Draws the sample of a series in the legend at a point, with this line.
    fn legend_series(&self, out: &mut String, i: usize, (x, y): (f64, f64), line: &str) {
        let series = &self.fitted.plot.series[i];
        let colour = i % svg_style::COLOURS;
        if series.joined {
            let class = format!("s{colour} line d{}", i % svg_style::DASHES.len());
            let _ = writeln!(out, "<path class=\"{class}\" {line}/>");
        }
        if !series.joined || series.marked {
            let (middle, mark) = (x + LEGEND_LINE / 2.0, MARKS[i % MARKS.len()]);
            let _ = writeln!(
                out,
                "<path class=\"s{colour} f{colour}\" d=\"M{middle:.1} {y:.1}{mark}\"/>"
            );
        }
    }

    /// Describes the plot in words, for screen readers.
    fn describe(&self) -> String {
        let plot = self.fitted.plot;
        let axis = |scale: Scale, heading: String, ticks: &[Tick]| {
            let kind = match scale {
                Scale::Linear => "linear",
                Scale::Log2 | Scale::Log10 => "logarithmic",
                Scale::Nines => "by the number of nines",
            };
            let labels: Vec<&str> = ticks.iter().map(|tick| tick.label.as_str()).collect();
            format!("{heading}, {kind}, with ticks at {}", labels.join(", "))
        };
        let mut description = format!(
            "Across: {}. Up: {}.",
            axis(plot.x.scale, plot.x.heading(), &self.x_ticks),
            axis(plot.y.scale, plot.y.heading(), &self.y_ticks),
        );
        for (series, runs) in plot.series.iter().zip(&self.fitted.series) {
            let kind = if series.joined { "Line" } else { "Marks" };
            let points = runs.iter().map(Vec::len).sum::<usize>();
            let points = counted(points as u64, "point");
            let _ = write!(description, " {kind} \"{}\" of {points}.", series.name);
        }
        for level in &plot.levels {
            let value = label(level.at, plot.y.unit);
            let _ = write!(description, " Level \"{}\" at {value}.", level.name);
        }
        for it in &plot.thresholds {
            let value = label(it.at, plot.x.unit);
            let _ = write!(description, " Threshold \"{}\" at {value}.", it.name);
        }
        for it in &plot.stretches {
            let (from, to) = (label(it.from, plot.x.unit), label(it.to, plot.x.unit));
            let _ = write!(description, " Stretch \"{}\" from {from} to {to}.", it.name);
        }
        for note in &self.fitted.notes {
            let _ = write!(description, " Note: {note}.");
        }
        description
    }
}

/// Returns the distance of the frame from the right edge, with room for labels at the ends of
/// lines.
fn right_margin(plot: &Plot, width: f64) -> f64 {
    let widths = plot.series.iter().map(|series| series.name.width());
    match widths.max().filter(|_| plot.labelled) {
        Some(widest) => {
            // Long names may take a third of the width at most; they are clipped then.
            (widest as f64 * LABEL_COLUMN_WIDTH + 2.0 * LABEL_GAP).clamp(RIGHT_MARGIN, width / 3.0)
        }
        None => RIGHT_MARGIN,
    }
}

/// Returns the number of columns of text that fit `width`.
fn columns(width: f64) -> usize {
    (width / COLUMN_WIDTH) as usize
}

/// Writes a rectangle with its upper left corner at a point.
pub(super) fn rect(out: &mut String, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"/>"
    );
}
