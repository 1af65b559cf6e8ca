//! Control of the device below every policy: adaptive queue depth, and the largest I/O while
//! several VMs share the device.

mod allowed;
pub(crate) mod depth;
mod rate;
pub(crate) mod seeks;
pub(crate) mod sharing;
mod unsteady;
mod work;

pub use allowed::{DepthBound, DepthReason, DepthTuning, DepthView};
pub use sharing::SharedIo;
