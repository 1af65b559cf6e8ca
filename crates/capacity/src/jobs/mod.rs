//! Jobs: so many bytes of a VM, by when. What comes of them at the bandwidth they have, and which
//! class of priority each VM ought to have so that they end in time. Jain and Lakshmi, "PriDyn:
//! Enabling Differentiated I/O Services in Cloud using Dynamic Priorities", IEEE TSC 2014, and
//! Jain's thesis, chapters 3 and 4.
//!
//! ```text
//!   what moved, every interval --> Predictor (steps 1 to 5: B, L)
//!                              --> Priorities (steps 6 to 21: classes)
//!                                      ^
//!                                  Capacity (MaxBW - BWloss(N)), for those not measured yet
//! ```
//!
//! These three know no device, clock or VM: [`PriorityManager`] is both halves for who manages the
//! priorities of a host's processes, or of a host in theory. In the engine (`JobsMut::begin_job`)
//! the predictor is what all roles may read, whatever the policy, and the controller `pridyn` has
//! the priorities.

mod book;
mod capacity;
pub mod deadline;
mod forecast;
mod manager;
mod predictor;
mod priorities;
mod status;
#[cfg(test)]
mod tests;

pub use book::{Book, DeviceTime};
pub use capacity::Capacity;
pub use forecast::{Forecast, Job};
pub use manager::PriorityManager;
pub use predictor::Predictor;
pub use priorities::{Change, Class, Priorities};
pub use status::{Admission, JobEnd, JobOutcome, JobSpec, JobStatus, JobTerms, Standing};
