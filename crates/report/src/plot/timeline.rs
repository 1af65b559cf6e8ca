//! Timelines as SVG: a row of cells for each promise, which show when it was kept and when not.

use unicode_width::UnicodeWidthStr;

use super::Axis;
use super::chart::{BASELINE, Chart, ELLIPSIS, LEFT, ROW_HEIGHT, RowAxis, TITLE_HEIGHT};
use super::scale::Span;
use super::svg::{COLUMN_WIDTH, WIDTH, rect, text};
use crate::style::one_line;
use crate::text::clip;

/// Left end of the cells.
const CELLS_LEFT: f64 = 240.0;
/// Width of all cells.
const CELLS_WIDTH: f64 = WIDTH - CELLS_LEFT - 16.0;
/// Height of the legend.
const LEGEND_HEIGHT: f64 = 26.0;
/// Baseline of the legend.
const LEGEND_BASELINE: f64 = 13.0;
/// Width of a cell in the legend.
const LEGEND_CELL_WIDTH: f64 = 18.0;
/// Distance of a name in the legend from its cell.
const LEGEND_NAME_GAP: f64 = 6.0;
/// Distance between two entries of the legend.
const LEGEND_GAP: f64 = 20.0;
/// Height of a cell of a missed promise.
const CELL: f64 = 18.0;
/// Height of other cells: states differ in height as well as in colour.
const LOW_CELL: f64 = 8.0;
/// Columns of text for a label.
const LABEL_COLUMNS: usize = 31;
/// Narrowest cell of a missed promise, so that one missed second of a day is seen.
const MISSED_WIDTH_MIN: f64 = 1.5;
/// Part of a span up to which it may be apart from the one before and still touches it: points of a
/// daemon's history are some hundredths of a second apart.
const SEAM: f64 = 0.25;
/// Most ticks of the axis.
const TICKS_MAX: usize = 8;

/// State of a promise in a span of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Kept.
    Kept,
    /// Missed while the device stalled, so that it is not judged.
    Stalled,
    /// Missed.
    Missed,
}

impl State {
    const ALL: [State; 3] = [State::Kept, State::Missed, State::Stalled];

    fn class(self) -> &'static str {
        match self {
            State::Kept => "kept",
            State::Stalled => "stalled",
            State::Missed => "missed",
        }
    }

    fn name(self) -> &'static str {
        match self {
            State::Kept => "kept",
            State::Stalled => "device stalled, not judged",
            State::Missed => "missed",
        }
    }

    /// Height of a cell.
    fn height(self) -> f64 {
        match self {
            State::Missed => CELL,
            State::Kept | State::Stalled => LOW_CELL,
        }
    }
}

/// Row of a timeline.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    name: String,
    part: String,
    /// Begin and end of a span with its state, in the order of time.
    cells: Vec<(f64, f64, State)>,
}

/// Promises over time. Spans without a state are empty: nothing was judged in them.
///
/// ```
/// use tidegate_report::{Axis, State, Timeline, Unit};
///
/// let axis = Axis::linear("time", Unit::Seconds);
/// let mut timeline = Timeline::new("Promises over time", axis, (0.0, 60.0));
/// timeline.row("oltp", "latency", [(0.0, 40.0, State::Kept), (40.0, 60.0, State::Missed)]);
/// assert!(timeline.svg().contains("class=\"missed\""));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    title: String,
    axis: Axis,
    rows: Vec<Row>,
}

impl Timeline {
    /// Creates a timeline without rows over an axis of time from one value to another one.
    pub fn new(title: impl Into<String>, axis: Axis, (from, to): (f64, f64)) -> Timeline {
        Timeline {
            title: one_line(title),
            axis: axis.including(from).including(to),
            rows: Vec::new(),
        }
    }

    /// Adds the row of a part of what was promised to `name`, with spans in the order of time, each
    /// with its begin and end in the unit of the axis. Spans that touch and have the same state are
    /// drawn as one.
    pub fn row(
        &mut self,
        name: impl Into<String>,
        part: impl Into<String>,
        spans: impl IntoIterator<Item = (f64, f64, State)>,
    ) -> &mut Timeline {
        let mut cells: Vec<(f64, f64, State)> = Vec::new();
        for (from, to, state) in spans {
            match cells.last_mut() {
                Some(last) if last.2 == state && from - last.1 <= SEAM * (to - from) => {
                    last.1 = to;
                }
                _ => cells.push((from, to, state)),
            }
        }
        self.rows.push(Row {
            name: one_line(name),
            part: one_line(part),
            cells,
        });
        self
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the timeline as an SVG document.
    pub fn svg(&self) -> String {
        self.document()
    }
}

impl Chart for Timeline {
    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, out: &mut String) -> f64 {
        legend(out, TITLE_HEIGHT);
        let top = TITLE_HEIGHT + LEGEND_HEIGHT;
        let bottom = top + self.rows.len() as f64 * ROW_HEIGHT;
        let axis = RowAxis {
            axis: &self.axis,
            span: Span::of_values(&self.axis),
            left: CELLS_LEFT,
            width: CELLS_WIDTH,
            ticks_max: TICKS_MAX,
        };
        axis.draw(out, (top, bottom));
        for (n, row) in self.rows.iter().enumerate() {
            let y = top + n as f64 * ROW_HEIGHT;
            // A long name is cut, because the part tells rows of one name apart.
            let room = LABEL_COLUMNS.saturating_sub(row.part.width() + 2);
            let label = format!("{}: {}", clip(&row.name, room, ELLIPSIS), row.part);
            text(out, "", (LEFT, y + BASELINE), &label);
            for &(from, to, state) in &row.cells {
                let (from, to) = (axis.across(from), axis.across(to));
                let width = match state {
                    State::Missed => (to - from).max(MISSED_WIDTH_MIN),
                    State::Kept | State::Stalled => to - from,
                };
                let height = state.height();
                let at = (from, y + (ROW_HEIGHT - height) / 2.0);
                rect(out, state.class(), at, (width, height));
            }
        }
        bottom + axis.height()
    }
}

/// Draws the legend below `y`.
fn legend(out: &mut String, y: f64) {
    let mut x = LEFT;
    for state in State::ALL {
        let height = state.height();
        let top = y + LEGEND_BASELINE - 4.5 - height / 2.0;
        rect(out, state.class(), (x, top), (LEGEND_CELL_WIDTH, height));
        x += LEGEND_CELL_WIDTH + LEGEND_NAME_GAP;
        text(out, "", (x, y + LEGEND_BASELINE), state.name());
        x += state.name().width() as f64 * COLUMN_WIDTH + LEGEND_GAP;
    }
    text(out, "", (x, y + LEGEND_BASELINE), "empty: nothing to judge");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use crate::plot::chart::tests::rects;

    fn axis() -> Axis {
        Axis::linear("time", Unit::Seconds)
    }

    /// Left ends and widths of cells of a class, without the legend.
    fn cells(svg: &str, class: &str) -> Vec<(f64, f64)> {
        rects(svg, class).split_off(1)
    }

    #[test]
    fn spans_that_touch_are_one_cell_and_a_missed_second_of_a_day_is_seen() {
        let mut timeline = Timeline::new("Promises", axis(), (0.0, 86_400.0));
        let kept = |from: f64| (from, from + 99.0, State::Kept);
        let missed = (200.0, 201.0, State::Missed);
        timeline.row(
            "a",
            "latency",
            [kept(0.0), kept(100.0), missed, kept(201.0)],
        );
        let svg = timeline.svg();
        assert_eq!(cells(&svg, "kept").len(), 2);
        let missed = cells(&svg, "missed");
        assert_eq!(missed.len(), 1);
        assert_eq!(missed[0].1, MISSED_WIDTH_MIN);
    }

    #[test]
    fn names_are_text() {
        let mut timeline = Timeline::new("</title><script>", axis(), (0.0, 1.0));
        timeline.row("\"onload=<b>", "limit", [(0.0, 1.0, State::Stalled)]);
        let svg = timeline.svg();
        assert_eq!(cells(&svg, "stalled").len(), 1);
        assert!(svg.contains("&quot;onload=&lt;b&gt;"), "{svg}");
    }
}
