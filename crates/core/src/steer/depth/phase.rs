//! Phases in which the queue depth is looked for.

use crate::steer::rate::Rate;
use tidegate_base::time::Nanos;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Phase {
    /// The depth doubles while it pays; `below`: the rate at half of it.
    Grow { below: Option<Rate> },
    /// A smaller depth than `reference` was measured at.
    Descend { candidate: u32, reference: Rate },
    /// The depth in force again, after a smaller one delivered `tried`, which was enough.
    Confirm {
        candidate: u32,
        tried: Rate,
        reference: Rate,
    },
    /// Twice the depth that `reference` was measured at.
    Rise { candidate: u32, reference: Rate },
    /// The load does not fill the depth: what it delivers like this, to compare with less.
    Unfilled,
    /// The depth is in force; `first`: what the load was when it was found.
    Hold { until: Nanos, first: Option<Rate> },
}
