//! VMs for which the device is kept idle.

use crate::cfq::disk::{AccessPattern, Disk, RANDOM_READER, SEEK_NS, SEQUENTIAL_READER};
use crate::cfq::{DEFAULT_PRIORITY, with};
use crate::common::{MS, SECOND};
use tidegate_core::time::Nanos;

#[test]
fn idling_keeps_a_reader_together_beside_a_seeker() {
    let reads = |idle: u64| {
        let mut disk = Disk::new(1, SEEK_NS, &with(&[("slice_idle", idle)]));
        let thoughtful = AccessPattern {
            think: MS,
            ..SEQUENTIAL_READER
        };
        let reader = disk.vm(DEFAULT_PRIORITY, thoughtful);
        disk.vm(DEFAULT_PRIORITY, RANDOM_READER);
        disk.run(30 * SECOND);
        disk.vms[reader].served
    };
    let (with, without) = (reads(8 * MS), reads(0));
    assert!(with > 8 * without, "{with} with idling, {without} without");
}

#[test]
fn the_device_is_not_kept_idle_for_a_long_think_time() {
    let deliberate = |think: u64| {
        let mut disk = Disk::default(1);
        disk.vm(
            DEFAULT_PRIORITY,
            AccessPattern {
                think,
                ..SEQUENTIAL_READER
            },
        );
        disk.vm(DEFAULT_PRIORITY, RANDOM_READER);
        disk.run(SECOND);
        let before = disk.driver.engine.device_stats().deliberate.0;
        disk.run(20 * SECOND);
        disk.driver.engine.device_stats().deliberate.0 - before
    };
    assert!(deliberate(2 * MS) > SECOND);
    assert_eq!(deliberate(12 * MS), 0);
}

#[test]
fn flash_is_not_left_idle() {
    let thoughtful = AccessPattern {
        think: MS,
        ..SEQUENTIAL_READER
    };
    for (depth, positioning, idles) in [(1, 0, true), (4, 0, false), (4, SEEK_NS, true)] {
        let mut disk = Disk::new(depth, positioning, &with(&[]));
        disk.vm(DEFAULT_PRIORITY, thoughtful);
        disk.vm(DEFAULT_PRIORITY, RANDOM_READER);
        disk.run(20 * SECOND);
        let deliberate = disk.driver.engine.device_stats().deliberate;
        assert_eq!(deliberate > Nanos::SECOND, idles, "{depth}, {positioning}");
    }
}
