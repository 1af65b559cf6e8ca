//! Parts of policies: how an implementation of a role describes itself, and how it is built.

mod params;

pub use params::SLACK;
pub use params::{ParamInfo, ParamKind, Params};

use core::fmt;

/// How much a role must have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// VM slots.
    pub vms: u32,
    /// Guest requests.
    pub requests: u32,
    /// The regulator keeps the limits, bursts and all: a dispatcher must not as well.
    pub limits_kept: bool,
    /// A controller allocates rates to VMs
    /// ([`Controller::allocates`](crate::roles::Controller::allocates)): their weights are in
    /// those.
    pub allocated: bool,
}

/// One implementation of a role, as all who know of it share it.
pub type Part<R> = &'static PartInfo<R>;

/// One implementation of a role.
pub struct PartInfo<R: ?Sized + 'static> {
    /// What the configuration calls it.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// Its parameters. Names are unique over all parts.
    pub params: &'static [ParamInfo],
    /// What it enforces of an objective, as far as its parameters do not say otherwise
    /// ([`Policy::honours`](crate::policy::Policy::honours)).
    pub honours: Honours,
    /// Makes one.
    pub build: fn(&Params, &Capacity) -> Box<R>,
}

impl<R: ?Sized> fmt::Debug for PartInfo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Which parts of an objective a policy enforces; the rest is said to be not enforced.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Honours {
    /// The floor.
    pub reservation: bool,
    /// The cap on reads and writes together.
    pub limit: bool,
    /// Caps on reads and writes apart.
    pub limit_by_direction: bool,
    /// Bursts above a cap.
    pub burst: bool,
    /// Holding a rate precisely.
    pub target: bool,
    /// Shares.
    pub weight: bool,
    /// One share for several VMs.
    pub group: bool,
    /// The bound on each request's time.
    pub latency: bool,
    /// Classes of priority.
    pub priority: bool,
}

impl Honours {
    /// Nothing.
    pub const NONE: Honours = Honours {
        reservation: false,
        limit: false,
        limit_by_direction: false,
        burst: false,
        target: false,
        weight: false,
        group: false,
        latency: false,
        priority: false,
    };

    /// What either enforces.
    pub const fn or(self, other: Honours) -> Honours {
        Honours {
            reservation: self.reservation || other.reservation,
            limit: self.limit || other.limit,
            limit_by_direction: self.limit_by_direction || other.limit_by_direction,
            burst: self.burst || other.burst,
            target: self.target || other.target,
            weight: self.weight || other.weight,
            group: self.group || other.group,
            latency: self.latency || other.latency,
            priority: self.priority || other.priority,
        }
    }

    /// Without classes of priority, where `waived`.
    pub const fn waiving_priority(self, waived: bool) -> Honours {
        Honours {
            priority: self.priority && !waived,
            ..self
        }
    }
}
