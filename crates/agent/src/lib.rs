//! Priority manager for hosts whose VMs do not use Tidegate's disks: the one of
//! [`tidegate_core::transfers`] (PriDyn, which that module cites) applied to running processes.
//! Reads the bytes they moved from `/proc`, and sets their I/O classes thread by thread, for disks
//! whose I/O scheduler supports classes (BFQ, mq-deadline).
//!
//! A process counts together with its descendants, each for one target only (`process_tree`). When
//! a process has ended, the kernel adds its bytes to its parent's; they are counted once
//! (`io_accounting`).
//!
//! [`Agent`] decides, and reaches the host only through [`Host`]; [`LinuxHost`] is the real one. It
//! reads no clock: the driver passes in the time, and at the end asks the agent to restore
//! all priorities.

mod agent;
mod host;
mod io_accounting;
mod ioprio;
mod linux;
mod process_tree;
mod report;
mod scheduler;
#[cfg(test)]
mod tests;
mod tracked_target;

pub use agent::{Agent, AgentConfig};
pub use host::{Host, Process, Target, TargetError, TaskId};
pub use ioprio::IoPriority;
pub use linux::LinuxHost;
pub use report::{Event, Report, State, TargetSpec, TransferSpec};
pub use scheduler::{Scheduler, SchedulerError, scheduler_of};
