//! Deadline transfers in the engine's interface: their request, status and end.

use super::{Class, Forecast, Transfer};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;

/// Request for a deadline transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferSpec {
    /// Bytes to read and write in total, at least 1.
    pub bytes: u64,
    /// Time from the begin until all bytes are to have moved, at least 1 ns.
    pub deadline: Nanos,
}

/// Terms on which an admission controller (PCOS) admitted a VM's transfer: figure 5.8 of the thesis
/// that the module [`transfers`](super) cites.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Admission {
    /// Class of the transfer's VM.
    pub class: Class,
    /// Other VMs that stay at these classes until the transfer ends.
    pub lowered: Vec<(VmId, Class)>,
}

/// Status of a VM's transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferStatus {
    /// Transfer with its progress so far.
    pub transfer: Transfer,
    /// Bandwidth of its VM in the last interval, in bytes per second; `None`: not measured yet.
    pub bandwidth: Option<u64>,
    /// Forecast of its end; neither early nor late while no bandwidth is known.
    pub forecast: Forecast,
    /// Current class of its VM; best effort under policies without classes.
    pub class: Class,
    /// True if no assignment of classes meets the deadline (PriDyn's case 3), so no other VM is
    /// lowered for it until a transfer begins or ends.
    pub given_up: bool,
    /// True if the whole device could meet the deadline, as far as its capacity is known.
    pub possible: bool,
}

/// End of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferEnd {
    /// VM of the transfer.
    pub vm: VmId,
    /// Transfer with its progress at the end.
    pub transfer: Transfer,
    /// Time of the last byte's reply, or of the cancellation.
    pub ended: Nanos,
    /// Time by which the end exceeded the deadline; zero if in time.
    pub late: Nanos,
    /// Completion or cancellation.
    pub outcome: TransferOutcome,
}

/// Way in which a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferOutcome {
    /// All its bytes have moved.
    Done,
    /// Cancelled on request, replaced by another transfer of its VM, or ended because the VM left.
    Cancelled,
}

/// Parameters of a policy for the forecasts of deadline transfers: how often the bandwidths of VMs
/// are measured, and the configured bandwidths of the device.
///
/// "The thesis" is Jain's, which the module [`transfers`](super) cites; MaxBW and BWloss are names
/// from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForecastParams {
    /// Interval between measurements.
    pub interval: Nanos,
    /// True if a transfer starts with its VM's bandwidth of the last interval; false if with none,
    /// until the first interval of its own has ended.
    pub keep_bandwidth: bool,
    /// Bandwidth of the device with one user (MaxBW) in bytes per second; 0: it is learnt.
    pub max_bandwidth: u64,
    /// Bandwidth lost with two or more users (BWloss) in bytes per second. Ignored where
    /// `max_bandwidth` is 0.
    pub bandwidth_loss: u64,
}

impl ForecastParams {
    /// Default interval between measurements, that of the thesis.
    pub const INTERVAL: Nanos = Nanos::from_secs(3);
}

impl Default for ForecastParams {
    fn default() -> ForecastParams {
        ForecastParams {
            interval: ForecastParams::INTERVAL,
            keep_bandwidth: false,
            max_bandwidth: 0,
            bandwidth_loss: 0,
        }
    }
}

/// I/O class of a VM under a controller that changes classes to meet the deadlines of transfers
/// (PriDyn), with the outlook of the VM's own transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassStatus {
    /// Current class.
    pub class: Class,
    /// True if no assignment of classes meets the deadline of its transfer, as in
    /// [`TransferStatus::given_up`].
    pub given_up: bool,
}
