//! Bound on the depth by the time that I/Os are with the device, for the sake of a promised latency.
//!
//! A request meets a queue in the device that is as long as what is in flight takes. How long that
//! is, the I/Os that end say themselves: no model of the device and no profile is needed, both of
//! which may be wrong of it as it is today (a flash disk whose spare area is used up writes at a
//! fraction of its speed).
//!
//! ```text
//!   1 % of a window's I/Os took longer than the budget      try three quarters of the depth
//!   1 % took longer than half of it                         as it is; now and then try more
//!   fewer, and the load would use more                      a quarter more, at least one
//!
//!   tried less:  an I/O is not faster for it                back: a shorter queue only costs work
//!   tried more:  an I/O is not slower for it                stay: a longer queue costs nothing
//!                it is                                      back
//! ```
//!
//! While the device has places left, an I/O takes as long beside few others as beside many; once it
//! has none, as much longer as there are more (Little's law). So a device that is slow by itself
//! keeps a depth at which it does all that it can: slow requests are not its queue's fault.
//!
//! I/Os of VMs with a latency objective decide where a window has enough of them, since reads pass
//! writes in many devices; else all I/Os do. What was in flight when the depth changed is not
//! counted.

use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;

/// Ends of a window, and the time after which a window with `ENDS_MIN` is over as well.
const ENDS: u32 = 64;
const ENDS_MIN: u32 = 8;
const WINDOW: Nanos = Nanos::from_millis(100);
/// Slow I/Os that one window may have: one in so many ends.
const SLOW_ONE_IN: u32 = 100;
/// Part of an I/O's mean time that less depth has to save to be kept, of what it would save where
/// the device has no place left; and that more depth may cost at most.
const ELASTIC: f64 = 0.4;
/// Pause after a trial that did not help: at first, and at most.
const PAUSE_MIN: Nanos = Nanos::from_millis(100);
const PAUSE_MAX: Nanos = Nanos::from_millis(4000);

/// What is bounded, as it is set from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// Time that an I/O may be with the device.
    pub(crate) time: Nanos,
    /// VM for whose sake.
    pub(crate) vm: Option<VmId>,
    /// Bytes of the longest part of an I/O.
    pub(crate) part: u32,
}

/// Ends of a window: all, those beyond half of the budget, and those beyond the whole.
#[derive(Clone, Copy, Default, Debug)]
struct Ends {
    all: u32,
    near: u32,
    slow: u32,
    time: Nanos,
}

impl Ends {
    #[inline]
    fn count(&mut self, took: Nanos, budget: Nanos) {
        self.all += 1;
        self.near += u32::from(took > Nanos(budget.0 / 2));
        self.slow += u32::from(took > budget);
        self.time += took;
    }

    /// Returns the mean time of an I/O in nanoseconds.
    fn mean(&self) -> f64 {
        self.time.0 as f64 / f64::from(self.all)
    }
}

/// Depth before the one that is tried, and an I/O's mean time there.
#[derive(Clone, Copy, Debug)]
struct Trial {
    before: u32,
    mean: f64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ceiling {
    pub(super) budget: Budget,
    depth: u32,
    since: Nanos,
    promised: Ends,
    all: Ends,
    /// Ends of I/Os from before the depth changed.
    settle: u32,
    trial: Option<Trial>,
    /// No depth is tried before.
    pause_until: Nanos,
    pause: Nanos,
    /// The next trial is one of more.
    more_next: bool,
}

impl Ceiling {
    /// Creates the bound of a load that has not been seen, at a depth to begin with.
    pub(super) fn new(now: Nanos, budget: Budget, depth: u32) -> Ceiling {
        Ceiling {
            budget,
            depth: depth.max(1),
            since: now,
            promised: Ends::default(),
            all: Ends::default(),
            settle: 0,
            trial: None,
            pause_until: now,
            pause: PAUSE_MIN,
            more_next: false,
        }
    }

    /// Takes another budget of the same load: the depth stays what it was found to be.
    pub(super) fn set(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Returns the I/Os that may be in flight at most, at least 1.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Counts an I/O that was with the device for so long. `promised`: its VM has a latency
    /// objective.
    #[inline]
    pub(super) fn ended(&mut self, now: Nanos, took: Nanos, promised: bool, load: Load) {
        if self.settle > 0 {
            self.settle -= 1;
            self.since = now;
            return;
        }
        if promised {
            self.promised.count(took, self.budget.time);
        }
        self.all.count(took, self.budget.time);
        let long = now.since(self.since) >= WINDOW;
        if self.promised.all >= ENDS || self.all.all >= 4 * ENDS || long {
            self.close(now, load);
        }
    }

    fn close(&mut self, now: Nanos, load: Load) {
        let ends = match self.promised.all >= ENDS_MIN {
            true => self.promised,
            false => self.all,
        };
        if ends.all < ENDS_MIN {
            return;
        }
        let before = self.depth;
        match self.trial.take() {
            Some(trial) => self.judge(now, ends.mean(), trial),
            None => self.decide(now, ends, load),
        }
        if self.depth != before {
            self.settle = before.min(self.depth);
        }
        (self.since, self.promised, self.all) = (now, Ends::default(), Ends::default());
    }

    /// Looks whether the depth that was tried is better than the one before.
    fn judge(&mut self, now: Nanos, mean: f64, trial: Trial) {
        let of = f64::from(self.depth) / f64::from(trial.before);
        // 1: the mean goes with the depth; 0: it does not depend on it.
        let elasticity = (mean / trial.mean - 1.0) / (of - 1.0);
        let is_less = self.depth < trial.before;
        if is_less == (elasticity >= ELASTIC) {
            self.pause = PAUSE_MIN;
            return;
        }
        self.depth = trial.before;
        self.pause_until = now + self.pause;
        self.pause = PAUSE_MAX.min(self.pause + self.pause);
    }

    fn decide(&mut self, now: Nanos, ends: Ends, load: Load) {
        let (depth, mean) = (self.depth, ends.mean());
        let less = (depth.min(load.depth) * 3 / 4).max(load.least).max(1);
        let more = (depth + (depth / 4).max(1)).min(load.top);
        let wants_more = load.depth >= depth;
        let is_slow = ends.slow * SLOW_ONE_IN > ends.all;
        let is_near = ends.near * SLOW_ONE_IN > ends.all;
        if !is_near {
            if wants_more {
                self.depth = more;
            }
            self.pause = PAUSE_MIN;
        } else if now >= self.pause_until {
            // By turns, or a depth that is too small would stay so where the device is slow.
            self.depth = match is_slow && !self.more_next {
                true => less,
                false if wants_more => more,
                false => depth,
            };
            self.more_next = !self.more_next;
            let before = depth.min(load.depth);
            self.trial = (self.depth != before).then_some(Trial { before, mean });
        }
    }
}

/// The load beside the bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Depth that the load would use.
    pub(super) depth: u32,
    /// Smallest depth that is of use on this device.
    pub(super) least: u32,
    /// Largest depth by the configuration.
    pub(super) top: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        depth: 64,
        least: 1,
        top: 64,
    };

    fn ceiling(depth: u32) -> Ceiling {
        let budget = Budget {
            time: Nanos::from_millis(1),
            vm: None,
            part: 64 << 10,
        };
        Ceiling::new(Nanos::ZERO, budget, depth)
    }

    /// Runs a device on which each I/O takes `each` for every one in flight. Returns the mean depth
    /// of the second half.
    fn settles(ceiling: &mut Ceiling, each: Nanos, promised: bool) -> f64 {
        let (mut now, mut depths) = (Nanos::ZERO, 0);
        for n in 0..100_000 {
            now += each;
            let took = Nanos(each.0 * u64::from(ceiling.depth()));
            ceiling.ended(now, took, promised, LOAD);
            depths += if n >= 50_000 { ceiling.depth() } else { 0 };
        }
        f64::from(depths) / 50_000.0
    }

    #[test]
    fn the_depth_keeps_what_is_in_flight_within_the_budget() {
        for (each_us, promised) in [(20, false), (50, true), (100, true), (400, false)] {
            let each = Nanos(each_us * 1000);
            for start in [1, 8, 64] {
                let depth = settles(&mut ceiling(start), each, promised);
                let took = depth * each_us as f64;
                assert!((300.0..1050.0).contains(&took), "{each_us} us: {depth}");
            }
        }
    }

    #[test]
    fn a_device_that_is_slow_by_itself_keeps_the_depth_it_needs() {
        for start in [2, 16, 64] {
            let mut ceiling = ceiling(start);
            let mut now = Nanos::ZERO;
            let (mut busy, mut all) = (0.0, 0.0);
            for n in 0..200_000u64 {
                // 2 ms each, sixteen side by side.
                let depth = u64::from(ceiling.depth());
                let took = Nanos(2_000_000 * depth.max(16) / 16 + n % 7 * 1000);
                now += Nanos(took.0 / depth);
                (busy, all) = (busy + depth.min(16) as f64, all + 16.0);
                ceiling.ended(now, took, true, LOAD);
            }
            assert!(
                (10..=24).contains(&ceiling.depth()),
                "{start}: {}",
                ceiling.depth()
            );
            assert!(busy / all > 0.85, "{start}: {}", busy / all);
        }
    }

    #[test]
    fn slow_neighbours_do_not_count_where_promised_requests_are_fast() {
        let mut ceiling = ceiling(4);
        let mut now = Nanos::ZERO;
        for n in 0..20_000 {
            now += Nanos(10_000);
            let promised = n % 2 == 0;
            let took = Nanos::from_millis(if promised { 0 } else { 5 });
            ceiling.ended(now, took, promised, LOAD);
        }
        assert_eq!(ceiling.depth(), LOAD.top);
    }

    #[test]
    fn it_does_not_grow_beyond_what_the_load_uses() {
        let mut ceiling = ceiling(4);
        let load = Load { depth: 3, ..LOAD };
        for n in 0..20_000 {
            ceiling.ended(Nanos(n * 10_000), Nanos(1000), true, load);
        }
        assert_eq!(ceiling.depth(), 4);
    }
}
