//! Reads of files that never wait: the same bytes and errors with the ring and without it.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use super::{Completion, FileId, Ring, Wake};
use crate::buffer::Pool;

/// A ring with a file of 8 KiB whose bytes differ, and room for four pages.
struct Bench {
    ring: Ring,
    file: FileId,
    pool: Pool,
}

impl Bench {
    fn new(instant: bool) -> Bench {
        let mut ring = Ring::new(8, 4).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[[1; 4096], [2; 4096]].concat()).unwrap();
        let file = ring.add_file(file.into()).unwrap();
        if instant {
            ring.expect_instant(file);
        }
        let pool = Pool::new(64 << 20).unwrap();
        Bench { ring, file, pool }
    }

    fn wait(&mut self, operations: usize) -> Vec<Completion> {
        let mut out = Vec::new();
        while out.len() < operations {
            self.ring.turn(None).unwrap();
            self.ring.take(&mut out);
        }
        self.ring.turn(Some(Duration::ZERO)).unwrap();
        self.ring.take(&mut out);
        assert_eq!(out.len(), operations, "{out:?}");
        out
    }
}

fn first_byte(buffer: &crate::buffer::Buffer) -> u8 {
    let mut byte = [0];
    buffer.mem().slice(0, 1).read(&mut byte);
    byte[0]
}

#[test]
fn a_read_brings_the_same_with_company_and_without() {
    for instant in [false, true] {
        for company in 0..12 {
            let mut bench = Bench::new(instant);
            let to = bench.pool.get(4096);
            let page = to.mem().slice(0, 4096);
            bench.ring.read(bench.file, &[page], 4096, 7);
            (0..company).for_each(|_| bench.ring.sync_data(bench.file, 8));
            let done = bench.wait(1 + company);
            let read = done.iter().find(|done| done.token == 7).expect("it ends");
            assert_eq!(read.result, Ok(4096));
            assert_eq!(first_byte(&to), 2);
        }
    }
}

#[test]
fn only_a_read_that_is_prepared_first_and_alone_needs_no_ring() {
    let mut bench = Bench::new(true);
    let [a, b] = [(); 2].map(|()| bench.pool.get(4096));
    let [pa, pb] = [&a, &b].map(|page| page.mem().slice(0, 4096));
    bench.ring.read(bench.file, &[pa], 0, 1);
    assert!(bench.ring.lone_read.is_some());
    assert_eq!(bench.wait(1)[0].result, Ok(4096));
    bench.ring.read(bench.file, &[pa], 4096, 1);
    bench.ring.read(bench.file, &[pb], 0, 2);
    assert!(bench.ring.lone_read.is_none());
    assert_eq!(
        bench
            .wait(2)
            .iter()
            .filter(|done| done.result == Ok(4096))
            .count(),
        2
    );
    assert_eq!((first_byte(&a), first_byte(&b)), (2, 1));
    // Two ranges, and the file's end: the caller goes on with a short read.
    bench.ring.read(bench.file, &[pa, pb], 0, 1);
    assert!(bench.ring.lone_read.is_none());
    assert_eq!(bench.wait(1)[0].result, Ok(8192));
    bench.ring.read(bench.file, &[pa], 6144, 1);
    assert_eq!(bench.wait(1)[0].result, Ok(2048));
}

#[test]
fn a_file_that_is_removed_takes_its_read_along_and_leaves_its_mark() {
    let mut bench = Bench::new(true);
    let to = bench.pool.get(4096);
    bench
        .ring
        .read(bench.file, &[to.mem().slice(0, 4096)], 4096, 1);
    drop(bench.ring.remove_file(bench.file));
    let next = File::open("/dev/zero").unwrap();
    let next = bench.ring.add_file(next.into()).unwrap();
    assert_eq!(next, bench.file, "the index is used again");
    assert_eq!(bench.wait(1)[0].result, Ok(4096));
    assert_eq!(first_byte(&to), 2, "the read was of the file before");
    bench.ring.read(next, &[to.mem().slice(0, 4096)], 0, 1);
    assert!(bench.ring.lone_read.is_none());
    assert_eq!(bench.wait(1)[0].result, Ok(4096));
}

#[test]
fn a_read_that_fails_has_the_error_of_the_call() {
    let mut bench = Bench::new(true);
    let folder = bench
        .ring
        .add_file(File::open("/").unwrap().into())
        .unwrap();
    bench.ring.expect_instant(folder);
    let to = bench.pool.get(4096);
    bench.ring.read(folder, &[to.mem()], 0, 1);
    assert!(bench.ring.lone_read.is_some());
    assert_eq!(bench.wait(1)[0].result, Err(libc::EISDIR));
}

#[test]
fn lone_reads_in_turn_keep_no_other_completion_away() {
    let mut bench = Bench::new(true);
    let wake = Wake::new().unwrap();
    let count = bench.pool.get(8);
    let file = bench.ring.add_file(wake.receiver().unwrap()).unwrap();
    bench.ring.await_wake(file, count.mem(), 1);
    bench.ring.turn(Some(Duration::ZERO)).unwrap();
    let page = bench.pool.get(4096);
    wake.wake();
    let mut done = Vec::new();
    // The kernel may need a moment, in which it sees no call.
    let begun = Instant::now();
    while !done.iter().any(|done: &Completion| done.token == 1) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{done:?}");
        done.clear();
        bench.ring.read(bench.file, &[page.mem()], 0, 2);
        assert!(bench.ring.lone_read.is_some());
        bench.ring.turn(Some(Duration::ZERO)).unwrap();
        bench.ring.take(&mut done);
    }
}
