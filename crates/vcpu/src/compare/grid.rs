//! Grid of hosts in which vCPU schedulers are compared.
//!
//! The driver domain has pCPU 0 and the client, which sends, the last pCPU: guests run on those
//! between. The cells were fixed before any scheduler was tuned; those that are *held out* were not
//! looked at while one was.

use crate::machine::{CpuSet, DEFAULT_WEIGHT};
use crate::scenario::{
    CpuSpec, DiskSpec, Driver, Host, PingSpec, Scenario, SchedulerSpec, StreamSpec, VmSpec,
};
use crate::schedulers::credit2::RunQueues;
use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;

/// Time that a cell runs before anything is measured.
const WARM_UP: Nanos = Nanos::from_secs(1);
/// Time that is measured.
const MEASURED: Nanos = Nanos::from_secs(4);
/// Time at the end in which no packet is sent, so that answers can arrive.
const QUIET: Nanos = Nanos::from_millis(200);
/// Cost of switching a pCPU to another vCPU.
const SWITCH_COST: Nanos = Nanos::from_micros(2);

/// Packets that a VM of a [`Group`] answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packets {
    /// Time between two bursts; each is late by up to a quarter of it.
    period: Nanos,
    /// Packets of a burst.
    burst: u64,
    /// CPU time of the interrupt in the guest.
    interrupt: Nanos,
    /// CPU time of the process that answers; `None`: the interrupt answers.
    process: Option<Nanos>,
}

/// Packets each 4 ms that an interrupt of 30 us answers.
const PINGS: Packets = Packets {
    period: Nanos::from_millis(4),
    burst: 1,
    interrupt: Nanos::from_micros(30),
    process: None,
};

/// Packets each 4 ms that a process answers: 10 us of interrupt and 50 us of process.
const REQUESTS: Packets = Packets {
    interrupt: Nanos::from_micros(10),
    process: Some(Nanos::from_micros(50)),
    ..PINGS
};

/// VMs that are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    name: &'static str,
    count: usize,
    vcpus: usize,
    weight: u32,
    cap: u32,
    /// First and last pCPU on which they may run; `None`: all pCPUs of guests.
    pinned: Option<(u8, u8)>,
    /// Processes that compute without end in each VM.
    busy: usize,
    packets: Option<Packets>,
    /// Receives a stream.
    stream: bool,
    /// Produces notifications to win CPU time; its packets are no part of the measured latency.
    floods: bool,
}

const NOTHING: Group = Group {
    name: "",
    count: 0,
    vcpus: 1,
    weight: DEFAULT_WEIGHT,
    cap: 0,
    pinned: None,
    busy: 0,
    packets: None,
    stream: false,
    floods: false,
};

/// `count` VMs that compute.
const fn compute(count: usize) -> Group {
    Group {
        name: "compute",
        count,
        busy: 1,
        ..NOTHING
    }
}

/// `count` VMs that answer `packets` and compute on the same vCPU.
const fn mixed(count: usize, packets: Packets) -> Group {
    Group {
        name: "mixed",
        packets: Some(packets),
        ..compute(count)
    }
}

/// `count` VMs that compute and produce a notification each `period`.
const fn flood(count: usize, period: Nanos) -> Group {
    let packets = Packets {
        period,
        interrupt: Nanos::from_micros(5),
        ..PINGS
    };
    Group {
        name: "flood",
        floods: true,
        ..mixed(count, packets)
    }
}

/// `count` VMs that receive a stream and do nothing else.
const fn stream(count: usize) -> Group {
    Group {
        name: "stream",
        count,
        stream: true,
        ..NOTHING
    }
}

const fn weighing(weight: u32, group: Group) -> Group {
    Group { weight, ..group }
}

const fn capped(cap: u32, group: Group) -> Group {
    Group { cap, ..group }
}

const fn pinned(first: u8, last: u8, group: Group) -> Group {
    Group {
        pinned: Some((first, last)),
        ..group
    }
}

const fn named(name: &'static str, group: Group) -> Group {
    Group { name, ..group }
}

/// Host with VMs in which schedulers are compared.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Name, unique in the grid.
    pub name: &'static str,
    /// Description in one line.
    pub what: &'static str,
    /// Not looked at while a scheduler is tuned.
    pub held_out: bool,
    /// pCPUs of guests.
    guest_pcpus: usize,
    /// pCPUs of a socket, with the driver domain's and the client's; 0: one socket.
    per_socket: usize,
    run_queues: RunQueues,
    groups: &'static [Group],
}

const fn cell(
    name: &'static str,
    what: &'static str,
    guest_pcpus: usize,
    groups: &'static [Group],
) -> Cell {
    Cell {
        name,
        what,
        held_out: false,
        guest_pcpus,
        per_socket: 0,
        run_queues: RunQueues::All,
        groups,
    }
}

const fn held_out(cell: Cell) -> Cell {
    Cell {
        held_out: true,
        ..cell
    }
}

const MS: fn(u64) -> Nanos = Nanos::from_millis;

/// All cells, each that is held out behind one of the same kind that is not.
pub static CELLS: &[Cell] = &[
    cell(
        "mixed",
        "4 mixed VMs and 4 that compute on 2 pCPUs",
        2,
        &[mixed(4, PINGS), compute(4)],
    ),
    held_out(cell(
        "mixed-3",
        "5 mixed VMs and 4 that compute on 3 pCPUs",
        3,
        &[mixed(5, PINGS), compute(4)],
    )),
    cell(
        "process",
        "3 mixed VMs in which a process answers, 3 that compute, on 1 pCPU",
        1,
        &[mixed(3, REQUESTS), compute(3)],
    ),
    held_out(cell(
        "process-2",
        "6 mixed VMs in which a process answers, 2 that compute, on 2 pCPUs",
        2,
        &[mixed(6, REQUESTS), compute(2)],
    )),
    cell(
        "light",
        "a mixed VM of weight 64 among 4 that compute of 256, on 1 pCPU",
        1,
        &[weighing(64, mixed(1, PINGS)), compute(4)],
    ),
    held_out(cell(
        "weights",
        "mixed VMs of weights 96, 256 and 640, 3 that compute, on 2 pCPUs",
        2,
        &[
            weighing(96, named("mixed-light", mixed(1, PINGS))),
            mixed(1, PINGS),
            weighing(640, named("mixed-heavy", mixed(1, REQUESTS))),
            compute(3),
        ],
    )),
    cell(
        "bursts",
        "10 mixed VMs that answer 8 packets each 20 ms, on 4 pCPUs",
        4,
        &[mixed(
            10,
            Packets {
                period: Nanos::from_millis(20),
                burst: 8,
                ..PINGS
            },
        )],
    ),
    held_out(cell(
        "bursts-process",
        "4 mixed VMs whose processes answer 16 packets each 40 ms, 4 that compute, on 2 pCPUs",
        2,
        &[
            mixed(
                4,
                Packets {
                    period: Nanos::from_millis(40),
                    burst: 16,
                    ..REQUESTS
                },
            ),
            compute(4),
        ],
    )),
    cell(
        "flooder",
        "2 mixed VMs beside one that is notified each 100 us, 2 that compute, on 1 pCPU",
        1,
        &[
            mixed(2, PINGS),
            flood(1, Nanos::from_micros(100)),
            compute(2),
        ],
    ),
    held_out(cell(
        "flooders",
        "3 mixed VMs beside 3 that are notified each 60 us, 2 that compute, on 2 pCPUs",
        2,
        &[
            mixed(3, PINGS),
            flood(3, Nanos::from_micros(60)),
            compute(2),
        ],
    )),
    cell(
        "stream",
        "2 mixed VMs beside one that receives a stream, 2 that compute, on 1 pCPU",
        1,
        &[mixed(2, PINGS), stream(1), compute(2)],
    ),
    held_out(cell(
        "streams-mixed",
        "2 mixed VMs beside 2 that compute and receive a stream, 2 that compute, on 2 pCPUs",
        2,
        &[
            mixed(2, REQUESTS),
            Group {
                busy: 1,
                ..stream(2)
            },
            compute(2),
        ],
    )),
    cell(
        "cap",
        "2 mixed VMs with a cap of 40 % of a pCPU, 3 that compute, on 2 pCPUs",
        2,
        &[capped(40, mixed(2, PINGS)), compute(3)],
    ),
    held_out(cell(
        "cap-others",
        "2 mixed VMs, one that computes with a cap of 15 % and 3 without, on 2 pCPUs",
        2,
        &[
            mixed(2, PINGS),
            capped(15, named("capped", compute(1))),
            compute(3),
        ],
    )),
    cell(
        "pinned",
        "2 mixed VMs and 2 that compute on pCPU 1, 6 that compute on pCPUs 2 to 4",
        4,
        &[
            pinned(1, 1, mixed(2, PINGS)),
            pinned(1, 1, compute(2)),
            pinned(2, 4, named("others", compute(6))),
        ],
    ),
    held_out(cell(
        "pinned-overlap",
        "2 mixed VMs and 2 that compute on pCPUs 1 and 2, 4 that compute on 2 to 4",
        4,
        &[
            pinned(1, 2, mixed(2, REQUESTS)),
            pinned(1, 2, compute(2)),
            pinned(2, 4, named("others", compute(4))),
        ],
    )),
    cell("crowded", "16 mixed VMs on 2 pCPUs", 2, &[mixed(16, PINGS)]),
    held_out(cell(
        "crowded-12",
        "12 mixed VMs of which 4 have requests, 12 that compute, on 3 pCPUs",
        3,
        &[
            mixed(8, PINGS),
            named("requests", mixed(4, REQUESTS)),
            compute(12),
        ],
    )),
    Cell {
        run_queues: RunQueues::Core,
        ..cell(
            "queue-per-pcpu",
            "4 mixed VMs and 8 that compute on 4 pCPUs, a run-queue each",
            4,
            &[mixed(4, PINGS), compute(8)],
        )
    },
    held_out(Cell {
        run_queues: RunQueues::Socket,
        per_socket: 4,
        ..cell(
            "queue-per-socket",
            "6 mixed VMs and 6 that compute on 2 sockets of 3 pCPUs, a run-queue each",
            6,
            &[mixed(6, REQUESTS), compute(6)],
        )
    }),
    cell(
        "io-only",
        "2 VMs that only answer among 4 that compute, on 1 pCPU",
        1,
        &[
            Group {
                busy: 0,
                ..mixed(2, PINGS)
            },
            compute(4),
        ],
    ),
    held_out(cell(
        "io-only-process",
        "3 VMs in which a process only answers among 5 that compute, on 2 pCPUs",
        2,
        &[
            Group {
                busy: 0,
                ..mixed(3, REQUESTS)
            },
            compute(5),
        ],
    )),
    cell(
        "spare",
        "2 mixed VMs and 1 that computes on 4 pCPUs",
        4,
        &[mixed(2, PINGS), compute(1)],
    ),
    held_out(cell(
        "smp",
        "3 mixed VMs of 4 vCPUs, one of 2 that computes, on 4 pCPUs",
        4,
        &[
            Group {
                vcpus: 4,
                busy: 4,
                ..mixed(3, PINGS)
            },
            Group {
                vcpus: 2,
                busy: 2,
                ..compute(1)
            },
        ],
    )),
];

/// VM of a cell's scenario: what is measured of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Role {
    /// Round trips of the VM are measured.
    pub(super) is_measured: bool,
    /// vCPUs that always have something to run.
    pub(super) busy_vcpus: usize,
}

impl Cell {
    /// Returns whether the measured VMs compute on the vCPUs that answer.
    pub fn is_mixed(&self) -> bool {
        let measured = self.groups.iter().filter(|group| group.is_measured());
        measured.into_iter().all(|group| group.busy > 0)
    }

    /// Scenario of this cell under `scheduler`, with the cell's run-queues where the scheduler has
    /// a choice of them, and the roles of its VMs in their order.
    pub(super) fn scenario(&self, scheduler: SchedulerSpec, seed: u64) -> (Scenario, Vec<Role>) {
        let pcpus = self.guest_pcpus + 2;
        let last = PCPU_AFTER_DRIVER + self.guest_pcpus as u8;
        let all = CpuSet::range(PCPU_AFTER_DRIVER, last - 1);
        let has_queues = scheduler.info().params().any(|p| p.name == RUN_QUEUES);
        let scheduler = if has_queues {
            scheduler.with(RUN_QUEUES, self.run_queues as u64)
        } else {
            scheduler
        };
        let client = VmSpec {
            name: "client".to_owned(),
            cpu: CpuSpec {
                pinned: CpuSet::range(last, last),
                ..CpuSpec::default()
            },
            work: None,
            ping: None,
            stream: None,
            write: None,
        };
        let (mut vms, mut roles) = (vec![client], Vec::new());
        for group in self.groups {
            vms.extend((1..=group.count).map(|n| group.vm(n, all)));
            roles.extend(vec![group.role(); group.count]);
        }
        let mut frame = Frame::lasting(WARM_UP + MEASURED);
        frame.warm_up = WARM_UP;
        frame.seed = seed;
        frame.title = self.name.to_owned();
        let scenario = Scenario {
            frame,
            host: Host {
                pcpus,
                per_socket: match self.per_socket {
                    0 => pcpus,
                    some => some,
                },
                switch_cost: SWITCH_COST,
            },
            scheduler,
            driver: Driver {
                vcpus: 1,
                pinned: CpuSet::range(0, 0),
            },
            disk: DiskSpec {
                io: 512 << 10,
                service: MS(1),
            },
            vms,
        };
        (scenario, roles)
    }
}

/// First pCPU of guests, behind the driver domain's.
const PCPU_AFTER_DRIVER: u8 = 1;
/// Parameter of schedulers that have a choice of run-queues.
const RUN_QUEUES: &str = "run_queues";
/// Index of the client among the VMs.
const CLIENT: usize = 0;

impl Group {
    fn is_measured(&self) -> bool {
        self.packets.is_some() && !self.floods
    }

    fn role(&self) -> Role {
        Role {
            is_measured: self.is_measured(),
            busy_vcpus: self.busy.min(self.vcpus),
        }
    }

    /// VM number `n` of the group, on a host whose guests have the pCPUs `all`.
    fn vm(&self, n: usize, all: CpuSet) -> VmSpec {
        let us = Nanos::from_micros;
        let pinned = self.pinned.map(|(first, last)| CpuSet::range(first, last));
        VmSpec {
            name: format!("{}-{n}", self.name),
            cpu: CpuSpec {
                vcpus: self.vcpus,
                weight: self.weight,
                cap: self.cap,
                pinned: pinned.unwrap_or(all),
                busy_processes: self.busy,
            },
            work: None,
            ping: self.packets.map(|packets| PingSpec {
                from: CLIENT,
                period: packets.period,
                jitter: Nanos(packets.period.0 / 4),
                count: MEASURED.since(QUIET).0 / packets.period.0 * packets.burst,
                client: us(2),
                driver: us(4),
                guest: packets.interrupt,
                process: packets.process,
                burst: packets.burst,
                vcpu: 0,
            }),
            stream: self.stream.then(|| StreamSpec {
                from: CLIENT,
                chunk: 64 << 10,
                window: 1 << 20,
                client: us(10),
                driver: us(10),
                interrupt: us(10),
                receive: us(20),
                acknowledge: us(2),
                vcpu: 0,
            }),
            write: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedulers;
    use std::collections::BTreeSet;

    #[test]
    fn half_of_at_least_20_cells_are_held_out_under_unique_names() {
        assert!(CELLS.len() >= 20, "{}", CELLS.len());
        let held_out = CELLS.iter().filter(|cell| cell.held_out).count();
        assert_eq!(2 * held_out, CELLS.len());
        let names: BTreeSet<_> = CELLS.iter().map(|cell| cell.name).collect();
        assert_eq!(names.len(), CELLS.len());
    }

    #[test]
    fn each_cell_has_a_vm_to_measure_and_names_its_vms_once() {
        let scheduler = schedulers::named("credit2").expect("registered");
        for cell in CELLS {
            let (scenario, roles) = cell.scenario(scheduler, 1);
            assert!(roles.iter().any(|role| role.is_measured), "{}", cell.name);
            assert_eq!(roles.len() + 1, scenario.vms.len());
            let names: BTreeSet<_> = scenario.vms.iter().map(|vm| &vm.name).collect();
            assert_eq!(names.len(), scenario.vms.len(), "{}", cell.name);
            let guests = cell.guest_pcpus;
            let all = CpuSet::range(1, guests as u8);
            for vm in &scenario.vms[1..] {
                assert!(vm.cpu.pinned.without(all).is_empty(), "{}", vm.name);
            }
        }
    }

    #[test]
    fn only_vms_that_answer_without_computing_are_not_mixed() {
        let other = CELLS.iter().filter(|cell| !cell.is_mixed());
        let names: Vec<_> = other.map(|cell| cell.name).collect();
        assert_eq!(names, ["io-only", "io-only-process"]);
    }
}
