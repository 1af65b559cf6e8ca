//! Groups of VMs, each with one weight that is divided among those of its VMs that compete.

use super::strategy::Pool;
use crate::group::{Group, GroupName};

/// The groups there are, in the order of their names.
#[derive(Debug)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// The sums of the weights of those of their VMs that compete.
    competing: Vec<u64>,
    /// Room for what is lent within them.
    pools: Vec<Pool>,
}

impl Groups {
    /// Room for so many.
    pub(super) fn with_capacity(most: usize) -> Groups {
        Groups {
            all: Vec::with_capacity(most),
            competing: Vec::with_capacity(most),
            pools: Vec::with_capacity(most),
        }
    }

    /// As VMs name them; where they differ in a weight, the largest counts.
    pub(super) fn set(&mut self, named: impl Iterator<Item = Group>) {
        self.all.clear();
        self.all.extend(named);
        let heaviest_first = |g: &Group| (g.name, u32::MAX - g.weight);
        self.all.sort_unstable_by_key(heaviest_first);
        self.all.dedup_by_key(|group| group.name);
        self.nobody_competes();
    }

    /// A group's place.
    pub(super) fn find(&self, group: &Group) -> Option<u32> {
        let by_name =
            |known: &Group| -> core::cmp::Ordering { GroupName::cmp(&known.name, &group.name) };
        let place = self.all.binary_search_by(by_name);
        place.ok().map(|place| place as u32)
    }

    /// Before those that do are counted.
    pub(super) fn nobody_competes(&mut self) {
        self.competing.clear();
        self.competing.resize(self.all.len(), 0);
    }

    /// One for each group, whatever is in it.
    pub(super) fn pools(&mut self) -> &mut [Pool] {
        self.pools.resize(self.all.len(), Pool::default());
        &mut self.pools
    }

    /// A VM of this weight, and of the group in this place, does.
    pub(super) fn competes(&mut self, group: Option<u32>, weight: u32) {
        if let Some(place) = group {
            self.competing[place as usize] += u64::from(weight);
        }
    }

    /// What it weighs among all: its own weight, or its part of its group's.
    pub(super) fn share(&self, group: Option<u32>, weight: u32) -> f64 {
        let own = f64::from(weight);
        group.map_or(own, |place| {
            let place = place as usize;
            f64::from(self.all[place].weight) * own / self.competing[place] as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_weight_is_divided_among_those_that_compete() {
        let group = |name: &str, weight| Group {
            name: name.parse().expect("short"),
            weight,
        };
        let mut groups = Groups::with_capacity(4);
        // The larger of two that differ.
        let named = [
            group("b", 300),
            group("a", 10),
            group("a", 50),
            group("a", 20),
        ];
        groups.set(named.into_iter());
        let [a, b] = ["a", "b"].map(|name| groups.find(&group(name, 1)));
        assert_eq!(
            (a, b, groups.find(&group("c", 1))),
            (Some(0), Some(1), None)
        );
        for (of, weight) in [(a, 100), (a, 300), (b, 7), (None, 40)] {
            groups.competes(of, weight);
        }
        assert_eq!(groups.share(a, 100), 12.5);
        assert_eq!(groups.share(a, 300), 37.5);
        assert_eq!(groups.share(b, 7), 300.0);
        assert_eq!(groups.share(None, 40), 40.0);
        groups.nobody_competes();
        groups.competes(a, 300);
        assert_eq!(groups.share(a, 300), 50.0, "one alone has all of it");
    }
}
