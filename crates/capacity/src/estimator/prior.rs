//! Costs assumed before the first window, and their covariance.

use super::{KINDS, NODES, SMALLEST_LOG2, node_bytes};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;

/// Number of estimated costs: a node for each size and kind of I/O.
pub(super) const COSTS: usize = KINDS * NODES;
/// Vector over all costs: costs, or numbers of I/Os.
pub(super) type Weights = [f64; COSTS];

/// Fixed cost of an I/O on a device without a specified positioning time, as the bytes that the
/// device could transfer in that time. Assumed: at `DEFAULT_BYTES_PER_NS` an I/O of 4 KiB takes
/// 82 us.
const OVERHEAD_BYTES: f64 = 16384.0;
/// Bandwidth of a device without a specified one: 250 MB/s, assumed. The first window scales all
/// costs, so it matters until then only.
const DEFAULT_BYTES_PER_NS: f64 = 0.25;
/// Positioning cost of a sequential I/O, as a part of a random one's: not 0, because other VMs'
/// I/Os separate a stream's now and then. Assumed; windows correct it.
const SEQUENTIAL_POSITIONING_SHARE: f64 = 1.0 / 40.0;

// Relative standard deviations of the prior, by what costs have in common. Chosen, not measured:
// their squares add up to about 5, so that one standard deviation is 2.2 times the cost, mostly
// together with all others or with those of its direction.

/// Deviation that all costs share.
const SD_COMMON: f64 = 1.0;
/// Deviation that the costs of a direction share; writes of some devices cost many times a read.
const SD_DIRECTION: f64 = 1.5;
/// Deviation that the costs of a kind share.
const SD_KIND: f64 = 1.0;
/// Deviation of the slope along the logarithm of the size, from the middle of the sizes to either
/// end.
const SD_SIZE_SLOPE: f64 = 1.0;
/// Deviation that each cost has alone: a curve over the sizes is nearly a line.
const SD_SINGLE: f64 = 0.2;

/// Prior costs in nanoseconds: positioning and data transfer. Without a specified positioning time,
/// sequential and random I/Os cost the same.
pub(super) fn prior_costs_ns(spec: &DeviceSpec) -> Weights {
    let mut costs = [0.0; COSTS];
    let bytes_per_ns = match spec.bytes_per_s {
        0 => DEFAULT_BYTES_PER_NS,
        bytes_per_s => bytes_per_s as f64 / Nanos::SECOND.0 as f64,
    };
    let positioning = spec.positioning.0 as f64;
    for (index, cost) in costs.iter_mut().enumerate() {
        let (kind, node) = (index / NODES, index % NODES);
        let random = is_random(kind);
        let transfer = node_bytes(node) / bytes_per_ns;
        *cost = transfer
            + match (positioning > 0.0, random) {
                (true, true) => positioning,
                (true, false) => positioning * SEQUENTIAL_POSITIONING_SHARE,
                (false, _) => OVERHEAD_BYTES / bytes_per_ns,
            };
    }
    costs
}

/// Prior covariance, relative to the prior costs.
pub(super) fn relative_covariance() -> [[f64; COSTS]; COSTS] {
    let mut covariance = [[0.0; COSTS]; COSTS];
    let middle = (NODES - 1) as f64 / 2.0;
    // Distance of a size from the middle one: -1 for the smallest, 1 for the largest.
    let distance = |node: usize| (node as f64 - middle) / middle;
    for (a, row) in covariance.iter_mut().enumerate() {
        for (b, value) in row.iter_mut().enumerate() {
            let (kinds, nodes) = ([a / NODES, b / NODES], [a % NODES, b % NODES]);
            // Half of the slope's variance is common to all costs, a quarter to a direction, and a
            // quarter to a kind.
            let slope = SD_SIZE_SLOPE * SD_SIZE_SLOPE * distance(nodes[0]) * distance(nodes[1]);
            *value = SD_COMMON * SD_COMMON + slope / 2.0;
            if direction(kinds[0]) == direction(kinds[1]) {
                *value += SD_DIRECTION * SD_DIRECTION + slope / 4.0;
            }
            if kinds[0] == kinds[1] {
                *value += SD_KIND * SD_KIND + slope / 4.0;
            }
            if a == b {
                *value += SD_SINGLE * SD_SINGLE;
            }
        }
    }
    covariance
}

/// Returns true for the kinds of random I/Os: the odd ones, see `kind_index`.
fn is_random(kind: usize) -> bool {
    kind % 2 == 1
}

/// Returns the direction of a kind, as a number: its two access patterns follow each other.
fn direction(kind: usize) -> usize {
    kind / 2
}

// Kinds are paired by direction above, and the exported state is of these kinds and sizes.
const _: () = assert!(
    KINDS == 4 && SMALLEST_LOG2 == 12,
    "kinds are two directions of two access patterns, sizes begin at 4 KiB"
);
