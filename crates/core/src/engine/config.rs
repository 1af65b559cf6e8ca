//! Configuration of an engine, and the ranges of its figures.

use super::EngineError;
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;

/// Configuration of an engine; fixed for its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// Device that the engine schedules.
    pub device: DeviceSpec,
    /// Maximum number of guest requests inside the engine, waiting or in flight, over all VMs.
    pub max_requests: u32,
    /// Maximum number of guest requests of one VM inside the engine.
    pub max_pending_per_vm: u32,
    /// Adjacent requests are merged up to this many bytes; 0: never.
    pub merge_limit: u32,
    /// Maximum number of VMs, background processes included.
    pub max_vms: u32,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            device: DeviceSpec {
                depth: 32,
                physical_block: 4096,
                max_io: 1 << 20,
                zeroes_are_writes: false,
                positioning: Nanos::ZERO,
                bytes_per_s: 0,
            },
            max_requests: 16_384,
            max_pending_per_vm: 1024,
            merge_limit: 128 << 10,
            max_vms: 4096,
        }
    }
}

impl EngineConfig {
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let device = &self.device;
        let check = |ok: bool, what, value: u32, allowed| {
            if ok {
                Ok(())
            } else {
                Err(EngineError::Config {
                    what,
                    value: value as u64,
                    allowed,
                })
            }
        };
        check(
            (1..=DeviceSpec::MAX_DEPTH).contains(&device.depth),
            "depth",
            device.depth,
            "1 to 4096",
        )?;
        let block = device.physical_block;
        let block_fits = block.is_power_of_two() && (512..=1 << 20).contains(&block);
        check(
            block_fits,
            "physical_block",
            block,
            "a power of two, 512 to 1 MiB",
        )?;
        let max_io = device.max_io;
        let io_fits = max_io >= block && max_io.is_multiple_of(block) && max_io <= 1 << 30;
        check(
            io_fits,
            "max_io",
            max_io,
            "a multiple of physical_block, up to 1 GiB",
        )?;
        check(
            // Policies rely on this bound: their sums over all VMs fit 128 bits.
            (1..=1 << 24).contains(&self.max_vms),
            "max_vms",
            self.max_vms,
            "1 to 2^24",
        )?;
        let requests = self.max_requests;
        check(
            (1..=1 << 26).contains(&requests),
            "max_requests",
            requests,
            "1 to 2^26",
        )?;
        check(
            self.max_pending_per_vm > 0,
            "max_pending_per_vm",
            0,
            "at least 1",
        )
    }
}
