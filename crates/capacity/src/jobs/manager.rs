//! Figure 3.3 of the thesis as a whole, for those who keep no books of their own.

use super::{Capacity, Change, Class, Forecast, Job, Predictor, Priorities};
use tidegate_base::time::Nanos;

/// Latency predictor and priority manager together: [`Predictor`] and [`Priorities`].
///
/// Whoever runs it says what moved, calls [`PriorityManager::measure`] every interval (three
/// seconds in the thesis) and [`PriorityManager::cycle`] after each job that begins or ends, and
/// carries out the changes.
#[derive(Clone, Debug)]
pub struct PriorityManager {
    predictor: Predictor,
    priorities: Priorities,
    /// Whose class is another since the last cycle.
    turned: Vec<usize>,
}

impl PriorityManager {
    /// Of a device of so many bytes a second, from now on; 0: not known.
    pub fn new(now: Nanos, capacity: u64) -> PriorityManager {
        PriorityManager {
            predictor: Predictor::new(now, Capacity::given(capacity, 0)),
            priorities: Priorities::default(),
            turned: Vec::new(),
        }
    }

    /// To the letter of figure 3.3: see [`Priorities::as_printed`].
    pub fn as_printed(self) -> PriorityManager {
        PriorityManager {
            priorities: self.priorities.as_printed(),
            ..self
        }
    }

    /// Without the guard: see [`Priorities::unguarded`].
    pub fn unguarded(self) -> PriorityManager {
        PriorityManager {
            priorities: self.priorities.unguarded(),
            ..self
        }
    }

    /// The device does so many bytes a second.
    pub fn set_capacity(&mut self, capacity: u64) {
        *self.predictor.capacity_mut() = Capacity::given(capacity, 0);
    }

    /// Somebody comes, best effort and without a job; `who` is nobody yet.
    pub fn add(&mut self, now: Nanos, who: usize) {
        self.predictor.add(now, who);
        self.priorities.add(who, Class::BestEffort);
    }

    /// Somebody goes, with its job.
    pub fn remove(&mut self, who: usize, out: &mut Vec<Change>) {
        let from = out.len();
        self.predictor.remove(who);
        self.priorities.remove(who, out);
        self.note_turned(&out[from..]);
    }

    /// Somebody takes so many bytes a second at most, whatever it is given; `None`: all that it is
    /// given. Its job does not wait for others' longer than it can make up for.
    pub fn set_limit(&mut self, who: usize, limit: Option<u64>) {
        self.predictor.set_limit(who, limit);
    }

    /// Whose class is what; `None`: it is not there.
    pub fn class(&self, who: usize) -> Option<Class> {
        self.priorities.class(who)
    }

    /// The job of somebody.
    pub fn job(&self, who: usize) -> Option<&Job> {
        self.predictor.job(who)
    }

    /// Case 3 came of it: as things are its job cannot be met.
    pub fn is_given_up(&self, who: usize) -> bool {
        self.priorities.is_given_up(who)
    }

    /// A job begins; one that the same had before is over. Returns whether it can be met at all, as
    /// far as is known: by the whole device.
    pub fn begin(&mut self, who: usize, job: Job, out: &mut Vec<Change>) -> bool {
        self.end(who, out);
        self.predictor.begin(who, job, false);
        self.priorities.job_began();
        self.predictor.is_possible(who, job.begun)
    }

    /// An admission controller let somebody's job in on these terms: it has this class, and until
    /// it ends others are down at these.
    pub fn admitted(
        &mut self,
        who: usize,
        class: Class,
        lowered: &[(usize, Class)],
        out: &mut Vec<Change>,
    ) {
        self.priorities.admitted(who, class, lowered, out);
    }

    /// A job is done, or is not wanted any more: who was lowered for it is restored, and who had it
    /// is best effort again but for what others' jobs take.
    pub fn end(&mut self, who: usize, out: &mut Vec<Change>) {
        if self.predictor.end(who).is_some() {
            let from = out.len();
            self.priorities.job_ended(who, out);
            self.note_turned(&out[from..]);
        }
    }

    fn note_turned(&mut self, changes: &[Change]) {
        self.turned.extend(changes.iter().map(|change| change.who));
    }

    /// They are measured anew.
    fn forget_turned(&mut self, now: Nanos) {
        for who in self.turned.drain(..) {
            self.predictor.turned(now, who);
        }
    }

    /// So many bytes of somebody have moved. Returns whether its job is done with them.
    pub fn moved(&mut self, who: usize, bytes: u64) -> bool {
        self.predictor.moved(who, bytes)
    }

    /// What comes of somebody's job at the bandwidth that it has; `None`: it has none, or neither
    /// it nor the device was measured yet.
    pub fn forecast(&self, who: usize, now: Nanos) -> Option<Forecast> {
        self.predictor.forecast(who, now)
    }

    /// An interval is over: what moved in it is what everybody has, and what follows from that is
    /// done.
    pub fn measure(&mut self, now: Nanos, out: &mut Vec<Change>) {
        self.predictor.measure(now, false);
        self.cycle(now, out);
    }

    /// One cycle with what was measured last: at most one of the three cases, behind the guard.
    pub fn cycle(&mut self, now: Nanos, out: &mut Vec<Change>) {
        self.forget_turned(now);
        let from = out.len();
        self.priorities.cycle(&self.predictor, now, out);
        self.note_turned(&out[from..]);
        self.forget_turned(now);
    }
}
