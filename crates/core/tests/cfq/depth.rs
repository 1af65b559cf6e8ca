//! How many I/Os of a VM are in flight.

use crate::MIDDLE;
use crate::common::SECOND;
use crate::disk::{Disk, Habit, SEEKER};

#[test]
fn a_vm_has_its_depth_in_flight_while_others_wait() {
    let greedy = Habit {
        depth: 32,
        ..SEEKER
    };
    let mut disk = Disk::default(32);
    disk.vm(MIDDLE, greedy);
    disk.run(SECOND);
    assert_eq!(disk.most_in_flight, 32, "alone it has all");
    for patron in 1..3 {
        disk.vm(MIDDLE, greedy);
        disk.run(SECOND);
        disk.most_in_flight = 0;
        disk.run(10 * SECOND);
        assert_eq!(disk.most_in_flight, 8, "{patron}");
    }
}
