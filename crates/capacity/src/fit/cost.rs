//! What requests take of a device at the depth that it is driven at.

use super::Device;
use crate::profile::{Access, DepthPoint, Direction, Estimation, Pattern, Profile};

/// A factor of one, in millionths.
pub(super) const ONE: u64 = 1_000_000;

/// Times by the profile, at the device's depth.
#[derive(Clone, Debug)]
pub(super) struct Costs<'a> {
    pub(super) device: Device<'a>,
    /// By how much more a request takes at the device's depth than at saturation, in millionths, by
    /// direction and access.
    slower: [[u64; 2]; 2],
}

impl<'a> Costs<'a> {
    pub(super) fn new(device: &Device<'a>) -> Costs<'a> {
        let mut costs = Costs {
            device: *device,
            slower: [[ONE; 2]; 2],
        };
        for direction in [Direction::Read, Direction::Write] {
            for access in [Access::Sequential, Access::Random] {
                costs.slower[direction as usize][access as usize] =
                    slower(device, direction, access);
            }
        }
        costs
    }

    /// Picoseconds of the device that a request takes, at least 1.
    pub(super) fn time_ps(&self, direction: Direction, access: Access, bytes: u32) -> u64 {
        let time = self.device.profile.time_ps(direction, access, bytes);
        let slower = self.slower[direction as usize][access as usize];
        times(time, slower)
    }

    /// The same of a sequential request among those of others: no less than of a random one.
    pub(super) fn blended_ps(&self, direction: Direction, bytes: u32) -> u64 {
        let time = |access| self.time_ps(direction, access, bytes);
        time(Access::Sequential).max(time(Access::Random))
    }
}

/// By how much dearer random requests are in mixes, for each size that there is.
#[derive(Clone, Debug)]
pub(super) struct Mixing {
    /// Reads in thousandths: both ends of each stretch between two measured mixes, in four parts
    /// each, rising. Without mixes all is one stretch.
    ends: Vec<u32>,
    /// Sizes, rising, with their factors at each of those ends, in millionths.
    factors: Vec<(u32, Vec<u64>)>,
}

impl Mixing {
    pub(super) fn new(profile: &Profile, sizes: impl Iterator<Item = u32>) -> Mixing {
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
        let of = |size| (ends.iter().map(|&reads| mixing(profile, reads, size))).collect();
        let factors = sizes.into_iter().map(|size| (size, of(size))).collect();
        Mixing { ends, factors }
    }

    /// So many stretches.
    pub(super) fn stretches(&self) -> usize {
        self.ends.len() - 1
    }

    /// Both ends of a stretch, in thousandths of reads.
    pub(super) fn ends(&self, stretch: usize) -> (u32, u32) {
        (self.ends[stretch], self.ends[stretch + 1])
    }

    /// The factor in a stretch, in millionths. Between two neighbouring proportions it rises or
    /// falls: the larger end bounds it.
    pub(super) fn in_stretch(&self, stretch: usize, size: u32) -> u64 {
        let factors = self.of(size);
        factors[stretch].max(factors[stretch + 1])
    }

    /// The largest factor of a size, in millionths.
    pub(super) fn dearest(&self, size: u32) -> u64 {
        self.of(size).iter().copied().fold(ONE, u64::max)
    }

    fn of(&self, size: u32) -> &[u64] {
        let found = self.factors.binary_search_by_key(&size, |(size, _)| *size);
        &self.factors[found.expect("made for all sizes that there are")].1
    }
}

/// By how much more random requests take in a mix with so many reads, in thousandths, than reads
/// and writes alone do; in millionths, rounded up, at least one. A mix that takes less is not
/// counted on.
fn mixing(profile: &Profile, reads: u32, bytes: u32) -> u64 {
    let pattern = Pattern {
        reads: f64::from(reads) / 1000.0,
        sequential_reads: 0.0,
        sequential_writes: 0.0,
        size: f64::from(bytes),
    };
    let mean = |estimation| profile.mean_time_ps(&pattern, estimation);
    let factor = mean(Estimation::ThreeD) / mean(Estimation::TwoD);
    // An ulp more than one is one: a mix that was not measured costs nothing.
    let factor = (factor * ONE as f64 - 1e-3).ceil();
    (factor as u64).max(ONE)
}

/// A time by a factor in millionths, rounded up.
pub(super) fn times(time: u64, factor: u64) -> u64 {
    let product = (u128::from(time) * u128::from(factor)).div_ceil(u128::from(ONE));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The measurements against depth of a kind, of the size that is nearest to `bytes`: the next
/// larger, or the largest. In the order of depth.
pub(super) fn points(
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

/// A device that is driven at less than the depth it is saturated at does less: the rate at the
/// deepest measured depth that it is driven at, below that at saturation, of the smallest size.
fn slower(device: &Device<'_>, direction: Direction, access: Access) -> u64 {
    let points = points(device, direction, access, 0);
    let at_depth = points.iter().rfind(|p| p.depth <= device.depth);
    // Not measured as low: all of it is less in proportion.
    let rate = match (at_depth, points.first()) {
        (Some(point), _) => point.iops,
        (None, Some(first)) => first.iops * f64::from(device.depth) / f64::from(first.depth),
        (None, None) => return ONE,
    };
    let saturated = device.profile.curve(direction, access).iops(points[0].size);
    let factor = (saturated / rate * ONE as f64).ceil();
    // No rate is below a picosecond's rounding of the profile.
    (factor.clamp(ONE as f64, 1e15)) as u64
}
