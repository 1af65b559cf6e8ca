//! Pacing at an exact rate: integers, with the remainder carried.
//!
//! A [`Pacer`] is the generic cell rate algorithm (ITU-T I.371): one time, `at`, when the next
//! unit is due. Spending moves it on by cost / rate; a request conforms while `at` is no later
//! than now plus a tolerance. mClock's reservation and limit tags and both of QEMU's leaky
//! buckets are this with different tolerances.

use crate::objective::{OpsRate, Rate};
use crate::time::Nanos;

const SECOND: u64 = 1_000_000_000;

/// When the next unit of one rate is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacer {
    /// When the next unit is due.
    at: Nanos,
    /// Units a second; 0: no rate, always due.
    rate: u64,
    /// What the last division left, in units x nanoseconds: always below `rate`.
    carry: u64,
    /// Units a request: what is owed stays the same number of requests when this changes.
    unit: u64,
}

impl Pacer {
    /// No rate.
    pub const NONE: Pacer = Pacer {
        at: Nanos::ZERO,
        rate: 0,
        carry: 0,
        unit: 1,
    };

    /// A pacer of `per_s` times `unit` units a second, 0 for none, due at `now`.
    pub fn new(per_s: u64, unit: u64, now: Nanos) -> Pacer {
        Pacer {
            at: now,
            rate: per_s.saturating_mul(unit),
            carry: 0,
            unit,
        }
    }

    /// A request, or a byte, every so long; zero when there is no rate.
    pub fn period(&self) -> Nanos {
        Nanos(SECOND.checked_div(self.per_s()).unwrap_or(0))
    }

    /// True when there is a rate to keep.
    pub fn is_set(&self) -> bool {
        self.rate != 0
    }

    /// When the next unit is due; [`Nanos::ZERO`] when there is no rate.
    pub fn due(&self) -> Nanos {
        if self.rate == 0 { Nanos::ZERO } else { self.at }
    }

    /// Nothing is due before `earliest`: time that passed before it is lost, there is no
    /// catching up; with a time still to come, a burst counts as used.
    pub fn forget_before(&mut self, earliest: Nanos) {
        if self.at < earliest {
            self.at = earliest;
            self.carry = 0;
        }
    }

    /// Spends `units`: the next unit is due units / rate later.
    pub fn spend(&mut self, units: u64) {
        if self.rate == 0 {
            return;
        }
        if units <= 1 << 33 {
            // units x 10^9 + carry < 2^63 + 2^50: one 64-bit division.
            let due = units * SECOND + self.carry;
            self.at += Nanos(due / self.rate);
            self.carry = due % self.rate;
        } else {
            let due = units as u128 * SECOND as u128 + self.carry as u128;
            self.at += Nanos(u64::try_from(due / self.rate as u128).unwrap_or(u64::MAX));
            self.carry = (due % self.rate as u128) as u64;
        }
    }

    /// Changes the rate. What was spent beyond `now` stays owed in requests (or bytes), not
    /// in time, so that raising a tiny limit frees its VM at once and lowering one buys no
    /// burst. A limit that is lifted takes its debt with it.
    ///
    /// The debt is carried over exactly, to a fraction of a nanosecond: at 2^50 a second a whole
    /// one would be a million requests, which a slow limit that comes back would have to wait for.
    pub fn set_rate(&mut self, per_s: u64, unit: u64, now: Nanos) {
        let new = Pacer::new(per_s, unit, now);
        if (new.rate, new.unit) == (self.rate, self.unit) {
            return;
        }
        if new.rate == 0 || self.rate == 0 || self.at < now {
            *self = new;
            return;
        }
        // In requests x nanoseconds, times the units of one request where that stays the same.
        let owed = self.at.since(now).0 as u128 * self.rate as u128 + self.carry as u128;
        let (wait, carry) = if unit == self.unit {
            (owed / new.rate as u128, (owed % new.rate as u128) as u64)
        } else {
            let (owed, per_s) = (owed.div_ceil(self.unit as u128), new.per_s() as u128);
            (owed / per_s, (owed % per_s) as u64 * unit)
        };
        *self = Pacer {
            at: now + Nanos(u64::try_from(wait).unwrap_or(u64::MAX)),
            carry,
            ..new
        };
    }

    /// Nothing is due before what the other one owes beyond `now`, in requests (or bytes), is
    /// paid at this one's rate.
    pub fn take_over(&mut self, other: &Pacer, now: Nanos) {
        let mut owed = *other;
        owed.set_rate(self.per_s(), self.unit, now);
        owed.forget_before(now);
        if self.is_set() && (self.at, self.carry) < (owed.at, owed.carry) {
            *self = owed;
        }
    }

    /// The most that may be saved up shrinks from one span to another: what could go still
    /// can, but with no more saved up than that; what was owed beyond stays owed.
    pub fn shrink_tolerance(&mut self, from: Nanos, to: Nanos, now: Nanos) {
        if to < from {
            self.at = self.at.min((self.at - from).max(now) + to);
        }
    }

    fn per_s(&self) -> u64 {
        self.rate.checked_div(self.unit).unwrap_or(0)
    }
}

/// A [`Rate`]'s two pacers: requests and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RatePacer {
    /// Requests, or bytes of at least the normalisation size.
    pub ops: Pacer,
    /// Bytes.
    pub bytes: Pacer,
    /// Smallest size a request counts as, in the units of `ops`; 0: every request counts one.
    norm: u32,
}

impl RatePacer {
    /// No rate.
    pub const NONE: RatePacer = RatePacer {
        ops: Pacer::NONE,
        bytes: Pacer::NONE,
        norm: 0,
    };

    /// The spacing of requests of `len` bytes: the shorter one, where both rates are set.
    pub fn period(&self, len: u32) -> Nanos {
        let mut bytes = Pacer {
            at: Nanos::ZERO,
            carry: 0,
            ..self.bytes
        };
        bytes.spend(len as u64);
        match (self.ops.is_set(), self.bytes.is_set()) {
            (true, true) => self.ops.period().min(bytes.due()),
            (true, false) => self.ops.period(),
            (false, _) => bytes.due(),
        }
    }

    /// Pacers for `rate`, due at `now`.
    pub fn new(rate: &Rate, now: Nanos) -> RatePacer {
        RatePacer {
            ops: Pacer::new(ops_per_s(rate.ops), ops_unit(rate.ops), now),
            bytes: Pacer::new(rate.bytes_per_s.unwrap_or(0), 1, now),
            norm: rate.ops.and_then(|o| o.norm).unwrap_or(0),
        }
    }

    /// True when either rate is set.
    pub fn is_set(&self) -> bool {
        self.ops.is_set() || self.bytes.is_set()
    }

    /// Requests and bytes a second; 0: no rate.
    pub fn per_s(&self) -> (u64, u64) {
        (self.ops.per_s(), self.bytes.per_s())
    }

    /// When both are due: a cap holds until the later one.
    pub fn all_due(&self) -> Nanos {
        self.ops.due().max(self.bytes.due())
    }

    /// When the first of those that are set is due: a floor asks as soon as either does.
    /// `None` when neither is set.
    pub fn any_due(&self) -> Option<Nanos> {
        match (self.ops.is_set(), self.bytes.is_set()) {
            (true, true) => Some(self.ops.due().min(self.bytes.due())),
            (true, false) => Some(self.ops.due()),
            (false, true) => Some(self.bytes.due()),
            (false, false) => None,
        }
    }

    /// See [`Pacer::forget_before`].
    pub fn forget_before(&mut self, earliest: Nanos) {
        self.ops.forget_before(earliest);
        self.bytes.forget_before(earliest);
    }

    /// Spends a device I/O: `bytes` now, and the guest requests served for the first time.
    pub fn spend(&mut self, bytes: u64, first: FirstServed) {
        if self.ops.is_set() && first.ops > 0 {
            self.ops.spend(first.units(self.norm));
        }
        self.bytes.spend(bytes);
    }

    /// Changes the rates; see [`Pacer::set_rate`].
    pub fn set_rate(&mut self, rate: &Rate, now: Nanos) {
        self.ops
            .set_rate(ops_per_s(rate.ops), ops_unit(rate.ops), now);
        self.bytes.set_rate(rate.bytes_per_s.unwrap_or(0), 1, now);
        self.norm = rate.ops.and_then(|o| o.norm).unwrap_or(0);
    }
}

/// Guest requests that a device I/O serves for the first time: each is charged once, whole,
/// however many I/Os it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FirstServed {
    /// How many.
    pub ops: u32,
    /// Their bytes, also those that later I/Os will carry.
    pub bytes: u64,
}

impl FirstServed {
    /// In the units of a rate with this normalisation: requests when 0, else bytes of at
    /// least `norm` a request (for a merged I/O: of at least `norm` a request on average).
    fn units(&self, norm: u32) -> u64 {
        if norm == 0 {
            self.ops as u64
        } else {
            self.bytes.max(self.ops as u64 * norm as u64)
        }
    }
}

fn ops_per_s(rate: Option<OpsRate>) -> u64 {
    rate.map_or(0, |o| o.per_s)
}

fn ops_unit(rate: Option<OpsRate>) -> u64 {
    rate.and_then(|o| o.norm).unwrap_or(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_nanosecond_is_lost_to_rounding() {
        // A third of a second has no exact nanoseconds; after 3n units exactly n seconds.
        let mut pacer = Pacer::new(3, 1, Nanos::ZERO);
        for _ in 0..3_000_000 {
            pacer.spend(1);
        }
        assert_eq!(pacer.due(), Nanos::from_secs(1_000_000));
    }

    #[test]
    fn raising_a_tiny_limit_frees_its_vm() {
        let mut pacer = Pacer::new(1, 1, Nanos::ZERO);
        pacer.spend(1_000_000); // one big request at 1 B/s: eleven days
        pacer.set_rate(100_000_000, 1, Nanos::ZERO);
        assert_eq!(pacer.due(), Nanos::from_millis(10));
    }

    #[test]
    fn a_request_counts_its_normalised_size_once() {
        let rate = Rate {
            ops: Some(OpsRate {
                per_s: 10,
                norm: Some(4096),
            }),
            bytes_per_s: None,
        };
        let mut pacer = RatePacer::new(&rate, Nanos::ZERO);
        pacer.spend(512, FirstServed { ops: 1, bytes: 512 });
        assert_eq!(pacer.ops.due(), Nanos::from_millis(100));
        pacer.spend(
            4096,
            FirstServed {
                ops: 1,
                bytes: 8192,
            },
        ); // first half of a split request
        assert_eq!(pacer.ops.due(), Nanos::from_millis(300));
        pacer.spend(4096, FirstServed { ops: 0, bytes: 0 }); // its second half
        assert_eq!(pacer.ops.due(), Nanos::from_millis(300));
    }

    proptest! {
        #[test]
        fn spending_is_exact_for_any_rate(rate in 1u64..=Rate::MAX, units in prop::collection::vec(0u64..1 << 40, 1..50)) {
            let mut pacer = Pacer::new(rate, 1, Nanos::ZERO);
            let mut spent = 0u128;
            for u in units {
                pacer.spend(u);
                spent += u as u128;
                let exact = (spent * SECOND as u128 / rate as u128).min(u64::MAX as u128);
                prop_assert_eq!(pacer.due().0 as u128, exact);
            }
        }

        #[test]
        fn changing_the_rate_never_buys_anything(a in 1u64..1 << 40, b in 1u64..1 << 40, units in 0u64..1 << 40, now in 0u64..1 << 40) {
            let now = Nanos(now);
            let mut pacer = Pacer::new(a, 1, Nanos::ZERO);
            pacer.spend(units);
            let owed = |pacer: &Pacer, rate: u64| match pacer.at < now {
                true => 0,
                false => pacer.at.since(now).0 as u128 * rate as u128 + pacer.carry as u128,
            };
            let before = owed(&pacer, a);
            pacer.set_rate(b, 1, now);
            prop_assert_eq!(owed(&pacer, b), before, "nor sells");
            prop_assert!(pacer.carry < b);
        }

        #[test]
        fn a_debt_is_in_requests_when_their_size_changes(per_s in 1u64..1 << 28, norm in 2u64..1 << 32, spent in 1u64..1 << 20) {
            let mut pacer = Pacer::new(per_s, 1, Nanos::ZERO);
            pacer.spend(spent);
            let before = pacer;
            for _ in 0..20 {
                pacer.set_rate(per_s, norm, Nanos::ZERO);
                prop_assert!(pacer.carry < pacer.rate);
                pacer.set_rate(per_s, 1, Nanos::ZERO);
            }
            prop_assert_eq!(pacer, before);
        }
    }
}
