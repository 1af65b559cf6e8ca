//! One host or several in front of the disk (section 4.3, table 5), and weights of VM groups for
//! schedulers without groups.

use std::collections::BTreeMap;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{Exchange, Scenario, VmSpec};
use tidegate_workload::time::TimeDistribution;

/// Change of a scenario's hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Hosts {
    /// All VMs are on one host, as far from the disk as several are.
    One,
    /// The hosts are in step: their periods begin at the same time.
    InStep,
    /// Messages between hosts have this delay, and this percentage of them is lost.
    Told { delay_ms: u64, lost_percent: u32 },
}

impl Hosts {
    pub(super) fn change(self, scenario: &mut Scenario) {
        match self {
            Hosts::One => scenario.vms.iter_mut().for_each(|vm| vm.host = 0),
            Hosts::InStep => {
                let vms = scenario.vms.iter_mut();
                vms.for_each(|vm| vm.arrives = Nanos::ZERO);
            }
            Hosts::Told {
                delay_ms,
                lost_percent,
            } => {
                let exchange = Exchange {
                    delay: Some(TimeDistribution::Fixed(Nanos::from_millis(delay_ms))),
                    // Percent become thousandths.
                    loss: 10 * lost_percent,
                };
                let devices = scenario.devices.iter_mut();
                devices.for_each(|device| device.exchange = exchange);
            }
        }
    }
}

/// Splits group weights for a scheduler without groups: each VM gets its part of the group's
/// weight, which is equivalent as long as all members are backlogged.
pub(super) fn split_group_weights(scenario: &mut Scenario, policy: &PolicySpec) {
    let mut members = BTreeMap::new();
    for vm in &scenario.vms {
        if let Some(group) = vm.objective.group {
            *members.entry(group.name).or_insert(0) += u64::from(vm.objective.weight);
        }
    }
    if members.is_empty() || policy.enforces().group {
        return;
    }
    // A common multiple keeps the weights whole numbers in the same proportions.
    let all: u64 = members.values().product();
    let weight = |vm: &VmSpec| match vm.objective.group {
        Some(group) => {
            let part = u64::from(group.weight) * u64::from(vm.objective.weight);
            part * (all / members[&group.name])
        }
        None => u64::from(vm.objective.weight) * all,
    };
    let weights: Vec<u64> = scenario.vms.iter().map(weight).collect();
    // At least 1: without VMs the divisor is 0.
    let common = weights.iter().copied().fold(0, common_divisor).max(1);
    for (vm, weight) in scenario.vms.iter_mut().zip(weights) {
        // The check of the scenario refuses a weight that is too large.
        vm.objective.weight = u32::try_from(weight / common).unwrap_or(u32::MAX);
        vm.objective.group = None;
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfair::BAPS;
    use crate::vfair::setup::{Case, Change, Disk, Key, scenario};
    use tidegate_core::objective::Objective;

    fn of(scheduler: &'static str, change: Change) -> Scenario {
        scenario(&Key::new(Case::Qfs, Disk::Ssd, scheduler).with(change)).expect("a scenario")
    }

    #[test]
    fn sysbench_weighs_what_nine_chunk_servers_do_together() {
        let grouped = of(BAPS, Change::Nothing);
        let groups = grouped.vms.iter().filter_map(|vm| vm.objective.group);
        let all: Vec<(String, u32)> = groups.map(|g| (g.name.to_string(), g.weight)).collect();
        let weight = grouped.vms[0].objective.weight;
        assert_eq!(all, vec![("qfs".to_owned(), weight); 9]);
        for scheduler in ["cfq", "mclock_ps"] {
            let told = of(scheduler, Change::Nothing).vms;
            let weights: Vec<u32> = told.iter().map(|vm| vm.objective.weight).collect();
            assert_eq!(weights, [9, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
            assert!(told.iter().all(|vm| vm.objective.group.is_none()));
        }
    }

    #[test]
    fn groups_of_any_weights_are_told_in_whole_numbers() {
        let mut scenario = of(BAPS, Change::Nothing);
        let [own, first, second, last] = scenario
            .vms
            .get_disjoint_mut([0, 1, 2, 3])
            .expect("ten VMs");
        own.objective.weight = 50;
        for vm in [&mut *first, second] {
            vm.objective.group = Some(named("a", 30));
        }
        first.objective.weight = 20;
        second.objective.weight = 40;
        last.objective.group = Some(named("b", 70));
        scenario.vms.truncate(4);
        split_group_weights(
            &mut scenario,
            &PolicySpec::named("mclock-ps").expect("there is one"),
        );
        let weights = scenario.vms.iter().map(|vm| vm.objective.weight);
        // 50 : 30 by 1 and 2 : 70.
        assert_eq!(weights.collect::<Vec<_>>(), [5, 1, 2, 7]);
    }

    #[test]
    fn where_there_are_no_groups_weights_stay_as_they_are() {
        let key = Key::new(Case::Sysbench, Disk::Ssd, "mclock_ps");
        let vms = scenario(&key).expect("a scenario").vms;
        let weights: Vec<u32> = vms.iter().map(|vm| vm.objective.weight).collect();
        assert_eq!(weights, [Objective::DEFAULT_WEIGHT; 3]);
    }

    fn named(name: &str, weight: u32) -> tidegate_core::objective::Group {
        let name = name.parse().expect("short");
        tidegate_core::objective::Group { name, weight }
    }

    #[test]
    fn each_host_has_its_own_vms_and_one_host_has_all() {
        for case in [Case::Sysbench, Case::Postmark, Case::Dvdstore, Case::Qfs] {
            let hosts = |change| -> Vec<u32> {
                let key = Key::new(case, Disk::Ssd, BAPS).with(change);
                let vms = scenario(&key).expect("a scenario").vms;
                vms.iter().map(|vm| vm.host).collect()
            };
            let apart = match case {
                Case::Qfs => vec![0, 1, 1, 1, 1, 1, 2, 2, 2, 2],
                _ => vec![0, 1, 2],
            };
            assert_eq!(hosts(Change::Hosts(Hosts::One)), vec![0; apart.len()]);
            assert_eq!(hosts(Change::Nothing), apart);
        }
        let told = Hosts::Told {
            delay_ms: 30,
            lost_percent: 20,
        };
        let begin = |change| -> Vec<Nanos> {
            let vms = of(BAPS, change).vms;
            [0, 1, 9].map(|vm| vms[vm].arrives).to_vec()
        };
        let apart = [0, 10, 20].map(Nanos::from_millis);
        assert_eq!(begin(Change::Nothing), apart);
        assert_eq!(begin(Change::Hosts(Hosts::InStep)), [Nanos::ZERO; 3]);
        let exchange = of(BAPS, Change::Hosts(told)).devices[0].exchange;
        let delay = TimeDistribution::Fixed(Nanos(30_000_000));
        assert_eq!((exchange.delay, exchange.loss), (Some(delay), 200));
    }
}
