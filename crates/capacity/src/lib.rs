//! Capacity of a device: measured profiles, cost estimation, how VMs fit beside each other, and
//! forecasts of when deadline transfers end.
#![forbid(unsafe_code)]

pub mod estimator;
pub mod fit;
pub mod jobs;
pub mod profile;
