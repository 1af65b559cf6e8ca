//! A configuration of the daemon as a scenario: its devices, VMs and objectives, under the load
//! that it names or a usual one.
//!
//! Whatever the configuration does not say is assumed, and each assumption becomes a note.

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
use tidegate_sim::scenario::{self, DISK_ALIGNMENT, Delay, Device, Exchange, Scenario, Tenant};
use tidegate_units::format_bytes;
use tidegate_workload::job::{Flow, Job, Mix, Rw, Sizes};
use tidegate_workload::read;

use super::Changes;

/// Simulated time of a configuration, which has none itself.
const DURATION: Nanos = Nanos::from_secs(10);
/// Model under a device whose model nothing tells.
const USUAL_MODEL: &str = "ssd-sata-300gb";
/// Size in bytes of a disk whose file cannot be asked.
const USUAL_DISK: u64 = 10 << 30;

/// A configuration as a scenario, with what is to be said about it.
pub(super) struct Converted {
    pub(super) scenario: Scenario,
    pub(super) warnings: Vec<Diagnostic>,
    pub(super) old_spellings: Vec<Diagnostic>,
    pub(super) notes: Vec<String>,
}

/// Reads a configuration as `serve` does, and makes a scenario of it; `base` is its directory.
pub(super) fn read(text: &str, file: &str, base: &Path, changes: &Changes) -> Result<Converted> {
    let loaded = config::parse(text, file, base)?;
    let said = document::read(text, file, |root| Said::of(root, base))?.config;
    let mut converter = Converter {
        config: &loaded.config,
        said,
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

/// Parts of a configuration that the daemon has no use for, in the order of the file.
struct Said {
    /// Workloads of each VM.
    workloads: Vec<Vec<Job>>,
    /// Name of each device's profile.
    profiles: Vec<Option<String>>,
}

impl Said {
    fn of(root: &Field<'_>, base: &Path) -> Option<Said> {
        let workloads = |vm: Field<'_>| -> Option<Vec<Job>> {
            let tables = Section::of(&vm.labelled("vm"))?.take_tables("workload");
            let jobs = tables.iter().enumerate();
            jobs.map(|(i, field)| read::workload(field, i, None, &Beside(base)))
                .collect()
        };
        let profile = |device: &Field<'_>| {
            let name = device.find("profile")?.text()?.to_owned();
            Some(name)
        };
        let mut section = Section::of(root)?;
        let vms = section.take_tables("vm").into_iter().map(workloads);
        let workloads = vms.collect::<Option<_>>()?;
        let devices = section.take_tables("device");
        Some(Said {
            workloads,
            profiles: devices.iter().map(profile).collect(),
        })
    }
}

struct Converter<'a> {
    config: &'a Config,
    said: Said,
    base: &'a Path,
    /// What was assumed or left out.
    notes: Vec<String>,
}

impl Converter<'_> {
    fn note(&mut self, text: String) {
        self.notes.push(format!("note: {text}"));
    }

    fn scenario(&mut self, changes: &Changes) -> Scenario {
        if changes.duration.is_none() {
            let text = format!("{DURATION} are simulated; --duration sets another time");
            self.note(text);
        }
        let mut tenants: Vec<Tenant> = Vec::new();
        for (index, vm) in self.config.vms.iter().enumerate() {
            tenants.push(self.tenant(index, vm));
        }
        self.note_of_usual_load();
        let mut devices = Vec::new();
        for (index, device) in self.config.devices.iter().enumerate() {
            let (model, assumed) = self.model(index, device, changes);
            if assumed {
                let mut on: Vec<_> = tenants.iter_mut().filter(|t| t.device == index).collect();
                self.fit(device, model.spec().capacity, &mut on);
            }
            devices.push(simulated(device, &model, changes.policy.as_ref()));
        }
        Scenario {
            frame: Frame::lasting(changes.duration.unwrap_or(DURATION)),
            devices,
            tenants,
            changes: Vec::new(),
            cpu: None,
        }
    }

    fn note_of_usual_load(&mut self) {
        let vms = self.config.vms.iter().zip(&self.said.workloads);
        let without: Vec<&str> = vms
            .filter(|(_, jobs)| jobs.is_empty())
            .map(|(vm, _)| vm.name.as_str())
            .collect();
        if !without.is_empty() {
            let text = format!(
                "without [[vm.workload]], and so with 4 KiB random requests, 70 % of them reads, \
                 32 outstanding: {}",
                without.join(", ")
            );
            self.note(text);
        }
    }

    fn tenant(&mut self, index: usize, vm: &VmConfig) -> Tenant {
        let name = &vm.name;
        if vm.schedule.is_some() {
            let text = format!(
                "{name}: a simulation has no time of day; it has its objective outside of its \
                 schedule"
            );
            self.note(text);
        }
        if vm.disks.len() > 1 {
            let disks = vm.disks.len();
            self.note(format!("{name}: its {disks} disks are simulated as one"));
        }
        if vm.disks.iter().any(|disk| !disk.faults.is_empty()) {
            self.note(format!("{name}: fault rules are left out"));
        }
        let disks = vm.disks.iter().map(|disk| self.size(name, disk));
        let sizes: Vec<u64> = disks.collect::<Vec<_>>();
        let jobs = match self.said.workloads[index].as_slice() {
            [] => vec![usual_load()],
            jobs => jobs.to_vec(),
        };
        Tenant {
            name: name.clone(),
            device: vm.device,
            host: 0,
            background: vm.background,
            objective: vm.objective,
            disk_size: together(&sizes),
            disk_at: None,
            jobs,
            delay: Delay::default(),
            cpu: Default::default(),
            arrives: Nanos::ZERO,
            leaves: None,
        }
    }

    /// The size of a disk: as configured, or that of its file or block device.
    fn size(&mut self, vm: &str, disk: &DiskConfig) -> u64 {
        let found = disk.path.as_deref().and_then(length);
        if let Some(size) = disk.size.or(found).filter(|&size| size > 0) {
            return size;
        }
        let (export, size) = (&disk.export, format_bytes(USUAL_DISK));
        self.note(format!(
            "{vm}: the size of disk {export} is not known; it is simulated with {size}"
        ));
        USUAL_DISK
    }

    /// The model of a device, and whether it is assumed.
    fn model(&mut self, index: usize, device: &DeviceConfig, changes: &Changes) -> (Entry, bool) {
        if let DeviceKind::Emulated { model } = &device.kind {
            return (model.as_ref().clone(), false);
        }
        let profile = self.said.profiles[index].as_deref();
        let measured = profile.and_then(|name| profile::find(name, self.base).ok());
        let (model, why) = match measured.as_ref().and_then(nearest) {
            Some((model, 0.0)) => (model, "its profile was measured of".to_owned()),
            Some((model, off)) => {
                let why =
                    format!("the catalogue's nearest to its profile (rates off by {off:.0} %)");
                (model, why)
            }
            None => {
                let model = catalogue::load(USUAL_MODEL).expect("of the catalogue");
                (model, "unless --device names another".to_owned())
            }
        };
        if changes.model.is_none() {
            let (name, model) = (&device.name, &model.name);
            self.note(format!("device {name}: simulated as {model}, {why}"));
        }
        (model, true)
    }

    /// Cuts disks that an assumed model has no room for, each to the same part of it.
    fn fit(&mut self, device: &DeviceConfig, capacity: u64, tenants: &mut [&mut Tenant]) {
        let aligned = |size: u64| size.div_ceil(DISK_ALIGNMENT) * DISK_ALIGNMENT;
        let needed: u64 = tenants.iter().map(|tenant| aligned(tenant.disk_size)).sum();
        if needed <= capacity {
            return;
        }
        for tenant in tenants {
            let part = u128::from(tenant.disk_size) * u128::from(capacity) / u128::from(needed);
            let part = part as u64 / DISK_ALIGNMENT * DISK_ALIGNMENT;
            tenant.disk_size = part.max(DISK_ALIGNMENT);
        }
        let (name, percent) = (&device.name, 100.0 * capacity as f64 / needed as f64);
        self.note(format!(
            "device {name}: its disks are larger than the model; the first {percent:.0} % of each \
             are simulated"
        ));
    }
}

/// The length of a file or block device in bytes. `None`: it cannot be asked.
fn length(path: &Path) -> Option<u64> {
    // A pipe would have the opener wait for somebody to write to it.
    let kind = std::fs::metadata(path).ok()?.file_type();
    if kind.is_file() {
        return Some(std::fs::metadata(path).ok()?.len());
    }
    use std::os::unix::fs::FileTypeExt as _;
    let mut device = kind.is_block_device().then(|| File::open(path).ok())??;
    device.seek(SeekFrom::End(0)).ok()
}

/// The size of a VM's disks as one, each from a multiple of [`DISK_ALIGNMENT`] on.
fn together(sizes: &[u64]) -> u64 {
    let add = |sum: u64, size: &u64| {
        let start = sum.div_ceil(DISK_ALIGNMENT) * DISK_ALIGNMENT;
        start.saturating_add(*size)
    };
    let all = sizes.iter().fold(0, add);
    // A simulated disk is whole blocks of the largest kind.
    (all / 4096 * 4096).max(4096)
}

/// The load of a VM that says nothing of its own: it keeps any device busy.
fn usual_load() -> Job {
    Job {
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
        ..Job::default()
    }
}

/// The model that a profile was measured of, or the one of the catalogue whose rates are nearest to
/// its, with how far they are off on average, in percent.
fn nearest(measured: &Measured) -> Option<(Entry, f64)> {
    if let Ok(entry) = catalogue::load(&measured.device) {
        return Some((entry, 0.0));
    }
    let off = |name: &'static str| Some((name, off(measured, &profile::built_in(name)?)?));
    let all = catalogue::names().filter_map(off);
    let (name, off) = all.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let percent = 100.0 * (off.exp() - 1.0);
    Some((catalogue::load(name).ok()?, percent.max(f64::MIN_POSITIVE)))
}

/// Mean of the logarithms of the ratios of two profiles' rates, over the points that both have.
fn off(a: &Measured, b: &Measured) -> Option<f64> {
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

/// A served device as a simulated one of this model; `instead` of its policy where it is another.
fn simulated(device: &DeviceConfig, model: &Entry, instead: Option<&PolicySpec>) -> Device {
    use tidegate_core::policy::Policy as _;
    let mut simulated = Device {
        name: device.name.clone(),
        model: model.clone(),
        scheduling: device.scheduling.clone(),
        bounded: true,
        exchange: Exchange::default(),
        path: scenario::Path::default(),
        distances: scenario::default_distances(),
    };
    simulated.put_on(model);
    let (scheduling, served) = (&mut simulated.scheduling, &device.scheduling);
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
        assert_eq!(together(&[5 << 20]), 5 << 20);
        assert_eq!(together(&[4097, 8192]), DISK_ALIGNMENT + 8192);
        assert_eq!(together(&[100]), 4096);
    }

    #[test]
    fn a_profile_leads_to_its_model_or_to_the_nearest() {
        let mut measured = profile::built_in("nvme-1tb").expect("built in");
        let (model, off) = nearest(&measured).expect("there is one");
        assert_eq!((model.name.as_str(), off), ("nvme-1tb", 0.0));
        measured.device = "/dev/sdb".to_owned();
        for point in measured.curves.iter_mut().flat_map(|c| &mut c.points) {
            point.iops *= 1.1;
        }
        let (model, off) = nearest(&measured).expect("there is one");
        assert_eq!(model.name, "nvme-1tb");
        assert!((9.0..11.0).contains(&off), "{off}");
        measured.curves.clear();
        assert!(nearest(&measured).is_none());
    }
}
