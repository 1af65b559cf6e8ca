//! Transfers and measured bandwidths of all users, with forecasts: steps 1 to 5 of figure 3.3 of
//! the thesis that the module [`transfers`](super) cites.

use super::{DeviceBandwidth, Forecast, Transfer};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// User of the device: a VM or a process.
#[derive(Clone, Debug, Default)]
struct User {
    transfer: Option<Transfer>,
    /// Maximum bandwidth that the user can consume, in bytes per second; `None`: no known limit.
    limit: Option<u64>,
    /// B: bytes per second in the last interval; `None`: not measured yet.
    bandwidth: Option<u64>,
    /// Total bytes moved, as last reported.
    total_bytes: u64,
    /// Start of the user's own measurement: of an interval, of the transfer, or of its class.
    measured_from: Nanos,
    /// Value of `total_bytes` at `measured_from`.
    measured_from_bytes: u64,
    /// Value of `total_bytes` at the start of the interval.
    interval_start_bytes: u64,
}

/// Measures the bandwidth of every user by interval, and forecasts the ends of transfers.
///
/// Users are small indices that are reused.
#[derive(Clone, Debug)]
pub struct Predictor {
    users: Vec<Option<User>>,
    capacity: DeviceBandwidth,
    /// Start of the current interval.
    interval_start: Nanos,
    /// True if no user of the device left in this interval, so that its total is complete.
    is_complete: bool,
}

impl Predictor {
    /// Creates a predictor without users.
    pub fn new(now: Nanos, capacity: DeviceBandwidth) -> Predictor {
        Predictor {
            users: Vec::new(),
            capacity,
            interval_start: now,
            is_complete: true,
        }
    }

    /// Total bandwidth of the device by number of users.
    pub fn capacity(&self) -> &DeviceBandwidth {
        &self.capacity
    }

    /// Total bandwidth of the device, mutable.
    pub fn capacity_mut(&mut self) -> &mut DeviceBandwidth {
        &mut self.capacity
    }

    /// Returns the start of the current interval.
    pub fn interval_start(&self) -> Nanos {
        self.interval_start
    }

    /// Adds a user that has moved nothing so far.
    ///
    /// # Panics
    /// If the index is taken.
    pub fn add(&mut self, now: Nanos, user: usize) {
        if self.users.len() <= user {
            self.users.resize(user + 1, None);
        }
        assert!(self.users[user].is_none(), "user {user} was added already");
        self.users[user] = Some(User {
            measured_from: now,
            ..User::default()
        });
    }

    /// Removes a user with its transfer.
    pub fn remove(&mut self, user: usize) {
        if let Some(slot) = self.users.get_mut(user) {
            // The device's total of this interval is too low without the bytes that the user moved.
            self.is_complete &= slot.take().is_none();
        }
    }

    fn user(&self, index: usize) -> Option<&User> {
        self.users.get(index)?.as_ref()
    }

    fn user_mut(&mut self, index: usize) -> Option<&mut User> {
        self.users.get_mut(index)?.as_mut()
    }

    /// Returns the transfer of a user; `None`: it has none.
    pub fn transfer(&self, user: usize) -> Option<&Transfer> {
        self.user(user)?.transfer.as_ref()
    }

    /// Bandwidth of a user in the last interval, in bytes per second; `None`: not measured yet.
    pub fn bandwidth(&self, user: usize) -> Option<u64> {
        self.user(user)?.bandwidth
    }

    /// Limits the bandwidth that a user can consume, in bytes per second; `None`: no limit.
    pub fn set_limit(&mut self, user: usize, limit: Option<u64>) {
        if let Some(state) = self.user_mut(user) {
            state.limit = limit;
        }
    }

    /// Bandwidth of a user that has the whole device, in bytes per second; 0: not known.
    pub(super) fn whole_device_bandwidth(&self, user: usize) -> u64 {
        let limit = self.user(user).and_then(|state| state.limit);
        self.capacity.with_users(1).min(limit.unwrap_or(u64::MAX))
    }

    /// Begins a transfer, in place of any before. `keep_bandwidth`: it starts with the bandwidth
    /// that its user had in the last interval; otherwise its bandwidth is unknown at first.
    pub fn begin_transfer(&mut self, user: usize, transfer: Transfer, keep_bandwidth: bool) {
        let Some(state) = self.user_mut(user) else {
            return;
        };
        state.transfer = Some(transfer);
        if !keep_bandwidth {
            state.restart(transfer.begun);
        }
    }

    /// Removes and returns the transfer of a user.
    pub fn end_transfer(&mut self, user: usize) -> Option<Transfer> {
        self.user_mut(user)?.transfer.take()
    }

    /// Counts moved bytes of a user. Returns true if its transfer is complete with them.
    pub fn record_moved(&mut self, user: usize, bytes: u64) -> bool {
        if let Some(state) = self.user_mut(user) {
            state.total_bytes = state.total_bytes.saturating_add(bytes);
        }
        self.record_transfer_moved(user, bytes)
    }

    /// Counts moved bytes of a transfer alone, without the user's total, which the caller reports
    /// with [`Predictor::set_total`] before the measurement. Returns true if the transfer is
    /// complete.
    #[inline]
    pub fn record_transfer_moved(&mut self, user: usize, bytes: u64) -> bool {
        let transfer = self.user_mut(user).and_then(|it| it.transfer.as_mut());
        transfer.is_some_and(|transfer| {
            transfer.moved = transfer.moved.saturating_add(bytes);
            transfer.bytes_left() == 0
        })
    }

    /// Sets the total bytes that a user has moved, at least as many as at the last report.
    pub fn set_total(&mut self, user: usize, total: u64) {
        if let Some(state) = self.user_mut(user) {
            debug_assert!(total >= state.total_bytes, "a total of bytes never falls");
            state.total_bytes = total;
        }
    }

    /// Restarts the measurement of a user whose class changed: its old bandwidth no longer applies.
    pub fn restart_user(&mut self, now: Nanos, user: usize) {
        if let Some(state) = self.user_mut(user) {
            state.restart(now);
        }
    }

    /// Restarts measuring after a pause. `is_quiet` returns true for a user that moved nothing
    /// lately; its bandwidth counts as 0.
    pub fn restart(&mut self, now: Nanos, is_quiet: impl Fn(usize) -> bool) {
        (self.interval_start, self.is_complete) = (now, true);
        for (user, state) in self.users.iter_mut().enumerate() {
            if let Some(state) = state {
                state.restart(now);
                state.bandwidth = is_quiet(user).then_some(0);
                state.interval_start_bytes = state.total_bytes;
            }
        }
    }

    /// Ends an interval: the bytes moved in it become each user's bandwidth. A measurement that
    /// began in the last third of the interval continues into the next one. `busy`: users kept the
    /// device busy all the time, so that its bandwidth can be learnt.
    pub fn measure(&mut self, now: Nanos, busy: bool) {
        let interval = now.since(self.interval_start);
        // An interval with idle time, or without all users, says nothing about the capacity.
        if busy && self.is_complete && interval > Nanos::ZERO {
            let (users, bytes_per_s) = self.usage(interval);
            if users > 0 {
                self.capacity.learn(users, bytes_per_s);
            }
        }
        for state in self.users.iter_mut().flatten() {
            state.interval_start_bytes = state.total_bytes;
            let length = now.since(state.measured_from);
            // Less than a third of an interval is too short to measure: it counts with the next
            // one.
            if length.0.saturating_mul(3) < interval.0 || length == Nanos::ZERO {
                continue;
            }
            let moved = state.total_bytes - state.measured_from_bytes;
            state.restart(now);
            state.bandwidth = Some(per_s(moved, length));
        }
        (self.interval_start, self.is_complete) = (now, true);
    }

    /// Effective number of users in the interval that ended, and their total in bytes per second.
    /// The number is (sum of shares)^2 / (sum of squared shares), so that a user with a small share
    /// counts for little.
    fn usage(&self, interval: Nanos) -> (usize, u64) {
        // Kilobytes per second, at most 2^32 - 1, so that the squares of sums fit in 128 bits.
        let moved = |state: &User| {
            let bytes_per_s = per_s(state.total_bytes - state.interval_start_bytes, interval);
            u128::from((bytes_per_s / 1000).min(u64::from(u32::MAX)))
        };
        let shares = || self.users.iter().flatten().map(moved);
        let (sum, squares) = (
            shares().sum::<u128>(),
            shares().map(|share| share * share).sum::<u128>(),
        );
        match squares {
            0 => (0, 0),
            _ => {
                // Plus half the divisor: rounded to the nearest.
                let users = (sum * sum + squares / 2) / squares;
                let bytes_per_s = u64::try_from(sum * 1000).unwrap_or(u64::MAX);
                (users as usize, bytes_per_s.min(Rate::MAX))
            }
        }
    }

    /// Returns true if a user has a transfer, or may have moved data in the last interval. Others
    /// take no bandwidth from anyone.
    pub(super) fn is_active(&self, user: usize) -> bool {
        self.user(user).is_some_and(User::is_active)
    }

    /// Expected bandwidth of a user in bytes per second: the measured one, or an even share of the
    /// device among its active users. `None`: neither is known.
    fn expected(&self, state: &User) -> Option<u64> {
        let share = || {
            let active = self.users.iter().flatten().filter(|it| it.is_active());
            let active = active.count().max(1);
            let total = self.capacity.with_users(active);
            (total > 0).then(|| total / active as u64)
        };
        // A user that was just raised or began has no measurement yet.
        state.bandwidth.or_else(share)
    }

    /// Forecasts the end of a user's transfer at its expected bandwidth; `None`: the user has no
    /// transfer, or its bandwidth is not known.
    pub fn forecast(&self, user: usize, now: Nanos) -> Option<Forecast> {
        let state = self.user(user)?;
        let transfer = state.transfer.as_ref()?;
        Some(transfer.forecast(now, self.expected(state)?))
    }

    /// Returns true if a user's transfer is in time with the whole device from `now` on, as far as
    /// its capacity is known.
    pub fn is_possible(&self, user: usize, now: Nanos) -> bool {
        let limit = self.user(user).and_then(|state| state.limit);
        let whole = self
            .capacity
            .single_user_max()
            .min(limit.unwrap_or(u64::MAX));
        match self.user(user).and_then(|it| it.transfer.zip(Some(it))) {
            Some((transfer, state)) if whole > 0 => {
                // The user may have been faster than the capacity that was given or learnt.
                let bytes_per_s = whole.max(state.bandwidth.unwrap_or(0));
                transfer.forecast(now, bytes_per_s).late == Nanos::ZERO
            }
            // Nothing is known that speaks against it.
            _ => true,
        }
    }
}

impl User {
    /// Discards the bandwidth, and measures it anew from `now` on.
    fn restart(&mut self, now: Nanos) {
        self.bandwidth = None;
        (self.measured_from, self.measured_from_bytes) = (now, self.total_bytes);
    }

    fn is_active(&self) -> bool {
        self.transfer.is_some() || self.bandwidth != Some(0)
    }
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    u64::try_from(bytes / u128::from(length.0)).unwrap_or(u64::MAX)
}
