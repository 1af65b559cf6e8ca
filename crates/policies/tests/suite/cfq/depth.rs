//! Number of a VM's I/Os in flight.

use crate::cfq::disk::{AccessPattern, Disk, RANDOM_READER};
use crate::cfq::duel::Duel;
use crate::cfq::{DEFAULT_PRIORITY, with};
use crate::common::{MS, SECOND};
use tidegate_core::request::Op;

#[test]
fn a_vm_has_its_depth_in_flight_while_others_wait() {
    let greedy = AccessPattern {
        depth: 32,
        ..RANDOM_READER
    };
    let mut disk = Disk::default(32);
    disk.vm(DEFAULT_PRIORITY, greedy);
    disk.run(SECOND);
    assert_eq!(disk.most_in_flight, 32, "alone it has all");
    for vm in 1..3 {
        disk.vm(DEFAULT_PRIORITY, greedy);
        disk.run(SECOND);
        disk.most_in_flight = 0;
        disk.run(10 * SECOND);
        assert_eq!(disk.most_in_flight, 8, "{vm}");
    }
}

#[test]
fn half_of_its_depth_before_the_first_end_and_when_the_slice_is_nearly_over() {
    let mut duel = Duel::deep(&with(&[]), 1 << 30, 32);
    for block in 0..40 {
        duel.ask(0, Op::Read, block * 10);
        duel.ask(1, Op::Read, block * 10);
    }
    let mut flying = duel.start();
    assert_eq!(flying.len(), 4, "nothing is known of how long they take");
    duel.end(&flying.remove(0));
    flying.extend(duel.start());
    assert_eq!(flying.len(), 8, "eight of 8 ms fit in 100 ms");
    // Seven may take 56 ms, and the slice has 56.
    duel.driver.now.0 += 44 * MS;
    duel.end(&flying.remove(0));
    assert_eq!(duel.start().len(), 1);
    // Now it has 55.
    duel.driver.now.0 += MS;
    duel.end(&flying.remove(0));
    assert_eq!(duel.start(), []);
    for _ in 0..2 {
        duel.end(&flying.remove(0));
    }
    assert_eq!(duel.start().len(), 2, "up to seven again");
    // At the very end half of its depth still, though they will not be in time.
    duel.driver.now.0 += 54 * MS;
    for _ in 0..4 {
        duel.end(&flying.remove(0));
    }
    assert_eq!(duel.start().len(), 1, "up to four");
}

#[test]
fn one_reader_beside_asynchronous_writes_has_no_bound() {
    let mut duel = Duel::deep(&with(&[("async_writes", 1)]), 1 << 30, 32);
    for block in 0..40 {
        duel.ask(0, Op::Read, block * 10);
        duel.ask(1, Op::Write, block * 10);
    }
    let flying = duel.start();
    assert_eq!(flying.len(), 32);
    assert!(flying.iter().all(|io| io.op == Op::Read));
}
