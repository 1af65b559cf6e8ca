//! What a run is made of, all of it drawn from the seed: the swarm.
//!
//! Every feature is on or off in a run as a whole, and its figures are drawn by octaves, so that
//! the corners of the configuration come as often as its middle. Policies and parts are read
//! from their registries: a new one takes part by being there.

use super::Dice;
use crate::checker::ledger::SECTOR;
use crate::fault::Plan;
use core::fmt;
use std::sync::{Arc, OnceLock};
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Priority, Rate};
use tidegate_core::policy::{PolicySpec, controllers, dispatchers, registry, regulators};
use tidegate_core::profile::{Access, Curve, Direction, Profile};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};

/// How long the device takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Each I/O by itself, `least` to `most`, and `tail` now and then: ends come in any order.
    Random {
        /// At least.
        least: Nanos,
        /// At most, usually.
        most: Nanos,
        /// Now and then.
        tail: Nanos,
    },
    /// As the model in this place of the catalogue does.
    Catalogue(usize),
}

/// A cap in front of the device, and what the engine makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapPlan {
    /// I/Os a second that pass; `None`: all.
    pub iops: Option<u64>,
    /// What the engine is told of a cap in the beginning, in I/Os and bytes a second, true or not.
    pub assumed: (Option<u64>, Option<u64>),
    /// It has a profile, of a device with so many IOPS at saturation, true or not.
    pub profile: Option<u64>,
}

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

/// Which parts of objectives a run uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Promises {
    limits: bool,
    bursts: bool,
    reservations: bool,
    weights: bool,
    priorities: bool,
    /// Some of the tenants are processes of the host.
    background: bool,
    /// About what the device can do.
    iops: u64,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The engine's configuration.
    pub config: EngineConfig,
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

/// A flash disk whose commands share the interface, so that what is submitted puts ends off.
const INTERLEAVED: &str = include_str!("interleaved.toml");

/// The catalogue, parsed once, and that disk behind it.
pub(super) fn models() -> &'static [Entry] {
    static MODELS: OnceLock<Vec<Entry>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let interleaved = catalogue::parse(INTERLEAVED, "interleaved.toml");
        let interleaved = interleaved.expect("a disk that the tests run on");
        catalogue::entries().chain([interleaved]).collect()
    })
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

    /// Draws an objective as this run has them.
    pub fn objective(&self, dice: &mut Dice) -> Objective {
        let all = &self.promises;
        let mut objective = Objective::default();
        for _ in 0..8 {
            objective = Objective::default();
            if all.weights && dice.chance(700) {
                objective.weight = dice.octaves(1, Objective::MAX_WEIGHT.into()) as u32;
            }
            if all.reservations && dice.chance(500) {
                objective.reservation = rate(dice, all.iops / 4 + 1);
            }
            if all.limits && dice.chance(600) {
                objective.limit = limit(dice, all.iops, all.bursts);
            }
            if all.priorities && dice.chance(500) {
                objective.priority = match dice.below(6) {
                    0 => Priority::RealTime,
                    1 => Priority::Idle,
                    _ => Priority::BestEffort(dice.below(8) as u8),
                };
            }
            if dice.chance(100) {
                objective.target = rate(dice, all.iops);
            }
            if dice.chance(150) {
                objective.latency = Some(Nanos(dice.octaves(100_000, 1_000_000_000)));
            }
            if objective.validate().is_ok() {
                return objective;
            }
        }
        // Parts that contradict each other every time: then none but the weight.
        Objective {
            weight: objective.weight,
            ..Objective::default()
        }
    }
}

fn draw_timing(dice: &mut Dice, apart: &mut Dice) -> Timing {
    if dice.chance(150) {
        let last = models().len() - 1;
        let model = dice.index(last);
        return Timing::Catalogue(if apart.chance(250) { last } else { model });
    }
    let least = dice.octaves(1000, 2_000_000);
    let most = least * dice.octaves(1, 16);
    Timing::Random {
        least: Nanos(least),
        most: Nanos(most),
        tail: Nanos(most * dice.octaves(1, 64)),
    }
}

fn draw_config(dice: &mut Dice, timing: Timing) -> EngineConfig {
    let block = 512 << dice.below(4) as u32;
    let mut device = DeviceSpec {
        depth: dice.octaves(1, 64) as u32,
        physical_block: block,
        max_io: block << dice.below(8),
        zeroes_are_writes: dice.chance(500),
        positioning: Nanos::ZERO,
        bytes_per_s: 0,
    };
    if let Timing::Catalogue(model) = timing {
        let spec = models()[model].spec();
        device.depth = device.depth.min(spec.queue_depth);
        device.physical_block = block.max(spec.logical_block);
        device.max_io = device.max_io.max(device.physical_block).min(spec.max_io);
    }
    let bound = |dice: &mut Dice, tight| match tight {
        true => dice.range(1, 24) as u32,
        false => 512,
    };
    let (all_tight, each_tight) = (dice.chance(250), dice.chance(250));
    EngineConfig {
        device,
        max_requests: bound(dice, all_tight),
        max_pending_per_vm: bound(dice, each_tight),
        merge_limit: match dice.chance(250) {
            true => 0,
            false => dice.octaves(512, 2 * device.max_io as u64) as u32,
        },
        max_vms: 1,
    }
}

/// A cap slows a run down to seconds, so that it can be learnt.
fn draw_cap(dice: &mut Dice, requests: u32, iops: u64) -> Option<CapPlan> {
    if !dice.chance(250) {
        return None;
    }
    let slow = (requests as u64 / 8).max(20);
    let rate = |dice: &mut Dice| dice.octaves(slow, slow.max(iops) * 4);
    Some(CapPlan {
        iops: dice.chance(600).then(|| dice.octaves(slow, slow * 4)),
        assumed: (
            dice.chance(500).then(|| rate(dice)),
            dice.chance(300)
                .then(|| rate(dice) * dice.octaves(4096, 1 << 20)),
        ),
        profile: dice.chance(700).then(|| rate(dice)),
    })
}

/// How the device is used whatever the policy: often as ever.
fn draw_steering(dice: &mut Dice, device: DeviceSpec) -> (bool, u32) {
    let adapts = dice.chance(350);
    let shared = match dice.chance(350) {
        true => dice.octaves(1, device.max_io.into()) as u32,
        false => 0,
    };
    (adapts, shared)
}

/// What the engine is told of the device's speed: nothing, or anything, true or not.
fn draw_speed(dice: &mut Dice, device: &mut DeviceSpec) {
    if dice.chance(500) {
        device.positioning = Nanos(dice.octaves(1000, 20_000_000));
    }
    if dice.chance(500) {
        device.bytes_per_s = dice.octaves(1 << 20, 1 << 32);
    }
}

/// Three in four times one, of any curves: rising or not, and of any number of sizes.
pub(super) fn profile(dice: &mut Dice) -> Option<Arc<Profile>> {
    if dice.chance(250) {
        return None;
    }
    let mut curve = || {
        let sizes = dice.range(1, 6);
        let points = (0..sizes).map(|_| {
            let size = dice.octaves(512, 1 << 20) as u32;
            (size, 1e9 / dice.octaves(1000, 20_000_000) as f64)
        });
        // A size drawn twice is there once.
        let mut points: Vec<(u32, f64)> = points.collect();
        points.sort_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        Curve::new(&points).expect("sizes and rates are in range")
    };
    let [reads, writes] = [(); 2].map(|()| [curve(), curve()]);
    let writes = dice.chance(700).then_some(writes);
    let profile = Profile::new(reads, writes, Vec::new(), Vec::new());
    Some(Arc::new(profile))
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
    let params: Vec<_> = spec.params().map(|(info, _)| info).collect();
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

fn rate(dice: &mut Dice, iops: u64) -> Rate {
    let ops = dice.chance(650).then(|| OpsRate {
        per_s: dice.octaves((iops / 64).max(1), iops.max(1)),
        norm: dice.chance(300).then(|| dice.octaves(512, 64 << 10) as u32),
    });
    let by_bytes = ops.is_none() || dice.chance(250);
    Rate {
        ops,
        bytes_per_s: by_bytes.then(|| dice.octaves(iops.max(1) * 64, iops.max(1) * 16_384)),
    }
}

fn limit(dice: &mut Dice, iops: u64, bursts: bool) -> Limit {
    let scope = |dice: &mut Dice, often| match dice.chance(often) {
        true => rate(dice, iops),
        false => Rate::NONE,
    };
    let mut limit = Limit {
        total: scope(dice, 600),
        read: scope(dice, 250),
        write: scope(dice, 250),
        burst: None,
    };
    if bursts && dice.chance(600) {
        let mut faster = |rate: &Rate| Rate {
            ops: rate.ops.filter(|_| dice.chance(700)).map(|ops| OpsRate {
                per_s: ops.per_s * dice.octaves(1, 16),
                norm: ops.norm,
            }),
            bytes_per_s: rate
                .bytes_per_s
                .filter(|_| dice.chance(700))
                .map(|bytes| bytes * dice.octaves(1, 16)),
        };
        let [total, read, write] = [&limit.total, &limit.read, &limit.write].map(&mut faster);
        limit.burst = Some(Burst {
            total,
            read,
            write,
            length: Nanos(dice.octaves(1_000_000, 2_000_000_000)),
        });
    }
    limit
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timing::Random { least, most, tail } => {
                write!(f, "{least} to {most} an I/O, now and then {tail}")
            }
            Timing::Catalogue(model) => f.write_str(&models()[*model].name),
        }
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (config, device) = (&self.config, &self.config.device);
        writeln!(f, "policy     {:?}", self.policy)?;
        if let Some(profile) = &self.profile {
            let curves = [Direction::Read, Direction::Write].map(|direction| {
                [Access::Sequential, Access::Random].map(|a| profile.curve(direction, a).points())
            });
            writeln!(
                f,
                "profile    sequential and random, reads and writes: {curves:?}"
            )?;
        }
        if let Some(most) = self.window {
            writeln!(
                f,
                "admission  {most} units a VM, where the regulator is open"
            )?;
        }
        if self.jobs {
            writeln!(
                f,
                "jobs       of VMs, by when so many bytes are to have moved"
            )?;
        }
        if self.fickle {
            writeln!(f, "merging    limits of VMs rise and fall at random")?;
        }
        writeln!(
            f,
            "device     {}; depth {}, blocks of {}, I/Os up to {}, zeroes are {}",
            self.timing,
            device.depth,
            device.physical_block,
            device.max_io,
            match device.zeroes_are_writes {
                true => "written",
                false => "free",
            }
        )?;
        writeln!(
            f,
            "engine     {} requests, {} a VM, {} VMs, merging up to {}",
            config.max_requests, config.max_pending_per_vm, config.max_vms, config.merge_limit
        )?;
        writeln!(f, "requests   {}, in about {}", self.requests, self.span)?;
        if let Some(cap) = &self.cap {
            writeln!(f, "cap        {cap:?}")?;
        }
        if self.adapts_depth || self.shared_io > 0 {
            let (adapts, shared) = (self.adapts_depth, self.shared_io);
            writeln!(
                f,
                "steering   adapts its depth: {adapts}, I/Os beside others up to {shared}"
            )?;
        }
        write!(f, "faults     {}", self.plan)?;
        for (n, vm) in self.vms.iter().enumerate() {
            write!(f, "\nVM {n}       {:?}", vm.objective)?;
            for disk in &vm.disks {
                let read_only = if disk.read_only { ", read-only" } else { "" };
                write!(f, "\n  disk     {} sectors{read_only}", disk.sectors)?;
                for work in &disk.clients {
                    write!(f, "\n    client {work:?}")?;
                }
            }
        }
        Ok(())
    }
}
