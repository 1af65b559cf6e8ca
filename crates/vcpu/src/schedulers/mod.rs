//! vCPU schedulers, one file or folder each, and their registry, the only list of them.
//!
//! Scenario readers, command options, listings and documentation take the schedulers from here;
//! docs/adding-a-vcpu-scheduler.md explains how to add one.

pub mod credit;
pub mod credit2;
pub mod eevdf;
pub mod io_turns;
pub mod isacs;
#[cfg(test)]
mod pages;

use crate::spec::{SchedulerInfo, SchedulerSpec};

/// All schedulers, in the order in which they are listed.
pub static SCHEDULERS: &[&SchedulerInfo] = &[
    &credit::SCHEDULER,
    &credit2::SCHEDULER,
    &isacs::SCHEDULER,
    &io_turns::SCHEDULER,
    &eevdf::SCHEDULER,
];

/// Returns the scheduler named `name`, now or in an earlier release, with default parameters.
pub fn named(name: &str) -> Option<SchedulerSpec> {
    let found = SCHEDULERS.iter().find(|info| info.is_named(name));
    found.map(|info| SchedulerSpec::new(info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CpuSet, Machine};
    use crate::spec::ParamKind;
    use std::collections::BTreeSet;
    use tidegate_core::time::Nanos;

    #[test]
    fn descriptions_are_whole_and_defaults_allowed() {
        let names: BTreeSet<_> = SCHEDULERS.iter().map(|info| info.name).collect();
        assert_eq!(names.len(), SCHEDULERS.len(), "names are unique");
        assert!(!names.contains("none"), "the word for no scheduler");
        for info in SCHEDULERS {
            assert!(
                !info.summary.is_empty() && !info.source.is_empty(),
                "{}",
                info.name
            );
            let mut keys = BTreeSet::from(["name"]);
            for param in info.params() {
                let what = format!("{} {}", info.name, param.name);
                assert!(keys.insert(param.name), "{what} is there twice");
                assert!((param.min..=param.max).contains(&param.default), "{what}");
                assert!(!param.help.is_empty(), "{what}");
                if let ParamKind::Choice(words) = param.kind {
                    assert_eq!(param.max, words.len() as u64 - 1, "{what}");
                }
            }
        }
    }

    #[test]
    fn parameters_that_are_set_in_code_come_back_as_they_were() {
        let credit2 = credit2::Params {
            run_queues: credit2::RunQueues::All,
            credit: Nanos(11),
            max_slice: Nanos(12),
            rate_limit: Nanos(13),
            migrate_resist: Nanos(14),
            looks_again: true,
            release: credit2::Release::V4_12_0,
        };
        assert_eq!(credit2::Params::from_spec(&credit2.spec()), credit2);
        let isacs = isacs::Params {
            credit2,
            cutoff: Nanos(15),
            new_sample: 16,
            io_credit_divisor: 17,
            io_credit: false,
            concealing: false,
            cpu_boost: false,
            io_balance: false,
            keeps_debt: true,
            last_migrates: true,
            long_boost: true,
            algorithm_1: isacs::Algorithm1::Printed,
            counts_boost: false,
            adds_credit: true,
        };
        assert_eq!(isacs::Params::from_spec(&isacs.spec()), isacs);
        let io_turns = io_turns::Params {
            credit2: credit2::Params {
                looks_again: false,
                ..credit2
            },
            io_turn: Nanos(1_018),
            gap: Nanos(21),
            ends_early: false,
            io_rate_limit: Nanos(19),
            lead: Nanos(20),
        };
        assert_eq!(io_turns::Params::from_spec(&io_turns.spec()), io_turns);
        let eevdf = eevdf::Params {
            slice: Nanos(100_021),
            tick: Nanos(100_022),
            run_to_parity: false,
        };
        assert_eq!(eevdf::Params::from_spec(&eevdf.spec()), eevdf);
    }

    #[test]
    fn each_one_is_built_under_its_name() {
        let mut machine = Machine::new(2, 2);
        machine.add_vm("vm", 2, CpuSet::first_n(2), 256, 0);
        for info in SCHEDULERS {
            let spec = named(info.name).expect("registered");
            assert_eq!(spec.build(&machine).name(), info.name);
        }
        assert_eq!(named("cfs"), None);
        assert_eq!(named("credit2-io"), named("io-turns"));
    }
}
