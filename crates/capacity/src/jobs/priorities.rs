//! Who has which class of priority: figure 3.3 of the thesis, steps 6 to 21, and the guard of
//! section 4.2.2.

use super::{Job, Predictor};
use tidegate_base::objective::Priority;
use tidegate_base::time::Nanos;

/// A class of priority, the strongest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Class {
    /// Served when nobody else asks.
    Idle,
    /// As everybody is who has nothing in particular.
    #[default]
    BestEffort,
    /// Served before all others.
    RealTime,
}

impl Class {
    /// All, the weakest first.
    pub const ALL: [Class; 3] = [Class::Idle, Class::BestEffort, Class::RealTime];

    /// As it is written: `realtime`, `best-effort` or `idle`.
    pub fn name(self) -> &'static str {
        match self {
            Class::RealTime => "realtime",
            Class::BestEffort => "best-effort",
            Class::Idle => "idle",
        }
    }

    /// The class so many steps above, the strongest at most.
    pub fn raised(self, steps: usize) -> Class {
        Class::ALL[(self as usize + steps).min(Class::ALL.len() - 1)]
    }

    /// The class so many steps below, the weakest at least.
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

/// Somebody's class is to be another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Whose, as they were added.
    pub who: usize,
    /// From now on.
    pub class: Class,
}

/// For whose jobs somebody was lowered, a step each. There are two steps from the top to the
/// bottom.
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

    /// Takes a step back. False when there is none.
    fn pop(&mut self) -> bool {
        let last = self.0.iter_mut().rev().find(|step| step.is_some());
        last.and_then(Option::take).is_some()
    }

    /// Takes back what was for somebody's job; returns how many steps that were.
    fn forget(&mut self, for_whom: usize) -> usize {
        let before = self.steps();
        self.0.iter_mut().for_each(|step| {
            step.take_if(|whom| *whom == for_whom);
        });
        before - self.steps()
    }
}

/// Somebody's place among the others.
#[derive(Clone, Debug)]
struct Place {
    /// What it has when nobody's job changes that.
    base: Class,
    class: Class,
    lowered: Lowered,
    /// Case 3 set its job to idle: it is no critical one until a job begins or ends.
    given_up: bool,
}

/// Who is critical, in a cycle.
struct Critical {
    who: usize,
    by: Nanos,
}

/// Decides who has which class so that jobs end in time, one step a cycle.
///
/// Whoever runs it calls [`Priorities::cycle`] every interval (three seconds in the thesis), and
/// after each job that begins or ends, and carries out the changes. Who has a job, and which
/// bandwidth, is said by the [`Predictor`]; somebody without a job has all the time there is.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    places: Vec<Option<Place>>,
    as_printed: bool,
    unguarded: bool,
}

impl Priorities {
    /// Steps 6 to 17 to the letter. Deadlines are compared by their length, not by when they are; a
    /// job that was given up is critical again in the next cycle; and one that was lowered for
    /// another is critical by what it has meanwhile, so that two that would both be in time one
    /// after the other take turns at being lowered. The guard holds all the same.
    pub fn as_printed(self) -> Priorities {
        let as_printed = true;
        Priorities { as_printed, ..self }
    }

    /// Without the guard: a job past its deadline stays as it is, as before section 4.2.2.
    pub fn unguarded(self) -> Priorities {
        let unguarded = true;
        Priorities { unguarded, ..self }
    }

    /// Somebody comes, with the class that it has when nobody's job changes that; `who` is nobody
    /// yet.
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

    /// Somebody goes, with its job.
    pub fn remove(&mut self, who: usize, out: &mut Vec<Change>) {
        self.job_ended(who, out);
        if let Some(place) = self.places.get_mut(who) {
            *place = None;
        }
    }

    /// Whose class is what; `None`: it is not there.
    pub fn class(&self, who: usize) -> Option<Class> {
        Some(self.place(who)?.class)
    }

    /// Case 3 came of it: as things are its job cannot be met.
    pub fn is_given_up(&self, who: usize) -> bool {
        self.place(who).is_some_and(|place| place.given_up)
    }

    /// Somebody's class is another when nobody's job changes that. `has_job`: its own does.
    pub fn set_base(&mut self, who: usize, base: Class, has_job: bool, out: &mut Vec<Change>) {
        let Some(place) = self.place_mut(who) else {
            return;
        };
        place.base = base;
        if !has_job {
            let class = base.lowered(place.lowered.steps());
            self.set(who, class, out);
        }
    }

    /// A job has begun: those that were given up may be met now.
    pub fn job_began(&mut self) {
        for place in self.places.iter_mut().flatten() {
            place.given_up = false;
        }
    }

    /// A job is done, or is not wanted any more: who was lowered for it is restored, and who had it
    /// is what it was but for what others' jobs take. Those that were given up may be met now.
    pub fn job_ended(&mut self, who: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place(who) {
            let class = place.base.lowered(place.lowered.steps());
            self.set(who, class, out);
        }
        self.restore(who, out);
        self.job_began();
    }

    /// Somebody's job was let in on these terms: it has this class, and until it ends others are
    /// down at these.
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

    /// One cycle with what was measured last: at most one of the three cases, behind the guard.
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

    /// Section 4.2.2: a job past its deadline is not starved; it is real time until it ends.
    fn guard(&mut self, predictor: &Predictor, now: Nanos, out: &mut Vec<Change>) {
        for who in 0..self.places.len() {
            let is_late = predictor.job(who).is_some_and(|job| job.due() < now);
            if is_late && let Some(place) = self.place_mut(who) {
                place.lowered = Lowered::default();
                self.set(who, Class::RealTime, out);
            }
        }
    }

    /// By what deadlines are compared. "D is minimum" is of what is left of it, unless as printed.
    fn by(&self, job: &Job) -> Nanos {
        match self.as_printed {
            true => job.deadline,
            false => job.due(),
        }
    }

    /// Step 6. Who is late or given up is no candidate.
    fn critical(&self, predictor: &Predictor, now: Nanos) -> Option<Critical> {
        let in_danger = |(who, place): (usize, &Place)| {
            let job = predictor.job(who)?;
            let misses = predictor.forecast(who, now)?.late > Nanos::ZERO;
            let stays =
                !self.as_printed && (place.given_up || can_wait(predictor, who, place, job));
            let by = self.by(job);
            (job.due() >= now && misses && !stays).then_some(Critical { who, by })
        };
        self.all()
            .filter_map(in_danger)
            .min_by_key(|critical| critical.by)
    }

    /// Steps 8 and 9: of those who have more time and keep their own deadlines, the one with the
    /// most time to spare.
    fn best_to_lower(
        &self,
        critical: &Critical,
        predictor: &Predictor,
        now: Nanos,
    ) -> Option<usize> {
        let spare = |(who, place): (usize, &Place)| {
            let spare = match predictor.job(who) {
                None => Nanos::MAX,
                Some(job) if self.by(job) > critical.by => {
                    let forecast = predictor.forecast(who, now);
                    forecast.map_or(Nanos::ZERO, |forecast| forecast.early)
                }
                Some(_) => Nanos::ZERO,
            };
            let lowerable =
                who != critical.who && place.class > Class::Idle && predictor.is_active(who);
            (lowerable && spare > Nanos::ZERO).then_some((who, spare))
        };
        // The first of those that are alike.
        let all = self.all().filter_map(spare);
        let best = all.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map(|(who, _)| who)
    }

    /// Case 1.
    fn lower(&mut self, who: usize, for_whom: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who) {
            place.lowered.push(for_whom);
            let class = place.class.lowered(1);
            self.set(who, class, out);
        }
    }

    /// Case 2. Who was lowered for another takes that back first.
    fn raise(&mut self, who: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who) {
            place.lowered.pop();
            let class = place.class.raised(1);
            self.set(who, class, out);
        }
    }

    /// Case 3: no assignment keeps its deadline, so nobody is to suffer for it.
    fn give_up(&mut self, who: usize, out: &mut Vec<Change>) {
        if let Some(place) = self.place_mut(who) {
            (place.given_up, place.lowered) = (true, Lowered::default());
        }
        self.set(who, Class::Idle, out);
        self.restore(who, out);
    }

    /// Step 17: those that were lowered for somebody's job are what they were.
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

/// It was lowered for jobs of others, and is in time if it has the device once they are due, as far
/// as it can use that.
fn can_wait(predictor: &Predictor, who: usize, place: &Place, job: &Job) -> bool {
    let helped = place
        .lowered
        .for_whom()
        .filter_map(|who| predictor.job(who));
    let whole = predictor.of_the_whole(who);
    helped
        .map(Job::due)
        .max()
        .is_some_and(|due| job.forecast(due, whole).late == Nanos::ZERO)
}
