//! Model of the testbed: guests and workloads of each case.

use super::free_parameters::{Calibration, FreeParameter};
use super::policy::Policy;
use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{
    CpuSpec, DiskSpec, Driver, Host, PingSpec, Scenario, StreamSpec, VmSpec, WriteSpec,
};

pub(super) const PAPER_TOML: &str = include_str!("../../../../experiments/isacs/paper.toml");

/// Source of dd's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Zero,
    Urandom,
}

/// Experiment of the paper, with the number of VMs that have I/O.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Table 3: this many of twelve VMs receive a stream and answer packets, the others compute.
    PingHybrid(usize),
    /// Table 4: six VMs answer packets and compute.
    PingMixed,
    /// Table 5: this many of twelve VMs receive a stream.
    IperfHybrid(usize),
    /// Table 6: this many VMs receive a stream and compute.
    IperfMixed(usize),
    /// Table 7: this many of twelve VMs write a file.
    DdHybrid(Source, usize),
    /// Table 8: this many VMs write a file and compute.
    DdMixed(Source, usize),
    /// Section 5.4.1: fixed work inside each of this many VMs, which receive a stream.
    Inside(usize),
    /// Section 5.4.2: fixed work in one of this many VMs; the others receive a stream.
    NeighbourHybrid(usize),
    /// Section 5.4.2: fixed work in one of this many VMs; the others receive a stream and compute.
    NeighbourMixed(usize),
}

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
/// First and last pCPU of the guests in cases with a client.
const GUEST_PCPUS_WITH_CLIENT: (u8, u8) = (2, 6);
/// First and last pCPU of the guests in cases without a client.
const GUEST_PCPUS_WITHOUT_CLIENT: (u8, u8) = (2, 7);

/// Guest with four vCPUs.
fn guest(name: String, (first, last): (u8, u8)) -> VmSpec {
    VmSpec {
        name,
        cpu: CpuSpec {
            vcpus: 4,
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
        vcpu: 0,
    }
}

/// Stream from the VM at `from`. The CPU time of a chunk is about one copy at each end, and
/// remapping in the driver domain.
fn stream(from: usize, receive: Nanos, free: &Calibration) -> StreamSpec {
    let us = Nanos::from_micros;
    StreamSpec {
        from,
        chunk: CHUNK_BYTES,
        // A window below a chunk would let nothing through; the calibration tries small ones.
        window: (free.get(FreeParameter::WindowKib) << 10).max(CHUNK_BYTES),
        client: us(20),
        driver: us(20),
        interrupt: us(5),
        receive,
        acknowledge: us(3),
        vcpu: 0,
    }
}

fn ping(from: usize, count: u64, free: &Calibration) -> PingSpec {
    let us = Nanos::from_micros;
    PingSpec {
        from,
        period: us(5_000),
        jitter: us(1_000),
        count,
        client: free.us(FreeParameter::PingUs),
        driver: us(10),
        guest: PING_ANSWER,
        process: None,
        burst: 1,
        vcpu: 0,
    }
}

/// CPU time of a guest for answering a packet.
const PING_ANSWER: Nanos = Nanos::from_micros(35);
/// CPU time of a guest without other work for receiving a chunk.
const CHUNK_RECEIVE: Nanos = Nanos::from_micros(10);

/// Adds four processes that compute without end.
fn computes(mut vm: VmSpec) -> VmSpec {
    vm.cpu.busy_processes = 4;
    vm
}

/// Guests of a case. The client, if there is one, comes after them, at index `from`.
fn guests(case: Case, free: &Calibration) -> Vec<VmSpec> {
    let mixed_receive = Nanos(free.get(FreeParameter::MixedReceiveNs));
    let many = |n: usize, cpus, what: &dyn Fn(usize, VmSpec) -> VmSpec| -> Vec<VmSpec> {
        let vms = (0..n).map(|k| what(k, guest(format!("vm{}", k + 1), cpus)));
        vms.collect()
    };
    // The first `n` of twelve have I/O, the others compute.
    let first = |n: usize, cpus, what: &dyn Fn(VmSpec) -> VmSpec| {
        many(12, cpus, &|k, vm| {
            if k < n { what(vm) } else { computes(vm) }
        })
    };
    match case {
        Case::PingHybrid(n) => first(n, GUEST_PCPUS_WITH_CLIENT, &|vm| VmSpec {
            stream: Some(stream(12, CHUNK_RECEIVE, free)),
            ping: Some(ping(12, 1_000, free)),
            ..vm
        }),
        Case::PingMixed => many(6, GUEST_PCPUS_WITH_CLIENT, &|_, vm| VmSpec {
            ping: Some(ping(6, 2_000, free)),
            ..computes(vm)
        }),
        Case::IperfHybrid(n) => first(n, GUEST_PCPUS_WITH_CLIENT, &|vm| VmSpec {
            stream: Some(stream(12, CHUNK_RECEIVE, free)),
            ..vm
        }),
        Case::IperfMixed(n) => many(n, GUEST_PCPUS_WITH_CLIENT, &|_, vm| VmSpec {
            stream: Some(stream(n, mixed_receive, free)),
            ..computes(vm)
        }),
        Case::DdHybrid(source, n) => first(n, GUEST_PCPUS_WITHOUT_CLIENT, &|vm| VmSpec {
            write: Some(write(source, false, free)),
            ..vm
        }),
        Case::DdMixed(source, n) => many(n, GUEST_PCPUS_WITHOUT_CLIENT, &|_, vm| VmSpec {
            write: Some(write(source, true, free)),
            ..computes(vm)
        }),
        Case::Inside(n) => many(n, GUEST_PCPUS_WITH_CLIENT, &|_, vm| VmSpec {
            stream: Some(stream(n, mixed_receive, free)),
            work: Some(free.work(FreeParameter::InsideMs)),
            ..vm
        }),
        Case::NeighbourHybrid(n) => many(n, GUEST_PCPUS_WITH_CLIENT, &|k, vm| match k {
            0 => VmSpec {
                work: Some(free.work(FreeParameter::HybridMs)),
                ..vm
            },
            _ => VmSpec {
                stream: Some(stream(n, CHUNK_RECEIVE, free)),
                ..vm
            },
        }),
        Case::NeighbourMixed(n) => many(n, GUEST_PCPUS_WITH_CLIENT, &|k, vm| match k {
            0 => VmSpec {
                work: Some(free.work(FreeParameter::MixedMs)),
                ..vm
            },
            _ => VmSpec {
                stream: Some(stream(n, mixed_receive, free)),
                ..computes(vm)
            },
        }),
    }
}

/// Scenario of a round of a case under a scheduler.
pub(super) fn scenario(case: Case, policy: Policy, free: &Calibration, round: u64) -> Scenario {
    let mut vms = guests(case, free);
    let disk = matches!(case, Case::DdHybrid(..) | Case::DdMixed(..));
    if !disk {
        // After the guests, whose streams and packets come from this index. The last pCPU is its
        // own.
        vms.push(guest("client".to_owned(), (7, 7)));
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
