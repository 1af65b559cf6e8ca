//! Writes that nobody waits for.

use crate::duel::Duel;
use crate::with;
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
