//! The machine through virtual time: who runs where, what they work at, and when the scheduler is
//! asked.
//!
//! ```text
//!  timer of a flow --+                          +--> flow hears that work is done --> orders
//!                    +--> orders --> guests     |
//!  somebody outside -+       |                  |
//!    (deliver)               v                  |
//!              scheduler: wake --> choose --> vCPU runs up to its next boundary
//! ```
//!
//! At one time, orders are carried out first, then pCPUs whose guest came to a boundary are looked
//! at, then those choose that the scheduler told to, by number. Another world can drive this one:
//! it takes it to the next of both worlds' events ([`VcpuWorld::next_event`],
//! [`VcpuWorld::run_until`]), gives a vCPU something to handle ([`VcpuWorld::deliver`]) and hears
//! when it was handled ([`VcpuWorld::poll_handled`]). One that is [`VcpuWorld::driven`] stops where
//! something from outside was handled, before anything is decided that may hang on what follows
//! from it ([`VcpuWorld::run_to_handled`]).

mod outside;

pub use outside::Handled;

use crate::flow::{Flow, Found, Order, Orders};
use crate::guest::{GuestCpu, Token};
use crate::machine::{CpuSet, Machine, PcpuId, State, VcpuId};
use crate::scheduler::{Counts, Scheduler};
use std::collections::VecDeque;
use tidegate_core::heap::IndexedHeap;
use tidegate_core::time::Nanos;

/// How far a pCPU has come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// What runs on it is reckoned up to here.
    upto: Nanos,
    /// The scheduler wants to be asked again then.
    until: Nanos,
}

/// Everything that is simulated.
pub struct VcpuWorld {
    now: Nanos,
    machine: Machine,
    scheduler: Box<dyn Scheduler>,
    guests: Vec<GuestCpu>,
    flows: Vec<Box<dyn Flow>>,
    /// What happens next: pCPUs by number, then the scheduler's timer, then flows.
    events: IndexedHeap<Nanos>,
    progress: Vec<Progress>,
    /// When the scheduler's timer is due, as `events` has it.
    timer: Option<Nanos>,
    /// Where each vCPU runs.
    on: Vec<Option<PcpuId>>,
    /// How long each vCPU has run.
    ran: Vec<Nanos>,
    /// Notifications from the driver domain, by vCPU.
    notified: Vec<u64>,
    switches: u64,
    switch_cost: Nanos,
    orders: Orders,
    /// pCPUs whose guest is to be looked at.
    dirty: CpuSet,
    /// pCPUs that are to choose anew.
    kicks: CpuSet,
    handled: VecDeque<Handled>,
    /// What was handled is taken before anything else happens.
    driven: bool,
}

impl VcpuWorld {
    /// A world at time zero. `guests` are the insides of the machine's vCPUs, all idle; a switch of
    /// a pCPU to another vCPU takes `switch_cost`, in which nobody gets on.
    ///
    /// # Panics
    /// When there is not a guest for each vCPU, or a vCPU that may run nowhere.
    pub fn new(
        machine: Machine,
        guests: Vec<GuestCpu>,
        flows: Vec<Box<dyn Flow>>,
        scheduler: Box<dyn Scheduler>,
        switch_cost: Nanos,
    ) -> VcpuWorld {
        let (pcpus, vcpus) = (machine.pcpus.len(), machine.vcpus.len());
        assert_eq!(guests.len(), vcpus, "a guest for each vCPU");
        let somewhere = |v: &crate::machine::Vcpu| !v.affinity.and(machine.all()).is_empty();
        assert!(machine.vcpus.iter().all(somewhere), "a pCPU for each vCPU");
        let idle = Progress {
            upto: Nanos::ZERO,
            until: Nanos::MAX,
        };
        let mut world = VcpuWorld {
            now: Nanos::ZERO,
            scheduler,
            guests,
            events: IndexedHeap::with_capacity(pcpus + 1 + flows.len()),
            progress: vec![idle; pcpus],
            timer: None,
            on: vec![None; vcpus],
            ran: vec![Nanos::ZERO; vcpus],
            notified: vec![0; vcpus],
            switches: 0,
            switch_cost,
            orders: Orders::new(),
            dirty: CpuSet::EMPTY,
            kicks: CpuSet::EMPTY,
            handled: VecDeque::new(),
            driven: false,
            flows,
            machine,
        };
        for flow in 0..world.flows.len() {
            world.flows[flow].start(Nanos::ZERO, &mut world.orders);
            world.arm_flow(flow);
        }
        world.settle();
        world
    }

    /// How far it has come.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The machine, as its scheduler sees it.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &dyn Scheduler {
        &*self.scheduler
    }

    /// What the scheduler has counted.
    pub fn counts(&self) -> Counts {
        self.scheduler.counts()
    }

    /// How long `v` has run, up to now.
    pub fn ran(&self, v: VcpuId) -> Nanos {
        let running = self.on[v.at()].map(|p| self.now.since(self.progress[p.at()].upto));
        self.ran[v.at()] + running.unwrap_or_default()
    }

    /// How often the driver domain has notified `v`.
    pub fn notified(&self, v: VcpuId) -> u64 {
        self.notified[v.at()]
    }

    /// How often a pCPU went over to another vCPU.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// What came of the flow at this place.
    pub fn found(&self, flow: usize) -> Found {
        self.flows[flow].found(self.now)
    }

    /// Whether the flow at this place has come to its end.
    pub fn is_over(&self, flow: usize) -> bool {
        self.flows[flow].is_over()
    }

    /// When something happens next; `None`: never.
    pub fn next_event(&self) -> Option<Nanos> {
        let settled = self.orders.is_empty() && self.dirty.is_empty() && self.kicks.is_empty();
        match settled {
            true => self.events.peek().map(|(at, _)| at),
            // Something was delivered to a world that is driven.
            false => Some(self.now),
        }
    }

    /// Lets time pass to `until`, with all that happens then.
    pub fn run_until(&mut self, until: Nanos) {
        while self.next_event().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// What happens next, happens.
    pub fn step(&mut self) {
        if let Some((at, id)) = self.events.peek() {
            self.happen(at, id);
            self.settle();
        }
    }

    fn happen(&mut self, at: Nanos, id: usize) {
        self.now = self.now.max(at);
        let pcpus = self.machine.pcpus.len();
        if id < pcpus {
            self.dirty.insert(PcpuId(id as u8));
        } else if id == pcpus {
            (self.scheduler).on_timer(&self.machine, self.now, &mut self.kicks);
        } else {
            let flow = id - pcpus - 1;
            self.flows[flow].on_timer(self.now, &mut self.orders);
            self.arm_flow(flow);
        }
    }

    /// Carries through all that is to be done at this time.
    fn settle(&mut self) {
        loop {
            if self.pauses() {
                return;
            }
            if let Some(order) = self.orders.pop_front() {
                self.carry_out(order);
            } else if let Some(p) = self.dirty.first() {
                self.dirty.remove(p);
                self.look(p);
            } else if let Some(p) = self.kicks.first() {
                self.kicks.remove(p);
                self.choose(p);
            } else {
                break;
            }
        }
        let next = self.scheduler.next_timer();
        if next != self.timer {
            self.timer = next;
            self.set_event(self.machine.pcpus.len(), next);
        }
    }

    fn carry_out(&mut self, order: Order) {
        let (Order::Event { vcpu, .. } | Order::Work { vcpu, .. } | Order::Stop { vcpu, .. }) =
            order;
        let on = self.on[vcpu.at()];
        if let Some(p) = on {
            // What runs there has got on until now.
            self.catch_up(p);
            self.dirty.insert(p);
        }
        let guest = &mut self.guests[vcpu.at()];
        match order {
            Order::Event {
                cost,
                token,
                answers,
                ..
            } => {
                // Who has some to handle looks for more before it ends: it is not notified again.
                if answers && !guest.has_interrupts() {
                    self.notified[vcpu.at()] += 1;
                    (self.scheduler).io_event(&self.machine, self.now, vcpu, &mut self.kicks);
                }
                guest.interrupt(cost, token);
            }
            Order::Work {
                task, cost, token, ..
            } => guest.wake(task, cost, token),
            Order::Stop { task, .. } => return guest.stop(task),
        }
        let state = &mut self.machine.vcpus[vcpu.at()].state;
        match (*state, on) {
            (State::Blocked, None) => {
                *state = State::Waiting;
                (self.scheduler).wake(&self.machine, self.now, vcpu, &mut self.kicks);
            }
            // It had nothing to do a moment ago, and has not left yet.
            (State::Blocked, Some(_)) => *state = State::Running,
            _ => {}
        }
    }

    /// Reckons up what runs on `p`, and tells flows what is done.
    fn catch_up(&mut self, p: PcpuId) {
        let Some(v) = self.machine.pcpu(p).running else {
            return;
        };
        let progress = &mut self.progress[p.at()];
        let time = self.now.since(progress.upto);
        progress.upto = progress.upto.max(self.now);
        self.ran[v.at()] += time;
        if time == Nanos::ZERO && !self.guests[v.at()].is_due() {
            return;
        }
        self.guests[v.at()].run(time);
        while let Some(token) = self.guests[v.at()].take_done() {
            self.hand(token);
        }
    }

    fn hand(&mut self, token: Token) {
        if let Some(tag) = outside::tag(token) {
            let at = self.now;
            return self.handled.push_back(Handled { tag, at });
        }
        let flow = token.flow as usize;
        self.flows[flow].done(self.now, token, &mut self.orders);
        self.arm_flow(flow);
    }

    fn arm_flow(&mut self, flow: usize) {
        let id = self.machine.pcpus.len() + 1 + flow;
        self.set_event(id, self.flows[flow].next_timer());
    }

    /// What `id` stands for happens `at`, or never.
    fn set_event(&mut self, id: usize, at: Option<Nanos>) {
        match at {
            Some(at) => self.events.set(id, at),
            None => {
                self.events.remove(id);
            }
        }
    }

    /// Looks at what runs on `p`: whether it has still something to do, and when it wants to be
    /// looked at next.
    fn look(&mut self, p: PcpuId) {
        self.catch_up(p);
        let Some(v) = self.machine.pcpu(p).running else {
            self.events.remove(p.at());
            return;
        };
        if !self.orders.is_empty() || self.pauses() {
            // They may be for it.
            return self.dirty.insert(p);
        }
        let Progress { upto, until } = self.progress[p.at()];
        match self.guests[v.at()].horizon() {
            Some(_) if self.now >= until => self.kicks.insert(p),
            Some(horizon) => self.events.set(p.at(), until.min(upto + horizon)),
            None => {
                self.machine.vcpus[v.at()].state = State::Blocked;
                self.events.remove(p.at());
                self.kicks.insert(p);
            }
        }
    }

    /// Has the scheduler say what `p` does next.
    fn choose(&mut self, p: PcpuId) {
        self.catch_up(p);
        if !self.orders.is_empty() || self.pauses() {
            return self.kicks.insert(p);
        }
        let before = self.machine.pcpu(p).running;
        if let Some(v) = before
            && self.guests[v.at()].is_idle()
        {
            self.machine.vcpus[v.at()].state = State::Blocked;
        }
        let choice = (self.scheduler).choose(&self.machine, self.now, p, &mut self.kicks);
        self.progress[p.at()].until = choice.until;
        if choice.run != before {
            self.switch(p, before, choice.run);
        }
        self.dirty.insert(p);
    }

    fn switch(&mut self, p: PcpuId, before: Option<VcpuId>, next: Option<VcpuId>) {
        if let Some(v) = before {
            self.on[v.at()] = None;
            let state = &mut self.machine.vcpus[v.at()].state;
            if *state == State::Running {
                *state = State::Waiting;
            }
        }
        let pcpu = &mut self.machine.pcpus[p.at()];
        pcpu.running = next;
        pcpu.since = self.now;
        if let Some(v) = next {
            self.on[v.at()] = Some(p);
            self.machine.vcpus[v.at()].state = State::Running;
            self.progress[p.at()].upto = self.now + self.switch_cost;
            self.switches += 1;
        }
        if let Some(v) = before {
            (self.scheduler).left(&self.machine, self.now, v, &mut self.kicks);
        }
    }
}
