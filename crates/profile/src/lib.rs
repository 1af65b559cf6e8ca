//! Measuring what a device can do at most: its saturation profile.
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
//! Nothing here reads a clock or does I/O: time is an argument, and so the same measurement runs on
//! a disk model, where it takes seconds and is the same on every machine, and on a real disk.
//!
//! - [`plan`] is what is measured, in which order and how often.
//! - [`Profiler`] says which I/O comes next and counts those that ended.
//! - [`statistics`] tells the steady state from the way there, and how sure a mean is.
//! - [`outcome`] is what came of a step, and of all of them.
//! - [`virtual_time`] drives it all on a model.

#![forbid(unsafe_code)]

mod addresses;
mod beside;
mod load;
pub mod outcome;
pub mod plan;
mod profiler;
pub mod statistics;
pub mod virtual_time;

pub use outcome::{Outcome, Taken};
pub use plan::{Options, Plan, Target};
pub use profiler::{Io, Next, Profiler, Progress};
