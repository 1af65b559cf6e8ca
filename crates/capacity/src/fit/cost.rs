//! Device time of requests at the depth at which the device is driven.

use super::Device;
use crate::profile::{Access, DepthPoint, Direction, Estimation, Pattern, Profile};

/// Factor of one, in millionths.
pub(super) const FACTOR_ONE: u64 = 1_000_000;

/// Device times by the profile, scaled to the device's depth.
#[derive(Clone, Debug)]
pub(super) struct Costs<'a> {
    pub(super) device: Device<'a>,
    /// Ratio of a request's time at the device's depth to that at saturation, in millionths, by
    /// direction and access.
    depth_factors: [[u64; 2]; 2],
}

impl<'a> Costs<'a> {
    pub(super) fn new(device: &Device<'a>) -> Costs<'a> {
        let mut costs = Costs {
            device: *device,
            depth_factors: [[FACTOR_ONE; 2]; 2],
        };
        for direction in [Direction::Read, Direction::Write] {
            for access in [Access::Sequential, Access::Random] {
                costs.depth_factors[direction as usize][access as usize] =
                    depth_factor(device, direction, access);
            }
        }
        costs
    }

    /// Device time of a request in picoseconds, at least 1.
    pub(super) fn time_ps(&self, direction: Direction, access: Access, bytes: u32) -> u64 {
        let time = self.device.profile.time_ps(direction, access, bytes);
        let factor = self.depth_factors[direction as usize][access as usize];
        scaled(time, factor)
    }

    /// Device time of a sequential request among those of other VMs: no less than of a random one.
    pub(super) fn blended_ps(&self, direction: Direction, bytes: u32) -> u64 {
        let time = |access| self.time_ps(direction, access, bytes);
        time(Access::Sequential).max(time(Access::Random))
    }
}

/// Factors by which mixes make random requests costlier, for each size in use.
#[derive(Clone, Debug)]
pub(super) struct MixFactors {
    /// Ends of the intervals in thousandths of reads, increasing: each interval between measured
    /// mixes is divided into four. Without mixes a single interval covers all proportions.
    ends: Vec<u32>,
    /// Sizes, increasing, with their factors at each of those ends, in millionths.
    factors: Vec<(u32, Vec<u64>)>,
}

impl MixFactors {
    pub(super) fn new(profile: &Profile, sizes: impl Iterator<Item = u32>) -> MixFactors {
        let mut ends = vec![0];
        let mixes = profile.mixes();
        let parts = if mixes.is_empty() { 1 } else { 4 };
        for next in mixes.iter().map(|mix| mix.0).chain([1000]) {
            let last = ends[ends.len() - 1];
            ends.extend((1..=parts).map(|part| last + (next - last) * part / parts));
        }
        ends.dedup();
        let mut sizes: Vec<u32> = sizes.collect();
        sizes.sort_unstable();
        sizes.dedup();
        let of = |size| (ends.iter().map(|&reads| mix_factor(profile, reads, size))).collect();
        let factors = sizes.into_iter().map(|size| (size, of(size))).collect();
        MixFactors { ends, factors }
    }

    /// Number of intervals.
    pub(super) fn intervals(&self) -> usize {
        self.ends.len() - 1
    }

    /// First and last point of an interval, in thousandths of reads.
    pub(super) fn ends(&self, interval: usize) -> (u32, u32) {
        (self.ends[interval], self.ends[interval + 1])
    }

    /// Largest factor in an interval, in millionths. The factor is monotonic in an interval, so the
    /// larger of both ends bounds it.
    pub(super) fn largest_in(&self, interval: usize, size: u32) -> u64 {
        let factors = self.of(size);
        factors[interval].max(factors[interval + 1])
    }

    /// Largest factor of a size, in millionths.
    pub(super) fn largest_for(&self, size: u32) -> u64 {
        self.of(size).iter().copied().fold(FACTOR_ONE, u64::max)
    }

    fn of(&self, size: u32) -> &[u64] {
        let found = self.factors.binary_search_by_key(&size, |(size, _)| *size);
        &self.factors[found.expect("made for all sizes that there are")].1
    }
}

/// Ratio of the time of random requests in a mix to that of its reads and writes alone, in
/// millionths, rounded up, at least one; `reads` is in thousandths. A mix that costs less gets no
/// credit.
fn mix_factor(profile: &Profile, reads: u32, bytes: u32) -> u64 {
    let pattern = Pattern {
        reads: f64::from(reads) / 1000.0,
        sequential_reads: 0.0,
        sequential_writes: 0.0,
        size: f64::from(bytes),
    };
    let mean = |estimation| profile.mean_time_ps(&pattern, estimation);
    let factor = mean(Estimation::ThreeD) / mean(Estimation::TwoD);
    // Tolerates rounding errors: a mix that was not measured must give exactly one.
    let factor = (factor * FACTOR_ONE as f64 - 1e-3).ceil();
    (factor as u64).max(FACTOR_ONE)
}

/// Multiplies a time by a factor in millionths, and rounds up.
pub(super) fn scaled(time: u64, factor: u64) -> u64 {
    let product = (u128::from(time) * u128::from(factor)).div_ceil(u128::from(FACTOR_ONE));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// Latency points of a kind in order of depth, for the next larger measured size than `bytes`, or
/// the largest.
pub(super) fn latency_points(
    device: &Device<'_>,
    direction: Direction,
    access: Access,
    bytes: u32,
) -> Vec<DepthPoint> {
    let of_kind = || {
        let all = device.profile.latency().iter();
        all.filter(move |p| p.direction == direction && p.access == access)
    };
    let larger = of_kind()
        .map(|p| p.size)
        .filter(|&size| size >= bytes)
        .min();
    let Some(size) = larger.or_else(|| of_kind().map(|p| p.size).max()) else {
        return Vec::new();
    };
    let mut points: Vec<_> = of_kind().filter(|p| p.size == size).copied().collect();
    points.sort_by_key(|p| p.depth);
    points
}

/// Factor in millionths by which requests take longer than at saturation, because the device is
/// driven at less depth: the ratio of the rate at saturation to that at the deepest measured depth
/// within the device's, for the smallest measured size.
fn depth_factor(device: &Device<'_>, direction: Direction, access: Access) -> u64 {
    let points = latency_points(device, direction, access, 0);
    let at_depth = points.iter().rfind(|p| p.depth <= device.depth);
    // Below the smallest measured depth the rate is taken as proportional to the depth.
    let rate = match (at_depth, points.first()) {
        (Some(point), _) => point.iops,
        (None, Some(first)) => first.iops * f64::from(device.depth) / f64::from(first.depth),
        (None, None) => return FACTOR_ONE,
    };
    let saturated = device.profile.curve(direction, access).iops(points[0].size);
    let factor = (saturated / rate * FACTOR_ONE as f64).ceil();
    // Upper bound for rates below the resolution of the profile.
    (factor.clamp(FACTOR_ONE as f64, 1e15)) as u64
}
