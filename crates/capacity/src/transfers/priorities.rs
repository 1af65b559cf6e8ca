//! Assignment of priority classes to users: figure 3.3 of the thesis, steps 6 to 21, and the guard
//! of section 4.2.2.

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

    /// Name in reports: `realtime`, `best-effort` or `idle`.
    pub fn name(self) -> &'static str {
        match self {
            Class::RealTime => "realtime",
            Class::BestEffort => "best-effort",
            Class::Idle => "idle",
        }
    }

    /// Class that many steps above, at most the strongest.
    pub fn raised(self, steps: usize) -> Class {
        Class::ALL[(self as usize + steps).min(Class::ALL.len() - 1)]
    }

    /// Class that many steps below, at least the weakest.
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
    pub who: usize,
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

    fn for_whom(&self) -> impl Iterator<Item = usize> {
        self.0.into_iter().flatten()
    }

    fn push(&mut self, for_whom: usize) {
        if let Some(room) = self.0.iter_mut().find(|room| room.is_none()) {
            *room = Some(for_whom);
        }
    }

    /// Removes the latest step. Returns false if there is none.
    fn pop(&mut self) -> bool {
        let last = self.0.iter_mut().rev().find(|step| step.is_some());
        last.and_then(Option::take).is_some()
    }

    /// Removes the steps taken for the transfer of `for_whom`, and returns their number.
    fn forget(&mut self, for_whom: usize) -> usize {
        let before = self.steps();
        self.0.iter_mut().for_each(|step| {
            step.take_if(|whom| *whom == for_whom);
        });
        before - self.steps()
    }
}

/// State of one user.
#[derive(Clone, Debug)]
struct Place {
    /// Class while no transfer changes it.
    base: Class,
    class: Class,
    lowered: Lowered,
    /// Case 3 set the user to idle: its transfer is not critical until any transfer begins or ends.
    given_up: bool,
}

/// Critical user of a cycle, and the deadline by which it was chosen.
struct Critical {
    who: usize,
    by: Nanos,
}

/// Chooses the classes with which transfers end in time, one step a cycle.
///
/// The caller runs [`Priorities::cycle`] every interval (three seconds in the thesis) and after
/// each transfer that begins or ends, and applies the changes. The [`Predictor`] knows transfers
/// and bandwidths; a user without a transfer counts as having unlimited time.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    places: Vec<Option<Place>>,
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

    /// Adds the user `who` with the class that it has while no transfer changes it. The index must
    /// be free.
    pub fn add(&mut self, who: usize, base: Class) {
        if self.places.len() <= who {
            self.places.resize(who + 1, None);
        }
        self.places[who] = Some(Place {
            base,
            class: base,
            lowered: Lowered::default(),
            given_up: false,
        });
    }

    /// Removes a user with its transfer.
    pub fn remove(&mut self, who: usize, out: &mut Vec<Change>) {
        self.transfer_ended(who, out);
        if let Some(place) = self.places.get_mut(who) {
            *place = None;
        }
    }

    /// Returns the class of a user; `None`: no such user.
    pub fn class(&self, who: usize) -> Option<Class> {
        Some(self.place(who)?.class)
    }

    /// Returns true if case 3 applied to the user's transfer: no assignment of classes meets its
    /// deadline.
    pub fn is_given_up(&self, who: usize) -> bool {
        self.place(who).is_some_and(|place| place.given_up)
    }

    /// Sets a user's base class. `has_transfer`: the user has a transfer, whose end will apply the
    /// class.
    pub fn set_base(&mut self, who: usize, base: Class, has_transfer: bool, out: &mut Vec<Change>) {
        let Some(place) = self.place_mut(who) else {
            return;
        };
        place.base = base;
        if !has_transfer {
            let class = base.lowered(place.lowered.steps());
            self.set(who, class, out);
        }
    }

    /// Reconsiders transfers that were given up; to be called after a transfer has begun.
    pub fn transfer_began(&mut self) {
        for place in self.places.iter_mut().flatten() {
            place.given_up = false;
        }
    }

    /// Ends the transfer of a user. Users that were lowered for it return to their classes, and
    /// `who` returns to its base class, less the steps that other transfers took from it. Transfers
    /// that were given up are reconsidered.
    pub fn transfer_ended(&mut self, who: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place(who) {
            let class = place.base.lowered(place.lowered.steps());
            self.set(who, class, out);
        }
        self.restore(who, out);
        self.transfer_began();
    }

    /// Applies the terms on which the transfer of `who` was admitted: `who` gets `class`, and each
    /// user in `lowered` stays at most at the class beside it until the transfer ends.
    pub fn admitted(
        &mut self,
        who: usize,
        class: Class,
        lowered: &[(usize, Class)],
        out: &mut Vec<Change>,
    ) {
        for &(other, to) in lowered {
            while self.class(other).is_some_and(|class| class > to) {
                self.lower(other, who, out);
            }
        }
        self.set(who, class, out);
    }

    /// Runs one cycle on the last measurement: the guard, then at most one of the three cases.
    pub fn cycle(&mut self, predictor: &Predictor, now: Nanos, out: &mut Vec<Change>) {
        if !self.unguarded {
            self.guard(predictor, now, out);
        }
        let Some(critical) = self.critical(predictor, now) else {
            return;
        };
        let class = self.class(critical.who).unwrap_or_default();
        match self.best_to_lower(&critical, predictor, now) {
            Some(who) => self.lower(who, critical.who, out),
            None if class < Class::RealTime => self.raise(critical.who, out),
            None => self.give_up(critical.who, out),
        }
    }

    /// Section 4.2.2: a transfer past its deadline is not starved; it is real time until it ends.
    fn guard(&mut self, predictor: &Predictor, now: Nanos, out: &mut Vec<Change>) {
        for who in 0..self.places.len() {
            let is_late = predictor
                .transfer(who)
                .is_some_and(|transfer| transfer.due() < now);
            if is_late && let Some(place) = self.place_mut(who) {
                place.lowered = Lowered::default();
                self.set(who, Class::RealTime, out);
            }
        }
    }

    /// Key by which deadlines are compared. "D is minimum" means the earliest point in time, unless
    /// as printed.
    fn by(&self, transfer: &Transfer) -> Nanos {
        if self.as_printed {
            transfer.deadline
        } else {
            transfer.due()
        }
    }

    /// Step 6: returns the user with the most urgent transfer that would miss its deadline.
    /// Transfers that are late already or given up are no candidates.
    fn critical(&self, predictor: &Predictor, now: Nanos) -> Option<Critical> {
        let in_danger = |(who, place): (usize, &Place)| {
            let transfer = predictor.transfer(who)?;
            let misses = predictor.forecast(who, now)?.late > Nanos::ZERO;
            let stays =
                !self.as_printed && (place.given_up || can_wait(predictor, who, place, transfer));
            let by = self.by(transfer);
            (transfer.due() >= now && misses && !stays).then_some(Critical { who, by })
        };
        self.all()
            .filter_map(in_danger)
            .min_by_key(|critical| critical.by)
    }

    /// Steps 8 and 9: among users with later deadlines, or none, that keep their own, returns the
    /// one with the most time to spare.
    fn best_to_lower(
        &self,
        critical: &Critical,
        predictor: &Predictor,
        now: Nanos,
    ) -> Option<usize> {
        let spare = |(who, place): (usize, &Place)| {
            let spare = match predictor.transfer(who) {
                None => Nanos::MAX,
                Some(transfer) if self.by(transfer) > critical.by => {
                    let forecast = predictor.forecast(who, now);
                    forecast.map_or(Nanos::ZERO, |forecast| forecast.early)
                }
                Some(_) => Nanos::ZERO,
            };
            let lowerable =
                who != critical.who && place.class > Class::Idle && predictor.is_active(who);
            (lowerable && spare > Nanos::ZERO).then_some((who, spare))
        };
        // Strict comparison keeps the first of several with equal spare time.
        let all = self.all().filter_map(spare);
        let best = all.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map(|(who, _)| who)
    }

    /// Case 1: lowers a user by one step for the transfer of `for_whom`.
    fn lower(&mut self, who: usize, for_whom: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who) {
            place.lowered.push(for_whom);
            let class = place.class.lowered(1);
            self.set(who, class, out);
        }
    }

    /// Case 2: raises a user by one step, and takes back the latest step by which it was lowered.
    fn raise(&mut self, who: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who) {
            place.lowered.pop();
            let class = place.class.raised(1);
            self.set(who, class, out);
        }
    }

    /// Case 3: no assignment of classes meets the deadline, so no other user is to suffer for it.
    fn give_up(&mut self, who: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who) {
            (place.given_up, place.lowered) = (true, Lowered::default());
        }
        self.set(who, Class::Idle, out);
        self.restore(who, out);
    }

    /// Step 17: returns users that were lowered for the transfer of `for_whom` to their classes.
    fn restore(&mut self, for_whom: usize, out: &mut Vec<Change>) {
        for who in 0..self.places.len() {
            if let Some(place) = self.place_mut(who) {
                let steps = place.lowered.forget(for_whom);
                let class = place.class.raised(steps);
                self.set(who, class, out);
            }
        }
    }

    fn set(&mut self, who: usize, class: Class, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who)
            && place.class != class
        {
            place.class = class;
            out.push(Change { who, class });
        }
    }

    fn place(&self, who: usize) -> Option<&Place> {
        self.places.get(who)?.as_ref()
    }

    fn place_mut(&mut self, who: usize) -> Option<&mut Place> {
        self.places.get_mut(who)?.as_mut()
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Place)> {
        (self.places.iter().enumerate()).filter_map(|(who, place)| Some((who, place.as_ref()?)))
    }
}

/// Returns true if a transfer that was lowered for others is still in time when it gets the device
/// after the last of those is due, at the bandwidth that its user can consume.
fn can_wait(predictor: &Predictor, who: usize, place: &Place, transfer: &Transfer) -> bool {
    let helped = place
        .lowered
        .for_whom()
        .filter_map(|who| predictor.transfer(who));
    let whole = predictor.of_the_whole(who);
    helped
        .map(Transfer::due)
        .max()
        .is_some_and(|due| transfer.forecast(due, whole).late == Nanos::ZERO)
}
