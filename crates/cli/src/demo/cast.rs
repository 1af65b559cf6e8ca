//! The demo's acts: which VMs share a device, and what their guests do.

use super::load::{Arrivals, Behaviour};

/// One device of the configuration and the VMs that share it.
#[derive(Debug)]
pub(super) struct Act {
    /// Name of the device in the configuration.
    pub(super) device: &'static str,
    /// Title above the table of VMs.
    pub(super) title: &'static str,
    /// Share of the demo's time, in per cent.
    pub(super) share: u32,
    /// True when the latency of the first VM is drawn.
    pub(super) drawn: bool,
    /// VMs in the order of the configuration; the first is the one that others disturb.
    pub(super) cast: &'static [Cast],
    /// What to know about the results of mClock.
    pub(super) about_mclock: &'static str,
}

/// A VM of the demo: its name in the configuration and what its guest does.
#[derive(Debug)]
pub(super) struct Cast {
    /// Name in the configuration, also that of its export and its socket.
    pub(super) vm: &'static str,
    /// The guest's requests in words.
    pub(super) does: &'static str,
    /// The guest's requests.
    pub(super) behaviour: Behaviour,
}

/// Acts in the order in which they are played.
pub(super) const ACTS: [Act; 2] = [
    Act {
        device: "flash",
        title: "1. An emulated NVMe volume of 10,000 IOPS and 200 MB/s, three VMs:",
        share: 40,
        drawn: true,
        cast: &[
            Cast {
                vm: "db",
                does: "random 8 KiB reads, 1000 a second",
                behaviour: Behaviour {
                    writes: false,
                    size: 8 << 10,
                    random: true,
                    span: 16 << 30,
                    arrivals: Arrivals::Poisson { per_s: 1000.0 },
                },
            },
            Cast {
                vm: "ci",
                does: "random 64 KiB writes, 32 at once",
                behaviour: Behaviour {
                    writes: true,
                    size: 64 << 10,
                    random: true,
                    span: 64 << 20,
                    arrivals: Arrivals::Closed { depth: 32 },
                },
            },
            Cast {
                vm: "noisy",
                does: "sequential 256 KiB reads, 64 at once",
                behaviour: Behaviour {
                    writes: false,
                    size: 256 << 10,
                    random: false,
                    span: 16 << 30,
                    arrivals: Arrivals::Closed { depth: 64 },
                },
            },
        ],
        about_mclock: "mClock has one limit for reads and writes together: none for writes alone. \
                       Depth of the queue\nand length of I/Os are Tidegate's for every policy.",
    },
    Act {
        device: "disk",
        title: "2. An emulated 7200 rpm disk, three VMs and a backup:",
        share: 60,
        drawn: false,
        cast: &[
            Cast {
                vm: "oltp",
                does: "random 8 KiB reads, 20 a second",
                behaviour: Behaviour {
                    writes: false,
                    size: 8 << 10,
                    random: true,
                    span: 16 << 30,
                    arrivals: Arrivals::Poisson { per_s: 20.0 },
                },
            },
            Cast {
                vm: "stream",
                does: "sequential 256 KiB reads, 40 a second",
                behaviour: Behaviour {
                    writes: false,
                    size: 256 << 10,
                    random: false,
                    span: 16 << 30,
                    arrivals: Arrivals::Even { per_s: 40.0 },
                },
            },
            Cast {
                vm: "bulk",
                does: "sequential 1 MiB writes, 32 at once",
                behaviour: Behaviour {
                    writes: true,
                    size: 1 << 20,
                    random: false,
                    span: 512 << 20,
                    arrivals: Arrivals::Closed { depth: 32 },
                },
            },
            Cast {
                vm: "backup",
                does: "sequential 256 KiB reads, 4 at once",
                behaviour: Behaviour {
                    writes: false,
                    size: 256 << 10,
                    random: false,
                    span: 16 << 30,
                    arrivals: Arrivals::Closed { depth: 4 },
                },
            },
        ],
        about_mclock: "mClock has no bound on latency: the reservation of oltp stands in for it.",
    },
];
