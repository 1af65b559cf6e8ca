//! The throughput of a device that is saturated with one kind of request, and its profile.

use super::without::Without;
use crate::ExperimentError;
use crate::folder::{self, File};
use tidegate_core::profile::{Access, Curve, Direction, Profile};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_sim::scenario::Scenario;
use tidegate_workload::job::{Mix, Sizes};

/// The disk of figure 6.
const DISK: File = (
    "ssd-sata-300gb.toml",
    include_str!("../../../../devices/ssd-sata-300gb.toml"),
);

/// A sixteenth of the disk, in whole blocks: all of it, and what is spare. What is spare is the
/// same part of it, and used up sixteen times as soon.
const SIXTEENTH: [&str; 2] = ["18754314240 B", "1356 MB"];
/// The VM's disk on it.
const VM_DISK: u64 = 18_754_000_000;

/// The disk with something left out.
fn disk(without: Without) -> Result<Entry, ExperimentError> {
    let changes: &[(&[&str], &str)] = match without {
        Without::Spare => &[
            (&["ssd", "capacity"], SIXTEENTH[0]),
            (&["ssd", "garbage_collection", "filled"], SIXTEENTH[0]),
            (&["ssd", "garbage_collection", "spare"], SIXTEENTH[1]),
        ],
        Without::Interface => &[(&["ssd", "interface_rate"], "2700 MB/s")],
        Without::Buffer => &[(&["ssd", "write_buffer", "size"], "256 KiB")],
        Without::Nothing | Without::Letter | Without::Order => &[],
    };
    let changes: Vec<_> = changes
        .iter()
        .map(|(path, figure)| (*path, (*figure).to_owned()))
        .collect();
    folder::altered(DISK, &changes)
}

/// Leaves something out of the disk that is saturated.
///
/// # Errors
/// When the disk's file is not what it should be.
pub(super) fn leave_out(scenario: &mut Scenario, without: Without) -> Result<(), ExperimentError> {
    let entry = disk(without)?;
    for device in &mut scenario.devices {
        device.put_on(&entry);
    }
    if without == Without::Spare {
        for vm in &mut scenario.tenants {
            vm.disk_size = VM_DISK;
        }
        // A disk takes a while to be used up.
        scenario.frame.warm_up = Nanos::from_secs(80);
        scenario.frame.duration = Nanos::from_secs(100);
    }
    Ok(())
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

impl Kind {
    /// All jobs ask for this.
    pub(super) fn put_into(self, scenario: &mut Scenario) {
        for job in scenario.tenants.iter_mut().flat_map(|vm| &mut vm.jobs) {
            job.rw.random = self.access == Access::Random;
            job.rw.mix = mix(self.reads);
            job.sizes = std::array::from_fn(|_| Sizes::fixed(self.size));
        }
    }
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
        Curve::new(&points).map_err(|error| {
            let what = format!("what was measured is no curve: {error}");
            ExperimentError::data("scenarios/saturation.toml", what)
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

/// A job's mix, by its reads in a hundred.
pub(super) fn mix(reads: u8) -> Mix {
    match reads {
        0 => Mix::Write,
        100 => Mix::Read,
        read_percent => Mix::ReadWrite { read_percent },
    }
}
