//! Conversions of engine statistics (precision, tuning, times of requests, attainment) into types
//! of the control API, for answers of the daemon and reports of the simulator.

pub mod attainment;

use tidegate_api::interference::{BehindTimes, InterferenceTimes};
use tidegate_api::stats::TimeView;
use tidegate_api::tuning::{
    InadequateView, PrecisionView, ProfilingView, RangeView, ThrottleView, TuningView,
};
use tidegate_core::interference::{Class, Interval};
use tidegate_core::precision::Precision;
use tidegate_core::request::VmId;
use tidegate_core::stats::Histogram;
use tidegate_core::tuning::{BandwidthRange, Inadequate, Throttle, Tuning};

/// Millionths in one per cent.
const PER_CENT: f64 = 10_000.0;

/// Returns the precision of a VM's bandwidth, with its errors in per cent.
pub fn precision(precision: &Precision) -> PrecisionView {
    let percent = |millionths: u64| millionths as f64 / PER_CENT;
    PrecisionView {
        seconds: precision.seconds,
        idle_seconds: precision.idle,
        interval_s: precision.interval,
        mean_bytes_per_s: precision.mean,
        target_bytes_per_s: precision.target,
        error_percent: precision.error.map(|b| b as f64 / PER_CENT),
        absolute_error_percent: precision.absolute_error.map(percent),
        variability_percent: precision.variability.map(percent),
    }
}

/// Returns where the time of a VM's requests went in an interval; `name` returns the name of a VM.
pub fn interference(interval: &Interval, name: impl Fn(VmId) -> String) -> InterferenceTimes {
    let ns = |class: Class| interval.time(class).0;
    InterferenceTimes {
        requests: interval.requests,
        samples: interval.samples,
        admission_ns: ns(Class::Admission),
        own_limit_ns: ns(Class::OwnLimit),
        others_ns: ns(Class::Others),
        own_requests_ns: ns(Class::OwnRequests),
        merged_wait_ns: ns(Class::MergedWait),
        deliberate_ns: ns(Class::Deliberate),
        service_ns: ns(Class::Service),
        slow_device_ns: ns(Class::SlowDevice),
        unknown_ns: ns(Class::Unknown),
        reply_ns: ns(Class::Reply),
        behind: (interval.culprits.iter())
            .map(|culprit| BehindTimes {
                vm: name(culprit.vm),
                waited_ns: culprit.waited.0,
                inside_ns: culprit.inside.0,
            })
            .collect(),
        unnamed_ns: interval.unnamed.0,
    }
}

/// Returns count, mean, quantiles and maximum of a histogram of times; `buckets` adds the buckets.
pub fn times(histogram: &Histogram, buckets: bool) -> TimeView {
    TimeView {
        count: histogram.count(),
        mean_ns: histogram.mean().0,
        p50_ns: histogram.quantile(0.5).0,
        p95_ns: histogram.quantile(0.95).0,
        p99_ns: histogram.quantile(0.99).0,
        p999_ns: histogram.quantile(0.999).0,
        max_ns: histogram.max().0,
        buckets: if buckets {
            histogram.iter().map(|(upper, n)| (upper.0, n)).collect()
        } else {
            Vec::new()
        },
    }
}

/// Returns the state of a VM's tuner.
pub fn tuning(tuning: &Tuning) -> TuningView {
    let (error, variability) = tuning.precision.unzip();
    TuningView {
        merge_limit_bytes: tuning.merge_limit,
        throttle: throttle(tuning.throttle),
        window_ns: tuning.window.0,
        settled: tuning.settled,
        aim_bytes_per_s: tuning.aim,
        range: tuning.range.map(range),
        profiling: (tuning.profiling).map(|(done, total)| ProfilingView { done, total }),
        error_percent: error.map(|b| b as f64 / PER_CENT),
        variability_percent: variability.map(|v| v as f64 / PER_CENT),
        inadequate: tuning.inadequate.map(inadequate),
    }
}

fn throttle(throttle: Throttle) -> Option<ThrottleView> {
    match throttle {
        Throttle::Off => None,
        Throttle::Exactly(bytes) => Some(ThrottleView::ExactlyBytesPerS(bytes)),
        Throttle::AtMost(bytes) => Some(ThrottleView::AtMostBytesPerS(bytes)),
        Throttle::Ios(thousandths) => Some(ThrottleView::Iops(thousandths as f64 / 1000.0)),
    }
}

fn range(range: BandwidthRange) -> RangeView {
    RangeView {
        lowest_bytes_per_s: range.lowest,
        highest_bytes_per_s: range.highest,
        merge_limit_bytes: range.merge_limit,
    }
}

fn inadequate(short: Inadequate) -> InadequateView {
    InadequateView {
        since_ns: short.since.0,
        bytes_per_s: short.bytes_per_s,
        iops: short.ios_per_s as f64 / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_core::time::Nanos;

    #[test]
    fn precision_is_said_in_per_cent_and_what_is_not_known_is_absent() {
        let known = Precision::from_samples(&[30, 33, 27, 36], 2, Some(30), 2);
        let view = precision(&known);
        let said = serde_json::to_value(view).expect("plain data");
        let expected = json!({
            "seconds": 4, "idle_seconds": 2, "interval_s": 2, "mean_bytes_per_s": 31,
            "target_bytes_per_s": 30, "error_percent": 5.0, "absolute_error_percent": 5.0,
            "variability_percent": 9.5238,
        });
        assert_eq!(said, expected);
        let back: PrecisionView = serde_json::from_value(said).expect("what was said");
        assert_eq!(back, view);
        let nothing = precision(&Precision::from_samples(&[], 0, None, 30));
        let said = serde_json::to_value(nothing).expect("plain data");
        assert_eq!(
            said,
            json!({ "seconds": 0, "idle_seconds": 0, "interval_s": 30 })
        );
    }

    #[test]
    fn what_a_tuner_does_is_said_with_its_units() {
        let tuning = Tuning {
            merge_limit: Some(8192),
            throttle: Throttle::AtMost(33_000_000),
            window: Nanos::from_millis(78),
            settled: true,
            aim: Some(30_000_000),
            range: Some(BandwidthRange {
                lowest: 17,
                highest: 68,
                merge_limit: 45_056,
            }),
            profiling: Some((3, 11)),
            precision: Some((-12_000, 34_000)),
            inadequate: Some(Inadequate {
                since: Nanos(5),
                bytes_per_s: 68,
                ios_per_s: 1500,
            }),
        };
        let view = super::tuning(&tuning);
        let said = serde_json::to_value(view).expect("plain data");
        let expected = json!({
            "merge_limit_bytes": 8192, "throttle": { "at_most_bytes_per_s": 33_000_000 },
            "window_ns": 78_000_000, "settled": true, "aim_bytes_per_s": 30_000_000,
            "range": {
                "lowest_bytes_per_s": 17, "highest_bytes_per_s": 68, "merge_limit_bytes": 45_056
            },
            "profiling": { "done": 3, "of": 11 },
            "error_percent": -1.2, "variability_percent": 3.4,
            "inadequate": { "since_ns": 5, "bytes_per_s": 68, "iops": 1.5 },
        });
        assert_eq!(said, expected);
        let back: TuningView = serde_json::from_value(said).expect("what was said");
        assert_eq!(back, view);
    }
}
