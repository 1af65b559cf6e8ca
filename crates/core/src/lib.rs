//! The scheduling engine of Tidegate, sans-I/O.
//!
//! The engine has no clock, file, thread or socket of its own: a driver hands in requests,
//! completions and the time, and asks which I/O the device gets next. The daemon and the simulator
//! drive the same code.
//! The policies that decide are in `tidegate-policies`, whose documentation begins with a complete
//! example; the engine sees them as [`roles`].
//!
//! The types of the engine's interface (requests, objectives, time, profiles) come from the crates
//! below, and are re-exported: a driver needs no other crate for them.
#![forbid(unsafe_code)]

pub mod attainment;
pub mod budget;
pub mod device_monitor;
pub mod engine;
pub mod interference;
pub mod limit_accounts;
pub mod part;
pub mod policy;
pub mod queue_depth;
pub mod roles;
mod seek_bound;
mod slots;
pub mod splitting;
pub mod starvation;
pub mod stats;
pub mod tuning;
pub mod view;

pub use tidegate_base::{
    bandwidth_samples, device, expected_workload, heap, learnt_state, names, objective, pace,
    precision, random, request, sequential, time,
};
pub use tidegate_capacity::{estimator, fit, profile, transfers};
