//! The format on disk stays readable: blocks that the first version wrote.

use super::BEGIN_MS;
use crate::block::{Block, BlockKind};
use crate::budget::WINDOW_MS;
use crate::column::{Column, Merge};
use crate::latency::Latency;
use crate::query::{Query, Request, Step};
use crate::recorder::{Recorder, vm};
use crate::sample::Sample;

/// Blocks of version 1 without [`Column::BY_WINDOW`]: five minutes of VM `oltp` that waits behind
/// `backup`.
const VERSION_1: &[u8] = include_bytes!("version-1.tgh");
/// Blocks of version 1 with all columns.
const WITH_CLASSES: &[u8] = include_bytes!("version-1-classes.tgh");

/// Records what the files have, but for columns that `has` leaves out.
fn record(has: impl Fn(Column) -> bool) -> Vec<u8> {
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
        for column in Column::ALL.into_iter().filter(|&column| has(column)) {
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

/// `TIDEGATE_BLESS=1` writes the files, which is to be done for a new version of the format alone.
#[test]
fn blocks_of_the_first_version_are_read() {
    let without = |column: Column| !column.is_by_window();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/");
        let write = |file, bytes| {
            std::fs::write(format!("{directory}{file}"), bytes).expect("written");
        };
        write("version-1.tgh", record(without));
        write("version-1-classes.tgh", record(|_| true));
        return;
    }
    assert_read(VERSION_1, without);
    assert_read(WITH_CLASSES, |_| true);
}

/// Asserts that blocks have what [`record`] recorded.
fn assert_read(blocks: &[u8], has: impl Fn(Column) -> bool) {
    let ask = |kind, step| {
        let request = Request {
            key: vm("oltp"),
            from_ms: 0,
            to_ms: u64::MAX,
            step,
        };
        let mut query = Query::new(request.clone());
        let mut rest = blocks;
        while !rest.is_empty() {
            let block = Block::parse(rest).expect("whole");
            if block.header.kind == kind {
                query.read(&block).expect("sound");
            }
            rest = &rest[block.header.total_bytes()..];
        }
        query.finish()
    };
    let fine = ask(BlockKind::Fine, Step::Fine);
    // Columns that are all in use do not fit: two seconds became one point.
    assert!(fine.intervals.len() >= 30, "{}", fine.intervals.len());
    let reads: u64 = fine
        .intervals
        .iter()
        .map(|interval| interval.values[Column::Reads])
        .sum();
    assert_eq!(reads, 300 * 301 / 2);
    // The only coarse block has what the fine ones have.
    for kind in [BlockKind::Coarse, BlockKind::Fine] {
        let all = ask(kind, Step::Every(300_000));
        assert_eq!(all.intervals.len(), 1);
        let interval = &all.intervals[0];
        for column in Column::ALL {
            let sum = 300 * 1000 * u64::from(column.id()) + 300 * 301 / 2;
            let largest = 1000 * u64::from(column.id()) + 300;
            let expected = match column.merge() {
                Merge::Sum => sum,
                Merge::Max => largest,
                // A quarter of the requests took the longest.
                Merge::Quantile if column == Column::P50 => continue,
                Merge::Quantile => 201,
            };
            let expected = if has(column) { expected } else { 0 };
            assert_eq!(interval.values[column], expected, "{kind:?} {column:?}");
        }
        assert_eq!(interval.behind, [("backup".into(), 1000 * 300 * 301 / 2)]);
        assert_eq!(all.running.len(), 1);
    }
}
