//! What survives a restart: VMs that were added for good, and promises to those of the
//! configuration that were changed for good.
//!
//! ```text
//!   start:  configuration --kept objectives win--> loops --+--> served
//!                                        kept VMs ---------+
//! ```
//!
//! A VM of the configuration whose disk is missing keeps the daemon from starting: whoever
//! wrote it there is told. One that is kept only misses itself, and `/healthz` says so.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use tidegate_core::learnt::Blob;

use super::Daemon;
use super::handle::DaemonHandle;
use crate::bounded;
use crate::command::ControlError;
use crate::command::{Command, DeviceLearnt};
use crate::config::{self, DiskConfig, VmConfig};
use crate::event_loop::Files;
use crate::health::Reason;
use crate::identity::Identity;
use crate::kept::{self, How, Said};
use crate::store::{Change, KnownDisk, Scope, Store, StoreError, VmRecord};

/// Puts the objectives that are kept in place of those of the configuration.
pub(super) fn overlay(store: &Store, vms: &mut [VmConfig]) {
    let records = match store.vms() {
        Ok(records) => records,
        Err(error) => return tracing::error!("what is kept cannot be read: {error}"),
    };
    for Said { vm, how, what } in kept::overlay(&records, vms) {
        match how {
            How::Well => tracing::info!(vm, "{what}"),
            How::PassedOver => tracing::warn!(vm, "{what}"),
            How::Lost => tracing::error!(vm, "{what}"),
        }
    }
}

/// Loads the paths of all disks that the store knows into `files`, so that none of them is created
/// anew.
pub(super) fn know_disks(store: &Store, files: &Files) {
    match store.disks() {
        Ok(disks) => files.set_known(disks.into_iter().map(|disk| disk.path.into())),
        Err(error) => tracing::error!("which disks were served before cannot be read: {error}"),
    }
}

/// Stores durably that the disks of these VMs are served, so that one whose file is lost is not
/// replaced by an empty one. A failure is logged, and the disks are served all the same.
pub(super) fn note_disks(store: &Store, files: &Files, vms: &[VmConfig]) {
    let disks = vms
        .iter()
        .flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
    let disks = disks.filter_map(|(vm, disk)| KnownDisk::of(&vm.name, disk));
    let disks: Vec<KnownDisk> = disks.collect();
    let changes: Vec<Change<'_>> = disks.iter().map(Change::PutDisk).collect();
    match store.apply(&changes) {
        Ok(0) => {}
        Ok(_) => know_disks(store, files),
        Err(error) => {
            tracing::error!(
                "should a disk's file be lost, a new one may be made in its place: {error}"
            );
        }
    }
}

impl Daemon {
    /// Serves the VMs that are kept, beside those of the configuration, has the policies go on with what
    /// they had learnt, and the VMs with their jobs. A VM that cannot be served keeps no other from being: that is
    /// logged, and a problem of `/healthz`. To be called before anybody is served.
    pub async fn restore(&self) {
        self.handle.restore().await;
    }
}

impl DaemonHandle {
    async fn restore(&self) {
        let Some(store) = self.store().cloned() else {
            return;
        };
        let records = spawn_blocking(move || store.vms()).await;
        // That they cannot be read was said when objectives were.
        let Ok(Ok(records)) = records else { return };
        let devices = self.device_configs();
        let is_configured = |name: &str| self.is_configured(name);
        for (name, vm) in kept::whole(&records, is_configured, &devices, self.base()) {
            let served = match vm {
                Ok(vm) => self.serve_again(vm).await.map_err(|e| e.to_string()),
                Err(why) => Err(why),
            };
            match served {
                Ok(()) => tracing::info!(vm = name, "{}", kept::SERVED_AGAIN),
                Err(why) => {
                    tracing::error!(vm = name, "{}", kept::cannot_be_served(&why));
                    self.not_served().insert(name.to_owned(), why);
                }
            }
        }
        // Once all VMs are there: one that comes afterwards may void it.
        for device in 0..devices.len() {
            self.go_on_with_vms(device).await;
            self.go_on_with_device(device).await;
            self.go_on_with_jobs(device).await;
        }
    }

    /// Has the policy of a device go on with what it had learnt of its VMs. What does not fit them
    /// any more is left; without any of it the device is served all the same.
    async fn go_on_with_vms(&self, device: usize) {
        let Ok(now) = self.snapshot(device).await else {
            return;
        };
        let moved = self.has_moved(device, now.policy.name()).await;
        let read = move |store: &Store| {
            let mut learnt = Vec::new();
            for vm in now.vms {
                let state = store.learnt(&now.name, now.policy.name(), &vm.name)?;
                learnt.extend(state.map(|state| (vm.name, Blob::from_bytes(state))));
            }
            Ok(learnt)
        };
        let import = |learnt| Command::ImportLearnt { learnt, moved };
        self.go_on(device, read, import).await;
    }

    /// Whether the disks of a device lie elsewhere than where a policy has learnt of its VMs; where nothing
    /// tells, they do not.
    async fn has_moved(&self, device: usize, policy: &str) -> bool {
        let Some(store) = self.store().cloned() else {
            return false;
        };
        let (name, part) = (self.devices()[device].name().to_owned(), learnt_by(policy));
        let lies_on = self.lies_on(device);
        let moved = spawn_blocking(move || {
            let Ok(Some((of, _))) = store.device(&name, &part) else {
                return false;
            };
            let is = lies_on.identity();
            let moved = is.is_known() && !Identity::from_text(&of).is(&is);
            if moved {
                let is = is.to_text();
                tracing::warn!(
                    device = name,
                    was = of,
                    is,
                    "what was learnt of its VMs is of another device: what belongs to that is found \
                     out anew"
                );
            }
            moved
        });
        // One that panicked has said so.
        moved.await.unwrap_or(false)
    }

    /// Has a device's engine go on with what was learnt of the device, if that is still the same.
    async fn go_on_with_device(&self, device: usize) {
        let name = self.devices()[device].name().to_owned();
        let lies_on = self.lies_on(device);
        let read = move |store: &Store| {
            let mut kept = Vec::new();
            for part in DeviceLearnt::ALL {
                let Some((of, state)) = store.device(&name, part.name())? else {
                    continue;
                };
                let (was, is) = (Identity::from_text(&of), lies_on.identity());
                if was.is(&is) {
                    kept.push((part, Blob::from_bytes(state)));
                } else {
                    let (part, is) = (part.name(), is.to_text());
                    tracing::warn!(
                        device = name,
                        part,
                        was = of,
                        is,
                        "what was learnt is of another device, and not taken over"
                    );
                }
            }
            Ok(kept)
        };
        self.go_on(device, read, Command::ImportDevice).await;
    }

    /// Has a device's loop go on with what is kept, where anything is.
    async fn go_on<T: Send + 'static>(
        &self,
        device: usize,
        read: impl FnOnce(&Store) -> Result<Vec<T>, StoreError> + Send + 'static,
        go_on: impl FnOnce(Vec<T>) -> Command,
    ) {
        let Some(store) = self.store().cloned() else {
            return;
        };
        match spawn_blocking(move || read(&store)).await {
            Ok(Ok(kept)) if kept.is_empty() => {}
            Ok(Ok(kept)) => {
                // A loop that has ended needs none of it.
                let _ = self.send(device, go_on(kept));
            }
            Ok(Err(error)) => {
                let device = self.devices()[device].name();
                tracing::warn!(%device, "what was learnt there is not taken over: {error}");
            }
            // It has said so.
            Err(_) => {}
        }
    }

    /// Serves a VM that was served before.
    async fn serve_again(&self, vm: VmConfig) -> Result<(), ControlError> {
        let was = vm.clone();
        let there = move || kept::as_served_again(&was);
        let there = bounded::call_async(self.shared.open_within, there).await;
        let mut there = there.map_err(|error| ControlError::GaveUp {
            what: format!("VM {:?}: looking at its disks: {error}", vm.name),
        })?;
        there.put_in_force(Timestamp::now());
        let now = self.add_vm(there).await?;
        self.change_vm(&vm.name, |served| {
            for (served, disk) in served.disks.iter_mut().zip(&vm.disks) {
                served.create = disk.create;
                if disk.size.is_some() {
                    // It is kept again some day, and what is to be made needs a size.
                    let is = now.disks.iter().find(|now| now.export == disk.export);
                    served.size = is.map(|is| is.size);
                }
            }
        });
        Ok(())
    }

    /// Keeps a VM as it is now: all of it, or the objective of one that the configuration names.
    /// Durable when it returns.
    ///
    /// # Errors
    /// When there is no store, no such VM, or the store cannot be written.
    pub async fn keep(&self, name: &str) -> Result<(), ControlError> {
        let store = self.store().cloned().ok_or(ControlError::NoStore)?;
        let vm = self
            .vm(name)
            .ok_or_else(|| ControlError::UnknownVm(name.to_owned()))?;
        let record = match self.shared.configured.contains(name) {
            true => {
                let words = config::words(&vm.promised());
                VmRecord::new(name, Scope::Objective, &words)
            }
            false => {
                let device = self.devices()[vm.device].name();
                let words = config::vm::to_json(&whole_paths(vm), device);
                VmRecord::new(name, Scope::Whole, &words)
            }
        };
        store_it(store, name, move |store| store.put_vm(&record)).await
    }

    /// Forgets what is kept of a VM, with its job and what was learnt of it. Whether there was anything.
    /// Durable when it returns.
    ///
    /// # Errors
    /// When there is no store, the configuration names the VM, or the store cannot be written.
    pub async fn forget(&self, name: &str) -> Result<bool, ControlError> {
        let store = self.store().cloned().ok_or(ControlError::NoStore)?;
        self.may_forget(name)?;
        let vm = name.to_owned();
        let forgotten = store_it(store, name, move |store| {
            store.apply(&[
                Change::RemoveVm(&vm),
                Change::ForgetLearnt { vm: &vm },
                Change::ForgetJob { vm: &vm },
            ])
        });
        let forgotten = forgotten.await? > 0;
        self.not_served().remove(name);
        Ok(forgotten)
    }

    /// Stores that the disks of a VM are served, if there is a store. A failure is logged.
    pub(super) async fn note_disks_of(&self, vm: &str) {
        let (Some(store), Some(vm)) = (self.store().cloned(), self.vm(vm)) else {
            return;
        };
        let files = self.files();
        // A panic is logged by the panic hook.
        let _ = spawn_blocking(move || note_disks(&store, &files, &[vm])).await;
    }

    /// Makes the store forget disks that were removed, so that they can be created anew. Disks of a
    /// VM in the configuration stay known, because the next start serves them again.
    pub(super) async fn forget_disks_of(&self, vm: &str, exports: Vec<String>) {
        let Some(store) = self.store().cloned() else {
            return;
        };
        if self.is_configured(vm) {
            return;
        }
        let files = self.files();
        let forget = move || {
            let names = exports
                .iter()
                .map(|export| Change::ForgetDisk { name: export });
            match store.apply(&names.collect::<Vec<_>>()) {
                Ok(_) => know_disks(&store, &files),
                Err(error) => tracing::warn!("disks that were removed are still known: {error}"),
            }
        };
        let _ = spawn_blocking(forget).await;
    }

    /// Forgets a disk that was served before, by its export name or its absolute path, so that a
    /// new one may be created there. Durable on return. Returns false if the store does not know
    /// the disk.
    ///
    /// # Errors
    /// If the disk is being served, there is no store, or the store cannot be written.
    pub async fn forget_disk(&self, name: &str) -> Result<bool, ControlError> {
        let store = self.store().cloned().ok_or(ControlError::NoStore)?;
        let is = |disk: &DiskConfig| {
            let known = KnownDisk::of("", disk);
            disk.export == name || known.is_some_and(|known| known.path == name)
        };
        if self.all_vms().iter().any(|vm| vm.disks.iter().any(is)) {
            return Err(ControlError::Disk {
                what: format!("disk {name:?} is served"),
                help: Some("remove it, or its VM, first".to_owned()),
            });
        }
        let (asked, files) = (name.to_owned(), self.files());
        let done = spawn_blocking(move || {
            let forgotten = store.forget_disk(&asked)?;
            know_disks(&store, &files);
            Ok::<_, StoreError>(forgotten)
        });
        let failed = |why: &str, help| ControlError::Store {
            what: format!("disk {name:?} cannot be forgotten: {why}"),
            help,
        };
        match done.await {
            Ok(done) => done.map_err(|error| failed(&error.to_string(), error.help())),
            Err(_) => Err(failed("it panicked", None)),
        }
    }

    /// Whether what is kept of a VM names this disk.
    ///
    /// # Errors
    /// When there is no store, or it cannot be read.
    pub async fn keeps_disk(&self, vm: &str, export: &str) -> Result<bool, ControlError> {
        let store = self.store().cloned().ok_or(ControlError::NoStore)?;
        let name = vm.to_owned();
        let record = store_it(store, vm, move |store| store.vm(&name)).await?;
        // What has no words of a VM names no disk of it either.
        let words = record.and_then(|record| record.words().ok());
        let disks = words.as_ref().and_then(|words| words["disk"].as_array());
        Ok(disks.is_some_and(|disks| disks.iter().any(|disk| disk["export"] == export)))
    }

    /// Whether what is kept of a VM may be forgotten.
    ///
    /// # Errors
    /// When there is no store, or the configuration names the VM and would bring it back.
    pub fn may_forget(&self, name: &str) -> Result<(), ControlError> {
        if self.store().is_none() {
            return Err(ControlError::NoStore);
        }
        match self.shared.configured.contains(name) {
            true => Err(ControlError::Configured(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Whether a VM is in the configuration.
    pub fn is_configured(&self, name: &str) -> bool {
        self.shared.configured.contains(name)
    }

    /// Returns a reason for each persisted VM that is not served.
    pub fn problems(&self) -> Vec<Reason> {
        let not_served = self.not_served();
        let served = |name: &String| self.vm(name).is_some();
        (not_served.iter().filter(|(name, _)| !served(name)))
            .map(|(name, why)| Reason::not_served(name, why))
            .collect()
    }

    fn not_served(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        (self.shared.not_served.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

/// With paths that mean the same wherever the daemon is started.
fn whole_paths(mut vm: VmConfig) -> VmConfig {
    for path in vm.disks.iter_mut().filter_map(|disk| disk.path.as_mut()) {
        if let Ok(whole) = std::path::absolute(&*path) {
            *path = whole;
        }
    }
    vm
}

async fn store_it<T: Send + 'static>(
    store: Arc<Store>,
    vm: &str,
    act: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ControlError> {
    let done = spawn_blocking(move || act(&store)).await;
    let failed = |why: &str, help| ControlError::Store {
        what: format!("VM {vm:?} cannot be kept: {why}"),
        help,
    };
    match done {
        Ok(done) => done.map_err(|error| failed(&error.to_string(), error.help())),
        Err(_) => Err(failed("it panicked", None)),
    }
}

/// What it is kept under on which disks a policy has learnt of VMs.
pub(super) fn learnt_by(policy: &str) -> String {
    format!("learnt by {policy}")
}
