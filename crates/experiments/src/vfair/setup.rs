//! Builds the scenario of a run of the vFair paper (Lu et al., SoCC 2015) from its key: case, disk,
//! scheduler and change.

use super::ablation::{self, Ablation, NO_TARGET, PARTS};
use super::hosts::{self, Hosts};
use super::saturation::{self, Kind, mix};
use crate::ExperimentError;
use crate::folder::{self, File, named, set_param};
use std::sync::Arc;
use tidegate_config::{Library, policy, profile};
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, DISK_ALIGNMENT, Delay, Device as SimDevice, Scenario};
use tidegate_vcpu::machine::CpuSet;
use tidegate_workload::spec::{Flow, Sizes, Workload};

pub(super) const SCHEDULERS_TOML: &str = folder::embedded!("vfair", "schedulers.toml");
/// Replaced reading of the flash disk, and its profile.
const IN_ORDER: [File; 2] = [
    named!("vfair", "ssd-in-order.toml"),
    named!("vfair", "ssd-in-order.profile.toml"),
];
/// Figures of the replaced reading of the hard disk: nothing is read on before the arm turns away,
/// and waiting is worth nothing but for `max_wait`.
const LEAVES_STREAMS: [(&[&str], &str); 2] = [
    (&["hdd", "read_ahead", "minimum"], "0 B"),
    (&["hdd", "ncq", "ageing"], "0 ns"),
];
/// Size of an image on the flash disk, in bytes.
const IMAGE: u64 = 100_000_000_000;

/// Workloads that run side by side; the case's scenario file describes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Small requests beside two VMs of large ones: figures 9 and 11, table 2.
    LessBacklogged,
    /// One sequential read at a time beside two VMs of large random ones: figures 8 and 10, tables
    /// 3 and 4.
    NonBacklogged,
    /// VM that asks at a rate of its own beside one that always waits: figure 12.
    Bursts,
    /// Two processes on Linux itself: figure 1.
    Motivation,
    /// The processes of figure 1 in two VMs: figure 1(c).
    Virtualised,
    /// Database beside transfers of large files: figure 13, table 5.
    Sysbench,
    /// Mail server beside transfers of large files: figure 13, table 5.
    Postmark,
    /// Web shop beside transfers of large files: figure 13, table 5.
    Dvdstore,
    /// Database beside a distributed file system: figure 14, table 5.
    Qfs,
    /// Kinds of requests one at a time, each of which saturates a flash disk.
    Saturation,
}

impl Case {
    /// Scenario file of the case.
    pub(super) fn file(self) -> File {
        match self {
            Case::LessBacklogged => named!("vfair/scenarios", "less-backlogged.toml"),
            Case::NonBacklogged => named!("vfair/scenarios", "non-backlogged.toml"),
            Case::Bursts => named!("vfair/scenarios", "bursts.toml"),
            Case::Motivation => named!("vfair/scenarios", "motivation.toml"),
            Case::Virtualised => named!("vfair/scenarios", "virtualised.toml"),
            Case::Sysbench => named!("vfair/scenarios", "sysbench.toml"),
            Case::Postmark => named!("vfair/scenarios", "postmark.toml"),
            Case::Dvdstore => named!("vfair/scenarios", "dvdstore.toml"),
            Case::Qfs => named!("vfair/scenarios", "qfs.toml"),
            Case::Saturation => named!("vfair/scenarios", "saturation.toml"),
        }
    }
}

/// Disks of the paper's testbed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Disk {
    Ssd,
    Hdd,
}

impl Disk {
    pub(super) const ALL: [Disk; 2] = [Disk::Ssd, Disk::Hdd];

    /// Name in the paper's figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Disk::Ssd => "ssd",
            Disk::Hdd => "hdd",
        }
    }

    /// Files of the disk and of its profile.
    pub(super) fn files(self) -> [File; 2] {
        match self {
            Disk::Ssd => [
                named!("vfair", "ssd.toml"),
                named!("vfair", "ssd.profile.toml"),
            ],
            Disk::Hdd => [
                named!("vfair", "hdd.toml"),
                named!("vfair", "hdd.profile.toml"),
            ],
        }
    }

    pub(super) fn entry(self) -> Result<Entry, ExperimentError> {
        let [(file, text), _] = self.files();
        catalogue::parse(text, file).map_err(|error| ExperimentError::data(file, error))
    }

    pub(super) fn profile(self) -> Result<Profile, ExperimentError> {
        let [_, (file, text)] = self.files();
        let measured = profile::parse(text, file)?;
        (measured.profile()).map_err(|error| ExperimentError::data(file, error))
    }
}

/// Finds the experiment's own disks, and those of the catalogue.
struct Folder;

impl Library for Folder {
    fn model(&self, name: &str) -> Result<Entry, String> {
        folder::model(name, &Disk::ALL.map(|disk| disk.files()[0]))
    }

    fn profile(&self, path: &str) -> Result<Profile, String> {
        let file = path.strip_prefix("../");
        let mut disks = Disk::ALL.into_iter();
        let disk = disks.find(|disk| Some(disk.files()[1].0) == file);
        let disk = disk.ok_or_else(|| format!("there is no {path}"))?;
        disk.profile().map_err(|error| error.to_string())
    }
}

/// Change of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Nothing,
    /// Percentage of reads of the first VM.
    Reads(u8),
    /// Outstanding requests of the first VM.
    Depth(u32),
    /// Request rate of the first VM, per second.
    Rate(u32),
    /// Load of the last VM.
    Last {
        /// Outstanding requests.
        depth: u32,
        /// Size of a request.
        bytes: u32,
    },
    /// Hosts of the VMs, and their messages.
    Hosts(Hosts),
    /// Virtualisation delay for all requests, as calibrated.
    Virtualised,
    /// A pCPU for each vCPU.
    Pinned,
    /// First VM alone: virtualised, or on bare Linux.
    Alone {
        native: bool,
    },
    /// Kind of request for all workloads.
    Kind {
        kind: Kind,
        /// Separates the runs of a profile from those it is compared with.
        seed: u64,
    },
}

/// Identity of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) case: Case,
    pub(super) disk: Disk,
    /// Scheduler of `schedulers.toml`.
    pub(super) scheduler: &'static str,
    pub(super) change: Change,
    pub(super) ablation: Ablation,
}

impl Key {
    pub(super) fn new(case: Case, disk: Disk, scheduler: &'static str) -> Key {
        Key {
            case,
            disk,
            scheduler,
            change: Change::Nothing,
            ablation: Ablation::Unchanged,
        }
    }

    /// Key of the run with an ablation, unchanged where the ablation has no effect. `None` for
    /// vFair on several hosts, which is run as it is but where the ablation is about hosts.
    pub(super) fn with_ablation(self, ablation: Ablation) -> Option<Key> {
        let vfair = self.scheduler.starts_with("vfair");
        let several = matches!(self.change, Change::Hosts(hosts) if hosts != Hosts::One);
        let unheard = matches!(
            self.change,
            Change::Hosts(Hosts::Told {
                lost_percent: 100,
                ..
            })
        );
        let (on_ssd, on_hdd) = (self.disk == Disk::Ssd, self.disk == Disk::Hdd);
        // Figures 1 and 6 have a disk of their own.
        let shares = !matches!(
            self.case,
            Case::Motivation | Case::Virtualised | Case::Saturation
        );
        let has_effect = match ablation {
            Ablation::Unchanged => false,
            Ablation::WithAdditions | Ablation::CommonFeedback | Ablation::SwappedCreditParts => {
                vfair
            }
            Ablation::LatencyAtPeriodEnd => vfair && on_ssd,
            Ablation::InOrderFlash => shares && on_ssd,
            Ablation::PositionOnlyDisk | Ablation::AdjacentImages => on_hdd,
            Ablation::FourOutstanding => self.case == Case::LessBacklogged,
            Ablation::NoSpareBlocks
            | Ablation::FastInterface
            | Ablation::SmallWriteBuffer
            | Ablation::InterfaceTurnaround
            | Ablation::SingleServer => self.case == Case::Saturation,
            Ablation::DeepSlices => self.case == Case::Motivation,
            Ablation::NoIdling => shares && on_hdd && self.scheduler == "cfq",
            Ablation::TwoProcessors => {
                self.case == Case::Virtualised && self.change != Change::Pinned
            }
            Ablation::BatchedSteps => self.case == Case::Virtualised,
            Ablation::EightProcesses => self.case == Case::Postmark,
            Ablation::UnheardLatency => vfair && unheard,
            Ablation::CountedRequests => self.scheduler == "mclock_ps",
        };
        let of_hosts = matches!(
            ablation,
            Ablation::UnheardLatency | Ablation::EightProcesses
        );
        if has_effect && vfair && several && !of_hosts {
            return None;
        }
        // Ablations without effect share one key, so that the run is made once.
        let ablation = if has_effect {
            ablation
        } else {
            Ablation::Unchanged
        };
        Some(Key { ablation, ..self })
    }

    pub(super) fn with(self, change: Change) -> Key {
        Key { change, ..self }
    }
}

/// Policy that stands for a scheduler of the paper, on a disk.
fn policy(name: &'static str, disk: Disk) -> Result<PolicySpec, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let on_hdd = section.read("policy_on_hdd", policy.clone(), policy::from_field);
        match disk {
            Disk::Ssd => Some(policy),
            Disk::Hdd => on_hdd,
        }
    })
}

/// Scenario of a run.
///
/// # Errors
/// Fails when a file of the experiment is malformed.
pub(super) fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, &Folder, None)?
        .config
        .unbounded();
    move_to_disk(&mut scenario, key.disk)?;
    let policy = policy(key.scheduler, key.disk)?;
    folder::set_policy(&mut scenario, &policy);
    hosts::split_group_weights(&mut scenario, &policy);
    apply_change(&mut scenario, key.change)?;
    apply_ablation(&mut scenario, key)?;
    folder::checked(scenario, file, key)
}

/// Applies the ablation of a run.
fn apply_ablation(scenario: &mut Scenario, key: &Key) -> Result<(), ExperimentError> {
    match key.ablation {
        Ablation::Unchanged => {}
        Ablation::WithAdditions => {
            set_param(scenario, "slices", PARTS)?;
            set_param(scenario, "lend", 1)?;
            let devices = scenario.devices.iter_mut();
            devices.for_each(|device| device.scheduling.adaptive_depth = true);
        }
        // The second of the parameter's words.
        Ablation::CommonFeedback => set_param(scenario, "correction", 1)?,
        Ablation::LatencyAtPeriodEnd => set_param(scenario, "latency_over", 1)?,
        Ablation::SwappedCreditParts => match key.disk {
            Disk::Ssd => set_param(scenario, "slices", 1)?,
            Disk::Hdd => set_param(scenario, "slices", PARTS)?,
        },
        // The second of the parameter's words.
        Ablation::CountedRequests => set_param(scenario, "cost", 1)?,
        Ablation::DeepSlices => set_param(scenario, "slice_depth", 32)?,
        Ablation::NoIdling => set_param(scenario, "slice_idle", 0)?,
        Ablation::TwoProcessors => ablation::set_pcpus(scenario, 2),
        Ablation::BatchedSteps => ablation::batch_steps(scenario),
        Ablation::EightProcesses => ablation::set_processes(scenario, 8),
        Ablation::UnheardLatency => set_param(scenario, "latency_target", NO_TARGET)?,
        Ablation::InOrderFlash => serve_in_order(scenario)?,
        Ablation::PositionOnlyDisk => {
            let changes = LEAVES_STREAMS.map(|(path, figure)| (path, figure.to_owned()));
            let entry = folder::model_with(Disk::Hdd.files()[0], &changes)?;
            let devices = scenario.devices.iter_mut();
            devices.for_each(|device| put_on(device, &entry));
        }
        Ablation::AdjacentImages => {
            let vms = scenario.vms.iter_mut();
            vms.for_each(|vm| vm.disk_size = IMAGE);
        }
        Ablation::FourOutstanding => {
            let first = scenario.vms.first_mut();
            let workloads = first.into_iter().flat_map(|vm| &mut vm.workloads);
            workloads.for_each(|workload| set_depth(workload, 1));
        }
        ablation => saturation::leave_out(scenario, ablation)?,
    }
    Ok(())
}

/// Moves a scenario, written for the flash disk, to `disk`: each VM gets an equal part of the
/// device.
fn move_to_disk(scenario: &mut Scenario, disk: Disk) -> Result<(), ExperimentError> {
    if disk == Disk::Ssd {
        return Ok(());
    }
    let entry = disk.entry()?;
    let profile = Arc::new(disk.profile()?);
    for device in &mut scenario.devices {
        device.put_on(&entry);
        device.scheduling.profile = Some(profile.clone());
    }
    let parts = scenario.vms.len().max(1) as u64;
    // Rounded down to the alignment of disks.
    let part = entry.spec().capacity / parts / DISK_ALIGNMENT * DISK_ALIGNMENT;
    for vm in &mut scenario.vms {
        vm.disk_size = part;
    }
    Ok(())
}

/// Replaces the flash disk by the one that serves its commands in order.
fn serve_in_order(scenario: &mut Scenario) -> Result<(), ExperimentError> {
    let [(file, text), (profile_file, profile_text)] = IN_ORDER;
    let entry = catalogue::parse(text, file);
    let entry = entry.map_err(|error| ExperimentError::data(file, error))?;
    let profile = profile::parse(profile_text, profile_file)?.profile();
    let profile = profile.map_err(|error| ExperimentError::data(profile_file, error))?;
    let profile = Arc::new(profile);
    for device in &mut scenario.devices {
        put_on(device, &entry);
        device.scheduling.profile = Some(profile.clone());
    }
    Ok(())
}

/// Puts a device on another model that has the same profile.
fn put_on(device: &mut SimDevice, entry: &Entry) {
    let profile = device.scheduling.profile.take();
    device.put_on(entry);
    device.scheduling.profile = profile;
}

fn apply_change(scenario: &mut Scenario, change: Change) -> Result<(), ExperimentError> {
    let first = |scenario: &mut Scenario, set: &dyn Fn(&mut Workload)| {
        let workloads = scenario.vms.first_mut();
        workloads
            .into_iter()
            .flat_map(|vm| &mut vm.workloads)
            .for_each(set);
    };
    match change {
        Change::Nothing => {}
        Change::Reads(percent) => first(scenario, &|workload| workload.rw.mix = mix(percent)),
        Change::Depth(depth) => first(scenario, &|workload| set_depth(workload, depth)),
        Change::Rate(rate) => first(scenario, &|workload| {
            if let Flow::Open { arrivals, .. } = &mut workload.flow {
                arrivals.per_s = rate.into();
            }
        }),
        Change::Last { depth, bytes } => {
            let last = scenario.vms.last_mut();
            for workload in last.into_iter().flat_map(|vm| &mut vm.workloads) {
                set_depth(workload, depth);
                workload.sizes = std::array::from_fn(|_| Sizes::fixed(bytes));
            }
        }
        Change::Hosts(hosts) => hosts.change(scenario),
        Change::Virtualised => {
            let delay = virtualisation()?;
            scenario.vms.iter_mut().for_each(|vm| vm.delay = delay);
        }
        Change::Kind { kind, seed } => {
            scenario.frame.seed = seed;
            kind.put_into(scenario);
        }
        Change::Pinned => pin(scenario),
        Change::Alone { native } => {
            scenario.vms.truncate(1);
            // Alone, a VM is steady at once; the mean over 10 s suffices.
            scenario.frame.warm_up = Nanos::from_secs(2);
            scenario.frame.duration = Nanos::from_secs(12);
            // Bare Linux has no hypervisor on the way to the disk.
            if native {
                let vms = scenario.vms.iter_mut();
                vms.for_each(|vm| vm.delay = Delay::default());
            }
        }
    }
    Ok(())
}

/// Pins the driver domain to the first pCPU and each VM to one after it.
fn pin(scenario: &mut Scenario) {
    let machine = scenario.cpu.as_mut();
    let driver = machine.and_then(|machine| machine.driver.as_mut());
    let vms = scenario.vms.iter_mut().map(|vm| &mut vm.cpu.cpu);
    let all = driver.map(|driver| &mut driver.cpu).into_iter().chain(vms);
    // The driver domain comes first in the chain and gets pCPU 0.
    for (p, cpu) in (0..).zip(all) {
        cpu.pinned = CpuSet::range(p, p);
    }
}

fn set_depth(workload: &mut Workload, depth: u32) {
    match &mut workload.flow {
        Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. } => *iodepth = depth,
    }
}

/// Calibrated virtualisation delay.
fn virtualisation() -> Result<Delay, ExperimentError> {
    let (file, text) = Case::NonBacklogged.file();
    let scenario = scenario::read(text, file, &Folder, None)?
        .config
        .unbounded();
    let vm = scenario.vms.first();
    vm.map(|vm| vm.delay)
        .ok_or_else(|| ExperimentError::data(file, "there is no VM"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::policy::Policy;
    use tidegate_core::profile::{Estimation, Pattern};
    use tidegate_workload::time::TimeDistribution;

    #[test]
    fn cpu_steps_sum_to_the_virtualisation_delay() {
        let key = Key::new(Case::Virtualised, Disk::Ssd, "cfq").with(Change::Pinned);
        let scenario = scenario(&key).expect("a scenario");
        let delay = virtualisation().expect("a delay");
        let fixed = |times| match times {
            Some(TimeDistribution::Fixed(time)) => time,
            other => panic!("{other:?}"),
        };
        let driver = scenario.cpu.and_then(|cpu| cpu.driver).expect("one");
        for vm in &scenario.vms {
            let steps = vm.cpu.issue + driver.submit + driver.complete;
            let steps = steps + vm.cpu.interrupt + vm.cpu.complete;
            assert_eq!(steps, fixed(delay.submit) + fixed(delay.complete));
        }
        let pinned = scenario.vms.iter().map(|vm| vm.cpu.cpu.pinned);
        let on: Vec<_> = pinned.chain([driver.cpu.pinned]).collect();
        assert_eq!(on, [1, 2, 0].map(|p| CpuSet::range(p, p)));
    }

    #[test]
    fn hosts_hold_no_latency_only_where_they_hear_nothing_and_only_in_the_ablation() {
        let told = |lost_percent, ablation| {
            let hosts = Hosts::Told {
                delay_ms: 0,
                lost_percent,
            };
            let key = Key::new(Case::Sysbench, Disk::Ssd, super::super::BAPS);
            let key = key.with(Change::Hosts(hosts)).with_ablation(ablation);
            let scenario = scenario(&key.expect("it is run")).expect("a scenario");
            let policy = &scenario.devices[0].scheduling.policy;
            let params = policy.params().iter();
            let target = params
                .map(|(info, value)| (info.name, *value))
                .find(|(name, _)| *name == "latency_target");
            target.expect("a target").1
        };
        assert_eq!(told(100, Ablation::UnheardLatency), NO_TARGET);
        assert_eq!(told(100, Ablation::Unchanged), 5_000_000);
        assert_eq!(told(20, Ablation::UnheardLatency), 5_000_000);
    }

    #[test]
    fn requests_are_counted_by_ps_mclock_alone_and_only_in_the_ablation() {
        let cost = |scheduler, ablation| {
            let key = Key::new(Case::LessBacklogged, Disk::Hdd, scheduler);
            let key = key.with_ablation(ablation).expect("it is run");
            let policy = scenario(&key).expect("a scenario").devices.swap_remove(0);
            let policy = policy.scheduling.policy;
            let cost = policy.params().iter().find(|(info, _)| info.name == "cost");
            cost.expect("a cost").1
        };
        // Words of `cost` in their order: bytes, requests, size-classes, device-time.
        assert_eq!(cost("mclock_ps", Ablation::Unchanged), 2);
        assert_eq!(cost("mclock_ps", Ablation::CountedRequests), 1);
        let key = Key::new(Case::LessBacklogged, Disk::Hdd, "cfq");
        assert_eq!(key.with_ablation(Ablation::CountedRequests), Some(key));
    }

    #[test]
    fn ablations_of_one_case_change_that_case_alone() {
        for (ablation, case, disk) in [
            (Ablation::DeepSlices, Case::Motivation, Disk::Ssd),
            (Ablation::NoIdling, Case::NonBacklogged, Disk::Hdd),
            (Ablation::TwoProcessors, Case::Virtualised, Disk::Ssd),
            (Ablation::BatchedSteps, Case::Virtualised, Disk::Ssd),
            (Ablation::SingleServer, Case::Saturation, Disk::Ssd),
            (Ablation::EightProcesses, Case::Postmark, Disk::Ssd),
        ] {
            let key = Key::new(case, disk, "cfq");
            let other = Key::new(Case::Sysbench, Disk::Ssd, "cfq");
            assert_eq!(other.with_ablation(ablation), Some(other), "{ablation:?}");
            let without = key.with_ablation(ablation).expect("it is run");
            let text = |key| format!("{:?}", scenario(key).expect("a scenario"));
            assert_ne!(text(&without), text(&key), "{ablation:?}");
        }
        let virtualised = |ablation| {
            let key = Key::new(Case::Virtualised, Disk::Ssd, "cfq");
            let key = key.with_ablation(ablation).expect("it is run");
            scenario(&key).expect("a scenario")
        };
        let host = virtualised(Ablation::TwoProcessors).cpu.expect("a host");
        assert_eq!(host.machine.pcpus, 2);
        let batched = virtualised(Ablation::BatchedSteps);
        let driver = batched.cpu.and_then(|cpu| cpu.driver).expect("one");
        let issue = |vm: usize| batched.vms[vm].cpu.issue;
        assert_eq!(driver.submit, Nanos(2600));
        assert_eq!([issue(0), issue(1)], [Nanos(20_800), Nanos(2600)]);
        // Where each vCPU has a pCPU of its own, two pCPUs would not do.
        let pinned = Key::new(Case::Virtualised, Disk::Ssd, "cfq").with(Change::Pinned);
        assert_eq!(pinned.with_ablation(Ablation::TwoProcessors), Some(pinned));
    }

    #[test]
    fn replaced_disks_are_what_they_were() {
        let run = |case, disk, ablation| {
            let key = Key::new(case, disk, super::super::BAPS);
            scenario(&Key { ablation, ..key }).expect("a scenario")
        };
        let in_order = run(Case::NonBacklogged, Disk::Ssd, Ablation::InOrderFlash);
        let device = &in_order.devices[0];
        assert_eq!(device.model.name, "vfair-ssd-in-order");
        // The profile is its own: one command takes it 123 us.
        let profile = device.scheduling.profile.as_ref().expect("a profile");
        let pattern = Pattern {
            reads: 1.0,
            sequential_reads: 0.0,
            sequential_writes: 0.0,
            size: 16384.0,
        };
        let iops = profile.saturation_iops(&pattern, Estimation::ThreeD);
        assert!((iops - 8130.0).abs() < 1.0, "{iops}");
        let drive = run(Case::NonBacklogged, Disk::Hdd, Ablation::PositionOnlyDisk);
        let usual = run(Case::NonBacklogged, Disk::Hdd, Ablation::Unchanged);
        assert!(drive.devices[0].scheduling.profile.is_some());
        let [drive, usual] = [drive, usual].map(|s| format!("{:?}", s.devices[0].model));
        assert_ne!(drive, usual);
        let images = run(Case::LessBacklogged, Disk::Hdd, Ablation::AdjacentImages);
        assert!(images.vms.iter().all(|vm| vm.disk_size == IMAGE));
    }
}
