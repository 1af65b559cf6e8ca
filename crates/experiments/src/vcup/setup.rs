//! The runs there are: what runs beside each other, under which scheduler, and what is changed
//! about it.

use crate::ExperimentError;
use crate::folder::{self, File, named, set_param};
use crate::frame::Variant;
use tidegate_config::policy;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, Action, Scenario};
use tidegate_workload::job::{Job, Mix, Rw, SizeShare, Sizes};

const SCHEDULERS_TOML: &str = folder::embedded!("vcup", "schedulers.toml");
const ARRAY_2: File = named!("vcup", "array-2.toml");
const KIB: u32 = 1 << 10;
const MB: u64 = 1_000_000;

/// What runs beside each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Figure 3.
    Merging,
    /// Figures 6 and 7.
    Single,
    /// Figure 8.
    Drift,
    /// Table II.
    Keys,
    /// Figure 10 and table IV.
    Servers,
    /// Figure 11.
    Readers,
    /// Table VII.
    Floors,
    /// Figure 14.
    Throughput,
}

impl Case {
    #[cfg(test)]
    pub(super) const ALL: [Case; 8] = [
        Case::Merging,
        Case::Single,
        Case::Drift,
        Case::Keys,
        Case::Servers,
        Case::Readers,
        Case::Floors,
        Case::Throughput,
    ];

    /// Its file, and what it says.
    fn file(self) -> File {
        match self {
            Case::Merging => named!("vcup/scenarios", "merging.toml"),
            Case::Single => named!("vcup/scenarios", "single.toml"),
            Case::Drift => named!("vcup/scenarios", "drift.toml"),
            Case::Keys => named!("vcup/scenarios", "keys.toml"),
            Case::Servers => named!("vcup/scenarios", "servers.toml"),
            Case::Readers => named!("vcup/scenarios", "readers.toml"),
            Case::Floors => named!("vcup/scenarios", "floors.toml"),
            Case::Throughput => named!("vcup/scenarios", "throughput.toml"),
        }
    }
}

/// What fio asks for in section 5.1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Load {
    /// As the paper calls it.
    pub(super) name: &'static str,
    pub(super) writes: bool,
    pub(super) random: bool,
    /// Sizes from 4 to 128 KiB, instead of 128 KiB.
    pub(super) varied: bool,
    /// Its target in MB/s; the paper's where it tells one.
    pub(super) target: u64,
}

/// What is changed about a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Nothing,
    /// Reads of so many KiB, in order or not, in I/Os of so many pages.
    Merge {
        random: bool,
        kib: u32,
        pages: u32,
    },
    /// This is asked for, and windows are so many ms long; 0: they are searched.
    Load {
        load: Load,
        window_ms: u64,
    },
    /// So many VMs, with so many MB/s each.
    Vms {
        count: usize,
        target: u64,
    },
    /// The first so many VMs.
    First(usize),
    /// The first VM has so many IOPS as its reservation, and as its limit.
    Iops {
        reservation: u64,
        limit: u64,
    },
    /// One VM alone, whose target rises by 5 MB/s up to so many.
    Staircase {
        vm: &'static str,
        top: u64,
    },
    /// Targets are limits, and one scheduler has all VMs.
    Limits,
}

/// What a run is, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Without {
    /// Nothing.
    Nothing,
    /// The paper's letter.
    Letter,
    /// A LUN and a CFQ for each VM: one CFQ has all of them.
    Luns,
}

impl Variant for Without {
    const NOTHING: Without = Without::Nothing;
    const ALL: &'static [Without] = &[Without::Letter, Without::Luns];

    fn phrase(self) -> String {
        match self {
            Without::Nothing => "As it is",
            Without::Letter => "With what Tidegate adds",
            Without::Luns => "With one CFQ over all VMs",
        }
        .to_owned()
    }

    fn named(name: &str) -> Option<Without> {
        (name == "added").then_some(Without::Letter)
    }
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) case: Case,
    /// One of `schedulers.toml`.
    pub(super) scheduler: &'static str,
    pub(super) change: Change,
    without: Without,
}

impl Key {
    pub(super) fn new(case: Case, scheduler: &'static str) -> Key {
        Key {
            case,
            scheduler,
            change: Change::Nothing,
            without: Without::Nothing,
        }
    }

    pub(super) fn with(self, change: Change) -> Key {
        Key { change, ..self }
    }

    /// The same with something left out; as it is where there is nothing to leave out.
    pub(super) fn without(self, without: Without) -> Key {
        let vcup = self.scheduler.starts_with("vcup");
        // fq has a queue a LUN as well; the others are over all VMs as they are.
        let a_lun_each = matches!(self.scheduler, "fq" | "vcup" | "vcup_10s" | "vcup_pi")
            && !matches!(self.change, Change::Staircase { .. } | Change::Load { .. });
        let without = match without {
            Without::Letter if vcup => Without::Letter,
            Without::Luns if a_lun_each => Without::Luns,
            _ => Without::Nothing,
        };
        Key { without, ..self }
    }
}

/// A step of figure 10's staircase. The paper has 5 minutes.
pub(super) const STEP: Nanos = Nanos::from_secs(120);

/// Finds the experiment's own array, and the catalogue's.
fn find_model(name: &str) -> Result<Entry, String> {
    folder::model(name, &[ARRAY_2])
}

/// The policy that stands behind a scheduler.
fn policy(name: &'static str, without: Without) -> Result<PolicySpec, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let added = section.read("added", policy.clone(), policy::from_field);
        match without {
            Without::Letter => added,
            _ => Some(policy),
        }
    })
}

/// All VMs are on one host, whose queue is as deep as theirs together.
fn gather(scenario: &mut Scenario) {
    for vm in &mut scenario.tenants {
        vm.host = 0;
    }
    for device in &mut scenario.devices {
        device.scheduling.depth *= scenario.tenants.len() as u32;
    }
}

/// What a run simulates.
///
/// # Errors
/// When a file of the experiment is not what it should be.
pub(super) fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, &find_model, None)?
        .config
        .unbounded();
    folder::put_under(&mut scenario, &policy(key.scheduler, key.without)?);
    change(&mut scenario, key.change)?;
    if key.without == Without::Luns {
        gather(&mut scenario);
    }
    folder::checked(scenario, file, key)
}

fn change(scenario: &mut Scenario, change: Change) -> Result<(), ExperimentError> {
    match change {
        Change::Nothing => {}
        Change::Merge { random, kib, pages } => {
            set_param(scenario, "pages", pages.into())?;
            for job in jobs(scenario) {
                job.rw.random = random;
                job.sizes = std::array::from_fn(|_| Sizes::fixed(kib * KIB));
            }
        }
        Change::Load { load, window_ms } => {
            if window_ms > 0 {
                set_param(scenario, "window_max", window_ms * 1_000_000)?;
                set_param(scenario, "window_min", window_ms * 1_000_000)?;
            } else {
                // The search is told from the beginning.
                scenario.frame.warm_up = Nanos::ZERO;
            }
            for vm in &mut scenario.tenants {
                vm.objective.target = Rate::bytes(load.target * MB);
            }
            jobs(scenario).for_each(|job| load.put_into(job));
        }
        Change::Vms { count, target } => {
            scenario.tenants.truncate(count);
            for vm in &mut scenario.tenants {
                vm.objective.target = Rate::bytes(target * MB);
            }
        }
        Change::First(count) => scenario.tenants.truncate(count),
        Change::Iops { reservation, limit } => {
            if let Some(vm) = scenario.tenants.first_mut() {
                vm.objective.reservation = Rate::iops(reservation);
                vm.objective.limit.total = Rate::iops(limit);
            }
        }
        Change::Staircase { vm, top } => climb(scenario, vm, top),
        Change::Limits => {
            gather(scenario);
            for vm in &mut scenario.tenants {
                vm.objective.limit = Limit {
                    total: Rate::bytes(vm.objective.target.bytes_per_s.unwrap_or(Rate::MAX)),
                    ..Limit::NONE
                };
                vm.objective.target = Rate::NONE;
            }
        }
    }
    Ok(())
}

fn jobs(scenario: &mut Scenario) -> impl Iterator<Item = &mut Job> {
    scenario.tenants.iter_mut().flat_map(|vm| &mut vm.jobs)
}

/// One VM, whose target rises by 5 MB/s every [`STEP`].
fn climb(scenario: &mut Scenario, name: &str, top: u64) {
    scenario.tenants.retain(|vm| vm.name == name);
    let Some(vm) = scenario.tenants.first_mut() else {
        return;
    };
    let to = |mb_s: u64| Objective {
        target: Rate::bytes(mb_s * MB),
        ..Objective::default()
    };
    vm.objective = to(5);
    let steps = top / 5;
    scenario.changes = (1..steps)
        .map(|step| scenario::Change {
            at: Nanos(STEP.0 * step),
            action: Action::Objective {
                tenant: 0,
                objective: Box::new(to(5 * (step + 1))),
            },
        })
        .collect();
    scenario.frame.warm_up = Nanos::ZERO;
    scenario.frame.duration = Nanos(STEP.0 * steps);
}

impl Load {
    fn put_into(&self, job: &mut Job) {
        job.rw = Rw {
            mix: if self.writes { Mix::Write } else { Mix::Read },
            random: self.random,
        };
        // As fio draws sizes from a range: multiples of the smallest.
        let sizes = match self.varied {
            true => Sizes(
                (1..=32)
                    .map(|pages| SizeShare {
                        bytes: pages * 4 * KIB,
                        weight: 1,
                    })
                    .collect(),
            ),
            false => Sizes::fixed(128 * KIB),
        };
        job.sizes = std::array::from_fn(|_| sizes.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::policy::Policy;

    #[test]
    fn every_scenario_runs_by_itself_under_the_paper_s_letter() {
        for case in Case::ALL {
            let (file, text) = case.file();
            let loaded = scenario::read(text, file, &find_model, None).expect("a scenario");
            let policy = &loaded.config.devices[0].scheduling.policy;
            let letters = ["vcup", "vcup_10s", "vcup_mclock", "vcup_pi", "merging"];
            let told = |policy: &PolicySpec| -> Vec<(String, u64)> {
                let params = policy
                    .params()
                    .iter()
                    .copied()
                    .filter(|(info, _)| info.name != "pages");
                let params = params.map(|(info, value)| (info.name.to_owned(), value));
                [(policy.name().to_owned(), 0)]
                    .into_iter()
                    .chain(params)
                    .collect()
            };
            let of = |name| super::policy(name, Without::Nothing).expect("a policy");
            let mut known = letters.into_iter().map(of);
            assert!(known.any(|known| told(&known) == told(policy)), "{case:?}");
        }
    }

    #[test]
    fn a_staircase_has_a_step_for_each_5_mb_s() {
        let vm = "mail";
        let key = Key::new(Case::Servers, "vcup").with(Change::Staircase { vm, top: 25 });
        let scenario = scenario(&key).expect("a scenario");
        assert_eq!(scenario.tenants.len(), 1);
        assert_eq!(scenario.frame.duration, Nanos(5 * STEP.0));
        let last = scenario.changes.last().expect("a change");
        assert_eq!(last.at, Nanos(4 * STEP.0));
        let Action::Objective { objective, .. } = &last.action else {
            panic!("{last:?}");
        };
        assert_eq!(objective.target, Rate::bytes(25 * MB));
    }
}
