//! Event loop of the simulated data centre. At equal times host events come first, then time-outs,
//! then arrivals.

use std::collections::BTreeMap;

use tidegate_core::heap::IndexedHeap;
use tidegate_core::time::Nanos;

use super::arrivals::{Arrival, Arrivals};
use super::host::{HostReport, SimHost};
use super::rate_placer::{Placer, RatePlacer};
use super::report::{Counts, Report};
use super::{Decision, Observer, Spec, Strategy};
use crate::{
    Answer, Event, HostId, HostSpec, Outcome, Pcos, Placement, RequestId, Update, WAITING_CAPACITY,
};

/// Data centre with its hosts, placement strategy and arrivals, in virtual time. PCOS is the
/// placement by priority databases of chapter 5 of Jain's thesis.
pub(super) struct Simulation<'a> {
    spec: &'a Spec,
    placer: Box<dyn Placer>,
    /// True if the strategy decides the classes of a host's transfers. Otherwise PriDyn does so
    /// after placement: the host's scheduler that raises and lowers classes to meet deadlines (Jain
    /// and Lakshmi, IEEE TSC 2014).
    strategy_sets_classes: bool,
    hosts: Vec<SimHost>,
    /// Next event of each host.
    host_events: IndexedHeap<Nanos>,
    arrivals: Arrivals,
    /// Arrivals that wait for a host or are about to be placed.
    pending: BTreeMap<RequestId, Arrival>,
    running: usize,
    now: Nanos,
    counts: Counts,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(spec: &'a Spec, strategy: Strategy) -> Simulation<'a> {
        let placer: Box<dyn Placer> = match strategy {
            Strategy::Pcos => {
                let mut pcos = Pcos::new(WAITING_CAPACITY);
                for _ in 0..spec.hosts {
                    pcos.add_host(Nanos::ZERO, HostSpec::new(spec.bandwidth.clone()));
                }
                Box::new(pcos)
            }
            other => Box::new(RatePlacer::new(spec, other)),
        };
        let mut host_events = IndexedHeap::with_capacity(spec.hosts);
        let hosts: Vec<SimHost> = (0..spec.hosts as u64)
            .map(|at| {
                // Staggered, so that the intervals of the hosts do not coincide.
                let first = u128::from(spec.interval.0) * u128::from(at + 1) / spec.hosts as u128;
                SimHost::new(&spec.bandwidth, spec.interval, Nanos(first as u64))
            })
            .collect();
        for (at, host) in hosts.iter().enumerate() {
            host_events.set(at, host.next());
        }
        Simulation {
            spec,
            placer,
            strategy_sets_classes: strategy == Strategy::Pcos,
            hosts,
            host_events,
            arrivals: Arrivals::new(spec.seed),
            pending: BTreeMap::new(),
            running: 0,
            now: Nanos::ZERO,
            counts: Counts::default(),
        }
    }

    pub(super) fn run(mut self, observer: &mut dyn Observer) -> Report {
        let end = self.spec.warm_up + self.spec.length;
        let mut arrival = self.arrivals.next(self.spec);
        let mut moved_before = None;
        loop {
            let next_host_event = self.host_events.peek().map_or(Nanos::MAX, |next| next.0);
            let timeout = self.placer.next_timeout().unwrap_or(Nanos::MAX);
            // Ties are resolved by the order of the branches below.
            let now = next_host_event.min(timeout).min(arrival.at);
            // Snapshot at the end of the warm-up, whose bytes are not counted.
            if now >= self.spec.warm_up && moved_before.is_none() {
                moved_before = Some(self.moved(self.spec.warm_up));
            }
            if now >= end {
                break;
            }
            self.advance(now);
            if next_host_event == now {
                self.process_events(observer);
            } else if timeout == now {
                self.placer.handle_timeout(now);
                self.take_events(observer);
            } else {
                self.arrive(arrival, observer);
                arrival = self.arrivals.next(self.spec);
            }
        }
        self.advance(end);
        let moved = self.moved(end) - moved_before.unwrap_or(0);
        let overdue: usize = self.hosts.iter().map(|host| host.overdue(end)).sum();
        self.counts.report.overdue = overdue as u64;
        // Bytes per second times nanoseconds exceed 64 bits.
        let per_host = u128::from(self.spec.bandwidth.max()) * u128::from(self.spec.length.0);
        let possible = per_host * self.spec.hosts as u128 / u128::from(Nanos::SECOND.0);
        self.counts.finish(moved, possible, self.spec.length)
    }

    /// Advances virtual time, and accounts running and waiting transfers.
    fn advance(&mut self, now: Nanos) {
        let counted = now.since(self.now.max(self.spec.warm_up));
        self.counts.time(counted, self.running, self.pending.len());
        self.now = now;
    }

    /// Total bytes moved on all hosts up to `then`.
    fn moved(&mut self, then: Nanos) -> u64 {
        self.hosts.iter_mut().for_each(|host| host.settle(then));
        self.hosts.iter().map(|host| host.moved).sum()
    }

    fn is_counted(&self) -> bool {
        self.now >= self.spec.warm_up
    }

    /// Processes the arrival of a transfer.
    fn arrive(&mut self, arrival: Arrival, observer: &mut dyn Observer) {
        let (now, counted) = (self.now, self.is_counted());
        observer.begin(counted);
        let Answer { id, outcome } = self.placer.request(now, arrival.request);
        observer.end(Decision::Arrival);
        self.counts.report.arrived += u64::from(counted);
        match outcome {
            Outcome::Placed(placement) => {
                self.counts.report.placed += u64::from(counted);
                self.begin(&arrival, &placement, observer);
            }
            Outcome::Waiting => {
                self.pending.insert(id, arrival);
            }
            Outcome::Refused(_) => self.counts.report.refused += u64::from(counted),
        }
        self.take_events(observer);
    }

    /// Processes the next event of a host.
    fn process_events(&mut self, observer: &mut dyn Observer) {
        let Some((_, at)) = self.host_events.peek() else {
            return;
        };
        let mut ended = Vec::new();
        let report = self.hosts[at].process_events(self.now, &mut ended);
        self.running -= ended.len();
        if self.is_counted() {
            ended.iter().for_each(|ended| self.counts.end(ended));
        }
        self.send_report(at, &report, observer);
        self.take_events(observer);
    }

    /// Processes the results of waiting requests, which may change hosts and lead to further
    /// results.
    fn take_events(&mut self, observer: &mut dyn Observer) {
        while let Some(event) = self.placer.poll_event() {
            let counted = self.is_counted();
            match event {
                Event::Placed(placement) => {
                    // Placements of arrivals are handled in `arrive`; these have waited.
                    if let Some(arrival) = self.pending.remove(&placement.id) {
                        if counted {
                            self.counts.wait(placement.waited);
                        }
                        self.begin(&arrival, &placement, observer);
                    }
                }
                Event::Discarded(id) => {
                    self.pending.remove(&id);
                    self.counts.report.discarded += u64::from(counted);
                }
            }
        }
    }

    fn begin(&mut self, arrival: &Arrival, placement: &Placement, observer: &mut dyn Observer) {
        let HostId(at) = placement.host;
        let report = self.hosts[at].begin(self.now, arrival, placement, self.strategy_sets_classes);
        self.running += 1;
        self.send_report(at, &report, observer);
    }

    fn send_report(&mut self, at: usize, report: &HostReport, observer: &mut dyn Observer) {
        self.host_events.set(at, self.hosts[at].next());
        let update = Update {
            ended: &report.ended,
            classes: &report.classes,
            moved: &report.moved,
            measured: &report.measured,
            demand_limited: &report.demand_limited,
        };
        let (now, counted) = (self.now, self.is_counted());
        observer.begin(counted);
        self.placer.update(now, HostId(at), &update);
        observer.end(Decision::Update);
    }
}
