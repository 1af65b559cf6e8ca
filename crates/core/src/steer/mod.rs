//! How the device is used whatever the policy: how deep its queue is kept, and how long an I/O may
//! be while others share it.

mod allowed;
pub(crate) mod depth;
mod rate;
pub(crate) mod seeks;
pub(crate) mod sharing;
mod unsteady;
mod work;

pub use allowed::{DepthBound, DepthReason, DepthTuning, DepthView};
pub use sharing::SharedIo;
