//! Worlds in which VMs are tuned to targets.

use super::{Guest, KIB, SECOND, World, config, policy, within};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::DeviceIo;
use tidegate_core::tuning::Tuning;
use tidegate_policies::policy::PolicySpec;

pub const MB: u64 = 1_000_000;

pub fn precise(target: Rate) -> Objective {
    Objective {
        target,
        ..Objective::default()
    }
}

/// Parameter `tuner` with the value `paced`; [`WINDOW`] has the value `window`.
pub const PACED: (&str, u64) = ("tuner", 0);
pub const WINDOW: (&str, u64) = ("tuner", 1);

/// Returns a composition with the given parameters.
pub fn spec(name: &str, params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy(name);
    for &(param, value) in params {
        spec.set(param, value).expect("the tuner's parameter");
    }
    spec
}

/// Returns the time of an I/O on a disk: 200 us and 100 MB/s, so 17 MB/s at one page, 33.3 at two,
/// 67.7 at eleven, and 86.8 at 128 KiB.
pub fn disk(io: &DeviceIo) -> u64 {
    200_000 + u64::from(io.len) * 10
}

/// Returns the time of an I/O on flash in nanoseconds: 1 us, and 4 GB/s.
pub fn flash(io: &DeviceIo) -> u64 {
    1_000 + u64::from(io.len) / 4
}

pub fn world(policy: &PolicySpec, takes: fn(&DeviceIo) -> u64) -> World {
    let mut world = World::with_policy(config(8, 64 * KIB), policy, 0);
    world.device.takes = Some(takes);
    world
}

/// Returns the bytes that a VM moved in each of the last `count` seconds.
pub fn seconds(world: &World, guest: Guest, count: u64) -> Vec<u64> {
    let bytes = world.bytes(guest);
    let end = world.now();
    let of = |n| within(&bytes, end - (n + 1) * SECOND, end - n * SECOND);
    (0..count).rev().map(of).collect()
}

pub fn tuning(world: &World, guest: Guest) -> Tuning {
    world
        .driver
        .engine
        .vms()
        .tuning(guest.vm)
        .expect("it has a target")
}
