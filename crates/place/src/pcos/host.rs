//! A host as the meta-scheduler knows it.

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

use super::{RequestId, Update};
use crate::{
    Acceptance, Assignment, Bandwidth, Combination, MOST, PriorityDatabase, Rejection, Request,
    Tenant, admit,
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
}

impl Running {
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
    running: Vec<Running>,
    /// The same without their numbers.
    tenants: Vec<Tenant>,
    acceptance: Acceptance,
}

impl Host {
    pub(super) fn new(spec: HostSpec) -> Host {
        Host {
            database: spec.database,
            most: spec.jobs.min(MOST),
            running: Vec::new(),
            tenants: Vec::new(),
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

    /// What a job would have at most if it were alone.
    pub(super) fn alone(&self) -> u64 {
        let of = |class| self.database.rates(&Combination::of([class])).of(class);
        Class::ALL.map(of).into_iter().max().unwrap_or(0)
    }

    pub(super) fn push(&mut self, running: Running) {
        self.running.push(running);
    }

    /// Those that run are taken to have moved as it was foreseen since they were told of.
    fn settle(&mut self, now: Nanos) {
        let classes = self.running.iter().map(|running| running.tenant.class);
        let rates = self.database.rates(&Combination::of(classes));
        for running in &mut self.running {
            running.go_on(now, rates.of(running.tenant.class));
        }
        self.tenants.clear();
        self.tenants
            .extend(self.running.iter().map(|running| running.tenant));
    }

    /// Takes over what has happened. Whether the number or the classes of its jobs are others now.
    pub(super) fn update(&mut self, now: Nanos, update: &Update<'_>) -> bool {
        self.settle(now);
        let mut changed = false;
        if !update.had.is_empty() {
            self.database.learn(update.had.iter().copied());
        }
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
        self.acceptance = match self.running.len() < self.most {
            true => Acceptance::of(now, &self.database, &self.tenants),
            false => Acceptance::none(),
        };
    }

    /// Whether a job is taken, with those that run as they were settled last.
    pub(super) fn admit(&self, now: Nanos, request: &Request) -> Result<Assignment, Rejection> {
        match self.running.len() < self.most {
            true => admit(now, &self.database, &self.tenants, request),
            false => Err(Rejection::full()),
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
        self.push(Running {
            id,
            tenant: Tenant { class, job },
            as_of: now,
        });
        Some((class, lowered))
    }

    fn find(&mut self, id: RequestId) -> Option<&mut Tenant> {
        let mut all = self.running.iter_mut();
        all.find(|running| running.id == id)
            .map(|running| &mut running.tenant)
    }
}
