//! Open window: samples that no block has yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::{BlockKind, Builder, Header};
use crate::budget::{BEHIND_MAX, SAMPLE_CELLS_MAX, WINDOW_SAMPLES_MAX};
use crate::column::Values;
use crate::fit;
use crate::latency::Latency;
use crate::reader::Reader;
use crate::sample::{Key, Sample, keep_largest};

/// Sample in less memory: with an encoded histogram.
#[derive(Debug)]
struct Packed {
    end_ms: u64,
    span_ms: u64,
    values: Box<Values>,
    latency: Box<[u8]>,
    behind: Box<[(Arc<str>, u64)]>,
}

impl Packed {
    fn new(mut sample: Sample) -> Packed {
        sample.latency.coarsen(SAMPLE_CELLS_MAX);
        keep_largest(&mut sample.behind, BEHIND_MAX);
        let mut latency = Vec::new();
        sample.latency.encode(&mut latency);
        Packed {
            end_ms: sample.end_ms,
            span_ms: sample.span_ms,
            values: Box::new(sample.values),
            latency: latency.into(),
            behind: sample.behind.into(),
        }
    }

    fn unpack(&self) -> Sample {
        let latency = Latency::decode(&mut Reader::new(&self.latency));
        Sample {
            end_ms: self.end_ms,
            span_ms: self.span_ms,
            values: *self.values,
            latency: latency.expect("encoded in memory"),
            behind: self.behind.to_vec(),
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Packed>() + size_of::<Values>() + self.latency.len() + size_of_val(&*self.behind)
    }
}

/// Samples of the window that is open, by series.
#[derive(Debug, Default)]
pub(crate) struct Window {
    series: BTreeMap<Key, Vec<Packed>>,
}

impl Window {
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Adds a sample. The series' last one takes it up if there are too many.
    pub(crate) fn push(&mut self, key: Key, sample: Sample) {
        let samples = self.series.entry(key).or_default();
        let is_full = samples.len() >= WINDOW_SAMPLES_MAX;
        let last = samples.pop_if(|_| is_full);
        let sample = match last {
            Some(last) => {
                let mut last = last.unpack();
                last.merge(&sample);
                last
            }
            None => sample,
        };
        samples.push(Packed::new(sample));
    }

    /// Memory of one series in bytes.
    pub(crate) fn bytes(&self, key: &Key) -> usize {
        let samples = self.series.get(key);
        samples.map_or(0, |samples| samples.iter().map(Packed::bytes).sum())
    }

    /// Samples of a series, the oldest first.
    pub(crate) fn samples(&self, key: &Key) -> Vec<Sample> {
        let samples = self.series.get(key);
        samples.map_or(Vec::new(), |samples| {
            samples.iter().map(Packed::unpack).collect()
        })
    }

    /// Ends the window. Returns its blocks and the number of series in them.
    pub(crate) fn close(
        &mut self,
        run: u64,
        number: u64,
        from_ms: u64,
        to_ms: u64,
    ) -> (Vec<Vec<u8>>, usize) {
        let series = std::mem::take(&mut self.series);
        let count = series.len();
        let mut builder = Builder::new(Header {
            kind: BlockKind::Fine,
            is_last: true,
            run,
            windows: (number, number),
            from_ms,
            to_ms,
            body: 0,
        });
        for (key, samples) in series {
            let samples: Vec<Sample> = samples.iter().map(Packed::unpack).collect();
            builder.split_if_full();
            let chunk = fit::encode(&samples, from_ms, |vm| builder.name(vm));
            builder.add(&key, &chunk);
        }
        (builder.finish(), count)
    }
}
