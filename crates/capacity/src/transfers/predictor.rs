//! Transfers and measured bandwidths of all users, with forecasts: steps 1 to 5 of figure 3.3.

use super::{Capacity, Forecast, Transfer};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// User of the device: a VM or a process.
#[derive(Clone, Debug, Default)]
struct Process {
    transfer: Option<Transfer>,
    /// Most that the user can consume, in bytes a second; `None`: no known limit.
    limit: Option<u64>,
    /// B: bytes a second in the last interval; `None`: not measured yet.
    bandwidth: Option<u64>,
    /// Total bytes moved, as last reported.
    total: u64,
    /// Value of `total` at `since`, the begin of the measurement: an interval or the transfer.
    before: u64,
    since: Nanos,
    /// Value of `total` at the begin of the interval.
    at_begin: u64,
}

/// Measures the bandwidth of every user by interval, and forecasts the ends of transfers.
///
/// Users are small indices that are reused.
#[derive(Clone, Debug)]
pub struct Predictor {
    processes: Vec<Option<Process>>,
    capacity: Capacity,
    /// Begin of the current interval.
    since: Nanos,
    /// True if no user of the device left in this interval, so that its total is complete.
    whole: bool,
}

impl Predictor {
    /// Creates a predictor without users.
    pub fn new(now: Nanos, capacity: Capacity) -> Predictor {
        Predictor {
            processes: Vec::new(),
            capacity,
            since: now,
            whole: true,
        }
    }

    /// Total bandwidth of the device by number of users.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Total bandwidth of the device, mutable.
    pub fn capacity_mut(&mut self) -> &mut Capacity {
        &mut self.capacity
    }

    /// Begin of the current interval.
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// Adds the user `who`, which has moved nothing so far. The index must be free.
    pub fn add(&mut self, now: Nanos, who: usize) {
        if self.processes.len() <= who {
            self.processes.resize(who + 1, None);
        }
        self.processes[who] = Some(Process {
            since: now,
            ..Process::default()
        });
    }

    /// Removes a user with its transfer.
    pub fn remove(&mut self, who: usize) {
        if let Some(slot) = self.processes.get_mut(who) {
            self.whole &= slot.take().is_none();
        }
    }

    fn process(&self, who: usize) -> Option<&Process> {
        self.processes.get(who)?.as_ref()
    }

    fn process_mut(&mut self, who: usize) -> Option<&mut Process> {
        self.processes.get_mut(who)?.as_mut()
    }

    /// Returns the transfer of a user; `None`: it has none.
    pub fn transfer(&self, who: usize) -> Option<&Transfer> {
        self.process(who)?.transfer.as_ref()
    }

    /// Bandwidth of a user in the last interval, in bytes a second; `None`: not measured yet.
    pub fn bandwidth(&self, who: usize) -> Option<u64> {
        self.process(who)?.bandwidth
    }

    /// Limits the bandwidth that a user can consume, in bytes a second; `None`: no limit.
    pub fn set_limit(&mut self, who: usize, limit: Option<u64>) {
        if let Some(process) = self.process_mut(who) {
            process.limit = limit;
        }
    }

    /// Bandwidth of a user that has the whole device, in bytes a second; 0: not known.
    pub(super) fn of_the_whole(&self, who: usize) -> u64 {
        let limit = self.process(who).and_then(|process| process.limit);
        self.capacity.with_users(1).min(limit.unwrap_or(u64::MAX))
    }

    /// Begins a transfer, in place of any before. `carry`: it starts with the bandwidth that its
    /// user had in the last interval; otherwise its bandwidth is unknown at first.
    pub fn begin(&mut self, who: usize, transfer: Transfer, carry: bool) {
        let Some(process) = self.process_mut(who) else {
            return;
        };
        process.transfer = Some(transfer);
        if !carry {
            process.bandwidth = None;
            (process.before, process.since) = (process.total, transfer.begun);
        }
    }

    /// Removes and returns the transfer of a user.
    pub fn end(&mut self, who: usize) -> Option<Transfer> {
        self.process_mut(who)?.transfer.take()
    }

    /// Counts moved bytes of a user. Returns true if its transfer is complete with them.
    pub fn moved(&mut self, who: usize, bytes: u64) -> bool {
        if let Some(process) = self.process_mut(who) {
            process.total = process.total.saturating_add(bytes);
        }
        self.transfer_moved(who, bytes)
    }

    /// Counts moved bytes of a transfer alone, without the user's total, which the caller reports
    /// with [`Predictor::has_moved`] before the measurement. Returns true if the transfer is
    /// complete.
    #[inline]
    pub fn transfer_moved(&mut self, who: usize, bytes: u64) -> bool {
        let transfer = self.process_mut(who).and_then(|of| of.transfer.as_mut());
        transfer.is_some_and(|transfer| {
            transfer.moved = transfer.moved.saturating_add(bytes);
            transfer.left() == 0
        })
    }

    /// Sets the total bytes that a user has moved.
    pub fn has_moved(&mut self, who: usize, total: u64) {
        if let Some(process) = self.process_mut(who) {
            process.total = total;
        }
    }

    /// Restarts the measurement of a user whose class changed: its old bandwidth no longer applies.
    pub fn turned(&mut self, now: Nanos, who: usize) {
        if let Some(process) = self.process_mut(who) {
            process.bandwidth = None;
            (process.before, process.since) = (process.total, now);
        }
    }

    /// Restarts measuring after a pause. `is_quiet` returns true for a user that moved nothing
    /// lately; its bandwidth counts as 0.
    pub fn restart(&mut self, now: Nanos, is_quiet: impl Fn(usize) -> bool) {
        (self.since, self.whole) = (now, true);
        for (who, process) in self.processes.iter_mut().enumerate() {
            if let Some(process) = process {
                process.bandwidth = is_quiet(who).then_some(0);
                (process.before, process.at_begin) = (process.total, process.total);
                process.since = now;
            }
        }
    }

    /// Ends an interval: the bytes moved in it become each user's bandwidth. A measurement that
    /// began in the last third of the interval goes on instead. `busy`: users kept the device busy
    /// all the time, so that its capacity can be learnt.
    pub fn measure(&mut self, now: Nanos, busy: bool) {
        let interval = now.since(self.since);
        if busy && self.whole && interval > Nanos::ZERO {
            let (users, bytes_per_s) = self.usage(interval);
            if users > 0 {
                self.capacity.learn(users, bytes_per_s);
            }
        }
        for process in self.processes.iter_mut().flatten() {
            process.at_begin = process.total;
            let length = now.since(process.since);
            // Less than a third of an interval is too short to measure: it counts with the next
            // one.
            if length.0.saturating_mul(3) < interval.0 || length == Nanos::ZERO {
                continue;
            }
            process.bandwidth = Some(per_s(process.total - process.before, length));
            (process.before, process.since) = (process.total, now);
        }
        (self.since, self.whole) = (now, true);
    }

    /// Effective number of users in the interval that ended, and their total in bytes a second. The
    /// number is (sum of shares)^2 / (sum of squared shares), so that a user with a small share
    /// counts for little.
    fn usage(&self, interval: Nanos) -> (usize, u64) {
        // Kilobytes a second, at most 2^32 - 1, so that the squares of sums fit in 128 bits.
        let moved = |process: &Process| {
            let bytes_per_s = per_s(process.total - process.at_begin, interval);
            u128::from((bytes_per_s / 1000).min(u64::from(u32::MAX)))
        };
        let shares = || self.processes.iter().flatten().map(moved);
        let (sum, squares) = (
            shares().sum::<u128>(),
            shares().map(|share| share * share).sum::<u128>(),
        );
        match squares {
            0 => (0, 0),
            _ => {
                let users = (sum * sum + squares / 2) / squares;
                let bytes_per_s = u64::try_from(sum * 1000).unwrap_or(u64::MAX);
                (users as usize, bytes_per_s.min(Rate::MAX))
            }
        }
    }

    /// Returns true if a user has a transfer, or may have moved data in the last interval. Others
    /// take no bandwidth from anyone.
    pub(super) fn is_active(&self, who: usize) -> bool {
        self.process(who).is_some_and(Process::is_active)
    }

    /// Expected bandwidth of a user in bytes a second: the measured one, or an even share of the
    /// device among its active users. `None`: neither is known.
    fn expected(&self, process: &Process) -> Option<u64> {
        let share = || {
            let active = self.processes.iter().flatten().filter(|of| of.is_active());
            let active = active.count().max(1);
            let all = self.capacity.with_users(active);
            (all > 0).then(|| all / active as u64)
        };
        process.bandwidth.or_else(share)
    }

    /// Forecasts the end of a user's transfer at its expected bandwidth; `None`: the user has no
    /// transfer, or its bandwidth is not known.
    pub fn forecast(&self, who: usize, now: Nanos) -> Option<Forecast> {
        let process = self.process(who)?;
        let transfer = process.transfer.as_ref()?;
        Some(transfer.forecast(now, self.expected(process)?))
    }

    /// Returns true if a user's transfer is in time with the whole device from `now` on, as far as
    /// its capacity is known.
    pub fn is_possible(&self, who: usize, now: Nanos) -> bool {
        let limit = self.process(who).and_then(|process| process.limit);
        let whole = self.capacity.best().min(limit.unwrap_or(u64::MAX));
        match self.process(who).and_then(|of| of.transfer.zip(Some(of))) {
            Some((transfer, process)) if whole > 0 => {
                // The user may have been faster than the capacity that was given or learnt.
                let most = whole.max(process.bandwidth.unwrap_or(0));
                transfer.forecast(now, most).late == Nanos::ZERO
            }
            _ => true,
        }
    }
}

impl Process {
    fn is_active(&self) -> bool {
        self.transfer.is_some() || self.bandwidth != Some(0)
    }
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    u64::try_from(bytes / u128::from(length.0)).unwrap_or(u64::MAX)
}
