//! Host snapshot: all that the admission controller looks at.

use tidegate_core::jobs::{Class, Job};
use tidegate_core::time::Nanos;

use crate::{Grace, PriorityDatabase};

/// User of a host's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its class just now.
    pub class: Class,
    /// Its job; `None`: it has all the time there is.
    pub job: Option<Job>,
}

/// State of a host at the time when a newcomer asks for it.
#[derive(Clone, Copy, Debug)]
pub struct HostSnapshot<'a> {
    pub(crate) now: Nanos,
    pub(crate) database: &'a PriorityDatabase,
    pub(crate) tenants: &'a [Tenant],
    limits: &'a [Option<u64>],
    pub(crate) grace: Grace,
}

impl<'a> HostSnapshot<'a> {
    /// Snapshot of a host with these tenants, each of which takes all the bandwidth it is given.
    pub fn new(
        now: Nanos,
        database: &'a PriorityDatabase,
        tenants: &'a [Tenant],
    ) -> HostSnapshot<'a> {
        HostSnapshot {
            now,
            database,
            tenants,
            limits: &[],
            grace: Grace::default(),
        }
    }

    /// Sets the most that each tenant takes, in bytes per second, in the order of the tenants; the
    /// others have what a limited tenant leaves.
    #[must_use]
    pub fn with_limits(self, limits: &'a [Option<u64>]) -> HostSnapshot<'a> {
        HostSnapshot { limits, ..self }
    }

    /// Replaces the [`Grace`].
    #[must_use]
    pub fn with_grace(self, grace: Grace) -> HostSnapshot<'a> {
        HostSnapshot { grace, ..self }
    }

    /// Returns the most that a tenant takes, in bytes per second; [`u64::MAX`] without a limit.
    pub(crate) fn limit(&self, who: usize) -> u64 {
        (self.limits.get(who).copied().flatten()).unwrap_or(u64::MAX)
    }
}
