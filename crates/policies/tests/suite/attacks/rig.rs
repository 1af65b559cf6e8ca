//! Setup of the attacks: policies, a roomy configuration, and draws that are equal on every
//! machine.

#![allow(
    unreachable_pub,
    reason = "what is public here is for the other modules of this test"
)]

use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::policy::Policy;
use tidegate_policies::policy::{PolicySpec, dispatchers, registry};

/// Returns the registered policies, and compositions with limits before every dispatcher.
pub fn policies() -> Vec<PolicySpec> {
    let named = registry().iter().map(|p| PolicySpec::named(p.name));
    let limited = dispatchers()
        .iter()
        .map(|d| PolicySpec::composed(None, "token-bucket", d.name));
    named
        .chain(limited)
        .map(|spec| spec.expect("its name is from the list"))
        .collect()
}

/// Returns the policies that enforce a limit on reads and writes together.
pub fn limiting() -> Vec<PolicySpec> {
    let all = policies().into_iter();
    all.filter(|p| p.enforces().limit).collect()
}

/// Returns the configuration of an engine with room for 2048 VMs.
pub fn config(depth: u32, merge_limit: u32, max_io: u32) -> EngineConfig {
    let config = crate::common::config(depth, merge_limit);
    EngineConfig {
        device: DeviceSpec {
            max_io,
            ..config.device
        },
        max_requests: 8192,
        max_vms: 2048,
        ..config
    }
}

/// Random numbers by xorshift64*, equal on every machine.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % n
    }

    pub fn of<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        match from.len() {
            0 => None,
            n => from.get(self.below(n as u64) as usize),
        }
    }
}
