//! A host as a newcomer finds it: all that the admission controller looks at.

use tidegate_core::jobs::Forecast;
use tidegate_core::time::Nanos;

use crate::theory::Theory;
use crate::{
    Acceptance, Assignment, Grace, PriorityDatabase, Rejection, Request, Tenant, admission,
};

/// A host as a newcomer finds it.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub(crate) now: Nanos,
    pub(crate) database: &'a PriorityDatabase,
    pub(crate) tenants: &'a [Tenant],
    limits: &'a [Option<u64>],
    pub(crate) grace: Grace,
}

impl<'a> Situation<'a> {
    /// These are on it, and take all that they are given.
    pub fn new(now: Nanos, database: &'a PriorityDatabase, tenants: &'a [Tenant]) -> Situation<'a> {
        Situation {
            now,
            database,
            tenants,
            limits: &[],
            grace: Grace::default(),
        }
    }

    /// Some take no more than so many bytes a second, whatever they are given; by their places
    /// among the tenants. What they leave the others have.
    #[must_use]
    pub fn with_limits(self, limits: &'a [Option<u64>]) -> Situation<'a> {
        Situation { limits, ..self }
    }

    /// With another [`Grace`].
    #[must_use]
    pub fn with_grace(self, grace: Grace) -> Situation<'a> {
        Situation { grace, ..self }
    }

    /// What one of the tenants takes at most, in bytes a second.
    pub(crate) fn limit(&self, who: usize) -> u64 {
        (self.limits.get(who).copied().flatten()).unwrap_or(u64::MAX)
    }

    /// What each of the tenants has as things are, in bytes a second.
    pub fn rates(&self) -> Vec<u64> {
        let theory = Theory::without(self);
        (0..self.tenants.len()).map(|who| theory.has(who)).collect()
    }

    /// What comes of the tenants' jobs as things are; `None`: it has no job.
    pub fn forecasts(&self) -> Vec<Option<Forecast>> {
        let rates = self.rates();
        let both = self.tenants.iter().zip(rates);
        both.map(|(tenant, rate)| Some(tenant.job?.forecast(self.now, rate)))
            .collect()
    }

    /// Whether a job is taken, and on which terms. Figure 5.8.
    ///
    /// # Errors
    /// When it is not: what stands in the way.
    pub fn admit(&self, request: &Request) -> Result<Assignment, Rejection> {
        admission::admit_in(self, request)
    }

    /// All jobs that would be taken.
    pub fn acceptance(&self) -> Acceptance {
        Acceptance::in_situation(self)
    }
}
