//! A host as the meta-scheduler knows it.

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

use super::{RequestId, Update};
use crate::{
    Acceptance, Assignment, Bandwidth, Combination, Grace, HostSnapshot, MOST, PriorityDatabase,
    Rejection, Request, Tenant, admit, rates,
};

/// A host that comes.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// What is known of it.
    pub database: PriorityDatabase,
    /// As many jobs run there at most, up to [`MOST`].
    pub jobs: usize,
}

impl HostSpec {
    /// A host of which no more is known than what its disk does in all.
    pub fn new(bandwidth: Bandwidth) -> HostSpec {
        let database = PriorityDatabase::new(bandwidth);
        let jobs = MOST;
        HostSpec { database, jobs }
    }
}

/// A job that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// Which.
    pub id: RequestId,
    /// Its class, and how far it is taken to be.
    pub tenant: Tenant,
    /// As of when.
    pub as_of: Nanos,
    /// What it takes at most, in bytes a second, whatever it is given; `None`: all of it, as far as
    /// is known.
    pub limit: Option<u64>,
    /// The same as it was said when it came.
    said: u64,
}

impl Running {
    /// A job that begins, or goes on.
    pub(super) fn new(id: RequestId, tenant: Tenant, as_of: Nanos, limit: u64) -> Running {
        Running {
            id,
            tenant,
            as_of,
            limit: (limit < u64::MAX).then_some(limit),
            said: limit,
        }
    }

    /// It took less than it was given, this much; `None`: it took all, which was to be so much.
    fn was_sated(&mut self, at: Option<u64>, given: u64) {
        let seen = match at {
            Some(at) => at,
            // Where it was given less than it takes that still stands.
            None => self
                .limit
                .filter(|limit| *limit > given)
                .unwrap_or(u64::MAX),
        };
        let limit = seen.min(self.said);
        self.limit = (limit < u64::MAX).then_some(limit);
    }

    /// It moves at this rate.
    fn go_on(&mut self, now: Nanos, bytes_per_s: u64) {
        let time = u128::from(now.since(self.as_of).0);
        if let Some(job) = &mut self.tenant.job {
            let moved = time * u128::from(bytes_per_s) / u128::from(Nanos::SECOND.0);
            let left = u128::from(job.left()).min(moved);
            job.moved += left as u64;
        }
        self.as_of = now.max(self.as_of);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    database: PriorityDatabase,
    most: usize,
    /// It may take jobs.
    open: bool,
    gone: bool,
    running: Vec<Running>,
    /// The same without their numbers.
    tenants: Vec<Tenant>,
    limits: Vec<Option<u64>>,
    grace: Grace,
    acceptance: Acceptance,
}

impl Host {
    pub(super) fn new(spec: HostSpec, grace: Grace) -> Host {
        Host {
            database: spec.database,
            most: spec.jobs.min(MOST),
            open: true,
            gone: false,
            running: Vec::new(),
            tenants: Vec::new(),
            limits: Vec::new(),
            grace,
            acceptance: Acceptance::none(),
        }
    }

    pub(super) fn running(&self) -> &[Running] {
        &self.running
    }

    pub(super) fn database(&self) -> &PriorityDatabase {
        &self.database
    }

    pub(super) fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn set_open(&mut self, open: bool) {
        self.open = open && !self.gone;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// It is gone: those that ran there, as far as they are taken to be.
    pub(super) fn leave(&mut self, now: Nanos) -> Vec<Running> {
        self.settle(now);
        (self.open, self.gone) = (false, true);
        core::mem::take(&mut self.running)
    }

    /// One more may run here.
    fn has_room(&self) -> bool {
        self.open && self.running.len() < self.most
    }

    /// What a job would have at most if it were alone; 0 where none will ever be taken.
    pub(super) fn alone(&self) -> u64 {
        if self.gone {
            return 0;
        }
        let of = |class| self.database.rates(&Combination::of([class])).of(class);
        Class::ALL.map(of).into_iter().max().unwrap_or(0)
    }

    pub(super) fn push(&mut self, running: Running) {
        self.running.push(running);
    }

    /// Snapshot of the host at some time, with the jobs as they were told of last.
    fn snapshot(&self, now: Nanos) -> HostSnapshot<'_> {
        HostSnapshot::new(now, &self.database, &self.tenants)
            .with_limits(&self.limits)
            .with_grace(self.grace)
    }

    /// What each of those that run has, in bytes a second, in their order.
    pub(super) fn rates(&self) -> Vec<u64> {
        let (mut tenants, mut limits) = (Vec::new(), Vec::new());
        look(&self.running, &mut tenants, &mut limits);
        let snapshot = HostSnapshot::new(Nanos::ZERO, &self.database, &tenants);
        rates(&snapshot.with_limits(&limits))
    }

    /// Those that run are taken to have moved as it was foreseen since they were told of.
    fn settle(&mut self, now: Nanos) {
        look(&self.running, &mut self.tenants, &mut self.limits);
        let rates = rates(&self.snapshot(now));
        for ((running, tenant), rate) in self.running.iter_mut().zip(&mut self.tenants).zip(rates) {
            running.go_on(now, rate);
            *tenant = running.tenant;
        }
    }

    /// What each one had teaches what classes have; who had all that it takes is known to take no
    /// more.
    fn learn(&mut self, update: &Update<'_>) {
        if update.had.is_empty() {
            return;
        }
        let mut sated = [0_usize; 3];
        for running in &self.running {
            let is_sated = update.sated.iter().any(|(id, _)| *id == running.id);
            sated[running.tenant.class as usize] += usize::from(is_sated);
        }
        // How many of a class took all they were given is enough, whoever that was.
        let had = update.had.iter().map(|&(class, rate)| {
            let left = &mut sated[class as usize];
            let took_all = *left == 0;
            *left = left.saturating_sub(1);
            (class, rate, took_all)
        });
        self.database.learn_of(had);
        let classes = Combination::of(self.running.iter().map(|running| running.tenant.class));
        let known = self.database.rates(&classes);
        for running in &mut self.running {
            let at = update.sated.iter().find(|(id, _)| *id == running.id);
            running.was_sated(at.map(|(_, rate)| *rate), known.of(running.tenant.class));
        }
    }

    /// Takes over what has happened. Whether the number or the classes of its jobs are others now.
    pub(super) fn update(&mut self, now: Nanos, update: &Update<'_>) -> bool {
        self.settle(now);
        self.learn(update);
        let mut changed = false;
        for &(id, class) in update.classes {
            if let Some(tenant) = self.find(id) {
                changed |= tenant.class != class;
                tenant.class = class;
            }
        }
        for &(id, moved) in update.moved {
            if let Some(job) = self.find(id).and_then(|tenant| tenant.job.as_mut()) {
                job.moved = moved;
            }
        }
        let before = self.running.len();
        self.running
            .retain(|running| !update.ended.contains(&running.id));
        changed | (self.running.len() != before)
    }

    pub(super) fn refresh(&mut self, now: Nanos) {
        self.settle(now);
        self.acceptance = if self.has_room() {
            Acceptance::of(&self.snapshot(now))
        } else {
            Acceptance::none()
        };
    }

    /// Whether a job is taken, with those that run as they were settled last.
    pub(super) fn admit(&self, now: Nanos, request: &Request) -> Result<Assignment, Rejection> {
        if self.has_room() {
            admit(&self.snapshot(now), request)
        } else {
            Err(Rejection::full())
        }
    }

    /// A job runs here from now on, if it is taken: its class, and who is lowered for it.
    pub(super) fn take(
        &mut self,
        now: Nanos,
        id: RequestId,
        request: &Request,
    ) -> Option<(Class, Vec<(RequestId, Class)>)> {
        self.settle(now);
        let Assignment { class, lowered } = self.admit(now, request).ok()?;
        let lower = |(at, class): (usize, Class)| {
            let running = self.running.get_mut(at)?;
            running.tenant.class = class;
            Some((running.id, class))
        };
        let lowered = lowered.into_iter().filter_map(lower).collect();
        let job = Some(request.begun(now));
        let tenant = Tenant { class, job };
        self.push(Running::new(id, tenant, now, request.limit()));
        Some((class, lowered))
    }

    /// What a job takes at most from now on.
    pub(super) fn limit(&mut self, id: RequestId, limit: u64) {
        let mut all = self.running.iter_mut();
        if let Some(running) = all.find(|running| running.id == id) {
            *running = Running::new(id, running.tenant, running.as_of, limit);
        }
    }

    fn find(&mut self, id: RequestId) -> Option<&mut Tenant> {
        let mut all = self.running.iter_mut();
        all.find(|running| running.id == id)
            .map(|running| &mut running.tenant)
    }
}

/// Those that run, without their numbers, and what they take at most.
fn look(running: &[Running], tenants: &mut Vec<Tenant>, limits: &mut Vec<Option<u64>>) {
    tenants.clear();
    tenants.extend(running.iter().map(|running| running.tenant));
    limits.clear();
    limits.extend(running.iter().map(|running| running.limit));
}
