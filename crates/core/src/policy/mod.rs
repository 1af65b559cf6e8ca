//! Policies: named compositions of the three roles, with their parameters.
//!
//! A policy is one file here and its place in `REGISTRY`; configuration, help, conformance tests,
//! torture, sweeps and benchmarks iterate the registry. The parts it is composed of say everything
//! about themselves where they are implemented, and are known by being in a policy. Roles can also
//! be combined by name ([`PolicySpec::composed`]).

mod cfq;
mod deadline;
mod drr;
mod edf;
mod edf_credit;
mod fifo;
mod flubber;
mod limit;
mod lottery;
mod mclock;
mod mclock_ps;
mod params;
mod pridyn;
mod sfq;
mod spec;
mod vcup;
mod vcup_drr;
mod vcup_mclock;
mod vfair;
mod vfair_bops;
mod vfair_bsps;

pub(crate) use params::SLACK;
pub use params::{ParamInfo, ParamKind, Params};
pub use spec::{PolicyError, PolicySpec};

use crate::roles::{Controller, Dispatcher, Regulator};
use core::fmt;
use std::sync::LazyLock;

/// The policies there are, in the order they are shown.
static REGISTRY: &[PolicyInfo] = &[
    fifo::INFO,
    limit::INFO,
    mclock::INFO,
    mclock_ps::INFO,
    sfq::INFO,
    drr::INFO,
    lottery::INFO,
    deadline::INFO,
    edf::INFO,
    edf_credit::INFO,
    flubber::INFO,
    cfq::INFO,
    pridyn::INFO,
    vfair::INFO,
    vfair_bops::INFO,
    vfair_bsps::INFO,
    vcup::INFO,
    vcup_mclock::INFO,
    vcup_drr::INFO,
];

/// The policies there are.
pub fn registry() -> &'static [PolicyInfo] {
    REGISTRY
}

/// Every controller that a policy has, in the order of the registry.
pub fn controllers() -> &'static [Part<dyn Controller>] {
    static ALL: LazyLock<Vec<Part<dyn Controller>>> =
        LazyLock::new(|| each(|info| info.controller));
    &ALL
}

/// Every regulator that a policy has, in the order of the registry.
pub fn regulators() -> &'static [Part<dyn Regulator>] {
    static ALL: LazyLock<Vec<Part<dyn Regulator>>> =
        LazyLock::new(|| each(|info| Some(info.regulator)));
    &ALL
}

/// Every dispatcher that a policy has, in the order of the registry.
pub fn dispatchers() -> &'static [Part<dyn Dispatcher>] {
    static ALL: LazyLock<Vec<Part<dyn Dispatcher>>> =
        LazyLock::new(|| each(|info| Some(info.dispatcher)));
    &ALL
}

/// Each once, though several policies have it.
fn each<R: ?Sized>(of: fn(&PolicyInfo) -> Option<Part<R>>) -> Vec<Part<R>> {
    let mut all: Vec<Part<R>> = Vec::new();
    for part in REGISTRY.iter().filter_map(of) {
        if all.iter().all(|known| known.name != part.name) {
            all.push(part);
        }
    }
    all
}

/// How much a role must have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// VM slots.
    pub vms: u32,
    /// Guest requests.
    pub requests: u32,
    /// The regulator keeps the limits, bursts and all: a dispatcher must not as well.
    pub limits_kept: bool,
    /// A controller allocates rates to VMs ([`Controller::allocates`]): their weights are in those.
    pub allocated: bool,
}

/// A named composition.
#[derive(Debug)]
pub struct PolicyInfo {
    /// What the configuration calls it.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// When to use it and what to expect, a paragraph.
    pub about: &'static str,
    /// Its controller; `None` for none.
    pub controller: Option<Part<dyn Controller>>,
    /// Its regulator.
    pub regulator: Part<dyn Regulator>,
    /// Its dispatcher.
    pub dispatcher: Part<dyn Dispatcher>,
    /// Values of its parameters that are not their parts' defaults.
    pub presets: &'static [(&'static str, u64)],
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
    /// ([`PolicySpec::honours`]).
    pub honours: Honours,
    /// Makes one.
    pub(crate) build: fn(&Params, &Capacity) -> Box<R>,
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
    const fn waiving_priority(self, waived: bool) -> Honours {
        Honours {
            priority: self.priority && !waived,
            ..self
        }
    }
}

/// The parts of a composition, ready to work.
pub struct Roles {
    /// Turns knobs; most compositions have none.
    pub controller: Option<Box<dyn Controller>>,
    /// Says how much of each VM may pass.
    pub regulator: Box<dyn Regulator>,
    /// Says which of that goes next.
    pub dispatcher: Box<dyn Dispatcher>,
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roles").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_name_means_one_thing() {
        let mut names: Vec<&str> = registry().iter().map(|info| info.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "two policies have one name");
        // Parts may share a parameter; a composition then has one of it, so they must agree.
        let lists = || {
            let controllers = controllers().iter().map(|part| part.params);
            let regulators = regulators().iter().map(|part| part.params);
            let dispatchers = dispatchers().iter().map(|part| part.params);
            controllers.chain(regulators).chain(dispatchers).flatten()
        };
        let mut known: BTreeMap<&str, &ParamInfo> = BTreeMap::new();
        for info in lists() {
            let first = known.entry(info.name).or_insert(info);
            assert_eq!(*first, info, "two parameters have one name");
        }
        for part in dispatchers() {
            let same = REGISTRY.iter().filter(|i| i.dispatcher.name == part.name);
            for info in same {
                assert!(core::ptr::eq(info.dispatcher, *part), "{}", part.name);
            }
        }
    }
}
