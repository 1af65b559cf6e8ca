//! The runs there are: what runs beside each other, on which disk, under which scheduler, and what
//! is changed about it.

use super::hosts::{self, Hosts};
use super::saturation::{self, Kind, mix};
use super::without::{PARTS, Without};
use crate::ExperimentError;
use crate::folder::{self, File, named, set_param};
use std::sync::Arc;
use tidegate_config::{Library, policy, profile};
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, DISK_ALIGNMENT, Delay, Scenario};
use tidegate_vcpu::machine::CpuSet;
use tidegate_workload::job::{Flow, Job, Sizes};

const SCHEDULERS_TOML: &str = folder::embedded!("vfair", "schedulers.toml");
const SIDE_BY_SIDE: File = named!("vfair", "ssd-side-by-side.toml");

/// What runs beside each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    LessBacklogged,
    NonBacklogged,
    Bursts,
    Motivation,
    Virtualised,
    Sysbench,
    Postmark,
    Dvdstore,
    Qfs,
    /// One kind of request at a time, which saturates a flash disk.
    Saturation,
}

impl Case {
    /// Its file, and what it says.
    fn file(self) -> File {
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

/// The paper's disks, as they are modelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Disk {
    Ssd,
    Hdd,
}

impl Disk {
    pub(super) const ALL: [Disk; 2] = [Disk::Ssd, Disk::Hdd];

    /// As the paper's figures call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Disk::Ssd => "ssd",
            Disk::Hdd => "hdd",
        }
    }

    /// Its file and its profile's, with what they say.
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

/// What is changed about a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Nothing,
    /// Of a hundred of the first VM's requests, so many read.
    Reads(u8),
    /// The first VM has so many requests outstanding.
    Depth(u32),
    /// The first VM asks so many times a second.
    Rate(u32),
    /// The last VM has so many requests of so many bytes outstanding.
    Last(u32, u32),
    /// On which hosts VMs are, and what these tell each other.
    Hosts(Hosts),
    /// All requests take as long on their way as they do elsewhere through virtualisation.
    Virtualised,
    /// Each vCPU has a pCPU of its own.
    Pinned,
    /// The first VM is alone: as it is, or on Linux itself.
    Alone {
        native: bool,
    },
    /// This is asked for. The seed tells what a profile is made of from what it is held against.
    Kind(Kind, u64),
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) case: Case,
    pub(super) disk: Disk,
    /// One of `schedulers.toml`.
    pub(super) scheduler: &'static str,
    pub(super) change: Change,
    pub(super) without: Without,
}

impl Key {
    pub(super) fn new(case: Case, disk: Disk, scheduler: &'static str) -> Key {
        Key {
            case,
            disk,
            scheduler,
            change: Change::Nothing,
            without: Without::Nothing,
        }
    }

    /// The same with something left out; as it is where there is nothing to leave out. `None`: what
    /// several hosts hang on is shown for the paper's letter.
    pub(super) fn without(self, without: Without) -> Option<Key> {
        let vfair = self.scheduler.starts_with("vfair");
        let several = matches!(self.change, Change::Hosts(hosts) if hosts != Hosts::One);
        let without = match without {
            Without::Letter | Without::Order if vfair && several => return None,
            Without::Letter if vfair => without,
            Without::Order if vfair && self.disk == Disk::Ssd => without,
            Without::Spare | Without::Interface | Without::Buffer
                if self.case == Case::Saturation =>
            {
                without
            }
            _ => Without::Nothing,
        };
        Some(Key { without, ..self })
    }

    pub(super) fn with(self, change: Change) -> Key {
        Key { change, ..self }
    }
}

/// The policy that stands behind a scheduler of the paper, on a disk.
fn policy(name: &'static str, disk: Disk) -> Result<PolicySpec, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let on_hdd = section.read("policy_on_hdd", policy.clone(), policy::from_field);
        match disk {
            Disk::Ssd => Some(policy),
            Disk::Hdd => on_hdd,
        }
    })
}

/// What a run simulates.
///
/// # Errors
/// When a file of the experiment is not what it should be.
pub(super) fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, &Folder, None)?
        .config
        .unbounded();
    put_on(&mut scenario, key.disk)?;
    let policy = policy(key.scheduler, key.disk)?;
    folder::put_under(&mut scenario, &policy);
    hosts::tell_groups(&mut scenario, &policy);
    change(&mut scenario, key.change)?;
    match key.without {
        Without::Nothing => {}
        Without::Letter => {
            set_param(&mut scenario, "slices", PARTS)?;
            set_param(&mut scenario, "lend", 1)?;
            let devices = scenario.devices.iter_mut();
            devices.for_each(|device| device.scheduling.adaptive_depth = true);
        }
        Without::Order => serve_side_by_side(&mut scenario)?,
        without => saturation::leave_out(&mut scenario, without)?,
    }
    folder::checked(scenario, file, key)
}

/// Scenarios are written for the flash disk: on the other one each disk has the same part of the
/// device.
fn put_on(scenario: &mut Scenario, disk: Disk) -> Result<(), ExperimentError> {
    if disk == Disk::Ssd {
        return Ok(());
    }
    let entry = disk.entry()?;
    let profile = Arc::new(disk.profile()?);
    for device in &mut scenario.devices {
        device.put_on(&entry);
        device.scheduling.profile = Some(profile.clone());
    }
    let parts = scenario.tenants.len().max(1) as u64;
    let part = entry.spec().capacity / parts / DISK_ALIGNMENT * DISK_ALIGNMENT;
    for tenant in &mut scenario.tenants {
        tenant.disk_size = part;
    }
    Ok(())
}

/// The scenario's flash disk, but for the order in which it serves what it has.
fn serve_side_by_side(scenario: &mut Scenario) -> Result<(), ExperimentError> {
    let (file, text) = SIDE_BY_SIDE;
    let entry = catalogue::parse(text, file);
    let entry = entry.map_err(|error| ExperimentError::data(file, error))?;
    for device in &mut scenario.devices {
        let profile = device.scheduling.profile.take();
        device.put_on(&entry);
        // What saturates it is the same.
        device.scheduling.profile = profile;
    }
    Ok(())
}

fn change(scenario: &mut Scenario, change: Change) -> Result<(), ExperimentError> {
    let first = |scenario: &mut Scenario, set: &dyn Fn(&mut Job)| {
        let jobs = scenario.tenants.first_mut();
        jobs.into_iter().flat_map(|vm| &mut vm.jobs).for_each(set);
    };
    match change {
        Change::Nothing => {}
        Change::Reads(percent) => first(scenario, &|job| job.rw.mix = mix(percent)),
        Change::Depth(depth) => first(scenario, &|job| set_depth(job, depth)),
        Change::Rate(rate) => first(scenario, &|job| {
            if let Flow::Open { arrivals, .. } = &mut job.flow {
                arrivals.per_s = rate.into();
            }
        }),
        Change::Last(depth, bytes) => {
            let last = scenario.tenants.last_mut();
            for job in last.into_iter().flat_map(|vm| &mut vm.jobs) {
                set_depth(job, depth);
                job.sizes = std::array::from_fn(|_| Sizes::fixed(bytes));
            }
        }
        Change::Hosts(hosts) => hosts.change(scenario),
        Change::Virtualised => {
            let delay = virtualisation()?;
            scenario.tenants.iter_mut().for_each(|vm| vm.delay = delay);
        }
        Change::Kind(kind, seed) => {
            scenario.frame.seed = seed;
            kind.put_into(scenario);
        }
        Change::Pinned => pin(scenario),
        Change::Alone { native } => {
            scenario.tenants.truncate(1);
            scenario.frame.warm_up = Nanos::from_secs(2);
            scenario.frame.duration = Nanos::from_secs(12);
            if native {
                let vms = scenario.tenants.iter_mut();
                vms.for_each(|vm| vm.delay = Delay::default());
            }
        }
    }
    Ok(())
}

/// The driver domain on the first pCPU, the VMs on those after it.
fn pin(scenario: &mut Scenario) {
    let machine = scenario.cpu.as_mut();
    let driver = machine.and_then(|machine| machine.driver.as_mut());
    let vms = scenario.tenants.iter_mut().map(|vm| &mut vm.cpu.cpu);
    let all = driver.map(|driver| &mut driver.cpu).into_iter().chain(vms);
    for (p, cpu) in (0..).zip(all) {
        cpu.pinned = CpuSet::range(p, p);
    }
}

fn set_depth(job: &mut Job, depth: u32) {
    match &mut job.flow {
        Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. } => *iodepth = depth,
    }
}

/// What virtualisation adds, as it was calibrated.
fn virtualisation() -> Result<Delay, ExperimentError> {
    let (file, text) = Case::NonBacklogged.file();
    let scenario = scenario::read(text, file, &Folder, None)?
        .config
        .unbounded();
    let vm = scenario.tenants.first();
    vm.map(|vm| vm.delay)
        .ok_or_else(|| ExperimentError::data(file, "there is no VM"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_workload::time::TimeDistribution;

    #[test]
    fn the_steps_on_processors_take_what_virtualisation_adds() {
        let key = Key::new(Case::Virtualised, Disk::Ssd, "cfq").with(Change::Pinned);
        let scenario = scenario(&key).expect("a scenario");
        let delay = virtualisation().expect("a delay");
        let fixed = |times| match times {
            Some(TimeDistribution::Fixed(time)) => time,
            other => panic!("{other:?}"),
        };
        let driver = scenario.cpu.and_then(|cpu| cpu.driver).expect("one");
        for vm in &scenario.tenants {
            let steps = vm.cpu.issue + driver.submit + driver.complete;
            let steps = steps + vm.cpu.interrupt + vm.cpu.complete;
            assert_eq!(steps, fixed(delay.submit) + fixed(delay.complete));
        }
        let pinned = scenario.tenants.iter().map(|vm| vm.cpu.cpu.pinned);
        let on: Vec<_> = pinned.chain([driver.cpu.pinned]).collect();
        assert_eq!(on, [1, 2, 0].map(|p| CpuSet::range(p, p)));
    }

    /// Comments apart, one figure is all that the two flash disks differ by.
    #[test]
    fn the_disk_that_serves_side_by_side_is_the_other_one_but_for_that() {
        let figures = |text: &'static str| -> Vec<&'static str> {
            let named = |line: &&str| line.starts_with("name") || line.starts_with("description");
            let lines = text
                .lines()
                .filter(|line| !line.starts_with('#') && !line.is_empty());
            lines.filter(|line| !named(line)).collect()
        };
        let [(_, in_order), _] = Disk::Ssd.files();
        let mut side_by_side = figures(SIDE_BY_SIDE.1);
        side_by_side.retain(|line| *line != "interface_sharing = \"interleaved\"");
        assert_eq!(side_by_side, figures(in_order));
        assert_ne!(figures(SIDE_BY_SIDE.1), side_by_side);
        let key = Key::new(Case::NonBacklogged, Disk::Ssd, super::super::BAPS);
        let without = Without::Order;
        let scenario = scenario(&Key { without, ..key }).expect("a scenario");
        let device = &scenario.devices[0];
        assert_eq!(device.model.name, "vfair-ssd-side-by-side");
        assert!(device.scheduling.profile.is_some());
    }
}
