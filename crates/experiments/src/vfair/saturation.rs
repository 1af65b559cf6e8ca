//! Saturation throughput of a device for one kind of request, and the profile from it.

use super::ablation::Ablation;
use crate::ExperimentError;
use crate::folder::{self, File, named};
use tidegate_core::profile::{Access, Curve, Direction, Profile};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_sim::scenario::Scenario;
use tidegate_workload::spec::{Mix, Sizes};

/// Disk of figure 6.
const DISK: File = (
    "ssd-sata-300gb.toml",
    include_str!("../../../../devices/ssd-sata-300gb.toml"),
);

/// Disk of the other figures.
const SERVER: File = named!("vfair", "ssd.toml");

/// Capacity and spare area of a sixteenth of the disk, in whole blocks. The spare area keeps its
/// proportion and is used up in a sixteenth of the time.
const SIXTEENTH: [&str; 2] = ["18754314240 B", "1356 MB"];
/// Size of the VM's disk on it, in bytes.
const VM_DISK: u64 = 18_754_000_000;

/// Model of the disk with an ablation.
fn disk(without: Ablation) -> Result<Entry, ExperimentError> {
    let changes: &[(&[&str], &str)] = match without {
        Ablation::NoSpareBlocks => &[
            (&["ssd", "capacity"], SIXTEENTH[0]),
            (&["ssd", "garbage_collection", "filled"], SIXTEENTH[0]),
            (&["ssd", "garbage_collection", "spare"], SIXTEENTH[1]),
        ],
        // So fast that the interface of SATA is never what holds requests back.
        Ablation::FastInterface => &[(&["ssd", "interface_rate"], "2700 MB/s")],
        Ablation::SmallWriteBuffer => &[(&["ssd", "write_buffer", "size"], "256 KiB")],
        _ => &[],
    };
    let changes: Vec<_> = changes
        .iter()
        .map(|(path, figure)| (*path, (*figure).to_owned()))
        .collect();
    let turns = match without {
        Ablation::InterfaceTurnaround => Some(DISK),
        Ablation::SingleServer => Some(SERVER),
        _ => None,
    };
    if let Some((file, text)) = turns {
        // The line of this key begins so; the word is nowhere else in the file.
        let mut text = text.replace(
            "full_duplex",
            "interface_turnaround = \"100 us\"\nfull_duplex",
        );
        if without == Ablation::SingleServer {
            // So fast that large writes wait for the interface alone, as reads do.
            text = text.replace("program = \"1547 us\"", "program = \"500 us\"");
        }
        let entry = catalogue::parse(&text, file);
        return entry.map_err(|error| ExperimentError::data(file, error));
    }
    folder::model_with(DISK, &changes)
}

/// Applies an ablation to the disk that is saturated.
///
/// # Errors
/// Fails when the disk's file is malformed.
pub(super) fn leave_out(scenario: &mut Scenario, without: Ablation) -> Result<(), ExperimentError> {
    let entry = disk(without)?;
    for device in &mut scenario.devices {
        device.put_on(&entry);
    }
    // The VM's disk was written for the whole device.
    if without == Ablation::NoSpareBlocks {
        for vm in &mut scenario.vms {
            vm.disk_size = VM_DISK;
        }
        // It takes a while to use up the spare area.
        scenario.frame.warm_up = Nanos::from_secs(80);
        scenario.frame.duration = Nanos::from_secs(100);
    }
    Ok(())
}

/// Kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Kind {
    pub(super) access: Access,
    /// Reads in percent.
    pub(super) reads: u8,
    /// Size in bytes.
    pub(super) size: u32,
}

impl Kind {
    /// Sets this kind of request in all workloads.
    pub(super) fn put_into(self, scenario: &mut Scenario) {
        for workload in scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads) {
            workload.rw.random = self.access == Access::Random;
            workload.rw.mix = mix(self.reads);
            workload.sizes = std::array::from_fn(|_| Sizes::fixed(self.size));
        }
    }
}

/// Measurements of a profile: request sizes in bytes, and random mixes by percentage of reads.
pub(super) const PROFILE_SIZES: [u32; 5] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
pub(super) const PROFILE_MIXES: [u8; 3] = [25, 50, 75];

/// Kinds of requests that a profile is measured with.
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

/// Builds the profile from throughputs at saturation.
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
        // Profiles hold mixes in thousandths of reads.
        mixes.push((u32::from(reads) * 10, curve(Access::Random, reads)?));
    }
    let (reads, writes) = (both(Direction::Read)?, both(Direction::Write)?);
    Ok(Profile::new(reads, Some(writes), mixes, Vec::new()))
}

/// Mix of a workload by percentage of reads.
pub(super) fn mix(reads: u8) -> Mix {
    match reads {
        0 => Mix::Write,
        100 => Mix::Read,
        read_percent => Mix::ReadWrite { read_percent },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_single_server_is_the_disk_of_the_other_figures_with_two_figures_changed() {
        let server = disk(Ablation::SingleServer).expect("a disk");
        assert_eq!(server.name, "vfair-ssd");
        let written = folder::model_with(SERVER, &[]).expect("a disk");
        assert_ne!(format!("{server:?}"), format!("{written:?}"));
        // A text that is not found is replaced by nothing, unnoticed.
        for replaced in ["full_duplex", "program = \"1547 us\""] {
            assert_eq!(SERVER.1.matches(replaced).count(), 1, "{replaced}");
        }
    }
}
