//! Division of the device's time among VMs.

use crate::cfq::disk::{Disk, FAR, READER, SEEKER};
use crate::cfq::duel::Duel;
use crate::cfq::{MIDDLE, with};
use crate::common::{MS, SECOND};
use tidegate_core::objective::Priority;
use tidegate_core::request::Op;

#[test]
fn equals_have_equal_time_whatever_they_read() {
    let mut disk = Disk::default(1);
    for habit in [READER, SEEKER, SEEKER, READER] {
        disk.vm(MIDDLE, habit);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 0.25).abs() < 0.02, "{:?}", disk.shares());
    }
    let [reader, seeker] = [0, 1].map(|p: usize| disk.patrons[p].served);
    assert!(reader > 12 * seeker, "{reader} and {seeker}");
}

#[test]
fn levels_share_the_time_as_their_slices_do() {
    let mut disk = Disk::default(1);
    for level in [0, 4, 7] {
        disk.vm(Priority::BestEffort(level), READER);
    }
    disk.run(60 * SECOND);
    for (patron, slice) in disk.patrons.iter().zip([180, 100, 40]) {
        // Behind the way there, which is not the slice's.
        let turn = patron.busy / patron.turns;
        assert!(turn.abs_diff(slice * MS + FAR) <= MS, "{turn}");
    }
    // The longer the slice, the sooner it is due again.
    let shares = disk.shares();
    for (share, slice) in shares.iter().zip([180.0, 100.0, 40.0]) {
        assert!((share - slice / 320.0).abs() < 0.05, "{shares:?}");
    }
    assert!(disk.patrons[2].turns < disk.patrons[0].turns);
}

#[test]
fn without_priorities_all_levels_are_equal() {
    let mut disk = Disk::new(1, FAR, &with(&[("priorities", 0)]));
    for priority in [Priority::RealTime, Priority::BestEffort(0), Priority::Idle] {
        disk.vm(priority, READER);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{:?}", disk.shares());
    }
}

/// Documentation/block/cfq-iosched.txt: slice_sync + (slice_sync / 5) (4 - level), and the same of
/// slice_async; ms at levels 0 to 7.
const SLICES: [(Op, [u64; 8]); 2] = [
    (Op::Read, [180, 160, 140, 120, 100, 80, 60, 40]),
    (Op::Write, [72, 64, 56, 48, 40, 32, 24, 16]),
];

#[test]
fn a_slice_is_as_long_as_its_level_says() {
    for (op, lengths) in SLICES {
        for (level, slice) in (0..).zip(lengths) {
            let spec = with(&[("async_writes", 1), ("slice_async_rq", 1000)]);
            let mut duel = Duel::new(&spec, 1 << 30);
            duel.set_priority(0, Priority::BestEffort(level));
            for block in 0..300 {
                duel.ask(0, op, block * 10);
            }
            duel.ask(1, op, 0);
            // It runs from the end of the first I/O, and each takes a millisecond.
            assert_eq!(duel.turn() as u64, slice + 1, "{op:?} at level {level}");
        }
    }
}

#[test]
fn with_low_latency_all_turns_fit_in_the_target() {
    for (vms, slice) in [(3, 100), (4, 75), (6, 50), (12, 25), (30, 16)] {
        let mut disk = Disk::new(1, FAR, &with(&[("low_latency", 1)]));
        for _ in 0..vms {
            disk.vm(MIDDLE, READER);
        }
        // The average number of busy queues is known after a round.
        disk.run(10 * SECOND);
        let before: Vec<_> = disk.patrons.iter().map(|p| (p.busy, p.turns)).collect();
        disk.run(60 * SECOND);
        for (patron, (busy, turns)) in disk.patrons.iter().zip(before) {
            let turn = (patron.busy - busy) / (patron.turns - turns);
            assert!(turn.abs_diff(slice * MS + FAR) <= MS, "{vms} VMs: {turn}");
        }
    }
}
