//! Pacing at an exact rate, in integers with the remainder carried.
//!
//! A [`Pacer`] is the generic cell rate algorithm (ITU-T I.371), whose whole state is the time at
//! which the next unit is due. Spending moves that time on by cost / rate. A request conforms if
//! the time is at most now plus a tolerance. mClock's reservation and limit tags and both of QEMU's
//! leaky buckets are pacers with different tolerances.

use crate::objective::{OpsRate, Rate};
use crate::time::Nanos;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// Interval in which a limit may be exceeded by at most one request and 1 %: 100 ms.
const WINDOW: Nanos = Nanos(100_000_000);

/// Maximum lateness of a request that a limit of `per_s` requests a second (0: none) forgives:
/// later requests are then due as if this one had been on time.
///
/// The result is `too_many / per_s - WINDOW - 1 ns`: at least 1 ms, at most one request's period
/// more. `too_many` is the first number of requests above 1.01 times those of a window, that is
/// `floor(1.01 * per_s * WINDOW) + 1`. If lateness up to `t` is forgiven, n requests take at least
/// `(n - 1) / per_s - t`, so `too_many + 1` requests take longer than the window. 1 ns is
/// subtracted because both ends of a window count.
fn max_lateness(per_s: u64) -> Nanos {
    const ONE_PER_CENT: Nanos = Nanos(WINDOW.0 / 100);
    // Above this rate the products below overflow, and a request takes less than a nanosecond.
    if per_s == 0 || per_s > 1 << 36 {
        return ONE_PER_CENT;
    }
    let too_many = per_s * 101 / 1000 + 1;
    Nanos(too_many * SECOND / per_s) - WINDOW - Nanos(1)
}

/// Highest rate of a [`Pacer`] in units per second: 2^60, at which pacing fits 64 bits. Validated
/// objectives stay below it.
const RATE_MAX: u64 = 1 << 60;

/// Time at which the next unit of one rate is due, and what is needed to move it on exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacer {
    /// Time at which the next unit is due.
    next_due: Nanos,
    /// Units per second; 0: no rate, always due.
    rate: u64,
    /// Remainder of the last division in units x nanoseconds, below `rate`.
    carry: u64,
    /// Units of one request. If it changes, what is owed stays the same number of requests.
    unit: u64,
}

impl Pacer {
    /// Pacer without a rate: always due.
    pub const NONE: Pacer = Pacer {
        next_due: Nanos::ZERO,
        rate: 0,
        carry: 0,
        unit: 1,
    };

    /// Creates a pacer of `per_s` times `unit` units per second (0: no rate), at most 2^60, that is
    /// due at `now`.
    pub fn new(per_s: u64, unit: u64, now: Nanos) -> Pacer {
        // 0 would make the rate 0, which silently means no rate at all.
        assert!(unit > 0, "a request counts at least one unit of its rate");
        assert!(
            unit <= RATE_MAX,
            "a request counts at most 2^60 units of its rate"
        );
        Pacer {
            next_due: now,
            // Above the maximum a unit takes less than 10^-18 s: as good as no rate.
            rate: per_s.saturating_mul(unit).min(RATE_MAX),
            carry: 0,
            unit,
        }
    }

    /// Returns the time of one request (or byte) at this rate; zero if there is no rate.
    #[inline]
    pub fn period(&self) -> Nanos {
        Nanos(SECOND.checked_div(self.per_s()).unwrap_or(0))
    }

    /// Returns true if there is a rate.
    pub fn is_set(&self) -> bool {
        self.rate != 0
    }

    /// Returns the time at which the next unit is due; [`Nanos::ZERO`] if there is no rate.
    pub fn due(&self) -> Nanos {
        if self.rate == 0 {
            Nanos::ZERO
        } else {
            self.next_due
        }
    }

    /// Moves the due time to `earliest` if it is earlier. Units of a past time are lost and cannot
    /// be caught up; with a future time, a burst counts as used.
    #[inline]
    pub fn forget_before(&mut self, earliest: Nanos) {
        if self.next_due < earliest {
            self.next_due = earliest;
            // A fraction of a nanosecond belongs to the time that is lost.
            self.carry = 0;
        }
    }

    /// Moves the due time to `latest` if it is later: units spent beyond that are not owed.
    #[inline]
    pub fn forget_beyond(&mut self, latest: Nanos) {
        if self.next_due > latest {
            self.next_due = latest;
            self.carry = 0;
        }
    }

    /// Cancels what became due from `from` to `to`, when nothing was requested. Units due before
    /// `from` stay due.
    pub fn cancel_due(&mut self, from: Nanos, to: Nanos) {
        // Units due after `to` were not due in that time, so none is cancelled.
        if self.rate != 0 && self.next_due < to {
            self.next_due += to.since(self.next_due.max(from));
        }
    }

    /// Returns a pacer with another rate and the same due time. For rates that a controller adjusts
    /// all the time; [`Pacer::set_rate`] keeps a limit's debt in requests instead.
    pub fn with_rate(self, per_s: u64) -> Pacer {
        if per_s == self.rate {
            self
        } else {
            Pacer::new(per_s, 1, self.next_due)
        }
    }

    /// Spends `units`: the next unit is due units / rate later.
    #[inline]
    pub fn spend(&mut self, units: u64) {
        if self.rate == 0 {
            return;
        }
        if units <= 1 << 33 {
            // units x 10^9 + carry < 2^63 + RATE_MAX: one 64-bit division.
            let due = units * SECOND + self.carry;
            self.next_due += Nanos(due / self.rate);
            self.carry = due % self.rate;
        } else {
            self.spend_large(units);
        }
    }

    /// Spends more than 2^33 units, in 128 bits and out of line.
    #[cold]
    #[inline(never)]
    fn spend_large(&mut self, units: u64) {
        let due = units as u128 * SECOND as u128 + self.carry as u128;
        self.next_due += Nanos(u64::try_from(due / self.rate as u128).unwrap_or(u64::MAX));
        self.carry = (due % self.rate as u128) as u64;
    }

    /// Changes the rate and keeps the debt beyond `now` in requests (or bytes) instead of in
    /// time.
    ///
    /// Raising a tiny limit therefore frees its VM at once, and lowering one grants no burst.
    /// Without a rate the debt is dropped. The debt is converted exactly, to a fraction of a
    /// nanosecond (a changed unit rounds it up by less than one request x nanosecond): at 2^50
    /// requests a second one nanosecond is a million requests, which a slow limit set later would
    /// have to wait for.
    pub fn set_rate(&mut self, per_s: u64, unit: u64, now: Nanos) {
        let new = Pacer::new(per_s, unit, now);
        // An objective is often set again with the same rate; the carry must not be dropped then.
        if (new.rate, new.unit) == (self.rate, self.unit) {
            return;
        }
        // Nothing is owed that could be converted.
        if new.rate == 0 || self.rate == 0 || self.next_due < now {
            *self = new;
            return;
        }
        // Debt in units x nanoseconds. If the unit changes, it is first converted to requests x
        // nanoseconds.
        let owed = self.next_due.since(now).0 as u128 * self.rate as u128 + self.carry as u128;
        let (wait, carry) = if unit == self.unit {
            (owed / new.rate as u128, (owed % new.rate as u128) as u64)
        } else {
            let (owed, per_s) = (owed.div_ceil(self.unit as u128), new.per_s() as u128);
            (owed / per_s, (owed % per_s) as u64 * unit)
        };
        *self = Pacer {
            next_due: now + Nanos(u64::try_from(wait).unwrap_or(u64::MAX)),
            carry,
            ..new
        };
    }

    /// Takes over what `other` owes beyond `now`, in requests (or bytes): nothing is due here
    /// before that is paid at this pacer's rate.
    pub fn take_over(&mut self, other: &Pacer, now: Nanos) {
        let mut owed = *other;
        owed.set_rate(self.per_s(), self.unit, now);
        owed.forget_before(now);
        if self.is_set() && (self.next_due, self.carry) < (owed.next_due, owed.carry) {
            *self = owed;
        }
    }

    /// Reduces the credit that may have been saved up from `old_tolerance` to `new_tolerance`.
    /// Requests that conform now still do, with at most `new_tolerance` of credit left; debt beyond
    /// `now` stays.
    pub fn shrink_tolerance(&mut self, old_tolerance: Nanos, new_tolerance: Nanos, now: Nanos) {
        if new_tolerance < old_tolerance {
            let within = (self.next_due - old_tolerance).max(now) + new_tolerance;
            self.next_due = self.next_due.min(within);
        }
    }

    fn per_s(&self) -> u64 {
        self.rate.checked_div(self.unit).unwrap_or(0)
    }
}

/// Pacers of both figures of a [`Rate`]: requests and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RatePacer {
    /// Requests, or bytes of at least the normalisation size.
    pub ops: Pacer,
    /// Bytes.
    pub bytes: Pacer,
    /// Normalisation size: smallest size in bytes that a request counts as; 0: each counts as one.
    norm: u32,
    /// Lateness forgiven beyond the slack, in nanoseconds, below 1 s: the next request would be
    /// due this much later if only the slack had ever been forgiven.
    forgiven_ns: u32,
    /// Maximum lateness of a plain request that is forgiven, in nanoseconds. Stored, because one
    /// division per request takes a twentieth of the engine's request path.
    max_lateness_ns: u32,
}

impl RatePacer {
    /// Pacers without rates: always due.
    pub const NONE: RatePacer = RatePacer {
        ops: Pacer::NONE,
        bytes: Pacer::NONE,
        norm: 0,
        forgiven_ns: 0,
        max_lateness_ns: 0,
    };

    /// Returns the period of requests of `len` bytes; the shorter one if both rates are set.
    #[inline]
    pub fn period(&self, len: u32) -> Nanos {
        let mut bytes = Pacer {
            next_due: Nanos::ZERO,
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

    /// Creates pacers of `rate` that are due at `now`.
    pub fn new(rate: &Rate, now: Nanos) -> RatePacer {
        RatePacer {
            max_lateness_ns: max_lateness_ns(rate),
            ops: Pacer::new(ops_per_s(rate.ops), ops_unit(rate.ops), now),
            bytes: Pacer::new(rate.bytes_per_s.unwrap_or(0), 1, now),
            norm: rate.ops.and_then(|o| o.norm).unwrap_or(0),
            forgiven_ns: 0,
        }
    }

    /// Returns true if the pacers already have this rate.
    pub fn has_rate(&self, rate: &Rate) -> bool {
        let new = RatePacer::new(rate, Nanos::ZERO);
        let of = |pacer: &RatePacer| (pacer.ops.rate, pacer.norm, pacer.bytes.rate);
        of(&new) == of(self)
    }

    /// Returns true if either rate is set.
    pub fn is_set(&self) -> bool {
        self.ops.is_set() || self.bytes.is_set()
    }

    /// Returns requests and bytes per second; 0: no rate.
    pub fn per_s(&self) -> (u64, u64) {
        (self.ops.per_s(), self.bytes.per_s())
    }

    /// Returns the time at which both rates are due: a limit holds until the later one.
    #[inline]
    pub fn all_due(&self) -> Nanos {
        self.ops.due().max(self.bytes.due())
    }

    /// Returns the time at which the first rate that is set is due: a reservation asks as soon as
    /// either does. `None` if neither is set.
    #[inline]
    pub fn any_due(&self) -> Option<Nanos> {
        match (self.ops.is_set(), self.bytes.is_set()) {
            (true, true) => Some(self.ops.due().min(self.bytes.due())),
            (true, false) => Some(self.ops.due()),
            (false, true) => Some(self.bytes.due()),
            (false, false) => None,
        }
    }

    /// Moves both due times to `earliest` if they are earlier; see [`Pacer::forget_before`].
    #[inline]
    pub fn forget_before(&mut self, earliest: Nanos) {
        // Without a rate there is nothing to forget.
        if self.ops.is_set() {
            self.forget_requests(earliest, earliest);
        }
        if self.bytes.is_set() {
            self.bytes.forget_before(earliest);
        }
    }

    /// Moves the requests' due time to `earliest` and records in `forgiven_ns` how much later it
    /// would be with `earliest_by_slack`, if only the slack were forgiven.
    #[inline]
    fn forget_requests(&mut self, earliest: Nanos, earliest_by_slack: Nanos) {
        if self.forgiven_ns == 0 && self.ops.next_due >= earliest.max(earliest_by_slack) {
            // Due later than both: no time is lost, and no lateness forgiven.
            return;
        }
        self.forgive_requests(earliest, earliest_by_slack);
    }

    /// [`RatePacer::forget_requests`] where the due time is earlier than one of the two, or
    /// lateness was forgiven before.
    #[inline]
    fn forgive_requests(&mut self, earliest: Nanos, earliest_by_slack: Nanos) {
        let due_by_slack =
            (self.ops.next_due + Nanos(self.forgiven_ns.into())).max(earliest_by_slack);
        self.ops.forget_before(earliest);
        self.forgiven_ns = u32::try_from((due_by_slack - self.ops.next_due).0).unwrap_or(u32::MAX);
    }

    /// Makes requests due as if only the slack had ever been forgiven. Called where a rate ends: a
    /// window may already hold all that the rate allows, and requests of the next rate must not be
    /// added to it.
    pub fn revoke_forgiven(&mut self) {
        if self.ops.is_set() {
            self.ops.next_due += Nanos(self.forgiven_ns.into());
        }
        self.forgiven_ns = 0;
    }

    /// Charges a device I/O: its `bytes`, and the guest requests that it is the first to serve.
    #[inline]
    pub fn spend(&mut self, bytes: u64, first: FirstServed) {
        if self.ops.is_set() && first.ops > 0 {
            self.ops.spend(first.units(self.norm));
        }
        self.bytes.spend(bytes);
    }

    /// Charges a device I/O to a limit at `now`, which may be later than it was due.
    ///
    /// Lateness brings the next request forward by at most `slack`: a VM does not catch up on a
    /// stall, and time before `asked`, in which it requested nothing, is lost.
    ///
    /// Requests that waited for the device are forgiven for longer, up to about the time of one
    /// request, if a window of 100 ms still holds at most one request and 1 % above the rate. The
    /// wait then costs their VM nothing. Bytes, and requests that count by size, come in any
    /// amounts, so anything above the 1 % might be one request too many: for them only `slack` is
    /// forgiven.
    #[inline]
    pub fn spend_late(
        &mut self,
        bytes: u64,
        first: FirstServed,
        [asked, now]: [Nanos; 2],
        slack: Nanos,
    ) {
        let earliest_by_slack = now - slack;
        if self.ops.is_set() && first.ops > 0 {
            // Otherwise the request is on time and no lateness is forgiven: the common case.
            if self.ops.next_due < earliest_by_slack || self.forgiven_ns > 0 {
                let most = Nanos(self.max_lateness_ns.into()).max(slack);
                self.forgive_requests((now - most).max(asked - slack), earliest_by_slack);
            }
            self.ops.spend(first.units(self.norm));
        }
        if self.bytes.is_set() {
            self.bytes.forget_before(earliest_by_slack);
            self.bytes.spend(bytes);
        }
    }

    /// Changes the rates; see [`Pacer::set_rate`] and [`RatePacer::revoke_forgiven`].
    pub fn set_rate(&mut self, rate: &Rate, now: Nanos) {
        // A rate that stays keeps what it forgave: its windows go on.
        if !self.has_rate(rate) {
            self.revoke_forgiven();
        }
        self.ops
            .set_rate(ops_per_s(rate.ops), ops_unit(rate.ops), now);
        self.bytes.set_rate(rate.bytes_per_s.unwrap_or(0), 1, now);
        self.norm = rate.ops.and_then(|o| o.norm).unwrap_or(0);
        self.max_lateness_ns = max_lateness_ns(rate);
    }
}

/// Returns [`max_lateness`] in nanoseconds for plain requests, or 0 for requests that count by
/// size, of which only the slack is forgiven.
fn max_lateness_ns(rate: &Rate) -> u32 {
    match rate.ops {
        Some(OpsRate { per_s, norm: None }) => u32::try_from(max_lateness(per_s).0)
            .expect("max_lateness is at most 0.9 s, which fits u32 nanoseconds"),
        _ => 0,
    }
}

/// Guest requests that a device I/O is the first to serve. Each request is charged once and whole,
/// however many I/Os it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FirstServed {
    /// Number of requests.
    pub ops: u32,
    /// Total length in bytes of those requests, including what later I/Os will carry.
    pub bytes: u64,
}

impl FirstServed {
    /// Returns the cost in units of a rate with normalisation size `norm`: requests if it is 0,
    /// else bytes, with at least `norm` per request (on average, for a merged I/O).
    #[inline]
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

/// Rate at which missed due times are caught up, in per cent of the VM's rate.
const CATCH_UP_PERCENT: u64 = 110;

/// Returns the rate at which missed due times of a rate of `per_s` units a second are caught up:
/// 110 % of it, rounded up.
pub fn catch_up_rate(per_s: u64) -> u64 {
    let faster = u128::from(per_s) * u128::from(CATCH_UP_PERCENT);
    u64::try_from(faster.div_ceil(100)).unwrap_or(u64::MAX)
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
    fn a_rate_beyond_the_maximum_is_paced_without_overflow() {
        let mut pacer = Pacer::new(u64::MAX, 1, Nanos::ZERO);
        for _ in 0..8 {
            pacer.spend(1 << 33);
        }
        // 8 x 2^33 units at 2^60 a second.
        assert_eq!(pacer.due(), Nanos(59));
        pacer.set_rate(1 << 50, 1 << 32, Nanos::ZERO);
        assert_eq!(pacer.per_s(), 1 << 28);
    }

    #[test]
    fn raising_a_tiny_limit_frees_its_vm() {
        let mut pacer = Pacer::new(1, 1, Nanos::ZERO);
        pacer.spend(1_000_000); // one big request at 1 B/s: eleven days
        pacer.set_rate(100_000_000, 1, Nanos::ZERO);
        assert_eq!(pacer.due(), Nanos::from_millis(10));
    }

    const SLACK: Nanos = Nanos(900_000);
    const ONE: FirstServed = FirstServed {
        ops: 1,
        bytes: 4096,
    };

    /// Most requests that any window holds of those at these times, both its ends counted.
    fn most_in_a_window(at: &[u64]) -> usize {
        let last = |from: u64| at.partition_point(|&t| t <= from.saturating_add(WINDOW.0));
        let counts = at.iter().enumerate().map(|(i, &from)| last(from) - i);
        counts.max().unwrap_or(0)
    }

    fn allowed(per_s: u64) -> usize {
        (per_s * 101 / 1000) as usize + 1
    }

    /// Returns the times of requests that always wait, the first one late by `late`.
    fn on_time_after(per_s: u64, late: Nanos) -> Vec<u64> {
        let mut pacer = Pacer::new(per_s, 1, Nanos::SECOND);
        let mut at = vec![(pacer.due() + late).0];
        while at.len() < allowed(per_s) + 2 {
            pacer.spend(1);
            at.push(pacer.due().0.max(at[0]));
        }
        at
    }

    #[test]
    fn forgiven_lateness_fills_a_window_exactly() {
        for per_s in (1..=3000).chain([9_999, 10_007, 1 << 20]) {
            let most = max_lateness(per_s);
            let held = |late| most_in_a_window(&on_time_after(per_s, late));
            assert_eq!(held(most), allowed(per_s), "{per_s} a second, {most:?}");
            let more = most + Nanos(2);
            assert!(held(more) > allowed(per_s), "{per_s} a second, {more:?}");
        }
        assert_eq!(max_lateness(100), Nanos::from_millis(10) - Nanos(1));
        assert_eq!(max_lateness(29), Nanos(3_448_274));
        assert_eq!(max_lateness(99), Nanos(1_010_100));
        assert_eq!(max_lateness(Rate::MAX), Nanos::from_millis(1));
    }

    #[test]
    fn lateness_from_before_the_request_is_not_forgiven() {
        let ms = Nanos::from_millis;
        // When the next one is due after one that was due at 50 ms, in nanoseconds after `at`.
        let next = |per_s, asked, at: Nanos| {
            let mut pacer = RatePacer::new(&Rate::iops(per_s), ms(50));
            pacer.spend_late(4096, ONE, [asked, at], SLACK);
            pacer.all_due().since(at).0
        };
        assert_eq!(next(100, ms(0), ms(50)), 10_000_000);
        assert_eq!(next(100, ms(0), ms(57)), 3_000_000);
        assert_eq!(next(100, ms(0), ms(5000)), 1, "a stall is not caught up");
        assert_eq!(next(100, ms(57), ms(57)), 9_100_000, "it was idle");
        assert_eq!(next(100, ms(55), ms(57)), 10_000_000 - 2_900_000);
        assert_eq!(next(99, ms(0), ms(57)), 10_101_010 - 1_010_100);
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
        /// Every request that is due goes at the next time at which the device is free, or the
        /// VM asks again: on a grid, after a stall, at once. The rate may change on the way.
        #[test]
        fn no_window_holds_more_than_one_request_and_one_per_cent_above_the_rate(
            rates in prop::collection::vec((1u64..=400, 1usize..60), 1..4),
            grid in 1u64..30_000_000,
            waits in prop::collection::vec((0u64..200_000_000, any::<bool>()), 1..20),
        ) {
            let (mut now, mut asked) = (Nanos::SECOND, Nanos::SECOND);
            let mut pacer = RatePacer::new(&Rate::iops(rates[0].0), now);
            // When requests went, and the rate then.
            let mut went: Vec<(u64, u64)> = Vec::new();
            let mut waits = waits.iter().cycle();
            for &(per_s, requests) in &rates {
                pacer.set_rate(&Rate::iops(per_s), now);
                for n in 0..requests {
                    now = Nanos(now.max(pacer.all_due()).0.next_multiple_of(grid));
                    if n % 7 == 6 {
                        let &(wait, idle) = waits.next().expect("it goes round");
                        now += Nanos(wait);
                        asked = if idle { now } else { asked };
                    }
                    pacer.spend_late(4096, ONE, [asked, now], SLACK);
                    went.push((now.0, per_s));
                }
            }
            for (i, &(from, first)) in went.iter().enumerate() {
                let window = went[i..].iter().take_while(|w| w.0 < from + WINDOW.0);
                for (n, &(to, per_s)) in window.enumerate() {
                    // In requests x nanoseconds, at the highest of the rates where they differ.
                    let of_all = went[i..=i + n].iter().map(|w| w.1);
                    let highest = of_all.clone().max().unwrap();
                    let changed = of_all.clone().min() != of_all.max();
                    let most = if changed {
                        1 + ((to - from + WINDOW.0 / 100) * highest / SECOND) as usize
                    } else {
                        allowed(per_s)
                    };
                    prop_assert!(
                        n < most,
                        "{} from {from} to {to}, {first} to {per_s} a second",
                        n + 1
                    );
                }
            }
        }

        #[test]
        fn spending_is_exact_for_any_rate(
            rate in 1u64..=Rate::MAX,
            units in prop::collection::vec(0u64..1 << 40, 1..50),
        ) {
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
        fn changing_the_rate_never_buys_anything(
            a in 1u64..1 << 40,
            b in 1u64..1 << 40,
            units in 0u64..1 << 40,
            now in 0u64..1 << 40,
        ) {
            let now = Nanos(now);
            let mut pacer = Pacer::new(a, 1, Nanos::ZERO);
            pacer.spend(units);
            let owed = |pacer: &Pacer, rate: u64| {
                if pacer.next_due < now {
                    return 0;
                }
                pacer.next_due.since(now).0 as u128 * rate as u128 + pacer.carry as u128
            };
            let before = owed(&pacer, a);
            pacer.set_rate(b, 1, now);
            prop_assert_eq!(owed(&pacer, b), before, "nor sells");
            prop_assert!(pacer.carry < b);
        }

        #[test]
        fn a_debt_is_in_requests_when_their_size_changes(
            per_s in 1u64..1 << 28,
            norm in 2u64..1 << 32,
            spent in 1u64..1 << 20,
        ) {
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
