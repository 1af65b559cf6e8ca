//! Variation of what VMs are charged while costs are learnt.
//!
//! VMs that are always served in the same proportion cannot be told apart: only their common cost
//! is observable, and the estimator's equations are linearly dependent. So each VM's charge is
//! varied by up to a quarter, up and down and independently of the others, until the VM's cost is
//! known.

use tidegate_base::request::VmId;
use tidegate_capacity::estimator::CostEstimator;
use tidegate_core::view::View;

/// Largest variation of a charge, as a part of the cost.
const DITHER_MAX: f64 = 0.25;
/// Denominator of the variation, which is an integer fraction so that the order of service does not
/// depend on floating point.
const DITHER_ONE: u64 = 1024;

/// Variation of charges; none as long as costs are known.
#[derive(Default)]
pub(super) struct Dither {
    /// Number of the estimator's finished windows when `by` was computed.
    windows_ended: u64,
    /// Variation as a part of the cost, in 1 / `DITHER_ONE`.
    by: u64,
}

impl Dither {
    /// Returns the charge for a cost in the current window.
    #[inline]
    pub(super) fn vary(&mut self, view: &View, vm: VmId, cost: u64) -> u64 {
        let Some(estimator) = view.estimator() else {
            return cost;
        };
        if estimator.windows_ended() != self.windows_ended {
            self.update(estimator, vm);
        }
        // Divided first, so that the product cannot overflow; the remainder does not matter.
        let by = cost / DITHER_ONE * self.by;
        if estimator.raises_share(vm) {
            cost + by
        } else {
            cost - by
        }
    }

    /// Updates the variation for the current window.
    #[cold]
    fn update(&mut self, estimator: &CostEstimator, vm: VmId) {
        let by = estimator
            .share_variation(vm, estimator.learnt().relative_half_width())
            .abs();
        self.windows_ended = estimator.windows_ended();
        // The only step in floating point; all that follows is whole numbers.
        self.by = (by.min(DITHER_MAX) * DITHER_ONE as f64) as u64;
    }
}
