//! Worst mix of reads and writes that VMs can make of their promised requests.
//!
//! Random reads and writes make each other costlier, by an amount that depends on their proportion.
//! VMs need not all be active at once, so every proportion is examined that a part of the promised
//! load can have. In each interval between measured proportions that is all of the scarcer
//! direction, and of the other the costliest requests, as many as the proportion takes. The worst
//! of these costs no less than any part of the load; so an added load never reduces it.

use super::cost::{Costs, MixFactors, scaled};
use super::load::{Load, MICRO_REQUESTS};
use crate::profile::{Access, Direction};
use tidegate_base::expected_workload::THOUSAND;
use tidegate_base::time::Nanos;

/// Requests of one VM, direction and access pattern that take part in a mix.
struct Stream {
    /// Index of the VM.
    vm: usize,
    /// Rate in millionths of a request per second.
    rate: u64,
    /// Size of a request in bytes.
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
/// per second. `blended`: sequential requests reach the device as random ones.
pub(super) fn worst_mix_times(
    costs: &Costs<'_>,
    mix_factors: &MixFactors,
    loads: &[Load],
    blended: bool,
) -> Vec<u128> {
    // Sequential requests, which no mix makes costlier.
    let mut unmixed_times = vec![0u128; loads.len()];
    let mut mixed_streams = [Vec::new(), Vec::new()];
    for (vm, load) in loads.iter().enumerate() {
        for (direction, rate) in [
            (Direction::Read, load.reads),
            (Direction::Write, load.writes),
        ] {
            let (sequential_rate, random_rate) = split_by_access(rate, load.sequential);
            let sequential_time = costs.time_ps(direction, Access::Sequential, load.size);
            let random_time = costs.time_ps(direction, Access::Random, load.size);
            let mut add_mixed = |rate, time| {
                mixed_streams[direction as usize].push(Stream {
                    vm,
                    rate,
                    size: load.size,
                    time,
                });
            };
            add_mixed(random_rate, random_time);
            if blended {
                add_mixed(sequential_rate, costs.blended_ps(direction, load.size))
            } else {
                unmixed_times[vm] = add_time(unmixed_times[vm], sequential_rate, sequential_time);
            }
        }
    }
    for streams in &mut mixed_streams {
        streams.retain(|stream| stream.rate > 0);
    }
    let mut worst: Option<(u128, Vec<u128>)> = None;
    for interval in 0..mix_factors.intervals() {
        let vm_times =
            costliest_in_interval(mix_factors, &mixed_streams, interval, unmixed_times.clone());
        let sum = vm_times.iter().fold(0u128, |sum, &t| sum.saturating_add(t));
        if worst.as_ref().is_none_or(|(largest, _)| sum > *largest) {
            worst = Some((sum, vm_times));
        }
    }
    worst.map_or(unmixed_times, |(_, vm_times)| vm_times)
}

/// Splits a rate into its sequential and its random requests. `sequential`: part of sequential
/// requests in thousandths.
fn split_by_access(rate: u64, sequential: u32) -> (u64, u64) {
    // Each part is rounded up by itself, so that neither shrinks when the other grows.
    let part = |thousandths: u32| {
        (u128::from(rate) * u128::from(thousandths)).div_ceil(u128::from(THOUSAND)) as u64
    };
    (part(sequential), part(THOUSAND - sequential))
}

/// Adds the device time of `rate` requests (in millionths per second) that take `time` picoseconds
/// each.
fn add_time(before: u128, rate: u64, time: u64) -> u128 {
    before.saturating_add(u128::from(rate).saturating_mul(u128::from(time)))
}

/// Adds to `vm_times`, the device time of each VM, the costliest part of the load whose proportion
/// of reads lies in an interval, or slightly outside.
fn costliest_in_interval(
    mix_factors: &MixFactors,
    [reads, writes]: &[Vec<Stream>; 2],
    interval: usize,
    mut vm_times: Vec<u128>,
) -> Vec<u128> {
    let time = |stream: &Stream| scaled(stream.time, mix_factors.largest_in(interval, stream.size));
    let (low, high) = mix_factors.ends(interval);
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
        let mut costliest_first: Vec<_> = streams.iter().map(|s| (time(s), s)).collect();
        // A stable sort keeps requests of equal time in the order of VMs.
        costliest_first.sort_by_key(|(time, _)| core::cmp::Reverse(*time));
        for (time, stream) in costliest_first {
            let rate = left.min(u128::from(stream.rate)) as u64;
            left -= u128::from(rate);
            vm_times[stream.vm] = add_time(vm_times[stream.vm], rate, time);
        }
    }
    vm_times
}
