//! Horizontal bars of stacked parts as SVG.

use unicode_width::UnicodeWidthStr;

use super::chart::{BASELINE, Chart, ELLIPSIS, LEFT, ROW_HEIGHT, TITLE_HEIGHT};
use super::svg::{COLUMN_WIDTH, WIDTH, rect, text};
use super::svg_style;
use crate::style::one_line;
use crate::text::clip;

/// Left end of the bars.
const BARS_LEFT: f64 = 170.0;
/// Longest bar.
const BARS_WIDTH: f64 = 400.0;
/// Left end of the figures.
const FIGURES_LEFT: f64 = BARS_LEFT + BARS_WIDTH + 10.0;
/// Height of a line of the legend.
const LEGEND_HEIGHT: f64 = 22.0;
/// Baseline of a line of the legend.
const LEGEND_BASELINE: f64 = 14.0;
/// Side of a square in the legend.
const LEGEND_SQUARE: f64 = 11.0;
/// Distance of a name in the legend from its square.
const LEGEND_NAME_GAP: f64 = 6.0;
/// Distance between two entries of the legend.
const LEGEND_GAP: f64 = 18.0;
/// Thickness of a bar.
const BAR: f64 = 15.0;
/// Space below the last row.
const BOTTOM: f64 = 8.0;
/// Columns of text for a label.
const LABEL_COLUMNS: usize = 22;
/// Columns of text for the figures of a row.
const FIGURES_COLUMNS: usize = 19;

/// Row of a chart: a bar of one or more parts.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    label: String,
    parts: Vec<f64>,
    written: String,
}

/// Chart of horizontal bars on one scale. A bar consists of parts, which the legend names if there
/// is more than one.
///
/// ```
/// use tidegate_report::Bars;
///
/// let mut bars = Bars::new("Where the time went", ["queued", "device"]);
/// bars.row("oltp", [3.0, 1.0], "4 ms");
/// assert!(bars.svg().contains(">oltp</text>"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    title: String,
    names: Vec<String>,
    rows: Vec<Row>,
}

impl Bars {
    /// Creates a chart without rows; `names` are those of the parts of each bar.
    pub fn new<'a>(title: impl Into<String>, names: impl IntoIterator<Item = &'a str>) -> Bars {
        Bars {
            title: one_line(title),
            names: names.into_iter().map(one_line).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a bar, with its figures as text. A part that is negative or no number is not drawn.
    ///
    /// # Panics
    /// If it has another number of parts than the chart has names.
    pub fn row(
        &mut self,
        label: impl Into<String>,
        parts: impl IntoIterator<Item = f64>,
        written: impl Into<String>,
    ) -> &mut Bars {
        let parts: Vec<f64> = parts.into_iter().collect();
        assert_eq!(parts.len(), self.names.len(), "parts of a bar");
        self.rows.push(Row {
            label: one_line(label),
            parts,
            written: one_line(written),
        });
        self
    }

    /// Returns true if there is no bar.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the chart as an SVG document.
    pub fn svg(&self) -> String {
        self.document()
    }

    /// Draws the legend below `y`, and returns its lower edge.
    fn legend(&self, out: &mut String, mut y: f64) -> f64 {
        let mut x = LEFT;
        for (n, name) in self.names.iter().enumerate() {
            let width = LEGEND_SQUARE + LEGEND_NAME_GAP + name.width() as f64 * COLUMN_WIDTH;
            if x + width > WIDTH && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_HEIGHT);
            }
            let class = format!("f{}", n % svg_style::COLOURS);
            let top = y + LEGEND_BASELINE - LEGEND_SQUARE + 1.0;
            rect(out, &class, (x, top), (LEGEND_SQUARE, LEGEND_SQUARE));
            let at = (x + LEGEND_SQUARE + LEGEND_NAME_GAP, y + LEGEND_BASELINE);
            text(out, "", at, name);
            x += width + LEGEND_GAP;
        }
        y + LEGEND_HEIGHT
    }
}

impl Chart for Bars {
    fn title(&self) -> &str {
        &self.title
    }

    fn describe(&self) -> String {
        if self.names.len() < 2 {
            return String::new();
        }
        let row = |row: &Row| {
            let whole: f64 = drawn(row).map(|(_, part)| part).sum();
            let parts = drawn(row).map(|(n, part)| {
                let percent = 100.0 * part / whole;
                format!("{} {percent:.0} %", self.names[n])
            });
            let parts: Vec<String> = parts.collect();
            format!("{}: {} ({}).", row.label, parts.join(", "), row.written)
        };
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        rows.join(" ")
    }

    fn draw(&self, out: &mut String) -> f64 {
        let mut y = TITLE_HEIGHT;
        if self.names.len() > 1 {
            y = self.legend(out, y);
        }
        let whole = |row: &Row| drawn(row).map(|(_, part)| part).sum::<f64>();
        let most = self.rows.iter().map(whole).fold(0.0, f64::max);
        for row in &self.rows {
            let label = clip(&row.label, LABEL_COLUMNS, ELLIPSIS);
            text(out, "", (LEFT, y + BASELINE), &label);
            let mut x = BARS_LEFT;
            for (n, part) in drawn(row) {
                let width = BARS_WIDTH * if most > 0.0 { part / most } else { 0.0 };
                let class = format!("f{}", n % svg_style::COLOURS);
                let at = (x, y + (ROW_HEIGHT - BAR) / 2.0);
                rect(out, &class, at, (width, BAR));
                x += width;
            }
            let written = clip(&row.written, FIGURES_COLUMNS, ELLIPSIS);
            let at = (FIGURES_LEFT, y + BASELINE);
            text(out, "class=\"figures\"", at, &written);
            y += ROW_HEIGHT;
        }
        y + BOTTOM
    }
}

/// Returns the parts of a bar that can be drawn, with their indices.
fn drawn(row: &Row) -> impl Iterator<Item = (usize, f64)> + '_ {
    let parts = row.parts.iter().copied().enumerate();
    parts.filter(|(_, part)| part.is_finite() && *part > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::chart::tests::rects;

    #[test]
    fn parts_are_stacked_on_one_scale() {
        let mut chart = Bars::new("Time", ["queued", "device"]);
        chart
            .row("a", [1.0, 3.0], "4 ms")
            .row("b", [2.0, f64::NAN], "2 ms");
        let svg = chart.svg();
        // The first of each is that of the legend.
        let (half, quarter) = (BARS_WIDTH / 2.0, BARS_WIDTH / 4.0);
        assert_eq!(
            rects(&svg, "f0")[1..],
            [(BARS_LEFT, quarter), (BARS_LEFT, half)]
        );
        let device = (BARS_LEFT + quarter, BARS_WIDTH * 0.75);
        assert_eq!(rects(&svg, "f1")[1..], [device]);
        assert!(svg.contains(">queued</text>"), "{svg}");
        let parts = "<desc>a: queued 25 %, device 75 % (4 ms). b: queued 100 % (2 ms).</desc>";
        assert!(svg.contains(parts), "{svg}");
    }

    #[test]
    fn bars_of_one_part_have_no_legend_and_names_are_text() {
        let mut chart = Bars::new("<i>", ["share"]);
        chart
            .row("\"onload=<script>", [0.0], "0")
            .row("b", [5.0], "5 & 6");
        let svg = chart.svg();
        assert_eq!(rects(&svg, "f0"), [(BARS_LEFT, BARS_WIDTH)]);
        assert!(svg.contains("&quot;onload=&lt;script&gt;"), "{svg}");
    }
}
