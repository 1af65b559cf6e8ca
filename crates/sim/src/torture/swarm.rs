//! What a run is made of, all of it drawn from the seed: the swarm.
//!
//! Every feature is on or off in a run as a whole, and its figures are drawn by octaves, so that
//! the corners of the configuration come as often as its middle. Policies and parts are read
//! from their registries: a new one takes part by being there.

mod device;
mod promises;
mod show;

use super::Dice;
use crate::checker::ledger::SECTOR;
use crate::fault::Plan;
use device::{
    CapPlan, draw_cap, draw_config, draw_payload, draw_speed, draw_steering, draw_timing,
};
use promises::Promises;
use std::sync::Arc;
use tidegate_core::engine::{EngineConfig, PayloadBounds};
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::profile::Profile;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, controllers, dispatchers, registry, regulators};

pub use device::Timing;
pub(super) use device::{models, profile};

/// What one client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Requests it keeps open at most.
    pub depth: u32,
    /// How often each operation comes, relative to the others.
    pub mix: [u32; Op::ALL.len()],
    /// FUA among its writes, in a thousand.
    pub fua: u32,
    /// `keep_allocated` among its write-zeroes, in a thousand.
    pub keep: u32,
    /// Requests that go on where the last one ended, in a thousand.
    pub sequential: u32,
    /// It goes on downwards: each request ends where the last one began.
    pub downwards: bool,
    /// Requests into the disk's hot spot, in a thousand.
    pub hot: u32,
    /// Sectors of a request: at least and at most.
    pub sectors: (u64, u64),
    /// From an answer to the next request, at most.
    pub think: Nanos,
    /// So many requests, then silence; 0: none.
    pub burst: u32,
    /// How long.
    pub silence: Nanos,
}

/// A disk and who uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskPlan {
    /// Its size.
    pub sectors: u64,
    /// Nothing between it and the disk before it, or so many bytes.
    pub gap: u64,
    /// It refuses changes.
    pub read_only: bool,
    /// Its clients.
    pub clients: Vec<Work>,
}

/// A VM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmPlan {
    /// A process of the host.
    pub background: bool,
    /// What it is promised.
    pub objective: Objective,
    /// Its disks.
    pub disks: Vec<DiskPlan>,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The engine's configuration.
    pub config: EngineConfig,
    /// Payload memory; `None`: it is not bounded.
    pub payload: Option<PayloadBounds>,
    /// How long a reply is on its way to its client, and holds its memory, at most.
    pub replies: Nanos,
    /// The first policy.
    pub policy: PolicySpec,
    /// What the engine is told the device can do at most, true or not.
    pub profile: Option<Arc<Profile>>,
    /// At most so many admitted units a VM, where the regulator is open.
    pub window: Option<u32>,
    /// VMs' merge limits rise and fall at random, whatever the policy.
    pub fickle: bool,
    /// VMs have jobs.
    pub jobs: bool,
    /// The VMs in the beginning.
    pub vms: Vec<VmPlan>,
    /// The device.
    pub timing: Timing,
    /// The engine learns caps.
    pub cap: Option<CapPlan>,
    /// The engine keeps the device's queue as deep as it needs.
    pub adapts_depth: bool,
    /// The longest I/O while VMs use the device at the same time; 0: as long as else.
    pub shared_io: u32,
    /// Where the first disk begins.
    pub base: u64,
    /// What goes wrong.
    pub plan: Plan,
    /// Requests to be accepted; then faults stop.
    pub requests: u32,
    /// About how long they take.
    pub span: Nanos,
    promises: Promises,
    /// Requests may be larger than the device's largest I/O.
    large: bool,
    /// Policies come from here; where it is empty, any.
    among: Vec<PolicySpec>,
}

impl Swarm {
    /// Draws a run of a seed, with policies among those given, or any where none is.
    pub fn draw(seed: u64, among: &[PolicySpec]) -> Swarm {
        // Policies are drawn apart, so that a new one changes nothing else of a seed.
        let (dice, policies) = (&mut Dice::new(seed, 1), &mut Dice::new(seed, 2));
        let timing = draw_timing(dice, &mut Dice::new(seed, 13));
        let mut config = draw_config(dice, timing);
        draw_speed(&mut Dice::new(seed, 8), &mut config.device);
        let (adapts_depth, shared_io) = draw_steering(&mut Dice::new(seed, 11), config.device);
        let (payload, replies) = draw_payload(&mut Dice::new(seed, 18));
        let requests = dice.octaves(200, 4000) as u32;
        let busy = config.device.depth.min(8) as u64;
        let each = match timing {
            Timing::Random { least, most, .. } => (least.0 + most.0) / 2 / busy,
            // As seeks and rotation of a disk of these years go.
            Timing::Catalogue(_) => 5_000_000,
        };
        let span = Nanos((requests as u64 * each).max(1_000_000));
        let promises = Promises {
            limits: dice.chance(500),
            bursts: dice.chance(400),
            reservations: dice.chance(350),
            weights: dice.chance(600),
            priorities: dice.chance(500),
            background: dice.chance(300),
            iops: (1_000_000_000 / each.max(1)).max(10),
        };
        let mut swarm = Swarm {
            config,
            payload,
            replies,
            policy: policy(policies, among),
            profile: profile(&mut Dice::new(seed, 9)),
            among: among.to_vec(),
            window: dice.chance(250).then(|| dice.octaves(1, 64) as u32),
            fickle: Dice::new(seed, 14).chance(400),
            jobs: Dice::new(seed, 16).chance(600),
            vms: Vec::new(),
            timing,
            cap: draw_cap(&mut Dice::new(seed, 9), requests, promises.iops),
            adapts_depth,
            shared_io,
            base: 0,
            plan: Plan::draw(dice, &mut Dice::new(seed, 11), span),
            requests,
            span,
            promises,
            large: dice.chance(300),
        };
        if let Timing::Catalogue(model) = timing {
            let spec = models()[model].spec();
            // A quarter of the disk behind it is far more than all disks take.
            let block = spec.logical_block as u64;
            swarm.base = dice.below(spec.capacity / 4 * 3) / block * block;
        }
        let vms = dice.range(1, 8);
        swarm.vms = (0..vms).map(|_| swarm.vm(dice)).collect();
        swarm.config.max_vms = vms as u32 + dice.below(3) as u32;
        swarm
    }

    /// Draws a policy as this run has them.
    pub fn another_policy(&self, dice: &mut Dice) -> PolicySpec {
        policy(dice, &self.among)
    }

    /// Draws a VM as this run has them.
    pub fn vm(&self, dice: &mut Dice) -> VmPlan {
        let disks = dice.range(1, 3);
        VmPlan {
            background: self.promises.background && dice.chance(300),
            objective: self.objective(dice),
            disks: (0..disks).map(|_| self.disk(dice)).collect(),
        }
    }

    /// Draws a disk.
    pub fn disk(&self, dice: &mut Dice) -> DiskPlan {
        let unit = match self.timing {
            Timing::Catalogue(model) => models()[model].spec().logical_block as u64 / SECTOR,
            Timing::Random { .. } => 1,
        };
        let sectors = dice.octaves(64, 2048) / unit * unit;
        let clients = dice.range(1, 3);
        DiskPlan {
            sectors,
            gap: match dice.chance(300) {
                true => dice.octaves(1, 1 << 10) * unit * SECTOR,
                false => 0,
            },
            read_only: dice.chance(50),
            clients: (0..clients).map(|_| self.work(dice, sectors)).collect(),
        }
    }

    /// Draws an objective as this run has them.
    pub fn objective(&self, dice: &mut Dice) -> Objective {
        self.promises.objective(dice)
    }

    fn work(&self, dice: &mut Dice, sectors: u64) -> Work {
        let mut mix = [0; Op::ALL.len()];
        for (op, often) in Op::ALL.into_iter().zip(&mut mix) {
            *often = match op {
                Op::Read | Op::Write => dice.range(0, 8) as u32,
                Op::Flush | Op::WriteZeroes | Op::Discard => {
                    dice.chance(400) as u32 * dice.range(1, 2) as u32
                }
            };
        }
        if mix.iter().all(|&often| often == 0) {
            mix[Op::Write as usize] = 1;
        }
        let quiet = |dice: &mut Dice, on: u32| match dice.chance(on) {
            true => Nanos(dice.octaves(1000, self.span.0 / 4)),
            false => Nanos::ZERO,
        };
        let least = 1 << dice.below(5);
        let largest = self.config.device.max_io as u64 / SECTOR;
        let most = match self.large && dice.chance(300) {
            true => largest * 4,
            false => least << dice.below(5),
        };
        let most = most.min(sectors).min(1024);
        Work {
            depth: dice.octaves(1, 32) as u32,
            mix,
            fua: dice.pick(&[0, 0, 100, 1000]),
            keep: dice.pick(&[0, 0, 300]),
            sequential: dice.pick(&[0, 300, 800, 1000]),
            downwards: dice.chance(200),
            hot: dice.pick(&[0, 0, 300, 900]),
            sectors: (least.min(most), most),
            think: quiet(dice, 300),
            burst: dice.chance(400) as u32 * dice.octaves(1, 200) as u32,
            silence: quiet(dice, 900),
        }
    }
}

/// One of those given, or of the registry, or any composition, with any parameters.
fn policy(dice: &mut Dice, among: &[PolicySpec]) -> PolicySpec {
    let mut spec = if !among.is_empty() {
        Ok(among[dice.index(among.len())].clone())
    } else if dice.chance(500) {
        let all = registry();
        PolicySpec::named(all[dice.index(all.len())].name)
    } else {
        let controller = match dice.chance(500) && !controllers().is_empty() {
            true => Some(controllers()[dice.index(controllers().len())].name),
            false => None,
        };
        let regulator = regulators()[dice.index(regulators().len())].name;
        let dispatcher = dispatchers()[dice.index(dispatchers().len())].name;
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
        let value = match dice.below(8) {
            0 => info.min,
            1 => info.max,
            2 | 3 => dice.octaves(info.min.max(1), info.max.max(1)),
            _ => continue,
        };
        let value = value.clamp(info.min, info.max);
        spec.set(info.name, value).expect("the value is in range");
    }
    spec
}
