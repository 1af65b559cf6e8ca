//! The testbed as it is modelled: who runs what in each case, under which scheduler.

use super::free::{Free, Knob};
use super::policy::Policy;
use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{
    CpuSpec, DiskSpec, Driver, Host, PingSpec, Scenario, StreamSpec, VmSpec, WriteSpec,
};

pub(super) const PAPER_TOML: &str = include_str!("../../../../experiments/isacs/paper.toml");

/// Where dd's bytes are from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Zero,
    Urandom,
}

/// An experiment of the paper: how many VMs of twelve, or of all, do what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Table 3: so many of twelve receive a stream and answer packets, the others compute.
    PingHybrid(usize),
    /// Table 4: six that answer packets and compute.
    PingMixed,
    /// Table 5: so many of twelve receive a stream.
    IperfHybrid(usize),
    /// Table 6: so many that receive a stream and compute.
    IperfMixed(usize),
    /// Table 7: so many of twelve write a file.
    DdHybrid(Source, usize),
    /// Table 8: so many that write a file and compute.
    DdMixed(Source, usize),
    /// Section 5.4.1: fixed work inside each of so many VMs that receive a stream.
    Inside(usize),
    /// Section 5.4.2: fixed work in one of so many VMs, of which the others receive a stream.
    NeighbourHybrid(usize),
    /// The same where the others also compute.
    NeighbourMixed(usize),
}

/// Bytes of a stream that are handled at once: what one TCP segment can have at most.
const CHUNK: u64 = 64 << 10;
/// Bytes of an I/O to the disk.
const IO: u64 = 512 << 10;
/// How large the files are.
const FILE: u64 = 5_000_000_000;
/// How much of a guest's 2 GB may be dirty: a fifth of what its kernel leaves, Linux's default.
const DIRTY: u64 = 400_000_000;
/// Files are this much smaller than the paper's, and what they take that much shorter: long beside
/// all periods of the schedulers.
const SHRINK: u64 = 10;
/// What is not counted at the beginning: five epochs and more of everybody's credit.
const WARM_UP: Nanos = Nanos::from_millis(500);
/// How long streams are watched that are alone in a case, with the warm-up.
const STREAMS: Nanos = Nanos::from_millis(1_500);
/// Where the guests may run: where there is a client, and where there is none.
const WITH_CLIENT: (u8, u8) = (2, 6);
const WITHOUT: (u8, u8) = (2, 7);

/// A guest of four vCPUs.
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

/// What making a KiB takes: zeros about 4 GB/s, random ones the free figure.
fn make(source: Source, mixed: bool, free: &Free) -> Nanos {
    match (source, mixed) {
        (Source::Zero, _) => Nanos(250),
        (Source::Urandom, false) => Nanos(free.get(Knob::UrandomNs)),
        (Source::Urandom, true) => Nanos(free.get(Knob::MixedUrandomNs)),
    }
}

fn write(source: Source, mixed: bool, free: &Free) -> WriteSpec {
    WriteSpec {
        file: FILE / SHRINK,
        make_per_kib: make(source, mixed, free),
        dirty: if mixed {
            free.get(Knob::MixedDirtyKb) * 1000 / SHRINK
        } else {
            DIRTY / SHRINK
        },
        depth: 32,
        driver: Nanos::from_micros(40),
        interrupt: Nanos::from_micros(20),
    }
}

/// A stream from the VM at `from`. What a chunk takes is about what copying it once takes at each
/// end, and remapping it in the driver domain.
fn stream(from: usize, receive: Nanos, free: &Free) -> StreamSpec {
    let us = Nanos::from_micros;
    StreamSpec {
        from,
        chunk: CHUNK,
        window: (free.get(Knob::WindowKib) << 10).max(CHUNK),
        client: us(20),
        driver: us(20),
        interrupt: us(5),
        receive,
        acknowledge: us(3),
    }
}

fn ping(from: usize, count: u64, free: &Free) -> PingSpec {
    let us = Nanos::from_micros;
    PingSpec {
        from,
        period: us(5_000),
        jitter: us(1_000),
        count,
        client: free.us(Knob::PingUs),
        driver: us(10),
        guest: ANSWER,
    }
}

/// What answering a packet takes a guest.
const ANSWER: Nanos = Nanos::from_micros(35);
/// What receiving a chunk takes a guest that does nothing else.
const RECEIVE: Nanos = Nanos::from_micros(10);

/// A guest with four processes that compute without end.
fn computes(mut vm: VmSpec) -> VmSpec {
    vm.cpu.busy_processes = 4;
    vm
}

/// The guests of a case. The client, where there is one, stands behind them, at `from`.
fn guests(case: Case, free: &Free) -> Vec<VmSpec> {
    let mixed_receive = Nanos(free.get(Knob::MixedReceiveNs));
    let many = |n: usize, cpus, what: &dyn Fn(usize, VmSpec) -> VmSpec| -> Vec<VmSpec> {
        let vms = (0..n).map(|k| what(k, guest(format!("vm{}", k + 1), cpus)));
        vms.collect()
    };
    match case {
        Case::PingHybrid(n) => many(12, WITH_CLIENT, &|k, vm| match k < n {
            true => VmSpec {
                stream: Some(stream(12, RECEIVE, free)),
                ping: Some(ping(12, 1_000, free)),
                ..vm
            },
            false => computes(vm),
        }),
        Case::PingMixed => many(6, WITH_CLIENT, &|_, vm| VmSpec {
            ping: Some(ping(6, 2_000, free)),
            ..computes(vm)
        }),
        Case::IperfHybrid(n) => many(12, WITH_CLIENT, &|k, vm| match k < n {
            true => VmSpec {
                stream: Some(stream(12, RECEIVE, free)),
                ..vm
            },
            false => computes(vm),
        }),
        Case::IperfMixed(n) => many(n, WITH_CLIENT, &|_, vm| VmSpec {
            stream: Some(stream(n, mixed_receive, free)),
            ..computes(vm)
        }),
        Case::DdHybrid(source, n) => many(12, WITHOUT, &|k, vm| match k < n {
            true => VmSpec {
                write: Some(write(source, false, free)),
                ..vm
            },
            false => computes(vm),
        }),
        Case::DdMixed(source, n) => many(n, WITHOUT, &|_, vm| VmSpec {
            write: Some(write(source, true, free)),
            ..computes(vm)
        }),
        Case::Inside(n) => many(n, WITH_CLIENT, &|_, vm| VmSpec {
            stream: Some(stream(n, mixed_receive, free)),
            work: Some(free.work(Knob::InsideMs)),
            ..vm
        }),
        Case::NeighbourHybrid(n) => many(n, WITH_CLIENT, &|k, vm| match k {
            0 => VmSpec {
                work: Some(free.work(Knob::HybridMs)),
                ..vm
            },
            _ => VmSpec {
                stream: Some(stream(n, RECEIVE, free)),
                ..vm
            },
        }),
        Case::NeighbourMixed(n) => many(n, WITH_CLIENT, &|k, vm| match k {
            0 => VmSpec {
                work: Some(free.work(Knob::MixedMs)),
                ..vm
            },
            _ => VmSpec {
                stream: Some(stream(n, mixed_receive, free)),
                ..computes(vm)
            },
        }),
    }
}

/// A round of a case under a scheduler.
pub(super) fn scenario(case: Case, policy: Policy, free: &Free, round: u64) -> Scenario {
    let mut vms = guests(case, free);
    let disk = matches!(case, Case::DdHybrid(..) | Case::DdMixed(..));
    if !disk {
        vms.push(guest("client".to_owned(), (7, 7)));
    }
    let streams = matches!(case, Case::IperfHybrid(_) | Case::IperfMixed(_));
    Scenario {
        frame: Frame {
            title: format!("{case:?}, {policy:?}"),
            // Round trips, files and work have an end of their own.
            duration: if streams {
                STREAMS
            } else {
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
            io: IO,
            service: Nanos(free.get(Knob::DiskNs)),
        },
        vms,
    }
}
