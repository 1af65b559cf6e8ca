//! Evaluation of a measurement interval: the rate of each class, and which rates were limited by
//! the VM's own demand.
//!
//! The database stores, for each class, the rate of a greedy VM: one with unlimited demand, which
//! uses all it can get. A VM with less demand gives only a lower bound; the bandwidth that it did
//! not use went to others, which would not have it beside a greedy VM.

use tidegate_core::transfers::Class;

use crate::{ClassRates, Combination, MAX_VMS};

/// Upper bound of a plausible rate: an exbibyte per second.
pub(crate) const RATE_MAX: u64 = 1 << 60;

/// Rates of a host's VMs over one interval.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Interval {
    pub(crate) classes: Combination,
    /// Sum of the measured rates of each class in bytes per second, lowest class first.
    class_totals: [u128; 3],
    /// Number of VMs of each class with unlimited demand.
    greedy: [usize; 3],
}

impl Interval {
    /// Collects (class, rate in bytes per second, unlimited demand) of each VM; `None`: no VM,
    /// or more than [`MAX_VMS`].
    pub(crate) fn from_rates(
        rates: impl IntoIterator<Item = (Class, u64, bool)>,
    ) -> Option<Interval> {
        let mut interval = Interval::default();
        for (class, rate, is_greedy) in rates {
            if interval.classes.len() == MAX_VMS {
                return None;
            }
            interval.classes = interval.classes.with(class);
            interval.class_totals[class as usize] += u128::from(rate.min(RATE_MAX));
            interval.greedy[class as usize] += usize::from(is_greedy);
        }
        (!interval.classes.is_empty()).then_some(interval)
    }

    /// Estimates the rate in bytes per second of one VM of each class if all had unlimited
    /// demand. `earlier` is the estimate so far for this combination, and `assumed` the bandwidth
    /// assumed for this number of VMs before any measurement. `None`: the interval adds nothing
    /// to what is known.
    ///
    /// From the highest class down, with `own` as the class's rate less the bandwidth that higher
    /// classes did not use (greedy VMs there would not have left it), and `n` its VMs:
    ///
    /// | greedy VM in the class | earlier estimate | estimate for the class             |
    /// |------------------------|------------------|------------------------------------|
    /// | yes                    | any              | own / n                            |
    /// | no                     | E                | max(own / n, E)                    |
    /// | no                     | none             | (own + rates of lower classes) / n |
    ///
    /// In the last row all that lower classes had counts as unused by the class, so that no
    /// placement relies on it beside a greedy VM. Example without an earlier estimate: a
    /// real-time VM had 10 MB/s of limited demand and a greedy idle one had 40 MB/s. The estimate
    /// is 50 MB/s for real time and 0 for idle.
    pub(crate) fn class_rates(
        &self,
        earlier: Option<&ClassRates>,
        assumed: u64,
    ) -> Option<ClassRates> {
        let (mut unused_above, mut rates, mut is_informative) = (0, ClassRates::default(), false);
        for class in Class::ALL.into_iter().rev() {
            let (at, n) = (class as usize, self.classes.count(class) as u128);
            if n == 0 {
                continue;
            }
            let own = self.class_totals[at].saturating_sub(unused_above);
            let estimate = match (self.greedy[at], earlier) {
                (0, Some(earlier)) => own.max(u128::from(earlier.for_class(class)) * n),
                (0, None) => own + self.taken_below(class).saturating_sub(unused_above),
                _ => own,
            };
            // A class with limited demand tells something only if it had more than was known.
            is_informative |= self.greedy[at] > 0
                || earlier
                    .is_some_and(|earlier| estimate > u128::from(earlier.for_class(class)) * n);
            // A class with a greedy VM leaves nothing to the lower ones.
            unused_above = match self.greedy[at] {
                0 => (unused_above + estimate).saturating_sub(self.class_totals[at]),
                _ => 0,
            };
            rates.0[at] = u64::try_from(estimate / n).unwrap_or(RATE_MAX);
        }
        let total: u128 = self.class_totals.iter().sum();
        (is_informative || earlier.is_none() && total > assumed.into()).then_some(rates)
    }

    /// Sum of the rates of the lower classes, down to the first with a VM of unlimited demand:
    /// beyond it no bandwidth was left.
    fn taken_below(&self, class: Class) -> u128 {
        let mut sum = 0;
        for at in (0..class as usize).rev() {
            sum += self.class_totals[at];
            if self.greedy[at] > 0 {
                break;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{Idle, RealTime};

    #[test]
    fn limited_demand_without_an_earlier_estimate_counts_lower_rates_as_unused() {
        let interval = Interval::from_rates([(RealTime, 10, false), (Idle, 40, true)]);
        let rates = interval.and_then(|interval| interval.class_rates(None, 100));
        assert_eq!(rates, Some(ClassRates([0, 0, 50])));
    }

    #[test]
    fn limited_demand_below_the_earlier_estimate_adds_nothing() {
        let interval = Interval::from_rates([(RealTime, 10, false)]).expect("one VM");
        assert_eq!(
            interval.class_rates(Some(&ClassRates([0, 0, 20])), 100),
            None
        );
        let higher = Some(ClassRates([0, 0, 10]));
        assert_eq!(
            interval.class_rates(Some(&ClassRates([0, 0, 9])), 100),
            higher
        );
    }
}
