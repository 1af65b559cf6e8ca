//! VMs that a daemon serves now.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::objective::Objective;

use crate::command::ControlError;
use crate::config::{DiskConfig, Schedule, VmConfig};
use crate::persisted_vms::refuse_taken_exports;

/// Configurations of the VMs that are served now, in the order in which they were added.
#[derive(Debug)]
pub struct VmDirectory {
    /// Held only for one complete change, never while waiting for I/O.
    vms: Mutex<Vec<VmConfig>>,
    /// VMs of the configuration file in force, served or not, as the file has them. The lock is
    /// held as briefly.
    in_file: Mutex<Vec<VmConfig>>,
}

impl VmDirectory {
    /// Creates the directory with the VMs that are served, and those of the configuration file as
    /// the file has them.
    pub(super) fn new(served: Vec<VmConfig>, in_file: Vec<VmConfig>) -> VmDirectory {
        let names: BTreeSet<&str> = served.iter().map(|vm| vm.name.as_str()).collect();
        // Every lookup is by name and would find the first one only.
        assert_eq!(names.len(), served.len(), "two VMs have one name");
        VmDirectory {
            vms: Mutex::new(served),
            in_file: Mutex::new(in_file),
        }
    }

    /// Returns a VM, if it is served.
    pub fn get(&self, name: &str) -> Option<VmConfig> {
        self.lock().iter().find(|vm| vm.name == name).cloned()
    }

    /// Returns a VM.
    ///
    /// # Errors
    /// If it is not served.
    pub fn find(&self, name: &str) -> Result<VmConfig, ControlError> {
        let vm = self.get(name);
        vm.ok_or_else(|| ControlError::UnknownVm(name.to_owned()))
    }

    /// Returns the number of the device that a VM is on.
    ///
    /// # Errors
    /// If the VM is not served.
    pub fn device_of(&self, name: &str) -> Result<usize, ControlError> {
        let device = (self.lock().iter().find(|vm| vm.name == name)).map(|vm| vm.device);
        device.ok_or_else(|| ControlError::UnknownVm(name.to_owned()))
    }

    /// Returns all VMs.
    pub fn configs(&self) -> Vec<VmConfig> {
        self.lock().clone()
    }

    /// Returns the number of VMs.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns the VMs that have a schedule.
    pub fn scheduled(&self) -> Vec<VmConfig> {
        self.matching(|vm| vm.schedule.is_some())
    }

    /// Returns the VMs of a device.
    pub fn on_device(&self, device: usize) -> Vec<VmConfig> {
        self.matching(|vm| vm.device == device)
    }

    /// Returns the names of the VMs of a device.
    pub fn names_on(&self, device: usize) -> Vec<String> {
        let vms = self.lock();
        let theirs = vms.iter().filter(|vm| vm.device == device);
        theirs.map(|vm| vm.name.clone()).collect()
    }

    /// Returns true if the configuration file names the VM, served or not.
    pub fn is_configured(&self, name: &str) -> bool {
        self.file().iter().any(|vm| vm.name == name)
    }

    /// Returns the VMs of the configuration file in force, served or not, as the file has them.
    pub(super) fn in_file(&self) -> Vec<VmConfig> {
        self.file().clone()
    }

    /// Returns a VM as the configuration file in force has it.
    pub(super) fn vm_in_file(&self, name: &str) -> Option<VmConfig> {
        self.file().iter().find(|vm| vm.name == name).cloned()
    }

    /// Replaces a VM of the configuration file in force, or adds one.
    pub(super) fn put_in_file(&self, vm: VmConfig) {
        let mut file = self.file();
        match file.iter_mut().find(|there| there.name == vm.name) {
            Some(there) => *there = vm,
            None => file.push(vm),
        }
    }

    /// Removes a VM from those of the configuration file in force, if it is there.
    pub(super) fn remove_from_file(&self, name: &str) {
        self.file().retain(|vm| vm.name != name);
    }

    /// Returns a disk as the configuration file has it, whatever was changed since; `None` if the
    /// file does not have it, or gives no size of it.
    pub fn sized_by_configuration(&self, vm: &str, export: &str) -> Option<DiskConfig> {
        let file = self.file();
        let mut disks = file.iter().find(|it| it.name == vm)?.disks.iter();
        let disk = disks.find(|disk| disk.export == export && disk.size.is_some());
        disk.cloned()
    }

    /// Checks that no disk has an export name that is served already.
    ///
    /// # Errors
    /// If one has; names the VM that serves it.
    pub(super) fn refuse_taken_exports(&self, disks: &[DiskConfig]) -> Result<(), ControlError> {
        refuse_taken_exports(&self.lock(), disks)
    }

    /// Adds a VM.
    ///
    /// # Panics
    /// If a VM of that name is served: the caller has checked that the name is free.
    pub(super) fn add(&self, vm: VmConfig) {
        let mut vms = self.lock();
        // All lookups are by name and would find the first one only.
        let is_free = vms.iter().all(|served| served.name != vm.name);
        assert!(is_free, "VM {:?} is served already", vm.name);
        vms.push(vm);
    }

    /// Removes a VM, if it is there.
    pub(super) fn remove(&self, name: &str) {
        self.lock().retain(|vm| vm.name != name);
    }

    /// Changes a VM, if it is there.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut VmConfig)) {
        if let Some(vm) = self.lock().iter_mut().find(|vm| vm.name == name) {
            change(vm);
        }
    }

    /// Sets the objective that is in force for a VM.
    pub(super) fn set_objective(&self, name: &str, objective: Objective) {
        self.change(name, |vm| vm.objective = objective);
    }

    /// Replaces the schedule of a VM. The objective in force stays.
    pub fn set_schedule(&self, name: &str, schedule: Option<Arc<Schedule>>) {
        self.change(name, |vm| vm.schedule = schedule);
    }

    fn matching(&self, are: impl Fn(&VmConfig) -> bool) -> Vec<VmConfig> {
        let vms = self.lock();
        vms.iter().filter(|vm| are(vm)).cloned().collect()
    }

    fn file(&self) -> MutexGuard<'_, Vec<VmConfig>> {
        // Each change leaves the list valid, even if a later one panicked.
        self.in_file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<VmConfig>> {
        // Each change leaves the list valid, even if a later one panicked.
        self.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::objective::Limit;

    use super::*;
    use crate::config::{Create, DiskFormat, by_the_clock, schedule};

    fn vm(name: &str, device: usize) -> VmConfig {
        VmConfig {
            name: name.to_owned(),
            device,
            background: false,
            objective: Objective::default(),
            schedule: None,
            max_connections: 64,
            disks: vec![DiskConfig {
                export: format!("{name}-disk"),
                path: None,
                within: None,
                size: Some(1 << 20),
                create: Create::No,
                format: DiskFormat::Probe,
                read_only: false,
                nbd: None,
                incoming: false,
                block_size: 512,
                limit: Limit::NONE,
                limit_group: None,
                faults: Vec::new(),
                place: None,
            }],
        }
    }

    /// Returns a directory that serves the VMs of its file.
    fn directory(vms: Vec<VmConfig>) -> VmDirectory {
        VmDirectory::new(vms.clone(), vms)
    }

    fn names(vms: &[VmConfig]) -> Vec<&str> {
        vms.iter().map(|vm| vm.name.as_str()).collect()
    }

    #[test]
    fn vms_are_found_by_name_and_device_in_the_order_in_which_they_came() {
        let directory = directory(vec![vm("b", 0), vm("a", 1)]);
        directory.add(vm("c", 0));
        assert_eq!(names(&directory.configs()), ["b", "a", "c"]);
        assert_eq!(names(&directory.on_device(0)), ["b", "c"]);
        assert_eq!(directory.names_on(0), ["b", "c"]);
        assert_eq!(directory.device_of("a"), Ok(1));
        let unknown = ControlError::UnknownVm("d".to_owned());
        assert_eq!(directory.device_of("d"), Err(unknown.clone()));
        assert_eq!(directory.find("d").err(), Some(unknown));
        assert!(directory.get("d").is_none());
    }

    #[test]
    fn a_vm_of_the_configuration_stays_one_when_it_is_removed() {
        let directory = directory(vec![vm("b", 0)]);
        directory.add(vm("c", 0));
        directory.remove("b");
        directory.remove("b");
        assert_eq!(names(&directory.configs()), ["c"]);
        assert!(directory.is_configured("b"));
        assert!(!directory.is_configured("c"));
    }

    #[test]
    fn an_export_that_somebody_has_is_refused_with_its_owner() {
        let directory = directory(vec![vm("b", 0)]);
        let taken = directory.refuse_taken_exports(&vm("b", 1).disks);
        let error = taken.expect_err("b has it").to_string();
        assert!(
            error.contains("\"b-disk\"") && error.contains("VM \"b\""),
            "{error}"
        );
        assert_eq!(directory.refuse_taken_exports(&vm("c", 1).disks), Ok(()));
    }

    #[test]
    fn a_schedule_and_an_objective_are_changed_for_one_vm() {
        let directory = directory(vec![vm("b", 0), vm("c", 0)]);
        let entry = serde_json::json!({ "schedule": [{ "from": "18:00", "weight": 7 }] });
        let promised = schedule::merge(&vm("b", 0).promised(), &entry).expect("good");
        directory.set_schedule("b", by_the_clock(promised));
        let objective = Objective {
            weight: 7,
            ..Objective::default()
        };
        directory.set_objective("c", objective);
        directory.set_objective("nobody", objective);
        assert_eq!(names(&directory.scheduled()), ["b"]);
        let weights: Vec<u32> = (directory.configs().iter())
            .map(|vm| vm.objective.weight)
            .collect();
        assert_eq!(weights, [Objective::DEFAULT_WEIGHT, 7]);
        directory.set_schedule("b", None);
        assert!(directory.scheduled().is_empty());
    }
}
