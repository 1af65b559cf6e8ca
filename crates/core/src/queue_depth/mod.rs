//! Adaptive queue depth: how many I/Os are in flight at the device at most, below every policy.

mod bound;
pub(crate) mod control;
mod io_work;
mod rate;
mod rate_noise;

pub use bound::{DepthBound, DepthReason, DepthTuning, DepthView};
