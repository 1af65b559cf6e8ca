//! Tests of FIFO: against a plain queue, and with gates against a list that is scanned from its
//! front.

use crate::common::{Driver, Guest, config};
use proptest::prelude::*;
use std::collections::VecDeque;
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const MAX_IO: u32 = 64 << 10;
const VMS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Request { vm: usize, op: Op, len: u32 },
    Dispatch,
    Complete { which: usize },
    Wait { micros: u64 },
    Disconnect { vm: usize },
    Swap { to_gated: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Discard)];
    let len = prop_oneof![4 => 1u32..=MAX_IO, 1 => MAX_IO..=6 * MAX_IO];
    prop_oneof![
        8 => (0..VMS, op, len).prop_map(|(vm, op, len)| Step::Request { vm, op, len }),
        6 => Just(Step::Dispatch),
        5 => (0usize..8).prop_map(|which| Step::Complete { which }),
        2 => (0u64..20_000).prop_map(|micros| Step::Wait { micros }),
        1 => (0..4 * VMS).prop_map(|vm| Step::Disconnect { vm }),
        1 => any::<bool>().prop_map(|to_gated| Step::Swap { to_gated }),
    ]
}

/// Waiting request as the oracle records it.
struct Waiting {
    tag: u64,
    vm: usize,
    op: Op,
    left: u32,
}

struct Bench {
    driver: Driver,
    guests: Vec<Guest>,
    waiting: VecDeque<Waiting>,
}

fn policy(gated: bool) -> PolicySpec {
    PolicySpec::named(if gated { "limit" } else { "fifo" }).expect("known")
}

impl Bench {
    fn new(gated: bool) -> Bench {
        let config = config(4, 0);
        let config = EngineConfig {
            device: DeviceSpec {
                max_io: MAX_IO,
                ..config.device
            },
            max_vms: VMS as u32,
            ..config
        };
        let mut bench = Bench {
            driver: Driver::new(config, &policy(gated)),
            guests: Vec::new(),
            waiting: VecDeque::new(),
        };
        for vm in 0..VMS as u64 {
            let limit = match vm {
                0 => Limit::of_all(Rate::iops(300)),
                1 => Limit {
                    read: Rate::iops(200),
                    ..Limit::NONE
                },
                2 => Limit {
                    write: Rate::bytes(8_000_000),
                    ..Limit::NONE
                },
                _ => Limit::NONE,
            };
            let objective = Objective {
                limit,
                ..Objective::default()
            };
            let guest = bench.driver.guest(&objective);
            bench.guests.push(guest);
        }
        bench
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Request { vm, op, len } => {
                // Far apart, so that no two are adjacent.
                let offset = (self.driver.log.len() + self.waiting.len()) as u64 * (4 << 20);
                let client = self.guests[vm].client;
                if let Ok(tag) = self.driver.ask(client, op, offset, len) {
                    let left = len;
                    self.waiting.push_back(Waiting { tag, vm, op, left });
                }
            }
            Step::Dispatch => self.dispatch(),
            Step::Complete { which } => {
                let in_flight = self.driver.in_flight.len();
                if in_flight > 0 {
                    self.driver.end_nth(which % in_flight, Ok(()));
                }
            }
            Step::Wait { micros } => self.driver.now += Nanos::from_micros(micros),
            Step::Disconnect { vm } => {
                if let Some(guest) = self.guests.get(vm) {
                    self.driver.disconnect(guest.client);
                    self.waiting.retain(|w| w.vm != vm);
                }
            }
            Step::Swap { to_gated } => self.driver.set_policy(&policy(to_gated)),
        }
    }

    /// Asserts that the engine picks the first request in the order of arrival whose lane is open.
    fn dispatch(&mut self) {
        while self.driver.in_flight.len() < 4 {
            self.driver.engine.handle_timeout(self.driver.now);
            let view = self.driver.engine.view();
            let open = |w: &Waiting| view.gate_open(self.guests[w.vm].vm, w.op.lane());
            let expected = self.waiting.iter().position(open);
            let io = self.driver.start();
            assert_eq!(io.is_some(), expected.is_some());
            let (Some(io), Some(place)) = (io, expected) else {
                return;
            };
            let mut segments = self.driver.engine.io_segments(io.id);
            let segment = segments.next().expect("it has data");
            let first = &mut self.waiting[place];
            assert_eq!((segment.tag, io.op), (first.tag, first.op));
            first.left -= io.len;
            if first.left == 0 {
                self.waiting.remove(place);
            }
        }
        assert_eq!(self.driver.start(), None, "the device is full");
    }

    fn drain(&mut self) {
        loop {
            self.dispatch();
            self.driver.end_all();
            if self.waiting.is_empty() {
                break;
            }
            let due = self.driver.engine.next_timeout();
            self.driver.now = due.map_or(self.driver.now, |due| self.driver.now.max(due));
        }
        self.driver.assert_drained();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_go_in_the_order_of_arrival(
        gated in any::<bool>(),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut bench = Bench::new(gated);
        steps.into_iter().for_each(|step| bench.act(step));
        bench.drain();
    }
}
