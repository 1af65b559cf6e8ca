//! Capacity of a device: measured profiles, cost estimation, how VMs fit beside each other, and
//! forecasts of when deadline transfers end.
#![forbid(unsafe_code)]

pub mod estimator;
pub mod fit;
pub mod profile;
pub mod transfers;
