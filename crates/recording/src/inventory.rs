//! VMs and disks of a recording as they are at one time.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Change, DeviceFacts, Header, VmFacts};

/// Device, VMs and disks in force at a place in a recording. VMs and disks that were removed stay
/// known by their numbers, because requests of theirs may end later.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inventory {
    device: DeviceFacts,
    vms: BTreeMap<u32, VmFacts>,
    /// Number of the VM that has, or had, a disk.
    owners: BTreeMap<u32, u32>,
    removed: BTreeSet<u32>,
}

impl Inventory {
    /// Returns the state at the beginning of a recording.
    pub fn new(header: &Header) -> Inventory {
        let mut inventory = Inventory {
            device: header.device.clone(),
            ..Inventory::default()
        };
        for vm in &header.vms {
            inventory.add_vm(vm.clone());
        }
        inventory
    }

    /// Returns the device with the policy in force.
    pub fn device(&self) -> &DeviceFacts {
        &self.device
    }

    /// Iterates over the VMs that are there, by number.
    pub fn vms(&self) -> impl Iterator<Item = &VmFacts> {
        (self.vms.values()).filter(|vm| !self.removed.contains(&vm.number))
    }

    /// Returns the VM of a number, also after its removal.
    pub fn vm(&self, number: u32) -> Option<&VmFacts> {
        self.vms.get(&number)
    }

    /// Returns the VM that has a disk, or had it.
    pub fn vm_of_disk(&self, disk: u32) -> Option<&VmFacts> {
        self.vms.get(self.owners.get(&disk)?)
    }

    /// Returns the first numbers of a VM and of a disk that were never used.
    pub fn next_numbers(&self) -> (u32, u32) {
        fn behind<V>(map: &BTreeMap<u32, V>) -> u32 {
            map.last_key_value()
                .map_or(0, |(&last, _)| last.saturating_add(1))
        }
        (behind(&self.vms), behind(&self.owners))
    }

    /// Applies a change. One that names what is unknown has no effect: what made it known was lost.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::VmAdded { vm } => self.add_vm(vm.clone()),
            Change::VmRemoved { vm } => {
                if self.vms.contains_key(vm) {
                    self.removed.insert(*vm);
                }
            }
            Change::VmRenamed { vm, name } => {
                if let Some(vm) = self.vms.get_mut(vm) {
                    vm.name.clone_from(name);
                }
            }
            Change::DiskAdded { vm, disk } => {
                if let Some(vm) = self.vms.get_mut(vm) {
                    self.owners.insert(disk.number, vm.number);
                    vm.disks.push(disk.clone());
                }
            }
            Change::DiskRemoved { disk } => {
                if let Some(vm) = self.owners.get(disk)
                    && let Some(vm) = self.vms.get_mut(vm)
                {
                    vm.disks.retain(|other| other.number != *disk);
                }
            }
            Change::DiskResized { disk, size_bytes } => {
                let vm = self.owners.get(disk).and_then(|vm| self.vms.get_mut(vm));
                for other in vm.into_iter().flat_map(|vm| &mut vm.disks) {
                    if other.number == *disk {
                        other.size_bytes = *size_bytes;
                    }
                }
            }
            Change::Objective { vm, objective } => {
                if let Some(vm) = self.vms.get_mut(vm) {
                    vm.objective.clone_from(objective);
                }
            }
            Change::Policy { policy } => self.device.policy.clone_from(policy),
            Change::DeviceResized { size_bytes } => self.device.size_bytes = Some(*size_bytes),
        }
    }

    /// Returns the header of a file that begins here.
    pub fn header(&self, started_unix_ns: u64, first_request: u64) -> Header {
        Header {
            started_unix_ns,
            first_request,
            device: self.device.clone(),
            vms: self.vms().cloned().collect(),
        }
    }

    fn add_vm(&mut self, vm: VmFacts) {
        for disk in &vm.disks {
            self.owners.insert(disk.number, vm.number);
        }
        self.removed.remove(&vm.number);
        self.vms.insert(vm.number, vm);
    }
}
