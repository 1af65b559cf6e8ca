//! Labels of an axis below those of its ticks, such as times of day below times before an end.

use unicode_width::UnicodeWidthStr as _;

use super::Axis;
use super::svg_text::{COLUMN_WIDTH, text};

/// Height of the line of labels.
const HEIGHT: f64 = 15.0;
/// Length of the mark at the place of a label.
const MARK: f64 = 4.0;
/// Least distance between two labels.
const GAP: f64 = 2.0 * COLUMN_WIDTH;

/// Returns the height that the labels of an axis take; 0 without any.
pub(super) fn height(axis: &Axis) -> f64 {
    if axis.below.is_empty() { 0.0 } else { HEIGHT }
}

/// Draws the labels of an axis from `left` to `right`, a line below the ticks' labels, whose
/// baseline is `baseline` below the axis at `bottom`. One that would touch the label before it is
/// left out.
pub(super) fn draw(
    out: &mut String,
    axis: &Axis,
    (left, right): (f64, f64),
    (bottom, baseline): (f64, f64),
    across: impl Fn(f64) -> f64,
) {
    let mut free = f64::NEG_INFINITY;
    let mut marks = String::new();
    for (value, label) in &axis.below {
        let x = across(*value);
        let half = label.width() as f64 * COLUMN_WIDTH / 2.0;
        if !(left..=right).contains(&x) || x - half < free {
            continue;
        }
        free = x + half + GAP;
        marks += &format!("M{x:.1} {bottom:.1}v{MARK}");
        let at = (x, bottom + baseline + HEIGHT);
        text(out, "class=\"aside\" text-anchor=\"middle\"", at, label);
    }
    if !marks.is_empty() {
        *out += &format!("<path class=\"frame\" d=\"{marks}\"/>\n");
    }
}

#[cfg(test)]
mod tests {
    use crate::{Axis, Plot, Series, State, Timeline, Unit, svg};

    fn axis() -> Axis {
        let labels = [(-60.0, "10:00"), (-59.0, "10:01"), (-30.0, "10:30")];
        let labels = labels.map(|(at, text)| (at, text.to_owned()));
        let axis = Axis::linear("time before the end", Unit::Minutes).with_labels_below(labels);
        axis.including(-60.0).including(0.0)
    }

    /// Returns the texts with a class of their own, with their coordinates.
    fn asides(svg: &str) -> Vec<(f64, f64, String)> {
        let document = roxmltree::Document::parse(svg).expect("XML");
        let nodes = document.descendants();
        let nodes = nodes.filter(|node| node.attribute("class") == Some("aside"));
        let number = |node: &roxmltree::Node<'_, '_>, name| {
            let text = node.attribute(name).expect("a place");
            text.parse::<f64>().expect("a number")
        };
        nodes
            .map(|node| {
                let text = node.text().expect("a label").to_owned();
                (number(&node, "x"), number(&node, "y"), text)
            })
            .collect()
    }

    #[test]
    fn labels_are_below_the_ticks_at_their_values() {
        let mut plot = Plot::new("p", axis(), Axis::linear("y", Unit::Number));
        plot.add(Series::line("a").points([(-60.0, 1.0), (0.0, 2.0)]));
        let mut timeline = Timeline::new("t", axis(), (-60.0, 0.0));
        timeline.row("a", "latency", [(-60.0, 0.0, State::Kept)]);
        for drawn in [svg(&[plot]), timeline.svg()] {
            let labels = asides(&drawn);
            let texts: Vec<&str> = labels.iter().map(|label| label.2.as_str()).collect();
            // One touches that before it.
            assert_eq!(texts, ["10:00", "10:30"], "{drawn}");
            assert_eq!(labels[0].1, labels[1].1, "on one line");
            assert!(labels[0].0 < labels[1].0);
        }
    }

    #[test]
    fn an_axis_without_labels_is_as_high_as_before() {
        let height = |axis| {
            let plot = Plot::new("p", axis, Axis::linear("y", Unit::Number));
            let drawn = svg(&[plot]);
            let document = roxmltree::Document::parse(&drawn).expect("XML");
            let height = document
                .root_element()
                .attribute("height")
                .expect("a height");
            height.parse::<f64>().expect("a number")
        };
        assert_eq!(
            height(axis()) - super::HEIGHT,
            height(Axis::linear("x", Unit::Minutes))
        );
    }
}
