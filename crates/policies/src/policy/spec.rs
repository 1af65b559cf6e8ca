//! A composition with the values of its parameters, by name.

use super::{controllers, dispatchers, registry, regulators};
use crate::control::among_hosts::AmongHosts;
use crate::control::{share_model, transfer_priorities, transfers, tuner};
use crate::dispatch::background::{self, BackgroundParams, BackgroundQueue};
use crate::dispatch::cost::CostParams;
use crate::dispatch::{cfq, mclock, slo};
use crate::pattern::WINDOW;
use crate::regulate::merge_limit;
use core::{fmt, iter};
use std::sync::{Arc, LazyLock};
use tidegate_base::device::DeviceSpec;
use tidegate_base::names::nearest;
use tidegate_base::objective::Objective;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, Params, Part};
use tidegate_core::policy::Policy;
use tidegate_core::roles::{Controller, Dispatcher, Regulator, Roles, Stage};
use tidegate_core::starvation::Bound;

/// Policy: a composition of parts with the values of its parameters.
#[derive(Clone)]
pub struct PolicySpec {
    name: String,
    controller: Option<Part<dyn Controller>>,
    regulator: Part<dyn Regulator>,
    dispatcher: Part<dyn Dispatcher>,
    params: Params,
    /// Other hosts share the device.
    shared: bool,
}

impl PolicySpec {
    /// Returns a policy of the registry with its defaults.
    ///
    /// # Errors
    /// Returns [`PolicyError::Unknown`] with the known names if there is no such policy.
    pub fn named(name: &str) -> Result<PolicySpec, PolicyError> {
        let info = find("policy", name, registry(), |info| info.name)?;
        let name = info.name.to_owned();
        let mut spec = Self::from_parts(name, info.controller, info.regulator, info.dispatcher);
        // After the defaults of the parts, which presets replace.
        for &(param, value) in info.presets {
            spec.set(param, value)?;
        }
        Ok(spec)
    }

    /// Returns every policy of the registry, then every composition of parts, with their defaults.
    pub fn every_composition() -> &'static [PolicySpec] {
        static ALL: LazyLock<Vec<PolicySpec>> = LazyLock::new(|| {
            let named = registry().iter().map(|info| PolicySpec::named(info.name));
            let controllers = || iter::once(None).chain(controllers().iter().map(|c| Some(c.name)));
            let parts = regulators().iter().flat_map(|r| {
                let dispatchers = dispatchers().iter();
                dispatchers.flat_map(move |d| controllers().map(|c| (c, r.name, d.name)))
            });
            let composed = parts.map(|(c, r, d)| PolicySpec::composed(c, r, d));
            let all = named.chain(composed);
            all.map(|spec| spec.expect("its names are from the lists"))
                .collect()
        });
        &ALL
    }

    /// Returns a composition of parts, given by name, with their defaults.
    ///
    /// # Errors
    /// Returns [`PolicyError::Unknown`] with the known names if there is no such part.
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
            Some(name) => Some(*find("controller", name, controllers(), |p| p.name)?),
            None => None,
        };
        let regulator = *find("regulator", regulator, regulators(), |p| p.name)?;
        let dispatcher = *find("dispatcher", dispatcher, dispatchers(), |p| p.name)?;
        Ok(Self::from_parts(name, controller, regulator, dispatcher))
    }

    fn from_parts(
        name: String,
        controller: Option<Part<dyn Controller>>,
        regulator: Part<dyn Regulator>,
        dispatcher: Part<dyn Dispatcher>,
    ) -> PolicySpec {
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
            shared: false,
        };
        // Only a built dispatcher can say so; one VM and one request keep it small.
        if !spec.build(1, 1).dispatcher.serves_background() {
            let common = background::PARAMS.iter();
            (spec.params.0).extend(common.map(|info| (info, info.default)));
        }
        spec
    }

    /// Sets a parameter; `value` in bytes, nanoseconds, or a plain number.
    ///
    /// # Errors
    /// Returns an error if the composition has no such parameter, or the value is out of range.
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
        // Constructors rely on the range: casts to `u32` and divisors are checked nowhere else.
        if !(info.min..=info.max).contains(&value) {
            return Err(PolicyError::OutOfRange { param: info, value });
        }
        *slot = value;
        Ok(())
    }

    /// Returns the value of `tuner` for which a parameter has a meaning, if another one is set.
    pub fn tuner_needed_by(&self, param: &str) -> Option<&'static str> {
        tuner::would_need(&self.params, param)
    }

    /// Returns the parts of an objective that the controller enforces with this regulator. A target
    /// needs a throttle; a regulator without one leaves only the merge limit.
    fn controller_enforces(&self) -> Enforces {
        let of = self.controller.map_or(Enforces::NONE, |c| c.enforces);
        Enforces {
            target: of.target && self.regulator.name == merge_limit::DESCRIPTOR.name,
            ..of
        }
    }

    /// Returns the parts of an objective that the dispatcher enforces with these parameters, for a
    /// VM or for a background process.
    fn dispatcher_enforces(&self, background: bool) -> Enforces {
        let waived = cfq::waives_priority(&self.params, background);
        self.dispatcher.enforces.waiving_priority(waived)
    }

    /// Checks that the policy works on a device with a saturation profile, or without one.
    ///
    /// # Errors
    /// Returns [`PolicyError::NoProfile`] if the policy needs the profile and there is none.
    pub fn check_profile(&self, is_there: bool) -> Result<(), PolicyError> {
        if CostParams::need_profile(&self.params) && !is_there {
            let policy = self.name.clone();
            return Err(PolicyError::NoProfile { policy });
        }
        Ok(())
    }

    /// Returns the policy for a device that other hosts share: with the dispatcher of `slo` it then
    /// keeps to the host's part of the device. Policies that do not divide a device among hosts
    /// stay as they are ([`PolicySpec::exchanges`]).
    pub fn on_shared_device(mut self) -> PolicySpec {
        self.shared = self.dispatcher.name == slo::DESCRIPTOR.name && !self.has_share_model();
        self
    }

    /// Returns `true` if the policy divides a device among hosts that share it: its controller
    /// makes reports ([`Engine::poll_share`](tidegate_core::engine::Engine::poll_share)) and hears
    /// those of other hosts. With the dispatcher of `slo`, only after
    /// [`PolicySpec::on_shared_device`].
    pub fn exchanges(&self) -> bool {
        self.shared || self.has_share_model()
    }

    fn has_share_model(&self) -> bool {
        let name = share_model::DESCRIPTOR.name;
        self.controller.is_some_and(|part| part.name == name)
    }

    /// Returns the interval at which a policy that [exchanges](PolicySpec::exchanges) makes
    /// reports.
    pub fn report_period(&self) -> Nanos {
        // Beside another controller the model has a period of its own.
        let period = self.params.find("period").filter(|_| !self.shared);
        period.map_or(WINDOW, Nanos)
    }

    /// Returns the composition behind a policy of an engine; `None` if it is of another kind.
    pub fn behind(policy: &dyn Policy) -> Option<&PolicySpec> {
        (policy as &dyn core::any::Any).downcast_ref()
    }

    fn capacity(&self, vms: u32, requests: u32) -> Capacity {
        Capacity {
            vms,
            requests,
            limits_kept: self.regulator.enforces.limit,
            allocated: false,
            shared: self.shared,
        }
    }
}

impl Policy for PolicySpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn parts(&self) -> (Option<&'static str>, &'static str, &'static str) {
        (
            self.controller.map(|c| c.name),
            self.regulator.name,
            self.dispatcher.name,
        )
    }

    fn params(&self) -> &[(&'static ParamInfo, u64)] {
        &self.params.0
    }

    fn enforces(&self) -> Enforces {
        let of_dispatcher = self.dispatcher_enforces(false);
        let of_controller = self.controller_enforces();
        of_controller.or(self.regulator.enforces).or(of_dispatcher)
    }

    fn enforces_for(&self, background: bool) -> Enforces {
        // For VMs the composition as a whole counts.
        if !background {
            return self.enforces();
        }
        let parts = self.build(1, 1);
        let of_dispatcher = if parts.dispatcher.serves_background() {
            self.dispatcher_enforces(true)
        } else {
            Enforces::NONE
        };
        match parts.regulator.stage() {
            Stage::Dispatch => of_dispatcher.or(self.regulator.enforces),
            // Admission passes background processes freely, so its regulator enforces nothing for
            // them.
            Stage::Open | Stage::Admission => of_dispatcher,
        }
    }

    fn helps_transfers(&self) -> bool {
        let turns =
            |part: Part<dyn Controller>| self.controller.is_some_and(|c| c.name == part.name);
        let by_class =
            turns(&transfer_priorities::DESCRIPTOR) && self.dispatcher_enforces(false).priority;
        by_class || (turns(&transfers::DESCRIPTOR) && self.dispatcher.name == slo::DESCRIPTOR.name)
    }

    fn has_floor(&self, objective: &Objective) -> bool {
        let under_target = mclock::targets_are_floors(&self.params) && !objective.target.is_none();
        let reserved = self.dispatcher.enforces.reservation && !objective.reservation.is_none();
        let promised = self.dispatcher.name == slo::DESCRIPTOR.name && slo::is_promised(objective);
        under_target || reserved || promised
    }

    fn background_part(&self, profile: &Profile) -> Option<Nanos> {
        self.build(1, 1).dispatcher.background_part(profile)
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        self.build(1, 1).dispatcher.starvation(device, profile)
    }

    fn build(&self, vms: u32, requests: u32) -> Roles {
        let mut capacity = self.capacity(vms, requests);
        let mut controller = self.controller.map(|c| (c.build)(&self.params, &capacity));
        if self.shared {
            controller = Some(Box::new(AmongHosts::new(controller, &capacity)));
        }
        // The controller is built first: the other parts count weights as allocations if it
        // allocates.
        capacity.allocated = controller.as_ref().is_some_and(|c| c.allocates());
        Roles {
            controller,
            regulator: (self.regulator.build)(&self.params, &capacity),
            dispatcher: (self.dispatcher.build)(&self.params, &capacity),
        }
    }

    fn build_with_background(&self, vms: u32, requests: u32) -> Roles {
        let mut roles = self.build(vms, requests);
        if !roles.dispatcher.serves_background() {
            let params = BackgroundParams::from_params(&self.params);
            // The background's own index allocates no weights, whatever the controller does.
            let capacity = self.capacity(vms, requests);
            let queue = BackgroundQueue::new(roles.dispatcher, params, &capacity);
            roles.dispatcher = Box::new(queue);
        }
        roles
    }

    fn may_hold(&self) -> bool {
        self.build(1, 1).dispatcher.may_hold()
    }

    fn to_shared(&self) -> Arc<dyn Policy> {
        Arc::new(self.clone())
    }
}

impl PartialEq for PolicySpec {
    fn eq(&self, other: &Self) -> bool {
        // Not the name: a composition by parts equals the named policy with these parts and values.
        self.parts() == other.parts() && self.params == other.params && self.shared == other.shared
    }
}

impl fmt::Debug for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let values = self.params.0.iter().map(|(info, value)| (info.name, value));
        f.debug_map().entries(values).finish()
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name:?}?)"))
}

/// Reasons for which a policy is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// No policy or part has this name.
    #[error("no {kind} named {name:?}{}; there are: {known}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// `policy`, `controller`, `regulator` or `dispatcher`.
        kind: &'static str,
        /// Name that was requested.
        name: String,
        /// Known names.
        known: String,
        /// Most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// The policy has no such parameter.
    #[error("policy {policy} has no parameter {param:?}; it has: {known}")]
    UnknownParam {
        /// Name of the policy.
        policy: String,
        /// Parameter that was requested.
        param: String,
        /// Parameters of the policy.
        known: String,
    },
    /// The policy uses the device's profile, and there is none.
    #[error("policy {policy} computes costs from the device's profile, and the device has none")]
    NoProfile {
        /// Name of the policy.
        policy: String,
    },
    /// A parameter's value is out of its range.
    #[error("{}: {value} is out of range; allowed is {}", .param.name, .param.allowed())]
    OutOfRange {
        /// Parameter with its range.
        param: &'static ParamInfo,
        /// Value that was requested.
        value: u64,
    },
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
    all: &'static [T],
    name_of: impl Fn(&T) -> &'static str,
) -> Result<&'static T, PolicyError> {
    all.iter()
        .find(|part| name_of(part) == name)
        .ok_or_else(|| {
            let names = || all.iter().map(&name_of);
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
    use crate::policy::registry;
    use tidegate_base::objective::Rate;

    #[test]
    fn every_policy_of_the_registry_builds_with_its_defaults() {
        for info in registry() {
            let spec = PolicySpec::named(info.name).expect(info.name);
            spec.build(4, 16);
            for (param, value) in spec.params().iter().copied() {
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
    fn classes_that_parameters_take_away_are_not_enforced() {
        let mut spec = PolicySpec::named("cfq").expect("registered");
        assert!(spec.enforces().priority && spec.enforces_for(false).priority);
        // The class of a background process is the parameter's, and its objective's only if that
        // says so.
        assert!(!spec.enforces_for(true).priority);
        let as_named = cfq::BackgroundClass::WORDS
            .iter()
            .position(|&word| word == "as-named");
        let as_named = as_named.expect("one of the words") as u64;
        spec.set("background_class", as_named).expect("in range");
        assert!(spec.enforces_for(true).priority);
        spec.set("priorities", 0).expect("in range");
        assert_eq!(spec.enforces(), Enforces::NONE);
        assert_eq!(spec.enforces_for(true), Enforces::NONE);
    }

    #[test]
    fn a_target_is_enforced_where_there_is_a_throttle() {
        let enforces = |regulator| {
            let spec = PolicySpec::composed(Some("tuner"), regulator, "drr");
            spec.expect("there are such parts").enforces_for(false)
        };
        assert!(enforces("merge-limit").target && enforces("merge-limit").limit);
        assert!(!enforces("open").target && !enforces("token-bucket").target);
        let vcup = PolicySpec::named("vcup").expect("registered");
        assert!(vcup.enforces().target && !vcup.enforces_for(true).target);
        assert!(vcup.enforces_for(true).limit, "of the background, too");
    }

    #[test]
    fn a_target_is_a_floor_where_the_dispatcher_is_told_so() {
        let objective = |reservation, target| Objective {
            reservation,
            target,
            ..Objective::default()
        };
        let reserved = objective(Rate::bytes(1000), Rate::NONE);
        let precise = objective(Rate::NONE, Rate::bytes(1000));
        let floors = |policy| {
            let spec = PolicySpec::named(policy).expect("registered");
            [reserved, precise, Objective::default()].map(|of| spec.has_floor(&of))
        };
        assert_eq!(floors("vcup-mclock"), [true, true, false]);
        assert_eq!(floors("mclock"), [true, false, false]);
        assert_eq!(floors("vcup"), [false, false, false]);
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
