//! Deterministic world of pCPUs and vCPUs, and vCPU schedulers in it: [`schedulers`] lists them.
//!
//! ```text
//!   Scenario --> VcpuWorld --> VcpuReport
//!                  |
//!                  +-- Scheduler (schedulers): which vCPU runs on which pCPU
//!                  +-- GuestCpu, one a vCPU: interrupts and processes
//!                  +-- Flow: what guests are busy with, by way of the driver domain
//! ```
//!
//! Nothing here reads a clock, opens a file or starts a thread: the same scenario and seed give the
//! same results on every machine. Time is in nanoseconds, and what decides is integers.

#![forbid(unsafe_code)]

pub mod flow;
pub mod guest;
pub mod machine;
pub mod report;
pub mod scenario;
pub mod scheduler;
pub mod schedulers;
pub mod spec;
pub mod world;
