//! SBR profiling: the bandwidths that a VM achieves by its merge limit (section 3.3). With its
//! workload running, L rises from 1 to the largest, a second each; the L with the highest bandwidth
//! is the largest that makes sense, and all below that bandwidth can be promised.

use crate::regulate::merge_limit::PAGE_BYTES;
use tidegate_core::tuning::BandwidthRange;

/// Bandwidths by merge limit, from one page on, in bytes per second, as far as they are measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    by_limit: Vec<u64>,
    limits: u32,
}

impl Range {
    /// Creates an empty range of `limits` merge limits, in pages.
    pub(super) fn new(limits: u32) -> Range {
        Range {
            by_limit: Vec::with_capacity(limits as usize),
            limits,
        }
    }

    /// Creates a complete range from measured bandwidths, at most the first `limits` of them.
    pub(super) fn complete(mut by_limit: Vec<u64>, limits: u32) -> Range {
        by_limit.truncate(limits as usize);
        let limits = by_limit.len() as u32;
        Range { by_limit, limits }
    }

    /// Returns the bandwidths measured so far, from one page on.
    pub(super) fn measured(&self) -> &[u64] {
        &self.by_limit
    }

    /// Returns the number of measured limits and the number of all.
    pub(super) fn progress(&self) -> (u32, u32) {
        (self.by_limit.len() as u32, self.limits)
    }

    /// Returns `true` once all limits are measured; never for an empty range.
    pub(super) fn is_whole(&self) -> bool {
        self.limits > 0 && self.by_limit.len() as u32 == self.limits
    }

    /// Returns the merge limit in pages to be measured next; the largest if none is left.
    pub(super) fn next_limit(&self) -> u32 {
        (self.by_limit.len() as u32 + 1).min(self.limits)
    }

    /// Records the bandwidth in bytes per second at [`Range::next_limit`].
    pub(super) fn record(&mut self, bandwidth: u64) {
        if !self.is_whole() {
            self.by_limit.push(bandwidth);
        }
    }

    /// Returns the smallest limit, in pages, with the highest bandwidth; 1 without measurements.
    pub(super) fn best(&self) -> u32 {
        let best = self.by_limit.iter().enumerate();
        let best = best.rev().max_by_key(|&(_, bandwidth)| bandwidth);
        best.map_or(1, |(at, _)| at as u32 + 1)
    }

    /// Returns the limit in pages at which tuning for `bandwidth` begins: the largest up to the
    /// best one with no more than that. The flag is `true` if even one page exceeds it.
    pub(super) fn starting_limit(&self, bandwidth: u64) -> (u32, bool) {
        let useful = &self.by_limit[..self.by_limit.len().min(self.best() as usize)];
        match useful.iter().rposition(|&measured| measured <= bandwidth) {
            Some(at) => (at as u32 + 1, false),
            None => (1, true),
        }
    }

    /// Returns the range for status output; `None` until all limits are measured.
    pub(super) fn view(&self) -> Option<BandwidthRange> {
        let best = self.best();
        self.is_whole().then(|| BandwidthRange {
            lowest: self.by_limit[0],
            highest: self.by_limit[best as usize - 1],
            merge_limit: best * PAGE_BYTES,
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
            assert_eq!((range.next_limit(), range.view()), (limit as u32 + 1, None));
            range.record(bandwidth);
        }
        range.record(999);
        assert_eq!(range.best(), 3);
        let told = BandwidthRange {
            lowest: 15,
            highest: 90,
            merge_limit: 3 * PAGE_BYTES,
        };
        assert_eq!(range.view(), Some(told));
        let begins = [10, 15, 69, 70, 85, 90, 500].map(|b| range.starting_limit(b));
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
    fn a_lower_number_of_limits_drops_the_highest() {
        let range = Range::complete(vec![1, 2, 3], 2);
        assert_eq!((range.best(), range.is_whole()), (2, true));
        assert_eq!(range.progress(), (2, 2));
    }
}
