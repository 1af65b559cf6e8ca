//! Deterministic simulation of devices and VMs around the daemon's own scheduling engine.
//!
//! ```text
//!   Scenario --> World --> Report, and a row for each VM and interval
//!                  |
//!                  +-- DeviceSim, one a device: engine + device model + VMs
//!                  +-- processors that all of them run on, where the scenario has any
//! ```
//!
//! A [`scenario::Scenario`] states which VMs are on which devices, the workloads of their guests,
//! and the changes at given times. A [`world::World`] advances virtual time and counts. Nothing
//! here reads a clock, opens a file or starts a thread, so a scenario and seed give identical bytes
//! on every machine.

#![forbid(unsafe_code)]

pub mod checker;
pub mod device;
pub mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod processors;
pub mod report;
pub mod scenario;
pub mod seed;
pub mod torture;
mod torture_rng;
pub mod what_if;
pub mod world;
