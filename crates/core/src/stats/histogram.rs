//! Log-linear histograms of times.

use tidegate_base::time::Nanos;

/// Bits of the sub-buckets in an octave: a bucket is at most 1/16 wide, so quantiles err by at most
/// 6 %.
const SUB_BUCKET_BITS: u32 = 4;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;
/// The first octave begins at 2^10 ns (1 us), the last ends at 2^37 ns (137 s).
const FIRST_OCTAVE: u32 = 10;
const OCTAVES: u32 = 27;
/// Buckets of a histogram.
pub(super) const BUCKETS: usize = OCTAVES as usize * SUB_BUCKETS;

/// Log-linear histogram of times, of fixed size: recording never allocates.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    pub(super) buckets: Box<[u32; BUCKETS]>,
    pub(super) count: u64,
    sum: Nanos,
    max: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: Box::new([0; BUCKETS]),
            count: 0,
            sum: Nanos::ZERO,
            max: Nanos::ZERO,
        }
    }
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("max", &self.max)
            .finish()
    }
}

impl Histogram {
    /// Counts one time.
    pub fn record(&mut self, t: Nanos) {
        let bucket = &mut self.buckets[bucket_of(t)];
        *bucket = bucket.saturating_add(1);
        self.add_totals(1, t, t);
    }

    /// Adds to the totals the `count` times that were entered in [`Histogram::buckets`] directly.
    #[inline]
    pub(super) fn add_totals(&mut self, count: u64, sum: Nanos, max: Nanos) {
        self.max = self.max.max(max);
        self.count += count;
        self.sum += sum;
    }

    /// Counts the times of another histogram as well.
    pub fn add(&mut self, other: &Histogram) {
        for (bucket, n) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *bucket = bucket.saturating_add(*n);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Removes all times and keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.max) = (0, Nanos::ZERO, Nanos::ZERO);
    }

    /// Returns the number of times that were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all times.
    pub fn sum(&self) -> Nanos {
        self.sum
    }

    /// Largest time, exact.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// Mean time, exact; zero when nothing was counted.
    pub fn mean(&self) -> Nanos {
        Nanos(self.sum.0.checked_div(self.count).unwrap_or(0))
    }

    /// Returns an upper bound of the `q`-quantile, at most 6 % above it, for `q` of 0 to 1. Zero
    /// when nothing was counted.
    pub fn quantile(&self, q: f64) -> Nanos {
        let total: u64 = self.buckets.iter().map(|&n| n as u64).sum();
        // At least the first: the 0-quantile is the smallest time.
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (upper, n) in self.iter() {
            seen += n;
            if seen >= rank {
                // The last bucket's bound may lie far above what was seen.
                return upper.min(self.max);
            }
        }
        self.max
    }

    /// Returns the counts of all buckets, which saturate at `u32::MAX`. The first 16 divide the
    /// octave from 1024 ns on, and so on; the first also counts all shorter times, the last all
    /// longer ones.
    pub fn buckets(&self) -> &[u32] {
        &*self.buckets
    }

    /// Returns the buckets that are not empty, in order: exclusive upper bound and count.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let used = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        used.map(|(i, &n)| (upper_bound(i), n as u64))
    }
}

/// Bucket in which a time is counted.
#[inline]
pub(super) fn bucket_of(t: Nanos) -> usize {
    // Shorter times count in the first bucket.
    let t = t.0.max(1 << FIRST_OCTAVE);
    let below = t.ilog2() - SUB_BUCKET_BITS;
    // The leading bits of `t` are `SUB_BUCKETS` and more: they count as an octave, hence one less.
    let octaves = below as usize - (FIRST_OCTAVE - SUB_BUCKET_BITS) as usize;
    ((octaves << SUB_BUCKET_BITS) + (t >> below) as usize - SUB_BUCKETS).min(BUCKETS - 1)
}

/// Returns the exclusive upper bound of a bucket.
fn upper_bound(bucket: usize) -> Nanos {
    let octave = (bucket >> SUB_BUCKET_BITS) as u32 + FIRST_OCTAVE;
    let sub = (bucket & (SUB_BUCKETS - 1)) as u64 + 1;
    Nanos((1 << octave) + (sub << (octave - SUB_BUCKET_BITS)))
}
