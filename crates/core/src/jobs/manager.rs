//! The priority manager: figure 3.3 of the thesis, steps 6 to 21, and the guard of section 4.2.2.

use super::{Forecast, Job};
use crate::time::Nanos;

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

    fn raised(self, steps: usize) -> Class {
        Class::ALL[(self as usize + steps).min(Class::ALL.len() - 1)]
    }

    fn lowered(self) -> Class {
        Class::ALL[(self as usize).saturating_sub(1)]
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

/// Somebody who uses the device.
#[derive(Clone, Debug, Default)]
struct Process {
    class: Class,
    job: Option<Job>,
    /// B: what it moved a second in the last interval; `None`: not measured yet.
    bandwidth: Option<u64>,
    /// Bytes since the interval began that runs, or its job.
    moved: u64,
    since: Nanos,
    /// For whose jobs its class was lowered by one, each time.
    lowered_for: Vec<usize>,
    /// Case 3 set its job to idle: it is no critical one until a job begins or ends.
    given_up: bool,
}

impl Process {
    /// It has a job, or it asked for something in the last interval: the others take nothing from anybody.
    fn is_active(&self) -> bool {
        self.job.is_some() || self.bandwidth != Some(0)
    }
}

/// Who is critical, in a cycle.
struct Critical {
    who: usize,
    due: Nanos,
}

/// Decides who has which class so that jobs end in time, one step a cycle.
///
/// Whoever runs it calls [`PriorityManager::cycle`] every interval (three seconds in the thesis), and after
/// each job that begins or ends, and carries out the changes. Somebody without a job has all the time there
/// is.
#[derive(Clone, Debug)]
pub struct PriorityManager {
    processes: Vec<Option<Process>>,
    /// What the device does in all, in bytes a second: shared evenly by those that were not measured yet.
    capacity: u64,
    /// When the interval began that runs.
    since: Nanos,
    as_printed: bool,
}

impl PriorityManager {
    /// Of a device of so many bytes a second, from now on.
    pub fn new(now: Nanos, capacity: u64) -> PriorityManager {
        PriorityManager {
            processes: Vec::new(),
            capacity,
            since: now,
            as_printed: false,
        }
    }

    /// A job that was lowered for another is critical by what it has meanwhile, as figure 3.3 has it: so two
    /// that would both be in time one after the other take turns at being lowered.
    pub fn as_printed(self) -> PriorityManager {
        let as_printed = true;
        PriorityManager { as_printed, ..self }
    }

    /// The device does so many bytes a second.
    pub fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// Somebody comes, best effort and without a job; `who` is nobody yet.
    pub fn add(&mut self, now: Nanos, who: usize) {
        if self.processes.len() <= who {
            self.processes.resize(who + 1, None);
        }
        self.processes[who] = Some(Process {
            since: now,
            ..Process::default()
        });
    }

    /// Somebody goes, with its job.
    pub fn remove(&mut self, who: usize, out: &mut Vec<Change>) {
        self.end(who, out);
        if let Some(slot) = self.processes.get_mut(who) {
            *slot = None;
        }
    }

    /// Whose class is what; `None`: it is not there.
    pub fn class(&self, who: usize) -> Option<Class> {
        self.processes
            .get(who)?
            .as_ref()
            .map(|process| process.class)
    }

    /// The job of somebody.
    pub fn job(&self, who: usize) -> Option<&Job> {
        self.processes.get(who)?.as_ref()?.job.as_ref()
    }

    /// Case 3 came of it: as things are its job cannot be met.
    pub fn is_given_up(&self, who: usize) -> bool {
        matches!(self.processes.get(who), Some(Some(process)) if process.given_up)
    }

    /// A job begins; one that the same had before is over. Returns whether it can be met at all: by the whole
    /// device.
    pub fn begin(&mut self, who: usize, job: Job, out: &mut Vec<Change>) -> bool {
        self.end(who, out);
        if let Some(Some(process)) = self.processes.get_mut(who) {
            process.job = Some(job);
            (process.bandwidth, process.moved, process.since) = (None, 0, job.begun);
        }
        self.reconsider();
        job.latency(self.capacity) <= job.deadline
    }

    /// A job is done, or is not wanted any more: who was lowered for it is restored, and who had it is best
    /// effort again but for what others' jobs take.
    pub fn end(&mut self, who: usize, out: &mut Vec<Change>) {
        let Some(Some(process)) = self.processes.get_mut(who) else {
            return;
        };
        if process.job.take().is_none() {
            return;
        }
        let steps = process.lowered_for.len();
        let class = (0..steps).fold(Class::BestEffort, |class, _| class.lowered());
        self.set(who, class, out);
        self.restore(who, out);
        self.reconsider();
    }

    /// So many bytes of somebody have moved. Returns whether its job is done with them.
    pub fn moved(&mut self, who: usize, bytes: u64) -> bool {
        let Some(Some(process)) = self.processes.get_mut(who) else {
            return false;
        };
        process.moved += bytes;
        match &mut process.job {
            None => false,
            Some(job) => {
                job.moved = job.moved.saturating_add(bytes);
                job.left() == 0
            }
        }
    }

    /// What comes of somebody's job at the bandwidth that it has.
    pub fn forecast(&self, who: usize, now: Nanos) -> Option<Forecast> {
        let process = self.processes.get(who)?.as_ref()?;
        Some(process.job?.forecast(now, self.bandwidth(process)))
    }

    /// An interval is over: what moved in it is what everybody has, and what follows from that is done. Of a
    /// job that began in its last two thirds nothing is known yet.
    pub fn measure(&mut self, now: Nanos, out: &mut Vec<Change>) {
        let interval = now.since(self.since).0;
        for process in self.processes.iter_mut().flatten() {
            let length = now.since(process.since).0;
            if length.saturating_mul(3) < interval || length == 0 {
                continue;
            }
            let moved = u128::from(process.moved) * u128::from(Nanos::SECOND.0);
            let per_s = u64::try_from(moved / u128::from(length));
            process.bandwidth = Some(per_s.unwrap_or(u64::MAX));
            (process.moved, process.since) = (0, now);
        }
        self.since = now;
        self.cycle(now, out);
    }

    /// One cycle with what was measured last: at most one of the three cases, behind the guard.
    pub fn cycle(&mut self, now: Nanos, out: &mut Vec<Change>) {
        self.guard(now, out);
        let Some(critical) = self.critical(now) else {
            return;
        };
        let class = self.class(critical.who).unwrap_or_default();
        match self.best_to_lower(&critical, now) {
            Some(who) => self.lower(who, critical.who, out),
            None if class < Class::RealTime => self.set(critical.who, class.raised(1), out),
            None => self.give_up(critical.who, out),
        }
    }

    /// Section 4.2.2: a job past its deadline is not starved; it is real time until it ends.
    fn guard(&mut self, now: Nanos, out: &mut Vec<Change>) {
        let late: Vec<usize> = (self.jobs())
            .filter(|(_, _, job)| job.due() < now)
            .map(|(who, _, _)| who)
            .collect();
        for who in late {
            self.set(who, Class::RealTime, out);
        }
    }

    /// Step 6. "D is minimum" is of what is left of it; who is late or given up is no candidate.
    fn critical(&self, now: Nanos) -> Option<Critical> {
        let in_danger = |(who, process, job): (usize, &Process, &Job)| {
            let due = job.due();
            let misses = job.forecast(now, self.bandwidth(process)).late > Nanos::ZERO;
            let critical =
                due >= now && !process.given_up && misses && !self.can_wait(process, job);
            critical.then_some(Critical { who, due })
        };
        self.jobs()
            .filter_map(in_danger)
            .min_by_key(|critical| critical.due)
    }

    /// It was lowered for jobs of others, and is in time if it has the device once they are due.
    fn can_wait(&self, process: &Process, job: &Job) -> bool {
        let helped = process.lowered_for.iter().filter_map(|&who| self.job(who));
        match helped.map(Job::due).max() {
            Some(due) if !self.as_printed => job.forecast(due, self.capacity).late == Nanos::ZERO,
            _ => false,
        }
    }

    /// Steps 8 and 9: of those who have more time left and keep their own deadlines, the one with the most
    /// time to spare.
    fn best_to_lower(&self, critical: &Critical, now: Nanos) -> Option<usize> {
        let spare = |(who, process): (usize, &Process)| {
            let spare = match process.job {
                None => Nanos::MAX,
                Some(job) if job.due() > critical.due => {
                    job.forecast(now, self.bandwidth(process)).early
                }
                Some(_) => Nanos::ZERO,
            };
            let lowerable =
                who != critical.who && process.class > Class::Idle && process.is_active();
            (lowerable && spare > Nanos::ZERO).then_some((who, spare))
        };
        // The first of those that are alike.
        let all = self.all().filter_map(spare);
        let best = all.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map(|(who, _)| who)
    }

    /// Case 1.
    fn lower(&mut self, who: usize, for_whom: usize, out: &mut Vec<Change>) {
        let Some(Some(process)) = self.processes.get_mut(who) else {
            return;
        };
        process.lowered_for.push(for_whom);
        let class = process.class.lowered();
        self.set(who, class, out);
    }

    /// Case 3: no assignment keeps its deadline, so nobody is to suffer for it.
    fn give_up(&mut self, who: usize, out: &mut Vec<Change>) {
        self.set(who, Class::Idle, out);
        if let Some(Some(process)) = self.processes.get_mut(who) {
            process.given_up = true;
        }
        self.restore(who, out);
    }

    /// Step 17: those that were lowered for somebody's job are what they were.
    fn restore(&mut self, for_whom: usize, out: &mut Vec<Change>) {
        for who in 0..self.processes.len() {
            let Some(process) = &mut self.processes[who] else {
                continue;
            };
            let before = process.lowered_for.len();
            process.lowered_for.retain(|&whom| whom != for_whom);
            let steps = before - process.lowered_for.len();
            if steps > 0 && !process.given_up {
                let class = process.class.raised(steps);
                self.set(who, class, out);
            }
        }
    }

    /// A job began or ended: those that were given up may be met now.
    fn reconsider(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            process.given_up = false;
        }
    }

    fn set(&mut self, who: usize, class: Class, out: &mut Vec<Change>) {
        if let Some(Some(process)) = self.processes.get_mut(who)
            && process.class != class
        {
            process.class = class;
            out.push(Change { who, class });
        }
    }

    fn bandwidth(&self, process: &Process) -> u64 {
        let share = || {
            let active = self.all().filter(|(_, process)| process.is_active());
            self.capacity / active.count().max(1) as u64
        };
        process.bandwidth.unwrap_or_else(share)
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Process)> {
        (self.processes.iter().enumerate())
            .filter_map(|(who, process)| Some((who, process.as_ref()?)))
    }

    fn jobs(&self) -> impl Iterator<Item = (usize, &Process, &Job)> {
        self.all()
            .filter_map(|(who, process)| Some((who, process, process.job.as_ref()?)))
    }
}
