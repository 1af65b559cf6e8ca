//! Records of a cluster's state: hosts, deadline transfers, placements, entitlements, settings.
//!
//! All times count from 1970-01-01 00:00 UTC.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{self, Class};
use tidegate_place::{Bandwidth, BandwidthError, Request, RequestError};

use crate::table::Named;

/// Host that runs deadline transfers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRecord {
    /// Unique name.
    pub name: String,
    /// Bandwidth of its disk for one transfer, in bytes per second.
    pub bandwidth: u64,
    /// Loss of bandwidth with one, two and more transfers, in bytes per second; the last value
    /// holds for any larger number. See [`Bandwidth`].
    pub loss: Vec<u64>,
    /// Maximum number of transfers.
    pub max_transfers: usize,
    /// Control socket of its daemon; `None`: no daemon.
    pub socket: Option<String>,
    /// Name of that daemon's device on which transfers run; `None`: any of its devices.
    pub device: Option<String>,
    /// Time since which no transfer started, ended or changed class.
    pub steady_since: Nanos,
    /// Time at which rates from the daemon were last recorded in the priority database.
    pub rates_recorded_at: Nanos,
    /// True if the host accepts no more transfers, while running ones continue.
    pub drained: bool,
}

/// Deadline transfer: amount of data to be moved by a deadline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Unique name.
    pub name: String,
    /// Total bytes, read and written.
    pub bytes: u64,
    /// Maximum duration from the start. A transfer that waits longer than this for a host is
    /// discarded.
    pub deadline: Nanos,
    /// Time of the request.
    pub arrived: Nanos,
    /// Largest rate that the transfer can use, in bytes per second; `None`: unlimited.
    pub limit: Option<u64>,
    /// True if the cluster also starts the transfer on the daemon of the host where it is placed,
    /// and not only records the placement.
    pub start: bool,
}

/// Placement of a transfer on a host, with its progress there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Name of the host.
    pub host: String,
    /// Time at which the transfer started there.
    pub begun: Nanos,
    /// Estimate of the bytes moved at `as_of`.
    pub moved: u64,
    /// Time to which `moved` refers.
    pub as_of: Nanos,
    /// Bytes moved by the last report; 0 before the first report.
    pub reported: u64,
    /// Time of the last report; `begun` before the first report.
    pub reported_at: Nanos,
}

/// I/O priority class that a placed transfer has on its host, and the reasons why it is lower than
/// it was admitted with.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Entitlement {
    /// Current class.
    pub class: Class,
    /// Names of the transfers for which it was lowered, one for each class down.
    pub lowered_for: Vec<String>,
}

/// Transfer that runs on a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningTransfer {
    /// Size and deadline.
    pub transfer: Transfer,
    /// Host and progress.
    pub placement: Placement,
    /// Class on the host.
    pub entitlement: Entitlement,
    /// Reported by the host's daemon instead of placed by this cluster; never stored.
    pub live: bool,
}

/// Settings of the whole cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    /// Number in the last generated transfer name.
    pub last_number: u64,
    /// [`Grace`](tidegate_place::Grace) in thousandths of a deadline; `None`: the default.
    pub grace: Option<u32>,
}

impl HostRecord {
    /// Creates a host without daemon that accepts transfers.
    pub fn new(name: String, bandwidth: u64, loss: Vec<u64>, max_transfers: usize) -> HostRecord {
        HostRecord {
            name,
            bandwidth,
            loss,
            max_transfers,
            socket: None,
            device: None,
            steady_since: Nanos::ZERO,
            rates_recorded_at: Nanos::ZERO,
            drained: false,
        }
    }

    /// Returns the bandwidth of its disk by number of transfers.
    ///
    /// # Errors
    /// A loss leaves no bandwidth.
    pub fn bandwidth(&self) -> Result<Bandwidth, BandwidthError> {
        Bandwidth::new(self.bandwidth, &self.loss)
    }

    /// Returns the bandwidth beside VMs that reserve `reserved` bytes per second; `None`: nothing.
    ///
    /// # Errors
    /// A loss leaves no bandwidth, also without the VMs.
    pub fn bandwidth_beside(&self, reserved: u64) -> Result<Option<Bandwidth>, BandwidthError> {
        let whole = self.bandwidth()?;
        if reserved == 0 {
            return Ok(Some(whole));
        }
        let left = self.bandwidth.saturating_sub(reserved);
        Ok(Bandwidth::new(left, &self.loss).ok())
    }
}

impl Transfer {
    /// Creates a transfer requested at `now`.
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

    /// Returns the placement request of the transfer.
    ///
    /// # Errors
    /// Size or deadline is 0, or the limit is below the needed rate.
    pub fn request(&self) -> Result<Request, RequestError> {
        let request = Request::new(self.bytes, self.deadline)?;
        match self.limit {
            Some(limit) => request.limited(limit),
            None => Ok(request),
        }
    }
}

impl Placement {
    /// Creates a placement that starts at `now`.
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
    /// Name of the transfer.
    pub fn name(&self) -> &str {
        &self.transfer.name
    }

    /// Returns the transfer as the meta-scheduler sees it.
    pub fn progress(&self) -> transfers::Transfer {
        transfers::Transfer {
            bytes: self.transfer.bytes,
            begun: self.placement.begun,
            deadline: self.transfer.deadline,
            moved: self.placement.moved,
        }
    }
}

impl Named for Transfer {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for RunningTransfer {
    fn name(&self) -> &str {
        &self.transfer.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_taken_off_the_bandwidth() {
        let host = HostRecord::new("a".to_owned(), 60, vec![0, 10], 4);
        let left = |reserved| {
            let left = host.bandwidth_beside(reserved).expect("valid");
            left.map(|left| [left.total_for(1), left.total_for(2)])
        };
        assert_eq!(left(0), Some([60, 50]));
        assert_eq!(left(40), Some([20, 10]));
        for all in [50, 60, u64::MAX] {
            assert_eq!(left(all), None, "{all}");
        }
    }

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
