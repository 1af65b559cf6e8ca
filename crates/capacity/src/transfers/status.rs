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

/// Terms on which an admission controller admitted a VM's transfer: PCOS, figure 5.8 of the thesis.
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
    /// B: bytes a second of its VM in the last interval; `None`: not measured yet.
    pub bandwidth: Option<u64>,
    /// Forecast of its end; neither early nor late while no bandwidth is known.
    pub forecast: Forecast,
    /// Current class of its VM; best effort under policies without classes.
    pub class: Class,
    /// True if case 3 applied: no assignment of classes meets the deadline, so no other VM suffers
    /// for it until a transfer begins or ends.
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
    /// Outcome.
    pub outcome: TransferOutcome,
}

/// Outcome of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferOutcome {
    /// All its bytes have moved.
    Done,
    /// Cancelled on request, replaced by another transfer of its VM, or ended because the VM left.
    Cancelled,
}

/// Parameters of measuring bandwidths, with the capacity assumed before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferTerms {
    /// Interval between measurements.
    pub interval: Nanos,
    /// A transfer starts with its VM's bandwidth of the last interval; otherwise with none known.
    pub carry: bool,
    /// MaxBW in bytes a second; 0: the capacity of the device is learnt.
    pub max_bandwidth: u64,
    /// BWloss in bytes a second, for two or more VMs. Ignored where MaxBW is 0.
    pub bandwidth_loss: u64,
}

impl TransferTerms {
    /// Interval in the thesis.
    pub const INTERVAL: Nanos = Nanos::from_secs(3);
}

impl Default for TransferTerms {
    fn default() -> TransferTerms {
        TransferTerms {
            interval: TransferTerms::INTERVAL,
            carry: false,
            max_bandwidth: 0,
            bandwidth_loss: 0,
        }
    }
}

/// State of a VM in a controller that changes classes for transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Current class.
    pub class: Class,
    /// True if case 3 applied, see [`TransferStatus::given_up`].
    pub given_up: bool,
}
