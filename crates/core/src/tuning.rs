//! What a tuner does for its VM, as plain data: for people, metrics and reports.

use tidegate_base::time::Nanos;

/// How fast a VM's I/Os may follow each other on their way to the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Throttle {
    /// As fast as they come.
    #[default]
    Off,
    /// So many bytes a second: each I/O takes its bytes' time of it, and what comes late through no
    /// fault of the VM's is made good. 1 to 2^50.
    Exactly(u64),
    /// At most so many bytes a second; what comes late is lost. 1 to 2^50.
    AtMost(u64),
    /// So many thousandths of an I/O a second; late ones are made good. 1 to 2^50.
    Ios(u64),
}

/// How a VM that is held to a precise bandwidth is tuned just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Its I/Os have at most so many bytes; `None`: as many as the device allows.
    pub merge_limit: Option<u32>,
    /// How fast they may follow each other.
    pub throttle: Throttle,
    /// How long each tuning action holds.
    pub window: Nanos,
    /// No better window is looked for at the moment.
    pub settled: bool,
    /// The bandwidth that tuning actions aim at, in bytes a second; `None`: only IOPS are held.
    pub aim: Option<u64>,
    /// The bandwidths that can be promised; `None`: they were not measured.
    pub range: Option<BandwidthRange>,
    /// The range is being measured: how many merge limits of how many are done.
    pub profiling: Option<(u32, u32)>,
    /// B and V over the last statistical interval, in millionths (see
    /// [`tidegate_base::precision`]); `None`: none has ended yet.
    pub precision: Option<(i64, u64)>,
    /// The VM asks for its target and the device does not do it; `None`: it does, or did less than
    /// a second ago.
    pub inadequate: Option<Inadequate>,
}

/// The bandwidths that a VM was found to have at its smallest and at its best merge limit: what can
/// be promised reaches from nothing to the highest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BandwidthRange {
    /// At one page an I/O, in bytes a second: less needs a throttle.
    pub lowest: u64,
    /// The highest that there was, in bytes a second.
    pub highest: u64,
    /// The merge limit at which it was, in bytes.
    pub merge_limit: u32,
}

/// A capacity that is too small for what was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inadequate {
    /// Since when it has been, without a break.
    pub since: Nanos,
    /// What can be had instead, in bytes a second: what the VM had of late.
    pub bytes_per_s: u64,
    /// The same in thousandths of a device I/O a second.
    pub ios_per_s: u64,
}
