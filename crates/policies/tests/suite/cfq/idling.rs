//! VMs for which the device is kept idle.

use crate::cfq::disk::{Disk, FAR, Habit, READER, SEEKER};
use crate::cfq::{MIDDLE, with};
use crate::common::{MS, SECOND};
use tidegate_core::time::Nanos;

#[test]
fn idling_keeps_a_reader_together_beside_a_seeker() {
    let reads = |idle: u64| {
        let mut disk = Disk::new(1, FAR, &with(&[("slice_idle", idle)]));
        let thoughtful = Habit {
            think: MS,
            ..READER
        };
        let reader = disk.vm(MIDDLE, thoughtful);
        disk.vm(MIDDLE, SEEKER);
        disk.run(30 * SECOND);
        disk.patrons[reader].served
    };
    let (with, without) = (reads(8 * MS), reads(0));
    assert!(with > 8 * without, "{with} with idling, {without} without");
}

#[test]
fn nobody_waits_for_one_that_thinks_long() {
    let deliberate = |think: u64| {
        let mut disk = Disk::default(1);
        disk.vm(MIDDLE, Habit { think, ..READER });
        disk.vm(MIDDLE, SEEKER);
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
    let thoughtful = Habit {
        think: MS,
        ..READER
    };
    for (depth, positioning, idles) in [(1, 0, true), (4, 0, false), (4, FAR, true)] {
        let mut disk = Disk::new(depth, positioning, &with(&[]));
        disk.vm(MIDDLE, thoughtful);
        disk.vm(MIDDLE, SEEKER);
        disk.run(20 * SECOND);
        let deliberate = disk.driver.engine.device_stats().deliberate;
        assert_eq!(deliberate > Nanos::SECOND, idles, "{depth}, {positioning}");
    }
}
