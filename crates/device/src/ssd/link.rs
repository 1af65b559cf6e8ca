//! One direction of an interleaved interface, whose rate is shared evenly by all transfers.
//!
//! Frames of the transfers in progress take turns. Frames are small compared with transfers, so the
//! limit is processor sharing: while `n` transfers are in progress, each has 1/n of the rate
//! (Kleinrock, "Time-Shared Systems", Journal of the ACM 14, 1967).
//!
//! Virtual time advances by the amount of data that each transfer in progress has been carried. A
//! transfer that begins at virtual time `v` ends at `v` plus its length, whichever transfers begin
//! or end in between. This end is a tag that never changes, so a heap of tags gives the next end.
//!
//! **Exactness.** The unit of work is 1/10^9 of a byte, so that a rate in bytes per second is an
//! integer number of units per nanosecond. A transfer ends when virtual time reaches its tag
//! exactly, and the rest of that nanosecond goes to those in progress. When one begins, virtual
//! time is rounded down by less than a unit, and the remainder is carried. So no work is lost or
//! added, however long the interface is busy. Ends are exact times rounded up to a nanosecond,
//! except for a few 10^-9 bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Units of work per byte.
const UNITS_PER_BYTE: u128 = 1_000_000_000;

/// One direction of the interface. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Units per nanosecond, which equals bytes per second.
    rate: u64,
    /// Time up to which the state is computed.
    now: u64,
    /// Units that could have been carried until `now` and are carried later.
    unused: u128,
    /// Virtual time: units carried for each transfer that has been in progress throughout.
    carried: u128,
    /// Tag, sequence number and command index of each transfer. Never grows beyond its capacity.
    transfers: BinaryHeap<Reverse<(u128, u64, u32)>>,
    /// Time of the next end if no transfer begins before; `MAX` without a transfer.
    next: u64,
}

impl Link {
    /// Creates a direction for at most `max_transfers` at a time, at `rate` bytes per second.
    pub(super) fn new(rate: u64, max_transfers: u32) -> Link {
        Link {
            rate,
            now: 0,
            unused: 0,
            carried: 0,
            transfers: BinaryHeap::with_capacity(max_transfers as usize),
            next: u64::MAX,
        }
    }

    /// Returns the time of the next end if no transfer begins before; `MAX` without a transfer.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the units that can be carried from `now` until `at`.
    fn work_until(&self, at: u64) -> u128 {
        let time = at.checked_sub(self.now).expect("time runs backwards");
        u128::from(self.rate) * u128::from(time) + self.unused
    }

    /// Begins the transfer of `bytes` of the command with index `command` at `at`, which occupies
    /// the link for `time` nanoseconds of its whole rate beside them. Of transfers that end
    /// together, the one with the lowest `sequence` leaves first. Transfers that end by `at` must
    /// have left.
    pub(super) fn enter(&mut self, at: u64, bytes: u64, time: u64, sequence: u64, command: u32) {
        let work = self.work_until(at);
        match self.transfers.len() as u128 {
            // An idle interface saves nothing up.
            0 => self.unused = 0,
            n => {
                self.carried += work / n;
                self.unused = work % n;
            }
        }
        self.now = at;
        let units = u128::from(bytes) * UNITS_PER_BYTE + u128::from(time) * u128::from(self.rate);
        let tag = self.carried + units;
        self.transfers.push(Reverse((tag, sequence, command)));
        self.update_next();
    }

    /// Ends the transfer that is complete at [`Link::next`]; returns its command index.
    pub(super) fn leave(&mut self) -> u32 {
        let missing = self.work_to_next_end();
        let Reverse((tag, _, command)) = self.transfers.pop().expect("a transfer is in progress");
        self.unused = self.work_until(self.next) - missing;
        self.carried = tag;
        self.now = self.next;
        self.update_next();
        command
    }

    /// Returns the units to be carried, over all transfers, until the first one ends.
    fn work_to_next_end(&self) -> u128 {
        let Some(Reverse((tag, _, _))) = self.transfers.peek() else {
            return 0;
        };
        (tag - self.carried) * self.transfers.len() as u128
    }

    fn update_next(&mut self) {
        self.next = if self.transfers.is_empty() {
            u64::MAX
        } else {
            let missing = self.work_to_next_end().saturating_sub(self.unused);
            // A transfer of 4 GiB beside 4095 others takes less than 2^62 ns at 1 MB/s or more:
            // 2^32 x 2^12 bytes at 10^6 bytes a second are 1.8 x 10^16 ns. Times beside the data
            // are at most some seconds each.
            self.now + missing.div_ceil(u128::from(self.rate)) as u64
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A fraction, as exact as `i128` can hold.
    #[derive(Clone, Copy, Debug)]
    struct Fraction(i128, i128);

    impl Fraction {
        fn reduced(self) -> Fraction {
            let (mut a, mut b) = (self.0.abs(), self.1);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            Fraction(self.0 / a.max(1), self.1 / a.max(1))
        }

        /// Returns `self + other * times`.
        fn add_scaled(self, other: Fraction, times: i128) -> Fraction {
            let times = times.checked_mul(other.0).unwrap();
            let left = self.0.checked_mul(other.1).unwrap();
            let right = times.checked_mul(self.1).unwrap();
            let over = self.1.checked_mul(other.1).unwrap();
            Fraction(left.checked_add(right).unwrap(), over).reduced()
        }

        fn over(self, by: i128) -> Fraction {
            Fraction(self.0, self.1.checked_mul(by).unwrap()).reduced()
        }

        fn is_less(self, other: Fraction) -> bool {
            self.add_scaled(other, -1).0 < 0
        }

        fn min(self, other: Fraction) -> Fraction {
            if other.is_less(self) { other } else { self }
        }

        /// Rounded up.
        fn ceil(self) -> u64 {
            ((self.0 + self.1 - 1) / self.1) as u64
        }
    }

    /// Returns the end of each transfer (begin, bytes), computed step by step from the remaining
    /// bytes.
    fn step_by_step(rate: u64, transfers: &[(u64, u64)]) -> Vec<Fraction> {
        let rate = i128::from(rate);
        let mut ends = vec![Fraction(0, 1); transfers.len()];
        let mut under_way: Vec<(usize, Fraction)> = Vec::new();
        let (mut now, mut entered) = (Fraction(0, 1), 0);
        loop {
            let next = transfers.get(entered);
            let next = next.map(|(at, _)| Fraction(i128::from(*at), 1));
            let n = under_way.len() as i128;
            let least = under_way.iter().map(|(_, left)| *left);
            let through = least
                .reduce(Fraction::min)
                .map(|left| now.add_scaled(Fraction(left.0 * n, left.1).over(rate), 1));
            let Some(then) = [next, through].into_iter().flatten().reduce(Fraction::min) else {
                return ends;
            };
            let had = then.add_scaled(now, -1).over(n.max(1));
            for (_, left) in &mut under_way {
                *left = left.add_scaled(had, -rate);
            }
            now = then;
            under_way.retain(|(which, left)| {
                if left.0 == 0 {
                    ends[*which] = now;
                }
                left.0 != 0
            });
            if next.is_some_and(|at| !now.is_less(at)) {
                let bytes = i128::from(transfers[entered].1) * 1_000_000_000;
                match bytes {
                    0 => ends[entered] = now,
                    _ => under_way.push((entered, Fraction(bytes, 1))),
                }
                entered += 1;
            }
        }
    }

    /// Returns the end of each transfer on a link, and asserts that a link that is always busy has
    /// carried all the work, to the unit.
    fn on_a_link(rate: u64, transfers: &[(u64, u64)]) -> Vec<u64> {
        let mut link = Link::new(rate, transfers.len() as u32);
        let room = link.transfers.capacity();
        let mut ends = vec![0; transfers.len()];
        let mut leave = |link: &mut Link, until: u64| {
            while link.next() <= until && link.next() < u64::MAX {
                let at = link.next();
                ends[link.leave() as usize] = at;
            }
        };
        for (place, (at, bytes)) in (0..).zip(transfers) {
            leave(&mut link, *at);
            link.enter(*at, *bytes, 0, u64::from(place), place);
        }
        leave(&mut link, u64::MAX);
        assert_eq!(link.transfers.capacity(), room);
        let bytes: u64 = transfers.iter().map(|(_, bytes)| bytes).sum();
        if ends[0] >= transfers[transfers.len() - 1].0 && transfers[0].0 == 0 {
            let could = u128::from(rate) * u128::from(link.now);
            assert_eq!(could - link.unused, u128::from(bytes) * UNITS_PER_BYTE);
        }
        ends
    }

    #[test]
    fn transfers_in_progress_share_the_rate_equally() {
        // Ten bytes a nanosecond. The second enters when a half of the first is through, and
        // both have five from then on.
        assert_eq!(
            on_a_link(10_000_000_000, &[(0, 1_000), (50, 1_000)]),
            [150, 200]
        );
        // One that is short passes one that is long.
        assert_eq!(
            on_a_link(10_000_000_000, &[(0, 10_000), (0, 100)]),
            [1_010, 20]
        );
    }

    #[test]
    fn time_beside_the_data_is_shared_like_data() {
        // A byte a nanosecond: 100 ns and 400 bytes are 500 ns, beside another 500.
        let mut link = Link::new(1_000_000_000, 2);
        link.enter(0, 400, 100, 0, 0);
        link.enter(0, 500, 0, 1, 1);
        assert_eq!(link.next(), 1_000);
        assert_eq!((link.leave(), link.leave()), (0, 1));
        assert_eq!(link.now, 1_000);
    }

    #[test]
    fn the_rest_of_a_nanosecond_is_not_lost() {
        // Three bytes in ten nanoseconds: each hundred take 333.3.
        let transfers = vec![(0, 100); 30];
        assert_eq!(on_a_link(300_000_000, &transfers), vec![10_000; 30]);
        let one_by_one: Vec<_> = (0..30).map(|n| (0, 100 * (n + 1))).collect();
        let ends = on_a_link(300_000_000, &one_by_one);
        let total: u64 = one_by_one.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(ends[29], (total * 10).div_ceil(3));
    }

    proptest! {
        /// Against fractions.
        #[test]
        fn ends_are_those_of_processor_sharing(
            rate in prop_oneof![1_000_000_u64..20_000_000, 1_000_000_u64..4_000_000_000],
            steps in proptest::collection::vec((0_u64..40_000, 0_u64..8_192), 1..9),
        ) {
            let mut at = 0;
            let transfers: Vec<_> = steps
                .iter()
                .map(|(wait, bytes)| {
                    at += wait % (1 << (wait % 16));
                    (at, *bytes)
                })
                .collect();
            let exact = step_by_step(rate, &transfers);
            let ends = on_a_link(rate, &transfers);
            for ((end, exact), (at, _)) in ends.iter().zip(&exact).zip(&transfers) {
                prop_assert!(end >= at);
                prop_assert!(end.abs_diff(exact.ceil()) <= 1, "{} for {:?}", end, exact);
            }
            // All the work is done without a gap: the last to end is right to the nanosecond.
            let last = exact.iter().map(|f| f.ceil()).max();
            prop_assert_eq!(ends.iter().copied().max(), last);
        }

        /// However many there are: the interface is never idle while there is work, and never does
        /// more than it can.
        #[test]
        fn no_work_is_lost_or_added(
            rate in 1_000_000_u64..4_000_000_000,
            steps in proptest::collection::vec((0_u64..3_000, 1_u64..100_000), 1..400),
            long: bool,
        ) {
            let mut at = 0;
            let mut transfers: Vec<_> = steps
                .iter()
                .map(|(wait, bytes)| {
                    at += wait;
                    (at, *bytes)
                })
                .collect();
            // One that outlives the others' coming keeps it busy.
            transfers[0] = (0, if long { 1 << 32 } else { transfers[0].1 });
            // One after the other, in units: when the last of a busy period ends does not depend
            // on the order.
            let mut busy_until = 0_u128;
            for (at, bytes) in &transfers {
                let at = u128::from(*at) * u128::from(rate);
                busy_until = busy_until.max(at) + u128::from(*bytes) * UNITS_PER_BYTE;
            }
            let last = on_a_link(rate, &transfers).into_iter().max().unwrap();
            prop_assert_eq!(u128::from(last), busy_until.div_ceil(u128::from(rate)));
        }
    }
}
