//! Fine chunks that fit their budget: what does not fit is made coarser.

use std::sync::Arc;

use crate::budget::{FINE_CHUNK_MAX, SAMPLE_CELLS_MAX, WINDOW_SAMPLES_MAX};
use crate::chunk::{Chunk, Detail, Point};
use crate::column::{Column, Values};
use crate::latency::Latency;
use crate::sample::Sample;

/// Steps in which a chunk is made coarser: cells of the window's histogram, samples that become one
/// point, VMs that were waited for. A histogram of the last but one has a cell for an octave.
const LEVELS: [(usize, usize, usize); 8] = [
    (SAMPLE_CELLS_MAX, 1, 4),
    (48, 1, 4),
    (27, 1, 4),
    (27, 1, 2),
    (27, 2, 2),
    (27, 4, 1),
    (27, WINDOW_SAMPLES_MAX, 1),
    (0, WINDOW_SAMPLES_MAX, 0),
];

/// Sets the columns of quantiles from a histogram.
pub(crate) fn set_quantiles(values: &mut Values, latency: &Latency) {
    for (column, per_mille) in Column::QUANTILES {
        values[column] = latency
            .quantile(per_mille)
            .map_or(0, |bucket| u64::from(bucket) + 1);
    }
}

/// Encodes the samples of a series in a window that begins at `base_ms`, in at most
/// [`FINE_CHUNK_MAX`] bytes. `index` returns the index of a VM's name in the block.
pub(crate) fn encode(
    samples: &[Sample],
    base_ms: u64,
    mut index: impl FnMut(&Arc<str>) -> usize,
) -> Vec<u8> {
    let mut whole = samples[0].clone();
    samples[1..].iter().for_each(|later| whole.merge(later));
    let behind: Vec<_> = (whole.behind.iter())
        .map(|(vm, waited)| (index(vm), *waited))
        .collect();
    let mut behind = behind;
    crate::sample::keep_largest(&mut behind, crate::budget::BEHIND_MAX);
    let mut encoded = Vec::new();
    for (cells, group, vms) in LEVELS {
        let mut latency = whole.latency.clone();
        latency.coarsen(cells);
        if cells == 0 {
            latency = Latency::default();
        }
        let chunk = Chunk {
            points: samples.chunks(group).map(point).collect(),
            details: vec![Detail {
                latency,
                behind: behind[..vms.min(behind.len())].to_vec(),
            }],
        };
        encoded = chunk.encode(base_ms);
        if encoded.len() <= FINE_CHUNK_MAX {
            break;
        }
    }
    assert!(
        encoded.len() <= FINE_CHUNK_MAX,
        "one point takes {} bytes",
        encoded.len()
    );
    encoded
}

/// Returns the point of successive samples together.
fn point(samples: &[Sample]) -> Point {
    let mut whole = samples[0].clone();
    samples[1..].iter().for_each(|later| whole.merge(later));
    set_quantiles(&mut whole.values, &whole.latency);
    Point {
        end_ms: whole.end_ms,
        span_ms: whole.span_ms,
        values: whole.values,
    }
}
