//! Counters of a VM at its last sample, and their differences.

use std::sync::Arc;

use tidegate_core::attainment::{Cause, Part, PartSeconds};
use tidegate_core::interference::{Class, Interval, VmTimes};
use tidegate_core::request::{Account, Op, VmId};
use tidegate_core::stats::{Histogram, VmStats};
use tidegate_history::column::{Column, Values};
use tidegate_history::latency::Latency;
use tidegate_history::recorder;
use tidegate_history::sample::{Key, Sample};

use super::removed;

/// Counters of a VM at its last sample: some 700 bytes, and 4 for each bucket between its shortest
/// and its longest latency.
#[derive(Debug, Default)]
pub(super) struct Counters {
    key: Option<Key>,
    values: [u64; 7],
    account: Account,
    /// Times at the last call that found requests which the ledger of interference had sampled:
    /// later ones are not divided by VM yet.
    divided: VmTimes,
    /// Calls since then.
    undivided: u8,
    latency: Buckets,
    parts: [PartSeconds; 5],
}

/// Buckets of a histogram from the first that is not empty to the last.
#[derive(Debug, Default)]
struct Buckets {
    first: usize,
    counts: Box<[u32]>,
}

impl Buckets {
    /// Returns what a histogram has counted since, and keeps its counts.
    fn difference(&mut self, histogram: &Histogram) -> Latency {
        let now = histogram.buckets();
        let is_used = |count: &u32| *count > 0;
        let (Some(mut first), Some(mut last)) =
            (now.iter().position(is_used), now.iter().rposition(is_used))
        else {
            return Latency::default();
        };
        if !self.counts.is_empty() {
            // A count that wraps around may look like one of a bucket that was never in use.
            first = first.min(self.first);
            last = last.max(self.first + self.counts.len() - 1);
        }
        if last - first + 1 != self.counts.len() {
            let mut wider = vec![0; last - first + 1];
            let at = self.first.saturating_sub(first);
            wider[at..at + self.counts.len()].copy_from_slice(&self.counts);
            (self.first, self.counts) = (first, wider.into());
        }
        let mut cells = Vec::new();
        for (at, (before, &count)) in self.counts.iter_mut().zip(&now[first..]).enumerate() {
            if count != *before {
                cells.push(((first + at) as u16, u64::from(count.wrapping_sub(*before))));
                *before = count;
            }
        }
        Latency::new(cells)
    }
}

/// Columns of each part of an objective: kept, missed and stalled seconds.
const PARTS: [(Part, Column, Column, Option<Column>); 5] = [
    (
        Part::Reservation,
        Column::ReservationKept,
        Column::ReservationMissed,
        Some(Column::ReservationStalled),
    ),
    (
        Part::Latency,
        Column::LatencyKept,
        Column::LatencyMissed,
        Some(Column::LatencyStalled),
    ),
    (
        Part::Target,
        Column::TargetKept,
        Column::TargetMissed,
        Some(Column::TargetStalled),
    ),
    (Part::Limit, Column::LimitKept, Column::LimitMissed, None),
    (
        Part::Transfer,
        Column::TransferKept,
        Column::TransferMissed,
        None,
    ),
];

/// Columns of the causes of missed seconds.
const MISSED_BY: [(Cause, Column); 4] = [
    (Cause::OwnLimit, Column::MissedByOwnLimit),
    (Cause::Others, Column::MissedByOthers),
    (Cause::Device, Column::MissedByDevice),
    (Cause::Policy, Column::MissedByPolicy),
];

/// Calls without a sample after which the time is divided all the same: a window of the history.
const UNDIVIDED_MAX: u8 = 10;

/// Columns of the classes of time that no stage of [`Column::CAUSES`] is.
const CLASSES: [(Column, Class); 7] = [
    (Column::Admission, Class::Admission),
    (Column::BehindOthers, Class::Others),
    (Column::OwnRequests, Class::OwnRequests),
    (Column::Service, Class::Service),
    (Column::SlowDevice, Class::SlowDevice),
    (Column::Unknown, Class::Unknown),
    (Column::Reply, Class::Reply),
];

impl Counters {
    /// Returns the key of the VM's series.
    pub(super) fn key(&mut self, name: &str) -> Key {
        self.key.get_or_insert_with(|| recorder::vm(name)).clone()
    }

    /// Leaves seconds that were judged so far out of the next difference.
    pub(super) fn skip_attainment(&mut self, judged: [PartSeconds; 5]) {
        self.parts = judged;
    }

    /// Returns what a VM has done since the last call; the interval is set by the caller.
    /// `name_of` returns the name of another VM, unless it was removed.
    pub(super) fn difference<'a>(
        &mut self,
        (stats, times): (&VmStats, &VmTimes),
        judged: Option<[PartSeconds; 5]>,
        name_of: impl Fn(VmId) -> Option<&'a str>,
    ) -> Sample {
        let mut values = Values::default();
        let now = counts(stats);
        for ((column, now), before) in now.into_iter().zip(&mut self.values) {
            values[column] = now.saturating_sub(std::mem::replace(before, now));
        }
        let before = std::mem::replace(&mut self.account, times.account);
        let stages = stages(&times.account).into_iter().zip(stages(&before));
        for (column, (now, before)) in Column::CAUSES.into_iter().zip(stages) {
            // Each sum is rounded, not the difference, so that nothing gets lost.
            values[column] = (now / 1000).saturating_sub(before / 1000);
        }
        let interval = self.divide(times);
        for (column, class) in CLASSES {
            values[column] = interval.time(class).0 / 1000;
        }
        values[Column::Samples] = interval.samples;
        if let Some(judged) = judged {
            self.judged(&judged, &mut values);
        }
        Sample {
            values,
            latency: self.latency.difference(&stats.latency),
            behind: waited_behind(&interval, name_of),
            ..Sample::default()
        }
    }

    /// Returns the times since the last interval that was divided, once a request was sampled in
    /// them, and else none. A device samples so many requests a second, so where it has many VMs
    /// most have no sample in a second: their time is divided as in the next one. What is without a
    /// sample for a window is of no known cause.
    fn divide(&mut self, times: &VmTimes) -> Interval {
        let is_sampled = times.attribution.samples != self.divided.attribution.samples;
        self.undivided += 1;
        if !is_sampled && self.undivided < UNDIVIDED_MAX {
            return Interval::default();
        }
        self.undivided = 0;
        let before = std::mem::replace(&mut self.divided, *times);
        Interval::between(&before, times)
    }

    fn judged(&mut self, now: &[PartSeconds; 5], values: &mut Values) {
        for (part, kept, missed, stalled) in PARTS {
            let (now, before) = (now[part as usize], &mut self.parts[part as usize]);
            let missed_of =
                |seconds: &PartSeconds| seconds.missed_s.iter().map(|&s| u64::from(s)).sum::<u64>();
            // The counts begin anew when the promise changes.
            let anew = now.kept_s < before.kept_s || missed_of(&now) < missed_of(before);
            if anew {
                *before = PartSeconds::default();
            }
            values[kept] = now.kept_s - before.kept_s;
            values[missed] = missed_of(&now) - missed_of(before);
            if let Some(stalled) = stalled {
                values[stalled] = now.stalled_s.saturating_sub(before.stalled_s).into();
            }
            for (cause, column) in MISSED_BY {
                let of = |seconds: &PartSeconds| u64::from(seconds.missed_s[cause as usize]);
                values[column] += of(&now).saturating_sub(of(before));
            }
            *before = now;
        }
    }
}

/// Returns the times of requests by stage in nanoseconds, in the order of [`Column::CAUSES`].
/// Time before admission counts as queueing there.
fn stages(account: &Account) -> [u64; 5] {
    [
        account.regulated.0,
        (account.admission + account.queued).0,
        account.merged_wait.0,
        account.deliberate.0,
        account.device.0,
    ]
}

/// Returns the VMs behind which requests of an interval were, with microseconds.
fn waited_behind<'a>(
    interval: &Interval,
    name_of: impl Fn(VmId) -> Option<&'a str>,
) -> Vec<(Arc<str>, u64)> {
    let culprits = interval.culprits.iter();
    let behind = culprits.map(|it| (it.vm, it.total().0 / 1000));
    behind
        .filter(|&(_, micros)| micros > 0)
        .map(|(vm, micros)| (name_of(vm).map_or_else(removed, Arc::from), micros))
        .collect()
}

/// Returns the counters that a sample has, by column.
fn counts(stats: &VmStats) -> [(Column, u64); 7] {
    let [read, write, flush, discard, zeroes] = Op::ALL.map(|op| *stats.op(op));
    let others = [flush, discard, zeroes];
    let errors = Op::ALL.map(|op| stats.op(op).errors);
    [
        (Column::Reads, read.ops),
        (Column::ReadBytes, read.bytes),
        (Column::Writes, write.ops),
        (Column::WriteBytes, write.bytes),
        (Column::Others, others.iter().map(|count| count.ops).sum()),
        (
            Column::OtherBytes,
            others.iter().map(|count| count.bytes).sum(),
        ),
        (Column::Errors, errors.iter().sum()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;
    use tidegate_history::latency::upper_bound_ns;

    #[test]
    fn differences_of_a_histogram_add_up_to_it() {
        let (mut histogram, mut buckets) = (Histogram::default(), Buckets::default());
        assert_eq!(buckets.difference(&histogram), Latency::default());
        let mut all = Latency::default();
        // Ever longer and ever shorter times, so that the range grows at both ends.
        for round in 0..20u64 {
            for time in [50_000 << (round / 4), 40_000 >> (round / 4), 3_000_000] {
                histogram.record(Nanos(time + round));
            }
            let since = buckets.difference(&histogram);
            assert_eq!(since.count(), 3, "round {round}");
            all.merge(&since);
        }
        let cells = all.cells().iter();
        let cells: Vec<_> = cells.map(|&(b, n)| (Nanos(upper_bound_ns(b)), n)).collect();
        // The history's buckets are those of the engine.
        assert_eq!(cells, histogram.iter().collect::<Vec<_>>());
        assert_eq!(buckets.difference(&histogram), Latency::default());
    }

    #[test]
    fn time_of_seconds_without_a_sample_is_behind_the_vms_of_the_next_one() {
        let mut counters = Counters::default();
        let mut times = VmTimes::default();
        let mut behind = Vec::new();
        // A sample in every tenth second.
        for second in 1..=100 {
            times.requests += 5;
            times.account.queued += Nanos::from_millis(200);
            if second % 10 == 0 {
                let attribution = &mut times.attribution;
                attribution.samples += 1;
                let culprit = &mut attribution.culprits[0];
                (culprit.vm, culprit.entry) = (Some(VmId::from_bits(7)), 1);
                culprit.waited += Nanos::from_millis(40);
            }
            let stats = VmStats::default();
            let sample = counters.difference((&stats, &times), None, |_| Some("backup"));
            behind.extend(sample.behind);
        }
        assert_eq!(behind.len(), 10);
        let micros: u64 = behind.iter().map(|it| it.1).sum();
        assert_eq!(micros, 100 * 200_000);
    }
}
