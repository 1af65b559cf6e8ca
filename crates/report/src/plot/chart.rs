//! Documents of charts: a title, rows below it, and for some an axis below the rows.

use super::scale::Span;
use super::svg::{WIDTH, escape, text};
use super::{Axis, labels_below, svg_style};

/// Distance of text from the left edge.
pub(super) const LEFT: f64 = 8.0;
/// Height of the title.
pub(super) const TITLE_HEIGHT: f64 = 36.0;
/// Height of a row.
pub(super) const ROW_HEIGHT: f64 = 24.0;
/// Baseline of a row's text below the row's upper edge.
pub(super) const BASELINE: f64 = 16.0;
/// Height of the axis below the rows.
const AXIS_HEIGHT: f64 = 48.0;
/// Character that replaces text that is cut off.
pub(super) const ELLIPSIS: char = '…';
/// Baseline of the title.
const TITLE_BASELINE: f64 = 24.0;
/// Distance from the rows down to the baseline of the ticks' labels.
const TICK_BASELINE: f64 = 17.0;
/// Distance from the rows down to the baseline of the axis's name.
const AXIS_NAME_BASELINE: f64 = 38.0;

/// Chart of rows below a title.
pub(crate) trait Chart {
    /// Title of the chart.
    fn title(&self) -> &str;

    /// Describes what only shapes and colours show, for screen readers; empty if nothing does.
    fn describe(&self) -> String {
        String::new()
    }

    /// Draws everything below the title, and returns the lower edge.
    fn draw(&self, out: &mut String) -> f64;

    /// Renders the chart as an element of a page that has the style sheet of plots.
    fn embedded(&self) -> String {
        self.render("")
    }

    /// Renders the chart as a document.
    fn document(&self) -> String {
        self.render(&format!("<style>\n{}</style>\n", svg_style::rules()))
    }

    /// Renders the chart with an element for its style.
    fn render(&self, style: &str) -> String {
        let mut body = String::new();
        let at = (LEFT, TITLE_BASELINE);
        text(&mut body, "class=\"title\"", at, self.title());
        let height = self.draw(&mut body);
        let title = escape(self.title());
        let description = match escape(&self.describe()) {
            text if text.is_empty() => text,
            text => format!("<desc>{text}</desc>\n"),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tidegate-plot\" role=\"img\" \
             viewBox=\"0 0 {WIDTH} {height:.1}\" width=\"{WIDTH}\" height=\"{height:.1}\">\n\
             <title>{title}</title>\n{description}{style}\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        )
    }
}

/// Axis below the rows of a chart.
pub(super) struct RowAxis<'a> {
    pub(super) axis: &'a Axis,
    pub(super) span: Span,
    /// Left end.
    pub(super) left: f64,
    pub(super) width: f64,
    /// Largest number of ticks.
    pub(super) ticks_max: usize,
}

impl RowAxis<'_> {
    /// Converts a value into a coordinate.
    pub(super) fn across(&self, value: f64) -> f64 {
        self.left + self.span.position(value) * self.width
    }

    /// Height of the axis with its labels.
    pub(super) fn height(&self) -> f64 {
        AXIS_HEIGHT + labels_below::height(self.axis)
    }

    /// Draws the axis below rows from `top` to `bottom`, with lines through all of them.
    pub(super) fn draw(&self, out: &mut String, (top, bottom): (f64, f64)) {
        let mut grid = String::new();
        for tick in self.span.ticks(self.ticks_max, |_| true) {
            let x = self.left + tick.at * self.width;
            grid += &format!("M{x:.1} {top:.1}V{bottom:.1}");
            let at = (x, bottom + TICK_BASELINE);
            text(out, "text-anchor=\"middle\"", at, &tick.label);
        }
        *out += &format!("<path class=\"grid\" d=\"{grid}\"/>\n");
        let (left, right) = (self.left, self.left + self.width);
        let line = format!("M{left:.1} {bottom:.1}H{right:.1}");
        *out += &format!("<path class=\"frame\" d=\"{line}\"/>\n");
        let across = |value: f64| self.across(value);
        labels_below::draw(
            out,
            self.axis,
            (left, right),
            (bottom, TICK_BASELINE),
            across,
        );
        let name = AXIS_NAME_BASELINE + labels_below::height(self.axis);
        let at = ((left + right) / 2.0, bottom + name);
        text(out, "text-anchor=\"middle\"", at, &self.axis.heading());
    }
}

#[cfg(test)]
pub(super) mod tests {
    /// Returns an attribute of each element with a class, in the order of the document.
    pub(in crate::plot) fn attributes(svg: &str, class: &str, name: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).expect("XML");
        let nodes = document.descendants();
        let nodes = nodes.filter(|node| node.attribute("class") == Some(class));
        let values = nodes.map(|node| node.attribute(name).expect("an attribute").to_owned());
        values.collect()
    }

    /// Returns the left ends and widths of the rectangles with a class.
    pub(in crate::plot) fn rects(svg: &str, class: &str) -> Vec<(f64, f64)> {
        let numbers = |name| {
            let texts = attributes(svg, class, name).into_iter();
            texts.map(|text| text.parse::<f64>().expect("a number"))
        };
        numbers("x").zip(numbers("width")).collect()
    }
}
