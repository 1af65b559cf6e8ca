//! The device that a run draws, and what the engine is told of it.

use super::super::Dice;
use std::sync::{Arc, OnceLock};
use tidegate_core::engine::{DeviceSpec, EngineConfig, PayloadBounds};
use tidegate_core::profile::{Curve, Profile};
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

/// A flash disk whose commands share the interface, so that what is submitted puts ends off.
const INTERLEAVED: &str = include_str!("../interleaved.toml");

/// The catalogue, parsed once, and that disk behind it.
pub(in crate::torture) fn models() -> &'static [Entry] {
    static MODELS: OnceLock<Vec<Entry>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let interleaved = catalogue::parse(INTERLEAVED, "interleaved.toml");
        let interleaved = interleaved.expect("a disk that the tests run on");
        catalogue::entries().chain([interleaved]).collect()
    })
}

pub(super) fn draw_timing(dice: &mut Dice, apart: &mut Dice) -> Timing {
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

pub(super) fn draw_config(dice: &mut Dice, timing: Timing) -> EngineConfig {
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

/// Payload memory, often scarce, and how long replies take at most.
pub(super) fn draw_payload(dice: &mut Dice) -> (Option<PayloadBounds>, Nanos) {
    let bounded = dice.chance(400);
    let total = dice.octaves(8 << 10, 8 << 20);
    let bounds = PayloadBounds {
        total,
        per_vm: dice.octaves(4 << 10, total),
        largest: 1 << 20,
    };
    let replies = match dice.chance(500) {
        true => Nanos(dice.octaves(1_000, 20_000_000)),
        false => Nanos::ZERO,
    };
    (bounded.then_some(bounds), replies)
}

/// A cap slows a run down to seconds, so that it can be learnt.
pub(super) fn draw_cap(dice: &mut Dice, requests: u32, iops: u64) -> Option<CapPlan> {
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
pub(super) fn draw_steering(dice: &mut Dice, device: DeviceSpec) -> (bool, u32) {
    let adapts = dice.chance(350);
    let shared = match dice.chance(350) {
        true => dice.octaves(1, device.max_io.into()) as u32,
        false => 0,
    };
    (adapts, shared)
}

/// What the engine is told of the device's speed: nothing, or anything, true or not.
pub(super) fn draw_speed(dice: &mut Dice, device: &mut DeviceSpec) {
    if dice.chance(500) {
        device.positioning = Nanos(dice.octaves(1000, 20_000_000));
    }
    if dice.chance(500) {
        device.bytes_per_s = dice.octaves(1 << 20, 1 << 32);
    }
}

/// Three in four times one, of any curves: rising or not, and of any number of sizes.
pub(in crate::torture) fn profile(dice: &mut Dice) -> Option<Arc<Profile>> {
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
