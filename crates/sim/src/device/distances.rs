//! Distances between consecutive I/Os of a device.

/// Histogram of the distances from the end of one I/O to the start of the next, flushes aside, in
/// the order of submission.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Distances {
    /// Upper bounds in bytes, in ascending order.
    limits: Vec<u64>,
    /// Number of I/Os between the bound before and this one; the last count is of those beyond all
    /// bounds.
    counts: Vec<u64>,
    /// End of the last I/O.
    end: Option<u64>,
}

impl Distances {
    /// No I/Os yet, with these upper bounds in bytes, in ascending order.
    pub(super) fn new(limits: &[u64]) -> Distances {
        let is_ascending = limits.windows(2).all(|two| two[0] < two[1]);
        assert!(
            is_ascending,
            "a bound of distances is not above the one before: {limits:?}"
        );
        Distances {
            limits: limits.to_vec(),
            counts: vec![0; limits.len() + 1],
            end: None,
        }
    }

    /// Counts an I/O that is given to the device.
    pub(super) fn started(&mut self, addr: u64, len: u32) {
        if let Some(end) = self.end {
            let distance = addr.abs_diff(end);
            // Bounds are inclusive.
            let place = self.limits.partition_point(|&limit| limit < distance);
            self.counts[place] += 1;
        }
        self.end = Some(addr + u64::from(len));
    }

    /// Sets the counts to zero. The end of the last I/O stays known.
    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Each limit with the I/Os up to it; `None`: those beyond all of them.
    pub fn counts(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let limits = self.limits.iter().copied().map(Some).chain([None]);
        limits.zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_from_the_end_of_the_last_one_either_way() {
        let mut distances = Distances::new(&[0, 100]);
        for (addr, len) in [(1000, 10), (1010, 10), (1120, 10), (1030, 10), (939, 1)] {
            distances.started(addr, len);
        }
        let counts: Vec<_> = distances.counts().collect();
        assert_eq!(counts, [(Some(0), 1), (Some(100), 2), (None, 1)]);
        distances.clear();
        assert_eq!(distances.counts().map(|(_, n)| n).sum::<u64>(), 0);
    }
}
