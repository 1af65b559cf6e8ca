//! Conversion of the daemon's configuration into a scenario with its devices, VMs and objectives,
//! under the configured workloads or a default one.
//!
//! Assumptions about anything that the configuration lacks become notes.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;
use tidegate_config::frame::Frame;
use tidegate_config::library::Beside;
use tidegate_config::profile::{self, Measured};
use tidegate_config::{Diagnostic, Field, Section, document};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{self, Config, DeviceConfig, DeviceKind, DiskConfig, VmConfig};
use tidegate_sim::scenario::{
    self, Copies, DISK_ALIGNMENT, Delay, Device, DiskPart, Exchange, Scenario, VmSpec,
};
use tidegate_units::{format_bytes, format_duration};
use tidegate_workload::read;
use tidegate_workload::spec::{Flow, Mix, Rw, Sizes, Workload};

use super::Changes;

/// Default simulated time.
const DEFAULT_DURATION: Nanos = Nanos::from_secs(10);
/// Model of a device without any indication of its model.
const DEFAULT_MODEL: &str = "ssd-sata-300gb";
/// Unit in bytes of disks' first bytes where disks are shrunk: the largest block size.
const SHRUNK_ALIGNMENT: u64 = 4096;
/// Size in bytes of a disk whose size is not known.
const DEFAULT_DISK: u64 = 10 << 30;

/// Configuration as a scenario, with warnings and notes.
pub(super) struct Converted {
    pub(super) scenario: Scenario,
    pub(super) warnings: Vec<Diagnostic>,
    pub(super) old_spellings: Vec<Diagnostic>,
    pub(super) notes: Vec<String>,
}

/// Reads a configuration as `serve` does, and converts it; `base` is its directory.
pub(super) fn read(text: &str, file: &str, base: &Path, changes: &Changes) -> Result<Converted> {
    let loaded = config::parse(text, file, base)?;
    // Read a second time: the daemon's reader passes over the keys that only the simulator knows.
    let simulation_parts =
        document::read(text, file, |root| SimulationParts::read(root, base))?.config;
    let mut converter = Converter {
        config: &loaded.config,
        simulation_parts,
        base,
        notes: Vec::new(),
    };
    let scenario = converter.scenario(changes);
    Ok(Converted {
        scenario,
        notes: converter.notes,
        warnings: loaded.warnings,
        old_spellings: loaded.notes,
    })
}

/// Parts of a configuration that only the simulator uses, in the order of the file.
struct SimulationParts {
    /// Workloads of each VM.
    workloads: Vec<Vec<Workload>>,
    /// Name of each device's profile.
    profiles: Vec<Option<String>>,
}

impl SimulationParts {
    fn read(root: &Field<'_>, base: &Path) -> Option<SimulationParts> {
        let workloads = |vm: Field<'_>| -> Option<Vec<Workload>> {
            let tables = Section::open(&vm.labelled("vm"))?.take_tables("workload");
            let workloads = tables.iter().enumerate();
            workloads
                .map(|(i, field)| read::workload(field, i, None, &Beside(base)))
                .collect()
        };
        let profile = |device: &Field<'_>| {
            let name = device.find("profile")?.text()?.to_owned();
            Some(name)
        };
        let mut section = Section::open(root)?;
        let vms = section.take_tables("vm").into_iter().map(workloads);
        let workloads = vms.collect::<Option<_>>()?;
        let devices = section.take_tables("device");
        Some(SimulationParts {
            workloads,
            profiles: devices.iter().map(profile).collect(),
        })
    }
}

struct Converter<'a> {
    config: &'a Config,
    simulation_parts: SimulationParts,
    base: &'a Path,
    /// Notes on assumptions and on ignored parts.
    notes: Vec<String>,
}

impl Converter<'_> {
    fn add_note(&mut self, text: String) {
        self.notes.push(format!("note: {text}"));
    }

    fn scenario(&mut self, changes: &Changes) -> Scenario {
        if changes.duration.is_none() {
            let text = format!(
                "{} are simulated; change it with --duration",
                format_duration(DEFAULT_DURATION)
            );
            self.add_note(text);
        }
        let mut vms: Vec<VmSpec> = Vec::new();
        for (index, vm) in self.config.vms.iter().enumerate() {
            vms.push(self.vm(index, vm));
        }
        self.note_default_load();
        let mut devices = Vec::new();
        for (index, device) in self.config.devices.iter().enumerate() {
            let (model, assumed) = self.model(index, device, changes);
            // A configured model holds the disks, or the configuration would have been refused.
            if assumed {
                let mut on: Vec<_> = vms.iter_mut().filter(|vm| vm.device == index).collect();
                self.shrink_disks(device, model.spec().capacity, &mut on);
            }
            devices.push(simulated(device, &model, changes.policy.as_ref()));
        }
        Scenario {
            frame: Frame::lasting(changes.duration.unwrap_or(DEFAULT_DURATION)),
            devices,
            vms,
            copies: Copies::new(),
            changes: Vec::new(),
            cpu: None,
        }
    }

    fn note_default_load(&mut self) {
        let vms = self.config.vms.iter().zip(&self.simulation_parts.workloads);
        let without: Vec<&str> = vms
            .filter(|(_, workloads)| workloads.is_empty())
            .map(|(vm, _)| vm.name.as_str())
            .collect();
        if !without.is_empty() {
            let text = format!(
                "no [[vm.workload]], simulated with random 4 KiB requests, 70 % reads, iodepth 32: \
                 {}",
                without.join(", ")
            );
            self.add_note(text);
        }
    }

    fn vm(&mut self, index: usize, vm: &VmConfig) -> VmSpec {
        let name = &vm.name;
        if vm.schedule.is_some() {
            let text =
                format!("{name}: the schedule is ignored, because a simulation has no time of day");
            self.add_note(text);
        }
        if vm.disks.len() > 1 {
            let disks = vm.disks.len();
            self.add_note(format!("{name}: the {disks} disks are simulated as one"));
        }
        if vm.disks.iter().any(|disk| !disk.faults.is_empty()) {
            self.add_note(format!("{name}: fault rules are ignored"));
        }
        let disks = vm.disks.iter().map(|disk| self.size(name, disk));
        let sizes: Vec<u64> = disks.collect::<Vec<_>>();
        let workloads = match self.simulation_parts.workloads[index].as_slice() {
            [] => vec![default_load()],
            workloads => workloads.to_vec(),
        };
        VmSpec {
            name: name.clone(),
            device: vm.device,
            host: 0,
            background: vm.background,
            objective: vm.objective,
            disk_size: joined_size(&sizes),
            disk_at: None,
            parts: limited_parts(&vm.disks, &sizes),
            workloads,
            delay: Delay::default(),
            cpu: Default::default(),
            arrives: Nanos::ZERO,
            leaves: None,
        }
    }

    /// Returns the size of a disk: as configured, or that of its file or block device.
    fn size(&mut self, vm: &str, disk: &DiskConfig) -> u64 {
        let found = disk.path.as_deref().and_then(file_length);
        if let Some(size) = disk.size.or(found).filter(|&size| size > 0) {
            return size;
        }
        let (export, size) = (&disk.export, format_bytes(DEFAULT_DISK));
        self.add_note(format!(
            "{vm}: the size of disk {export} is not known, simulated as {size}"
        ));
        DEFAULT_DISK
    }

    /// Returns the model of a device, and true if it is an assumption.
    fn model(&mut self, index: usize, device: &DeviceConfig, changes: &Changes) -> (Entry, bool) {
        if let DeviceKind::Emulated { model } = &device.kind {
            return (model.as_ref().clone(), false);
        }
        let profile = self.simulation_parts.profiles[index].as_deref();
        let measured = profile.and_then(|name| profile::find(name, self.base).ok());
        let (model, why) = match measured.as_ref().and_then(nearest_model) {
            Some((model, 0.0)) => (model, "the model of its profile".to_owned()),
            Some((model, off)) => {
                let why = format!("the model nearest to its profile (rates differ by {off:.0} %)");
                (model, why)
            }
            None => {
                let model =
                    catalogue::load(DEFAULT_MODEL).expect("the default model is in the catalogue");
                (model, "the default; change it with --device".to_owned())
            }
        };
        if changes.model.is_none() {
            let (name, model) = (&device.name, &model.name);
            self.add_note(format!("device {name}: simulated as {model}, {why}"));
        }
        (model, true)
    }

    /// Shrinks disks that do not fit an assumed model, all by the same factor.
    fn shrink_disks(&mut self, device: &DeviceConfig, capacity: u64, vms: &mut [&mut VmSpec]) {
        let aligned = |size: u64| size.div_ceil(DISK_ALIGNMENT) * DISK_ALIGNMENT;
        let needed: u64 = vms.iter().map(|vm| aligned(vm.disk_size)).sum();
        if needed <= capacity {
            return;
        }
        for vm in vms {
            let part = u128::from(vm.disk_size) * u128::from(capacity) / u128::from(needed);
            // Rounded down, so that all disks together still fit; a disk has at least one block.
            let part = part as u64 / DISK_ALIGNMENT * DISK_ALIGNMENT;
            let (before, size) = (vm.disk_size, part.max(DISK_ALIGNMENT));
            for part in &mut vm.parts {
                let start = u128::from(part.start) * u128::from(size) / u128::from(before);
                part.start = start as u64 / SHRUNK_ALIGNMENT * SHRUNK_ALIGNMENT;
            }
            // A disk of which less than a block is left has no requests.
            vm.parts.reverse();
            vm.parts.dedup_by_key(|part| part.start);
            vm.parts.reverse();
            vm.disk_size = size;
        }
        let (name, percent) = (&device.name, 100.0 * capacity as f64 / needed as f64);
        self.add_note(format!(
            "device {name}: the disks are larger than the model; only the first {percent:.0} % of \
             each are simulated"
        ));
    }
}

/// Returns the size of a file or block device in bytes; `None` if it cannot be determined.
fn file_length(path: &Path) -> Option<u64> {
    // Opening a FIFO would block until a writer comes.
    let kind = std::fs::metadata(path).ok()?.file_type();
    if kind.is_file() {
        return Some(std::fs::metadata(path).ok()?.len());
    }
    use std::os::unix::fs::FileTypeExt as _;
    // A block device reports 0 as its length; its end is where seeking to the end leads.
    let mut device = kind.is_block_device().then(|| File::open(path).ok())??;
    device.seek(SeekFrom::End(0)).ok()
}

/// Returns the size of a VM's disks joined into one, each aligned to [`DISK_ALIGNMENT`].
fn joined_size(sizes: &[u64]) -> u64 {
    let add = |sum: u64, size: &u64| {
        let start = sum.div_ceil(DISK_ALIGNMENT) * DISK_ALIGNMENT;
        start.saturating_add(*size)
    };
    let all = sizes.iter().fold(0, add);
    // A simulated disk has whole blocks of 4096 bytes, the largest block size.
    (all / 4096 * 4096).max(4096)
}

/// Returns the parts of a VM's joined disk that have limits of their own; none if no disk has any.
fn limited_parts(disks: &[DiskConfig], sizes: &[u64]) -> Vec<DiskPart> {
    let is_limited = |disk: &DiskConfig| !disk.limit.is_none() || disk.limit_group.is_some();
    if !disks.iter().any(is_limited) {
        return Vec::new();
    }
    let whole = joined_size(sizes);
    let mut end: u64 = 0;
    let parts = disks.iter().zip(sizes).map(|(disk, size)| {
        let start = end.div_ceil(DISK_ALIGNMENT) * DISK_ALIGNMENT;
        end = start.saturating_add(*size);
        DiskPart {
            start,
            limit: disk.limit,
            group: disk.limit_group.clone(),
        }
    });
    // A disk at the end of which no whole block is left has no requests.
    parts.filter(|part| part.start < whole).collect()
}

/// Returns the default workload, which saturates any device.
fn default_load() -> Workload {
    Workload {
        name: "usual".to_owned(),
        rw: Rw {
            mix: Mix::ReadWrite { read_percent: 70 },
            random: true,
        },
        sizes: std::array::from_fn(|_| Sizes::fixed(4096)),
        flow: Flow::Closed {
            iodepth: 32,
            think: None,
        },
        ..Workload::default()
    }
}

/// Returns the model that a profile was measured on, or the model of the catalogue with the nearest
/// rates, and their mean difference in percent.
fn nearest_model(measured: &Measured) -> Option<(Entry, f64)> {
    // Profiles of the catalogue carry the name of their model.
    if let Ok(entry) = catalogue::load(&measured.device) {
        return Some((entry, 0.0));
    }
    let off =
        |name: &'static str| Some((name, profile_distance(measured, &profile::built_in(name)?)?));
    let all = catalogue::names().filter_map(off);
    let (name, off) = all.min_by(|a, b| a.1.total_cmp(&b.1))?;
    // The mean of logarithms as a factor, then in percent.
    let percent = 100.0 * (off.exp() - 1.0);
    // Never 0, which means the very model of the profile.
    Some((catalogue::load(name).ok()?, percent.max(f64::MIN_POSITIVE)))
}

/// Returns the mean absolute logarithm of the ratio of two profiles' rates, over common points.
fn profile_distance(a: &Measured, b: &Measured) -> Option<f64> {
    let (mut sum, mut points) = (0.0, 0_u32);
    for curve in &a.curves {
        let same = |other: &&profile::MeasuredCurve| {
            other.mix == curve.mix && other.access == curve.access
        };
        let Some(other) = b.curves.iter().find(same) else {
            continue;
        };
        for point in &curve.points {
            let twin = other.points.iter().find(|twin| twin.size == point.size);
            if let Some(twin) = twin.filter(|twin| twin.iops > 0.0 && point.iops > 0.0) {
                sum += (point.iops / twin.iops).ln().abs();
                points += 1;
            }
        }
    }
    (points > 0).then(|| sum / f64::from(points))
}

/// Converts a served device into a simulated one of a model, with the policy `instead` if that is a
/// different one.
fn simulated(device: &DeviceConfig, model: &Entry, instead: Option<&PolicySpec>) -> Device {
    use tidegate_core::policy::Policy as _;
    let mut simulated = Device {
        name: device.name.clone(),
        model: model.clone(),
        scheduling: device.scheduling.clone(),
        bounded: true,
        exchange: Exchange::default(),
        path: scenario::Path::default(),
        limit_groups: device.limit_groups.clone(),
        distances: scenario::default_distances(),
    };
    simulated.put_on(model);
    let (scheduling, served) = (&mut simulated.scheduling, &device.scheduling);
    // `put_on` drops the profile, which here belongs to the device that the model stands for.
    scheduling.profile = served.profile.clone();
    if let Some(other) = instead.filter(|other| other.name() != served.policy.name()) {
        scheduling.policy = other.clone();
    }
    simulated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_of_a_vm_follow_each_other_as_one() {
        assert_eq!(joined_size(&[5 << 20]), 5 << 20);
        assert_eq!(joined_size(&[4097, 8192]), DISK_ALIGNMENT + 8192);
        assert_eq!(joined_size(&[100]), 4096);
    }

    #[test]
    fn a_last_disk_below_a_block_is_no_part() {
        let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
                    [[vm]]\nname = \"a\"\ndisk = [{ size = \"1 GiB\", limit = \"9 IOPS\" }, \
                    { size = \"1 GiB\", export = \"b\" }]\n";
        let loaded = tidegate_server::config::parse(text, "t", Path::new("/"));
        let disks = &loaded.expect("good").config.vms[0].disks;
        let starts = |sizes: [u64; 2]| -> Vec<u64> {
            let parts = limited_parts(disks, &sizes);
            parts.iter().map(|part| part.start).collect()
        };
        assert_eq!(starts([DISK_ALIGNMENT, 4096]), [0, DISK_ALIGNMENT]);
        assert_eq!(starts([DISK_ALIGNMENT, 100]), [0]);
    }

    #[test]
    fn a_profile_leads_to_its_model_or_to_the_nearest() {
        let mut measured = profile::built_in("nvme-1tb").expect("built in");
        let (model, off) = nearest_model(&measured).expect("there is one");
        assert_eq!((model.name.as_str(), off), ("nvme-1tb", 0.0));
        measured.device = "/dev/sdb".to_owned();
        for point in measured.curves.iter_mut().flat_map(|c| &mut c.points) {
            point.iops *= 1.1;
        }
        let (model, off) = nearest_model(&measured).expect("there is one");
        assert_eq!(model.name, "nvme-1tb");
        assert!((9.0..11.0).contains(&off), "{off}");
        measured.curves.clear();
        assert!(nearest_model(&measured).is_none());
    }
}
