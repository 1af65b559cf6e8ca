//! Rate of background processes: what VMs do not miss.
//!
//! ```text
//!   VMs quiet for long enough:   the background has the device
//!   else one I/O in flight, a part of at most 1 ms of the device's time, and a rate:
//!
//!   windows of 100 ms    | without | with | with | with | without | with | ...
//!                             |       |
//!                             +--> did VMs have 3 % less, or was a promise late?
//!                                  yes: half the rate      no: 1 % of the device more
//! ```
//!
//! - The rate is in the device's time. Where costs are not known in time, the most that was done
//!   in a window so far stands for all of it.
//! - A window in which nothing of the background waited says nothing.
//! - Whatever the rate, one part goes every [`AT_LEAST`].

use tidegate_base::time::Nanos;

/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(100);
/// One window in so many is without the background, to compare with.
const CYCLE: u32 = 4;
/// Least rate and step of a rate, in millionths of the device's time (SLO.md, "Background").
const LEAST_RATE: u64 = 10_000;
const RAISE: u64 = 10_000;
const WHOLE: u64 = 1_000_000;
/// What VMs may lose of their work in a window, in millionths.
const MAY_LOSE: u64 = 30_000;
/// Longest pause of a background process with something to do.
const AT_LEAST: Nanos = Nanos::from_millis(500);
/// How long VMs are quiet at least before the background has the device to itself.
const QUIET_LEAST: Nanos = Nanos::from_millis(2);
/// No guest that takes longer is waited for.
const QUIET_MOST: Nanos = Nanos::from_millis(50);
/// I/Os of the background in flight while VMs are quiet.
const DEPTH_ALONE: u32 = 4;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct BackgroundRate {
    /// In millionths of the device's time.
    rate: u64,
    /// When the next part may go by the rate.
    next: Nanos,
    /// When a part went last, or the background began to wait.
    passed_over_since: Nanos,
    in_flight: u32,
    /// When an I/O of a VM went or came back last.
    vms_active: Nanos,
    /// How long VMs that come back usually take; an average that follows long times fast.
    think: Nanos,
    window_end: Nanos,
    /// Number of the window in its cycle; 0: without the background.
    place: u32,
    /// Work of VMs in this window, in units of cost.
    vm_work: u64,
    /// All work in this window.
    all_work: u64,
    /// Work of VMs in a window without the background, smoothed; 0: not seen yet.
    without: u64,
    /// The most that was done in a window so far, which decays by 1/64 a window.
    most: u64,
    /// The background wanted something in this window.
    wanted: bool,
    /// A promise was late in this window.
    late: bool,
}

impl BackgroundRate {
    /// Creates the rate of a device on which nothing has been seen yet.
    pub(super) fn new() -> BackgroundRate {
        BackgroundRate {
            rate: LEAST_RATE,
            next: Nanos::ZERO,
            passed_over_since: Nanos::ZERO,
            in_flight: 0,
            vms_active: Nanos::ZERO,
            think: Nanos::ZERO,
            window_end: Nanos::ZERO,
            place: 0,
            vm_work: 0,
            all_work: 0,
            without: 0,
            most: 0,
            wanted: false,
            late: false,
        }
    }

    /// The unit of costs is another one.
    pub(super) fn restart(&mut self) {
        *self = BackgroundRate {
            in_flight: self.in_flight,
            passed_over_since: self.passed_over_since,
            vms_active: self.vms_active,
            think: self.think,
            ..BackgroundRate::new()
        };
    }

    /// A VM came back after so long.
    pub(super) fn thought(&mut self, time: Nanos) {
        let time = time.min(QUIET_MOST);
        self.think = match time > self.think {
            true => Nanos((self.think.0 + time.0) / 2),
            false => Nanos(self.think.0 - (self.think.0 - time.0) / 16),
        };
    }

    /// The background has something to do after it had nothing.
    pub(super) fn wakes(&mut self, now: Nanos) {
        self.passed_over_since = now;
    }

    /// An I/O of a VM goes.
    #[inline]
    pub(super) fn vm_started(&mut self, now: Nanos, cost: u64) {
        self.vms_active = now;
        self.vm_work += cost;
        self.all_work += cost;
    }

    /// An I/O of a VM came back.
    #[inline]
    pub(super) fn vm_ended(&mut self, now: Nanos) {
        self.vms_active = now;
    }

    /// An I/O of the background goes.
    pub(super) fn started(&mut self, now: Nanos, cost: u64) {
        self.in_flight += 1;
        self.passed_over_since = now;
        self.all_work += cost;
        // A window's work is so much of the device's time as a window is long.
        let whole = u128::from(self.most.max(self.all_work).max(cost));
        let rate = u128::from(self.rate.max(1));
        let span = u128::from(cost) * u128::from(WINDOW.0) * u128::from(WHOLE) / (whole * rate);
        let span = Nanos(u64::try_from(span).unwrap_or(u64::MAX));
        self.next = self.next.max(now - WINDOW) + span;
    }

    /// An I/O of the background was in flight already when this rate took over.
    pub(super) fn inherited(&mut self) {
        self.in_flight += 1;
    }

    /// An I/O of the background came back.
    pub(super) fn ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Notes that a promise is late.
    pub(super) fn promise_late(&mut self) {
        self.late = true;
    }

    /// Closes the window if it is over. To be called while something of the background waits.
    #[inline]
    pub(super) fn look(&mut self, now: Nanos) {
        self.wanted = true;
        if now >= self.window_end {
            self.close(now);
        }
    }

    /// Returns when the window ends.
    pub(super) fn window_end(&self) -> Nanos {
        self.window_end
    }

    /// Returns the I/Os of the background with the device.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[cold]
    fn close(&mut self, now: Nanos) {
        let is_whole = now.since(self.window_end) < WINDOW;
        self.most = (self.most - self.most / 64).max(self.all_work);
        if is_whole {
            self.judge();
        }
        self.place = match self.wanted {
            true => (self.place + 1) % CYCLE,
            false => 0,
        };
        self.window_end = now + WINDOW;
        (self.vm_work, self.all_work) = (0, 0);
        (self.wanted, self.late) = (false, false);
    }

    fn judge(&mut self) {
        if self.place == 0 || !self.wanted {
            self.without = match self.without {
                0 => self.vm_work,
                before => (before + self.vm_work) / 2,
            };
            return;
        }
        let lost = self.without.saturating_sub(self.vm_work);
        let much = u128::from(self.without) * u128::from(MAY_LOSE) / u128::from(WHOLE);
        self.rate = match self.late || u128::from(lost) > much {
            true => (self.rate / 2).max(LEAST_RATE),
            false => (self.rate + RAISE).min(WHOLE),
        };
    }

    /// Returns from when on the device is the background's, if VMs stay quiet.
    fn alone_at(&self) -> Nanos {
        self.vms_active + (self.think + self.think).max(QUIET_LEAST)
    }

    /// Returns when the background may go while no VM waits, as things are; `least`: promises have
    /// stepped down, so it has its least rate. `vms_in_flight`: I/Os of VMs with the device.
    pub(super) fn allowed_at(&self, now: Nanos, vms_in_flight: u32, least: bool) -> Nanos {
        if vms_in_flight > 0 {
            return self.due_at(least);
        }
        let alone = self.alone_at();
        match now >= alone {
            true if self.in_flight < DEPTH_ALONE => now,
            true => Nanos::MAX,
            false => self.due_at(least).min(alone),
        }
    }

    /// Returns when a part may go by the rate, whoever waits.
    pub(super) fn due_at(&self, least: bool) -> Nanos {
        if self.in_flight > 0 {
            return Nanos::MAX;
        }
        match least || self.place == 0 {
            true => self.overdue_at(),
            false => self.next.min(self.overdue_at()),
        }
    }

    /// Returns when a part goes whatever the rate.
    pub(super) fn overdue_at(&self) -> Nanos {
        match self.in_flight {
            0 => self.passed_over_since + AT_LEAST,
            _ => Nanos::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs windows in which VMs do `work(share)`, `share` being the background's part of the
    /// device in the last window; returns the rate after each, in millionths.
    fn rates(windows: u32, work: impl Fn(f64) -> u64) -> Vec<u64> {
        let mut background = BackgroundRate::new();
        let (mut rates, mut now) = (Vec::new(), Nanos::ZERO);
        background.wakes(now);
        for _ in 0..windows {
            let mut share = 0.0;
            for step in 0..100 {
                let at = now + Nanos(step * 1_000_000);
                background.look(at);
                background.vm_started(at, work(share) / 100);
                if background.due_at(false) <= at {
                    background.started(at, 10_000);
                    background.ended();
                    share += 0.01;
                }
            }
            now += WINDOW;
            rates.push(background.rate);
        }
        rates
    }

    #[test]
    fn the_rate_grows_while_vms_miss_nothing() {
        let rates = rates(200, |_| 500_000);
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(rates[199] >= 900_000, "{}", rates[199]);
    }

    #[test]
    fn the_rate_stays_small_where_vms_could_use_the_whole_device() {
        let rates = rates(400, |share| (1_000_000.0 * (1.0 - share)) as u64);
        let tail = &rates[200..];
        let mean = tail.iter().sum::<u64>() / tail.len() as u64;
        assert!(mean <= 60_000, "{mean}");
    }

    #[test]
    fn a_part_goes_every_half_second_whatever_the_rate() {
        let mut background = BackgroundRate::new();
        background.wakes(Nanos::ZERO);
        background.look(Nanos::ZERO);
        assert_eq!(background.due_at(true), AT_LEAST);
        assert_eq!(background.overdue_at(), AT_LEAST);
        background.started(AT_LEAST, 1);
        assert_eq!(background.overdue_at(), Nanos::MAX);
        background.ended();
        assert_eq!(background.overdue_at(), AT_LEAST + AT_LEAST);
    }

    #[test]
    fn quiet_vms_leave_the_device_to_the_background() {
        let mut background = BackgroundRate::new();
        let now = Nanos::from_millis(10);
        background.vm_ended(now);
        background.thought(Nanos::from_millis(4));
        let alone = now + Nanos::from_millis(4);
        assert_eq!(background.alone_at(), alone);
        assert_eq!(background.allowed_at(alone, 0, false), alone);
        assert!(background.allowed_at(alone, 1, true) > alone);
    }
}
