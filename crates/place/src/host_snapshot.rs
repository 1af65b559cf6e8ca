//! Host snapshot: the complete input of the admission controller.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Transfer};

use crate::{Grace, LateRule, PriorityDatabase};

/// Class and deadline transfer of a VM, or of a process of the host, that uses the host's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmState {
    /// Current I/O priority class.
    pub class: Class,
    /// Deadline transfer; `None`: I/O without a deadline.
    pub transfer: Option<Transfer>,
}

/// State of a host at the time of an admission decision.
#[derive(Clone, Copy, Debug)]
pub struct HostSnapshot<'a> {
    pub(crate) now: Nanos,
    pub(crate) database: &'a PriorityDatabase,
    pub(crate) vms: &'a [VmState],
    limits: &'a [Option<u64>],
    pub(crate) grace: Grace,
    pub(crate) late_rule: LateRule,
}

impl<'a> HostSnapshot<'a> {
    /// Snapshot of a host whose VMs use all the bandwidth that they get.
    pub fn new(now: Nanos, database: &'a PriorityDatabase, vms: &'a [VmState]) -> HostSnapshot<'a> {
        HostSnapshot {
            now,
            database,
            vms,
            limits: &[],
            grace: Grace::default(),
            late_rule: LateRule::default(),
        }
    }

    /// Sets an upper bound on each VM's bandwidth, in bytes per second, in the order of the VMs;
    /// `None` or a missing entry: no bound. Bandwidth that a limited VM cannot use goes to the
    /// others.
    #[must_use]
    pub fn with_limits(self, limits: &'a [Option<u64>]) -> HostSnapshot<'a> {
        HostSnapshot { limits, ..self }
    }

    /// Replaces the [`Grace`].
    #[must_use]
    pub fn with_grace(self, grace: Grace) -> HostSnapshot<'a> {
        HostSnapshot { grace, ..self }
    }

    /// Replaces the [`LateRule`].
    #[must_use]
    pub fn with_late_rule(self, late_rule: LateRule) -> HostSnapshot<'a> {
        HostSnapshot { late_rule, ..self }
    }

    /// Upper bound on a VM's bandwidth in bytes per second; [`u64::MAX`]: none.
    pub(crate) fn limit(&self, who: usize) -> u64 {
        // Without limits the slice is empty.
        (self.limits.get(who).copied().flatten()).unwrap_or(u64::MAX)
    }
}
