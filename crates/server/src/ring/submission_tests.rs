//! Operations of several ranges in a submission queue that fills up.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Ring;
use crate::buffer::Region;

const ENTRIES: usize = 8;
const RANGE: usize = 512;

#[test]
fn vectors_stay_as_they_are_until_their_entry_is_submitted() {
    // Wherever the queue is full: before the first write, between them, or not at all.
    for (instant, prepared) in [false, true]
        .into_iter()
        .flat_map(|i| (0..=ENTRIES).map(move |n| (i, n)))
    {
        let mut ring = Ring::new(ENTRIES as u32, 4).unwrap();
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = ring.add_file(path.reopen().unwrap().into()).unwrap();
        let from = Region::new(9 * RANGE).unwrap();
        let content: Vec<u8> = (0..9 * RANGE).map(|at| (at / RANGE) as u8 + 1).collect();
        from.mem(0, content.len()).write(&content);
        if instant {
            // A read that may be made without the ring takes an entry after all.
            ring.expect_instant(file);
            ring.read(file, &[from.mem(8 * RANGE, RANGE)], 1 << 20, 1);
        }
        (0..prepared).for_each(|_| ring.complete_soon(0));
        let operations = prepared + usize::from(instant) + 4;
        // Ranges that neither lie nor go beside each other.
        for (n, at) in [6, 0, 4, 2].into_iter().enumerate() {
            let ranges = [at + 1, at].map(|at| from.mem(at * RANGE, RANGE));
            ring.write(file, &ranges, (n * 2 * RANGE) as u64, false, 2);
        }
        let mut done = Vec::new();
        while done.len() < operations {
            ring.turn(None).unwrap();
            ring.take(&mut done);
        }
        let written = done.iter().filter(|done| done.token == 2);
        assert!(
            written
                .map(|done| done.result)
                .eq([Ok(2 * RANGE as u32); 4])
        );
        let mut found = vec![0; 8 * RANGE];
        File::open(path.path())
            .unwrap()
            .read_exact_at(&mut found, 0)
            .unwrap();
        let found: Vec<u8> = found.chunks(RANGE).map(|range| range[0]).collect();
        assert_eq!(found, [8, 7, 2, 1, 6, 5, 4, 3], "behind {prepared} others");
    }
}
