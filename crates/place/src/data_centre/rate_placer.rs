//! First-fit, best-fit and random placement by the rates that transfers need, compared with PCOS.

use std::collections::VecDeque;

use tidegate_core::random::SplitMix64;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use super::{Spec, Strategy};
use crate::pcos::{Waiter, Waiting};
use crate::{
    Answer, Bandwidth, Event, HostId, MAX_VMS, Outcome, Pcos, Placement, Request, RequestId, Update,
};

/// Placement strategy, with the interface of [`Pcos`].
pub(super) trait Placer {
    fn request(&mut self, now: Nanos, request: Request) -> Answer;
    fn update(&mut self, now: Nanos, host: HostId, update: &Update<'_>);
    fn handle_timeout(&mut self, now: Nanos);
    fn next_timeout(&self) -> Option<Nanos>;
    fn poll_event(&mut self) -> Option<Event>;
}

impl Placer for Pcos {
    fn request(&mut self, now: Nanos, request: Request) -> Answer {
        Pcos::request(self, now, request)
    }

    fn update(&mut self, now: Nanos, host: HostId, update: &Update<'_>) {
        Pcos::update(self, now, host, update);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        Pcos::handle_timeout(self, now);
    }

    fn next_timeout(&self) -> Option<Nanos> {
        Pcos::next_timeout(self)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Pcos::poll_event(self)
    }
}

/// Placement by reserved rates. Transfers have the default class, and no transfer is lowered.
#[derive(Debug)]
pub(super) struct RatePlacer {
    strategy: Strategy,
    bandwidth: Bandwidth,
    /// Transfers on each host, with the rates they need in bytes per second.
    hosts: Vec<Vec<(RequestId, u64)>>,
    waiting: Waiting,
    next: u64,
    random: SplitMix64,
    events: VecDeque<Event>,
}

impl Placer for RatePlacer {
    fn request(&mut self, now: Nanos, request: Request) -> Answer {
        self.handle_timeout(now);
        self.next += 1;
        let id = RequestId(self.next);
        let waiter = Waiter {
            id,
            request,
            arrived: now,
        };
        let outcome = match self.find(request.rate()) {
            Some(host) => Outcome::Placed(self.place(now, host, &waiter)),
            None => {
                self.waiting.push(waiter);
                Outcome::Waiting
            }
        };
        Answer { id, outcome }
    }

    fn update(&mut self, now: Nanos, host: HostId, update: &Update<'_>) {
        self.handle_timeout(now);
        self.hosts[host.0].retain(|(id, _)| !update.ended.contains(id));
        // Only an end frees a reservation.
        if update.ended.is_empty() {
            return;
        }
        // From the first slot on: any request that fits may be placed.
        while let Some((_, &waiter)) = self.waiting.oldest(0, self.available_rate(host.0)) {
            self.waiting.remove(waiter.id);
            let placement = self.place(now, host.0, &waiter);
            self.events.push_back(Event::Placed(placement));
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(waiter) = self.waiting.pop_due(now) {
            self.events.push_back(Event::Discarded(waiter.id));
        }
    }

    fn next_timeout(&self) -> Option<Nanos> {
        self.waiting.next_due()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl RatePlacer {
    pub(super) fn new(spec: &Spec, strategy: Strategy) -> RatePlacer {
        RatePlacer {
            strategy,
            bandwidth: spec.bandwidth.clone(),
            hosts: vec![Vec::new(); spec.hosts],
            waiting: Waiting::new(),
            next: 0,
            // Another stream than that of the arrivals, which have the seed itself: XORed with the
            // upper bits of 2^64 over the golden ratio; any constant will do.
            random: SplitMix64::new(spec.seed ^ 0x9e37_79b9),
            events: VecDeque::new(),
        }
    }

    /// Returns the highest rate in bytes per second that another transfer on the host may need.
    fn available_rate(&self, host: usize) -> u64 {
        let transfers = &self.hosts[host];
        match (self.strategy, transfers.len() < MAX_VMS) {
            (_, false) => 0,
            // Any request fits; `u64::MAX` itself marks empty slots of the waiting list.
            (Strategy::Random, true) => u64::MAX - 1,
            (_, true) => {
                let promised: u64 = transfers.iter().map(|(_, rate)| rate).sum();
                self.bandwidth
                    .total_for(transfers.len() + 1)
                    .saturating_sub(promised)
            }
        }
    }

    fn find(&mut self, rate: u64) -> Option<usize> {
        let n = self.hosts.len();
        if self.strategy == Strategy::Random {
            // From a random host on, so that a request waits only if no host takes it.
            let first = self.random.below(n as u64) as usize;
            let mut all = (0..n).map(|at| (first + at) % n);
            return all.find(|&at| self.available_rate(at) >= rate);
        }
        let mut takers = (0..n)
            .map(|at| (self.available_rate(at), at))
            .filter(|(free, _)| *free >= rate);
        let taker = match self.strategy {
            Strategy::FirstFit => takers.next(),
            // Best fit: least free bandwidth, lowest number among equals.
            _ => takers.min(),
        };
        taker.map(|(_, at)| at)
    }

    fn place(&mut self, now: Nanos, host: usize, waiter: &Waiter) -> Placement {
        self.hosts[host].push((waiter.id, waiter.request.rate()));
        Placement {
            id: waiter.id,
            host: HostId(host),
            class: Class::default(),
            lowered: Vec::new(),
            waited: now.since(waiter.arrived),
        }
    }
}
