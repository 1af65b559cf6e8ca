//! A crowd of VMs before a regulator that gates at admission: anything in any order, with a slow
//! model of its rules around it that looks at each event.

use super::{config, open_disk};
use proptest::prelude::*;
use tidegate_core::engine::{DeviceSpec, Engine, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, IoError, IoId, Request, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

pub const BLOCK: u32 = 4096;
pub const GUESTS: usize = 5;

#[derive(Clone, Debug)]
pub enum Step {
    /// So many requests, far from each other.
    Ask {
        guest: usize,
        write: bool,
        count: u64,
        block: u64,
        blocks: u32,
    },
    /// One that continues the last.
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
    /// With the timers in time, or all of them late.
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

/// `wait`: the longest time between two things, in microseconds.
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

/// What the crowd's VMs are promised, and who wants to know before something happens to them.
pub trait Rules {
    /// One of many; any number will do.
    fn objective(&self, n: usize) -> Objective;
    /// A VM is about to be given another one of them.
    fn changes(&mut self, _vm: VmId, _n: usize) {}
    /// A policy is about to take over.
    fn swaps(&mut self, _to: &PolicySpec) {}
}

pub struct Crowd<R> {
    pub engine: Engine,
    pub rules: R,
    pub now: Nanos,
    pub guests: Vec<(VmId, ClientId)>,
    policies: Vec<PolicySpec>,
    last: Vec<u64>,
    in_flight: Vec<IoId>,
    disks: u64,
}

impl<R: Rules> Crowd<R> {
    /// Under the first of the policies; `wrap` puts the model around its regulator.
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
        let mut engine = Engine::new(config, &policies[0]).expect("sound");
        engine.wrap_roles(Nanos::ZERO, wrap);
        let mut crowd = Crowd {
            engine,
            rules,
            policies,
            now: Nanos(1_000_000),
            guests: Vec::new(),
            last: vec![0; GUESTS],
            in_flight: Vec::new(),
            disks: 0,
        };
        for n in 0..GUESTS {
            let guest = crowd.guest(n);
            crowd.guests.push(guest);
        }
        crowd
    }

    fn guest(&mut self, n: usize) -> (VmId, ClientId) {
        let vm = self
            .engine
            .tenants_mut()
            .add_vm(self.now, &self.rules.objective(n));
        let vm = vm.expect("room");
        self.disks += 1;
        let (_, client) = open_disk(&mut self.engine, vm, self.disks << 30, 1 << 30);
        (vm, client)
    }

    fn ask(&mut self, guest: usize, request: Request) {
        self.last[guest] = request.offset + u64::from(request.len);
        let client = self.guests[guest].1;
        // Refused where it has vanished, or has as many inside as it may.
        let _ = self.engine.handle_request(self.now, client, request);
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
                    let request = match write {
                        true => Request::write(offset, len, 0),
                        false => Request::read(offset, len, 0),
                    };
                    self.ask(guest, request);
                }
            }
            Step::Adjacent { guest } => {
                let offset = self.last[guest] % (1 << 29);
                self.ask(guest, Request::read(offset, BLOCK, 0));
            }
            Step::Flush { guest } => self.ask(guest, Request::flush(0)),
            Step::Dispatch => self.dispatch(),
            Step::Complete { which, fails } => {
                if !self.in_flight.is_empty() {
                    let which = which % self.in_flight.len();
                    let io = self.in_flight.swap_remove(which);
                    let outcome = if fails { Err(IoError::Io) } else { Ok(()) };
                    self.engine.handle_completion(self.now, io, outcome);
                }
            }
            Step::Wait { micros, late } => {
                let end = self.now + Nanos::from_micros(micros);
                while let Some(due) = self.engine.next_timeout().filter(|&due| due <= end) {
                    self.now = if late { end } else { self.now.max(due) };
                    self.engine.handle_timeout(self.now);
                }
                self.now = end;
            }
            Step::Vanish { guest } => {
                let client = self.guests[guest].1;
                self.engine.handle_disconnect(self.now, client);
            }
            Step::Replace { guest, to } => {
                let (vm, _) = self.guests[guest];
                let leaves = self.engine.tenants().in_flight(vm) > 0;
                if self.engine.view().vm_slots() >= 2 * GUESTS && leaves {
                    return;
                }
                let removed = self.engine.tenants_mut().remove_vm(self.now, vm);
                removed.expect("there");
                self.guests[guest] = self.guest(to);
            }
            Step::Change { guest, to } => {
                let (vm, _) = self.guests[guest];
                self.rules.changes(vm, to);
                let objective = self.rules.objective(to);
                let mut tenants = self.engine.tenants_mut();
                let set = tenants.set_objective(self.now, vm, &objective);
                set.expect("sound");
            }
            Step::Swap { to } => {
                let policy = self.policies[to % self.policies.len()].clone();
                self.rules.swaps(&policy);
                self.engine.set_policy(self.now, &policy);
            }
        }
        while self.engine.poll_done().is_some() {}
    }

    fn dispatch(&mut self) {
        while let Some(io) = self.engine.poll_dispatch(self.now) {
            self.in_flight.push(io.id);
        }
    }

    /// Everything drains, whatever held it.
    pub fn drain(&mut self) {
        for _ in 0..10_000 {
            self.dispatch();
            let Some(io) = self.in_flight.pop() else {
                match self.engine.next_timeout() {
                    _ if self.engine.is_idle() => return,
                    Some(due) => {
                        self.now = self.now.max(due);
                        continue;
                    }
                    None => panic!("nothing will ever happen again"),
                }
            };
            self.now += Nanos::from_micros(100);
            self.engine.handle_completion(self.now, io, Ok(()));
            while self.engine.poll_done().is_some() {}
        }
        panic!("it does not drain");
    }
}
