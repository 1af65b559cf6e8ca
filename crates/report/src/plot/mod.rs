//! Plots: curves and marks over two axes, as text for a terminal and as SVG.
//!
//! ```text
//!   Plot (data) --> Fitted: ranges, positions from 0 to 1, what is left out --+--> text
//!                                                                             +--> SVG
//! ```
//!
//! Both renderers draw the same fitted plot, so they leave out the same data, and each notes below
//! the plot what it leaves out.

mod bars;
mod canvas;
mod chart;
mod fitted;
mod intervals;
mod labels_below;
mod pairs;
mod scale;
mod svg;
mod svg_style;
mod svg_text;
mod terminal;
mod timeline;

pub use bars::Bars;
pub use canvas::Glyphs;
pub(crate) use chart::Chart;
pub use intervals::Intervals;
pub use pairs::{Agreement, Pairs};
pub use svg::svg;
pub(crate) use svg::{embedded, escape};
pub use terminal::Screen;
pub use timeline::{State, Timeline};

use crate::style::one_line;

/// Returns the style sheet of all plots and charts, for a page that embeds them.
pub(crate) fn style_sheet() -> String {
    svg_style::rules() + pairs::RULES
}

/// Scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    Linear,
    Log2,
    Log10,
    /// Percentages from 0 to below 100, by the logarithm of the distance to 100.
    Nines,
}

/// Unit of an axis, which determines the format of its ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Number or rate: `100`, `1k`, `10k`.
    Number,
    /// Bytes, in binary multiples: `4K`, `64K`, `1M`.
    Bytes,
    /// Bytes per second, in decimal multiples: `500k`, `30M`.
    BytesPerS,
    /// Percentage: `25`.
    Percent,
    /// Nanoseconds: `500 ns`, `10 us`, `1 ms`, `2 s`.
    Nanos,
    /// Seconds: `0.5`, `120`.
    Seconds,
    /// Minutes: `0.5`, `120`.
    Minutes,
    /// Hours: `0.5`, `24`.
    Hours,
}

impl Unit {
    /// Returns the unit in which a span of time is easy to read, and its length in seconds.
    pub fn of_span(seconds: f64) -> (Unit, f64) {
        match seconds {
            ..=600.0 => (Unit::Seconds, 1.0),
            ..=14_400.0 => (Unit::Minutes, 60.0),
            _ => (Unit::Hours, 3600.0),
        }
    }
}

/// Axis with label, unit and scale. Its range is that of the values.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    label: String,
    unit: Unit,
    scale: Scale,
    including: Vec<f64>,
    /// Values with labels below those of the ticks, in the order of the axis.
    below: Vec<(f64, String)>,
}

impl Axis {
    fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Axis {
        Axis {
            label: one_line(label),
            unit,
            scale,
            including: Vec::new(),
            below: Vec::new(),
        }
    }

    /// Creates an axis with a linear scale.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Axis {
        Axis::new(label, unit, Scale::Linear)
    }

    /// Creates an axis with a logarithmic scale and ticks at powers of two, for positive values
    /// only.
    pub fn log2(label: impl Into<String>, unit: Unit) -> Axis {
        Axis::new(label, unit, Scale::Log2)
    }

    /// Creates an axis with a logarithmic scale and ticks at powers of ten, for positive values
    /// only.
    pub fn log10(label: impl Into<String>, unit: Unit) -> Axis {
        Axis::new(label, unit, Scale::Log10)
    }

    /// Creates an axis of percentages from 0 to below 100, with as much room from 90 to 99 as from
    /// 99 to 99.9: for distributions whose last percents matter.
    pub fn nines(label: impl Into<String>) -> Axis {
        Axis::new(label, Unit::Percent, Scale::Nines)
    }

    /// Extends the axis to `value`, whatever is plotted; 0 makes it begin there. A value that the
    /// scale cannot show is ignored.
    pub fn including(mut self, value: f64) -> Axis {
        self.including.push(value);
        self
    }

    /// Adds labels below those of the ticks, with their values in the order of the axis: times of
    /// day beside times before an end. Only an x axis in SVG shows them.
    pub fn with_labels_below(mut self, labels: impl IntoIterator<Item = (f64, String)>) -> Axis {
        let labels = labels.into_iter();
        self.below = labels.map(|(at, text)| (at, one_line(text))).collect();
        self
    }

    /// Returns the label, with the unit if ticks do not have it.
    fn heading(&self) -> String {
        let unit = match self.unit {
            Unit::Number | Unit::Nanos => return self.label.clone(),
            Unit::Bytes => "bytes",
            Unit::BytesPerS => "B/s",
            Unit::Percent => "%",
            Unit::Seconds => "s",
            Unit::Minutes => "min",
            Unit::Hours => "h",
        };
        format!("{} ({unit})", self.label)
    }
}

/// Point of a series, optionally with an interval for its `y`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    x: f64,
    y: f64,
    interval: Option<(f64, f64)>,
}

impl Point {
    /// Creates a point in the units of the axes.
    pub fn new(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            interval: None,
        }
    }

    /// Adds an interval for `y`, such as a confidence interval, in the unit of the y axis.
    pub fn between(self, low: f64, high: f64) -> Point {
        Point {
            interval: Some((low, high)),
            ..self
        }
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Point {
        Point::new(x, y)
    }
}

/// Points under one name.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    name: String,
    points: Vec<Point>,
    /// True if the points are joined by a line.
    joined: bool,
    /// True if the intervals are shown as one band.
    band: bool,
    /// True if the points have marks in SVG.
    marked: bool,
    /// True if points that are not finite are meant as gaps.
    has_gaps: bool,
}

impl Series {
    fn new(name: impl Into<String>, joined: bool) -> Series {
        Series {
            name: one_line(name),
            points: Vec::new(),
            joined,
            band: false,
            marked: true,
            has_gaps: false,
        }
    }

    /// Creates a series of points joined by a line, in the order in which they are added. A point
    /// that cannot be shown is a gap.
    pub fn line(name: impl Into<String>) -> Series {
        Series::new(name, true)
    }

    /// Creates a series of separate points.
    pub fn marks(name: impl Into<String>) -> Series {
        Series::new(name, false)
    }

    /// Appends points to the series.
    pub fn points<P: Into<Point>>(mut self, points: impl IntoIterator<Item = P>) -> Series {
        self.points.extend(points.into_iter().map(Into::into));
        self
    }

    /// Shows the intervals as a band along the line in SVG, instead of a bar at each point. A
    /// terminal shows bars all the same.
    pub fn band(self) -> Series {
        Series { band: true, ..self }
    }

    /// Takes points that are not finite as gaps that are meant, which have no note below the plot.
    pub fn with_gaps(self) -> Series {
        Series {
            has_gaps: true,
            ..self
        }
    }

    /// Leaves out the marks of a line in SVG, for lines with so many points that they would hide
    /// it. A terminal tells lines apart by their marks and keeps them.
    pub fn unmarked(self) -> Series {
        Series {
            marked: false,
            ..self
        }
    }
}

/// Line across the plot to compare values with, such as a promised bound: a level at a value of the
/// y axis, or a threshold at one of the x axis.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    at: f64,
    name: String,
}

/// Range of the x axis in which something was different.
#[derive(Clone, PartialEq, Debug)]
struct Stretch {
    from: f64,
    to: f64,
    name: String,
}

/// Plot as plain data.
///
/// ```
/// use tidegate_report::{Axis, Glyphs, Plot, Screen, Series, Style, Unit};
///
/// let size = Axis::log2("request size", Unit::Bytes);
/// let mut plot = Plot::new("Random reads", size, Axis::log10("IOPS", Unit::Number));
/// let points = [(4096.0, 12_000.0), (65_536.0, 3_000.0), (1_048_576.0, 80.0)];
/// plot.add(Series::line("depth 1").points(points));
/// let screen = Screen { width: 40, height: 6, style: Style::Plain, glyphs: Glyphs::Ascii };
/// assert_eq!(
///     plot.render(&screen),
///     "Random reads
/// IOPS
/// 10k + o''.....
///     |         ''''''..o
///  1k +                  ''..
///     |                      ''..
///     |                          ''..
/// 100 +                              ''.o
///     +-+-------+-------+-------+-------+-
///      4K      16K     64K    256K     1M
///             request size (bytes)
///      o depth 1
/// "
/// );
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    levels: Vec<Line>,
    thresholds: Vec<Line>,
    stretches: Vec<Stretch>,
    /// True to put names at the ends of lines instead of into a legend, in SVG.
    labelled: bool,
    /// True for a smaller size in SVG.
    compact: bool,
}

impl Plot {
    /// Creates a plot without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Plot {
        Plot {
            title: one_line(title),
            x,
            y,
            series: Vec::new(),
            levels: Vec::new(),
            thresholds: Vec::new(),
            stretches: Vec::new(),
            labelled: false,
            compact: false,
        }
    }

    /// Adds a series. The first series have the most distinct marks and are drawn on top. A
    /// terminal has distinct marks for 34 series, SVG distinct pairs of mark and colour for 56.
    pub fn add(&mut self, series: Series) -> &mut Plot {
        self.series.push(series);
        self
    }

    /// Adds a named horizontal line at `y` over the whole width, and extends the y axis to it. On a
    /// terminal it is drawn as a series.
    pub fn level(&mut self, y: f64, name: impl Into<String>) -> &mut Plot {
        self.y.including.push(y);
        self.levels.push(Line {
            at: y,
            name: one_line(name),
        });
        self
    }

    /// Adds a named vertical line at `x` over the whole height, and extends the x axis to it. A
    /// terminal lists it below the plot instead.
    pub fn threshold(&mut self, x: f64, name: impl Into<String>) -> &mut Plot {
        self.x.including.push(x);
        self.thresholds.push(Line {
            at: x,
            name: one_line(name),
        });
        self
    }

    /// Shades the range of the x axis between two values, with a name. A terminal lists it below
    /// the plot instead.
    ///
    /// # Panics
    /// If `from` is above `to`, or one of them is not a number.
    pub fn stretch(&mut self, from: f64, to: f64, name: impl Into<String>) -> &mut Plot {
        assert!(from <= to, "a stretch from {from} to {to}");
        self.stretches.push(Stretch {
            from,
            to,
            name: one_line(name),
        });
        self
    }

    /// Puts the names of lines at their ends in SVG, instead of a legend. Has no effect on a
    /// terminal.
    pub fn labelled(&mut self) -> &mut Plot {
        self.labelled = true;
        self
    }

    /// Draws the plot in two thirds of the size in SVG, with the names of levels, thresholds and
    /// stretches in the legend, so that several fit side by side on a page and the text stays
    /// readable on a phone. Has no effect on a terminal.
    pub fn compact(&mut self) -> &mut Plot {
        self.compact = true;
        self
    }

    /// Returns the title.
    pub fn title(&self) -> &str {
        &self.title
    }
}
