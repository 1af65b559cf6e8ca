//! PriDyn for hosts whose VMs do not use Tidegate's disks: the priority manager of
//! [`tidegate_core::jobs`] over running processes. What they moved is read from `/proc`, their I/O
//! classes are set thread by thread, for disks whose scheduler honours them (BFQ, mq-deadline).
//!
//! A process counts with those that come of it, each for one VM alone (`offspring`); what a process
//! moved is its parent's, too, once it has ended, and is counted once (`books`).
//!
//! [`Agent`] decides and keeps books, and reaches the host through [`Host`] alone; [`Linux`] is the
//! real one. It owns no clock: whoever drives it says what time it is, and at the end has it put
//! everything back.

mod agent;
mod books;
mod host;
mod ioprio;
mod linux;
mod member;
mod offspring;
mod scheduler;
#[cfg(test)]
mod tests;
mod told;

pub use agent::Agent;
pub use host::{Host, Process, Target, TargetError, Thread};
pub use ioprio::IoPriority;
pub use linux::Linux;
pub use scheduler::{Scheduler, SchedulerError, scheduler_of};
pub use told::{Event, Plan, Report, State};
