//! Configuration of a torture run (the swarm), drawn from the seed.
//!
//! Each feature is on or off for a run as a whole, and figures are drawn by octaves, so that the
//! corners of the configuration come as often as its middle. Policies and parts are read from their
//! registries, so new ones take part without further code.

mod device;
mod promises;
mod show;

use super::TortureRng;
use crate::checker::ledger::SECTOR;
use crate::fault::Plan;
use device::{
    CapPlan, draw_cap, draw_config, draw_device_control, draw_payload, draw_speed, draw_timing,
};
use promises::Promises;
use std::sync::Arc;
use tidegate_core::engine::{EngineConfig, PayloadBounds};
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::policy::Policy;
use tidegate_core::profile::Profile;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, controllers, dispatchers, registry, regulators};

pub use device::Timing;
pub(super) use device::{models, profile};

/// Workload of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Largest number of open requests.
    pub depth: u32,
    /// Relative frequency of each operation.
    pub mix: [u32; Op::ALL.len()],
    /// Writes with FUA, in 1000.
    pub fua: u32,
    /// Write-zeroes with `keep_allocated`, in 1000.
    pub keep: u32,
    /// Requests that continue where the last one ended, in 1000.
    pub sequential: u32,
    /// `true` if sequential requests go downwards: each ends where the last one began.
    pub downwards: bool,
    /// Requests to the disk's hot spot, in 1000.
    pub hot: u32,
    /// Smallest and largest request, in sectors.
    pub sectors: (u64, u64),
    /// Longest pause from an answer to the next request.
    pub think: Nanos,
    /// Number of requests before each silence; 0 disables silences.
    pub burst: u32,
    /// Length of a silence.
    pub silence: Nanos,
}

/// Disk and its clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskPlan {
    /// Size in sectors.
    pub sectors: u64,
    /// Gap between the disk and the one before it, in bytes.
    pub gap: u64,
    /// `true` if the disk refuses changes.
    pub read_only: bool,
    /// Workloads, one per client.
    pub clients: Vec<Work>,
}

/// VM or background process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmPlan {
    /// `true` for a process of the host.
    pub background: bool,
    /// Objective at the begin.
    pub objective: Objective,
    /// Disks of the VM.
    pub disks: Vec<DiskPlan>,
}

/// Drawn configuration of a run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Configuration of the engine.
    pub config: EngineConfig,
    /// Bounds of payload memory; `None` for unbounded memory.
    pub payload: Option<PayloadBounds>,
    /// Longest time for which a reply is in transit to its client and holds its memory.
    pub replies: Nanos,
    /// Policy at the begin.
    pub policy: PolicySpec,
    /// Saturation profile that the engine is given, true or not.
    pub profile: Option<Arc<Profile>>,
    /// Largest number of admitted units per VM, enforced where the policy's regulator is open.
    pub window: Option<u32>,
    /// `true` if merge limits of VMs rise and fall at random.
    pub fickle: bool,
    /// `true` if VMs have deadline transfers.
    pub transfers: bool,
    /// `true` if disks have limits, of their own and shared ones.
    pub limited_disks: bool,
    /// VMs at the begin.
    pub vms: Vec<VmPlan>,
    /// Timing of the device.
    pub timing: Timing,
    /// Cap that the engine may learn; `None` disables learning.
    pub cap: Option<CapPlan>,
    /// `true` if the engine adapts the device's queue depth.
    pub adapts_depth: bool,
    /// Largest I/O in bytes while several VMs use the device; 0 for no such bound.
    pub shared_io: u32,
    /// First byte of the first disk on the device.
    pub base: u64,
    /// Faults of the run.
    pub plan: Plan,
    /// Number of accepted requests after which faults stop.
    pub requests: u32,
    /// Approximate time that these take.
    pub span: Nanos,
    promises: Promises,
    /// `true` if requests may exceed the device's largest I/O.
    large: bool,
    /// Policies to draw from; any if empty.
    among: Vec<PolicySpec>,
}

impl Swarm {
    /// Draws the run of a seed, with policies from `among`, or any if that is empty.
    pub fn draw(seed: u64, among: &[PolicySpec]) -> Swarm {
        // Policies have a stream of their own, so that a new policy changes no other draw of a
        // seed.
        let (rng, policies) = (&mut TortureRng::new(seed, 1), &mut TortureRng::new(seed, 2));
        let timing = draw_timing(rng, &mut TortureRng::new(seed, 13));
        let mut config = draw_config(rng, timing);
        draw_speed(&mut TortureRng::new(seed, 8), &mut config.device);
        let (adapts_depth, shared_io) =
            draw_device_control(&mut TortureRng::new(seed, 11), config.device);
        let (payload, replies) = draw_payload(&mut TortureRng::new(seed, 18));
        let requests = rng.octaves(200, 4000) as u32;
        // More in flight hardly shortens a run: the mean number of open requests is small.
        let busy = config.device.depth.min(8) as u64;
        let each = match timing {
            Timing::Random { least, most, .. } => (least.0 + most.0) / 2 / busy,
            // Approximate seek and rotation of a present hard disk.
            Timing::Catalogue(_) => 5_000_000,
        };
        // At least 1 ms, as intervals of faults are drawn from it.
        let span = Nanos((requests as u64 * each).max(1_000_000));
        let promises = Promises {
            limits: rng.chance(500),
            bursts: rng.chance(400),
            reservations: rng.chance(350),
            weights: rng.chance(600),
            priorities: rng.chance(500),
            background: rng.chance(300),
            // At least 10, so that limits drawn below it are not 0.
            iops: (1_000_000_000 / each.max(1)).max(10),
        };
        let mut swarm = Swarm {
            config,
            payload,
            replies,
            policy: policy(policies, among),
            // Stream 9 is the cap's as well, below: the draws of both are correlated.
            profile: profile(&mut TortureRng::new(seed, 9)),
            among: among.to_vec(),
            window: rng.chance(250).then(|| rng.octaves(1, 64) as u32),
            fickle: TortureRng::new(seed, 14).chance(400),
            transfers: TortureRng::new(seed, 16).chance(600),
            limited_disks: TortureRng::new(seed, 19).chance(300),
            vms: Vec::new(),
            timing,
            cap: draw_cap(&mut TortureRng::new(seed, 9), requests, promises.iops),
            adapts_depth,
            shared_io,
            base: 0,
            plan: Plan::draw(rng, &mut TortureRng::new(seed, 11), span),
            requests,
            span,
            promises,
            large: rng.chance(300),
        };
        if let Timing::Catalogue(model) = timing {
            let spec = models()[model].spec();
            // A quarter of the disk behind it is far more than all disks take.
            let block = spec.logical_block as u64;
            swarm.base = rng.below(spec.capacity / 4 * 3) / block * block;
        }
        let vms = rng.range(1, 8);
        swarm.vms = (0..vms).map(|_| swarm.vm(rng)).collect();
        // Often no free slot is left, so that added VMs are refused.
        swarm.config.max_vms = vms as u32 + rng.below(3) as u32;
        swarm
    }

    /// Draws another policy for this run.
    pub fn another_policy(&self, rng: &mut TortureRng) -> PolicySpec {
        policy(rng, &self.among)
    }

    /// Draws another VM for this run.
    pub fn vm(&self, rng: &mut TortureRng) -> VmPlan {
        let disks = rng.range(1, 3);
        VmPlan {
            background: self.promises.background && rng.chance(300),
            objective: self.objective(rng),
            disks: (0..disks).map(|_| self.disk(rng)).collect(),
        }
    }

    /// Draws another disk for this run.
    pub fn disk(&self, rng: &mut TortureRng) -> DiskPlan {
        let unit = match self.timing {
            Timing::Catalogue(model) => models()[model].spec().logical_block as u64 / SECTOR,
            Timing::Random { .. } => 1,
        };
        let sectors = rng.octaves(64, 2048) / unit * unit;
        let clients = rng.range(1, 3);
        DiskPlan {
            sectors,
            gap: if rng.chance(300) {
                rng.octaves(1, 1 << 10) * unit * SECTOR
            } else {
                0
            },
            read_only: rng.chance(50),
            clients: (0..clients).map(|_| self.work(rng, sectors)).collect(),
        }
    }

    /// Draws another objective for this run.
    pub fn objective(&self, rng: &mut TortureRng) -> Objective {
        self.promises.objective(rng)
    }

    /// Draws a limit of a disk, or one that disks share.
    pub fn disk_limit(&self, rng: &mut TortureRng) -> Limit {
        self.promises.disk_limit(rng)
    }

    fn work(&self, rng: &mut TortureRng, sectors: u64) -> Work {
        let mut mix = [0; Op::ALL.len()];
        for (op, often) in Op::ALL.into_iter().zip(&mut mix) {
            *often = match op {
                Op::Read | Op::Write => rng.range(0, 8) as u32,
                Op::Flush | Op::WriteZeroes | Op::Discard => {
                    rng.chance(400) as u32 * rng.range(1, 2) as u32
                }
            };
        }
        // A client with nothing to ask for would never end its run.
        if mix.iter().all(|&often| often == 0) {
            mix[Op::Write as usize] = 1;
        }
        let quiet = |rng: &mut TortureRng, on: u32| {
            if rng.chance(on) {
                Nanos(rng.octaves(1000, self.span.0 / 4))
            } else {
                Nanos::ZERO
            }
        };
        let least = 1 << rng.below(5);
        let largest = self.config.device.max_io as u64 / SECTOR;
        let most = if self.large && rng.chance(300) {
            largest * 4
        } else {
            least << rng.below(5)
        };
        // Half a MiB: content is compared sector by sector.
        let most = most.min(sectors).min(1024);
        Work {
            depth: rng.octaves(1, 32) as u32,
            mix,
            fua: rng.pick(&[0, 0, 100, 1000]),
            keep: rng.pick(&[0, 0, 300]),
            sequential: rng.pick(&[0, 300, 800, 1000]),
            downwards: rng.chance(200),
            hot: rng.pick(&[0, 0, 300, 900]),
            sectors: (least.min(most), most),
            think: quiet(rng, 300),
            burst: rng.chance(400) as u32 * rng.octaves(1, 200) as u32,
            silence: quiet(rng, 900),
        }
    }
}

/// Draws a policy: from `among`, from the registry, or composed of any parts, with any parameters.
fn policy(rng: &mut TortureRng, among: &[PolicySpec]) -> PolicySpec {
    let mut spec = if !among.is_empty() {
        Ok(among[rng.index(among.len())].clone())
    } else if rng.chance(500) {
        let all = registry();
        PolicySpec::named(all[rng.index(all.len())].name)
    } else {
        let controller = if rng.chance(500) && !controllers().is_empty() {
            Some(controllers()[rng.index(controllers().len())].name)
        } else {
            None
        };
        let regulator = regulators()[rng.index(regulators().len())].name;
        let dispatcher = dispatchers()[rng.index(dispatchers().len())].name;
        PolicySpec::composed(controller, regulator, dispatcher)
    }
    .expect("its name is from the list");
    let params: Vec<_> = spec
        .params()
        .iter()
        .copied()
        .map(|(info, _)| info)
        .collect();
    for info in params {
        let value = match rng.below(8) {
            0 => info.min,
            1 => info.max,
            2 | 3 => rng.octaves(info.min.max(1), info.max.max(1)),
            _ => continue,
        };
        // Octaves begin at 1, which may lie outside of the range.
        let value = value.clamp(info.min, info.max);
        spec.set(info.name, value).expect("the value is in range");
    }
    spec
}
