//! A small world around the engine: guests that keep so many requests waiting, a device that
//! serves one I/O after the other in a constant time, and a log of what was dispatched when.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary uses its own part of it"
)]

pub mod checked;
pub mod costs;
pub mod credit;
pub mod credits;
pub mod crowd;
pub mod lab;
pub mod tuned;

use std::collections::VecDeque;
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig};
use tidegate_core::objective::{Burst, Limit, Objective, Rate};
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Done, IoId, Op, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
pub const KIB: u32 = 1 << 10;

/// One I/O that went to the device.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub at: u64,
    pub io: DeviceIo,
}

/// A VM with one disk and one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    pub vm: VmId,
    pub disk: DiskId,
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

/// A disk of `bytes` from `base` on for a VM, with a client that has it open.
pub fn open_disk(engine: &mut Engine, vm: VmId, base: u64, bytes: u64) -> (DiskId, ClientId) {
    let spec = DiskSpec {
        base,
        size: bytes,
        read_only: false,
    };
    let disk = engine.add_disk(vm, spec).expect("the range fits");
    (disk, engine.connect(disk).expect("the disk is there"))
}

/// A VM that is promised nothing, with a disk from address 0 on and its client.
pub fn only_client(engine: &mut Engine) -> ClientId {
    let vm = engine.add_vm(Nanos::ZERO, &Objective::default());
    open_disk(engine, vm.expect("there is room"), 0, 1 << 40).1
}

pub struct World {
    pub engine: Engine,
    pub now: u64,
    /// How long the device takes for one I/O.
    pub service: u64,
    /// The same by what the I/O is, where that matters.
    pub takes: Option<fn(&DeviceIo) -> u64>,
    pub log: Vec<Start>,
    pub done: Vec<Done>,
    pub keep_done: bool,
    in_flight: VecDeque<(u64, IoId)>,
    loads: Vec<Load>,
    guests: Vec<Guest>,
    disks: u64,
}

pub fn policy(name: &str) -> PolicySpec {
    match name.split('+').collect::<Vec<_>>()[..] {
        [controller, regulator, dispatcher] => {
            PolicySpec::composed(Some(controller), regulator, dispatcher)
        }
        [regulator, dispatcher] => PolicySpec::composed(None, regulator, dispatcher),
        _ => PolicySpec::named(name),
    }
    .expect("the policy is known")
}

pub fn config(depth: u32, merge_limit: u32) -> EngineConfig {
    EngineConfig {
        device: DeviceSpec {
            depth,
            physical_block: 4096,
            max_io: 1 << 20,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        },
        max_requests: 16_384,
        max_pending_per_vm: 1024,
        merge_limit,
        max_vms: 128,
    }
}

pub fn weighted(weight: u32) -> Objective {
    Objective {
        weight,
        ..Objective::default()
    }
}

pub fn limited(total: Rate) -> Objective {
    Objective {
        limit: Limit {
            total,
            ..Limit::NONE
        },
        ..Objective::default()
    }
}

pub fn bursting(total: Rate, burst: Rate, length: Nanos) -> Objective {
    let burst = Burst {
        total: burst,
        read: Rate::NONE,
        write: Rate::NONE,
        length,
    };
    Objective {
        limit: Limit {
            total,
            burst: Some(burst),
            ..Limit::NONE
        },
        ..Objective::default()
    }
}

impl World {
    /// A device of depth 1 that takes `service` nanoseconds an I/O; nothing is merged.
    pub fn new(policy_name: &str, service: u64) -> World {
        World::with(config(1, 0), policy_name, service)
    }

    pub fn with(config: EngineConfig, policy_name: &str, service: u64) -> World {
        World::of(config, &policy(policy_name), service)
    }

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

    pub fn time(&self) -> Nanos {
        Nanos(self.now)
    }

    pub fn guest(&mut self, objective: &Objective) -> Guest {
        let vm = self.engine.add_vm(self.time(), objective);
        self.settle(vm.expect("there is room"))
    }

    /// A process of the host, with a disk of its own.
    pub fn background(&mut self) -> Guest {
        let objective = &Objective::default();
        let vm = self.engine.add_background(self.time(), objective);
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

    pub fn set(&mut self, guest: Guest, objective: &Objective) {
        let now = self.time();
        self.engine
            .set_objective(now, guest.vm, objective)
            .expect("the objective is sound");
    }

    pub fn swap(&mut self, policy_name: &str) {
        let now = self.time();
        self.engine.set_policy(now, &policy(policy_name));
    }

    /// Nobody drives the engine for so long.
    pub fn stall(&mut self, nanos: u64) {
        self.now += nanos;
    }

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

pub fn total(events: &[(u64, u64)]) -> u64 {
    events.iter().map(|e| e.1).sum()
}

/// The sum of events in `[from, to)`.
pub fn within(events: &[(u64, u64)], from: u64, to: u64) -> u64 {
    events
        .iter()
        .filter(|e| (from..to).contains(&e.0))
        .map(|e| e.1)
        .sum()
}

/// The most that any window of 100 ms holds, and where it begins.
pub fn most_in_100_ms(events: &[(u64, u64)]) -> (u64, u64) {
    let (mut first, mut sum, mut most) = (0, 0, (0, 0));
    for &(at, amount) in events {
        sum += amount;
        while events[first].0 + 100 * MS <= at {
            sum -= events[first].1;
            first += 1;
        }
        most = most.max((sum, events[first].0));
    }
    most
}

/// The least that any window of 100 ms within `[from, to)` holds, and where it begins.
pub fn least_in_100_ms(events: &[(u64, u64)], from: u64, to: u64) -> (u64, u64) {
    // The emptiest windows begin right behind an event, or at the very start.
    let starts = events
        .iter()
        .map(|e| e.0 + 1)
        .filter(|&s| s >= from)
        .chain([from]);
    let starts = starts.filter(|&s| s + 100 * MS <= to);
    let (mut least, mut lo) = ((u64::MAX, 0), 0);
    let mut starts: Vec<u64> = starts.collect();
    starts.sort_unstable();
    for start in starts {
        while lo < events.len() && events[lo].0 < start {
            lo += 1;
        }
        let inside = events[lo..].iter().take_while(|e| e.0 < start + 100 * MS);
        least = least.min((inside.map(|e| e.1).sum(), start));
    }
    least
}

/// How late a request of a limit of so many a second may go, in nanoseconds, and the window that
/// begins with it still hold no more than one and 1 % above the rate, the next ones being on time.
pub fn late_most(per_s: u64) -> u64 {
    let allowed = per_s * 101 / 1000 + 1;
    allowed * SECOND / per_s - 100 * MS - 1
}

/// A cap of `rate` a second with requests of at most `largest`: never more than one request
/// and 1 % above it in any 100 ms.
pub fn assert_below(events: &[(u64, u64)], rate: u64, largest: u64) {
    let (most, at) = most_in_100_ms(events);
    let allowed = rate as u128 * 101 / 1000 + largest as u128;
    assert!(
        most as u128 <= allowed,
        "{most} in 100 ms from {at} ns; allowed are {allowed}"
    );
}
