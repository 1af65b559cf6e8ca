//! Closed-loop bench: guests that keep a number of requests outstanding, a device that serves one
//! I/O at a time, and a clock that advances from event to event.

use std::collections::BTreeMap;

use tidegate_core::engine::EngineConfig;
use tidegate_core::objective::Objective;
use tidegate_core::request::{Done, Op, ReqId, Request};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

use crate::driver::Driver;
use crate::guest::Guest;
use crate::serial::SerialDevice;
use crate::setup::{config, policy};

/// Distance in bytes between the requests of a load with gaps, so that none is adjacent to another
/// and merging does not apply: more than the largest I/O.
const GAP_STRIDE: u64 = 2 << 20;
/// Number of requests after which the offsets of a load start over: with gaps, within 256 GiB.
const OFFSETS: u64 = 1 << 17;

/// Closed loop of one guest: as many requests outstanding as its depth.
struct Load {
    guest: Guest,
    op: Op,
    len: u32,
    depth: u32,
    outstanding: u32,
    /// Number of requests so far, from which the next offset follows.
    next: u64,
    /// `true` to leave gaps between requests, so that none is adjacent to the one before.
    gap: bool,
}

/// Guests in front of an engine, and a device that serves one I/O at a time.
pub struct World {
    /// Engine with its clock and tallies.
    pub driver: Driver,
    /// Device behind the engine.
    pub device: SerialDevice,
    /// Every answer, in order, if `keep_done` is set.
    pub done: Vec<Done>,
    /// `true` to keep answers in `done`.
    pub keep_done: bool,
    loads: Vec<Load>,
    /// Index of the load of each of its requests inside the engine.
    load_requests: BTreeMap<ReqId, usize>,
}

impl World {
    /// Creates a world with a device of depth 1 that takes `service` nanoseconds per I/O; nothing
    /// is merged.
    pub fn new(policy_name: &str, service: u64) -> World {
        World::with_config(config(1, 0), policy_name, service)
    }

    /// Returns a world with this configuration of the engine.
    pub fn with_config(config: EngineConfig, policy_name: &str, service: u64) -> World {
        World::with_policy(config, &policy(policy_name), service)
    }

    /// Returns a world with this configuration and policy.
    pub fn with_policy(config: EngineConfig, policy: &PolicySpec, service: u64) -> World {
        World {
            driver: Driver::new(config, policy),
            device: SerialDevice::new(service),
            done: Vec::new(),
            keep_done: false,
            loads: Vec::new(),
            load_requests: BTreeMap::new(),
        }
    }

    /// Returns the time.
    pub fn time(&self) -> Nanos {
        self.driver.now
    }

    /// Returns the time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.driver.now.0
    }

    /// Adds a VM with a disk of 1 TiB and a client that has it open.
    pub fn guest(&mut self, objective: &Objective) -> Guest {
        self.driver.guest(objective)
    }

    /// Adds a process of the host, with a disk of its own.
    pub fn background(&mut self) -> Guest {
        let vm = self.driver.try_background(&Objective::default());
        let vm = vm.expect("there is room");
        let disk = self.driver.disk(vm);
        let client = self.driver.client(disk);
        Guest { vm, disk, client }
    }

    /// Keeps `depth` requests of this guest inside the engine from now on.
    pub fn load(&mut self, guest: Guest, op: Op, len: u32, depth: u32) {
        self.loads.push(Load {
            guest,
            op,
            len,
            depth,
            outstanding: 0,
            next: 0,
            gap: true,
        });
        self.refill();
    }

    /// Keeps `depth` reads of this guest inside the engine from now on, each where the one before
    /// ended. With a depth of one they are not merged.
    pub fn load_in_order(&mut self, guest: Guest, len: u32, depth: u32) {
        self.loads.push(Load {
            guest,
            op: Op::Read,
            len,
            depth,
            outstanding: 0,
            next: 0,
            gap: false,
        });
        self.refill();
    }

    /// Stops new requests of this guest.
    pub fn unload(&mut self, guest: Guest) {
        for load in self.loads.iter_mut().filter(|l| l.guest == guest) {
            load.depth = 0;
        }
    }

    /// Stops new requests of a guest, and drives the engine for this many nanoseconds meanwhile.
    pub fn pause(&mut self, guest: Guest, nanos: u64) {
        // Depths of all loads, as `unload` clears those of the guest.
        let depths: Vec<u32> = self.loads.iter().map(|l| l.depth).collect();
        self.unload(guest);
        self.run(nanos);
        for (load, depth) in self.loads.iter_mut().zip(depths) {
            load.depth = depth;
        }
    }

    /// Removes a VM, and drives the engine until the VM's slot is free.
    pub fn remove_vm(&mut self, guest: Guest) {
        self.unload(guest);
        self.driver.remove_vm(guest.vm);
        // Long enough for what is in flight at the usual service time: the slot is free when it has
        // ended.
        self.run(10 * self.device.service);
    }

    fn refill(&mut self) {
        for (index, load) in self.loads.iter_mut().enumerate() {
            while load.outstanding < load.depth {
                let stride = if load.gap {
                    GAP_STRIDE
                } else {
                    load.len.into()
                };
                let offset = load.next % OFFSETS * stride;
                let request = Request {
                    op: load.op,
                    ..Request::read(offset, load.len, index as u64)
                };
                let taken = self.driver.request(load.guest.client, request);
                let req = taken.expect("depth is below the bounds");
                self.load_requests.insert(req, index);
                load.next += 1;
                load.outstanding += 1;
            }
        }
    }

    /// Submits a request beside the guest's load, with any tag.
    pub fn ask(&mut self, guest: Guest, request: Request) {
        let taken = self.driver.request(guest.client, request);
        taken.expect("there is room");
    }

    /// Changes the objective of a guest.
    pub fn set(&mut self, guest: Guest, objective: &Objective) {
        self.driver.set_objective(guest.vm, objective);
    }

    /// Changes the policy.
    pub fn swap(&mut self, policy_name: &str) {
        self.driver.set_policy(&policy(policy_name));
    }

    /// Advances time by this many nanoseconds without a call of the engine.
    pub fn stall(&mut self, nanos: u64) {
        self.driver.now.0 += nanos;
    }

    /// Drives the engine for this many nanoseconds.
    pub fn run(&mut self, nanos: u64) {
        let end = self.now() + nanos;
        loop {
            self.run_events();
            let completion = self.device.next_completion().unwrap_or(u64::MAX);
            let timeout = self.driver.engine.next_timeout().map_or(u64::MAX, |t| t.0);
            let next = completion.min(timeout);
            // An event at the end itself belongs to the next run.
            if next >= end {
                break;
            }
            self.driver.now = self.driver.now.max(Nanos(next));
        }
        self.driver.now = Nanos(end);
    }

    /// Runs the events that are due now: completions, timeouts, dispatches.
    fn run_events(&mut self) {
        while let Some(id) = self.device.pop_completed(self.now()) {
            let nth = self.driver.in_flight.iter().position(|io| io.id == id);
            (self.driver).end_nth(nth.expect("it is with the device"), Ok(()));
        }
        for done in self.driver.answers() {
            // By the handle: a request beside a load may have any tag.
            if let Some(index) = self.load_requests.remove(&done.req) {
                self.loads[index].outstanding -= 1;
            }
            if self.keep_done {
                self.done.push(done);
            }
        }
        self.refill();
        self.driver.pass(Nanos::ZERO);
        while let Some(io) = self.driver.start() {
            self.device.submit(self.now(), &io);
        }
    }

    /// Returns the start time in nanoseconds of each I/O of a guest, without flushes, and the
    /// number of requests that it is the first to serve.
    pub fn ops(&self, guest: Guest) -> Vec<(u64, u64)> {
        let of = self
            .driver
            .log
            .iter()
            .filter(|s| s.io.vm == guest.vm && s.io.op != Op::Flush);
        of.map(|s| (s.at, s.io.first_ops as u64)).collect()
    }

    /// Returns the start time in nanoseconds and the length in bytes of each I/O of a guest.
    pub fn bytes(&self, guest: Guest) -> Vec<(u64, u64)> {
        let of = self.driver.log.iter().filter(|s| s.io.vm == guest.vm);
        of.map(|s| (s.at, s.io.len as u64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_request_does_not_count_towards_a_load_with_the_same_tag() {
        let mut world = World::new("fifo", 1_000_000);
        let guest = world.guest(&Objective::default());
        world.load(guest, Op::Read, 4096, 2);
        world.keep_done = true;
        // The tag is the index of the load.
        world.ask(guest, Request::read(1 << 30, 4096, 0));
        world.run(10_000_000);
        assert!(world.done.iter().any(|done| done.tag == 0));
        assert_eq!(world.driver.engine.view().requests(guest.vm), 2);
    }
}
