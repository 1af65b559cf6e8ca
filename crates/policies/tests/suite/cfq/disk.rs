//! A little disk with guests of different habits.

use crate::cfq::with;
use crate::common::{MS, config, open_disk};
use std::collections::VecDeque;
use tidegate_core::engine::Engine;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::request::{ClientId, DeviceIo, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// A guest of the little disk below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    /// Requests it keeps open.
    pub(crate) depth: u32,
    /// From an answer to its next request.
    pub(crate) think: u64,
    /// It reads one thing after the other; else all over its disk.
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
    /// When it asks next, as far as it knows.
    pub(crate) asks: Vec<u64>,
    pub(crate) served: u64,
    /// The device's time that went to it.
    pub(crate) busy: u64,
    pub(crate) turns: u64,
    pub(crate) longest_wait: u64,
}

/// One I/O at a time, or several in order: 500 us where the last one ended, 8 ms elsewhere.
pub(crate) struct Disk {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    pub(crate) patrons: Vec<Patron>,
    pub(crate) flights: VecDeque<(u64, DeviceIo)>,
    pub(crate) head: u64,
    pub(crate) free_at: u64,
    pub(crate) dice: u64,
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
            engine: Engine::new(config, spec).expect("sound"),
            now: 0,
            patrons: Vec::new(),
            flights: VecDeque::new(),
            head: 0,
            free_at: 0,
            dice: 1,
            most_in_flight: 0,
            last: usize::MAX,
        }
    }

    pub(crate) fn default(depth: u32) -> Disk {
        Disk::new(depth, FAR, &with(&[]))
    }

    pub(crate) fn settle(&mut self, vm: VmId, habit: Habit) -> usize {
        let number = self.patrons.len() as u64;
        let (_, client) = open_disk(&mut self.engine, vm, number << 36, 1 << 36);
        self.patrons.push(Patron {
            client,
            vm,
            habit,
            place: 0,
            asks: vec![self.now; habit.depth as usize],
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
        let vm = self
            .engine
            .tenants_mut()
            .add_vm(Nanos(self.now), &objective);
        self.settle(vm.expect("room"), habit)
    }

    pub(crate) fn run(&mut self, span: u64) {
        let end = self.now + span;
        while self.now < end {
            while self.flights.front().is_some_and(|f| f.0 <= self.now) {
                let (_, io) = self.flights.pop_front().expect("just seen");
                self.engine
                    .handle_completion(Nanos(self.now), io.id, Ok(()));
            }
            while let Some(done) = self.engine.poll_done() {
                let patron = &mut self.patrons[done.tag as usize];
                patron.asks.push(self.now + patron.habit.think);
                patron.longest_wait = patron.longest_wait.max(done.account.waited().0);
                patron.served += 1;
            }
            self.ask();
            self.start();
            let next = [
                self.flights.front().map(|f| f.0),
                self.engine.next_timeout().map(|t| t.0),
                self.patrons
                    .iter()
                    .flat_map(|p| p.asks.iter().copied())
                    .min(),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            assert!(next > self.now, "nothing is left undone at {}", self.now);
            self.now = next.min(end);
        }
    }

    pub(crate) fn ask(&mut self) {
        for (number, patron) in self.patrons.iter_mut().enumerate() {
            let due = patron.asks.iter().filter(|&&at| at <= self.now).count();
            patron.asks.retain(|&at| at > self.now);
            for _ in 0..due {
                self.dice = self.dice.wrapping_mul(6364136223846793005).wrapping_add(1);
                if !patron.habit.sequential {
                    patron.place = (self.dice >> 33) % (1 << 23) * 8192;
                }
                let request = Request::read(patron.place, 4096, number as u64);
                patron.place += 4096;
                let taken = self
                    .engine
                    .handle_request(Nanos(self.now), patron.client, request);
                taken.expect("there is room");
            }
        }
    }

    pub(crate) fn start(&mut self) {
        if self.engine.next_timeout().is_some_and(|t| t.0 <= self.now) {
            self.engine.handle_timeout(Nanos(self.now));
        }
        while let Some(io) = self.engine.poll_dispatch(Nanos(self.now)) {
            let took = if io.addr == self.head { NEAR } else { FAR };
            self.head = io.addr + io.len as u64;
            self.free_at = self.free_at.max(self.now) + took;
            self.flights.push_back((self.free_at, io));
            let whose = self.patrons.iter().position(|p| p.vm == io.vm);
            let whose = whose.expect("a patron's");
            self.patrons[whose].busy += took;
            self.patrons[whose].turns += u64::from(self.last != whose);
            self.last = whose;
            let in_flight = self.engine.tenants().in_flight(io.vm);
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

impl Drop for Disk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for patron in &self.patrons {
            self.engine
                .handle_disconnect(Nanos(self.now), patron.client);
        }
        for (_, io) in self.flights.drain(..) {
            self.engine
                .handle_completion(Nanos(self.now), io.id, Ok(()));
        }
        while self.engine.poll_done().is_some() {}
        assert!(self.engine.is_idle());
    }
}
