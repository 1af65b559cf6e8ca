//! Stalls of the machine and jumps of the wall clock: noticed once a second, logged and counted.
//!
//! A virtual machine that its host has paused, a process that was stopped, a processor that others
//! occupy and a system call that blocks look the same from within: a timer comes late. The control
//! thread has a timer of its own ([`watch`]), by a clock that goes on while the machine is
//! suspended; an event loop, that of its housekeeping ([`loop_ticked`]), which runs while there is
//! something to do, by a clock that stands still then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::time::Nanos;

use crate::log_limit;
use crate::ring::read_clock;

/// Time between two looks at the clocks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Lateness of a timer, and difference between two clocks, that is logged.
const NOTICED: Duration = Duration::from_secs(1);

/// Longest time between two clocks of one look: far below [`NOTICED`].
const TOGETHER: Nanos = Nanos::from_millis(10);
/// Looks at the clocks before one is taken that was interrupted: the machine is overloaded then.
const ATTEMPTS_MAX: u32 = 10;

/// Counts of one kind of notice.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    times: AtomicU64,
    nanos: AtomicU64,
}

/// Stalls of the control thread.
pub(crate) static CONTROL_STALLS: Notices = Notices::new();
/// Stalls of all event loops.
pub(crate) static LOOP_STALLS: Notices = Notices::new();
/// Jumps of the wall clock.
pub(crate) static JUMPS: Notices = Notices::new();

impl Notices {
    const fn new() -> Notices {
        Notices {
            times: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    fn add(&self, length: Duration) {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of notices since the process started.
    pub(crate) fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Returns the length of all of them together.
    pub(crate) fn length(&self) -> Nanos {
        Nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// Clocks at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reading {
    /// Time since the machine started, with time for which it was suspended (`CLOCK_BOOTTIME`).
    boot: Nanos,
    /// Time since 1970 (`CLOCK_REALTIME`).
    wall: Nanos,
}

impl Reading {
    fn now() -> Reading {
        Reading::by(read_clock)
    }

    /// Reads the clocks with `read`.
    fn by(read: impl FnMut(libc::clockid_t) -> Nanos) -> Reading {
        let (boot, wall) = beside_wall(libc::CLOCK_BOOTTIME, read);
        Reading { boot, wall }
    }
}

/// Reads a clock and the wall clock at one time with `read`, again as long as the thread is
/// interrupted for long between them, which would look like a jump.
fn beside_wall(
    clock: libc::clockid_t,
    mut read: impl FnMut(libc::clockid_t) -> Nanos,
) -> (Nanos, Nanos) {
    let mut attempts = 0;
    loop {
        let before = read(clock);
        let wall = read(libc::CLOCK_REALTIME);
        let after = read(clock);
        attempts += 1;
        if after.since(before) <= TOGETHER || attempts == ATTEMPTS_MAX {
            return (before, wall);
        }
    }
}

/// Returns the wall clock at loop time 0, in nanoseconds since 1970. It changes when the wall clock
/// is set, and when the machine was suspended.
pub(crate) fn wall_at_loop_start() -> u64 {
    let (now, wall) = beside_wall(libc::CLOCK_MONOTONIC, read_clock);
    wall.since(now).0
}

/// Direction in which the wall clock has jumped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Jump {
    Forward(Duration),
    Back(Duration),
}

/// Findings of a look at the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Findings {
    /// Time for which nothing ran.
    stall: Option<Duration>,
    jump: Option<Jump>,
}

/// Compares two looks at the clocks, of which the second was due [`INTERVAL`] after the first.
fn compare(before: Reading, now: Reading) -> Findings {
    let passed = Duration::from_nanos(now.boot.since(before.boot).0);
    let stall = passed.saturating_sub(INTERVAL);
    // The wall clock where it would be had nobody set it. What a clock is slewed by in a second is
    // far below `NOTICED`.
    let expected = before.wall.0.saturating_add(now.boot.since(before.boot).0);
    let by = Duration::from_nanos(now.wall.0.abs_diff(expected));
    let jump = if now.wall.0 > expected {
        Jump::Forward(by)
    } else {
        Jump::Back(by)
    };
    Findings {
        stall: (stall >= NOTICED).then_some(stall),
        jump: (by >= NOTICED).then_some(jump),
    }
}

impl Findings {
    /// Counts and logs.
    fn report(self) {
        if let Some(length) = self.stall {
            CONTROL_STALLS.add(length);
            if log_limit::CONTROL_STALLED.allows(Instant::now()) {
                tracing::warn!(
                    "the control thread did not run for {:.1} s: the machine was suspended, \
                     paused or overloaded, the process was stopped, or a call of this thread \
                     blocked; requests of the control API waited as long, and those of guests \
                     where event loops were late, too",
                    length.as_secs_f64()
                );
            }
        }
        let Some(jump) = self.jump else {
            return;
        };
        let (by, direction) = match jump {
            Jump::Forward(by) => (by, "forward"),
            Jump::Back(by) => (by, "back"),
        };
        JUMPS.add(by);
        if log_limit::JUMPED.allows(Instant::now()) {
            tracing::warn!(
                "the wall clock jumped {direction} by {:.1} s: schedules follow the new time \
                 within a minute, and entries that lie between are left out or hold again; tokens \
                 expire by the new time; deadlines of transfers that run stay where they were",
                by.as_secs_f64()
            );
        }
    }
}

/// Looks at the clocks once a second, on the control thread, until the future is dropped.
pub(crate) async fn watch() {
    let mut before = Reading::now();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = Reading::now();
        compare(before, now).report();
        before = now;
    }
}

/// Notes that the timer of a device's event loop came `late`.
pub(crate) fn loop_ticked(device: &str, late: Nanos) {
    let late = Duration::from_nanos(late.0);
    if late < NOTICED {
        return;
    }
    LOOP_STALLS.add(late);
    if log_limit::LOOP_STALLED.allows(Instant::now()) {
        tracing::warn!(
            device,
            "the event loop did not run for {:.1} s: the machine was paused or overloaded, the \
             process was stopped, or a system call blocked; requests waited as long",
            late.as_secs_f64()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Compares readings between which this much passed, in milliseconds.
    fn after(boot_ms: u64, wall_ms: i64) -> Findings {
        let before = Reading {
            boot: Nanos(77 * SECOND),
            wall: Nanos(1_000_000 * SECOND),
        };
        let now = Reading {
            boot: Nanos(before.boot.0 + boot_ms * 1_000_000),
            wall: Nanos(before.wall.0.saturating_add_signed(wall_ms * 1_000_000)),
        };
        compare(before, now)
    }

    #[test]
    fn a_timer_that_comes_a_second_late_is_a_stall_of_that_length() {
        for ms in [1000, 1001, 1500, 1999] {
            assert_eq!(after(ms, ms as i64), Findings::default(), "{ms}");
        }
        for ms in [2000, 3500, 3_600_000] {
            let stall = Some(Duration::from_millis(ms - 1000));
            let expected = Findings { stall, jump: None };
            assert_eq!(after(ms, ms as i64), expected, "{ms}");
        }
    }

    #[test]
    fn a_wall_clock_that_leaves_the_other_is_a_jump_and_no_stall() {
        let jump = |boot, wall| {
            let Findings { stall, jump } = after(boot, wall);
            assert_eq!(stall, None, "{boot} {wall}");
            jump
        };
        let ms = Duration::from_millis;
        assert_eq!(jump(1000, 1999), None);
        assert_eq!(jump(1000, 1), None);
        assert_eq!(jump(1000, 2000), Some(Jump::Forward(ms(1000))));
        assert_eq!(jump(1000, 3_601_000), Some(Jump::Forward(ms(3_600_000))));
        assert_eq!(jump(1000, 0), Some(Jump::Back(ms(1000))));
        assert_eq!(jump(1200, -3_600_000), Some(Jump::Back(ms(3_601_200))));
    }

    #[test]
    fn a_stall_with_a_jump_is_both() {
        let findings = after(11_000, 71_000);
        assert_eq!(findings.stall, Some(Duration::from_secs(10)));
        assert_eq!(findings.jump, Some(Jump::Forward(Duration::from_secs(60))));
    }

    #[test]
    fn clocks_that_are_read_with_an_interruption_between_are_read_again() {
        /// Interrupts the thread for a minute at some readings, and returns the number of readings
        /// and how far the clocks are apart.
        fn read(interrupted: impl Fn(u64) -> bool) -> (u64, u64) {
            let (mut readings, mut now) = (0, 77 * SECOND);
            let reading = Reading::by(|clock| {
                readings += 1;
                now += 100
                    + if interrupted(readings) {
                        60 * SECOND
                    } else {
                        0
                    };
                let set_ahead = u64::from(clock == libc::CLOCK_REALTIME) * 1000 * SECOND;
                Nanos(now + set_ahead)
            });
            (readings, reading.wall.0 - 1000 * SECOND - reading.boot.0)
        }
        assert_eq!(read(|_| false), (3, 100));
        // Before the wall clock, and behind it.
        assert_eq!(read(|reading| reading == 2), (6, 100));
        assert_eq!(read(|reading| reading == 3 || reading == 5), (9, 100));
        // The clocks are not read without end.
        assert_eq!(read(|_| true).0, 3 * u64::from(ATTEMPTS_MAX));
    }

    #[test]
    fn what_is_found_is_counted_with_its_length() {
        // Other tests may count meanwhile.
        let counts = || {
            let all = [&CONTROL_STALLS, &LOOP_STALLS, &JUMPS];
            all.map(|notices| (notices.times(), notices.length().0))
        };
        let before = counts();
        after(11_000, 71_000).report();
        loop_ticked("disk0", Nanos(2 * SECOND));
        let reported = counts();
        let lengths = [10, 2, 60].map(|seconds| seconds * SECOND);
        for ((before, now), length) in before.iter().zip(&reported).zip(lengths) {
            assert!(now.0 > before.0, "{now:?}");
            assert!(now.1 >= before.1 + length, "{now:?}");
        }
    }
}
