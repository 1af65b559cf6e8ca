//! Guests that keep a few requests outstanding, in front of a modelled device that may be capped.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::device_monitor::DeviceAlert;
use tidegate_core::engine::EngineConfig;
use tidegate_core::objective::Objective;
use tidegate_core::profile::{Access, Curve, Profile};
use tidegate_core::random::SplitMix64;
use tidegate_core::request::{IoId, Op, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_device::cap::{CapFigures, Capped};
use tidegate_device::catalogue::Entry;
use tidegate_device::{Model, ModelIo};
use tidegate_policies::policy::PolicySpec;
use tidegate_testkit::{Driver, Guest};
use tidegate_units::{Bandwidth, Duration};

pub(crate) const KIB: u32 = 1 << 10;
pub(crate) const MIB: u32 = 1 << 20;
const DISK: u64 = 4 << 30;

/// A cap of I/Os and bytes a second, 0 for none, and what may be saved up in seconds.
pub(crate) fn cap(iops: u64, bytes: u64, burst_s: u64) -> CapFigures {
    CapFigures {
        iops: (iops > 0).then_some(iops),
        bandwidth: (bytes > 0).then_some(Bandwidth(bytes)),
        burst: (burst_s > 0).then_some(Duration(Nanos(burst_s * Nanos::SECOND.0))),
    }
}

/// Load of a guest: outstanding requests of one size, at random addresses.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) depth: u32,
    pub(crate) size: u32,
    pub(crate) op: Op,
    /// Percentage of writes, regardless of `op`.
    pub(crate) writes: u32,
    pub(crate) sequential: bool,
    /// From an answer to the next request.
    pub(crate) think: Nanos,
}

pub(crate) const fn reads(depth: u32, size: u32) -> Work {
    Work {
        depth,
        size,
        op: Op::Read,
        writes: 0,
        sequential: false,
        think: Nanos::ZERO,
    }
}

pub(crate) const fn writes(depth: u32, size: u32) -> Work {
    Work {
        op: Op::Write,
        sequential: true,
        ..reads(depth, size)
    }
}

struct Worker {
    guest: Guest,
    work: Work,
    outstanding: u32,
    next: u64,
}

/// Results of a guest in a span.
#[derive(Clone, Default)]
pub(crate) struct Had {
    pub(crate) bytes: u64,
    pub(crate) latencies: Vec<Nanos>,
    /// Mean time with the device, as its requests' accounts have it.
    device: u64,
}

impl Had {
    pub(crate) fn p99(&self) -> Nanos {
        let mut all = self.latencies.clone();
        all.sort_unstable();
        all.get(all.len() * 99 / 100).copied().unwrap_or_default()
    }

    pub(crate) fn ios(&self) -> u64 {
        self.latencies.len() as u64
    }

    pub(crate) fn mean(&self) -> Nanos {
        let sum: u64 = self.latencies.iter().map(|l| l.0).sum();
        Nanos(sum / self.ios().max(1))
    }

    pub(crate) fn device_mean(&self) -> Nanos {
        Nanos(self.device / self.ios().max(1))
    }
}

/// Guests and a device; see the module.
pub(crate) struct Lab {
    pub(crate) driver: Driver,
    plain: Option<Box<dyn Model>>,
    capped: Option<Capped>,
    guests: Vec<Worker>,
    random: SplitMix64,
    had: Vec<Had>,
    pub(crate) alerts: Vec<(Nanos, DeviceAlert)>,
    /// Times at which guests submit again.
    again: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Span in which the device reports no end of an I/O.
    stall: (Nanos, Nanos),
}

impl Lab {
    pub(crate) fn new(entry: &Entry, cap: Option<&CapFigures>, depth: u32, policy: &str) -> Lab {
        let device = entry.build();
        let mut config = EngineConfig::default();
        config.device.depth = depth;
        config.device.positioning = entry.spec().positioning;
        let policy = PolicySpec::named(policy).expect("in the registry");
        let (plain, capped) = match cap {
            Some(cap) => (None, Some(Capped::new(device, cap).expect("a cap"))),
            None => (Some(device), None),
        };
        Lab {
            driver: Driver::new(config, &policy),
            plain,
            capped,
            guests: Vec::new(),
            random: SplitMix64::new(1),
            had: Vec::new(),
            alerts: Vec::new(),
            again: BinaryHeap::new(),
            stall: (Nanos::ZERO, Nanos::ZERO),
        }
    }

    /// Draws guests' addresses from another seed.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    /// Lets the device report no end of an I/O for a time, beginning after another one.
    pub(crate) fn stall(&mut self, after: Nanos, time: Nanos) {
        let begin = self.driver.now + after;
        self.stall = (begin, begin + time);
    }

    pub(crate) fn guest(&mut self, objective: &Objective, work: Work) {
        let vm = self.driver.vm(objective);
        self.guest_of(vm, work);
    }

    /// Adds a background process of the host.
    pub(crate) fn background(&mut self, work: Work) {
        let vm = self.driver.try_background(&Objective::default());
        self.guest_of(vm.expect("there is room"), work);
    }

    fn guest_of(&mut self, vm: VmId, work: Work) {
        let base = self.guests.len() as u64 * DISK;
        self.guests.push(Worker {
            guest: self.driver.guest_at(vm, base, DISK),
            work,
            outstanding: 0,
            next: 0,
        });
        self.had.push(Had::default());
    }

    /// Number of split I/Os, by guest.
    pub(crate) fn parts(&self, guest: usize) -> u64 {
        let vm = self
            .driver
            .engine
            .view()
            .vms()
            .nth(guest)
            .expect("it is there");
        self.driver.engine.vms().vm_stats(vm).split
    }

    /// Changes the load of a guest from now on.
    pub(crate) fn works(&mut self, guest: usize, work: Work) {
        self.guests[guest].work = work;
    }

    /// Changes the objective of a guest's VM from now on.
    pub(crate) fn promise(&mut self, guest: usize, objective: &Objective) {
        let vm = self.guests[guest].guest.vm;
        self.driver.set_objective(vm, objective);
    }

    /// The VM of a guest.
    pub(crate) fn vm(&self, guest: usize) -> VmId {
        self.guests[guest].guest.vm
    }

    pub(crate) fn set_cap(&mut self, cap: &CapFigures) {
        let capped = self.capped.as_mut().expect("a capped device");
        capped.set_cap(self.driver.now, cap).expect("a cap");
    }

    fn model(&mut self) -> &mut dyn Model {
        match (&mut self.plain, &mut self.capped) {
            (Some(plain), _) => plain.as_mut(),
            (_, Some(capped)) => capped,
            _ => unreachable!("one of them is there"),
        }
    }

    fn ask(&mut self) {
        for (tag, guest) in self.guests.iter_mut().enumerate() {
            while guest.outstanding < guest.work.depth {
                let places = DISK / guest.work.size as u64;
                let place = if guest.work.sequential {
                    guest.next % places
                } else {
                    self.random.below(places)
                };
                guest.next += 1;
                let at = place * guest.work.size as u64;
                let mut request = Request::read(at, guest.work.size, tag as u64);
                request.op = if guest.work.writes > self.random.below(100) as u32 {
                    Op::Write
                } else {
                    guest.work.op
                };
                if request.op == Op::Flush {
                    request = Request::flush(tag as u64);
                }
                let taken = self.driver.request(guest.guest.client, request);
                taken.expect("there is room");
                guest.outstanding += 1;
            }
        }
    }

    fn dispatch(&mut self) {
        let now = self.driver.now;
        self.driver.engine.device_mut().check_feasibility(now);
        while let Some(io) = self.driver.start() {
            // Runs start millions of I/Os, and no test reads the log of them.
            self.driver.log.clear();
            let now = self.driver.now;
            let io = ModelIo {
                id: io.id.to_bits(),
                op: io.op,
                addr: io.addr,
                len: io.len,
                fua: io.fua,
            };
            self.model().submit(now, io);
        }
    }

    /// Advances by this many seconds; returns each guest's results in them.
    pub(crate) fn seconds(&mut self, seconds: u64) -> Vec<Had> {
        self.pass(Nanos(seconds * Nanos::SECOND.0))
    }

    /// Advances by this time; returns each guest's results in it.
    pub(crate) fn pass(&mut self, time: Nanos) -> Vec<Had> {
        let until = self.driver.now + time;
        loop {
            self.ask();
            self.dispatch();
            let mut ends = self.model().next_completion().unwrap_or(Nanos::MAX);
            if (self.stall.0..self.stall.1).contains(&ends) {
                ends = self.stall.1;
            }
            let timer = self.driver.engine.next_timeout().unwrap_or(Nanos::MAX);
            let again = self.again.peek().map_or(Nanos::MAX, |due| due.0.0);
            let next = ends.min(timer).min(again);
            if next > until {
                break;
            }
            assert!(next >= self.driver.now, "time passes");
            self.driver.now = next;
            let now = self.driver.now;
            while let Some(ended) = self.model().pop_completed(now) {
                self.end(IoId::from_bits(ended.id));
            }
            while let Some(&Reverse((due, guest))) = self.again.peek() {
                if due > now {
                    break;
                }
                self.again.pop();
                self.guests[guest].outstanding -= 1;
            }
            for done in self.driver.answers() {
                let guest = done.tag as usize;
                match self.guests[guest].work.think {
                    Nanos::ZERO => self.guests[guest].outstanding -= 1,
                    think => self.again.push(Reverse((now + think, guest))),
                }
                let had = &mut self.had[guest];
                had.bytes += self.guests[guest].work.size as u64;
                had.latencies.push(done.account.total());
                had.device += done.account.device.0;
            }
            while let Some(alert) = self.driver.engine.device_mut().poll_alert() {
                self.alerts.push((now, alert));
            }
        }
        self.driver.now = until;
        let none = vec![Had::default(); self.guests.len()];
        core::mem::replace(&mut self.had, none)
    }

    fn end(&mut self, id: IoId) {
        let mut in_flight = self.driver.in_flight.iter();
        let nth = in_flight.position(|io| io.id == id);
        (self.driver).end_nth(nth.expect("it is with the device"), Ok(()));
    }
}

/// Throughput of a device at a depth, by kind and size, on the part of it that has the guests'
/// disks.
pub(crate) fn profile(entry: &Entry, depth: u32) -> Profile {
    let curve = |op: Op, access: Access| {
        let points: Vec<_> = [4 * KIB, 64 * KIB, MIB]
            .into_iter()
            .map(|size| (size, rate(entry, op, access, size, depth)))
            .collect();
        Curve::new(&points).expect("a curve")
    };
    let both = |op| [curve(op, Access::Sequential), curve(op, Access::Random)];
    Profile::new(
        both(Op::Read),
        Some(both(Op::Write)),
        Vec::new(),
        Vec::new(),
    )
    .with_depth(depth)
}

fn rate(entry: &Entry, op: Op, access: Access, size: u32, depth: u32) -> f64 {
    let mut device = entry.build();
    let (mut now, mut random, mut sent) = (Nanos::ZERO, SplitMix64::new(2), 0);
    let (count, mut ended) = (3000, 0_u64);
    let places = 2 * DISK / size as u64;
    while ended < count {
        while device.in_flight() < depth {
            let place = match access {
                Access::Sequential => sent % places,
                Access::Random => random.below(places),
            };
            let io = ModelIo {
                op,
                ..ModelIo::read(sent, place * size as u64, size)
            };
            device.submit(now, io);
            sent += 1;
        }
        now = device.next_completion().expect("something is in flight");
        while device.pop_completed(now).is_some() {
            ended += 1;
        }
    }
    ended as f64 / now.as_secs_f64()
}
