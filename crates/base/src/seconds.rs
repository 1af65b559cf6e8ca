//! What a VM moved in each of the last seconds: the samples that its precision is made of
//! ([`Precision`], definitions 2.1 to 2.3 of the V-Cup paper).
//!
//! Seconds are those of the driver's clock, whole ones: the one that runs is not among them, nor
//! the one in which counting began. Bytes are those of reads and writes that were answered well, in
//! the second in which they were. A second in which the VM had nothing inside from its begin to its
//! end is an idle one: it says nothing of how precisely the VM was served, and is counted apart.
//!
//! ```text
//!   an answer ------------- another second than the VM's last? ---> the last one is closed, and
//!   a request after none ---^                          all between, which are idle or empty
//! ```
//!
//! Where it is the same second, which it nearly always is, that is one comparison. A second is
//! closed in a few stores, and after a long time without anything in at most [`KEPT`] of them.

use crate::precision::Precision;
use crate::time::Nanos;

/// So many of the last seconds are known of each VM: ten statistical intervals of 30 s.
pub const KEPT: usize = 300;

/// An idle one. No VM moves so much.
const IDLE: u64 = u64::MAX;

/// See the module's documentation. 2.4 KB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seconds {
    /// Bytes in each; a ring.
    ring: Box<[u64; KEPT]>,
    /// How many were closed since counting began.
    closed: u64,
    /// The second that runs.
    running: u32,
    /// It is counted from its begin on.
    whole: bool,
    /// Bytes that had moved in all when it began.
    before: u64,
}

impl Default for Seconds {
    fn default() -> Self {
        Seconds {
            ring: Box::new([0; KEPT]),
            closed: 0,
            running: 0,
            whole: false,
            before: 0,
        }
    }
}

impl Seconds {
    /// Memory of a VM's seconds beside itself.
    pub const HEAP_BYTES: usize = size_of::<[u64; KEPT]>();

    /// The second that a time lies in, modulo 2^32: 136 years.
    #[inline]
    pub fn number(now: Nanos) -> u32 {
        (now.0 / Nanos::SECOND.0) as u32
    }

    /// Counts from the next second on, and forgets what was. `total`: bytes that have moved in all.
    pub fn begin(&mut self, second: u32, total: u64) {
        (self.closed, self.whole) = (0, false);
        (self.running, self.before) = (second, total);
    }

    /// It is this second now. `total`: bytes that had moved in all before; `asked`: the VM had
    /// something inside ever since the last time, or nothing at all.
    pub fn pass(&mut self, second: u32, total: u64, asked: bool) {
        let passed = second.wrapping_sub(self.running);
        if passed == 0 {
            return;
        }
        let moved = total - self.before;
        if core::mem::replace(&mut self.whole, true) {
            self.close(moved);
        }
        let between = if asked { 0 } else { IDLE };
        for _ in 1..passed.min(KEPT as u32 + 1) {
            self.close(between);
        }
        (self.running, self.before) = (second, total);
    }

    fn close(&mut self, moved: u64) {
        self.ring[(self.closed % KEPT as u64) as usize] = moved;
        self.closed += 1;
    }

    /// The seconds that are known, the oldest first; `None`: an idle one.
    pub fn iter(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let first = self.closed.saturating_sub(KEPT as u64);
        let moved = (first..self.closed).map(|at| self.ring[(at % KEPT as u64) as usize]);
        moved.map(|moved| (moved != IDLE).then_some(moved))
    }

    /// How precisely a bandwidth was held in them: the target, in bytes a second, if there is one,
    /// over statistical intervals of so many seconds in which the VM had something inside.
    pub fn precision(&self, target: Option<u64>, interval: u32) -> Precision {
        let samples: Vec<u64> = self.iter().flatten().collect();
        let idle = self.iter().filter(Option::is_none).count() as u32;
        Precision::of(&samples, idle, target, interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(seconds: &Seconds) -> Vec<Option<u64>> {
        seconds.iter().collect()
    }

    #[test]
    fn the_second_in_which_it_begins_and_the_one_that_runs_are_not_known() {
        let mut seconds = Seconds::default();
        seconds.begin(7, 1000);
        seconds.pass(7, 1500, true);
        assert_eq!(known(&seconds), []);
        seconds.pass(8, 1700, true);
        assert_eq!(known(&seconds), [], "what moved in second 7 is not whole");
        seconds.pass(9, 2000, true);
        assert_eq!(known(&seconds), [Some(300)]);
        seconds.begin(9, 2100);
        seconds.pass(11, 2500, true);
        assert_eq!(
            known(&seconds),
            [Some(0)],
            "of another target nothing is left"
        );
    }

    #[test]
    fn seconds_without_anything_inside_are_told_from_those_without_an_answer() {
        let mut seconds = Seconds::default();
        seconds.begin(0, 0);
        seconds.pass(1, 0, true);
        seconds.pass(4, 50, true);
        seconds.pass(7, 80, false);
        let (some, none) = (Some, None);
        let expected = [some(50), some(0), some(0), some(30), none, none];
        assert_eq!(known(&seconds), expected);
        let precision = seconds.precision(Some(20), 2);
        assert_eq!((precision.seconds, precision.idle), (4, 2));
        assert_eq!(precision.mean, Some(20));
        assert_eq!(precision.error, Some(0));
        // 25 and 15 a second.
        assert_eq!(precision.absolute_error, Some(250_000));
    }

    proptest! {
        /// The same from every second there ever was.
        #[test]
        fn the_last_ones_are_known(
            steps in prop::collection::vec((0u32..500, 0u64..1000, any::<bool>()), 1..40),
            start in prop::sample::select(vec![0, u32::MAX - 200]),
        ) {
            let mut seconds = Seconds::default();
            seconds.begin(start, 0);
            let (mut second, mut total, mut all) = (start, 0u64, Vec::new());
            let mut running = None;
            for (passed, moved, asked) in steps {
                if passed > 0 {
                    all.extend(running.replace(0).map(Some));
                    all.extend((1..passed).map(|_| asked.then_some(0)));
                }
                second = second.wrapping_add(passed);
                seconds.pass(second, total, asked);
                total += moved;
                if let Some(running) = &mut running {
                    *running += moved;
                }
            }
            let last = all.len().saturating_sub(KEPT);
            prop_assert_eq!(known(&seconds), &all[last..]);
        }
    }
}
