//! Fault injection for tests and drills: rules by which a disk fails, delays or tears requests.
//!
//! ```text
//!   Rule: which requests, when, what happens           (plain data, from the configuration or API)
//!     |
//!   Faults of a disk: judges each guest request once --> Verdict: late? failed? torn?
//!     |                                                        |
//!   counters, what is to be logged            event_loop::device has device I/Os meet it
//! ```
//!
//! Life of a rule:
//!
//! ```text
//!   waiting --after--> armed --for, or its count used up--> over
//! ```
//!
//! A verdict stays in the slot of its request, so that merging, splitting and repetition neither
//! apply a rule twice nor pass its effect on to another request. On a disk without rules each I/O
//! only tests an `Option`.
//!
//! Faults of single system calls are a separate level, in test builds only (`ring::faults`): short,
//! interrupted or late calls, and errors of the kernel, which `backing::file_io` has to repair or
//! to report. A guest cannot see most of them. A rule cannot cause them either, because a request
//! that a rule fails never reaches `file_io`. The two levels do not know each other.
//!
//! Nothing here does I/O or reads a clock: the same requests at the same times get the same
//! verdicts. The ideas are from Linux's dm-flakey (times of faults, lost writes) and dm-dust
//! (locations), QEMU's blkdebug, and nbdkit's error and delay filters (operation, frequency, error,
//! delay).

mod judge;
mod rule;
#[cfg(test)]
mod tests;

pub use judge::{Faults, Judged, RuleLog, RuleSnapshot};
pub use rule::{Effect, Ops, Rule, SECTOR, State, Verdict};
