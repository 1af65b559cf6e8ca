//! Comparisons of the demo: the VMs that share a device, and their workloads.

use tidegate_workload::arrival_process::{Arrivals as ArrivalProcess, Spacing};
use tidegate_workload::spec::{Flow, Mix, Rw, Sizes, Workload};

/// Comparison of policies on one device of the configuration, with the VMs that share it.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Name of the device in the configuration.
    pub(super) device: &'static str,
    /// Title above the table of VMs.
    pub(super) title: &'static str,
    /// Share of the demo's time, in per cent.
    pub(super) share: u32,
    /// True if the latency of the first VM is drawn.
    pub(super) drawn: bool,
    /// VMs in the order of the configuration. The comparison is about the first one, which the
    /// others disturb.
    pub(super) vms: &'static [DemoVm],
    /// Note on the results of mClock, which lacks parts of the objectives that the others enforce.
    pub(super) about_mclock: &'static str,
}

/// VM of the demo with its workload.
#[derive(Debug)]
pub(super) struct DemoVm {
    /// Name in the configuration, also that of its export and its socket.
    pub(super) name: &'static str,
    /// Workload as text.
    pub(super) workload: &'static str,
    /// Workload of the guest.
    pub(super) behaviour: Behaviour,
}

/// Workload of a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behaviour {
    /// True for writes, false for reads.
    pub(super) writes: bool,
    /// Request size in bytes.
    pub(super) size: u32,
    /// True for random addresses, false for sequential ones.
    pub(super) random: bool,
    /// Size in bytes of the part of the disk that is used, from its start.
    pub(super) span: u64,
    /// Times at which requests are sent.
    pub(super) arrivals: Arrivals,
}

/// Times at which a guest sends its requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrivals {
    /// Closed loop with a fixed number of requests outstanding.
    Closed {
        /// Number of requests outstanding.
        depth: u32,
    },
    /// Open loop with random times (Poisson).
    Poisson {
        /// Mean number of requests per second.
        per_s: f64,
    },
    /// Open loop with evenly spaced times.
    Even {
        /// Requests per second.
        per_s: f64,
    },
}

/// Outstanding requests of an open loop, enough for it to stay open: the most of a workload.
const OPEN_LOOP_DEPTH: u32 = 1 << 16;

impl Behaviour {
    /// Returns the behaviour as a workload.
    pub(super) fn workload(self) -> Workload {
        let open = |per_s, spacing| Flow::Open {
            arrivals: ArrivalProcess {
                per_s,
                spacing,
                bursts: None,
            },
            iodepth: OPEN_LOOP_DEPTH,
        };
        Workload {
            rw: Rw {
                mix: if self.writes { Mix::Write } else { Mix::Read },
                random: self.random,
            },
            sizes: std::array::from_fn(|_| Sizes::fixed(self.size)),
            size: Some(self.span),
            flow: match self.arrivals {
                Arrivals::Closed { depth } => Flow::Closed {
                    iodepth: depth,
                    think: None,
                },
                Arrivals::Poisson { per_s } => open(per_s, Spacing::Poisson),
                Arrivals::Even { per_s } => open(per_s, Spacing::Fixed),
            },
            ..Workload::default()
        }
    }
}

/// Comparisons in order.
pub(super) const COMPARISONS: [Comparison; 2] = [
    Comparison {
        device: "flash",
        title: "1. An emulated NVMe volume of 10,000 IOPS and 200 MB/s, three VMs:",
        share: 40,
        drawn: true,
        vms: &[
            DemoVm {
                name: "db",
                workload: "random 8 KiB reads, 1000/s",
                behaviour: Behaviour {
                    writes: false,
                    size: 8 << 10,
                    random: true,
                    span: 16 << 30,
                    arrivals: Arrivals::Poisson { per_s: 1000.0 },
                },
            },
            DemoVm {
                name: "ci",
                workload: "random 64 KiB writes, iodepth 32",
                behaviour: Behaviour {
                    writes: true,
                    size: 64 << 10,
                    random: true,
                    span: 64 << 20,
                    arrivals: Arrivals::Closed { depth: 32 },
                },
            },
            DemoVm {
                name: "noisy",
                workload: "sequential 256 KiB reads, iodepth 64",
                behaviour: Behaviour {
                    writes: false,
                    size: 256 << 10,
                    random: false,
                    span: 16 << 30,
                    arrivals: Arrivals::Closed { depth: 64 },
                },
            },
        ],
        about_mclock: "mClock has only one limit for reads and writes together, none for writes \
                       alone. Queue depth and\nI/O size are managed by Tidegate under every \
                       policy.",
    },
    Comparison {
        device: "disk",
        title: "2. An emulated 7200 rpm disk, three VMs and a backup:",
        share: 60,
        drawn: false,
        vms: &[
            DemoVm {
                name: "oltp",
                workload: "random 8 KiB reads, 20/s",
                behaviour: Behaviour {
                    writes: false,
                    size: 8 << 10,
                    random: true,
                    span: 16 << 30,
                    arrivals: Arrivals::Poisson { per_s: 20.0 },
                },
            },
            DemoVm {
                name: "stream",
                workload: "sequential 256 KiB reads, 40/s",
                behaviour: Behaviour {
                    writes: false,
                    size: 256 << 10,
                    random: false,
                    span: 16 << 30,
                    arrivals: Arrivals::Even { per_s: 40.0 },
                },
            },
            DemoVm {
                name: "bulk",
                workload: "sequential 1 MiB writes, iodepth 32",
                behaviour: Behaviour {
                    writes: true,
                    size: 1 << 20,
                    random: false,
                    span: 512 << 20,
                    arrivals: Arrivals::Closed { depth: 32 },
                },
            },
            DemoVm {
                name: "backup",
                workload: "sequential 256 KiB reads, iodepth 4",
                behaviour: Behaviour {
                    writes: false,
                    size: 256 << 10,
                    random: false,
                    span: 16 << 30,
                    arrivals: Arrivals::Closed { depth: 4 },
                },
            },
        ],
        about_mclock: "mClock has no latency bound; the reservation of oltp stands in for it.",
    },
];
