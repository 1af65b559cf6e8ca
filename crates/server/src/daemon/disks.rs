//! Opening, offering and closing of disks while the daemon runs.
//!
//! Files are opened, flushed and closed on threads that may block. An event loop only ever gets a
//! disk that is ready, and gives back one without I/O in flight.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::devices::DeviceEntry;
use crate::backing::{Disk, OpenError};
use crate::blocking_call;
use crate::command::{CommandError, ControlError, NewDisk, VmSnapshot};
use crate::config::{DeviceConfig, DiskConfig};
use crate::event_loop::{DiskFile, Files, SetupError, open_disk};
use crate::frontend::Volume;
use crate::listener::{ExportCatalogue, ExportList};
use crate::ring::sys;

/// Time between the start, or the removal of a VM, and returning free memory to the system;
/// removals within it share one pass.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// Disks that were closed, whose files no other disk may use yet.
#[derive(Debug)]
pub(super) struct ClosedDisks {
    /// Disks that could not be flushed, with the reasons.
    pub(super) failed: Vec<String>,
    /// Files of all of them, to be passed to [`OpenDisks::release`].
    pub(super) files: Vec<DiskFile>,
}

/// Open files of the disks of all devices, and the volumes offered to NBD clients.
#[derive(Debug)]
pub(super) struct OpenDisks {
    files: Files,
    catalogue: Arc<ExportCatalogue>,
    /// Deadline for opening a disk's file.
    open_within: Duration,
    /// Path of the store, which no disk may use.
    store: Option<PathBuf>,
    /// True while a pass that returns memory to the system is scheduled.
    trimming: Arc<AtomicBool>,
}

impl OpenDisks {
    pub(super) fn new(
        files: Files,
        catalogue: Arc<ExportCatalogue>,
        open_within: Duration,
        store: Option<PathBuf>,
    ) -> OpenDisks {
        OpenDisks {
            files,
            catalogue,
            open_within,
            store,
            trimming: Arc::default(),
        }
    }

    /// Returns the list of files that the disks of all devices have open.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the volumes of all devices that clients are offered.
    pub(super) fn offered(&self) -> ExportList {
        ExportList::of_all(self.catalogue.clone())
    }

    /// Returns the deadline for opening a disk's file.
    pub(super) fn open_within(&self) -> Duration {
        self.open_within
    }

    /// Offers volumes of a VM to clients.
    pub(super) fn publish(&self, device: &DeviceEntry, volumes: Vec<Volume>, vm: &VmSnapshot) {
        for volume in volumes {
            // Connections would be counted for, and their requests charged to, another VM.
            assert!(
                vm.disks.iter().any(|disk| disk.export == volume.name),
                "volume {:?} is offered for VM {:?}, which has no such disk",
                volume.name,
                vm.name
            );
            let entry = device.export_entry(vm.name.clone(), volume, vm.connections.clone());
            self.catalogue.put(entry);
        }
    }

    /// Opens the disks of a VM, all of them or none.
    pub(super) async fn open(
        &self,
        device: &DeviceConfig,
        vm: &str,
        disks: &[DiskConfig],
    ) -> Result<Vec<NewDisk>, ControlError> {
        let (own, device) = (self.store.clone(), device.clone());
        let (name, asked) = (vm.to_owned(), disks.to_vec());
        let files = self.files.clone();
        let opening = move || open_all(&device, &name, &asked, &files, own.as_deref());
        // Only a file or a server can block; memory is allocated in place.
        let may_block = |disk: &DiskConfig| disk.path.is_some() || disk.nbd.is_some();
        let opened = if disks.iter().any(may_block) {
            blocking_call::call_async(self.open_within, opening).await
        } else {
            Ok(opening())
        };
        let opened = opened.map_err(|error| ControlError::GaveUp {
            what: format!("VM {vm:?}: opening its disks: {error}"),
        })??;
        assert_eq!(opened.len(), disks.len(), "disks that were not opened");
        // Added only after the deadline was met: a result that comes too late is dropped and must
        // leave no entry.
        for (new, disk) in opened.iter().zip(disks) {
            if let Some(path) = &disk.path {
                self.files.add(vm, &new.disk, path);
            }
        }
        Ok(opened)
    }

    /// Releases the files of disks that an event loop refused, and that it has closed.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn release_if_refused<T>(
        &self,
        taken: Result<Result<T, CommandError>, ControlError>,
        files: &[DiskFile],
    ) -> Result<T, ControlError> {
        let taken = taken.and_then(|taken| Ok(taken?));
        if taken.is_err() {
            self.release(files);
        }
        taken
    }

    /// Lets other disks use the files of disks that have been closed.
    pub(super) fn release(&self, files: &[DiskFile]) {
        files.iter().for_each(|file| self.files.remove(file));
    }

    /// Withdraws, flushes and closes disks that an event loop has given back. No other disk may use
    /// their files until the caller releases them.
    pub(super) async fn close(&self, disks: Vec<Disk>) -> ClosedDisks {
        for disk in &disks {
            self.catalogue.remove(&disk.export);
        }
        let files = disks.iter().filter_map(DiskFile::of).collect();
        let closed = spawn_blocking(move || {
            let mut failed = Vec::new();
            for disk in disks {
                if let Err(error) = flush(&disk) {
                    let what = format!("export {:?} could not be flushed: {error}", disk.export);
                    tracing::error!("{what}");
                    failed.push(what);
                }
                // Dropping the disk closes its file and releases the lock on it.
                drop(disk);
            }
            failed
        });
        let panicked = |_| vec!["closing the disks panicked".to_owned()];
        let failed = closed.await.unwrap_or_else(panicked);
        ClosedDisks { failed, files }
    }

    /// Schedules returning free heap memory to the system after [`TRIM_DELAY`], so that many
    /// removals cost one pass over the heap.
    pub(super) fn schedule_trim(&self) {
        let trimming = self.trimming.clone();
        // A pass is scheduled already, and will cover this removal.
        if trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let over = ResetOnDrop(trimming);
        tokio::spawn(async move {
            tokio::time::sleep(TRIM_DELAY).await;
            // Reset before the pass: a removal during it schedules the next one.
            drop(over);
            let _ = spawn_blocking(sys::trim_heap).await;
        });
    }
}

/// Opens disks of a VM one after the other. `own` is the path of the store.
fn open_all(
    device: &DeviceConfig,
    vm: &str,
    disks: &[DiskConfig],
    files: &Files,
    own: Option<&Path>,
) -> Result<Vec<NewDisk>, ControlError> {
    let mut opened: Vec<NewDisk> = Vec::new();
    for disk in disks {
        let export = &disk.export;
        let no = |what: String| Err(ControlError::Disk { what, help: None });
        if is_same_file(disk.path.as_deref(), own) {
            return no(format!("export {export:?}: its file is the daemon's store"));
        }
        // Disks opened in this call are not in `files` yet, so they are compared here.
        if let Some(other) = opened.iter().find(|new| shares_file(&new.disk, disk)) {
            return no(format!(
                "export {export:?}: its file is that of export {:?}; a disk needs a file of its \
                 own",
                other.disk.export
            ));
        }
        let one = open_disk(device, vm, disk, files);
        opened.push(one.map_err(|error| refused(&error))?);
    }
    Ok(opened)
}

/// Resets a flag when dropped, even if the runtime drops the task early.
struct ResetOnDrop(Arc<AtomicBool>);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn refused(error: &SetupError) -> ControlError {
    let what = error.to_string();
    let help = match error {
        SetupError::Disk {
            source: OpenError::NotAllowed { .. },
            ..
        } => return ControlError::NotAllowed(what),
        SetupError::Disk { source, .. } => source.help(),
        _ => None,
    };
    ControlError::Disk { what, help }
}

/// Returns true if a requested disk has the same file as an open one and at least one of them is
/// writable.
fn shares_file(open: &Disk, asked: &DiskConfig) -> bool {
    let (Some(identity), Some(path)) = (open.medium.identity(), &asked.path) else {
        return false;
    };
    let is_same = |meta| sys::identity(&meta) == identity;
    !(open.read_only && asked.read_only) && std::fs::metadata(path).is_ok_and(is_same)
}

fn is_same_file(a: Option<&Path>, b: Option<&Path>) -> bool {
    let identity = |path: Option<&Path>| {
        let meta = std::fs::metadata(path?).ok()?;
        Some(sys::identity(&meta))
    };
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

fn flush(disk: &Disk) -> io::Result<()> {
    if disk.read_only {
        return Ok(());
    }
    disk.medium.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(store: Option<PathBuf>) -> (OpenDisks, DeviceConfig) {
        let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n";
        let loaded = crate::config::parse(text, "t", Path::new("/")).expect("good");
        let device = loaded.config.devices[0].clone();
        let minute = Duration::from_secs(60);
        (
            OpenDisks::new(Files::default(), Arc::default(), minute, store),
            device,
        )
    }

    fn disk(export: &str, path: &Path, device: &DeviceConfig) -> DiskConfig {
        let words = serde_json::json!({ "export": export, "path": path, "format": "raw" });
        let directory = path.parent().expect("a file in a directory");
        let paths = crate::config::PathsConfig::of_directory(directory);
        let read = crate::config::vm::disk_from_json(&words, "vm", device, &paths);
        read.unwrap_or_else(|error| panic!("{error}"))
    }

    #[tokio::test]
    async fn a_file_is_the_stores_or_one_disks() {
        let dir = tempfile::tempdir().expect("a directory");
        let [own, file] = ["store", "disk.raw"].map(|name| dir.path().join(name));
        for path in [&own, &file] {
            std::fs::write(path, [0; 8192]).expect("writable");
        }
        let (all, device) = disks(Some(own.clone()));
        let refused = async |disks: &[DiskConfig]| {
            let opened = all.open(&device, "vm", disks).await;
            opened.expect_err("it is refused").to_string()
        };
        let error = refused(&[disk("a", &own, &device)]).await;
        assert_eq!(error, "export \"a\": its file is the daemon's store");
        let [a, b] = ["a", "b"].map(|export| disk(export, &file, &device));
        let error = refused(&[a.clone(), b]).await;
        assert!(
            error.contains("its file is that of export \"a\""),
            "{error}"
        );

        // The file is free again after a refusal by the loop as well as after closing.
        for taken in [false, true] {
            let mut opened = all.open(&device, "vm", std::slice::from_ref(&a)).await;
            let new = opened.as_mut().expect("it is free").pop().expect("one");
            let file = DiskFile::of(&new.disk).expect("it has a file");
            let no = Err(CommandError::UnknownVm("vm".to_owned()));
            let answer = if taken { Ok(new.disk) } else { no };
            if let Ok(disk) = all.release_if_refused(Ok(answer), &[file]) {
                let closed = all.close(vec![disk]).await;
                assert_eq!(closed.failed, [""; 0]);
                all.release(&closed.files);
            }
        }
        assert_eq!(all.files().watched().len(), 0);
    }

    #[tokio::test]
    async fn a_disk_that_closes_late_leaves_the_file_of_the_next_one_of_its_name_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let [old, new] = ["old.raw", "new.raw"].map(|name| dir.path().join(name));
        for path in [&old, &new] {
            std::fs::write(path, [0; 8192]).expect("writable");
        }
        let (all, device) = disks(None);
        let open = async |export: &str, path: &Path| {
            let mut opened = all
                .open(&device, "vm", &[disk(export, path, &device)])
                .await?;
            Ok::<Disk, ControlError>(opened.pop().expect("one").disk)
        };
        let is_in_use = async |path: &Path| {
            let error = open("b", path).await.err().map(|error| error.to_string());
            error.is_some_and(|error| error.contains("which export \"a\" of VM \"vm\" uses"))
        };
        // Removed, and still being flushed when the next disk takes its name.
        let first = open("a", &old).await.expect("it is free");
        let second = open("a", &new).await.expect("it is free");
        let closed = all.close(vec![first]).await;
        assert!(is_in_use(&old).await, "its record is not deleted yet");
        all.release(&closed.files);
        assert!(
            is_in_use(&new).await,
            "closing the first must not release it"
        );

        // A third one of that name is refused by the loop while the second is served.
        let third = open("a", &old).await.expect("it is free again");
        let file = DiskFile::of(&third).expect("it has a file");
        drop(third);
        let no: Result<(), _> = Err(CommandError::UnknownVm("vm".to_owned()));
        assert!(all.release_if_refused(Ok(no), &[file]).is_err());
        assert!(is_in_use(&new).await, "the refusal must not release it");
        drop(second);
    }
}
