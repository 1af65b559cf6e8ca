//! Jobs: so many bytes of a VM, by when. What comes of them at the bandwidth they have, and which class of
//! priority each VM ought to have so that they end in time. Jain and Lakshmi, "PriDyn: Enabling Differentiated
//! I/O Services in Cloud using Dynamic Priorities", IEEE TSC 2014, and Jain's thesis, chapters 3 and 4.
//!
//! Nothing here knows a device, a clock or a VM: who manages the priorities of an engine's VMs, of a host's
//! processes or of a host in theory says what moved, and is told what to change.

mod forecast;
mod manager;
#[cfg(test)]
mod tests;

pub use forecast::{Forecast, Job};
pub use manager::{Change, Class, PriorityManager};
