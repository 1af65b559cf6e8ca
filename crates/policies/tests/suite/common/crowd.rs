//! Crowd of VMs behind a regulator that gates at admission: random steps in any order, while a slow
//! model of the regulator's rules checks each event.

use super::{Driver, Guest, config};
use proptest::prelude::*;
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::request::{IoError, Op, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

pub const BLOCK: u32 = 4096;
pub const GUESTS: usize = 5;

#[derive(Clone, Debug)]
pub enum Step {
    /// Requests at places far from each other.
    Ask {
        guest: usize,
        write: bool,
        count: u64,
        block: u64,
        blocks: u32,
    },
    /// Request that continues the last one.
    Adjacent {
        guest: usize,
    },
    Flush {
        guest: usize,
    },
    Dispatch,
    Complete {
        which: usize,
        fails: bool,
    },
    /// Time passes, with the timers in time or (`late`) all of them late.
    Wait {
        micros: u64,
        late: bool,
    },
    Vanish {
        guest: usize,
    },
    Replace {
        guest: usize,
        to: usize,
    },
    Change {
        guest: usize,
        to: usize,
    },
    Swap {
        to: usize,
    },
}

/// Generates steps. `wait` is the longest time between two steps in microseconds.
pub fn step(wait: u64) -> impl Strategy<Value = Step> {
    let guest = || 0..GUESTS;
    let count = prop_oneof![12 => Just(1u64), 2 => 2u64..4, 1 => 20u64..60];
    let blocks = prop_oneof![8 => 1u32..4, 1 => 30u32..50];
    prop_oneof![
        24 => (guest(), any::<bool>(), count, 0u64..200, blocks).prop_map(
            |(guest, write, count, block, blocks)| Step::Ask { guest, write, count, block, blocks }
        ),
        8 => guest().prop_map(|guest| Step::Adjacent { guest }),
        1 => guest().prop_map(|guest| Step::Flush { guest }),
        20 => Just(Step::Dispatch),
        20 => (0usize..8, prop::bool::weighted(0.05))
            .prop_map(|(which, fails)| Step::Complete { which, fails }),
        10 => (0..wait, prop::bool::weighted(0.1))
            .prop_map(|(micros, late)| Step::Wait { micros, late }),
        1 => guest().prop_map(|guest| Step::Vanish { guest }),
        1 => (guest(), 0usize..64).prop_map(|(guest, to)| Step::Replace { guest, to }),
        3 => (guest(), 0usize..64).prop_map(|(guest, to)| Step::Change { guest, to }),
        1 => (0usize..64).prop_map(|to| Step::Swap { to }),
    ]
}

/// Objectives of the crowd's VMs, and hooks that run before a change.
pub trait Rules {
    /// Returns the objective with number `n`; any number is valid.
    fn objective(&self, n: usize) -> Objective;
    /// A VM is about to get objective `n`.
    fn changes(&mut self, _vm: VmId, _n: usize) {}
    /// A policy is about to take over.
    fn swaps(&mut self, _to: &PolicySpec) {}
}

pub struct Crowd<R> {
    pub driver: Driver,
    pub rules: R,
    pub guests: Vec<Guest>,
    policies: Vec<PolicySpec>,
    last: Vec<u64>,
}

impl<R: Rules> Crowd<R> {
    /// Creates the crowd under the first of the policies; `wrap` puts the model around its
    /// regulator.
    pub fn new(
        depth: u32,
        policies: Vec<PolicySpec>,
        rules: R,
        wrap: impl Fn(Roles) -> Roles + Send + 'static,
    ) -> Crowd<R> {
        let device = DeviceSpec {
            max_io: 16 * BLOCK,
            ..config(depth, 0).device
        };
        let config = EngineConfig {
            device,
            merge_limit: 8 * BLOCK,
            max_vms: 2 * GUESTS as u32,
            ..config(depth, 0)
        };
        let mut driver = Driver::new(config, &policies[0]);
        driver.engine.wrap_roles(Nanos::ZERO, wrap);
        let mut crowd = Crowd {
            driver: driver.with_clock_at(Nanos::from_millis(1)),
            rules,
            policies,
            guests: Vec::new(),
            last: vec![0; GUESTS],
        };
        for n in 0..GUESTS {
            let guest = crowd.driver.guest(&crowd.rules.objective(n));
            crowd.guests.push(guest);
        }
        crowd
    }

    fn ask(&mut self, guest: usize, op: Op, offset: u64, len: u32) {
        self.last[guest] = offset + u64::from(len);
        let client = self.guests[guest].client;
        // Refused where it has vanished, or has as many inside as it may.
        let _ = self.driver.ask(client, op, offset, len);
    }

    pub fn act(&mut self, step: Step) {
        match step {
            Step::Ask {
                guest,
                write,
                count,
                block,
                blocks,
            } => {
                for n in 0..count {
                    let (offset, len) = ((block + 100 * n) * u64::from(BLOCK), blocks * BLOCK);
                    let op = if write { Op::Write } else { Op::Read };
                    self.ask(guest, op, offset, len);
                }
            }
            Step::Adjacent { guest } => {
                let offset = self.last[guest] % (1 << 29);
                self.ask(guest, Op::Read, offset, BLOCK);
            }
            Step::Flush { guest } => self.ask(guest, Op::Flush, 0, 0),
            Step::Dispatch => _ = self.driver.start_all(),
            Step::Complete { which, fails } => {
                let in_flight = self.driver.in_flight.len();
                if in_flight > 0 {
                    let outcome = if fails { Err(IoError::Io) } else { Ok(()) };
                    self.driver.end_nth(which % in_flight, outcome);
                }
            }
            Step::Wait { micros, late } => {
                let end = self.driver.now + Nanos::from_micros(micros);
                while let Some(due) = self.driver.engine.next_timeout().filter(|&due| due <= end) {
                    self.driver.now = if late { end } else { self.driver.now.max(due) };
                    self.driver.engine.handle_timeout(self.driver.now);
                }
                self.driver.now = end;
            }
            Step::Vanish { guest } => self.driver.disconnect(self.guests[guest].client),
            Step::Replace { guest, to } => {
                let vm = self.guests[guest].vm;
                let leaves = self.driver.engine.vms().in_flight(vm) > 0;
                if self.driver.engine.view().vm_slots() >= 2 * GUESTS && leaves {
                    return;
                }
                self.driver.remove_vm(vm);
                self.guests[guest] = self.driver.guest(&self.rules.objective(to));
            }
            Step::Change { guest, to } => {
                let vm = self.guests[guest].vm;
                self.rules.changes(vm, to);
                self.driver.set_objective(vm, &self.rules.objective(to));
            }
            Step::Swap { to } => {
                let policy = self.policies[to % self.policies.len()].clone();
                self.rules.swaps(&policy);
                self.driver.set_policy(&policy);
            }
        }
        _ = self.driver.answers();
    }

    /// Completes all requests, whatever delays them, and asserts that nothing is left.
    pub fn drain(&mut self) {
        for _ in 0..10_000 {
            self.driver.start_all();
            if self.driver.in_flight.is_empty() {
                match self.driver.engine.next_timeout() {
                    _ if self.driver.engine.is_idle() => return self.driver.assert_drained(),
                    Some(due) => self.driver.now = self.driver.now.max(due),
                    None => panic!("nothing will ever happen again"),
                }
                continue;
            }
            self.driver.now += Nanos::from_micros(100);
            let last = self.driver.in_flight.len() - 1;
            self.driver.end_nth(last, Ok(()));
        }
        panic!("it does not drain");
    }
}
