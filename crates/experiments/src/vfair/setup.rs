//! The runs there are: what runs beside each other, on which disk, under which scheduler, and what
//! is changed about it.

use super::hosts::{self, Hosts};
use crate::ExperimentError;
use std::sync::Arc;
use tidegate_config::{Field, Library, document, model, policy, profile};
use tidegate_core::policy::PolicySpec;
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_sim::scenario::{self, DISK_ALIGNMENT, Delay, Scenario};
use tidegate_workload::job::{Flow, Job, Mix, Sizes};

macro_rules! embedded {
    ($file:literal) => {
        include_str!(concat!("../../../../experiments/vfair/", $file))
    };
}
pub(super) use embedded;

const SCHEDULERS_TOML: &str = embedded!("schedulers.toml");
const SIDE_BY_SIDE: (&str, &str) = ("ssd-side-by-side.toml", embedded!("ssd-side-by-side.toml"));

/// What runs beside each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    LessBacklogged,
    NonBacklogged,
    Bursts,
    Motivation,
    Sysbench,
    Postmark,
    Dvdstore,
    Qfs,
}

impl Case {
    /// Its file, and what it says.
    fn scenario(self) -> (&'static str, &'static str) {
        match self {
            Case::LessBacklogged => (
                "less-backlogged.toml",
                embedded!("scenarios/less-backlogged.toml"),
            ),
            Case::NonBacklogged => (
                "non-backlogged.toml",
                embedded!("scenarios/non-backlogged.toml"),
            ),
            Case::Bursts => ("bursts.toml", embedded!("scenarios/bursts.toml")),
            Case::Motivation => ("motivation.toml", embedded!("scenarios/motivation.toml")),
            Case::Sysbench => ("sysbench.toml", embedded!("scenarios/sysbench.toml")),
            Case::Postmark => ("postmark.toml", embedded!("scenarios/postmark.toml")),
            Case::Dvdstore => ("dvdstore.toml", embedded!("scenarios/dvdstore.toml")),
            Case::Qfs => ("qfs.toml", embedded!("scenarios/qfs.toml")),
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
    pub(super) fn files(self) -> [(&'static str, &'static str); 2] {
        match self {
            Disk::Ssd => [
                ("ssd.toml", embedded!("ssd.toml")),
                ("ssd.profile.toml", embedded!("ssd.profile.toml")),
            ],
            Disk::Hdd => [
                ("hdd.toml", embedded!("hdd.toml")),
                ("hdd.profile.toml", embedded!("hdd.profile.toml")),
            ],
        }
    }

    pub(super) fn entry(self) -> Result<Entry, ExperimentError> {
        let [(file, text), _] = self.files();
        catalogue::parse(text, file).map_err(|error| ExperimentError::Data {
            file,
            what: error.to_string(),
        })
    }

    pub(super) fn profile(self) -> Result<Profile, ExperimentError> {
        let [_, (file, text)] = self.files();
        let measured = profile::parse(text, file)?;
        measured.profile().map_err(|error| ExperimentError::Data {
            file,
            what: error.to_string(),
        })
    }
}

/// Finds the experiment's own disks, and those of the catalogue.
struct Folder;

impl Folder {
    fn disk(name: &str, place: usize) -> Option<Disk> {
        let file = name.strip_prefix("../")?;
        Disk::ALL.into_iter().find(|d| d.files()[place].0 == file)
    }
}

impl Library for Folder {
    fn model(&self, name: &str) -> Result<Entry, String> {
        match Folder::disk(name, 0) {
            Some(disk) => disk.entry().map_err(|error| error.to_string()),
            None => model::built_in(name),
        }
    }

    fn profile(&self, path: &str) -> Result<Profile, String> {
        let disk = Folder::disk(path, 1).ok_or_else(|| format!("there is no {path}"))?;
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
    /// The first VM is alone: as it is, or on Linux itself.
    Alone {
        native: bool,
    },
}

/// What a run of vFair's leaves out, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Without {
    /// Nothing.
    Nothing,
    /// The paper's letter: credits come in [`PARTS`], and what a VM leaves is lent by its worth, as the policy has it
    /// unless told otherwise; and the disk has only as many I/Os at a time as its throughput needs.
    Letter,
    /// An order in the flash disk: it serves all that it has side by side.
    Order,
}

/// A period's credits come in so many parts.
const PARTS: u64 = 10;

impl Without {
    /// Everything that is left out to show what a claim hangs on.
    pub(super) const ALL: [Without; 2] = [Without::Letter, Without::Order];

    /// How a sentence about such a run begins.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Without::Nothing => "As it is",
            Without::Letter => "With what Tidegate adds",
            Without::Order => "With a flash disk that serves commands side by side",
        }
    }
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

    pub(super) fn is_vfair(&self) -> bool {
        self.scheduler.starts_with("vfair")
    }

    pub(super) fn without(self, without: Without) -> Key {
        Key { without, ..self }
    }

    pub(super) fn with(self, change: Change) -> Key {
        Key { change, ..self }
    }
}

/// The policy that stands behind a scheduler of the paper, on a disk.
fn policy(name: &'static str, disk: Disk) -> Result<PolicySpec, ExperimentError> {
    let read = |root: &Field<'_>| {
        let mut root = root.section()?;
        let needed = root.need(name, "a table with its policy")?;
        let mut section = needed.section()?;
        let policy = section.need("policy", "policy = \"cfq\"");
        let policy = policy.and_then(|field| policy::from_field(&field))?;
        let on_hdd = section.read("policy_on_hdd", policy.clone(), policy::from_field);
        section.finish();
        Some(match disk {
            Disk::Ssd => policy,
            Disk::Hdd => on_hdd?,
        })
    };
    Ok(document::read(SCHEDULERS_TOML, "schedulers.toml", read)?.config)
}

/// What a run simulates.
///
/// # Errors
/// When a file of the experiment is not what it should be.
pub(super) fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.scenario();
    let mut scenario = scenario::read(text, file, &Folder, None)?.config;
    put_on(&mut scenario, key.disk)?;
    let policy = policy(key.scheduler, key.disk)?;
    for device in &mut scenario.devices {
        device.policy = policy.clone();
    }
    hosts::tell_groups(&mut scenario, &policy);
    change(&mut scenario, key.change)?;
    match key.without {
        Without::Nothing => {}
        Without::Letter => {
            for device in &mut scenario.devices {
                for (param, value) in [("slices", PARTS), ("lend", 1)] {
                    let set = device.policy.set(param, value);
                    set.map_err(|error| ExperimentError::Data {
                        file: "schedulers.toml",
                        what: error.to_string(),
                    })?;
                }
                device.steering.adaptive_depth = true;
            }
        }
        Without::Order if key.disk == Disk::Ssd => serve_side_by_side(&mut scenario)?,
        Without::Order => {}
    }
    scenario.check().map_err(|error| ExperimentError::Data {
        file,
        what: format!("{key:?}: {error}"),
    })?;
    Ok(scenario)
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
        device.profile = Some(profile.clone());
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
    let entry = catalogue::parse(text, file).map_err(|error| ExperimentError::Data {
        file,
        what: error.to_string(),
    })?;
    for device in &mut scenario.devices {
        let profile = device.profile.take();
        device.put_on(&entry);
        // What saturates it is the same.
        device.profile = profile;
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
        Change::Alone { native } => {
            scenario.tenants.truncate(1);
            scenario.warm_up = Nanos::from_secs(2);
            scenario.duration = Nanos::from_secs(12);
            if native {
                let vms = scenario.tenants.iter_mut();
                vms.for_each(|vm| vm.delay = Delay::default());
            }
        }
    }
    Ok(())
}

fn set_depth(job: &mut Job, depth: u32) {
    match &mut job.flow {
        Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. } => *iodepth = depth,
    }
}

/// A job's mix, by its reads in a hundred.
pub(super) fn mix(reads: u8) -> Mix {
    match reads {
        0 => Mix::Write,
        100 => Mix::Read,
        read_percent => Mix::ReadWrite { read_percent },
    }
}

/// What virtualisation adds, as it was calibrated.
fn virtualisation() -> Result<Delay, ExperimentError> {
    let (file, text) = Case::NonBacklogged.scenario();
    let scenario = scenario::read(text, file, &Folder, None)?.config;
    let vm = scenario.tenants.first();
    vm.map(|vm| vm.delay).ok_or_else(|| ExperimentError::Data {
        file,
        what: "there is no VM".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let scenario = scenario(&key.without(Without::Order)).expect("a scenario");
        let device = &scenario.devices[0];
        assert_eq!(device.model.name, "vfair-ssd-side-by-side");
        assert!(device.profile.is_some());
    }
}
