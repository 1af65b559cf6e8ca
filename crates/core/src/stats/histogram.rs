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

/// Buckets of a histogram that has counted nothing.
static NO_TIMES: [u32; BUCKETS] = [0; BUCKETS];

/// Log-linear histogram of times, of fixed size. Only the first record allocates, because most VMs
/// of a large host are idle.
#[derive(Clone, Default)]
pub struct Histogram {
    /// Counts modulo 2^32; `None` until anything was counted.
    buckets: Option<Box<[u32; BUCKETS]>>,
    /// Multiples of 2^32 in the counts; `None` until one reaches that.
    carries: Option<Box<[u32; BUCKETS]>>,
    pub(super) count: u64,
    sum: Nanos,
    max: Nanos,
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.sum, self.max) == (other.count, other.sum, other.max)
            && self.buckets() == other.buckets()
            && self.carries == other.carries
    }
}

impl Eq for Histogram {}

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
    /// Allocates the buckets, unless they are, for a caller whose records must not allocate.
    pub fn reserve(&mut self) {
        self.buckets_mut();
    }

    /// Counts one time.
    pub fn record(&mut self, t: Nanos) {
        self.enter(bucket_of(t), 1);
        self.add_totals(1, t, t);
    }

    /// Adds `n` to a bucket, which may exceed 2^32.
    pub(super) fn enter(&mut self, bucket: usize, n: u64) {
        let word = &mut self.buckets_mut()[bucket];
        let sum = u64::from(*word) + n;
        *word = sum as u32;
        let carry = (sum >> 32) as u32;
        if carry > 0 {
            let carries = self.carries.get_or_insert_with(|| Box::new([0; BUCKETS]));
            carries[bucket] = carries[bucket].saturating_add(carry);
        }
    }

    /// Returns the counts of all buckets modulo 2^32, to be raised.
    #[inline]
    pub(super) fn buckets_mut(&mut self) -> &mut [u32; BUCKETS] {
        self.buckets.get_or_insert_with(empty_buckets)
    }

    /// Adds to the totals the `count` times that were entered in [`Histogram::buckets_mut`]
    /// directly.
    #[inline]
    pub(super) fn add_totals(&mut self, count: u64, sum: Nanos, max: Nanos) {
        self.max = self.max.max(max);
        self.count += count;
        self.sum += sum;
    }

    /// Counts the times of another histogram as well.
    pub fn add(&mut self, other: &Histogram) {
        for bucket in 0..BUCKETS {
            let n = other.in_bucket(bucket);
            if n > 0 {
                self.enter(bucket, n);
            }
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Removes all times and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(buckets) = &mut self.buckets {
            buckets.fill(0);
        }
        self.carries = None;
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
        let total: u64 = self.iter().map(|(_, n)| n).sum();
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

    /// Returns the counts of all buckets modulo 2^32. The first 16 divide the octave from 1024 ns
    /// on, and so on; the first also counts all shorter times, the last all longer ones.
    pub fn buckets(&self) -> &[u32] {
        self.buckets.as_deref().unwrap_or(&NO_TIMES)
    }

    fn in_bucket(&self, bucket: usize) -> u64 {
        let carry = self.carries.as_ref().map_or(0, |carries| carries[bucket]);
        u64::from(carry) << 32 | u64::from(self.buckets()[bucket])
    }

    /// Returns the buckets that are not empty, in order: exclusive upper bound and count.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let all = (0..BUCKETS).map(|bucket| (bucket, self.in_bucket(bucket)));
        let used = all.filter(|(_, n)| *n > 0);
        used.map(|(bucket, n)| (upper_bound(bucket), n))
    }
}

#[cold]
#[inline(never)]
fn empty_buckets() -> Box<[u32; BUCKETS]> {
    Box::new([0; BUCKETS])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_beyond_their_words() {
        let (short, long) = (Nanos::from_micros(50), Nanos::from_millis(9));
        let mut histogram = Histogram::default();
        histogram.enter(bucket_of(short), u64::from(u32::MAX));
        histogram.add_totals(u64::from(u32::MAX), Nanos::ZERO, short);
        (0..3).for_each(|_| histogram.record(short));
        histogram.record(long);
        let counts: Vec<u64> = histogram.iter().map(|(_, n)| n).collect();
        assert_eq!(counts, [(1 << 32) + 2, 1]);
        assert_eq!(histogram.buckets()[bucket_of(short)], 2);
        assert!(histogram.quantile(0.99) < Nanos::from_micros(54));
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!(
            twice.iter().map(|(_, n)| n).sum::<u64>(),
            2 * ((1 << 32) + 3)
        );
        twice.clear();
        assert_eq!(twice, Histogram::default());
        assert_eq!(Histogram::default().quantile(0.99), Nanos::ZERO);
        assert_eq!(Histogram::default().iter().count(), 0);
    }
}
