//! What is counted for every VM: for controllers, for the API and for people.
//!
//! Counting one request touches a dozen cache lines of its VM's statistics, more than scheduling
//! it does. So the request path only writes down what happened, a line of the VM's ledger
//! each time, and several entries are counted together: when the ledger is full, or before
//! anybody reads. What is read is always complete.

mod histogram;

pub use histogram::Histogram;

use core::cell::{Ref, RefCell};
use histogram::{BUCKETS, bucket_of};
use tidegate_base::request::{Account, Lane, Op, VmId};
use tidegate_base::seconds::Seconds;
use tidegate_base::time::Nanos;

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
    /// 2^(i+8)+1 to 2^(i+9) bytes, the first everything up to 512 B, and every flush, which has no
    /// size; the last all above 16 MiB.
    pub sizes: [u64; 17],
    /// Reads that started where one of the VM's last 32 requests ended.
    pub sequential_reads: u64,
    /// Writes likewise.
    pub sequential_writes: u64,
    /// Guest requests that joined a waiting one, or whose beginning went to the device with
    /// another's end.
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

/// Entries between two countings. The ends of all that arrived between them must fit the window
/// that sequential requests are told by.
const ARRIVALS: usize = SEQUENTIAL_WINDOW;
const ANSWERS: usize = 8;

/// A request that came. Sectors modulo 2^32, as [`RecentEnds`] compares them.
#[derive(Clone, Copy)]
struct Arrival {
    start: u32,
    end: u32,
    len: u32,
    op: Op,
}

/// A request that was answered, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Answer {
    pub account: Account,
    /// The VM served just before it.
    pub behind: Option<VmId>,
    pub len: u32,
    pub op: Op,
    pub well: bool,
}

impl Answer {
    /// What is the same for requests that are counted together.
    #[inline]
    fn kind(&self) -> u16 {
        u16::from_le_bytes([self.op as u8, u8::from(self.well)])
    }

    /// Times of waiting, with the device, and of both. The parts of an account add up to a time
    /// that has passed, so none of these sums overflows.
    #[inline(always)]
    fn times(&self) -> [Nanos; 3] {
        let [waits @ .., device] = self.account.parts();
        let waited = waits.iter().sum::<u64>();
        [waited, device, waited + device].map(Nanos)
    }
}

const _: () = assert!(size_of::<Arrival>() == 16 && size_of::<Answer>() == 64);

/// A VM's statistics, and what was not counted in them yet.
///
/// How many entries there ever were is known to the caller, who has the VM at hand anyway: so
/// an entry is written without reading anything first, and nobody waits for the line it goes to.
#[derive(Clone)]
pub(crate) struct Ledger {
    arrivals: [Arrival; ARRIVALS],
    answers: [Answer; ANSWERS],
    /// Readers count what is open too, and to them it must not matter: hence the cell.
    counted: RefCell<Counted>,
    seconds: Seconds,
}

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
            behind: None,
            len: 0,
            op: Op::Flush,
            well: false,
        };
        Ledger {
            arrivals: [arrival; ARRIVALS],
            answers: [answer; ANSWERS],
            counted: RefCell::default(),
            seconds: Seconds::default(),
        }
    }
}

impl Ledger {
    /// A request came. `count`: how many came before; it is moved on.
    #[inline]
    pub(crate) fn arrived(&mut self, count: &mut u32, op: Op, addr: u64, len: u32) {
        self.arrivals[*count as usize % ARRIVALS] = Arrival {
            start: (addr >> 9) as u32,
            end: (addr.wrapping_add(len as u64) >> 9) as u32,
            len,
            op,
        };
        *count = count.wrapping_add(1);
        if (*count as usize).is_multiple_of(ARRIVALS) {
            self.counted.get_mut().arrivals(&self.arrivals, *count);
        }
    }

    /// A request was answered. `count`: how many were before; it is moved on.
    pub(crate) fn answered(&mut self, count: &mut u32, answer: Answer) {
        self.answers[*count as usize % ANSWERS] = answer;
        *count = count.wrapping_add(1);
        if (*count as usize).is_multiple_of(ANSWERS) {
            self.counted.get_mut().answers(&self.answers, *count);
        }
    }

    /// For what is rare enough to be counted at once.
    pub(crate) fn at_once(&mut self) -> &mut VmStats {
        &mut self.counted.get_mut().stats
    }

    /// From the next second on it is counted what moves in each.
    pub(crate) fn begin_seconds(&mut self, second: u32, arrivals: u32, answers: u32) {
        let total = self.read(arrivals, answers).total_bytes();
        self.seconds.begin(second, total);
    }

    /// It is this second now, and what is written down so far came before.
    pub(crate) fn pass_seconds(&mut self, second: u32, asked: bool, arrivals: u32, answers: u32) {
        let total = self.read(arrivals, answers).total_bytes();
        self.seconds.pass(second, total, asked);
    }

    /// What moved in the last seconds, up to this one.
    pub(crate) fn seconds(&self, second: u32, asked: bool, arrivals: u32, answers: u32) -> Seconds {
        let mut seconds = self.seconds.clone();
        let total = self.read(arrivals, answers).total_bytes();
        seconds.pass(second, total, asked);
        seconds
    }

    /// The statistics, complete. `arrivals` and `answers`: how many there were.
    pub(crate) fn read(&self, arrivals: u32, answers: u32) -> Ref<'_, VmStats> {
        let counted = self.counted.borrow();
        if (counted.arrivals, counted.answers) == (arrivals, answers) {
            return Ref::map(counted, |c| &c.stats);
        }
        drop(counted);
        // Nobody else is reading this VM: since the first who did, nothing more was written.
        let mut counted = self.counted.borrow_mut();
        counted.arrivals(&self.arrivals, arrivals);
        counted.answers(&self.answers, answers);
        drop(counted);
        Ref::map(self.counted.borrow(), |c| &c.stats)
    }
}

impl Counted {
    fn arrivals(&mut self, ledger: &[Arrival; ARRIVALS], to: u32) {
        for entries in open(ledger, self.arrivals, to) {
            self.stats.arrived(entries);
        }
        self.arrivals = to;
    }

    fn answers(&mut self, ledger: &[Answer; ANSWERS], to: u32) {
        for entries in open(ledger, self.answers, to) {
            // Requests of one operation are counted together: its sums stay in registers.
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

/// Entries `from` to `to` of a ledger that goes round, in their order.
#[inline(always)]
fn open<T, const N: usize>(ledger: &[T; N], from: u32, to: u32) -> [&[T]; 2] {
    let count = to.wrapping_sub(from) as usize;
    let (after, before) = ledger.split_at(from as usize % N);
    let first = count.min(before.len());
    [&before[..first], &after[..count - first]]
}

impl VmStats {
    /// Memory of its histograms and of its last seconds; the rest lies in its ledger.
    pub(crate) const HEAP_BYTES: usize = 5 * size_of::<[u32; BUCKETS]>() + Seconds::HEAP_BYTES;

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

    /// VMs it waited behind, the longest first: an estimate that charges a request's queueing to
    /// the VM served just before it first was, once it is answered, and keeps the heaviest few
    /// (Space-Saving, Metwally 2005).
    pub fn waited_behind(&self) -> impl Iterator<Item = (VmId, Nanos)> {
        let mut all = self.behind;
        all.sort_by_key(|&(vm, waited)| (core::cmp::Reverse(waited), vm));
        all.into_iter()
            .filter_map(|(vm, waited)| Some((vm?, waited)))
    }

    /// Counts requests that came, at most [`ARRIVALS`] of them.
    fn arrived(&mut self, entries: &[Arrival]) {
        if entries.is_empty() {
            return;
        }
        // Those that move data, packed: whether they are sequential is told from all of them. A
        // one says which are reads.
        let (mut starts, mut reads, mut count) = ([0; ARRIVALS], [0u32; ARRIVALS], 0);
        let mut ends = self.recent_ends.room();
        for entry in entries {
            self.ops[entry.op as usize].arrived += 1;
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

    pub(crate) fn thought(&mut self, t: Nanos) {
        let mean = self.think_time.0;
        self.think_time = Nanos(if mean == 0 {
            t.0
        } else {
            mean - mean / 8 + t.0 / 8
        });
    }

    /// Counts requests of one operation that were answered, all well or none.
    fn answered(&mut self, entries: &[Answer]) {
        let Some(&Answer { op, well, .. }) = entries.first() else {
            return;
        };
        let requests = entries.len() as u64;
        let count = &mut self.ops[op as usize];
        if !well {
            count.errors += requests;
            self.all_waited(entries);
            return;
        }
        count.ops += requests;
        let lane = op.lane().index();
        let totals = Totals::of(
            entries,
            [
                &mut self.queue_time[lane],
                &mut self.service_time[lane],
                &mut self.latency,
            ],
        );
        count.bytes += totals.bytes;
        if totals.behind_others {
            self.all_waited(entries);
        }
        self.account.add(totals.parts);
        let [waits @ .., device] = totals.parts.map(Nanos);
        let waited = waits.into_iter().fold(Nanos::ZERO, |sum, part| sum + part);
        let [wait, service, latency] = totals.longest;
        self.queue_time[lane].add_totals(requests, waited, wait);
        self.service_time[lane].add_totals(requests, device, service);
        self.latency.add_totals(requests, waited + device, latency);
    }

    /// Books the queueing of requests to the VMs that were served before them.
    #[inline(never)]
    fn all_waited(&mut self, entries: &[Answer]) {
        for answer in entries {
            if let Some(behind) = answer.behind
                && answer.account.queued > Nanos::ZERO
            {
                self.waited(behind, answer.account.queued);
            }
        }
    }

    fn waited(&mut self, behind: VmId, t: Nanos) {
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

/// What several answers add up to.
struct Totals {
    bytes: u64,
    /// Sums of the parts of their accounts.
    parts: [u64; 5],
    /// Longest time of waiting, with the device, and of both.
    longest: [Nanos; 3],
    /// Some were served just behind another VM.
    behind_others: bool,
}

impl Totals {
    /// Adds up answers, and counts their times in the buckets of the histograms of waiting, of the
    /// device's time and of both. Nothing that could overflow is looked at for each answer: what
    /// cannot is told from the whole. Two passes, each of few figures that stay in registers.
    #[inline(always)]
    fn of(entries: &[Answer], histograms: [&mut Histogram; 3]) -> Totals {
        let [waits, services, latencies] = histograms;
        // A bucket holds no more than its histogram, and each time is counted in all three.
        if latencies.count > u64::from(u32::MAX) - ANSWERS as u64 {
            return Totals::with_full_buckets(entries, [waits, services, latencies]);
        }
        let mut longest = [Nanos::ZERO; 3];
        for answer in entries {
            let times = answer.times();
            waits.buckets[bucket_of(times[0])] += 1;
            services.buckets[bucket_of(times[1])] += 1;
            latencies.buckets[bucket_of(times[2])] += 1;
            for (longest, time) in longest.iter_mut().zip(times) {
                *longest = (*longest).max(time);
            }
        }
        // No part is longer than the whole.
        if longest[2].0 > u64::MAX / ANSWERS as u64 {
            return Totals::of_long(entries, longest);
        }
        let (mut bytes, mut parts, mut behind) = (0, [0u64; 5], 0);
        for answer in entries {
            bytes += u64::from(answer.len);
            behind |= u32::from(answer.behind.is_some());
            for (sum, part) in parts.iter_mut().zip(answer.account.parts()) {
                *sum = sum.wrapping_add(part);
            }
        }
        Totals {
            bytes,
            parts,
            longest,
            behind_others: behind != 0,
        }
    }

    /// As [`Totals::of`], where buckets may be full.
    #[cold]
    #[inline(never)]
    fn with_full_buckets(entries: &[Answer], mut histograms: [&mut Histogram; 3]) -> Totals {
        let mut longest = [Nanos::ZERO; 3];
        for times in entries.iter().map(Answer::times) {
            let each = histograms.iter_mut().zip(&mut longest).zip(times);
            for ((histogram, longest), time) in each {
                let bucket = &mut histogram.buckets[bucket_of(time)];
                *bucket = bucket.saturating_add(1);
                *longest = (*longest).max(time);
            }
        }
        Totals::of_long(entries, longest)
    }

    /// Adds up answers whose times may be centuries long.
    #[cold]
    #[inline(never)]
    fn of_long(entries: &[Answer], longest: [Nanos; 3]) -> Totals {
        let mut parts = [0u64; 5];
        for answer in entries {
            for (sum, part) in parts.iter_mut().zip(answer.account.parts()) {
                *sum = sum.saturating_add(part);
            }
        }
        Totals {
            bytes: entries.iter().map(|answer| u64::from(answer.len)).sum(),
            parts,
            longest,
            behind_others: true,
        }
    }
}

/// Where a VM's last requests ended, the oldest first, in sectors modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RecentEnds([u32; SEQUENTIAL_WINDOW]);

impl Default for RecentEnds {
    fn default() -> Self {
        // No request starts at the last sector of a 2 TiB period by accident of the default.
        RecentEnds([u32::MAX; SEQUENTIAL_WINDOW])
    }
}

impl RecentEnds {
    /// The ends, and room behind them for those of [`ARRIVALS`] more.
    #[inline(always)]
    fn room(&self) -> [u32; SEQUENTIAL_WINDOW + ARRIVALS] {
        let mut ends = [0; SEQUENTIAL_WINDOW + ARRIVALS];
        ends[..SEQUENTIAL_WINDOW].copy_from_slice(&self.0);
        ends
    }

    /// Keeps the last ones of `ends`, in which `count` were added to [`RecentEnds::room`].
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

    /// A request to be written down: sectors from a few, so that some continue others.
    fn entry() -> impl Strategy<Value = (Op, u64, u32, u64)> {
        let op = prop::sample::select(Op::ALL.to_vec());
        (op, 0u64..64, 1u32..8, 1000u64..1 << 40)
            .prop_map(|(op, at, len, t)| (op, at * 512, len * 512, t))
    }

    proptest! {
        #[test]
        fn when_the_ledger_is_read_does_not_matter(
            entries in prop::collection::vec((entry(), any::<bool>()), 1..200),
            start in prop::sample::select(vec![0, u32::MAX - 50]),
        ) {
            // One ledger is read at every `true`, the other only at the end.
            let mut both = [Ledger::default(), Ledger::default()];
            let mut counts = (start, start);
            for ledger in &mut both {
                let counted = ledger.counted.get_mut();
                (counted.arrivals, counted.answers) = counts;
            }
            // The oracle keeps every end there ever was.
            let (mut ends, mut sequential, mut total) = (Vec::new(), 0u64, 0u64);
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
                    let behind = Some(VmId::from_bits(t % 7));
                    ledger.answered(&mut counts.1, Answer { account, behind, len, op, well: true });
                }
                if op.merges() {
                    let last = ends.iter().rev().take(SEQUENTIAL_WINDOW);
                    sequential += last.clone().any(|&e| e == addr) as u64;
                    ends.push(addr + len as u64);
                }
                total += t + t / 3;
                if read {
                    prop_assert_eq!(both[0].read(counts.0, counts.1).latency.sum(), Nanos(total));
                }
            }
            let [a, b] = both.each_ref().map(|l| l.read(counts.0, counts.1).clone());
            prop_assert_eq!(&a, &b);
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
