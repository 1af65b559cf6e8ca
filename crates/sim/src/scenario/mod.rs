//! What is simulated: devices, the tenants that share them, and what changes when.
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
pub use read::read;
pub use schema::schema;

use core::ops::Range;
use tidegate_config::device::Scheduling;
use tidegate_config::frame::Frame;
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Objective, ObjectiveError};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_policies::policy::PolicySpec;
use tidegate_workload::Mistakes;
use tidegate_workload::job::{Job, RegionError};
use tidegate_workload::time::TimeDistribution;

/// Disks begin on multiples of this many bytes of their device, so that every block size divides
/// their addresses.
pub const DISK_ALIGNMENT: u64 = 1 << 20;

/// A whole scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Title, duration and seed of the run.
    pub frame: Frame,
    /// The devices, each with a scheduling engine of its own.
    pub devices: Vec<Device>,
    /// Who shares them.
    pub tenants: Vec<Tenant>,
    /// What changes while it runs, in the order of time.
    pub changes: Vec<Change>,
    /// The processors that they run on; `None`: guests and the driver domain take no time.
    pub cpu: Option<HostCpu>,
}

/// A device and its scheduler.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name, unique.
    pub name: String,
    /// What it is.
    pub model: catalogue::Entry,
    /// How it is scheduled, of each host that shares it. A cap is not learnt where several do.
    pub scheduling: Scheduling,
    /// Payload memory is bounded and request slots are divided among tenants, as the daemon does;
    /// else memory has no bound, and whoever comes first has the slots.
    pub bounded: bool,
    /// How hosts that share it hear of each other.
    pub exchange: Exchange,
    /// What lies between it and its hosts.
    pub path: Path,
    /// Distances between one I/O's end and the next one's start, in bytes, in ascending order:
    /// the report tells how many I/Os went no farther than each.
    pub distances: Vec<u64>,
}

/// Hosts that may share a device.
pub const MOST_HOSTS: u32 = 64;

/// What becomes of what hosts tell each other.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Exchange {
    /// How long a message is on its way; `None`: no time.
    pub delay: Option<TimeDistribution>,
    /// So many of a thousand are lost.
    pub loss: u32,
}

/// What lies between a device and its hosts: a network, as in front of an array. `None`: nothing.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Path {
    /// From the host's scheduler to the device.
    pub submit: Option<TimeDistribution>,
    /// From the device's completion to the scheduler.
    pub complete: Option<TimeDistribution>,
}

/// Somebody who shares a device.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name, unique.
    pub name: String,
    /// Index into [`Scenario::devices`].
    pub device: usize,
    /// Which of the hosts that share the device it is on, 0 to [`MOST_HOSTS`] - 1: each has an
    /// engine of its own.
    pub host: u32,
    /// A process of the host (a backup, a scrub), not a VM: nothing virtualised delays it.
    pub background: bool,
    /// What it was promised.
    pub objective: Objective,
    /// Bytes of its disk.
    pub disk_size: u64,
    /// First byte of its disk on the device, a multiple of [`DISK_ALIGNMENT`]; `None`: behind the
    /// disk of the tenant before it.
    pub disk_at: Option<u64>,
    /// What it does.
    pub jobs: Vec<Job>,
    /// What virtualisation adds to each request.
    pub delay: Delay,
    /// Its part of the machine's processors, where those are simulated.
    pub cpu: VmCpu,
    /// When it comes.
    pub arrives: Nanos,
    /// When it is removed, with whatever it has outstanding.
    pub leaves: Option<Nanos>,
}

/// What virtualisation adds to each request: the exits, copies and wake-ups between the guest and
/// the scheduler. `None`: nothing.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Delay {
    /// From the guest to the scheduler.
    pub submit: Option<TimeDistribution>,
    /// From the device's completion to the guest.
    pub complete: Option<TimeDistribution>,
    /// What the guest's only processor takes for a request before its process has the answer:
    /// one request after the other.
    pub processor: Option<TimeDistribution>,
}

/// Something that changes while it runs.
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub at: Nanos,
    /// What.
    pub action: Action,
}

/// What changes.
#[derive(Clone, Debug)]
pub enum Action {
    /// What a tenant was promised. Without effect while the tenant is not there.
    Objective {
        /// Index into [`Scenario::tenants`].
        tenant: usize,
        /// From now on.
        objective: Box<Objective>,
    },
    /// How a device is scheduled.
    Policy {
        /// Index into [`Scenario::devices`].
        device: usize,
        /// From now on.
        policy: PolicySpec,
    },
}

/// Why a scenario cannot be run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The whole.
    #[error("{0}")]
    Whole(String),
    /// A device's figure.
    #[error("device {device:?}: {what}")]
    Device {
        /// Its name.
        device: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// Two disks share bytes of their device.
    #[error("device {device:?}: the disks of {first} and {second} overlap")]
    Overlap {
        /// Its name.
        device: String,
        /// Whose begins first.
        first: String,
        /// And whose runs into it.
        second: String,
    },
    /// The disks do not fit their device.
    #[error(
        "device {device:?} holds {capacity} bytes, the disks of its tenants need {needed} \
         (each begins on a multiple of {DISK_ALIGNMENT})"
    )]
    Capacity {
        /// Its name.
        device: String,
        /// Bytes there are.
        capacity: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// A promise contradicts itself.
    #[error("{tenant}: {source}")]
    Objective {
        /// Whose.
        tenant: String,
        /// Why.
        source: ObjectiveError,
    },
    /// A job is wrong in itself.
    #[error("{tenant}: {source}")]
    Job {
        /// Whose.
        tenant: String,
        /// Why.
        source: Mistakes,
    },
    /// A job does not fit its disk.
    #[error("{tenant}: {source}")]
    Region {
        /// Whose.
        tenant: String,
        /// Why.
        source: RegionError,
    },
}

impl Device {
    /// The same on another model, as far as that goes.
    pub fn put_on(&mut self, model: &catalogue::Entry) {
        self.scheduling.fit_model(model.spec());
        self.model = model.clone();
        // It was measured of the other one.
        self.scheduling.profile = None;
    }

    /// Whether a policy can be had on it.
    fn check_policy(&self, policy: &PolicySpec) -> Result<(), ScenarioError> {
        let fits = policy.check_profile(self.scheduling.profile.is_some());
        fits.map_err(|error| ScenarioError::Device {
            device: self.name.clone(),
            what: error.to_string(),
        })
    }

    /// Configuration of an engine for so many tenants.
    pub(crate) fn engine_config(&self, tenants: usize) -> EngineConfig {
        let spec = self.model.spec();
        let device = DeviceSpec {
            depth: self.scheduling.depth,
            physical_block: spec.physical_block,
            max_io: self.scheduling.max_io,
            zeroes_are_writes: true,
            positioning: spec.positioning,
            bytes_per_s: spec.bytes_per_s,
        };
        (self.scheduling).engine_config(device, tenants.max(1) as u32)
    }
}

/// Where deadlines may be.
const DEADLINE: &str = "a deadline of the only workload of a VM: all that the VM moves counts";

/// The job whose deadline cannot be where it is, and why.
fn misplaced_deadline(background: bool, jobs: &[Job]) -> Option<(usize, &'static str)> {
    let job = jobs.iter().position(|job| job.deadline.is_some())?;
    match (background, jobs.len()) {
        (true, _) => Some((job, "a background process has no deadlines")),
        (false, 1) => None,
        _ => Some((job, "its VM has other workloads beside it")),
    }
}

impl Scenario {
    /// The scenario without the daemon's bounds on payload memory and with request slots undivided,
    /// as the systems of published experiments have it.
    #[must_use]
    pub fn unbounded(mut self) -> Scenario {
        for device in &mut self.devices {
            device.bounded = false;
        }
        self
    }

    /// Hosts that share a device: one more than the last that a tenant is on.
    pub(crate) fn hosts(&self, device: usize) -> usize {
        let on = self.tenants.iter().filter(|t| t.device == device);
        on.map(|t| t.host as usize + 1).max().unwrap_or(1)
    }

    /// Whether it can be run: sizes fit, references lead somewhere, figures are in range.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
        for (index, device) in self.devices.iter().enumerate() {
            self.check_device(index, device)?;
        }
        if let Some(what) = self.cpu.as_ref().and_then(cpu::homeless) {
            return Err(ScenarioError::Whole(what));
        }
        for tenant in &self.tenants {
            self.check_tenant(tenant)?;
        }
        for change in &self.changes {
            match &change.action {
                Action::Objective { tenant, objective } => {
                    let tenant = self.tenants[*tenant].name.clone();
                    (objective.validate())
                        .map_err(|source| ScenarioError::Objective { tenant, source })?;
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
                "max_io is {found} bytes; {} takes at most {most}",
                spec.name
            ));
        }
        let tenants = || self.tenants.iter().filter(|t| t.device == index);
        // The engine knows what else it can do with.
        if let Err(error) = scheduling.engine(device.engine_config(tenants().count())) {
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
        by_place.sort_by_key(|(_, disk)| disk.start);
        let overlap = by_place
            .windows(2)
            .find(|two| two[0].1.end > two[1].1.start);
        if let Some(&[(first, _), (second, _)]) = overlap {
            return Err(ScenarioError::Overlap {
                device: device.name.clone(),
                first: self.tenants[*first].name.clone(),
                second: self.tenants[*second].name.clone(),
            });
        }
        Ok(())
    }

    /// The tenants of a device, by their place in the scenario, and the bytes of it that their
    /// disks take.
    pub fn layout(&self, device: usize) -> Vec<(usize, Range<u64>)> {
        let mut base = 0;
        let tenants = self.tenants.iter().enumerate();
        (tenants.filter(|(_, tenant)| tenant.device == device))
            .map(|(index, tenant)| {
                let start = tenant.disk_at.unwrap_or(base);
                let end = start.saturating_add(tenant.disk_size);
                base = end.checked_next_multiple_of(DISK_ALIGNMENT).unwrap_or(end);
                (index, start..end)
            })
            .collect()
    }

    fn check_tenant(&self, tenant: &Tenant) -> Result<(), ScenarioError> {
        let name = || tenant.name.clone();
        if tenant.leaves.is_some_and(|leaves| leaves <= tenant.arrives) {
            return Err(ScenarioError::Whole(format!(
                "{} leaves before it arrives, at {}",
                name(),
                tenant.arrives
            )));
        }
        if tenant
            .disk_at
            .is_some_and(|at| !at.is_multiple_of(DISK_ALIGNMENT))
        {
            let name = name();
            let what = format!("{name}: its disk begins on no multiple of {DISK_ALIGNMENT}");
            return Err(ScenarioError::Whole(what));
        }
        if let Err(source) = tenant.objective.validate() {
            return Err(ScenarioError::Objective {
                tenant: name(),
                source,
            });
        }
        if let Some((_, what)) = cpu::misplaced(self.cpu.as_ref(), tenant) {
            return Err(ScenarioError::Whole(format!("{}: {what}", name())));
        }
        if let Some((job, what)) = misplaced_deadline(tenant.background, &tenant.jobs) {
            let job = &tenant.jobs[job].name;
            let what = format!("{}, workload {job:?}: {what}: {DEADLINE}", name());
            return Err(ScenarioError::Whole(what));
        }
        let block = self.devices[tenant.device].model.spec().logical_block;
        for job in &tenant.jobs {
            job.check().map_err(|source| ScenarioError::Job {
                tenant: name(),
                source,
            })?;
            for copy in 0..job.numjobs {
                job.region(copy, tenant.disk_size)
                    .map_err(|source| ScenarioError::Region {
                        tenant: name(),
                        source,
                    })?;
            }
            let odd = |bytes: u64| !bytes.is_multiple_of(block.into());
            let sizes = job.sizes.iter().flat_map(|sizes| &sizes.0);
            if sizes.map(|s| s.bytes.into()).any(odd)
                || odd(job.offset)
                || odd(job.offset_increment)
            {
                return Err(ScenarioError::Whole(format!(
                    "{}, workload {:?}: sizes and offsets must be whole blocks of {block} bytes, \
                     as the device has them",
                    name(),
                    job.name
                )));
            }
        }
        Ok(())
    }
}
