//! A cap in front of the device is learnt, and queues stay where they can be scheduled.
//!
//! A hypervisor or a cloud holds a disk back with a token bucket: so many I/Os or bytes a second. What
//! is sent faster queues in the bucket, first come, first served, and no policy here decides about it
//! any more. So once a cap is known, I/Os go at [`PACE`] of it, and the queue is the engine's.
//!
//! ```text
//!             pinned for 3 s, and          half in flight,          the queue in the
//!             the device can do more       the same rate            bucket is gone
//!   Watching -----------------------> Test ---------------> Drain ------------------> Paced
//!      ^  ^                            |                      ^                         |
//!      |  +-- the rate fell: no cap ---+                      |   I/Os queue up: is it  |
//!      |                                                   Measure <-- another cap now? +
//!      +---- the device itself is the limit, or the cap was in nobody's way for so long +
//! ```
//!
//! **Recognising it.** For three seconds at least two I/Os were in flight, and the rate of I/Os or
//! that of bytes stayed the same, while the device could do more: its profile gives 80 % of the time
//! at most for what was done; without a profile, it did a quarter more of the same before (while the
//! bucket had a burst left). And still each I/O took longer than it does at saturation, or did then:
//! with few in flight a device is slow without a cap, too. Then the test: for a second only half as many I/Os may be in flight. A
//! device that had room would lose throughput; behind a cap only latency falls (Little's law).
//!
//! **Which cap.** Where I/Os are of one size, both rates are pinned, and what is capped is not known:
//! then an I/O may go while either rate has room for it. As soon as sizes change, one of the two
//! rates is exceeded, and was not capped ([`Rates::narrow`]).
//!
//! **Another cap.** Behind a lower cap I/Os queue up: in 100 ms never as few in flight as usual. Then
//! a second is measured, with a few in flight and no pace: the rate is the cap. For a higher one, every
//! 10 s in which the cap is in the way, I/Os go faster by an eighth, by a quarter or at twice the rate in
//! turn, for a second, or for as long as what the pace has left in the bucket since it was empty could
//! last; it ends as soon as I/Os queue up. What passes is the new rate, and the next second tries
//! twice of it. Where what is measured is neither what was known nor a cap of the other kind, the cap
//! is forgotten and learnt anew.

use super::meter::Window;
use crate::pace::Pacer;
use crate::time::Nanos;

/// Fewer I/Os in a second say nothing: caps below it are not learnt.
const IOS: u64 = 8;
/// I/Os go at this part of the cap, in 64ths: the bucket never fills, and 3 % are lost.
const PACE: u64 = 62;
/// How late an I/O may go for the next ones to come as if it had been on time: what timers are late.
const LATE: Nanos = Nanos::from_millis(5);
/// Seconds that must look capped.
const SECONDS: usize = 3;
/// The device can do more: the profile's time by the time that passed, at most.
const CAN_DO_MORE: f64 = 0.8;
/// The device itself is the limit: at least.
const AT_ITS_LIMIT: f64 = 0.9;
/// For so long I/Os must have queued up for the cap to be another one; longer where they are few.
const QUEUED_UP: Nanos = Nanos::from_millis(100);
/// A second goes faster every so often.
const PROBE: Nanos = Nanos(10 * Nanos::SECOND.0);
/// By so much in turn, in 64ths.
const STEPS: [u64; 3] = [72, 80, 128];
/// A test that failed is not repeated before; twice as long each time, up to `TEST_MOST`.
const TEST_AGAIN: Nanos = Nanos(30 * Nanos::SECOND.0);
const TEST_MOST: Nanos = Nanos(600 * Nanos::SECOND.0);
/// A cap that was in nobody's way for so long is forgotten.
const FORGET: Nanos = Nanos(600 * Nanos::SECOND.0);
/// For so many seconds at most what was saved up in the bucket is used up, before more than the cap is
/// another cap.
const USED_UP: u32 = 4;
/// Behind a cap so many in flight may be usual, if half of what was there is fewer.
const USUAL_MOST: u32 = 4;
/// I/Os that hang are waited for no longer.
const DRAIN: Nanos = Nanos(5 * Nanos::SECOND.0);
/// A second that a test or a measurement needs is over by then, whatever hangs.
const OVER: Nanos = Nanos(2 * Nanos::SECOND.0);

/// A cap that was learnt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntCap {
    /// I/Os a second; `None`: not capped.
    pub iops: Option<f64>,
    /// Bytes a second; `None`: not capped.
    pub bytes_per_s: Option<u64>,
    /// One of the two is capped, and it is not known which: all I/Os had one size.
    pub either: bool,
    /// Since when a cap has been known, whatever it was.
    pub since: Nanos,
}

/// What passes in a second: I/Os in thousandths, and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    ios: u64,
    bytes: u64,
}

impl Point {
    fn of(window: &Window) -> Point {
        Point {
            ios: window.iops_milli(),
            bytes: window.bytes_per_s(),
        }
    }

    fn most(self, other: Point) -> Point {
        Point {
            ios: self.ios.max(other.ios),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// `a` is at least 97 % of `b`.
fn reaches(a: u64, b: u64) -> bool {
    a as u128 * 100 >= b as u128 * 97
}

/// `a` is more than 106 % of `b`.
fn exceeds(a: u64, b: u64) -> bool {
    a as u128 * 100 > b as u128 * 106
}

/// `a` is `b`, but for an I/O at either end of a second, and for 1 %.
fn near(a: u64, b: u64, one: u64) -> bool {
    a.abs_diff(b) <= one + b / 100
}

/// What a queue in front of the device shows of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// What was known.
    Same,
    /// More of what was known.
    More,
    /// More than was known passes: out of what was saved up in the bucket, or it is another cap.
    Over,
    /// Something else: it is another cap, or none.
    Other,
}

/// What is known of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rates {
    ios: Option<u64>,
    bytes: Option<u64>,
    /// One of the two it is.
    either: bool,
    /// The most that has passed of each.
    reach: Point,
}

impl Rates {
    /// Of a queue in front of the device, of which this passed in a second.
    fn pinned(at: Point, ios: bool, bytes: bool) -> Rates {
        Rates {
            ios: ios.then_some(at.ios),
            bytes: bytes.then_some(at.bytes),
            either: ios && bytes,
            reach: at,
        }
    }

    /// More of one has passed than it is known for: that one is not the cap.
    fn narrow(&mut self, at: Point) {
        if self.either && self.ios.is_some_and(|cap| exceeds(at.ios, cap)) {
            (self.ios, self.either) = (None, false);
        } else if self.either && self.bytes.is_some_and(|cap| exceeds(at.bytes, cap)) {
            (self.bytes, self.either) = (None, false);
        }
        self.reach = self.reach.most(at);
    }

    /// I/Os queued up while this passed in a second, where the rates have been raised from what they
    /// were `before`: what passed then may have been saved up in the bucket.
    fn measured_after(&mut self, before: Option<Rates>, at: Point, largest: u64) -> Found {
        let Some(before) = before else {
            return self.measured(at, largest);
        };
        *self = before;
        let over = |cap: Option<u64>, rate| cap.is_some_and(|cap| exceeds(rate, cap));
        if over(self.ios, at.ios) || over(self.bytes, at.bytes) {
            return Found::Over;
        }
        match self.measured(at, largest) {
            Found::Same => Found::More,
            found => found,
        }
    }

    /// The same: one of the two rates is at its cap. The largest I/O had so many bytes.
    fn measured(&mut self, at: Point, largest: u64) -> Found {
        self.narrow(at);
        if self.either
            && let (Some(ios), Some(bytes)) = (self.ios, self.bytes)
        {
            // Where one is at its cap and the other is not, it is the one.
            match (near(at.ios, ios, 1000), near(at.bytes, bytes, largest)) {
                (true, false) => (self.bytes, self.either) = (None, false),
                (false, true) => (self.ios, self.either) = (None, false),
                (true, true) | (false, false) => {}
            }
        }
        let mut known = false;
        for (cap, rate) in [(&mut self.ios, at.ios), (&mut self.bytes, at.bytes)] {
            if let Some(cap) = cap.as_mut().filter(|cap| reaches(rate, **cap)) {
                // As far as it was a little too much, it is no more.
                (*cap, known) = (rate.min(*cap), true);
            }
        }
        if known {
            return Found::Same;
        }
        // What has passed before cannot be capped below it.
        let by_ios = !exceeds(self.reach.ios, at.ios);
        let by_bytes = !exceeds(self.reach.bytes, at.bytes);
        match (by_ios, by_bytes) {
            (true, false) => self.ios = Some(at.ios),
            (false, true) => self.bytes = Some(at.bytes),
            (true, true) | (false, false) => return Found::Other,
        }
        Found::More
    }

    /// More has passed without a queue.
    fn raise(&mut self, at: Point) {
        self.ios = self.ios.map(|cap| cap.max(at.ios));
        self.bytes = self.bytes.map(|cap| cap.max(at.bytes));
        self.reach = self.reach.most(at);
    }
}

/// When the next I/O may go.
struct Pace {
    ios: Pacer,
    bytes: Pacer,
    either: bool,
}

impl Pace {
    const NONE: Pace = Pace {
        ios: Pacer::NONE,
        bytes: Pacer::NONE,
        either: false,
    };

    /// `scale`: faster than the cap, in 64ths.
    fn set(&mut self, rates: &Rates, scale: u64, now: Nanos) {
        let pace = |cap: Option<u64>| {
            let rate = cap.unwrap_or(0) as u128 * (PACE * scale) as u128 / (64 * 64);
            // Never so slow that it is none.
            u64::try_from(rate)
                .unwrap_or(u64::MAX)
                .max(cap.is_some() as u64)
        };
        if self.either != rates.either {
            // Of two rates of which one was the cap the other may be far behind: that is no debt.
            *self = Pace::NONE;
        }
        self.ios.set_rate(pace(rates.ios), 1, now);
        self.bytes.set_rate(pace(rates.bytes), 1, now);
        self.either = rates.either;
    }

    fn due(&self) -> Nanos {
        match self.either {
            true => self.ios.due().min(self.bytes.due()),
            false => self.ios.due().max(self.bytes.due()),
        }
    }

    /// An I/O goes.
    fn spend(&mut self, now: Nanos, bytes: u32) {
        for (pacer, cost) in [(&mut self.ios, 1000), (&mut self.bytes, bytes as u64)] {
            pacer.forget_before(now - LATE);
            pacer.spend(cost);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No cap is known.
    Watching,
    /// So many in flight at most: does the rate fall?
    Test { bound: u32, at: Point, rates: Rates },
    /// Nothing goes until the queue in the bucket is gone.
    Drain { until: Nanos },
    /// At the pace of the cap; `scale` 64ths of it.
    Paced { scale: u64 },
    /// So many in flight at most, and no pace: what passes?
    Measure { bound: u32, second: u32 },
}

/// A second, as far as it may show a cap.
#[derive(Clone, Copy, Debug)]
struct Second {
    at: Point,
    largest: u64,
    len: Nanos,
    in_flight: u64,
}

/// What is in flight just behind the cap, summed up over time.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    from: Nanos,
    seen: Nanos,
    in_flight: u32,
    held: bool,
    /// I/Os in flight times nanoseconds, and nanoseconds in which something was held back.
    sum: u64,
    held_sum: u64,
}

impl Fresh {
    fn new(now: Nanos) -> Fresh {
        Fresh {
            from: now,
            seen: now,
            in_flight: 0,
            held: false,
            sum: 0,
            held_sum: 0,
        }
    }

    /// Time has passed, and from now on so many are in flight. Returns how many were in the mean,
    /// once that has been seen for `long`; nothing of it, where too little asked to be held.
    fn pass(&mut self, now: Nanos, in_flight: u32, held: bool, long: Nanos) -> Option<u32> {
        let span = now.since(self.seen).0;
        self.sum += self.in_flight as u64 * span;
        self.held_sum += if self.held { span } else { 0 };
        (self.seen, self.in_flight, self.held) = (now, in_flight, held);
        let all = now.since(self.from).0;
        if all < long.0 {
            return None;
        }
        if self.held_sum * 2 < all {
            *self = Fresh {
                in_flight,
                held,
                ..Fresh::new(now)
            };
            return None;
        }
        Some(self.sum.div_ceil(all) as u32)
    }
}

/// See the [module](self).
pub(super) struct Learner {
    state: State,
    /// When it began, and its windows.
    since: Nanos,
    rates: Option<Rates>,
    /// What they were before they were raised, since a queue in the bucket showed them last.
    before: Option<Rates>,
    known_since: Nanos,
    pace: Pace,
    /// Seconds in a row that look capped.
    seconds: [Second; SECONDS],
    row: usize,
    /// The most I/Os a second, in thousandths, by what they were like, and how long each took then, in
    /// picoseconds.
    earlier: Box<[(u64, u128); Window::PATTERNS]>,
    test_at: Nanos,
    test_pause: Nanos,
    /// As few as usual in flight behind the cap, and the most that this may be.
    usual: u32,
    usual_most: u32,
    /// By how much more are usual than it looked.
    patience: u32,
    /// What is usual is being found out, after the queue in the bucket was gone.
    fresh: Option<Fresh>,
    /// Bytes of the largest I/O in the last second.
    largest: u32,
    /// When as few were in flight last.
    seen_few: Nanos,
    /// For how long they must queue up.
    queued_up: Nanos,
    probe_at: Nanos,
    probes: usize,
    /// When the last of them began to go faster.
    probed: Nanos,
    /// When the cap was in the way last.
    used: Nanos,
    announced: Option<LearntCap>,
}

impl Learner {
    pub(super) fn new(now: Nanos) -> Learner {
        let nothing = Second {
            at: Point { ios: 0, bytes: 0 },
            largest: 0,
            len: Nanos::ZERO,
            in_flight: 0,
        };
        Learner {
            state: State::Watching,
            since: now,
            rates: None,
            before: None,
            patience: 1,
            known_since: now,
            pace: Pace::NONE,
            seconds: [nothing; SECONDS],
            row: 0,
            earlier: Box::new([(0, 0); Window::PATTERNS]),
            test_at: Nanos::ZERO,
            test_pause: TEST_AGAIN,
            usual: 1,
            usual_most: 1,
            fresh: None,
            largest: 0,
            seen_few: now,
            queued_up: QUEUED_UP,
            probe_at: now,
            probes: 0,
            probed: now,
            used: now,
            announced: None,
        }
    }

    /// The cap that is known.
    pub(super) fn cap(&self) -> Option<LearntCap> {
        let rates = self.rates?;
        Some(LearntCap {
            iops: rates.ios.map(|milli| milli as f64 / 1000.0),
            bytes_per_s: rates.bytes,
            either: rates.either,
            since: self.known_since,
        })
    }

    /// Begins with a cap that was known before.
    pub(super) fn assume(&mut self, now: Nanos, ios: Option<u64>, bytes: Option<u64>) {
        if ios.is_none() && bytes.is_none() {
            return;
        }
        let rates = Rates {
            ios: ios.map(|rate| rate.saturating_mul(1000).max(1000)),
            bytes: bytes.map(|rate| rate.max(1)),
            either: false,
            reach: Point { ios: 0, bytes: 0 },
        };
        self.keep(now, rates, USUAL_MOST);
    }

    /// From now on I/Os go at the pace of this cap; behind it at most so many are usual in flight.
    fn keep(&mut self, now: Nanos, rates: Rates, usual_most: u32) {
        self.usual_most = usual_most.max(USUAL_MOST);
        (self.patience, self.rates, self.before) = (1, Some(rates), None);
        (self.known_since, self.used) = (now, now);
        (self.probe_at, self.probes) = (now + PROBE, 0);
        self.drain(now);
    }

    /// The cap, where it is another one than was said last: by a twentieth at least.
    pub(super) fn announce(&mut self) -> Option<Option<LearntCap>> {
        let differs = |a: f64, b: f64| (a - b).abs() > 0.05 * b;
        let cap = self.cap();
        let same = match (&cap, &self.announced) {
            (None, None) => true,
            (Some(now), Some(before)) => {
                let alike = |a: Option<f64>, b: Option<f64>| match (a, b) {
                    (Some(a), Some(b)) => !differs(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                let bytes = |cap: &LearntCap| cap.bytes_per_s.map(|rate| rate as f64);
                alike(now.iops, before.iops) && alike(bytes(now), bytes(before))
            }
            _ => false,
        };
        if same {
            return None;
        }
        self.announced = cap;
        Some(cap)
    }

    /// An I/O with data goes to the device.
    pub(super) fn started(&mut self, now: Nanos, bytes: u32) {
        if let State::Paced { .. } = self.state {
            self.pace.spend(now, bytes);
        }
    }

    /// Until when nothing may go, if it may not; and whether a window begins here. `waits`: something
    /// would go.
    pub(super) fn hold(
        &mut self,
        now: Nanos,
        in_flight: u32,
        waits: bool,
    ) -> (Option<Nanos>, bool) {
        match self.state {
            State::Watching => (None, false),
            State::Test { bound, .. } | State::Measure { bound, .. } => {
                let over = self.since + OVER;
                ((in_flight >= bound && now < over).then_some(over), false)
            }
            State::Drain { until } => {
                if in_flight > 0 && now < until {
                    return (Some(until), false);
                }
                self.go(State::Paced { scale: 64 }, now);
                (self.pace, self.fresh) = (Pace::NONE, Some(Fresh::new(now)));
                self.set_pace(64, now);
                // The last one may have passed just now, and the bucket is in its debt.
                self.pace.spend(now + LATE, self.largest);
                let due = self.pace.due();
                ((due > now).then_some(due), true)
            }
            State::Paced { scale } => {
                if in_flight <= self.usual {
                    self.seen_few = now;
                } else if now.since(self.seen_few) > self.queued_up {
                    return self.queue_up(scale, now);
                }
                let due = self.pace.due();
                let long = Nanos(self.queued_up.0 * 2);
                if let Some(fresh) = &mut self.fresh
                    && let Some(usual) = fresh.pass(now, in_flight, waits && due > now, long)
                {
                    let usual = usual.saturating_mul(self.patience);
                    self.usual = usual.clamp(1, self.usual_most);
                    (self.fresh, self.seen_few) = (None, now);
                }
                ((due > now).then_some(due), false)
            }
        }
    }

    fn go(&mut self, state: State, now: Nanos) {
        (self.state, self.since, self.seen_few) = (state, now, now);
    }

    fn set_pace(&mut self, scale: u64, now: Nanos) {
        if let Some(rates) = &self.rates {
            self.pace.set(rates, scale, now);
        }
    }

    /// I/Os queue up: a second that went faster is over, or the cap is another one.
    fn queue_up(&mut self, scale: u64, now: Nanos) -> (Option<Nanos>, bool) {
        if scale > 64 {
            self.probe_at = now + PROBE;
            return self.drain(now);
        }
        let bound = 2 * self.usual + 2;
        self.go(State::Measure { bound, second: 1 }, now);
        (None, true)
    }

    fn drain(&mut self, now: Nanos) -> (Option<Nanos>, bool) {
        let until = now + DRAIN;
        self.usual = self.usual_most;
        self.go(State::Drain { until }, now);
        (Some(until), true)
    }

    /// A window is over. Returns whether the next one begins anew, for something else begins.
    pub(super) fn window(&mut self, window: &Window) -> bool {
        let (now, at) = (window.end, Point::of(window));
        self.largest = window.largest as u32;
        match self.state {
            State::Watching => self.watched(window, at),
            State::Test {
                at: before, rates, ..
            } => {
                self.tested(window, at, before, rates);
                true
            }
            State::Drain { .. } => false,
            State::Measure { bound, second } => {
                if window.ios < IOS {
                    self.forget(now);
                    return true;
                }
                if let Some(rates) = &mut self.rates {
                    let mut after = *rates;
                    let found = after.measured_after(self.before, at, window.largest);
                    if found == Found::Over && second < USED_UP {
                        let second = second + 1;
                        self.go(State::Measure { bound, second }, now);
                        return true;
                    }
                    *rates = after;
                    self.before = None;
                    match found {
                        // So many in flight are needed: it holds nothing back.
                        Found::Same if self.usual >= self.usual_most => {
                            self.test_later(now);
                            return true;
                        }
                        Found::Same => self.patience *= 2,
                        Found::More => {}
                        Found::Over | Found::Other => {
                            self.forget(now);
                            return true;
                        }
                    }
                }
                self.drain(now);
                true
            }
            State::Paced { scale } => {
                self.paced(window, at, scale);
                false
            }
        }
    }

    /// Does a second look capped? Then so it does three times, or begins to.
    fn watched(&mut self, window: &Window, at: Point) -> bool {
        let more = self.can_do_more(window, at);
        let full = window.thin.0 * 20 <= window.len.0;
        if !full || !more || window.failed || window.ios < IOS {
            self.row = 0;
            return false;
        }
        self.seconds.rotate_left(1);
        self.seconds[SECONDS - 1] = Second {
            at,
            largest: window.largest,
            len: window.len,
            in_flight: window.depth_milli / 1000,
        };
        self.row += 1;
        if self.row < SECONDS || window.end < self.test_at {
            return false;
        }
        let Some(rates) = self.pinned() else {
            return false;
        };
        let fewest = self.seconds.iter().map(|s| s.in_flight).min().unwrap_or(2);
        let bound = (fewest / 2).max(1) as u32;
        let at = rates.reach;
        self.go(State::Test { bound, at, rates }, window.end);
        true
    }

    /// Whether the device can do more than this, and still each I/O took longer than it would then.
    fn can_do_more(&mut self, window: &Window, at: Point) -> bool {
        // By Little's law, in picoseconds.
        let took = window.depth_milli as u128 * window.len.0 as u128 / window.ios.max(1) as u128;
        let (before, took_before) = self.earlier[window.pattern];
        if at.ios > before {
            self.earlier[window.pattern] = (at.ios, took);
        }
        match window.expected {
            Some((_, most)) => {
                let saturated = most * window.enough as f64 * 1000.0 / window.ios.max(1) as f64;
                most <= CAN_DO_MORE * window.len.0 as f64 && took as f64 > saturated
            }
            None => before as u128 * 4 >= at.ios as u128 * 5 && took > took_before,
        }
    }

    /// What stayed the same over the last seconds, but for an I/O at either end of each.
    fn pinned(&self) -> Option<Rates> {
        let all = &self.seconds;
        let largest = all.iter().map(|s| s.largest).max().unwrap_or(0);
        let len = all.iter().map(|s| s.len.0).min().unwrap_or(1).max(1);
        let per_s = |units: u64| units as u128 * Nanos::SECOND.0 as u128 / len as u128;
        let stays = |of: fn(&Point) -> u64, one: u64| {
            let rates = || all.iter().map(|s| of(&s.at) as u128);
            let (least, most) = (rates().min().unwrap_or(0), rates().max().unwrap_or(0));
            most - least <= most / 33 + per_s(one)
        };
        let (ios, bytes) = (stays(|at| at.ios, 1000), stays(|at| at.bytes, largest));
        let mean = |of: fn(&Point) -> u64| {
            let sum: u128 = all.iter().map(|s| of(&s.at) as u128).sum();
            (sum / SECONDS as u128) as u64
        };
        let at = Point {
            ios: mean(|at| at.ios),
            bytes: mean(|at| at.bytes),
        };
        (ios || bytes).then(|| Rates::pinned(at, ios, bytes))
    }

    /// Half as many were in flight.
    fn tested(&mut self, window: &Window, at: Point, before: Point, rates: Rates) {
        let now = window.end;
        self.row = 0;
        let held = (rates.ios.is_some() && reaches(at.ios, before.ios))
            || (rates.bytes.is_some() && reaches(at.bytes, before.bytes));
        if !held {
            return self.test_later(now);
        }
        let State::Test { bound, .. } = self.state else {
            return;
        };
        self.keep(now, rates, bound);
    }

    /// There is no cap, or none that can be kept: for a while it is not looked for.
    fn test_later(&mut self, now: Nanos) {
        self.test_at = now + self.test_pause;
        self.test_pause = (self.test_pause + self.test_pause).min(TEST_MOST);
        self.forget(now);
    }

    fn forget(&mut self, now: Nanos) {
        (self.rates, self.before, self.row) = (None, None, 0);
        self.go(State::Watching, now);
    }

    /// A second at the cap's pace, or faster.
    fn paced(&mut self, window: &Window, at: Point, scale: u64) {
        let now = window.end;
        let Some(mut rates) = self.rates else { return };
        let limit = AT_ITS_LIMIT * window.len.0 as f64;
        let at_its_limit = window.expected.is_some_and(|(least, _)| least >= limit);
        if at_its_limit || now.since(self.used) > FORGET {
            return self.forget(now);
        }
        let in_the_way = window.held.0 * 10 >= window.len.0;
        let whole = now.since(self.since) >= window.len;
        if in_the_way {
            self.used = now;
        }
        if scale == 64 {
            rates.narrow(at);
            if whole && window.ios > 0 {
                let gap = Nanos(window.len.0 / window.ios);
                self.queued_up = QUEUED_UP.max(Nanos(gap.0 * 4)).min(OVER);
            }
            let probe = in_the_way && now >= self.probe_at;
            self.rates = Some(rates);
            let scale = if probe {
                STEPS[self.probes % STEPS.len()]
            } else {
                64
            };
            if probe {
                self.probes += 1;
                self.probed = now;
            }
            self.go_at(scale, now);
            return;
        }
        // Half of what it was to be faster by.
        let more = |rate: u64, cap: Option<u64>| {
            cap.is_some_and(|cap| rate as u128 * 128 > cap as u128 * (64 + scale) as u128)
        };
        let passed = more(at.ios, rates.ios) || more(at.bytes, rates.bytes);
        if passed && self.before.is_none() && !self.outlasts(now, scale) {
            return;
        }
        if passed {
            self.before.get_or_insert(rates);
            rates.raise(at);
            self.rates = Some(rates);
            self.go_at(STEPS[STEPS.len() - 1], now);
        } else {
            self.probe_at = now + PROBE;
            self.go_at(64, now);
        }
    }

    /// Whether going faster has lasted for longer than by what the pace, just below the cap, has left
    /// in the bucket since that was empty. In seconds, rounded against it.
    fn outlasts(&self, now: Nanos, scale: u64) -> bool {
        let seconds = |time: Nanos| time.0 / Nanos::SECOND.0;
        let saved = (64 - PACE) * (seconds(self.probed.since(self.since)) + 1);
        let more = (scale * PACE / 64).saturating_sub(64);
        more * seconds(now.since(self.probed)) > saved
    }

    /// Goes on at a pace. What is in flight stays, and so does what is known of it.
    fn go_at(&mut self, scale: u64, now: Nanos) {
        self.set_pace(scale, now);
        self.state = State::Paced { scale };
    }
}
