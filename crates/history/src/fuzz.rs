//! Body of the fuzz target: blocks that may say anything.

use crate::block::{Block, Header};
use crate::query::{Query, Request, Step};
use crate::recorder::{Position, Recorder, vm};

/// Reads `data` as a file of blocks, restores a recorder from it and queries it.
///
/// Checksums are computed anew, so that what is behind them is reached.
///
/// # Panics
/// If damaged history does.
pub fn blocks(data: &[u8]) {
    let mut rest = data;
    let mut blocks = Vec::new();
    while let Ok(header) = Header::read(rest) {
        let Some(bytes) = rest.get(..header.total_bytes()) else {
            break;
        };
        blocks.push(crate::block::with_checksum(bytes.to_vec()));
        rest = &rest[header.total_bytes()..];
    }
    let mut recorder = Recorder::new(1, 0, true);
    recorder.restore(
        Position::default(),
        blocks.iter().map(|bytes| bytes.as_slice().into()),
    );
    for step in [Step::Fine, Step::Every(10_000)] {
        let request = Request {
            key: vm("a"),
            from_ms: 0,
            to_ms: u64::MAX,
            step,
        };
        let mut query = Query::new(request.clone());
        for bytes in &blocks {
            let block = Block::parse(bytes).expect("its checksum was computed anew");
            // Damage behind the checksum is refused, and what was read before it counts.
            let _ = query.read(&block);
        }
        let _ = recorder.query(query);
    }
    let _ = recorder.close(u64::MAX, u64::MAX);
}
