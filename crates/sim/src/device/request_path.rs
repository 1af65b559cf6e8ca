//! Path of a request: from its worker to the engine and back.
//!
//! ```text
//!              delay           room                         delay
//!   issue ------------> submit -----> engine --> done ----------------> answer
//!                         | none        ^         |                       |
//!                         v             |         | its VM is gone        |
//!                   the VM's queue -----+         +---------> end <-------+
//!                             its turn in the line
//! ```
//!
//! Where the machine's processors are simulated, they stand in the place of both delays
//! (`vcpu_path`).

use super::DeviceSim;
use super::events::Event;
use super::request_log::{Arrival, RequestEvent};
use super::vcpu_step::VcpuStep;
use tidegate_core::engine::Refusal;
use tidegate_core::request::{Done, IoError, Request};
use tidegate_core::time::Nanos;
use tidegate_workload::stream::Io;

/// Request that was issued and is not over.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) io: Io,
    pub(super) worker: u32,
    /// Time since which the worker has wanted it.
    pub(super) since: Nanos,
    /// Outcome, once the engine has finished it.
    ended: Result<(), IoError>,
}

impl DeviceSim {
    /// Issues a request of a worker and returns its slot.
    pub(super) fn issue(&mut self, worker: u32, io: Io, since: Nanos) -> u32 {
        let slot = self.requests.put(Pending {
            io,
            worker,
            since,
            ended: Ok(()),
        });
        let vm = self.vms.vm_of_worker_mut(worker);
        vm.outstanding += 1;
        vm.per_second.asked();
        // vCPUs decide when the guest gets to issue it; the delay of virtualisation is theirs.
        if let Some(steps) = &mut self.vcpu_steps {
            steps.ask(VcpuStep::Issue(slot));
            return slot;
        }
        match vm.submission(self.now) {
            // Without a delay the request goes at once, which saves an event for each.
            Some(at) => self.events.plan(at, Event::Submit(slot)),
            None => self.submit(slot),
        }
        slot
    }

    /// Takes a request that reaches the scheduler.
    pub(super) fn submit(&mut self, slot: u32) {
        let worker = self.requests.get(slot).worker;
        let vm = self.vms.vm_of_worker(worker);
        if vm.engine.is_none() {
            // Its VM was removed while it was on its way.
            self.end(slot);
            return;
        }
        if self.request_log.is_kept() {
            let io = &self.requests.get(slot).io;
            self.request_log.record(RequestEvent::Arrived(Arrival {
                at: self.now,
                vm: self.vms.vm_of_worker(worker).details.scenario_index,
                slot,
                op: io.op,
                offset: io.offset,
                len: io.len,
            }));
        }
        let vm = self.vms.vm_of_worker(worker);
        // Requests of one VM do not overtake each other.
        if vm.refused.is_empty() && self.hand_in(slot, self.now) {
            return;
        }
        let refused = &mut self.vms.vm_of_worker_mut(worker).refused;
        refused.push_back((slot, self.now));
    }

    /// Hands a request that waits `since` to the engine; false if there is no room.
    fn hand_in(&mut self, slot: u32, since: Nanos) -> bool {
        let Pending { io, worker, .. } = *self.requests.get(slot);
        let vm = self.vms.vm_of_worker(worker);
        let connection = vm.connection(io.offset);
        let (client, offset) = connection.expect("only asked while its VM is there");
        let request = Request {
            op: io.op,
            offset,
            len: io.len,
            fua: io.fua,
            keep_allocated: false,
            tag: slot.into(),
        };
        let engine = self.hosts.engine_mut(vm.host);
        // A request that waited for room keeps its time of arrival.
        let taken = if since == self.now {
            engine.handle_request(self.now, client, request)
        } else {
            engine
                // `claim` first: the room may have gone to another VM since the wake-up.
                .admission_mut()
                .claim(self.now, client, request.op, request.len)
                .and_then(|()| {
                    engine
                        .admission_mut()
                        .handle_claimed_request(self.now, client, request, since)
                })
        };
        match taken {
            Ok(_) => true,
            Err(Refusal::Full) => false,
            // Offsets, lengths and connections were checked with the scenario.
            Err(refusal) => panic!("a checked scenario asked for {request:?}: {refusal}"),
        }
    }

    /// Submits refused requests again once there may be room. VMs that the engine reports as
    /// unblocked take turns, one request each.
    pub(super) fn retry_refused(&mut self) {
        loop {
            // In each round: requests that go in may unblock others.
            while let Some(vm) = self.hosts.poll_unblocked() {
                self.vms.enqueue_retry(vm);
            }
            if self.vms.has_no_retries() {
                return;
            }
            while let Some(vm) = self.vms.next_retry() {
                let Some(&(slot, since)) = self.vms.vm(vm).refused.front() else {
                    continue;
                };
                if self.hand_in(slot, since) {
                    let refused = &mut self.vms.vm_mut(vm).refused;
                    refused.pop_front();
                    // To the end of the line, so that no VM takes all the room.
                    if !refused.is_empty() {
                        self.vms.enqueue_retry(vm);
                    }
                }
            }
        }
    }

    /// Takes a request that the engine has finished.
    pub(super) fn done(&mut self, done: &Done) {
        let slot = done.tag as u32;
        if self.request_log.is_kept() {
            self.request_log.record(RequestEvent::Answered {
                at: self.now,
                slot,
                device: done.account.device,
            });
        }
        let pending = self.requests.get_mut(slot);
        pending.ended = done.outcome;
        if let Some(recorder) = self.request_log.recorder() {
            let vm = self.vms.worker(pending.worker).vm();
            recorder.request(self.now, vm, &pending.io, done);
        }
        let vm = self.vms.vm_of_worker_mut(pending.worker);
        if done.payload > 0 {
            // The guest has the data at once here; no reply waits for a socket.
            let engine = self.hosts.engine_mut(vm.host);
            engine
                .admission_mut()
                .return_payload(self.now, done.vm, done.op, done.payload);
        }
        if vm.engine.is_none() || done.outcome == Err(IoError::Cancelled) {
            // Its VM was removed.
            self.end(slot);
            return;
        }
        vm.tally.served(&done.account, done.outcome.is_ok());
        if let Some(steps) = &mut self.vcpu_steps {
            return steps.ask(VcpuStep::Answer(slot));
        }
        match vm.answer(self.now) {
            Some(at) => self.events.plan(at, Event::Answer(slot)),
            None => self.answer(slot),
        }
    }

    /// Takes an answer that reaches its worker.
    pub(super) fn answer(&mut self, slot: u32) {
        let Pending {
            io,
            worker,
            since,
            ended,
        } = self.end(slot);
        let vm = self.vms.vm_of_worker_mut(worker);
        if vm.engine.is_none() {
            // Its VM was removed while the answer was on its way.
            return;
        }
        self.answered += 1;
        self.last_end = self.now;
        let latency = self.now.since(since);
        vm.answered(self.now, io.op, io.len, latency, ended.is_ok());
        self.answered_of_transfer(worker, slot, io.len);
        self.advance(worker);
    }

    /// Ends a request, answered or not.
    pub(super) fn end(&mut self, slot: u32) -> Pending {
        let pending = self.requests.take(slot);
        let worker = self.vms.worker_mut(pending.worker);
        worker.issuer_mut().request_over();
        self.vms.vm_of_worker_mut(pending.worker).outstanding -= 1;
        pending
    }
}
