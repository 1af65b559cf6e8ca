//! Random tests of all that a driver may do, with objectives at their edges and a clock that
//! stands, creeps, jumps and is near its end. After each step the books must agree, after each poll
//! there must be a wake-up, and at the end everything must drain to zero.

use crate::attacks::rig::{Draws, config, policies};
use crate::common::{CLOCK_NEAR_END, DISK_SIZE, Driver};
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Priority, Rate};
use tidegate_core::request::{ClientId, DiskId, IoError, Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

fn rate(draws: &mut Draws) -> Rate {
    let figures = [1, 7, 100, 5_000, u32::MAX as u64, 1_000_000_000, Rate::MAX];
    let figure = |draws: &mut Draws| *draws.of(&figures).expect("not empty");
    let norm = *draws.of(&[None, Some(512), Some(4096)]).expect("not empty");
    let per_s = figure(draws).min(1 << 47);
    match draws.below(4) {
        0 => Rate::NONE,
        1 => Rate {
            ops: Some(OpsRate { per_s, norm }),
            bytes_per_s: None,
        },
        2 => Rate::bytes(figure(draws)),
        _ => Rate {
            bytes_per_s: Some(figure(draws)),
            ..Rate::iops(per_s)
        },
    }
}

/// Draws a sound objective: contradictory parts are drawn again.
fn objective(draws: &mut Draws) -> Objective {
    loop {
        let latencies = [None, Some(1), Some(20_000_000), Some(u64::MAX)];
        let latency = *draws.of(&latencies).expect("not empty");
        let priorities = [
            Priority::RealTime,
            Priority::BestEffort(0),
            Priority::BestEffort(7),
            Priority::Idle,
        ];
        let mut limit = Limit::of_all(rate(draws));
        match draws.below(4) {
            0 => limit.read = rate(draws),
            1 => limit.write = rate(draws),
            2 => {
                limit.burst = Some(Burst {
                    total: rate(draws),
                    read: Rate::NONE,
                    write: Rate::NONE,
                    length: Nanos::from_millis([1, 3_600_000][draws.below(2) as usize]),
                });
            }
            _ => {}
        }
        let reservation = match draws.below(2) {
            0 => Rate::NONE,
            _ => rate(draws),
        };
        let target = match draws.below(3) {
            0 => rate(draws),
            _ => Rate::NONE,
        };
        let objective = Objective {
            reservation,
            limit,
            target,
            weight: [1, 100, 10_000][draws.below(3) as usize],
            latency: latency.map(Nanos),
            priority: *draws.of(&priorities).expect("not empty"),
            ..Objective::default()
        };
        if objective.validate().is_ok() {
            return objective;
        }
    }
}

struct Chaos {
    rig: Driver,
    draws: Draws,
    policies: Vec<PolicySpec>,
    vms: Vec<VmId>,
    disks: Vec<(VmId, DiskId)>,
    clients: Vec<(VmId, ClientId, u64)>,
    stepping: u64,
}

impl Chaos {
    fn step(&mut self) {
        match self.draws.below(40) {
            0 if self.vms.len() < 6 => self.come(),
            1 if self.draws.below(4) == 0 => self.leave(),
            2 => self.connect(),
            3 if self.draws.below(3) == 0 => self.vanish(),
            4 | 5 => {
                let Some(&vm) = self.draws.of(&self.vms) else {
                    return;
                };
                let (now, objective) = (self.rig.now, objective(&mut self.draws));
                let set = self.rig.engine.vms_mut().set_objective(now, vm, &objective);
                set.expect("sound, and there");
            }
            6 => {
                let spec = self.draws.of(&self.policies).expect("not empty");
                self.rig.engine.set_policy(self.rig.now, spec);
            }
            7..=10 => self.pass(),
            11 => self.rig.engine.handle_timeout(self.rig.now),
            12..=17 => {
                let most = [1, 2, usize::MAX][self.draws.below(3) as usize];
                self.rig.dispatch(most);
            }
            18..=23 if !self.rig.in_flight.is_empty() => {
                let n = self.draws.below(self.rig.in_flight.len() as u64);
                let outcome = match self.draws.below(6) {
                    0 => Err(IoError::Io),
                    1 => Err(IoError::NoSpace),
                    _ => Ok(()),
                };
                self.rig.end_nth(n as usize, outcome);
            }
            _ => self.ask(),
        }
        _ = self.rig.answers();
        let stats = self.rig.engine.device_stats();
        assert_eq!(stats.requests as usize, self.rig.ledger.unanswered());
        assert_eq!(stats.in_flight as usize, self.rig.in_flight.len());
        let view = self.rig.engine.view();
        for &vm in &self.vms {
            let flights = self.rig.in_flight.iter().filter(|io| io.vm == vm);
            assert_eq!(view.in_flight(vm) as usize, flights.count());
        }
    }

    fn come(&mut self) {
        let objective = objective(&mut self.draws);
        let vm = match self.draws.below(4) {
            0 => self
                .rig
                .try_background(&Objective::default())
                .expect("room"),
            _ => self.rig.vm(&objective),
        };
        self.vms.push(vm);
        for _ in 0..2 {
            let disk = self.rig.disk(vm);
            self.disks.push((vm, disk));
            let client = self.rig.client(disk);
            self.clients.push((vm, client, 0));
        }
    }

    fn leave(&mut self) {
        let Some(&vm) = self.draws.of(&self.vms) else {
            return;
        };
        self.vms.retain(|&v| v != vm);
        self.disks.retain(|d| d.0 != vm);
        self.clients.retain(|c| c.0 != vm);
        self.rig.remove_vm(vm);
    }

    /// Removes everything that may hold a request back.
    fn lift(&mut self) {
        let (now, fifo) = (self.rig.now, PolicySpec::named("fifo"));
        for &vm in &self.vms {
            let set = self
                .rig
                .engine
                .vms_mut()
                .set_objective(now, vm, &Objective::default());
            set.expect("is there");
        }
        self.rig.engine.set_policy(now, &fifo.expect("is there"));
    }

    fn connect(&mut self) {
        if let Some(&(vm, disk)) = self.draws.of(&self.disks) {
            let client = self.rig.client(disk);
            self.clients.push((vm, client, 0));
        }
    }

    fn vanish(&mut self) {
        if let Some(&(_, client, _)) = self.draws.of(&self.clients) {
            self.clients.retain(|c| c.1 != client);
            self.rig.disconnect(client);
        }
    }

    fn pass(&mut self) {
        let spans = match self.stepping {
            0 => [0, 1, 999, 50_000, 3_000_000],
            1 => [0, 1_000_000, 1_000_000_000, YEAR, 3 * YEAR],
            _ => [0, 0, 1, 1, 10],
        };
        let span = *self.draws.of(&spans).expect("not empty");
        self.rig.now.0 = self.rig.now.0.saturating_add(span);
    }

    fn ask(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let n = self.draws.below(self.clients.len() as u64) as usize;
        let (_, client, next) = self.clients[n];
        let op = match self.draws.below(20) {
            0..=8 => Op::Read,
            9..=16 => Op::Write,
            17 => Op::Flush,
            18 => Op::Discard,
            _ => Op::WriteZeroes,
        };
        let lens = [1, 512, 4096, 4096, 4096, 12_288, 65_536, 32 << 20];
        let len = match op {
            Op::Flush => 0,
            _ => *self.draws.of(&lens).expect("not empty"),
        };
        let len = len.min(256 * self.rig.engine.config().device.max_io);
        let offset = match self.draws.below(8) {
            _ if op == Op::Flush => 0,
            0 => DISK_SIZE - len as u64,
            1 => self.draws.below(64) << 12,
            _ => next,
        };
        let offset = offset.min(DISK_SIZE - len as u64);
        if self.rig.ask(client, op, offset, len).is_ok() && op != Op::Flush {
            self.clients[n].2 = offset + len as u64;
        }
    }
}

fn chaos(seed: u64, first: &PolicySpec, swaps: bool) {
    let mut draws = Draws::new(seed);
    let depth = [1, 2, 7, 64][draws.below(4) as usize];
    let merge = [0, 16 << 10, 1 << 20][draws.below(3) as usize];
    let max_io = [4096, 64 << 10, 1 << 20][draws.below(3) as usize];
    let mut config = config(depth, merge, max_io);
    config.max_vms = 32;
    config.max_requests = [16, 300][draws.below(2) as usize];
    config.max_pending_per_vm = [3, 100][draws.below(2) as usize];
    let stepping = draws.below(3);
    let now = match stepping {
        2 => u64::MAX - draws.below(2000),
        _ => draws.below(1_000_000),
    };
    let mut rig = Driver::new(config, first).with_clock_at(Nanos(now));
    rig.engine.handle_timeout(Nanos(now));
    let mut chaos = Chaos {
        rig,
        draws,
        policies: if swaps {
            policies()
        } else {
            vec![first.clone()]
        },
        vms: Vec::new(),
        disks: Vec::new(),
        clients: Vec::new(),
        stepping,
    };
    chaos.come();
    chaos.come();
    for _ in 0..400 {
        chaos.step();
    }
    if chaos.rig.now.0 > CLOCK_NEAR_END {
        // Too little time is left for what limits hold back, and the background waits for quiet.
        chaos.lift();
        while chaos.rig.dispatch(usize::MAX) + chaos.rig.in_flight.len() > 0 {
            chaos.rig.end_all();
        }
    } else {
        if chaos.rig.engine.policy().enforces().target {
            // Large requests at a byte a second take weeks, page by page, and wake their tuner each
            // second.
            chaos.lift();
        }
        chaos.rig.drain();
    }
    // And every slot is free for use again.
    for vm in std::mem::take(&mut chaos.vms) {
        chaos.rig.remove_vm(vm);
    }
    for _ in 0..32 {
        chaos.rig.vm(&Objective::default());
    }
    chaos.rig.assert_drained();
}

/// Runs `n` seeds and names those that failed.
fn seeds(n: u64, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let failed = |&seed: &u64| std::panic::catch_unwind(|| run(seed)).is_err();
    let failed: Vec<u64> = (0..n).filter(failed).collect();
    assert!(failed.is_empty(), "of {n} seeds these fail: {failed:?}");
}

#[test]
fn every_policy_keeps_its_books_under_anything() {
    let policies = policies();
    seeds(15 * policies.len() as u64, |seed| {
        chaos(seed, &policies[seed as usize % policies.len()], false);
    });
}

#[test]
fn the_books_are_kept_over_swaps() {
    let policies = policies();
    seeds(200, |seed| {
        chaos(
            1_000_000 + seed,
            &policies[seed as usize % policies.len()],
            true,
        );
    });
}
