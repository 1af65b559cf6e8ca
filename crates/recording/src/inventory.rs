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

    /// Returns the changes by which the state of this inventory becomes that of a later header, of
    /// the device and of VMs with their disks; those before it may have been lost.
    pub fn changes_until(&self, header: &Header) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.device.policy != header.device.policy {
            let policy = header.device.policy.clone();
            changes.push(Change::Policy { policy });
        }
        if let Some(size_bytes) = header.device.size_bytes
            && self.device.size_bytes != Some(size_bytes)
        {
            changes.push(Change::DeviceResized { size_bytes });
        }
        let stays = |number: u32| header.vms.iter().any(|vm| vm.number == number);
        let removed = self.vms().map(|vm| vm.number).filter(|&vm| !stays(vm));
        changes.extend(removed.map(|vm| Change::VmRemoved { vm }));
        for vm in &header.vms {
            match self.vm(vm.number) {
                Some(known) if !self.removed.contains(&vm.number) => {
                    changes_of_vm(known, vm, &mut changes);
                }
                _ => changes.push(Change::VmAdded { vm: vm.clone() }),
            }
        }
        changes
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

/// Adds the changes by which a VM becomes a later state of it.
fn changes_of_vm(known: &VmFacts, later: &VmFacts, changes: &mut Vec<Change>) {
    let vm = later.number;
    if known.name != later.name {
        let name = later.name.clone();
        changes.push(Change::VmRenamed { vm, name });
    }
    if known.objective != later.objective {
        let objective = later.objective.clone();
        changes.push(Change::Objective { vm, objective });
    }
    let disk_of = |vm: &VmFacts, number: u32| {
        let disks = vm.disks.iter();
        disks.clone().find(|disk| disk.number == number).cloned()
    };
    let removed = (known.disks.iter()).filter(|disk| disk_of(later, disk.number).is_none());
    changes.extend(removed.map(|disk| Change::DiskRemoved { disk: disk.number }));
    for disk in &later.disks {
        match disk_of(known, disk.number) {
            None => {
                let disk = disk.clone();
                changes.push(Change::DiskAdded { vm, disk });
            }
            Some(old) if old.size_bytes != disk.size_bytes => {
                let (disk, size_bytes) = (disk.number, disk.size_bytes);
                changes.push(Change::DiskResized { disk, size_bytes });
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::DiskFacts;

    fn disk(number: u32, size_bytes: u64) -> DiskFacts {
        DiskFacts {
            number,
            name: format!("disk{number}"),
            size_bytes,
            at: 0,
        }
    }

    fn vm(number: u32, name: &str, disks: Vec<DiskFacts>) -> VmFacts {
        VmFacts {
            number,
            name: name.to_owned(),
            disks,
            ..VmFacts::default()
        }
    }

    #[test]
    fn changes_until_a_header_lead_to_its_state() {
        let before = Header {
            vms: vec![
                vm(0, "stays", vec![disk(0, 1)]),
                vm(1, "goes", vec![disk(1, 1)]),
                vm(2, "old", vec![disk(2, 1), disk(3, 1)]),
            ],
            ..Header::default()
        };
        let mut changed = vm(2, "new", vec![disk(3, 2), disk(4, 1)]);
        changed.objective.weight = before.vms[2].objective.weight + 1;
        let mut after = Header {
            vms: vec![
                vm(0, "stays", vec![disk(0, 1)]),
                changed,
                vm(3, "comes", vec![disk(5, 1)]),
            ],
            ..Header::default()
        };
        after.device.policy.name = "mclock".to_owned();
        after.device.size_bytes = Some(7);
        let mut inventory = Inventory::new(&before);
        assert_eq!(inventory.changes_until(&before), []);
        let changes = inventory.changes_until(&after);
        for change in &changes {
            inventory.apply(change);
        }
        assert_eq!(inventory.header(0, 0), after);
        // One each: policy, size, VM gone, name, objective, disk gone, disk resized, disk new, VM
        // new.
        assert_eq!(changes.len(), 9, "{changes:?}");
        assert_eq!(inventory.changes_until(&after), []);
    }
}
