//! Throughput and latency of a VM over the last minutes, in steps of 10 s.

use std::collections::BTreeMap;

use tidegate_api::history::HistoryView;

use crate::commands::history::requests;

/// Length of a step, which is that of the history's longer points.
const STEP_MS: u64 = 10_000;
/// Steps that are remembered: 15 minutes, as far back as the history has seconds.
pub(crate) const STEPS: usize = 90;

/// Requests and latencies of a VM by step.
#[derive(Clone, Default, Debug)]
pub(crate) struct Series {
    points: BTreeMap<u64, Point>,
}

/// Requests and latencies of a step.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Point {
    requests: f64,
    seconds: f64,
    /// Highest 99th percentile of the step's intervals, in nanoseconds.
    p99_ns: Option<u64>,
}

impl Series {
    /// Adds an interval of `seconds` that ended at `at_ms`.
    pub(crate) fn add(&mut self, at_ms: u64, seconds: f64, iops: f64, p99_ns: Option<u64>) {
        let point = self.points.entry(at_ms / STEP_MS).or_default();
        point.requests += iops * seconds;
        point.seconds += seconds;
        point.p99_ns = point.p99_ns.max(p99_ns);
        while self.points.len() > STEPS {
            self.points.pop_first();
        }
    }

    /// Fills the steps that were not observed from the daemon's history, and latencies of those
    /// that were observed while the VM was not shown.
    pub(crate) fn fill(&mut self, history: &HistoryView) {
        for span in &history.recorded {
            // Steps of which the daemon recorded only a part are left out.
            let steps = span.from_ms.div_ceil(STEP_MS)..span.to_ms / STEP_MS;
            for step in steps.rev().take(STEPS) {
                let mut filled = Point::default();
                for interval in &history.intervals {
                    if interval.from_ms / STEP_MS == step {
                        filled.requests += requests(interval) as f64;
                        let p99_ns = interval.latency.map(|latency| latency.p99_ns);
                        filled.p99_ns = filled.p99_ns.max(p99_ns);
                    }
                }
                filled.seconds = STEP_MS as f64 / 1e3;
                let point = self.points.entry(step).or_insert(filled);
                point.p99_ns = point.p99_ns.or(filled.p99_ns);
            }
        }
        while self.points.len() > STEPS {
            self.points.pop_first();
        }
    }

    /// Returns the requests per second of the last `steps` steps up to `now_ms`, the oldest first;
    /// `None` where nothing is known.
    pub(crate) fn iops(&self, now_ms: u64, steps: usize) -> Vec<Option<f64>> {
        self.last(now_ms, steps, |point| {
            (point.seconds > 0.0).then(|| point.requests / point.seconds)
        })
    }

    /// Returns the 99th percentiles in nanoseconds of the last `steps` steps, the oldest first.
    pub(crate) fn p99(&self, now_ms: u64, steps: usize) -> Vec<Option<f64>> {
        self.last(now_ms, steps, |point| point.p99_ns.map(|ns| ns as f64))
    }

    fn last(
        &self,
        now_ms: u64,
        steps: usize,
        value: impl Fn(&Point) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let end = now_ms / STEP_MS + 1;
        let begin = end.saturating_sub(steps as u64);
        (begin..end)
            .map(|step| value(self.points.get(&step)?))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::history::{IntervalView, LatencyView, SpanView};

    fn interval(step: u64, reads: u64) -> IntervalView {
        IntervalView {
            from_ms: step * STEP_MS,
            to_ms: (step + 1) * STEP_MS,
            observed_ms: STEP_MS,
            values: [("reads".to_owned(), reads)].into(),
            latency: Some(LatencyView {
                p99_ns: 7,
                ..LatencyView::default()
            }),
            ..IntervalView::default()
        }
    }

    #[test]
    fn intervals_of_a_step_are_averaged_by_their_lengths() {
        let mut series = Series::default();
        series.add(100_000, 1.0, 100.0, Some(5));
        series.add(103_000, 3.0, 200.0, Some(9));
        series.add(110_000, 1.0, 0.0, None);
        assert_eq!(
            series.iops(112_000, 3),
            [None, Some(175.0), Some(0.0)],
            "10 s a step"
        );
        assert_eq!(series.p99(112_000, 3), [None, Some(9.0), None]);
    }

    #[test]
    fn history_fills_what_was_not_observed() {
        let mut series = Series::default();
        series.add(125_000, 1.0, 50.0, None);
        let recorded = vec![SpanView {
            // The first step is recorded in part only.
            from_ms: 85_000,
            to_ms: 130_000,
        }];
        series.fill(&HistoryView {
            intervals: vec![interval(9, 1000), interval(12, 9000)],
            recorded,
            ..HistoryView::default()
        });
        assert_eq!(
            series.iops(125_000, 5),
            [None, Some(100.0), Some(0.0), Some(0.0), Some(50.0)],
            "unknown, busy, idle, idle, observed"
        );
        let p99 = [None, Some(7.0), None, None, Some(7.0)];
        assert_eq!(series.p99(125_000, 5), p99, "not observed in the last step");
    }

    #[test]
    fn old_steps_are_forgotten() {
        let mut series = Series::default();
        for step in 0..1000 {
            series.add(step * STEP_MS, 1.0, 1.0, None);
        }
        assert_eq!(series.points.len(), STEPS);
        assert_eq!(series.iops(999 * STEP_MS, 2), [Some(1.0), Some(1.0)]);
    }
}
