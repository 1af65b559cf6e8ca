//! Tests of VMs' transfers: the bytes that count for them and their ends, under any policy; and
//! PriDyn, which sets priority classes so that they end in time.

mod bandwidths;
mod books;
mod classes;

use crate::common::{Guest, World, config};
use tidegate_core::engine::EngineConfig;
use tidegate_core::objective::Objective;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{TransferEnd, TransferSpec, TransferStatus};
use tidegate_policies::policy::PolicySpec;

const MIB: u64 = 1 << 20;
/// Device bandwidth: an I/O of a mebibyte takes 20 ms.
const RATE: u64 = 50 * MIB;

/// Returns a device of depth 1; `bytes_per_s` is its known sequential rate, or 0.
fn device(bytes_per_s: u64) -> EngineConfig {
    let mut config = config(1, 0);
    config.device.bytes_per_s = bytes_per_s;
    config
}

fn world(policy: &str, params: &[(&str, u64)]) -> World {
    let mut spec = crate::common::policy(policy);
    for &(name, value) in params {
        spec.set(name, value).expect("in range");
    }
    world_of(&spec, RATE)
}

fn world_of(spec: &PolicySpec, bytes_per_s: u64) -> World {
    World::with_policy(
        device(bytes_per_s),
        spec,
        MIB * crate::common::SECOND / RATE,
    )
}

/// Adds a VM that writes without end, four requests of a mebibyte at a time.
fn writer(world: &mut World, objective: &Objective) -> Guest {
    let guest = world.guest(objective);
    world.load(guest, Op::Write, MIB as u32, 4);
    guest
}

fn begin(world: &mut World, guest: Guest, mib: u64, seconds: u64) -> TransferStatus {
    let spec = TransferSpec {
        bytes: mib * MIB,
        deadline: Nanos::from_secs(seconds),
    };
    let now = world.time();
    world
        .driver
        .engine
        .transfers_mut()
        .begin_transfer(now, guest.vm, &spec)
        .expect("the VM is there")
}

fn status(world: &World, guest: Guest) -> TransferStatus {
    let status = world
        .driver
        .engine
        .transfers()
        .transfer(world.time(), guest.vm);
    status.expect("its job runs")
}

fn ends(world: &mut World) -> Vec<TransferEnd> {
    core::iter::from_fn(|| world.driver.engine.transfers_mut().poll_transfer_end()).collect()
}
