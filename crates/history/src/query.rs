//! Queries: the history of one VM or device over a span of time, in steps.
//!
//! A query reads blocks one after the other, in any order, and gathers what they have of its
//! series, of which there may be several: each block is decoded once for all. Coarse blocks come
//! first: fine windows that one of them has are passed over, so nothing is counted twice.

use std::collections::{BTreeMap, HashMap};

use crate::block::{Block, BlockKind, Header};
use crate::budget::{BEHIND_MAX, WINDOW_MS};
use crate::chunk::{Chunk, Detail, Point};
use crate::column::{Column, Values};
use crate::fit;
use crate::latency::{Latency, upper_bound_ns};
use crate::reader::Damage;
use crate::sample::{Behind, Key, Sample, add_behind, keep_largest};

/// Length of the intervals of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Points as they were taken: 1 s, as far back as fine points go.
    Fine,
    /// Intervals of this many milliseconds, a multiple of [`WINDOW_MS`].
    Every(u64),
}

/// Series, span and step of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// VM or device.
    pub key: Key,
    /// Begin in milliseconds since 1970.
    pub from_ms: u64,
    /// End, exclusive.
    pub to_ms: u64,
    /// Length of the intervals.
    pub step: Step,
}

/// Interval of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Begin in milliseconds since 1970.
    pub from_ms: u64,
    /// End, exclusive.
    pub to_ms: u64,
    /// Time of the interval in which the series was observed; less than its length where the VM was
    /// idle or the daemon did not run for a part of it.
    pub observed_ms: u64,
    /// Values of all columns. Those by window are zero in an answer of fine points.
    pub values: Values,
    /// VMs that were waited for, with the time in microseconds, the longest first. Empty in an
    /// answer of fine points, whose windows share one list.
    pub behind: Behind,
}

impl Interval {
    /// Returns a quantile of latencies in nanoseconds; `None` if no request was answered.
    pub fn quantile_ns(&self, column: Column) -> Option<u64> {
        let bucket = self.values[column].checked_sub(1)?;
        Some(upper_bound_ns(u16::try_from(bucket).unwrap_or(u16::MAX)))
    }
}

/// Span in which a run of the daemon recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// Begin in milliseconds since 1970.
    pub from_ms: u64,
    /// Last time at which it was known to run.
    pub to_ms: u64,
}

/// Answer to a query.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// Intervals with points, the oldest first. One without points is left out: the VM was idle, or
    /// the daemon did not run.
    pub intervals: Vec<Interval>,
    /// Spans in which the daemon ran, the oldest first, cut to the span of the query.
    pub running: Vec<Running>,
    /// Latencies of all intervals; without those of points that have quantiles alone, and empty in
    /// an answer of fine points.
    pub latency: Latency,
}

/// Interval that is gathered.
#[derive(Clone, Default)]
struct Bucket {
    to_ms: u64,
    observed_ms: u64,
    values: Values,
    latency: Latency,
    /// Values of points that have quantiles alone, and no histogram.
    without_latency: Values,
    behind: Behind,
}

/// Series that is gathered.
struct Series {
    key: Key,
    buckets: BTreeMap<u64, Bucket>,
}

/// Query that reads blocks.
pub struct Query {
    /// Span and step, and the first of the series.
    request: Request,
    series: Vec<Series>,
    /// Indices of the series of a name.
    by_name: HashMap<String, Vec<usize>>,
    /// Windows that coarse blocks have.
    covered: Vec<(u64, u64)>,
    /// Begin and end of each run.
    runs: BTreeMap<u64, Running>,
}

impl Query {
    /// Begins a query.
    ///
    /// # Panics
    /// If the step is 0 or no multiple of [`WINDOW_MS`].
    pub fn new(request: Request) -> Query {
        Query::of_several(request, [])
    }

    /// Begins a query of `others` as well, over the same span in the same steps.
    ///
    /// # Panics
    /// If the step is 0 or no multiple of [`WINDOW_MS`].
    pub fn of_several(request: Request, others: impl IntoIterator<Item = Key>) -> Query {
        if let Step::Every(ms) = request.step {
            assert!(ms > 0 && ms % WINDOW_MS == 0, "a step of {ms} ms");
        }
        let series = std::iter::once(request.key.clone()).chain(others);
        let series: Vec<Series> = series
            .map(|key| Series {
                key,
                buckets: BTreeMap::new(),
            })
            .collect();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, it) in series.iter().enumerate() {
            let name = it.key.name.to_string();
            by_name.entry(name).or_default().push(index);
        }
        Query {
            request,
            series,
            by_name,
            covered: Vec::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Returns true if the body of this block is of use; otherwise its header is enough.
    pub fn wants(&self, header: &Header) -> bool {
        let overlaps = header.from_ms < self.request.to_ms && header.to_ms > self.request.from_ms;
        let kind = match (header.kind, self.request.step) {
            (BlockKind::Fine, Step::Fine) => true,
            (BlockKind::Coarse, Step::Every(_)) => true,
            (BlockKind::Fine, Step::Every(_)) => !self.is_covered(header.windows.0),
            _ => false,
        };
        overlaps && kind
    }

    fn is_covered(&self, window: u64) -> bool {
        self.covered
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&window))
    }

    /// Records that the daemon ran in the span of a block, and which windows a coarse one has.
    pub fn note(&mut self, header: &Header) {
        let span = Running {
            from_ms: header.from_ms,
            to_ms: header.to_ms,
        };
        let run = self.runs.entry(header.run).or_insert(span);
        run.from_ms = run.from_ms.min(span.from_ms);
        run.to_ms = run.to_ms.max(span.to_ms);
        if header.kind == BlockKind::Coarse && header.is_last {
            self.covered.push(header.windows);
        }
    }

    /// Reads a block.
    ///
    /// # Errors
    /// If it is damaged; what was read before the damage counts.
    pub fn read(&mut self, block: &Block<'_>) -> Result<(), Damage> {
        let wanted = self.wants(&block.header);
        self.note(&block.header);
        if !wanted {
            return Ok(());
        }
        let (names, entries) = block.content()?;
        // A series has one entry in a block, and none if its name is not there.
        let named = names.iter().filter_map(|name| self.by_name.get(*name));
        let mut left = named.map(Vec::len).sum::<usize>();
        for entry in entries {
            if left == 0 {
                break;
            }
            let entry = entry?;
            let of_name = names
                .get(entry.name)
                .and_then(|name| self.by_name.get(*name));
            let mut series = of_name.into_iter().flatten().copied();
            let series = series.find(|&index| self.series[index].key.kind == entry.kind);
            if let Some(series) = series {
                let chunk = Chunk::decode(entry.chunk, block.header.from_ms, names.len())?;
                self.add_chunk(series, &chunk, &names, &block.header);
                left -= 1;
            }
        }
        Ok(())
    }

    fn add_chunk(&mut self, series: usize, chunk: &Chunk, names: &[&str], header: &Header) {
        match (header.kind, self.request.step) {
            (BlockKind::Fine, Step::Every(_)) => {
                let (point, detail) = whole_window(chunk, header.from_ms, header.to_ms);
                self.add(series, &point, Some((&detail, names)));
            }
            (BlockKind::Fine, Step::Fine) => {
                let points = chunk.points.iter();
                points.for_each(|point| self.add(series, point, None));
            }
            _ => {
                for (point, detail) in chunk.points.iter().zip(&chunk.details) {
                    self.add(series, point, Some((detail, names)));
                }
            }
        }
    }

    /// Returns the keys of the series.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.series.iter().map(|series| &series.key)
    }

    /// End of the span.
    pub(crate) fn to_ms(&self) -> u64 {
        self.request.to_ms
    }

    /// Adds the samples of a series in a window that is still open.
    pub(crate) fn add_open(&mut self, series: usize, samples: &[Sample]) {
        for sample in samples {
            let mut point = Point {
                end_ms: sample.end_ms,
                span_ms: sample.span_ms,
                values: sample.values,
            };
            fit::set_quantiles(&mut point.values, &sample.latency);
            let names: Vec<&str> = sample.behind.iter().map(|(vm, _)| &**vm).collect();
            let behind = sample.behind.iter().enumerate();
            let detail = Detail {
                latency: sample.latency.clone(),
                behind: behind
                    .map(|(index, (_, waited))| (index, *waited))
                    .collect(),
            };
            let detail = (self.request.step != Step::Fine).then_some((&detail, &names[..]));
            self.add(series, &point, detail);
        }
    }

    fn add(&mut self, series: usize, point: &Point, detail: Option<(&Detail, &[&str])>) {
        let Request {
            from_ms,
            to_ms,
            step,
            ..
        } = self.request;
        // The end belongs to the next interval.
        let last = point.end_ms.saturating_sub(1);
        if !(from_ms..to_ms).contains(&last) {
            return;
        }
        let (begin, end) = match step {
            Step::Fine => (point.end_ms.saturating_sub(point.span_ms), point.end_ms),
            Step::Every(ms) => (last / ms * ms, (last / ms * ms).saturating_add(ms)),
        };
        // Fine points are told apart by their ends: those before may overlap.
        let key = if step == Step::Fine { end } else { begin };
        let bucket = self.series[series].buckets.entry(key).or_default();
        bucket.to_ms = end;
        bucket.observed_ms = bucket.observed_ms.saturating_add(point.span_ms);
        bucket.values.merge(&point.values);
        let Some((detail, names)) = detail else {
            (Column::BY_WINDOW.into_iter()).for_each(|column| bucket.values[column] = 0);
            return;
        };
        if detail.latency.count() > 0 {
            bucket.latency.merge(&detail.latency);
        } else {
            bucket.without_latency.merge(&point.values);
        }
        for &(name, waited) in &detail.behind {
            add_behind(&mut bucket.behind, &names[name].into(), waited);
        }
    }

    /// Returns the answer to a query of one series, or the first of several.
    pub fn finish(self) -> Answer {
        self.finish_all().swap_remove(0)
    }

    /// Returns the answers in the order of the series.
    pub fn finish_all(self) -> Vec<Answer> {
        let Request {
            from_ms,
            to_ms,
            step,
            ..
        } = self.request;
        let runs = self.runs.into_values();
        let runs = runs.map(|run| Running {
            from_ms: run.from_ms.max(from_ms),
            to_ms: run.to_ms.min(to_ms),
        });
        let mut running: Vec<Running> = runs.filter(|run| run.from_ms < run.to_ms).collect();
        running.sort_by_key(|run| (run.from_ms, run.to_ms));
        let answer = |series: Series| {
            let mut latency = Latency::default();
            let buckets = series.buckets.values();
            buckets.for_each(|bucket| latency.merge(&bucket.latency));
            Answer {
                intervals: series.intervals(step),
                running: running.clone(),
                latency,
            }
        };
        self.series.into_iter().map(answer).collect()
    }
}

impl Series {
    /// Returns what was gathered.
    fn intervals(self, step: Step) -> Vec<Interval> {
        let intervals = self.buckets.into_iter().map(|(key, mut bucket)| {
            let from_ms = match step {
                Step::Fine => key.saturating_sub(bucket.observed_ms),
                Step::Every(ms) => {
                    bucket.observed_ms = bucket.observed_ms.min(ms);
                    fit::set_quantiles(&mut bucket.values, &bucket.latency);
                    for (column, _) in Column::QUANTILES {
                        let quantile = &mut bucket.values[column];
                        *quantile = (*quantile).max(bucket.without_latency[column]);
                    }
                    key
                }
            };
            keep_largest(&mut bucket.behind, BEHIND_MAX);
            Interval {
                from_ms,
                to_ms: bucket.to_ms,
                observed_ms: bucket.observed_ms,
                values: bucket.values,
                behind: bucket.behind,
            }
        });
        intervals.collect()
    }
}

/// Returns the points of a fine chunk as one, and its detail. A window is closed a moment after its
/// time is over; the point ends with that time, so that it is in the interval of the window.
pub(crate) fn whole_window(chunk: &Chunk, from_ms: u64, to_ms: u64) -> (Point, Detail) {
    let over_ms = to_ms - to_ms % WINDOW_MS;
    let mut whole = Point {
        end_ms: if over_ms > from_ms { over_ms } else { to_ms },
        ..Point::default()
    };
    for point in &chunk.points {
        whole.span_ms = whole.span_ms.saturating_add(point.span_ms);
        whole.values.merge(&point.values);
    }
    let detail = chunk.details[0].clone();
    // A chunk of the coarsest kind has no histogram: the largest of its quantiles remain.
    if detail.latency.count() > 0 {
        fit::set_quantiles(&mut whole.values, &detail.latency);
    }
    (whole, detail)
}
