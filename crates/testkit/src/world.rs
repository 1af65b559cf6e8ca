//! Guests that keep so many requests waiting, a device that serves one I/O after the other in a
//! constant time, and a log of what was dispatched when.

use std::collections::VecDeque;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Done, IoId, Op, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

use crate::setup::{config, open_disk, policy};

/// One I/O that went to the device.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Time of the dispatch in nanoseconds.
    pub at: u64,
    /// The I/O as the engine gave it.
    pub io: DeviceIo,
}

/// A VM with one disk and one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// The VM.
    pub vm: VmId,
    /// Its disk.
    pub disk: DiskId,
    /// The client that has the disk open.
    pub client: ClientId,
}

struct Load {
    guest: Guest,
    op: Op,
    len: u32,
    depth: u32,
    outstanding: u32,
    next: u64,
}

/// Guests in front of an engine, and a device that serves one I/O after the other.
pub struct World {
    /// The engine under test.
    pub engine: Engine,
    /// Time in nanoseconds.
    pub now: u64,
    /// How long the device takes for one I/O.
    pub service: u64,
    /// The same by what the I/O is, where that matters.
    pub takes: Option<fn(&DeviceIo) -> u64>,
    /// Every I/O that went to the device, in order.
    pub log: Vec<Start>,
    /// Every answer, in order, if `keep_done` is set.
    pub done: Vec<Done>,
    /// Whether answers are kept in `done`.
    pub keep_done: bool,
    in_flight: VecDeque<(u64, IoId)>,
    loads: Vec<Load>,
    guests: Vec<Guest>,
    disks: u64,
}

impl World {
    /// A device of depth 1 that takes `service` nanoseconds an I/O; nothing is merged.
    pub fn new(policy_name: &str, service: u64) -> World {
        World::with(config(1, 0), policy_name, service)
    }

    /// Returns a world with this configuration of the engine.
    pub fn with(config: EngineConfig, policy_name: &str, service: u64) -> World {
        World::of(config, &policy(policy_name), service)
    }

    /// Returns a world with this configuration and policy.
    pub fn of(config: EngineConfig, policy: &PolicySpec, service: u64) -> World {
        World {
            engine: Engine::new(config, policy).expect("the configuration is right"),
            now: 0,
            service,
            takes: None,
            log: Vec::new(),
            done: Vec::new(),
            keep_done: false,
            in_flight: VecDeque::new(),
            loads: Vec::new(),
            guests: Vec::new(),
            disks: 0,
        }
    }

    /// Returns the time.
    pub fn time(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Adds a VM with a disk of 1 TiB and a client that has it open.
    pub fn guest(&mut self, objective: &Objective) -> Guest {
        let now = self.time();
        let vm = self.engine.tenants_mut().add_vm(now, objective);
        self.settle(vm.expect("there is room"))
    }

    /// A process of the host, with a disk of its own.
    pub fn background(&mut self) -> Guest {
        let objective = &Objective::default();
        let now = self.time();
        let vm = self.engine.tenants_mut().add_background(now, objective);
        self.settle(vm.expect("there is room"))
    }

    fn settle(&mut self, vm: VmId) -> Guest {
        let (disk, client) = open_disk(&mut self.engine, vm, self.disks << 40, 1 << 40);
        self.disks += 1;
        let guest = Guest { vm, disk, client };
        self.guests.push(guest);
        guest
    }

    /// From now on this guest has `depth` requests inside the engine at any time.
    pub fn load(&mut self, guest: Guest, op: Op, len: u32, depth: u32) {
        self.loads.push(Load {
            guest,
            op,
            len,
            depth,
            outstanding: 0,
            next: 0,
        });
        self.refill();
    }

    /// No new requests from this guest.
    pub fn unload(&mut self, guest: Guest) {
        for load in self.loads.iter_mut().filter(|l| l.guest == guest) {
            load.depth = 0;
        }
    }

    /// A guest asks for nothing new for so long.
    pub fn pause(&mut self, guest: Guest, nanos: u64) {
        let depths: Vec<u32> = self.loads.iter().map(|l| l.depth).collect();
        self.unload(guest);
        self.run(nanos);
        for (load, depth) in self.loads.iter_mut().zip(depths) {
            load.depth = depth;
        }
    }

    /// Removes a VM.
    pub fn forget(&mut self, guest: Guest) {
        self.unload(guest);
        let now = self.time();
        self.engine
            .tenants_mut()
            .remove_vm(now, guest.vm)
            .expect("the VM is there");
        self.guests.retain(|g| *g != guest);
        // Its slot is free once what was in flight has ended.
        self.run(10 * self.service);
    }

    fn refill(&mut self) {
        for (index, load) in self.loads.iter_mut().enumerate() {
            while load.outstanding < load.depth {
                // Far apart, so that no two are adjacent.
                let offset = load.next % (1 << 17) * (2 << 20);
                let request = Request {
                    op: load.op,
                    offset,
                    len: load.len,
                    fua: false,
                    keep_allocated: false,
                    tag: index as u64,
                };
                let taken = self
                    .engine
                    .handle_request(Nanos(self.now), load.guest.client, request);
                taken.expect("depth is below the bounds");
                load.next += 1;
                load.outstanding += 1;
            }
        }
    }

    /// Changes what a guest is promised.
    pub fn set(&mut self, guest: Guest, objective: &Objective) {
        let now = self.time();
        self.engine
            .tenants_mut()
            .set_objective(now, guest.vm, objective)
            .expect("the objective is sound");
    }

    /// Changes the policy.
    pub fn swap(&mut self, policy_name: &str) {
        let now = self.time();
        self.engine.set_policy(now, &policy(policy_name));
    }

    /// Nobody drives the engine for so long.
    pub fn stall(&mut self, nanos: u64) {
        self.now += nanos;
    }

    /// Drives the engine for so many nanoseconds.
    pub fn run(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            self.turn();
            let completion = self.in_flight.front().map_or(u64::MAX, |f| f.0);
            let timeout = self.engine.next_timeout().map_or(u64::MAX, |t| t.0);
            let next = completion.min(timeout);
            if next >= end {
                break;
            }
            self.now = self.now.max(next);
        }
        self.now = end;
    }

    /// One turn of a driver's loop: what ended, what timed out, what starts.
    fn turn(&mut self) {
        while self.in_flight.front().is_some_and(|f| f.0 <= self.now) {
            let (_, id) = self.in_flight.pop_front().expect("just seen");
            self.engine.handle_completion(Nanos(self.now), id, Ok(()));
        }
        while let Some(done) = self.engine.poll_done() {
            if let Some(load) = self.loads.get_mut(done.tag as usize) {
                load.outstanding -= 1;
            }
            if self.keep_done {
                self.done.push(done);
            }
        }
        self.refill();
        if self.engine.next_timeout().is_some_and(|t| t.0 <= self.now) {
            self.engine.handle_timeout(Nanos(self.now));
        }
        while let Some(io) = self.engine.poll_dispatch(Nanos(self.now)) {
            let begin = self
                .in_flight
                .back()
                .map_or(self.now, |f| f.0.max(self.now));
            let service = self.takes.map_or(self.service, |takes| takes(&io));
            self.in_flight.push_back((begin + service, io.id));
            self.log.push(Start { at: self.now, io });
        }
    }

    /// When this guest's requests were served for the first time, and how many.
    pub fn ops(&self, guest: Guest) -> Vec<(u64, u64)> {
        let of = self
            .log
            .iter()
            .filter(|s| s.io.vm == guest.vm && s.io.op != Op::Flush);
        of.map(|s| (s.at, s.io.first_ops as u64)).collect()
    }

    /// When this guest's bytes were dispatched, and how many.
    pub fn bytes(&self, guest: Guest) -> Vec<(u64, u64)> {
        let of = self.log.iter().filter(|s| s.io.vm == guest.vm);
        of.map(|s| (s.at, s.io.len as u64)).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for guest in &self.guests {
            self.engine.handle_disconnect(Nanos(self.now), guest.client);
        }
        for (_, id) in self.in_flight.drain(..) {
            self.engine.handle_completion(Nanos(self.now), id, Ok(()));
        }
        while self.engine.poll_done().is_some() {}
        assert!(
            self.engine.is_idle(),
            "everything in flight ended and everybody left"
        );
    }
}
