//! The bandwidth that each class has on a host.

use tidegate_core::jobs::Class;

use crate::Combination;

/// What one of each class has, in bytes a second, the weakest first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rates(pub [u64; 3]);

impl Rates {
    /// What one of this class has; 0 where nobody is of it.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// What these have when their sorted classes stand beside those of which this is known: the
    /// mean of those beside; and no more than their own class had, where it was there. Who is
    /// lowered has what the lowest had, then, and not a part of what it had before.
    pub(crate) fn beside(&self, known: &Combination, classes: &Combination) -> Rates {
        let sides = classes.beside(known);
        Rates(Class::ALL.map(|class| {
            let sides = sides[class as usize];
            let n: usize = sides.iter().sum();
            let all = sides.into_iter().zip(self.0);
            let sum: u128 = all.map(|(n, rate)| n as u128 * u128::from(rate)).sum();
            let mean = u64::try_from(sum / n.max(1) as u128).unwrap_or(u64::MAX);
            match known.count(class) {
                0 => mean,
                _ => mean.min(self.of(class)),
            }
        }))
    }

    /// What all of them have together.
    pub fn total(&self, of: &Combination) -> u64 {
        let all = Class::ALL.map(|class| self.of(class).saturating_mul(of.count(class) as u64));
        all.into_iter().fold(0, u64::saturating_add)
    }
}
