//! Builds the scenario of a run of Jain's thesis from its key: the case's file, the scheduler, the
//! change and the interpretation.
//!
//! Deadlines follow equations 4.1 and 4.2: the time that the bytes take at the bandwidth of all VMs
//! together, plus a tolerance, which the thesis calls delta, as a multiple of that time.

use super::basis::{Basis, Capacity};
use super::folder::Folder;
use super::key::{Case, Change, Key, Reading};
use crate::ExperimentError;
use crate::folder::{self as files, set_param};
use tidegate_config::policy;
use tidegate_core::objective::Priority;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, Delay, Scenario, VmSpec};
use tidegate_workload::deadline::{BySize, Deadline};
use tidegate_workload::spec::{Flow, Mix, Sizes, Workload};
use tidegate_workload::time::TimeDistribution;

const SCHEDULERS_TOML: &str = files::embedded!("pridyn", "schedulers.toml");

/// Tolerance of research requests, in thousandths: a delta of 20 as in section 5.4.
const RESEARCH_TOLERANCE: u32 = 20_000;
/// Tolerance of the media servers, in thousandths: the smallest multiple of a half at which two of
/// them meet nine in ten of their deadlines. The thesis says that they meet most.
const MEDIA_TOLERANCE: u32 = 2_500;

/// Reads the policy that stands for a scheduler of the thesis, as `schedulers.toml` has it for an
/// interpretation.
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

/// Builds the scenario of a run.
///
/// # Errors
/// Fails when a file of the experiment is malformed.
pub(crate) fn scenario(
    key: &Key,
    folder: &Folder,
    basis: &Basis,
) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, folder, None)?.config.unbounded();
    let wrong = |what: String| ExperimentError::data(file, what);
    files::set_policy(&mut scenario, &policy(key.scheduler, key.reading)?);
    if key.reading == Reading::Constant {
        put_guest(&mut scenario, CONSTANT, false);
    }
    // After the policy and the guests: some changes concern VMs only.
    change(&mut scenario, key, basis).map_err(wrong)?;
    if key.reading == Reading::Given {
        let unknown = || wrong(format!("{key:?}: its disk was not measured"));
        // After the change, which decides how many VMs there are.
        let capacity = capacity(&mut scenario, key, basis).ok_or_else(unknown)?;
        set_param(&mut scenario, "max_bandwidth", capacity.alone)?;
        set_param(&mut scenario, "bandwidth_loss", capacity.loss())?;
    }
    files::checked(scenario, file, key)
}

fn workloads(scenario: &mut Scenario) -> impl Iterator<Item = &mut Workload> {
    scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads)
}

fn first_workload(scenario: &mut Scenario) -> Result<&mut Workload, String> {
    workloads(scenario)
        .next()
        .ok_or_else(|| "there is no job".to_owned())
}

/// Applies the key's change. `basis`: results of earlier runs, from which some deadlines follow.
fn change(scenario: &mut Scenario, key: &Key, basis: &Basis) -> Result<(), String> {
    let unknown = || format!("{key:?}: a run that its deadlines follow from was not made");
    match key.change {
        #[cfg(test)]
        Change::Nothing => {}
        Change::Records { vms, kib, native } => {
            scenario.vms.truncate(vms);
            for vm in &mut scenario.vms {
                set_record_size(vm, kib, native);
            }
        }
        Change::Operations(all) => {
            scenario.vms.truncate(all.len());
            for (workload, what) in workloads(scenario).zip(all.chars()) {
                workload.rw.mix = if what == 'R' { Mix::Read } else { Mix::Write };
            }
        }
        Change::Default => workloads(scenario).for_each(|workload| workload.deadline = None),
        Change::Best => {
            workloads(scenario).for_each(|workload| workload.deadline = None);
            for (i, vm) in scenario.vms.iter_mut().enumerate() {
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
            first_workload(scenario)?.deadline = Some(Deadline::Fixed(deadline));
        }
        Change::Streams(vms) => scenario.vms.truncate(vms),
        Change::Tolerance { vms, tenths } => {
            scenario.vms.truncate(vms);
            // Tenths become thousandths.
            let by = by_size(scenario, key, basis, tenths * 100).ok_or_else(unknown)?;
            for vm in &mut scenario.vms {
                let tolerance = match vm.name.as_str() {
                    "research" => RESEARCH_TOLERANCE,
                    _ => by.tolerance,
                };
                set_deadline(vm, BySize { tolerance, ..by });
            }
        }
        Change::Third(third) => {
            let by = by_size(scenario, key, basis, MEDIA_TOLERANCE).ok_or_else(unknown)?;
            // Third applications are named `c-`; the scenario has all of them.
            let stays = |vm: &VmSpec| !vm.name.starts_with("c-") || vm.name == third;
            scenario.vms.retain(stays);
            for vm in &mut scenario.vms {
                if key.reading == Reading::Level && vm.objective.priority == Priority::Idle {
                    vm.objective.priority = Priority::BestEffort(Priority::LEVEL_MAX);
                }
                let tolerance = match vm.name.as_str() {
                    "c-research" => RESEARCH_TOLERANCE,
                    _ => MEDIA_TOLERANCE,
                };
                set_deadline(vm, BySize { tolerance, ..by });
            }
        }
    }
    Ok(())
}

/// Makes a VM write records of `kib` KiB. Larger records reach the host in pieces of the scenario's
/// request size.
fn set_record_size(vm: &mut VmSpec, kib: u32, native: bool) {
    for workload in &mut vm.workloads {
        let most = workload.sizes[1].largest();
        // Index 1: the size of writes.
        workload.sizes[1] = Sizes::fixed(most.min(kib << 10));
    }
    if native {
        vm.delay = Delay::default();
    }
}

/// Throughput of the disk as measured in earlier runs.
fn capacity(scenario: &mut Scenario, key: &Key, basis: &Basis) -> Option<Capacity> {
    match key.case {
        Case::UseCase(which) => {
            let (vms, workload) = (scenario.vms.len(), first_workload(scenario).ok()?);
            Some(basis.bounds(which)?.capacity(vms, workload.io_size?))
        }
        Case::Media => basis.media,
        _ => basis.web,
    }
}

/// Deadlines by equations 4.1 and 4.2 on this disk, for two VMs.
fn by_size(scenario: &mut Scenario, key: &Key, basis: &Basis, tolerance: u32) -> Option<BySize> {
    let capacity = capacity(scenario, key, basis)?;
    Some(BySize {
        tolerance,
        max_bandwidth: capacity.alone,
        bandwidth_loss: capacity.loss(),
        vms: 2,
        as_printed: key.reading == Reading::Printed,
    })
}

fn set_deadline(vm: &mut VmSpec, by: BySize) {
    for workload in &mut vm.workloads {
        workload.deadline = Some(Deadline::BySize(by));
    }
}

/// Applies a guest's parameters; `native` leaves out the hypervisor's time.
pub(super) fn put_guest(scenario: &mut Scenario, guest: Guest, native: bool) {
    let mean = Nanos::from_micros(guest.processor_us);
    let processor = match guest.exponential {
        true => TimeDistribution::Exponential { mean },
        false => TimeDistribution::Fixed(mean),
    };
    for vm in &mut scenario.vms {
        vm.delay.processor = (!native).then_some(processor);
    }
    for workload in workloads(scenario) {
        workload.sizes = std::array::from_fn(|_| Sizes::fixed(guest.piece_kib << 10));
        if let Flow::Closed { iodepth, .. } = &mut workload.flow {
            *iodepth = guest.depth;
        }
        // Streams have no amount, and keep it so.
        workload.io_size = workload.io_size.map(|_| guest.size_mib << 20);
    }
}

/// Bulk guests that were fitted with a constant time of the hypervisor.
const CONSTANT: Guest = Guest {
    piece_kib: 128,
    depth: 1,
    processor_us: 1450,
    exponential: false,
    size_mib: 2640,
};

/// Free parameters of the guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guest {
    /// Largest request at the host, in KiB.
    pub(super) piece_kib: u32,
    /// Number of outstanding requests.
    pub(super) depth: u32,
    /// Mean time of the hypervisor for a request, in microseconds.
    pub(super) processor_us: u64,
    /// `true` if the time is distributed exponentially, `false` if it is constant.
    pub(super) exponential: bool,
    /// Bytes that an application of the use cases reads or writes, in MiB.
    pub(super) size_mib: u64,
}
