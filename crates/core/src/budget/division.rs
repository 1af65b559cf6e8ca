//! Division of a guaranteed amount among members by reservation and weight.

use tidegate_base::objective::{Objective, Rate};

/// Bytes that one operation of a reservation in operations stands for, and the reverse. Guests'
/// requests lie between 4 KiB and 1 MiB; the geometric mean is 64 KiB.
const BYTES_PER_OP: u64 = 64 << 10;

/// Claim of one member on a [`Budget`](super::Budget): its shares by weight and by reservation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shares {
    /// Relative weight; 0 counts as 1.
    pub weight: u64,
    /// Reserved rate in units of the budget per second; 0: nothing is reserved.
    pub reservation: u64,
}

impl Shares {
    /// Claim of a VM on request slots: reserved operations per second.
    pub fn of_slots(objective: &Objective) -> Shares {
        let Rate { ops, bytes_per_s } = objective.reservation;
        let ops = ops.map_or(0, |ops| ops.per_s);
        Shares {
            weight: objective.weight.into(),
            reservation: ops.saturating_add(bytes_per_s.unwrap_or(0) / BYTES_PER_OP),
        }
    }

    /// Claim of a VM on payload memory: reserved bytes per second.
    pub fn of_memory(objective: &Objective) -> Shares {
        let Rate { ops, bytes_per_s } = objective.reservation;
        let bytes = ops.map_or(0, |ops| {
            let each = ops.norm.map_or(BYTES_PER_OP, u64::from);
            ops.per_s.saturating_mul(each)
        });
        Shares {
            weight: objective.weight.into(),
            reservation: bytes.saturating_add(bytes_per_s.unwrap_or(0)),
        }
    }

    /// Effective weight: at least 1.
    pub(super) fn counted_weight(&self) -> u64 {
        self.weight.max(1)
    }
}

/// Sums of all members' shares, and the amount that is divided.
#[derive(Clone, Debug)]
pub(super) struct Division {
    amount: u64,
    members: u128,
    weights: u128,
    reservations: u128,
    /// Number that changes with every change of a part; never 0, which marks free slots.
    pub(super) epoch: u32,
}

impl Division {
    pub(super) fn new(amount: u64) -> Division {
        Division {
            amount,
            members: 0,
            weights: 0,
            reservations: 0,
            epoch: 1,
        }
    }

    /// Number of a former division, at which a member's part is computed when it is first needed.
    pub(super) fn outdated_epoch(&self) -> u32 {
        match self.epoch {
            // The number before 1, as 0 marks free slots.
            1 => u32::MAX,
            epoch => epoch - 1,
        }
    }

    pub(super) fn add(&mut self, shares: &Shares) {
        self.members += 1;
        self.weights += u128::from(shares.counted_weight());
        self.reservations += u128::from(shares.reservation);
        // Skips 0, which marks free slots.
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }

    pub(super) fn remove(&mut self, shares: &Shares) {
        assert!(
            self.members > 0
                && self.weights >= u128::from(shares.counted_weight())
                && self.reservations >= u128::from(shares.reservation),
            "shares are removed that were never added"
        );
        self.members -= 1;
        self.weights -= u128::from(shares.counted_weight());
        self.reservations -= u128::from(shares.reservation);
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }

    /// Part of a member, at least 1, so that a member can always hold something by itself. A
    /// quarter of the amount is divided equally, so that the smallest weight beside the largest
    /// still has several requests outstanding; half of the rest goes by reservation if any member
    /// reserves something, and the remainder by weight.
    pub(super) fn part(&self, shares: &Shares) -> u64 {
        let equally = self.amount / 4;
        // Without reservations that half goes by weight, too.
        let by_reservation = match self.reservations {
            0 => 0,
            _ => (self.amount - equally) / 2,
        };
        let by_weight = self.amount - equally - by_reservation;
        let of = |amount: u64, share: u64, sum: u128| match sum {
            0 => 0,
            sum => (u128::from(amount) * u128::from(share) / sum) as u64,
        };
        let part = of(equally, 1, self.members)
            + of(by_weight, shares.counted_weight(), self.weights)
            + of(by_reservation, shares.reservation, self.reservations);
        part.max(1)
    }
}
