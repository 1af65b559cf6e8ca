//! Machine in virtual time: executes guests on pCPUs and calls the vCPU scheduler.
//!
//! ```text
//!  timer of a flow --+                          +--> flow learns that work is done --> orders
//!                    +--> orders --> guests     |
//!  external caller --+       |                  |
//!    (deliver)               v                  |
//!              scheduler: wake --> choose --> vCPU runs up to its next boundary
//! ```
//!
//! At one point in time the world first carries out orders, then updates pCPUs whose guest reached
//! a boundary, then lets the kicked pCPUs choose, in ascending order.
//!
//! Another simulation can drive this one. It advances this world to the next event of either
//! ([`VcpuWorld::next_event`], [`VcpuWorld::run_until`]), gives vCPUs events to handle
//! ([`VcpuWorld::deliver`]) and collects those handled ([`VcpuWorld::poll_handled`]). A world that
//! is [`VcpuWorld::driven`] stops as soon as an external event was handled, before it makes any
//! decision that may depend on the caller's reaction ([`VcpuWorld::run_to_handled`]).

mod external_events;

pub use external_events::Handled;

use crate::flow::{Flow, FlowResult, Order, Orders};
use crate::guest::{GuestCpu, Token};
use crate::machine::{CpuSet, Machine, PcpuId, State, VcpuId};
use crate::scheduler::{Counts, Scheduler};
use std::collections::VecDeque;
use tidegate_core::heap::IndexedHeap;
use tidegate_core::time::Nanos;

/// Progress of one pCPU.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Time up to which the running vCPU's execution is accounted.
    upto: Nanos,
    /// Time at which the scheduler wants to be asked again.
    until: Nanos,
}

/// Simulated machine with its guests, flows and scheduler.
pub struct VcpuWorld {
    now: Nanos,
    machine: Machine,
    scheduler: Box<dyn Scheduler>,
    guests: Vec<GuestCpu>,
    flows: Vec<Box<dyn Flow>>,
    /// Next event of each source: pCPUs by number, then the scheduler's timer, then flows.
    events: IndexedHeap<Nanos>,
    progress: Vec<Progress>,
    /// Expiry of the scheduler's timer, as stored in `events`.
    timer: Option<Nanos>,
    /// pCPU on which each vCPU runs.
    runs_on: Vec<Option<PcpuId>>,
    /// CPU time of each vCPU, up to its pCPU's `upto`.
    ran: Vec<Nanos>,
    /// Number of notifications from the driver domain, by vCPU.
    notified: Vec<u64>,
    /// Events from the driver domain that each vCPU has not answered; 0 when it has become idle.
    unanswered: Vec<u64>,
    switches: u64,
    preemptions: u64,
    switch_cost: Nanos,
    orders: Orders,
    /// pCPUs whose guest may have reached a boundary.
    to_update: CpuSet,
    /// pCPUs on which the scheduler must choose.
    kicks: CpuSet,
    handled: VecDeque<Handled>,
    /// Pause after each handled external event until the caller has taken it.
    driven: bool,
}

impl VcpuWorld {
    /// Creates a world at time zero. `guests` are the machine's vCPUs by number, all idle.
    /// Switching a pCPU to another vCPU takes `switch_cost`, during which neither vCPU makes
    /// progress.
    ///
    /// # Panics
    /// The number of guests differs from that of vCPUs, or the affinity of a vCPU has no pCPU of
    /// the machine.
    pub fn new(
        machine: Machine,
        guests: Vec<GuestCpu>,
        flows: Vec<Box<dyn Flow>>,
        scheduler: Box<dyn Scheduler>,
        switch_cost: Nanos,
    ) -> VcpuWorld {
        let (pcpus, vcpus) = (machine.pcpus.len(), machine.vcpus.len());
        assert_eq!(guests.len(), vcpus, "one guest is required per vCPU");
        let somewhere = |v: &crate::machine::Vcpu| !v.affinity.and(machine.all_pcpus()).is_empty();
        assert!(
            machine.vcpus.iter().all(somewhere),
            "the affinity of a vCPU has no pCPU of the machine"
        );
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
            runs_on: vec![None; vcpus],
            ran: vec![Nanos::ZERO; vcpus],
            notified: vec![0; vcpus],
            unanswered: vec![0; vcpus],
            switches: 0,
            preemptions: 0,
            switch_cost,
            orders: Orders::new(),
            to_update: CpuSet::EMPTY,
            kicks: CpuSet::EMPTY,
            handled: VecDeque::new(),
            driven: false,
            flows,
            machine,
        };
        // Flows may order work at time zero, so they start before the first `settle`.
        for flow in 0..world.flows.len() {
            world.flows[flow].start(Nanos::ZERO, &mut world.orders);
            world.arm_flow(flow);
        }
        world.settle();
        world
    }

    /// Current virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// State of the machine, as the scheduler sees it.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// vCPU scheduler.
    pub fn scheduler(&self) -> &dyn Scheduler {
        &*self.scheduler
    }

    /// Event counters of the scheduler.
    pub fn counts(&self) -> Counts {
        self.scheduler.counts()
    }

    /// CPU time that `v` has had up to now.
    pub fn ran(&self, v: VcpuId) -> Nanos {
        let running =
            self.runs_on[v.index()].map(|p| self.now.since(self.progress[p.index()].upto));
        self.ran[v.index()] + running.unwrap_or_default()
    }

    /// Number of notifications that the driver domain sent to `v`.
    pub fn notified(&self, v: VcpuId) -> u64 {
        self.notified[v.index()]
    }

    /// Number of times that a pCPU switched to another vCPU.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of times that a vCPU left its pCPU although it could have continued.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Results of the flow with the number `flow`.
    pub fn results(&self, flow: usize) -> FlowResult {
        self.flows[flow].results(self.now)
    }

    /// Returns whether the flow with the number `flow` has ended.
    pub fn is_over(&self, flow: usize) -> bool {
        self.flows[flow].is_over()
    }

    /// Time of the next event; `None`: nothing is pending.
    pub fn next_event(&self) -> Option<Nanos> {
        let settled = self.orders.is_empty() && self.to_update.is_empty() && self.kicks.is_empty();
        if settled {
            self.events.peek().map(|(at, _)| at)
        } else {
            // An order was delivered to a driven world, which does not settle by itself.
            Some(self.now)
        }
    }

    /// Advances virtual time to `until` and processes all events up to it.
    pub fn run_until(&mut self, until: Nanos) {
        while self.next_event().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Processes the next event.
    pub fn step(&mut self) {
        if let Some((at, id)) = self.events.peek() {
            self.process_event(at, id);
            self.settle();
        }
    }

    fn process_event(&mut self, at: Nanos, id: usize) {
        self.now = self.now.max(at);
        let pcpus = self.machine.pcpus.len();
        if id < pcpus {
            self.to_update.insert(PcpuId(id as u8));
        } else if id == pcpus {
            (self.scheduler).on_timer(&self.machine, self.now, &mut self.kicks);
        } else {
            // Event numbers: pCPUs, then the scheduler's timer (`pcpus`), then flows.
            let flow = id - pcpus - 1;
            self.flows[flow].on_timer(self.now, &mut self.orders);
            self.arm_flow(flow);
        }
    }

    /// Processes everything that is due at the current time.
    fn settle(&mut self) {
        loop {
            if self.awaits_caller() {
                return;
            }
            if let Some(order) = self.orders.pop_front() {
                self.carry_out(order);
            } else if let Some(p) = self.to_update.first() {
                self.to_update.remove(p);
                self.update_pcpu(p);
            } else if let Some(p) = self.kicks.first() {
                self.kicks.remove(p);
                self.choose(p);
            } else {
                break;
            }
        }
        let next = self.scheduler.next_timer();
        // The scheduler cannot report a changed timer itself; re-arming the heap only on a change
        // keeps this cheap.
        if next != self.timer {
            self.timer = next;
            self.set_event(self.machine.pcpus.len(), next);
        }
    }

    fn carry_out(&mut self, order: Order) {
        let (Order::Event { vcpu, .. } | Order::Work { vcpu, .. } | Order::Stop { vcpu, .. }) =
            order;
        let on = self.runs_on[vcpu.index()];
        if let Some(p) = on {
            // Account the running process first, so that it is not charged for the new work.
            self.catch_up(p);
            self.to_update.insert(p);
        }
        let guest = &mut self.guests[vcpu.index()];
        match order {
            Order::Event {
                cost,
                token,
                is_driver_answer,
                ..
            } => {
                // A guest with pending interrupts finds the new event before it returns: no
                // notification.
                if is_driver_answer && !guest.has_interrupts() {
                    self.notified[vcpu.index()] += 1;
                    (self.scheduler).io_event(&self.machine, self.now, vcpu, &mut self.kicks);
                }
                self.unanswered[vcpu.index()] += u64::from(is_driver_answer);
                guest.interrupt(cost, token);
            }
            Order::Work {
                task, cost, token, ..
            } => guest.wake(task, cost, token),
            // A stop wakes nothing: the vCPU blocks at its next boundary.
            Order::Stop { task, .. } => return guest.stop(task),
        }
        let state = &mut self.machine.vcpus[vcpu.index()].state;
        match (*state, on) {
            (State::Blocked, None) => {
                *state = State::Waiting;
                (self.scheduler).wake(&self.machine, self.now, vcpu, &mut self.kicks);
            }
            // The guest ran out of work at this very time and the pCPU has not switched yet.
            (State::Blocked, Some(_)) => *state = State::Running,
            _ => {}
        }
    }

    /// Accounts the execution on `p` up to now and tells flows about finished work.
    fn catch_up(&mut self, p: PcpuId) {
        let Some(v) = self.machine.pcpu(p).running else {
            return;
        };
        let progress = &mut self.progress[p.index()];
        let time = self.now.since(progress.upto);
        // `upto` lies ahead of `now` while a switch is still being paid for.
        progress.upto = progress.upto.max(self.now);
        self.ran[v.index()] += time;
        if time == Nanos::ZERO && !self.guests[v.index()].is_due() {
            return;
        }
        self.guests[v.index()].run(time);
        let before = self.orders.len();
        while let Some(token) = self.guests[v.index()].take_done() {
            self.report_done(token);
        }
        self.count_answers(v, before);
    }

    /// Counts the orders behind the first `before` that go to other vCPUs as answers of `v`.
    fn count_answers(&mut self, v: VcpuId, before: usize) {
        let sent = self.orders.iter().skip(before);
        let sent = sent.filter(|order| matches!(order, Order::Event { vcpu, .. } if *vcpu != v));
        let sent = sent.count() as u64;
        let unanswered = &mut self.unanswered[v.index()];
        if sent == 0 || *unanswered == 0 {
            return;
        }
        *unanswered = unanswered.saturating_sub(sent);
        if *unanswered == 0 && !self.guests[v.index()].has_interrupts() {
            (self.scheduler).io_answered(&self.machine, self.now, v, &mut self.kicks);
        }
    }

    fn report_done(&mut self, token: Token) {
        if let Some(tag) = external_events::external_tag(token) {
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

    /// Schedules the event of source `id` at `at`; `None` cancels it.
    fn set_event(&mut self, id: usize, at: Option<Nanos>) {
        match at {
            Some(at) => self.events.set(id, at),
            None => {
                self.events.remove(id);
            }
        }
    }

    /// Updates the boundary event of `p`: blocks a vCPU without work, kicks a pCPU whose time is
    /// up.
    fn update_pcpu(&mut self, p: PcpuId) {
        self.catch_up(p);
        let Some(v) = self.machine.pcpu(p).running else {
            self.events.remove(p.index());
            return;
        };
        if !self.orders.is_empty() || self.awaits_caller() {
            // Pending orders may be for this vCPU and change its horizon.
            return self.to_update.insert(p);
        }
        let Progress { upto, until } = self.progress[p.index()];
        match self.guests[v.index()].horizon() {
            Some(_) if self.now >= until => self.kicks.insert(p),
            Some(horizon) => self.events.set(p.index(), until.min(upto + horizon)),
            None => {
                self.unanswered[v.index()] = 0;
                self.machine.vcpus[v.index()].state = State::Blocked;
                self.events.remove(p.index());
                self.kicks.insert(p);
            }
        }
    }

    /// Lets the scheduler choose the vCPU that `p` runs next, and switches to it.
    fn choose(&mut self, p: PcpuId) {
        self.catch_up(p);
        if !self.orders.is_empty() || self.awaits_caller() {
            return self.kicks.insert(p);
        }
        let before = self.machine.pcpu(p).running;
        // A guest may have run out of work at this very time; the scheduler must see it as blocked.
        if let Some(v) = before
            && self.guests[v.index()].is_idle()
        {
            self.machine.vcpus[v.index()].state = State::Blocked;
        }
        let choice = (self.scheduler).choose(&self.machine, self.now, p, &mut self.kicks);
        self.progress[p.index()].until = choice.until;
        if choice.run != before {
            self.switch(p, before, choice.run);
        }
        self.to_update.insert(p);
    }

    fn switch(&mut self, p: PcpuId, before: Option<VcpuId>, next: Option<VcpuId>) {
        if let Some(v) = before {
            self.runs_on[v.index()] = None;
            let state = &mut self.machine.vcpus[v.index()].state;
            if *state == State::Running {
                *state = State::Waiting;
                self.preemptions += 1;
            }
        }
        let pcpu = &mut self.machine.pcpus[p.index()];
        pcpu.running = next;
        pcpu.since = self.now;
        if let Some(v) = next {
            self.runs_on[v.index()] = Some(p);
            self.machine.vcpus[v.index()].state = State::Running;
            // The new vCPU makes no progress until the switch is paid for.
            self.progress[p.index()].upto = self.now + self.switch_cost;
            self.switches += 1;
        }
        // Last, because the scheduler expects the new vCPU to run already.
        if let Some(v) = before {
            (self.scheduler).left(&self.machine, self.now, v, &mut self.kicks);
        }
    }
}
