//! Precision with which a VM's bandwidth is held, and state of the tuner that holds a VM at its
//! target. Reports of the simulator use the same types.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Precision of a VM's bandwidth: B, beta and V of the V-Cup paper, definitions 2.1 to 2.3.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PrecisionView {
    /// Whole measured seconds: those in which the VM had requests outstanding.
    pub seconds: u32,
    /// Seconds that are not measured, because the VM had nothing outstanding.
    pub idle_seconds: u32,
    /// Statistical interval of beta, in measured seconds.
    pub interval_s: u32,
    /// Mean bandwidth; absent where no second was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_bytes_per_s: Option<u64>,
    /// Target; absent, as B and beta are, where the VM has no target in bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes_per_s: Option<u64>,
    /// B: deviation of the mean from the target; negative: below the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<f64>,
    /// Beta: mean of |B| over the intervals; absent before the first whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute_error_percent: Option<f64>,
    /// V: mean deviation of the seconds' bandwidths from their mean, in per cent of the mean;
    /// absent where nothing moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variability_percent: Option<f64>,
}

/// Present state of the tuner of a VM with a target.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TuningView {
    /// Maximum size of the VM's I/Os; absent: the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_limit_bytes: Option<u32>,
    /// Limit on the rate of I/Os; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<ThrottleView>,
    /// Time for which each tuning action holds, in nanoseconds.
    pub window_ns: u64,
    /// True once the tuner has stopped searching for a better window.
    pub settled: bool,
    /// Bandwidth that tuning actions aim at; absent: only IOPS are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim_bytes_per_s: Option<u64>,
    /// Bandwidths that can be promised; absent: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
    /// Progress of the measurement of the range; absent while none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiling: Option<ProfilingView>,
    /// Bandwidth error (B) over the tuner's last statistical interval; absent before the first has
    /// ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<f64>,
    /// Bandwidth variability (V) over the tuner's last statistical interval; absent before the
    /// first has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variability_percent: Option<f64>,
    /// Shortfall of a device that cannot reach the target; absent while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inadequate: Option<InadequateView>,
}

/// Throttle of a VM's I/Os.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleView {
    /// Bytes a second on average; bandwidth lost in one window is made up in the next.
    ExactlyBytesPerS(u64),
    /// Maximum of bytes a second; bandwidth lost in one window is not made up.
    AtMostBytesPerS(u64),
    /// I/Os a second.
    Iops(f64),
}

/// Range of bandwidths measured for a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RangeView {
    /// Bandwidth at one page (4 KiB) an I/O; lower targets need a throttle.
    pub lowest_bytes_per_s: u64,
    /// Highest bandwidth measured.
    pub highest_bytes_per_s: u64,
    /// Merge limit at which the highest bandwidth was measured.
    pub merge_limit_bytes: u32,
}

/// Progress of measuring a [`RangeView`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProfilingView {
    /// Merge limits measured so far.
    pub done: u32,
    /// Merge limits to measure in total.
    #[serde(rename = "of")]
    pub total: u32,
}

/// Device capacity that is too small for a VM's target.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InadequateView {
    /// Time at which the capacity became too small, by the clock of the event loop or of the
    /// simulation.
    pub since_ns: u64,
    /// Bandwidth available instead: the VM's recent bandwidth.
    pub bytes_per_s: u64,
    /// Device I/Os a second available instead.
    pub iops: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn precision_without_measured_seconds_has_no_figures() {
        let mut precision = PrecisionView {
            seconds: 0,
            idle_seconds: 0,
            interval_s: 30,
            mean_bytes_per_s: None,
            target_bytes_per_s: None,
            error_percent: None,
            absolute_error_percent: None,
            variability_percent: None,
        };
        let head = r#"{"seconds":0,"idle_seconds":0,"interval_s":30"#;
        round_trip(&precision, &format!("{head}}}"));
        precision.mean_bytes_per_s = Some(31);
        precision.target_bytes_per_s = Some(30);
        precision.error_percent = Some(-5.0);
        precision.absolute_error_percent = Some(5.5);
        precision.variability_percent = Some(9.5238);
        let bytes = r#""mean_bytes_per_s":31,"target_bytes_per_s":30,"error_percent":-5.0"#;
        let percent = r#""absolute_error_percent":5.5,"variability_percent":9.5238}"#;
        round_trip(&precision, &format!("{head},{bytes},{percent}"));
    }

    #[test]
    fn unknown_figures_of_tuning_are_absent() {
        let mut tuning = TuningView {
            merge_limit_bytes: None,
            throttle: None,
            window_ns: 78_000_000,
            settled: true,
            aim_bytes_per_s: None,
            range: None,
            profiling: None,
            error_percent: None,
            variability_percent: None,
            inadequate: None,
        };
        round_trip(&tuning, r#"{"window_ns":78000000,"settled":true}"#);
        tuning.merge_limit_bytes = Some(8192);
        tuning.throttle = Some(ThrottleView::Iops(1500.25));
        tuning.aim_bytes_per_s = Some(30);
        tuning.range = Some(RangeView {
            lowest_bytes_per_s: 17,
            highest_bytes_per_s: 68,
            merge_limit_bytes: 45_056,
        });
        tuning.profiling = Some(ProfilingView { done: 3, total: 11 });
        tuning.error_percent = Some(-1.2);
        tuning.variability_percent = Some(3.4);
        tuning.inadequate = Some(InadequateView {
            since_ns: 5,
            bytes_per_s: 68,
            iops: 1.5,
        });
        let head = r#"{"merge_limit_bytes":8192,"throttle":{"iops":1500.25},"#;
        let window = r#""window_ns":78000000,"settled":true,"aim_bytes_per_s":30,"#;
        let range = r#""range":{"lowest_bytes_per_s":17,"highest_bytes_per_s":68,"#;
        let limit = r#""merge_limit_bytes":45056},"profiling":{"done":3,"of":11},"#;
        let percent = r#""error_percent":-1.2,"variability_percent":3.4,"#;
        let tail = r#""inadequate":{"since_ns":5,"bytes_per_s":68,"iops":1.5}}"#;
        round_trip(
            &tuning,
            &format!("{head}{window}{range}{limit}{percent}{tail}"),
        );
    }

    #[test]
    fn throttles_round_trip() {
        round_trip(
            &ThrottleView::ExactlyBytesPerS(7),
            r#"{"exactly_bytes_per_s":7}"#,
        );
        round_trip(
            &ThrottleView::AtMostBytesPerS(7),
            r#"{"at_most_bytes_per_s":7}"#,
        );
        round_trip(&ThrottleView::Iops(7.0), r#"{"iops":7.0}"#);
    }
}
