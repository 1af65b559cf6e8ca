use super::*;
use crate::random_variate::tests::seeded;
use crate::source::Source;
use crate::spec::{Flow, Sizes};
use crate::time::TimeDistribution;
use crate::trace::{Options, Trace, read};
use proptest::prelude::*;

fn trace(text: &str) -> Trace {
    read(text.as_bytes(), &Options::default()).expect("a good trace")
}

/// Returns a workload that replays all of `text`, changed by `change`, in pieces of 64 KiB.
fn workload(text: &str, change: impl FnOnce(&mut Replay)) -> Workload {
    let mut replay = Replay::new(&trace(text), None, None).expect("requests");
    change(&mut replay);
    let workload = Workload {
        replay: Some(replay),
        sizes: std::array::from_fn(|_| Sizes::fixed(64 << 10)),
        ..Workload::default()
    };
    assert_eq!(workload.check(), Ok(()));
    workload
}

/// Returns at most `n` pieces on a disk of `disk` bytes, each with its request.
fn pieces(workload: &Workload, disk: u64, block: u32, n: usize) -> Vec<(Io, Whole)> {
    let mut source = Source::new(workload, 0, disk, block).expect("it fits");
    let mut rng = seeded(1);
    let mut all = Vec::new();
    while all.len() < n {
        let was_over = source.is_over();
        let io = source.next(&mut rng);
        assert_eq!(was_over, io.is_none(), "what is over says so");
        let Some(io) = io else { break };
        let Source::TraceReplay(replaying) = &source else {
            panic!("a trace is replayed");
        };
        all.push((io, *replaying.whole().expect("of a piece")));
    }
    all
}

const THREE: &str = "1000 0 0 16 1\n3000 0 2048 8 0\n7000 0 16 400 1\n";

#[test]
fn requests_come_in_order_each_in_pieces_of_its_own() {
    let all = pieces(&workload(THREE, |_| {}), 1 << 20, 512, 100);
    let ios: Vec<_> = (all.iter())
        .map(|(io, whole)| (whole.index, io.op, io.offset, io.len, io.waits))
        .collect();
    let (r, w) = (Op::Read, Op::Write);
    let expected = [
        (0, r, 0, 8192, true),
        // It lies beyond this disk, by its whole size.
        (1, w, 0, 4096, true),
        (2, r, 8192, 65_536, true),
        (2, r, 73_728, 65_536, false),
        (2, r, 139_264, 65_536, false),
        (2, r, 204_800, 8192, false),
    ];
    assert_eq!(ios, expected);
    let bytes: Vec<u64> = all.iter().map(|(_, whole)| whole.bytes).collect();
    assert_eq!(bytes, [8192, 4096, 204_800, 204_800, 204_800, 204_800]);
}

#[test]
fn sizes_and_addresses_grow_alike_and_what_passes_the_end_moves_to_the_last_place() {
    let text = "0 0 8 16 1\n0 0 24 16 1\n0 0 1990 16 1\n";
    let workload = workload(text, |replay| replay.size_factor = Factor::new(100.0));
    // The disk holds 2,000 sectors a hundred times.
    let all = pieces(&workload, 2000 * 512 * 100, 4096, 1000);
    let first = |index| all.iter().find(|(_, whole)| whole.index == index);
    let place = |index| first(index).map(|(io, whole)| (io.offset, whole.bytes));
    let len = 16 * 512 * 100;
    assert_eq!(len % 4096, 0);
    assert_eq!(place(0), Some((8 * 51_200, len)));
    assert_eq!(place(1), Some((24 * 51_200, len)), "right behind it");
    assert_eq!(place(2), Some((2000 * 51_200 - len, len)));
}

#[test]
fn times_are_the_trace_s_from_its_first_request_on_by_a_factor() {
    let at = |factor, again| {
        let mode = Mode::Timed(Factor::new(factor));
        let workload = workload(THREE, |replay| (replay.mode, replay.looped) = (mode, again));
        let mut all = pieces(&workload, 1 << 20, 512, 18);
        all.dedup_by_key(|(_, whole)| whole.index);
        assert!(all.iter().all(|(io, _)| !io.waits));
        all.iter().map(|(_, whole)| whole.at.0).collect::<Vec<_>>()
    };
    assert_eq!(at(1.0, false), [0, 2000, 6000]);
    assert_eq!(at(0.5, false), [0, 1000, 3000]);
    // Two gaps in 6,000 ns: the next round begins 3,000 later.
    let again = [
        0, 20_000, 60_000, 90_000, 110_000, 150_000, 180_000, 200_000, 240_000,
    ];
    assert_eq!(at(10.0, true), again);
}

#[test]
fn rounds_count_on() {
    let again = workload(THREE, |replay| replay.looped = true);
    let all = pieces(&again, 1 << 20, 512, 600);
    assert_eq!(all.len(), 600, "it goes on");
    assert!(all.windows(2).all(|two| two[0].1.index <= two[1].1.index));
    assert_eq!(all[599].1.index, 3 * 99 + 2);
    assert_eq!(all[0].0, all[6].0);
}

#[test]
fn a_pause_precedes_each_request_but_the_first_and_no_piece() {
    let pause = Nanos::from_millis(10);
    let paused = workload(THREE, |replay| {
        (replay.looped, replay.pause) = (true, Some(TimeDistribution::Fixed(pause)));
    });
    let all = pieces(&paused, 1 << 20, 512, 600);
    assert_eq!(all[0].0.pause, Nanos::ZERO);
    assert!(all.iter().any(|(io, _)| !io.waits), "requests have pieces");
    for (io, whole) in &all[1..] {
        let expected = if io.waits { pause } else { Nanos::ZERO };
        assert_eq!(io.pause, expected, "{whole:?}");
    }
}

#[test]
fn one_disk_or_the_first_requests_are_a_replay_too() {
    let text = "5 7 0 1 1\n6 9 1 1 1\n8 7 2 1 0\n9 3 3 1 1\n";
    let trace = trace(text);
    let of = |disk, limit| Replay::new(&trace, disk, limit);
    let nine = of(Some(1), None).expect("one");
    assert_eq!((nine.request_count(), nine.disks()), (1, 1));
    let first = of(None, Some(3)).expect("three");
    assert_eq!((first.request_count(), first.disks()), (3, 2));
    assert_eq!(of(Some(3), None), None);
    let all = of(None, None).expect("four");
    // Three disks side by side on 9 sectors, which have 3 each.
    let workload = Workload {
        replay: Some(all),
        ..Workload::default()
    };
    let places: Vec<u64> = (pieces(&workload, 9 * 512, 512, 9).iter())
        .map(|(io, _)| io.offset / 512)
        .collect();
    assert_eq!(places, [0, 3 + 1, 2, 6]);
}

#[test]
fn a_job_that_is_printed_tells_its_trace_by_a_digest() {
    let text = |workload: &Workload| format!("{:?}", workload.replay);
    let three = workload(THREE, |_| {});
    assert!(text(&three).len() < 300, "{}", text(&three));
    assert_eq!(text(&three), text(&workload(THREE, |_| {})));
    for other in [
        THREE.replace("1000", "1001"),
        THREE.replace("2048", "2049"),
        THREE.replace("400 1", "401 1"),
        THREE.replace("8 0", "8 1"),
        THREE.replace("3000 0", "3000 1"),
    ] {
        assert_ne!(text(&three), text(&workload(&other, |_| {})), "{other}");
    }
}

#[test]
fn what_a_trace_does_not_go_with_is_refused() {
    let fields = |change: &dyn Fn(&mut Workload)| -> Vec<String> {
        let mut workload = workload(THREE, |_| {});
        change(&mut workload);
        let mistakes = workload
            .check()
            .map_or_else(|found| found.list, |()| vec![]);
        mistakes.into_iter().map(|found| found.field).collect()
    };
    assert_eq!(fields(&|_| {}), [""; 0]);
    assert_eq!(fields(&|workload| workload.fsync = 1), ["replay"]);
    assert_eq!(
        fields(&|workload| workload.number_ios = Some(1)),
        ["replay"]
    );
    let think = crate::spec::Think {
        time: crate::time::TimeDistribution::Fixed(Nanos(1)),
        blocks: 1,
    };
    let thinks = |workload: &mut Workload| {
        let think = Some(think.clone());
        workload.flow = Flow::Closed { iodepth: 1, think };
    };
    assert_eq!(fields(&thinks), ["replay"]);
    let two = |bytes| crate::spec::SizeShare { bytes, weight: 1 };
    let sizes = |workload: &mut Workload| workload.sizes[1] = Sizes(vec![two(512), two(1024)]);
    assert_eq!(fields(&sizes), ["replay.sizes"]);
    let at_once = |workload: &mut Workload| {
        let mut replay = Replay::new(&trace("5 0 0 1 1\n5 0 1 1 1\n"), None, None).expect("two");
        (replay.mode, replay.looped) = (Mode::Timed(Factor::ONE), true);
        workload.replay = Some(replay);
    };
    assert_eq!(fields(&at_once), ["replay.loop"]);
}

#[test]
fn a_region_that_does_not_hold_the_largest_request_of_each_disk_is_told() {
    let two = workload("0 0 0 16 1\n0 1 0 8 1\n", |_| {});
    assert_eq!(two.region(0, 32 * 512), Ok(0..32 * 512));
    assert_eq!(
        two.region(0, 31 * 512).unwrap_err().to_string(),
        "workload \"job\": its region, 0 B to 15.5 KiB (15872 bytes), must lie on the disk of \
         15.5 KiB (15872 bytes) and hold a request of 8 KiB of each of its trace's 2 disks"
    );
    // Enough sectors, and no whole block.
    assert!(Source::new(&workload("0 0 0 1 1\n", |_| {}), 0, 2048, 4096).is_err());
}

#[test]
fn factors_are_whole_millionths() {
    assert_eq!(Factor::new(1.0), Factor::ONE);
    let third = Factor::new(1.0 / 3.0);
    assert_eq!(
        (third.mul_floor(3_000_000), third.mul_ceil(3_000_000)),
        (999_999, 999_999)
    );
    assert_eq!((third.mul_floor(10), third.mul_ceil(10)), (3, 4));
    assert_eq!(Factor::new(1e6).mul_floor(u64::MAX), u64::MAX);
}

proptest! {
    /// Every piece lies in its region, in whole blocks, and belongs to its request; the pieces of a
    /// request are adjacent.
    #[test]
    fn pieces_add_up_and_never_leave_their_region(
        records in prop::collection::vec(
            (0u64..3, 0u64..1 << 40, 1u32..4096, any::<bool>()),
            1..40,
        ),
        factor in prop::sample::select(vec![0.01, 0.3, 1.0, 3.7, 100.0]),
        block in prop::sample::select(vec![512u32, 4096]),
        piece in 1u32..64,
        offset in 0u64..16,
        room in 0u64..1 << 22,
    ) {
        let mut text = String::new();
        for (at, &(disk, sector, sectors, read)) in records.iter().enumerate() {
            text.push_str(&format!("{at} {disk} {sector} {sectors} {}\n", u8::from(read)));
        }
        let mut workload = workload(&text, |replay| replay.size_factor = Factor::new(factor));
        workload.sizes = std::array::from_fn(|_| Sizes::fixed(piece * block));
        workload.offset = offset * 4096;
        let replay = workload.replay.as_ref().expect("it is one");
        let disk = workload.offset + (replay.largest() + 4096) * u64::from(replay.disks()) + room;
        let region = workload.region(0, disk).expect("there is room");
        let (mut left, mut end) = (0, 0);
        let mut index = None;
        let all = pieces(&workload, disk, block, usize::MAX);
        for (io, whole) in &all {
            if index != Some(whole.index) {
                prop_assert_eq!(left, 0);
                prop_assert_eq!(whole.index, index.map_or(0, |index| index + 1));
                (left, end, index) = (whole.bytes, io.offset, Some(whole.index));
                let record = records[whole.index as usize];
                let wanted = f64::from(record.2) * 512.0 * factor;
                prop_assert!(whole.bytes as f64 >= wanted - 1.0);
                prop_assert!((whole.bytes as f64) < wanted + f64::from(block) + 1.0);
                prop_assert_eq!(whole.op == Op::Read, record.3);
            }
            prop_assert!(io.len > 0 && io.len <= piece * block);
            prop_assert_eq!(io.offset, end);
            prop_assert!(io.offset >= region.start && io.offset + u64::from(io.len) <= region.end);
            prop_assert!(io.offset.is_multiple_of(block.into()) && io.len.is_multiple_of(block));
            end += u64::from(io.len);
            left -= u64::from(io.len);
        }
        prop_assert_eq!(left, 0);
        prop_assert_eq!(index, Some(records.len() as u64 - 1));
    }
}

/// Chain of requests with their think times: a read, a flush, a forced write and a discard.
fn chain() -> Replay {
    let record = |at, op, offset, len| Record {
        at: Nanos(at),
        disk: 0,
        op,
        fua: op == Op::Write,
        offset,
        len,
        took: crate::trace::Took::UNKNOWN,
    };
    let records = [
        record(70, Op::Read, 0, 4096),
        record(0, Op::Flush, 0, 0),
        record(20, Op::Write, 8192, 512),
        record(30, Op::Discard, 1 << 20, 100 << 10),
    ];
    let rest = records[1..].to_vec();
    Replay::thinking(records[..1].to_vec(), rest).expect("requests")
}

/// Returns the pauses before the first requests of a replay, which are of one piece each.
fn pauses(replay: Replay, count: usize) -> Vec<u64> {
    let workload = Workload {
        replay: Some(replay),
        sizes: std::array::from_fn(|_| Sizes::fixed(1 << 20)),
        ..Workload::default()
    };
    let all = pieces(&workload, 4 << 20, 512, count);
    all.iter().map(|(io, _)| io.pause.0).collect()
}

#[test]
fn each_place_of_the_queue_pauses_once_between_two_rounds() {
    let record = chain().records()[0];
    let with = |depth: usize, rest: usize| {
        let think = |at| Record {
            at: Nanos(at),
            ..record
        };
        let rest = vec![think(1); rest];
        let mut replay = Replay::thinking(vec![think(0); depth], rest).expect("requests");
        (replay.looped, replay.round_pause) = (true, Nanos(500));
        replay
    };
    assert_eq!(
        pauses(with(2, 3), 8),
        [0, 0, 1, 1, 1, 501, 501, 1],
        "the third place of the round follows an end of the first or second"
    );
    // Two rounds and a half are outstanding at once: they share three pauses.
    assert_eq!(pauses(with(5, 2), 9)[7..], [1501, 1501]);
}

#[test]
fn a_chain_thinks_before_each_request_and_repeats_those_that_follow_an_end() {
    assert_eq!(Replay::thinking(Vec::new(), Vec::new()), None);
    let mut replay = chain();
    replay.looped = true;
    let workload = Workload {
        replay: Some(replay),
        sizes: std::array::from_fn(|_| Sizes::fixed(64 << 10)),
        ..Workload::default()
    };
    assert_eq!(workload.check(), Ok(()));
    let all = pieces(&workload, 4 << 20, 512, 9);
    let found: Vec<_> = (all.iter())
        .map(|(io, _)| (io.pause.0, io.waits, io.op, io.offset, io.len, io.fua))
        .collect();
    let round = [
        (70, true, Op::Read, 0, 4096, false),
        (0, true, Op::Flush, 0, 0, false),
        (20, true, Op::Write, 8192, 512, true),
        (30, true, Op::Discard, 1 << 20, 64 << 10, false),
        (
            0,
            false,
            Op::Discard,
            (1 << 20) + (64 << 10),
            36 << 10,
            false,
        ),
    ];
    assert_eq!(found, [&round[..], &round[1..]].concat());
    assert!(all.iter().all(|(_, whole)| whole.at == Nanos::ZERO));
    // Between two rounds it pauses as well.
    let mut paused = chain();
    (paused.looped, paused.round_pause) = (true, Nanos(1000));
    assert_eq!(pauses(paused, 7), [70, 0, 20, 30, 1000, 20, 30]);
    let mut alone = Replay::thinking(vec![chain().records()[0]], Vec::new()).expect("one");
    alone.looped = true;
    let workload = Workload {
        replay: Some(alone),
        ..Workload::default()
    };
    assert_eq!(
        pieces(&workload, 4 << 20, 512, 9).len(),
        1,
        "nothing follows"
    );
}
