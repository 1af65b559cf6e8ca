//! Input of a simulation: devices, the VMs that share them, and changes at given times.
//!
//! A [`Scenario`] is plain data, complete and checked by [`Scenario::check`].

mod cpu;
mod distances;
#[cfg(test)]
mod glossary;
mod keys;
mod read;
mod schema;

pub use cpu::{Driver, HostCpu, VmCpu};
pub use distances::default_distances;
pub use read::{from_field, read};
pub use schema::schema;

use core::ops::Range;
use std::collections::BTreeMap;
use tidegate_config::device::Scheduling;
use tidegate_config::device::limit_groups::LimitGroup;
use tidegate_config::frame::Frame;
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Limit, Objective, ObjectiveError};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_policies::policy::PolicySpec;
use tidegate_units::format_bytes;
use tidegate_units::human::{bytes_and_count, exact_bytes};
use tidegate_workload::WorkloadErrors;
use tidegate_workload::spec::{RegionError, Workload};
use tidegate_workload::time::TimeDistribution;

/// Alignment of disks on their device in bytes, so that every block size divides their addresses.
pub const DISK_ALIGNMENT: u64 = 1 << 20;

/// Complete scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Title, duration and seed of the run.
    pub frame: Frame,
    /// Devices, each with a scheduling engine of its own.
    pub devices: Vec<Device>,
    /// VMs and background processes.
    pub vms: Vec<VmSpec>,
    /// VMs that a table with a `count` stands for.
    pub copies: Copies,
    /// Changes during the run, in the order of time.
    pub changes: Vec<Change>,
    /// pCPUs of the host; `None` where guests and the driver domain take no CPU time.
    pub cpu: Option<HostCpu>,
}

/// Ranges of indices into [`Scenario::vms`], each of all VMs of a table with a `count`, by the name
/// of the table.
pub type Copies = BTreeMap<String, Range<usize>>;

/// Device with its scheduling.
#[derive(Clone, Debug)]
pub struct Device {
    /// Unique name.
    pub name: String,
    /// Device model.
    pub model: catalogue::Entry,
    /// Scheduling on each host that shares the device. A cap is not learnt where several hosts do.
    pub scheduling: Scheduling,
    /// `true` if payload memory is bounded and request slots are divided among VMs, as in the
    /// daemon. Otherwise memory is unbounded, and slots go to the first who asks.
    pub bounded: bool,
    /// Delay and loss of messages between the hosts that share the device.
    pub exchange: Exchange,
    /// Network between the device and its hosts.
    pub path: Path,
    /// Limits that disks share. Each host keeps them by itself.
    pub limit_groups: Vec<LimitGroup>,
    /// Upper bounds of distances between one I/O's end and the next one's start, in bytes,
    /// ascending: the report counts the I/Os up to each.
    pub distances: Vec<u64>,
}

/// Largest number of hosts that may share a device.
pub const MAX_HOSTS: u32 = 64;

/// Delay and loss of messages between hosts.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Exchange {
    /// Delay of a message; `None` for no delay.
    pub delay: Option<TimeDistribution>,
    /// Number of messages in a thousand that are lost, 0 to 1000.
    pub loss: u32,
}

/// Network between a device and its hosts, as in front of an array; `None` for no delay.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Path {
    /// Delay from the host's scheduler to the device.
    pub submit: Option<TimeDistribution>,
    /// Delay from the device's completion to the scheduler.
    pub complete: Option<TimeDistribution>,
}

/// VM or background process that shares a device.
#[derive(Clone, Debug)]
pub struct VmSpec {
    /// Unique name.
    pub name: String,
    /// Index into [`Scenario::devices`].
    pub device: usize,
    /// Host that runs the VM, 0 to [`MAX_HOSTS`] - 1, among those that share the device. Each
    /// host has an engine of its own.
    pub host: u32,
    /// `true` for a process of the host, such as a backup or a scrub: no virtualisation delays it.
    pub background: bool,
    /// Objective in force from the arrival on.
    pub objective: Objective,
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// First byte of the disk on the device, a multiple of [`DISK_ALIGNMENT`]; `None` places it
    /// behind the previous VM's disk.
    pub disk_at: Option<u64>,
    /// Parts of the disk with limits of their own, in ascending order, the first one at byte 0;
    /// empty: the disk has no limits.
    pub parts: Vec<DiskPart>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Delay that virtualisation adds to each request.
    pub delay: Delay,
    /// vCPUs, where the host's pCPUs are simulated.
    pub cpu: VmCpu,
    /// Time of arrival.
    pub arrives: Nanos,
    /// Time of removal, with whatever is outstanding; `None` if the VM stays.
    pub leaves: Option<Nanos>,
}

/// Part of a VM's disk with limits of its own, up to the next part: the disk of a VM with several,
/// which are simulated behind each other. A request belongs to the part with its first byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskPart {
    /// First byte on the VM's disk.
    pub start: u64,
    /// Limit of this part alone.
    pub limit: Limit,
    /// Name of the [limit group](Device::limit_groups) whose limit it shares.
    pub group: Option<String>,
}

/// Delay that virtualisation adds to each request: exits, copies and wake-ups between the guest and
/// the scheduler. `None` for no delay.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Delay {
    /// Delay from the guest to the scheduler.
    pub submit: Option<TimeDistribution>,
    /// Delay from the device's completion to the guest.
    pub complete: Option<TimeDistribution>,
    /// Time that the guest's only processor takes for each request before its process has the
    /// answer, one request at a time.
    pub processor: Option<TimeDistribution>,
}

/// Change during the run.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time of the change.
    pub at: Nanos,
    /// Kind of change.
    pub action: Action,
}

/// Kind of a change.
#[derive(Clone, Debug)]
pub enum Action {
    /// New objective of a VM. Without effect while the VM is not there.
    Objective {
        /// Index into [`Scenario::vms`].
        vm: usize,
        /// Objective in force from then on.
        objective: Box<Objective>,
    },
    /// New policy of a device.
    Policy {
        /// Index into [`Scenario::devices`].
        device: usize,
        /// Policy in force from then on.
        policy: PolicySpec,
    },
}

/// Reason why a scenario cannot be run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Error that concerns the whole scenario.
    #[error("{0}")]
    Whole(String),
    /// Error in a device's setting.
    #[error("device {device:?}: {what}")]
    Device {
        /// Name of the device.
        device: String,
        /// Mistake, with the allowed values.
        what: String,
    },
    /// Two disks share bytes of their device.
    #[error("device {device:?}: the disks of {first} and {second} overlap")]
    Overlap {
        /// Name of the device.
        device: String,
        /// VM whose disk begins first.
        first: String,
        /// VM whose disk overlaps it.
        second: String,
    },
    /// The disks exceed the device's capacity.
    #[error(
        "device {device:?} holds {}, the disks of its VMs need {} (each begins on a multiple of \
         {})",
        format_bytes(*.capacity),
        format_bytes(*.needed),
        format_bytes(DISK_ALIGNMENT)
    )]
    Capacity {
        /// Name of the device.
        device: String,
        /// Capacity in bytes.
        capacity: u64,
        /// Bytes that the disks need.
        needed: u64,
    },
    /// Objective that contradicts itself.
    #[error("{vm}: {source}")]
    Objective {
        /// Name of the VM.
        vm: String,
        /// Contradiction.
        source: ObjectiveError,
    },
    /// Workload that is wrong in itself.
    #[error("{vm}: {source}")]
    Workload {
        /// Name of the VM.
        vm: String,
        /// Mistakes of the workload.
        source: WorkloadErrors,
    },
    /// Workload that does not fit its disk.
    #[error("{vm}: {source}")]
    Region {
        /// Name of the VM.
        vm: String,
        /// Mismatch of the workload and its disk.
        source: RegionError,
    },
}

impl Device {
    /// Moves the device to another model. Settings that the model does not allow are fitted to it.
    pub fn put_on(&mut self, model: &catalogue::Entry) {
        // Before the model is replaced: what it does not allow is relative to the new one.
        self.scheduling.fit_model(model.spec());
        self.model = model.clone();
        // The profile was measured on the former model.
        self.scheduling.profile = None;
    }

    /// Checks that the policy has the profile that it needs.
    fn check_policy(&self, policy: &PolicySpec) -> Result<(), ScenarioError> {
        let fits = policy.check_profile(self.scheduling.profile.is_some());
        fits.map_err(|error| ScenarioError::Device {
            device: self.name.clone(),
            what: error.to_string(),
        })
    }

    /// Configuration of an engine for `vms` VMs.
    pub(crate) fn engine_config(&self, vms: usize) -> EngineConfig {
        let spec = self.model.spec();
        let device = DeviceSpec {
            depth: self.scheduling.depth,
            physical_block: spec.physical_block,
            max_io: self.scheduling.max_io,
            zeroes_are_writes: true,
            positioning: spec.positioning,
            bytes_per_s: spec.bytes_per_s,
        };
        (self.scheduling).engine_config(device, vms.max(1) as u32)
    }
}

/// Rule for deadlines of workloads, for messages.
const DEADLINE: &str = "a deadline of the only workload of a VM: all that the VM moves counts";

/// Index of the workload whose deadline is not allowed, and the reason.
fn misplaced_deadline(background: bool, workloads: &[Workload]) -> Option<(usize, &'static str)> {
    // The first one: a second deadline would be refused for the same reason.
    let workload = workloads
        .iter()
        .position(|workload| workload.deadline.is_some())?;
    match (background, workloads.len()) {
        (true, _) => Some((workload, "a background process has no deadlines")),
        (false, 1) => None,
        _ => Some((workload, "its VM has other workloads beside it")),
    }
}

impl Scenario {
    /// Returns the scenario without the daemon's bounds on payload memory and with request slots
    /// undivided, as the systems of published experiments have it.
    #[must_use]
    pub fn unbounded(mut self) -> Scenario {
        for device in &mut self.devices {
            device.bounded = false;
        }
        self
    }

    /// Number of hosts that share a device: one more than the largest host number of its
    /// VMs.
    pub(crate) fn hosts(&self, device: usize) -> usize {
        let on = self.vms.iter().filter(|vm| vm.device == device);
        on.map(|vm| vm.host as usize + 1).max().unwrap_or(1)
    }

    /// Checks that the scenario can be run: sizes fit and figures are in range.
    ///
    /// # Errors
    /// Returns the first mistake.
    ///
    /// # Panics
    /// If the index of a device or a VM is out of range: the reader of scenarios resolves names.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let Frame {
            duration, warm_up, ..
        } = self.frame;
        if duration == Nanos::ZERO || warm_up >= duration {
            return Err(ScenarioError::Whole(format!(
                "a warm-up of {warm_up} leaves nothing of a duration of {duration}: shorten \
                 warm_up, or lengthen the duration"
            )));
        }
        // Devices first: a VM's checks read the model of its device.
        for (index, device) in self.devices.iter().enumerate() {
            self.check_device(index, device)?;
        }
        if let Some(what) = self.cpu.as_ref().and_then(cpu::driver_without_pcpu) {
            return Err(ScenarioError::Whole(what));
        }
        for vm in &self.vms {
            self.check_vm(vm)?;
        }
        for change in &self.changes {
            match &change.action {
                Action::Objective { vm, objective } => {
                    let vm = self.vms[*vm].name.clone();
                    (objective.validate())
                        .map_err(|source| ScenarioError::Objective { vm, source })?;
                }
                Action::Policy { device, policy } => {
                    self.devices[*device].check_policy(policy)?;
                }
            }
        }
        Ok(())
    }

    fn check_device(&self, index: usize, device: &Device) -> Result<(), ScenarioError> {
        let spec = device.model.spec();
        let fail = |what: String| {
            let device = device.name.clone();
            Err(ScenarioError::Device { device, what })
        };
        let scheduling = &device.scheduling;
        device.check_policy(&scheduling.policy)?;
        if scheduling.depth > spec.queue_depth {
            let (found, most) = (scheduling.depth, spec.queue_depth);
            return fail(format!("depth is {found}; {} takes 1 to {most}", spec.name));
        }
        if scheduling.max_io > spec.max_io {
            let (found, most) = (scheduling.max_io, spec.max_io);
            return fail(format!(
                "max_io is {}; {} takes at most {}",
                bytes_and_count(found.into()),
                spec.name,
                bytes_and_count(most.into())
            ));
        }
        let vms = || self.vms.iter().filter(|vm| vm.device == index);
        // The engine checks its own configuration.
        if let Err(error) = scheduling.engine(device.engine_config(vms().count()), Nanos::ZERO) {
            return fail(error.to_string());
        }
        let layout = self.layout(index);
        let needed = layout.iter().map(|(_, disk)| disk.end).max().unwrap_or(0);
        let capacity = spec.capacity;
        if needed > capacity {
            let device = device.name.clone();
            return Err(ScenarioError::Capacity {
                device,
                capacity,
                needed,
            });
        }
        let mut by_place: Vec<_> = layout.iter().collect();
        // In the order of addresses only neighbours can overlap.
        by_place.sort_by_key(|(_, disk)| disk.start);
        let overlap = by_place
            .windows(2)
            .find(|two| two[0].1.end > two[1].1.start);
        if let Some(&[(first, _), (second, _)]) = overlap {
            return Err(ScenarioError::Overlap {
                device: device.name.clone(),
                first: self.vms[*first].name.clone(),
                second: self.vms[*second].name.clone(),
            });
        }
        Ok(())
    }

    /// VMs of a device, by their index in the scenario, with the byte ranges of their disks.
    pub fn layout(&self, device: usize) -> Vec<(usize, Range<u64>)> {
        let mut base = 0;
        let vms = self.vms.iter().enumerate();
        (vms.filter(|(_, vm)| vm.device == device))
            .map(|(index, vm)| {
                // A disk that names its place moves the ones behind it as well.
                let start = vm.disk_at.unwrap_or(base);
                let end = start.saturating_add(vm.disk_size);
                // Saturates, so that `check` reports a layout beyond the device.
                base = end.checked_next_multiple_of(DISK_ALIGNMENT).unwrap_or(end);
                (index, start..end)
            })
            .collect()
    }

    /// Checks the parts of a VM's disk that have limits of their own.
    fn check_parts(&self, vm: &VmSpec) -> Result<(), ScenarioError> {
        let whole = |what: String| Err(ScenarioError::Whole(format!("{}: {what}", vm.name)));
        let starts = vm.parts.iter().map(|part| part.start);
        let ends = vm.parts.iter().skip(1).map(|part| part.start);
        let ends = ends.chain([vm.disk_size]);
        let is_ascending = starts.zip(ends).all(|(start, end)| start < end);
        if !is_ascending || vm.parts.first().is_some_and(|first| first.start > 0) {
            return whole("the parts of its disk do not follow each other".to_owned());
        }
        let groups = &self.devices[vm.device].limit_groups;
        for part in &vm.parts {
            let limited = Objective {
                limit: part.limit,
                ..Objective::default()
            };
            if let Err(source) = limited.validate() {
                let vm = vm.name.clone();
                return Err(ScenarioError::Objective { vm, source });
            }
            if let Some(name) = &part.group
                && !groups.iter().any(|group| group.name == *name)
            {
                return whole(format!("its device has no limit group {name:?}"));
            }
        }
        Ok(())
    }

    fn check_vm(&self, vm: &VmSpec) -> Result<(), ScenarioError> {
        let name = || vm.name.clone();
        if vm.leaves.is_some_and(|leaves| leaves <= vm.arrives) {
            return Err(ScenarioError::Whole(format!(
                "{} leaves before it arrives, at {}",
                name(),
                vm.arrives
            )));
        }
        if vm
            .disk_at
            .is_some_and(|at| !at.is_multiple_of(DISK_ALIGNMENT))
        {
            let name = name();
            let unit = exact_bytes(DISK_ALIGNMENT);
            let what = format!("{name}: its disk begins on no multiple of {unit}");
            return Err(ScenarioError::Whole(what));
        }
        if let Err(source) = vm.objective.validate() {
            return Err(ScenarioError::Objective { vm: name(), source });
        }
        self.check_parts(vm)?;
        if let Some((_, what)) = cpu::not_allowed_with_pcpus(self.cpu.as_ref(), vm) {
            return Err(ScenarioError::Whole(format!("{}: {what}", name())));
        }
        if let Some((workload, what)) = misplaced_deadline(vm.background, &vm.workloads) {
            let workload = &vm.workloads[workload].name;
            let what = format!("{}, workload {workload:?}: {what}: {DEADLINE}", name());
            return Err(ScenarioError::Whole(what));
        }
        let block = self.devices[vm.device].model.spec().logical_block;
        for workload in &vm.workloads {
            workload
                .check()
                .map_err(|source| ScenarioError::Workload { vm: name(), source })?;
            // Copies may have different regions, by `offset_increment`.
            for copy in 0..workload.numjobs {
                workload
                    .region(copy, vm.disk_size)
                    .map_err(|source| ScenarioError::Region { vm: name(), source })?;
            }
            // Sizes of discards and of unused operations too: their defaults are whole blocks on
            // every model.
            let odd = |bytes: u64| !bytes.is_multiple_of(block.into());
            let sizes = workload.sizes.iter().flat_map(|sizes| &sizes.0);
            if sizes.map(|s| s.bytes.into()).any(odd)
                || odd(workload.offset)
                || odd(workload.offset_increment)
            {
                return Err(ScenarioError::Whole(format!(
                    "{}, workload {:?}: sizes and offsets must be whole blocks of {block} bytes, \
                     as the device has them",
                    name(),
                    workload.name
                )));
            }
        }
        Ok(())
    }
}
