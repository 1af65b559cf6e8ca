//! Balance of a device's connections over its loops: which connection should move, decided once a
//! second.
//!
//! ```text
//!   the device's loop is short of time for seconds, and two connections or more have work
//!     --> the one with most work moves to a socket loop, for a trial
//!           --> the device does more: it stays    --> it does not: it moves back, and the next
//!                                                     trial waits longer
//!   calm for seconds --> all move back
//! ```
//!
//! A second loop is no gain by itself: each request takes two more messages between threads, which
//! wake each other where they are not busy anyway, and the processors may have other work. So every
//! move is judged by what the device then does.

use tidegate_core::time::Nanos;

/// Share of its time, in thousandths, from which on a loop counts as short of time.
const BUSY: u32 = 850;
/// Largest share of a socket loop's time with which it takes one more connection.
const ROOM: u32 = 425;
/// Share of the time of all loops together up to which one loop would do.
const CALM: u32 = 500;
/// Seconds for which the device's loop is busy before a connection moves.
const BUSY_SECONDS: u32 = 3;
/// Seconds for which it is calm before connections move back.
const CALM_SECONDS: u32 = 10;
/// Seconds of a trial: the first one is not counted.
const TRIAL_SECONDS: u32 = 4;
/// Work after a move, in hundredths of the work before, with which the move has paid.
const PAYS: u64 = 105;
/// Work of a connection, in hundredths of the device's, from which on it counts as active.
const ACTIVE: u64 = 5;
/// Time until the next trial after one that did not pay: doubled by each.
const PAUSE_MIN: Nanos = Nanos::from_secs(60);
const PAUSE_MAX: Nanos = Nanos::from_secs(3600);

/// Connection in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Load {
    /// Index of the connection.
    pub(super) index: u32,
    /// Socket loop that it is in; `None` in the device's own.
    pub(super) at: Option<usize>,
    /// Work that it brought: requests, and one more for each 16 KiB of payload.
    pub(super) work: u64,
}

/// Second of a device.
pub(super) struct Second {
    pub(super) now: Nanos,
    /// Part of the second that the device's loop ran or waited for a processor, in thousandths.
    pub(super) own: u32,
    /// Part of the second that each socket loop ran or waited, in thousandths.
    pub(super) loops: Vec<u32>,
    pub(super) connections: Vec<Load>,
}

/// Decision on a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    Stay,
    /// Move a connection to a socket loop. The number behind the last one is of a loop to be
    /// started.
    MoveTo {
        index: u32,
        at: usize,
    },
    /// Move a connection back to the device's loop.
    MoveBack {
        index: u32,
    },
    /// Move all connections back.
    MoveAllBack,
}

/// Past of a device, as far as the next decision depends on it.
#[derive(Debug)]
pub(super) struct Balance {
    /// Largest number of socket loops.
    most: usize,
    busy_seconds: u32,
    calm_seconds: u32,
    /// Sum of the work of the busy seconds so far.
    busy_work: u64,
    trial: Option<Trial>,
    /// Time before which no trial begins, and the pause after the next one that does not pay.
    not_before: Nanos,
    pause: Nanos,
}

/// Move that is being judged.
#[derive(Clone, Copy, Debug)]
struct Trial {
    index: u32,
    /// Work of a second before the move.
    before: u64,
    seconds: u32,
    work: u64,
}

impl Balance {
    /// Creates the balance of a device that may have `most` socket loops.
    pub(super) fn new(most: usize) -> Balance {
        Balance {
            most,
            busy_seconds: 0,
            calm_seconds: 0,
            busy_work: 0,
            trial: None,
            not_before: Nanos::ZERO,
            pause: PAUSE_MIN,
        }
    }

    /// Decides on a second.
    pub(super) fn decide(&mut self, second: &Second) -> Decision {
        let work: u64 = second.connections.iter().map(|load| load.work).sum();
        if let Some(trial) = self.trial {
            return self.judge(trial, second, work);
        }
        let is_active = |load: &&Load| load.work > 0 && load.work * 100 >= work * ACTIVE;
        let active = second.connections.iter().filter(is_active).count();
        if second.connections.iter().any(|load| load.at.is_some()) {
            let all: u32 = second.own + second.loops.iter().sum::<u32>();
            let is_calm = active < 2 || all <= CALM;
            self.calm_seconds = if is_calm { self.calm_seconds + 1 } else { 0 };
            if self.calm_seconds >= CALM_SECONDS {
                self.calm_seconds = 0;
                return Decision::MoveAllBack;
            }
        }
        if second.own < BUSY || active < 2 {
            (self.busy_seconds, self.busy_work) = (0, 0);
            return Decision::Stay;
        }
        self.busy_seconds += 1;
        self.busy_work += work;
        if self.busy_seconds < BUSY_SECONDS {
            return Decision::Stay;
        }
        let before = self.busy_work / u64::from(self.busy_seconds);
        (self.busy_seconds, self.busy_work) = (0, 0);
        let here = second.connections.iter().filter(|load| load.at.is_none());
        let most = here.filter(is_active).max_by_key(|load| load.work);
        let (Some(most), Some(at)) = (most, self.target(&second.loops)) else {
            return Decision::Stay;
        };
        if second.now < self.not_before {
            return Decision::Stay;
        }
        let index = most.index;
        self.trial = Some(Trial {
            index,
            before,
            seconds: 0,
            work: 0,
        });
        Decision::MoveTo { index, at }
    }

    /// Returns the socket loop that takes the next connection; `None` if none has the time.
    fn target(&self, loops: &[u32]) -> Option<usize> {
        let idlest = loops.iter().enumerate().min_by_key(|(_, share)| **share);
        match idlest {
            Some((at, &share)) if share <= ROOM => Some(at),
            _ => (loops.len() < self.most).then_some(loops.len()),
        }
    }

    /// Goes on with a trial for a second, and ends it.
    fn judge(&mut self, mut trial: Trial, second: &Second, work: u64) -> Decision {
        trial.seconds += 1;
        let mut connections = second.connections.iter();
        if !connections.any(|load| load.index == trial.index && load.at.is_some()) {
            // It ended, or found no moment to move.
            self.trial = None;
            return Decision::Stay;
        }
        if trial.seconds > 1 {
            trial.work += work;
        }
        if trial.seconds < TRIAL_SECONDS {
            self.trial = Some(trial);
            return Decision::Stay;
        }
        self.trial = None;
        let after = trial.work / u64::from(TRIAL_SECONDS - 1);
        if after * 100 >= trial.before * PAYS {
            self.pause = PAUSE_MIN;
            return Decision::Stay;
        }
        self.not_before = second.now + self.pause;
        self.pause = (self.pause + self.pause).min(PAUSE_MAX);
        let index = trial.index;
        Decision::MoveBack { index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Device with two connections, each with `works` of work in a second.
    struct Device {
        balance: Balance,
        now: Nanos,
        at: [Option<usize>; 2],
        loops: usize,
    }

    impl Device {
        fn new() -> Device {
            Device {
                balance: Balance::new(1),
                now: Nanos::ZERO,
                at: [None; 2],
                loops: 0,
            }
        }

        /// Passes a second, and carries the decision out.
        fn pass(&mut self, own: u32, other: u32, works: [u64; 2]) -> Decision {
            self.now += Nanos::SECOND;
            let connections = [0, 1].map(|i: u32| Load {
                index: i,
                at: self.at[i as usize],
                work: works[i as usize],
            });
            let decision = self.balance.decide(&Second {
                now: self.now,
                own,
                // A loop without connections sleeps.
                loops: vec![if self.at == [None; 2] { 0 } else { other }; self.loops],
                connections: connections.to_vec(),
            });
            match decision {
                Decision::Stay => {}
                Decision::MoveTo { index, at } => {
                    self.at[index as usize] = Some(at);
                    self.loops = self.loops.max(at + 1);
                }
                Decision::MoveBack { index } => self.at[index as usize] = None,
                Decision::MoveAllBack => self.at = [None; 2],
            }
            decision
        }

        /// Passes `seconds` alike, and returns the decisions that changed something, with their
        /// seconds.
        fn pass_all(
            &mut self,
            seconds: u32,
            (own, other): (u32, u32),
            works: [u64; 2],
        ) -> Vec<(u32, Decision)> {
            let decisions = (0..seconds).map(|second| (second, self.pass(own, other, works)));
            decisions.filter(|(_, d)| *d != Decision::Stay).collect()
        }
    }

    #[test]
    fn the_connection_with_most_work_moves_from_a_busy_loop_and_stays_if_that_pays() {
        let mut device = Device::new();
        assert_eq!(
            device.pass_all(3, (1000, 0), [100, 300]),
            [(2, Decision::MoveTo { index: 1, at: 0 })]
        );
        assert_eq!(device.pass_all(60, (900, 600), [200, 300]), []);
        assert_eq!(device.at, [None, Some(0)]);
    }

    #[test]
    fn a_move_that_does_not_pay_is_undone_and_tried_again_ever_later() {
        let mut device = Device::new();
        let decisions = device.pass_all(400, (1000, 500), [100, 100]);
        let to = Decision::MoveTo { index: 1, at: 0 };
        let back = Decision::MoveBack { index: 1 };
        let all: Vec<Decision> = decisions.iter().map(|(_, decision)| *decision).collect();
        assert_eq!(all, [to, back, to, back, to, back]);
        let pauses: Vec<u32> = (decisions.windows(2).skip(1).step_by(2))
            .map(|pair| pair[1].0 - pair[0].0)
            .collect();
        assert_eq!(pauses, [60, 120]);
    }

    #[test]
    fn one_connection_with_work_stays_and_so_do_all_while_there_is_time() {
        let mut device = Device::new();
        assert_eq!(device.pass_all(100, (1000, 0), [1000, 10]), []);
        assert_eq!(device.pass_all(100, (800, 0), [100, 100]), []);
    }

    #[test]
    fn all_move_back_when_one_loop_would_do() {
        for (shares, works) in [((200, 200), [100, 100]), ((900, 900), [1000, 0])] {
            let mut device = Device::new();
            device.pass_all(3, (1000, 0), [100, 100]);
            device.pass_all(10, (900, 900), [200, 200]);
            assert_eq!(device.at, [None, Some(0)]);
            let back = device.pass_all(30, shares, works);
            assert_eq!(back, [(9, Decision::MoveAllBack)]);
        }
    }

    #[test]
    fn loops_are_at_most_as_many_as_allowed_and_idle_ones_are_used_first() {
        let balance = Balance::new(2);
        assert_eq!(balance.target(&[]), Some(0));
        assert_eq!(balance.target(&[900]), Some(1));
        assert_eq!(balance.target(&[900, 100]), Some(1));
        assert_eq!(balance.target(&[900, 900]), None);
    }
}
