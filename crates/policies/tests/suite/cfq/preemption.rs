//! Preemption within a class.

use crate::cfq::duel::Duel;
use crate::cfq::with;
use crate::common::MS;
use tidegate_core::request::Op;

#[test]
fn a_neighbours_request_preempts_for_the_rest_of_the_slice() {
    // The first VM's disk ends where the second's begins.
    for (apart, near) in [(16 << 20, true), (1 << 30, false)] {
        let mut duel = Duel::new(&with(&[]), apart);
        let last = apart / 4096 - 1;
        duel.ask(0, Op::Read, last);
        assert_eq!(duel.serve(), Some((0, Op::Read)));
        // While the first is idled for; from far away it waits until that is over.
        let asked = duel.driver.now.0;
        duel.ask(1, Op::Read, if near { 0 } else { 5000 });
        assert_eq!(duel.serve(), Some((1, Op::Read)));
        let waited = duel.driver.now.0 - MS - asked;
        assert_eq!(waited, if near { 0 } else { 8 * MS });
    }
}

#[test]
fn neighbours_that_take_turns_have_one_slice_together() {
    let mut duel = Duel::new(&with(&[]), 16 << 20);
    let last = (16 << 20) / 4096 - 1;
    duel.ask(0, Op::Read, last);
    assert_eq!(duel.serve(), Some((0, Op::Read)));
    let begun = duel.driver.now.0;
    duel.ask(2, Op::Read, 0);
    let mut turn = 0;
    loop {
        turn += 1;
        assert!(turn < 1000, "the third is left out");
        let own = turn % 2;
        duel.ask(own, Op::Read, if own == 0 { last } else { 0 });
        match duel.serve().expect("somebody's").0 {
            2 => break,
            whose => assert_eq!(whose, own),
        }
    }
    // The third was due from the start, and the slice of the first ends after 100 ms.
    assert_eq!(duel.driver.now.0 - MS - begun, 100 * MS);
    assert_eq!(turn, 101);
}
