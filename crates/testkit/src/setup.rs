//! Shorthand constructors for tests: policies, engine configurations, objectives.

use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig};
use tidegate_core::objective::{Burst, Limit, Objective, Rate};
use tidegate_core::request::{ClientId, DiskId, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Adds a disk of `bytes` bytes at `base` to a VM, and a client that opens it.
pub fn open_disk(engine: &mut Engine, vm: VmId, base: u64, bytes: u64) -> (DiskId, ClientId) {
    let spec = DiskSpec {
        base,
        size: bytes,
        read_only: false,
    };
    let disk = engine.vms_mut().add_disk(vm, spec).expect("the range fits");
    (disk, engine.connect(disk).expect("the disk is there"))
}

/// Adds a VM without an objective, with a disk from address 0 on and its client.
pub fn connect_single_vm(engine: &mut Engine) -> ClientId {
    let vm = engine.vms_mut().add_vm(Nanos::ZERO, &Objective::default());
    open_disk(engine, vm.expect("there is room"), 0, 1 << 40).1
}

/// Returns a policy by its name, or composed of parts: `controller+regulator+dispatcher` or
/// `regulator+dispatcher`.
///
/// # Panics
/// If there is no such policy or part.
pub fn policy(name: &str) -> PolicySpec {
    match name.split('+').collect::<Vec<_>>()[..] {
        [controller, regulator, dispatcher] => {
            PolicySpec::composed(Some(controller), regulator, dispatcher)
        }
        [regulator, dispatcher] => PolicySpec::composed(None, regulator, dispatcher),
        _ => PolicySpec::named(name),
    }
    .expect("the policy is known")
}

/// Returns the configuration of an engine for at most 128 VMs, 1024 requests of each VM and 16,384
/// in all; I/Os have up to 1 MiB.
pub fn config(depth: u32, merge_limit: u32) -> EngineConfig {
    EngineConfig {
        device: DeviceSpec {
            depth,
            physical_block: 4096,
            max_io: 1 << 20,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        },
        max_requests: 16_384,
        max_pending_per_vm: 1024,
        merge_limit,
        max_vms: 128,
    }
}

/// Returns an objective with this weight and nothing else.
pub fn weighted(weight: u32) -> Objective {
    Objective {
        weight,
        ..Objective::default()
    }
}

/// Returns an objective with this limit and nothing else.
pub fn limited(total: Rate) -> Objective {
    Objective {
        limit: Limit::of_all(total),
        ..Objective::default()
    }
}

/// Returns an objective with a limit and, for `length` at a time, a burst above it.
pub fn bursting(total: Rate, burst: Rate, length: Nanos) -> Objective {
    let burst = Burst {
        total: burst,
        read: Rate::NONE,
        write: Rate::NONE,
        length,
    };
    Objective {
        limit: Limit {
            total,
            burst: Some(burst),
            ..Limit::NONE
        },
        ..Objective::default()
    }
}
