//! How many on a host have which class: what the priority database is asked for.

use tidegate_core::jobs::Class;

/// More are never on a host. The thesis takes it for small: all share one disk.
pub const MOST: usize = 64;

/// So many of each class, which is the same as their classes sorted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Combination {
    /// The weakest first, as in [`Class::ALL`].
    counts: [u16; 3],
}

impl Combination {
    /// Of these classes; in which order they come makes no difference.
    pub fn of(classes: impl IntoIterator<Item = Class>) -> Combination {
        let mut all = Combination::default();
        for class in classes {
            all = all.with(class);
        }
        all
    }

    /// So many of each class, the weakest first.
    pub(crate) fn new(counts: [u16; 3]) -> Combination {
        Combination { counts }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.counts.iter().map(|&count| usize::from(count)).sum()
    }

    /// Nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have this class.
    pub fn count(&self, class: Class) -> usize {
        self.counts[class as usize].into()
    }

    /// With one more of this class.
    #[must_use]
    pub fn with(mut self, class: Class) -> Combination {
        self.counts[class as usize] += 1;
        self
    }

    /// One that had a class has another.
    #[must_use]
    pub(crate) fn changed(mut self, from: Class, to: Class) -> Combination {
        self.counts[from as usize] -= 1;
        self.with(to)
    }

    /// The sum of the differences between the classes of both, sorted and set side by side; a class
    /// differs from the one below by 1. `None`: not as many.
    pub fn distance(&self, other: &Combination) -> Option<usize> {
        (self.len() == other.len()).then(|| self.apart(other))
    }

    /// The same for as many as `other`: how many are below each class says where the sorted ones
    /// differ.
    pub(crate) fn apart(&self, other: &Combination) -> usize {
        let [(low, below), (other_low, other_below)] = [self.below(), other.below()];
        low.abs_diff(other_low) + below.abs_diff(other_below)
    }

    /// With the sorted classes of both side by side: how many of each class stand beside each class
    /// of the other.
    pub(crate) fn beside(&self, other: &Combination) -> [[usize; 3]; 3] {
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
                let end = own.end.min(their.end);
                end.saturating_sub(own.start.max(their.start))
            })
        })
    }

    /// How many are below best effort, and below real time.
    fn below(&self) -> (usize, usize) {
        let idle = usize::from(self.counts[0]);
        (idle, idle + usize::from(self.counts[1]))
    }

    /// Its place among all of as many.
    pub(crate) fn place(&self) -> usize {
        let (idle, below) = self.below();
        below * (below + 1) / 2 + idle
    }

    /// All of `n`, by their places.
    pub(crate) fn all(n: usize) -> impl Iterator<Item = Combination> {
        let of = move |below, idle| [idle, below - idle, n - below].map(|count| count as u16);
        (0..=n)
            .flat_map(move |below| (0..=below).map(move |idle| Combination::new(of(below, idle))))
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
        for one in Combination::all(5) {
            for other in Combination::all(5) {
                let both = sorted(&one).into_iter().zip(sorted(&other));
                let sum = both.map(|(a, b)| a.abs_diff(b)).sum();
                assert_eq!(one.distance(&other), Some(sum), "{one:?} {other:?}");
            }
            assert_eq!(one.distance(&one.with(Class::Idle)), None);
        }
    }

    #[test]
    fn every_combination_has_its_own_place() {
        let places: Vec<_> = Combination::all(7).map(|all| all.place()).collect();
        assert_eq!(places, (0..36).collect::<Vec<_>>());
        assert!(Combination::all(7).all(|all| all.len() == 7));
    }
}
