//! Tasks: what is asked for in many requests and is done once all of them are answered. The
//! requests of a trace, and whole jobs that have a deadline. Those with a deadline are the engine's
//! jobs, too.
//!
//! ```text
//!   its first piece is asked for --> running --> its last piece is answered: done
//!                                       |
//!                                       +------> its job is stopped, or its VM leaves: abandoned
//! ```

use super::events::Event;
use super::guest::Worker;
use super::{Guest, Host};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use tidegate_core::jobs::{Admission, JobSpec};
use tidegate_core::time::Nanos;
use tidegate_workload::deadline::Deadline;
use tidegate_workload::job::Job;
use tidegate_workload::source::Source;
use tidegate_workload::stream::Io;

/// A task that has begun and is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Which of its worker's, from 0 on.
    pub index: u64,
    /// Bytes that it moves.
    pub bytes: u64,
    /// When it was to come.
    pub since: Nanos,
    /// How long it may take.
    pub deadline: Option<Nanos>,
    /// Bytes that are not asked for yet.
    unasked: u64,
    /// Bytes that are not answered. A whole job is done when its worker is.
    pub left: u64,
}

impl Task {
    fn is_overdue(&self, now: Nanos) -> bool {
        (self.deadline).is_some_and(|deadline| now.since(self.since) > deadline)
    }
}

/// Those of a worker.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    deadline: Option<Deadline>,
    /// Bytes of the worker's only task, its whole job; `None`: its tasks are the requests of its
    /// trace.
    whole: Option<u64>,
    begun: u64,
    /// In the order of their begin.
    running: VecDeque<Task>,
    /// Which task a request outstanding is of, by its slot.
    of_slot: Vec<u64>,
}

impl Tasks {
    /// Of a copy of this job; `None`: it has none.
    pub(super) fn of(job: &Job) -> Option<Box<Tasks>> {
        let whole = match (&job.replay, job.deadline, job.io_size) {
            (Some(_), _, _) => None,
            (None, Some(_), Some(bytes)) => Some(bytes),
            _ => return None,
        };
        Some(Box::new(Tasks {
            deadline: job.deadline,
            whole,
            begun: 0,
            running: VecDeque::new(),
            of_slot: Vec::new(),
        }))
    }

    fn begin(&mut self, since: Nanos, bytes: u64) -> Task {
        let task = Task {
            index: self.begun,
            bytes,
            since,
            deadline: self.deadline.map(|deadline| deadline.of(bytes)),
            unasked: bytes,
            left: bytes,
        };
        self.begun += 1;
        self.running.push_back(task);
        task
    }

    /// A request in this slot, the latest that was asked for, is of the task that began last.
    fn lies_in(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, 0);
        }
        self.of_slot[slot] = self.begun.saturating_sub(1);
    }

    /// The request in this slot is answered; the task that is done with it. `over`: nothing of its
    /// worker is to come or outstanding.
    fn answered(&mut self, slot: u32, len: u32, over: bool) -> Option<Task> {
        let index = *self.of_slot.get(slot as usize)?;
        // Not there: it was abandoned.
        let place = self.running.binary_search_by_key(&index, |task| task.index);
        let task = self.running.get_mut(place.ok()?)?;
        task.left = task.left.saturating_sub(len.into());
        let done = match self.whole {
            Some(_) => over,
            None => task.left == 0,
        };
        done.then(|| self.running.remove(place.ok()?))?
    }

    /// Takes out those that will never be done: `all`, or those of which something is not asked for
    /// yet.
    fn abandon(&mut self, all: bool) -> Vec<Task> {
        let is_lost = |task: &Task| all || self.whole.is_some() || task.unasked > 0;
        let running = core::mem::take(&mut self.running);
        let (lost, kept): (Vec<Task>, Vec<Task>) = running.into_iter().partition(is_lost);
        self.running = kept.into();
        lost
    }

    /// Those that run, as if they were abandoned now.
    fn running(&self, now: Nanos) -> TaskTally {
        let mut tally = TaskTally::default();
        let tasks = self.running.iter();
        tasks.for_each(|task| tally.abandoned(task.is_overdue(now)));
        tally
    }
}

/// What was counted of a tenant's tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskTally {
    /// Done.
    pub done: u64,
    /// From when they were to come to their last answer, summed, in nanoseconds.
    pub response_sum: u128,
    /// The longest.
    pub response_max: Nanos,
    /// Done in time, of those with a deadline.
    pub met: u64,
    /// Past their deadline, done or not.
    pub missed: u64,
    /// Neither done nor past a deadline when they were abandoned, or at the end.
    pub unfinished: u64,
    /// How late those were that were done late, summed, in nanoseconds.
    pub late_sum: u128,
    /// The latest.
    pub late_max: Nanos,
    /// Those that were done late.
    pub late: u64,
}

impl TaskTally {
    fn done(&mut self, response: Nanos, deadline: Option<Nanos>) {
        self.done += 1;
        self.response_sum += u128::from(response.0);
        self.response_max = self.response_max.max(response);
        let Some(deadline) = deadline else { return };
        let late = response.since(deadline);
        if late == Nanos::ZERO {
            self.met += 1;
            return;
        }
        self.missed += 1;
        self.late += 1;
        self.late_sum += u128::from(late.0);
        self.late_max = self.late_max.max(late);
    }

    fn abandoned(&mut self, overdue: bool) {
        self.missed += u64::from(overdue);
        self.unfinished += u64::from(!overdue);
    }

    /// Counts another span as well.
    pub(crate) fn add(&mut self, other: &TaskTally) {
        self.done += other.done;
        self.response_sum += other.response_sum;
        self.response_max = self.response_max.max(other.response_max);
        self.met += other.met;
        self.missed += other.missed;
        self.unfinished += other.unfinished;
        self.late_sum += other.late_sum;
        self.late_max = self.late_max.max(other.late_max);
        self.late += other.late;
    }
}

/// A task that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskDone {
    /// Whose: a place in the scenario.
    pub tenant: usize,
    /// Which of its worker's, from 0 on, in the order in which they began.
    pub index: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// When it was to come.
    pub since: Nanos,
    /// When its last answer came.
    pub ended: Nanos,
    /// How long it was allowed to take.
    pub deadline: Option<Nanos>,
}

impl Host {
    /// A worker with tasks begins. Its whole job is one.
    pub(super) fn begin_whole(&mut self, worker: u32) {
        let now = self.now;
        let of = &mut self.workers[worker as usize];
        if of.is_over() {
            return;
        }
        let Some(tasks) = &mut of.tasks else { return };
        if let Some(bytes) = tasks.whole {
            let task = tasks.begin(now, bytes);
            self.begin_job(worker, &task);
        }
    }

    /// A worker with tasks asks for something.
    pub(super) fn issue_of_task(&mut self, worker: u32, io: Io, since: Nanos) {
        let of = &mut self.workers[worker as usize];
        let mut begun = None;
        if let (Some(tasks), Some(whole)) = (&mut of.tasks, of.source.whole()) {
            if whole.index == tasks.begun {
                begun = Some(tasks.begin(since, whole.bytes));
            }
            if let Some(task) = tasks.running.back_mut() {
                task.unasked -= u64::from(io.len);
            }
        }
        if let Some(task) = begun {
            self.begin_job(worker, &task);
        }
        let slot = self.issue(worker, io, since);
        if let Some(tasks) = &mut self.workers[worker as usize].tasks {
            tasks.lies_in(slot);
        }
    }

    /// A request of a worker with tasks is answered.
    pub(super) fn answered_of_task(&mut self, worker: u32, slot: u32, len: u32) {
        let of = &mut self.workers[worker as usize];
        let (tenant, over) = (of.tenant, of.is_over() && of.outstanding == 0);
        let Some(tasks) = &mut of.tasks else { return };
        let Some(task) = tasks.answered(slot, len, over) else {
            return;
        };
        self.task_changes += 1;
        self.end_job(tenant, &task);
        let guest = &mut self.guests[tenant as usize];
        let response = self.now.since(task.since);
        if let Some(tally) = &mut guest.tally.tasks {
            tally.done(response, task.deadline);
        }
        if let Some(log) = &mut self.done_tasks {
            log.push(TaskDone {
                tenant: guest.rest.index,
                index: task.index,
                bytes: task.bytes,
                since: task.since,
                ended: self.now,
                deadline: task.deadline,
            });
        }
    }

    /// A worker is stopped. `all`: what is outstanding is never answered either.
    pub(super) fn abandon_tasks(&mut self, worker: u32, all: bool) {
        let of: &mut Worker = &mut self.workers[worker as usize];
        let tenant = of.tenant;
        let Some(tasks) = &mut of.tasks else { return };
        for task in tasks.abandon(all) {
            self.task_changes += 1;
            self.end_job(tenant, &task);
            if let Some(tally) = &mut self.guests[tenant as usize].tally.tasks {
                tally.abandoned(task.is_overdue(self.now));
            }
        }
    }

    /// Tenants by their places in the scenario, with what is not done of a worker's tasks.
    pub(crate) fn running_tasks(&self) -> impl Iterator<Item = (usize, TaskTally)> {
        self.workers.iter().filter_map(|worker| {
            let running = worker.tasks.as_ref()?.running(self.now);
            Some((self.guests[worker.tenant as usize].rest.index, running))
        })
    }

    /// Tasks that are done are kept from now on.
    pub(crate) fn keep_done_tasks(&mut self) {
        self.done_tasks.get_or_insert_default();
    }

    /// Those that were kept since this was asked last.
    pub(crate) fn take_done_tasks(&mut self) -> Vec<TaskDone> {
        self.done_tasks
            .as_mut()
            .map(core::mem::take)
            .unwrap_or_default()
    }

    /// The engine is told of a task with a deadline.
    fn begin_job(&mut self, worker: u32, task: &Task) {
        self.task_changes += 1;
        let guest = &mut self.guests[self.workers[worker as usize].tenant as usize];
        if let (Some(deadline), Some((vm, _))) = (task.deadline, guest.engine) {
            let bytes = task.bytes;
            let job = JobSpec { bytes, deadline };
            let engine = &mut self.engines[guest.host];
            let begun = match guest.rest.terms.take() {
                Some(terms) => engine.begin_admitted_job(self.now, vm, &job, &terms),
                None => engine.begin_job(self.now, vm, &job),
            };
            begun.expect("the VM is there, and moves something in some time");
        }
    }

    /// The first job of a tenant, a single copy that does nothing, becomes this one and begins, on
    /// these terms if any.
    pub(crate) fn begin(
        &mut self,
        tenant: usize,
        job: &Job,
        rng: Pcg64Mcg,
        terms: Option<Admission>,
    ) {
        let by_index = |guest: &Guest| guest.rest.index;
        let found = self.guests.binary_search_by_key(&tenant, by_index);
        let guest = &mut self.guests[found.expect("it is on this device")];
        let worker = guest.workers.start;
        let of = &mut self.workers[worker as usize];
        assert!(
            guest.engine.is_some() && of.outstanding == 0,
            "it waits for a job"
        );
        let block = self.model.spec().logical_block;
        let source = Source::new(job, 0, guest.rest.disk.size, block);
        *of = Worker::new(of.tenant, job, source.expect("the job was checked"), rng);
        guest.rest.jobs[0].clone_from(job);
        guest.rest.terms = terms;
        if of.tasks.is_some() {
            guest.tally.tasks.get_or_insert_default();
        }
        self.happen(Event::Start(worker));
        self.settle();
    }

    /// The tasks that run, with the places of their tenants in the scenario.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (usize, &Task)> {
        self.workers.iter().flat_map(|worker| {
            let tenant = self.guests[worker.tenant as usize].rest.index;
            let running = worker.tasks.iter().flat_map(|tasks| &tasks.running);
            running.map(move |task| (tenant, task))
        })
    }

    /// It hears of its end, unless it has counted the last byte itself.
    fn end_job(&mut self, tenant: u32, task: &Task) {
        let guest = &self.guests[tenant as usize];
        if let (Some(_), Some((vm, _))) = (task.deadline, guest.engine) {
            self.engines[guest.host]
                .end_job(self.now, vm)
                .expect("the VM is there");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = Nanos::SECOND;

    #[test]
    fn what_is_late_is_missed_and_what_is_in_time_to_the_nanosecond_is_met() {
        let mut tally = TaskTally::default();
        for response in [S, S + Nanos(1), S + S + S] {
            tally.done(response, Some(S));
        }
        assert_eq!((tally.done, tally.met, tally.missed), (3, 1, 2));
        assert_eq!((tally.late, tally.late_max), (2, S + S));
        assert_eq!(tally.late_sum, 2_000_000_001);
        assert_eq!(tally.response_max, S + S + S);
        tally.done(S, None);
        assert_eq!((tally.done, tally.met, tally.missed), (4, 1, 2));
        tally.abandoned(true);
        tally.abandoned(false);
        assert_eq!((tally.missed, tally.unfinished, tally.late), (3, 1, 2));
        let mut twice = tally;
        twice.add(&tally);
        assert_eq!((twice.done, twice.missed, twice.late), (8, 6, 4));
        assert_eq!(twice.response_sum, 2 * tally.response_sum);
    }

    #[test]
    fn answers_are_of_the_task_that_they_were_asked_for_in() {
        let mut tasks = Tasks {
            deadline: None,
            whole: None,
            begun: 0,
            running: VecDeque::new(),
            of_slot: Vec::new(),
        };
        // Two at once, whose pieces are answered in no order.
        for (slots, since) in [([3, 0], 5), ([2, 7], 6)] {
            tasks.begin(Nanos(since), 2048);
            for slot in slots {
                tasks.running.back_mut().expect("it runs").unasked -= 1024;
                tasks.lies_in(slot);
            }
        }
        let mut done = |slot| tasks.answered(slot, 1024, false).map(|task| task.index);
        assert_eq!(
            [done(2), done(3), done(7), done(0)],
            [None, None, Some(1), Some(0)]
        );
        assert_eq!(done(0), None, "it is over");
        tasks.begin(Nanos(9), 2048);
        tasks.lies_in(1);
        assert_eq!(tasks.running(Nanos(9)).unfinished, 1);
        assert_eq!(tasks.abandon(false).len(), 1, "not all of it was asked for");
        assert!(tasks.answered(1, 1024, true).is_none());
    }
}
