//! Bandwidth of each class on a host.

use tidegate_core::transfers::Class;

use crate::Combination;

/// Rate of one tenant of each class in bytes per second, lowest class first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rates(pub [u64; 3]);

impl Rates {
    /// Rate of one tenant of `class` in bytes per second; 0 if there is none.
    pub fn for_class(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Derives rates for `classes` from these rates, which were measured for `known`. The sorted
    /// classes of both are aligned; each class gets the mean of its counterparts, but at most the
    /// measured rate of the same class. A lowered tenant thus gets the rate of the lowest class,
    /// not a part of its former rate.
    pub(crate) fn beside(&self, known: &Combination, classes: &Combination) -> Rates {
        let sides = classes.beside(known);
        Rates(Class::ALL.map(|class| {
            let sides = sides[class as usize];
            let n: usize = sides.iter().sum();
            let all = sides.into_iter().zip(self.0);
            // 128 bits, because rates may be as large as `u64::MAX` when unlimited.
            let sum: u128 = all.map(|(n, rate)| n as u128 * u128::from(rate)).sum();
            let mean = u64::try_from(sum / n.max(1) as u128).unwrap_or(u64::MAX);
            match known.count(class) {
                0 => mean,
                _ => mean.min(self.for_class(class)),
            }
        }))
    }

    /// Sum of the rates of all tenants in `classes`, in bytes per second; saturates.
    pub fn total(&self, classes: &Combination) -> u64 {
        let all = Class::ALL.map(|class| {
            self.for_class(class)
                .saturating_mul(classes.count(class) as u64)
        });
        all.into_iter().fold(0, u64::saturating_add)
    }
}
