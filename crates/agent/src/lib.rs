//! PriDyn for hosts whose VMs do not use Tidegate's disks: the priority manager of
//! [`tidegate_core::jobs`] over running processes. What they moved is read from `/proc`, their I/O classes are
//! set thread by thread, for disks whose scheduler honours them (BFQ, mq-deadline).
//!
//! [`Agent`] decides and keeps books, and reaches the host through [`Host`] alone; [`Linux`] is the real one.
//! It owns no clock: whoever drives it says what time it is, and at the end has it put everything back.

mod agent;
mod host;
mod ioprio;
mod linux;
mod member;
mod scheduler;
#[cfg(test)]
mod tests;

pub use agent::{Agent, Event, Plan, Report, State};
pub use host::{Host, Target, TargetError, Thread};
pub use ioprio::IoPriority;
pub use linux::Linux;
pub use scheduler::{Scheduler, SchedulerError, scheduler_of};
