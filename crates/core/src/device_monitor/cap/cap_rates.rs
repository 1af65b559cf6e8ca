//! Known rates of a cap, and evidence from a queue in its token bucket.

use crate::device_monitor::window_meter::Window;

/// Rates of a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Throughput {
    /// Thousandths of an I/O per second.
    pub(super) ios: u64,
    /// Bytes per second.
    pub(super) bytes: u64,
}

impl Throughput {
    /// Returns the rates of a window.
    pub(super) fn in_window(window: &Window) -> Throughput {
        Throughput {
            ios: window.iops_milli(),
            bytes: window.bytes_per_s(),
        }
    }

    /// Returns the larger of each rate.
    fn max_each(self, other: Throughput) -> Throughput {
        Throughput {
            ios: self.ios.max(other.ios),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// Percentage of a cap from which on a rate counts as at the cap. Chosen: rates that differ by 3 %
/// count as constant.
const REACHES_PERCENT: u128 = 97;
/// Percentage of a cap above which a rate counts as beyond the cap. Chosen: twice those 3 %.
const EXCEEDS_PERCENT: u128 = 106;
/// Divisor that gives the largest difference of rates of one cap: 1 %. Chosen: only one of the two
/// rates of a second is to be this near to its cap.
const NEAR_DIVISOR: u64 = 100;
/// One I/O per second, in thousandths.
const ONE_IO_MILLI: u64 = 1000;

/// Returns `true` if `a` is at least [`REACHES_PERCENT`] of `b`.
pub(super) fn reaches(a: u64, b: u64) -> bool {
    a as u128 * 100 >= b as u128 * REACHES_PERCENT
}

/// Returns `true` if `a` is more than [`EXCEEDS_PERCENT`] of `b`.
pub(super) fn exceeds(a: u64, b: u64) -> bool {
    a as u128 * 100 > b as u128 * EXCEEDS_PERCENT
}

/// Returns `true` if `a` is `b` within 1 % and `one`, the I/O at either end of a second.
fn is_near(a: u64, b: u64, one: u64) -> bool {
    a.abs_diff(b) <= one + b / NEAR_DIVISOR
}

/// Evidence that a queue in the token bucket gives of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Evidence {
    /// The known cap.
    Same,
    /// A cap of the same kind that is higher than known, or of the kind that was unknown.
    More,
    /// A rate above the cap: tokens saved in the bucket, or another cap.
    Over,
    /// Neither: another cap, or none.
    Other,
}

/// Rates at which a cap is known to act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CapRates {
    /// Capped rate in thousandths of an I/O per second; `None`: I/Os are not capped.
    pub(super) ios: Option<u64>,
    /// Capped rate in bytes per second; `None`: bytes are not capped.
    pub(super) bytes: Option<u64>,
    /// True if one of the two is the cap, and it is not known which.
    pub(super) either: bool,
    /// Highest rate of each that has passed.
    pub(super) reach: Throughput,
}

impl CapRates {
    /// Returns the rates of a queue in the token bucket, of which `at` passed in a second; `ios`
    /// and `bytes`: the rates that stayed the same.
    pub(super) fn pinned(at: Throughput, ios: bool, bytes: bool) -> CapRates {
        CapRates {
            ios: ios.then_some(at.ios),
            bytes: bytes.then_some(at.bytes),
            either: ios && bytes,
            reach: at,
        }
    }

    /// Takes over a rate that passed. Where either rate may be the cap, one that is exceeded is
    /// not.
    pub(super) fn narrow(&mut self, at: Throughput) {
        if self.either && self.ios.is_some_and(|cap| exceeds(at.ios, cap)) {
            (self.ios, self.either) = (None, false);
        } else if self.either && self.bytes.is_some_and(|cap| exceeds(at.bytes, cap)) {
            (self.bytes, self.either) = (None, false);
        }
        self.reach = self.reach.max_each(at);
        assert!(
            self.ios.is_some() || self.bytes.is_some(),
            "narrowing leaves no capped rate"
        );
    }

    /// Judges a second in which I/Os queued up. Rates raised by a probe fall back to `before`,
    /// since the rate that passed then may have been tokens saved in the bucket.
    pub(super) fn measured_after(
        &mut self,
        before: Option<CapRates>,
        at: Throughput,
        largest: u64,
    ) -> Evidence {
        let Some(before) = before else {
            return self.measured(at, largest);
        };
        // The raised rates are dropped: the queue shows that the bucket's tokens paid for them.
        *self = before;
        let over = |cap: Option<u64>, rate| cap.is_some_and(|cap| exceeds(rate, cap));
        if over(self.ios, at.ios) || over(self.bytes, at.bytes) {
            return Evidence::Over;
        }
        match self.measured(at, largest) {
            Evidence::Same => Evidence::More,
            evidence => evidence,
        }
    }

    /// Judges a second in which one of the two rates is at its cap. `largest`: bytes of the largest
    /// I/O.
    fn measured(&mut self, at: Throughput, largest: u64) -> Evidence {
        self.narrow(at);
        if self.either
            && let (Some(ios), Some(bytes)) = (self.ios, self.bytes)
        {
            // If only one of the two is at its cap, it is the capped one.
            match (
                is_near(at.ios, ios, ONE_IO_MILLI),
                is_near(at.bytes, bytes, largest),
            ) {
                (true, false) => (self.bytes, self.either) = (None, false),
                (false, true) => (self.ios, self.either) = (None, false),
                (true, true) | (false, false) => {}
            }
        }
        let mut known = false;
        for (cap, rate) in [(&mut self.ios, at.ios), (&mut self.bytes, at.bytes)] {
            if let Some(cap) = cap.as_mut().filter(|cap| reaches(rate, **cap)) {
                // A known rate that was slightly too high is corrected, never raised.
                (*cap, known) = (rate.min(*cap), true);
            }
        }
        if known {
            return Evidence::Same;
        }
        // A rate that has passed before cannot be the cap below it.
        let by_ios = !exceeds(self.reach.ios, at.ios);
        let by_bytes = !exceeds(self.reach.bytes, at.bytes);
        match (by_ios, by_bytes) {
            (true, false) => self.ios = Some(at.ios),
            (false, true) => self.bytes = Some(at.bytes),
            (true, true) | (false, false) => return Evidence::Other,
        }
        Evidence::More
    }

    /// Raises the rates to `at`, which passed without a queue.
    pub(super) fn raise(&mut self, at: Throughput) {
        self.ios = self.ios.map(|cap| cap.max(at.ios));
        self.bytes = self.bytes.map(|cap| cap.max(at.bytes));
        self.reach = self.reach.max_each(at);
    }
}
