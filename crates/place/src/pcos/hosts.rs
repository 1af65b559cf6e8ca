//! Hosts come, are closed and go.

use tidegate_core::time::Nanos;

use super::host::Host;
use super::{Board, HostId, HostSpec, Pcos, Running};

impl Pcos {
    /// A host more. Those that wait are tried on it.
    pub fn add_host(&mut self, now: Nanos, spec: HostSpec) -> HostId {
        self.handle_timeout(now);
        let host = HostId(self.hosts.len());
        self.hosts.push(Host::new(spec, self.grace));
        self.boards.push(Board {
            most: 0,
            free: 0,
            until: Nanos::MAX,
            alone: 0,
        });
        self.refresh(now, host);
        self.retry(now, host);
        host
    }

    /// A host takes no more jobs until it is opened; those that run there go on. What only it would
    /// do waits.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn close_host(&mut self, now: Nanos, host: HostId) {
        self.hosts[host.0].set_open(false);
        self.refresh(now, host);
    }

    /// A host that was closed takes jobs again. Those that wait are tried on it.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn open_host(&mut self, now: Nanos, host: HostId) {
        self.handle_timeout(now);
        self.hosts[host.0].set_open(true);
        self.refresh(now, host);
        self.retry(now, host);
    }

    /// A host is gone, and with it the jobs that ran there: they are returned as far as they are
    /// taken to be. Whoever wants one to go on elsewhere asks for a host for what is left of it.
    /// News of the host are passed over from then on, and its number is never used again.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn remove_host(&mut self, now: Nanos, host: HostId) -> Vec<Running> {
        let lost = self.hosts[host.0].leave(now);
        self.refresh(now, host);
        lost
    }
}
