//! Saturation profile of a device: its maximum throughput, and the device time of a request.
//!
//! vFair (Lu et al., SoCC 2015), section 4.1: a device is saturated with requests of one kind at a
//! time, and the cost of such a request is its device time then, 1 / IOPS. A workload that mixes
//! kinds costs the mean of their times, the paper's equation 3. This is the 2D estimation, by kind
//! and size. The 3D estimation (section 4.1.2) also uses measured random mixes of reads and writes,
//! because each makes the other more expensive than it is alone.
//!
//! Times are integers of picoseconds, precise enough to drive a dispatcher: at a million IOPS a
//! request takes 1,000,000 of them.

use tidegate_base::request::Op;
use tidegate_base::time::Nanos;
use tidegate_units::human::exact_bytes;

/// Picoseconds in a second.
const SECOND_PS: u64 = 1_000_000_000_000;
/// Half width of a point's 95 % confidence interval, in percent of its mean, up to which promises
/// are judged by the point. Plans keep a headroom of 20 % of the device's time; a rate that may be
/// a quarter lower takes a third more time, which exceeds that.
pub const TRUSTED_WITHIN_PERCENT: f64 = 25.0;
/// Number of imprecise points that a message names.
const IMPRECISE_SHOWN: usize = 3;

/// Access pattern of a request relative to the previous ones of its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Starts where an earlier request ended.
    Sequential,
    /// Starts anywhere else.
    Random,
}

/// Direction of the data transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl Direction {
    /// Direction of an operation; every operation that changes the disk counts as a write.
    pub const fn for_op(op: Op) -> Direction {
        if matches!(op, Op::Read) {
            Direction::Read
        } else {
            Direction::Write
        }
    }
}

/// Device time of a request of one kind at saturation, as a function of its size.
///
/// Interpolates linearly between measured sizes. A request below the smallest measured size costs
/// as much as that size; beyond the largest, the line through the last two points continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Bytes, increasing, with positive picoseconds.
    points: Vec<(u32, u64)>,
}

impl Curve {
    /// Creates a curve from sizes in bytes with IOPS at saturation, in any order.
    ///
    /// # Errors
    /// If there is no point, a size is 0 or occurs twice, or a rate is not between 10^-6 and
    /// 10^12 IOPS.
    pub fn new(points: &[(u32, f64)]) -> Result<Curve, CurveError> {
        let mut by_size = Vec::with_capacity(points.len());
        for &(size, iops) in points {
            if size == 0 {
                return Err(CurveError::NoSize);
            }
            // Bounds that keep a time between 1 ps (10^12 IOPS) and 10^18 ps, within u64 (10^-6
            // IOPS).
            if !(1e-6..=1e12).contains(&iops) {
                return Err(CurveError::Rate { size });
            }
            by_size.push((size, ((SECOND_PS as f64 / iops) + 0.5) as u64));
        }
        by_size.sort_unstable();
        if let Some(twice) = by_size.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(CurveError::Twice { size: twice[0].0 });
        }
        if by_size.is_empty() {
            Err(CurveError::Empty)
        } else {
            Ok(Curve { points: by_size })
        }
    }

    /// Device time of a request of `bytes` bytes, in picoseconds, at least 1.
    pub fn time_ps(&self, bytes: u32) -> u64 {
        let at = self.points.partition_point(|&(size, _)| size <= bytes);
        let last = self.points.len() - 1;
        let (low, high) = match at {
            0 => return self.points[0].1,
            at if at <= last => (self.points[at - 1], self.points[at]),
            _ if last == 0 => {
                // A single point: all of its time is taken for data transfer, in proportion to
                // size.
                let (size, time) = self.points[0];
                return (time as u128 * bytes as u128 / size as u128).min(u64::MAX as u128) as u64;
            }
            _ => (self.points[last - 1], self.points[last]),
        };
        let (run, rise) = ((high.0 - low.0) as i128, high.1 as i128 - low.1 as i128);
        let time = if at > last {
            // A falling line is not continued: a longer request is never cheaper.
            high.1 as i128 + rise.max(0) * (bytes - high.0) as i128 / run
        } else {
            low.1 as i128 + rise * (bytes - low.0) as i128 / run
        };
        time.clamp(1, u64::MAX as i128) as u64
    }

    /// Requests of this kind and size per second that saturate the device.
    pub fn iops(&self, bytes: u32) -> f64 {
        SECOND_PS as f64 / self.time_ps(bytes) as f64
    }

    /// Measured sizes in bytes with the picoseconds of a request, by increasing size.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.points
    }
}

/// Reason why points make no curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CurveError {
    /// No points.
    Empty,
    /// A size of 0 bytes.
    NoSize,
    /// A size that occurs twice.
    Twice {
        /// Size in bytes.
        size: u32,
    },
    /// A rate outside 10^-6 to 10^12 IOPS.
    Rate {
        /// Size of the point in bytes.
        size: u32,
    },
}

impl core::fmt::Display for CurveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CurveError::Empty => write!(f, "it has no point"),
            CurveError::NoSize => write!(f, "a request of 0 bytes cannot be measured"),
            CurveError::Twice { size } => {
                write!(f, "{} is there twice", exact_bytes((*size).into()))
            }
            CurveError::Rate { size } => {
                write!(
                    f,
                    "the rate at {} is not between 10^-6 and 10^12 IOPS",
                    exact_bytes((*size).into())
                )
            }
        }
    }
}

impl core::error::Error for CurveError {}

/// Throughput and latency of one kind and size at one queue depth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DepthPoint {
    /// Direction of the requests.
    pub direction: Direction,
    /// Access pattern of the requests.
    pub access: Access,
    /// Bytes of each request.
    pub size: u32,
    /// Requests in flight at any time.
    pub depth: u32,
    /// Requests per second.
    pub iops: f64,
    /// Mean latency of a request at the device.
    pub mean: Nanos,
    /// Median latency.
    pub p50: Nanos,
    /// 99th percentile of the latency.
    pub p99: Nanos,
}

/// Latency of random 4 KiB reads, one at a time, beside writes that saturate the device.
///
/// A disk with a write cache, or flash with a buffer, still has work to do for writes that it has
/// answered, and delays reads by it. Latencies of reads alone do not show that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BesideWrites {
    /// Access pattern of the writes.
    pub access: Access,
    /// Bytes of each write.
    pub size: u32,
    /// Writes in flight at any time.
    pub depth: u32,
    /// Median latency of the reads.
    pub p50: Nanos,
    /// 99th percentile of the reads' latency.
    pub p99: Nanos,
}

impl BesideWrites {
    /// Bytes of each read.
    pub const READ_SIZE: u32 = 4096;
    /// Bytes of each write that delays a read in [`Profile::blocking_time`]: the usual length of
    /// the parts into which I/Os are split.
    const BLOCKING_WRITE_SIZE: u32 = 64 << 10;
    /// Number of these writes: the depth with which an adapted queue begins.
    const BLOCKING_WRITE_DEPTH: u32 = 4;
}

/// Method of estimating saturation for a mix of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Estimation {
    /// By kind and size: equation 3.
    TwoD,
    /// Random reads and writes by their measured mix, where mixes were measured.
    #[default]
    ThreeD,
}

/// Properties of a stream of requests: vFair's alpha, beta, gamma and mean size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pattern {
    /// Part of reads among all requests, 0 to 1 (alpha).
    pub reads: f64,
    /// Part of sequential requests among the reads, 0 to 1 (beta).
    pub sequential_reads: f64,
    /// Part of sequential requests among the writes, 0 to 1 (gamma).
    pub sequential_writes: f64,
    /// Mean size in bytes.
    pub size: f64,
}

impl Pattern {
    /// Random reads of 4 KiB: pattern assumed for a VM that has not been observed.
    pub const UNKNOWN: Pattern = Pattern {
        reads: 1.0,
        sequential_reads: 0.0,
        sequential_writes: 0.0,
        size: 4096.0,
    };
}

/// Saturation profile of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Curves of sequential and of random reads.
    reads: [Curve; 2],
    /// Curves of sequential and of random writes; `None`: not measured, because the device held
    /// data.
    writes: Option<[Curve; 2]>,
    /// Random mixes: thousandths of reads, 1 to 999, increasing, with their curves.
    mixes: Vec<(u32, Curve)>,
    latency: Vec<DepthPoint>,
    /// Latencies of reads beside saturating writes; empty if not measured.
    beside_writes: Vec<BesideWrites>,
    /// Requests in flight at saturation; 0: not known.
    depth: u32,
    /// Descriptions of points that are too imprecise to be relied on.
    imprecise: Vec<String>,
}

impl Profile {
    /// Device time assumed for a request without a profile, in picoseconds.
    pub const UNKNOWN_PS: u64 = 1 << 20;

    /// Creates a profile from the curves of sequential and random reads, of writes if measured, of
    /// random mixes by their thousandths of reads, and from latencies by queue depth. Mixes outside
    /// 1 to 999 are dropped, because they are pure reads or writes.
    pub fn new(
        reads: [Curve; 2],
        writes: Option<[Curve; 2]>,
        mut mixes: Vec<(u32, Curve)>,
        latency: Vec<DepthPoint>,
    ) -> Profile {
        mixes.retain(|mix| (1..1000).contains(&mix.0));
        // Sorted and without repetition, as `mixed_ps` bisects them.
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

    /// Sets the number of requests that were in flight at saturation.
    pub fn with_depth(self, depth: u32) -> Profile {
        Profile { depth, ..self }
    }

    /// Sets the latencies of reads beside saturating writes.
    pub fn with_beside_writes(self, beside_writes: Vec<BesideWrites>) -> Profile {
        Profile {
            beside_writes,
            ..self
        }
    }

    /// Marks points as too imprecise to be relied on, by their names with their intervals, such as
    /// `4 KiB random reads (±330 %)`. Times and rates of the profile stay as they are.
    pub fn with_imprecise(self, imprecise: Vec<String>) -> Profile {
        Profile { imprecise, ..self }
    }

    /// Message naming the points that are too imprecise for judging promises; `None`: none is.
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
        // A profile may have dozens of imprecise points; the message stays one line.
        let left = others.len() - shown.len();
        if left > 0 {
            text += &format!(" and {left} more");
        }
        Some(format!(
            "{points} of the profile may be off by more than {TRUSTED_WITHIN_PERCENT} %: {text}"
        ))
    }

    /// Requests that were in flight at saturation; 0: not known.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Curve of a kind; writes that were not measured have the curve of reads.
    pub fn curve(&self, direction: Direction, access: Access) -> &Curve {
        match (direction, &self.writes) {
            // Curves lie in the order of `Access`.
            (Direction::Write, Some(writes)) => &writes[access as usize],
            _ => &self.reads[access as usize],
        }
    }

    /// Returns true if writes were measured.
    pub fn has_writes(&self) -> bool {
        self.writes.is_some()
    }

    /// Measured random mixes by increasing thousandths of reads.
    pub fn mixes(&self) -> &[(u32, Curve)] {
        &self.mixes
    }

    /// Latencies by queue depth.
    pub fn latency(&self) -> &[DepthPoint] {
        &self.latency
    }

    /// Latencies of reads beside saturating writes; empty if not measured.
    pub fn beside_writes(&self) -> &[BesideWrites] {
        &self.beside_writes
    }

    /// Blocking time of the device: 99th percentile of a random 4 KiB read's latency beside four
    /// random writes of 64 KiB. By so much a request within a reservation or target may be late
    /// (see `docs/promises.md`). `None`: not measured.
    pub fn blocking_time(&self) -> Option<Nanos> {
        let blocks = |it: &&BesideWrites| {
            it.access == Access::Random
                && it.size == BesideWrites::BLOCKING_WRITE_SIZE
                && it.depth == BesideWrites::BLOCKING_WRITE_DEPTH
        };
        self.beside_writes.iter().find(blocks).map(|it| it.p99)
    }

    /// Device time of a request in picoseconds, regardless of other requests.
    pub fn time_ps(&self, direction: Direction, access: Access, bytes: u32) -> u64 {
        self.curve(direction, access).time_ps(bytes)
    }

    /// Mean device time of a request of a pattern, in picoseconds: 1 / P of equation 3.
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
            // Only random requests mix; sequential ones cost the same beside others.
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

    /// Requests of a pattern per second that saturate the device: P of equation 3.
    pub fn saturation_iops(&self, pattern: &Pattern, estimation: Estimation) -> f64 {
        SECOND_PS as f64 / self.mean_time_ps(pattern, estimation)
    }

    /// Mean device time of a random request in picoseconds, where `reads` (0 to 1) of the requests
    /// read. Interpolates linearly between the neighbouring measured mixes.
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
            // Below the first mix: pure writes are the other end of the line.
            0 => (0.0, end(ends[0])),
            after => mix(after - 1),
        };
        let high = if after == self.mixes.len() {
            // Beyond the last mix: pure reads.
            (1000.0, end(ends[1]))
        } else {
            mix(after)
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

    /// Figures 4 and 7 of the paper: 8000 IOPS if sequential, 1200 if random.
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
        // The last segment falls: measured times stay as they are, and larger requests cost as much
        // as the last point.
        let falls = Curve::new(&[(4096, 1000.0), (8192, 2000.0)]).expect("a curve");
        assert_eq!(falls.time_ps(8192), 500_000_000);
        assert_eq!(falls.time_ps(65536), 500_000_000);
        let one = Curve::new(&[(4096, 1000.0)]).expect("a curve");
        assert_eq!(one.time_ps(8192), 2_000_000_000);
    }

    #[test]
    fn invalid_curves_are_refused() {
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
        // Half-way to the mix, half of the extra time is added.
        assert!((p(0.25, Estimation::ThreeD) - 1000.0 / 1.5).abs() < 1e-6);
        assert!((p(1.0, Estimation::ThreeD) - 1000.0).abs() < 1e-6);
    }
}
