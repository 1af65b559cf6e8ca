//! Input and output of the meta-scheduler.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use crate::{Assignment, Rejection};

/// Host, by order of addition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub usize);

/// Identifier of a request and of the transfer it becomes. Ascending, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// Host and terms on which a transfer runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Request that was placed.
    pub id: RequestId,
    /// Host on which it runs.
    pub host: HostId,
    /// Class of the transfer.
    pub class: Class,
    /// VMs of the host that are lowered until this transfer ends, with their new classes.
    pub lowered: Vec<(RequestId, Class)>,
    /// Time that the request waited.
    pub waited: Nanos,
}

/// Decision of one host on a request, with the figures that it follows from. Of the hosts that
/// accept a request, the one with most free bandwidth gets it; of equal ones the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Terms on which the host would accept the request, or the reason why it would not.
    pub decision: Result<Assignment, Rejection>,
    /// Rate in bytes per second that the transfer would have in the last combination of classes
    /// that was tried; 0 if the host is full.
    pub rate: u64,
    /// Free bandwidth of the host in bytes per second: that of its disk with one more transfer,
    /// less what the running ones need.
    pub free: u64,
}

/// Reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Identifier of the request.
    pub id: RequestId,
    /// Immediate result.
    pub outcome: Outcome,
}

/// Immediate result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Placed on a host.
    Placed(Placement),
    /// No host accepts it at present. It is retried, and discarded at its deadline.
    Waiting,
    /// Refused without waiting.
    Refused(Refusal),
}

/// Reason for refusing a request at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Even an empty host would miss the deadline.
    Impossible {
        /// Shortest deadline that an empty host would meet; `None`: there is no host.
        nearest: Option<Nanos>,
    },
    /// The waiting list is full.
    TooManyWait {
        /// Capacity of the waiting list.
        most: usize,
    },
}

/// Later result of a request that waited. Events are kept until polled, one per waiting request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Placed on a host.
    Placed(Placement),
    /// Discarded because its deadline passed while it waited.
    Discarded(RequestId),
}

/// Changes on a host since the last update.
#[derive(Clone, Copy, Default, Debug)]
pub struct Update<'a> {
    /// Transfers that have ended.
    pub ended: &'a [RequestId],
    /// Transfers whose class the host's PriDyn has changed, with the new class.
    pub classes: &'a [(RequestId, Class)],
    /// Progress of transfers: bytes moved since their start.
    pub moved: &'a [(RequestId, u64)],
    /// Class and rate in bytes per second of each VM, over an interval in which no VM came,
    /// went or changed class. The rates are recorded in the host's priority database.
    pub measured: &'a [(Class, u64)],
    /// VMs of `measured` whose rate was limited by their own demand, with that rate in bytes
    /// per second. Their demand is assumed not to exceed it until a later interval shows otherwise.
    pub demand_limited: &'a [(RequestId, u64)],
}
