//! What is counted for every VM: for controllers, for the API and for people.

use crate::request::{Account, Lane, Op, VmId};
use crate::time::Nanos;

/// Sub-buckets an octave: a bucket is at most 1/16 wide, so quantiles err by at most 6 %.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// The first octave begins at 2^10 ns (1 us), the last ends at 2^37 ns (137 s).
const FIRST_OCTAVE: u32 = 10;
const OCTAVES: u32 = 27;
const BUCKETS: usize = OCTAVES as usize * SUB;

/// A histogram of times, log-linear, of fixed size: recording never allocates.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u32; BUCKETS]>,
    count: u64,
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
        self.count += 1;
        self.sum += t;
        self.max = self.max.max(t);
    }

    /// How many times were counted.
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

    /// An upper bound of the `q`-quantile, at most 6 % above it; `q` in 0 to 1. Zero when
    /// nothing was counted.
    pub fn quantile(&self, q: f64) -> Nanos {
        let total: u64 = self.buckets.iter().map(|&n| n as u64).sum();
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (upper, n) in self.iter() {
            seen += n;
            if seen >= rank {
                return upper.min(self.max);
            }
        }
        self.max
    }

    /// Buckets that hold something, in order: exclusive upper bound and count.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let used = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        used.map(|(i, &n)| (upper_bound(i), n as u64))
    }
}

fn bucket_of(t: Nanos) -> usize {
    let t = t.0.max(1 << FIRST_OCTAVE);
    let octave = t.ilog2();
    let sub = (t >> (octave - SUB_BITS)) as usize & (SUB - 1);
    (((octave - FIRST_OCTAVE) as usize) << SUB_BITS | sub).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Nanos {
    let octave = (bucket >> SUB_BITS) as u32 + FIRST_OCTAVE;
    let sub = (bucket & (SUB - 1)) as u64 + 1;
    Nanos((1 << octave) + (sub << (octave - SUB_BITS)))
}

/// Counters of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpCount {
    /// Guest requests that came.
    pub arrived: u64,
    /// Guest requests that ended well.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Guest requests that failed.
    pub errors: u64,
}

/// How many VMs a VM remembers it waited behind.
pub const BEHIND: usize = 4;
/// How far back a request may continue an earlier one: vFair's reading of "sequential".
pub const SEQUENTIAL_WINDOW: usize = 32;

/// Everything counted for one VM since it was added.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VmStats {
    ops: [OpCount; Op::ALL.len()],
    /// Requests by the power of two their size reaches: index `i` counts sizes of
    /// 2^(i+8)+1 to 2^(i+9) bytes, the first everything up to 512 B, the last all above 16 MiB.
    pub sizes: [u64; 17],
    /// Reads that started where one of the VM's last 32 requests ended.
    pub sequential_reads: u64,
    /// Writes likewise.
    pub sequential_writes: u64,
    /// Guest requests that joined a waiting one.
    pub merged: u64,
    /// Device I/Os beyond the first that guest requests were split into.
    pub split: u64,
    /// Guest requests cancelled: their client vanished.
    pub cancelled: u64,
    /// Time from arrival to first service, by lane.
    queue_time: [Histogram; 2],
    /// Time with the device, by lane.
    service_time: [Histogram; 2],
    /// Time from arrival to end, both lanes.
    pub latency: Histogram,
    /// Where all its requests' time went.
    pub account: Account,
    /// Exponential mean (1/8) of the time between the VM's last answer and its next request,
    /// where nothing of it was outstanding in between.
    pub think_time: Nanos,
    behind: [(Option<VmId>, Nanos); BEHIND],
    recent_ends: RecentEnds,
}

impl VmStats {
    /// Memory of its histograms.
    pub(crate) const HEAP_BYTES: usize = 5 * size_of::<[u32; BUCKETS]>();

    /// Counters of one operation.
    pub fn op(&self, op: Op) -> &OpCount {
        &self.ops[op as usize]
    }

    /// Guest requests that ended well, of all operations.
    pub fn total_ops(&self) -> u64 {
        self.ops.iter().map(|o| o.ops).sum()
    }

    /// Bytes read and written.
    pub fn total_bytes(&self) -> u64 {
        self.op(Op::Read).bytes + self.op(Op::Write).bytes
    }

    /// Reads among reads and writes, 0 to 1; `None` before the first.
    pub fn read_share(&self) -> Option<f64> {
        let (reads, writes) = (self.op(Op::Read).ops, self.op(Op::Write).ops);
        (reads + writes > 0).then(|| reads as f64 / (reads + writes) as f64)
    }

    /// Time from arrival to first service.
    pub fn queue_time(&self, lane: Lane) -> &Histogram {
        &self.queue_time[lane.index()]
    }

    /// Time with the device.
    pub fn service_time(&self, lane: Lane) -> &Histogram {
        &self.service_time[lane.index()]
    }

    /// VMs it waited behind, the longest first: an estimate that charges each wait to the VM
    /// served just before it ended, and keeps the heaviest few (Space-Saving, Metwally 2005).
    pub fn waited_behind(&self) -> impl Iterator<Item = (VmId, Nanos)> {
        let mut all = self.behind;
        all.sort_by_key(|&(vm, waited)| (core::cmp::Reverse(waited), vm));
        all.into_iter()
            .filter_map(|(vm, waited)| Some((vm?, waited)))
    }

    pub(crate) fn arrived(&mut self, op: Op, addr: u64, len: u32) {
        self.ops[op as usize].arrived += 1;
        let class = (len.max(1) - 1) >> 9;
        self.sizes[(32 - class.leading_zeros() as usize).min(self.sizes.len() - 1)] += 1;
        if op.merges() {
            let sequential = self.recent_ends.check_and_push(addr, addr + len as u64);
            match op {
                Op::Read => self.sequential_reads += sequential as u64,
                _ => self.sequential_writes += sequential as u64,
            }
        }
    }

    pub(crate) fn thought(&mut self, t: Nanos) {
        let mean = self.think_time.0;
        self.think_time = Nanos(if mean == 0 {
            t.0
        } else {
            mean - mean / 8 + t.0 / 8
        });
    }

    pub(crate) fn ended(&mut self, op: Op, len: u32, well: bool, account: &Account) {
        let count = &mut self.ops[op as usize];
        if !well {
            count.errors += 1;
            return;
        }
        count.ops += 1;
        count.bytes += len as u64;
        let lane = op.lane().index();
        self.queue_time[lane].record(account.waited());
        self.service_time[lane].record(account.device);
        self.latency.record(account.total());
        self.account.regulated += account.regulated;
        self.account.queued += account.queued;
        self.account.merged_wait += account.merged_wait;
        self.account.deliberate += account.deliberate;
        self.account.device += account.device;
    }

    pub(crate) fn waited(&mut self, behind: VmId, t: Nanos) {
        let known = self.behind.iter_mut().find(|(vm, _)| *vm == Some(behind));
        if let Some((_, waited)) = known {
            *waited += t;
            return;
        }
        let least = self
            .behind
            .iter_mut()
            .min_by_key(|(_, w)| *w)
            .expect("the table is not empty");
        least.0 = Some(behind);
        least.1 += t;
    }
}

/// Where a VM's last requests ended, in sectors modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RecentEnds {
    ends: [u32; SEQUENTIAL_WINDOW],
    next: u8,
}

impl Default for RecentEnds {
    fn default() -> Self {
        // No request starts at the last sector of a 2 TiB period by accident of the default.
        RecentEnds {
            ends: [u32::MAX; SEQUENTIAL_WINDOW],
            next: 0,
        }
    }
}

impl RecentEnds {
    fn check_and_push(&mut self, start: u64, end: u64) -> bool {
        let sector = (start >> 9) as u32;
        // No early exit: the whole comparison becomes a few vector instructions.
        let found = self
            .ends
            .iter()
            .fold(false, |found, &e| found | (e == sector));
        self.ends[self.next as usize] = (end >> 9) as u32;
        self.next = (self.next + 1) % SEQUENTIAL_WINDOW as u8;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_fall_into_their_powers_of_two() {
        let mut stats = VmStats::default();
        for (len, class) in [(1, 0), (512, 0), (513, 1), (1024, 1), (4096, 3), (4097, 4)] {
            let before = stats.sizes[class];
            stats.arrived(Op::Discard, 0, len);
            assert_eq!(stats.sizes[class], before + 1, "{len}");
        }
        stats.arrived(Op::Discard, 0, u32::MAX);
        assert_eq!(stats.sizes[16], 1);
    }

    #[test]
    fn a_request_that_continues_an_interleaved_stream_is_sequential() {
        let mut stats = VmStats::default();
        for i in 0..10u64 {
            for stream in 0..8u64 {
                stats.arrived(Op::Read, (stream << 30) + i * 4096, 4096);
            }
        }
        assert_eq!(stats.sequential_reads, 9 * 8);
    }

    #[test]
    fn the_heaviest_neighbour_is_kept() {
        let mut stats = VmStats::default();
        for i in 0..100u64 {
            stats.waited(VmId::from_bits(7), Nanos(10));
            stats.waited(VmId::from_bits(100 + i % 9), Nanos(1));
        }
        let (vm, waited) = stats.waited_behind().next().expect("there were waits");
        assert_eq!(vm, VmId::from_bits(7));
        assert!(waited >= Nanos(1000));
    }

    proptest! {
        #[test]
        fn quantiles_bound_the_true_ones(times in prop::collection::vec(1000u64..100_000_000_000, 1..200), q in 0.0f64..=1.0) {
            let mut histogram = Histogram::default();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            times.iter().for_each(|&t| histogram.record(Nanos(t)));
            let rank = ((q * times.len() as f64).ceil() as usize).max(1);
            let exact = sorted[rank - 1].max(1024);
            let got = histogram.quantile(q).0;
            prop_assert!(got + 1 >= exact.min(histogram.max().0), "{got} < {exact}");
            prop_assert!(got as f64 <= exact as f64 * 1.0626 + 1.0, "{got} > {exact}");
        }
    }
}
