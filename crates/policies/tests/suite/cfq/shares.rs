//! Division of the device's time among VMs.

use crate::cfq::disk::{Disk, RANDOM_READER, SEEK_NS, SEQUENTIAL_READER};
use crate::cfq::duel::Duel;
use crate::cfq::{DEFAULT_PRIORITY, with};
use crate::common::{MS, SECOND};
use tidegate_core::objective::Priority;
use tidegate_core::request::Op;

#[test]
fn vms_of_one_priority_get_equal_device_time_whatever_their_access_pattern() {
    let mut disk = Disk::default(1);
    for pattern in [
        SEQUENTIAL_READER,
        RANDOM_READER,
        RANDOM_READER,
        SEQUENTIAL_READER,
    ] {
        disk.vm(DEFAULT_PRIORITY, pattern);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 0.25).abs() < 0.02, "{:?}", disk.shares());
    }
    // In equal time, I/Os of 500 us against some of 8 ms: 16 times as many, less a seek per slice.
    let [sequential, random] = [0, 1].map(|vm: usize| disk.vms[vm].served);
    assert!(sequential > 12 * random, "{sequential} and {random}");
}

#[test]
fn best_effort_levels_share_the_device_time_by_their_slices() {
    let mut disk = Disk::default(1);
    for level in [0, 4, 7] {
        disk.vm(Priority::BestEffort(level), SEQUENTIAL_READER);
    }
    disk.run(60 * SECOND);
    for (vm, slice_ms) in disk.vms.iter().zip([180, 100, 40]) {
        // The first I/O of a turn seeks; the slice begins at its end.
        let turn = vm.device_ns / vm.turns;
        assert!(turn.abs_diff(slice_ms * MS + SEEK_NS) <= MS, "{turn}");
    }
    // A VM with a longer slice is also due sooner again, so the shares are not exactly those of the
    // slices.
    let shares = disk.shares();
    for (share, slice_ms) in shares.iter().zip([180.0, 100.0, 40.0]) {
        assert!((share - slice_ms / 320.0).abs() < 0.05, "{shares:?}");
    }
    assert!(disk.vms[2].turns < disk.vms[0].turns);
}

#[test]
fn without_priorities_all_levels_are_equal() {
    let mut disk = Disk::new(1, SEEK_NS, &with(&[("priorities", 0)]));
    for priority in [Priority::RealTime, Priority::BestEffort(0), Priority::Idle] {
        disk.vm(priority, SEQUENTIAL_READER);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{:?}", disk.shares());
    }
}

/// Slices in milliseconds at the levels 0 to 7: slice_sync + (slice_sync / 5) (4 - level), and the
/// same of slice_async (Linux, Documentation/block/cfq-iosched.txt).
const SLICES_MS: [(Op, [u64; 8]); 2] = [
    (Op::Read, [180, 160, 140, 120, 100, 80, 60, 40]),
    (Op::Write, [72, 64, 56, 48, 40, 32, 24, 16]),
];

#[test]
fn slices_have_the_lengths_of_their_levels() {
    for (op, lengths) in SLICES_MS {
        for (level, slice_ms) in (0..).zip(lengths) {
            let spec = with(&[("async_writes", 1), ("slice_async_rq", 1000)]);
            let mut duel = Duel::new(&spec, 1 << 30);
            duel.set_priority(0, Priority::BestEffort(level));
            for block in 0..300 {
                duel.ask(0, op, block * 10);
            }
            duel.ask(1, op, 0);
            // The slice begins at the end of the first I/O, and each I/O takes a millisecond.
            assert_eq!(duel.turn() as u64, slice_ms + 1, "{op:?} at level {level}");
        }
    }
}

#[test]
fn low_latency_shortens_slices_to_a_round_of_300_ms() {
    // CFQ's target latency of 300 ms divided by the number of VMs; between the slice of 100 ms and
    // two times `slice_idle`, 16 ms.
    for (vms, slice_ms) in [(3, 100), (4, 75), (6, 50), (12, 25), (30, 16)] {
        let mut disk = Disk::new(1, SEEK_NS, &with(&[("low_latency", 1)]));
        for _ in 0..vms {
            disk.vm(DEFAULT_PRIORITY, SEQUENTIAL_READER);
        }
        // The average number of device_ns queues is known after a round.
        disk.run(10 * SECOND);
        let before: Vec<_> = disk.vms.iter().map(|vm| (vm.device_ns, vm.turns)).collect();
        disk.run(60 * SECOND);
        for (vm, (device_ns, turns)) in disk.vms.iter().zip(before) {
            let turn = (vm.device_ns - device_ns) / (vm.turns - turns);
            assert!(
                turn.abs_diff(slice_ms * MS + SEEK_NS) <= MS,
                "{vms} VMs: {turn}"
            );
        }
    }
}
