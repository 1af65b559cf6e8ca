//! Membership of hosts: what their daemons have published of themselves.

use std::collections::BTreeMap;

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

/// Membership of a host whose daemon has joined the cluster at least once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Membership {
    /// Standing reservation of the VMs in bytes per second, by device. It counts also while the
    /// daemon is gone, because its VMs come back with it.
    pub reserved: BTreeMap<String, u64>,
    /// Time at which the reservation was written last.
    pub written: Nanos,
    /// True if the daemon has left in order since it joined.
    pub has_left: bool,
    /// Daemon that is registered now; `None`: it is gone.
    pub daemon: Option<RegisteredDaemon>,
}

/// Daemon that holds the lease of its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisteredDaemon {
    /// Random identifier of the process; empty if the record is of another version.
    pub instance: String,
    /// Time since which it is registered.
    pub joined: Nanos,
    /// Version of Tidegate.
    pub version: String,
    /// Socket or address of its control API.
    pub api: Option<String>,
    /// Number of VMs.
    pub vms: usize,
    /// Devices.
    pub devices: Vec<MemberDevice>,
}

/// Device of a registered daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberDevice {
    /// Name.
    pub name: String,
    /// Name of the policy in force; `None`: the event loop did not say.
    pub policy: Option<String>,
    /// Number of VMs.
    pub vms: usize,
    /// Standing reservation in bytes per second.
    pub reserved_bytes_per_s: u64,
    /// Answer of `GET /v1/budget` for the device; `None`: not known.
    pub budget: Option<serde_json::Value>,
    /// Names of the VMs; `None`: not published.
    pub vm_names: Option<Vec<String>>,
    /// Running transfers; `None`: not published.
    pub transfers: Option<Vec<PublishedTransfer>>,
}

/// Running transfer as its daemon publishes it, within some seconds of its beginning and then about
/// once in a minute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedTransfer {
    /// Name of the VM.
    pub vm: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes moved at `as_of`.
    pub moved: u64,
    /// Deadline.
    pub due: Nanos,
    /// I/O priority class.
    pub class: Class,
    /// Time that the figures refer to, by the daemon's clock.
    pub as_of: Nanos,
}

impl MemberDevice {
    /// Returns whether a VM is on the device; `None`: the daemon has not published its VMs.
    pub fn serves(&self, vm: &str) -> Option<bool> {
        let names = self.vm_names.as_ref()?;
        Some(names.iter().any(|name| name == vm))
    }
}

impl Membership {
    /// Returns the standing reservation in bytes per second on one device, or on all for `None`.
    pub fn reserved_on(&self, device: Option<&str>) -> u64 {
        let all = self.reserved.iter();
        let counted = all.filter(|(name, _)| device.is_none_or(|device| device == *name));
        counted.fold(0, |sum, (_, rate)| sum.saturating_add(*rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_that_of_the_hosts_device_or_of_all() {
        let reserved = [("sda", 5), ("sdb", 7)].map(|(name, rate)| (name.to_owned(), rate));
        let membership = Membership {
            reserved: reserved.into(),
            ..Membership::default()
        };
        assert_eq!(membership.reserved_on(None), 12);
        assert_eq!(membership.reserved_on(Some("sdb")), 7);
        assert_eq!(membership.reserved_on(Some("sdc")), 0);
    }
}
