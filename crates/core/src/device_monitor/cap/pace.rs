//! Pace of a cap: the time at which the next I/O may go.

use super::cap_rates::CapRates;
use tidegate_base::pace::Pacer;
use tidegate_base::time::Nanos;

/// Rate of I/Os as a part of the cap, in 64ths: the bucket never fills, for 3 % of the rate.
pub(super) const PACE: u64 = 62;
/// Lateness of an I/O that later ones make good, sized for late timers.
pub(super) const LATE: Nanos = Nanos::from_millis(5);

/// Pacers of I/Os and of bytes; `either`: one of them suffices.
pub(super) struct Pace {
    ios: Pacer,
    bytes: Pacer,
    either: bool,
}

impl Pace {
    pub(super) const NONE: Pace = Pace {
        ios: Pacer::NONE,
        bytes: Pacer::NONE,
        either: false,
    };

    /// Sets the pace to `scale` 64ths of [`PACE`] of the cap.
    pub(super) fn set(&mut self, rates: &CapRates, scale: u64, now: Nanos) {
        let pace = |cap: Option<u64>| {
            let rate = cap.unwrap_or(0) as u128 * (PACE * scale) as u128 / (64 * 64);
            // A rate rounded to 0 would mean no pace.
            u64::try_from(rate)
                .unwrap_or(u64::MAX)
                .max(cap.is_some() as u64)
        };
        if self.either != rates.either {
            // While one of two rates sufficed, the other may have fallen far behind: that is no
            // debt.
            *self = Pace::NONE;
        }
        self.ios.set_rate(pace(rates.ios), 1, now);
        self.bytes.set_rate(pace(rates.bytes), 1, now);
        self.either = rates.either;
    }

    /// Returns the time at which the next I/O may go.
    pub(super) fn due(&self) -> Nanos {
        if self.either {
            self.ios.due().min(self.bytes.due())
        } else {
            self.ios.due().max(self.bytes.due())
        }
    }

    /// Charges an I/O that goes, in thousandths of an I/O and in bytes.
    pub(super) fn spend(&mut self, now: Nanos, bytes: u32) {
        for (pacer, cost) in [(&mut self.ios, 1000), (&mut self.bytes, bytes as u64)] {
            pacer.forget_before(now - LATE);
            pacer.spend(cost);
        }
    }
}
