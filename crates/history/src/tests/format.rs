//! The format on disk stays readable: blocks that the first version wrote.

use super::BEGIN_MS;
use crate::block::{Block, Header};
use crate::budget::WINDOW_MS;
use crate::column::Column;
use crate::latency::Latency;
use crate::query::{Query, Request, Step};
use crate::recorder::{Recorder, vm};
use crate::sample::Sample;

/// Blocks of version 1: five minutes of VM `oltp` that waits behind `backup`.
const VERSION_1: &[u8] = include_bytes!("version-1.tgh");

/// Records what [`VERSION_1`] has.
fn record() -> Vec<u8> {
    let mut recorder = Recorder::new(0x7469_6465, BEGIN_MS, false);
    let mut bytes = Vec::new();
    for second in 1..=300u64 {
        let now = BEGIN_MS + 1000 * second;
        let mut sample = Sample {
            end_ms: now,
            span_ms: 1000,
            ..Sample::default()
        };
        // Each column in use, with a value that tells columns and seconds apart.
        for column in Column::ALL {
            sample.values[column] = u64::from(column.id()) * 1000 + second;
        }
        sample.latency = Latency::new(vec![((second % 64) as u16, 3), (200, 1)]);
        sample.behind = vec![("backup".into(), 1000 * second)];
        recorder.push(vm("oltp"), sample);
        if second % 10 == 0 {
            for (_, blocks) in recorder.close(now, now) {
                blocks.iter().for_each(|block| bytes.extend(&**block));
            }
        }
    }
    assert_eq!(WINDOW_MS, 10_000);
    bytes
}

/// `TIDEGATE_BLESS=1` writes the file, which is to be done for a new version of the format alone.
#[test]
fn blocks_of_the_first_version_are_read() {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/version-1.tgh");
        std::fs::write(file, record()).expect("written");
        return;
    }
    let ask = |step| {
        let request = Request {
            key: vm("oltp"),
            from_ms: 0,
            to_ms: u64::MAX,
            step,
        };
        let mut query = Query::new(request.clone());
        let mut rest = VERSION_1;
        while !rest.is_empty() {
            let block = Block::parse(rest).expect("whole");
            query.read(&block).expect("sound");
            rest = &rest[Header::read(rest).expect("a header").total_bytes()..];
        }
        query.finish()
    };
    let fine = ask(Step::Fine);
    // Columns that are all in use do not fit: two seconds became one point.
    assert!(fine.intervals.len() >= 30, "{}", fine.intervals.len());
    let reads: u64 = fine
        .intervals
        .iter()
        .map(|interval| interval.values[Column::Reads])
        .sum();
    assert_eq!(reads, 300 * 301 / 2);
    // The only coarse block covers the windows, which come before it in the file.
    let request = Request {
        key: vm("oltp"),
        from_ms: 0,
        to_ms: u64::MAX,
        step: Step::Every(300_000),
    };
    let mut query = Query::new(request.clone());
    let mut rest = VERSION_1;
    while !rest.is_empty() {
        let block = Block::parse(rest).expect("whole");
        if block.header.kind == crate::block::BlockKind::Coarse {
            query.read(&block).expect("sound");
        }
        rest = &rest[block.header.total_bytes()..];
    }
    let all = query.finish();
    assert_eq!(all.intervals.len(), 1);
    let interval = &all.intervals[0];
    for column in Column::ALL {
        let sum = 300 * 1000 * u64::from(column.id()) + 300 * 301 / 2;
        let largest = 1000 * u64::from(column.id()) + 300;
        let expected = match column.merge() {
            crate::column::Merge::Sum => sum,
            crate::column::Merge::Max => largest,
            // A quarter of the requests took the longest.
            crate::column::Merge::Quantile if column == Column::P50 => continue,
            crate::column::Merge::Quantile => 201,
        };
        assert_eq!(interval.values[column], expected, "{column:?}");
    }
    assert_eq!(interval.behind, [("backup".into(), 1000 * 300 * 301 / 2)]);
    assert_eq!(all.running.len(), 1);
}
