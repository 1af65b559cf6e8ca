//! A deterministic world in which the daemon's own scheduling engine runs.
//!
//! ```text
//!   Scenario --> World --> Report, and a row for each VM and interval
//!                  |
//!                  +-- DeviceSim, one a device: engine + device model + VMs
//!                  +-- processors that all of them run on, where the scenario has any
//! ```
//!
//! A [`scenario::Scenario`] says which VMs lie on which devices, what their guests do and what
//! changes when. A [`world::World`] lets virtual time pass over it and counts. Nothing here reads
//! a clock, opens a file or starts a thread: the same scenario and seed give the same bytes on
//! every machine.

#![forbid(unsafe_code)]

pub mod checker;
pub mod device;
mod dice;
pub mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod processors;
pub mod report;
pub mod scenario;
pub mod seed;
pub mod torture;
pub mod world;
