//! How the device's time is shared.

use crate::common::{MS, SECOND};
use crate::disk::{Disk, FAR, READER, SEEKER};
use crate::{MIDDLE, with};
use tidegate_core::objective::Priority;

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
