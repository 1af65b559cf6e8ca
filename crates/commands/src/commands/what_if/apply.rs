//! Commands that put settings in force.

use serde_json::Value;
use tidegate_config::objective::{self, FlagInfo, NoneMeans};
use tidegate_config::policy_view;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::what_if::WhatIf;
use tidegate_sim::what_if::choose::Settings;

use crate::args::parse_policy;
use crate::shell;

/// Commands that put settings in force.
#[derive(PartialEq, Debug)]
pub(super) struct Applied {
    /// Commands, as users type them.
    pub(super) commands: Vec<String>,
    /// Sentences about VMs for which a command does something else than was simulated, or that no
    /// command can address.
    pub(super) cautions: Vec<String>,
}

/// Returns the commands that change the settings of a device and its VMs to `after`. `recorded` are
/// the objectives that are really in force.
pub(super) fn commands(what_if: &WhatIf, recorded: &[Objective], after: &Settings) -> Applied {
    let mut applied = Applied {
        commands: Vec::new(),
        cautions: Vec::new(),
    };
    if what_if.last_policy() != &after.policy {
        let set = set_policy(what_if.device(), &after.policy);
        applied.commands.push(for_shell(&set));
    }
    let vms = what_if.vms.iter().zip(recorded).zip(&after.objectives);
    for (index, ((vm, was), is)) in vms.enumerate() {
        if was == is || !vm.stays() {
            continue;
        }
        let name = &vm.name;
        let Some(own) = own_name(what_if, index) else {
            applied.cautions.push(format!(
                "No command for {name}: several VMs had the name {} at the end of the recording.",
                vm.last_name
            ));
            continue;
        };
        applied
            .commands
            .push(for_shell(&set_objective(own, was, is)));
        if vm.scheduled {
            applied.cautions.push(format!(
                "{name} has a schedule: the command changes its base objective, so parts that an \
                 entry in force sets stay as they are. See `tidegate vm schedule list {}`.",
                shell::quoted(own)
            ));
        }
    }
    applied
}

/// Returns the command that takes a VM's limit away; `None` if none does.
pub(super) fn remove_limit(what_if: &WhatIf, vm: usize) -> Option<String> {
    // With a schedule the limit may be an entry's, or be back when the entry ends.
    let own = own_name(what_if, vm).filter(|_| !what_if.vms[vm].scheduled)?;
    let words = ["tidegate", "vm", "set", own, "--limit", "none"];
    Some(for_shell(&words.map(str::to_owned)))
}

/// Returns the name by which commands address a VM that stays; `None` if another one that stays
/// has it, too.
fn own_name(what_if: &WhatIf, vm: usize) -> Option<&str> {
    let own = &what_if.vms[vm].last_name;
    let mut others = what_if.vms.iter().enumerate();
    let is_taken = others.any(|(other, it)| other != vm && it.stays() && it.last_name == *own);
    (!is_taken).then_some(own.as_str())
}

fn for_shell(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell::quoted(word)).collect();
    words.join(" ")
}

fn set_policy(device: &str, policy: &PolicySpec) -> Vec<String> {
    let mut words = ["tidegate", "policy", "set", device, policy.name()]
        .map(str::to_owned)
        .to_vec();
    let defaults = parse_policy(policy.name()).expect("a policy has a name that can be typed");
    for (&(info, value), (_, default)) in policy.params().iter().zip(defaults.params()) {
        if value != *default {
            let value = policy_view::with_unit(info.kind, value);
            words.extend(["--param".to_owned(), format!("{}={value}", info.name)]);
        }
    }
    words
}

/// Returns the command that changes an objective; `none` removes a part.
fn set_objective(vm: &str, was: &Objective, is: &Objective) -> Vec<String> {
    let mut words = ["tidegate", "vm", "set", vm].map(str::to_owned).to_vec();
    let [was, is] = [was, is].map(objective::to_json);
    // Tables that are gone as a whole, with everything in them.
    let mut gone: Vec<&[&str]> = Vec::new();
    for flag in objective::flags() {
        let [was, now] = [&was, &is].map(|json| value(json, flag));
        if was == now || gone.iter().any(|table| flag.path.starts_with(table)) {
            continue;
        }
        let table = flag.path.split_last().map_or(&[][..], |(_, table)| table);
        let removes_it = matches!(flag.none, NoneMeans::Table | NoneMeans::TableAlone);
        let stays = is
            .pointer(&pointer(table))
            .is_some_and(|table| !table.is_null());
        if removes_it && !stays {
            gone.push(table);
        }
        words.push(format!("--{}", flag.name));
        words.push(now.unwrap_or_else(|| "none".to_owned()));
    }
    words
}

/// Returns the value that a flag sets, as it is typed; `None` if there is none.
fn value(objective: &Value, flag: &FlagInfo) -> Option<String> {
    match objective.pointer(&pointer(flag.path))? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the JSON pointer of a path of keys.
fn pointer(path: &[&str]) -> String {
    path.iter().map(|key| format!("/{key}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use serde_json::json;

    use crate::args::{Args, Command, PolicyCommand, VmCommand};

    /// Parses a command as the program does.
    fn parsed(words: &[String]) -> Command {
        let args = Args::try_parse_from(words);
        args.unwrap_or_else(|error| panic!("{words:?}: {error}"))
            .command
    }

    #[test]
    fn a_changed_objective_is_what_its_command_sets() {
        let objective = |change| objective::merge(&Objective::default(), &change).expect("right");
        let all = [
            json!({}),
            json!({ "limit": "40 MB/s", "weight": 400 }),
            json!({ "limit": { "total": "500 IOPS, 40 MB/s", "write": "10 MB/s",
                    "burst": { "total": "2000 IOPS", "length": "10 s" } } }),
            json!({ "latency": "12.5 ms", "reservation": "120 IOPS @ 16 KiB", "priority": "idle",
                    "group": { "name": "a b", "weight": 7 },
                    "expects": { "iops": 500, "burst": 8, "reads": "70 %" } }),
        ];
        let all = all.map(objective);
        for was in &all {
            for is in all.iter().filter(|is| *is != was) {
                let words = set_objective("oltp", was, is);
                let Command::Vm(VmCommand::Set(args)) = parsed(&words) else {
                    panic!("{words:?}");
                };
                assert_eq!(args.name, "oltp");
                let change = args.parts.change();
                let set = objective::merge(was, &change);
                assert_eq!(set.as_ref(), Ok(is), "{words:?}: {change}");
            }
        }
    }

    #[test]
    fn a_changed_policy_is_what_its_command_sets() {
        let mut policy = PolicySpec::named("mclock").expect("registered");
        policy.set("cost_size", 65536).expect("in range");
        for policy in [policy, PolicySpec::named("slo").expect("registered")] {
            let words = set_policy("disk0", &policy);
            let Command::Policy(PolicyCommand::Set {
                device,
                policy: name,
                params,
            }) = parsed(&words)
            else {
                panic!("{words:?}");
            };
            assert_eq!(device, "disk0");
            let request = crate::commands::policy::request(&name, &params);
            let request = serde_json::to_value(&request).expect("JSON");
            assert_eq!(
                tidegate_config::policy::read(&request),
                Ok(policy),
                "{words:?}"
            );
        }
    }
}
