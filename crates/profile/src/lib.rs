//! Measurement of a device's saturation profile: its maximum throughput by request size and
//! pattern.
//!
//! ```text
//!   Target, Options --> Plan: steps in order        driver: a model in virtual time,
//!                         |                                 or io_uring on a real disk
//!                         v           next_io(now)
//!                      Profiler  ------------------->  the device
//!                         |      <-------------------
//!                         |         completed(now)
//!                         v
//!   Outcome of each step (kept by whoever wants to go on later) --> Measured, the file
//! ```
//!
//! Nothing here reads a clock or does I/O: time is an argument. So the same measurement runs on a
//! disk model, where it takes seconds and gives equal results on every machine, and on a real disk.
//!
//! - [`plan`] has the steps of a measurement: which points, in which order, how often.
//! - [`Profiler`] returns the next I/O and counts completed ones.
//! - [`statistics`] detects the steady state and computes confidence intervals.
//! - [`outcome`] has the results of steps, and makes the profile from them.
//! - [`virtual_time`] runs a measurement on a disk model.
//!
//! [`fit`] goes another way: it makes a disk model of a recording.

#![forbid(unsafe_code)]

mod addresses;
pub mod fit;
mod load;
pub mod outcome;
pub mod plan;
mod profiler;
mod read_latency_under_writes;
pub mod statistics;
pub mod virtual_time;

pub use outcome::{Outcome, StepResult};
pub use plan::{Options, Plan, Target};
pub use profiler::{Io, Next, Profiler, Progress};
