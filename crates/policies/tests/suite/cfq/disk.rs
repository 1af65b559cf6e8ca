//! Small simulated disk with VMs of different access patterns.

use crate::cfq::with;
use crate::common::{Driver, MS, config};
use std::collections::VecDeque;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::request::{ClientId, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Access pattern of a VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessPattern {
    /// Number of requests that the VM keeps outstanding.
    pub(crate) depth: u32,
    /// Think time in ns from an answer to the next request.
    pub(crate) think: u64,
    /// Sequential requests; `false`: random ones all over the disk.
    pub(crate) sequential: bool,
}

/// Sequential reader with one request at a time and no think time.
pub(crate) const SEQUENTIAL_READER: AccessPattern = AccessPattern {
    depth: 1,
    think: 0,
    sequential: true,
};
/// Random reader with four requests at a time and no think time.
pub(crate) const RANDOM_READER: AccessPattern = AccessPattern {
    depth: 4,
    think: 0,
    sequential: false,
};

/// VM of a [`Disk`], with counts since its start.
pub(crate) struct DiskVm {
    pub(crate) client: ClientId,
    pub(crate) vm: VmId,
    pub(crate) pattern: AccessPattern,
    /// Byte of the VM's disk at which its next request begins.
    pub(crate) offset: u64,
    /// Times in ns of the next requests, as far as known.
    pub(crate) next_requests: Vec<u64>,
    /// Number of requests answered.
    pub(crate) served: u64,
    /// Device time in ns that the VM's I/Os took.
    pub(crate) device_ns: u64,
    /// Number of times that the disk began to serve the VM, after another one.
    pub(crate) turns: u64,
    /// Longest time in ns between a request's arrival and its start on the device.
    pub(crate) longest_wait: u64,
}

/// Disk that serves one I/O at a time, or several in order: 500 us for one that begins where the
/// last one ended, 8 ms elsewhere.
pub(crate) struct Disk {
    pub(crate) driver: Driver,
    pub(crate) vms: Vec<DiskVm>,
    /// Ends of the I/Os in flight, in the order of the starts.
    ends: VecDeque<u64>,
    /// Address at which the last I/O ended.
    pub(crate) head: u64,
    /// Time in ns at which the last I/O ends.
    pub(crate) free_at: u64,
    /// State of the generator of random offsets (a linear congruential generator, Knuth's MMIX).
    pub(crate) rng: u64,
    /// Largest number of I/Os of one VM in flight.
    pub(crate) most_in_flight: u32,
    /// Index of the VM whose I/O was started last.
    pub(crate) last: usize,
}

/// Service time of an I/O that begins where the last one ended.
pub(crate) const SEQUENTIAL_NS: u64 = 500_000;
/// Service time of an I/O elsewhere.
pub(crate) const SEEK_NS: u64 = 8 * MS;

impl Disk {
    pub(crate) fn new(depth: u32, positioning: u64, spec: &PolicySpec) -> Disk {
        let mut config = config(depth, 0);
        config.device.positioning = Nanos(positioning);
        Disk {
            driver: Driver::new(config, spec),
            vms: Vec::new(),
            ends: VecDeque::new(),
            head: 0,
            free_at: 0,
            rng: 1,
            most_in_flight: 0,
            last: usize::MAX,
        }
    }

    pub(crate) fn default(depth: u32) -> Disk {
        Disk::new(depth, SEEK_NS, &with(&[]))
    }

    /// Adds a VM of the engine with a disk of its own; returns its index.
    pub(crate) fn add_vm(&mut self, vm: VmId, pattern: AccessPattern) -> usize {
        let number = self.vms.len() as u64;
        let guest = self.driver.guest_at(vm, number << 36, 1 << 36);
        self.vms.push(DiskVm {
            client: guest.client,
            vm,
            pattern,
            offset: 0,
            next_requests: vec![self.driver.now.0; pattern.depth as usize],
            served: 0,
            device_ns: 0,
            turns: 0,
            longest_wait: 0,
        });
        number as usize
    }

    pub(crate) fn vm(&mut self, priority: Priority, pattern: AccessPattern) -> usize {
        let objective = Objective {
            priority,
            ..Objective::default()
        };
        let vm = self.driver.vm(&objective);
        self.add_vm(vm, pattern)
    }

    /// Runs for `span` nanoseconds.
    pub(crate) fn run(&mut self, span: u64) {
        let end = self.driver.now.0 + span;
        while self.driver.now.0 < end {
            let now = self.driver.now;
            while self.ends.pop_front_if(|end| *end <= now.0).is_some() {
                self.driver.end_nth(0, Ok(()));
            }
            for done in self.driver.answers() {
                let vm = &mut self.vms[done.tag as usize];
                vm.next_requests.push(self.driver.now.0 + vm.pattern.think);
                vm.longest_wait = vm.longest_wait.max(done.account.waited().0);
                vm.served += 1;
            }
            self.ask();
            self.start();
            let next = [
                self.ends.front().copied(),
                self.driver.engine.next_timeout().map(|t| t.0),
                self.vms
                    .iter()
                    .flat_map(|vm| vm.next_requests.iter().copied())
                    .min(),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            assert!(
                next > self.driver.now.0,
                "an event at {} was not handled",
                self.driver.now.0
            );
            self.driver.now.0 = next.min(end);
        }
    }

    /// Submits the requests that are due.
    pub(crate) fn ask(&mut self) {
        for (number, vm) in self.vms.iter_mut().enumerate() {
            let due = vm
                .next_requests
                .iter()
                .filter(|&&at| at <= self.driver.now.0)
                .count();
            vm.next_requests.retain(|&at| at > self.driver.now.0);
            for _ in 0..due {
                self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1);
                if !vm.pattern.sequential {
                    vm.offset = (self.rng >> 33) % (1 << 23) * 8192;
                }
                let request = Request::read(vm.offset, 4096, number as u64);
                vm.offset += 4096;
                let taken = self.driver.request(vm.client, request);
                taken.expect("there is room");
            }
        }
    }

    pub(crate) fn start(&mut self) {
        self.driver.pass(Nanos::ZERO);
        while let Some(io) = self.driver.start() {
            let took = if io.addr == self.head {
                SEQUENTIAL_NS
            } else {
                SEEK_NS
            };
            self.head = io.addr + io.len as u64;
            self.free_at = self.free_at.max(self.driver.now.0) + took;
            self.ends.push_back(self.free_at);
            let whose = self.vms.iter().position(|vm| vm.vm == io.vm);
            let whose = whose.expect("a VM of this disk");
            self.vms[whose].device_ns += took;
            self.vms[whose].turns += u64::from(self.last != whose);
            self.last = whose;
            let in_flight = self.driver.engine.vms().in_flight(io.vm);
            self.most_in_flight = self.most_in_flight.max(in_flight);
        }
    }

    /// Returns each VM's part of the device time.
    pub(crate) fn shares(&self) -> Vec<f64> {
        let all: u64 = self.vms.iter().map(|vm| vm.device_ns).sum();
        self.vms
            .iter()
            .map(|vm| vm.device_ns as f64 / all as f64)
            .collect()
    }
}
