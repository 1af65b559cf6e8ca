//! Blocking time: time for which a device keeps a request that is due from being served.
//!
//! I/Os in the device cannot be called back. So a request that is due waits for
//!
//! - **I/Os in flight:** as many as the depth allows, of the largest part that any VM may send.
//!   They take their device time, or the 99th percentile of their latency by the profile, whichever
//!   is longer;
//! - **one background part**, where background I/Os go one at a time: as one of those in flight,
//!   so that only its time beyond one of them counts;
//! - **held-up reads:** a device that answers writes before it has done them delays reads by the
//!   work that is left. The profile's latencies of reads beside saturating writes give the delay,
//!   beyond the I/Os in flight.

use super::cost::{Costs, points, times};
use super::load::Load;
use super::mix::nanos;
use super::{Device, PlannedVm};
use crate::profile::{Access, BesideWrites, DepthPoint, Direction};
use tidegate_base::time::Nanos;

/// Blocking time of a device by its causes, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Blocking {
    /// Time of the I/Os in flight: the depth times the largest part.
    pub in_flight: u64,
    /// Time of one background part.
    pub background: u64,
    /// Time of one of the I/Os in flight, whose place the background part takes.
    pub one: u64,
    /// Delay by writes that the device has answered and not done, beyond the I/Os in flight.
    pub held_up: u64,
    /// Latency of a request beyond its device time: a flash disk serves many requests at a time,
    /// each slowly.
    pub service: u64,
    /// True if the profile has latencies; without them only device time is known.
    pub is_measured: bool,
}

impl Blocking {
    pub(super) fn new(
        costs: &Costs<'_>,
        vms: &[PlannedVm<'_>],
        loads: &[Load],
        dearer: impl Fn(u32) -> u64,
    ) -> Blocking {
        let device = &costs.device;
        // I/Os are split only where several VMs share the device.
        let shared = vms.len() > 1;
        let mut blocking = Blocking {
            is_measured: true,
            ..Blocking::default()
        };
        let mut longest_write = None;
        for (vm, load) in vms.iter().zip(loads) {
            let longest = match device.queueing.part {
                Some(part) if shared => load.longest.min(part),
                _ => load.longest,
            };
            let kinds = [
                (Direction::Read, load.may_read),
                (Direction::Write, load.may_write),
            ];
            for (direction, _) in kinds.into_iter().filter(|kind| kind.1) {
                let factor = dearer(load.longest);
                let takes = times(costs.blended_ps(direction, longest), factor);
                if let (true, Some(most)) = (vm.background, device.queueing.background_part) {
                    let most = most.0.saturating_mul(1000);
                    // One background I/O at a time goes beside VMs, and the dispatcher cuts it to
                    // `most`.
                    blocking.background = blocking.background.max(takes.min(most));
                } else {
                    let all = takes.saturating_mul(device.depth.into());
                    let stay = stay(costs, direction, longest, device.depth);
                    blocking.is_measured &= stay.is_some();
                    let stay = times(stay.unwrap_or(0), factor).max(all);
                    blocking.in_flight = blocking.in_flight.max(stay);
                }
                if direction == Direction::Write {
                    longest_write = longest_write.max(Some(longest));
                }
            }
        }
        // Depths are at least 1 by the device's specification.
        blocking.one = blocking.in_flight / u64::from(device.depth);
        let held = longest_write.map_or(0, |size| beside_writes(costs, size, device.depth));
        // The I/Os in flight are part of the measured delay, so only the rest is added.
        blocking.held_up = held.saturating_sub(blocking.in_flight);
        blocking
    }

    /// B: time for which the device is busy with other requests than those due.
    pub(super) fn device_ps(&self) -> u128 {
        u128::from(self.in_flight) + u128::from(self.beyond_one()) + u128::from(self.held_up)
    }

    /// Time of the background part beyond that of the I/O whose place it takes.
    pub fn beyond_one(&self) -> u64 {
        self.background.saturating_sub(self.one)
    }

    /// T: time by which a floor may be late after its tag and 1/rate.
    pub fn total(&self) -> Nanos {
        nanos(self.device_ps() + u128::from(self.service))
    }
}

/// Returns the 99th percentile of a read's latency beside `depth` writes of `size` bytes, less the
/// read's own, in picoseconds. Takes the next larger measured depth and size, or the largest ones;
/// 0: not measured.
fn beside_writes(costs: &Costs<'_>, size: u32, depth: u32) -> u64 {
    let all = costs.device.profile.beside_writes();
    // A point of smaller or fewer writes that shows a longer latency is a lower bound for larger
    // ones.
    let measured = |axis: fn(&BesideWrites) -> u32, wanted: u32| {
        let larger = all.iter().map(axis).filter(|&it| it >= wanted).min();
        larger.or_else(|| all.iter().map(axis).max()).unwrap_or(0)
    };
    let (size, depth) = (measured(|it| it.size, size), measured(|it| it.depth, depth));
    let within = all.iter().filter(|it| it.size <= size && it.depth <= depth);
    let Some(longest) = within.map(|it| it.p99).max() else {
        return 0;
    };
    let alone = stay(costs, Direction::Read, BesideWrites::READ_SIZE, 1).unwrap_or(0);
    longest.0.saturating_mul(1000).saturating_sub(alone)
}

/// 99th percentile of the latency of random requests at a depth, in picoseconds; `None`: not
/// measured. Interpolates linearly between measured depths, never below that of a smaller depth;
/// beyond the deepest it grows in proportion. Beyond the measured sizes it grows with the cost.
pub(super) fn stay(costs: &Costs<'_>, direction: Direction, size: u32, depth: u32) -> Option<u64> {
    let other = match direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    };
    // In order of likeness, because a profile may have latencies of some kinds only.
    let kinds = [
        (direction, Access::Random),
        (other, Access::Random),
        (direction, Access::Sequential),
        (other, Access::Sequential),
    ];
    let points = (kinds.into_iter())
        .map(|(direction, access)| points(&costs.device, direction, access, size))
        .find(|points| !points.is_empty())?;
    let deepest = points[points.len() - 1];
    let cost = |direction, access, bytes| costs.time_ps(direction, access, bytes);
    let own = cost(direction, Access::Random, size);
    let measured = cost(deepest.direction, deepest.access, deepest.size);
    Some(times(stay_at(&points, depth), longer(own, measured)))
}

/// Latency in picoseconds at a depth, from points in order of depth.
fn stay_at(points: &[DepthPoint], depth: u32) -> u64 {
    let ps = |time: Nanos| u128::from(time.0) * 1000;
    let (mut before, mut longest) = (0, 0);
    for point in points {
        let next = longest.max(ps(point.p99));
        if point.depth >= depth {
            // Depths below the smallest measured one take its value.
            let run = u128::from(point.depth - before);
            let left = u128::from(point.depth - depth);
            let below = (next - longest) * left / run;
            let time = if before == 0 { next } else { next - below };
            return u64::try_from(time).unwrap_or(u64::MAX);
        }
        (before, longest) = (point.depth, next);
    }
    let deeper = (longest * u128::from(depth)).div_ceil(u128::from(before.max(1)));
    u64::try_from(deeper).unwrap_or(u64::MAX)
}

/// Ratio of `cost` to `measured` in millionths, rounded up, at least one.
fn longer(cost: u64, measured: u64) -> u64 {
    let one = super::cost::ONE;
    let factor = (u128::from(cost) * u128::from(one)).div_ceil(measured.into());
    u64::try_from(factor).unwrap_or(u64::MAX).max(one)
}

/// Ranges of depth in which costs are constant, each as its smallest and largest depth. The deepest
/// range comes first; the ranges cover the device's depth down to `least`.
pub(super) fn stretches(device: &Device<'_>, least: u32) -> Vec<(u32, u32)> {
    let least = least.clamp(1, device.depth);
    let measured = device.profile.latency().iter().map(|p| p.depth);
    let mut from: Vec<u32> = measured
        .filter(|&depth| depth > least && depth <= device.depth)
        .chain([least])
        .collect();
    from.sort_unstable();
    from.dedup();
    let to = from.iter().skip(1).map(|next| next - 1);
    let to: Vec<u32> = to.chain([device.depth]).collect();
    from.into_iter().zip(to).rev().collect()
}
