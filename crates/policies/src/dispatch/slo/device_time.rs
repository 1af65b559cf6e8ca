//! Bound on the device time of a host whose device other hosts share.
//!
//! ```text
//!   rate (controller) ──▶ unused time, 30 ms of the rate or more ──▶ I/Os by share, background
//!                                    ▲
//!            promised I/Os, flushes ─┘ never wait; down to 300 ms of the rate overdrawn
//! ```
//!
//! - An I/O goes while any time is unused, and is charged in full: the next ones wait until its
//!   time has been made up for.
//! - **Unused time** accumulates for [`SAVED`]. While something waits for room at the device, it
//!   does up to the time of as many I/Os as fill the device's queue, if that is more; these count
//!   as let in ([`DeviceTimeUse::available_ps`]). On a disk that seeks, 30 ms of a third of its
//!   time are one or two I/Os; a controller could not tell that it lets in too much, and hosts
//!   would have what their queue depths take.
//! - **Promised I/Os** and flushes go whatever is unused, and are charged, too. What they overdraw
//!   beyond [`OVERDRAFT`] is forgiven.
//! - **An eighth** of the rate is for I/Os by share in any case ([`LEAST_DIVISOR`]): where promises
//!   take more than the host's part of the device, one goes eight times its own time, by the rate,
//!   after the last one. So nothing waits for ever.
//! - Background I/Os have no such part, but one goes every 500 ms
//!   ([`background`](super::background)).

use tidegate_base::device::DeviceTimeUse;
use tidegate_base::time::Nanos;

/// Time for which unused device time accumulates: the period of the reports among hosts, within
/// which each of them takes in what the others leave.
const SAVED: Nanos = Nanos::from_millis(30);
/// I/Os over which the mean of their costs moves.
const MEAN_IOS: u64 = 16;
/// Time in which promised I/Os are made up for at most, and any I/O after the rate has changed.
const OVERDRAFT: Nanos = Nanos::from_millis(300);
/// Divisor of the rate for the part that I/Os by share have beside promises: as the share model
/// leaves a VM an eighth of its part.
const LEAST_DIVISOR: u64 = 8;
/// Largest rate in millionths of the device's time. Amounts of [`SAVED`] and [`OVERDRAFT`] then fit
/// 60 bits.
const RATE_MAX_PPM: u64 = 1_000_000_000;
/// Femtoseconds, in which time is counted, in a picosecond, in which costs are. A millionth of a
/// nanosecond is a femtosecond, so that nothing is rounded.
const FS_PER_PS: u64 = 1_000;

/// Reason for which an I/O goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChargedAs {
    /// By share, as time is unused or by the eighth.
    Share,
    /// By a promise, or a flush: whatever is unused.
    Promise,
    /// For a background process.
    Background,
}

/// Device time that the host may use, at a rate; see the [module](self).
#[derive(Debug)]
pub(super) struct DeviceTime {
    /// Rate in millionths of the device's time; `None`: unbounded.
    rate_ppm: Option<u64>,
    /// Unused time at `settled_at` in femtoseconds; negative: overdrawn.
    unused_fs: i64,
    settled_at: Nanos,
    /// I/Os that fill the device's queue.
    queue_ios: u32,
    /// Moving mean of the cost of VMs' I/Os in femtoseconds; 0: none was charged yet.
    mean_fs: u64,
    /// Start of the last I/O by share, and its cost in femtoseconds.
    last_share: (Nanos, u64),
    /// Sums for the controller.
    sums: DeviceTimeUse,
}

impl DeviceTime {
    /// Creates the bound of a host whose rate is not set yet: unbounded.
    pub(super) fn new() -> DeviceTime {
        DeviceTime {
            rate_ppm: None,
            unused_fs: 0,
            settled_at: Nanos::ZERO,
            queue_ios: 0,
            mean_fs: 0,
            last_share: (Nanos::ZERO, 0),
            sums: DeviceTimeUse::default(),
        }
    }

    /// Sets the rate in millionths of the device's time, `None`: unbounded; and the number of I/Os
    /// that fill the device's queue. A host that was not bounded begins with nothing unused.
    pub(super) fn set_rate(&mut self, now: Nanos, rate_ppm: Option<u64>, queue_ios: u32) {
        self.unused_fs = match self.rate_ppm {
            Some(_) => self.unused_at(now),
            None => 0,
        };
        self.settled_at = now;
        self.rate_ppm = rate_ppm.map(|rate| rate.min(RATE_MAX_PPM));
        self.queue_ios = queue_ios;
        // At a lower rate less may have accumulated, and less may be overdrawn.
        let least = -self.amount_fs(OVERDRAFT);
        self.unused_fs = self.unused_fs.min(self.saved_fs()).max(least);
    }

    /// Returns true if the host has a rate, because VMs compete on it or on others.
    pub(super) fn is_bounded(&self) -> bool {
        self.rate_ppm.is_some()
    }

    /// Begins a time in which something waits. More than [`SAVED`] may have accumulated while
    /// nothing did.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_wait(&mut self, now: Nanos) {
        self.unused_fs = self.unused_at(now).min(self.amount_fs(SAVED));
        self.settled_at = now;
    }

    /// Returns the most that accumulates, in femtoseconds.
    fn saved_fs(&self) -> i64 {
        let queue_fs = self.mean_fs.saturating_mul(self.queue_ios.into());
        let queue_fs = i64::try_from(queue_fs).unwrap_or(i64::MAX);
        self.amount_fs(SAVED).max(queue_fs)
    }

    /// Returns what accrues in `time`, in femtoseconds; the largest number if that is less.
    fn amount_fs(&self, time: Nanos) -> i64 {
        let rate = self.rate_ppm.unwrap_or(RATE_MAX_PPM);
        i64::try_from(u128::from(time.0) * u128::from(rate)).unwrap_or(i64::MAX)
    }

    /// Returns the unused time at `now`, in femtoseconds.
    fn unused_at(&self, now: Nanos) -> i64 {
        let accrued = self.amount_fs(now.since(self.settled_at));
        let all = self.unused_fs.saturating_add(accrued);
        all.min(self.saved_fs().max(self.unused_fs))
    }

    /// Charges an I/O of this cost, in picoseconds, that starts now.
    pub(super) fn charge(&mut self, now: Nanos, cost_ps: u64, charged_as: ChargedAs) {
        let cost_fs = cost_ps.saturating_mul(FS_PER_PS);
        if charged_as != ChargedAs::Background {
            self.sums.ios += 1;
            // 2^64 ps are 213 days of device time.
            self.sums.charged_ps = self.sums.charged_ps.wrapping_add(cost_ps);
            self.mean_fs = match self.mean_fs {
                0 => cost_fs,
                mean => mean - mean / MEAN_IOS + cost_fs / MEAN_IOS,
            };
        }
        if charged_as == ChargedAs::Share {
            self.last_share = (now, cost_fs);
        }
        if self.rate_ppm.is_none() {
            return;
        }
        let unused = self.unused_at(now);
        let left = unused.saturating_sub(i64::try_from(cost_fs).unwrap_or(i64::MAX));
        self.settled_at = now;
        self.unused_fs = match charged_as {
            // Shares go while time is unused, or by the eighth: not more often than time accrues.
            ChargedAs::Share => left,
            ChargedAs::Promise | ChargedAs::Background => {
                left.max(unused.min(-self.amount_fs(OVERDRAFT)))
            }
        };
    }

    /// Returns the time from which time is unused again; `None`: some is now. [`Nanos::MAX`] at a
    /// rate of 0.
    pub(super) fn used_up_until(&self, now: Nanos) -> Option<Nanos> {
        let rate = self.rate_ppm?;
        let unused = self.unused_at(now);
        if unused > 0 {
            return None;
        }
        let missing_fs = unused.unsigned_abs() + 1;
        match missing_fs.div_ceil(rate.max(1)) {
            _ if rate == 0 => Some(Nanos::MAX),
            wait => Some(now + Nanos(wait)),
        }
    }

    /// Returns the time until which I/Os by share wait; `None`: one may go now.
    pub(super) fn share_held_until(&self, now: Nanos) -> Option<Nanos> {
        let until = self.used_up_until(now)?;
        let rate = self.rate_ppm.filter(|&rate| rate > 0);
        let (last, cost_fs) = self.last_share;
        // Rates are at most 10^9, so the product is of a cost of at most 8.8 s and no overflow.
        let least = rate.map(|rate| last + Nanos(cost_fs.saturating_mul(LEAST_DIVISOR) / rate));
        let until = until.min(least.unwrap_or(Nanos::MAX));
        (until > now).then_some(until)
    }

    /// Records a pick at which something waited that only the bound held back.
    pub(super) fn record_held_pick(&mut self) {
        self.sums.held_picks += 1;
    }

    /// Returns the sums for the controller, and what is unused now. `waits`: a VM waits that may go
    /// by share.
    pub(super) fn usage(&self, now: Nanos, waits: bool) -> DeviceTimeUse {
        let unused_fs = match self.rate_ppm {
            Some(_) => self.unused_at(now).max(0).unsigned_abs(),
            None => 0,
        };
        DeviceTimeUse {
            available_ps: unused_fs / FS_PER_PS,
            waits,
            ..self.sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS_PS: u64 = 1_000_000_000;
    /// Largest cost of the attempts.
    const COST_MAX_PS: u64 = 5 * MS_PS;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// Bound of half of the device's time from time 0 on.
    fn half() -> DeviceTime {
        let mut time = DeviceTime::new();
        time.set_rate(Nanos::ZERO, Some(500_000), 1);
        time
    }

    #[test]
    fn an_io_waits_until_the_one_before_is_made_up_for() {
        let mut time = half();
        assert_eq!(time.used_up_until(Nanos::ZERO), Some(Nanos(1)), "nothing");
        assert_eq!(time.share_held_until(ms(1)), None);
        time.charge(ms(1), MS_PS, ChargedAs::Share);
        // Half a millisecond was unused at the start, so half a millisecond is missing.
        assert_eq!(time.share_held_until(ms(1)), Some(ms(2) + Nanos(1)));
        assert_eq!(time.share_held_until(ms(2) + Nanos(1)), None);
        // Unused time accumulates up to 30 ms of the rate.
        let saved = time.usage(ms(1000), true).available_ps;
        assert_eq!(saved, 15 * MS_PS);
    }

    #[test]
    fn as_many_ios_as_fill_the_queue_are_let_in_while_something_waits() {
        let mut time = DeviceTime::new();
        time.set_rate(Nanos::ZERO, Some(500_000), 32);
        time.charge(ms(1), 10 * MS_PS, ChargedAs::Share);
        // The device takes no more for a second: 30 ms of the rate would be one and a half.
        assert_eq!(time.usage(ms(1000), true).available_ps, 320 * MS_PS);
        // Time that accumulated while nothing waited is forgotten.
        time.begin_wait(ms(1000));
        assert_eq!(time.usage(ms(1000), true).available_ps, 15 * MS_PS);
    }

    #[test]
    fn promises_go_first_and_are_made_up_for_in_bounded_time() {
        let mut time = half();
        (0..1000).for_each(|_| time.charge(ms(10), MS_PS, ChargedAs::Promise));
        // The last one by share was at 0: the eighth has room for one at once.
        assert_eq!(time.used_up_until(ms(10)), Some(ms(310) + Nanos(1)));
        assert_eq!(time.share_held_until(ms(10)), None);
        time.charge(ms(10), MS_PS, ChargedAs::Share);
        assert_eq!(time.share_held_until(ms(10)), Some(ms(26)));
        time.charge(ms(10), MS_PS, ChargedAs::Promise);
        assert_eq!(time.used_up_until(ms(10)), Some(ms(312) + Nanos(1)));
    }

    #[test]
    fn what_was_overdrawn_at_a_higher_rate_is_made_up_for_in_bounded_time() {
        let mut time = half();
        (0..1000).for_each(|_| time.charge(ms(10), MS_PS, ChargedAs::Promise));
        time.set_rate(ms(10), Some(5_000), 1);
        assert_eq!(time.used_up_until(ms(10)), Some(ms(310) + Nanos(1)));
    }

    #[test]
    fn a_host_without_a_part_waits_for_ever_and_an_unbounded_one_never() {
        let mut time = half();
        time.set_rate(ms(1), Some(0), 1);
        time.charge(ms(1), MS_PS, ChargedAs::Background);
        assert_eq!(time.used_up_until(ms(1)), Some(Nanos::MAX));
        assert_eq!(time.share_held_until(ms(1)), Some(Nanos::MAX));
        time.set_rate(ms(2), None, 1);
        assert_eq!(time.share_held_until(ms(2)), None);
        time.charge(ms(2), MS_PS, ChargedAs::Share);
        assert_eq!(time.used_up_until(ms(2)), None);
        let usage = time.usage(ms(2), true);
        assert_eq!(
            (usage.ios, usage.charged_ps, usage.available_ps),
            (1, MS_PS, 0)
        );
        // A bound begins with nothing unused, whatever it was before.
        time.set_rate(ms(500), Some(1_000_000), 1);
        assert_eq!(time.used_up_until(ms(500)), Some(ms(500) + Nanos(1)));
    }

    /// Attempt to start an I/O, `after_us` microseconds after the last one.
    #[derive(Clone, Debug)]
    struct Attempt {
        after_us: u64,
        cost_ps: u64,
        is_promised: bool,
    }

    fn attempt() -> impl Strategy<Value = Attempt> {
        (0u64..3_000, 1u64..COST_MAX_PS, prop::bool::weighted(0.3)).prop_map(
            |(after_us, cost_ps, is_promised)| Attempt {
                after_us,
                cost_ps,
                is_promised,
            },
        )
    }

    proptest! {
        /// Between any two I/Os by share, no more goes by share than the rate and what was saved
        /// allow, and one I/O more; with promises an eighth of the rate more.
        #[test]
        fn what_goes_by_share_keeps_to_the_rate(
            rate_ppm in 1_000u64..3_000_000,
            queue_ios in 0u32..40,
            attempts in prop::collection::vec(attempt(), 1..200),
        ) {
            let mut time = DeviceTime::new();
            time.set_rate(Nanos::ZERO, Some(rate_ppm), queue_ios);
            let fills_queue = u128::from(queue_ios) * u128::from(COST_MAX_PS * FS_PER_PS);
            let saved = (u128::from(SAVED.0) * u128::from(rate_ppm)).max(fills_queue);
            let mut now = Nanos::ZERO;
            let mut by_share: Vec<(Nanos, u64)> = Vec::new();
            for Attempt { after_us, cost_ps, is_promised } in attempts {
                now += Nanos::from_micros(after_us);
                if is_promised {
                    time.charge(now, cost_ps, ChargedAs::Promise);
                } else if time.share_held_until(now).is_none() {
                    time.charge(now, cost_ps, ChargedAs::Share);
                    by_share.push((now, cost_ps));
                }
            }
            for from in 0..by_share.len() {
                let mut sum_fs = 0u128;
                for &(at, cost_ps) in &by_share[from..] {
                    let span = at.since(by_share[from].0);
                    let accrued = u128::from(span.0) * u128::from(rate_ppm);
                    let allowed = (accrued + saved) * 9 / 8;
                    // Times are cut to whole nanoseconds.
                    prop_assert!(sum_fs <= allowed + 1_000_000_000, "{at:?}");
                    sum_fs += u128::from(cost_ps) * u128::from(FS_PER_PS);
                }
            }
        }

        /// An I/O by share that waits goes at the time that is named for it, and not before.
        #[test]
        fn the_time_that_is_named_is_the_first_at_which_one_may_go(
            rate_ppm in 1u64..2_000_000,
            costs in prop::collection::vec((1u64..COST_MAX_PS, any::<bool>()), 1..20),
        ) {
            let mut time = DeviceTime::new();
            time.set_rate(Nanos::ZERO, Some(rate_ppm), 1);
            let mut now = Nanos(1);
            for (cost_ps, is_promised) in costs {
                let charged_as = if is_promised { ChargedAs::Promise } else { ChargedAs::Share };
                time.charge(now, cost_ps, charged_as);
                if let Some(until) = time.share_held_until(now) {
                    prop_assert!(until > now);
                    prop_assert_eq!(time.share_held_until(until), None);
                    prop_assert!(time.share_held_until(until - Nanos(1)).is_some());
                    now = until;
                }
            }
        }
    }
}
