//! Does the device still do what its profile says?
//!
//! A profile says what a saturated device takes for each I/O, so only seconds count in which it had
//! enough in flight all the time, or in which the learnt cap held back what waited. The ratio of
//! the time that passed to the time that the profile gives for what ended is 1 where they agree, 2
//! where the device takes twice as long.
//!
//! ```text
//!            5 seconds in a row beyond 20 %, and the mean, too
//!   agrees --------------------------------------------------> parted (slower or faster)
//!     ^                                                          |
//!     +------- 5 in a row within 10 %, and the mean, too --------+
//! ```

use super::meter::{WINDOW, Window};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;

/// Seconds in a row that it takes to part, and to agree again.
const IN_A_ROW: u32 = 5;
/// Beyond this the device has parted from its profile.
const BAND: f64 = 1.2;
/// Within this it agrees again.
const INNER: f64 = 1.1;
/// What a second counts in the smoothed ratio.
const SMOOTH: f64 = 0.25;
/// A second in which the device hung says no more than this.
const MOST: f64 = 16.0;
/// I/Os that a second must have to say anything.
const IOS: u64 = 16;

/// How a device compares with its profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    /// Time that passed by the time that the profile gives for what was done meanwhile, smoothed;
    /// above 1: the device is slower. 1 until a second was judged.
    pub ratio: f64,
    /// Standard deviation of the seconds' ratios around it, smoothed likewise.
    pub spread: f64,
    /// Seconds that were judged.
    pub windows: u64,
    /// Since when it agrees or does not; zero: from the start.
    pub since: Nanos,
    /// It does not do what its profile says.
    pub parted: Option<Parting>,
    /// I/Os that must be in flight for a second to count.
    pub enough: u32,
    /// The engine never has so many in flight: nothing will be judged.
    pub too_shallow: bool,
}

impl Drift {
    /// Where a ratio lies: to leave a side takes less than to come to it.
    fn side(&self, ratio: f64) -> Option<Parting> {
        match Parting::of(ratio, INNER) {
            inner if inner == self.parted => inner,
            _ => Parting::of(ratio, BAND),
        }
    }
}

/// To which side a device has parted from its profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// It takes longer than the profile says.
    Slower,
    /// It takes less: a cache, a short span of the disk, a profile of something else.
    Faster,
}

impl Parting {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Parting::Slower => "slower",
            Parting::Faster => "faster",
        }
    }

    fn of(ratio: f64, band: f64) -> Option<Parting> {
        match ratio {
            r if r > band => Some(Parting::Slower),
            r if r * band < 1.0 => Some(Parting::Faster),
            _ => None,
        }
    }
}

/// I/Os in flight with which the device is as fast as its profile says: so many that each kind that
/// was measured against depth is within 5 % of its most, else as many as it was measured with.
pub(super) fn enough(profile: &Profile, spec: &DeviceSpec) -> u32 {
    let kind = |p: &tidegate_capacity::profile::DepthPoint| (p.direction, p.access, p.size);
    let points = profile.latency();
    let needed = points
        .iter()
        .map(|of| {
            let same = || points.iter().filter(|p| kind(p) == kind(of));
            let most = same().fold(0.0, |most, p| f64::max(most, p.iops));
            let near = same().filter(|p| p.iops >= 0.95 * most);
            near.map(|p| p.depth).min().unwrap_or(0)
        })
        .max();
    let measured = match profile.depth() {
        0 => spec.depth,
        depth => depth,
    };
    needed.map_or(measured, |n| n.min(measured)).max(1)
}

/// Judges one second after the other.
pub(super) struct Judge {
    pub(super) drift: Drift,
    variance: f64,
    /// Where the last seconds were, and how many in a row.
    side: Option<Parting>,
    row: u32,
    /// It has parted, or agrees again, and nobody was told.
    pub(super) changed: bool,
}

impl Judge {
    pub(super) fn new(enough: u32, spec: &DeviceSpec) -> Judge {
        Judge {
            drift: Drift {
                ratio: 1.0,
                spread: 0.0,
                windows: 0,
                since: Nanos::ZERO,
                parted: None,
                enough,
                too_shallow: enough > spec.depth,
            },
            variance: 0.0,
            side: None,
            row: 0,
            changed: false,
        }
    }

    pub(super) fn judge(&mut self, window: &Window) {
        let Some(ratio) = ratio(window) else { return };
        let drift = &mut self.drift;
        drift.windows += 1;
        match drift.windows {
            1 => drift.ratio = ratio,
            _ => {
                let off = ratio - drift.ratio;
                drift.ratio += SMOOTH * off;
                self.variance = (1.0 - SMOOTH) * (self.variance + SMOOTH * off * off);
                drift.spread = self.variance.sqrt();
            }
        }
        let (side, smoothed) = (drift.side(ratio), drift.side(drift.ratio));
        self.row = if side == self.side { self.row + 1 } else { 1 };
        self.side = side;
        if side != drift.parted && smoothed == side && self.row >= IN_A_ROW {
            drift.parted = side;
            drift.since = window.end;
            self.changed = true;
        }
    }
}

/// What a second says; `None`: nothing.
fn ratio(window: &Window) -> Option<f64> {
    let (least, most) = window.expected?;
    let full = window.slack.0 * 20 <= window.len.0;
    // Much longer than a window should be: nobody looked, the machine may have stood still.
    let seen = window.len.0 <= WINDOW.0 * 2;
    if window.failed || !full || !seen || window.ios < IOS || least <= 0.0 {
        return None;
    }
    let passed = window.len.0 as f64;
    // Within what is not known it agrees.
    let ratio = passed / passed.clamp(least, most);
    Some(ratio.clamp(1.0 / MOST, MOST))
}
