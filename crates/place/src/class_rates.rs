//! Bandwidth of each class on a host.

use tidegate_core::transfers::Class;

use crate::Combination;

/// Rate of one VM of each class in bytes per second, lowest class first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassRates(pub [u64; 3]);

impl ClassRates {
    /// Rate of one VM of `class` in bytes per second; 0 for a class without a rate.
    pub fn for_class(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Estimates the rates of the combination `wanted` from these rates of the combination
    /// `measured`, which has as many VMs. The VMs of both are sorted by class and paired in that
    /// order; a class gets the mean rate of the VMs that its own are paired with.
    ///
    /// ```text
    ///   measured: idle 5 MB/s, best effort 20 MB/s, real time 60 MB/s
    ///   wanted:   idle,        best effort,         best effort
    ///   result:   idle 5 MB/s, best effort min((20 + 60) / 2, 20) = 20 MB/s
    /// ```
    ///
    /// The minimum: a class that was measured gets no more than its measured rate, because a VM
    /// that is lowered to it does not bring its former rate along.
    pub(crate) fn extrapolate(&self, measured: &Combination, wanted: &Combination) -> ClassRates {
        let pairs = wanted.pair_counts(measured);
        ClassRates(Class::ALL.map(|class| {
            let pairs = pairs[class as usize];
            let n: usize = pairs.iter().sum();
            let all = pairs.into_iter().zip(self.0);
            // 128 bits, because rates may be as large as `u64::MAX` when unlimited.
            let sum: u128 = all.map(|(n, rate)| n as u128 * u128::from(rate)).sum();
            let mean = u64::try_from(sum / n.max(1) as u128).unwrap_or(u64::MAX);
            if measured.count(class) == 0 {
                mean
            } else {
                mean.min(self.for_class(class))
            }
        }))
    }

    /// Sum of the rates of all VMs in `classes`, in bytes per second; saturates.
    pub fn total(&self, classes: &Combination) -> u64 {
        let all = Class::ALL.map(|class| {
            self.for_class(class)
                .saturating_mul(classes.count(class) as u64)
        });
        all.into_iter().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{BestEffort, Idle, RealTime};

    #[test]
    fn a_lowered_vm_gets_the_measured_rate_of_its_new_class() {
        let measured = Combination::from_classes([Idle, BestEffort, RealTime]);
        let wanted = Combination::from_classes([Idle, BestEffort, BestEffort]);
        let rates = ClassRates([5, 20, 60]).extrapolate(&measured, &wanted);
        assert_eq!(rates, ClassRates([5, 20, 0]));
    }

    #[test]
    fn a_class_without_a_measured_rate_gets_the_mean_of_its_pairs() {
        let measured = Combination::from_classes([Idle, RealTime]);
        let wanted = Combination::from_classes([BestEffort, BestEffort]);
        let rates = ClassRates([5, 0, 60]).extrapolate(&measured, &wanted);
        assert_eq!(rates, ClassRates([0, 32, 0]));
    }
}
