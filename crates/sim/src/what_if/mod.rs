//! Replay of a recording under other policies, objectives and devices: what if?
//!
//! ```text
//!   Recording --> VMs with their requests --infer--> chains, or times --> Scenario --> World
//!                              |                                                        |
//!                              +------------- figures: recorded, and simulated ---------+
//! ```
//!
//! Requests of a VM that waits for answers come a think time after the ends of others, those of
//! other VMs at their times ([`tidegate_workload::dependence`]). The replay lasts as long as the
//! recording; a VM that waits and runs out of requests begins again, so that the load stays.
//! Between two rounds it pauses for as long as the recording has no request of it, before its first
//! and behind its last one: a VM that was done by then stays done.
//! Whether a replay can be believed is asked of the recording itself: replayed under its own policy
//! it must give what was recorded ([`Reproduction`]).

pub mod choose;
mod device;
mod figures;
mod part;

pub use figures::{Figures, Reproduction};
pub use part::Part;

use crate::scenario::{
    Action, Change, Copies, DISK_ALIGNMENT, Delay, Device, Scenario, ScenarioError, VmCpu, VmSpec,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_config::frame::Frame;
use tidegate_config::{ConfigErrors, objective};
use tidegate_core::objective::Objective;
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_policies::policy::{PolicyError, PolicySpec};
use tidegate_recording::{Change as Recorded, DiskFacts, Recording, Request, VmFacts};
use tidegate_units::format_duration;
use tidegate_workload::dependence::{Inference, Link, Span, infer};
use tidegate_workload::replay::{Factor, Mode, Replay};
use tidegate_workload::spec::{Flow, Sizes, Workload};
use tidegate_workload::trace::{self, LARGEST, Record, Took, Trace};

/// Pieces of an open loop that may be outstanding: more than any engine takes.
const OPEN_DEPTH: u32 = 65_536;
/// Longest recording that is replayed. A damaged time of one request must not make a replay that
/// never ends.
pub const LONGEST: Nanos = Nanos(31 * DAY.0);
const DAY: Nanos = Nanos::from_secs(24 * 3600);

/// Reason why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// The recording has no request that can be replayed.
    #[error("the recording has no request of a VM")]
    Empty,
    /// The recording is too short to search on one part of it and to judge on another.
    #[error(
        "the recording has {}: at least {} are needed, to search one part and to judge another",
        format_duration(*.0),
        format_duration(choose::SHORTEST)
    )]
    TooShort(Nanos),
    /// The recording is too long to be replayed.
    #[error(
        "the recording has {} from its beginning to the last end of a request: at most {} days \
         can be replayed",
        format_duration(*.0),
        LONGEST.0 / DAY.0
    )]
    TooLong(Nanos),
    /// A replay of the shortest slice under the settings in force takes more than the budget has
    /// for it.
    #[error(
        "a replay of {} of the recording on this device takes more than the {} requests that the \
         budget has for it",
        format_duration(choose::SLICE_MIN),
        .0
    )]
    Budget(u64),
    /// A value in the recording is not understood.
    #[error("the recording's {what} cannot be used: {error}")]
    Facts {
        /// Part of the recording.
        what: String,
        /// Mistakes.
        error: ConfigErrors,
    },
    /// The policy needs a saturation profile of the device, and there is none.
    #[error(transparent)]
    NoProfile(PolicyError),
    /// The replay is no right scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// VM of a recording.
#[derive(Clone, Debug)]
pub struct RecordedVm {
    /// Name by which the VM is told from others: its last name, with the number in the recording
    /// behind it if the name came more than once.
    pub name: String,
    /// Name that the VM had at the end of the recording, by which commands address it.
    pub last_name: String,
    /// True if a schedule changes its objective.
    pub scheduled: bool,
    /// True if its disks have limits, which are not replayed.
    pub disk_limits: bool,
    /// True for a process of the host.
    pub background: bool,
    /// Objective at the beginning of the recording, or at the VM's arrival.
    pub objective: Objective,
    /// Inference from its requests.
    pub inference: Inference,
    /// Figures of its recorded requests.
    pub recorded: Figures,
    /// Part of its requests that its own limit or credit held back.
    pub held_back: f64,
    arrives: Nanos,
    leaves: Option<Nanos>,
    /// Place on the device; `None`: behind the disk of the VM before.
    disk_at: Option<u64>,
    disk_size: u64,
    /// Requests in the order of arrival, with places on the VM's disk.
    requests: Vec<Record>,
    /// Later objectives.
    objectives: Vec<(Nanos, Objective)>,
}

/// Recording that is ready to be replayed.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// VMs that have requests, in the order of their numbers.
    pub vms: Vec<RecordedVm>,
    /// Length of the recording.
    pub duration: Nanos,
    /// Seed of all random choices of a replay.
    pub seed: u64,
    device: Device,
    policies: Vec<(Nanos, PolicySpec)>,
}

impl WhatIf {
    /// Prepares a recording for the replay on `model`, whose saturation profile is `profile`.
    ///
    /// # Errors
    /// If there is nothing to replay, or the recording has values that this version does not know.
    pub fn new(
        recording: &Recording,
        model: &catalogue::Entry,
        profile: Option<Arc<Profile>>,
    ) -> Result<WhatIf, WhatIfError> {
        let mut device = device::read(&recording.header.device, model, profile)?;
        let (vms, policies) = Vms::read(recording)?;
        let last = recording.requests.iter().map(|it| it.done).max();
        let duration = recording.summary.last.max(last.unwrap_or_default());
        if duration > LONGEST {
            return Err(WhatIfError::TooLong(duration));
        }
        let mut vms = vms.finish(&recording.requests, duration);
        if vms.is_empty() {
            return Err(WhatIfError::Empty);
        }
        place_disks(&mut vms, model.spec().capacity);
        device.scheduling.fit_model(model.spec());
        Ok(WhatIf {
            vms,
            duration,
            seed: Frame::lasting(duration).seed,
            device,
            policies,
        })
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.vms.iter().map(|vm| vm.requests.len() as u64).sum()
    }

    /// Returns the name of the device.
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// Returns the policy in force at the beginning of the recording.
    pub fn policy(&self) -> &PolicySpec {
        &self.device.scheduling.policy
    }

    /// Returns the scenario of a replay. With a policy, that one is in force all the time,
    /// otherwise those of the recording. Objectives are by the place of a VM in [`WhatIf::vms`] and
    /// replace those of the recording, whenever they came into force.
    ///
    /// # Errors
    /// If the policy or an objective cannot be in force there.
    pub fn scenario(
        &self,
        policy: Option<&PolicySpec>,
        objectives: &BTreeMap<usize, Objective>,
    ) -> Result<Scenario, WhatIfError> {
        let mut device = self.device.clone();
        let mut changes = Vec::new();
        match policy {
            Some(policy) => device.scheduling.policy = policy.clone(),
            None => changes.extend(self.policies.iter().map(|(at, policy)| Change {
                at: *at,
                action: Action::Policy {
                    device: 0,
                    policy: policy.clone(),
                },
            })),
        }
        let mut vms = Vec::new();
        for (index, vm) in self.vms.iter().enumerate() {
            let given = objectives.get(&index);
            if given.is_none() {
                changes.extend(vm.objectives.iter().map(|(at, objective)| Change {
                    at: *at,
                    action: Action::Objective {
                        vm: index,
                        objective: Box::new(*objective),
                    },
                }));
            }
            vms.push(vm.spec(*given.unwrap_or(&vm.objective), self.duration));
        }
        changes.sort_by_key(|change| change.at);
        // Before the scenario's own check, whose error does not tell it from others.
        let has_profile = device.scheduling.profile.is_some();
        let later = changes.iter().filter_map(|change| match &change.action {
            Action::Policy { policy, .. } => Some(policy),
            Action::Objective { .. } => None,
        });
        for policy in [&device.scheduling.policy].into_iter().chain(later) {
            (policy.check_profile(has_profile)).map_err(WhatIfError::NoProfile)?;
        }
        let scenario = Scenario {
            frame: Frame {
                seed: self.seed,
                ..Frame::lasting(self.duration)
            },
            devices: vec![device],
            vms,
            copies: Copies::new(),
            changes,
            cpu: None,
        };
        scenario.check()?;
        Ok(scenario)
    }
}

impl RecordedVm {
    /// Returns true if the VM's results depend on the inference about its requests.
    pub fn is_inferred(&self) -> bool {
        !self.inference.certain
    }

    fn spec(&self, objective: Objective, duration: Nanos) -> VmSpec {
        VmSpec {
            name: self.name.clone(),
            device: 0,
            host: 0,
            background: self.background,
            objective,
            disk_size: self.disk_size,
            parts: Vec::new(),
            disk_at: self.disk_at,
            workloads: vec![self.workload(duration)],
            delay: Delay::default(),
            cpu: VmCpu::default(),
            arrives: self.arrives,
            leaves: self.leaves,
        }
    }

    /// Returns the workload of a replay that lasts for `duration`.
    fn workload(&self, duration: Nanos) -> Workload {
        if !self.inference.closed {
            // The times of a replay begin with its first request.
            let start = self.requests[0].at.since(self.arrives);
            return workload(self.timed(), OPEN_DEPTH, start);
        }
        let record = |link: &Link| Record {
            at: link.think,
            ..self.requests[link.request]
        };
        let chains = self.inference.chains.iter();
        let first = chains.clone().map(|chain| record(&chain[0])).collect();
        let mut rest: Vec<&Link> = chains.flat_map(|chain| &chain[1..]).collect();
        // By arrival: ends let requests come in the order in which they came.
        rest.sort_by_key(|link| link.request);
        let replay = Replay::thinking(first, rest.into_iter().map(record).collect());
        let mut replay = replay.expect("a VM without requests is left out");
        replay.looped = true;
        replay.round_pause = self.pause(duration);
        workload(replay, self.inference.depth as u32, Nanos::ZERO)
    }

    /// Returns the time in which the VM is there and none of its requests is outstanding: before
    /// its first one, and behind its last.
    fn pause(&self, duration: Nanos) -> Nanos {
        let ends = self.requests.iter();
        let ends = ends.map(|request| request.at + request.took.get().unwrap_or_default());
        let last = ends.max().unwrap_or_default();
        let before = self.requests[0].at.since(self.arrives);
        before + self.leaves.unwrap_or(duration).since(last)
    }

    /// Returns the requests at their times, which count from the VM's arrival.
    fn timed(&self) -> Replay {
        let trace = Trace {
            format: trace::Format::Msr,
            disks: vec![self.name.clone()],
            records: self.requests.clone(),
            out_of_order: 0,
            others: 0,
            skipped: 0,
            bad: Vec::new(),
        };
        let mut replay =
            Replay::new(&trace, None, None).expect("a VM without requests is left out");
        replay.mode = Mode::Timed(Factor::ONE);
        replay
    }
}

/// Returns the workload of a replay that begins `start` after the VM's arrival, whose requests are
/// sent whole.
fn workload(replay: Replay, iodepth: u32, start: Nanos) -> Workload {
    Workload {
        start,
        sizes: std::array::from_fn(|_| Sizes::fixed(LARGEST)),
        flow: Flow::Closed {
            iodepth,
            think: None,
        },
        replay: Some(replay),
        ..Workload::default()
    }
}

/// VMs and disks of a recording as they come.
#[derive(Default)]
struct Vms {
    all: BTreeMap<u32, Draft>,
    /// VM and place on its disk of every disk.
    disks: BTreeMap<u32, (u32, u64)>,
}

/// VM while the recording is read.
struct Draft {
    facts: VmFacts,
    objective: Objective,
    arrives: Nanos,
    leaves: Option<Nanos>,
    size: u64,
    objectives: Vec<(Nanos, Objective)>,
}

impl Vms {
    /// Reads the VMs and changes of a recording; returns them with the later policies.
    fn read(recording: &Recording) -> Result<(Vms, Vec<(Nanos, PolicySpec)>), WhatIfError> {
        let mut vms = Vms::default();
        let mut policies = Vec::new();
        for vm in &recording.header.vms {
            vms.add(vm, Nanos::ZERO)?;
        }
        for (at, change) in &recording.changes {
            match change {
                Recorded::VmAdded { vm } => vms.add(vm, *at)?,
                Recorded::VmRemoved { vm } => {
                    if let Some(vm) = vms.all.get_mut(vm) {
                        vm.leaves = Some(*at);
                    }
                }
                Recorded::DiskAdded { vm, disk } => vms.add_disk(*vm, disk),
                Recorded::Objective { vm, objective } => {
                    if let Some(vm) = vms.all.get_mut(vm) {
                        let new = read_objective(&vm.facts.name, objective)?;
                        vm.objectives.push((*at, new));
                    }
                }
                Recorded::Policy { policy } => policies.push((*at, device::policy(policy)?)),
                Recorded::VmRenamed { vm, name } => {
                    if let Some(vm) = vms.all.get_mut(vm) {
                        vm.facts.name.clone_from(name);
                    }
                }
                // Neither changes what a request is.
                Recorded::DiskRemoved { .. }
                | Recorded::DiskResized { .. }
                | Recorded::DeviceResized { .. } => {}
            }
        }
        Ok((vms, policies))
    }

    fn add(&mut self, facts: &VmFacts, arrives: Nanos) -> Result<(), WhatIfError> {
        let draft = Draft {
            objective: read_objective(&facts.name, &facts.objective)?,
            facts: facts.clone(),
            arrives,
            leaves: None,
            size: 0,
            objectives: Vec::new(),
        };
        self.all.insert(facts.number, draft);
        for disk in &facts.disks {
            self.add_disk(facts.number, disk);
        }
        Ok(())
    }

    /// Puts a disk behind the VM's others.
    fn add_disk(&mut self, vm: u32, disk: &DiskFacts) {
        if let Some(draft) = self.all.get_mut(&vm) {
            self.disks.insert(disk.number, (vm, draft.size));
            let end = draft.size.saturating_add(disk.size_bytes);
            draft.size = end.checked_next_multiple_of(DISK_ALIGNMENT).unwrap_or(end);
        }
    }

    /// Gives each VM its requests; VMs without any are left out.
    fn finish(self, requests: &[Request], duration: Nanos) -> Vec<RecordedVm> {
        let mut of_vm: BTreeMap<u32, (Vec<Record>, Vec<Span>, usize)> = BTreeMap::new();
        for request in requests {
            let Some(&(vm, base)) = self.disks.get(&request.disk) else {
                continue;
            };
            let (records, spans, held_back) = of_vm.entry(vm).or_default();
            *held_back += usize::from(request.admitted > request.arrived);
            records.push(Record {
                at: request.arrived,
                disk: 0,
                op: request.op,
                fua: request.fua,
                offset: base.saturating_add(request.offset),
                len: request.len,
                took: Took::new(request.latency()),
            });
            spans.push(Span {
                arrived: request.arrived,
                done: request.done,
            });
        }
        let mut names: BTreeMap<String, u32> = BTreeMap::new();
        for draft in self.all.values() {
            *names.entry(draft.facts.name.clone()).or_default() += 1;
        }
        let vm = |(number, draft): (u32, Draft)| {
            let (records, spans, held_back) = of_vm.remove(&number)?;
            let name = match names[&draft.facts.name] {
                1 => draft.facts.name.clone(),
                _ => format!("{}-{number}", draft.facts.name),
            };
            let relative: Vec<Span> = (spans.iter())
                .map(|span| Span {
                    arrived: span.arrived.since(draft.arrives),
                    done: span.done.since(draft.arrives),
                })
                .collect();
            let end = draft.leaves.unwrap_or(duration);
            Some(RecordedVm {
                name,
                last_name: draft.facts.name.clone(),
                scheduled: draft.facts.scheduled,
                disk_limits: draft.facts.disk_limits,
                background: draft.facts.background,
                objective: draft.objective,
                inference: infer(&relative),
                recorded: Figures::of_recorded(&records, end.since(draft.arrives)),
                held_back: held_back as f64 / records.len() as f64,
                arrives: draft.arrives,
                leaves: draft.leaves.filter(|&leaves| leaves > draft.arrives),
                disk_at: match &draft.facts.disks[..] {
                    [disk] => Some(disk.at),
                    _ => None,
                },
                disk_size: draft.size,
                requests: records,
                objectives: draft.objectives,
            })
        };
        self.all.into_iter().filter_map(vm).collect()
    }
}

/// Keeps the places of the disks on the device if all of them can be there, and otherwise puts the
/// disks one behind the other.
fn place_disks(vms: &mut [RecordedVm], capacity: u64) {
    let mut places: Vec<Option<(u64, u64)>> = (vms.iter())
        .map(|vm| {
            let at = vm.disk_at.filter(|at| at.is_multiple_of(DISK_ALIGNMENT))?;
            Some((at, at.checked_add(vm.disk_size)?)).filter(|(_, end)| *end <= capacity)
        })
        .collect();
    places.sort_unstable();
    let apart = places.windows(2).all(|two| match (two[0], two[1]) {
        (Some((_, end)), Some((begin, _))) => end <= begin,
        _ => false,
    });
    if !apart || places.first().is_some_and(Option::is_none) {
        vms.iter_mut().for_each(|vm| vm.disk_at = None);
    }
}

fn read_objective(
    vm: &str,
    view: &tidegate_api::objective::ObjectiveView,
) -> Result<Objective, WhatIfError> {
    let json = serde_json::to_value(view).expect("a view is plain data");
    objective::merge(&Objective::default(), &json).map_err(|error| WhatIfError::Facts {
        what: format!("objective of {vm}"),
        error,
    })
}
