//! Busy polling: before a turn sleeps, it looks for completions for a while.
//!
//! A thread that sleeps is woken some microseconds after the completion that it waits for, which is
//! a large part of a request's round trip where one is outstanding at a time. Looking costs the CPU
//! time of the wait, so only a device that is tuned for latency does it, and only while waits end
//! within [`WINDOW_MAX`]: the window grows when a wait was that short, and is closed by the first
//! one that was longer (as KVM's `halt_poll_ns` does for idle virtual CPUs).

use std::io;
use std::time::Duration;

use tidegate_core::time::Nanos;

use super::{Ring, clock};

/// Longest time for which a turn looks.
const WINDOW_MAX: Nanos = Nanos::from_micros(50);
/// First window after a short wait.
const WINDOW_MIN: Nanos = Nanos::from_micros(10);
/// Looks between two readings of the clock.
const LOOKS: u32 = 16;

/// Time for which a turn looks for completions before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct BusyPoll {
    window: Nanos,
}

impl BusyPoll {
    /// Takes in that a wait ended after `took`, by a completion or a time-out.
    fn waited(&mut self, took: Nanos) {
        self.window = if took > WINDOW_MAX {
            Nanos::ZERO
        } else if took > self.window {
            (self.window + self.window).max(WINDOW_MIN).min(WINDOW_MAX)
        } else {
            self.window
        };
    }
}

impl Ring {
    /// Has turns look for completions before they sleep, while waits are short.
    pub fn poll_busily(&mut self) {
        self.busy_poll = Some(BusyPoll::default());
    }

    /// Submits all prepared operations and waits for one completion as [`Ring::turn`] does, but
    /// looks for it before it sleeps.
    pub(super) fn wait_busily(
        &mut self,
        mut poll: BusyPoll,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let within = timeout.map_or(Nanos::MAX, |timeout| Nanos(timeout.as_nanos() as u64));
        let window = poll.window.min(within);
        if window == Nanos::ZERO {
            let began = clock();
            self.submit(1, timeout)?;
            poll.waited(clock().since(began));
            self.busy_poll = Some(poll);
            return Ok(());
        }
        if !self.ring.submission().is_empty() {
            self.submit(0, None)?;
        }
        // The submission may have done all the work, which is no wait.
        let began = clock();
        if self.look(began + window) {
            let queue = self.ring.submission();
            if queue.taskrun() || queue.cq_overflow() {
                drop(queue);
                // The kernel hands over what has ended when it is entered.
                self.submit(0, None)?;
            }
        } else {
            let left = within.since(clock().since(began));
            let left = timeout.map(|_| Duration::from_nanos(left.0));
            self.submit(1, left)?;
        }
        poll.waited(clock().since(began));
        self.busy_poll = Some(poll);
        Ok(())
    }

    /// Looks until something has ended, and returns true, or until a time, and returns false.
    fn look(&mut self, until: Nanos) -> bool {
        loop {
            for _ in 0..LOOKS {
                if !self.completions.is_empty() || !self.ring.completion().is_empty() {
                    return true;
                }
                let queue = self.ring.submission();
                if queue.taskrun() || queue.cq_overflow() {
                    return true;
                }
                drop(queue);
                std::hint::spin_loop();
            }
            if clock() >= until {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Pool;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_window_follows_the_waits() {
        let mut poll = BusyPoll::default();
        let mut windows = Vec::new();
        for us in [5, 15, 30, 45, 60, 500, 40] {
            poll.waited(Nanos::from_micros(us));
            windows.push(poll.window.0 / 1000);
        }
        assert_eq!(windows, [10, 20, 40, 50, 0, 0, 10]);
    }

    /// Ring with a window that is open, and a socket to receive from.
    fn ring() -> (Ring, UnixStream, super::super::FileId, Pool) {
        let mut ring = Ring::new(8, 4).unwrap();
        ring.busy_poll = Some(BusyPoll { window: WINDOW_MAX });
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = ring.add_file(ours.into()).unwrap();
        (ring, theirs, socket, Pool::new(1 << 20).unwrap())
    }

    #[test]
    fn what_comes_before_the_turn_while_it_looks_and_while_it_sleeps_completes() {
        for delay_us in [0, 20, 2_000] {
            let (mut ring, mut peer, socket, mut pool) = ring();
            let buffer = pool.get(4096);
            for round in 0..20u8 {
                let to = buffer.mem().slice(0, 1);
                ring.receive(socket, &[to], true, super::super::Pause::NONE, 7);
                if delay_us == 0 {
                    peer.write_all(&[round]).unwrap();
                }
                let mut sender = peer.try_clone().unwrap();
                let sends = std::thread::spawn(move || {
                    if delay_us > 0 {
                        std::thread::sleep(Duration::from_micros(delay_us));
                        sender.write_all(&[round]).unwrap();
                    }
                });
                let mut done = Vec::new();
                while done.is_empty() {
                    ring.turn(None).unwrap();
                    ring.take(&mut done);
                }
                sends.join().unwrap();
                assert_eq!((done.len(), done[0].token, done[0].result), (1, 7, Ok(1)));
                let mut byte = [0];
                to.read(&mut byte);
                assert_eq!(byte, [round], "after {delay_us} us");
            }
        }
    }

    #[test]
    fn looking_finds_what_the_kernel_has_not_handed_over_yet() {
        let (mut ring, mut peer, socket, mut pool) = ring();
        let to = pool.get(4096);
        let to = to.mem().slice(0, 1);
        ring.receive(socket, &[to], true, super::super::Pause::NONE, 7);
        ring.submit(0, None).unwrap();
        assert!(!ring.look(clock()), "nothing came");
        peer.write_all(&[1]).unwrap();
        // The kernel is not entered between the write and this look.
        assert!(ring.look(clock() + Nanos::SECOND + Nanos::SECOND));
        assert!(ring.ring.completion().is_empty());
        ring.turn(None).unwrap();
        let mut done = Vec::new();
        ring.take(&mut done);
        assert_eq!((done.len(), done[0].result), (1, Ok(1)));
    }

    #[test]
    fn a_turn_ends_at_its_time_out_within_the_window_and_after_it() {
        for timeout in [Duration::from_micros(20), Duration::from_millis(3)] {
            let (mut ring, _peer, socket, mut pool) = ring();
            let to = pool.get(4096);
            let to = to.mem().slice(0, 1);
            ring.receive(socket, &[to], true, super::super::Pause::NONE, 7);
            let began = clock();
            ring.turn(Some(timeout)).unwrap();
            let mut done = Vec::new();
            ring.take(&mut done);
            assert!(done.is_empty(), "{done:?}");
            assert!(clock().since(began) >= Nanos(timeout.as_nanos() as u64));
        }
    }
}
