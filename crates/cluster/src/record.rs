//! Records of a cluster's state: hosts, deadline transfers, placements, entitlements, settings.
//!
//! Times count from the beginning of 1970.

use tidegate_core::jobs::{Class, Job};
use tidegate_core::time::Nanos;
use tidegate_place::{Bandwidth, BandwidthError, Request, RequestError};

/// Host that runs deadline transfers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRecord {
    /// Unique name.
    pub name: String,
    /// Throughput of its disk for one transfer, in bytes per second.
    pub bandwidth: u64,
    /// Throughput lost with one, two and more transfers, in bytes per second.
    pub loss: Vec<u64>,
    /// Maximum number of transfers.
    pub max_transfers: usize,
    /// Control socket of its daemon; `None`: it has none that can be asked.
    pub socket: Option<String>,
    /// Device of that daemon; `None`: all of them.
    pub device: Option<String>,
    /// Time since which no transfer came, went or changed its class.
    pub steady_since: Nanos,
    /// Time at which its daemon last taught the priority database something.
    pub taught_at: Nanos,
    /// It takes no more transfers; those that run there go on.
    pub drained: bool,
}

/// Deadline transfer: an amount of data that is to be moved by a deadline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Unique name.
    pub name: String,
    /// Bytes in all, read and written.
    pub bytes: u64,
    /// Time from its beginning by which it is to be done, and for which it waits at most.
    pub deadline: Nanos,
    /// Time at which it was asked for.
    pub arrived: Nanos,
    /// Maximum rate that it takes, in bytes per second; `None`: all that it is given.
    pub limit: Option<u64>,
    /// It is to be started on the daemon of the host where it is placed.
    pub start: bool,
}

/// Place of a transfer on a host, and its progress there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Name of the host.
    pub host: String,
    /// Time at which the transfer began there.
    pub begun: Nanos,
    /// Bytes that it is taken to have moved at `as_of`.
    pub moved: u64,
    /// Time that `moved` is about.
    pub as_of: Nanos,
    /// Bytes moved by the last report; 0 before the first one.
    pub reported: u64,
    /// Time of the last report; `begun` before the first one.
    pub reported_at: Nanos,
}

/// I/O priority class that a placed transfer has on its host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Entitlement {
    /// Class at present.
    pub class: Class,
    /// Names of the transfers for which it was lowered, one entry for each class.
    pub lowered_for: Vec<String>,
}

/// Transfer that runs on a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningTransfer {
    /// Amount and deadline.
    pub transfer: Transfer,
    /// Host and progress.
    pub placement: Placement,
    /// Class on the host.
    pub entitlement: Entitlement,
    /// It was not placed here: the host's daemon reported it. Never stored.
    pub live: bool,
}

/// Settings of the whole cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    /// Number in the last name that was made for a transfer without one.
    pub last_number: u64,
    /// [`Grace`](tidegate_place::Grace) in thousandths of a deadline; `None`: the default.
    pub grace: Option<u32>,
}

impl HostRecord {
    /// Host without a daemon that takes transfers at once.
    pub fn new(name: String, bandwidth: u64, loss: Vec<u64>, max_transfers: usize) -> HostRecord {
        HostRecord {
            name,
            bandwidth,
            loss,
            max_transfers,
            socket: None,
            device: None,
            steady_since: Nanos::ZERO,
            taught_at: Nanos::ZERO,
            drained: false,
        }
    }

    /// Returns the throughput of its disk by the number of transfers.
    ///
    /// # Errors
    /// If a loss leaves nothing.
    pub fn bandwidth(&self) -> Result<Bandwidth, BandwidthError> {
        Bandwidth::new(self.bandwidth, &self.loss)
    }
}

impl Transfer {
    /// Transfer that is asked for now.
    pub fn new(name: &str, request: &Request, now: Nanos) -> Transfer {
        Transfer {
            name: name.to_owned(),
            bytes: request.bytes(),
            deadline: request.deadline(),
            arrived: now,
            limit: (request.limit() < u64::MAX).then(|| request.limit()),
            start: false,
        }
    }

    /// Returns the request to the meta-scheduler.
    ///
    /// # Errors
    /// If there is nothing to move, no time for it, or the limit is below the needed rate.
    pub fn request(&self) -> Result<Request, RequestError> {
        let request = Request::new(self.bytes, self.deadline)?;
        match self.limit {
            Some(limit) => request.limited(limit),
            None => Ok(request),
        }
    }
}

impl Placement {
    /// Placement on a host where nothing has moved yet.
    pub fn new(host: &str, now: Nanos) -> Placement {
        Placement {
            host: host.to_owned(),
            begun: now,
            moved: 0,
            as_of: now,
            reported: 0,
            reported_at: now,
        }
    }
}

impl RunningTransfer {
    /// Returns its unique name.
    pub fn name(&self) -> &str {
        &self.transfer.name
    }

    /// Returns it as the state machine's job.
    pub fn job(&self) -> Job {
        Job {
            bytes: self.transfer.bytes,
            begun: self.placement.begun,
            deadline: self.transfer.deadline,
            moved: self.placement.moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_gives_the_request_that_it_was_made_of() {
        let request = Request::new(600, Nanos::from_secs(2)).expect("valid");
        let unlimited = Transfer::new("x", &request, Nanos(7));
        assert_eq!((unlimited.limit, unlimited.arrived), (None, Nanos(7)));
        assert_eq!(unlimited.request(), Ok(request));
        let request = request.limited(400).expect("300 are needed");
        let limited = Transfer::new("x", &request, Nanos(7));
        assert_eq!(limited.limit, Some(400));
        assert_eq!(limited.request(), Ok(request));
        let slow = Transfer {
            limit: Some(299),
            ..limited
        };
        assert!(slow.request().is_err(), "299 of 300");
    }
}
