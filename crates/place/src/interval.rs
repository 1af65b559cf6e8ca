//! Evaluation of a measurement interval: the rate of each class, and which rates were limited by
//! the tenant's own demand.
//!
//! The database stores, for each class, the rate of a tenant that uses all it can get. A tenant
//! with less demand gives only a lower bound; the bandwidth that it left was used by others, who
//! would not have it beside a tenant with unlimited demand.

use tidegate_core::transfers::Class;

use crate::{Combination, MOST, Rates};

/// Upper bound of a plausible rate: an exbibyte per second.
pub(crate) const RATE_MAX: u64 = 1 << 60;

/// Rates of a host's tenants over one interval.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Interval {
    pub(crate) classes: Combination,
    /// Sum of the rates of each class in bytes per second, lowest class first.
    had: [u128; 3],
    /// Number of tenants of each class with unlimited demand.
    greedy: [usize; 3],
}

impl Interval {
    /// Collects (class, rate in bytes per second, unlimited demand) of each tenant; `None`: no
    /// tenant, or more than [`MOST`].
    pub(crate) fn from_rates(
        had: impl IntoIterator<Item = (Class, u64, bool)>,
    ) -> Option<Interval> {
        let mut all = Interval::default();
        for (class, rate, took_all) in had {
            if all.classes.len() == MOST {
                return None;
            }
            all.classes = all.classes.with(class);
            all.had[class as usize] += u128::from(rate.min(RATE_MAX));
            all.greedy[class as usize] += usize::from(took_all);
        }
        (!all.classes.is_empty()).then_some(all)
    }

    /// Estimates the rate of one tenant of each class if all had unlimited demand; `None`: the
    /// interval teaches nothing new.
    ///
    /// `seen` is the earlier estimate for this combination. A tenant with limited demand is
    /// credited with the earlier estimate, and the lower classes with their rates less what it
    /// left. Without an earlier estimate, all that the lower classes had counts as left by the
    /// higher ones, so that nobody relies on it beside a tenant with unlimited demand. `granted` is
    /// the bandwidth assumed for this number of tenants, in bytes per second, before any
    /// measurement.
    pub(crate) fn class_rates(&self, seen: Option<&Rates>, granted: u64) -> Option<Rates> {
        let (mut left, mut rates, mut says) = (0, Rates::default(), false);
        for class in Class::ALL.into_iter().rev() {
            let (at, n) = (class as usize, self.classes.count(class) as u128);
            if n == 0 {
                continue;
            }
            // Without what the higher classes left: it would be missing beside greedy tenants.
            let own = self.had[at].saturating_sub(left);
            let all = match (self.greedy[at], seen) {
                // All had limited demand, so the class gets at least as much as before.
                (0, Some(seen)) => own.max(u128::from(seen.for_class(class)) * n),
                (0, None) => own + self.taken_below(class).saturating_sub(left),
                _ => own,
            };
            says |= self.greedy[at] > 0
                || seen.is_some_and(|seen| all > u128::from(seen.for_class(class)) * n);
            // A class with a greedy tenant leaves nothing to the lower ones.
            left = match self.greedy[at] {
                0 => (left + all).saturating_sub(self.had[at]),
                _ => 0,
            };
            rates.0[at] = u64::try_from(all / n).unwrap_or(RATE_MAX);
        }
        let total: u128 = self.had.iter().sum();
        (says || seen.is_none() && total > granted.into()).then_some(rates)
    }

    /// Sum of the rates of the lower classes, down to the first with a tenant of unlimited demand:
    /// beyond it no bandwidth was left.
    fn taken_below(&self, class: Class) -> u128 {
        let mut sum = 0;
        for at in (0..class as usize).rev() {
            sum += self.had[at];
            if self.greedy[at] > 0 {
                break;
            }
        }
        sum
    }
}
