//! Rate of background processes: the device time that VMs do not miss.
//!
//! ```text
//!   VMs quiet for long enough:   the background has the device
//!   else one I/O in flight, a part of at most 1 ms of the device's time, and a rate:
//!
//!   windows of 100 ms    | without | with | with | with | without | with | ...
//!                             |       |
//!                             +--> did VMs have less, or was a promise late?
//!                                  yes: half the rate      no: 1 % of the device more,
//!                                                              or half more until the first yes
//! ```
//!
//! - Until VMs have lost by it for the first time, the rate grows by half: a device with room to
//!   spare is used within two seconds, not ten. VMs with another load begin anew.
//! - VMs' work varies from window to window by itself, and their load changes. So the windows with
//!   the background are compared with the two without it around them, and on average over these
//!   comparisons; a single window counts as lost only beyond what the comparisons vary by.
//! - The rate is in the device's time. Where costs are not in device time, the most work done in a
//!   window so far stands for a whole window.
//! - A window in which no background process waited changes nothing.
//! - One part goes every [`PART_INTERVAL_MAX`], however low the rate.

use super::window_average::WindowAverage;
use tidegate_base::time::Nanos;

/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Windows in a cycle, the first of which is without the background, for comparison.
const CYCLE_WINDOWS: u32 = 4;
/// Least rate and step of a rate, in millionths of the device's time (docs/policies/slo.md,
/// "Order"); [`WHOLE_PPM`] is all of it.
const RATE_MIN_PPM: u64 = 10_000;
const RATE_STEP_PPM: u64 = 10_000;
const WHOLE_PPM: u64 = 1_000_000;
/// Part of VMs' work that a window, or an uncertain average, may lose.
const LOSS_MAX: f64 = 0.03;
/// Part of VMs' work that may be lost on average, which lags behind a rate that grows; more is a
/// loss where it is also beyond chance, by [`MEAN_LOST`] standard errors of the average.
const MEAN_LOSS_MAX: f64 = 0.015;
const MEAN_LOST: f64 = 1.5;
/// Standard deviations of a comparison by which a window has less work than the one without the
/// background before it, if it is a loss at once: two of the difference of two single windows.
const LOST_AT_ONCE: f64 = 3.0;
/// Part that is lost at once before comparisons tell what is chance.
const LOST_UNCOMPARED: f64 = 0.1;
/// Largest part that a comparison counts as lost or gained: a load that changes within it would
/// outweigh all others.
const COUNTED_MAX: f64 = 0.1;
/// Time without a background process after which VMs may have another load.
const REMEMBERED: Nanos = Nanos::SECOND;
/// Picoseconds, in which costs by device time are, in a nanosecond.
const PS_PER_NS: u64 = 1000;
/// Longest time without a background I/O while one waits.
const PART_INTERVAL_MAX: Nanos = Nanos::from_millis(500);
/// Shortest time for which VMs are quiet before the background has the device to itself.
const QUIET_MIN: Nanos = Nanos::from_millis(2);
/// Longest think time for which the device stays free. A guest that thinks longer loses at most the
/// time of a few background I/Os between two of its requests.
const THINK_TIME_MAX: Nanos = Nanos::from_millis(50);
/// Maximum number of background I/Os in flight while VMs are quiet.
const DEPTH_ALONE: u32 = 4;

/// Rate of background processes, adapted so that VMs do not lose by it; see the [module](self).
#[derive(Debug)]
pub(super) struct BackgroundRate {
    /// Present rate in millionths of the device's time.
    rate: u64,
    /// Time at which the next part may go by the rate.
    next: Nanos,
    /// Time at which a part last went, or the background began to wait.
    passed_over_since: Nanos,
    in_flight: u32,
    /// Time at which an I/O of a VM last went or came back.
    vms_active: Nanos,
    /// Think time of VMs: an average that follows longer times fast and shorter ones slowly. Those
    /// above [`THINK_TIME_MAX`] count as none.
    think: Nanos,
    window_end: Nanos,
    /// Number of the window in its cycle; 0: without the background.
    place: u32,
    /// Work of VMs in this window, in units of cost.
    vm_work: u64,
    /// Work of VMs and background in this window, in units of cost.
    all_work: u64,
    /// Work of VMs in windows without the background, to recognise another load.
    vm_work_without: WindowAverage,
    /// Work of VMs in the last window without the background; 0: there was none.
    last_without: u64,
    /// Work of VMs in windows with the background since that one, and their number.
    vm_work_with: u64,
    windows_with: u32,
    /// Parts of VMs' work that were lost by comparison since the rate was last halved.
    loss: WindowAverage,
    /// Largest work done in a window so far, which decays by 1/64 a window.
    window_work_max: u64,
    /// Cost of a whole window of the device's time; 0: costs are not in device time.
    window_cost: u64,
    /// A background process waited in this window.
    wanted: bool,
    /// A promise was late in this window.
    late: bool,
    /// VMs have lost by the background under their present load, so that the rate grows by steps.
    was_lost: bool,
}

impl BackgroundRate {
    /// Creates the rate of a device on which nothing has been seen yet.
    pub(super) fn new() -> BackgroundRate {
        BackgroundRate {
            rate: RATE_MIN_PPM,
            next: Nanos::ZERO,
            passed_over_since: Nanos::ZERO,
            in_flight: 0,
            vms_active: Nanos::ZERO,
            think: Nanos::ZERO,
            window_end: Nanos::ZERO,
            place: 0,
            vm_work: 0,
            all_work: 0,
            vm_work_without: WindowAverage::default(),
            last_without: 0,
            vm_work_with: 0,
            windows_with: 0,
            loss: WindowAverage::default(),
            window_work_max: 0,
            window_cost: 0,
            wanted: false,
            late: false,
            was_lost: false,
        }
    }

    /// Restarts the comparison of work because costs are counted in another unit: `by_time`, in
    /// picoseconds of the device. The rate, a part of the device's time, stays, as do I/Os in
    /// flight and think times.
    pub(super) fn restart(&mut self, by_time: bool) {
        *self = BackgroundRate {
            rate: self.rate,
            in_flight: self.in_flight,
            passed_over_since: self.passed_over_since,
            vms_active: self.vms_active,
            think: self.think,
            window_cost: if by_time { WINDOW.0 * PS_PER_NS } else { 0 },
            ..BackgroundRate::new()
        };
    }

    /// Records that a VM came back after it was quiet for `time`.
    pub(super) fn record_think_time(&mut self, time: Nanos) {
        let time = if time > THINK_TIME_MAX {
            Nanos::ZERO
        } else {
            time
        };
        // Up by a half and down by a sixteenth: a VM that thinks longer is soon given the time.
        self.think = if time > self.think {
            Nanos((self.think.0 + time.0) / 2)
        } else {
            Nanos(self.think.0 - (self.think.0 - time.0) / 16)
        };
    }

    /// Records that a background process waits after none did.
    pub(super) fn begin_wait(&mut self, now: Nanos) {
        self.passed_over_since = now;
        if now.since(self.window_end) > REMEMBERED {
            self.forget_work();
        }
    }

    /// Forgets what VMs did, with and without the background.
    fn forget_work(&mut self) {
        self.vm_work_without = WindowAverage::default();
        self.last_without = 0;
        self.forget_loss();
        self.was_lost = false;
    }

    /// Forgets what VMs lost by the background.
    fn forget_loss(&mut self) {
        (self.vm_work_with, self.windows_with) = (0, 0);
        self.loss = WindowAverage::default();
    }

    /// Records the start of an I/O of a VM, with its cost.
    #[inline]
    pub(super) fn vm_started(&mut self, now: Nanos, cost: u64) {
        self.vms_active = now;
        self.vm_work += cost;
        self.all_work += cost;
    }

    /// Records the end of an I/O of a VM.
    #[inline]
    pub(super) fn vm_ended(&mut self, now: Nanos) {
        self.vms_active = now;
    }

    /// Records the start of a background I/O, and computes from its cost when the next may go.
    pub(super) fn started(&mut self, now: Nanos, cost: u64) {
        self.in_flight += 1;
        self.passed_over_since = now;
        self.all_work += cost;
        // A full window's work takes the length of a window, so a cost stands for its part of
        // `WINDOW`, stretched by the rate.
        // `max(cost)`: nothing may be known yet, and the divisor must not be zero.
        let known = self.window_work_max.max(self.window_cost);
        let whole = u128::from(known.max(self.all_work).max(cost));
        let rate = u128::from(self.rate.max(1));
        let span = u128::from(cost) * u128::from(WINDOW.0) * u128::from(WHOLE_PPM) / (whole * rate);
        let span = Nanos(u64::try_from(span).unwrap_or(u64::MAX));
        // Before a window was seen, the I/O itself would stand for a whole one: 10 s at 1 %.
        let span = match known {
            0 => span.min(WINDOW),
            _ => span,
        };
        // Unused rate is saved up for one window at most.
        self.next = self.next.max(now - WINDOW) + span;
    }

    /// Takes over a background I/O that was in flight before this dispatcher.
    pub(super) fn inherited(&mut self) {
        self.in_flight += 1;
    }

    /// Records the end of a background I/O.
    pub(super) fn ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Records that a promise is late.
    pub(super) fn promise_late(&mut self) {
        self.late = true;
    }

    /// Closes the window if it is over. To be called while a background process waits.
    #[inline]
    pub(super) fn poll_window(&mut self, now: Nanos) {
        self.wanted = true;
        if now >= self.window_end {
            self.close(now);
        }
    }

    /// Returns the end of the current window.
    pub(super) fn window_end(&self) -> Nanos {
        self.window_end
    }

    /// Returns the number of background I/Os in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Ends a window, adapts the rate if the window was a whole one, and begins the next.
    #[cold]
    fn close(&mut self, now: Nanos) {
        // A window that was closed late spans other loads than one of 100 ms, and there is none
        // before the first.
        let is_whole = self.window_end > Nanos::ZERO && now.since(self.window_end) < WINDOW;
        // Decays, so that a device that became slower is not measured by its past for ever.
        self.window_work_max =
            (self.window_work_max - self.window_work_max / 64).max(self.all_work);
        if is_whole {
            self.judge();
        }
        // Without a background process every window is one for comparison.
        self.place = if self.wanted {
            (self.place + 1) % CYCLE_WINDOWS
        } else {
            0
        };
        self.window_end = now + WINDOW;
        (self.vm_work, self.all_work) = (0, 0);
        (self.wanted, self.late) = (false, false);
    }

    /// Compares VMs' work in windows with the background with that in windows without, and halves
    /// or raises the rate.
    fn judge(&mut self) {
        if self.place == 0 || !self.wanted {
            if self.vm_work_without.is_of_another_load(self.vm_work as f64) {
                self.forget_work();
            }
            self.compare();
            return self.vm_work_without.add(self.vm_work as f64);
        }
        self.vm_work_with += self.vm_work;
        self.windows_with += 1;
        if self.late || self.is_work_lost() {
            self.rate = (self.rate / 2).max(RATE_MIN_PPM);
            // Work beside the rate of before says nothing about the one from now on.
            self.forget_loss();
            self.was_lost = true;
        } else if self.loss.is_known() {
            let step = if self.was_lost { 0 } else { self.rate / 2 };
            self.rate = (self.rate + step.max(RATE_STEP_PPM)).min(WHOLE_PPM);
        }
    }

    /// Compares the windows with the background with those without it before and after, the second
    /// of which ends now: a load that grows or falls over them all is no loss. The first windows
    /// have none before.
    fn compare(&mut self) {
        let before = match self.last_without {
            0 => self.vm_work,
            before => before,
        };
        let around = (before as f64 + self.vm_work as f64) / 2.0;
        if self.windows_with > 0 && around > 0.0 {
            let with = self.vm_work_with as f64 / f64::from(self.windows_with);
            let lost = 1.0 - with / around;
            self.loss.add(lost.clamp(-COUNTED_MAX, COUNTED_MAX));
        }
        self.last_without = self.vm_work;
        (self.vm_work_with, self.windows_with) = (0, 0);
    }

    /// Returns whether VMs did less work than without the background, in this window or on average.
    fn is_work_lost(&self) -> bool {
        let loss = &self.loss;
        let at_once = if loss.is_average() {
            (LOST_AT_ONCE * loss.variance().sqrt()).max(LOSS_MAX)
        } else {
            LOST_UNCOMPARED
        };
        let on_average = (MEAN_LOST * loss.standard_error()).clamp(MEAN_LOSS_MAX, LOSS_MAX);
        (self.vm_work as f64) < self.last_without as f64 * (1.0 - at_once)
            || loss.is_average() && loss.mean() > on_average
    }

    /// Returns the time from which the device is the background's, if VMs stay quiet until then.
    fn alone_at(&self) -> Nanos {
        // Twice the mean: a VM that thinks somewhat longer than usual still finds the device free.
        self.vms_active + (self.think + self.think).max(QUIET_MIN)
    }

    /// Returns the time from which a background I/O may go while no VM waits. `vms_in_flight`: I/Os
    /// of VMs with the device. `least`: promises have stepped down, so only [`PART_INTERVAL_MAX`]
    /// counts.
    pub(super) fn allowed_at(&self, now: Nanos, vms_in_flight: u32, least: bool) -> Nanos {
        if vms_in_flight > 0 {
            return self.due_at(least);
        }
        let alone = self.alone_at();
        if now < alone {
            self.due_at(least).min(alone)
        } else if self.in_flight < DEPTH_ALONE {
            now
        } else {
            // The end of a background I/O is an event, after which the engine asks again.
            Nanos::MAX
        }
    }

    /// Returns the time from which a part may go by the rate, while VMs wait or have I/Os in
    /// flight.
    pub(super) fn due_at(&self, least: bool) -> Nanos {
        if self.in_flight > 0 {
            return Nanos::MAX;
        }
        if least || self.place == 0 {
            self.overdue_at()
        } else {
            self.next.min(self.overdue_at())
        }
    }

    /// Returns the time at which a part goes however low the rate.
    pub(super) fn overdue_at(&self) -> Nanos {
        match self.in_flight {
            0 => self.passed_over_since + PART_INTERVAL_MAX,
            _ => Nanos::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs windows in which VMs do `work(window, share)`, `share` being the background's part of
    /// the device so far in the window; returns the rate after each, in millionths.
    fn rates(windows: u64, work: impl Fn(u64, f64) -> u64) -> Vec<u64> {
        let mut background = BackgroundRate::new();
        let (mut rates, mut now) = (Vec::new(), Nanos::ZERO);
        background.begin_wait(now);
        for window in 0..windows {
            let mut share = 0.0;
            for step in 0..100 {
                let at = now + Nanos(step * 1_000_000);
                background.poll_window(at);
                background.vm_started(at, work(window, share) / 100);
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
        let rates = rates(200, |_, _| 500_000);
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(rates[199] >= 900_000, "{}", rates[199]);
    }

    #[test]
    fn a_device_with_room_to_spare_is_the_backgrounds_within_two_seconds() {
        let rates = rates(20, |_, _| 100_000);
        assert!(rates[19] >= 900_000, "{rates:?}");
    }

    #[test]
    fn once_vms_lost_by_it_the_rate_grows_by_steps() {
        // Less than 10 %, so no other load, which would begin anew.
        let rates = rates(120, |window, _| match window {
            40..43 => 500_000,
            _ => 540_000,
        });
        let largest = *rates[..40].iter().max().expect("windows");
        let halved = rates[40..].iter().position(|&rate| rate < largest);
        let halved = 40 + halved.unwrap_or_else(|| panic!("{rates:?}"));
        let grown = rates[halved..].windows(2);
        let steps = grown.filter(|pair| pair[1] > pair[0]);
        let steps: Vec<u64> = steps.map(|pair| pair[1] - pair[0]).collect();
        assert!(!steps.is_empty(), "{rates:?}");
        assert!(steps.iter().all(|&step| step == RATE_STEP_PPM), "{rates:?}");
    }

    #[test]
    fn the_rate_stays_small_where_vms_could_use_the_whole_device() {
        let rates = rates(400, |_, share| (1_000_000.0 * (1.0 - share)) as u64);
        let mean = mean(&rates[200..]);
        assert!(mean <= 60_000, "{mean}");
    }

    /// Number from 0 to 199,999 that looks random, for a window.
    fn varying(window: u64) -> u64 {
        // Upper bits of a product with the golden ratio's.
        (window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 200_000
    }

    fn mean(rates: &[u64]) -> u64 {
        rates.iter().sum::<u64>() / rates.len() as u64
    }

    #[test]
    fn the_rate_grows_beside_vms_whose_work_varies_by_itself() {
        let rates = rates(1000, |window, _| 400_000 + varying(window));
        let mean = mean(&rates[200..]);
        assert!(mean >= 20_000, "{mean}");
    }

    #[test]
    fn a_load_that_falls_is_not_taken_for_a_loss() {
        // A batch that comes and goes, on top of work that varies: as much beside the background
        // as without it.
        let rates = rates(300, |window, _| match window {
            40..43 | 60..63 | 80..100 => 900_000 + varying(window) / 2,
            _ => 600_000 + varying(window) / 2,
        });
        let mean = mean(&rates[120..160]);
        assert!(mean >= 100_000, "{mean}: {:?}", &rates[80..160]);
    }

    #[test]
    fn the_rate_stays_small_where_work_varies_and_is_lost() {
        let rates = rates(1000, |window, share| {
            ((900_000 + varying(window)) as f64 * (1.0 - share)) as u64
        });
        let mean = mean(&rates[200..]);
        assert!(mean <= 40_000, "{mean}");
    }

    #[test]
    fn vms_whose_load_grows_soon_lose_little() {
        // From a light load, beside which the background may have everything, to a saturating one.
        let rates = rates(200, |window, share| match window {
            0..120 => 100_000,
            _ => (1_000_000.0 * (1.0 - share)) as u64,
        });
        assert!(rates[119] >= 800_000, "{}", rates[119]);
        let mean = mean(&rates[130..]);
        assert!(mean <= 60_000, "{mean}: {:?}", &rates[115..140]);
    }

    #[test]
    fn the_first_part_does_not_use_up_the_rate_of_seconds() {
        let mut background = BackgroundRate::new();
        background.begin_wait(Nanos::ZERO);
        background.poll_window(Nanos::ZERO);
        background.started(Nanos::ZERO, 10_000);
        background.ended();
        let (mut parts, mut now) = (0, Nanos::ZERO);
        while now < Nanos::SECOND {
            now += Nanos::from_millis(1);
            background.poll_window(now);
            background.vm_started(now, 10_000);
            if background.due_at(false) <= now {
                background.started(now, 10_000);
                background.ended();
                parts += 1;
            }
        }
        // A part is a hundredth of a window's work; from 1 % on, the rate grows in each window.
        assert!(parts >= 15, "{parts}");
    }

    #[test]
    fn other_costs_leave_the_rate() {
        let mut background = BackgroundRate::new();
        background.rate = 5 * RATE_STEP_PPM;
        background.window_work_max = 7;
        background.restart(true);
        assert_eq!(
            (background.rate, background.window_work_max),
            (5 * RATE_STEP_PPM, 0)
        );
        assert_eq!(background.window_cost, 100_000_000_000, "100 ms");
    }

    #[test]
    fn a_part_goes_every_half_second_whatever_the_rate() {
        let mut background = BackgroundRate::new();
        background.begin_wait(Nanos::ZERO);
        background.poll_window(Nanos::ZERO);
        assert_eq!(background.due_at(true), PART_INTERVAL_MAX);
        assert_eq!(background.overdue_at(), PART_INTERVAL_MAX);
        background.started(PART_INTERVAL_MAX, 1);
        assert_eq!(background.overdue_at(), Nanos::MAX);
        background.ended();
        assert_eq!(
            background.overdue_at(),
            PART_INTERVAL_MAX + PART_INTERVAL_MAX
        );
    }

    #[test]
    fn quiet_vms_leave_the_device_to_the_background() {
        let mut background = BackgroundRate::new();
        let now = Nanos::from_millis(10);
        background.vm_ended(now);
        background.record_think_time(Nanos::from_millis(4));
        let alone = now + Nanos::from_millis(4);
        assert_eq!(background.alone_at(), alone);
        assert_eq!(background.allowed_at(alone, 0, false), alone);
        assert!(background.allowed_at(alone, 1, true) > alone);
    }

    #[test]
    fn the_device_does_not_stay_free_for_a_guest_that_thinks_long() {
        let mut background = BackgroundRate::new();
        background.record_think_time(THINK_TIME_MAX);
        assert_eq!(background.alone_at(), THINK_TIME_MAX);
        for _ in 0..100 {
            background.record_think_time(THINK_TIME_MAX + Nanos(1));
        }
        assert_eq!(background.alone_at(), QUIET_MIN);
    }
}
