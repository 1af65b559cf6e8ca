//! Virtual time, by which VMs are ordered for weighted shares.

use crate::tournament::Tournament;
use core::cmp::Ordering;

/// Point in virtual time: a cost divided by a weight, in the cost unit of the dispatcher.
/// Comparisons are modulo 2^64, so two compared points must lie less than 2^63 apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Virtual(pub(super) u64);

impl Virtual {
    #[inline]
    pub(super) fn plus(self, span: u64) -> Virtual {
        Virtual(self.0.wrapping_add(span))
    }

    #[inline]
    pub(super) fn minus(self, span: u64) -> Virtual {
        Virtual(self.0.wrapping_sub(span))
    }

    /// Returns the span from `earlier` to this point.
    #[inline]
    pub(super) fn since(self, earlier: Virtual) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns the tag of a VM at `self` after its weight changed. Service that the VM received
    /// ahead of `clock` keeps its cost, so it counts as less virtual time the larger the new weight
    /// is: a raised weight takes effect at once.
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

/// Tag of a VM or group in the order of weighted shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) tag: Virtual,
    pub(super) weight: u32,
    /// Remainder of the last division by the weight, in units of cost; always less than `weight`.
    carry: u32,
}

impl Flow {
    pub(super) const fn new(tag: Virtual, weight: u32) -> Flow {
        let carry = 0;
        Flow { tag, weight, carry }
    }

    /// Moves the flow to `tag` and drops its remainder.
    #[inline]
    pub(super) fn join(&mut self, tag: Virtual) {
        self.tag = tag;
        self.carry = 0;
    }

    /// Moves the tag on by a cost divided by the weight; the remainder counts in the next service.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64) {
        let cost = cost + self.carry as u64;
        let weight = self.weight as u64;
        // Rounded down; the remainder counts next time, so that no cost is lost to rounding.
        self.tag = self.tag.plus(cost / weight);
        self.carry = (cost % weight) as u32;
    }

    /// Changes the weight and moves the tag as [`Virtual::reweighed`] does.
    pub(super) fn set_weight(&mut self, weight: u32, clock: Virtual) {
        if weight == self.weight {
            return;
        }
        self.tag = self.tag.reweighed(clock, self.weight, weight);
        self.weight = weight;
        self.carry = 0;
    }
}

/// Half the range of keys of a [`Tournament`]. Keys are bounded and virtual time is not, so keys
/// count from a tag one span behind the clock. They are rebased once the clock is more than two
/// spans ahead of that tag.
const SPAN: u64 = 1 << 62;

/// VMs by their tags, the smallest first; slots decide between equal tags. Every tag must lie less
/// than a [`SPAN`] from the clock.
pub(super) struct ByTag {
    keys: Tournament,
    /// Tag from which keys count.
    from: Virtual,
}

impl ByTag {
    /// Returns the bytes of memory of an order of `vms` VMs.
    pub(super) fn bytes(vms: usize) -> usize {
        Tournament::bytes(vms)
    }

    pub(super) fn with_capacity(vms: usize) -> ByTag {
        ByTag {
            keys: Tournament::with_capacity(vms),
            from: Virtual(SPAN.wrapping_neg()),
        }
    }

    /// Creates an order as if it had been counting from `from` for years, for tests.
    #[cfg(feature = "fuzzing")]
    pub(super) fn counting_from(vms: usize, from: Virtual) -> ByTag {
        let keys = Tournament::with_capacity(vms);
        ByTag { keys, from }
    }

    /// Returns the smallest tag and its VM's slot.
    #[inline]
    pub(super) fn first(&self) -> Option<(Virtual, usize)> {
        let (key, vm) = self.keys.peek()?;
        Some((self.from.plus(key), vm))
    }

    #[inline]
    pub(super) fn contains(&self, vm: usize) -> bool {
        self.keys.contains(vm)
    }

    #[inline]
    pub(super) fn set(&mut self, vm: usize, tag: Virtual) {
        self.keys.set(vm, tag.since(self.from));
    }

    #[inline]
    pub(super) fn remove(&mut self, vm: usize) {
        self.keys.remove(vm);
    }

    /// Adds a VM that is not in the order.
    #[inline]
    pub(super) fn insert(&mut self, vm: usize, tag: Virtual) {
        self.keys.insert(vm, tag.since(self.from));
    }

    /// Removes a VM that is in the order.
    #[inline]
    pub(super) fn take_out(&mut self, vm: usize) {
        self.keys.take_out(vm);
    }

    /// Follows the clock, which only moves forward, to `clock`.
    #[inline]
    pub(super) fn follow(&mut self, clock: Virtual) {
        // Keys then have used three quarters of their range, as tags lie up to a span ahead.
        if clock.since(self.from) > 2 * SPAN {
            self.count_anew(clock);
        }
    }

    /// Rebases all keys on the clock; happens once in years.
    #[cold]
    fn count_anew(&mut self, clock: Virtual) {
        let from = clock.plus(SPAN.wrapping_neg());
        self.keys.lower(from.since(self.from));
        self.from = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_where_virtual_time_wraps() {
        let (before, after) = (Virtual(u64::MAX - 1), Virtual(3));
        assert!(before < after);
        assert_eq!(after.since(before), 5);
        assert_eq!(before.plus(5), after);
    }

    #[test]
    fn vms_keep_their_order_when_keys_count_anew() {
        let old = Virtual(u64::MAX - 50);
        let mut order = ByTag::counting_from(20, old);
        let clock = old.plus(2 * SPAN);
        for (vm, ahead) in [(3, 70), (19, 0), (4, 70), (0, 1)] {
            order.set(vm, clock.plus(ahead));
        }
        order.follow(clock);
        assert_eq!(order.from, old, "not yet");
        order.follow(clock.plus(1));
        assert_eq!(order.from, clock.plus(1).plus(SPAN.wrapping_neg()));
        for (vm, ahead) in [(19, 0), (0, 1), (3, 70), (4, 70)] {
            assert_eq!(order.first(), Some((clock.plus(ahead), vm)));
            order.remove(vm);
        }
        assert_eq!(order.first(), None);
    }

    #[test]
    fn spent_cost_is_not_lost_to_rounding() {
        let mut flow = Flow::new(Virtual(7), 3);
        let tags = [1, 1, 1, 4].map(|cost| {
            flow.spend(cost);
            flow.tag
        });
        assert_eq!(tags, [7, 7, 8, 9].map(Virtual));
        // The remainder is dropped by a new weight and by `join`.
        flow.set_weight(3, Virtual(0));
        flow.spend(2);
        assert_eq!(flow.tag, Virtual(10));
        flow.spend(2);
        flow.join(Virtual(20));
        flow.spend(2);
        assert_eq!(flow.tag, Virtual(20));
        flow.set_weight(1, Virtual(20));
        flow.spend(2);
        assert_eq!(flow.tag, Virtual(22));
    }

    #[test]
    fn a_raised_weight_brings_nearer_and_nothing_moves_who_is_behind() {
        let clock = Virtual(100);
        assert_eq!(Virtual(500).reweighed(clock, 1, 4), Virtual(200));
        assert_eq!(Virtual(500).reweighed(clock, 2, 1), Virtual(900));
        assert_eq!(Virtual(40).reweighed(clock, 1, 4), Virtual(40));
    }
}
