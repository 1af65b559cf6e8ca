//! Queueing that is allowed with the device, and the depth in force with its reason.

use tidegate_base::request::VmId;

/// Queueing at the device that is allowed for the sake of its throughput.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DepthTuning {
    /// At most 1.5 % of the work is given up for a shorter queue, 2.5 % where I/Os take over 1 ms.
    #[default]
    Balanced,
    /// At most 10 % of the work is given up for a shorter queue.
    Latency,
    /// At most 0.5 % of the work is given up for a shorter queue.
    Throughput,
}

impl DepthTuning {
    /// Every tuning with its name in configurations.
    pub const ALL: [(&'static str, DepthTuning); 3] = [
        ("balanced", DepthTuning::Balanced),
        ("latency", DepthTuning::Latency),
        ("throughput", DepthTuning::Throughput),
    ];

    /// Fraction by which twice the depth has to deliver more.
    pub(super) fn growth(self) -> f64 {
        match self {
            DepthTuning::Balanced => 0.05,
            DepthTuning::Latency => 0.15,
            DepthTuning::Throughput => 0.02,
        }
    }

    /// Fraction of the work that a smaller depth may cost; `slow`: an I/O takes over 1 ms.
    pub(super) fn loss(self, slow: bool) -> f64 {
        match self {
            DepthTuning::Balanced if slow => 0.025,
            DepthTuning::Balanced => 0.015,
            DepthTuning::Latency => 0.10,
            DepthTuning::Throughput => 0.005,
        }
    }
}

/// Bound of the depth for the sake of a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DepthBound {
    /// I/Os in flight at most.
    pub depth: u32,
    /// VM whose promise asks for it; `None`: several, or none.
    pub vm: Option<VmId>,
}

/// Reason for the depth in force.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DepthReason {
    /// Nothing has been measured: the depth to begin with.
    Start,
    /// The bandwidth-delay product of the present load.
    Product,
    /// The configured depth, of which the load needs all.
    Whole,
    /// The bound of a VM's promise; `None`: one given from outside without a VM. `cost`: fraction
    /// of the device's work that it costs, where that is known.
    Bound {
        /// VM of the promise.
        vm: Option<VmId>,
        /// Work that the bound costs, 0 to 1.
        cost: Option<f64>,
    },
}

/// Depth in force, and the reason for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DepthView {
    /// I/Os in flight at most, but for probes.
    pub depth: u32,
    /// Reason for it.
    pub reason: DepthReason,
}
