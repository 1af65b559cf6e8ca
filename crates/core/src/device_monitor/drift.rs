//! Comparison of a device with its profile.
//!
//! A profile states the time that a saturated device takes for each I/O, so only seconds count in
//! which enough I/Os were in flight all the time, or in which the learnt cap held waiting I/Os
//! back. The ratio of the elapsed time to the profile's time for the completed I/Os is 1 where they
//! agree, 2 where the device takes twice as long.
//!
//! ```text
//!            5 seconds in a row beyond 20 %, and the mean, too
//!   agrees --------------------------------------------------> deviates (slower or faster)
//!     ^                                                          |
//!     +------- 5 in a row within 10 %, and the mean, too --------+
//! ```

use super::window_meter::{WINDOW, Window};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;

/// Consecutive seconds after which the verdict changes, either way: a single one may be a disk's
/// own housekeeping.
const VERDICT_SECONDS: u32 = 5;
/// Ratio, or its inverse, beyond which the device deviates from its profile: the 20 % that plans
/// leave as headroom.
const DRIFT_RATIO: f64 = 1.2;
/// Ratio, or its inverse, within which the device agrees again; half of the deviation of
/// [`DRIFT_RATIO`], so that the
/// verdict does not flap.
const AGREE_RATIO: f64 = 1.1;
/// Weight of a second in the smoothed ratio: a memory of four seconds, less than
/// [`VERDICT_SECONDS`].
const EWMA_WEIGHT: f64 = 0.25;
/// Largest ratio, or inverse, that a second counts for, such as one in which the device hung.
const RATIO_MAX: f64 = 16.0;
/// Completed I/Os below which a second is not evaluated: those across its ends would dominate.
const WINDOW_IOS_MIN: u64 = 16;

/// Comparison of a device with its profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    /// Elapsed time over the profile's time for the completed I/Os, smoothed; above 1: the device
    /// is slower. 1 before the first evaluated second.
    pub ratio: f64,
    /// Standard deviation of the seconds' ratios around it, with the same smoothing.
    pub spread: f64,
    /// Number of evaluated seconds.
    pub windows: u64,
    /// Time of the last change of the verdict; zero: none yet.
    pub since: Nanos,
    /// Direction of the deviation; `None`: the device agrees with its profile.
    pub direction: Option<DriftDirection>,
    /// I/Os that must be in flight for a second to count.
    pub saturating_depth: u32,
    /// True if the engine's depth is below `saturating_depth`, so that no second will be evaluated.
    pub too_shallow: bool,
}

impl Drift {
    /// Returns the verdict on a ratio, with hysteresis: [`AGREE_RATIO`] bounds the present
    /// verdict, [`DRIFT_RATIO`] any other.
    fn side(&self, ratio: f64) -> Option<DriftDirection> {
        match DriftDirection::beyond(ratio, AGREE_RATIO) {
            present if present == self.direction => present,
            _ => DriftDirection::beyond(ratio, DRIFT_RATIO),
        }
    }
}

/// Direction in which a device deviates from its profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriftDirection {
    /// The device takes longer than the profile says.
    Slower,
    /// The device takes less, because of a cache, a short span of the disk or a profile of another
    /// device.
    Faster,
}

impl DriftDirection {
    /// Returns the name for messages and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DriftDirection::Slower => "slower",
            DriftDirection::Faster => "faster",
        }
    }

    /// Returns the side of the band on which a ratio lies; `None`: within.
    fn beyond(ratio: f64, band: f64) -> Option<DriftDirection> {
        match ratio {
            r if r > band => Some(DriftDirection::Slower),
            r if r * band < 1.0 => Some(DriftDirection::Faster),
            _ => None,
        }
    }
}

/// Returns the I/Os in flight at which the device is as fast as its profile says: the least depth
/// at which every kind of I/O measured against depth is within 5 % of its maximum, at most the
/// depth of the profile's measurements.
pub(super) fn saturating_depth(profile: &Profile, spec: &DeviceSpec) -> u32 {
    let kind = |p: &tidegate_capacity::profile::DepthPoint| (p.direction, p.access, p.size);
    let points = profile.latency();
    let needed = points
        .iter()
        .map(|point| {
            let of_kind = || points.iter().filter(|p| kind(p) == kind(point));
            let iops_max = of_kind().fold(0.0, |iops_max, p| f64::max(iops_max, p.iops));
            let saturated = of_kind().filter(|p| p.iops >= 0.95 * iops_max);
            saturated.map(|p| p.depth).min().unwrap_or(0)
        })
        .max();
    let measured = match profile.depth() {
        0 => spec.depth,
        depth => depth,
    };
    needed.map_or(measured, |n| n.min(measured)).max(1)
}

/// Evaluation of one second after the other.
pub(super) struct DriftDetector {
    pub(super) drift: Drift,
    /// Square of [`Drift::spread`].
    variance: f64,
    /// Verdict on the last second.
    side: Option<DriftDirection>,
    /// Number of consecutive seconds with that verdict.
    run: u32,
    /// True if the verdict has changed and no alert was given yet.
    pub(super) changed: bool,
}

impl DriftDetector {
    /// Creates a detector of a device; `saturating_depth`: I/Os in flight for a second to count.
    pub(super) fn new(saturating_depth: u32, spec: &DeviceSpec) -> DriftDetector {
        DriftDetector {
            drift: Drift {
                ratio: 1.0,
                spread: 0.0,
                windows: 0,
                since: Nanos::ZERO,
                direction: None,
                saturating_depth,
                too_shallow: saturating_depth > spec.depth,
            },
            variance: 0.0,
            side: None,
            run: 0,
            changed: false,
        }
    }

    /// Evaluates a second, if it counts.
    pub(super) fn evaluate(&mut self, window: &Window) {
        let Some(ratio) = ratio(window) else { return };
        let drift = &mut self.drift;
        drift.windows += 1;
        match drift.windows {
            // The first second counts in full.
            1 => drift.ratio = ratio,
            _ => {
                // Exponentially weighted mean and variance.
                let deviation = ratio - drift.ratio;
                drift.ratio += EWMA_WEIGHT * deviation;
                self.variance =
                    (1.0 - EWMA_WEIGHT) * (self.variance + EWMA_WEIGHT * deviation * deviation);
                drift.spread = self.variance.sqrt();
            }
        }
        let (side, smoothed) = (drift.side(ratio), drift.side(drift.ratio));
        self.run = if side == self.side { self.run + 1 } else { 1 };
        self.side = side;
        // Last seconds and mean must agree, so that neither a short disturbance nor a slow mean
        // decides.
        if side != drift.direction && smoothed == side && self.run >= VERDICT_SECONDS {
            drift.direction = side;
            drift.since = window.end;
            self.changed = true;
        }
    }
}

/// Returns the ratio of a second; `None`: it does not count.
fn ratio(window: &Window) -> Option<f64> {
    let (least, most) = window.expected?;
    // Slack in at most 5 % of the time.
    let full = window.slack.0 * 20 <= window.len.0;
    // A window is closed by the next I/O: a much longer one means that nothing ran, or that the
    // machine stood still.
    let in_time = window.len.0 <= WINDOW.0 * 2;
    if window.failed || !full || !in_time || window.ios < WINDOW_IOS_MIN || least <= 0.0 {
        return None;
    }
    let elapsed = window.len.0 as f64;
    // The expected time is a range, within which the device agrees: the ratio is then 1.
    let ratio = elapsed / elapsed.clamp(least, most);
    Some(ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX))
}
