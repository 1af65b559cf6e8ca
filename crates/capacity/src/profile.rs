//! What a device can do at most: its saturation profile, and what a request costs by it.
//!
//! vFair (Lu et al., SoCC 2015), section 4.1: a device is saturated with requests of one kind at a
//! time, and a request costs the time it then takes of the device, 1 / IOPS. A workload that mixes
//! kinds takes the mean of their times, which is the paper's equation 3. That alone is the 2D
//! estimation, by kind and size; the 3D one (section 4.1.2) has measured random mixes of reads and
//! writes, too, because each makes the other dearer than it is alone.
//!
//! Times are whole picoseconds, so that a dispatcher may be driven by them: at a million IOPS a
//! request takes 1,000,000 of them.

use tidegate_base::request::Op;
use tidegate_base::time::Nanos;

/// Picoseconds in a second.
const SECOND_PS: u64 = 1_000_000_000_000;
/// Half the width of a point's 95 % confidence interval, in percent of its mean, beyond which no
/// promise is reckoned by it. Plans keep a headroom of 20 % of the device's time: a rate that may
/// be a quarter lower takes a third more time, which is more than that.
pub const TRUSTED_WITHIN_PERCENT: f64 = 25.0;
/// Points that a message about imprecise ones names.
const IMPRECISE_SHOWN: usize = 3;

/// Where a request lies, seen from the last ones of its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Where an earlier one ended.
    Sequential,
    /// Elsewhere.
    Random,
}

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To it.
    Write,
}

impl Direction {
    /// That of an operation; everything that changes the disk counts as a write.
    pub const fn of(op: Op) -> Direction {
        match op {
            Op::Read => Direction::Read,
            _ => Direction::Write,
        }
    }
}

/// How long a saturated device takes for a request of one kind, by its size.
///
/// Between measured sizes the time is on the line between them; a smaller request takes as long as
/// the smallest measured one, and beyond the largest the line of the last two goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Bytes, rising; picoseconds, positive.
    points: Vec<(u32, u64)>,
}

impl Curve {
    /// From sizes in bytes and IOPS at saturation, in any order.
    ///
    /// # Errors
    /// When there is no point, a size is 0 or named twice, or a rate is not a positive number of at
    /// most 10^12.
    pub fn new(points: &[(u32, f64)]) -> Result<Curve, CurveError> {
        let mut by_size = Vec::with_capacity(points.len());
        for &(size, iops) in points {
            if size == 0 {
                return Err(CurveError::NoSize);
            }
            // At most a second for a picosecond's rounding: 10^12 IOPS and 10^-6.
            if !(1e-6..=1e12).contains(&iops) {
                return Err(CurveError::Rate { size });
            }
            by_size.push((size, ((SECOND_PS as f64 / iops) + 0.5) as u64));
        }
        by_size.sort_unstable();
        if let Some(twice) = by_size.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(CurveError::Twice { size: twice[0].0 });
        }
        match by_size.is_empty() {
            true => Err(CurveError::Empty),
            false => Ok(Curve { points: by_size }),
        }
    }

    /// Picoseconds of the device that a request of so many bytes takes.
    pub fn time_ps(&self, bytes: u32) -> u64 {
        let at = self.points.partition_point(|&(size, _)| size <= bytes);
        let last = self.points.len() - 1;
        let (low, high) = match at {
            0 => return self.points[0].1,
            at if at <= last => (self.points[at - 1], self.points[at]),
            _ if last == 0 => {
                // Nothing but its size is known: what moves the bytes is taken for all of it.
                let (size, time) = self.points[0];
                return (time as u128 * bytes as u128 / size as u128).min(u64::MAX as u128) as u64;
            }
            _ => (self.points[last - 1], self.points[last]),
        };
        let (run, rise) = ((high.0 - low.0) as i128, high.1 as i128 - low.1 as i128);
        let time = match at > last {
            // No request is quicker for being longer.
            true => high.1 as i128 + rise.max(0) * (bytes - high.0) as i128 / run,
            false => low.1 as i128 + rise * (bytes - low.0) as i128 / run,
        };
        time.clamp(1, u64::MAX as i128) as u64
    }

    /// Requests a second of this kind and size that saturate the device.
    pub fn iops(&self, bytes: u32) -> f64 {
        SECOND_PS as f64 / self.time_ps(bytes) as f64
    }

    /// Measured sizes in bytes with the picoseconds a request of each takes, rising by size.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.points
    }
}

/// Why a curve is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CurveError {
    /// Nothing was measured.
    Empty,
    /// A size of 0 bytes.
    NoSize,
    /// A size is there twice.
    Twice {
        /// Bytes.
        size: u32,
    },
    /// A rate is not a number between 10^-6 and 10^12 IOPS.
    Rate {
        /// Bytes of its point.
        size: u32,
    },
}

impl core::fmt::Display for CurveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CurveError::Empty => write!(f, "it has no point"),
            CurveError::NoSize => write!(f, "a request of 0 bytes cannot be measured"),
            CurveError::Twice { size } => write!(f, "{size} bytes are there twice"),
            CurveError::Rate { size } => {
                write!(
                    f,
                    "the rate at {size} bytes is not between 10^-6 and 10^12 IOPS"
                )
            }
        }
    }
}

impl core::error::Error for CurveError {}

/// What one measurement at one depth showed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DepthPoint {
    /// Which way.
    pub direction: Direction,
    /// Where.
    pub access: Access,
    /// Bytes of each request.
    pub size: u32,
    /// Requests with the device at any time.
    pub depth: u32,
    /// Requests a second.
    pub iops: f64,
    /// Mean time of a request with the device.
    pub mean: Nanos,
    /// Half of them took at most this.
    pub p50: Nanos,
    /// 99 of 100 took at most this.
    pub p99: Nanos,
}

/// Time of a random 4 KiB read, one at a time, beside writes that keep the device saturated.
///
/// A disk with a write cache, or flash with a buffer, still has work to do for writes that it has
/// answered, and holds reads up for it. Latencies of reads alone do not show that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BesideWrites {
    /// Access pattern of the writes.
    pub access: Access,
    /// Bytes of each write.
    pub size: u32,
    /// Writes with the device at any time.
    pub depth: u32,
    /// Half of the reads took at most this.
    pub p50: Nanos,
    /// 99 of 100 reads took at most this.
    pub p99: Nanos,
}

impl BesideWrites {
    /// Bytes of each read.
    pub const READ_SIZE: u32 = 4096;
}

/// How saturation is estimated for a mix of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Estimation {
    /// By kind and size: equation 3.
    TwoD,
    /// Random reads and writes by their measured mix, where mixes were measured.
    #[default]
    ThreeD,
}

/// What a stream of requests is like: vFair's alpha, beta, gamma and mean size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pattern {
    /// Reads among all requests, 0 to 1 (alpha).
    pub reads: f64,
    /// Sequential ones among the reads, 0 to 1 (beta).
    pub sequential_reads: f64,
    /// Sequential ones among the writes, 0 to 1 (gamma).
    pub sequential_writes: f64,
    /// Mean size in bytes.
    pub size: f64,
}

impl Pattern {
    /// Random reads of 4 KiB: what a VM is taken for before anything is known of it.
    pub const UNKNOWN: Pattern = Pattern {
        reads: 1.0,
        sequential_reads: 0.0,
        sequential_writes: 0.0,
        size: 4096.0,
    };
}

/// A device's saturation profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Reads: sequential, random.
    reads: [Curve; 2],
    /// Writes likewise; `None`: not measured, for the device held something.
    writes: Option<[Curve; 2]>,
    /// Random mixes: reads in thousandths, 1 to 999, rising, with their curves.
    mixes: Vec<(u32, Curve)>,
    latency: Vec<DepthPoint>,
    /// Reads beside saturating writes; empty where that was not measured.
    beside_writes: Vec<BesideWrites>,
    /// Requests outstanding at saturation; 0: not known.
    depth: u32,
    /// Points that are too uncertain to be relied on, in words.
    imprecise: Vec<String>,
}

impl Profile {
    /// Picoseconds that a request counts for where no profile is known.
    pub const UNKNOWN_PS: u64 = 1 << 20;

    /// From curves of sequential and random reads, of writes where they were measured, of random
    /// mixes with their reads in thousandths (those outside 1 to 999 are left out: they are no
    /// mixes), and from what was measured against depth.
    pub fn new(
        reads: [Curve; 2],
        writes: Option<[Curve; 2]>,
        mut mixes: Vec<(u32, Curve)>,
        latency: Vec<DepthPoint>,
    ) -> Profile {
        mixes.retain(|mix| (1..1000).contains(&mix.0));
        mixes.sort_by_key(|mix| mix.0);
        mixes.dedup_by_key(|mix| mix.0);
        Profile {
            reads,
            writes,
            mixes,
            latency,
            beside_writes: Vec::new(),
            depth: 0,
            imprecise: Vec::new(),
        }
    }

    /// The same, measured with so many requests outstanding.
    pub fn with_depth(self, depth: u32) -> Profile {
        Profile { depth, ..self }
    }

    /// The same, with times of reads beside saturating writes.
    pub fn with_beside_writes(self, beside_writes: Vec<BesideWrites>) -> Profile {
        Profile {
            beside_writes,
            ..self
        }
    }

    /// Marks points as too uncertain to be relied on: their names with their intervals, such as
    /// `4 KiB random reads (±330 %)`. Nothing that is reckoned by the profile changes.
    pub fn with_imprecise(self, imprecise: Vec<String>) -> Profile {
        Profile { imprecise, ..self }
    }

    /// Says which points are too uncertain for promises to be reckoned with; `None`: none is.
    pub fn imprecision(&self) -> Option<String> {
        let (first, others) = self.imprecise.split_first()?;
        let shown: Vec<&str> = (others.iter().take(IMPRECISE_SHOWN - 1))
            .map(String::as_str)
            .collect();
        let mut text = first.clone();
        for point in &shown {
            text = text + ", " + point;
        }
        let points = match self.imprecise.len() {
            1 => "1 point".to_owned(),
            n => format!("{n} points"),
        };
        let left = others.len() - shown.len();
        if left > 0 {
            text += &format!(" and {left} more");
        }
        Some(format!(
            "{points} of the profile may be off by more than {TRUSTED_WITHIN_PERCENT} %: {text}"
        ))
    }

    /// Requests that were outstanding at saturation; 0: not known.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The curve of a kind. Where writes were not measured, that of reads.
    pub fn curve(&self, direction: Direction, access: Access) -> &Curve {
        match (direction, &self.writes) {
            (Direction::Write, Some(writes)) => &writes[access as usize],
            _ => &self.reads[access as usize],
        }
    }

    /// Whether writes were measured.
    pub fn has_writes(&self) -> bool {
        self.writes.is_some()
    }

    /// Measured random mixes: reads in thousandths, rising.
    pub fn mixes(&self) -> &[(u32, Curve)] {
        &self.mixes
    }

    /// What was measured against depth.
    pub fn latency(&self) -> &[DepthPoint] {
        &self.latency
    }

    /// Times of reads beside saturating writes; empty where that was not measured.
    pub fn beside_writes(&self) -> &[BesideWrites] {
        &self.beside_writes
    }

    /// Picoseconds of the device that one request takes, whatever else there is.
    pub fn time_ps(&self, direction: Direction, access: Access, bytes: u32) -> u64 {
        self.curve(direction, access).time_ps(bytes)
    }

    /// Mean picoseconds of the device that a request of a pattern takes: 1 / P of equation 3.
    pub fn mean_time_ps(&self, pattern: &Pattern, estimation: Estimation) -> f64 {
        let bytes = pattern.size.clamp(1.0, u32::MAX as f64) as u32;
        let alpha = pattern.reads.clamp(0.0, 1.0);
        let beta = pattern.sequential_reads.clamp(0.0, 1.0);
        let gamma = pattern.sequential_writes.clamp(0.0, 1.0);
        let time = |direction, access| self.time_ps(direction, access, bytes) as f64;
        let sequential = alpha * beta * time(Direction::Read, Access::Sequential)
            + (1.0 - alpha) * gamma * time(Direction::Write, Access::Sequential);
        let (reads, writes) = (alpha * (1.0 - beta), (1.0 - alpha) * (1.0 - gamma));
        let random = match estimation {
            Estimation::ThreeD if reads > 0.0 && writes > 0.0 => {
                (reads + writes) * self.mixed_ps(reads / (reads + writes), bytes)
            }
            _ => {
                reads * time(Direction::Read, Access::Random)
                    + writes * time(Direction::Write, Access::Random)
            }
        };
        sequential + random
    }

    /// Requests a second of a pattern that saturate the device: P of equation 3.
    pub fn saturation_iops(&self, pattern: &Pattern, estimation: Estimation) -> f64 {
        SECOND_PS as f64 / self.mean_time_ps(pattern, estimation)
    }

    /// Mean picoseconds of a random request where this part of them reads: on the line between the
    /// measured mixes on either side.
    fn mixed_ps(&self, reads: f64, bytes: u32) -> f64 {
        let thousandths = reads * 1000.0;
        let after = self
            .mixes
            .partition_point(|mix| f64::from(mix.0) <= thousandths);
        let ends = [Direction::Write, Direction::Read];
        let end = |direction| self.time_ps(direction, Access::Random, bytes) as f64;
        let mix = |at: usize| {
            let (part, curve) = &self.mixes[at];
            (f64::from(*part), curve.time_ps(bytes) as f64)
        };
        let low = match after {
            0 => (0.0, end(ends[0])),
            after => mix(after - 1),
        };
        let high = match after == self.mixes.len() {
            true => (1000.0, end(ends[1])),
            false => mix(after),
        };
        low.1 + (high.1 - low.1) * (thousandths - low.0) / (high.0 - low.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(iops: f64) -> Curve {
        Curve::new(&[(4096, iops), (1 << 20, iops)]).expect("a curve")
    }

    /// The paper's figures 4 and 7: 8000 IOPS where sequential, 1200 where random.
    fn paper() -> Profile {
        let reads = [flat(8000.0), flat(1200.0)];
        Profile::new(reads.clone(), Some(reads), Vec::new(), Vec::new())
    }

    #[test]
    fn times_lie_on_the_line_between_sizes() {
        let curve = Curve::new(&[(65536, 1000.0), (4096, 4000.0)]).expect("a curve");
        assert_eq!(curve.time_ps(4096), 250_000_000);
        assert_eq!(curve.time_ps(512), 250_000_000);
        assert_eq!(curve.time_ps((4096 + 65536) / 2), 625_000_000);
        assert_eq!(curve.time_ps(65536), 1_000_000_000);
        assert_eq!(curve.time_ps(65536 + 61440), 1_750_000_000);
        assert_eq!(flat(1000.0).time_ps(8 << 20), 1_000_000_000);
        // The last line falls: what was measured stays what it is, and beyond it nothing is
        // quicker.
        let falls = Curve::new(&[(4096, 1000.0), (8192, 2000.0)]).expect("a curve");
        assert_eq!(falls.time_ps(8192), 500_000_000);
        assert_eq!(falls.time_ps(65536), 500_000_000);
        let one = Curve::new(&[(4096, 1000.0)]).expect("a curve");
        assert_eq!(one.time_ps(8192), 2_000_000_000);
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        assert_eq!(Curve::new(&[]), Err(CurveError::Empty));
        assert_eq!(Curve::new(&[(0, 1.0)]), Err(CurveError::NoSize));
        for iops in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                Curve::new(&[(512, iops)]),
                Err(CurveError::Rate { size: 512 })
            );
        }
        let twice = [(512, 1.0), (1024, 1.0), (512, 2.0)];
        assert_eq!(Curve::new(&twice), Err(CurveError::Twice { size: 512 }));
    }

    #[test]
    fn equation_3_is_the_mean_of_times() {
        let pattern = |beta| Pattern {
            sequential_reads: beta,
            ..Pattern::UNKNOWN
        };
        let p = |beta| paper().saturation_iops(&pattern(beta), Estimation::TwoD);
        assert!((p(1.0) - 8000.0).abs() < 1e-6);
        assert!((p(0.0) - 1200.0).abs() < 1e-3);
        assert!((p(0.5) - 1.0 / (0.5 / 8000.0 + 0.5 / 1200.0)).abs() < 1e-3);
    }

    #[test]
    fn a_measured_mix_counts_in_3d_alone() {
        let (reads, writes) = (flat(1000.0), flat(1000.0));
        let profile = Profile::new(
            [flat(8000.0), reads],
            Some([flat(8000.0), writes]),
            vec![(500, flat(500.0))],
            Vec::new(),
        );
        let p = |reads, estimation| {
            let pattern = Pattern {
                reads,
                ..Pattern::UNKNOWN
            };
            profile.saturation_iops(&pattern, estimation)
        };
        assert!((p(0.5, Estimation::TwoD) - 1000.0).abs() < 1e-6);
        assert!((p(0.5, Estimation::ThreeD) - 500.0).abs() < 1e-6);
        // Half-way to the mix: half of the time on top.
        assert!((p(0.25, Estimation::ThreeD) - 1000.0 / 1.5).abs() < 1e-6);
        assert!((p(1.0, Estimation::ThreeD) - 1000.0).abs() < 1e-6);
    }
}
