//! Worst mix of reads and writes that VMs can make of their promised requests.
//!
//! Random reads and writes make each other costlier, by an amount that depends on their proportion.
//! VMs need not all be active at once, so every proportion is examined that a part of the promised
//! load can have. In each stretch between measured proportions that is all of the scarcer
//! direction, and of the other the costliest requests, as many as the proportion takes. The worst
//! of these costs no less than any part of the load; so an added load never reduces it.

use super::cost::{Costs, Mixing, times};
use super::load::{Load, MICRO_REQUESTS};
use crate::profile::{Access, Direction};
use tidegate_base::time::Nanos;

/// Requests of one VM, direction and access pattern, in millionths per second, with the time of
/// one.
struct Stream {
    /// Index of the VM.
    vm: usize,
    rate: u64,
    size: u32,
    /// Device time of a request in picoseconds.
    time: u64,
}

/// Converts millionths of a picosecond per second to picoseconds per second, rounded up.
pub(super) fn per_second(time: u128) -> u64 {
    u64::try_from(time.div_ceil(MICRO_REQUESTS)).unwrap_or(u64::MAX)
}

/// Converts picoseconds to nanoseconds, rounded up.
pub(super) fn nanos(ps: u128) -> Nanos {
    Nanos(u64::try_from(ps.div_ceil(1000)).unwrap_or(u64::MAX))
}

/// Device time of each VM in the mix in which all together take most, in millionths of a picosecond
/// per second.
pub(super) fn worst(
    costs: &Costs<'_>,
    mixing: &Mixing,
    loads: &[Load],
    blended: bool,
) -> Vec<u128> {
    let mut alone = vec![0u128; loads.len()];
    let mut random = [Vec::new(), Vec::new()];
    for (vm, load) in loads.iter().enumerate() {
        for (direction, rate) in [
            (Direction::Read, load.reads),
            (Direction::Write, load.writes),
        ] {
            let (streams, rest) = split(rate, load.sequential);
            let sequential = costs.time_ps(direction, Access::Sequential, load.size);
            let scattered = costs.time_ps(direction, Access::Random, load.size);
            let mut mixed = |rate, time| {
                random[direction as usize].push(Stream {
                    vm,
                    rate,
                    size: load.size,
                    time,
                });
            };
            mixed(rest, scattered);
            // Blended streams of several VMs reach the device as random requests.
            if blended {
                mixed(streams, costs.blended_ps(direction, load.size))
            } else {
                alone[vm] = add_time(alone[vm], streams, sequential);
            }
        }
    }
    for streams in &mut random {
        streams.retain(|stream| stream.rate > 0);
    }
    let mut most: Option<(u128, Vec<u128>)> = None;
    for stretch in 0..mixing.stretches() {
        let taken = in_stretch(mixing, &random, stretch, alone.clone());
        let sum = taken.iter().fold(0u128, |sum, &t| sum.saturating_add(t));
        if most.as_ref().is_none_or(|(before, _)| sum > *before) {
            most = Some((sum, taken));
        }
    }
    most.map_or(alone, |(_, taken)| taken)
}

fn split(rate: u64, sequential: u32) -> (u64, u64) {
    let streams = (u128::from(rate) * u128::from(sequential)).div_ceil(1000) as u64;
    // Each part is rounded up by itself, so that neither shrinks when the other grows.
    let rest = (u128::from(rate) * u128::from(1000 - sequential)).div_ceil(1000) as u64;
    (streams, rest)
}

fn add_time(before: u128, rate: u64, time: u64) -> u128 {
    before.saturating_add(u128::from(rate).saturating_mul(u128::from(time)))
}

/// Device time of the costliest part of the load with its proportion in the stretch, or slightly
/// outside.
fn in_stretch(
    mixing: &Mixing,
    [reads, writes]: &[Vec<Stream>; 2],
    stretch: usize,
    mut taken: Vec<u128>,
) -> Vec<u128> {
    let time = |stream: &Stream| times(stream.time, mixing.in_stretch(stretch, stream.size));
    let (low, high) = mixing.ends(stretch);
    let rate = |streams: &[Stream]| streams.iter().map(|s| u128::from(s.rate)).sum::<u128>();
    let (all_reads, all_writes) = (rate(reads), rate(writes));
    let (low, high) = (u128::from(low), u128::from(high));
    // Beside all writes, at most this many reads keep the proportion of reads at `high` or below;
    // writes beside all reads likewise.
    let most_reads = match high {
        1000 => all_reads,
        high => all_reads.min((all_writes * high).div_ceil(1000 - high)),
    };
    let most_writes = match low {
        0 => all_writes,
        low => all_writes.min((all_reads * (1000 - low)).div_ceil(low)),
    };
    for (streams, mut left) in [(reads, most_reads), (writes, most_writes)] {
        let mut dearest: Vec<_> = streams.iter().map(|s| (time(s), s)).collect();
        // A stable sort keeps requests of equal time in the order of VMs.
        dearest.sort_by_key(|(time, _)| core::cmp::Reverse(*time));
        for (time, stream) in dearest {
            let rate = left.min(u128::from(stream.rate)) as u64;
            left -= u128::from(rate);
            taken[stream.vm] = add_time(taken[stream.vm], rate, time);
        }
    }
    taken
}
