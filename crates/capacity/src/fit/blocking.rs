//! Blocking time: time for which a device keeps a request that is due from being served.
//!
//! I/Os in the device cannot be called back. So a request that is due waits for
//!
//! - **I/Os in flight:** as many as the depth allows, of the largest part that any VM may send.
//!   They take their device time, or the 99th percentile of their latency by the profile, whichever
//!   is longer;
//! - **one background part**, where background I/Os go one at a time: it takes the place of one VM
//!   I/O, so only the time by which it is longer counts;
//! - **held-up reads:** a device that answers writes before it has done them delays reads by the
//!   work that is left. The profile's latencies of reads beside saturating writes give the delay,
//!   beyond the I/Os in flight.

use super::cost::{Costs, latency_points, scaled};
use super::load::Load;
use super::mix::nanos;
use super::{Device, PlannedVm};
use crate::profile::{Access, BesideWrites, DepthPoint, Direction};
use tidegate_base::time::Nanos;

/// Blocking time of a device by its causes, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Blocking {
    /// Time of the I/Os in flight: the depth times the device time of the largest part, or the 99th
    /// percentile of its latency at that depth if that is longer.
    pub in_flight: u64,
    /// Time of one background part.
    pub background: u64,
    /// Time of one of the I/Os in flight, whose place the background part takes.
    pub one_in_flight: u64,
    /// Delay by writes that the device has answered and not done, beyond the I/Os in flight.
    pub held_up: u64,
    /// Latency of a request beyond its device time: a flash disk serves many requests at a time,
    /// each slowly. 0 from `Blocking::new`; `latency::bounds` sets it from the VMs with promises.
    pub service: u64,
    /// True if the profile has latencies; without them only device time is known.
    pub is_measured: bool,
}

impl Blocking {
    /// Computes all causes but `service`. `mix_factor`: factor, in millionths, by which an I/O of a
    /// size costs more in the worst mix of reads and writes.
    pub(super) fn new(
        costs: &Costs<'_>,
        vms: &[PlannedVm<'_>],
        loads: &[Load],
        mix_factor: impl Fn(u32) -> u64,
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
                let factor = mix_factor(load.longest);
                let device_ps = scaled(costs.blended_ps(direction, longest), factor);
                if let (true, Some(part_max)) = (vm.background, device.queueing.background_part) {
                    let background_max_ps = part_max.0.saturating_mul(1000);
                    // One background I/O at a time goes beside VMs, and the dispatcher cuts it to
                    // that length.
                    let part_ps = device_ps.min(background_max_ps);
                    blocking.background = blocking.background.max(part_ps);
                } else {
                    let all_ps = device_ps.saturating_mul(device.depth.into());
                    let p99_ps = p99_latency_ps(costs, direction, longest, device.depth);
                    blocking.is_measured &= p99_ps.is_some();
                    let in_flight = scaled(p99_ps.unwrap_or(0), factor).max(all_ps);
                    blocking.in_flight = blocking.in_flight.max(in_flight);
                }
                if direction == Direction::Write {
                    longest_write = longest_write.max(Some(longest));
                }
            }
        }
        // Depths are at least 1 by the device's specification.
        blocking.one_in_flight = blocking.in_flight / u64::from(device.depth);
        let held = longest_write.map_or(0, |size| beside_writes(costs, size, device.depth));
        // The I/Os in flight are part of the measured delay, so only the rest is added.
        blocking.held_up = held.saturating_sub(blocking.in_flight);
        blocking
    }

    /// B: time for which the device is busy with other requests than those due.
    pub(super) fn device_ps(&self) -> u128 {
        u128::from(self.in_flight) + u128::from(self.background_excess()) + u128::from(self.held_up)
    }

    /// Time of the background part beyond that of the I/O whose place it takes.
    pub fn background_excess(&self) -> u64 {
        self.background.saturating_sub(self.one_in_flight)
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
    let alone = p99_latency_ps(costs, Direction::Read, BesideWrites::READ_SIZE, 1).unwrap_or(0);
    longest.0.saturating_mul(1000).saturating_sub(alone)
}

/// 99th percentile of the latency of random requests at a depth, in picoseconds; `None`: not
/// measured. Interpolates linearly between measured depths, never below that of a smaller depth;
/// beyond the deepest it grows in proportion. Beyond the measured sizes it grows with the cost.
pub(super) fn p99_latency_ps(
    costs: &Costs<'_>,
    direction: Direction,
    size: u32,
    depth: u32,
) -> Option<u64> {
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
        .map(|(direction, access)| latency_points(&costs.device, direction, access, size))
        .find(|points| !points.is_empty())?;
    let deepest = points[points.len() - 1];
    let cost = |direction, access, bytes| costs.time_ps(direction, access, bytes);
    let own = cost(direction, Access::Random, size);
    let measured = cost(deepest.direction, deepest.access, deepest.size);
    Some(scaled(
        interpolated_p99_ps(&points, depth),
        at_least_one_ratio(own, measured),
    ))
}

/// 99th percentile of the latency in picoseconds at a depth, from points in order of depth.
fn interpolated_p99_ps(points: &[DepthPoint], depth: u32) -> u64 {
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
fn at_least_one_ratio(cost: u64, measured: u64) -> u64 {
    let one = super::cost::FACTOR_ONE;
    let factor = (u128::from(cost) * u128::from(one)).div_ceil(measured.into());
    u64::try_from(factor).unwrap_or(u64::MAX).max(one)
}

/// Ranges of depth in which costs are constant, each as its smallest and largest depth. The deepest
/// range comes first; the ranges cover the device's depth down to `least`.
pub(super) fn constant_cost_depths(device: &Device<'_>, least: u32) -> Vec<(u32, u32)> {
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
