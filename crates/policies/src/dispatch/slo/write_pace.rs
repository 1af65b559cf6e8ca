//! Pace of writes by share on flash, while promised I/Os are late beside them.
//!
//! A flash disk answers a write once it is in its buffer, in some 20 us, and programs it later. So
//! no queue depth bounds what its dies have to do: beside two writers at depth 1, reads wait behind
//! 20 ms of programs, and reads that wait there leave no place for promised writes. What bounds it
//! is the rate at which writes are sent:
//!
//! ```text
//!   a promised I/O is late --> rate = 3/4 of what was written, or 7/8 where a pace held for 5 s,
//!                              at least half of the most; and a pause as long as the I/O took, for
//!                              the backlog to go
//!   a window that filled the rate, with promised I/Os in time
//!                          --> a little more; fast up to nine tenths of the rate before the cut,
//!                              then slowly, the slower the more often that rate was too high
//!   cuts in vain           --> the least rate is halved, twice; then all go for 5 to 80 s
//! ```
//!
//! - **Late** is a request of a floor after three quarters of the time by which it is judged: its
//!   deadline and the device's blocking time. A floor is kept in a second in which one request is
//!   late, so one a second does not count where there are many. A latency bound may be exceeded by
//!   one request in a hundred, so one in two hundred counts as late.
//! - **By share.** What is promised is not paced. When the turn is a paced write's, other I/Os by
//!   share wait with it, so that shares stay as the weights have them.
//! - **Only where writes may be the cause:** they are at least a sixteenth of all bytes.
//! - Nothing is paced on a device without promises, and no longer than some 5 s after the last
//!   promised I/O.
//!
//! Linux' io.cost and io.latency bound depths and rates of all I/O by the latencies of all; here
//! the cause is writes and the measure is what was promised.

use tidegate_base::request::IoId;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;

/// Length of a window over which the rate of writes is measured and raised.
const WINDOW: Nanos = Nanos::from_millis(50);
/// Longest pause after a cut: a consumer drive's buffer takes about as long to be programmed.
const PAUSE_MAX: Nanos = Nanos::from_millis(20);
/// Time after the pause of a cut in which I/Os that are late count for no other one: they were sent
/// before it.
const SETTLE: Nanos = Nanos::from_millis(30);
/// Time beyond its deadline that a request of a floor may take, where no profile says it: the time
/// in which the device moves this many bytes at its best so far, within bounds. The drives of the
/// catalogue answer reads beside writes within that time.
const SLACK_BYTES: u64 = 5 << 20;
const SLACK_MIN: Nanos = Nanos(2_500_000);
const SLACK_MAX: Nanos = Nanos::from_millis(8);
/// Time for which unused rate is saved up.
const SAVED_MAX: Nanos = Nanos(500_000);
/// Promised I/Os in flight that are watched.
const WATCHED_IOS: usize = 256;
/// Bytes that count for a shorter write, which takes a whole unit of the drive's mapping.
const WRITE_MIN: u32 = 4 << 10;
/// Reciprocal of the part of all bytes from which on writes by share may be why reads are late.
const BYTES_PER_WRITTEN: u64 = 16;
/// Eighths of the measured rate that are left after a cut.
const CUT_EIGHTHS: u64 = 6;
/// Eighths that are left after the first cut of a pace for [`CALM_MIN`], which may be due to a
/// single stall of the device.
const FIRST_CUT_EIGHTHS: u64 = 7;
/// Time without a cut after which a pace counts as found.
const CALM_MIN: Nanos = Nanos::from_millis(5_000);
/// Windows with writes before the first cut: while depth and guests begin, the most that is written
/// says little.
const MEASURED_MIN: u32 = 10;
/// Cuts in a row at the least rate after which it is halved, and the number of times that it is.
/// After that, writes are not what makes promised I/Os late.
const CUTS_IN_VAIN: u32 = 10;
const LEVEL_MAX: u32 = 2;
/// Time for which nothing is paced then: at first, and at most.
const REST_MIN: Nanos = Nanos::from_millis(5_000);
const REST_MAX: Nanos = Nanos::from_millis(80_000);
/// Reciprocals of the part of the rate before the last cut by which the rate is raised in a window:
/// below nine tenths of it, above it at first, and where nothing promised has ended.
const RAISE_BELOW: u64 = 50;
const RAISE_ABOVE: u64 = 200;
const CAUTION_MAX: u32 = 5;
const RAISE_UNPROMISED: u64 = 100;
/// Reciprocal of the growth of a raise from window to window: twice as much in a second.
const RAISE_GROWTH: u64 = 28;
/// Reciprocal of the share of a window's promised I/Os that may take more than half of their time
/// while the rate is raised.
const IOS_PER_SLOW_ONE: u32 = 100;
/// Reciprocal of the share of I/Os with a latency bound that may exceed it before the rate is cut.
const IOS_PER_LATE_ONE: u32 = 200;
/// Windows in a period, after which counts of promised I/Os are halved.
const WINDOWS_PER_PERIOD: u32 = 20;
/// Requests of floors, counted as above, from which on a single one of a period may be late without
/// a cut: a floor is kept in a second in which all but one were in time.
const FLOOR_IOS_PER_LATE_ONE: u32 = 1000;
/// Lateness from which on no request is excused, as where promises are judged.
const EXCUSED_MAX: Nanos = Nanos::from_millis(100);

/// Promised I/O in flight.
#[derive(Clone, Copy, Debug)]
struct Watched {
    io: IoId,
    started: Nanos,
    /// Times from which on it is slow, late as a request of a floor, and beyond its latency bound;
    /// the end of time where it has none.
    slow: Nanos,
    late: Nanos,
    exceeds: Nanos,
}

/// Counts of a window.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    /// Bytes of all I/Os, and of writes by share.
    bytes: u64,
    written: u64,
    /// A write waited for the pace.
    is_held: bool,
    /// Promised I/Os that ended, and those that took more than half of their time.
    ended: u32,
    slow: u32,
}

/// Promised I/Os that ended lately, and those that were late.
#[derive(Clone, Copy, Default, Debug)]
struct Lateness {
    ended: u32,
    late: u32,
}

impl Lateness {
    /// Counts an I/O that ended.
    fn count(&mut self, is_late: bool) {
        self.ended += 1;
        self.late += u32::from(is_late);
    }

    fn halve(&mut self) {
        self.ended /= 2;
        self.late /= 2;
    }
}

/// Pace of writes by share; see the [module](self).
#[derive(Debug)]
pub(super) struct WritePace {
    /// Bytes a window that writes by share may have; `None`: any.
    rate: Option<u64>,
    /// Rate before the last cut.
    before_cut: u64,
    /// Bytes by which the rate is raised next above `before_cut`.
    raise: u64,
    /// Binary logarithm of what divides the first raise, since the same rate was too high before.
    caution: u32,
    /// Most bytes written in a window.
    most: u64,
    /// Most bytes of all I/Os in a window.
    most_moved: u64,
    /// Number of windows from which `most` comes.
    measured: u32,
    /// Cuts in a row at the least rate.
    in_vain: u32,
    /// Number of times by which the least rate was halved, because a higher one was in vain.
    level: u32,
    /// Time until which nothing is paced, and how long the next such rest is.
    rest_until: Nanos,
    rest: Nanos,
    /// Time at which the next write by share may go.
    next: Nanos,
    /// Time until which I/Os that are late change nothing.
    settle_until: Nanos,
    window_end: Nanos,
    window: Window,
    /// The window before, if it was a whole one.
    before: Window,
    /// I/Os of floors, and I/Os with a latency bound.
    floors: Lateness,
    bounds: Lateness,
    /// Number of windows since these counts were halved.
    windows: u32,
    /// Time that a request of a floor may take beyond its deadline, if the profile says it.
    known_slack: Option<Nanos>,
    /// Number of `watched` that are in use.
    watching: u32,
    /// Promised I/Os in flight, by their index modulo the length.
    watched: Box<[Option<Watched>]>,
}

impl WritePace {
    /// Creates a pace that holds nothing back.
    pub(super) fn new() -> WritePace {
        WritePace {
            rate: None,
            before_cut: 0,
            raise: 0,
            caution: 0,
            most: 0,
            most_moved: 0,
            measured: 0,
            in_vain: 0,
            level: 0,
            rest_until: Nanos::ZERO,
            rest: REST_MIN,
            next: Nanos::ZERO,
            settle_until: Nanos::ZERO,
            window_end: Nanos::ZERO,
            window: Window::default(),
            before: Window::default(),
            floors: Lateness::default(),
            bounds: Lateness::default(),
            windows: 0,
            known_slack: None,
            watching: 0,
            watched: vec![None; WATCHED_IOS].into(),
        }
    }

    /// Takes over a device's profile: how long a read takes beside writes.
    pub(super) fn set_profile(&mut self, profile: Option<&Profile>) {
        self.known_slack = profile.and_then(Profile::blocking_time);
    }

    /// Returns the time beyond its deadline that a request of a floor may take.
    fn slack(&self) -> Nanos {
        let moved_in = |bytes: u64| Nanos(SLACK_BYTES * WINDOW.0 / bytes.max(1));
        let by_pace = || moved_in(self.most_moved).clamp(SLACK_MIN, SLACK_MAX);
        self.known_slack.unwrap_or_else(by_pace)
    }

    /// Returns the rate that writes by share are held to, in bytes a second; `None`: they are not.
    pub(super) fn bytes_per_s(&self) -> Option<u64> {
        self.rate.map(|rate| rate * (Nanos::SECOND.0 / WINDOW.0))
    }

    /// Returns the time until which a write by share waits, if it does.
    #[inline]
    pub(super) fn held_until(&mut self, now: Nanos) -> Option<Nanos> {
        self.rate?;
        self.poll_window(now);
        let is_held = self.rate.is_some() && self.next > now;
        self.window.is_held |= is_held;
        is_held.then_some(self.next)
    }

    /// Counts an I/O that goes; `by_share`: it is a write that goes by share.
    #[inline]
    pub(super) fn started(&mut self, now: Nanos, len: u32, by_share: bool) {
        if by_share {
            self.wrote(now, len);
        }
        self.window.bytes += u64::from(len);
    }

    /// Counts a write by share, and computes from its length when the next one may go.
    #[inline(never)]
    fn wrote(&mut self, now: Nanos, len: u32) {
        self.poll_window(now);
        let bytes = u64::from(len.max(WRITE_MIN));
        self.window.written += bytes;
        if let Some(rate) = self.rate {
            let span = u128::from(bytes) * u128::from(WINDOW.0) / u128::from(rate.max(1));
            let span = Nanos(u64::try_from(span).unwrap_or(u64::MAX)).min(WINDOW);
            self.next = self.next.max(now - SAVED_MAX) + span;
        }
    }

    /// Returns whether writes by share went lately, so that promised I/Os are to be watched.
    #[inline]
    pub(super) fn is_written_lately(&self) -> bool {
        self.window.written | self.before.written > 0
    }

    /// Watches a promised I/O. `since`: time from which its promise counts; `floor`: time after
    /// which a request of a floor is to go, if it is one; `latency`: its latency bound, or
    /// [`Nanos::MAX`].
    pub(super) fn watch(
        &mut self,
        now: Nanos,
        io: IoId,
        since: Nanos,
        (floor, latency): (Option<Nanos>, Nanos),
    ) {
        let by_floor = floor.map_or(Nanos::MAX, |span| span + self.slack());
        let watched = Watched {
            io,
            started: now,
            slow: since + Nanos((by_floor.0 / 2).min(latency.0 / 8 * 7)),
            late: floor.map_or(Nanos::MAX, |_| since + Nanos(by_floor.0 / 4 * 3)),
            exceeds: since + latency,
        };
        let place = &mut self.watched[io.index as usize % WATCHED_IOS];
        self.watching += u32::from(place.is_none());
        *place = Some(watched);
    }

    /// Records the end of an I/O.
    #[inline]
    pub(super) fn ended(&mut self, now: Nanos, io: IoId) {
        if self.watching > 0 {
            self.end_watched(now, io);
        }
    }

    #[inline(never)]
    fn end_watched(&mut self, now: Nanos, io: IoId) {
        let place = &mut self.watched[io.index as usize % WATCHED_IOS];
        let Some(watched) = place.take_if(|watched| watched.io == io) else {
            return;
        };
        self.watching -= 1;
        self.poll_window(now);
        self.window.ended += 1;
        self.window.slow += u32::from(now > watched.slow);
        let mut is_late = now > watched.late;
        if watched.late != Nanos::MAX {
            self.floors.count(is_late);
            is_late &= self.floors.late > 1
                || self.floors.ended < FLOOR_IOS_PER_LATE_ONE
                || now.since(watched.late) >= EXCUSED_MAX;
        }
        if watched.exceeds != Nanos::MAX {
            let exceeds = now > watched.exceeds;
            self.bounds.count(exceeds);
            is_late |= exceeds && self.bounds.late * IOS_PER_LATE_ONE > self.bounds.ended;
        }
        if is_late && now >= self.settle_until.max(self.rest_until) {
            self.cut(now, now.since(watched.started));
        }
    }

    /// Lowers the rate because a promised I/O that took `took` at the device was nearly late.
    #[cold]
    fn cut(&mut self, now: Nanos, took: Nanos) {
        let busier = self.window.written > self.before.written;
        let Window { bytes, written, .. } = if busier { self.window } else { self.before };
        if self.measured < MEASURED_MIN || written < bytes / BYTES_PER_WRITTEN {
            return;
        }
        let rate = self.rate.unwrap_or(u64::MAX).min(written);
        let least = self.most >> (1 + self.level);
        if rate <= least + least / 16 {
            self.in_vain += 1;
            if self.in_vain >= CUTS_IN_VAIN {
                self.in_vain = 0;
                self.level += 1;
            }
            if self.level > LEVEL_MAX {
                self.give_up(now);
                return;
            }
        }
        let is_same = rate.abs_diff(self.before_cut) < rate / 6;
        self.caution = if is_same {
            (self.caution + 1).min(CAUTION_MAX)
        } else {
            self.caution / 2
        };
        self.before_cut = rate;
        self.raise = ((rate / RAISE_ABOVE) >> self.caution) + 1;
        let is_calm = self.rate.is_some() && now.since(self.settle_until) > CALM_MIN;
        let left = if is_calm {
            FIRST_CUT_EIGHTHS
        } else {
            CUT_EIGHTHS
        };
        self.rate = Some((rate / 8 * left).max(least).max(1));
        let pause = took.min(PAUSE_MAX);
        self.next = self.next.max(now + pause);
        self.settle_until = now + pause + SETTLE;
    }

    /// Lets all writes go for some time: promised I/Os are late for another reason, or the device
    /// has become so much slower that its rate is to be measured anew.
    fn give_up(&mut self, now: Nanos) {
        self.rate = None;
        (self.most, self.measured) = (0, 0);
        self.level = 0;
        self.rest_until = now + self.rest;
        self.rest = (self.rest + self.rest).min(REST_MAX);
    }

    /// Closes the window if it is over.
    #[inline]
    fn poll_window(&mut self, now: Nanos) {
        if now >= self.window_end {
            self.close(now);
        }
    }

    #[cold]
    fn close(&mut self, now: Nanos) {
        let is_whole = now.since(self.window_end) < WINDOW;
        if let Some(rate) = self.rate {
            self.rate = self.raised(rate);
        }
        if is_whole {
            self.most_moved = self.most_moved.max(self.window.bytes);
        }
        if is_whole && self.window.written > 0 {
            self.most = self.most.max(self.window.written);
            self.measured = self.measured.saturating_add(1);
        }
        self.before = if is_whole {
            self.window
        } else {
            Window::default()
        };
        self.window = Window::default();
        self.window_end = now + WINDOW;
        self.windows += 1;
        if self.windows >= WINDOWS_PER_PERIOD {
            self.windows = 0;
            self.floors.halve();
            // Each period has its own excuse, whatever was late in the one before.
            self.floors.late = 0;
            self.bounds.halve();
        }
    }

    /// Returns the rate of the next window after one with `rate` that has ended.
    fn raised(&mut self, rate: u64) -> Option<u64> {
        let Window {
            written,
            is_held,
            ended,
            slow,
            ..
        } = self.window;
        // Writers that want less than the rate do not show that more is harmless.
        let is_used = is_held && written >= rate / 4 * 3;
        if slow.saturating_mul(IOS_PER_SLOW_ONE) > ended || !(is_used || ended == 0) {
            return Some(rate);
        }
        let raise = if ended == 0 {
            self.before_cut / RAISE_UNPROMISED
        } else if rate < self.before_cut / 10 * 9 {
            self.before_cut / RAISE_BELOW
        } else {
            self.in_vain = 0;
            self.raise += self.raise / (RAISE_GROWTH << self.caution) + 1;
            self.raise.min(self.before_cut / RAISE_BELOW)
        };
        let raised = rate.saturating_add(raise + 1);
        // Nothing was promised lately.
        let is_over = ended == 0 && raised > 2 * self.before_cut;
        if is_over {
            (self.most, self.measured) = (0, 0);
            self.level = 0;
        }
        (!is_over).then_some(raised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    /// Flash disk on which others write 64 KiB every half millisecond, as far as the pace lets
    /// them, while a promised read of 100 a second is answered every 10 ms.
    struct Host {
        pace: WritePace,
        now: Nanos,
        reads: u32,
    }

    impl Host {
        fn new() -> Host {
            Host {
                pace: WritePace::new(),
                now: Nanos::ZERO,
                reads: 0,
            }
        }

        /// Passes some time with promised reads that take `took`, or none, and writes of `len`
        /// bytes; returns the bytes written in it.
        fn pass(&mut self, span: Nanos, took: Option<Nanos>, len: u32) -> u64 {
            let (until, mut written) = (self.now + span, 0);
            while self.now < until {
                self.now += Nanos(500_000);
                if self.pace.held_until(self.now).is_none() {
                    self.pace.started(self.now, len, true);
                    written += u64::from(len);
                }
                if let Some(took) = took
                    && self.now.0.is_multiple_of(10_000_000)
                {
                    self.read(took, Nanos::MAX);
                }
            }
            written
        }

        /// Starts and ends a promised read.
        fn read(&mut self, took: Nanos, latency: Nanos) {
            self.reads += 1;
            let io = IoId {
                index: self.reads,
                generation: 0,
            };
            let times = (Some(Nanos::from_millis(1)), latency);
            self.pace.started(self.now, 4 << 10, false);
            (self.pace).watch(self.now, io, self.now, times);
            self.pace.ended(self.now + took, io);
        }
    }

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    const LEN: u32 = 64 << 10;

    #[test]
    fn writes_are_paced_only_while_promised_ios_are_late() {
        let mut host = Host::new();
        let all = host.pass(Nanos::SECOND, Some(ms(1)), LEN);
        assert_eq!(all, 2000 * u64::from(LEN), "nothing is late");
        // The device moves 131 MB/s, so floors have the most time there is: 8 ms, and the spacing.
        host.read(ms(8), Nanos::MAX);
        let paced = host.pass(ms(100), Some(ms(1)), LEN);
        assert!(paced < all / 10 * 8 / 10, "{paced} of {}", all / 10);
        // In time again, with nine tenths of the rate soon and all of it after some seconds.
        host.pass(ms(1000), Some(ms(1)), LEN);
        let later = host.pass(ms(1000), Some(ms(1)), LEN);
        assert!(later > all / 10 * 8 && later < all, "{later} of {all}");
        host.pass(Nanos(60 * Nanos::SECOND.0), Some(ms(1)), LEN);
        assert_eq!(host.pass(ms(1000), Some(ms(1)), LEN), all);
    }

    /// Passes a second with 2,000 promised reads, of which `late` take 8 ms.
    fn busy_second(host: &mut Host, late: u32) {
        for nr in 0..1000 {
            host.pass(ms(1), None, LEN);
            host.read(if nr < late { ms(8) } else { ms(1) }, Nanos::MAX);
            host.read(ms(1), Nanos::MAX);
        }
    }

    #[test]
    fn one_late_request_a_second_of_many_changes_nothing() {
        let mut host = Host::new();
        busy_second(&mut host, 0);
        for _ in 0..10 {
            busy_second(&mut host, 1);
        }
        assert_eq!(host.pace.rate, None);
        busy_second(&mut host, 2);
        assert!(host.pace.rate.is_some());
        // A bad second takes no later one's excuse.
        busy_second(&mut host, 0);
        let before_cut = host.pace.before_cut;
        for _ in 0..10 {
            busy_second(&mut host, 1);
        }
        assert_eq!(host.pace.before_cut, before_cut);
        host.read(ms(120), Nanos::MAX);
        assert_ne!(host.pace.before_cut, before_cut, "nobody waits that long");
    }

    #[test]
    fn a_cut_after_calm_seconds_takes_less_than_one_that_follows_another() {
        let mut host = Host::new();
        host.pass(Nanos::SECOND, Some(ms(1)), LEN);
        let mut cut = |calm: Nanos| {
            host.pass(calm, Some(ms(1)), LEN);
            host.read(ms(8), Nanos::MAX);
            let rate = host.pace.rate.expect("it was late");
            rate * 100 / host.pace.before_cut
        };
        // In per cent of the rate before. Nothing was paced before the first cut.
        assert!((74..=75).contains(&cut(ms(0))));
        assert!((74..=75).contains(&cut(ms(1000))));
        assert!((86..=87).contains(&cut(ms(6000))));
    }

    #[test]
    fn the_pace_ends_where_nothing_is_promised_any_more() {
        let mut host = Host::new();
        host.pass(Nanos::SECOND, Some(ms(1)), LEN);
        host.pass(ms(100), Some(ms(8)), LEN);
        assert!(host.pace.rate.is_some());
        host.pass(Nanos(10 * Nanos::SECOND.0), None, LEN);
        assert_eq!(host.pace.rate, None);
    }

    #[test]
    fn a_few_writes_are_not_why_reads_are_late() {
        let mut host = Host::new();
        for _ in 0..200 {
            host.pass(ms(10), Some(ms(8)), 4 << 10);
            // Reads of others, 50 times as many bytes.
            host.pace.started(host.now, 4 * MIB, false);
        }
        assert_eq!(host.pace.rate, None);
    }

    #[test]
    fn a_latency_bound_may_be_exceeded_by_one_in_two_hundred() {
        let mut host = Host::new();
        let mut reads = |late_each: u32| {
            for nr in 1..=1000 {
                host.pass(ms(1), None, LEN);
                let late = nr % late_each == 0;
                host.read(if late { ms(3) } else { ms(1) }, ms(2));
            }
            host.pace.rate
        };
        assert_eq!(reads(250), None);
        assert!(reads(100).is_some());
    }

    #[test]
    fn a_pace_that_does_not_help_is_given_up_and_tried_again_later() {
        let mut host = Host::new();
        let mut written = Vec::new();
        for _ in 0..120 {
            written.push(host.pass(ms(100), Some(ms(8)), LEN));
        }
        let all = 200 * u64::from(LEN);
        let least = *written.iter().min().expect("there are windows");
        assert!(least > 0 && least < all / 2, "{least} of {all}");
        // Some seconds at the least rates, five with all, then paced again.
        let free = written.iter().filter(|&&it| it == all).count();
        assert!(
            free >= 50,
            "{free} of 120 tenths of a second without a pace"
        );
        assert!(host.pace.rest > REST_MIN);
    }
}
