//! Deterministic simulation of pCPUs and vCPUs under a choice of vCPU schedulers; [`schedulers`]
//! lists them.
//!
//! ```text
//!   Scenario --> VcpuWorld --> VcpuReport
//!                  |
//!                  +-- Scheduler (schedulers): which vCPU runs on which pCPU
//!                  +-- GuestCpu, one per vCPU: interrupts and processes
//!                  +-- Flow: a workload of guests, whose I/O passes through the driver domain
//!
//! The crate reads no clock, opens no file and starts no thread: a scenario and a seed give the
//! same results on every machine. Time is in nanoseconds, and scheduling decisions use integers
//! only.

#![forbid(unsafe_code)]

pub mod compare;
pub mod flow;
pub mod guest;
pub mod machine;
pub mod report;
pub mod scenario;
pub mod scheduler;
pub mod schedulers;
pub mod spec;
pub mod world;
