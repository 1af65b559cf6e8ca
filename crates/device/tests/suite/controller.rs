//! Tests of array controllers: caches, read-ahead, destaging and durability.

use crate::common::{KIB, MIB, Rng, any_op, io, keep, once};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_device::controller::Controller;
use tidegate_device::{Completion, Model, ModelIo, Spec};

const BASE: &str = "[controller]\nqueue_depth = 64\ncommand_overhead = \"10 us\"\n\
                    interface_rate = \"1 GB/s\"\n";
const READS: &str = "[controller.read_cache]\nsize = \"4 MiB\"\npage = \"16 KiB\"\n";
const AHEAD: &str = "[controller.read_ahead]\ndistance = \"512 KiB\"\nio = \"128 KiB\"\n\
                     streams = 8\n";
const WRITES: &str = "[controller.write_cache]\nsize = \"1 MiB\"\nhigh_watermark = \"768 KiB\"\n\
                      low_watermark = \"512 KiB\"\nidle = \"50 ms\"\ndestage_io = \"64 KiB\"\n\
                      destage_depth = 4\n";

/// Description of four disks behind a controller with these tables.
fn text(tables: &[&str]) -> String {
    format!(
        "name = \"controller x 4\"\ndescription = \"test\"\n{}\n[raid0]\nmembers = 4\n\
         member = \"hdd-7200-250gb\"\nchunk = \"64 KiB\"\nqueue_depth = 128\n\
         command_overhead = \"0 ns\"\n",
        [&[BASE], tables].concat().concat()
    )
}

fn entry(tables: &[&str]) -> Entry {
    catalogue::parse(&text(tables), "test").unwrap()
}

/// Four disks without a controller.
fn bare() -> Entry {
    let text = text(&[]);
    let (start, end) = (
        text.find("[controller]").unwrap(),
        text.find("[raid0]").unwrap(),
    );
    catalogue::parse(&format!("{}{}", &text[..start], &text[end..]), "test").unwrap()
}

/// Time of 64 KiB from memory: 10 us of the processor, 65.536 us on the port.
const HIT: u64 = 75_536;
const MS: u64 = 1_000_000;

#[test]
fn a_write_ends_in_memory_and_is_read_from_there() {
    let mut disk = entry(&[WRITES]).build();
    let fua = ModelIo {
        fua: true,
        ..ModelIo::write(1, 0, 65_536)
    };
    assert_eq!(once(&mut *disk, Nanos::ZERO, fua), Nanos(HIT));
    let read = ModelIo::read(2, 16 * KIB, 32 * KIB as u32);
    assert_eq!(
        once(&mut *disk, Nanos(MS), read),
        Nanos(MS + 10_000 + 32_768)
    );
    // A read of which the half is dirty goes to the disks.
    let half = ModelIo::read(3, 32 * KIB, 65_536);
    assert!(once(&mut *disk, Nanos(2 * MS), half).0 > 2 * MS + HIT);
}

#[test]
fn commands_take_the_processor_and_the_port_one_after_another() {
    let mut disk = entry(&[WRITES]).build();
    for id in 0..4 {
        disk.submit(Nanos::ZERO, ModelIo::write(id, id * MIB, 65_536));
    }
    disk.submit(Nanos::ZERO, ModelIo::flush(9));
    let mut ended = Vec::new();
    while let Some(at) = disk.next_completion() {
        ended.extend(disk.pop_completed(at));
    }
    // 10 us, then 65.536 us each; the battery lets the flush end with the last of them.
    let ends: Vec<(u64, u64)> = ended.iter().map(|end| (end.id, end.at.0)).collect();
    let at = |n: u64| 10_000 + n * 65_536;
    assert_eq!(
        ends,
        [(0, at(1)), (1, at(2)), (2, at(3)), (3, at(4)), (9, at(4))]
    );
}

#[test]
fn without_a_write_cache_writes_and_flushes_are_the_disks_own() {
    let (mut with, mut without) = (entry(&[READS]).build(), bare().build());
    let write = ModelIo::write(1, 5 * MIB, 65_536);
    let plain = once(&mut *without, Nanos(10_000), write);
    assert_eq!(once(&mut *with, Nanos::ZERO, write), plain);
    let flushed = once(&mut *without, Nanos(plain.0 + 10_000), ModelIo::flush(2));
    assert_eq!(once(&mut *with, plain, ModelIo::flush(2)), flushed);
}

#[test]
fn a_read_brings_whole_pages_and_is_the_same_again_from_memory() {
    let (mut with, mut without) = (entry(&[READS]).build(), bare().build());
    // 4 KiB in the middle of a page: the disks read 16 KiB, and the port moves 4.
    let read = ModelIo::read(1, 5 * MIB + 4 * KIB, 4 * KIB as u32);
    let page = once(
        &mut *without,
        Nanos(10_000),
        ModelIo::read(1, 5 * MIB, 16 * KIB as u32),
    );
    assert_eq!(once(&mut *with, Nanos::ZERO, read), Nanos(page.0 + 4_096));
    let again = ModelIo::read(2, 5 * MIB, 16 * KIB as u32);
    let now = Nanos(page.0 + MS);
    assert_eq!(once(&mut *with, now, again), Nanos(now.0 + 10_000 + 16_384));
}

#[test]
fn a_full_write_cache_lets_writes_wait_for_destages_and_reads_pass() {
    let mut disk = entry(&[READS, WRITES]).build();
    let warm = ModelIo::read(100, 900 * MIB, 16 * KIB as u32);
    let now = once(&mut *disk, Nanos::ZERO, warm);
    for id in 0..20 {
        disk.submit(now, ModelIo::write(id, (20 - id) * 10 * MIB, 65_536));
    }
    disk.submit(now, ModelIo { id: 101, ..warm });
    let mut ends = [0; 102];
    while let Some(at) = disk.next_completion() {
        if let Some(end) = disk.pop_completed(at) {
            ends[end.id as usize] = end.at.0 - now.0;
        }
    }
    // 16 of 64 KiB fit in 1 MiB; the others wait for the disks, of which 16.3 ms and more come.
    let fast = |id: &usize| ends[*id] <= 10_000 * 16 + 65_536 * 16;
    assert_eq!((0..20).filter(fast).count(), 16);
    assert!(
        (16..20).all(|id| ends[id] > 2 * MS && ends[id - 1] <= ends[id]),
        "{ends:?}"
    );
    // The read came last and waits for the processor only: 21 commands, and its own 16 KiB.
    assert_eq!(ends[101], 210_000 + 16_384);
}

#[test]
fn a_stream_is_read_ahead_and_random_reads_are_not() {
    let sequential = |disk: &mut dyn Model| {
        keep(disk, Nanos::ZERO, 1, 400, |n| {
            ModelIo::read(n, n * 44 * KIB, 44 * KIB as u32)
        })
    };
    let plain = sequential(&mut *entry(&[READS]).build()).0;
    let ahead = sequential(&mut *entry(&[READS, AHEAD]).build()).0;
    // 512 KiB ahead are two chunks on each disk: all four work at once.
    assert!(ahead * 2 < plain, "{ahead} {plain}");
    let random = |disk: &mut dyn Model| {
        let rng = &mut Rng(3);
        keep(disk, Nanos::ZERO, 8, 400, |n| {
            ModelIo::read(n, rng.below(1 << 20) * 16 * KIB, 16 * KIB as u32)
        })
    };
    assert_eq!(
        random(&mut *entry(&[READS]).build()),
        random(&mut *entry(&[READS, AHEAD]).build())
    );
}

/// 64 pages are read at random, again and again, beside a stream of many times the cache.
#[test]
fn a_stream_does_not_replace_what_is_read_again() {
    let mut disk = entry(&[READS, AHEAD]).build();
    let rng = &mut Rng(5);
    let mut now = Nanos::ZERO;
    let mut popular = |disk: &mut dyn Model, now: &mut Nanos| {
        let addr = GIB + rng.below(64) * 160 * KIB;
        let began = *now;
        *now = once(disk, began, ModelIo::read(0, addr, 16 * KIB as u32));
        now.0 - began.0 == 10_000 + 16_384
    };
    for _ in 0..600 {
        popular(&mut *disk, &mut now);
    }
    let mut hits = 0;
    for n in 0..2_000 {
        now = once(&mut *disk, now, ModelIo::read(1, n * 64 * KIB, 65_536));
        hits += u32::from(popular(&mut *disk, &mut now));
    }
    assert!(hits > 1_900, "{hits} of 2000");
}

const GIB: u64 = 1 << 30;

#[test]
fn figures_are_refused_with_their_lines() {
    for (tables, from, to, line, expected) in [
        (
            &[READS][..],
            "16 KiB",
            "24 KiB",
            9,
            "read_cache.page: found 24 KiB, allowed: a power of",
        ),
        (
            &[READS],
            "4 MiB",
            "100 KiB",
            8,
            "read_cache.size: found 100 KiB, allowed: 16 to 4194304",
        ),
        (
            &[AHEAD],
            "8",
            "8",
            7,
            "read_ahead: found a table, allowed: none without a [controller.read_cache]",
        ),
        (
            &[READS, AHEAD],
            "512 KiB",
            "2 MiB",
            11,
            "read_ahead.distance: found 2 MiB, allowed: whole I/Os of 128 KiB, at most 1 MiB",
        ),
        (
            &[WRITES],
            "512 KiB",
            "800 KiB",
            10,
            "write_cache.low_watermark: found 800 KiB, allowed: at most high_watermark (768 KiB)",
        ),
        (
            &[WRITES],
            "destage_depth = 4",
            "destage_depth = 0",
            13,
            "write_cache.destage_depth: found 0, allowed: 1 to 256",
        ),
        (
            &[],
            "= 64",
            "= 0",
            4,
            "queue_depth: found 0, allowed: 1 to 4096",
        ),
    ] {
        let wrong = text(tables).replacen(from, to, 1);
        let message = catalogue::parse(&wrong, "my.toml").unwrap_err().to_string();
        let expected = format!("my.toml, line {line}: controller.{expected}");
        assert!(message.starts_with(&expected), "{message}\nnot\n{expected}");
    }
}

#[test]
fn a_controller_stands_before_a_built_in_device_and_behind_a_cap() {
    let text = format!(
        "name = \"my\"\ndescription = \"mine\"\nmodel = \"raid0-16x250gb\"\n{BASE}{WRITES}\
         [cap]\niops = 100\n"
    );
    let entry = catalogue::parse(&text, "my.toml").unwrap();
    let spec = entry.spec();
    assert_eq!((spec.queue_depth, spec.max_io), (64, 512 << 10));
    let mut disk = entry.build();
    assert_eq!(disk.spec(), spec);
    let end = keep(&mut *disk, Nanos::ZERO, 4, 50, |n| {
        ModelIo::write(n, n * MIB, 4_096)
    });
    // 100 in a second, the first at once; from memory each takes 14 us.
    assert_eq!(end, Nanos(49 * 10 * MS + 14_096));
}

/// Device with one I/O at a time of a fixed duration, which others can look into.
struct Recorder {
    spec: Spec,
    service: u64,
    free: u64,
    queue: VecDeque<Completion>,
    /// Time of submission and of the end of each I/O.
    log: Log,
}

type Log = Arc<Mutex<Vec<(Nanos, Nanos, ModelIo)>>>;

impl Model for Recorder {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn submit(&mut self, now: Nanos, io: ModelIo) {
        assert!(self.has_room());
        self.spec.assert_valid(&io);
        self.free = self.free.max(now.0) + self.service;
        let end = Nanos(self.free);
        self.queue.push_back(Completion { id: io.id, at: end });
        self.log.lock().unwrap().push((now, end, io));
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.queue.front().map(|end| end.at)
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        self.queue.pop_front_if(|end| end.at <= now)
    }

    fn in_flight(&self) -> u32 {
        self.queue.len() as u32
    }
}

/// Controller in front of a recorder, with the tables of `tables`.
fn recorded(tables: &[&str], service: u64) -> (Controller, Log) {
    let entry = entry(tables);
    let log = Log::default();
    let inner = Recorder {
        spec: bare().spec().clone(),
        service,
        free: 0,
        queue: VecDeque::new(),
        log: log.clone(),
    };
    let figures = entry.controller.expect("a controller");
    (Controller::new(Box::new(inner), &figures).unwrap(), log)
}

#[test]
fn dirty_data_is_destaged_in_order_of_address_and_merged() {
    let (mut disk, log) = recorded(&[WRITES], MS);
    let mut now = Nanos::ZERO;
    for (id, block) in [9, 2, 8, 3, 40, 1].into_iter().enumerate() {
        now = once(
            &mut disk,
            now,
            ModelIo::write(id as u64, block * 8 * KIB, 8 * KIB as u32),
        );
    }
    assert!(
        log.lock().unwrap().is_empty(),
        "neither idle nor above a watermark"
    );
    let sent = now;
    once(&mut disk, Nanos(sent.0 + 100 * MS), ModelIo::flush(9));
    let log = log.lock().unwrap();
    let told: Vec<(u64, u64)> = log
        .iter()
        .map(|(_, _, io)| (io.addr >> 13, u64::from(io.len) >> 13))
        .collect();
    // 8 and 9 are one run that begins at a multiple of 64 KiB; 1 to 3 are another.
    assert_eq!(told, [(1, 3), (8, 2), (40, 1)]);
    // Idle 50 ms after the last command came.
    assert!(
        log.iter()
            .all(|(at, ..)| at.0 > 50 * MS && at.0 < sent.0 + 50 * MS)
    );
}

/// Block size of the plain model.
const BLOCK: u64 = 4 * KIB;
const BLOCKS: usize = 1_024;

/// Time at which each block was written last; `None` if it was not, or discarded since.
fn last_writes(sent: &[(Nanos, ModelIo)]) -> Vec<Option<Nanos>> {
    let mut blocks = vec![None; BLOCKS];
    for (at, io) in sent {
        let range = io.addr / BLOCK..(io.addr + u64::from(io.len)) / BLOCK;
        for block in &mut blocks[range.start as usize..range.end as usize] {
            match io.op {
                Op::Write | Op::WriteZeroes => *block = Some(*at),
                Op::Discard => *block = None,
                _ => {}
            }
        }
    }
    blocks
}

proptest! {
    /// Against a plain model of blocks: every command is answered once, and what was written last
    /// is on the device in the end, in no more and no larger I/Os than the figures allow.
    #[test]
    fn nothing_that_was_acknowledged_is_lost(
        steps in proptest::collection::vec(
            (any_op(), 0..1_000_u64, 1..24_u64, 0..4_000_000_u64, 1..12_u32), 1..200
        ),
        service in 100_000..5_000_000_u64,
        cached in any::<bool>(),
    ) {
        let tables: &[&str] = if cached { &[READS, AHEAD, WRITES] } else { &[WRITES] };
        let (mut disk, log) = recorded(tables, service);
        let (mut now, mut sent, mut ended) = (Nanos::ZERO, Vec::new(), Vec::new());
        for (id, (op, block, len, wait, depth)) in steps.into_iter().enumerate() {
            // At most `depth` in flight, so that ranges in flight seldom overlap.
            while disk.in_flight() >= depth {
                now = disk.next_completion().unwrap().max(now);
                ended.extend(disk.pop_completed(now));
            }
            now = Nanos(now.0 + wait);
            while let Some(end) = disk.pop_completed(now) {
                ended.push(end);
            }
            let (addr, len) = if op == Op::Flush { (0, 0) } else { (block * BLOCK, len * BLOCK) };
            let io = io(op, id as u64, addr, len);
            sent.push((now, io));
            disk.submit(now, io);
        }
        while let Some(at) = disk.next_completion() {
            ended.extend(disk.pop_completed(at.max(now)));
            now = now.max(at);
        }
        // Later than any destage: a second of idleness is enough.
        let quiet = Nanos(now.0 + 2_000 * MS + 300 * service);
        let last = once(&mut disk, quiet, ModelIo::flush(1 << 32));
        let log = log.lock().unwrap();

        let mut ends = vec![None; sent.len()];
        for end in &ended {
            prop_assert!(ends[end.id as usize].replace(end.at).is_none(), "twice");
        }
        prop_assert!(ends.iter().all(Option::is_some), "not answered");
        let blocks = last_writes(&sent);
        for (number, block) in blocks.iter().enumerate() {
            let Some(since) = *block else { continue };
            let addr = number as u64 * BLOCK;
            let stored = log.iter().any(|(at, end, io)| {
                let covers = io.addr <= addr && addr + BLOCK <= io.addr + io.len as u64;
                io.op == Op::Write && covers && *at >= since && *end <= last
            });
            prop_assert!(stored, "block {number} of {since} is lost");
        }
        let writes: Vec<_> = log.iter().filter(|(_, _, io)| io.op == Op::Write).collect();
        let bytes = |io: &ModelIo| u64::from(io.len);
        let written = sent.iter().map(|(_, io)| io);
        let written = written.filter(|io| matches!(io.op, Op::Write | Op::WriteZeroes));
        let destaged: u64 = writes.iter().map(|(_, _, io)| bytes(io)).sum();
        prop_assert!(destaged <= written.map(bytes).sum());
        for (at, end, io) in &writes {
            let moving = writes.iter().filter(|(from, until, _)| from <= at && until > at);
            prop_assert!(moving.count() <= 4 && io.len <= 64 << 10 && end > at, "four at a time");
        }
    }

    #[test]
    fn the_same_commands_give_the_same_times(seed in 1..u64::MAX) {
        let run = || {
            let mut disk = entry(&[READS, AHEAD, WRITES]).build();
            let rng = &mut Rng(seed);
            keep(&mut *disk, Nanos::ZERO, 16, 300, |n| {
                let op = if rng.below(2) == 0 { Op::Read } else { Op::Write };
                io(op, n, rng.below(4_000) * 8 * KIB, 8 * KIB * (1 + rng.below(4)))
            })
        };
        prop_assert_eq!(run(), run());
    }
}
