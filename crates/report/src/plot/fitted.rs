//! Fitting of a plot: ranges of axes, positions of points, and notes about what is left out.

use super::scale::Span;
use super::{Plot, Point, Scale};
use tidegate_units::human::count;

/// Plot with a range for each axis, and with the positions of its points.
#[derive(Debug)]
pub(super) struct Fitted<'a> {
    pub(super) plot: &'a Plot,
    pub(super) x: Span,
    pub(super) y: Span,
    /// Runs of points without a gap, for each series in the plot's order.
    pub(super) series: Vec<Vec<Vec<Spot>>>,
    /// Notes about data that is left out or changed, as sentences.
    pub(super) notes: Vec<String>,
}

/// Position of a point, in parts (0 to 1) of the axes, from the left and from below.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// Numbers of points and intervals that were left out of a series.
#[derive(Default)]
struct LeftOut {
    /// Points with a coordinate that is not finite.
    not_finite: u64,
    /// Points where a scale ends before: at 0 or below on a logarithmic axis.
    off_scale: u64,
    /// Intervals with an end that is not finite.
    intervals_not_finite: u64,
    /// Intervals cut off at the end of a logarithmic axis.
    intervals_cut: u64,
}

impl<'a> Fitted<'a> {
    pub(super) fn new(plot: &'a Plot) -> Fitted<'a> {
        let (x, y) = (plot.x.scale, plot.y.scale);
        let shown = |point: &&Point| x.shows(point.x) && y.shows(point.y);
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let ys = points().filter(shown).flat_map(|point| {
            let interval = point.interval.filter(is_finite);
            let (low, high) = interval.unwrap_or((point.y, point.y));
            // The point itself, too: it may lie outside of its interval.
            [point.y, low, high]
        });
        let ends = plot.stretches.iter().flat_map(|it| [it.from, it.to]);
        let ends = ends.filter(|&end| x.shows(end));
        let xs = points().filter(shown).map(|point| point.x);
        let mut fitted = Fitted {
            plot,
            x: Span::new(&plot.x, xs.chain(ends)),
            y: Span::new(&plot.y, ys),
            series: Vec::new(),
            notes: Vec::new(),
        };
        for series in &plot.series {
            let (runs, mut left_out) = fitted.runs(&series.points);
            if series.has_gaps {
                left_out.not_finite = 0;
            }
            fitted
                .notes
                .extend(left_out.text(&series.name, x == Scale::Nines || y == Scale::Nines));
            if series.points.is_empty() {
                fitted
                    .notes
                    .push(format!("\"{}\" has no points", series.name));
            }
            fitted.series.push(runs);
        }
        fitted
    }

    /// Returns true if there is no point to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.series.iter().all(Vec::is_empty)
    }

    fn runs(&self, points: &[Point]) -> (Vec<Vec<Spot>>, LeftOut) {
        let mut left_out = LeftOut::default();
        let mut runs = vec![Vec::new()];
        for point in points {
            match self.spot(point, &mut left_out) {
                Some(spot) => runs.last_mut().expect("there is one").push(spot),
                // A point that cannot be shown ends the run, and the next one begins another.
                None => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        (runs, left_out)
    }

    fn spot(&self, point: &Point, left_out: &mut LeftOut) -> Option<Spot> {
        if !(point.x.is_finite() && point.y.is_finite()) {
            left_out.not_finite += 1;
            return None;
        }
        let y = self.plot.y.scale;
        if !(self.plot.x.scale.shows(point.x) && y.shows(point.y)) {
            left_out.off_scale += 1;
            return None;
        }
        let interval = point.interval.filter(is_finite);
        if interval != point.interval {
            left_out.intervals_not_finite += 1;
        }
        let interval = interval.map(|(a, b)| {
            if !(y.shows(a) && y.shows(b)) {
                left_out.intervals_cut += 1;
            }
            // An end at 0 or below on a logarithmic axis is drawn at the axis's end.
            (self.y.position(a.min(b)), self.y.position(a.max(b)))
        });
        Some(Spot {
            x: self.x.position(point.x),
            y: self.y.position(point.y),
            interval,
        })
    }
}

/// Returns the indices of a line's points that get a mark: all, or some of them if points are
/// closer than `min_distance`. Different series then mark different points, so that their marks
/// seldom cover each other. `cells` are the positions of the points.
pub(super) fn points_to_mark(
    cells: &[(usize, usize)],
    min_distance: usize,
    series_index: usize,
) -> Vec<usize> {
    let far = |i: usize, j: usize| {
        let (a, b) = (cells[i], cells[j]);
        a.0.abs_diff(b.0).max(a.1.abs_diff(b.1))
    };
    if (1..cells.len()).all(|i| far(i - 1, i) >= min_distance) {
        return (0..cells.len()).collect();
    }
    let mut marked = Vec::new();
    let mut last = 0;
    // The first marks of successive series are a third of the distance apart.
    let mut wanted = series_index * min_distance / 3 % min_distance;
    for i in 0..cells.len() {
        if far(last, i) >= wanted {
            marked.push(i);
            last = i;
            wanted = min_distance;
        }
    }
    // A line without a mark could not be told from others.
    if marked.is_empty() {
        marked.push(cells.len() - 1);
    }
    marked
}

fn is_finite(&(low, high): &(f64, f64)) -> bool {
    low.is_finite() && high.is_finite()
}

/// Formats a count with its noun: `1 point`, `2 points`.
pub(super) fn counted(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(n))
}

impl LeftOut {
    fn text(&self, name: &str, nines: bool) -> Option<String> {
        let off_scale = if nines {
            "outside of the scale"
        } else {
            "at 0 or below on a logarithmic axis"
        };
        let parts: Vec<String> = [
            (self.not_finite, "point", "not finite"),
            (self.off_scale, "point", off_scale),
            (self.intervals_not_finite, "interval", "not finite"),
            (
                self.intervals_cut,
                "interval",
                "cut off at a logarithmic axis' end",
            ),
        ]
        .into_iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(n, what, why)| format!("{} {why}", counted(n, what)))
        .collect();
        (!parts.is_empty()).then(|| format!("left out of \"{name}\": {}", parts.join(", ")))
    }
}
