//! Phases of the search for the queue depth. The [parent module](super) has the diagram of the
//! transitions; [`DepthControl`](super::DepthControl) owns the phase and changes it at the end of
//! each measurement. Rates are of work per second, in the unit of
//! [`IoWork`](crate::queue_depth::io_work::IoWork).

use crate::queue_depth::rate::Rate;
use tidegate_base::time::Nanos;

/// Measurement in progress, or the depth in force.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Phase {
    /// Measures the depth in force, which doubles as long as the rate rises by 5 % or more.
    Grow {
        /// Rate at half of the depth; `None`: not measured.
        below: Option<Rate>,
    },
    /// Measures `candidate`, smaller than the depth at which `reference` was measured.
    Descend { candidate: u32, reference: Rate },
    /// Measures the depth in force again, to confirm that `candidate`, which is smaller, delivers
    /// as much: its rate was `tried`, against `reference` before.
    Confirm {
        candidate: u32,
        tried: Rate,
        reference: Rate,
    },
    /// Measures twice the depth at which `reference` was measured.
    Rise { candidate: u32, reference: Rate },
    /// Measures another length of parts, with `candidate` I/Os in flight; `reference` was measured
    /// with the length and depth in force.
    Parts {
        trial: PartTrial,
        candidate: u32,
        reference: Rate,
    },
    /// Measures a load that does not fill the depth in force, for comparison with a smaller depth.
    Unfilled,
    /// Keeps the depth.
    Hold {
        /// Time of the next probe of a larger or smaller depth.
        until: Nanos,
        /// Rate in the first measurement of the phase, with which later ones are compared; `None`:
        /// not measured yet.
        first: Option<Rate>,
    },
}

/// Trial of another length of parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartTrial {
    /// Twice the length, with three quarters of the bytes in flight.
    LongerAndFewer,
    /// Twice the length, with as many bytes in flight.
    Longer,
    /// Half the length, with as many bytes in flight.
    Shorter,
}
