//! The device's queue is kept only as deep as its throughput needs.
//!
//! What waits with the device goes in the device's order, and whoever comes waits behind all of it;
//! what waits in the engine goes in the policy's. So of all depths that are as fast the smallest is
//! the best. Which that is depends on the device and on the load, and is found by trial: for a few
//! windows in turn the device has an anchor's depth and a candidate's, and the candidate passes if
//! it does as much, but for a tolerance. Pairs of neighbouring windows are compared, so what
//! changes meanwhile changes both; trials go on until the difference stands out of what the pairs
//! differ by.
//!
//! ```text
//!            passes: depth = candidate                 the load has changed: at once
//!           +---------------------+                  +----------------------------+
//!           v                     |                  |                            |
//!   begin  DOWN: half the depth --+--fails--> BETWEEN: three quarters --any--> REST: pause
//!           ^    against twice                of it, likewise                     |
//!           |    the depth                                                pause is over
//!           |                                                                     v
//!           +-------------- passes --------------------------- KEEP: the depth against twice it
//!                                                                     |      ^
//!                                                                     +fails-+  depth = twice
//! ```
//!
//! - It begins with the whole depth of the device, so that it never starts by being too slow.
//! - A window begins when what was in flight before it has ended and 20 ms have passed, for what a
//!   drive has read ahead would flatter the depth that follows; and it lasts until 64 I/Os have
//!   ended and 20 ms have passed. One in which the device had nothing to do is begun again. A
//!   device that has nothing to do in a window when the pause is over, or in 16 in a row while it
//!   rests, has its own depth again: nothing can be tried on it, and what comes in bursts needs no
//!   small depth.
//! - Where the policy holds requests back while the device is idle, as for credits that come in
//!   slices, there is something to do: an eighth of a window may pass so. What is idle for longer
//!   has no need of its whole speed, and shows nothing of it.
//! - A candidate passes DOWN and BETWEEN when it loses at most 3 % against twice the depth in
//!   force, and KEEP when it loses at most 5 %: less would have it go to and fro. Twice the depth
//!   is no more than the device's.
//! - A candidate that holds nothing back, as fewer are outstanding, passes nothing: DOWN goes on to
//!   half of it, KEEP to DOWN, and BETWEEN to REST.
//! - The pause is a second, and twice as long each time nothing was changed, up to 64 s. It is a
//!   second again when the load has changed: the mean cost of an I/O, or what the device does, by
//!   half as much again; or something waits for the depth at most I/Os' ends, where hardly anything
//!   did (with as many in flight as before a load that grew looks the same).
//! - What an I/O counts for is its bytes, at least 16 KiB, below which a device's time for it
//!   hardly falls. Otherwise a depth that lets small requests come more often would look slow. What
//!   moves no data, as a discard, and what fails, count for nothing, and no I/O for more than the
//!   device's largest.

use super::trial::{Step, Trial};
use tidegate_base::time::Nanos;

/// What another depth has read ahead, or left to be written, is a help or a burden for a while.
const SETTLES: Nanos = Nanos::from_millis(20);
/// I/Os that end in a window, at least.
const WINDOW_ENDS: u32 = 64;
/// How long a window lasts, at least.
const WINDOW: Nanos = Nanos::from_millis(20);
/// The same while it rests: nothing waits for what they find.
const REST_ENDS: u32 = 256;
const REST_WINDOW: Nanos = Nanos::from_millis(200);
/// Windows in a row that say nothing, until a trial is given up.
const EMPTY_MAX: u32 = 16;
const PAUSE_MIN: Nanos = Nanos::SECOND;
const PAUSE_MAX: Nanos = Nanos(64 * Nanos::SECOND.0);
/// A load is another one when a figure of it has changed by this factor.
const CHANGED: f64 = 1.5;
/// The depth hardly holds anything back, or mostly does: parts of the I/Os that end.
const HARDLY: f64 = 0.125;
const MOSTLY: f64 = 0.5;
/// No fewer in flight while a cap is looked for: with less than two nothing is seen of one, and the
/// test halves what is there.
const FLOOR: u32 = 4;
/// Recognising a cap takes three seconds that began after the load did, and one for the test.
const RECOGNISING: Nanos = Nanos(6 * Nanos::SECOND.0);
/// The part of a window that the device may be idle while the policy holds requests back.
const HELD_PART: u64 = 8;
/// An I/O counts for so many bytes at least.
const LEAST: u32 = 16 << 10;

/// What ended between two moments.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Window {
    /// It has not begun: what was in flight before it still has to end, so many at most, ...
    settling: bool,
    before: u32,
    /// When it began; so far: when the one before ended.
    since: Nanos,
    ends: u32,
    work: u64,
    /// I/Os that ended while something waited because as many were in flight as may be.
    bound: u32,
    /// The device had nothing to do for a while.
    idle: bool,
    /// How long it had nothing to do while the policy held requests back.
    held: Nanos,
}

impl Window {
    fn says_nothing(&self, now: Nanos) -> bool {
        self.idle || self.held.0 > now.since(self.since).0 / HELD_PART
    }
}

/// What a window shows of the load.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Load {
    /// What an I/O counted for.
    each: f64,
    /// What the device did in a nanosecond.
    rate: f64,
    /// The part of the I/Os that ended while something waited for the depth.
    bound: f64,
}

impl Load {
    fn of(window: &Window, now: Nanos) -> Load {
        let (work, ends) = (window.work as f64, f64::from(window.ends));
        Load {
            each: work / ends,
            rate: work / now.since(window.since).0 as f64,
            bound: f64::from(window.bound) / ends,
        }
    }

    fn is_other_than(&self, before: &Load) -> bool {
        let other = |now: f64, before: f64| (now / before).max(before / now) > CHANGED;
        let grown = before.bound < HARDLY && self.bound > MOSTLY;
        grown || other(self.each, before.each) || other(self.rate, before.rate)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Trial(Trial),
    Rest {
        until: Nanos,
        /// The first window that said something.
        first: Option<Load>,
        /// Windows in a row that said nothing.
        empty: u32,
    },
}

/// See the [module](self).
pub(crate) struct DepthControl {
    /// The device's own depth.
    top: u32,
    /// The one that is kept.
    depth: u32,
    pause: Nanos,
    window: Window,
    state: State,
    /// Something waits because as many are in flight as may be.
    waits: bool,
    /// Nothing is in flight, and the policy lets nothing of what waits go.
    holds: bool,
    /// A cap is looked for: see [`DepthControl::look_for_caps`].
    looks_for_caps: bool,
}

impl DepthControl {
    /// For a device of a depth.
    pub(crate) fn new(top: u32, now: Nanos) -> DepthControl {
        let mut control = DepthControl {
            top,
            depth: top,
            pause: PAUSE_MIN,
            window: Window {
                settling: false,
                before: 0,
                since: now,
                ends: 0,
                work: 0,
                bound: 0,
                idle: false,
                held: Nanos::ZERO,
            },
            waits: false,
            holds: false,
            looks_for_caps: false,
            state: State::Rest {
                until: now,
                first: None,
                empty: 0,
            },
        };
        control.step(now, Step::Down);
        control
    }

    /// The depth that was found so far.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether a cap in front of the device is to be recognised, of which none is known yet. Behind
    /// a cap every depth is as fast, and with one in flight it does not show. So while one is
    /// looked for no depth below [`FLOOR`] is tried, and first, and after every change of the load,
    /// the device has its own depth for as long as recognising takes.
    pub(crate) fn look_for_caps(&mut self, now: Nanos, looks: bool) {
        if looks && !self.looks_for_caps {
            self.give_back(now, RECOGNISING);
        }
        self.looks_for_caps = looks;
    }

    /// A cap is known, and its pace decides how many are in flight: the device has its own depth.
    pub(crate) fn stand_back(&mut self, now: Nanos) {
        self.looks_for_caps = false;
        self.give_back(now, PAUSE_MIN);
    }

    /// The smallest depth that may be tried.
    fn floor(&self) -> u32 {
        if self.looks_for_caps { FLOOR } else { 1 }
    }

    /// I/Os in flight at most, now.
    pub(crate) fn limit(&self) -> u32 {
        match &self.state {
            State::Trial(trial) if trial.by_anchor.is_none() => trial.anchor,
            State::Trial(trial) => trial.candidate,
            State::Rest { .. } => self.depth,
        }
    }

    /// An I/O starts after the device had nothing to do for so long.
    pub(crate) fn was_idle(&mut self, time: Nanos) {
        match self.holds {
            true => self.window.held += time,
            false => self.window.idle = true,
        }
    }

    /// No I/O goes. `waits`: as many are in flight as may be, and more would go; `holds`: none is
    /// in flight, and the policy holds back what waits.
    pub(crate) fn nothing_goes(&mut self, waits: bool, holds: bool) {
        (self.waits, self.holds) = (waits, holds);
    }

    /// An I/O that moved so many bytes has ended; none: what it did is no work.
    pub(crate) fn ended(&mut self, now: Nanos, bytes: u32) {
        let window = &mut self.window;
        if window.settling {
            window.before = window.before.saturating_sub(1);
            if window.before == 0 && now.since(window.since) >= SETTLES {
                window.settling = false;
                window.since = now;
                (window.idle, window.held) = (false, Nanos::ZERO);
            }
            return;
        }
        if bytes == 0 {
            return;
        }
        window.ends += 1;
        window.work += u64::from(bytes.max(LEAST));
        window.bound += u32::from(self.waits);
        let (ends, span) = match self.state {
            State::Trial(_) => (WINDOW_ENDS, WINDOW),
            State::Rest { .. } => (REST_ENDS, REST_WINDOW),
        };
        if window.ends >= ends && now.since(window.since) >= span {
            self.close(now);
        }
    }

    fn close(&mut self, now: Nanos) {
        let window = self.window;
        let load = Load::of(&window, now);
        let idle = window.says_nothing(now);
        match &mut self.state {
            State::Trial(trial) if idle => {
                trial.empty += 1;
                match trial.empty < EMPTY_MAX {
                    true => self.open(now),
                    false => self.rest(now),
                }
            }
            State::Trial(trial) if trial.by_anchor.is_some() && load.bound < HARDLY => {
                let trial = *trial;
                self.held_nothing(now, &trial);
            }
            State::Trial(trial) => {
                trial.empty = 0;
                let (trial, passes) = (*trial, trial.window(load.rate));
                match passes {
                    Some(passes) => self.decide(now, &trial, passes),
                    None => self.open(now),
                }
            }
            State::Rest { .. } => self.rested(now, load, idle),
        }
    }

    /// A window while it rests: whether the load is still the same, and whether the pause is over.
    fn rested(&mut self, now: Nanos, seen: Load, idle: bool) {
        let State::Rest {
            until,
            first,
            empty,
        } = &mut self.state
        else {
            return;
        };
        let over = now >= *until;
        if idle {
            *empty += 1;
            match over || *empty >= EMPTY_MAX {
                true => self.give_back(now, PAUSE_MIN),
                false => self.open(now),
            }
            return;
        }
        *empty = 0;
        let changed = seen.is_other_than(first.get_or_insert(seen));
        match () {
            () if changed && self.looks_for_caps => self.give_back(now, RECOGNISING),
            () if changed => {
                self.pause = PAUSE_MIN;
                self.step(now, Step::Keep);
            }
            () if over => {
                self.pause = PAUSE_MAX.min(self.pause + self.pause);
                self.step(now, Step::Keep);
            }
            () => self.open(now),
        }
    }

    /// The device has its own depth for a while: no trial can be made of a load that leaves it
    /// idle, and one that does needs no small depth; or others need to see what it does with it.
    fn give_back(&mut self, now: Nanos, pause: Nanos) {
        self.settle_on(self.top);
        self.rest_for(now, pause);
    }

    /// The candidate held nothing back, so it could not but be as fast: whether it is enough is not
    /// known, and only a smaller one can tell.
    fn held_nothing(&mut self, now: Nanos, trial: &Trial) {
        match (trial.step, trial.candidate / 2) {
            (Step::Keep, _) => self.step(now, Step::Down),
            (Step::Down, half) if half >= self.floor() => {
                self.state = State::Trial(Trial::new(Step::Down, trial.anchor, half));
                self.open(now);
            }
            (Step::Between | Step::Down, _) => self.rest(now),
        }
    }

    fn decide(&mut self, now: Nanos, trial: &Trial, passes: bool) {
        match (trial.step, passes) {
            (Step::Down, true) => {
                self.settle_on(trial.candidate);
                self.step(now, Step::Down);
            }
            (Step::Down, false) => self.step(now, Step::Between),
            (Step::Between, true) => {
                self.settle_on(trial.candidate);
                self.rest(now);
            }
            (Step::Between, false) => self.rest(now),
            (Step::Keep, true) => self.step(now, Step::Down),
            (Step::Keep, false) => {
                self.settle_on(trial.anchor);
                self.step(now, Step::Keep);
            }
        }
    }

    fn settle_on(&mut self, depth: u32) {
        self.depth = depth;
        self.pause = PAUSE_MIN;
    }

    /// The next trial, or the one after it where there is nothing to try.
    fn step(&mut self, now: Nanos, step: Step) {
        let depth = self.depth;
        let twice = (depth * 2).min(self.top);
        let next = match step {
            Step::Keep if twice > depth => Some(depth),
            Step::Keep => return self.step(now, Step::Down),
            Step::Down => Some(depth / 2).filter(|&half| half >= self.floor()),
            Step::Between => {
                let least = self.floor().max(depth / 2 + 1);
                Some(depth * 3 / 4).filter(|&d| d < depth && d >= least)
            }
        };
        match next {
            Some(candidate) => {
                self.state = State::Trial(Trial::new(step, twice, candidate));
                self.open(now);
            }
            None => self.rest(now),
        }
    }

    fn rest(&mut self, now: Nanos) {
        self.rest_for(now, self.pause);
    }

    fn rest_for(&mut self, now: Nanos, pause: Nanos) {
        self.state = State::Rest {
            until: now + pause,
            first: None,
            empty: 0,
        };
        self.open(now);
    }

    /// A new window, once what another depth has left in flight has ended.
    fn open(&mut self, now: Nanos) {
        let deepest = match &self.state {
            State::Trial(trial) => trial.anchor,
            State::Rest { .. } => self.depth,
        };
        self.window = Window {
            settling: true,
            before: deepest,
            since: now,
            ends: 0,
            work: 0,
            bound: 0,
            idle: false,
            held: Nanos::ZERO,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::random::SplitMix64;

    /// A device that does `most` I/Os a second from `knee` in flight on, and less in proportion
    /// below. Single I/Os take up to twice their mean, and all of them are slower and faster by
    /// `sway` thousandths for a tenth of a second at a time.
    struct Noisy {
        knee: u32,
        most: f64,
        sway: u64,
        random: SplitMix64,
        now: Nanos,
        swayed_until: Nanos,
        factor: f64,
        ends: u64,
    }

    impl Noisy {
        fn new(knee: u32, most: f64, sway: u64, seed: u64) -> Noisy {
            Noisy {
                knee,
                most,
                sway,
                random: SplitMix64::new(seed),
                now: Nanos::ZERO,
                swayed_until: Nanos::ZERO,
                factor: 1.0,
                ends: 0,
            }
        }

        fn run(&mut self, control: &mut DepthControl, seconds: u64) {
            let until = self.now + Nanos(seconds * Nanos::SECOND.0);
            while self.now < until {
                if self.now >= self.swayed_until {
                    let sway = self.random.below(2 * self.sway + 1) as f64 - self.sway as f64;
                    self.factor = 1.0 + sway / 1000.0;
                    self.swayed_until = self.now + Nanos::from_millis(100);
                }
                let depth = control.limit().min(self.knee);
                let rate = self.most * self.factor * f64::from(depth) / f64::from(self.knee);
                let gap = 1e9 / rate * self.random.below(2001) as f64 / 1000.0;
                self.now += Nanos(gap as u64);
                self.ends += 1;
                control.nothing_goes(true, false);
                control.ended(self.now, 4096);
            }
        }
    }

    #[test]
    fn the_knee_is_found_through_noise() {
        for (knee, sway) in [(1, 0), (3, 0), (4, 100), (8, 100), (16, 200), (64, 0)] {
            for seed in 0..6 {
                let mut device = Noisy::new(knee, 20_000.0, sway, seed);
                let mut control = DepthControl::new(64, Nanos::ZERO);
                device.run(&mut control, 10);
                let before = device.ends;
                device.run(&mut control, 30);
                let kept = (device.ends - before) as f64 / 30.0 / 20_000.0;
                let depth = control.depth();
                assert!(
                    kept > 0.94,
                    "knee {knee}, sway {sway}, seed {seed}: {kept:.3} at {depth}"
                );
                assert!(
                    depth <= (knee * 2).max(2) || knee == 64,
                    "knee {knee}, sway {sway}, seed {seed}: {depth}"
                );
            }
        }
    }

    #[test]
    fn a_device_that_needs_more_gets_more() {
        for seed in 0..6 {
            let mut device = Noisy::new(2, 20_000.0, 100, seed);
            let mut control = DepthControl::new(64, Nanos::ZERO);
            device.run(&mut control, 10);
            assert!(control.depth() <= 4, "{}", control.depth());
            // Its rate with what it has now is an eighth of what it was.
            device.knee = 32;
            device.run(&mut control, 10);
            assert!(control.depth() >= 30, "seed {seed}: {}", control.depth());
        }
    }

    /// A device that does 40,000 I/Os a second from `knee` in flight on, of which a load has so
    /// many outstanding. After each 50 ms it has nothing to do for `gap`, in which the policy holds
    /// requests back, or none are there. How many ended.
    struct Loaded {
        knee: u32,
        outstanding: u32,
        gap: Nanos,
        held: bool,
        now: Nanos,
    }

    impl Loaded {
        fn run(&mut self, control: &mut DepthControl, seconds: u64) -> u64 {
            let end = self.now + Nanos(seconds * Nanos::SECOND.0);
            let (mut ends, mut burst) = (0, self.now);
            while self.now < end {
                let depth = control.limit().min(self.knee).min(self.outstanding);
                self.now += Nanos(25_000 * u64::from(self.knee) / u64::from(depth));
                ends += 1;
                control.nothing_goes(self.outstanding > control.limit(), false);
                control.ended(self.now, 4096);
                if self.gap > Nanos::ZERO && self.now.since(burst) >= Nanos::from_millis(50) {
                    self.now += self.gap;
                    burst = self.now;
                    control.nothing_goes(false, self.held);
                    control.was_idle(self.gap);
                }
            }
            ends
        }
    }

    #[test]
    fn a_device_that_is_often_idle_has_its_own_depth_again() {
        let mut device = Loaded {
            knee: 1,
            outstanding: 64,
            gap: Nanos::ZERO,
            held: false,
            now: Nanos::ZERO,
        };
        let mut control = DepthControl::new(64, Nanos::ZERO);
        device.run(&mut control, 10);
        assert_eq!(control.depth(), 1);
        // By day it needs its whole depth, in bursts.
        (device.knee, device.gap) = (64, Nanos::from_millis(10));
        device.run(&mut control, 60);
        assert_eq!(control.depth(), 64);
        // Five sixths of the time.
        let ends = device.run(&mut control, 60);
        assert!(ends >= 60 * 33_000, "{ends}");
    }

    /// A device that does less below 16 in flight, but for 15 ms after it had as many: a drive that
    /// has read ahead.
    #[test]
    fn what_another_depth_has_left_is_not_taken_for_a_depths_own() {
        let mut control = DepthControl::new(32, Nanos::ZERO);
        let (mut now, mut full_at) = (Nanos::ZERO, Nanos::ZERO);
        while now < Nanos(20 * Nanos::SECOND.0) {
            let depth = control.limit();
            if depth >= 16 {
                full_at = now;
            }
            let slow = depth < 16 && now.since(full_at) > Nanos::from_millis(15);
            now += Nanos(if slow { 54_000 } else { 50_000 });
            control.nothing_goes(true, false);
            control.ended(now, 16 << 10);
        }
        assert_eq!(control.depth(), 16);
    }

    #[test]
    fn short_gaps_that_the_policy_leaves_do_not_end_the_search() {
        let mut device = Loaded {
            knee: 4,
            outstanding: 64,
            gap: Nanos::from_millis(3),
            held: true,
            now: Nanos::ZERO,
        };
        let mut control = DepthControl::new(64, Nanos::ZERO);
        device.run(&mut control, 20);
        assert_eq!(control.depth(), 4);
        // A quarter of the time: what it does is the policy's doing.
        device.gap = Nanos::from_millis(16);
        device.run(&mut control, 20);
        assert_eq!(control.depth(), 64);
    }

    #[test]
    fn a_depth_that_never_held_anything_back_is_not_found_to_be_enough() {
        let mut device = Loaded {
            knee: 64,
            outstanding: 4,
            gap: Nanos::ZERO,
            held: false,
            now: Nanos::ZERO,
        };
        let mut control = DepthControl::new(64, Nanos::ZERO);
        device.run(&mut control, 200);
        assert_eq!(control.depth(), 64);
        device.outstanding = 64;
        let ends = device.run(&mut control, 10);
        assert!(ends >= 10 * 36_000, "{ends}");
        // Where fewer than are outstanding are enough, they are found.
        (device.knee, device.outstanding) = (1, 4);
        device.run(&mut control, 10);
        assert_eq!(control.depth(), 1);
    }

    #[test]
    fn who_has_more_outstanding_than_before_is_another_load() {
        let mut device = Loaded {
            knee: 4,
            outstanding: 64,
            gap: Nanos::ZERO,
            held: false,
            now: Nanos::ZERO,
        };
        let mut control = DepthControl::new(64, Nanos::ZERO);
        device.run(&mut control, 10);
        assert_eq!(control.depth(), 4);
        // As many as the depth: it holds nothing back, so the pauses get long.
        (device.knee, device.outstanding) = (64, 4);
        device.run(&mut control, 200);
        assert_eq!(control.depth(), 4);
        // Neither what an I/O is nor what the device does with 4 in flight has changed.
        device.outstanding = 64;
        device.run(&mut control, 3);
        assert_eq!(control.depth(), 64);
    }

    #[test]
    fn what_moves_no_data_is_no_work() {
        let mut device = Loaded {
            knee: 64,
            outstanding: 64,
            gap: Nanos::ZERO,
            held: false,
            now: Nanos::ZERO,
        };
        let mut control = DepthControl::new(64, Nanos::ZERO);
        // Discards, flushes and failures without end.
        control.nothing_goes(true, false);
        for n in 0..100_000 {
            control.ended(Nanos(n * 10_000), 0);
        }
        assert_eq!(control.depth(), 64);
        // And as many of them again beside what moves data.
        device.now = Nanos(100_000 * 10_000);
        for _ in 0..300_000 {
            device.now += Nanos(25_000 * 64 / u64::from(control.limit()));
            control.nothing_goes(true, false);
            control.ended(device.now, 4096);
            control.ended(device.now, 0);
        }
        assert_eq!(control.depth(), 64);
    }

    #[test]
    fn windows_with_idle_time_decide_nothing() {
        let mut control = DepthControl::new(32, Nanos::ZERO);
        for n in 0..100_000 {
            control.ended(Nanos(n * 50_000), 4096);
            control.was_idle(Nanos(50_000));
        }
        assert_eq!(control.depth(), 32);
        assert_eq!(control.limit(), 32);
    }
}
