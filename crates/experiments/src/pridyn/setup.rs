//! The runs there are: who runs beside whom, under which scheduler, by when what is to be done.

use super::basis::{Basis, Capacity};
use super::folder::Folder;
use crate::ExperimentError;
use crate::folder::{self as files, File, named, set_param};
use crate::frame::Variant;
use tidegate_config::policy;
use tidegate_core::objective::Priority;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, Delay, Scenario, Tenant};
use tidegate_workload::deadline::{BySize, Deadline};
use tidegate_workload::job::{Flow, Job, Mix, Sizes};
use tidegate_workload::time::TimeDistribution;

const SCHEDULERS_TOML: &str = files::embedded!("pridyn", "schedulers.toml");

/// Who runs beside whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Case {
    /// Figures 1.2 and 1.3.
    Records,
    /// Figures 1.4 and 1.5.
    Operations,
    /// Tables 4.1a and 4.1b, figure 3.4.
    UseCase(UseCase),
    /// Figures 4.4, 4.5 and 4.7.
    Web,
    /// Figure 4.6.
    WebResearch,
    /// Figures 5.2 to 5.4.
    Media,
}

/// The two use cases of section 4.1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum UseCase {
    /// Two writers.
    One,
    /// A reader and two writers.
    Two,
}

impl Case {
    /// Its guests replay streams of requests.
    #[cfg(test)]
    pub(super) fn has_streams(self) -> bool {
        matches!(self, Case::Web | Case::WebResearch | Case::Media)
    }

    #[cfg(test)]
    pub(super) const ALL: [Case; 7] = [
        Case::Records,
        Case::Operations,
        Case::UseCase(UseCase::One),
        Case::UseCase(UseCase::Two),
        Case::Web,
        Case::WebResearch,
        Case::Media,
    ];

    /// Its file, and what it says.
    fn file(self) -> File {
        match self {
            Case::Records => named!("pridyn/scenarios", "records.toml"),
            Case::Operations => named!("pridyn/scenarios", "operations.toml"),
            Case::UseCase(UseCase::One) => {
                named!("pridyn/scenarios", "use-case-1.toml")
            }
            Case::UseCase(UseCase::Two) => {
                named!("pridyn/scenarios", "use-case-2.toml")
            }
            Case::Web => named!("pridyn/scenarios", "web.toml"),
            Case::WebResearch => named!("pridyn/scenarios", "web-research.toml"),
            Case::Media => named!("pridyn/scenarios", "media.toml"),
        }
    }
}

/// What is changed about a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Change {
    /// It is as written.
    #[cfg(test)]
    Nothing,
    /// So many writers of records of so many KiB; natively: without a hypervisor.
    Records { vms: usize, kib: u32, native: bool },
    /// A VM for each, which reads (`R`) or writes (`W`).
    Operations(&'static str),
    /// Nobody has a deadline.
    Default,
    /// Nobody has one, and who would have the earliest is real time, the others idle.
    Best,
    /// The first VM's deadline is that of an experiment of figure 4.1, from 1 on.
    Experiment(usize),
    /// The first so many streams, without deadlines.
    Streams(usize),
    /// Deadlines by size: the first so many streams with such a delta, in tenths.
    Tolerance { vms: usize, tenths: u32 },
    /// The third application is the one of this name.
    Third(&'static str),
}

/// What a run is, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reading {
    /// That of the README.
    Ours,
    /// Figure 3.3 as it is printed.
    Literal,
    /// Equation 4.1 as it is printed.
    Printed,
    /// PriDyn as Tidegate has it unless told otherwise.
    Added,
    /// PriDyn is told what the disk does for so many, as section 4.2.1 has it, instead of learning
    /// it.
    Given,
    /// Low priority as the lowest level of best effort, not as the idle class.
    Level,
}

impl Variant for Reading {
    const NOTHING: Reading = Reading::Ours;
    const ALL: &'static [Reading] = &[
        Reading::Literal,
        Reading::Printed,
        Reading::Added,
        Reading::Given,
        Reading::Level,
    ];

    fn phrase(self) -> String {
        match self {
            Reading::Ours => "As it is",
            Reading::Literal => "With figure 3.3 as printed",
            Reading::Printed => "With equation 4.1 as printed",
            Reading::Added => "With PriDyn and CFQ as Tidegate has them",
            Reading::Given => "With what the disk does given",
            Reading::Level => "With the lowest level of best effort for low priority",
        }
        .to_owned()
    }
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(super) case: Case,
    /// One of `schedulers.toml`.
    pub(super) scheduler: &'static str,
    pub(super) change: Change,
    reading: Reading,
}

impl Key {
    pub(crate) fn new(case: Case, scheduler: &'static str, change: Change) -> Key {
        Key {
            case,
            scheduler,
            change,
            reading: Reading::Ours,
        }
    }

    /// The same read otherwise; as it is where that makes no difference.
    pub(super) fn read(self, reading: Reading) -> Key {
        let sized = matches!(self.change, Change::Tolerance { .. } | Change::Third(_));
        let reading = match reading {
            Reading::Literal | Reading::Added | Reading::Given
                if self.scheduler.starts_with("pridyn") =>
            {
                reading
            }
            Reading::Printed if sized => reading,
            Reading::Level if matches!(self.change, Change::Third(_)) => reading,
            _ => Reading::Ours,
        };
        Key { reading, ..self }
    }
}

/// Delta of research requests, in thousandths; section 5.4 has 20.
const RESEARCH: u32 = 20_000;
/// Delta of the media servers, in thousandths: the least half at which two of them keep nine in ten
/// of their deadlines, for the thesis says that they keep most.
const MEDIA: u32 = 2_500;

/// The policy that stands behind a scheduler.
fn policy(name: &'static str, reading: Reading) -> Result<PolicySpec, ExperimentError> {
    files::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let literal = section.read("literal", policy.clone(), policy::from_field);
        let added = section.read("added", policy.clone(), policy::from_field);
        match reading {
            Reading::Literal => literal,
            Reading::Added => added,
            _ => Some(policy),
        }
    })
}

/// What a run simulates.
///
/// # Errors
/// When a file of the experiment is not what it should be.
pub(crate) fn scenario(
    key: &Key,
    folder: &Folder,
    basis: &Basis,
) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, folder, None)?.config.unbounded();
    let wrong = |what: String| ExperimentError::data(file, what);
    files::put_under(&mut scenario, &policy(key.scheduler, key.reading)?);
    change(&mut scenario, key, basis).map_err(wrong)?;
    if key.reading == Reading::Given {
        let unknown = || wrong(format!("{key:?}: its disk was not measured"));
        let capacity = capacity(&mut scenario, key, basis).ok_or_else(unknown)?;
        set_param(&mut scenario, "max_bandwidth", capacity.alone)?;
        set_param(&mut scenario, "bandwidth_loss", capacity.loss())?;
    }
    files::checked(scenario, file, key)
}

fn jobs(scenario: &mut Scenario) -> impl Iterator<Item = &mut Job> {
    scenario.tenants.iter_mut().flat_map(|vm| &mut vm.jobs)
}

fn first_job(scenario: &mut Scenario) -> Result<&mut Job, String> {
    jobs(scenario)
        .next()
        .ok_or_else(|| "there is no job".to_owned())
}

fn change(scenario: &mut Scenario, key: &Key, basis: &Basis) -> Result<(), String> {
    let unknown = || format!("{key:?}: what it follows from was not run");
    match key.change {
        #[cfg(test)]
        Change::Nothing => {}
        Change::Records { vms, kib, native } => {
            scenario.tenants.truncate(vms);
            for vm in &mut scenario.tenants {
                records(vm, kib, native);
            }
        }
        Change::Operations(all) => {
            scenario.tenants.truncate(all.len());
            for (job, what) in jobs(scenario).zip(all.chars()) {
                job.rw.mix = if what == 'R' { Mix::Read } else { Mix::Write };
            }
        }
        Change::Default => jobs(scenario).for_each(|job| job.deadline = None),
        Change::Best => {
            jobs(scenario).for_each(|job| job.deadline = None);
            for (i, vm) in scenario.tenants.iter_mut().enumerate() {
                let class = if i == 0 {
                    Priority::RealTime
                } else {
                    Priority::Idle
                };
                vm.objective.priority = class;
            }
        }
        Change::Experiment(n) => {
            let Case::UseCase(which) = key.case else {
                return Err(format!("{key:?}: no use case"));
            };
            let deadline = basis.deadline(which, n).ok_or_else(unknown)?;
            first_job(scenario)?.deadline = Some(Deadline::Fixed(deadline));
        }
        Change::Streams(vms) => scenario.tenants.truncate(vms),
        Change::Tolerance { vms, tenths } => {
            scenario.tenants.truncate(vms);
            let by = by_size(scenario, key, basis, tenths * 100).ok_or_else(unknown)?;
            for vm in &mut scenario.tenants {
                let tolerance = match vm.name.as_str() {
                    "research" => RESEARCH,
                    _ => by.tolerance,
                };
                set_deadline(vm, BySize { tolerance, ..by });
            }
        }
        Change::Third(third) => {
            let by = by_size(scenario, key, basis, MEDIA).ok_or_else(unknown)?;
            let stays = |vm: &Tenant| !vm.name.starts_with("c-") || vm.name == third;
            scenario.tenants.retain(stays);
            for vm in &mut scenario.tenants {
                if key.reading == Reading::Level && vm.objective.priority == Priority::Idle {
                    vm.objective.priority = Priority::BestEffort(Priority::LEVEL_MAX);
                }
                let tolerance = match vm.name.as_str() {
                    "c-research" => RESEARCH,
                    _ => MEDIA,
                };
                set_deadline(vm, BySize { tolerance, ..by });
            }
        }
    }
    Ok(())
}

/// A VM writes records of so many KiB. What is larger than what reaches the host at a time goes in
/// such pieces.
fn records(vm: &mut Tenant, kib: u32, native: bool) {
    for job in &mut vm.jobs {
        let most = job.sizes[1].largest();
        job.sizes[1] = Sizes::fixed(most.min(kib << 10));
    }
    if native {
        vm.delay = Delay::default();
    }
}

/// What the disk was measured to do, in the runs before this one.
fn capacity(scenario: &mut Scenario, key: &Key, basis: &Basis) -> Option<Capacity> {
    match key.case {
        Case::UseCase(which) => {
            let (vms, job) = (scenario.tenants.len(), first_job(scenario).ok()?);
            Some(basis.bounds(which)?.capacity(vms, job.io_size?))
        }
        Case::Media => basis.media,
        _ => basis.web,
    }
}

/// Equations 4.1 and 4.2 on this disk, for two tenants.
fn by_size(scenario: &mut Scenario, key: &Key, basis: &Basis, tolerance: u32) -> Option<BySize> {
    let capacity = capacity(scenario, key, basis)?;
    Some(BySize {
        tolerance,
        max_bandwidth: capacity.alone,
        bandwidth_loss: capacity.loss(),
        tenants: 2,
        as_printed: key.reading == Reading::Printed,
    })
}

fn set_deadline(vm: &mut Tenant, by: BySize) {
    for job in &mut vm.jobs {
        job.deadline = Some(Deadline::BySize(by));
    }
}

/// What reaches the host is of so many KiB, so many at a time, and each takes the hypervisor so
/// many microseconds. `native`: there is no hypervisor.
pub(super) fn put_guest(scenario: &mut Scenario, guest: Guest, native: bool) {
    let processor = TimeDistribution::Fixed(Nanos::from_micros(guest.processor_us));
    for vm in &mut scenario.tenants {
        vm.delay.processor = (!native).then_some(processor);
    }
    for job in jobs(scenario) {
        job.sizes = std::array::from_fn(|_| Sizes::fixed(guest.piece_kib << 10));
        if let Flow::Closed { iodepth, .. } = &mut job.flow {
            *iodepth = guest.depth;
        }
        job.io_size = job.io_size.map(|_| guest.size_mib << 20);
    }
}

/// The free figures of the guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guest {
    /// The largest request that reaches the host.
    pub(super) piece_kib: u32,
    /// So many at a time.
    pub(super) depth: u32,
    /// What the hypervisor takes for one.
    pub(super) processor_us: u64,
    /// What an application of the use cases reads or writes.
    pub(super) size_mib: u64,
}
