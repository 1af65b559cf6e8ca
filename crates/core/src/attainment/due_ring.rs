//! Requests of one VM by the second in which they are due.
//!
//! A request is due after it arrives, so all requests that are due in a second have arrived by its
//! end: those of them that were not answered in time by then are late, whenever their answer
//! comes. That makes the verdict of a second exact and costs one counter a request.

use super::second_of;
use tidegate_base::time::Nanos;

/// Seconds ahead in which a request may be due to be counted by its second.
pub(super) const RING_SECONDS: usize = 32;

/// Counts of requests that are due in each of the next [`RING_SECONDS`] seconds, and of overdue
/// ones.
#[derive(Clone, Debug)]
pub(super) struct DueRing {
    /// Requests that are due in a second, by the second modulo [`RING_SECONDS`].
    due: [u32; RING_SECONDS],
    /// Requests among `due` that were not answered in time.
    open: [u32; RING_SECONDS],
    /// Second that runs.
    running: u32,
    /// Time at which the running second began.
    began: Nanos,
    /// Requests due in the running second that were answered late within it.
    late_inside: u32,
    /// Requests that were due in closed seconds and are not answered.
    overdue: u32,
}

/// Counts of a second that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClosedSecond {
    /// Requests that were due.
    pub due: u32,
    /// Requests among `due` that were not answered in time.
    pub late: u32,
    /// A request that was due before the second began had no answer at its end.
    pub hanging: bool,
}

impl DueRing {
    /// Creates counts of nothing in a running second.
    pub(super) fn new(running: u32) -> DueRing {
        DueRing {
            due: [0; RING_SECONDS],
            open: [0; RING_SECONDS],
            running,
            began: began(running),
            late_inside: 0,
            overdue: 0,
        }
    }

    /// Returns whether a time lies in the running second, as most do; takes no division.
    #[inline]
    fn is_running(&self, at: Nanos) -> bool {
        at.0.wrapping_sub(self.began.0) < Nanos::SECOND.0
    }

    fn run(&mut self, second: u32) {
        self.running = second;
        self.began = began(second);
    }

    /// Place of a second; `None` if it has ended or lies beyond the ring.
    fn place(&self, second: u32) -> Option<usize> {
        let ahead = second.checked_sub(self.running)? as usize;
        (ahead < RING_SECONDS).then_some(second as usize % RING_SECONDS)
    }

    fn has_ended(&self, second: u32) -> bool {
        second < self.running
    }

    /// Counts a request that is due at a time. Returns `false` for one beyond the ring, which is
    /// not counted.
    #[inline(always)]
    pub(super) fn add_at(&mut self, at: Nanos) -> bool {
        if self.is_running(at) {
            let place = self.running as usize % RING_SECONDS;
            self.due[place] += 1;
            self.open[place] += 1;
            return true;
        }
        self.add(second_of(at))
    }

    #[inline(never)]
    fn add(&mut self, second: u32) -> bool {
        match self.place(second) {
            Some(at) => {
                self.due[at] += 1;
                self.open[at] += 1;
            }
            // Due before the engine got it: late from the begin.
            None if self.has_ended(second) => self.overdue += 1,
            None => return false,
        }
        true
    }

    /// Counts the answer to a counted request that was due at a time.
    #[inline(always)]
    pub(super) fn answer_at(&mut self, at: Nanos, in_time: bool) {
        if in_time && self.is_running(at) {
            self.open[self.running as usize % RING_SECONDS] -= 1;
            return;
        }
        self.answer(second_of(at), in_time);
    }

    #[inline(never)]
    fn answer(&mut self, second: u32, in_time: bool) {
        match self.place(second) {
            Some(at) if in_time => self.open[at] -= 1,
            // Stays in `open`: a late request counts as late in its second.
            Some(_) => self.late_inside += 1,
            None => self.overdue -= 1,
        }
    }

    /// Takes back a counted request that was cancelled.
    pub(super) fn withdraw(&mut self, second: u32) {
        match self.place(second) {
            Some(at) => {
                self.due[at] -= 1;
                self.open[at] -= 1;
            }
            None => self.overdue -= 1,
        }
    }

    /// True while no request is counted: seconds end without anything to judge.
    pub(super) fn is_empty(&self) -> bool {
        self.overdue == 0 && self.due.iter().all(|&due| due == 0)
    }

    /// Ends the running second.
    pub(super) fn close(&mut self) -> ClosedSecond {
        let at = self.running as usize % RING_SECONDS;
        let closed = ClosedSecond {
            due: core::mem::take(&mut self.due[at]),
            late: core::mem::take(&mut self.open[at]),
            hanging: self.overdue > 0,
        };
        // Requests answered late inside the second are no longer outstanding.
        self.overdue += closed.late - core::mem::take(&mut self.late_inside);
        // Saturates after 136 years; the last second then never ends.
        self.run(self.running.saturating_add(1));
        closed
    }

    /// Continues in a second after everything that was counted is closed.
    pub(super) fn run_in(&mut self, second: u32) {
        debug_assert!(
            self.running == second || self.due == [0; RING_SECONDS],
            "requests due in other seconds would be counted in these"
        );
        self.run(second);
    }

    /// Moves on to a second without closing those between, none of which has anything to judge.
    pub(super) fn skip_to(&mut self, second: u32) {
        debug_assert!(
            self.is_empty(),
            "the seconds of waiting requests are skipped"
        );
        self.run(second);
    }
}

/// Time at which a second began.
fn began(second: u32) -> Nanos {
    Nanos::from_secs(second.into())
}

/// Time by which a request is due, and whether a ring counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due(u64);

impl Due {
    /// Bit of a request that is due beyond the ring: its answer alone is judged. Times with this
    /// bit are 292 years away and count as the last time without it.
    const UNCOUNTED: u64 = 1 << 63;
    /// Due time of a request that is not judged.
    pub(super) const NEVER: Due = Due(0);

    /// Counts a request that is due at `at`.
    #[inline]
    pub(super) fn counted_in(ring: &mut DueRing, at: Nanos) -> Due {
        // 0 means "not judged", so the first nanosecond of the clock is rounded up.
        let bits = at.0.clamp(1, Due::UNCOUNTED - 1);
        if ring.add_at(at) {
            Due(bits)
        } else {
            Due(bits | Due::UNCOUNTED)
        }
    }

    /// Time by which the request is due.
    pub(super) fn time(self) -> Nanos {
        Nanos(self.0 & !Due::UNCOUNTED)
    }

    fn is_counted(self) -> bool {
        self.0 & Due::UNCOUNTED == 0
    }

    /// Counts the answer. Returns by how much it is late.
    #[inline(always)]
    pub(super) fn answer(self, ring: &mut DueRing, now: Nanos) -> Nanos {
        let late = now.since(self.time());
        if self.is_counted() {
            ring.answer_at(self.time(), late == Nanos::ZERO);
        }
        late
    }

    /// Takes the request back.
    pub(super) fn withdraw(self, ring: &mut DueRing) {
        if self != Due::NEVER && self.is_counted() {
            ring.withdraw(second_of(self.time()));
        }
    }

    /// Due time as a number that [`Due::from`] takes; 0 for [`Due::NEVER`].
    pub(super) fn to_bits(self) -> u64 {
        self.0
    }
}

impl From<u64> for Due {
    fn from(bits: u64) -> Due {
        Due(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(due: u32, late: u32, hanging: bool) -> ClosedSecond {
        ClosedSecond { due, late, hanging }
    }

    #[test]
    fn a_late_request_counts_in_its_own_second_whenever_its_answer_comes() {
        let mut ring = DueRing::new(7);
        assert!(ring.add(7) && ring.add(7) && ring.add(7) && ring.add(8));
        ring.answer(7, true);
        ring.answer(7, false);
        assert_eq!(ring.close(), closed(3, 2, false));
        ring.answer(8, true);
        assert_eq!(ring.close(), closed(1, 0, true), "one of second 7 hangs");
        ring.answer(7, false);
        assert_eq!(ring.close(), closed(0, 0, false));
        assert!(ring.is_empty());
    }

    #[test]
    fn requests_beyond_the_ring_are_refused_and_overdue_ones_taken() {
        let mut ring = DueRing::new(7);
        assert!(ring.add(RING_SECONDS as u32 + 6), "the last place");
        assert!(!ring.add(RING_SECONDS as u32 + 7));
        assert!(ring.add(6), "it was due before it came in");
        assert_eq!(ring.close(), closed(0, 0, true));
        ring.withdraw(6);
        ring.withdraw(RING_SECONDS as u32 + 6);
        assert!(ring.is_empty());
    }

    #[test]
    fn counts_add_up_over_all_ages() {
        let year = 365 * 24 * 3600 * Nanos::SECOND.0;
        for begin in [0, 100 * year, 137 * year, 300 * year, u64::MAX - 5] {
            let second = second_of(Nanos(begin));
            let mut ring = DueRing::new(second);
            let due = |ring: &mut DueRing| Due::counted_in(ring, Nanos(begin + 5));
            let all = [0, 1, 2, 3].map(|_| due(&mut ring));
            all[0].answer(&mut ring, Nanos(begin));
            all[1].answer(&mut ring, Nanos(begin + 5));
            all[2].withdraw(&mut ring);
            // The last second never ends.
            if second < u32::MAX {
                ring.close();
            }
            all[3].answer(&mut ring, Nanos::MAX);
            assert!(second == u32::MAX || ring.is_empty(), "{begin}");
        }
    }
}
