//! Costs and sizes by which `slo` charges I/Os, from a device and its profile.
//!
//! A cost is in bytes, or in device time where the device has a profile. The smallest I/O, whose
//! cost is that of a flush, is the unit of the limits: it makes them independent of which it is.

use super::super::cost::{CostBy, CostModel, CostParams};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::{Access, Direction, Profile};
use tidegate_core::starvation::{Bound, Cost, Lead, Shares, Weights};

/// Maximum lead of a VM over its share that promises may give it, in smallest I/Os: as many as
/// [`mclock`](super::super::mclock) allows.
pub(super) const MAX_LEAD_IOS: u64 = 32;
/// Cost for which a disk that seeks stays with one stream, in smallest I/Os: about 100 ms of a hard
/// disk, whose smallest I/O takes a seek and half a rotation, about 12 ms.
pub(super) const STAY_IOS: u64 = 8;
/// Minimum cost of an I/O in bytes: below this size an I/O takes a flash disk about as long as one
/// of this size.
pub(super) const MIN_IO_COST: u32 = 16 << 10;
/// Maximum cost of a positioning in bytes, where costs are in bytes.
const MAX_POSITIONING_COST: u64 = 1 << 20;
/// Device time of the longest background I/O while VMs have requests, in picoseconds (1 ms).
const BACKGROUND_IO_PS: u64 = 1_000_000_000;
/// Size in bytes that a background I/O may always have while VMs have requests, however slow the
/// device is.
pub(super) const BACKGROUND_IO_MIN: u32 = 64 << 10;
/// Size limit of a background I/O in bytes where the device's speed is not known: 1 ms at 256 MB/s.
pub(super) const BACKGROUND_IO_UNPROFILED: u32 = 256 << 10;

/// Returns the maximum lead of a VM over its share that arises because the device stays with its
/// stream; 0 for a device that does not seek.
fn stay_cost(cost: Cost, device: &DeviceSpec) -> u64 {
    match device.positioning {
        Nanos::ZERO => 0,
        _ => STAY_IOS * cost.flush() + cost.largest(device),
    }
}

/// Returns the maximum lead of a VM over another one that the disk passed over, from which on the
/// other one is favoured until it has its share again; 0 for a device that does not seek.
fn favour_cost(cost: Cost, device: &DeviceSpec) -> u64 {
    match device.positioning {
        Nanos::ZERO => 0,
        _ => (STAY_IOS + 2 * u64::from(device.depth)) * cost.flush() + cost.largest(device),
    }
}

/// Cost rule for a device of which nothing is known.
pub(super) const COST_BY_BYTES: CostParams = CostParams {
    by: CostBy::Bytes,
    size: MIN_IO_COST,
};

/// Returns the cost rule for a device: device time where there is a profile, else bytes.
pub(super) fn cost_params(spec: &DeviceSpec, profile: Option<&Profile>) -> CostParams {
    match profile {
        Some(_) => CostParams {
            by: CostBy::DeviceTime,
            size: MIN_IO_COST,
        },
        // On a disk that seeks an I/O costs at least its positioning, so that random I/O is not
        // cheap.
        None => CostParams {
            by: CostBy::Bytes,
            // Fits: the maximum is 1 MiB.
            size: (spec.positioning_bytes()).clamp(MIN_IO_COST.into(), MAX_POSITIONING_COST) as u32,
        },
    }
}

/// Returns the maximum lead of a VM over its share that promises may give it, as a cost.
pub(super) fn max_lead(cost: &CostModel, spec: &DeviceSpec) -> u64 {
    (MAX_LEAD_IOS * cost.flush()).max(2 * cost.largest(spec))
}

/// Returns the starvation bound of shares, where promises leave room.
pub(super) fn starvation_bound(device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
    let model = CostModel::new(cost_params(device, profile), 0);
    let cost = model.stated(device, profile);
    let largest = cost.largest(device);
    let promised = (MAX_LEAD_IOS * cost.flush()).max(2 * largest) + largest;
    // A stay, and the turn of a favoured stream.
    let turns = 2 * stay_cost(cost, device);
    Bound::Shares(Shares {
        cost,
        largest,
        weights: Weights::Objectives,
        // A third more, because charges of learnt costs are varied by a quarter: 1 / (1 - 1/4)
        // = 4/3.
        lead: Lead::Ahead {
            ahead: (promised + favour_cost(cost, device)) * 4 / 3,
            once: (2 * largest + cost.rounding() + turns) * 4 / 3,
        },
    })
}

/// Returns the maximum size of a background I/O while VMs have requests, in bytes: the largest
/// doubling of [`BACKGROUND_IO_MIN`] whose random I/O takes the device at most
/// [`background_io_ps`].
pub(super) fn background_io_size(spec: &DeviceSpec, profile: Option<&Profile>) -> u32 {
    let Some(profile) = profile else {
        // A part may not be shorter than a physical block.
        return BACKGROUND_IO_UNPROFILED.max(spec.physical_block);
    };
    let max_ps = background_io_ps(profile);
    let mut size = BACKGROUND_IO_MIN.max(spec.physical_block);
    while size < spec.max_io && random_ps(profile, 2 * size) <= max_ps {
        size *= 2;
    }
    size
}

/// Returns the maximum device time of a background I/O while VMs have requests, in picoseconds.
/// I/Os of [`BACKGROUND_IO_MIN`] bytes may take longer.
pub(super) fn background_io_ps(profile: &Profile) -> u64 {
    // A random 4 KiB I/O is nearly all positioning on a disk that seeks. Twice its time leaves the
    // transfer as long as the positioning takes.
    BACKGROUND_IO_PS.max(2 * random_ps(profile, 4 << 10))
}

/// Returns the device time of a random I/O in picoseconds: the longer of a read and a write.
pub(super) fn random_ps(profile: &Profile, bytes: u32) -> u64 {
    let time_ps = |direction| profile.time_ps(direction, Access::Random, bytes);
    time_ps(Direction::Read).max(time_ps(Direction::Write))
}
