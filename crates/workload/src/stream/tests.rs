//! Tests of streams: addresses, sizes, mixes, ends and flushes.

use super::*;
use crate::guest::Files;
use crate::random_variate::tests::{chi_squared, seeded};
use crate::spec::{Rw, SizeShare, Sizes};
use proptest::prelude::*;

const DISK: u64 = 1 << 30;

fn workload(mix: Mix, random: bool) -> Workload {
    Workload {
        rw: Rw { mix, random },
        ..Workload::default()
    }
}

fn drawn_from(workload: &Workload, copy: u32, seed: u64, n: usize) -> Vec<Io> {
    assert_eq!(workload.check(), Ok(()));
    let mut stream = Stream::new(workload, copy, DISK).unwrap();
    let mut rng = seeded(seed);
    std::iter::from_fn(|| stream.next(&mut rng))
        .take(n)
        .collect()
}

fn drawn(workload: &Workload, n: usize) -> Vec<Io> {
    drawn_from(workload, 0, 1, n)
}

fn offsets(ios: &[Io]) -> Vec<u64> {
    ios.iter().map(|io| io.offset).collect()
}

fn shares(shares: &[(u32, u32)]) -> Sizes {
    let share = |&(bytes, weight)| SizeShare { bytes, weight };
    Sizes(shares.iter().map(share).collect())
}

fn ops(ios: &[Io]) -> Vec<Op> {
    ios.iter().map(|io| io.op).collect()
}

#[test]
fn a_sequential_job_wraps_to_the_start_of_its_region() {
    let small = Workload {
        offset: 8192,
        size: Some(3 * 4096 + 512),
        ..workload(Mix::Read, false)
    };
    let ios = drawn(&small, 5);
    assert_eq!(offsets(&ios), [8192, 12288, 16384, 8192, 12288]);
    assert!(ios.iter().all(|io| io.op == Op::Read && io.len == 4096));
}

#[test]
fn sequential_sizes_follow_each_other_without_gaps() {
    let mut mixed = workload(Mix::Write, false);
    mixed.sizes[1] = shares(&[(512, 1), (1536, 1), (4096, 1)]);
    let ios = drawn(&mixed, 1000);
    for pair in ios.windows(2) {
        assert_eq!(pair[1].offset, pair[0].offset + u64::from(pair[0].len));
    }
}

#[test]
fn sequential_reads_and_writes_each_go_their_own_way() {
    let ios = drawn(&workload(Mix::ReadWrite { read_percent: 50 }, false), 100);
    for op in [Op::Read, Op::Write] {
        let own: Vec<Io> = ios.iter().copied().filter(|io| io.op == op).collect();
        let expected: Vec<u64> = (0..own.len() as u64).map(|i| i * 4096).collect();
        assert_eq!(offsets(&own), expected);
    }
}

#[test]
fn copies_begin_an_increment_apart() {
    let apart = Workload {
        offset_increment: 1 << 20,
        numjobs: 3,
        ..workload(Mix::Read, false)
    };
    assert_eq!(drawn_from(&apart, 2, 1, 1)[0].offset, 2 << 20);
}

#[test]
fn random_requests_are_uniform_over_the_aligned_blocks_of_the_region() {
    let small = Workload {
        offset: 512,
        size: Some(100 * 4096 + 4095 / 512 * 512),
        ..workload(Mix::Read, true)
    };
    let mut counts = [0; 100];
    for io in drawn(&small, 100_000) {
        assert_eq!((io.offset - 512) % 4096, 0);
        counts[((io.offset - 512) / 4096) as usize] += 1;
    }
    // In standard deviations; the seed is fixed.
    assert!(chi_squared(&counts, &[0.01; 100]) < 4.0, "{counts:?}");
}

#[test]
fn random_requests_are_aligned_to_the_smallest_size_of_their_operation() {
    let mut mixed = workload(Mix::ReadWrite { read_percent: 50 }, true);
    mixed.size = Some(64 << 10);
    mixed.sizes = [
        shares(&[(4096, 1), (16384, 1)]),
        Sizes::fixed(8192),
        Sizes::fixed(4096),
    ];
    let ios = drawn(&mixed, 10_000);
    let mut large = [0; 16];
    for io in &ios {
        let unit = if io.op == Op::Read { 4096 } else { 8192 };
        assert_eq!(io.offset % unit, 0);
        assert!(io.offset + u64::from(io.len) <= 64 << 10);
        if io.len == 16384 {
            large[(io.offset / 4096) as usize] += 1;
        }
    }
    // A 16 KiB read cannot start in the last three 4 KiB blocks.
    assert_eq!(large[13..], [0; 3]);
    assert!(chi_squared(&large[..13], &[1.0 / 13.0; 13]) < 4.0);
}

#[test]
fn each_request_of_a_mix_is_drawn_by_itself() {
    let ios = drawn(
        &workload(Mix::ReadWrite { read_percent: 70 }, true),
        100_000,
    );
    let reads: Vec<bool> = ios.iter().map(|io| io.op == Op::Read).collect();
    let share = |of: usize| of as f64 / reads.len() as f64;
    assert!((share(reads.iter().filter(|&&read| read).count()) - 0.7).abs() < 0.005);
    // Pairs of reads: 0.7 squared, when neither knows of the other.
    let pairs = reads.windows(2).filter(|pair| pair[0] && pair[1]).count();
    assert!((share(pairs) - 0.49).abs() < 0.006);
}

#[test]
fn a_mix_of_all_or_nothing_is_that() {
    for (read_percent, op) in [(0, Op::Write), (100, Op::Read)] {
        let ios = drawn(&workload(Mix::ReadWrite { read_percent }, true), 1000);
        assert!(ios.iter().all(|io| io.op == op));
    }
}

#[test]
fn each_operation_has_its_sizes() {
    let mut by_op = workload(Mix::ReadWrite { read_percent: 50 }, true);
    by_op.sizes = [512, 1024, 2048].map(Sizes::fixed);
    let size = |op| if op == Op::Read { 512 } else { 1024 };
    let ios = drawn(&by_op, 100);
    assert!(ios.iter().all(|io| io.len == size(io.op)));
    by_op.rw.mix = Mix::Trim;
    let ios = drawn(&by_op, 100);
    assert!(ios.iter().all(|io| io.op == Op::Discard && io.len == 2048));
}

#[test]
fn a_trimmed_block_is_written_next() {
    for random in [false, true] {
        let ios = drawn(&workload(Mix::TrimWrite, random), 100);
        for pair in ios.chunks(2) {
            assert_eq!(ops(pair), [Op::Discard, Op::Write]);
            assert_eq!(pair[0].offset, pair[1].offset);
            assert_eq!(pair[0].len, pair[1].len);
        }
        let blocks = offsets(&ios)
            .chunks(2)
            .map(|pair| pair[0])
            .collect::<Vec<_>>();
        let in_order = blocks.windows(2).all(|pair| pair[1] == pair[0] + 4096);
        assert_eq!(in_order, !random);
    }
}

#[test]
fn a_trimmed_and_written_block_counts_once() {
    for (io_size, number_ios) in [(Some(3 * 4096), None), (None, Some(3))] {
        let short = Workload {
            io_size,
            number_ios,
            ..workload(Mix::TrimWrite, false)
        };
        assert_eq!(drawn(&short, 100).len(), 6);
    }
}

#[test]
fn a_job_ends_with_the_request_that_makes_up_its_bytes() {
    for (io_size, n) in [(1, 1), (4096, 1), (4097, 2), (40_960, 10)] {
        let short = Workload {
            io_size: Some(io_size),
            ..workload(Mix::Read, true)
        };
        assert_eq!(drawn(&short, 100).len(), n, "{io_size}");
    }
}

#[test]
fn a_job_ends_after_its_requests_and_stays_ended() {
    let short = Workload {
        number_ios: Some(7),
        ..workload(Mix::Read, true)
    };
    let mut stream = Stream::new(&short, 0, DISK).unwrap();
    let mut rng = seeded(1);
    assert!((0..7).all(|_| stream.next(&mut rng).is_some()));
    assert!((0..3).all(|_| stream.next(&mut rng).is_none()));
}

#[test]
fn a_flush_follows_every_nth_write_and_counts_as_no_request() {
    let short = Workload {
        fsync: 2,
        number_ios: Some(5),
        ..workload(Mix::Write, false)
    };
    let (w, f) = (Op::Write, Op::Flush);
    let ios = drawn(&short, 100);
    assert_eq!(ops(&ios), [w, w, f, w, w, f, w]);
    assert_eq!(ios[2], Io::FLUSH);
}

#[test]
fn reads_do_not_bring_a_flush_nearer() {
    let mixed = Workload {
        fsync: 3,
        ..workload(Mix::ReadWrite { read_percent: 50 }, true)
    };
    let mut writes = 0;
    for io in drawn(&mixed, 1000) {
        match io.op {
            Op::Write => writes += 1,
            Op::Flush => assert_eq!(std::mem::take(&mut writes), 3),
            _ => assert!(writes < 3),
        }
    }
}

#[test]
fn the_last_write_is_flushed_too() {
    let short = Workload {
        fsync: 1,
        number_ios: Some(1),
        ..workload(Mix::Write, false)
    };
    assert_eq!(ops(&drawn(&short, 9)), [Op::Write, Op::Flush]);
}

#[test]
fn only_writes_of_a_synchronous_job_are_durable_at_once() {
    let sync = Workload {
        sync: true,
        fsync: 10,
        ..workload(Mix::ReadWrite { read_percent: 50 }, true)
    };
    for io in drawn(&sync, 100) {
        assert_eq!(io.fua, io.op == Op::Write);
    }
    let trims = Workload {
        sync: true,
        ..workload(Mix::TrimWrite, false)
    };
    assert!(
        drawn(&trims, 10)
            .iter()
            .all(|io| io.fua == (io.op == Op::Write))
    );
}

#[test]
fn a_shuffled_job_meets_each_block_once_whatever_it_does_there() {
    let shuffled = Workload {
        size: Some(100 * 4096 + 512),
        placement: Placement::Shuffle,
        ..workload(Mix::ReadWrite { read_percent: 50 }, true)
    };
    let mut blocks = offsets(&drawn(&shuffled, 100));
    blocks.sort_unstable();
    let all: Vec<u64> = (0..100).map(|block| block * 4096).collect();
    assert_eq!(blocks, all);
}

#[test]
fn a_shuffle_of_files_that_are_smaller_than_a_request_has_one_block() {
    let shuffled = Workload {
        size: Some(1024),
        files: Files {
            count: 2,
            gap: 8192,
        },
        placement: Placement::Shuffle,
        ..workload(Mix::Write, true)
    };
    assert_eq!(shuffled.check(), Ok(()));
    assert_eq!(offsets(&drawn(&shuffled, 3)), [0; 3]);
}

#[test]
fn copies_share_what_is_hot() {
    let hot = Workload {
        placement: Placement::Zipf { theta: 2.0 },
        numjobs: 2,
        ..workload(Mix::Read, true)
    };
    let favourite = |copy, seed| {
        let mut offsets = offsets(&drawn_from(&hot, copy, seed, 99));
        offsets.sort_unstable();
        offsets[..]
            .chunk_by(|a, b| a == b)
            .max_by_key(|run| run.len())
            .unwrap()[0]
    };
    assert_eq!(favourite(0, 1), favourite(1, 2));
}

#[test]
fn a_region_off_the_disk_is_refused() {
    let far = Workload {
        offset: DISK - 4096,
        offset_increment: 4096,
        size: Some(4096),
        ..Workload::default()
    };
    assert!(Stream::new(&far, 0, DISK).is_ok());
    assert_eq!(Stream::new(&far, 1, DISK).unwrap_err().to, DISK + 4096);
}

/// Expected requests, so that a machine or a build that draws other ones is noticed.
#[test]
fn the_same_seed_draws_the_same_requests_everywhere() {
    let deviation_percent = 20.0;
    let blocks = [
        Placement::Uniform,
        Placement::Shuffle,
        Placement::Zipf { theta: 0.99 },
        Placement::Pareto { h: 0.2 },
        Placement::Normal { deviation_percent },
    ]
    .map(|placement| {
        let random = Workload {
            placement,
            ..workload(Mix::Read, true)
        };
        offsets(&drawn(&random, 4))
            .iter()
            .map(|at| at / 4096)
            .collect::<Vec<_>>()
    });
    assert_eq!(blocks, GOLDEN);
}

const GOLDEN: [[u64; 4]; 5] = [
    [224_583, 36059, 123_328, 190_382],
    [37729, 211_000, 48381, 778],
    [16568, 251_792, 51559, 194_983],
    [16356, 76531, 251_391, 200_997],
    [119_048, 23399, 96431, 71700],
];

fn any_sizes() -> impl Strategy<Value = Sizes> {
    let share = (1_u32..300, 1_u32..100);
    prop::collection::vec(share, 1..6).prop_map(|list| {
        shares(
            &list
                .into_iter()
                .map(|(s, w)| (s * 512, w))
                .collect::<Vec<_>>(),
        )
    })
}

fn any_placement() -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(Placement::Uniform),
        Just(Placement::Shuffle),
        (0.01..10.0_f64).prop_map(|theta| Placement::Zipf { theta }),
        (0.001..0.999_f64).prop_map(|h| Placement::Pareto { h }),
        (0.001..100.0_f64).prop_map(|deviation_percent| Placement::Normal { deviation_percent }),
    ]
}

fn any_mix() -> impl Strategy<Value = Mix> {
    prop_oneof![
        Just(Mix::Read),
        Just(Mix::Write),
        Just(Mix::Trim),
        (0_u8..=100).prop_map(|read_percent| Mix::ReadWrite { read_percent }),
        Just(Mix::TrimWrite),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_request_lies_within_its_region_and_the_job_ends_when_it_should(
        rw in (any_mix(), any::<bool>()).prop_map(|(mix, random)| Rw { mix, random }),
        sizes in [any_sizes(), any_sizes(), any_sizes()],
        placement in any_placement(),
        region in (0_u64..1000, 1_u64..10_000).prop_map(|(a, b)| (a * 512, b * 512)),
        ends in (prop::option::of(1_u64..10_000_000), 1_u64..500),
        fsync in 0_u32..5,
        seed in any::<u64>(),
    ) {
        let workload = Workload {
            rw,
            sizes,
            placement,
            offset: region.0,
            size: Some(region.1),
            io_size: ends.0,
            number_ios: Some(ends.1),
            fsync,
            ..Workload::default()
        };
        prop_assume!(workload.check().is_ok());
        let Ok(mut stream) = Stream::new(&workload, 0, DISK) else {
            return Err(TestCaseError::reject("the region is too small"));
        };
        let mut rng = seeded(seed);
        let (mut bytes, mut ios) = (0, 0);
        while let Some(io) = stream.next(&mut rng) {
            if io.op == Op::Flush {
                prop_assert!(fsync > 0);
                continue;
            }
            prop_assert!(io.offset >= region.0);
            prop_assert!(io.offset + u64::from(io.len) <= region.0 + region.1);
            prop_assert!(io.len > 0 && io.len % 512 == 0 && io.offset % 512 == 0);
            if rw.mix != Mix::TrimWrite || io.op == Op::Write {
                prop_assert!(ends.0.is_none_or(|end| bytes < end), "past its bytes");
                bytes += u64::from(io.len);
                ios += 1;
            }
        }
        prop_assert!(ios == ends.1 || ends.0.is_some_and(|end| bytes >= end && ios < ends.1));
    }
}
