//! What answers and reports say of how precisely a VM is served, and of how it is tuned to that: in one
//! form, whether the daemon says it or the simulator.

use serde::{Deserialize, Serialize};
use tidegate_core::precision::Precision;
use tidegate_core::tuning::{BandwidthRange, Inadequate, Throttle, Tuning};

/// Millionths that are one per cent.
const PER_CENT: f64 = 10_000.0;

/// How precisely a VM's bandwidth was held: B, beta and V of the V-Cup paper, definitions 2.1 to 2.3.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PrecisionView {
    /// Whole seconds that count: those in which it had something outstanding.
    pub seconds: u32,
    /// Seconds of the same time in which it had nothing outstanding, which do not.
    pub idle_seconds: u32,
    /// The statistical interval of beta, in seconds that count.
    pub interval_s: u32,
    /// What it had on average; absent where no second counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_bytes_per_s: Option<u64>,
    /// Its target; absent where it has none in bytes a second. Then there is neither B nor beta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes_per_s: Option<u64>,
    /// B: by how much the mean is above the target, below it: negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<f64>,
    /// Beta: the mean of |B| over the intervals; absent before the first whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute_error_percent: Option<f64>,
    /// V: how far seconds are off their mean, on average, relative to it; absent where nothing moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variability_percent: Option<f64>,
}

impl PrecisionView {
    /// Shows it.
    pub fn new(precision: &Precision) -> PrecisionView {
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
}

/// How a VM is tuned to its target just now.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TuningView {
    /// Its I/Os have at most so many bytes; absent: as many as the device allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_limit_bytes: Option<u32>,
    /// How fast they may follow each other; absent: as fast as they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<ThrottleView>,
    /// How long each tuning action holds.
    pub window_ns: u64,
    /// No better window is looked for at the moment.
    pub settled: bool,
    /// The bandwidth that tuning actions aim at; absent: only IOPS are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim_bytes_per_s: Option<u64>,
    /// The bandwidths that can be promised; absent: they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
    /// The range is being measured; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiling: Option<ProfilingView>,
    /// B over the tuner's last statistical interval; absent before the first has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<f64>,
    /// V over the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variability_percent: Option<f64>,
    /// The VM asks for its target and the device does not do it; absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inadequate: Option<InadequateView>,
}

/// A throttle: one of these.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleView {
    /// So many bytes a second, and what comes late is made good.
    ExactlyBytesPerS(u64),
    /// At most so many bytes a second; what comes late is lost.
    AtMostBytesPerS(u64),
    /// So many I/Os a second.
    Iops(f64),
}

/// Bandwidths that a VM was found to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangeView {
    /// At one page an I/O: less needs a throttle.
    pub lowest_bytes_per_s: u64,
    /// The highest that there was.
    pub highest_bytes_per_s: u64,
    /// The merge limit at which it was.
    pub merge_limit_bytes: u32,
}

/// How far profiling has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProfilingView {
    /// Merge limits that are measured.
    pub done: u32,
    /// Of so many.
    pub of: u32,
}

/// A capacity that is too small for what was promised.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct InadequateView {
    /// Since when it has been, by the clock of the loop or of the simulation.
    pub since_ns: u64,
    /// What can be had instead: what the VM had of late.
    pub bytes_per_s: u64,
    /// The same in I/Os of the device.
    pub iops: f64,
}

impl TuningView {
    /// Shows it.
    pub fn new(tuning: &Tuning) -> TuningView {
        let (error, variability) = tuning.precision.unzip();
        TuningView {
            merge_limit_bytes: tuning.merge_limit,
            throttle: throttle(tuning.throttle),
            window_ns: tuning.window.0,
            settled: tuning.settled,
            aim_bytes_per_s: tuning.aim,
            range: tuning.range.map(range),
            profiling: (tuning.profiling).map(|(done, of)| ProfilingView { done, of }),
            error_percent: error.map(|b| b as f64 / PER_CENT),
            variability_percent: variability.map(|v| v as f64 / PER_CENT),
            inadequate: tuning.inadequate.map(inadequate),
        }
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
        let known = Precision::of(&[30, 33, 27, 36], 2, Some(30), 2);
        let view = PrecisionView::new(&known);
        let said = serde_json::to_value(view).expect("plain data");
        let expected = json!({
            "seconds": 4, "idle_seconds": 2, "interval_s": 2, "mean_bytes_per_s": 31,
            "target_bytes_per_s": 30, "error_percent": 5.0, "absolute_error_percent": 5.0,
            "variability_percent": 9.5238,
        });
        assert_eq!(said, expected);
        let back: PrecisionView = serde_json::from_value(said).expect("what was said");
        assert_eq!(back, view);
        let nothing = PrecisionView::new(&Precision::of(&[], 0, None, 30));
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
        let view = TuningView::new(&tuning);
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
