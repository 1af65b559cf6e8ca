//! Statistics of a trace.

use super::{Record, Trace};
use std::collections::{BTreeMap, HashMap};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Minimum lengths of gaps between requests by which [`Info::gaps`] counts them.
pub const GAPS: [Nanos; 4] = [
    Nanos::from_millis(10),
    Nanos::from_millis(100),
    Nanos::from_secs(1),
    Nanos::from_secs(10),
];
/// Number of the most frequent sizes that are listed.
const LISTED_SIZES: usize = 5;

/// Statistics of a trace, or of one of its disks.
#[derive(Clone, PartialEq, Debug)]
pub struct Info {
    /// Number of requests.
    pub requests: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of discards; the rest are writes.
    pub discards: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Time from the first request to the last.
    pub span: Nanos,
    /// Maximum number of requests in a second; seconds count from the first request.
    pub peak_per_s: u64,
    /// Request sizes.
    pub sizes: Sizes,
    /// Number of requests that begin where the one before on the same disk ended.
    pub sequential: u64,
    /// Bytes that were accessed at least once.
    pub footprint: u64,
    /// Largest end address in bytes of all disks.
    pub extent: u64,
    /// Gaps without a new request by minimum length: an entry for each of [`GAPS`].
    pub gaps: [Gaps; GAPS.len()],
}

/// Request sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Smallest size.
    pub least: u32,
    /// Median size.
    pub median: u32,
    /// Largest size.
    pub most: u32,
    /// Most frequent sizes, most frequent first, at most five.
    pub commonest: Vec<SizeOf>,
}

/// Request size with its number of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeOf {
    /// Size in bytes.
    pub bytes: u32,
    /// Number of requests.
    pub requests: u64,
}

/// Gaps of at least one length.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gaps {
    /// Number of gaps.
    pub count: u64,
    /// Total duration of the gaps.
    pub time: Nanos,
}

/// Computes the statistics of a trace, or of one of its disks (an index into [`Trace::disks`]);
/// `None` if it has no request.
pub fn info(trace: &Trace, disk: Option<u32>) -> Option<Info> {
    let all = || {
        trace
            .records
            .iter()
            .filter(|record| disk.is_none_or(|disk| disk == record.disk))
    };
    let (first, last) = (all().next()?, all().next_back()?);
    let of = |op: Op| all().filter(move |record| record.op == op);
    let bytes = |records: &mut dyn Iterator<Item = &Record>| {
        records.map(|record| u64::from(record.len)).sum()
    };
    Some(Info {
        requests: all().count() as u64,
        reads: of(Op::Read).count() as u64,
        discards: of(Op::Discard).count() as u64,
        bytes: bytes(&mut all()),
        read_bytes: bytes(&mut of(Op::Read)),
        span: last.at.since(first.at),
        peak_per_s: peak(all().map(|record| record.at.since(first.at))),
        sizes: sizes(all().map(|record| record.len)),
        sequential: sequential(all()),
        footprint: footprint(all()),
        extent: all().map(Record::end).max().unwrap_or(0),
        gaps: gaps(all().map(|record| record.at)),
    })
}

/// Returns the maximum number of times in one second; `times` must be sorted.
fn peak(times: impl Iterator<Item = Nanos>) -> u64 {
    let (mut most, mut second, mut count) = (0, 0, 0);
    for time in times {
        // Seconds of the trace's own grid, not a sliding window, which would have to keep times.
        let this = time.0 / Nanos::SECOND.0;
        count = if this == second { count + 1 } else { 1 };
        second = this;
        most = most.max(count);
    }
    most
}

fn sizes(lens: impl Iterator<Item = u32>) -> Sizes {
    let mut by_size: BTreeMap<u32, u64> = BTreeMap::new();
    for len in lens {
        *by_size.entry(len).or_default() += 1;
    }
    // Rounded up: the lower of both middles of an even number.
    let half = by_size.values().sum::<u64>().div_ceil(2);
    let mut below = 0;
    let median = by_size.iter().find(|&(_, requests)| {
        below += requests;
        below >= half
    });
    let mut commonest: Vec<SizeOf> = (by_size.iter())
        .map(|(&bytes, &requests)| SizeOf { bytes, requests })
        .collect();
    // Smaller sizes first among equals, so that the output does not depend on the map's order.
    commonest.sort_by_key(|size| (std::cmp::Reverse(size.requests), size.bytes));
    commonest.truncate(LISTED_SIZES);
    Sizes {
        least: by_size.keys().next().copied().unwrap_or(0),
        median: median.map_or(0, |(&bytes, _)| bytes),
        most: by_size.keys().next_back().copied().unwrap_or(0),
        commonest,
    }
}

fn sequential<'a>(records: impl Iterator<Item = &'a Record>) -> u64 {
    let mut ends: HashMap<u32, u64> = HashMap::new();
    let mut count = 0;
    for record in records {
        let before = ends.insert(record.disk, record.end());
        count += u64::from(before == Some(record.offset));
    }
    count
}

/// Returns the bytes that the union of all extents covers.
fn footprint<'a>(records: impl Iterator<Item = &'a Record>) -> u64 {
    let mut extents: Vec<(u32, u64, u64)> = records
        .map(|record| (record.disk, record.offset, record.end()))
        .collect();
    // By disk first: addresses of different disks do not overlap.
    extents.sort_unstable();
    // Sorted by begin, each extent adds what lies behind everything before it.
    let (mut sum, mut disk, mut done) = (0, u32::MAX, 0);
    for (on, begin, end) in extents {
        if on != disk {
            (disk, done) = (on, 0);
        }
        sum += end.saturating_sub(begin.max(done));
        done = done.max(end);
    }
    sum
}

fn gaps(times: impl Iterator<Item = Nanos>) -> [Gaps; GAPS.len()] {
    let mut found = [Gaps::default(); GAPS.len()];
    let mut last = None;
    for time in times {
        let gap = last
            .replace(time)
            .map_or(Nanos::ZERO, |last| time.since(last));
        for (gaps, _) in found
            .iter_mut()
            .zip(GAPS)
            .filter(|(_, least)| gap >= *least)
        {
            gaps.count += 1;
            gaps.time += gap;
        }
    }
    found
}
