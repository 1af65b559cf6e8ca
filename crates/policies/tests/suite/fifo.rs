//! FIFO against a plain queue, and with gates against a list that is scanned from its front.

use proptest::prelude::*;
use std::collections::VecDeque;
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig};
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::{ClientId, IoId, Op, Request, VmId};
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

/// One request that waits, as the oracle knows it.
struct Waiting {
    tag: u64,
    vm: usize,
    op: Op,
    left: u32,
}

struct Bench {
    engine: Engine,
    now: Nanos,
    vms: Vec<(VmId, ClientId)>,
    waiting: VecDeque<Waiting>,
    in_flight: Vec<IoId>,
    tag: u64,
}

fn policy(gated: bool) -> PolicySpec {
    PolicySpec::named(if gated { "limit" } else { "fifo" }).expect("known")
}

impl Bench {
    fn new(gated: bool) -> Bench {
        let device = DeviceSpec {
            depth: 4,
            physical_block: 4096,
            max_io: MAX_IO,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        };
        let config = EngineConfig {
            device,
            max_requests: 16_384,
            max_pending_per_vm: 1024,
            merge_limit: 0,
            max_vms: VMS as u32,
        };
        let engine = Engine::new(config, &policy(gated)).expect("sound");
        let mut bench = Bench {
            engine,
            now: Nanos::ZERO,
            vms: Vec::new(),
            waiting: VecDeque::new(),
            in_flight: Vec::new(),
            tag: 0,
        };
        for vm in 0..VMS as u64 {
            let limit = match vm {
                0 => Limit {
                    total: Rate::iops(300),
                    ..Limit::NONE
                },
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
            let id = bench
                .engine
                .tenants_mut()
                .add_vm(bench.now, &objective)
                .expect("room");
            let spec = DiskSpec {
                base: vm << 40,
                size: 1 << 40,
                read_only: false,
            };
            let disk = bench.engine.tenants_mut().add_disk(id, spec).expect("fits");
            let client = bench.engine.connect(disk).expect("there");
            bench.vms.push((id, client));
        }
        bench
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Request { vm, op, len } => {
                self.tag += 1;
                let request = Request {
                    op,
                    ..Request::read(self.tag << 22, len, self.tag)
                };
                let taken = self
                    .engine
                    .handle_request(self.now, self.vms[vm].1, request);
                if taken.is_ok() {
                    self.waiting.push_back(Waiting {
                        tag: self.tag,
                        vm,
                        op,
                        left: len,
                    });
                }
            }
            Step::Dispatch => self.dispatch(),
            Step::Complete { which } => {
                if !self.in_flight.is_empty() {
                    let io = self.in_flight.swap_remove(which % self.in_flight.len());
                    self.engine.handle_completion(self.now, io, Ok(()));
                }
            }
            Step::Wait { micros } => self.now += Nanos::from_micros(micros),
            Step::Disconnect { vm } => {
                let Some(&(_, client)) = self.vms.get(vm) else {
                    return;
                };
                self.engine.handle_disconnect(self.now, client);
                self.waiting.retain(|w| w.vm != vm);
            }
            Step::Swap { to_gated } => self.engine.set_policy(self.now, &policy(to_gated)),
        }
        while self.engine.poll_done().is_some() {}
    }

    /// The engine's choice must be the first in the order of arrival whose lane is open.
    fn dispatch(&mut self) {
        while self.in_flight.len() < 4 {
            self.engine.handle_timeout(self.now);
            let view = self.engine.view();
            let open = |w: &Waiting| view.gate_open(self.vms[w.vm].0, w.op.lane());
            let expected = self.waiting.iter().position(open);
            let io = self.engine.poll_dispatch(self.now);
            assert_eq!(io.is_some(), expected.is_some());
            let (Some(io), Some(place)) = (io, expected) else {
                return;
            };
            let segment = self.engine.io_segments(io.id).next().expect("it has data");
            let first = &mut self.waiting[place];
            assert_eq!((segment.tag, io.op), (first.tag, first.op));
            first.left -= io.len;
            if first.left == 0 {
                self.waiting.remove(place);
            }
            self.in_flight.push(io.id);
        }
        assert_eq!(
            self.engine.poll_dispatch(self.now),
            None,
            "the device is full"
        );
    }

    fn drain(&mut self) {
        loop {
            self.dispatch();
            for io in std::mem::take(&mut self.in_flight) {
                self.engine.handle_completion(self.now, io, Ok(()));
            }
            while self.engine.poll_done().is_some() {}
            if self.waiting.is_empty() {
                break;
            }
            self.now = self
                .engine
                .next_timeout()
                .map_or(self.now, |due| self.now.max(due));
        }
        assert!(self.engine.is_idle());
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
