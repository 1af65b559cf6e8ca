//! Virtual time: where VMs stand in the order of their shares.

use core::cmp::Ordering;

/// A point in virtual time: a cost divided by a weight, in units of the dispatcher that counts
/// it. Compares modulo 2^64: points that are compared lie less than 2^63 apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Virtual(pub(super) u64);

impl Virtual {
    #[inline]
    pub(super) fn plus(self, span: u64) -> Virtual {
        Virtual(self.0.wrapping_add(span))
    }

    /// How far `earlier` lies behind.
    #[inline]
    pub(super) fn since(self, earlier: Virtual) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Where a VM at `self` stands once its weight has changed: what it was served ahead of
    /// `clock` counts as so much the less virtual time the larger its weight is, so that a weight
    /// that is raised helps at once.
    pub(super) fn reweighed(self, clock: Virtual, from: u32, to: u32) -> Virtual {
        if self <= clock {
            return self;
        }
        let ahead = self.since(clock) as u128;
        clock.plus((ahead * from as u128 / to as u128) as u64)
    }
}

impl Ord for Virtual {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.wrapping_sub(other.0) as i64).cmp(&0)
    }
}

impl PartialOrd for Virtual {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_order_where_the_count_goes_round() {
        let (before, after) = (Virtual(u64::MAX - 1), Virtual(3));
        assert!(before < after);
        assert_eq!(after.since(before), 5);
        assert_eq!(before.plus(5), after);
    }

    #[test]
    fn a_raised_weight_brings_nearer_and_nothing_moves_who_is_behind() {
        let clock = Virtual(100);
        assert_eq!(Virtual(500).reweighed(clock, 1, 4), Virtual(200));
        assert_eq!(Virtual(500).reweighed(clock, 2, 1), Virtual(900));
        assert_eq!(Virtual(40).reweighed(clock, 1, 4), Virtual(40));
    }
}
