//! How the device is used whatever the policy: how deep its queue is kept, and how long an I/O may
//! be while others share it.

pub(crate) mod depth;
mod rate;
pub(crate) mod sharing;

pub use depth::{DepthBound, DepthReason, DepthTuning, DepthView};
pub use sharing::SharedIo;
