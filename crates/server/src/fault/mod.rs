//! Disks that misbehave on purpose, for tests and drills: rules of what goes wrong with which
//! requests.
//!
//! ```text
//!   Rule: which requests, when, what happens           (plain data, from the configuration or API)
//!     |
//!   Faults of a disk: judges each guest request once --> Verdict: late? failed? torn?
//!     |                                                        |
//!   counters, what is to be logged            event_loop::device has device I/Os meet it
//! ```
//!
//! A rule is
//!
//! ```text
//!   waiting --after--> armed --for, or its count used up--> over
//! ```
//!
//! A verdict stays in the slot of its request, so that merging, splitting and repetition neither
//! apply a rule twice nor pass its effect on to another request. A disk without rules costs one
//! look at an `Option` for each I/O.
//!
//! Faults of single system calls are a level of their own, in test builds only (`ring::faults`):
//! short, interrupted or late calls, and errors of the kernel, which `backing::file_io` has to
//! repair or to report. A guest cannot see most of them, and a rule cannot cause them, because a
//! request that a rule fails never reaches `file_io`. Neither level knows of the other.
//!
//! Nothing here does I/O or reads a clock: the same requests at the same times meet the same
//! verdicts. The ideas are those of Linux's dm-flakey (a time of day for faults, lost writes),
//! dm-dust (places), QEMU's blkdebug and nbdkit's error and delay filters (which operation, how
//! often, which error, how late).

mod judge;
mod rule;
#[cfg(test)]
mod tests;

pub use judge::{Faults, Heard, Judged, RuleSnapshot};
pub use rule::{Effect, Ops, Rule, SECTOR, State, Verdict};
