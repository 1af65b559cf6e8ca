//! Placements of a cluster for which transfers of a VM have begun.

/// Number of placements of a VM that are remembered. etcd confirms each placement before it begins,
/// and has one of a VM at a time. So an earlier one matters only while starts of later ones wait
/// between that and their beginning, which are few.
const REMEMBERED: usize = 8;

/// Last placements of a VM that have begun, so that none begins twice: etcd has the start of a
/// placement until the daemon has told it, and a placer may ask again at any time.
///
/// A placement is identified by its time in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BegunPlacements {
    /// Oldest first, at the front.
    placed_ns: [u64; REMEMBERED],
    len: usize,
}

impl BegunPlacements {
    /// Adds a placement that begins now. The oldest one is forgotten if there are too many.
    pub fn add(&mut self, placed_ns: u64) {
        if self.contains(placed_ns) {
            return;
        }
        if self.len == REMEMBERED {
            self.placed_ns.rotate_left(1);
            self.len -= 1;
        }
        self.placed_ns[self.len] = placed_ns;
        self.len += 1;
    }

    /// Returns whether a placement has begun.
    pub fn contains(&self, placed_ns: u64) -> bool {
        self.as_slice().contains(&placed_ns)
    }

    /// Returns the placements, the oldest first.
    pub fn as_slice(&self) -> &[u64] {
        &self.placed_ns[..self.len]
    }
}

impl FromIterator<u64> for BegunPlacements {
    fn from_iter<I: IntoIterator<Item = u64>>(all: I) -> BegunPlacements {
        let mut begun = BegunPlacements::default();
        all.into_iter().for_each(|placed_ns| begun.add(placed_ns));
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_placements_are_remembered_once_each() {
        let mut begun: BegunPlacements = [7, 3, 7].into_iter().collect();
        assert_eq!(begun.as_slice(), [7, 3]);
        assert!(begun.contains(3) && !begun.contains(0));
        (10..16).for_each(|placed_ns| begun.add(placed_ns));
        assert!(begun.contains(7));
        begun.add(16);
        assert!(!begun.contains(7));
        assert_eq!(begun.as_slice(), [3, 10, 11, 12, 13, 14, 15, 16]);
    }
}
