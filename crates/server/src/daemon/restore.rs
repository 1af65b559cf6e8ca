//! Restoring of VMs, learnt states, attainment (how well each promise was kept,
//! [`attainment_record`](crate::attainment_record)) and deadline transfers when the daemon starts.
//!
//! ```text
//!   VMs of the configuration --objectives in the store--> start of the loops --+--> served
//!                                           VMs in the store alone ------------+
//! ```
//!
//! A VM of the configuration file whose disk is missing fails the start, so that its author
//! notices. A VM in the store alone whose disk is missing is not served; `/healthz` reports it.

use jiff::Timestamp;
use tidegate_core::learnt_state::Blob;
use tokio::task::spawn_blocking;

use super::changes::Changes;
use super::persistence::learnt_identity_key;
use super::served_vms::ServedVms;
use super::shared::Shared;
use crate::attainment_record::{self, Records};
use crate::blocking_call;
use crate::command::{Command, ControlError, LearntDeviceState};
use crate::config::VmConfig;
use crate::persisted_vms;
use crate::storage_identity::Identity;
use crate::store::{Store, StoreError};

/// Restoring of a daemon's state from its store, before clients are accepted.
#[derive(Clone, Copy)]
pub(super) struct Restore<'a> {
    shared: &'a Shared,
}

impl<'a> Restore<'a> {
    pub(super) fn new(shared: &'a Shared) -> Restore<'a> {
        Restore { shared }
    }

    /// Serves the VMs in the store beside those of the configuration, and passes learnt states,
    /// attainment and deadline transfers to the event loops. A VM that cannot be served is logged,
    /// and reported by `/healthz`.
    ///
    /// In a takeover the VMs are served as the other daemon has them, and that daemon passes the
    /// states.
    pub(super) async fn run(self, taken: Option<&ServedVms>) {
        let Shared {
            devices,
            vms,
            persistence,
            paths,
            ..
        } = self.shared;
        let Some(store) = persistence.store().cloned() else {
            return;
        };
        let records = spawn_blocking(move || store.vms()).await;
        // An error of reading the records was logged when the objectives were merged.
        let Ok(Ok(records)) = records else { return };
        let configs = devices.configs();
        let is_configured = |name: &str| vms.is_configured(name);
        for (name, vm) in persisted_vms::restorable_vms(&records, is_configured, &configs, paths) {
            let now = vm.and_then(|vm| match taken {
                Some(taken) => taken.as_served(vm, &configs, paths),
                None => Ok(Some(vm)),
            });
            let served = match now {
                Ok(None) => {
                    let what = "removed without --persist: a restart serves it again";
                    tracing::info!(vm = name, "{what}");
                    continue;
                }
                Ok(Some(vm)) => {
                    let report = persisted_vms::restored(&vm);
                    let served = self.serve_stored_vm(vm).await;
                    served.map(|()| report).map_err(|e| e.to_string())
                }
                Err(why) => Err(why),
            };
            match served {
                Ok(report) => tracing::info!(vm = name, "{report}"),
                Err(why) => {
                    tracing::error!(vm = name, "{}", persisted_vms::restore_failure(&why));
                    persistence.set_not_served(name, why);
                }
            }
        }
        if taken.is_some() {
            return;
        }
        // Only now that all VMs are there, because a VM that is added later may void learnt state.
        for device in 0..configs.len() {
            self.import_vm_states(device).await;
            self.import_device_states(device).await;
            self.import_attainment(device).await;
            let transfers = &self.shared.transfers;
            transfers.restore(devices, persistence, device).await;
        }
    }

    /// Passes learnt states of VMs to the policy of a device, which drops those that no longer fit.
    /// A failure is logged; the device is served all the same.
    async fn import_vm_states(self, device: usize) {
        // Fails only if the loop has ended, which `run` reports.
        let Ok(now) = self.shared.devices.snapshot(device).await else {
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
        self.send_stored(device, read, import).await;
    }

    /// Returns true if the disks of a device are on other storage than when the policy learnt of
    /// its VMs; false if that is not known.
    async fn has_moved(self, device: usize, policy: &str) -> bool {
        let Some(store) = self.shared.persistence.store().cloned() else {
            return false;
        };
        let name = self.shared.devices.name(device).to_owned();
        let part = learnt_identity_key(policy);
        let identity_source = self.shared.identity_source(device);
        let moved = spawn_blocking(move || {
            let Ok(Some((stored_identity, _))) = store.device(&name, &part) else {
                return false;
            };
            let current = identity_source.identity();
            // An unknown storage counts as unmoved: state that no longer fits is dropped by the
            // policy.
            let stored = Identity::from_text(&stored_identity);
            let moved = current.is_known() && !stored.overlaps(&current);
            if moved {
                tracing::warn!(
                    device = name,
                    stored_identity,
                    current_identity = current.to_text(),
                    "its disks are on other storage than when the policy learnt: discarding \
                     state that depends on the storage"
                );
            }
            moved
        });
        // The panic hook has logged a panic.
        moved.await.unwrap_or(false)
    }

    /// Passes learnt states of a device to its engine, if the device is still on the same storage.
    async fn import_device_states(self, device: usize) {
        let name = self.shared.devices.name(device).to_owned();
        let identity_source = self.shared.identity_source(device);
        let read = move |store: &Store| {
            let mut states = Vec::new();
            for part in LearntDeviceState::ALL {
                let Some((stored_identity, state)) = store.device(&name, part.name())? else {
                    continue;
                };
                let stored = Identity::from_text(&stored_identity);
                let current = identity_source.identity();
                if stored.overlaps(&current) {
                    states.push((part, Blob::from_bytes(state)));
                } else {
                    tracing::warn!(
                        device = name,
                        part = part.name(),
                        stored_identity,
                        current_identity = current.to_text(),
                        "learnt state is of another device and not restored"
                    );
                }
            }
            Ok(states)
        };
        self.send_stored(device, read, Command::ImportDevice).await;
    }

    /// Passes the recorded attainment of a device's VMs to its engine.
    async fn import_attainment(self, device: usize) {
        let name = self.shared.devices.name(device).to_owned();
        // A list of one record at most, as `send_stored` takes it.
        let read = move |store: &Store| {
            let Some((_, state)) = store.device(&name, attainment_record::STORED_AS)? else {
                return Ok(Vec::new());
            };
            Ok(
                match attainment_record::from_bytes(&state, Timestamp::now()) {
                    Ok(record) => vec![record],
                    Err(error) => {
                        tracing::warn!(device = name, "attainment is not restored: {error}");
                        Vec::new()
                    }
                },
            )
        };
        let import = |mut record: Vec<(Records, u32)>| {
            let (records, ago) = record.pop().unwrap_or_default();
            Command::ImportAttainment { records, ago }
        };
        self.send_stored(device, read, import).await;
    }

    /// Reads records with `read` on a blocking thread, and sends them to a device's event loop as
    /// the command that `command` returns, unless there are none.
    async fn send_stored<T: Send + 'static>(
        self,
        device: usize,
        read: impl FnOnce(&Store) -> Result<Vec<T>, StoreError> + Send + 'static,
        command: impl FnOnce(Vec<T>) -> Command,
    ) {
        let Some(store) = self.shared.persistence.store().cloned() else {
            return;
        };
        match spawn_blocking(move || read(&store)).await {
            Ok(Ok(stored)) if stored.is_empty() => {}
            Ok(Ok(stored)) => {
                // Sending fails only if the loop has ended, which needs no state then.
                let _ = self.shared.devices.send(device, command(stored));
            }
            Ok(Err(error)) => {
                let device = self.shared.devices.name(device);
                tracing::warn!(%device, "learnt state is not restored: {error}");
            }
            // The panic hook has logged a panic.
            Err(_) => {}
        }
    }

    /// Serves a VM from the store.
    async fn serve_stored_vm(self, vm: VmConfig) -> Result<(), ControlError> {
        let stored = vm.clone();
        let check_files = move || persisted_vms::restored_with_existing_files(&stored);
        let open_within = self.shared.disks.open_within();
        let vm_with_files = blocking_call::call_async(open_within, check_files).await;
        let mut vm_with_files = vm_with_files.map_err(|error| ControlError::GaveUp {
            what: format!("VM {:?}: checking its disks: {error}", vm.name),
        })?;
        vm_with_files.put_in_force(Timestamp::now());
        let now = Changes::new(self.shared).add_vm(vm_with_files).await?;
        self.shared.vms.change(&vm.name, |served| {
            for (served, disk) in served.disks.iter_mut().zip(&vm.disks) {
                // The stored configuration is kept, so that a later `--persist` does not lose
                // `create`.
                served.create = disk.create;
                if disk.size.is_some() {
                    // A later record needs a size to create the file from, which opening has
                    // determined.
                    let opened = now.disks.iter().find(|now| now.export == disk.export);
                    served.size = opened.map(|opened| opened.size);
                }
            }
        });
        Ok(())
    }
}
