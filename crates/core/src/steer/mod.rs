//! How the device is used whatever the policy: how deep its queue is kept, and how long an I/O may
//! be while others share it.

pub(crate) mod depth;
pub(crate) mod sharing;
mod trial;
