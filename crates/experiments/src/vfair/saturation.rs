//! The throughput of a device that is saturated with one kind of request, and its profile.

use super::{SATURATION_TOML, setup};
use crate::{ExperimentError, pool};
use std::collections::BTreeMap;
use tidegate_config::model;
use tidegate_core::profile::{Access, Curve, Direction, Profile};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_sim::scenario::{self, Scenario};
use tidegate_sim::world::World;
use tidegate_workload::job::Sizes;

/// The disk of figure 6.
const DISK_TOML: &str = include_str!("../../../../devices/ssd-sata-300gb.toml");
const DISK: &str = "ssd-sata-300gb";

/// What is changed about the disk, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Changed {
    /// Nothing.
    Nothing,
    /// It has written all over itself, so that blocks are collected before they are written again. A
    /// sixteenth of it is there: what is spare is the same part of it, and used up sixteen times as soon.
    Used,
    /// An interface that takes hardly any time.
    Interface,
    /// A write buffer for a few requests.
    Buffer,
}

/// A sixteenth of the disk, in whole blocks: all of it, and what is spare.
const SIXTEENTH: [&str; 2] = ["18754314240 B", "1356 MB"];
/// The VM's disk in the scenario, and on a sixteenth.
const VM_DISK: [&str; 2] = ["\"300069 MB\"", "\"18754 MB\""];

impl Changed {
    /// Everything that is changed to show what a claim hangs on.
    pub(super) const ALL: [Changed; 3] = [Changed::Used, Changed::Interface, Changed::Buffer];

    /// How a sentence about such runs begins.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Changed::Nothing => "As it is",
            Changed::Used => "On a disk that has used up its spare blocks",
            Changed::Interface => "With ten times the interface",
            Changed::Buffer => "With a write buffer of 256 KiB",
        }
    }

    fn disk(self) -> Result<Entry, String> {
        let mut text: toml::Table = DISK_TOML.parse().map_err(|e| format!("{DISK}: {e}"))?;
        let mut set = |path: &[&str], value: &str| {
            let (key, tables) = path.split_last()?;
            let root = Some(&mut text);
            let table = (tables.iter()).fold(root, |t, key| t?.get_mut(*key)?.as_table_mut())?;
            table.insert((*key).to_owned(), value.into())
        };
        let changes: &[(&[&str], &str)] = match self {
            Changed::Nothing => return model::built_in(DISK),
            Changed::Used => &[
                (&["ssd", "capacity"], SIXTEENTH[0]),
                (&["ssd", "garbage_collection", "filled"], SIXTEENTH[0]),
                (&["ssd", "garbage_collection", "spare"], SIXTEENTH[1]),
            ],
            Changed::Interface => &[(&["ssd", "interface_rate"], "2700 MB/s")],
            Changed::Buffer => &[(&["ssd", "write_buffer", "size"], "256 KiB")],
        };
        for (path, value) in changes {
            set(path, value).ok_or_else(|| format!("{DISK} has no {}", path.join(".")))?;
        }
        catalogue::parse(&text.to_string(), DISK).map_err(|error| error.to_string())
    }

    /// The scenario's text.
    fn scenario(self) -> String {
        match self {
            Changed::Used => SATURATION_TOML.replace(VM_DISK[0], VM_DISK[1]),
            _ => SATURATION_TOML.to_owned(),
        }
    }

    /// For how long it runs: a disk takes a while to be used up.
    fn run_for(self, scenario: &mut Scenario) {
        if self == Changed::Used {
            scenario.warm_up = Nanos::from_secs(80);
            scenario.duration = Nanos::from_secs(100);
        }
    }
}

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Kind {
    pub(super) access: Access,
    /// Of a hundred, so many read.
    pub(super) reads: u8,
    /// Bytes of each.
    pub(super) size: u32,
}

/// A run: what saturates the disk, and what is changed about that. The seed tells what a profile is made of
/// from what it is held against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) seed: u64,
    pub(super) changed: Changed,
}

fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let find = |name: &str| match name == DISK {
        true => key.changed.disk(),
        false => model::built_in(name),
    };
    let mut scenario =
        scenario::read(&key.changed.scenario(), "saturation.toml", &find, None)?.config;
    scenario.seed = key.seed;
    key.changed.run_for(&mut scenario);
    for job in scenario.tenants.iter_mut().flat_map(|vm| &mut vm.jobs) {
        job.rw.random = key.kind.access == Access::Random;
        job.rw.mix = setup::mix(key.kind.reads);
        job.sizes = std::array::from_fn(|_| Sizes::fixed(key.kind.size));
    }
    Ok(scenario)
}

/// Requests a second of each run, in the order of the list.
pub(super) fn run(
    keys: &[Key],
    jobs: usize,
    progress: crate::Progress<'_>,
) -> Result<BTreeMap<Key, f64>, ExperimentError> {
    let scenarios: Vec<Scenario> = keys.iter().map(scenario).collect::<Result<_, _>>()?;
    let iops = pool::each(&scenarios, jobs, progress, |scenario| {
        let mut world = World::new(scenario.clone(), None);
        world.run(&mut |_| {});
        let report = world.report();
        report.vms.iter().map(|vm| vm.rates.iops).sum::<f64>()
    });
    Ok(keys.iter().copied().zip(iops).collect())
}

/// What a profile is measured with: each size, random mixes by their reads in a hundred.
pub(super) const PROFILE_SIZES: [u32; 5] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
pub(super) const PROFILE_MIXES: [u8; 3] = [25, 50, 75];

/// The runs that a profile is made of.
pub(super) fn profile_kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for size in PROFILE_SIZES {
        for access in [Access::Sequential, Access::Random] {
            for reads in [0, 100] {
                kinds.push(Kind {
                    access,
                    reads,
                    size,
                });
            }
        }
        kinds.extend(PROFILE_MIXES.map(|reads| Kind {
            access: Access::Random,
            reads,
            size,
        }));
    }
    kinds
}

/// The profile that rates at saturation make.
pub(super) fn profile(iops: impl Fn(Kind) -> f64) -> Result<Profile, ExperimentError> {
    let curve = |access, reads| {
        let points = PROFILE_SIZES.map(|size| {
            let kind = Kind {
                access,
                reads,
                size,
            };
            (size, iops(kind))
        });
        Curve::new(&points).map_err(|error| ExperimentError::Data {
            file: "scenarios/saturation.toml",
            what: format!("what was measured is no curve: {error}"),
        })
    };
    let both = |direction| {
        let reads = if direction == Direction::Read { 100 } else { 0 };
        Ok::<_, ExperimentError>([
            curve(Access::Sequential, reads)?,
            curve(Access::Random, reads)?,
        ])
    };
    let mut mixes = Vec::new();
    for reads in PROFILE_MIXES {
        mixes.push((u32::from(reads) * 10, curve(Access::Random, reads)?));
    }
    let (reads, writes) = (both(Direction::Read)?, both(Direction::Write)?);
    Ok(Profile::new(reads, Some(writes), mixes, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_can_be_made() {
        for kind in profile_kinds() {
            for changed in Changed::ALL.into_iter().chain([Changed::Nothing]) {
                let key = Key {
                    kind,
                    seed: 1,
                    changed,
                };
                let scenario = scenario(&key).expect("a scenario");
                scenario.check().expect("sound");
                assert_eq!(
                    scenario.tenants[0].jobs[0].sizes[0],
                    Sizes::fixed(kind.size)
                );
            }
        }
    }
}
