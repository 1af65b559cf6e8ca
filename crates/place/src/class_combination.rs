//! Combination of classes on a host, the key of the priority database.

use tidegate_core::transfers::Class;

/// Maximum number of VMs of a host. Jain's thesis (chapter 5) assumes a small number, because
/// all share a disk.
pub const MAX_VMS: usize = 64;

/// Number of VMs of each class; equivalent to the sorted list of their classes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Combination {
    /// Counts, lowest class first, as in [`Class::ALL`].
    counts: [u16; 3],
}

impl Combination {
    /// Counts `classes`; their order does not matter.
    pub fn from_classes(classes: impl IntoIterator<Item = Class>) -> Combination {
        let mut all = Combination::default();
        for class in classes {
            all = all.with(class);
        }
        all
    }

    /// Creates a combination from counts, lowest class first.
    pub(crate) fn new(counts: [u16; 3]) -> Combination {
        Combination { counts }
    }

    /// Total number of VMs.
    pub fn len(&self) -> usize {
        self.counts.iter().map(|&count| usize::from(count)).sum()
    }

    /// Returns whether there is no VM.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of VMs of `class`.
    pub fn count(&self, class: Class) -> usize {
        self.counts[class as usize].into()
    }

    /// Adds a VM of `class`.
    #[must_use]
    pub fn with(mut self, class: Class) -> Combination {
        self.counts[class as usize] += 1;
        self
    }

    /// Changes the class of one VM.
    #[must_use]
    pub(crate) fn changed(mut self, from: Class, to: Class) -> Combination {
        assert!(
            self.counts[from as usize] > 0,
            "no VM of class {from:?} to change"
        );
        self.counts[from as usize] -= 1;
        self.with(to)
    }

    /// Sum of the class differences when the sorted classes of both are aligned; neighbouring
    /// classes differ by 1. `None`: the numbers of VMs differ.
    pub fn distance(&self, other: &Combination) -> Option<usize> {
        (self.len() == other.len()).then(|| self.distance_of_equal_len(other))
    }

    /// Computes [`distance`](Self::distance) for equal numbers of VMs: the counts below each
    /// class determine where the sorted lists differ.
    pub(crate) fn distance_of_equal_len(&self, other: &Combination) -> usize {
        let [(low, below), (other_low, other_below)] = [self.below(), other.below()];
        low.abs_diff(other_low) + below.abs_diff(other_below)
    }

    /// Pairs the VMs of both combinations in the order of their classes. Returns how many
    /// VMs of each class (row) are paired with each class of `other` (column).
    pub(crate) fn pair_counts(&self, other: &Combination) -> [[usize; 3]; 3] {
        let ranks = |all: &Combination| {
            let mut end = 0;
            Class::ALL.map(|class| {
                let from = end;
                end += all.count(class);
                from..end
            })
        };
        let theirs = ranks(other);
        ranks(self).map(|own| {
            theirs.clone().map(|their| {
                // Length of the overlap of the two ranges in sorted order.
                let end = own.end.min(their.end);
                end.saturating_sub(own.start.max(their.start))
            })
        })
    }

    /// Number of VMs below best effort, and below real time.
    fn below(&self) -> (usize, usize) {
        let idle = usize::from(self.counts[0]);
        (idle, idle + usize::from(self.counts[1]))
    }

    /// Index among all combinations of the same number of VMs.
    pub(crate) fn index(&self) -> usize {
        let (idle, below) = self.below();
        // Rows by `below`, each with `below + 1` values of `idle`.
        below * (below + 1) / 2 + idle
    }

    /// Returns all combinations of `n` VMs, by index.
    pub(crate) fn all_of_size(n: usize) -> impl Iterator<Item = Combination> {
        let counts = move |below, idle| [idle, below - idle, n - below].map(|count| count as u16);
        (0..=n).flat_map(move |below| {
            (0..=below).map(move |idle| Combination::new(counts(below, idle)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_that_of_the_sorted_classes() {
        let sorted = |all: &Combination| -> Vec<usize> {
            let classes = Class::ALL.into_iter();
            classes
                .flat_map(|class| vec![class as usize; all.count(class)])
                .collect()
        };
        for one in Combination::all_of_size(5) {
            for other in Combination::all_of_size(5) {
                let both = sorted(&one).into_iter().zip(sorted(&other));
                let sum = both.map(|(a, b)| a.abs_diff(b)).sum();
                assert_eq!(one.distance(&other), Some(sum), "{one:?} {other:?}");
            }
            assert_eq!(one.distance(&one.with(Class::Idle)), None);
        }
    }

    #[test]
    fn every_combination_has_its_own_place() {
        let places: Vec<_> = Combination::all_of_size(7).map(|all| all.index()).collect();
        assert_eq!(places, (0..36).collect::<Vec<_>>());
        assert!(Combination::all_of_size(7).all(|all| all.len() == 7));
    }
}
