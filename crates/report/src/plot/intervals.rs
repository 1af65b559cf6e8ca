//! Means with confidence intervals in rows, as SVG.

use super::Axis;
use super::chart::{BASELINE, Chart, ELLIPSIS, LEFT, ROW_HEIGHT, RowAxis, TITLE_HEIGHT};
use super::scale::Span;
use super::svg::text;
use crate::style::one_line;
use crate::text::clip;

/// Left end of the axis.
const AXIS_LEFT: f64 = 250.0;
/// Length of the axis.
const AXIS_WIDTH: f64 = 320.0;
/// Left end of the figures.
const FIGURES_LEFT: f64 = AXIS_LEFT + AXIS_WIDTH + 14.0;
/// Half of the height of the bars at the ends of an interval.
const END_BAR: f64 = 5.0;
/// Most ticks of the axis.
const TICKS_MAX: usize = 6;
/// Columns of text for a label.
const LABEL_COLUMNS: usize = 32;
/// Columns of text for the figures of a row.
const FIGURES_COLUMNS: usize = 16;
/// Mark of a mean: a square around the current point.
const MARK: &str = "m-4-4h8v8h-8z";

/// Row of a chart.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    label: String,
    mean: f64,
    interval: Option<(f64, f64)>,
    written: String,
    better: Option<bool>,
}

/// Chart of means with their confidence intervals, one below the other, around a line at zero.
///
/// ```
/// use tidegate_report::{Axis, Intervals, Unit};
///
/// let axis = Axis::linear("difference of IOPS", Unit::Percent);
/// let mut chart = Intervals::new("Differences from fifo", axis);
/// chart.row("oltp: mclock", 12.0, Some((10.0, 14.0)), "+12 %", Some(true));
/// assert!(chart.svg().contains(">oltp: mclock</text>"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Intervals {
    title: String,
    axis: Axis,
    rows: Vec<Row>,
}

impl Intervals {
    /// Creates a chart without rows over an axis, which is extended to zero.
    pub fn new(title: impl Into<String>, axis: Axis) -> Intervals {
        Intervals {
            title: one_line(title),
            axis: axis.including(0.0),
            rows: Vec::new(),
        }
    }

    /// Adds a mean with its interval, both in the unit of the axis, and its figures as text.
    /// `better` chooses the colour: whether the difference is one for the better; `None`: neither.
    pub fn row(
        &mut self,
        label: impl Into<String>,
        mean: f64,
        interval: Option<(f64, f64)>,
        written: impl Into<String>,
        better: Option<bool>,
    ) -> &mut Intervals {
        self.rows.push(Row {
            label: one_line(label),
            mean,
            interval,
            written: one_line(written),
            better,
        });
        self
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the chart as an SVG document.
    pub fn svg(&self) -> String {
        self.document()
    }
}

impl Chart for Intervals {
    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, out: &mut String) -> f64 {
        let ends = self.rows.iter().flat_map(|row| {
            let (low, high) = row.interval.unwrap_or((row.mean, row.mean));
            [low, row.mean, high]
        });
        let axis = RowAxis {
            axis: &self.axis,
            span: Span::new(&self.axis, ends),
            left: AXIS_LEFT,
            width: AXIS_WIDTH,
            ticks_max: TICKS_MAX,
        };
        let bottom = TITLE_HEIGHT + self.rows.len() as f64 * ROW_HEIGHT;
        axis.draw(out, (TITLE_HEIGHT, bottom));
        let zero = axis.across(0.0);
        let line = format!("M{zero:.1} {TITLE_HEIGHT:.1}V{bottom:.1}");
        *out += &format!("<path class=\"level\" d=\"{line}\"/>\n");
        for (n, row) in self.rows.iter().enumerate() {
            draw(out, &axis, row, TITLE_HEIGHT + n as f64 * ROW_HEIGHT);
        }
        bottom + axis.height()
    }
}

/// Draws a row below `top`.
fn draw(out: &mut String, axis: &RowAxis<'_>, row: &Row, top: f64) {
    let label = clip(&row.label, LABEL_COLUMNS, ELLIPSIS);
    text(out, "", (LEFT, top + BASELINE), &label);
    let across = |value: f64| axis.across(value);
    let y = top + ROW_HEIGHT / 2.0;
    // Colours of the palette that stand for good and bad elsewhere, and blue.
    let class = match row.better {
        Some(true) => "s2 f2",
        Some(false) => "s1 f1",
        None => "s0 f0",
    };
    if row.mean.is_finite() {
        let mut path = format!("M{:.1} {y:.1}{MARK}", across(row.mean));
        if let Some((low, high)) = row
            .interval
            .filter(|it| it.0.is_finite() && it.1.is_finite())
        {
            let (low, high) = (across(low), across(high));
            path += &format!("M{low:.1} {y:.1}H{high:.1}");
            for x in [low, high] {
                path += &format!("M{x:.1} {:.1}v{}", y - END_BAR, 2.0 * END_BAR);
            }
        }
        *out += &format!("<path class=\"{class}\" d=\"{path}\"/>\n");
    }
    let written = clip(&row.written, FIGURES_COLUMNS, ELLIPSIS);
    let at = (FIGURES_LEFT, top + BASELINE);
    text(out, "class=\"figures\"", at, &written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use crate::plot::chart::tests::attributes;

    #[test]
    fn intervals_are_around_their_means_and_names_are_text() {
        let axis = Axis::linear("difference", Unit::Percent);
        let mut chart = Intervals::new("<b>", axis);
        chart.row("\"onload=<i>", 10.0, Some((5.0, 15.0)), "+10 %", Some(true));
        chart.row("b", -4.0, None, "-4 %", None);
        chart.row("c", f64::NAN, None, "unknown", None);
        let svg = chart.svg();
        let paths = |class: &str| attributes(&svg, class, "d");
        let [with_interval] = &paths("s2 f2")[..] else {
            panic!("{svg}");
        };
        let number = |path: &str| -> f64 {
            let end = path.find(' ').expect("a second number");
            path[1..end].parse().expect("a number")
        };
        let from = |path: &str, n: usize| {
            let (at, _) = path.match_indices('M').nth(n).expect("a part");
            number(&path[at..])
        };
        let (mean, low) = (from(with_interval, 0), from(with_interval, 1));
        let zero = number(&paths("level")[0]);
        assert!(zero < low && low < mean, "{zero} {low} {mean}");
        let below = number(&paths("s0 f0")[0]);
        assert!(below < zero && paths("s0 f0").len() == 1);
        assert!(svg.contains("&quot;onload=&lt;i&gt;"), "{svg}");
    }
}
