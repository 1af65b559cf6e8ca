//! Costs assumed before the first window, and their covariance.

use super::{KINDS, NODES, SMALLEST, node_bytes};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;

/// Number of estimated costs: a node for each size and kind of I/O.
pub(super) const COSTS: usize = KINDS * NODES;
/// Vector over all costs: costs, or numbers of I/Os.
pub(super) type Weights = [f64; COSTS];

/// Cost of an I/O beyond its data on an unspecified device, in bytes moved in the same time.
const WORTH: f64 = 16384.0;
/// Bandwidth assumed for an unspecified device, in bytes per nanosecond; matters until the first
/// window only.
const RATE: f64 = 0.25;
/// Positioning cost of a sequential I/O, as a part of a random one's.
const IN_PLACE: f64 = 1.0 / 40.0;

/// Relative standard deviations of the prior: common to all costs, per direction, per kind, along
/// the logarithm of the size (from the middle of the sizes to either end), and per cost.
const ALL: f64 = 1.0;
const DIRECTION: f64 = 1.5;
const KIND: f64 = 1.0;
const SIZE: f64 = 1.0;
const EACH: f64 = 0.2;

/// Prior costs in nanoseconds: positioning and data transfer. Without a specified positioning time,
/// sequential and random I/Os cost the same.
pub(super) fn costs(spec: &DeviceSpec) -> Weights {
    let mut costs = [0.0; COSTS];
    let rate = match spec.bytes_per_s {
        0 => RATE,
        rate => rate as f64 / Nanos::SECOND.0 as f64,
    };
    let way = spec.positioning.0 as f64;
    for (at, cost) in costs.iter_mut().enumerate() {
        let (kind, node) = (at / NODES, at % NODES);
        let random = kind % 2 == 1;
        let moves = node_bytes(node) / rate;
        *cost = moves
            + match (way > 0.0, random) {
                (true, true) => way,
                (true, false) => way * IN_PLACE,
                (false, _) => WORTH / rate,
            };
    }
    costs
}

/// Prior covariance, relative to the prior costs.
pub(super) fn spread() -> [[f64; COSTS]; COSTS] {
    let mut spread = [[0.0; COSTS]; COSTS];
    let middle = (NODES - 1) as f64 / 2.0;
    let part = |node: usize| (node as f64 - middle) / middle;
    for (at, row) in spread.iter_mut().enumerate() {
        for (to, one) in row.iter_mut().enumerate() {
            let (kinds, nodes) = ([at / NODES, to / NODES], [at % NODES, to % NODES]);
            let slopes = SIZE * SIZE * part(nodes[0]) * part(nodes[1]);
            *one = ALL * ALL + slopes / 2.0;
            if kinds[0] / 2 == kinds[1] / 2 {
                *one += DIRECTION * DIRECTION + slopes / 4.0;
            }
            if kinds[0] == kinds[1] {
                *one += KIND * KIND + slopes / 4.0;
            }
            if at == to {
                *one += EACH * EACH;
            }
        }
    }
    spread
}

const _: () = assert!(KINDS == 4 && SMALLEST == 12);
