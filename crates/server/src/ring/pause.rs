//! Pauses before receives, and their timers.

use io_uring::types::Timespec;
use tidegate_core::time::Nanos;

/// Time between the submission of a receive and its start, in whole microseconds, so that one
/// receive brings more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pause(u8);

/// Length of the longest pause in microseconds.
const LONGEST_US: usize = 25;

/// Timers of pauses, by microseconds. Static, because the kernel reads a timer at its submission.
static TIMERS: [Timespec; LONGEST_US + 1] = {
    let mut timers = [Timespec::new(); LONGEST_US + 1];
    let mut us = 0;
    while us < timers.len() {
        timers[us] = Timespec::new().nsec(us as u32 * 1000);
        us += 1;
    }
    timers
};

impl Pause {
    /// No pause, which costs no timer.
    pub const NONE: Pause = Pause(0);
    /// Longest pause.
    pub const LONGEST: Pause = Pause(LONGEST_US as u8);

    /// Returns the longest pause that is not above `time`.
    pub fn at_most(time: Nanos) -> Pause {
        Pause((time.0 / 1000).min(LONGEST_US as u64) as u8)
    }

    /// Returns the length of the pause.
    pub fn time(self) -> Nanos {
        Nanos(u64::from(self.0) * 1000)
    }

    pub(super) fn timer(self) -> &'static Timespec {
        &TIMERS[usize::from(self.0)]
    }
}
