//! Device of a torture run, and the description of it that the engine gets.

use super::super::TortureRng;
use std::sync::{Arc, OnceLock};
use tidegate_core::engine::{DeviceSpec, EngineConfig, PayloadBounds};
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};

/// Timing of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Random times, drawn per I/O: `least` to `most`, and now and then up to `tail`. Completions
    /// come in any order.
    Random {
        /// Shortest time.
        least: Nanos,
        /// Longest usual time.
        most: Nanos,
        /// Longest time.
        tail: Nanos,
    },
    /// Timing of the model with this index in the catalogue.
    Catalogue(usize),
}

/// Cap in front of the device, with the engine's initial assumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapPlan {
    /// I/Os per second that pass; `None` for no cap.
    pub iops: Option<u64>,
    /// Cap that the engine assumes at the begin, in I/Os and bytes per second, true or not.
    pub assumed: (Option<u64>, Option<u64>),
    /// Saturation IOPS of the profile that the engine is given, true or not; `None` for no profile.
    pub profile: Option<u64>,
}

/// Flash disk whose commands share an interface, so that a submission delays completions in flight.
const INTERLEAVED: &str = include_str!("../interleaved.toml");

/// Models of the catalogue, parsed once, and the interleaved disk as the last one.
pub(in crate::torture) fn models() -> &'static [Entry] {
    static MODELS: OnceLock<Vec<Entry>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let interleaved = catalogue::parse(INTERLEAVED, "interleaved.toml");
        let interleaved = interleaved.expect("a disk that the tests run on");
        catalogue::entries().chain([interleaved]).collect()
    })
}

pub(super) fn draw_timing(rng: &mut TortureRng, apart: &mut TortureRng) -> Timing {
    if rng.chance(150) {
        // The interleaved disk came later and has a stream of its own, so that older seeds keep
        // their models.
        let last = models().len() - 1;
        let model = rng.index(last);
        return Timing::Catalogue(if apart.chance(250) { last } else { model });
    }
    let least = rng.octaves(1000, 2_000_000);
    let most = least * rng.octaves(1, 16);
    Timing::Random {
        least: Nanos(least),
        most: Nanos(most),
        tail: Nanos(most * rng.octaves(1, 64)),
    }
}

pub(super) fn draw_config(rng: &mut TortureRng, timing: Timing) -> EngineConfig {
    let block = 512 << rng.below(4) as u32;
    let mut device = DeviceSpec {
        depth: rng.octaves(1, 64) as u32,
        physical_block: block,
        max_io: block << rng.below(8),
        zeroes_are_writes: rng.chance(500),
        positioning: Nanos::ZERO,
        bytes_per_s: 0,
    };
    if let Timing::Catalogue(model) = timing {
        let spec = models()[model].spec();
        device.depth = device.depth.min(spec.queue_depth);
        // Splits must end on blocks that the model can address.
        device.physical_block = block.max(spec.logical_block);
        device.max_io = device.max_io.max(device.physical_block).min(spec.max_io);
    }
    // 512 is above what the clients of a run have open.
    let bound = |rng: &mut TortureRng, tight| if tight { rng.range(1, 24) as u32 } else { 512 };
    let (all_tight, each_tight) = (rng.chance(250), rng.chance(250));
    EngineConfig {
        device,
        max_requests: bound(rng, all_tight),
        max_pending_per_vm: bound(rng, each_tight),
        merge_limit: if rng.chance(250) {
            0
        } else {
            rng.octaves(512, 2 * device.max_io as u64) as u32
        },
        max_vms: 1,
    }
}

/// Draws the bounds of payload memory, often scarce, and the longest transit of a reply.
pub(super) fn draw_payload(rng: &mut TortureRng) -> (Option<PayloadBounds>, Nanos) {
    let bounded = rng.chance(400);
    let total = rng.octaves(8 << 10, 8 << 20);
    let bounds = PayloadBounds {
        total,
        per_vm: rng.octaves(4 << 10, total),
        largest: 1 << 20,
    };
    let replies = if rng.chance(500) {
        Nanos(rng.octaves(1_000, 20_000_000))
    } else {
        Nanos::ZERO
    };
    (bounded.then_some(bounds), replies)
}

/// Draws a cap, or none. A cap slows the run down to seconds, long enough for the engine to learn
/// it.
pub(super) fn draw_cap(rng: &mut TortureRng, requests: u32, iops: u64) -> Option<CapPlan> {
    if !rng.chance(250) {
        return None;
    }
    // The run takes about 8 s at this rate, or less where there are few requests.
    let slow = (requests as u64 / 8).max(20);
    let rate = |rng: &mut TortureRng| rng.octaves(slow, slow.max(iops) * 4);
    Some(CapPlan {
        iops: rng.chance(600).then(|| rng.octaves(slow, slow * 4)),
        assumed: (
            rng.chance(500).then(|| rate(rng)),
            rng.chance(300)
                .then(|| rate(rng) * rng.octaves(4096, 1 << 20)),
        ),
        profile: rng.chance(700).then(|| rate(rng)),
    })
}

/// Draws the scheduling that is independent of the policy: adaptive depth, and the largest I/O
/// while VMs share the device.
pub(super) fn draw_device_control(rng: &mut TortureRng, device: DeviceSpec) -> (bool, u32) {
    let adapts = rng.chance(350);
    let shared = if rng.chance(350) {
        rng.octaves(1, device.max_io.into()) as u32
    } else {
        0
    };
    (adapts, shared)
}

/// Draws the device's speed as the engine is told: unknown or arbitrary, true or not.
pub(super) fn draw_speed(rng: &mut TortureRng, device: &mut DeviceSpec) {
    if rng.chance(500) {
        device.positioning = Nanos(rng.octaves(1000, 20_000_000));
    }
    if rng.chance(500) {
        device.bytes_per_s = rng.octaves(1 << 20, 1 << 32);
    }
}

/// Draws a profile in three cases of four: curves of any number of sizes, rising or not.
pub(in crate::torture) fn profile(rng: &mut TortureRng) -> Option<Arc<Profile>> {
    if rng.chance(250) {
        return None;
    }
    let mut curve = || {
        let sizes = rng.range(1, 6);
        let points = (0..sizes).map(|_| {
            let size = rng.octaves(512, 1 << 20) as u32;
            (size, 1e9 / rng.octaves(1000, 20_000_000) as f64)
        });
        // A size drawn twice appears once.
        let mut points: Vec<(u32, f64)> = points.collect();
        points.sort_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        Curve::new(&points).expect("sizes and rates are in range")
    };
    let [reads, writes] = [(); 2].map(|()| [curve(), curve()]);
    let writes = rng.chance(700).then_some(writes);
    let profile = Profile::new(reads, writes, Vec::new(), Vec::new());
    Some(Arc::new(profile))
}
