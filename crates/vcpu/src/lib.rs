//! A deterministic world of pCPUs and vCPUs, and the schedulers of Xen in it: Credit, Credit2, and,
//! on top of it, ISACS and turns for I/O.
//!
//! ```text
//!   Scenario --> World --> Report
//!                  |
//!                  +-- Scheduler (credit, credit2, isacs, credit2-io): which vCPU runs on which pCPU
//!                  +-- GuestCpu, one a vCPU: interrupts and processes
//!                  +-- Flow: what guests are busy with, by way of the driver domain
//! ```
//!
//! Nothing here reads a clock, opens a file or starts a thread: the same scenario and seed give the
//! same results on every machine. Time is in nanoseconds, and what decides is integers.

#![forbid(unsafe_code)]

pub mod credit;
pub mod credit2;
pub mod flow;
pub mod guest;
pub mod io_turns;
pub mod isacs;
pub mod machine;
pub mod report;
pub mod scenario;
pub mod scheduler;
pub mod world;
