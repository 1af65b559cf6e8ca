//! The pace of a cap: when the next I/O may go.

use super::rates::Rates;
use tidegate_base::pace::Pacer;
use tidegate_base::time::Nanos;

/// I/Os go at this part of the cap, in 64ths: the bucket never fills, and 3 % are lost.
pub(super) const PACE: u64 = 62;
/// How late an I/O may go for the next ones to come as if it had been on time: what timers are
/// late.
pub(super) const LATE: Nanos = Nanos::from_millis(5);

/// When the next I/O may go.
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

    /// `scale`: faster than the cap, in 64ths.
    pub(super) fn set(&mut self, rates: &Rates, scale: u64, now: Nanos) {
        let pace = |cap: Option<u64>| {
            let rate = cap.unwrap_or(0) as u128 * (PACE * scale) as u128 / (64 * 64);
            // Never so slow that it is none.
            u64::try_from(rate)
                .unwrap_or(u64::MAX)
                .max(cap.is_some() as u64)
        };
        if self.either != rates.either {
            // Of two rates of which one was the cap the other may be far behind: that is no debt.
            *self = Pace::NONE;
        }
        self.ios.set_rate(pace(rates.ios), 1, now);
        self.bytes.set_rate(pace(rates.bytes), 1, now);
        self.either = rates.either;
    }

    pub(super) fn due(&self) -> Nanos {
        match self.either {
            true => self.ios.due().min(self.bytes.due()),
            false => self.ios.due().max(self.bytes.due()),
        }
    }

    /// An I/O goes.
    pub(super) fn spend(&mut self, now: Nanos, bytes: u32) {
        for (pacer, cost) in [(&mut self.ios, 1000), (&mut self.bytes, bytes as u64)] {
            pacer.forget_before(now - LATE);
            pacer.spend(cost);
        }
    }
}
