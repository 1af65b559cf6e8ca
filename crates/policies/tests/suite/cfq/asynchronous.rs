//! Writes that nobody waits for.

use crate::cfq::duel::Duel;
use crate::cfq::with;
use crate::common::MS;
use tidegate_core::objective::Priority;
use tidegate_core::request::Op;

#[test]
fn asynchronous_writes_give_way() {
    let spec = with(&[("async_writes", 1), ("slice_idle", 0)]);
    let mut duel = Duel::new(&spec, 1 << 30);
    for block in 0..50 {
        duel.ask(0, Op::Write, block * 10);
    }
    assert_eq!(duel.serve(), Some((0, Op::Write)));
    for vm in [1, 0] {
        duel.ask(vm, Op::Read, 700);
        assert_eq!(duel.serve(), Some((vm, Op::Read)));
        assert_eq!(duel.serve(), Some((0, Op::Write)));
    }
    // Synchronous, they go on for their slice.
    let mut duel = Duel::new(&with(&[("slice_idle", 0)]), 1 << 30);
    for block in 0..50 {
        duel.ask(0, Op::Write, block * 10);
    }
    assert_eq!(duel.serve(), Some((0, Op::Write)));
    duel.ask(1, Op::Read, 700);
    assert_eq!(duel.serve(), Some((0, Op::Write)));
}

#[test]
fn a_turn_of_asynchronous_writes_has_so_many_ios() {
    // cfq-iosched.txt: slice_async_rq bounds them, and depends on the level; in Linux
    // 2 * slice_async_rq * (8 - level).
    for (level, rq, most) in [(0, 2, 32), (4, 2, 16), (7, 2, 4), (4, 1, 8)] {
        let params = [
            ("async_writes", 1),
            ("slice_async", 10_000 * MS),
            ("slice_async_rq", rq),
        ];
        let mut duel = Duel::new(&with(&params), 1 << 30);
        duel.set_priority(0, Priority::BestEffort(level));
        for block in 0..100 {
            duel.ask(0, Op::Write, block * 10);
        }
        duel.ask(1, Op::Write, 0);
        assert_eq!(duel.turn(), most, "level {level}, {rq}");
    }
    // Alone they go on.
    let mut duel = Duel::new(&with(&[("async_writes", 1)]), 1 << 30);
    for block in 0..30 {
        duel.ask(0, Op::Write, block * 10);
    }
    for _ in 0..30 {
        assert_eq!(duel.serve(), Some((0, Op::Write)));
    }
}

#[test]
fn asynchronous_writes_wait_until_nothing_synchronous_is_in_flight() {
    let spec = with(&[("async_writes", 1), ("slice_idle", 0)]);
    let mut duel = Duel::deep(&spec, 1 << 30, 32);
    duel.ask(0, Op::Read, 0);
    duel.ask(0, Op::Read, 500);
    duel.ask(1, Op::Write, 0);
    let reads = duel.start();
    assert_eq!(
        reads.iter().map(|io| io.op).collect::<Vec<_>>(),
        [Op::Read; 2]
    );
    duel.end(&reads[0]);
    assert_eq!(duel.start(), []);
    duel.end(&reads[1]);
    let [write] = duel.start()[..] else {
        panic!("the write goes now")
    };
    assert_eq!(write.op, Op::Write);
    // Nobody is waited for here: a read does not wait for the write to end.
    duel.ask(0, Op::Read, 900);
    assert_eq!(duel.start().len(), 1);
}

#[test]
fn what_is_waited_for_starts_when_no_asynchronous_write_is_in_flight() {
    let mut duel = Duel::deep(&with(&[("async_writes", 1)]), 1 << 30, 32);
    duel.ask(1, Op::Write, 0);
    let write = duel.start()[0];
    duel.ask(0, Op::Read, 0);
    assert_eq!(duel.start(), []);
    duel.end(&write);
    assert_eq!(duel.start()[0].op, Op::Read);
}

#[test]
fn reads_that_go_on_for_ever_do_not_starve_asynchronous_writes() {
    let mut duel = Duel::deep(&with(&[("async_writes", 1)]), 1 << 30, 4);
    duel.ask(1, Op::Write, 0);
    duel.ask(1, Op::Write, 10);
    let mut flying = duel.start();
    let (mut writes, mut block) = (0, 0);
    // There are always two reads more, whatever ends.
    for _ in 0..4 {
        duel.ask(0, Op::Read, block);
        block += 10;
    }
    for _ in 0..2000 {
        flying.extend(duel.start());
        let io = flying.remove(0);
        duel.driver.now.0 += MS;
        duel.end(&io);
        match io.op {
            Op::Write => {
                writes += 1;
                duel.ask(1, Op::Write, 20 + writes * 10);
            }
            _ => duel.ask(0, Op::Read, block),
        }
        block += 10;
    }
    // The first two, and one behind each slice of 100 ms and a few for what is in flight then.
    assert!((19..=21).contains(&writes), "{writes}");
}
