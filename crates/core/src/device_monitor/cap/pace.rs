//! Pacing just below a cap: the time at which the next I/O may be dispatched.

use super::cap_rates::CapRates;
use tidegate_base::pace::Pacer;
use tidegate_base::time::Nanos;

/// Rate of I/Os as a part of the cap, in 64ths. Just below the whole cap, no I/O ever waits in the
/// provider's token bucket; it costs 3 % of the throughput. `tidegate device` prints it as 97 %.
pub(super) const PACE_64THS: u64 = 62;
/// Largest delay behind the pace that later I/Os make up for. Timers fire some milliseconds late;
/// without the allowance each late one would cost throughput.
pub(super) const CATCH_UP_MAX: Nanos = Nanos::from_millis(5);

/// Scale of the pace that stands for 1, in 64ths.
pub(super) const SCALE_ONE: u64 = 64;

/// Pacers of I/Os, in thousandths, and of bytes.
pub(super) struct Pace {
    ios: Pacer,
    bytes: Pacer,
    /// True if an I/O may be dispatched as soon as one of the two pacers lets it.
    either: bool,
}

impl Pace {
    /// No pacing.
    pub(super) const NONE: Pace = Pace {
        ios: Pacer::NONE,
        bytes: Pacer::NONE,
        either: false,
    };

    /// Sets the rates to cap x [`PACE_64THS`] / 64 x `scale` / [`SCALE_ONE`]. `rates` are in
    /// thousandths of an I/O and in bytes per second.
    pub(super) fn set(&mut self, rates: &CapRates, scale: u64, now: Nanos) {
        let pace = |cap: Option<u64>| {
            let rate =
                cap.unwrap_or(0) as u128 * (PACE_64THS * scale) as u128 / (64 * SCALE_ONE) as u128;
            // A rate rounded to 0 would mean no pace.
            u64::try_from(rate)
                .unwrap_or(u64::MAX)
                .max(cap.is_some() as u64)
        };
        if self.either != rates.either {
            // While one of two rates sufficed, the other pacer may have fallen far behind. What it
            // lags must not be charged now.
            *self = Pace::NONE;
        }
        self.ios.set_rate(pace(rates.ios), 1, now);
        self.bytes.set_rate(pace(rates.bytes), 1, now);
        self.either = rates.either;
    }

    /// Returns the time at which the next I/O may be dispatched.
    pub(super) fn due(&self) -> Nanos {
        if self.either {
            self.ios.due().min(self.bytes.due())
        } else {
            self.ios.due().max(self.bytes.due())
        }
    }

    /// Charges an I/O that is dispatched, in thousandths of an I/O and in bytes.
    pub(super) fn spend(&mut self, now: Nanos, bytes: u32) {
        for (pacer, cost) in [(&mut self.ios, 1000), (&mut self.bytes, bytes as u64)] {
            // Subtraction of times saturates at 0.
            pacer.forget_before(now - CATCH_UP_MAX);
            pacer.spend(cost);
        }
    }
}
