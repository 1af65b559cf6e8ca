//! State of the bandwidth tuner for a VM (vCUP), as plain data for the API, metrics and reports.

use tidegate_base::time::Nanos;

/// Pace of a VM's I/Os on their way to the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Throttle {
    /// No pace.
    #[default]
    Off,
    /// Rate in bytes per second, 1 to 2^50. I/Os take slots in proportion to their bytes; slots
    /// that are late through no fault of the VM are made good.
    Exactly(u64),
    /// Maximum rate in bytes per second, 1 to 2^50; slots that are late are lost.
    AtMost(u64),
    /// Rate in thousandths of an I/O per second, 1 to 2^50; slots that are late are made good.
    Ios(u64),
}

/// Tuning of a VM that is held to a precise bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Largest size in bytes of the VM's I/Os; `None`: only the device's own bound.
    pub merge_limit: Option<u32>,
    /// Pace of the VM's I/Os.
    pub throttle: Throttle,
    /// Control window: the tuner measures for this time and then acts, once per window.
    pub window: Nanos,
    /// True once the search for the best length of the window has ended.
    pub settled: bool,
    /// Bandwidth that tuning actions aim at, in bytes per second: the target, revised by the error
    /// so far. `None`: only IOPS are held.
    pub aim: Option<u64>,
    /// Bandwidths that can be promised; `None`: not measured.
    pub range: Option<BandwidthRange>,
    /// Number of merge limits measured so far and in total; `None`: none is being measured.
    pub profiling: Option<(u32, u32)>,
    /// Error B and variability V over the last statistical interval, in millionths
    /// ([`tidegate_base::precision`]); `None`: no interval has ended.
    pub precision: Option<(i64, u64)>,
    /// Shortfall while the VM issues enough requests for its target and the device does not deliver
    /// it; `None` if it does, or did within the last second.
    pub inadequate: Option<Inadequate>,
}

/// Measured bandwidths of a VM at its smallest and at its best merge limit. Anything from zero to
/// the highest can be promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BandwidthRange {
    /// Bandwidth at one page per I/O, in bytes per second; lower rates need a throttle.
    pub lowest: u64,
    /// Highest bandwidth measured, in bytes per second.
    pub highest: u64,
    /// Merge limit in bytes at which the highest bandwidth was measured.
    pub merge_limit: u32,
}

/// Shortfall of a VM against its target, because the device's capacity is too small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inadequate {
    /// Start of the shortfall, without a break since.
    pub since: Nanos,
    /// Bandwidth that the VM gets instead, in bytes per second, as last measured.
    pub bytes_per_s: u64,
    /// Rate that the VM gets instead, in thousandths of a device I/O per second, as last measured.
    pub ios_per_s: u64,
}
