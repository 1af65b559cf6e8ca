//! Regular lateness of a throttled VM's I/Os: the wait that other VMs' turns cause again and again.
//!
//! A slot that a dispatcher makes slightly late is made good at the next one. But if each slot
//! waits for a turn of its own, a VM that may catch up by only a tenth of a slot at a time falls
//! ever further behind. So *regularly* late slots go at once: as many as come due during such a
//! wait. A stall of the device or of the engine's driver occurs once, and is made good at the usual
//! pace.
//!
//! Regular lateness is the wait that sixteen in seventeen waits do not exceed. The estimate rises
//! by an eighth of the slots since the last wait if a wait is longer, and falls by a 128th of them
//! if not. So it follows within a second for any size of I/Os, and a single long wait moves it by
//! an eighth of a slot.

use tidegate_base::time::Nanos;

/// Divisor of the slots since the last wait by which the estimate rises; see the module.
const RISE_DIVISOR: u64 = 8;
/// Divisor of the slots since the last wait by which the estimate falls. Rise and fall balance
/// where 16 waits are shorter than the estimate for each longer one.
const FALL_DIVISOR: u64 = 128;

/// Estimate of one VM's regular lateness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lateness {
    /// Upper bound of the estimate; zero: lateness is not learnt.
    most: Nanos,
    /// Regular lateness as estimated so far.
    late: Nanos,
    /// Time of the last I/O.
    last: Nanos,
    /// Sum of the slots since the last wait.
    slots: Nanos,
}

impl Lateness {
    /// Initial state, without learning.
    pub(super) const NONE: Lateness = Lateness {
        most: Nanos::ZERO,
        late: Nanos::ZERO,
        last: Nanos::ZERO,
        slots: Nanos::ZERO,
    };

    /// Sets the upper bound of the estimate; zero ends learning.
    pub(super) fn learn_up_to(&mut self, most: Nanos) {
        self.most = most;
        // A smaller bound holds at once.
        self.late = self.late.min(most);
    }

    /// Returns the lateness of slots up to which they go at once.
    pub(super) fn regular(&self) -> Nanos {
        self.late
    }

    /// Takes in an I/O that goes at `now`, whose gate opened at `due` and whose slot lasts `slot`.
    pub(super) fn dispatched(&mut self, due: Nanos, now: Nanos, slot: Nanos) {
        if self.most == Nanos::ZERO {
            return;
        }
        // An I/O whose gate opened before the last I/O went shares that one's wait.
        if due > self.last {
            self.waited(now.since(due));
            self.slots = Nanos::ZERO;
        }
        self.last = now;
        self.slots = (self.slots + slot).min(self.most);
    }

    /// Moves the estimate towards a wait, by a part of the slots that have gone since the last one,
    /// so that many short slots move it as far as a few long ones.
    fn waited(&mut self, wait: Nanos) {
        self.late = if wait > self.late {
            (self.late + Nanos(self.slots.0 / RISE_DIVISOR)).min(wait)
        } else {
            (self.late - Nanos(self.slots.0 / FALL_DIVISOR)).max(wait)
        }
        .min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the estimate after the given waits in milliseconds, each followed by a slot of 5 ms.
    fn after(waits: impl Iterator<Item = u64>) -> Lateness {
        let mut lateness = Lateness::NONE;
        lateness.learn_up_to(Nanos(400 * MS));
        let mut due = Nanos(MS);
        for wait in waits {
            let now = due + Nanos(wait * MS);
            lateness.dispatched(due, now, Nanos(5 * MS));
            due = now + Nanos(5 * MS);
        }
        lateness
    }

    #[test]
    fn a_wait_before_each_slot_is_learnt_within_a_second() {
        let lateness = after((0..100).map(|_| 20));
        assert_eq!(lateness.regular(), Nanos(20 * MS));
    }

    #[test]
    fn one_stall_moves_the_estimate_by_an_eighth_of_a_slot() {
        let lateness = after([0, 0, 2000, 0].into_iter());
        assert!(lateness.regular() <= Nanos(5 * MS / 8), "{lateness:?}");
    }

    #[test]
    fn estimate_is_not_exceeded_by_sixteen_in_seventeen_waits() {
        // From 0 to 99 ms, evenly.
        let lateness = after((0..10_000).map(|n| n * 37 % 100));
        let off = lateness.regular().0.abs_diff(94 * MS);
        assert!(off < 5 * MS, "{lateness:?}");
    }

    #[test]
    fn waits_that_end_are_forgotten() {
        let long = (0..100).map(|_| 20);
        let lateness = after(long.chain((0..1000).map(|_| 0)));
        assert_eq!(lateness.regular(), Nanos::ZERO);
    }

    #[test]
    fn estimate_stays_within_its_bound_and_is_zero_without_one() {
        let mut lateness = after((0..1000).map(|_| 900));
        assert_eq!(lateness.regular(), Nanos(400 * MS));
        lateness.learn_up_to(Nanos::ZERO);
        lateness.dispatched(Nanos(1 << 50), Nanos(1 << 51), Nanos(5 * MS));
        assert_eq!(lateness.regular(), Nanos::ZERO);
    }

    #[test]
    fn ios_that_go_together_are_one_wait() {
        let mut lateness = Lateness::NONE;
        lateness.learn_up_to(Nanos(400 * MS));
        // Ten slots of 1 ms come due during each wait of 10 ms, and go at its end.
        for turn in 1..200 {
            for slot in 0..10 {
                let due = Nanos((turn * 10 + slot) * MS + MS / 2);
                lateness.dispatched(due, Nanos((turn + 1) * 10 * MS), Nanos(MS));
            }
        }
        assert!(lateness.regular() > Nanos(9 * MS), "{lateness:?}");
    }
}
