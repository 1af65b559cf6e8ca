//! Deadline transfers (`Transfer`): an amount of data that a VM is to move by a deadline. The
//! module forecasts when each transfer ends at its measured bandwidth, and chooses the priority
//! class of each VM so that transfers end in time. Source: Jain and Lakshmi, "PriDyn: Enabling
//! Differentiated I/O Services in Cloud using Dynamic Priorities", IEEE TSC 2014, and Jain's thesis
//! ("the thesis" in this module), chapters 3 and 4.
//!
//! ```text
//!   bytes moved, every interval -> Predictor (steps 1 to 5: B, L)
//!                              --> Priorities (steps 6 to 21: classes)
//!                                      ^
//!                       DeviceBandwidth (MaxBW - BWloss(N)), for users not measured yet
//! ```
//!
//! The types [`Predictor`], [`Priorities`] and [`DeviceBandwidth`] know no device, clock or VM. A
//! user of the device is a small index: a VM of an engine, or a process of a host.
//! [`PriorityManager`] joins predictor and priorities for callers that manage the processes of a
//! real or assumed host. In the engine (`TransfersMut::begin_transfer`) every role may read the
//! predictor, whatever the policy, and the controller `pridyn` owns the priorities.

mod accounts;
mod capacity;
pub mod deadline;
mod forecast;
mod manager;
mod predictor;
mod priorities;
mod status;
#[cfg(test)]
mod tests;

pub use accounts::{DeviceTime, TransferAccounts};
pub use capacity::DeviceBandwidth;
pub use forecast::{Forecast, Transfer};
pub use manager::PriorityManager;
pub use predictor::Predictor;
pub use priorities::{Change, Class, Priorities};
pub use status::{
    Admission, ClassStatus, ForecastParams, TransferEnd, TransferOutcome, TransferSpec,
    TransferStatus,
};
