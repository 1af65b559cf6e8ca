//! Figures in pairs, such as a paper's beside ours, as horizontal bars in SVG.

use unicode_width::UnicodeWidthStr;

use super::svg::{COLUMN_WIDTH, WIDTH, escape, rect, text};
use super::svg_style;
use crate::style::one_line;
use crate::text::clip;

/// Distance from the left edge.
const LEFT: f64 = 8.0;
/// Left end of the bars.
const BARS_LEFT: f64 = 250.0;
/// Longest bar.
const BARS_WIDTH: f64 = 290.0;
/// Left end of the figures.
const FIGURES_LEFT: f64 = BARS_LEFT + BARS_WIDTH + 10.0;
/// Height of the legend at the top.
const LEGEND_HEIGHT: f64 = 30.0;
/// Upper edge of the legend's bars.
const LEGEND_BAR_TOP: f64 = 10.0;
/// Baseline of the legend's names.
const LEGEND_BASELINE: f64 = 19.0;
/// Width of a bar in the legend.
const LEGEND_BAR_WIDTH: f64 = 22.0;
/// Distance of a name in the legend from the left end of its bar.
const LEGEND_NAME_LEFT: f64 = 28.0;
/// Distance between two entries of the legend.
const LEGEND_GAP: f64 = 20.0;
/// Height of the heading of a group.
const GROUP_HEIGHT: f64 = 28.0;
/// Height of a row with its two bars.
const ROW_HEIGHT: f64 = 26.0;
/// Thickness of a bar.
const BAR: f64 = 9.0;
/// Baseline of a row's text below the row's upper edge.
const BASELINE: f64 = 15.0;
/// Columns of text for a label.
const LABEL_COLUMNS: usize = 33;
/// Character that replaces text that is cut off.
const ELLIPSIS: char = '…';

/// Agreement of a pair, which determines the colour of its second bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// Figures are near each other.
    Near,
    /// Figures differ.
    Far,
    /// The pair is not judged.
    Unjudged,
}

impl Agreement {
    fn class(self) -> &'static str {
        match self {
            Agreement::Near => "near",
            Agreement::Far => "far",
            Agreement::Unjudged => "unjudged",
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Row {
    label: String,
    figures: [f64; 2],
    written: String,
    agreement: Agreement,
}

/// Pairs of figures in groups, each group on a scale of its own.
///
/// ```
/// use tidegate_report::{Agreement, Pairs};
///
/// let mut pairs = Pairs::new(["paper", "here"]);
/// pairs.group("execution time, s");
/// pairs.row("cfq", [64.42, 56.33], "64.42, 56.33", Agreement::Near);
/// assert!(pairs.svg().contains(">cfq</text>"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Pairs {
    names: [String; 2],
    groups: Vec<(String, Vec<Row>)>,
}

impl Pairs {
    /// Creates a chart without rows; `names` are those of the two figures of each pair.
    pub fn new(names: [&str; 2]) -> Pairs {
        Pairs {
            names: names.map(one_line),
            groups: Vec::new(),
        }
    }

    /// Begins a group, whose longest bar has the whole width.
    pub fn group(&mut self, name: impl Into<String>) -> &mut Pairs {
        self.groups.push((one_line(name), Vec::new()));
        self
    }

    /// Adds a pair to the last group, with its figures as text. A figure that is negative or no
    /// number has no bar.
    pub fn row(
        &mut self,
        label: impl Into<String>,
        figures: [f64; 2],
        written: impl Into<String>,
        agreement: Agreement,
    ) -> &mut Pairs {
        if self.groups.is_empty() {
            self.group("");
        }
        let row = Row {
            label: one_line(label),
            figures,
            written: one_line(written),
            agreement,
        };
        // A group was added above if there was none.
        if let Some((_, rows)) = self.groups.last_mut() {
            rows.push(row);
        }
        self
    }

    /// Renders the chart as an SVG document.
    pub fn svg(&self) -> String {
        self.document(&format!("<style>\n{}{RULES}</style>\n", svg_style::rules()))
    }

    /// Renders the chart as an element of a page that has the style sheet of plots and [`RULES`].
    pub(crate) fn embedded(&self) -> String {
        self.document("")
    }

    /// Renders the chart with an element for its style.
    fn document(&self, style: &str) -> String {
        let mut body = String::new();
        self.legend(&mut body);
        let mut y = LEGEND_HEIGHT;
        for (name, rows) in &self.groups {
            if !name.is_empty() {
                let at = (LEFT, y + GROUP_HEIGHT - 8.0);
                text(&mut body, "class=\"label\"", at, name);
                y += GROUP_HEIGHT;
            }
            let figures = rows.iter().flat_map(|row| row.figures);
            let most = figures.filter(|n| n.is_finite()).fold(0.0, f64::max);
            for row in rows {
                draw(&mut body, row, most, y);
                y += ROW_HEIGHT;
            }
        }
        let [first, second] = self.names.each_ref().map(|name| escape(name));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tidegate-plot tidegate-pairs\" \
             role=\"img\" viewBox=\"0 0 {WIDTH} {y:.1}\" width=\"{WIDTH}\" height=\"{y:.1}\">\n\
             <title>{first} and {second}</title>\n{style}\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        )
    }

    fn legend(&self, out: &mut String) {
        let [first, second] = &self.names;
        let mut x = BARS_LEFT;
        // Bars of the second figure have the colour of their agreement.
        for (class, name) in [
            ("theirs", first.clone()),
            ("near", format!("{second}: near")),
            ("far", "off".to_owned()),
            ("unjudged", "not judged".to_owned()),
        ] {
            rect(out, class, (x, LEGEND_BAR_TOP), (LEGEND_BAR_WIDTH, BAR));
            text(out, "", (x + LEGEND_NAME_LEFT, LEGEND_BASELINE), &name);
            x += LEGEND_NAME_LEFT + name.width() as f64 * COLUMN_WIDTH + LEGEND_GAP;
        }
    }
}

/// Rules beyond those of plots, for light and dark schemes.
pub(crate) const RULES: &str = "\
.tidegate-pairs .theirs{fill:#9097a0}
.tidegate-pairs .near{fill:#009e73}
.tidegate-pairs .far{fill:#d55e00}
.tidegate-pairs .unjudged{fill:#a9c7dd}
.tidegate-pairs .figures{font-variant-numeric:tabular-nums}
@media (prefers-color-scheme:dark){
.tidegate-pairs .theirs{fill:#8b929c}
.tidegate-pairs .near{fill:#2fd0a0}
.tidegate-pairs .far{fill:#ff8c42}
.tidegate-pairs .unjudged{fill:#41607a}
}
";

fn draw(out: &mut String, row: &Row, most: f64, y: f64) {
    let label = clip(&row.label, LABEL_COLUMNS, ELLIPSIS);
    text(out, "", (LEFT, y + BASELINE), &label);
    for ((class, figure), top) in ["theirs", row.agreement.class()]
        .into_iter()
        .zip(row.figures)
        .zip([3.0, 3.0 + BAR])
    {
        // A figure of 0 has a hair line, so that it is not taken for a missing one.
        if figure.is_finite() && figure >= 0.0 {
            let width = BARS_WIDTH * if most > 0.0 { figure / most } else { 0.0 };
            rect(out, class, (BARS_LEFT, y + top), (width.max(0.8), BAR));
        }
    }
    let at = (FIGURES_LEFT, y + BASELINE);
    text(out, "class=\"figures\"", at, &row.written);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(svg: &str) -> Vec<f64> {
        let document = roxmltree::Document::parse(svg).expect("XML");
        let bars = document
            .descendants()
            .filter(|node| node.has_tag_name("rect") && node.attribute("class") != Some("ground"));
        // The legend has four.
        let bars = bars.skip(4).map(|bar| bar.attribute("width"));
        bars.map(|width| width.expect("a width").parse().expect("a number"))
            .collect()
    }

    #[test]
    fn bars_of_a_group_are_to_scale_and_groups_have_their_own() {
        let mut pairs = Pairs::new(["paper", "here"]);
        pairs.group("a").row("x", [50.0, 100.0], "", Agreement::Far);
        pairs.group("b").row("y", [1.0, 2.0], "", Agreement::Near);
        pairs.row("z", [f64::NAN, -1.0], "none", Agreement::Unjudged);
        pairs.row("0", [0.0, 2.0], "", Agreement::Unjudged);
        assert_eq!(
            widths(&pairs.svg()),
            [145.0, BARS_WIDTH, 145.0, BARS_WIDTH, 0.8, BARS_WIDTH]
        );
    }

    #[test]
    fn names_from_outside_are_text() {
        let mut pairs = Pairs::new(["<b>", "here"]);
        pairs.row("a & b <i>", [1.0, 1.0], "1 < 2", Agreement::Near);
        let svg = pairs.svg();
        roxmltree::Document::parse(&svg).expect("XML");
        assert!(svg.contains("a &amp; b &lt;i&gt;"), "{svg}");
    }
}
