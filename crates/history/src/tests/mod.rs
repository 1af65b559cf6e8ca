//! Tests of the recorder against a model that keeps every sample.

mod damage;
mod format;
mod limits;
mod sums;

use std::sync::Arc;

use proptest::prelude::*;

use crate::column::{Column, Merge, Values};
use crate::latency::{BUCKETS, Latency};
use crate::query::{Answer, Query, Request, Step};
use crate::recorder::Recorder;
use crate::sample::{Key, Sample};

/// Time at which tests begin, a whole number of days since 1970.
pub(super) const BEGIN_MS: u64 = 20_000 * 86_400_000;

/// Returns the answer to a query of memory alone.
pub(super) fn ask(
    recorder: &Recorder,
    key: &Key,
    (from_ms, to_ms): (u64, u64),
    step: Step,
) -> Answer {
    let request = Request {
        key: key.clone(),
        from_ms,
        to_ms,
        step,
    };
    recorder.query(Query::new(request.clone()))
}

/// Returns the sums of the columns that add up, but those by window for fine points.
pub(super) fn sums<'a>(all: impl IntoIterator<Item = &'a Values>, step: Step) -> Vec<u64> {
    let mut sum = Values::default();
    all.into_iter().for_each(|values| sum.merge(values));
    let has = |column: &Column| step != Step::Fine || !column.is_by_window();
    let adds = |column: &Column| column.merge() == Merge::Sum && has(column);
    Column::ALL
        .into_iter()
        .filter(adds)
        .map(|column| sum[column])
        .collect()
}

/// Samples with values of all widths.
pub(super) fn sample() -> impl Strategy<Value = Sample> {
    let value = (any::<u64>(), 20u32..64).prop_map(|(value, shift)| value >> shift);
    let values = prop::collection::vec((0..Column::COUNT, value), 0..20);
    let cells = prop::collection::btree_map(0..BUCKETS, 1u64..100_000, 0..200);
    let behind = prop::collection::vec((0u8..6, 1u64..1 << 30), 0..6);
    (values, cells, behind).prop_map(|(columns, cells, behind)| {
        let mut values = Values::default();
        for (column, value) in columns {
            values[Column::ALL[column]] = value;
        }
        for (column, _) in Column::QUANTILES {
            values[column] = 0;
        }
        let mut sample = Sample {
            end_ms: 0,
            span_ms: 1000,
            values,
            latency: Latency::new(cells.into_iter().collect()),
            behind: Vec::new(),
        };
        for (vm, waited) in behind {
            let vm: Arc<str> = format!("vm-{vm}").into();
            crate::sample::add_behind(&mut sample.behind, &vm, waited);
        }
        sample
    })
}
