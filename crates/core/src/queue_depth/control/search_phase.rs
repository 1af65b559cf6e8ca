//! Phases of the search for the queue depth.

use crate::queue_depth::rate::Rate;
use tidegate_base::time::Nanos;

/// Measurement in progress, or the depth in force.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Phase {
    /// The depth doubles while it pays; `below`: the rate at half of it.
    Grow { below: Option<Rate> },
    /// Measures `candidate`, smaller than the depth at which `reference` was measured.
    Descend { candidate: u32, reference: Rate },
    /// Measures the depth in force again, after the smaller `candidate` delivered enough with
    /// `tried`.
    Confirm {
        candidate: u32,
        tried: Rate,
        reference: Rate,
    },
    /// Measures twice the depth at which `reference` was measured.
    Rise { candidate: u32, reference: Rate },
    /// Measures a load that does not fill the depth, for comparison with a smaller depth.
    Unfilled,
    /// Keeps the depth until `until`; `first`: rate in the first window of the phase.
    Hold { until: Nanos, first: Option<Rate> },
}
