//! Driver of an engine, one call at a time: the part of a frontend and a backend, in the order that
//! a test chooses. Every call goes through the [`Ledger`] and the VM's [`Tally`].

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::engine::{DiskSpec, Engine, EngineConfig, Refusal};
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Done, Op, Outcome};
use tidegate_core::request::{ReqId, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

use crate::guest::{Guest, Start};
use crate::ledger::Ledger;
use crate::replies::Replies;
use crate::tally::Tally;

/// Size of a disk that [`Driver::disk`] adds, in bytes. Disks lie side by side on the device.
pub const DISK_SIZE: u64 = 1 << 40;

/// Time in nanoseconds above which the clock leaves too little room before `u64::MAX`: the wake-up
/// of a very low limit may overflow, and is then not set. Half of the range: no run lasts 292
/// years.
pub const CLOCK_NEAR_END: u64 = u64::MAX / 2;

/// Engine with its clock, the I/Os with its device, and the tallies of both.
pub struct Driver {
    /// The engine under test. Requests, dispatches and completions go through the driver.
    pub engine: Engine,
    /// Time of the next call.
    pub now: Nanos,
    /// I/Os with the device, in the order in which they were started.
    pub in_flight: VecDeque<DeviceIo>,
    /// Every I/O that was started, in order.
    pub log: Vec<Start>,
    /// Answers that were not taken yet, in order, if `keep_done` is set.
    pub done: Vec<Done>,
    /// `true` to keep answers in `done`.
    pub keep_done: bool,
    /// Counts of each VM that exists or existed.
    pub tallies: BTreeMap<VmId, Tally>,
    /// Replies that hold payload memory.
    pub replies: Replies,
    /// Oracle of what the engine owes.
    pub ledger: Ledger,
    started: u64,
    disks: u64,
    tag: u64,
}

impl Driver {
    /// Returns a driver of a new engine, at time 0.
    ///
    /// # Panics
    /// If the configuration is out of range.
    pub fn new(config: EngineConfig, policy: &PolicySpec) -> Driver {
        Driver {
            engine: Engine::new(config, policy).expect("the configuration is in range"),
            ledger: Ledger::new(config),
            now: Nanos::ZERO,
            in_flight: VecDeque::new(),
            log: Vec::new(),
            done: Vec::new(),
            keep_done: true,
            tallies: BTreeMap::new(),
            replies: Replies::default(),
            started: 0,
            disks: 0,
            tag: 0,
        }
    }

    /// Returns the driver with its clock set to a time.
    pub fn with_clock_at(mut self, now: Nanos) -> Driver {
        self.now = now;
        self
    }

    /// Adds a VM, if there is room for one.
    pub fn try_vm(&mut self, objective: &Objective) -> Option<VmId> {
        let added = self.engine.vms_mut().add_vm(self.now, objective).ok();
        self.added(added)
    }

    /// Adds a background process, if there is room for one.
    pub fn try_background(&mut self, objective: &Objective) -> Option<VmId> {
        let mut vms = self.engine.vms_mut();
        let added = vms.add_background(self.now, objective).ok();
        self.added(added)
    }

    fn added(&mut self, added: Option<VmId>) -> Option<VmId> {
        self.ledger.add_vm(added);
        if let Some(vm) = added {
            self.tallies.insert(vm, Tally::default());
        }
        added
    }

    /// Adds a VM.
    pub fn vm(&mut self, objective: &Objective) -> VmId {
        self.try_vm(objective).expect("room for a VM")
    }

    /// Adds a disk of [`DISK_SIZE`] bytes behind all that were added before.
    pub fn disk(&mut self, vm: VmId) -> DiskId {
        let base = self.disks * DISK_SIZE;
        self.disks += 1;
        self.disk_at(vm, base, DISK_SIZE)
    }

    /// Adds a disk of `size` bytes at address `base` of the device.
    fn disk_at(&mut self, vm: VmId, base: u64, size: u64) -> DiskId {
        let spec = DiskSpec {
            base,
            size,
            read_only: false,
        };
        let disk = self.try_disk(vm, spec);
        disk.expect("the VM is there and the range valid")
    }

    /// Adds a disk, if the VM is there and the range valid.
    pub fn try_disk(&mut self, vm: VmId, spec: DiskSpec) -> Option<DiskId> {
        let disk = self.engine.vms_mut().add_disk(vm, spec).ok();
        if let Some(disk) = disk {
            self.ledger.add_disk(disk, vm, spec);
        }
        disk
    }

    /// Opens a disk.
    pub fn client(&mut self, disk: DiskId) -> ClientId {
        let client = self.engine.connect(disk).expect("the disk is there");
        self.ledger.connect(client, disk);
        client
    }

    /// Adds a VM with one disk and one client.
    pub fn guest(&mut self, objective: &Objective) -> Guest {
        let vm = self.vm(objective);
        self.guest_of(vm)
    }

    /// Adds a disk with its client to a VM.
    fn guest_of(&mut self, vm: VmId) -> Guest {
        let disk = self.disk(vm);
        let client = self.client(disk);
        Guest { vm, disk, client }
    }

    /// Adds a disk of `size` bytes at address `base` to a VM, with its client.
    pub fn guest_at(&mut self, vm: VmId, base: u64, size: u64) -> Guest {
        let disk = self.disk_at(vm, base, size);
        let client = self.client(disk);
        Guest { vm, disk, client }
    }

    /// Removes a VM with its disks and clients.
    pub fn remove_vm(&mut self, vm: VmId) {
        let removed = self.engine.vms_mut().remove_vm(self.now, vm);
        removed.expect("the VM is there");
        assert!(self.ledger.remove_vm(vm));
        self.collect_answers();
    }

    /// Removes a disk with its clients.
    pub fn remove_disk(&mut self, disk: DiskId) {
        let removed = self.engine.vms_mut().remove_disk(self.now, disk);
        removed.expect("the disk is there");
        assert!(self.ledger.remove_disk(disk));
        self.collect_answers();
    }

    /// Moves a disk to address `base` and gives it `size` bytes.
    pub fn resize_disk(&mut self, disk: DiskId, base: u64, size: u64) {
        let mut vms = self.engine.vms_mut();
        let resized = vms.resize_disk(self.now, disk, base, size);
        resized.expect("the disk is there and the range valid");
        assert!(self.ledger.resize_disk(disk, base, size));
        self.collect_answers();
    }

    /// Disconnects a client, whether or not it is there.
    pub fn disconnect(&mut self, client: ClientId) {
        self.ledger.disconnect(client);
        self.engine.handle_disconnect(self.now, client);
        self.collect_answers();
    }

    /// Changes the objective of a VM.
    pub fn set_objective(&mut self, vm: VmId, objective: &Objective) {
        let mut vms = self.engine.vms_mut();
        let set = vms.set_objective(self.now, vm, objective);
        set.expect("the VM is there and the objective valid");
    }

    /// Changes the policy.
    pub fn set_policy(&mut self, policy: &dyn Policy) {
        self.engine.set_policy(self.now, policy);
    }

    /// Submits a request for `len` bytes at `offset` of a client's disk. Returns its tag, which the
    /// driver chooses.
    ///
    /// # Errors
    /// Returns the engine's refusal, which the ledger has checked.
    pub fn ask(&mut self, client: ClientId, op: Op, offset: u64, len: u32) -> Result<u64, Refusal> {
        self.tag += 1;
        let request = Request {
            op,
            offset,
            len,
            ..Request::flush(self.tag)
        };
        self.request(client, request)?;
        Ok(self.tag)
    }

    /// Submits a request to the engine.
    ///
    /// # Errors
    /// Returns the engine's refusal, which the ledger has checked.
    pub fn request(&mut self, client: ClientId, request: Request) -> Result<ReqId, Refusal> {
        let taken = self.engine.handle_request(self.now, client, request);
        self.requested(client, &request, taken)
    }

    fn requested(
        &mut self,
        client: ClientId,
        request: &Request,
        taken: Result<ReqId, Refusal>,
    ) -> Result<ReqId, Refusal> {
        let expected = self.ledger.refusal(client, request, 1);
        match taken {
            // The engine decides if there is room.
            Err(Refusal::Full) => assert_eq!(expected, None, "{request:?}"),
            _ => assert_eq!(taken.err(), expected, "{request:?}"),
        }
        let req = taken?;
        self.ledger.accepted(self.now, client, req, request);
        let vm = self.ledger.vm_of(client);
        self.tallies.entry(vm).or_default().arrives(request.op);
        Ok(req)
    }

    /// Starts the next I/O, if one can go now.
    pub fn start(&mut self) -> Option<DeviceIo> {
        let io = self.engine.poll_dispatch(self.now)?;
        let segments: Vec<_> = self.engine.io_segments(io.id).collect();
        self.ledger.started(&io, &segments);
        self.tallies.entry(io.vm).or_default().starts(&io);
        let config = self.engine.config();
        assert!(
            self.engine.device_stats().in_flight <= config.device.depth,
            "beyond the depth"
        );
        assert!(io.id.index() < config.device.io_slots() as usize);
        self.started += 1;
        self.in_flight.push_back(io);
        let at = self.now.0;
        self.log.push(Start { at, io });
        Some(io)
    }

    /// Starts every I/O that can go now; returns them in order.
    pub fn start_all(&mut self) -> Vec<DeviceIo> {
        std::iter::from_fn(|| self.start()).collect()
    }

    /// Starts at most `most` I/Os; returns their number. If fewer go, the engine must have a reason
    /// to be called again.
    pub fn dispatch(&mut self, most: usize) -> usize {
        for n in 0..most {
            if self.start().is_none() {
                self.assert_wakes_up();
                return n;
            }
        }
        most
    }

    /// Checks, after a dispatch without a result, that waiting units will go: the device is at
    /// work, or a wake-up is set.
    ///
    /// # Panics
    /// If nothing would ever call the engine again, or a wake-up that is due was not served.
    fn assert_wakes_up(&self) {
        let next = self.engine.next_timeout();
        assert!(
            next.is_none_or(|due| due > self.now),
            "a wake-up at {next:?} is not served at {}",
            self.now
        );
        let view = self.engine.view();
        let waits = view.vms().any(|vm| view.waiting(vm) > 0);
        assert!(
            // Near the end of the clock a wake-up may overflow, and then there is none.
            !waits || next.is_some() || self.now.0 > CLOCK_NEAR_END || !self.in_flight.is_empty(),
            "requests wait, nothing is in flight, and there is no wake-up at {}: {:?}",
            self.now,
            self.engine.policy()
        );
    }

    /// Ends an I/O that is with the device.
    pub fn end(&mut self, io: &DeviceIo, outcome: Outcome) {
        let nth = self.in_flight.iter().position(|other| other.id == io.id);
        self.end_nth(nth.expect("the I/O is with the device"), outcome);
    }

    /// Ends the `n`th of the I/Os that are with the device; returns it.
    pub fn end_nth(&mut self, n: usize, outcome: Outcome) -> DeviceIo {
        let io = self.in_flight.remove(n).expect("so many are in flight");
        assert!(self.engine.is_in_flight(io.id));
        self.ledger.ended(io.id, outcome);
        self.engine.handle_completion(self.now, io.id, outcome);
        assert!(!self.engine.is_in_flight(io.id));
        self.collect_answers();
        io
    }

    /// Completes all I/Os with the device successfully, oldest first.
    pub fn end_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.end_nth(0, Ok(()));
        }
    }

    /// Takes the answers and checks each against the ledger.
    fn collect_answers(&mut self) {
        while let Some(done) = self.engine.poll_done() {
            let len = self.ledger.answered(self.now, &done);
            self.tallies.entry(done.vm).or_default().answers(&done, len);
            self.replies.take(&mut self.engine, self.now, &done);
            if self.keep_done {
                self.done.push(done);
            }
        }
    }

    /// Returns the answers since the last call, in order.
    pub fn answers(&mut self) -> Vec<Done> {
        self.collect_answers();
        std::mem::take(&mut self.done)
    }

    /// Advances time. Everything due by the end is handled then, all of it late.
    pub fn pass(&mut self, time: Nanos) {
        self.now += time;
        if self
            .engine
            .next_timeout()
            .is_some_and(|due| due <= self.now)
        {
            self.engine.handle_timeout(self.now);
        }
    }

    /// Advances to the next wake-up and handles it; returns `false` if there is none.
    pub fn wake(&mut self) -> bool {
        let Some(due) = self.engine.next_timeout() else {
            return false;
        };
        self.now = self.now.max(due);
        self.engine.handle_timeout(self.now);
        true
    }

    /// Serves everything inside without errors, and checks the tallies at the end.
    ///
    /// # Panics
    /// If something stays inside.
    pub fn drain(&mut self) {
        let mut steps = 0;
        loop {
            let moved = self.dispatch(usize::MAX) + self.in_flight.len();
            self.end_all();
            if self.ledger.is_empty() {
                break;
            }
            let next = self.engine.next_timeout().unwrap_or(self.now);
            self.now = if moved > 0 {
                // 1 us: time must pass for limits to refill, in runs that begin near the end of 64
                // bits too.
                Nanos(self.now.0.saturating_add(1000))
            } else {
                assert!(
                    next > self.now,
                    "nothing moved at {}, and the next wake-up is at {next}",
                    self.now
                );
                next
            };
            steps += 1;
            assert!(
                steps < 100_000,
                "{} requests do not drain: {:?}",
                self.ledger.unanswered(),
                self.engine.policy()
            );
        }
        self.assert_drained();
    }

    /// Checks that gauges are at zero and that counters agree with the tallies.
    pub fn assert_drained(&self) {
        let stats = self.engine.device_stats();
        assert!(self.engine.is_idle(), "{stats:?}");
        assert_eq!((stats.in_flight, stats.requests, stats.queued), (0, 0, 0));
        assert_eq!(stats.parts.in_flight, 0);
        assert_eq!(stats.started, stats.ended);
        assert_eq!(stats.started, self.started);
        assert_eq!(self.engine.device().uncounted(), 0);
        for vm in self.engine.view().vms() {
            let vms = self.engine.vms();
            assert_eq!((vms.pending(vm), vms.in_flight(vm)), (0, 0));
            assert_eq!(self.engine.view().requests(vm), 0);
            let stats = vms.vm_stats(vm);
            self.tallies[&vm].assert_agrees(&stats);
        }
    }

    /// Checks that the engine's gauges agree with the ledger; valid between any two calls.
    pub fn check(&mut self) {
        self.collect_answers();
        self.ledger.check(&self.engine);
    }
}

impl Drop for Driver {
    /// Disconnects all clients and completes all I/Os: nothing may be left inside.
    fn drop(&mut self) {
        // A second panic while the first unwinds would abort, and hide the message of the first.
        if std::thread::panicking() {
            return;
        }
        for client in self.ledger.connected() {
            // Clients first: what waits is cancelled then, and only I/Os with the device are left
            // to end.
            self.disconnect(client);
        }
        self.end_all();
        self.replies.return_held(&mut self.engine, self.now);
        assert!(
            self.engine.is_idle() && self.ledger.is_empty(),
            "all I/Os ended and all clients disconnected, but the engine or the ledger is not empty"
        );
    }
}

#[cfg(test)]
mod tests;
