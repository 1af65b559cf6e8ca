//! Variation of what VMs are charged while costs are learnt.
//!
//! VMs that are always served in the same proportion have one cost between them, however long one
//! looks: no equation of the estimator tells them apart. So what each VM is charged is varied by up
//! to a quarter, back and forth and each VM by itself, until its cost is known.

use tidegate_base::request::VmId;
use tidegate_capacity::estimator::CostEstimator;
use tidegate_core::facts::Facts;

/// Part of a cost by which charges are varied at most.
const DITHER: f64 = 0.25;
/// Unit in which that part is reckoned: integers decide who goes next.
const DITHER_ONE: u64 = 1024;

/// Variation of charges; none as long as costs are known.
#[derive(Default)]
pub(super) struct Dither {
    /// Number of the estimator's finished windows when `by` was asked for.
    over: u64,
    /// Part of a cost by which charges are varied, in 1 / `DITHER_ONE`.
    by: u64,
}

impl Dither {
    /// Returns a cost as it is charged in the window that goes on.
    #[inline]
    pub(super) fn vary(&mut self, facts: &Facts, vm: VmId, cost: u64) -> u64 {
        let Some(estimator) = facts.estimator() else {
            return cost;
        };
        if estimator.over() != self.over {
            self.look(estimator, vm);
        }
        let by = cost / DITHER_ONE * self.by;
        if estimator.dithers_up(vm) {
            cost + by
        } else {
            cost - by
        }
    }

    /// Takes over by how much charges are varied in the window that goes on.
    #[cold]
    fn look(&mut self, estimator: &CostEstimator, vm: VmId) {
        let by = estimator.dither(vm, estimator.learnt().within()).abs();
        self.over = estimator.over();
        self.by = (by.min(DITHER) * DITHER_ONE as f64) as u64;
    }
}
