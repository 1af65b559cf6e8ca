//! What devices that name no policy have of the default one.

use tidegate_config::device::DEFAULT_POLICY;
use tidegate_config::newly_enforced;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;

use super::Config;

/// The policy that a device had, in builds before `slo`, where its configuration names none.
pub const DEFAULT_BEFORE: &str = "mclock";

/// A device whose configuration names no policy.
#[derive(Clone, PartialEq, Debug)]
pub struct ByDefault<'a> {
    /// Its name.
    pub device: &'a str,
    /// What of its VMs' objectives is enforced, and was not before.
    pub newly_enforced: Vec<NewlyEnforced<'a>>,
}

/// A part of an objective that the default policy puts in force.
#[derive(Clone, PartialEq, Debug)]
pub struct NewlyEnforced<'a> {
    /// The VM's name.
    pub vm: &'a str,
    /// The part, as its key is spelt: `limit.burst`.
    pub part: &'static str,
    /// Its value, as a configuration spells it: `2000 IOPS for 10 s`.
    pub value: String,
}

/// Returns the devices of a configuration that name no policy, and what changed for their VMs when
/// the default became another one.
pub fn by_default(config: &Config) -> Vec<ByDefault<'_>> {
    let named = |name| PolicySpec::named(name).expect("defaults are registered");
    let (before, now) = (named(DEFAULT_BEFORE), named(DEFAULT_POLICY));
    let unnamed = config.devices.iter().enumerate();
    let unnamed = unnamed.filter(|(_, device)| !device.names_policy);
    let newly = |at: usize| {
        let vms = config.vms.iter().filter(move |vm| vm.device == at);
        vms.flat_map(|vm| {
            let [before, now] = [&before, &now].map(|policy| policy.honours_for(vm.background));
            let parts = newly_enforced(&vm.objective, &before, &now);
            parts.into_iter().map(|(part, value)| NewlyEnforced {
                vm: &vm.name,
                part,
                value,
            })
        })
        .collect()
    };
    unnamed
        .map(|(at, device)| ByDefault {
            device: &device.name,
            newly_enforced: newly(at),
        })
        .collect()
}
