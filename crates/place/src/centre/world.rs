//! The data centre through virtual time: what happens on hosts, then whose time is over, then who
//! comes.

use std::collections::BTreeMap;

use tidegate_core::heap::IndexedHeap;
use tidegate_core::time::Nanos;

use super::draw::{Arrival, Arrivals};
use super::plain::{Placer, Plain};
use super::report::{Counts, Report};
use super::site::{News, Site};
use super::{Decision, Spec, Strategy, Watch};
use crate::{
    Answer, Event, HostId, HostSpec, MOST_WAITING, Outcome, Pcos, Placement, RequestId, Update,
};

pub(super) struct World<'a> {
    spec: &'a Spec,
    placer: Box<dyn Placer>,
    /// It has looked at all classes of a host before it places a job there.
    looks_at_classes: bool,
    sites: Vec<Site>,
    /// When something happens on each.
    next: IndexedHeap<Nanos>,
    arrivals: Arrivals,
    /// Those that wait, or are about to be placed.
    asked: BTreeMap<RequestId, Arrival>,
    running: usize,
    now: Nanos,
    counts: Counts,
}

impl<'a> World<'a> {
    pub(super) fn new(spec: &'a Spec, strategy: Strategy) -> World<'a> {
        let placer: Box<dyn Placer> = match strategy {
            Strategy::Pcos => {
                let mut pcos = Pcos::new(MOST_WAITING);
                for _ in 0..spec.hosts {
                    pcos.add_host(Nanos::ZERO, HostSpec::new(spec.bandwidth.clone()));
                }
                Box::new(pcos)
            }
            other => Box::new(Plain::new(spec, other)),
        };
        let mut next = IndexedHeap::with_capacity(spec.hosts);
        let sites: Vec<Site> = (0..spec.hosts as u64)
            .map(|at| {
                // Their intervals begin one after the other.
                let first = u128::from(spec.interval.0) * u128::from(at + 1) / spec.hosts as u128;
                Site::new(&spec.bandwidth, spec.interval, Nanos(first as u64))
            })
            .collect();
        for (at, site) in sites.iter().enumerate() {
            next.set(at, site.next());
        }
        World {
            spec,
            placer,
            looks_at_classes: strategy == Strategy::Pcos,
            sites,
            next,
            arrivals: Arrivals::new(spec.seed),
            asked: BTreeMap::new(),
            running: 0,
            now: Nanos::ZERO,
            counts: Counts::default(),
        }
    }

    pub(super) fn run(mut self, watch: &mut dyn Watch) -> Report {
        let end = self.spec.warm_up + self.spec.length;
        let mut arrival = self.arrivals.next(self.spec);
        let mut moved_before = None;
        loop {
            let happens = self.next.peek().map_or(Nanos::MAX, |next| next.0);
            let timeout = self.placer.next_timeout().unwrap_or(Nanos::MAX);
            let now = happens.min(timeout).min(arrival.at);
            if now >= self.spec.warm_up && moved_before.is_none() {
                moved_before = Some(self.moved(self.spec.warm_up));
            }
            if now >= end {
                break;
            }
            self.pass(now);
            if happens == now {
                self.happen(watch);
            } else if timeout == now {
                self.placer.handle_timeout(now);
                self.take_events(watch);
            } else {
                self.arrive(arrival, watch);
                arrival = self.arrivals.next(self.spec);
            }
        }
        self.pass(end);
        let moved = self.moved(end) - moved_before.unwrap_or(0);
        let overdue: usize = self.sites.iter().map(|site| site.overdue(end)).sum();
        self.counts.report.overdue = overdue as u64;
        let of_one = u128::from(self.spec.bandwidth.max()) * u128::from(self.spec.length.0);
        let possible = of_one * self.spec.hosts as u128 / u128::from(Nanos::SECOND.0);
        self.counts.finish(moved, possible, self.spec.length)
    }

    /// Time passes up to then.
    fn pass(&mut self, now: Nanos) {
        let counted = now.since(self.now.max(self.spec.warm_up));
        self.counts.time(counted, self.running, self.asked.len());
        self.now = now;
    }

    /// Bytes that have moved by then.
    fn moved(&mut self, then: Nanos) -> u64 {
        self.sites.iter_mut().for_each(|site| site.settle(then));
        self.sites.iter().map(|site| site.moved).sum()
    }

    fn is_counted(&self) -> bool {
        self.now >= self.spec.warm_up
    }

    /// A job comes.
    fn arrive(&mut self, arrival: Arrival, watch: &mut dyn Watch) {
        let (now, counted) = (self.now, self.is_counted());
        watch.begin(counted);
        let Answer { id, outcome } = self.placer.request(now, arrival.request);
        watch.end(Decision::Arrival);
        self.counts.report.arrived += u64::from(counted);
        match outcome {
            Outcome::Placed(placement) => {
                self.counts.report.placed += u64::from(counted);
                self.begin(&arrival, &placement, watch);
            }
            Outcome::Waiting => {
                self.asked.insert(id, arrival);
            }
            Outcome::Refused(_) => self.counts.report.refused += u64::from(counted),
        }
        self.take_events(watch);
    }

    /// Something happens on a host.
    fn happen(&mut self, watch: &mut dyn Watch) {
        let Some((_, at)) = self.next.peek() else {
            return;
        };
        let mut ended = Vec::new();
        let news = self.sites[at].happen(self.now, &mut ended);
        self.running -= ended.len();
        if self.is_counted() {
            ended.iter().for_each(|ended| self.counts.end(ended));
        }
        self.tell(at, &news, watch);
        self.take_events(watch);
    }

    /// What came of those that waited; which may change hosts, and so decide about others.
    fn take_events(&mut self, watch: &mut dyn Watch) {
        while let Some(event) = self.placer.poll_event() {
            let counted = self.is_counted();
            match event {
                Event::Placed(placement) => {
                    if let Some(arrival) = self.asked.remove(&placement.id) {
                        if counted {
                            self.counts.wait(placement.waited);
                        }
                        self.begin(&arrival, &placement, watch);
                    }
                }
                Event::Discarded(id) => {
                    self.asked.remove(&id);
                    self.counts.report.discarded += u64::from(counted);
                }
            }
        }
    }

    fn begin(&mut self, arrival: &Arrival, placement: &Placement, watch: &mut dyn Watch) {
        let HostId(at) = placement.host;
        let news = self.sites[at].begin(self.now, arrival, placement, self.looks_at_classes);
        self.running += 1;
        self.tell(at, &news, watch);
    }

    fn tell(&mut self, at: usize, news: &News, watch: &mut dyn Watch) {
        self.next.set(at, self.sites[at].next());
        let update = Update {
            ended: &news.ended,
            classes: &news.classes,
            moved: &news.moved,
            had: &news.had,
            sated: &news.sated,
        };
        let (now, counted) = (self.now, self.is_counted());
        watch.begin(counted);
        self.placer.update(now, HostId(at), &update);
        watch.end(Decision::Update);
    }
}
