//! Limits on what the vhost-user front-ends of a VM may use of the process: mapped regions of guest
//! memory, address space and file descriptors.
//!
//! Each front-end says how much memory it has mapped and how many queues it starts, and all share
//! one process. Without limits a hostile one could use up what the other VMs need.
//!
//! The lock is taken when regions are mapped and queues are set up, never for a request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ring::sys;

/// Most regions of guest memory that the front-ends of a VM have mapped at a time, over all of its
/// disks. A guest of QEMU has fewer than ten, and one more for each memory module.
pub const VM_REGIONS_MAX: u64 = 1024;
/// Most bytes of address space that the front-ends of a VM have mapped at a time; each disk of a
/// guest maps all of its memory.
pub const VM_ADDRESS_SPACE_MAX: u64 = 16 << 40;
/// Most bytes of address space for the guest memory of all VMs: half of what a process has on
/// x86-64, so that the daemon always has room for itself.
pub const ADDRESS_SPACE_MAX: u64 = 64 << 40;
/// Most descriptors that the front-ends of a VM hold at a time, and at most an eighth of those that
/// the process may have.
pub const VM_DESCRIPTORS_MAX: u64 = 4096;

/// Bytes of guest memory that all VMs have mapped.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Resource that is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Regions of guest memory.
    Regions,
    /// Bytes of address space.
    AddressSpace,
    /// File descriptors.
    Descriptors,
}

/// Resources of one VM, by [`Resource`].
#[derive(Debug)]
pub struct VmResources {
    max: [u64; 3],
    used: Mutex<[u64; 3]>,
}

impl Default for VmResources {
    fn default() -> VmResources {
        let files = u64::from(sys::raise_open_files());
        VmResources {
            max: [
                VM_REGIONS_MAX,
                VM_ADDRESS_SPACE_MAX,
                VM_DESCRIPTORS_MAX.min(files / 8),
            ],
            used: Mutex::default(),
        }
    }
}

impl VmResources {
    fn lock(&self) -> MutexGuard<'_, [u64; 3]> {
        // A panic cannot leave a counter half changed: each change is one assignment.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an amount of a resource, which is counted until the share is dropped.
    ///
    /// # Errors
    /// A message if the VM, or for address space all VMs together, would have more than allowed.
    pub fn take(self: &Arc<Self>, resource: Resource, amount: u64) -> Result<Share, String> {
        let mut used = self.lock();
        let (own, max) = (&mut used[resource as usize], self.max[resource as usize]);
        if amount > max - *own {
            let unit = match resource {
                Resource::Regions => "regions of guest memory",
                Resource::AddressSpace => "bytes of guest memory",
                Resource::Descriptors => "descriptors",
            };
            return Err(format!("the front-ends of a VM may have {max} {unit}"));
        }
        if resource == Resource::AddressSpace {
            take_mapped(amount)?;
        }
        *own += amount;
        let of = self.clone();
        Ok(Share {
            of,
            resource,
            amount,
        })
    }
}

/// Counts mapped bytes of all VMs.
fn take_mapped(amount: u64) -> Result<(), String> {
    let more = |mapped: u64| {
        let sum = mapped.checked_add(amount)?;
        (sum <= ADDRESS_SPACE_MAX).then_some(sum)
    };
    let taken = MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    let full = |_| format!("all VMs together may map {ADDRESS_SPACE_MAX} bytes of guest memory");
    taken.map(drop).map_err(full)
}

/// Part of a VM's resources; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    of: Arc<VmResources>,
    resource: Resource,
    amount: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.resource == Resource::AddressSpace {
            MAPPED.fetch_sub(self.amount, Ordering::Relaxed);
        }
        let mut used = self.of.lock();
        let own = &mut used[self.resource as usize];
        // A wrapped count would refuse every front-end of the VM.
        assert!(*own >= self.amount, "a share is given back twice");
        *own -= self.amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vm_has_its_own_limits_and_shares_come_back() {
        let (vm, other) = (Arc::<VmResources>::default(), Arc::<VmResources>::default());
        let all = vm
            .take(Resource::Regions, VM_REGIONS_MAX - 1)
            .expect("room");
        let last = vm.take(Resource::Regions, 1).expect("room for one");
        let refused = vm.take(Resource::Regions, 1).expect_err("full");
        assert!(refused.contains("1024 regions"), "{refused}");
        assert!(vm.take(Resource::Regions, u64::MAX).is_err());
        let elsewhere = [
            vm.take(Resource::Descriptors, 1),
            other.take(Resource::Regions, 1),
        ];
        assert!(elsewhere.iter().all(Result::is_ok));
        drop(last);
        assert!(vm.take(Resource::Regions, 2).is_err());
        drop(all);
        drop(vm.take(Resource::Regions, VM_REGIONS_MAX).expect("room"));
    }

    #[test]
    fn all_vms_together_leave_half_of_the_address_space() {
        let vms: Vec<Arc<VmResources>> = (0..6).map(|_| Arc::default()).collect();
        let taken: Vec<_> = (vms.iter())
            .map(|vm| vm.take(Resource::AddressSpace, VM_ADDRESS_SPACE_MAX))
            .collect();
        // Other tests of this process may have mapped a little.
        let served = taken.iter().filter(|share| share.is_ok()).count();
        assert!((3..=4).contains(&served), "{served} VMs");
        drop(taken);
        assert!(
            vms[5]
                .take(Resource::AddressSpace, VM_ADDRESS_SPACE_MAX)
                .is_ok()
        );
    }
}
