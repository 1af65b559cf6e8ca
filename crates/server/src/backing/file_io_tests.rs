//! Tests of I/Os on a file: against a fake file with short transfers, errors and lost durability.

use proptest::prelude::*;
use tidegate_core::request::{DeviceIo, DiskId, IoId, VmId};
use tidegate_core::time::Nanos;

use super::*;
use crate::buffer::{Pool, Region};
use crate::disk_file_monitor::State;

/// Size of the fake file in bytes.
const SIZE: u64 = 64 << 10;
/// Block size of the fake file in bytes.
const BLOCK: u32 = 4096;

/// Fake file that carries out system calls as far as its faults allow.
struct Fake {
    bytes: Vec<u8>,
    /// Faults, taken from the end, one for each call; none are left once it is empty.
    faults: Vec<Fault>,
    /// Number of syncs.
    synced: u32,
    /// Number of system calls.
    calls: u32,
    /// Offsets of writes that a power cut would lose: written without `RWF_DSYNC` and not synced
    /// since.
    volatile: Vec<u64>,
}

/// Fault of a system call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// Transfers at most this many bytes.
    Short(usize),
    /// Fails with this error number, without any effect.
    Error(i32),
}

impl Fake {
    fn new(faults: &[Fault]) -> Fake {
        let bytes = (0..SIZE).map(|i| (i / 3) as u8).collect();
        Fake {
            bytes,
            faults: faults.to_vec(),
            synced: 0,
            calls: 0,
            volatile: Vec::new(),
        }
    }

    /// Carries out the system call of a step; returns the bytes transferred, or the error number.
    fn call(&mut self, step: Step, ranges: &[Mem]) -> Result<u32, i32> {
        self.calls += 1;
        assert!(self.calls < 1000, "the I/O does not end");
        let most = match self.faults.pop() {
            Some(Fault::Error(errno)) => return Err(errno),
            Some(Fault::Short(n)) => n,
            _ => usize::MAX,
        };
        match step {
            Step::Read(offset) => Ok(self.transfer(offset, ranges, most, false)),
            Step::Write { offset, dsync } => {
                if !dsync {
                    self.volatile.push(offset);
                }
                Ok(self.transfer(offset, ranges, most, true))
            }
            Step::Sync => {
                self.synced += 1;
                self.volatile.clear();
                Ok(0)
            }
            Step::Allocate { offset, len, .. } => {
                self.volatile.push(offset);
                self.bytes[offset as usize..(offset + len) as usize].fill(0);
                Ok(0)
            }
            Step::Bounce(_) | Step::Done(_) => unreachable!("not a call"),
        }
    }

    fn transfer(&mut self, offset: u64, ranges: &[Mem], most: usize, write: bool) -> u32 {
        let mut at = offset as usize;
        let mut left = most;
        for range in ranges {
            let mut n = range.len().min(left);
            if !write {
                n = n.min(self.bytes.len().saturating_sub(at));
            }
            if write {
                range.read(&mut self.bytes[at..at + n]);
            } else if n > 0 {
                range.write(&self.bytes[at..at + n]);
            }
            at += n;
            left -= n;
            if n < range.len() {
                break;
            }
        }
        (at - offset as usize) as u32
    }
}

fn io(op: Op, offset: u64, len: u32, fua: bool) -> DeviceIo {
    DeviceIo {
        id: IoId::from_bits(0),
        vm: VmId::from_bits(0),
        disk: DiskId::from_bits(0),
        op,
        addr: offset,
        offset,
        len,
        fua,
        keep_allocated: false,
        first_ops: 1,
        first_bytes: u64::from(len),
        whole_len: len,
        arrived: Nanos::ZERO,
    }
}

/// I/O state machine with the memory that it works on.
struct Bench {
    facts: FileFacts,
    pool: Pool,
    region: Region,
    zeroes: Region,
    io: FileIo,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            facts: FileFacts::for_test(SIZE, BLOCK),
            pool: Pool::new(8 << 20).unwrap(),
            region: Region::new(SIZE as usize).unwrap(),
            zeroes: Region::new(ZEROES).unwrap(),
            io: FileIo::new(),
        }
    }

    /// Runs an I/O on the memory at the beginning of the region.
    fn run(&mut self, fake: &mut Fake, io: DeviceIo) -> Outcome {
        let memory = self.region.mem(0, io.len as usize);
        let ranges = matches!(io.op, Op::Read | Op::Write).then_some(memory);
        self.run_on(fake, io, ranges.into_iter())
    }

    /// Runs an I/O on the given memory.
    fn run_on(
        &mut self,
        fake: &mut Fake,
        io: DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Outcome {
        let zeroes = self.zeroes.mem(0, ZEROES);
        self.io.begin(&self.facts, &io, ranges, zeroes);
        let mut out = Vec::new();
        let outcome = loop {
            match self.io.step(&self.facts, &mut out) {
                Step::Bounce(len) => self.io.give_bounce(self.pool.get(len)),
                Step::Done(outcome) => break outcome,
                step => {
                    let result = fake.call(step, &out);
                    self.io.advance(&mut self.facts, result);
                }
            }
        };
        if let Some(bounce) = self.io.take_bounce() {
            self.pool.put(bounce);
        }
        assert_eq!(self.pool.used(), 0);
        outcome
    }

    /// Returns the first bytes of the region.
    fn memory(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.mem(0, len).read(&mut bytes);
        bytes
    }
}

/// Faults that an I/O must survive: short transfers and interruptions.
fn survivable() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        Just(Fault::None),
        (1usize..6).prop_map(|blocks| Fault::Short(blocks * 4096)),
        (1usize..9000).prop_map(Fault::Short),
        Just(Fault::Error(libc::EINTR)),
        Just(Fault::Error(libc::EAGAIN)),
    ];
    // An undisturbed call after each disturbed one: two without progress in a row mean the end.
    proptest::collection::vec(fault, 0..8)
        .prop_map(|faults| faults.into_iter().flat_map(|f| [Fault::None, f]).collect())
}

proptest! {
    #[test]
    fn transfers_survive_short_results_and_interruptions(
        faults in survivable(),
        offset in 0u64..SIZE,
        len in 1u32..20_000,
        // The last case is on a file system that cannot punch holes: zeroes are written.
        (op, fua, can_punch) in prop::sample::select(vec![
            (Op::Read, false, true),
            (Op::Write, true, true),
            (Op::WriteZeroes, false, true),
            (Op::WriteZeroes, true, false),
        ]),
    ) {
        let len = len.min((SIZE - offset) as u32);
        let mut bench = Bench::new();
        (bench.facts.can_punch, bench.facts.can_zero) = (can_punch, can_punch);
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
        bench.region.mem(0, len as usize).write(&data);
        let mut fake = Fake::new(&faults);
        let range = offset as usize..offset as usize + len as usize;
        let mut expected = fake.bytes.clone();
        match op {
            Op::Write => expected[range.clone()].copy_from_slice(&data),
            Op::WriteZeroes => expected[range.clone()].fill(0),
            _ => {}
        }
        prop_assert_eq!(bench.run(&mut fake, io(op, offset, len, fua)), Ok(()));
        prop_assert!(fake.bytes == expected);
        if op == Op::Read {
            prop_assert!(bench.memory(len as usize) == expected[range]);
        }
    }
}

/// Returns memory for several requests as offset and length of each: separate ranges with gaps
/// between them, in descending order of address.
fn scattered(lens: &[usize]) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut pieces: Vec<_> = (lens.iter().rev())
        .map(|&len| {
            let piece = (at, len);
            at = (at + len).next_multiple_of(BLOCK as usize) + BLOCK as usize;
            piece
        })
        .collect();
    pieces.reverse();
    pieces
}

proptest! {
    /// An I/O of several merged requests has as many ranges.
    #[test]
    fn the_memory_of_several_requests_is_transferred_in_order(
        faults in survivable(),
        offset in 0u64..SIZE / 2,
        lens in proptest::collection::vec(1usize..6000, 1..6),
        aligned in any::<bool>(),
        write in any::<bool>(),
    ) {
        let block = BLOCK as usize;
        let (offset, lens) = if aligned {
            (offset / u64::from(BLOCK) * u64::from(BLOCK),
                lens.iter().map(|len| len.next_multiple_of(block)).collect())
        } else {
            (offset, lens)
        };
        let len = lens.iter().sum::<usize>().min((SIZE - offset) as usize);
        prop_assume!(len == lens.iter().sum::<usize>());
        let pieces = scattered(&lens);
        let mut bench = Bench::new();
        bench.region = Region::new(2 * SIZE as usize).unwrap();
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
        let mut done = 0;
        for &(at, len) in &pieces {
            bench.region.mem(at, len).write(&data[done..done + len]);
            done += len;
        }
        let mut fake = Fake::new(&faults);
        let range = offset as usize..offset as usize + len;
        let mut expected = fake.bytes.clone();
        if write {
            expected[range.clone()].copy_from_slice(&data);
        }
        let op = if write { Op::Write } else { Op::Read };
        let memory: Vec<Mem> = pieces.iter().map(|&(at, len)| bench.region.mem(at, len)).collect();
        let io = io(op, offset, len as u32, false);
        let outcome = bench.run_on(&mut fake, io, memory.into_iter());
        prop_assert_eq!(outcome, Ok(()));
        prop_assert!(fake.bytes == expected);
        let mut read = Vec::new();
        for &(at, len) in &pieces {
            let mut bytes = vec![0; len];
            bench.region.mem(at, len).read(&mut bytes);
            read.extend(bytes);
        }
        prop_assert!(read == expected[range]);
        if aligned && faults.is_empty() {
            prop_assert_eq!(fake.calls, 1, "one call for all of them");
        }
    }
}

#[test]
fn more_ranges_than_a_call_takes_go_through_one_bounce_buffer() {
    let mut bench = Bench::new();
    bench.facts = FileFacts::for_test(SIZE, 1);
    let pieces = RANGES_MAX + 1;
    let memory: Vec<Mem> = (0..pieces).map(|n| bench.region.mem(n * 8, 4)).collect();
    let data: Vec<u8> = (0..pieces * 8).map(|i| i as u8).collect();
    bench.region.mem(0, data.len()).write(&data);
    let mut fake = Fake::new(&[]);
    let io = io(Op::Write, 100, 4 * pieces as u32, false);
    assert_eq!(bench.run_on(&mut fake, io, memory.into_iter()), Ok(()));
    assert_eq!(fake.calls, 1);
    let expected: Vec<u8> = data
        .chunks(8)
        .flat_map(|piece| piece[..4].to_vec())
        .collect();
    assert!(fake.bytes[100..100 + expected.len()] == expected);
}

#[test]
fn an_io_fails_after_too_many_retries_in_a_row() {
    for errno in [libc::EAGAIN, libc::EINTR] {
        for op in [Op::Read, Op::Write, Op::WriteZeroes, Op::Flush] {
            let len = if op == Op::Flush { 0 } else { BLOCK };
            let run = |times: usize| {
                let mut bench = Bench::new();
                let mut fake = Fake::new(&vec![Fault::Error(errno); times]);
                let outcome = bench.run(&mut fake, io(op, 0, len, false));
                (outcome, fake.calls)
            };
            let (outcome, calls) = run(100);
            assert!(outcome.is_ok() && calls > 100, "{op:?}: {outcome:?}");
            // The first call and 100 retries.
            assert_eq!(
                run(500),
                (Err(IoError::Io), 1 + u32::from(RETRIES_MAX)),
                "{op:?}"
            );
        }
    }
}

/// A request that reaches into the missing part of a truncated file fails; it neither reads zeroes
/// nor writes them back around its data.
#[test]
fn requests_beyond_the_end_of_a_truncated_file_fail_without_effect() {
    for (op, offset, len) in [
        (Op::Read, 0, 32 << 10),
        (Op::Read, 100, 20_000),
        (Op::Read, 16 << 10, 4096),
        (Op::Write, 9_000, 100),
        (Op::Write, 4096, 6_000),
        (Op::Write, 20_000, 100),
    ] {
        let mut bench = Bench::new();
        let mut fake = Fake::new(&[]);
        fake.bytes.truncate(10_000);
        let before = fake.bytes.clone();
        let outcome = bench.run(&mut fake, io(op, offset, len, false));
        assert_eq!(outcome, Err(IoError::Io), "{op:?} {offset} {len}");
        assert!(fake.bytes == before, "{op:?} {offset} {len}");
        // After the first such error, the disk refuses all requests without a system call.
        let calls = fake.calls;
        for op in [Op::Read, Op::Write, Op::Flush, Op::WriteZeroes, Op::Discard] {
            let outcome = bench.run(&mut fake, io(op, 0, 4096, false));
            assert_eq!(outcome, Err(IoError::Io), "{op:?}");
        }
        assert_eq!(fake.calls, calls);
        assert_eq!(bench.facts.watched.state(), State::Shrunk);
    }
    let mut bench = Bench::new();
    let mut fake = Fake::new(&[]);
    fake.bytes.truncate(10_000);
    let read = io(Op::Read, 4096, 4096, false);
    assert_eq!(bench.run(&mut fake, read), Ok(()), "a range before the end");
}

#[test]
fn a_failed_flush_fails_the_disk_for_good() {
    let mut bench = Bench::new();
    let mut fake = Fake::new(&[Fault::Error(libc::EIO)]);
    assert_eq!(
        bench.run(&mut fake, io(Op::Flush, 0, 0, false)),
        Err(IoError::Io)
    );
    assert!(bench.facts.errors.failed.is_some());
    for op in [Op::Write, Op::Flush, Op::WriteZeroes, Op::Discard] {
        assert_eq!(
            bench.run(&mut fake, io(op, 0, 4096, false)),
            Err(IoError::Io)
        );
    }
    assert_eq!(fake.calls, 1, "nothing is tried again");
    assert_eq!(bench.run(&mut fake, io(Op::Read, 0, 4096, false)), Ok(()));
}

#[test]
fn a_failed_durable_write_fails_the_disk_and_a_plain_one_does_not() {
    for (fua, fails) in [(true, true), (false, false)] {
        let mut bench = Bench::new();
        let mut fake = Fake::new(&[Fault::Error(libc::EIO)]);
        assert_eq!(
            bench.run(&mut fake, io(Op::Write, 0, 4096, fua)),
            Err(IoError::Io)
        );
        assert_eq!(bench.facts.errors.failed.is_some(), fails);
    }
}

#[test]
fn a_full_file_system_fails_one_request_and_not_the_disk() {
    for op in [Op::Write, Op::WriteZeroes] {
        for full in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            let mut bench = Bench::new();
            let mut fake = Fake::new(&[Fault::Error(full)]);
            assert_eq!(
                bench.run(&mut fake, io(op, 0, 4096, true)),
                Err(IoError::NoSpace)
            );
            assert!(bench.facts.errors.failed.is_none());
            assert!(bench.facts.errors.no_space().is_some());
            assert_eq!(bench.run(&mut fake, io(op, 0, 4096, true)), Ok(()));
        }
    }
}

#[test]
fn zeroes_are_written_where_holes_are_not_supported_and_holes_not_tried_again() {
    let mut bench = Bench::new();
    // Taken from the end: first the hole, then the zero range are refused.
    let refused = Fault::Error(libc::EOPNOTSUPP);
    let mut fake = Fake::new(&[refused, refused]);
    bench
        .run(&mut fake, io(Op::WriteZeroes, 5, 10_000, false))
        .unwrap();
    assert!(fake.bytes[5..10_005].iter().all(|b| *b == 0));
    assert_eq!(fake.bytes[4], 1, "the byte before the range is unchanged");
    assert!(!bench.facts.can_punch && !bench.facts.can_zero);
    let calls = fake.calls;
    bench
        .run(&mut fake, io(Op::Discard, 0, 4096, false))
        .unwrap();
    assert_eq!(fake.calls, calls, "a discard without support is dropped");
}

#[test]
fn durable_zeroes_by_a_hole_are_synced() {
    let mut bench = Bench::new();
    let mut fake = Fake::new(&[]);
    bench
        .run(&mut fake, io(Op::WriteZeroes, 0, 4096, true))
        .unwrap();
    assert_eq!(fake.synced, 1);
}

/// On a file system where `RWF_DSYNC` is not trusted, one sync follows the last piece of a durable
/// request, after every short and repeated write. Where it is trusted, no sync is made.
#[test]
fn without_a_trusted_dsync_flag_every_durable_request_ends_with_a_sync() {
    for durably in [Durably::Flag, Durably::Sync] {
        for (op, offset, len) in [
            (Op::Write, 0, 4096),
            (Op::Write, 100, 9000),
            (Op::WriteZeroes, 100, 60_000),
            (Op::Discard, 0, 8192),
        ] {
            for can_punch in [true, false] {
                let mut bench = Bench::new();
                bench.facts.durably = durably;
                (bench.facts.can_punch, bench.facts.can_zero) = (can_punch, can_punch);
                let mut fake = Fake::new(&[Fault::Short(4096), Fault::Error(libc::EINTR)]);
                let outcome = bench.run(&mut fake, io(op, offset, len, true));
                assert_eq!(outcome, Ok(()), "{op:?} {durably:?}");
                assert!(fake.volatile.is_empty(), "{op:?} {durably:?} {can_punch}");
                let allocated = op == Op::Discard || (op == Op::WriteZeroes && can_punch);
                let by_sync = allocated || durably == Durably::Sync;
                assert_eq!(
                    fake.synced,
                    u32::from(by_sync),
                    "{op:?} {durably:?} {can_punch}"
                );
            }
        }
        let mut bench = Bench::new();
        bench.facts.durably = durably;
        let mut fake = Fake::new(&[]);
        bench.run(&mut fake, io(Op::Write, 0, 4096, false)).unwrap();
        assert_eq!(
            (fake.synced, fake.calls),
            (0, 1),
            "a plain write needs no sync"
        );
    }
}

#[test]
fn a_durable_write_whose_sync_fails_fails_the_disk() {
    for (faults, fails) in [
        // Faults are taken from the end: `None` is for the write, the error for its sync.
        (vec![Fault::Error(libc::EIO), Fault::None], true),
        (vec![Fault::Error(libc::ENOSPC), Fault::None], true),
        (vec![Fault::Error(libc::EIO)], false),
    ] {
        let mut bench = Bench::new();
        bench.facts.durably = Durably::Sync;
        let mut fake = Fake::new(&faults);
        let outcome = bench.run(&mut fake, io(Op::Write, 0, 4096, true));
        assert_eq!(outcome, Err(IoError::Io));
        assert_eq!(bench.facts.errors.failed.is_some(), fails, "{faults:?}");
    }
}

#[test]
fn a_write_without_progress_fails() {
    let mut bench = Bench::new();
    let mut fake = Fake::new(&[Fault::Short(0); 3]);
    assert_eq!(
        bench.run(&mut fake, io(Op::Write, 0, 4096, false)),
        Err(IoError::Io)
    );
}

#[test]
fn in_memory_a_flush_is_no_call_and_fails_on_a_disk_that_has_failed() {
    let mut bench = Bench::new();
    bench.facts.in_memory = true;
    let mut fake = Fake::new(&[]);
    assert_eq!(bench.run(&mut fake, io(Op::Flush, 0, 0, false)), Ok(()));
    let discard = bench.run(&mut fake, io(Op::Discard, 0, 8192, true));
    assert_eq!((discard, fake.calls, fake.synced), (Ok(()), 1, 0));
    bench.facts.errors.fail(libc::EIO, "write");
    let flush = bench.run(&mut fake, io(Op::Flush, 0, 0, false));
    assert_eq!(flush, Err(IoError::Io));
}

#[test]
fn a_durable_write_fails_the_disk_unless_its_memory_was_the_cause() {
    for (errno, fails) in [(libc::EIO, true), (libc::EFAULT, false)] {
        let mut bench = Bench::new();
        bench.facts.durably = Durably::Flag;
        let mut fake = Fake::new(&[Fault::Error(errno)]);
        let outcome = bench.run(&mut fake, io(Op::Write, 0, 4096, true));
        assert_eq!(outcome, Err(IoError::Io));
        assert_eq!(bench.facts.errors.failed.is_some(), fails, "{errno}");
    }
}
