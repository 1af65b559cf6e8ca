//! Small simulated disk with guests of different access patterns.

use crate::cfq::with;
use crate::common::{Driver, MS, config};
use std::collections::VecDeque;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::request::{ClientId, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Access pattern of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    /// Number of requests that the guest keeps open.
    pub(crate) depth: u32,
    /// Think time in ns from an answer to the next request.
    pub(crate) think: u64,
    /// Sequential requests; `false`: random ones all over the disk.
    pub(crate) sequential: bool,
}

pub(crate) const READER: Habit = Habit {
    depth: 1,
    think: 0,
    sequential: true,
};
pub(crate) const SEEKER: Habit = Habit {
    depth: 4,
    think: 0,
    sequential: false,
};

pub(crate) struct Patron {
    pub(crate) client: ClientId,
    pub(crate) vm: VmId,
    pub(crate) habit: Habit,
    pub(crate) place: u64,
    /// Times of the next requests, as far as known.
    pub(crate) asks: Vec<u64>,
    pub(crate) served: u64,
    /// Device time in ns that the guest's I/Os took.
    pub(crate) busy: u64,
    pub(crate) turns: u64,
    pub(crate) longest_wait: u64,
}

/// Disk that serves one I/O at a time, or several in order: 500 us for one that begins where the
/// last one ended, 8 ms elsewhere.
pub(crate) struct Disk {
    pub(crate) driver: Driver,
    pub(crate) patrons: Vec<Patron>,
    /// Ends of the I/Os in flight, in the order of the starts.
    ends: VecDeque<u64>,
    pub(crate) head: u64,
    pub(crate) free_at: u64,
    pub(crate) rng: u64,
    pub(crate) most_in_flight: u32,
    pub(crate) last: usize,
}

pub(crate) const NEAR: u64 = 500_000;
pub(crate) const FAR: u64 = 8 * MS;

impl Disk {
    pub(crate) fn new(depth: u32, positioning: u64, spec: &PolicySpec) -> Disk {
        let mut config = config(depth, 0);
        config.device.positioning = Nanos(positioning);
        Disk {
            driver: Driver::new(config, spec),
            patrons: Vec::new(),
            ends: VecDeque::new(),
            head: 0,
            free_at: 0,
            rng: 1,
            most_in_flight: 0,
            last: usize::MAX,
        }
    }

    pub(crate) fn default(depth: u32) -> Disk {
        Disk::new(depth, FAR, &with(&[]))
    }

    pub(crate) fn settle(&mut self, vm: VmId, habit: Habit) -> usize {
        let number = self.patrons.len() as u64;
        let guest = self.driver.guest_at(vm, number << 36, 1 << 36);
        self.patrons.push(Patron {
            client: guest.client,
            vm,
            habit,
            place: 0,
            asks: vec![self.driver.now.0; habit.depth as usize],
            served: 0,
            busy: 0,
            turns: 0,
            longest_wait: 0,
        });
        number as usize
    }

    pub(crate) fn vm(&mut self, priority: Priority, habit: Habit) -> usize {
        let objective = Objective {
            priority,
            ..Objective::default()
        };
        let vm = self.driver.vm(&objective);
        self.settle(vm, habit)
    }

    pub(crate) fn run(&mut self, span: u64) {
        let end = self.driver.now.0 + span;
        while self.driver.now.0 < end {
            let now = self.driver.now;
            while self.ends.pop_front_if(|end| *end <= now.0).is_some() {
                self.driver.end_nth(0, Ok(()));
            }
            for done in self.driver.answers() {
                let patron = &mut self.patrons[done.tag as usize];
                patron.asks.push(self.driver.now.0 + patron.habit.think);
                patron.longest_wait = patron.longest_wait.max(done.account.waited().0);
                patron.served += 1;
            }
            self.ask();
            self.start();
            let next = [
                self.ends.front().copied(),
                self.driver.engine.next_timeout().map(|t| t.0),
                self.patrons
                    .iter()
                    .flat_map(|p| p.asks.iter().copied())
                    .min(),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            assert!(
                next > self.driver.now.0,
                "nothing is left undone at {}",
                self.driver.now.0
            );
            self.driver.now.0 = next.min(end);
        }
    }

    pub(crate) fn ask(&mut self) {
        for (number, patron) in self.patrons.iter_mut().enumerate() {
            let due = patron
                .asks
                .iter()
                .filter(|&&at| at <= self.driver.now.0)
                .count();
            patron.asks.retain(|&at| at > self.driver.now.0);
            for _ in 0..due {
                self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1);
                if !patron.habit.sequential {
                    patron.place = (self.rng >> 33) % (1 << 23) * 8192;
                }
                let request = Request::read(patron.place, 4096, number as u64);
                patron.place += 4096;
                let taken = self.driver.request(patron.client, request);
                taken.expect("there is room");
            }
        }
    }

    pub(crate) fn start(&mut self) {
        self.driver.pass(Nanos::ZERO);
        while let Some(io) = self.driver.start() {
            let took = if io.addr == self.head { NEAR } else { FAR };
            self.head = io.addr + io.len as u64;
            self.free_at = self.free_at.max(self.driver.now.0) + took;
            self.ends.push_back(self.free_at);
            let whose = self.patrons.iter().position(|p| p.vm == io.vm);
            let whose = whose.expect("a patron's");
            self.patrons[whose].busy += took;
            self.patrons[whose].turns += u64::from(self.last != whose);
            self.last = whose;
            let in_flight = self.driver.engine.vms().in_flight(io.vm);
            self.most_in_flight = self.most_in_flight.max(in_flight);
        }
    }

    pub(crate) fn shares(&self) -> Vec<f64> {
        let all: u64 = self.patrons.iter().map(|p| p.busy).sum();
        self.patrons
            .iter()
            .map(|p| p.busy as f64 / all as f64)
            .collect()
    }
}
