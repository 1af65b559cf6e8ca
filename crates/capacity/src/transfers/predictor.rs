//! Transfers and measured bandwidths of all users, with forecasts: steps 1 to 5 of figure 3.3.

use super::{Capacity, Forecast, Transfer};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// User of the device: a VM or a process.
#[derive(Clone, Debug, Default)]
struct User {
    transfer: Option<Transfer>,
    /// Maximum bandwidth that the user can consume, in bytes a second; `None`: no known limit.
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
    users: Vec<Option<User>>,
    capacity: Capacity,
    /// Begin of the current interval.
    since: Nanos,
    /// True if no user of the device left in this interval, so that its total is complete.
    is_complete: bool,
}

impl Predictor {
    /// Creates a predictor without users.
    pub fn new(now: Nanos, capacity: Capacity) -> Predictor {
        Predictor {
            users: Vec::new(),
            capacity,
            since: now,
            is_complete: true,
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
            since: now,
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

    /// Bandwidth of a user in the last interval, in bytes a second; `None`: not measured yet.
    pub fn bandwidth(&self, user: usize) -> Option<u64> {
        self.user(user)?.bandwidth
    }

    /// Limits the bandwidth that a user can consume, in bytes a second; `None`: no limit.
    pub fn set_limit(&mut self, user: usize, limit: Option<u64>) {
        if let Some(state) = self.user_mut(user) {
            state.limit = limit;
        }
    }

    /// Bandwidth of a user that has the whole device, in bytes a second; 0: not known.
    pub(super) fn whole_device_bandwidth(&self, user: usize) -> u64 {
        let limit = self.user(user).and_then(|state| state.limit);
        self.capacity.with_users(1).min(limit.unwrap_or(u64::MAX))
    }

    /// Begins a transfer, in place of any before. `carry`: it starts with the bandwidth that its
    /// user had in the last interval; otherwise its bandwidth is unknown at first.
    pub fn begin(&mut self, user: usize, transfer: Transfer, carry: bool) {
        let Some(state) = self.user_mut(user) else {
            return;
        };
        state.transfer = Some(transfer);
        if !carry {
            state.bandwidth = None;
            (state.before, state.since) = (state.total, transfer.begun);
        }
    }

    /// Removes and returns the transfer of a user.
    pub fn end(&mut self, user: usize) -> Option<Transfer> {
        self.user_mut(user)?.transfer.take()
    }

    /// Counts moved bytes of a user. Returns true if its transfer is complete with them.
    pub fn moved(&mut self, user: usize, bytes: u64) -> bool {
        if let Some(state) = self.user_mut(user) {
            state.total = state.total.saturating_add(bytes);
        }
        self.transfer_moved(user, bytes)
    }

    /// Counts moved bytes of a transfer alone, without the user's total, which the caller reports
    /// with [`Predictor::set_total`] before the measurement. Returns true if the transfer is
    /// complete.
    #[inline]
    pub fn transfer_moved(&mut self, user: usize, bytes: u64) -> bool {
        let transfer = self.user_mut(user).and_then(|it| it.transfer.as_mut());
        transfer.is_some_and(|transfer| {
            transfer.moved = transfer.moved.saturating_add(bytes);
            transfer.left() == 0
        })
    }

    /// Sets the total bytes that a user has moved.
    pub fn set_total(&mut self, user: usize, total: u64) {
        if let Some(state) = self.user_mut(user) {
            state.total = total;
        }
    }

    /// Restarts the measurement of a user whose class changed: its old bandwidth no longer applies.
    pub fn restart_user(&mut self, now: Nanos, user: usize) {
        if let Some(state) = self.user_mut(user) {
            state.bandwidth = None;
            (state.before, state.since) = (state.total, now);
        }
    }

    /// Restarts measuring after a pause. `is_quiet` returns true for a user that moved nothing
    /// lately; its bandwidth counts as 0.
    pub fn restart(&mut self, now: Nanos, is_quiet: impl Fn(usize) -> bool) {
        (self.since, self.is_complete) = (now, true);
        for (user, state) in self.users.iter_mut().enumerate() {
            if let Some(state) = state {
                state.bandwidth = is_quiet(user).then_some(0);
                (state.before, state.at_begin) = (state.total, state.total);
                state.since = now;
            }
        }
    }

    /// Ends an interval: the bytes moved in it become each user's bandwidth. A measurement that
    /// began in the last third of the interval goes on instead. `busy`: users kept the device busy
    /// all the time, so that its capacity can be learnt.
    pub fn measure(&mut self, now: Nanos, busy: bool) {
        let interval = now.since(self.since);
        // An interval with idle time, or without all users, says nothing about the capacity.
        if busy && self.is_complete && interval > Nanos::ZERO {
            let (users, bytes_per_s) = self.usage(interval);
            if users > 0 {
                self.capacity.learn(users, bytes_per_s);
            }
        }
        for state in self.users.iter_mut().flatten() {
            state.at_begin = state.total;
            let length = now.since(state.since);
            // Less than a third of an interval is too short to measure: it counts with the next
            // one.
            if length.0.saturating_mul(3) < interval.0 || length == Nanos::ZERO {
                continue;
            }
            state.bandwidth = Some(per_s(state.total - state.before, length));
            (state.before, state.since) = (state.total, now);
        }
        (self.since, self.is_complete) = (now, true);
    }

    /// Effective number of users in the interval that ended, and their total in bytes a second. The
    /// number is (sum of shares)^2 / (sum of squared shares), so that a user with a small share
    /// counts for little.
    fn usage(&self, interval: Nanos) -> (usize, u64) {
        // Kilobytes a second, at most 2^32 - 1, so that the squares of sums fit in 128 bits.
        let moved = |state: &User| {
            let bytes_per_s = per_s(state.total - state.at_begin, interval);
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

    /// Expected bandwidth of a user in bytes a second: the measured one, or an even share of the
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
        let whole = self.capacity.best().min(limit.unwrap_or(u64::MAX));
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
    fn is_active(&self) -> bool {
        self.transfer.is_some() || self.bandwidth != Some(0)
    }
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    u64::try_from(bytes / u128::from(length.0)).unwrap_or(u64::MAX)
}
