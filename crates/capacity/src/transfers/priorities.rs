//! Assignment of priority classes to users: figure 3.3 of the thesis that the module
//! [`transfers`](super) cites, steps 6 to 21, and the guard of section 4.2.2.

use super::{Predictor, Transfer};
use tidegate_base::objective::Priority;
use tidegate_base::time::Nanos;

/// Priority class, ordered from the weakest to the strongest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Class {
    /// Served when no other class has requests.
    Idle,
    /// Default class of users without a particular priority.
    #[default]
    BestEffort,
    /// Served before all other classes.
    RealTime,
}

impl Class {
    /// All classes, the weakest first.
    pub const ALL: [Class; 3] = [Class::Idle, Class::BestEffort, Class::RealTime];

    /// Returns the name in reports: `realtime`, `best-effort` or `idle`.
    pub fn name(self) -> &'static str {
        match self {
            Class::RealTime => "realtime",
            Class::BestEffort => "best-effort",
            Class::Idle => "idle",
        }
    }

    /// Returns the class that many steps above, at most the strongest.
    pub fn raised(self, steps: usize) -> Class {
        Class::ALL[(self as usize + steps).min(Class::ALL.len() - 1)]
    }

    /// Returns the class that many steps below, at least the weakest.
    pub fn lowered(self, steps: usize) -> Class {
        Class::ALL[(self as usize).saturating_sub(steps)]
    }
}

impl From<Priority> for Class {
    fn from(priority: Priority) -> Class {
        match priority {
            Priority::Idle => Class::Idle,
            Priority::BestEffort(_) => Class::BestEffort,
            Priority::RealTime => Class::RealTime,
        }
    }
}

/// Change of a user's class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Index of the user.
    pub user: usize,
    /// New class.
    pub class: Class,
}

/// Users for whose transfers a user was lowered, one step each. Two steps lead from the top class
/// to the bottom, so two entries suffice.
#[derive(Clone, Copy, Default, Debug)]
struct Lowered([Option<usize>; 2]);

impl Lowered {
    fn steps(&self) -> usize {
        self.0.iter().flatten().count()
    }

    fn beneficiary(&self) -> impl Iterator<Item = usize> {
        self.0.into_iter().flatten()
    }

    fn push(&mut self, beneficiary: usize) {
        if let Some(room) = self.0.iter_mut().find(|room| room.is_none()) {
            *room = Some(beneficiary);
        }
    }

    /// Removes the latest step. Returns false if there is none.
    fn pop(&mut self) -> bool {
        let last = self.0.iter_mut().rev().find(|step| step.is_some());
        last.and_then(Option::take).is_some()
    }

    /// Removes the steps taken for the transfer of `beneficiary`, and returns their number.
    fn remove_steps(&mut self, beneficiary: usize) -> usize {
        let before = self.steps();
        self.0.iter_mut().for_each(|step| {
            step.take_if(|it| *it == beneficiary);
        });
        before - self.steps()
    }
}

/// State of one user.
#[derive(Clone, Debug)]
struct UserState {
    /// Class while no transfer changes it.
    base: Class,
    class: Class,
    lowered: Lowered,
    /// Case 3 set the user to idle: its transfer is not critical until any transfer begins or ends.
    given_up: bool,
}

/// Critical user of a cycle.
struct Critical {
    user: usize,
    /// Deadline by which the user was chosen, see `Priorities::urgency`.
    urgency: Nanos,
}

/// Chooses the classes with which transfers end in time, one step a cycle.
///
/// The caller runs [`Priorities::cycle`] every interval (three seconds in the thesis) and after
/// each transfer that begins or ends, and applies the changes. The [`Predictor`] knows transfers
/// and bandwidths; a user without a transfer counts as having unlimited time.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    users: Vec<Option<UserState>>,
    as_printed: bool,
    unguarded: bool,
}

impl Priorities {
    /// Follows steps 6 to 17 to the letter, but keeps the guard. Deadlines are compared by their
    /// length, not by the time at which they fall due. A transfer that was given up is critical
    /// again in the next cycle. A transfer that was lowered for another is critical by its lowered
    /// bandwidth, so that two that would be in time one after the other are lowered in turns.
    pub fn as_printed(self) -> Priorities {
        let as_printed = true;
        Priorities { as_printed, ..self }
    }

    /// Disables the guard: a transfer past its deadline keeps its class, as before section 4.2.2.
    pub fn unguarded(self) -> Priorities {
        let unguarded = true;
        Priorities { unguarded, ..self }
    }

    /// Adds a user with the class that it has while no transfer changes it.
    ///
    /// # Panics
    /// If the index is taken.
    pub fn add(&mut self, user: usize, base: Class) {
        if self.users.len() <= user {
            self.users.resize(user + 1, None);
        }
        assert!(self.users[user].is_none(), "user {user} was added already");
        self.users[user] = Some(UserState {
            base,
            class: base,
            lowered: Lowered::default(),
            given_up: false,
        });
    }

    /// Removes a user with its transfer.
    pub fn remove(&mut self, user: usize, out: &mut Vec<Change>) {
        // Before the state goes: users lowered for its transfer get their classes back.
        self.transfer_ended(user, out);
        if let Some(state) = self.users.get_mut(user) {
            *state = None;
        }
    }

    /// Returns the class of a user; `None`: no such user.
    pub fn class(&self, user: usize) -> Option<Class> {
        Some(self.state(user)?.class)
    }

    /// Returns true if the user's transfer was given up, the third case of [`Priorities::cycle`]:
    /// no assignment of classes meets its deadline.
    pub fn is_given_up(&self, user: usize) -> bool {
        self.state(user).is_some_and(|state| state.given_up)
    }

    /// Sets a user's base class. `has_transfer`: the user has a transfer, whose end will apply the
    /// class.
    pub fn set_base(
        &mut self,
        user: usize,
        base: Class,
        has_transfer: bool,
        out: &mut Vec<Change>,
    ) {
        let Some(state) = self.state_mut(user) else {
            return;
        };
        state.base = base;
        // A transfer's class is the cycle's to choose; the base counts again at its end.
        if !has_transfer {
            let class = base.lowered(state.lowered.steps());
            self.set(user, class, out);
        }
    }

    /// Reconsiders transfers that were given up; to be called after a transfer has begun.
    pub fn transfer_began(&mut self) {
        for state in self.users.iter_mut().flatten() {
            state.given_up = false;
        }
    }

    /// Ends the transfer of a user. Users that were lowered for it return to their classes, and
    /// the user itself returns to its base class, less the steps that other transfers took from it.
    /// Transfers that were given up are reconsidered.
    pub fn transfer_ended(&mut self, user: usize, out: &mut Vec<Change>) {
        if let Some(state) = self.state(user) {
            let class = state.base.lowered(state.lowered.steps());
            self.set(user, class, out);
        }
        self.restore(user, out);
        self.transfer_began();
    }

    /// Applies the terms on which the transfer of `user` was admitted: that user gets `class`, and
    /// each user in `lowered` stays at most at the class given with it until the transfer ends.
    pub fn apply_admission(
        &mut self,
        user: usize,
        class: Class,
        lowered: &[(usize, Class)],
        out: &mut Vec<Change>,
    ) {
        for &(other, to) in lowered {
            // Step by step, so that each step is recorded and taken back at the transfer's end.
            while self.class(other).is_some_and(|class| class > to) {
                self.lower(other, user, out);
            }
        }
        self.set(user, class, out);
    }

    /// Runs one cycle on the last measurement. The guard first: a transfer past its deadline gets
    /// real time. Then, for the most urgent transfer in danger, the first case that applies: lower
    /// another user, raise its own user, or give the transfer up.
    pub fn cycle(&mut self, predictor: &Predictor, now: Nanos, out: &mut Vec<Change>) {
        if !self.unguarded {
            self.guard(predictor, now, out);
        }
        let Some(critical) = self.critical(predictor, now) else {
            return;
        };
        let class = self.class(critical.user).unwrap_or_default();
        match self.best_to_lower(&critical, predictor, now) {
            Some(user) => self.lower(user, critical.user, out),
            None if class < Class::RealTime => self.raise(critical.user, out),
            None => self.give_up(critical.user, out),
        }
    }

    /// Section 4.2.2: a transfer past its deadline is not starved; it is real time until it ends.
    fn guard(&mut self, predictor: &Predictor, now: Nanos, out: &mut Vec<Change>) {
        for user in 0..self.users.len() {
            let is_late = predictor
                .transfer(user)
                .is_some_and(|transfer| transfer.due_time() < now);
            if is_late && let Some(state) = self.state_mut(user) {
                // Real time until its end, so steps taken from the user no longer count.
                state.lowered = Lowered::default();
                self.set(user, Class::RealTime, out);
            }
        }
    }

    /// Returns the time by which deadlines are compared. "D is minimum" means the earliest point in
    /// time, unless as printed.
    fn urgency(&self, transfer: &Transfer) -> Nanos {
        if self.as_printed {
            transfer.deadline
        } else {
            transfer.due_time()
        }
    }

    /// Step 6: returns the user with the most urgent transfer that would miss its deadline.
    /// Transfers that are late already or given up are no candidates.
    fn critical(&self, predictor: &Predictor, now: Nanos) -> Option<Critical> {
        let in_danger = |(user, state): (usize, &UserState)| {
            let transfer = predictor.transfer(user)?;
            // Without a known bandwidth nothing tells whether the transfer is in danger.
            let misses = predictor.forecast(user, now)?.late > Nanos::ZERO;
            let stays =
                !self.as_printed && (state.given_up || can_wait(predictor, user, state, transfer));
            let urgency = self.urgency(transfer);
            (transfer.due_time() >= now && misses && !stays).then_some(Critical { user, urgency })
        };
        self.states()
            .filter_map(in_danger)
            .min_by_key(|critical| critical.urgency)
    }

    /// Steps 8 and 9: among users with later deadlines, or none, that keep their own, returns the
    /// one with the most time to spare.
    fn best_to_lower(
        &self,
        critical: &Critical,
        predictor: &Predictor,
        now: Nanos,
    ) -> Option<usize> {
        let spare = |(user, state): (usize, &UserState)| {
            let spare = match predictor.transfer(user) {
                // A user without a transfer has no deadline to miss.
                None => Nanos::MAX,
                Some(transfer) if self.urgency(transfer) > critical.urgency => {
                    let forecast = predictor.forecast(user, now);
                    forecast.map_or(Nanos::ZERO, |forecast| forecast.early)
                }
                // An earlier deadline is never demoted for a later one.
                Some(_) => Nanos::ZERO,
            };
            let lowerable =
                // Lowering an idle user, or one that moves nothing, would gain nothing.
                user != critical.user && state.class > Class::Idle && predictor.is_active(user);
            (lowerable && spare > Nanos::ZERO).then_some((user, spare))
        };
        // Strict comparison keeps the first of several with equal spare time.
        let candidates = self.states().filter_map(spare);
        let best = candidates.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map(|(user, _)| user)
    }

    /// Case 1: lowers a user by one step for the transfer of `beneficiary`.
    fn lower(&mut self, user: usize, beneficiary: usize, out: &mut Vec<Change>) {
        if let Some(state) = self.state_mut(user) {
            state.lowered.push(beneficiary);
            let class = state.class.lowered(1);
            self.set(user, class, out);
        }
    }

    /// Case 2: raises a user by one step, and takes back the latest step by which it was lowered.
    fn raise(&mut self, user: usize, out: &mut Vec<Change>) {
        if let Some(state) = self.state_mut(user) {
            // The raise undoes that step, which must not be undone again at the transfer's end.
            state.lowered.pop();
            let class = state.class.raised(1);
            self.set(user, class, out);
        }
    }

    /// Case 3: no assignment of classes meets the deadline, so no other user is to suffer for it.
    fn give_up(&mut self, user: usize, out: &mut Vec<Change>) {
        if let Some(state) = self.state_mut(user) {
            (state.given_up, state.lowered) = (true, Lowered::default());
        }
        // A hopeless transfer takes only what others leave.
        self.set(user, Class::Idle, out);
        self.restore(user, out);
    }

    /// Step 17: returns users that were lowered for the transfer of `beneficiary` to their classes.
    fn restore(&mut self, beneficiary: usize, out: &mut Vec<Change>) {
        for user in 0..self.users.len() {
            if let Some(state) = self.state_mut(user) {
                let steps = state.lowered.remove_steps(beneficiary);
                let class = state.class.raised(steps);
                self.set(user, class, out);
            }
        }
    }

    fn set(&mut self, user: usize, class: Class, out: &mut Vec<Change>) {
        if let Some(state) = self.state_mut(user)
            && state.class != class
        {
            state.class = class;
            out.push(Change { user, class });
        }
    }

    fn state(&self, user: usize) -> Option<&UserState> {
        self.users.get(user)?.as_ref()
    }

    fn state_mut(&mut self, user: usize) -> Option<&mut UserState> {
        self.users.get_mut(user)?.as_mut()
    }

    fn states(&self) -> impl Iterator<Item = (usize, &UserState)> {
        (self.users.iter().enumerate()).filter_map(|(user, state)| Some((user, state.as_ref()?)))
    }
}

/// Returns true if a transfer that was lowered for others is still in time when it gets the device
/// after the last of those is due, at the bandwidth that its user can consume.
fn can_wait(predictor: &Predictor, user: usize, state: &UserState, transfer: &Transfer) -> bool {
    let helped = state
        .lowered
        .beneficiary()
        .filter_map(|user| predictor.transfer(user));
    let whole = predictor.whole_device_bandwidth(user);
    helped
        .map(Transfer::due_time)
        .max()
        .is_some_and(|due| transfer.forecast(due, whole).late == Nanos::ZERO)
}
