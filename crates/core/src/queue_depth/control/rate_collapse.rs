//! Early detection of a depth that has become too small, because the rate collapses.
//!
//! A depth of 1 is enough for writes that a cache takes, say, and the reads that follow need some
//! at a time. A measurement of them at depth 1 would take a tenth of a second.

use super::DepthControl;
use super::search_phase::Phase;
use tidegate_base::time::Nanos;

/// Consecutive batches at less than a [`COLLAPSED`]th of the rate after which a depth below the one
/// to begin with counts as too small.
const SLOW_BATCHES: u32 = 4;
/// Factor by which the rate of a batch must fall. Batches of four I/Os differ by chance by up to a
/// factor of two.
const COLLAPSED: f64 = 3.0;

impl DepthControl {
    /// Returns `true` if a depth below the one to begin with, in force or on trial, has become too
    /// small with the last batch.
    pub(super) fn has_rate_collapsed(&mut self) -> bool {
        let expected = match self.phase {
            Phase::Hold { .. } => self.latest,
            Phase::Descend { reference, .. } => Some(reference),
            _ => None,
        };
        let expected = expected.filter(|_| self.limit() < self.start());
        let is_slow = expected
            .zip(self.meter.last())
            .is_some_and(|(expected, batch)| batch * COLLAPSED < expected.per_ns);
        self.slow_batches = if is_slow { self.slow_batches + 1 } else { 0 };
        self.slow_batches >= SLOW_BATCHES
    }

    /// Ends the trial of a depth that is too small, or begins anew if it is in force.
    pub(super) fn leave_small_depth(&mut self, now: Nanos) {
        self.slow_batches = 0;
        if let Phase::Descend {
            candidate,
            reference,
        } = self.phase
        {
            self.too_small = candidate;
            return self.descend(now, reference);
        }
        self.depth = self.start();
        self.begin(now);
    }
}
