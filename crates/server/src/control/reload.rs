//! SIGHUP: the configuration file is read and checked again, and what was changed in it is applied
//! as the routes of the API apply it.
//!
//! ```text
//!   SIGHUP --> read, check --errors--> logged, nothing changes
//!                  |
//!                  v  as one change of the API: alone, and no takeover meanwhile
//!              compare with the file in force --> policies, shared limits --> VMs removed
//!                  |                                  --> VMs edited and added --> file in force
//!                  +--> what needs a restart: logged
//! ```
//!
//! A part that is refused, for example because a client is connected or an objective does not fit,
//! is logged and stays out of the file in force, so that the next SIGHUP tries it again, and a
//! takeover finds it edited.

use std::path::Path;
use std::time::Duration;

use axum::http::StatusCode;
use tidegate_api::query::ChangeQuery;
use tokio::signal::unix::Signal;
use tokio::sync::oneshot;

use super::Api;
use super::access::refused_at_gate;
use super::error::{ApiError, ApiResult};
use super::plane::Inventory;
use crate::blocking_call;
use crate::command::CommandError;
use crate::config::{self, Config, ConfigErrors, VmConfig};
use crate::daemon::{
    ConfigFile, ControlError, DaemonHandle, DiskLimits, FileChanges, NeedsRestart, VmChanges,
    as_in_force,
};
use crate::persisted_vms::{self, RecordOutcome};
use crate::service_manager::Reloading;
use crate::store::{Scope, VmRecord};

/// Time for the file, and for models and profiles that it names, to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a SIGHUP is handled that came while nothing could be changed.
const RETRY_AFTER_BUSY: Duration = Duration::from_secs(1);

/// Change as the routes make it without parameters: neither forced nor persisted.
const PLAIN: ChangeQuery = ChangeQuery {
    force: false,
    persist: false,
};

/// Numbers of parts of the file, by outcome.
#[derive(Debug, Default)]
struct Tally {
    added: usize,
    changed: usize,
    removed: usize,
    /// Policies and shared limits.
    of_devices: usize,
    refused: usize,
    /// Keys that need a restart.
    restart: usize,
}

impl Tally {
    fn needs_restart(&mut self, keys: &[NeedsRestart]) {
        for key in keys {
            tracing::warn!(
                "SIGHUP: {key}: takes effect with a restart or `tidegate serve --takeover`"
            );
        }
        self.restart += keys.len();
    }

    fn refused(&mut self, what: &str, error: &ApiError) {
        let problem = &error.body.error;
        let help = problem.allowed.as_deref();
        tracing::error!(help, "SIGHUP: {what} stays as it was: {}", problem.what);
        self.refused += 1;
    }
}

/// Reads the configuration file again, and changes the daemon by way of its API.
#[derive(Clone)]
pub(super) struct Reload {
    api: Api<DaemonHandle>,
}

impl Reload {
    pub(super) fn new(api: Api<DaemonHandle>) -> Reload {
        Reload { api }
    }

    /// Reads the configuration file again on each SIGHUP, until the future is dropped. Signals that
    /// come while one is handled count as one that comes after it.
    pub(super) async fn follow_hangups(self, mut hangups: Signal) {
        let Some(file) = ConfigFile::of(&self.api.plane).path().cloned() else {
            return;
        };
        while hangups.recv().await.is_some() {
            let mut is_told = false;
            while let Err(busy) = self.reload(&file).await {
                if !is_told {
                    let why = busy.body.error.what;
                    tracing::warn!(
                        "SIGHUP: the configuration is read once that is over: {why}; if a new \
                         daemon serves then, send it SIGHUP"
                    );
                }
                is_told = true;
                tokio::time::sleep(RETRY_AFTER_BUSY).await;
            }
        }
    }

    /// Reads the file and applies what was changed in it.
    ///
    /// # Errors
    /// 503 if nothing can be changed now; nothing was.
    async fn reload(&self, file: &Path) -> ApiResult<()> {
        if self.api.plane.change_gate().is_closed() {
            return Err(refused_at_gate("SIGHUP"));
        }
        let _reloading = Reloading::begin();
        let Some(config) = read(file).await else {
            return Ok(());
        };
        let own = self.clone();
        let (done, applied) = oneshot::channel();
        let change = self.api.change("SIGHUP", async move {
            own.apply_file(&config).await;
            let _ = done.send(());
            Ok(())
        });
        let made = change.await;
        // A change that is late goes on; the next SIGHUP waits for it.
        match (applied.await, made) {
            (Err(_), Err(error)) if error.status == StatusCode::SERVICE_UNAVAILABLE => Err(error),
            // A panic was logged by the panic hook.
            _ => Ok(()),
        }
    }

    /// Applies what a file has otherwise than the file in force, and logs the outcome.
    async fn apply_file(&self, config: &Config) {
        let file = ConfigFile::of(&self.api.plane);
        let changes = FileChanges::new(&file.in_force(), config);
        let mut tally = Tally::default();
        tally.needs_restart(&changes.restart);
        if !changes.is_empty() {
            let records = match file.records().await {
                Ok(records) => records,
                Err(why) => {
                    tracing::error!("SIGHUP: nothing was changed: the store cannot be read: {why}");
                    return;
                }
            };
            self.apply_to_devices(&changes, &mut tally).await;
            for name in &changes.removed {
                self.remove_as_in_file(name, &records, &mut tally).await;
            }
            self.put_all(&changes.vms, &records, &mut tally).await;
        }
        let Tally {
            added,
            changed,
            removed,
            of_devices,
            refused,
            restart,
        } = tally;
        tracing::info!(
            added,
            changed,
            removed,
            of_devices,
            refused,
            restart,
            "SIGHUP: the configuration was read again"
        );
    }

    /// Puts policies and shared limits in force.
    async fn apply_to_devices(&self, changes: &FileChanges, tally: &mut Tally) {
        let file = ConfigFile::of(&self.api.plane);
        let name = |device: usize| self.api.plane.devices().name(device).to_owned();
        for (device, policy) in &changes.policies {
            let what = format!("[[device]] {}: policy", name(*device));
            match self.api.plane.set_policy(*device, policy.clone()).await {
                Ok(_) => {
                    file.put_policy(*device, policy.clone());
                    tracing::info!("SIGHUP: {what} changed");
                    tally.of_devices += 1;
                }
                Err(error) => tally.refused(&what, &ApiError::control(&error, "policy")),
            }
        }
        for (device, group) in &changes.groups {
            let what = format!("[[device]] {}: limit_group {}", name(*device), group.name);
            let limits = DiskLimits::of(&self.api.plane);
            match limits.set_group(*device, &group.name, group.limit).await {
                Ok(_) => {
                    file.put_group(*device, group);
                    tracing::info!("SIGHUP: {what} changed");
                    tally.of_devices += 1;
                }
                Err(error) => tally.refused(&what, &ApiError::control(&error, &group.name)),
            }
        }
    }

    /// Removes a VM that the file has no more, unless it has clients, or the store has it as well.
    async fn remove_as_in_file(&self, vm: &str, records: &[VmRecord], tally: &mut Tally) {
        let file = ConfigFile::of(&self.api.plane);
        let is_stored = (records.iter()).any(|it| it.name == vm && it.scope == Scope::Whole);
        if self.api.plane.vm(vm).is_some() && !is_stored {
            match self.api.plane.remove_vm(vm, false).await {
                Ok(not_flushed) => {
                    for what in not_flushed {
                        tracing::warn!(vm, "a disk was not flushed: {what}");
                    }
                    tracing::info!(vm, "SIGHUP: VM removed");
                    tally.removed += 1;
                }
                Err(error) => {
                    let what = format!("VM {vm:?}, which the file has no more,");
                    return tally.refused(&what, &ApiError::control(&error, vm));
                }
            }
        } else if is_stored {
            tracing::info!(
                vm,
                "SIGHUP: the file has the VM no more; it is served by the store"
            );
        }
        file.remove_vm(vm);
    }

    /// Makes VMs what the file says, those that are refused again while others make room for them.
    async fn put_all(&self, vms: &[VmConfig], records: &[VmRecord], tally: &mut Tally) {
        let mut left: Vec<VmConfig> = vms.to_vec();
        // Those of other VMs were reported when the daemon started.
        for report in persisted_vms::overlay(&of_vms(records, vms), &mut left) {
            let (vm, what) = (report.vm, report.what);
            match report.outcome {
                RecordOutcome::Applied => tracing::info!(vm, "SIGHUP: {what}"),
                RecordOutcome::Ignored => tracing::warn!(vm, "SIGHUP: {what}"),
                RecordOutcome::Failed => tracing::error!(vm, "SIGHUP: {what}"),
            }
        }
        let mut left: Vec<(&VmConfig, VmConfig)> = vms.iter().zip(left).collect();
        loop {
            let before = left.len();
            let mut refused = Vec::new();
            for (in_file, wanted) in left {
                if let Err(error) = self.put_as_in_file(in_file, &wanted, tally).await {
                    refused.push((in_file, wanted, error));
                }
            }
            if refused.len() == before || refused.is_empty() {
                for (vm, _, error) in refused {
                    tally.refused(&format!("VM {:?}", vm.name), &error);
                }
                return;
            }
            left = refused
                .into_iter()
                .map(|(vm, wanted, _)| (vm, wanted))
                .collect();
        }
    }

    /// Makes a VM what the file says, and the file in force what the VM is then. `wanted` is the VM
    /// of the file with the objective of the store, if it has one.
    ///
    /// # Errors
    /// As for the routes of the API. Parts of the VM may have changed.
    async fn put_as_in_file(
        &self,
        in_file: &VmConfig,
        wanted: &VmConfig,
        tally: &mut Tally,
    ) -> ApiResult<()> {
        let vm = wanted.name.as_str();
        let is_new = self.api.plane.vm(vm).is_none();
        let put = if is_new {
            self.api
                .put_vm(wanted.clone(), PLAIN)
                .await
                .map(|_| VmChanges::default())
        } else {
            self.change_as_in_file(wanted).await
        };
        let file = ConfigFile::of(&self.api.plane);
        if let Some(served) = self.api.plane.vm(vm) {
            let before = file.vm(vm);
            file.put_vm(as_in_force(before.as_ref(), (in_file, wanted), &served));
        }
        let changes = put?;
        tally.needs_restart(&changes.restart);
        let parts = changes.applied();
        if is_new {
            tracing::info!(vm, "SIGHUP: VM added");
            tally.added += 1;
        } else if !parts.is_empty() {
            tracing::info!(vm, "SIGHUP: VM changed: {}", parts.join(", "));
            tally.changed += 1;
        }
        Ok(())
    }

    /// Changes a VM that is served to what the file says, as far as a daemon that runs can. Returns
    /// the differences.
    async fn change_as_in_file(&self, wanted: &VmConfig) -> ApiResult<VmChanges> {
        let vm = wanted.name.as_str();
        let (served, now) = self.api.existing_vm(vm).await?;
        let mut changes = VmChanges::new(&served, wanted);
        if changes.background {
            if now.transfers.running.is_none() && self.serve_anew(&served, wanted).await? {
                changes.restart.clear();
                return Ok(changes);
            }
            changes.background = false;
            changes.needs_restart(
                vm,
                "background changed, while it has a client or a transfer",
            );
        }
        if changes.objective || changes.max_connections {
            let mut promised = served.clone();
            promised.promise(wanted.promised());
            promised.max_connections = wanted.max_connections;
            self.api.put_vm(promised, PLAIN).await?;
        }
        let refused = |error| ApiError::control(&error, vm);
        for disk in &changes.limits {
            let limits = DiskLimits::of(&self.api.plane);
            let set = limits.set_disk([vm, &disk.export], disk.limit, disk.limit_group.clone());
            set.await.map_err(refused)?;
        }
        // The last disk of a VM cannot be removed, and a file that is served not be opened again.
        let replaces_all = changes.removed.len() == served.disks.len();
        if replaces_all {
            self.add_disks(vm, &changes).await?;
        }
        for export in &changes.removed {
            let removed = self.api.plane.remove_disk(vm, export, false).await;
            for what in removed.map_err(refused)? {
                tracing::warn!(vm, "a disk was not flushed: {what}");
            }
        }
        if !replaces_all {
            self.add_disks(vm, &changes).await?;
        }
        Ok(changes)
    }

    /// Removes a VM and adds it as the file has it, because it cannot become a process of the host,
    /// or cease to be one, while it is served. Returns false if a client is connected.
    ///
    /// # Errors
    /// If it cannot be added. It is served as before then, unless that fails, too.
    async fn serve_anew(&self, served: &VmConfig, wanted: &VmConfig) -> ApiResult<bool> {
        let vm = wanted.name.as_str();
        match self.api.plane.remove_vm(vm, false).await {
            Ok(_) => {}
            Err(ControlError::Refused(CommandError::InUse(_))) => return Ok(false),
            Err(error) => return Err(ApiError::control(&error, vm)),
        }
        let put = self.api.put_vm(wanted.clone(), PLAIN).await;
        if put.is_err()
            && let Err(error) = self.api.plane.add_vm(served.clone()).await
        {
            tracing::error!(vm, "SIGHUP: the VM cannot be served as before: {error}");
        }
        put.map(|_| true)
    }

    async fn add_disks(&self, vm: &str, changes: &VmChanges) -> ApiResult<()> {
        for disk in &changes.added {
            self.api.put_disk(vm, disk.clone(), PLAIN).await?;
        }
        Ok(())
    }
}

/// Returns the records of these VMs.
fn of_vms(records: &[VmRecord], vms: &[VmConfig]) -> Vec<VmRecord> {
    let is_of = |record: &&VmRecord| vms.iter().any(|vm| vm.name == record.name);
    records.iter().filter(is_of).cloned().collect()
}

/// Reads and checks the file, and logs what was found; `None` if it cannot be used.
async fn read(file: &Path) -> Option<Config> {
    let path = file.to_owned();
    let read = blocking_call::call_async(READ_TIMEOUT, move || config::load(&path)).await;
    let why = match read {
        Ok(Ok(loaded)) => {
            let found = loaded.warnings.iter().chain(&loaded.notes);
            found.for_each(config::log_diagnostic);
            return Some(loaded.config);
        }
        Ok(Err(ConfigErrors(found))) => {
            found.iter().for_each(config::log_diagnostic);
            "it has errors".to_owned()
        }
        Err(not_done) => not_done.to_string(),
    };
    tracing::error!(
        file = %file.display(),
        "SIGHUP: the configuration was not read again, and nothing was changed: {why}"
    );
    None
}
