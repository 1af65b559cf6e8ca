//! Statistics of every VM: for controllers, the API and reports.
//!
//! Counting one request touches a dozen cache lines of its VM's statistics, more than scheduling it
//! does. So the request path only writes an entry to the VM's ledger, and entries are counted
//! several at a time: when the ledger is full, or before somebody reads. Readers always see
//! complete statistics.

mod device_totals;
mod histogram;

use device_totals::{DeviceTotals, RunningTotals};
pub use histogram::Histogram;

use core::cell::{Ref, RefCell};
use histogram::{BUCKETS, bucket_of};
use tidegate_base::bandwidth_samples::BandwidthSamples;
use tidegate_base::request::{Account, Lane, Op};
use tidegate_base::time::Nanos;

/// Counters of one operation of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpCount {
    /// Guest requests that arrived.
    pub arrived: u64,
    /// Guest requests that succeeded.
    pub ops: u64,
    /// Bytes of guest requests that succeeded.
    pub bytes: u64,
    /// Guest requests that failed.
    pub errors: u64,
}

/// Number of earlier requests, one of which a sequential request continues: vFair's definition.
pub const SEQUENTIAL_WINDOW: usize = 32;

/// Statistics of one VM since it was added.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VmStats {
    ops: [OpCount; Op::ALL.len()],
    /// Requests by the power of two that their size does not exceed. Index `i` counts sizes of
    /// 2^(i+8)+1 to 2^(i+9) bytes; index 0 also everything up to 512 B, and flushes, which have no
    /// size; index 16 everything above 16 MiB.
    pub sizes: [u64; 17],
    /// Reads that started where one of the VM's last [`SEQUENTIAL_WINDOW`] reads and writes ended.
    pub sequential_reads: u64,
    /// Writes that started where one of the VM's last [`SEQUENTIAL_WINDOW`] reads and writes ended.
    pub sequential_writes: u64,
    /// Guest requests that merged into a waiting one, or whose beginning went to the device with
    /// another's end.
    pub merged: u64,
    /// Device I/Os beyond the first that guest requests were split into.
    pub split: u64,
    /// Guest requests cancelled because their connection closed.
    pub cancelled: u64,
    /// Time from arrival to first service, by lane.
    queue_time: [Histogram; 2],
    /// Time at the device, by lane.
    service_time: [Histogram; 2],
    /// Time from arrival to reply, over both lanes.
    pub latency: Histogram,
    /// Sum of the accounts of all requests: the time in each stage.
    pub account: Account,
    /// Exponential mean (weight 1/8) of the time between the VM's last reply and its next request,
    /// where nothing of the VM was outstanding in between.
    pub think_time: Nanos,
    recent_ends: RecentEnds,
}

/// Entries that the ledger holds until they are counted. The ends of all arrivals in it must fit
/// the window by which sequential requests are recognised.
const ARRIVALS: usize = SEQUENTIAL_WINDOW;
const ANSWERS: usize = 8;

/// Entry of a request that arrived. Positions in sectors modulo 2^32, as [`RecentEnds`] compares
/// them.
#[derive(Clone, Copy)]
struct Arrival {
    start: u32,
    end: u32,
    len: u32,
    op: Op,
}

/// Entry of a request that was answered, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Answer {
    pub account: Account,
    pub len: u32,
    pub op: Op,
    pub well: bool,
}

impl Answer {
    /// Returns the operation and the success, which agree among entries that are counted together.
    #[inline]
    fn kind(&self) -> u16 {
        u16::from_le_bytes([self.op as u8, u8::from(self.well)])
    }

    /// Returns the time of waiting, at the device, and the sum. The parts of an account add up to a
    /// time that has passed, so none of the sums overflows.
    #[inline(always)]
    fn times(&self) -> [Nanos; 3] {
        let [waits @ .., device] = self.account.to_nanos_array();
        let waited = waits.iter().sum::<u64>();
        [waited, device, waited + device].map(Nanos)
    }
}

const _: () = assert!(size_of::<Arrival>() == 16 && size_of::<Answer>() == 64);

/// Statistics of a VM, with the entries not counted yet.
///
/// The caller, who has the VM's slot at hand anyway, keeps the numbers of entries. So an entry is
/// written without a read before it, and nothing waits for the cache line it goes to.
#[derive(Clone)]
pub(crate) struct Ledger {
    arrivals: [Arrival; ARRIVALS],
    answers: [Answer; ANSWERS],
    /// Behind a cell, since readers with `&self` count the open entries first.
    counted: RefCell<Counted>,
    totals: RunningTotals,
    seconds: BandwidthSamples,
}

/// Statistics with the numbers of arrivals and replies that they include.
#[derive(Clone, Default)]
struct Counted {
    stats: VmStats,
    arrivals: u32,
    answers: u32,
}

impl Default for Ledger {
    fn default() -> Self {
        let arrival = Arrival {
            start: 0,
            end: 0,
            len: 0,
            op: Op::Flush,
        };
        let answer = Answer {
            account: Account::default(),
            len: 0,
            op: Op::Flush,
            well: false,
        };
        Ledger {
            arrivals: [arrival; ARRIVALS],
            answers: [answer; ANSWERS],
            counted: RefCell::default(),
            totals: RunningTotals::default(),
            seconds: BandwidthSamples::default(),
        }
    }
}

impl Ledger {
    /// Allocates the histograms, unless they are.
    pub(crate) fn reserve(&mut self) {
        let stats = &mut self.counted.get_mut().stats;
        let times = stats.queue_time.iter_mut().chain(&mut stats.service_time);
        times.for_each(Histogram::reserve);
        stats.latency.reserve();
    }

    /// Records an arrival. `count`: arrivals before; it is advanced.
    #[inline]
    pub(crate) fn arrived(&mut self, count: &mut u32, op: Op, addr: u64, len: u32) {
        self.arrivals[*count as usize % ARRIVALS] = Arrival {
            // Sectors modulo 2^32: half the bytes, and two places 2 TiB apart are taken for one.
            start: (addr >> 9) as u32,
            end: (addr.wrapping_add(len as u64) >> 9) as u32,
            len,
            op,
        };
        *count = count.wrapping_add(1);
        // The ring is full: counted before the next entry overwrites the first.
        if (*count as usize).is_multiple_of(ARRIVALS) {
            self.counted.get_mut().arrivals(&self.arrivals, *count);
        }
    }

    /// Records a reply. `count`: replies before; it is advanced.
    pub(crate) fn answered(&mut self, count: &mut u32, answer: Answer) {
        self.answers[*count as usize % ANSWERS] = answer;
        *count = count.wrapping_add(1);
        // As for arrivals.
        if (*count as usize).is_multiple_of(ANSWERS) {
            self.counted.get_mut().answers(&self.answers, *count);
            self.totals.ring_filled(*count);
        }
    }

    /// Counts a request that was merged with another one.
    pub(crate) fn merged(&mut self) {
        self.at_once().merged += 1;
        self.totals.merged();
    }

    /// Returns the statistics for counts that are rare enough to bypass the ledger; merged requests
    /// are counted by [`Ledger::merged`].
    pub(crate) fn at_once(&mut self) -> &mut VmStats {
        &mut self.counted.get_mut().stats
    }

    /// Starts to count the bytes moved in each second, from the next second on.
    pub(crate) fn begin_seconds(&mut self, second: u32, arrivals: u32, answers: u32) {
        let total = self.read(arrivals, answers).total_bytes();
        self.seconds.restart(second, total);
    }

    /// Advances to a second; entries so far belong to the seconds before.
    pub(crate) fn pass_seconds(&mut self, second: u32, asked: bool, arrivals: u32, answers: u32) {
        let total = self.read(arrivals, answers).total_bytes();
        self.seconds.advance_to(second, total, asked);
    }

    /// Returns the bytes moved in the last seconds, up to this one.
    pub(crate) fn seconds(
        &self,
        second: u32,
        asked: bool,
        arrivals: u32,
        answers: u32,
    ) -> BandwidthSamples {
        let mut seconds = self.seconds.clone();
        let total = self.read(arrivals, answers).total_bytes();
        seconds.advance_to(second, total, asked);
        seconds
    }

    /// Returns the requests that succeeded, the time that they spent with the device, and the
    /// requests that were merged. `answers`: number of entries so far.
    pub(crate) fn device_totals(&mut self, answers: u32) -> DeviceTotals {
        if !self.totals.reaches(answers) {
            let counted = self.counted.get_mut();
            self.totals.restart(&counted.stats, counted.answers);
        }
        self.totals.include(&self.answers, answers)
    }

    /// Returns the statistics, complete. `arrivals` and `answers`: numbers of entries so far.
    pub(crate) fn read(&self, arrivals: u32, answers: u32) -> Ref<'_, VmStats> {
        let counted = self.counted.borrow();
        if (counted.arrivals, counted.answers) == (arrivals, answers) {
            return Ref::map(counted, |c| &c.stats);
        }
        drop(counted);
        // No other borrow is alive: the first reader has counted everything, and nothing was
        // written since.
        let mut counted = self.counted.borrow_mut();
        counted.arrivals(&self.arrivals, arrivals);
        counted.answers(&self.answers, answers);
        drop(counted);
        Ref::map(self.counted.borrow(), |c| &c.stats)
    }
}

impl Counted {
    /// Counts the arrivals up to number `to`.
    fn arrivals(&mut self, ledger: &[Arrival; ARRIVALS], to: u32) {
        for entries in open(ledger, self.arrivals, to) {
            self.stats.arrived(entries);
        }
        self.arrivals = to;
    }

    /// Counts the replies up to number `to`.
    fn answers(&mut self, ledger: &[Answer; ANSWERS], to: u32) {
        for entries in open(ledger, self.answers, to) {
            // Entries of one operation are counted together, so that its sums stay in registers.
            let mut left = entries;
            while let Some(first) = left.first() {
                let alike = left.iter().position(|answer| answer.kind() != first.kind());
                let (entries, behind) = left.split_at(alike.unwrap_or(left.len()));
                self.stats.answered(entries);
                left = behind;
            }
        }
        self.answers = to;
    }
}

/// Returns entries `from` to `to` of a circular ledger, in order.
#[inline(always)]
fn open<T, const N: usize>(ledger: &[T; N], from: u32, to: u32) -> [&[T]; 2] {
    // At most N: entries are counted whenever the ring is full.
    let count = to.wrapping_sub(from) as usize;
    let (after, before) = ledger.split_at(from as usize % N);
    let first = count.min(before.len());
    [&before[..first], &after[..count - first]]
}

impl VmStats {
    /// Heap memory of one VM's histograms and last seconds, in bytes; the rest lies in its ledger.
    pub(crate) const HEAP_BYTES: usize =
        5 * size_of::<[u32; BUCKETS]>() + BandwidthSamples::HEAP_BYTES;

    /// Returns the counters of one operation.
    pub fn op(&self, op: Op) -> &OpCount {
        &self.ops[op as usize]
    }

    /// Returns the number of guest requests that succeeded, over all operations.
    pub fn total_ops(&self) -> u64 {
        self.ops.iter().map(|o| o.ops).sum()
    }

    /// Returns the bytes read and written.
    pub fn total_bytes(&self) -> u64 {
        self.op(Op::Read).bytes + self.op(Op::Write).bytes
    }

    /// Returns the fraction of reads among reads and writes, 0 to 1; `None` before the first.
    pub fn read_share(&self) -> Option<f64> {
        let (reads, writes) = (self.op(Op::Read).ops, self.op(Op::Write).ops);
        (reads + writes > 0).then(|| reads as f64 / (reads + writes) as f64)
    }

    /// Returns the time from arrival to first service.
    pub fn queue_time(&self, lane: Lane) -> &Histogram {
        &self.queue_time[lane.index()]
    }

    /// Returns the time at the device.
    pub fn service_time(&self, lane: Lane) -> &Histogram {
        &self.service_time[lane.index()]
    }

    /// Counts arrivals, at most [`ARRIVALS`] of them.
    fn arrived(&mut self, entries: &[Arrival]) {
        if entries.is_empty() {
            return;
        }
        // Reads and writes alone, packed, since the window of ends spans all of them. `reads` is 1
        // for a read.
        let (mut starts, mut reads, mut count) = ([0; ARRIVALS], [0u32; ARRIVALS], 0);
        let mut ends = self.recent_ends.with_space();
        for entry in entries {
            self.ops[entry.op as usize].arrived += 1;
            // Class n: up to 512 x 2^n bytes.
            let class = (entry.len.max(1) - 1) >> 9;
            self.sizes[(32 - class.leading_zeros() as usize).min(self.sizes.len() - 1)] += 1;
            if entry.op.merges() && count < ARRIVALS {
                starts[count] = entry.start;
                reads[count] = u32::from(entry.op == Op::Read);
                ends[SEQUENTIAL_WINDOW + count] = entry.end;
                count += 1;
            }
        }
        let (mut continuing, mut continuing_reads) = (0u32, 0u32);
        let windows = ends.windows(SEQUENTIAL_WINDOW);
        for ((&start, &is_read), before) in starts[..count].iter().zip(&reads).zip(windows) {
            // No early exit: the whole comparison becomes a few vector instructions.
            let continues = before.iter().fold(false, |found, &e| found | (e == start));
            continuing += u32::from(continues);
            continuing_reads += u32::from(continues) & is_read;
        }
        self.sequential_reads += u64::from(continuing_reads);
        self.sequential_writes += u64::from(continuing - continuing_reads);
        self.recent_ends.keep_last(&ends, count);
    }

    /// Adds a think time to its mean.
    pub(crate) fn thought(&mut self, t: Nanos) {
        // Zero until the first think time, which then counts in full.
        let mean = self.think_time.0;
        self.think_time = Nanos(if mean == 0 {
            t.0
        } else {
            mean - mean / 8 + t.0 / 8
        });
    }

    /// Counts replies of one operation, all of them successful or none.
    fn answered(&mut self, entries: &[Answer]) {
        let Some(&Answer { op, well, .. }) = entries.first() else {
            return;
        };
        let requests = entries.len() as u64;
        let count = &mut self.ops[op as usize];
        if !well {
            count.errors += requests;
            return;
        }
        count.ops += requests;
        let lane = op.lane().index();
        let totals = Totals::from_answers(
            entries,
            [
                &mut self.queue_time[lane],
                &mut self.service_time[lane],
                &mut self.latency,
            ],
        );
        count.bytes += totals.bytes;
        self.account.add(totals.parts);
        let [waits @ .., device] = totals.parts.map(Nanos);
        let waited = waits.into_iter().fold(Nanos::ZERO, |sum, part| sum + part);
        let [wait, service, latency] = totals.longest;
        self.queue_time[lane].add_totals(requests, waited, wait);
        self.service_time[lane].add_totals(requests, device, service);
        self.latency.add_totals(requests, waited + device, latency);
    }
}

/// Sums over several replies.
struct Totals {
    bytes: u64,
    /// Sums of each part of their accounts, in nanoseconds.
    parts: [u64; 6],
    /// Longest time of waiting, at the device, and of both together.
    longest: [Nanos; 3],
}

impl Totals {
    /// Adds up replies, and counts their times in the histograms of waiting, of the device's time
    /// and of both. Overflow is excluded once for all entries instead of checked at each. Two
    /// passes, each with few enough sums to stay in registers.
    #[inline(always)]
    fn from_answers(entries: &[Answer], histograms: [&mut Histogram; 3]) -> Totals {
        let [waits, services, latencies] = histograms;
        // No bucket counts more than its histogram, and each time is counted in all three.
        if latencies.count > u64::from(u32::MAX) - ANSWERS as u64 {
            return Totals::with_full_buckets(entries, [waits, services, latencies]);
        }
        let (waits, services) = (waits.buckets_mut(), services.buckets_mut());
        let latencies = latencies.buckets_mut();
        let mut longest = [Nanos::ZERO; 3];
        for answer in entries {
            let times = answer.times();
            waits[bucket_of(times[0])] += 1;
            services[bucket_of(times[1])] += 1;
            latencies[bucket_of(times[2])] += 1;
            for (longest, time) in longest.iter_mut().zip(times) {
                *longest = (*longest).max(time);
            }
        }
        // No part is longer than the whole, so sums over `ANSWERS` entries cannot overflow below.
        if longest[2].0 > u64::MAX / ANSWERS as u64 {
            return Totals::with_long_times(entries, longest);
        }
        let (mut bytes, mut parts) = (0, [0u64; 6]);
        for answer in entries {
            bytes += u64::from(answer.len);
            for (sum, part) in parts.iter_mut().zip(answer.account.to_nanos_array()) {
                *sum = sum.wrapping_add(part);
            }
        }
        Totals {
            bytes,
            parts,
            longest,
        }
    }

    /// Adds up replies as [`Totals::from_answers`] does, where buckets may be full.
    #[cold]
    #[inline(never)]
    fn with_full_buckets(entries: &[Answer], mut histograms: [&mut Histogram; 3]) -> Totals {
        let mut longest = [Nanos::ZERO; 3];
        for times in entries.iter().map(Answer::times) {
            let each = histograms.iter_mut().zip(&mut longest).zip(times);
            for ((histogram, longest), time) in each {
                histogram.enter(bucket_of(time), 1);
                *longest = (*longest).max(time);
            }
        }
        Totals::with_long_times(entries, longest)
    }

    /// Adds up replies whose times may be centuries long, with saturation.
    #[cold]
    #[inline(never)]
    fn with_long_times(entries: &[Answer], longest: [Nanos; 3]) -> Totals {
        let mut parts = [0u64; 6];
        for answer in entries {
            for (sum, part) in parts.iter_mut().zip(answer.account.to_nanos_array()) {
                *sum = sum.saturating_add(part);
            }
        }
        Totals {
            bytes: entries.iter().map(|answer| u64::from(answer.len)).sum(),
            parts,
            longest,
        }
    }
}

/// Ends of a VM's last requests, the oldest first, in sectors modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RecentEnds([u32; SEQUENTIAL_WINDOW]);

impl Default for RecentEnds {
    fn default() -> Self {
        // No request starts at the last sector of a 2 TiB period by accident of the default.
        RecentEnds([u32::MAX; SEQUENTIAL_WINDOW])
    }
}

impl RecentEnds {
    /// Returns the ends, with room behind them for those of [`ARRIVALS`] more.
    #[inline(always)]
    fn with_space(&self) -> [u32; SEQUENTIAL_WINDOW + ARRIVALS] {
        let mut ends = [0; SEQUENTIAL_WINDOW + ARRIVALS];
        ends[..SEQUENTIAL_WINDOW].copy_from_slice(&self.0);
        ends
    }

    /// Keeps the last of `ends`, in which `count` were added to [`RecentEnds::with_space`].
    fn keep_last(&mut self, ends: &[u32; SEQUENTIAL_WINDOW + ARRIVALS], count: usize) {
        self.0
            .copy_from_slice(&ends[count..count + SEQUENTIAL_WINDOW]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn histograms_add_up_and_are_empty_once_cleared() {
        let of = |times: &[u64]| {
            let mut histogram = Histogram::default();
            times.iter().for_each(|&t| histogram.record(Nanos(t)));
            histogram
        };
        let mut sum = of(&[1_000, 50_000_000]);
        sum.add(&of(&[70_000, 3_000]));
        assert_eq!(sum, of(&[3_000, 1_000, 70_000, 50_000_000]));
        sum.clear();
        assert_eq!(sum, Histogram::default());
    }

    #[test]
    fn sizes_fall_into_their_powers_of_two() {
        let (mut ledger, mut count) = (Ledger::default(), 0);
        for (len, class) in [(1, 0), (512, 0), (513, 1), (1024, 1), (4096, 3), (4097, 4)] {
            let before = ledger.read(count, 0).sizes[class];
            ledger.arrived(&mut count, Op::Discard, 0, len);
            assert_eq!(ledger.read(count, 0).sizes[class], before + 1, "{len}");
        }
        ledger.arrived(&mut count, Op::Discard, 0, u32::MAX);
        assert_eq!(ledger.read(count, 0).sizes[16], 1);
    }

    #[test]
    fn a_request_that_continues_an_interleaved_stream_is_sequential() {
        let (mut ledger, mut count) = (Ledger::default(), 0);
        for i in 0..10u64 {
            for stream in 0..8u64 {
                ledger.arrived(&mut count, Op::Read, (stream << 30) + i * 4096, 4096);
            }
        }
        assert_eq!(ledger.read(count, 0).sequential_reads, 9 * 8);
    }

    /// A request to be written down: sectors from a few, so that some continue others.
    fn entry() -> impl Strategy<Value = (Op, u64, u32, u64)> {
        let op = prop::sample::select(Op::ALL.to_vec());
        (op, 0u64..64, 1u32..8, 1000u64..1 << 40)
            .prop_map(|(op, at, len, t)| (op, at * 512, len * 512, t))
    }

    proptest! {
        #[test]
        fn statistics_do_not_depend_on_the_time_of_reading(
            entries in prop::collection::vec((entry(), any::<bool>()), 1..200),
            start in prop::sample::select(vec![0, u32::MAX - 50]),
        ) {
            // One ledger is read at every `true`, the other only at the end.
            let mut both = [Ledger::default(), Ledger::default()];
            let mut counts = (start, start);
            for ledger in &mut both {
                let counted = ledger.counted.get_mut();
                (counted.arrivals, counted.answers) = counts;
                ledger.totals = RunningTotals::starting_at(start);
            }
            // The oracle keeps every end there ever was.
            let (mut ends, mut sequential, mut total) = (Vec::new(), 0u64, 0u64);
            let (mut requests, mut device) = (0, Nanos::ZERO);
            for ((op, addr, len, t), read) in entries.iter().copied() {
                let before = counts;
                let account = Account {
                    queued: Nanos(t),
                    device: Nanos(t / 3),
                    ..Account::default()
                };
                for ledger in &mut both {
                    counts = before;
                    ledger.arrived(&mut counts.0, op, addr, len);
                    ledger.answered(&mut counts.1, Answer { account, len, op, well: true });
                }
                if op.merges() {
                    let last = ends.iter().rev().take(SEQUENTIAL_WINDOW);
                    sequential += last.clone().any(|&e| e == addr) as u64;
                    ends.push(addr + len as u64);
                }
                total += t + t / 3;
                (requests, device) = (requests + 1, device + Nanos(t / 3));
                if read {
                    prop_assert_eq!(both[0].read(counts.0, counts.1).latency.sum(), Nanos(total));
                    let totals = both[0].device_totals(counts.1);
                    prop_assert_eq!((totals.requests, totals.device), (requests, device));
                }
            }
            let totals = both[1].device_totals(counts.1);
            let [a, b] = both.each_ref().map(|l| l.read(counts.0, counts.1).clone());
            prop_assert_eq!(&a, &b);
            prop_assert_eq!((totals.requests, totals.device), (a.total_ops(), a.account.device));
            prop_assert_eq!(a.sequential_reads + a.sequential_writes, sequential);
            prop_assert_eq!(a.total_ops(), entries.len() as u64);
            prop_assert_eq!(a.ops.iter().map(|o| o.arrived).sum::<u64>(), entries.len() as u64);
        }

        #[test]
        fn quantiles_bound_the_true_ones(
            times in prop::collection::vec(1000u64..100_000_000_000, 1..200),
            q in 0.0f64..=1.0,
        ) {
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
