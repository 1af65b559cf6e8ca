//! Predictor and priorities of PriDyn (figure 3.3 of the thesis that [`crate::transfers`] cites) in
//! one type, for callers that only report moved bytes.

use super::{Change, Class, DeviceBandwidth, Forecast, Predictor, Priorities, Transfer};
use tidegate_base::time::Nanos;

/// Latency predictor and priority manager together: [`Predictor`] and [`Priorities`].
///
/// The caller reports moved bytes with [`PriorityManager::record_moved`], calls
/// [`PriorityManager::measure`] every interval (three seconds in the thesis) and
/// [`PriorityManager::cycle`] after each transfer that begins or ends, and applies the changes.
#[derive(Clone, Debug)]
pub struct PriorityManager {
    predictor: Predictor,
    priorities: Priorities,
    /// Users whose class changed since the last cycle.
    changed_class: Vec<usize>,
}

impl PriorityManager {
    /// Creates the manager of a device of `capacity` bytes per second, with no users; 0: not known.
    pub fn new(now: Nanos, capacity: u64) -> PriorityManager {
        PriorityManager {
            predictor: Predictor::new(now, DeviceBandwidth::given(capacity, 0)),
            priorities: Priorities::default(),
            changed_class: Vec::new(),
        }
    }

    /// Follows figure 3.3 to the letter: see [`Priorities::as_printed`].
    pub fn as_printed(self) -> PriorityManager {
        PriorityManager {
            priorities: self.priorities.as_printed(),
            ..self
        }
    }

    /// Disables the guard: see [`Priorities::unguarded`].
    pub fn unguarded(self) -> PriorityManager {
        PriorityManager {
            priorities: self.priorities.unguarded(),
            ..self
        }
    }

    /// Sets the total bandwidth of the device in bytes per second.
    pub fn set_capacity(&mut self, capacity: u64) {
        *self.predictor.capacity_mut() = DeviceBandwidth::given(capacity, 0);
    }

    /// Adds a user, in the best-effort class and without a transfer.
    ///
    /// # Panics
    /// If the index is taken.
    pub fn add(&mut self, now: Nanos, user: usize) {
        self.predictor.add(now, user);
        self.priorities.add(user, Class::BestEffort);
    }

    /// Removes a user with its transfer, and appends the changes that follow to `out`.
    pub fn remove(&mut self, user: usize, out: &mut Vec<Change>) {
        let from = out.len();
        self.predictor.remove(user);
        self.priorities.remove(user, out);
        self.record_class_changes(&out[from..]);
    }

    /// Limits the bandwidth that a user can consume, in bytes per second; `None`: no limit.
    /// A transfer of such a user waits for others only as long as the limit lets it catch up.
    pub fn set_limit(&mut self, user: usize, limit: Option<u64>) {
        self.predictor.set_limit(user, limit);
    }

    /// Returns the class of a user; `None`: no such user.
    pub fn class(&self, user: usize) -> Option<Class> {
        self.priorities.class(user)
    }

    /// Returns the transfer of a user; `None`: it has none.
    pub fn transfer(&self, user: usize) -> Option<&Transfer> {
        self.predictor.transfer(user)
    }

    /// Returns true if the user's transfer was given up, the third case of [`Priorities::cycle`]:
    /// no assignment of classes meets its deadline.
    pub fn is_given_up(&self, user: usize) -> bool {
        self.priorities.is_given_up(user)
    }

    /// Begins a transfer, and ends the previous one of the user. Returns whether the whole device
    /// could meet its deadline, as far as its capacity is known.
    pub fn begin(&mut self, user: usize, transfer: Transfer, out: &mut Vec<Change>) -> bool {
        // Users lowered for the previous transfer are restored before the new one is judged.
        self.end(user, out);
        // A bandwidth before the transfer was what the user asked for, not what it could get.
        self.predictor.begin_transfer(user, transfer, false);
        self.priorities.transfer_began();
        self.predictor.is_possible(user, transfer.begun)
    }

    /// Applies the terms on which an admission controller admitted the transfer of `user`: that
    /// user gets `class`, and each user in `lowered` stays at the class given with it until the
    /// transfer ends. Users whose class changes are measured anew from `now` on, as after a cycle.
    pub fn apply_admission(
        &mut self,
        now: Nanos,
        user: usize,
        class: Class,
        lowered: &[(usize, Class)],
        out: &mut Vec<Change>,
    ) {
        let from = out.len();
        self.priorities.apply_admission(user, class, lowered, out);
        self.record_class_changes(&out[from..]);
        self.restart_measurements(now);
    }

    /// Ends a transfer that is done or cancelled. Users that were lowered for it return to their
    /// classes, and the user itself returns to best effort, less the steps that other transfers
    /// took from it.
    pub fn end(&mut self, user: usize, out: &mut Vec<Change>) {
        if self.predictor.end_transfer(user).is_some() {
            let from = out.len();
            self.priorities.transfer_ended(user, out);
            self.record_class_changes(&out[from..]);
        }
    }

    fn record_class_changes(&mut self, changes: &[Change]) {
        self.changed_class
            .extend(changes.iter().map(|change| change.user));
    }

    /// Restarts the measurement of users whose class changed: their old bandwidth no longer
    /// applies.
    fn restart_measurements(&mut self, now: Nanos) {
        for user in self.changed_class.drain(..) {
            self.predictor.restart_user(now, user);
        }
    }

    /// Counts moved bytes of a user. Returns true if its transfer is complete with them.
    pub fn record_moved(&mut self, user: usize, bytes: u64) -> bool {
        self.predictor.record_moved(user, bytes)
    }

    /// Forecasts the end of a user's transfer at its present bandwidth; `None`: the user has no
    /// transfer, or neither its bandwidth nor the device's is known.
    pub fn forecast(&self, user: usize, now: Nanos) -> Option<Forecast> {
        self.predictor.forecast(user, now)
    }

    /// Ends an interval: the bytes moved in it become each user's bandwidth, and a cycle follows.
    pub fn measure(&mut self, now: Nanos, out: &mut Vec<Change>) {
        // Never learnt here: the caller gives the capacity.
        self.predictor.measure(now, false);
        self.cycle(now, out);
    }

    /// Runs one cycle on the last measurement: see [`Priorities::cycle`].
    pub fn cycle(&mut self, now: Nanos, out: &mut Vec<Change>) {
        self.restart_measurements(now);
        let from = out.len();
        self.priorities.cycle(&self.predictor, now, out);
        self.record_class_changes(&out[from..]);
        self.restart_measurements(now);
    }
}
