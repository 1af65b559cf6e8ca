//! Limits on NBD connections, by VM and by device.
//!
//! A device serves at most [`DEVICE_CONNECTIONS_MAX`] connections, and each VM has at most its
//! `max_connections` of them. [`GUARANTEED_PER_VM`] connections are reserved for each VM; a
//! device with too many VMs for that reserves an equal share of its places for each.
//!
//! The lock is taken when a connection begins and ends, never for a request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::vm_resources::VmResources;

/// Maximum number of connections of one device, over all its VMs.
pub const DEVICE_CONNECTIONS_MAX: usize = 4096;
/// Connections reserved for each VM.
pub const GUARANTEED_PER_VM: usize = 16;

/// Connections of a device, counted by VM.
#[derive(Debug)]
pub struct DeviceConnections {
    places: usize,
    vms: Mutex<Vec<Option<Tally>>>,
}

/// Counters of one VM.
#[derive(Clone, Copy, Debug)]
struct Tally {
    max: u32,
    open: u32,
    refused: u64,
}

/// Connections of a VM: allowed, open and refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionCounts {
    /// The VM's `max_connections`.
    pub max: u32,
    /// Connections that are open or being handed to the event loop.
    pub open: u32,
    /// Connections refused since the VM was added.
    pub refused: u64,
}

/// Reason why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// The VM has as many connections as its `max_connections` allows.
    #[error("its VM has {max} connections already, the maximum by max_connections")]
    VmFull {
        /// The VM's `max_connections`.
        max: u32,
    },
    /// The free places of the device are reserved for other VMs.
    #[error(
        "its device serves at most {places} connections, and the free ones are reserved for other \
         VMs"
    )]
    DeviceFull {
        /// Most connections of the device.
        places: usize,
    },
}

impl DeviceConnections {
    /// Creates the counters of a device that serves at most `places` connections.
    ///
    /// # Panics
    /// If `places` is 0: the device would refuse every client.
    pub fn new(places: usize) -> Arc<DeviceConnections> {
        assert!(places > 0, "a device without a place for a connection");
        let vms = Mutex::default();
        Arc::new(DeviceConnections { places, vms })
    }

    /// Adds a VM that may have `max` connections. It is counted until the result is dropped.
    pub fn add_vm(self: &Arc<Self>, max: u32) -> Arc<VmConnections> {
        assert!(max > 0, "a VM without room for a connection");
        let tally = Tally {
            max,
            open: 0,
            refused: 0,
        };
        let mut vms = self.lock();
        let at = vms.iter().position(Option::is_none).unwrap_or_else(|| {
            vms.push(None);
            vms.len() - 1
        });
        vms[at] = Some(tally);
        let device = self.clone();
        Arc::new(VmConnections {
            device,
            at,
            resources: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Tally>>> {
        // A panic cannot leave a counter half changed: each change is one assignment.
        self.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections of one VM. Lives until the VM is removed and the last of its connections has ended.
#[derive(Debug)]
pub struct VmConnections {
    device: Arc<DeviceConnections>,
    at: usize,
    resources: Arc<VmResources>,
}

impl VmConnections {
    /// Returns the limits on what the VM's vhost-user front-ends use of the process.
    pub fn resources(&self) -> Arc<VmResources> {
        self.resources.clone()
    }

    /// Admits one more connection, which is counted until the permit is dropped.
    ///
    /// # Errors
    /// If the VM has its `max_connections`, or the free places of the device are reserved for other
    /// VMs.
    pub fn admit(self: &Arc<Self>) -> Result<ConnectionPermit, NotAdmitted> {
        let mut vms = self.device.lock();
        let admitted = may_admit(self.device.places, &vms, self.at);
        let tally = vms[self.at].as_mut().expect("counted until it is dropped");
        match admitted {
            Ok(()) => {
                assert!(
                    tally.open < tally.max,
                    "a VM gets a connection beyond its maximum of {}",
                    tally.max
                );
                tally.open += 1;
            }
            Err(_) => tally.refused += 1,
        }
        drop(vms);
        admitted.map(|()| ConnectionPermit {
            vm: self.clone(),
            ends: None,
        })
    }

    /// Returns the connections of the VM: allowed, open and refused.
    pub fn counts(&self) -> ConnectionCounts {
        let Tally { max, open, refused } = self.device.lock()[self.at].expect("counted");
        ConnectionCounts { max, open, refused }
    }

    /// Changes the VM's maximum; connections beyond a lower maximum stay open.
    pub fn set_max(&self, max: u32) {
        assert!(max > 0, "a VM without room for a connection");
        self.tally(|tally| tally.max = max);
    }

    fn tally(&self, change: impl FnOnce(&mut Tally)) {
        change(self.device.lock()[self.at].as_mut().expect("counted"));
    }
}

impl Drop for VmConnections {
    fn drop(&mut self) {
        let mut vms = self.device.lock();
        let tally = vms[self.at].take().expect("counted until it is dropped");
        // Permits hold the VM, so none can be left. A VM that shares the index later would be
        // charged for it.
        assert_eq!(tally.open, 0, "a VM is dropped before its connections");
        // Indices of VMs that still exist must not change, so only the tail can go.
        while vms.last().is_some_and(Option::is_none) {
            vms.pop();
        }
        let used = vms.len();
        if vms.capacity() > 4 * used {
            vms.shrink_to(2 * used);
        }
    }
}

/// Permit of an open connection; dropping it frees the place.
#[derive(Debug)]
pub struct ConnectionPermit {
    vm: Arc<VmConnections>,
    /// Closed when the connection ends; nothing is sent.
    ends: Option<oneshot::Sender<Infallible>>,
}

impl ConnectionPermit {
    /// Returns a receiver that is closed when the connection ends. A second call closes the
    /// receiver of the first.
    pub fn end(&mut self) -> oneshot::Receiver<Infallible> {
        let (sender, receiver) = oneshot::channel();
        self.ends = Some(sender);
        receiver
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.vm.tally(|tally| {
            // A wrapped count would refuse every later connection of the VM.
            assert!(tally.open > 0, "a connection ends that was not counted");
            tally.open -= 1;
        });
    }
}

/// Checks whether the VM at index `at` may have one more connection on a device with `places`.
fn may_admit(places: usize, vms: &[Option<Tally>], at: usize) -> Result<(), NotAdmitted> {
    let own = vms[at].expect("counted until it is dropped");
    if own.open >= own.max {
        return Err(NotAdmitted::VmFull { max: own.max });
    }
    let all = || vms.iter().flatten();
    // At least one VM is counted: the one that asks.
    let guaranteed = (GUARANTEED_PER_VM.min(places / all().count())) as u32;
    let open: usize = all().map(|vm| vm.open as usize).sum();
    let reserved: usize = if own.open < guaranteed {
        0
    } else {
        // The VM's own share of the sum is 0, because its guaranteed connections are in use.
        all()
            // A VM whose own maximum is lower reserves no more than that.
            .map(|vm| guaranteed.min(vm.max).saturating_sub(vm.open) as usize)
            .sum()
    };
    if places.saturating_sub(open) > reserved {
        Ok(())
    } else {
        Err(NotAdmitted::DeviceFull { places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(vm: &Arc<VmConnections>, n: usize) -> Vec<ConnectionPermit> {
        (0..n).map_while(|_| vm.admit().ok()).collect()
    }

    #[test]
    fn a_vm_has_as_many_connections_as_it_may_and_those_that_end_are_given_back() {
        let vm = DeviceConnections::new(100).add_vm(3);
        let mut permits = admit(&vm, 5);
        assert_eq!(permits.len(), 3);
        let full = NotAdmitted::VmFull { max: 3 };
        assert_eq!(vm.admit().expect_err("full"), full);
        assert_eq!(
            vm.counts(),
            ConnectionCounts {
                max: 3,
                open: 3,
                refused: 2
            }
        );
        permits.pop();
        permits.extend(vm.admit());
        assert_eq!(vm.counts().open, 3);
        vm.set_max(4);
        assert_eq!(admit(&vm, 5).len(), 1);
    }

    #[test]
    fn no_vm_takes_what_is_guaranteed_to_another() {
        let device = DeviceConnections::new(100);
        let vms = [1000, 1000, 5].map(|max| device.add_vm(max));
        // The first VM may take all but what is reserved: 16 for the second, and for the third its
        // maximum, 5.
        let greedy = admit(&vms[0], 1000);
        assert_eq!(greedy.len(), 100 - 16 - 5);
        let full = NotAdmitted::DeviceFull { places: 100 };
        assert_eq!(vms[0].admit().expect_err("reserved for others"), full);
        let second = admit(&vms[1], 1000);
        assert_eq!((second.len(), admit(&vms[2], 1000).len()), (16, 5));
        // The third VM's five permits were dropped at once, and their places are still reserved for
        // it.
        assert_eq!(vms[1].admit().expect_err("reserved for the third"), full);
        assert_eq!(admit(&vms[2], 1000).len(), 5);
    }

    #[test]
    fn with_more_vms_than_places_each_is_kept_an_equal_part() {
        let device = DeviceConnections::new(40);
        let vms: Vec<_> = (0..10).map(|_| device.add_vm(1000)).collect();
        let greedy = admit(&vms[0], 1000);
        assert_eq!(greedy.len(), 4);
        for vm in &vms[1..] {
            assert_eq!(vm.admit().map(drop), Ok(()));
        }
    }

    #[test]
    fn nothing_is_left_of_vms_that_went() {
        let device = DeviceConnections::new(40);
        for _ in 0..3 {
            let vms: Vec<_> = (0..1000).map(|_| device.add_vm(1)).collect();
            let connection = vms[500].admit().expect("there is room");
            drop(vms);
            assert_eq!(device.lock().len(), 501, "the connection outlives its VM");
            drop(connection);
            assert_eq!(device.lock().capacity(), 0);
        }
    }
}
