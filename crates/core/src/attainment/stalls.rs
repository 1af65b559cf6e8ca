//! Stalled seconds: the device was busy but ended no I/O for a while.

use super::second_of;
use tidegate_base::time::Nanos;

/// Time without any I/O's end, while some are in flight, from which a second is blamed on the
/// device.
pub(super) const STALL_MIN: Nanos = Nanos::from_millis(100);
/// Number of last seconds that are remembered: the bits of [`Stalls::bits`].
const SECONDS_REMEMBERED: u32 = 64;

/// Stalls of a device over the last minute.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stalls {
    /// Stalled seconds, the newest in the lowest bit.
    bits: u64,
    /// Second of the lowest bit.
    newest: u32,
    /// Last end of an I/O, or the time since which the device is busy.
    progress: Nanos,
    /// Sum of all stalls that have ended.
    total: Nanos,
}

impl Stalls {
    /// Records that the device is busy again from now on.
    #[inline]
    pub(crate) fn busy(&mut self, now: Nanos) {
        self.progress = now;
    }

    /// Records that an I/O has ended.
    #[inline]
    pub(crate) fn ended(&mut self, now: Nanos) {
        if now.since(self.progress) >= STALL_MIN {
            self.record_stall(now);
        }
        self.progress = now;
    }

    /// Sum of all stalls that have ended.
    pub(crate) fn total(&self) -> Nanos {
        self.total
    }

    #[cold]
    fn record_stall(&mut self, now: Nanos) {
        self.total += now.since(self.progress);
        let (first, last) = (second_of(self.progress), second_of(now));
        let moved = last.saturating_sub(self.newest);
        // A shift by 64 or more forgets all.
        self.bits = self.bits.checked_shl(moved).unwrap_or(0);
        self.newest = self.newest.max(last);
        // A stall covers every second that it touches.
        for second in first.max(last.saturating_sub(SECONDS_REMEMBERED - 1))..=last {
            self.bits |= 1 << (self.newest - second);
        }
    }

    /// Returns whether the medium stalled in a second; `busy`: I/Os are in flight now.
    pub(super) fn covers(&self, second: u32, now: Nanos, busy: bool) -> bool {
        let back = self.newest.wrapping_sub(second);
        // Seconds after the newest wrap around to large numbers, and are not noted.
        let noted = back < SECONDS_REMEMBERED && self.bits & (1 << back) != 0;
        let lasts = busy && now.since(self.progress) >= STALL_MIN;
        noted || lasts && (second_of(self.progress)..=second_of(now)).contains(&second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_covers_every_second_that_it_touches() {
        let ms = Nanos::from_millis;
        let mut stalls = Stalls::default();
        stalls.busy(ms(1000));
        stalls.ended(ms(1099));
        stalls.ended(ms(2950));
        let of = |stalls: &Stalls| {
            (0..6)
                .filter(|&s| stalls.covers(s, ms(5500), true))
                .collect::<Vec<_>>()
        };
        stalls.busy(ms(5450));
        assert_eq!(of(&stalls), [1, 2]);
        stalls.busy(ms(4950));
        assert_eq!(of(&stalls), [1, 2, 4, 5], "the one that lasts");
        stalls.busy(ms(100_000));
        stalls.ended(ms(100_100));
        assert_eq!(of(&stalls), [], "long ago");
        assert!(stalls.covers(100, ms(100_100), false));
        // From 1000 or 1099 to 2950, and from 100 to 100,100.
        assert_eq!(stalls.total(), ms(1851 + 100));
    }
}
