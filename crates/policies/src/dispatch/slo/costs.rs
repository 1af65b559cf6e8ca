//! Costs and sizes by which `slo` charges I/Os, from a device and its profile.

use super::super::cost::{CostBy, CostModel, CostParams};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::{Access, Direction, Profile};
use tidegate_core::starvation::Cost;

/// Most of the smallest I/Os by whose cost promises bring a VM ahead of its share.
pub(super) const MOST_AHEAD: u64 = 32;
/// Cost in smallest I/Os for which a disk that seeks stays with one stream: about 100 ms.
pub(super) const STAY_IOS: u64 = 8;
/// Size in bytes below which an I/O takes a flash disk about as long as one of this size.
const LEAST_COST: u32 = 16 << 10;
/// Most bytes that a positioning counts for where costs are in bytes.
const LARGEST_LEAST_COST: u64 = 1 << 20;
/// Longest background I/O beside VMs, in picoseconds of device time (1 ms).
const BACKGROUND_PART_PS: u64 = 1_000_000_000;
/// Shortest limit on such an I/O, in bytes.
pub(super) const BACKGROUND_PART_LEAST: u32 = 64 << 10;
/// Limit on such an I/O in bytes where the device's speed is not known: 1 ms at 256 MB/s.
pub(super) const BACKGROUND_PART_UNKNOWN: u32 = 256 << 10;

/// Returns the cost rule in bytes, with the bytes of a positioning as the least cost of an I/O.
pub(super) fn bytes_of(positioning_bytes: u64) -> CostParams {
    let least = positioning_bytes.clamp(LEAST_COST.into(), LARGEST_LEAST_COST);
    CostParams {
        by: CostBy::Bytes,
        size: least as u32,
    }
}

/// Returns the cost by which one VM may be served more because the device stays with its stream.
pub(super) fn stay_of(cost: Cost, device: &DeviceSpec) -> u64 {
    match device.positioning {
        Nanos::ZERO => 0,
        _ => STAY_IOS * cost.flush() + cost.largest(device),
    }
}

/// Returns the cost rule for a device: device time where there is a profile, else bytes.
pub(super) fn cost_params(spec: &DeviceSpec, profile: Option<&Profile>) -> CostParams {
    let positioning = u128::from(spec.positioning.0) * u128::from(spec.bytes_per_s);
    let bytes = u64::try_from(positioning / u128::from(Nanos::SECOND.0)).unwrap_or(u64::MAX);
    match profile {
        Some(_) => CostParams {
            by: CostBy::DeviceTime,
            size: LEAST_COST,
        },
        None => bytes_of(bytes),
    }
}

/// Returns the largest cost by which promises bring a VM ahead of its share.
pub(super) fn most_ahead(cost: &CostModel, spec: &DeviceSpec) -> u64 {
    (MOST_AHEAD * cost.flush()).max(2 * cost.largest(spec))
}

/// Returns the largest background I/O beside VMs, in bytes: 1 ms of device time, or, where
/// positioning takes longer, as many bytes as the device moves in the time of one.
pub(super) fn background_part(spec: &DeviceSpec, profile: Option<&Profile>) -> u32 {
    let Some(profile) = profile else {
        return BACKGROUND_PART_UNKNOWN.max(spec.physical_block);
    };
    let most = background_part_ps(profile);
    let mut part = BACKGROUND_PART_LEAST.max(spec.physical_block);
    while part < spec.max_io && random_ps(profile, 2 * part) <= most {
        part *= 2;
    }
    part
}

/// Returns the longest background I/O beside VMs, in picoseconds of device time, apart from those
/// of [`BACKGROUND_PART_LEAST`] bytes.
pub(super) fn background_part_ps(profile: &Profile) -> u64 {
    BACKGROUND_PART_PS.max(2 * random_ps(profile, 4 << 10))
}

/// Returns the device time of a random I/O, read or written, in picoseconds.
pub(super) fn random_ps(profile: &Profile, bytes: u32) -> u64 {
    let of = |direction| profile.time_ps(direction, Access::Random, bytes);
    of(Direction::Read).max(of(Direction::Write))
}
