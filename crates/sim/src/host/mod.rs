//! A host's device in the simulated world: the engine, a device model and the guests.
//!
//! ```text
//!   guests --submit delay--> Engine --path--> device model
//!     ^                        |                  |
//!     +---- complete delay ----+<------path-------+
//! ```
//!
//! [`Host::run_until`] goes from one thing that happens to the next: the device ends an I/O, a
//! guest wakes, the engine has a timer. At one time, what ended comes first, then the guests in
//! the order their steps were planned, then the engine's timers; the device is given work last,
//! when everything that happens at this time is known.
//!
//! Memory is a function of the scenario, not of how long it runs.

mod count;
mod distance;
mod errand;
mod events;
mod exchange;
mod found;
mod guest;
mod passage;
mod path;
mod seconds;
mod setup;
mod slots;
mod tasks;

pub use count::{Kept, Tally, Times};
pub use distance::Distances;
pub(crate) use errand::Errand;
pub use found::{Held, Judged};
pub use tasks::{Task, TaskDone, TaskTally};

use crate::scenario::{Action, Change, Delay};
use count::Watch;
use errand::Errands;
use events::{Event, Events};
use exchange::Messages;
use guest::{Step, Worker};
use path::Way;
use rand_pcg::Pcg64Mcg;
use seconds::Seconds;
use slots::Slots;
use std::collections::VecDeque;
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::jobs::Admission;
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, Done, IoError, VmId};
use tidegate_core::time::Nanos;
use tidegate_device::Model;
use tidegate_workload::job::Job;
use tidegate_workload::stream::Io;

/// A tenant while it is simulated: what a request touches. Thousands of them do not fit the
/// processor's caches, so the rest lies apart.
struct Guest {
    /// While it is there.
    engine: Option<(VmId, ClientId)>,
    /// Its host's engine, among those that share the device.
    host: usize,
    /// Its workers are these of the host's.
    workers: core::ops::Range<u32>,
    /// Requests issued and not answered.
    outstanding: u32,
    /// When it got its last answer, or left in the middle of its work.
    last_answer: Nanos,
    delay: Delay,
    /// When its processor is done with the answers before.
    processor_free: Nanos,
    /// For its delays.
    rng: Pcg64Mcg,
    tally: Tally,
    watch: Watch,
    seconds: Seconds,
    /// Requests the engine had no room for, in order, and since when.
    refused: VecDeque<(u32, Nanos)>,
    /// It is in the host's line.
    in_line: bool,
    rest: Box<Rest>,
}

/// What is seldom asked of a tenant.
struct Rest {
    /// Its place in the scenario.
    index: usize,
    /// A process of the host.
    background: bool,
    disk: DiskSpec,
    jobs: Vec<Job>,
    objective: Objective,
    /// Promises that were changed, and what was found about them.
    past: Vec<Judged>,
    /// Its next job was let in on these terms.
    terms: Option<Admission>,
}

impl Guest {
    /// It has done all it was to do.
    fn is_over(&self, workers: &[Worker]) -> bool {
        let mut own = self.workers.clone();
        self.outstanding == 0 && own.all(|w| workers[w as usize].is_over())
    }

    /// From now on it is promised this.
    fn promise(&mut self, objective: &Objective) {
        let before = core::mem::replace(&mut self.rest.objective, *objective);
        if let Some(kept) = self.watch.promise(objective) {
            let objective = before;
            self.rest.past.push(Judged { objective, kept });
        }
        if before.target.bytes_per_s != objective.target.bytes_per_s {
            // What came of another target says nothing of this one.
            self.seconds.forget(false);
        }
    }
}

/// A request of a guest that is not answered yet.
#[derive(Clone, Copy)]
struct Pending {
    io: Io,
    worker: u32,
    /// When the guest wanted it; [`Nanos::MAX`]: this slot is free.
    since: Nanos,
    ended: Result<(), IoError>,
}

/// When what happens next does, and whether an I/O ends or an engine has a timer then.
struct Next {
    at: Nanos,
    ends: Nanos,
    timer: Nanos,
}

/// What a device did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceTally {
    /// I/Os that ended.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time with at least one I/O in flight.
    pub busy: Nanos,
    /// The sum over all I/Os of their time in flight, in nanoseconds.
    pub in_flight_sum: u128,
}

/// One device with everybody who shares it.
pub struct Host {
    /// Of the hosts that share it.
    engines: Vec<Engine>,
    /// Which of them is asked first what the device does next.
    turn: usize,
    exchange: Messages,
    way: Way,
    model: Box<dyn Model>,
    now: Nanos,
    events: Events,
    guests: Vec<Guest>,
    workers: Vec<Worker>,
    /// The job of each worker, as its guest and its place among that guest's jobs.
    jobs: Vec<(u32, u32)>,
    changes: Vec<Change>,
    pending: Vec<Pending>,
    free: Vec<u32>,
    /// Guests with refused requests that may be taken now, in the order of their turns.
    line: VecDeque<u32>,
    /// The guest of each of an engine's VMs, by engine.
    by_vm: Vec<Vec<u32>>,
    device: DeviceTally,
    distances: Distances,
    answered: u64,
    /// Tasks that are done, where somebody asks for them.
    done_tasks: Option<Vec<TaskDone>>,
    /// How often a task has begun or ended.
    task_changes: u64,
    /// When the last answer came, or the last job's time was over.
    last_end: Nanos,
    /// What is asked of vCPUs; `None`: guests take no time.
    errands: Option<Errands>,
}

impl Host {
    /// Lets time pass until `until`, everything that happens at it included.
    pub fn run_until(&mut self, until: Nanos) {
        while let Some(next) = self.next_by(until) {
            self.pass(&next);
        }
        self.pass_to(until);
    }

    /// The same, but no further than to the first time at which a task begins or ends, everything
    /// that happens at it included. Returns how far it has come.
    pub(crate) fn run_to_task(&mut self, until: Nanos) -> Nanos {
        let before = self.task_changes;
        while let Some(next) = self.next_by(until) {
            if self.task_changes != before && next.at > self.now {
                return self.now;
            }
            self.pass(&next);
        }
        if self.task_changes == before {
            self.pass_to(until);
        }
        self.now
    }

    /// What happens next; at [`Nanos::MAX`]: nothing.
    fn next(&self) -> Next {
        let ends = self.model.next_completion().unwrap_or(Nanos::MAX);
        let timers = self.engines.iter().filter_map(Engine::next_timeout);
        let timer = timers.min().unwrap_or(Nanos::MAX);
        let at = ends.min(timer).min(self.events.next());
        Next { at, ends, timer }
    }

    /// The same, where it happens by `until`.
    fn next_by(&self, until: Nanos) -> Option<Next> {
        Some(self.next()).filter(|next| next.at <= until)
    }

    /// It happens.
    fn pass(&mut self, next: &Next) {
        let now = next.at;
        self.pass_to(now);
        if next.ends <= now {
            self.complete();
        }
        while let Some(event) = self.events.due(now) {
            self.happen(event);
        }
        if next.timer <= now {
            self.engines.iter_mut().for_each(|e| e.handle_timeout(now));
        }
        self.settle();
        if self.engines.len() > 1 {
            self.tell();
        }
    }

    /// Time passes, and is counted.
    fn pass_to(&mut self, now: Nanos) {
        let in_flight = self.model.in_flight();
        if in_flight > 0 {
            let span = now.since(self.now);
            self.device.busy += span;
            self.device.in_flight_sum += u128::from(span.0) * u128::from(in_flight);
        }
        self.now = self.now.max(now);
    }

    /// The next request that an engine has finished.
    fn poll_done(&mut self) -> Option<Done> {
        self.engines.iter_mut().find_map(Engine::poll_done)
    }

    /// Answers reach their guests, who ask for more; then the device is given work.
    fn settle(&mut self) {
        loop {
            while let Some(done) = self.poll_done() {
                self.done(&done);
            }
            self.try_again();
            self.give_work();
            // A cancelled request is answered without the device.
            let Some(done) = self.poll_done() else {
                return;
            };
            self.done(&done);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(guest) => self.arrive(guest),
            Event::Leave(guest) => self.leave(guest),
            Event::Start(worker) => {
                let (guest, job) = self.jobs[worker as usize];
                let job: &Job = &self.guests[guest as usize].rest.jobs[job as usize];
                self.workers[worker as usize].start(self.now, job);
                self.begin_whole(worker);
                self.advance(worker);
            }
            Event::Stop(worker) => {
                let of = &mut self.workers[worker as usize];
                if !of.is_over() {
                    of.stop();
                    self.last_end = self.now;
                    self.abandon_tasks(worker, false);
                }
            }
            Event::Issue(worker) => {
                self.workers[worker as usize].woken();
                self.advance(worker);
            }
            Event::Submit(slot) => self.submit(slot),
            Event::Answer(slot) => self.answer(slot),
            Event::Change(index) => self.change(index),
            Event::Message(slot) => self.deliver(slot),
            Event::Reach(slot) => self.reach(slot),
            Event::Return(slot) => self.come_back(slot),
        }
    }

    fn arrive(&mut self, guest: u32) {
        let this = &mut self.guests[guest as usize];
        if self.now > Nanos::ZERO {
            this.seconds.leave_out();
        }
        let engine = &mut self.engines[this.host];
        let added = match this.rest.background {
            true => engine.add_background(self.now, &this.rest.objective),
            false => engine.add_vm(self.now, &this.rest.objective),
        };
        let vm = added.expect("the scenario was checked, and there is a slot a tenant");
        let disk = engine.add_disk(vm, this.rest.disk);
        let disk = disk.expect("the VM has just come, and its disk fits the device");
        let client = engine.connect(disk).expect("the disk has just come");
        this.engine = Some((vm, client));
        let by_vm = &mut self.by_vm[this.host];
        by_vm.resize(by_vm.len().max(vm.index() + 1), u32::MAX);
        by_vm[vm.index()] = guest;
        for worker in this.workers.clone() {
            let of = &self.workers[worker as usize];
            let start = self.now + of.start;
            let stop = of.runtime.map(|runtime| start + runtime);
            self.events.plan(start, Event::Start(worker));
            if let Some(stop) = stop {
                self.events.plan(stop, Event::Stop(worker));
            }
        }
    }

    fn leave(&mut self, guest: u32) {
        let this = &self.guests[guest as usize];
        let mut was_done = this.outstanding == 0;
        for worker in this.workers.clone() {
            was_done &= self.workers[worker as usize].is_over();
            self.workers[worker as usize].stop();
            self.abandon_tasks(worker, true);
        }
        let this = &mut self.guests[guest as usize];
        if !was_done {
            // It would have gone on.
            this.last_answer = self.now;
        }
        this.watch.quiet();
        if let Some((vm, _)) = this.engine.take() {
            (self.engines[this.host].remove_vm(self.now, vm))
                .expect("a tenant that is there can be removed");
        }
        // They never reached the engine.
        for (slot, _) in core::mem::take(&mut this.refused) {
            self.end(slot);
        }
    }

    fn change(&mut self, index: u32) {
        match self.changes[index as usize].action.clone() {
            Action::Objective { tenant, objective } => {
                let guest = self
                    .guests
                    .binary_search_by_key(&tenant, |guest| guest.rest.index);
                let guest = guest.expect("planned only for tenants of this device");
                let guest = &mut self.guests[guest];
                guest.promise(&objective);
                if let Some((vm, _)) = guest.engine {
                    (self.engines[guest.host].set_objective(self.now, vm, &objective))
                        .expect("the scenario was checked");
                }
            }
            Action::Policy { policy, .. } => {
                for engine in &mut self.engines {
                    engine.set_policy(self.now, &policy);
                }
            }
        }
    }

    /// A worker does what it can do now.
    fn advance(&mut self, worker: u32) {
        loop {
            match self.workers[worker as usize].step(self.now) {
                Step::Issue(io, since) if self.workers[worker as usize].tasks.is_some() => {
                    self.issue_of_task(worker, io, since);
                }
                Step::Issue(io, since) => {
                    self.issue(worker, io, since);
                }
                Step::At(when) => {
                    self.events.plan(when, Event::Issue(worker));
                    return;
                }
                Step::Wait => return,
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.close();
        }
    }
}
