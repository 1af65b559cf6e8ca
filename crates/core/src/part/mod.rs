//! Description and construction of the parts of policies: implementations of a controller, a
//! regulator or a dispatcher.

mod params;

pub use params::SLACK;
pub use params::{ParamInfo, ParamKind, Params};

use core::fmt;

/// Sizes for which a role is built, and duties that other parts take from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Number of VM slots.
    pub vms: u32,
    /// Number of guest requests inside the engine at most.
    pub requests: u32,
    /// True if the regulator enforces limits and bursts, so that the dispatcher must not enforce
    /// them again.
    pub limits_kept: bool,
    /// True if a controller allocates rates to VMs
    /// ([`Controller::allocates`](crate::roles::Controller::allocates)), in which weights are
    /// included.
    pub allocated: bool,
    /// True if other hosts share the device, so that a controller may bound the dispatcher's device
    /// time ([`Dispatcher::bound_device_time`](crate::roles::Dispatcher::bound_device_time)).
    pub shared: bool,
}

/// Shared description of one implementation of a role.
pub type Part<R> = &'static PartDescriptor<R>;

/// Description of one implementation of a role.
pub struct PartDescriptor<R: ?Sized + 'static> {
    /// Name in the configuration.
    pub name: &'static str,
    /// Summary of one line, for lists.
    pub summary: &'static str,
    /// Parameters of the part. Names are unique over all parts.
    pub params: &'static [ParamInfo],
    /// Parts of an objective that it enforces with default parameters;
    /// [`Policy::enforces`](crate::policy::Policy::enforces) tells the effect of others.
    pub enforces: Enforces,
    /// Builds an instance of the part.
    pub build: fn(&Params, &Capacity) -> Box<R>,
}

impl<R: ?Sized> fmt::Debug for PartDescriptor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Parts of an objective that a policy enforces; the others are reported as not enforced.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Enforces {
    /// Minimum rate.
    pub reservation: bool,
    /// Maximum rate of all requests together.
    pub limit: bool,
    /// Maximum rates of reads and of writes, each its own.
    pub limit_by_direction: bool,
    /// Bursts above the limit.
    pub burst: bool,
    /// Rate held precisely, neither less nor more.
    pub target: bool,
    /// Share of the throughput by weight.
    pub weight: bool,
    /// One weight shared by several VMs.
    pub group: bool,
    /// Bound on the time of each request.
    pub latency: bool,
    /// I/O priority classes.
    pub priority: bool,
}

impl Enforces {
    /// Enforces no part of an objective.
    pub const NONE: Enforces = Enforces {
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

    /// Returns the parts that either set enforces.
    pub const fn or(self, other: Enforces) -> Enforces {
        Enforces {
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

    /// Returns the set without priority classes if `waived`.
    pub const fn waiving_priority(self, waived: bool) -> Enforces {
        Enforces {
            priority: self.priority && !waived,
            ..self
        }
    }
}
