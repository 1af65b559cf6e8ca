//! A host: its disk as a fluid, and its PriDyn.

use tidegate_core::jobs::{Change, Class, Job, PriorityManager};
use tidegate_core::time::Nanos;

use super::draw::Arrival;
use crate::fair_share::{FairShare, fair_share};
use crate::{Bandwidth, Placement, RequestId};

const SECOND: u128 = Nanos::SECOND.0 as u128;

/// A job on the disk.
#[derive(Clone, Copy, Debug)]
struct Fluid {
    id: RequestId,
    /// Its number for PriDyn.
    who: usize,
    job: Job,
    class: Class,
    /// What it takes at most, in bytes a second.
    limit: u64,
    /// What it has.
    has: u64,
    /// Of a byte, what has moved beyond `job.moved`, in bytes times nanoseconds a second.
    rest: u128,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) job: Job,
    pub(super) at: Nanos,
}

/// What the meta-scheduler is told of a host.
#[derive(Default, Debug)]
pub(super) struct News {
    pub(super) ended: Vec<RequestId>,
    pub(super) classes: Vec<(RequestId, Class)>,
    pub(super) moved: Vec<(RequestId, u64)>,
    pub(super) had: Vec<(Class, u64)>,
    pub(super) sated: Vec<(RequestId, u64)>,
}

/// A host.
#[derive(Debug)]
pub(super) struct Site {
    bandwidth: Bandwidth,
    fluids: Vec<Fluid>,
    manager: PriorityManager,
    interval: Nanos,
    next_interval: Nanos,
    /// All that moved up to then is counted.
    settled: Nanos,
    /// Since when nobody came, went or has another class, and what that taught is not told.
    steady_since: Nanos,
    /// Bytes that have moved here.
    pub(super) moved: u64,
}

impl Site {
    pub(super) fn new(bandwidth: &Bandwidth, interval: Nanos, first: Nanos) -> Site {
        Site {
            bandwidth: bandwidth.clone(),
            fluids: Vec::new(),
            manager: PriorityManager::new(Nanos::ZERO, bandwidth.max()),
            interval,
            next_interval: first,
            settled: Nanos::ZERO,
            steady_since: Nanos::ZERO,
            moved: 0,
        }
    }

    /// Jobs that run here and are past their deadlines.
    pub(super) fn overdue(&self, now: Nanos) -> usize {
        let late = self.fluids.iter().filter(|fluid| fluid.job.due() < now);
        late.count()
    }

    /// When something happens here next.
    pub(super) fn next(&self) -> Nanos {
        let ends = self.fluids.iter().map(|fluid| fluid.ends(self.settled));
        ends.min().unwrap_or(Nanos::MAX).min(self.next_interval)
    }

    /// What is due happens: jobs end, an interval ends.
    pub(super) fn happen(&mut self, now: Nanos, ended: &mut Vec<Ended>) -> News {
        self.settle(now);
        let mut news = News::default();
        let mut changes = Vec::new();
        let done: Vec<Fluid> = (self.fluids.iter().copied())
            .filter(|fluid| fluid.job.left() == 0)
            .collect();
        if !done.is_empty() {
            self.teach(now, &mut news);
        }
        for fluid in done {
            self.manager.remove(fluid.who, &mut changes);
            self.fluids.retain(|other| other.id != fluid.id);
            news.ended.push(fluid.id);
            let (job, at) = (fluid.job, now);
            ended.push(Ended { job, at });
        }
        if !news.ended.is_empty() {
            self.manager
                .set_capacity(self.bandwidth.with(self.fluids.len()));
            self.manager.cycle(now, &mut changes);
        }
        if now >= self.next_interval {
            self.next_interval = now + self.interval;
            self.teach(now, &mut news);
            self.manager.measure(now, &mut changes);
        }
        self.change(now, &changes, &mut news);
        self.with_moved(news)
    }

    /// A job begins. Who admitted it has looked at all classes where `looked_at`; else PriDyn does.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        arrival: &Arrival,
        placement: &Placement,
        looked_at: bool,
    ) -> News {
        self.settle(now);
        let (mut news, mut changes) = (News::default(), Vec::new());
        self.teach(now, &mut news);
        let is_free = |who: &usize| self.fluids.iter().all(|fluid| fluid.who != *who);
        let who = (0..).find(is_free).unwrap_or_default();
        let job = arrival.request.begun(now);
        self.manager
            .set_capacity(self.bandwidth.with(self.fluids.len() + 1));
        self.manager.add(now, who);
        self.manager.begin(who, job, &mut changes);
        let number = |&(id, class): &(RequestId, Class)| {
            let fluid = self.fluids.iter().find(|fluid| fluid.id == id)?;
            Some((fluid.who, class))
        };
        let lowered: Vec<_> = placement.lowered.iter().filter_map(number).collect();
        self.manager
            .admitted(who, placement.class, &lowered, &mut changes);
        self.fluids.push(Fluid {
            id: placement.id,
            who,
            job,
            class: Class::default(),
            limit: arrival.limit,
            has: 0,
            rest: 0,
        });
        if !looked_at {
            self.manager.cycle(now, &mut changes);
        }
        self.change(now, &changes, &mut news);
        self.with_moved(news)
    }

    /// News that tells how far all jobs are.
    fn with_moved(&self, news: News) -> News {
        let moved = self.fluids.iter();
        let moved = moved.map(|fluid| (fluid.id, fluid.job.moved)).collect();
        News { moved, ..news }
    }

    /// Counts what has moved.
    pub(super) fn settle(&mut self, now: Nanos) {
        let time = u128::from(now.since(self.settled).0);
        for fluid in &mut self.fluids {
            let before = fluid.job.moved;
            let amount = fluid.rest + u128::from(fluid.has) * time;
            let whole = u64::try_from(amount / SECOND).unwrap_or(u64::MAX);
            fluid.rest = amount % SECOND;
            fluid.job.moved = before.saturating_add(whole).min(fluid.job.bytes);
            let moved = fluid.job.moved - before;
            self.moved += moved;
            self.manager.moved(fluid.who, moved);
        }
        self.settled = now;
    }

    /// What everybody had since the last change, if that was long enough to be told: a third of an
    /// interval, as PriDyn has it.
    fn teach(&mut self, now: Nanos, news: &mut News) {
        let steady = now.since(self.steady_since).0;
        if steady.saturating_mul(3) >= self.interval.0 && !self.fluids.is_empty() {
            let had = self.fluids.iter().map(|fluid| (fluid.class, fluid.has));
            news.had = had.collect();
            let is_sated = |fluid: &&Fluid| fluid.has == fluid.limit;
            let sated = self.fluids.iter().filter(is_sated);
            news.sated = sated.map(|fluid| (fluid.id, fluid.has)).collect();
            for fluid in self.fluids.iter().filter(is_sated) {
                self.manager.set_limit(fluid.who, Some(fluid.has));
            }
            self.steady_since = now;
        }
    }

    /// Carries out what PriDyn wants, and shares the disk anew.
    fn change(&mut self, now: Nanos, changes: &[Change], news: &mut News) {
        let before: Vec<Class> = self.fluids.iter().map(|fluid| fluid.class).collect();
        for change in changes {
            let mut all = self.fluids.iter_mut();
            if let Some(fluid) = all.find(|fluid| fluid.who == change.who) {
                fluid.class = change.class;
            }
        }
        for (fluid, before) in self.fluids.iter().zip(before) {
            if fluid.class != before {
                news.classes.push((fluid.id, fluid.class));
            }
        }
        self.share();
        // A job that begins has no rate yet.
        if !news.classes.is_empty() || !news.ended.is_empty() || self.has_begun(now) {
            self.steady_since = now;
        }
    }

    fn has_begun(&self, now: Nanos) -> bool {
        self.fluids.iter().any(|fluid| fluid.job.begun == now)
    }

    /// The strongest class that is there has the disk, each an even part of it; what those leave
    /// who take less has the next.
    fn share(&mut self) {
        let mut left = u128::from(self.bandwidth.with(self.fluids.len()));
        for class in Class::ALL.into_iter().rev() {
            let of_class = || self.fluids.iter().filter(|fluid| fluid.class == class);
            let mut limits: Vec<u64> = of_class()
                .map(|fluid| fluid.limit)
                .filter(|limit| *limit < u64::MAX)
                .collect();
            limits.sort_unstable();
            let greedy = of_class().count() - limits.len();
            if greedy + limits.len() == 0 {
                continue;
            }
            let FairShare { each, rest } = fair_share(left, greedy, limits.into_iter());
            left = rest;
            for fluid in self.fluids.iter_mut().filter(|fluid| fluid.class == class) {
                fluid.has = each.min(fluid.limit);
            }
        }
    }
}

impl Fluid {
    /// When it ends as it goes.
    fn ends(&self, settled: Nanos) -> Nanos {
        let left = (u128::from(self.job.left()) * SECOND).saturating_sub(self.rest);
        match self.has {
            _ if self.job.left() == 0 => settled,
            0 => Nanos::MAX,
            has => {
                let time = u64::try_from(left.div_ceil(has.into())).unwrap_or(u64::MAX);
                settled + Nanos(time)
            }
        }
    }
}
