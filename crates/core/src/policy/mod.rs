//! Policies: named compositions of the three roles, with their parameters.
//!
//! A policy is one file here and one line in `REGISTRY`; configuration, help, documentation,
//! conformance tests and benchmarks iterate the registry. Roles can also be combined by name
//! ([`PolicySpec::composed`]).

mod cfq;
mod deadline;
mod drr;
mod edf;
mod edf_credit;
mod fifo;
mod flubber;
mod limit;
mod mclock;
mod parts;
mod sfq;

pub use parts::{controllers, dispatchers, regulators};

use crate::dispatch::background::Aside;
use crate::names::nearest;
use crate::roles::{Controller, Dispatcher, Regulator, Stage};
use core::fmt;

/// The policies there are, in the order they are shown.
static REGISTRY: &[PolicyInfo] = &[
    fifo::INFO,
    limit::INFO,
    mclock::INFO,
    sfq::INFO,
    drr::INFO,
    deadline::INFO,
    edf::INFO,
    edf_credit::INFO,
    flubber::INFO,
    cfq::INFO,
];

/// The policies there are.
pub fn registry() -> &'static [PolicyInfo] {
    REGISTRY
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
    /// Its controller, by name; `None` for none.
    pub controller: Option<&'static str>,
    /// Its regulator, by name.
    pub regulator: &'static str,
    /// Its dispatcher, by name.
    pub dispatcher: &'static str,
}

/// One implementation of a role.
pub struct PartInfo<R: ?Sized + 'static> {
    /// What the configuration calls it.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// Its parameters. Names are unique over all parts.
    pub params: &'static [ParamInfo],
    /// What it enforces of an objective.
    pub honours: Honours,
    /// Makes one.
    pub(crate) build: fn(&Params, &Capacity) -> Box<R>,
}

impl<R: ?Sized> fmt::Debug for PartInfo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a parameter's number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Bytes.
    Bytes,
    /// A span in nanoseconds.
    Duration,
    /// A plain number.
    Count,
    /// 0 or 1.
    Flag,
    /// One of these words, by its place among them.
    Choice(&'static [&'static str]),
}

/// One parameter of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamInfo {
    /// What the configuration calls it.
    pub name: &'static str,
    /// What its number means.
    pub kind: ParamKind,
    /// Its value where none is given.
    pub default: u64,
    /// The smallest value allowed.
    pub min: u64,
    /// The largest value allowed.
    pub max: u64,
    /// One line: what it does.
    pub help: &'static str,
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
            latency: self.latency || other.latency,
            priority: self.priority || other.priority,
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

type Part<R> = &'static PartInfo<R>;

/// A composition with its parameters' values.
#[derive(Clone)]
pub struct PolicySpec {
    name: String,
    controller: Option<Part<dyn Controller>>,
    regulator: Part<dyn Regulator>,
    dispatcher: Part<dyn Dispatcher>,
    params: Params,
}

/// Values of a composition's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params(Vec<(&'static ParamInfo, u64)>);

impl Params {
    /// The value of a parameter that the part declares.
    pub(crate) fn get(&self, name: &str) -> u64 {
        let param = self.0.iter().find(|(info, _)| info.name == name);
        param
            .expect("a part asks only for parameters it declares")
            .1
    }
}

impl PolicySpec {
    /// A policy of the registry with its defaults.
    ///
    /// # Errors
    /// When there is none of that name; lists those there are.
    pub fn named(name: &str) -> Result<PolicySpec, PolicyError> {
        let info = find("policy", name, REGISTRY.iter(), |info| info.name)?;
        let mut spec = Self::composed(info.controller, info.regulator, info.dispatcher)?;
        spec.name = info.name.to_owned();
        Ok(spec)
    }

    /// Parts combined by name, with their defaults.
    ///
    /// # Errors
    /// When there is no part of that name; lists those there are.
    pub fn composed(
        controller: Option<&str>,
        regulator: &str,
        dispatcher: &str,
    ) -> Result<PolicySpec, PolicyError> {
        let name = match controller {
            Some(controller) => format!("{controller}+{regulator}+{dispatcher}"),
            None => format!("{regulator}+{dispatcher}"),
        };
        let controller = match controller {
            Some(name) => Some(find("controller", name, controllers().iter(), |p| p.name)?),
            None => None,
        };
        let regulator = find("regulator", regulator, regulators().iter(), |p| p.name)?;
        let dispatcher = find("dispatcher", dispatcher, dispatchers().iter(), |p| p.name)?;
        let mut params: Vec<(&'static ParamInfo, u64)> = Vec::new();
        let of_controller = controller.map_or(&[][..], |c| c.params);
        for info in of_controller
            .iter()
            .chain(regulator.params)
            .chain(dispatcher.params)
        {
            // Parts may share a parameter (`slack`); it then has one value for all of them.
            if params.iter().all(|(known, _)| known.name != info.name) {
                params.push((info, info.default));
            }
        }
        let mut spec = PolicySpec {
            name,
            controller,
            regulator,
            dispatcher,
            params: Params(params),
        };
        if !spec.build(1, 1).dispatcher.serves_background() {
            let common = parts::BACKGROUND.iter();
            (spec.params.0).extend(common.map(|info| (info, info.default)));
        }
        Ok(spec)
    }

    /// `mclock`, or `token-bucket+mclock` for a free composition.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of its controller, regulator and dispatcher.
    pub fn parts(&self) -> (Option<&'static str>, &'static str, &'static str) {
        (
            self.controller.map(|c| c.name),
            self.regulator.name,
            self.dispatcher.name,
        )
    }

    /// Sets a parameter; `value` in bytes, nanoseconds, or plain.
    ///
    /// # Errors
    /// When the composition has no such parameter, or the value is out of range.
    pub fn set(&mut self, param: &str, value: u64) -> Result<(), PolicyError> {
        let found = self
            .params
            .0
            .iter_mut()
            .find(|(info, _)| info.name == param);
        let Some((info, slot)) = found else {
            return Err(PolicyError::UnknownParam {
                policy: self.name.clone(),
                param: param.to_owned(),
                known: list(self.params.0.iter().map(|(info, _)| info.name)),
            });
        };
        if !(info.min..=info.max).contains(&value) {
            return Err(PolicyError::OutOfRange { param: info, value });
        }
        *slot = value;
        Ok(())
    }

    /// Its parameters with their values.
    pub fn params(&self) -> impl Iterator<Item = (&'static ParamInfo, u64)> + '_ {
        self.params.0.iter().copied()
    }

    /// Which parts of an objective it enforces.
    pub fn honours(&self) -> Honours {
        let controller = self.controller.map_or(Honours::NONE, |c| c.honours);
        controller
            .or(self.regulator.honours)
            .or(self.dispatcher.honours)
    }

    /// Which parts of an objective it enforces for such a tenant. For one of the background:
    /// what its dispatcher does, if that knows such tenants, and what a regulator at dispatch
    /// does.
    pub fn honours_for(&self, background: bool) -> Honours {
        if !background {
            return self.honours();
        }
        let parts = self.build(1, 1);
        let of_dispatcher = match parts.dispatcher.serves_background() {
            true => self.dispatcher.honours,
            false => Honours::NONE,
        };
        match parts.regulator.stage() {
            Stage::Dispatch => of_dispatcher.or(self.regulator.honours),
            Stage::Open | Stage::Admission => of_dispatcher,
        }
    }

    fn capacity(&self, vms: u32, requests: u32) -> Capacity {
        Capacity {
            vms,
            requests,
            limits_kept: self.regulator.honours.limit,
        }
    }

    /// The same with background tenants, also where the dispatcher knows none.
    pub(crate) fn build_with_background(&self, vms: u32, requests: u32) -> Roles {
        let mut roles = self.build(vms, requests);
        if !roles.dispatcher.serves_background() {
            let params = parts::background(&self.params);
            let capacity = self.capacity(vms, requests);
            let aside = Aside::new(roles.dispatcher, params, &capacity);
            roles.dispatcher = Box::new(aside);
        }
        roles
    }

    pub(crate) fn build(&self, vms: u32, requests: u32) -> Roles {
        let capacity = &self.capacity(vms, requests);
        Roles {
            controller: self.controller.map(|c| (c.build)(&self.params, capacity)),
            regulator: (self.regulator.build)(&self.params, capacity),
            dispatcher: (self.dispatcher.build)(&self.params, capacity),
        }
    }
}

impl PartialEq for PolicySpec {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts() && self.params == other.params
    }
}

impl fmt::Debug for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let values = self.params.0.iter().map(|(info, value)| (info.name, value));
        f.debug_map().entries(values).finish()
    }
}

/// Why a policy cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// Nothing of that name.
    #[error("no {kind} named {name:?}{}; there are: {known}", .nearest.as_ref().map(|n| format!(" (did you mean {n:?}?)")).unwrap_or_default())]
    Unknown {
        /// `policy`, `controller`, `regulator` or `dispatcher`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
        /// The nearest of those, when one is near.
        nearest: Option<&'static str>,
    },
    /// No such parameter.
    #[error("policy {policy} has no parameter {param:?}; it has: {known}")]
    UnknownParam {
        /// The policy.
        policy: String,
        /// What was asked for.
        param: String,
        /// What there is.
        known: String,
    },
    /// A value out of its range.
    #[error("{}: {value} is out of range; allowed is {}", .param.name, .param.allowed())]
    OutOfRange {
        /// The parameter.
        param: &'static ParamInfo,
        /// What was asked for.
        value: u64,
    },
}

impl ParamInfo {
    /// A choice among words, of which the first is the default.
    const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> ParamInfo {
        ParamInfo {
            name,
            kind: ParamKind::Choice(words),
            default: 0,
            min: 0,
            max: words.len() as u64 - 1,
            help,
        }
    }

    fn allowed(&self) -> String {
        let unit = match self.kind {
            ParamKind::Bytes => " bytes",
            ParamKind::Duration => " ns",
            ParamKind::Count | ParamKind::Flag => "",
            ParamKind::Choice(words) => return list(words.iter().copied()),
        };
        format!("{} to {}{unit}", self.min, self.max)
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}

fn find<T>(
    kind: &'static str,
    name: &str,
    all: impl Iterator<Item = &'static T> + Clone,
    name_of: impl Fn(&T) -> &'static str,
) -> Result<&'static T, PolicyError> {
    all.clone()
        .find(|part| name_of(part) == name)
        .ok_or_else(|| {
            let names = || all.clone().map(&name_of);
            PolicyError::Unknown {
                kind,
                name: name.to_owned(),
                known: list(names()),
                nearest: nearest(name, names()),
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_of_the_registry_builds_with_its_defaults() {
        for info in registry() {
            let spec = PolicySpec::named(info.name).expect(info.name);
            spec.build(4, 16);
            for (param, value) in spec.params() {
                assert!(
                    (param.min..=param.max).contains(&value),
                    "{}: {}",
                    info.name,
                    param.name
                );
            }
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones_and_the_nearest() {
        let error = PolicySpec::named("mcloc").unwrap_err().to_string();
        assert!(error.contains("did you mean \"mclock\""), "{error}");
        assert!(error.contains("fifo"), "{error}");
        let error = PolicySpec::composed(None, "open", "zebra")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("dispatcher") && !error.contains("did you mean"),
            "{error}"
        );
    }

    #[test]
    fn parameters_are_checked_against_their_range() {
        let mut spec = PolicySpec::named("mclock").expect("mclock is registered");
        assert!(spec.set("cost_size", 65536).is_ok());
        assert!(matches!(
            spec.set("cost_size", 0),
            Err(PolicyError::OutOfRange { .. })
        ));
        assert!(matches!(
            spec.set("costsize", 1),
            Err(PolicyError::UnknownParam { .. })
        ));
    }
}
