//! Writes that nobody waits for.

use crate::cfq::duel::Duel;
use crate::cfq::with;
use crate::common::MS;
use tidegate_core::objective::{Objective, Priority};
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

/// Parameters under which asynchronous writes of all VMs share a queue.
const SHARED: [(&str, u64); 2] = [("async_writes", 1), ("shared_async", 1)];

#[test]
fn a_shared_queue_is_sorted_by_address_across_vms() {
    for shared in [true, false] {
        let mut duel = Duel::new(&with(&SHARED[..1 + usize::from(shared)]), 1 << 30);
        duel.set_priority(1, Priority::RealTime);
        for block in 0..3 {
            duel.ask(1, Op::Write, block * 10);
            duel.ask(0, Op::Write, block * 10);
        }
        let order: Vec<usize> = (0..6).map(|_| duel.serve().expect("a write").0).collect();
        // Beside it the writer of real time goes first.
        let expected = if shared {
            [0, 0, 0, 1, 1, 1]
        } else {
            [1, 1, 1, 0, 0, 0]
        };
        assert_eq!(order, expected);
    }
}

#[test]
fn a_shared_queue_has_one_slice_for_all_who_write() {
    let alone = [("preemption", 0)];
    let mut duel = Duel::new(&with(&[&SHARED[..], &alone].concat()), 1 << 30);
    for block in 0..100 {
        duel.ask(0, Op::Write, 1000 - block * 10);
        duel.ask(1, Op::Write, 1000 - block * 10);
    }
    assert_eq!(duel.serve(), Some((0, Op::Write)));
    duel.ask(2, Op::Read, 0);
    // Best effort 4 has sixteen I/Os, one of which was served.
    for _ in 0..15 {
        assert_eq!(duel.serve().map(|of| of.1), Some(Op::Write));
    }
    assert_eq!(duel.serve(), Some((2, Op::Read)));
}

#[test]
fn the_oldest_of_all_writers_begins_the_slice_once_it_has_expired() {
    let expire = [("fifo_expire_async", MS)];
    let mut duel = Duel::new(&with(&[&SHARED[..], &expire].concat()), 1 << 30);
    duel.ask(1, Op::Write, 0);
    duel.ask(0, Op::Write, 0);
    duel.driver.now.0 += MS;
    let order = [(); 2].map(|()| duel.serve());
    assert_eq!(order, [Some((1, Op::Write)), Some((0, Op::Write))]);
}

#[test]
fn without_preemption_a_turn_ends_by_itself() {
    // A read beside asynchronous writes, and a real-time VM beside a best-effort one.
    for (op, params, most) in [
        (Op::Write, [("async_writes", 1), ("slice_idle", 0)], 16),
        // The slice begins at the end of the first I/O, so it has a hundred more of a millisecond.
        (Op::Read, [("async_writes", 0), ("slice_idle", 0)], 101),
    ] {
        for preemption in [0, 1] {
            let params = [&params[..], &[("preemption", preemption)]].concat();
            let mut duel = Duel::new(&with(&params), 1 << 30);
            duel.set_priority(1, Priority::RealTime);
            for block in 0..200 {
                duel.ask(0, op, block * 10);
            }
            assert_eq!(duel.serve(), Some((0, op)));
            duel.ask(1, Op::Read, 0);
            let first = [most - 1, 0][preemption as usize];
            for _ in 0..first {
                assert_eq!(duel.serve(), Some((0, op)));
            }
            assert_eq!(duel.serve(), Some((1, Op::Read)), "{preemption}");
        }
    }
}

#[test]
fn the_idle_class_gives_way_without_preemption() {
    let params = [("preemption", 0), ("idle_class_grace", 0)];
    let mut duel = Duel::new(&with(&params), 1 << 30);
    duel.set_priority(0, Priority::Idle);
    for block in 0..20 {
        duel.ask(0, Op::Read, block * 10);
    }
    assert_eq!(duel.serve(), Some((0, Op::Read)));
    duel.ask(1, Op::Read, 0);
    assert_eq!(duel.serve(), Some((1, Op::Read)));
}

#[test]
fn writes_of_vms_may_be_synchronous_beside_those_of_a_background_process() {
    let own = [("async_vm_writes", 0), ("background_class", 1)];
    for (vms_too, expected) in [(false, [1, 1, 0, 0]), (true, [0, 0, 1, 1])] {
        let params = [&SHARED[..], &own[usize::from(vms_too)..]].concat();
        let mut duel = Duel::new(&with(&params), 1 << 30);
        let backup = duel.driver.try_background(&Objective::default());
        duel.guests[0] = duel
            .driver
            .guest_at(backup.expect("room"), 1 << 50, 1 << 30);
        for block in 0..3 {
            duel.ask(0, Op::Write, block * 10);
        }
        assert_eq!(duel.serve(), Some((0, Op::Write)));
        duel.ask(1, Op::Write, 0);
        duel.ask(1, Op::Write, 10);
        // Synchronous writes preempt asynchronous ones; of asynchronous ones the near go first.
        let order = [(); 4].map(|()| duel.serve().expect("a write").0);
        assert_eq!(order, expected, "{vms_too}");
    }
}
