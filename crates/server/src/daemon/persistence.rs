//! Records in the store: VMs and objectives that were changed with `--persist`, and disks that were
//! served.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_api::health::Reason;
use tokio::task::spawn_blocking;

use super::directory::VmDirectory;
use crate::command::ControlError;
use crate::config::{self, DiskConfig, VmConfig};
use crate::event_loop::Files;
use crate::health;
use crate::persisted_vms::{self, RecordOutcome, RecordReport};
use crate::store::{Change, KnownDisk, Scope, Store, StoreError, VmRecord};

/// Replaces the objectives of configured VMs by those in the store, and logs the outcome.
pub(super) fn apply_stored_objectives(store: &Store, vms: &mut [VmConfig]) {
    let records = match store.vms() {
        Ok(records) => records,
        Err(error) => return tracing::error!("the records in the store cannot be read: {error}"),
    };
    for RecordReport { vm, outcome, what } in persisted_vms::overlay(&records, vms) {
        match outcome {
            RecordOutcome::Applied => tracing::info!(vm, "{what}"),
            RecordOutcome::Ignored => tracing::warn!(vm, "{what}"),
            RecordOutcome::Failed => tracing::error!(vm, "{what}"),
        }
    }
}

/// Loads the paths of all disks that the store knows into `files`, which refuses to create files
/// there.
pub(super) fn load_known_disks(store: &Store, files: &Files) {
    match store.disks() {
        Ok(disks) => files.set_known(disks.into_iter().map(|disk| disk.path.into())),
        Err(error) => tracing::error!("the list of disks in the store cannot be read: {error}"),
    }
}

/// Records that the disks of these VMs are served, durably, so that a lost file is not replaced by
/// an empty one. A failure is logged, and the disks are served all the same.
pub(super) fn record_disks(store: &Store, files: &Files, vms: &[VmConfig]) {
    let disks = vms
        .iter()
        .flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
    let disks = disks.filter_map(|(vm, disk)| KnownDisk::from_config(&vm.name, disk));
    let disks: Vec<KnownDisk> = disks.collect();
    // One transaction, hence one fsync, for all disks.
    let changes: Vec<Change<'_>> = disks.iter().map(Change::PutDisk).collect();
    match store.apply(&changes) {
        // All of them were known, so nothing was written.
        Ok(0) => {}
        // Read back, so that the list also has what other daemons recorded.
        Ok(_) => load_known_disks(store, files),
        Err(error) => {
            tracing::error!(
                "disks cannot be recorded, so a lost file may be replaced by an empty one: {error}"
            );
        }
    }
}

/// Store of a daemon, if it has one, and the VMs in the store that could not be served.
#[derive(Debug)]
pub(super) struct Persistence {
    store: Option<Arc<Store>>,
    /// Interval at which learnt state of controllers is written.
    snapshot_interval: Duration,
    /// Names of VMs that are in the store and not served, with the reasons.
    not_served: Mutex<BTreeMap<String, String>>,
}

impl Persistence {
    pub(super) fn new(store: Option<Arc<Store>>, snapshot_interval: Duration) -> Persistence {
        Persistence {
            store,
            snapshot_interval,
            not_served: Mutex::default(),
        }
    }

    /// Returns the store; `None` if the configuration names none. Its methods may block on the
    /// disk, so call them on a thread that may block.
    pub(super) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Returns the interval at which learnt state of controllers is written.
    pub(super) fn snapshot_interval(&self) -> Duration {
        self.snapshot_interval
    }

    /// Writes a VM as it is now, durably: the complete VM, or only the objective if the
    /// configuration file names the VM. `device` is the name of its device.
    ///
    /// # Errors
    /// If there is no store, or it cannot be written.
    pub(super) async fn put_vm(
        &self,
        vm: VmConfig,
        device: &str,
        is_configured: bool,
    ) -> Result<(), ControlError> {
        let store = self.required()?;
        let name = vm.name.clone();
        let record = if is_configured {
            // The schedule with its base, not the objective that it gives now.
            let words = config::words(&vm.promised());
            VmRecord::new(&name, Scope::Objective, &words)
        } else {
            let is_confined = |disk: &DiskConfig| disk.path.is_some() && disk.within.is_some();
            let has_file = |disk: &&DiskConfig| disk.path.is_some();
            let mut files = vm.disks.iter().filter(has_file).peekable();
            let confined = files.peek().is_some() && files.all(is_confined);
            let words = words_of(vm, device);
            let record = VmRecord::new(&name, Scope::Whole, &words);
            if confined { record.confined() } else { record }
        };
        run_in_store(store, &name, move |store| store.put_vm(&record)).await
    }

    /// Deletes the records of a VM, durably: the VM, its deadline transfer and its learnt states.
    /// Returns true if there were any.
    ///
    /// # Errors
    /// If there is no store, the configuration file names the VM, or the store cannot be written.
    pub(super) async fn forget_vm(
        &self,
        name: &str,
        vms: &VmDirectory,
    ) -> Result<bool, ControlError> {
        self.may_forget(name, vms)?;
        let vm = name.to_owned();
        let forgotten = run_in_store(self.required()?, name, move |store| {
            store.apply(&[
                Change::RemoveVm(&vm),
                // A new VM of the same name must not inherit the state of the old one.
                Change::ForgetLearnt { vm: &vm },
                Change::ForgetTransfer { vm: &vm },
            ])
        });
        let forgotten = forgotten.await? > 0;
        // `/healthz` must stop reporting a VM whose record is gone.
        self.not_served().remove(name);
        Ok(forgotten)
    }

    /// Checks that the records of a VM may be deleted.
    ///
    /// # Errors
    /// If there is no store, or the configuration file names the VM and would bring it back.
    pub(super) fn may_forget(&self, name: &str, vms: &VmDirectory) -> Result<(), ControlError> {
        self.required()?;
        if vms.is_configured(name) {
            return Err(ControlError::Configured(name.to_owned()));
        }
        Ok(())
    }

    /// Returns true if the record of a VM has a disk with this export name.
    ///
    /// # Errors
    /// If there is no store, or it cannot be read.
    pub(super) async fn has_disk(&self, vm: &str, export: &str) -> Result<bool, ControlError> {
        let name = vm.to_owned();
        let record = run_in_store(self.required()?, vm, move |store| store.vm(&name)).await?;
        // A record that cannot be read names no disk either.
        let words = record.and_then(|record| record.words().ok());
        let disks = words.as_ref().and_then(|words| words["disk"].as_array());
        Ok(disks.is_some_and(|disks| disks.iter().any(|disk| disk["export"] == export)))
    }

    /// Records that the disks of a VM are served, if there is a store. A failure is logged.
    pub(super) async fn record_disks_of(&self, files: &Files, vm: VmConfig) {
        let Some(store) = self.store.clone() else {
            return;
        };
        let files = files.clone();
        // A panic is logged by the panic hook.
        let _ = spawn_blocking(move || record_disks(&store, &files, &[vm])).await;
    }

    /// Deletes the records of disks at these paths. A failure is logged.
    ///
    /// By path, because the export name of a disk that took long to flush may be another disk's by
    /// now.
    pub(super) async fn forget_paths(&self, files: &Files, paths: Vec<PathBuf>) {
        let Some(store) = self.store.clone() else {
            return;
        };
        let files = files.clone();
        let forget = move || {
            let names = paths.iter().map(|path| KnownDisk::key(path));
            let names: Vec<String> = names.collect();
            let changes = names.iter().map(|name| Change::ForgetDisk { name });
            match store.apply(&changes.collect::<Vec<_>>()) {
                Ok(_) => load_known_disks(&store, &files),
                Err(error) => tracing::warn!("records of removed disks cannot be deleted: {error}"),
            }
        };
        // A panic is logged by the panic hook.
        let _ = spawn_blocking(forget).await;
    }

    /// Deletes the record of a disk, durably, by its export name or its absolute path, so that a
    /// new file may be created there. Returns false if there is no such record.
    ///
    /// # Errors
    /// If the disk is being served, there is no store, or the store cannot be written.
    pub(super) async fn forget_disk(
        &self,
        name: &str,
        files: &Files,
        vms: &VmDirectory,
    ) -> Result<bool, ControlError> {
        let store = self.required()?;
        let is = |disk: &DiskConfig| {
            let known = KnownDisk::from_config("", disk);
            disk.export == name || known.is_some_and(|known| known.path == name)
        };
        if vms.configs().iter().any(|vm| vm.disks.iter().any(is)) {
            return Err(ControlError::Disk {
                what: format!("disk {name:?} is served"),
                help: Some("remove it, or its VM, first".to_owned()),
            });
        }
        let (asked, files) = (name.to_owned(), files.clone());
        let done = spawn_blocking(move || {
            let forgotten = store.forget_disk(&asked)?;
            load_known_disks(&store, &files);
            Ok::<_, StoreError>(forgotten)
        });
        let failed = |why: &str, help| ControlError::Store {
            what: format!("disk {name:?} cannot be forgotten: {why}"),
            help,
        };
        match done.await {
            Ok(done) => done.map_err(|error| failed(&error.to_string(), error.help())),
            Err(_) => Err(failed("the call panicked", None)),
        }
    }

    /// Sets the reason why a VM in the store is not served.
    pub(super) fn set_not_served(&self, name: &str, why: String) {
        self.not_served().insert(name.to_owned(), why);
    }

    /// Returns a reason for each VM in the store that is not served.
    pub(super) fn problems(&self, vms: &VmDirectory) -> Vec<Reason> {
        let not_served = self.not_served();
        // A VM of the same name may have been added since.
        (not_served
            .iter()
            .filter(|(name, _)| vms.get(name).is_none()))
        .map(|(name, why)| health::not_served(name, why))
        .collect()
    }

    /// Returns the names of the VMs in the store that could not be served.
    pub(super) fn names_not_served(&self) -> Vec<String> {
        self.not_served().keys().cloned().collect()
    }

    fn required(&self) -> Result<Arc<Store>, ControlError> {
        self.store.clone().ok_or(ControlError::NoStore)
    }

    fn not_served(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        (self.not_served.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the keys of a VM as the store and the API have them, with absolute paths.
pub(super) fn words_of(vm: VmConfig, device: &str) -> serde_json::Value {
    config::vm::to_json(&with_absolute_paths(vm), device)
}

/// Makes the paths of disks absolute, independent of the directory the daemon is started in.
fn with_absolute_paths(mut vm: VmConfig) -> VmConfig {
    for path in vm.disks.iter_mut().filter_map(|disk| disk.path.as_mut()) {
        if let Ok(whole) = std::path::absolute(&*path) {
            *path = whole;
        }
    }
    vm
}

async fn run_in_store<T: Send + 'static>(
    store: Arc<Store>,
    vm: &str,
    act: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ControlError> {
    let done = spawn_blocking(move || act(&store)).await;
    let failed = |why: &str, help| ControlError::Store {
        what: format!("VM {vm:?} cannot be persisted: {why}"),
        help,
    };
    match done {
        Ok(done) => done.map_err(|error| failed(&error.to_string(), error.help())),
        Err(_) => Err(failed("the call panicked", None)),
    }
}

/// Returns the store's key for the identity of the disks on which a policy has learnt of VMs.
pub(super) fn learnt_identity_key(policy: &str) -> String {
    format!("learnt by {policy}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns a VM with a disk in memory, or on the file at this path.
    fn vm(name: &str, path: Option<&Path>) -> VmConfig {
        let kind = if path.is_some() { "file" } else { "memory" };
        let device = format!("[[device]]\nname = \"d\"\nkind = \"{kind}\"\n");
        let text = format!("[[listen]]\nunix = \"s\"\n{device}");
        let loaded = config::parse(&text, "t", Path::new("/")).expect("good");
        let disk = serde_json::json!({ "path": path, "size": "1 MiB" });
        let disk = match path {
            Some(_) => disk,
            None => serde_json::json!({ "size": "1 MiB" }),
        };
        let words = serde_json::json!({ "name": name, "disk": [disk] });
        let read = config::vm::from_json(&words, &loaded.config.devices, &loaded.config.paths);
        read.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns a directory that serves the VMs of its file.
    fn directory(vms: Vec<VmConfig>) -> VmDirectory {
        VmDirectory::new(vms.clone(), vms)
    }

    fn open(dir: &Path) -> Persistence {
        let store = Store::open(dir.join("store.redb")).expect("writable");
        Persistence::new(Some(Arc::new(store)), Duration::from_secs(1))
    }

    #[tokio::test]
    async fn nothing_is_kept_without_a_store() {
        let none = Persistence::new(None, Duration::MAX);
        let vms = directory(Vec::new());
        let no = ControlError::NoStore;
        assert_eq!(
            none.put_vm(vm("a", None), "d", false).await,
            Err(no.clone())
        );
        assert_eq!(none.forget_vm("a", &vms).await, Err(no.clone()));
        assert_eq!(none.has_disk("a", "a").await, Err(no.clone()));
        let files = Files::default();
        assert_eq!(none.forget_disk("a", &files, &vms).await, Err(no));
        none.record_disks_of(&files, vm("a", None)).await;
    }

    #[tokio::test]
    async fn a_vm_that_was_put_is_there_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = open(dir.path());
        let vms = directory(vec![vm("configured", None)]);
        all.put_vm(vm("a", None), "d", false).await.expect("kept");
        assert_eq!(all.has_disk("a", "a").await, Ok(true));
        assert_eq!(all.has_disk("a", "b").await, Ok(false));
        all.set_not_served("a", "its file is gone".to_owned());
        assert_eq!(all.problems(&vms).len(), 1);
        assert_eq!(all.forget_vm("a", &vms).await, Ok(true));
        assert_eq!(all.forget_vm("a", &vms).await, Ok(false));
        assert_eq!(all.problems(&vms), []);
        let configured = ControlError::Configured("configured".to_owned());
        assert_eq!(all.forget_vm("configured", &vms).await, Err(configured));
    }

    #[tokio::test]
    async fn a_disk_is_known_until_it_is_forgotten_and_not_while_it_is_served() {
        let dir = tempfile::tempdir().expect("a directory");
        let (all, files) = (open(dir.path()), Files::default());
        let path = dir.path().join("a.raw");
        let disk = vm("a", Some(&path));
        all.record_disks_of(&files, disk.clone()).await;
        assert!(files.knows(&path));
        let served = directory(vec![disk]);
        let error = all
            .forget_disk("a", &files, &served)
            .await
            .expect_err("it is served");
        assert_eq!(error.to_string(), "disk \"a\" is served");
        let no_vms = directory(Vec::new());
        assert_eq!(all.forget_disk("a", &files, &no_vms).await, Ok(true));
        assert_eq!(all.forget_disk("a", &files, &no_vms).await, Ok(false));
        assert!(!files.knows(&path));
    }

    #[tokio::test]
    async fn a_record_is_forgotten_by_its_path_and_the_names_other_disk_keeps_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let (all, files) = (open(dir.path()), Files::default());
        let [old, new] = ["old.raw", "new.raw"].map(|name| dir.path().join(name));
        for path in [&old, &new] {
            all.record_disks_of(&files, vm("a", Some(path))).await;
        }
        all.forget_paths(&files, vec![old.clone()]).await;
        assert_eq!([&old, &new].map(|path| files.knows(path)), [false, true]);
    }
}
