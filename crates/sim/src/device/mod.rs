//! Device in the simulated world: its model, the engines of the hosts that share it, and the VMs.
//!
//! ```text
//!   VMs --submit delay--> engine --transport--> device model
//!    ^                      |                       |
//!    +--- complete delay ---+<------transport-------+
//! ```
//!
//! [`DeviceSim::run_until`] goes from one event to the next: the device ends an I/O, a worker
//! wakes, the engine has a timer. At one time, ends of I/Os come first, then the events in the
//! order in which they were planned, then the engine's timers; the device is given work last, when
//! everything that happens at this time is known.
//!
//! Each part owns its fields: `hosts` the engines, `vms` the VMs with their workers,
//! `transport` and `messages` what is on its way, `model` the device model,
//! `transfers` the log of transfers, `vcpu_steps` the steps that are asked of vCPUs.
//! [`DeviceSim`] passes requests, I/Os and events between them.
//!
//! Memory is a function of the scenario, not of how long it runs.

mod counted_model;
mod dispatch;
mod distances;
mod events;
mod hosts;
mod messages;
mod per_second;
mod promises;
mod recorder;
mod request_log;
mod request_path;
mod results;
mod setup;
mod slab;
mod tally;
mod transfer_path;
mod transfers;
mod transport;
mod vcpu_path;
mod vcpu_step;
mod vm;
mod vms;
mod worker;

pub use counted_model::{CountedModel, DeviceTally};
pub use distances::Distances;
pub use promises::PromiseResult;
pub use request_log::{Arrival, RequestEvent};
pub use results::PrecisionResult;
pub(crate) use results::{neighbours, times};
pub use tally::{Tally, Times};
pub use transfers::{Transfer, TransferDone, TransferTally};
pub(crate) use vcpu_step::VcpuStep;

use crate::scenario::{Action, Change};
use events::{Event, EventQueue};
use hosts::Hosts;
use messages::{Message, Messages};
pub(crate) use recorder::Recorder;
pub(crate) use request_log::RequestLog;
use request_path::Pending;
use slab::Slab;
use tidegate_core::time::Nanos;
use tidegate_workload::issuer::Step;
use transfers::TransferLog;
use transport::Transport;
use vcpu_step::VcpuSteps;
use vm::Details;
use vms::VmTable;

/// Simulation of one device, its hosts' engines and their VMs.
pub struct DeviceSim {
    now: Nanos,
    events: EventQueue,
    hosts: Hosts,
    messages: Messages,
    transport: Transport,
    model: CountedModel,
    vms: VmTable,
    /// Requests that were issued and are not over, by slot.
    requests: Slab<Pending>,
    transfers: TransferLog,
    request_log: RequestLog,
    /// Steps that are asked of vCPUs; `None` where guests take no time.
    vcpu_steps: Option<VcpuSteps>,
    /// Changes of the scenario, this device's and others'.
    changes: Vec<Change>,
    /// Requests answered since the begin of the run.
    answered: u64,
    /// Time of the last answer, or at which the last workload was stopped.
    last_end: Nanos,
}

/// Time of the next event, with the sources that have one then.
struct Next {
    at: Nanos,
    /// Time at which the device ends an I/O.
    ends: Nanos,
    /// Time of the first timer of any engine.
    timer: Nanos,
}

impl DeviceSim {
    /// Lets time pass until `until`, everything that happens at it included.
    pub fn run_until(&mut self, until: Nanos) {
        while let Some(next) = self.next_due(until) {
            self.handle_next(&next);
        }
        self.advance_to(until);
    }

    /// Lets time pass like [`DeviceSim::run_until`], but no further than to the first time at which
    /// a transfer begins or ends. Returns the time it has come to.
    pub(crate) fn run_to_transfer(&mut self, until: Nanos) -> Nanos {
        let before = self.transfers.changes();
        while let Some(next) = self.next_due(until) {
            // Everything of this time must have happened before a caller looks.
            if self.transfers.changes() != before && next.at > self.now {
                return self.now;
            }
            self.handle_next(&next);
        }
        if self.transfers.changes() == before {
            self.advance_to(until);
        }
        self.now
    }

    /// Returns the next event, with the time [`Nanos::MAX`] if there is none.
    fn next(&self) -> Next {
        let ends = self.model.next_completion();
        let timer = self.hosts.next_timeout();
        let at = ends.min(timer).min(self.events.next());
        Next { at, ends, timer }
    }

    /// Returns the next event if it is due by `until`.
    fn next_due(&self, until: Nanos) -> Option<Next> {
        Some(self.next()).filter(|next| next.at <= until)
    }

    /// Lets everything happen that is due at the time of the next event.
    fn handle_next(&mut self, next: &Next) {
        // The order below is part of the results: completions, events, timers, then dispatch.
        let now = next.at;
        self.advance_to(now);
        if next.ends <= now {
            self.complete();
        }
        while let Some(event) = self.events.due(now) {
            self.handle_event(event);
        }
        if next.timer <= now {
            self.hosts.handle_timeouts(now);
        }
        self.hosts.check_feasibility(now);
        self.process_answers_and_dispatch();
        if self.hosts.are_several() {
            self.send_messages();
        }
    }

    /// Lets time pass in which nothing happens.
    fn advance_to(&mut self, now: Nanos) {
        // Before the clock moves: what was in flight was so for the whole span.
        self.model.elapse(now.since(self.now));
        self.now = self.now.max(now);
    }

    /// Passes answers on to the VMs, whose workers issue more, and gives the device work.
    fn process_answers_and_dispatch(&mut self) {
        loop {
            while let Some(done) = self.hosts.poll_done() {
                self.done(&done);
            }
            // Answers have freed slots, and what waits for them goes before the device is asked.
            self.retry_refused();
            self.give_work();
            // A cancelled request is answered without the device.
            let Some(done) = self.hosts.poll_done() else {
                return;
            };
            self.done(&done);
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Arrive(vm) => self.arrive(vm),
            Event::Leave(vm) => self.leave(vm),
            Event::Start(worker) => {
                let (state, workload) = self.vms.worker_with_workload(worker);
                state.issuer_mut().start(self.now, workload);
                self.begin_workload(worker);
                self.advance(worker);
            }
            Event::Stop(worker) => {
                let issuer = self.vms.worker_mut(worker).issuer_mut();
                // A workload that is done by itself has its own end.
                if !issuer.is_over() {
                    issuer.stop();
                    self.last_end = self.now;
                    self.abandon_transfers(worker, false);
                }
            }
            Event::Issue(worker) => {
                self.vms.worker_mut(worker).issuer_mut().woken();
                self.advance(worker);
            }
            Event::Submit(slot) => self.submit(slot),
            Event::Answer(slot) => self.answer(slot),
            Event::Change(index) => self.change(index),
            Event::Message(number) => self.deliver_message(number),
            Event::Reach(number) => self.transport.arrive_at_device(number),
            Event::Return(number) => {
                let io = self.transport.take_completion(number);
                self.hosts.complete(self.now, io);
            }
        }
    }

    /// Adds a VM to its host's engine, and plans the begin and the end of its workers.
    fn arrive(&mut self, vm: u32) {
        let state = self.vms.vm_mut(vm);
        // A VM that comes during a second would count with a part of that second.
        if self.now > Nanos::ZERO {
            state.per_second.leave_out();
        }
        let details = &state.details;
        let served_as = (details.background, &details.objective);
        let engine = self
            .hosts
            .add_vm(self.now, state.host, vm, served_as, details.disk);
        let (host, whole, parts) = ((state.host, engine.0), details.disk, &details.parts);
        state.parts = self.hosts.add_parts(self.now, host, whole, parts);
        state.engine = Some(engine);
        state.details.last_id = Some(engine.0);
        if let Some(recorder) = self.request_log.recorder() {
            recorder.arrived(self.now, vm, &state.details.objective);
        }
        // A range of indices: the loop borrows `self` again.
        for worker in state.workers.clone() {
            let (start, stop) = self.vms.worker(worker).issuer().span();
            self.events.plan(self.now + start, Event::Start(worker));
            if let Some(stop) = stop {
                self.events.plan(self.now + stop, Event::Stop(worker));
            }
        }
    }

    /// Removes a VM with whatever it has outstanding.
    fn leave(&mut self, vm: u32) {
        let was_finished = self.vms.is_finished(vm);
        for worker in self.vms.vm(vm).workers.clone() {
            self.vms.worker_mut(worker).issuer_mut().stop();
            self.abandon_transfers(worker, true);
        }
        let state = self.vms.vm_mut(vm);
        if !was_finished {
            // The VM was cut short, so its run lasts until now.
            state.last_answer = self.now;
        }
        if let Some((id, _)) = state.engine.take() {
            let Details {
                past,
                objective,
                times,
                ..
            } = &mut *state.details;
            let vms = self.hosts.engine(state.host).vms();
            // Before the removal, after which the engine knows no attainment and no times.
            past.keep(vms, self.now, id, objective, None);
            *times = vms.times(id);
            (self
                .hosts
                .engine_mut(state.host)
                .vms_mut()
                .remove_vm(self.now, id))
            .expect("a VM that is there can be removed");
            if let Some(recorder) = self.request_log.recorder() {
                recorder.left(self.now, vm);
            }
        }
        // Refused requests never reached the engine.
        for (slot, _) in core::mem::take(&mut state.refused) {
            self.end(slot);
        }
    }

    /// Applies a change of the scenario.
    fn change(&mut self, index: u32) {
        match self.changes[index as usize].action.clone() {
            Action::Objective { vm, objective } => {
                let number = self.vms.vm_of_scenario(vm);
                let number = number.expect("planned only for VMs of this device");
                let vm = self.vms.vm_mut(number);
                if let Some(id) = vm.id() {
                    let before = vm.details.objective;
                    let vms = self.hosts.engine(vm.host).vms();
                    // Before the change, while the former promises are in force.
                    (vm.details.past).keep(vms, self.now, id, &before, Some(&objective));
                    let engine = self.hosts.engine_mut(vm.host);
                    (engine.vms_mut().set_objective(self.now, id, &objective))
                        .expect("the scenario was checked");
                }
                // Also without an engine: a VM may get its objective before it arrives.
                vm.set_objective(&objective);
                if let Some(recorder) = self.request_log.recorder()
                    && vm.engine.is_some()
                {
                    recorder.objective(self.now, number, &objective);
                }
            }
            Action::Policy { policy, .. } => {
                self.hosts.set_policy(self.now, &policy);
                if let Some(recorder) = self.request_log.recorder() {
                    recorder.policy(self.now, &policy);
                }
            }
        }
    }

    /// Issues the requests that a worker can issue now, and plans its next ones.
    fn advance(&mut self, worker: u32) {
        loop {
            match self.vms.worker_mut(worker).issuer_mut().step(self.now) {
                Step::Issue(io, since) => self.issue_of_worker(worker, io, since),
                Step::At(when) => {
                    self.events.plan(when, Event::Issue(worker));
                    return;
                }
                Step::Wait => return,
            }
        }
    }

    /// Sends what engines have to say to all other hosts.
    fn send_messages(&mut self) {
        for from in 0..self.hosts.len() {
            while let Some(share) = self.hosts.engine_mut(from).poll_share() {
                for to in (0..self.hosts.len()).filter(|&to| to != from) {
                    let message = Message { from, to, share };
                    if let Some((at, number)) = self.messages.send(self.now, message) {
                        self.events.plan(at, Event::Message(number));
                    }
                }
            }
        }
    }

    /// Hands a message that arrives to its host.
    fn deliver_message(&mut self, number: u32) {
        let Message { from, to, share } = self.messages.arrive(number);
        let engine = self.hosts.engine_mut(to);
        engine.handle_peer(self.now, from as u32, &share);
    }
}

impl Drop for DeviceSim {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.close();
        }
    }
}
