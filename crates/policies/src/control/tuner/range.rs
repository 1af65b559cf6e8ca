//! SBR profiling: which bandwidths a VM can have by its merge limit (section 3.3). With its
//! workload running, L rises from 1 to the largest, a second each; the L with the highest bandwidth
//! is the largest that makes sense, and all below that bandwidth can be promised.

use crate::regulate::merge_limit::PAGE;
use tidegate_core::tuning::BandwidthRange;

/// Bandwidths by merge limit, from one page on, in bytes a second; as many as are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    by_limit: Vec<u64>,
    limits: u32,
}

impl Range {
    /// Of nothing yet, of so many limits.
    pub(super) fn new(limits: u32) -> Range {
        Range {
            by_limit: Vec::with_capacity(limits as usize),
            limits,
        }
    }

    /// From what was measured before, of at most so many limits.
    pub(super) fn of(mut by_limit: Vec<u64>, limits: u32) -> Range {
        by_limit.truncate(limits as usize);
        let limits = by_limit.len() as u32;
        Range { by_limit, limits }
    }

    /// What was measured so far.
    pub(super) fn measured(&self) -> &[u64] {
        &self.by_limit
    }

    /// How many limits are done, of how many.
    pub(super) fn progress(&self) -> (u32, u32) {
        (self.by_limit.len() as u32, self.limits)
    }

    /// All have been measured; never where there are none.
    pub(super) fn is_whole(&self) -> bool {
        self.limits > 0 && self.by_limit.len() as u32 == self.limits
    }

    /// The limit to be measured next; the largest where none is left.
    pub(super) fn next(&self) -> u32 {
        (self.by_limit.len() as u32 + 1).min(self.limits)
    }

    /// The bandwidth at [`Range::next`].
    pub(super) fn found(&mut self, bandwidth: u64) {
        if !self.is_whole() {
            self.by_limit.push(bandwidth);
        }
    }

    /// The smallest limit with the highest bandwidth; 1 of none.
    pub(super) fn best(&self) -> u32 {
        let best = self.by_limit.iter().enumerate();
        let best = best.rev().max_by_key(|&(_, bandwidth)| bandwidth);
        best.map_or(1, |(at, _)| at as u32 + 1)
    }

    /// Where tuning for this bandwidth begins: at the largest limit, up to the best one, that does
    /// not come to more; and whether even one page does.
    pub(super) fn begin_at(&self, bandwidth: u64) -> (u32, bool) {
        let useful = &self.by_limit[..self.by_limit.len().min(self.best() as usize)];
        match useful.iter().rposition(|&found| found <= bandwidth) {
            Some(at) => (at as u32 + 1, false),
            None => (1, true),
        }
    }

    /// For people; `None` until all was measured.
    pub(super) fn told(&self) -> Option<BandwidthRange> {
        let best = self.best();
        self.is_whole().then(|| BandwidthRange {
            lowest: self.by_limit[0],
            highest: self.by_limit[best as usize - 1],
            merge_limit: best * PAGE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_ends_at_the_smallest_limit_with_the_highest_bandwidth() {
        let mut range = Range::new(5);
        for (limit, bandwidth) in [15, 70, 90, 90, 80].into_iter().enumerate() {
            assert_eq!((range.next(), range.told()), (limit as u32 + 1, None));
            range.found(bandwidth);
        }
        range.found(999);
        assert_eq!(range.best(), 3);
        let told = BandwidthRange {
            lowest: 15,
            highest: 90,
            merge_limit: 3 * PAGE,
        };
        assert_eq!(range.told(), Some(told));
        let begins = [10, 15, 69, 70, 85, 90, 500].map(|b| range.begin_at(b));
        let at = [
            (1, true),
            (1, false),
            (1, false),
            (2, false),
            (2, false),
            (3, false),
            (3, false),
        ];
        assert_eq!(begins, at);
    }

    #[test]
    fn of_fewer_limits_the_rest_is_forgotten() {
        let range = Range::of(vec![1, 2, 3], 2);
        assert_eq!((range.best(), range.is_whole()), (2, true));
        assert_eq!(range.progress(), (2, 2));
    }
}
