//! What an I/O is taken to cost before anything is known, and how unsure that is.

use super::{KINDS, NODES, SMALLEST, node_bytes};
use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;

/// Costs that are estimated: a node for each size, by kind of I/O.
pub(super) const COSTS: usize = KINDS * NODES;
/// By cost: how many I/Os, or what part of one.
pub(super) type Weights = [f64; COSTS];

/// On a device of which nothing was told, an I/O costs as much as so many bytes that it moves.
const WORTH: f64 = 16384.0;
/// What such a device moves, in bytes a nanosecond. It only counts until the first window.
const RATE: f64 = 0.25;
/// An I/O that continues another costs this part of what one elsewhere costs for its place alone.
const IN_PLACE: f64 = 1.0 / 40.0;

/// How far costs may be from the prior, in parts of it: all together, each direction, each kind,
/// with the size's logarithm (from the middle of the sizes to either end), and each by itself.
const ALL: f64 = 1.0;
const DIRECTION: f64 = 1.5;
const KIND: f64 = 1.0;
const SIZE: f64 = 1.0;
const EACH: f64 = 0.2;

/// Nanoseconds, by cost: the way to its place and the bytes. Where the device was told to have no
/// way to go, or nothing was told, place does not matter.
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

/// The covariance of costs in parts of them.
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
