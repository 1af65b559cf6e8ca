//! Model of the testbed: guests and workloads of each case.

use super::case::{Case, GUEST_PCPUS_WITH_CLIENT, GUEST_PCPUS_WITHOUT_CLIENT, Source, VCPUS};
use super::free_parameters::{Calibration, FreeParameter};
use super::policy::{Guests, Policy};
use tidegate_config::frame::Frame;
use tidegate_core::random::mix;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{
    CpuSpec, DiskSpec, Driver, Host, PingSpec, Scenario, StreamSpec, VmSpec, WriteSpec,
};

pub(super) const PAPER_TOML: &str = include_str!("../../../../experiments/isacs/paper.toml");

/// Bytes of a stream handled at once: the largest TCP segment.
const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of an I/O to the disk.
const DISK_IO_BYTES: u64 = 512 << 10;
/// Size of the files in the paper, in bytes.
const FILE_BYTES: u64 = 5_000_000_000;
/// Dirty memory limit of a guest, in bytes: a fifth of its 2 GB less the kernel, Linux's default.
const DIRTY_BYTES: u64 = 400_000_000;
/// Factor by which files, and the time they take, are smaller than in the paper; they remain long
/// compared with all periods of the schedulers.
const SHRINK: u64 = 10;
/// Uncounted time at the begin: more than five epochs of every vCPU's credit.
const WARM_UP: Nanos = Nanos::from_millis(500);
/// Duration of cases with streams only, including the warm-up.
const STREAM_RUN: Nanos = Nanos::from_millis(1_500);

/// Name of the client, which has a pCPU of its own.
pub(super) const CLIENT: &str = "client";

/// Guest with four vCPUs.
fn guest(name: String, (first, last): (u8, u8)) -> VmSpec {
    VmSpec {
        name,
        cpu: CpuSpec {
            vcpus: VCPUS,
            pinned: CpuSet::range(first, last),
            ..CpuSpec::default()
        },
        work: None,
        ping: None,
        stream: None,
        write: None,
    }
}

/// CPU time of making a KiB: zeros at about 4 GB/s, random bytes as calibrated.
fn make(source: Source, mixed: bool, free: &Calibration) -> Nanos {
    match (source, mixed) {
        (Source::Zero, _) => Nanos(250),
        (Source::Urandom, false) => Nanos(free.get(FreeParameter::UrandomNs)),
        (Source::Urandom, true) => Nanos(free.get(FreeParameter::MixedUrandomNs)),
    }
}

fn write(source: Source, mixed: bool, free: &Calibration) -> WriteSpec {
    WriteSpec {
        file: FILE_BYTES / SHRINK,
        make_per_kib: make(source, mixed, free),
        dirty: if mixed {
            // Shrunk as the files are, so that writers meet the limit at the same part of a file.
            free.get(FreeParameter::MixedDirtyKb) * 1000 / SHRINK
        } else {
            DIRTY_BYTES / SHRINK
        },
        depth: 32,
        driver: Nanos::from_micros(40),
        interrupt: Nanos::from_micros(20),
        // All vCPUs of a guest are alike, and a file has one process.
        vcpu: 0,
    }
}

/// CPU time of a guest for answering a packet.
const PING_ANSWER: Nanos = Nanos::from_micros(35);
/// Bytes of a stream in flight: Linux's usual limit for a connection is 4 to 6 MiB
/// (`net.ipv4.tcp_wmem`, `tcp_rmem`).
const WINDOW_BYTES: u64 = 4 << 20;
/// Window, and CPU time of receiving a chunk in a guest without and with processes that compute,
/// of the model with all events on the first vCPU. The first and the last were fitted on Credit2's
/// i1c11 of table 5 and m1 of table 6, with a run-queue per pCPU.
const FIRST_VCPU_WINDOW_BYTES: u64 = 384 << 10;
const FIRST_VCPU_RECEIVE: [Nanos; 2] = [Nanos::from_micros(10), Nanos(20_581)];
/// Seed of the choice of event queues.
const QUEUE_SEED: u64 = 0x4953_4143_5351;

/// I/O path between a client and a guest in a round.
#[derive(Clone, Copy)]
struct Net<'a> {
    free: &'a Calibration,
    guests: Guests,
    round: u64,
    /// Index of the client.
    from: usize,
}

impl Net<'_> {
    /// Event queue, and so the vCPU, of a flow of the VM with the index `vm`. Linux 4.15's
    /// `xen-netfront` has a queue per vCPU, among which a hash of the connection chooses.
    fn queue(&self, vm: usize, flow: u64) -> usize {
        if self.guests.first_vcpu {
            return 0;
        }
        let of = QUEUE_SEED ^ (self.round << 32) ^ ((vm as u64) << 8) ^ flow;
        // Four vCPUs: the two highest bits.
        (mix(of) >> 62) as usize
    }

    /// Stream to the VM with the index `vm`; `mixed`: processes compute there. The CPU time of a
    /// chunk is about one copy at each end, and remapping in the driver domain.
    fn stream(&self, vm: usize, mixed: bool) -> StreamSpec {
        let us = Nanos::from_micros;
        let (window, receive) = if self.guests.first_vcpu {
            (
                FIRST_VCPU_WINDOW_BYTES,
                FIRST_VCPU_RECEIVE[usize::from(mixed)],
            )
        } else {
            let receive = Nanos(self.free.get(FreeParameter::ReceiveNs));
            (WINDOW_BYTES, receive)
        };
        StreamSpec {
            from: self.from,
            chunk: CHUNK_BYTES,
            window,
            client: us(20),
            driver: us(20),
            interrupt: us(5),
            receive,
            acknowledge: us(3),
            vcpu: self.queue(vm, 0),
        }
    }

    /// Packets to the VM with the index `vm`.
    fn ping(&self, vm: usize, (period, count): (Nanos, u64)) -> PingSpec {
        let us = Nanos::from_micros;
        PingSpec {
            from: self.from,
            period,
            // Keeps packets out of step with the schedulers' periods.
            jitter: Nanos(period.0 / 5),
            count,
            client: self.free.us(FreeParameter::PingUs),
            driver: us(10),
            guest: PING_ANSWER,
            process: None,
            burst: 1,
            vcpu: self.queue(vm, 1),
        }
    }
}

/// Adds a process that computes without end to each vCPU.
fn computes(mut vm: VmSpec) -> VmSpec {
    vm.cpu.busy_processes = VCPUS;
    vm
}

/// Guests of a case in a round. The client, if there is one, comes after them.
fn guests(case: Case, policy: Policy, free: &Calibration, round: u64) -> Vec<VmSpec> {
    let model = policy.change.guests();
    let many = |n: usize, cpus, what: &dyn Fn(usize, VmSpec) -> VmSpec| -> Vec<VmSpec> {
        let vms = (0..n).map(|k| what(k, guest(format!("vm{}", k + 1), cpus)));
        vms.collect()
    };
    let net = |from: usize| Net {
        free,
        guests: model,
        round,
        from,
    };
    // The first `n` of twelve have I/O, the others compute.
    let first = |n: usize, cpus, what: &dyn Fn(usize, VmSpec) -> VmSpec| {
        many(12, cpus, &|k, vm| {
            if k < n { what(k, vm) } else { computes(vm) }
        })
    };
    let [hybrid_pings, mixed_pings] = model.pings;
    match case {
        Case::PingHybrid(n) => first(n, GUEST_PCPUS_WITH_CLIENT, &|k, vm| VmSpec {
            ping: Some(net(12).ping(k, hybrid_pings)),
            stream: Some(net(12).stream(k, false)),
            ..vm
        }),
        Case::PingMixed => many(model.mixed, GUEST_PCPUS_WITH_CLIENT, &|k, vm| VmSpec {
            // Table 4 has six VMs, whatever other VMs run beside them.
            ping: (k < PINGED_MIXED).then(|| net(model.mixed).ping(k, mixed_pings)),
            ..computes(vm)
        }),
        Case::IperfHybrid(n) => first(n, GUEST_PCPUS_WITH_CLIENT, &|k, vm| VmSpec {
            stream: Some(net(12).stream(k, false)),
            ..vm
        }),
        Case::IperfMixed(n) => many(n, GUEST_PCPUS_WITH_CLIENT, &|k, vm| VmSpec {
            stream: Some(net(n).stream(k, true)),
            ..computes(vm)
        }),
        Case::DdHybrid(source, n) => first(n, GUEST_PCPUS_WITHOUT_CLIENT, &|_, vm| VmSpec {
            write: Some(write(source, false, free)),
            ..vm
        }),
        Case::DdMixed(source, n) => many(n, GUEST_PCPUS_WITHOUT_CLIENT, &|_, vm| VmSpec {
            write: Some(write(source, true, free)),
            ..computes(vm)
        }),
        Case::Inside(_) | Case::NeighbourHybrid(_) | Case::NeighbourMixed(_) => {
            working(case, model, free, round)
        }
    }
}

/// Guests of section 5.4, with fixed work in all of them or in the first.
fn working(case: Case, model: Guests, free: &Calibration, round: u64) -> Vec<VmSpec> {
    let (n, parameter) = match case {
        Case::Inside(n) => (n, FreeParameter::InsideMs),
        Case::NeighbourHybrid(n) => (n, FreeParameter::HybridMs),
        Case::NeighbourMixed(n) => (n, FreeParameter::MixedMs),
        // `guests` has all other cases.
        _ => return Vec::new(),
    };
    let net = Net {
        free,
        guests: model,
        round,
        from: n,
    };
    let one = |k: usize| {
        let vm = guest(format!("vm{}", k + 1), GUEST_PCPUS_WITH_CLIENT);
        let is_worker = k == 0 || matches!(case, Case::Inside(_));
        let is_receiver = k > 0 || matches!(case, Case::Inside(_));
        let mixed = matches!(case, Case::NeighbourMixed(_)) && !is_worker;
        let competes = mixed || matches!(case, Case::Inside(_));
        let vm = if mixed { computes(vm) } else { vm };
        VmSpec {
            work: is_worker.then(|| free.work(parameter)),
            stream: is_receiver.then(|| net.stream(k, competes)),
            ..vm
        }
    };
    (0..n).map(one).collect()
}

/// Number of mixed VMs that are sent packets.
const PINGED_MIXED: usize = 6;

/// Scenario of a round of a case under a scheduler.
pub(super) fn scenario(case: Case, policy: Policy, free: &Calibration, round: u64) -> Scenario {
    let mut vms = guests(case, policy, free, round);
    if !case.is_of_files() {
        // After the guests, whose streams and packets come from this index. The last pCPU is its
        // own.
        vms.push(guest(CLIENT.to_owned(), (7, 7)));
    }
    let streams = matches!(case, Case::IperfHybrid(_) | Case::IperfMixed(_));
    Scenario {
        frame: Frame {
            title: format!("{case:?}, {policy:?}"),
            // Cases with round trips, files or work end by themselves.
            duration: if streams {
                STREAM_RUN
            } else {
                // Far longer than any case takes.
                Nanos::from_secs(600)
            },
            until_done: !streams,
            warm_up: WARM_UP,
            seed: round,
        },
        host: Host {
            pcpus: 8,
            per_socket: 8,
            switch_cost: Nanos::from_micros(2),
        },
        scheduler: policy.spec(),
        driver: Driver {
            vcpus: 6,
            pinned: CpuSet::range(0, 1),
        },
        disk: DiskSpec {
            io: DISK_IO_BYTES,
            service: Nanos(free.get(FreeParameter::DiskNs)),
        },
        vms,
    }
}
