//! Devices that name no policy: parts of objectives that the present default policy enforces and
//! the previous one did not.

use tidegate_config::device::DEFAULT_POLICY;
use tidegate_config::newly_enforced;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;

use super::Config;

/// Default policy of builds before `slo`, for devices whose configuration names none.
pub const DEFAULT_BEFORE: &str = "mclock";

/// Device whose configuration names no policy.
#[derive(Clone, PartialEq, Debug)]
pub struct ByDefault<'a> {
    /// Name of the device.
    pub device: &'a str,
    /// Parts of objectives that are enforced now and were not before.
    pub newly_enforced: Vec<NewlyEnforced<'a>>,
}

/// Part of an objective that the present default policy enforces and the previous one did not.
#[derive(Clone, PartialEq, Debug)]
pub struct NewlyEnforced<'a> {
    /// Name of the VM.
    pub vm: &'a str,
    /// Key of the part, such as `limit.burst`.
    pub part: &'static str,
    /// Value as a configuration spells it, such as `2000 IOPS for 10 s`.
    pub value: String,
    /// Times of the schedule's entry that sets the part; `None` for a part of the base objective.
    pub when: Option<String>,
}

/// Returns the devices of a configuration that name no policy, with the parts of their VMs'
/// objectives that the change of the default policy put in force.
pub fn by_default(config: &Config) -> Vec<ByDefault<'_>> {
    let named = |name| PolicySpec::named(name).expect("defaults are registered");
    let (before, now) = (named(DEFAULT_BEFORE), named(DEFAULT_POLICY));
    let unnamed = config.devices.iter().enumerate();
    let unnamed = unnamed.filter(|(_, device)| !device.names_policy);
    let newly = |at: usize| {
        let vms = config.vms.iter().filter(move |vm| vm.device == at);
        vms.flat_map(|vm| {
            let [before, now] = [&before, &now].map(|policy| policy.enforces_for(vm.background));
            let parts = |objective: &Objective| newly_enforced(objective, &before, &now);
            let promised = vm.promised();
            let base = parts(promised.base());
            let entries = promised.entries().iter().flat_map(|entry| {
                // Parts that an entry does not change are listed with the base objective.
                let changed = parts(&entry.objective).into_iter();
                let changed = changed.filter(|part| !base.contains(part));
                changed.map(|part| (part, Some(entry.when.to_string())))
            });
            let all = base.iter().cloned().map(|part| (part, None)).chain(entries);
            let newly = |((part, value), when)| NewlyEnforced {
                vm: &vm.name,
                part,
                value,
                when,
            };
            all.map(newly).collect::<Vec<_>>()
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

impl std::fmt::Display for NewlyEnforced<'_> {
    /// Writes `vm "oltp": latency 4 ms (18:00 to 24:00)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vm {:?}: {} {}", self.vm, self.part, self.value)?;
        match &self.when {
            Some(when) => write!(f, " ({when})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    #[test]
    fn entries_of_schedules_are_among_what_is_newly_enforced() {
        let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
                    [[vm]]\nname = \"a\"\n[vm.objective]\nreservation = \"20 IOPS\"\n\
                    latency = \"9 ms\"\ntimezone = \"UTC\"\n\
                    [[vm.objective.schedule]]\nfrom = \"18:00\"\nuntil = \"20:00\"\n\
                    latency = \"4 ms\"\n\
                    [[vm.objective.schedule]]\nfrom = \"20:00\"\nuntil = \"22:00\"\n\
                    weight = 7\n[[vm.disk]]\nsize = \"1 GiB\"\n";
        let loaded = config::parse(text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
        let unnamed = by_default(&loaded.config);
        let newly: Vec<_> = unnamed[0]
            .newly_enforced
            .iter()
            .map(|it| it.to_string())
            .collect();
        assert_eq!(newly.len(), 2, "{newly:?}");
        assert_eq!(newly[0], "vm \"a\": latency 9 ms");
        assert!(
            newly[1].starts_with("vm \"a\": latency 4 ms (") && newly[1].contains("18:00"),
            "{newly:?}"
        );
    }
}
