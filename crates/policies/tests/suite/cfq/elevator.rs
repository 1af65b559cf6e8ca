//! The order within a queue.

use crate::cfq::with;
use crate::common::{Driver, Guest, MS, config};
use tidegate_core::objective::Objective;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// One VM's disk whose I/Os take what the test says.
struct Bench {
    driver: Driver,
    guest: Guest,
}

impl Bench {
    fn new(spec: &PolicySpec) -> Bench {
        let mut driver = Driver::new(config(1, 0), spec).with_clock_at(Nanos::SECOND);
        let guest = driver.guest(&Objective::default());
        Bench { driver, guest }
    }

    fn ask(&mut self, blocks: &[u64]) {
        for block in blocks {
            let client = self.guest.client;
            let taken = self.driver.ask(client, Op::Read, block * 4096, 4096);
            taken.expect("room");
        }
    }

    fn serve(&mut self, took: u64) -> u64 {
        let io = self.driver.start().expect("it waits");
        self.driver.now.0 += took;
        self.driver.end(&io, Ok(()));
        io.addr / 4096
    }
}

#[test]
fn the_elevator_goes_up_and_back_a_little() {
    let mut bench = Bench::new(&with(&[("back_seek_max", 10 * 4096)]));
    bench.ask(&[1000]);
    assert_eq!(bench.serve(MS), 1000);
    // Two blocks back count as four ahead: less than five, but not less than three.
    bench.ask(&[999, 1006]);
    assert_eq!(bench.serve(MS), 999);
    bench.ask(&[998, 1003]);
    assert_eq!(bench.serve(MS), 1003);
    assert_eq!(bench.serve(MS), 1006);
    // Nothing ahead: what is within reach behind, else the lowest of all.
    bench.ask(&[5, 3]);
    assert_eq!(bench.serve(MS), 998);
    assert_eq!([(); 2].map(|()| bench.serve(MS)), [3, 5]);
}

#[test]
fn the_head_goes_back_by_so_much_and_at_such_a_cost() {
    let serve_of = |last: u64, waiting: &[u64]| {
        let mut bench = Bench::new(&with(&[]));
        bench.ask(&[last]);
        assert_eq!(bench.serve(MS), last);
        bench.ask(waiting);
        bench.serve(MS)
    };
    // back_seek_max: 16 MiB, 4096 blocks, behind the end of the last; from further the lowest.
    assert_eq!(serve_of(9999, &[3, 5904]), 5904);
    assert_eq!(serve_of(9999, &[3, 5903]), 3);
    // back_seek_penalty: 100 back are 200 ahead, and what is ahead goes first among equals.
    assert_eq!(serve_of(9999, &[9900, 10_200]), 10_200);
    assert_eq!(serve_of(9999, &[9900, 10_201]), 9900);
}

#[test]
fn a_slice_begins_with_what_has_expired() {
    let mut bench = Bench::new(&with(&[("fifo_expire_sync", 200 * MS)]));
    bench.ask(&[9000, 1, 2, 3, 4, 5]);
    assert_eq!([(); 3].map(|()| bench.serve(MS)), [1, 2, 3]);
    // The slice runs from the first end; it is over with this I/O.
    assert_eq!(bench.serve(100 * MS), 4);
    bench.ask(&[6, 7]);
    assert_eq!(
        bench.serve(97 * MS),
        5,
        "the oldest has waited for 103 ms only"
    );
    assert_eq!(
        bench.serve(3 * MS),
        6,
        "it has expired, but the slice goes on"
    );
    assert_eq!(bench.serve(100 * MS), 7);
    bench.ask(&[8, 9]);
    assert_eq!(bench.serve(MS), 9000);
    assert_eq!(bench.serve(MS), 8);
}
