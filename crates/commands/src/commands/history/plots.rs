//! Plots of a history: latency and throughput over time.

use tidegate_api::history::{HistoryView, IntervalView, LatencyView};
use tidegate_report::{Axis, Plot, Series, Unit};

use super::table::{per_s, requests};

/// Returns plots of latencies and of requests per second. The time axis ends with the span.
pub(super) fn plots(history: &HistoryView) -> Vec<Plot> {
    let name = history.vm.as_ref().or(history.device.as_ref());
    let name = name.map_or("", String::as_str);
    let time = || Axis::linear("time before the end", Unit::Seconds);
    let mut latency = Plot::new(
        format!("{name}: latency"),
        time(),
        Axis::log10("latency", Unit::Nanos),
    );
    let of = |quantile: fn(&LatencyView) -> u64| {
        line(history, |interval| {
            Some(quantile(interval.latency.as_ref()?) as f64)
        })
    };
    latency.add(
        Series::line("p99")
            .points(of(|latency| latency.p99_ns))
            .unmarked(),
    );
    latency.add(
        Series::line("p50")
            .points(of(|latency| latency.p50_ns))
            .unmarked(),
    );
    let mut rate = Plot::new(
        format!("{name}: requests"),
        time(),
        Axis::linear("IOPS", Unit::Number).including(0.0),
    );
    let iops = line(history, |interval| {
        Some(per_s(interval, requests(interval)))
    });
    rate.add(Series::line("IOPS").points(iops).unmarked());
    vec![latency, rate]
}

/// Returns a point for each interval, and one that cannot be shown, a gap, where some are missing.
fn line(history: &HistoryView, value: impl Fn(&IntervalView) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut ended: Option<u64> = None;
    for interval in &history.intervals {
        let x = (interval.to_ms as f64 - history.to_ms as f64) / 1000.0;
        let slack = 1500 * u64::from(history.step_s == 1);
        if ended.is_some_and(|ended| interval.from_ms > ended + slack) {
            points.push((x, f64::NAN));
        }
        points.push((x, value(interval).unwrap_or(f64::NAN)));
        ended = Some(interval.to_ms);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interval_is_a_gap_in_the_line() {
        let interval = |second: u64| IntervalView {
            from_ms: 1000 * second,
            to_ms: 1000 * second + 10_000,
            observed_ms: 10_000,
            values: [("reads".to_owned(), 100)].into(),
            ..IntervalView::default()
        };
        let history = HistoryView {
            vm: Some("oltp".to_owned()),
            step_s: 10,
            to_ms: 60_000,
            intervals: vec![interval(0), interval(10), interval(50)],
            ..HistoryView::default()
        };
        let iops = line(&history, |interval| {
            Some(per_s(interval, requests(interval)))
        });
        let finite: Vec<_> = iops.iter().filter(|(_, y)| y.is_finite()).collect();
        assert_eq!(finite, [&(-50.0, 10.0), &(-40.0, 10.0), &(0.0, 10.0)]);
        assert_eq!(iops.len(), 4);
        assert_eq!(plots(&history).len(), 2);
    }
}
