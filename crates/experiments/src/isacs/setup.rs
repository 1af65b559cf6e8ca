//! The testbed as it is modelled: who runs what in each case, under which scheduler.

use crate::ExperimentError;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::{CpuSet, DEFAULT_WEIGHT};
use tidegate_vcpu::scenario::{
    DiskSpec, Driver, Host, PingSpec, Scenario, SchedulerSpec, StreamSpec, VmSpec, WriteSpec,
};
use tidegate_vcpu::{credit2, isacs};

pub(super) const PAPER_TOML: &str = include_str!("../../../../experiments/isacs/paper.toml");
const CALIBRATION_TOML: &str = include_str!("../../../../experiments/isacs/calibration.toml");

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
    /// Section 5.4.1: fixed work inside each of six VMs that receive a stream.
    Inside,
    /// Section 5.4.2: fixed work beside five VMs that receive a stream.
    NeighbourHybrid,
    /// The same beside three that also compute.
    NeighbourMixed,
}

/// A scheduler of the comparison, or ISACS with something left out or otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Policy {
    Credit2,
    Isacs,
    /// Both with one run-queue for all pCPUs, as a machine of one socket has it.
    Credit2Shared,
    IsacsShared,
    WithoutIoCredit,
    WithoutConcealing,
    WithoutBoost,
    WithoutIoBalance,
    KeepsDebt,
    /// IVCredit in microseconds taken for credit in nanoseconds.
    Faint,
    /// The scheduler looks again each time the rate limit is over.
    ShortSlices,
}

impl Policy {
    /// ISACS with one thing otherwise, for what does not hold.
    pub(super) const ABLATED: [Policy; 7] = [
        Policy::WithoutIoCredit,
        Policy::WithoutConcealing,
        Policy::WithoutBoost,
        Policy::WithoutIoBalance,
        Policy::KeepsDebt,
        Policy::Faint,
        Policy::ShortSlices,
    ];

    /// How a sentence about what it comes to begins.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Policy::WithoutIoCredit => "Without IVCredit",
            Policy::WithoutConcealing => "Without concealing",
            Policy::WithoutBoost => "Without CPU-BOOST",
            Policy::WithoutIoBalance => "Without I/O balancing",
            Policy::KeepsDebt => "With debt kept",
            Policy::ShortSlices => "With slices of 1 ms",
            Policy::Faint => "With a thousandth of IVCredit",
            Policy::Credit2Shared | Policy::IsacsShared => "With one run-queue",
            Policy::Credit2 | Policy::Isacs => "As it is",
        }
    }

    fn spec(self) -> SchedulerSpec {
        let run_queues = match self {
            Policy::Credit2Shared | Policy::IsacsShared => credit2::RunQueues::All,
            _ => credit2::RunQueues::Core,
        };
        let usual = credit2::Params::default();
        let credit2 = credit2::Params {
            run_queues,
            max_slice: match self {
                Policy::ShortSlices => usual.rate_limit,
                _ => usual.max_slice,
            },
            ..usual
        };
        if matches!(self, Policy::Credit2 | Policy::Credit2Shared) {
            return SchedulerSpec::Credit2(credit2);
        }
        SchedulerSpec::Isacs(isacs::Params {
            credit2,
            io_credit: self != Policy::WithoutIoCredit,
            concealing: self != Policy::WithoutConcealing,
            cpu_boost: self != Policy::WithoutBoost,
            io_balance: self != Policy::WithoutIoBalance,
            keeps_debt: self == Policy::KeepsDebt,
            io_credit_divisor: if self == Policy::Faint { 1_000 } else { 1 },
            ..isacs::Params::default()
        })
    }
}

/// The figures that are free, one an experiment, each found by one Credit2 cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Free(pub(super) [u64; Knob::ALL.len()]);

/// Which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Knob {
    /// What the guest takes to answer a packet, in microseconds: table 3.
    PingUs,
    /// Bytes of a stream on their way, in KiB: table 5.
    WindowKib,
    /// What receiving a chunk takes a mixed guest, in nanoseconds: table 6.
    MixedReceiveNs,
    /// What the disk takes for an I/O, in nanoseconds: table 7, zeros.
    DiskNs,
    /// What making a KiB takes, in nanoseconds: table 7, urandom.
    UrandomNs,
    /// How much of a mixed guest's memory may be dirty, in KB: table 8, zeros.
    MixedDirtyKb,
    /// What making a KiB takes a mixed guest, in nanoseconds: table 8, urandom.
    MixedUrandomNs,
    /// Fixed work in milliseconds: section 5.4, inside.
    InsideMs,
    /// The same: the neighbour, hybrid.
    HybridMs,
    /// The same: the neighbour, mixed.
    MixedMs,
}

impl Knob {
    pub(super) const ALL: [Knob; 10] = [
        Knob::PingUs,
        Knob::WindowKib,
        Knob::MixedReceiveNs,
        Knob::DiskNs,
        Knob::UrandomNs,
        Knob::MixedDirtyKb,
        Knob::MixedUrandomNs,
        Knob::InsideMs,
        Knob::HybridMs,
        Knob::MixedMs,
    ];

    /// Its name in `calibration.toml`.
    pub(super) fn key(self) -> &'static str {
        match self {
            Knob::PingUs => "ping_us",
            Knob::WindowKib => "window_kib",
            Knob::MixedReceiveNs => "mixed_receive_ns",
            Knob::DiskNs => "disk_ns",
            Knob::UrandomNs => "urandom_ns",
            Knob::MixedDirtyKb => "mixed_dirty_kb",
            Knob::MixedUrandomNs => "mixed_urandom_ns",
            Knob::InsideMs => "inside_ms",
            Knob::HybridMs => "hybrid_ms",
            Knob::MixedMs => "mixed_ms",
        }
    }
}

impl Free {
    /// Those of `calibration.toml`.
    pub(super) fn read() -> Result<Free, ExperimentError> {
        let wrong = |what: String| ExperimentError::Data {
            file: "calibration.toml",
            what,
        };
        let root: toml::Table = CALIBRATION_TOML
            .parse()
            .map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let mut free = Free([0; Knob::ALL.len()]);
        for knob in Knob::ALL {
            let figure = root.get("free").and_then(|table| table.get(knob.key()));
            let figure = figure.and_then(toml::Value::as_integer);
            let figure = figure.and_then(|n| u64::try_from(n).ok());
            let missing = || wrong(format!("free.{} is a whole number", knob.key()));
            free.set(knob, figure.ok_or_else(missing)?);
        }
        Ok(free)
    }

    pub(super) fn get(&self, knob: Knob) -> u64 {
        self.0[knob as usize]
    }

    pub(super) fn set(&mut self, knob: Knob, value: u64) {
        self.0[knob as usize] = value;
    }

    fn us(&self, knob: Knob) -> Nanos {
        Nanos::from_micros(self.get(knob))
    }

    fn ms(&self, knob: Knob) -> Nanos {
        Nanos::from_millis(self.get(knob))
    }
}

/// Bytes of a stream that are handled at once: what one TCP segment can have at most.
const CHUNK: u64 = 64 << 10;
/// Bytes of an I/O to the disk.
const IO: u64 = 512 << 10;
/// How large the files are.
const FILE: u64 = 5_000_000_000;
/// How much of a guest's 2 GB may be dirty: a fifth of what its kernel leaves, Linux's default.
const DIRTY: u64 = 400_000_000;
/// Fixed work and files are this much smaller than the paper's, and what they take that much shorter: long
/// beside all periods of the schedulers.
pub(super) const SHRINK: u64 = 10;
/// Where the guests may run: where there is a client, and where there is none.
const WITH_CLIENT: (u8, u8) = (2, 6);
const WITHOUT: (u8, u8) = (2, 7);

/// A guest of four vCPUs.
fn guest(name: String, (first, last): (u8, u8)) -> VmSpec {
    VmSpec {
        name,
        vcpus: 4,
        weight: DEFAULT_WEIGHT,
        cap: 0,
        pinned: CpuSet::range(first, last),
        hogs: 0,
        primes: None,
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
        dirty: match mixed {
            true => free.get(Knob::MixedDirtyKb) * 1000 / SHRINK,
            false => DIRTY / SHRINK,
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
        client: us(10),
        driver: us(10),
        guest: free.us(Knob::PingUs),
    }
}

/// What receiving a chunk takes a guest that does nothing else.
const RECEIVE: Nanos = Nanos::from_micros(10);

/// The guests of a case. The client, where there is one, stands behind them, at `from`.
fn guests(case: Case, free: &Free) -> Vec<VmSpec> {
    let mixed_receive = Nanos(free.get(Knob::MixedReceiveNs));
    let many = |n: usize, cpus, what: &dyn Fn(usize, VmSpec) -> VmSpec| -> Vec<VmSpec> {
        let vms = (0..n).map(|k| what(k, guest(format!("vm{}", k + 1), cpus)));
        vms.collect()
    };
    let computes = |vm: VmSpec| VmSpec { hogs: 4, ..vm };
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
        Case::Inside => many(6, WITH_CLIENT, &|_, vm| VmSpec {
            stream: Some(stream(6, mixed_receive, free)),
            primes: Some(free.ms(Knob::InsideMs)),
            ..vm
        }),
        Case::NeighbourHybrid => many(6, WITH_CLIENT, &|k, vm| match k {
            0 => VmSpec {
                primes: Some(free.ms(Knob::HybridMs)),
                ..vm
            },
            _ => VmSpec {
                stream: Some(stream(6, RECEIVE, free)),
                ..vm
            },
        }),
        Case::NeighbourMixed => many(4, WITH_CLIENT, &|k, vm| match k {
            0 => VmSpec {
                primes: Some(free.ms(Knob::MixedMs)),
                ..vm
            },
            _ => VmSpec {
                stream: Some(stream(4, mixed_receive, free)),
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
        vms.push(VmSpec {
            pinned: CpuSet::range(7, 7),
            ..guest("client".to_owned(), (7, 7))
        });
    }
    let streams = matches!(case, Case::IperfHybrid(_) | Case::IperfMixed(_));
    Scenario {
        title: format!("{case:?}, {policy:?}"),
        // Round trips, files and work have an end of their own.
        duration: Nanos::from_secs(if streams { 5 } else { 600 }),
        until_done: !streams,
        warm_up: Nanos::SECOND,
        seed: round,
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
