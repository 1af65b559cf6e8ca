//! Tests of the RAID 0 model: an array compared with its member model.

use crate::common::{KIB, Load, MIB, array_of, close, interleaved, io, once};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_device::{Completion, ModelIo};

/// Tolerance of rates over thousands of I/Os, in per cent.
const RATE_PERCENT: f64 = 3.0;

const MEMBER: &str = "hdd-7200-250gb";

fn member() -> Entry {
    catalogue::load(MEMBER).unwrap()
}

fn array(members: u32, chunk: &str, depth: u32) -> Entry {
    of(MEMBER, members, chunk, depth)
}

fn of(member: &str, members: u32, chunk: &str, depth: u32) -> Entry {
    let text = format!(
        "name = \"array\"\ndescription = \"test\"\n[raid0]\nmembers = {members}\n\
         member = \"{member}\"\nchunk = \"{chunk}\"\nqueue_depth = {depth}\n\
         command_overhead = \"0 ns\"\n"
    );
    catalogue::parse(&text, "test").unwrap()
}

#[test]
fn spec_is_derived_from_the_members() {
    let (one, all) = (member(), array(4, "64 KiB", 100));
    let (one, all) = (one.spec(), all.spec());
    assert_eq!(all.capacity, one.capacity / (64 * KIB) * 64 * KIB * 4);
    assert_eq!(all.queue_depth, 100);
    assert_eq!((all.max_io, all.rotational), (one.max_io, true));
    assert_eq!(all.physical_block, one.physical_block);
    assert_eq!(all.name, "array");
    assert_eq!(all.bytes_per_s, 4 * one.bytes_per_s);
    assert_eq!(all.bytes_per_s_max, 4 * one.bytes_per_s_max);
}

#[test]
fn an_io_within_a_chunk_is_served_by_its_member_alone() {
    let (mut alone, mut all) = (member().build(), array(4, "64 KiB", 8).build());
    // Chunk 9 of the array is the third of member 1.
    let expected = once(
        &mut *alone,
        Nanos::ZERO,
        ModelIo::read(0, 2 * 65_536 + 4_096, 8_192),
    );
    let ended = once(
        &mut *all,
        Nanos::ZERO,
        ModelIo::read(0, 9 * 65_536 + 4_096, 8_192),
    );
    assert_eq!(ended, expected);
}

#[test]
fn an_io_over_several_members_ends_with_the_last_of_its_parts() {
    let mut all = array(4, "64 KiB", 8).build();
    // The second half of chunk 1 to the first half of chunk 6: members 1, 2, 3, 0, 1, 2.
    let (from, to) = (65_536 + 32_768, 6 * 65_536 + 32_768);
    let ended = once(
        &mut *all,
        Nanos::ZERO,
        ModelIo::read(0, from, (to - from) as u32),
    );
    let parts = [
        (32_768, 65_536 + 32_768), // member 1: half of its first chunk and all of its second
        (0, 65_536 + 32_768),      // member 2: its first and half of its second
        (0, 65_536),               // member 3: its first
        (65_536, 65_536),          // member 0: its second
    ];
    let ends = parts.map(|(addr, len)| {
        once(
            &mut *member().build(),
            Nanos::ZERO,
            ModelIo::read(0, addr, len),
        )
    });
    assert_eq!(Some(&ended), ends.iter().max());
}

#[test]
fn sequential_rate_grows_with_the_number_of_members() {
    for op in [Op::Read, Op::Write] {
        let one = Load::sequential(op, 256 * KIB, 8, 4_000).iops(&mut *member().build());
        let all =
            Load::sequential(op, 2 * MIB, 8, 4_000).iops(&mut *array(8, "64 KiB", 32).build());
        close(all * 8.0, one * 8.0, RATE_PERCENT);
    }
}

#[test]
fn random_iops_grow_with_the_number_of_members_at_depth() {
    let one = Load::random(Op::Read, 4 * KIB, 8, 4_000).iops(&mut *member().build());
    let all =
        Load::random(Op::Read, 4 * KIB, 64, 32_000).iops(&mut *array(8, "64 KiB", 64).build());
    // By chance some members have less to choose from than others.
    assert!((0.85..1.02).contains(&(all / one / 8.0)), "{}", all / one);
}

#[test]
fn one_request_at_a_time_gains_nothing() {
    let one = Load::random(Op::Read, 4 * KIB, 1, 4_000).iops(&mut *member().build());
    let all = Load::random(Op::Read, 4 * KIB, 1, 4_000).iops(&mut *array(8, "64 KiB", 64).build());
    // In per cent: each member sees its own sequence of seeks.
    close(all, one, 5.0);
}

#[test]
fn flush_waits_for_every_member() {
    let mut all = of("hdd-7200-1tb-cached", 4, "64 KiB", 32).build();
    let mut alone = catalogue::load("hdd-7200-1tb-cached").unwrap().build();
    // Far from the head of the cached disk, so that the write-back has to seek: 400 GB, in chunks.
    let far = 400_000_000_000 / 65_536 * 65_536;
    // Member 2 has something to write back, the others do not.
    let now = once(
        &mut *all,
        Nanos::ZERO,
        ModelIo::write(0, far * 4 + 2 * 65_536, 4_096),
    );
    assert_eq!(
        once(&mut *alone, Nanos::ZERO, ModelIo::write(0, far, 4_096)),
        now
    );
    let expected = once(&mut *alone, now, ModelIo::flush(1));
    assert_eq!(once(&mut *all, now, ModelIo::flush(1)), expected);
    assert!(expected.since(now) > Nanos::from_millis(2));
}

#[test]
fn a_discard_goes_to_every_member_it_touches() {
    let mut all = of("hdd-7200-1tb-cached", 4, "64 KiB", 32).build();
    let now = (0..8).fold(Nanos::ZERO, |now, id| {
        once(&mut *all, now, ModelIo::write(id, id * 65_536, 4_096))
    });
    let now = once(&mut *all, now, io(Op::Discard, 8, 0, MIB));
    let end = once(&mut *all, now, ModelIo::flush(9));
    // The overhead of the command alone: the discard has left nothing to write back.
    assert_eq!(end.since(now), Nanos::from_micros(300));
}

#[test]
fn the_queue_may_be_deeper_than_a_members() {
    let mut all = array(2, "64 KiB", 300).build();
    // Member 0 has the even chunks of 64 KiB, so addresses in steps of two chunks are all its own;
    // 40 MB apart they need seeks.
    for id in 0..300 {
        all.submit(
            Nanos::ZERO,
            ModelIo::read(id, id * 40_000_000 / 131_072 * 131_072, 4_096),
        );
    }
    assert!(!all.has_room());
    let ends: Vec<Completion> =
        std::iter::from_fn(|| all.pop_completed(Nanos::from_secs(60))).collect();
    assert_eq!(ends.len(), 300);
}

#[test]
fn the_array_of_v_cup_streams_at_the_rate_of_sixteen_disks() {
    let entry = catalogue::load("raid0-16x250gb").unwrap();
    let rate = Load::sequential(Op::Read, MIB, 8, 8_000).iops(&mut *entry.build()) * MIB as f64;
    // Li et al., ToS 2017: a RAID 0 of 16 disks; 64.8 MB/s is the outer rate of the member.
    close(rate, 16.0 * 64.8e6, RATE_PERCENT);
}

#[test]
fn interleaved_members_revise_their_completion_times() {
    let array = || array_of(&interleaved("ssd-sata-300gb"), 2, 64).build();
    let large = |id, chunk: u64| ModelIo::read(id, chunk * 16 * KIB, 16 * KIB as u32);
    let end = |ids: &[(u64, u64)]| {
        let mut disk = array();
        for (id, chunk) in ids {
            disk.submit(Nanos::ZERO, large(*id, *chunk));
        }
        let ended = std::iter::from_fn(|| disk.pop_completed(Nanos::MAX));
        ended.map(|c| (c.id, c.at.0)).collect::<Vec<_>>()
    };
    let alone = end(&[(0, 0)])[0].1;
    // Chunk 1 is the other member's; chunk 2 lies on the first one, on another die.
    assert_eq!(end(&[(0, 0), (1, 1)]), [(0, alone), (1, alone)]);
    let both = end(&[(0, 0), (1, 2)]);
    assert!(both[0].1 > alone && both[1].1 > alone, "{both:?}");
    // An I/O that is submitted before the announced end of another still shares with it.
    let mut disk = array();
    disk.submit(Nanos::ZERO, large(0, 0));
    let mut polled = Nanos::ZERO;
    while let Some(at) = disk.next_completion().filter(|at| at.0 < alone) {
        assert_eq!(disk.pop_completed(at), None);
        polled = at;
    }
    assert!(polled > Nanos::ZERO, "the transfer has begun");
    assert_eq!(disk.next_completion(), Some(Nanos(alone)));
    disk.submit(polled, large(1, 2));
    let ended: Vec<_> = std::iter::from_fn(|| disk.pop_completed(Nanos::MAX)).collect();
    assert_eq!(ended.len(), 2);
    assert!(ended[0].at.0 >= alone && ended[1].at > ended[0].at);
}
