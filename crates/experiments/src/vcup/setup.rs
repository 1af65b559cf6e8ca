//! Runs of the experiment: case, scheduler and change.

mod ablation;

pub(super) use ablation::Ablation;

use crate::ExperimentError;
use crate::folder::{self, File, named, set_param};
use tidegate_config::policy;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, Action, Scenario};
use tidegate_workload::spec::{Mix, Rw, SizeShare, Sizes, Workload};

const SCHEDULERS_TOML: &str = folder::embedded!("vcup", "schedulers.toml");
pub(super) const ARRAY: File = named!("vcup", "array.toml");
const ARRAY_2: File = named!("vcup", "array-2.toml");
/// [`ARRAY`] and [`ARRAY_2`] without controller and read-ahead.
const ARRAY_BARE: File = named!("vcup", "array-bare.toml");
const ARRAY_2_BARE: File = named!("vcup", "array-2-bare.toml");
const KIB: u32 = 1 << 10;
const MB: u64 = 1_000_000;

/// Workloads that run side by side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// One VM with requests of one size, merged into I/Os of up to some pages (figure 3).
    Merging,
    /// One VM with a workload of fio and a fixed or a searched window (section 5.1.1, figures 6 and
    /// 7).
    Single,
    /// Three workloads of fio beside each other, with and without target revision (section 5.1.2,
    /// figure 8).
    Drift,
    /// Four VMs of a key-value store (section 5.2, table II and figure 9).
    Keys,
    /// Filebench's servers beside each other (section 5.3, figure 10 and table IV).
    Servers,
    /// VMs that read in order, up to more than the array has for them (section 5.4, figure 11).
    Readers,
    /// vCUP over mClock (section 5.5, figures 12 and 13 and table VII).
    Floors,
    /// A bandwidth and IOPS of servers together (section 5.6, figure 14).
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

    /// Scenario file of the case.
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

/// Workload of fio in section 5.1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Load {
    /// Name in the paper.
    pub(super) name: &'static str,
    pub(super) writes: bool,
    pub(super) random: bool,
    /// `true` for sizes from 4 to 128 KiB, `false` for 128 KiB.
    pub(super) varied: bool,
    /// Target in MB/s, the paper's where it states one.
    pub(super) target: u64,
}

/// Change of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Nothing,
    /// Reads of `kib` KiB, random or sequential, with I/Os of up to `pages` pages.
    Merge {
        random: bool,
        kib: u32,
        pages: u32,
    },
    /// Load of the VM, with a fixed window in ms; 0 lets the tuner search.
    Load {
        load: Load,
        window_ms: u64,
    },
    /// Number of VMs, and the target of each in MB/s.
    Vms {
        count: usize,
        target: u64,
    },
    /// Number of VMs, from the first on.
    First(usize),
    /// Reservation and limit of the first VM, in IOPS.
    Iops {
        reservation: u64,
        limit: u64,
    },
    /// Single VM, whose target rises in steps of 5 MB/s to `top`.
    Staircase {
        vm: &'static str,
        top: u64,
    },
    /// Targets turned into limits, with one scheduler over all VMs.
    Limits,
}

/// Identity of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) case: Case,
    /// Scheduler of `schedulers.toml`.
    pub(super) scheduler: &'static str,
    pub(super) change: Change,
    without: Ablation,
}

impl Key {
    pub(super) fn new(case: Case, scheduler: &'static str) -> Key {
        Key {
            case,
            scheduler,
            change: Change::Nothing,
            without: Ablation::Unchanged,
        }
    }

    pub(super) fn with(self, change: Change) -> Key {
        Key { change, ..self }
    }

    /// Key of the run with an ablation, unchanged where the ablation has no effect.
    pub(super) fn without(self, without: Ablation) -> Key {
        let vcup = self.scheduler.starts_with("vcup");
        // A VM alone on the array, whose claims are about its tuner.
        let alone = matches!(self.change, Change::Staircase { .. } | Change::Load { .. })
            || self.case == Case::Merging;
        // FQ has a queue per LUN too; the other schedulers are over all VMs already.
        let a_lun_each = matches!(self.scheduler, "fq" | "vcup" | "vcup_10s" | "vcup_pi") && !alone;
        let consolidated = matches!(self.case, Case::Servers | Case::Readers) && !alone;
        let has_video = match self.change {
            Change::Staircase { vm, .. } => vm == "video",
            _ => matches!(self.case, Case::Servers | Case::Throughput),
        };
        let mail_alone = matches!(self.change, Change::Staircase { vm: "mail", .. });
        let is_random = match self.change {
            Change::Load { load, .. } => load.random,
            Change::Merge { random, .. } => random,
            _ => self.case == Case::Keys,
        };
        let is_of_section_5_1 = matches!(self.change, Change::Load { .. });
        let varies_at_random =
            matches!(self.change, Change::Load { load, .. } if load.random && load.varied);
        let without = match without {
            Ablation::WithAdditions if vcup => Ablation::WithAdditions,
            Ablation::SharedCfq if a_lun_each => Ablation::SharedCfq,
            Ablation::NoController if !alone => Ablation::NoController,
            Ablation::WholeDisk if self.case == Case::Servers && !alone => Ablation::WholeDisk,
            Ablation::DirectReads if self.case == Case::Readers => Ablation::DirectReads,
            Ablation::Quantum if consolidated => Ablation::Quantum,
            Ablation::GreedyVideo if has_video => Ablation::GreedyVideo,
            Ablation::PausingMail if mail_alone => Ablation::PausingMail,
            Ablation::CutRequests if varies_at_random => Ablation::CutRequests,
            Ablation::ShortWindows if self.case == Case::Throughput => Ablation::ShortWindows,
            Ablation::CostlyCuts if is_random => Ablation::CostlyCuts,
            Ablation::Ticks if is_random && vcup => Ablation::Ticks,
            Ablation::LastWindow if is_of_section_5_1 => Ablation::LastWindow,
            Ablation::MovesFirst if is_of_section_5_1 => Ablation::MovesFirst,
            Ablation::PerIo if self.case == Case::Keys => Ablation::PerIo,
            Ablation::DrrAlone if self.scheduler == "drr" => Ablation::DrrAlone,
            // One key for all variants that make no difference, so that the run is made once.
            _ => Ablation::Unchanged,
        };
        Key { without, ..self }
    }
}

/// Duration of a step of figure 10's staircase; the paper has 5 minutes.
pub(super) const STEP: Nanos = Nanos::from_secs(120);
/// Rise of the target from step to step of figure 10's staircase, in MB/s, and its first value.
pub(super) const STEP_MB_S: u64 = 5;

/// Finds the experiment's array and the models of the catalogue.
fn find_model(name: &str) -> Result<Entry, String> {
    folder::model(name, &[ARRAY, ARRAY_2])
}

/// Policy that stands for a scheduler.
fn policy(name: &'static str, without: Ablation) -> Result<PolicySpec, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let added = section.read("added", policy.clone(), policy::from_field);
        match without {
            Ablation::WithAdditions | Ablation::CutRequests => added,
            _ => Some(policy),
        }
    })
}

/// Moves all VMs to one host, with the sum of their queue depths.
fn move_to_one_host(scenario: &mut Scenario) {
    for vm in &mut scenario.vms {
        vm.host = 0;
    }
    for device in &mut scenario.devices {
        // One host gets the depth that all of them had together.
        device.scheduling.depth *= scenario.vms.len() as u32;
    }
}

/// Scenario of a run.
///
/// # Errors
/// Fails when a file of the experiment is malformed.
pub(super) fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, &find_model, None)?
        .config
        .unbounded();
    folder::set_policy(&mut scenario, &policy(key.scheduler, key.without)?);
    apply_change(&mut scenario, key.change)?;
    ablation::apply(&mut scenario, key)?;
    folder::checked(scenario, file, key)
}

/// Applies a change to a scenario.
fn apply_change(scenario: &mut Scenario, change: Change) -> Result<(), ExperimentError> {
    match change {
        Change::Nothing => {}
        Change::Merge { random, kib, pages } => {
            set_param(scenario, "pages", pages.into())?;
            for workload in workloads(scenario) {
                workload.rw.random = random;
                workload.sizes = std::array::from_fn(|_| Sizes::fixed(kib * KIB));
            }
        }
        Change::Load { load, window_ms } => {
            if window_ms > 0 {
                set_param(scenario, "window_max", window_ms * 1_000_000)?;
                set_param(scenario, "window_min", window_ms * 1_000_000)?;
            } else {
                // The search is reported from its begin on.
                scenario.frame.warm_up = Nanos::ZERO;
            }
            for vm in &mut scenario.vms {
                vm.objective.target = Rate::bytes(load.target * MB);
            }
            workloads(scenario).for_each(|workload| load.put_into(workload));
        }
        Change::Vms { count, target } => {
            scenario.vms.truncate(count);
            for vm in &mut scenario.vms {
                vm.objective.target = Rate::bytes(target * MB);
            }
        }
        Change::First(count) => scenario.vms.truncate(count),
        Change::Iops { reservation, limit } => {
            if let Some(vm) = scenario.vms.first_mut() {
                vm.objective.reservation = Rate::iops(reservation);
                vm.objective.limit.total = Rate::iops(limit);
            }
        }
        Change::Staircase { vm, top } => raise_target_in_steps(scenario, vm, top),
        Change::Limits => {
            move_to_one_host(scenario);
            for vm in &mut scenario.vms {
                vm.objective.limit = Limit {
                    // A VM without a target gets a limit that never holds it back.
                    total: Rate::bytes(vm.objective.target.bytes_per_s.unwrap_or(Rate::MAX)),
                    ..Limit::NONE
                };
                vm.objective.target = Rate::NONE;
            }
        }
    }
    Ok(())
}

fn workloads(scenario: &mut Scenario) -> impl Iterator<Item = &mut Workload> {
    scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads)
}

/// Reduces the scenario to one VM, whose target rises by [`STEP_MB_S`] every [`STEP`].
fn raise_target_in_steps(scenario: &mut Scenario, name: &str, top: u64) {
    scenario.vms.retain(|vm| vm.name == name);
    let Some(vm) = scenario.vms.first_mut() else {
        return;
    };
    let with_target = |mb_s: u64| Objective {
        target: Rate::bytes(mb_s * MB),
        ..Objective::default()
    };
    vm.objective = with_target(STEP_MB_S);
    let steps = top / STEP_MB_S;
    // The first step is the objective at the begin.
    scenario.changes = (1..steps)
        .map(|step| scenario::Change {
            at: Nanos(STEP.0 * step),
            action: Action::Objective {
                vm: 0,
                objective: Box::new(with_target(STEP_MB_S * (step + 1))),
            },
        })
        .collect();
    // Each step leaves out its own begin.
    scenario.frame.warm_up = Nanos::ZERO;
    scenario.frame.duration = Nanos(STEP.0 * steps);
}

impl Load {
    fn put_into(&self, workload: &mut Workload) {
        workload.rw = Rw {
            mix: if self.writes { Mix::Write } else { Mix::Read },
            random: self.random,
        };
        // fio draws sizes from a range as multiples of the smallest.
        let sizes = if self.varied {
            let share = |pages: u32| SizeShare {
                bytes: pages * 4 * KIB,
                weight: 1,
            };
            Sizes((1..=32).map(share).collect())
        } else {
            Sizes::fixed(128 * KIB)
        };
        workload.sizes = std::array::from_fn(|_| sizes.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::policy::Policy;
    use tidegate_workload::spec::Flow;

    /// Returns true for a closed loop without pauses.
    fn is_greedy(workload: &Workload) -> bool {
        matches!(workload.flow, Flow::Closed { think: None, .. })
    }

    #[test]
    fn every_scenario_runs_by_itself_under_the_paper_s_letter() {
        for case in Case::ALL {
            let (file, text) = case.file();
            let loaded = scenario::read(text, file, &find_model, None).expect("a scenario");
            let policy = &loaded.config.devices[0].scheduling.policy;
            let letters = ["vcup", "vcup_10s", "vcup_mclock", "vcup_pi", "merging"];
            let parameters_of = |policy: &PolicySpec| -> Vec<(String, u64)> {
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
            let of = |name| super::policy(name, Ablation::Unchanged).expect("a policy");
            let mut known = letters.into_iter().map(of);
            assert!(
                known.any(|known| parameters_of(&known) == parameters_of(policy)),
                "{case:?}"
            );
        }
    }

    #[test]
    fn films_are_replaced_unless_the_video_server_always_asks_for_more() {
        let video = |case, without| {
            let key = Key::new(case, "fq").without(without);
            let scenario = scenario(&key).expect("a scenario");
            let video = scenario.vms.into_iter().find(|vm| vm.name == "video");
            video.expect("video").workloads
        };
        for case in [Case::Servers, Case::Throughput] {
            let [viewers, film] = video(case, Ablation::Unchanged).try_into().expect("two");
            let Flow::Open { arrivals, .. } = viewers.flow else {
                panic!("{:?}", viewers.flow);
            };
            // `eventrate` of videoserver.f, whose events are of 1 MiB.
            let all = arrivals.per_s * f64::from(viewers.numjobs) * viewers.sizes[0].mean();
            assert_eq!(all, 96.0 * f64::from(1 << 20));
            let Flow::Closed { think, .. } = film.flow else {
                panic!("{:?}", film.flow);
            };
            // A film lies between two pauses.
            let blocks = u64::from(think.expect("a pause").blocks);
            assert_eq!(Some(blocks * u64::from(film.sizes[1].largest())), film.size);
            let greedy = video(case, Ablation::GreedyVideo);
            assert!(greedy.iter().all(is_greedy));
        }
    }

    #[test]
    fn mail_pauses_alone_and_in_its_ablation() {
        let mail = Key::new(Case::Servers, "vcup");
        assert_eq!(mail.without(Ablation::PausingMail), mail, "alone only");
        let vm = "mail";
        let alone = mail.with(Change::Staircase { vm, top: 25 });
        let pauses = |key: Key| {
            let scenario = scenario(&key).expect("a scenario");
            !is_greedy(&scenario.vms[0].workloads[0])
        };
        assert!(!pauses(alone) && pauses(alone.without(Ablation::PausingMail)));
    }

    #[test]
    fn a_staircase_has_a_step_for_each_5_mb_s() {
        let vm = "mail";
        let key = Key::new(Case::Servers, "vcup").with(Change::Staircase { vm, top: 25 });
        let scenario = scenario(&key).expect("a scenario");
        assert_eq!(scenario.vms.len(), 1);
        assert_eq!(scenario.frame.duration, Nanos(5 * STEP.0));
        let last = scenario.changes.last().expect("a change");
        assert_eq!(last.at, Nanos(4 * STEP.0));
        let Action::Objective { objective, .. } = &last.action else {
            panic!("{last:?}");
        };
        assert_eq!(objective.target, Rate::bytes(25 * MB));
    }
}
