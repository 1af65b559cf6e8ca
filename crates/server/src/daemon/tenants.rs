//! VMs and disks that come, go and change their size while the daemon runs.
//!
//! Files are opened, given their size, flushed and closed on threads where that may take its
//! time; the loops only ever get a disk that is ready, and give back one that is at rest. A
//! change is made by one caller at a time, and must be carried through: whoever asks for one
//! runs it as a task of its own, so that a client of the API that hangs up leaves nothing half
//! done.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_device::units::format_bytes;
use tokio::task::spawn_blocking;

use super::handle::DaemonHandle;
use crate::backing::{Disk, Medium};
use crate::bounded;
use crate::command::ControlError;
use crate::command::{Command, NewDisk, NewVm, Resizing, VmSnapshot};
use crate::config::{Create, DiskConfig, VmConfig};
use crate::event_loop::{SetupError, open_disk};
use crate::frontend::Volume;
use crate::kept::refuse_taken;
use crate::ring::sys;

/// Between a removal and giving its memory back: of many removals all but the first are one.
const TRIM_AFTER: Duration = Duration::from_secs(1);

impl DaemonHandle {
    /// Serves one more VM; answers with what is in force. Its files are made and opened as at the
    /// start.
    ///
    /// # Errors
    /// When a name is taken, a disk cannot be opened, or there is no room. Then nothing has
    /// changed, but files that were made are left.
    pub async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        if let Some(there) = self.vm(&vm.name) {
            let by = self.devices()[there.device].name().to_owned();
            return Err(ControlError::Taken {
                what: "VM",
                name: vm.name,
                by: format!("device {by:?}"),
            });
        }
        let disks = self.open(vm.device, &vm.name, &vm.disks).await?;
        let new = Box::new(NewVm {
            name: vm.name.clone(),
            background: vm.background,
            objective: vm.objective,
            max_connections: vm.max_connections,
            disks,
        });
        let added = (self.ask(vm.device, |reply| Command::AddVm { vm: new, reply })).await;
        let (snapshot, volumes) = self.settle(added, &vm.disks)?;
        self.offer(vm.device, volumes, &snapshot);
        let name = vm.name.clone();
        self.vms().push(vm);
        self.note_disks_of(&name).await;
        Ok(snapshot)
    }

    /// Serves a VM no more. What could not be flushed is said, disk by disk.
    ///
    /// # Errors
    /// When there is no such VM, or clients are connected and it is not forced.
    pub async fn remove_vm(&self, name: &str, force: bool) -> Result<Vec<String>, ControlError> {
        let vm = self.known(name)?;
        let asked = name.to_owned();
        let removed = self.ask(vm.device, |reply| Command::RemoveVm {
            vm: asked,
            force,
            reply,
        });
        let disks = removed.await??;
        self.vms().retain(|vm| vm.name != name);
        let exports = disks.iter().map(|disk| disk.export.clone()).collect();
        let failed = self.close(disks).await;
        self.forget_disks_of(name, exports).await;
        self.give_memory_back();
        Ok(failed)
    }

    /// Gives a VM one more disk; answers with what is in force.
    ///
    /// # Errors
    /// As [`DaemonHandle::add_vm`].
    pub async fn add_disk(&self, vm: &str, disk: DiskConfig) -> Result<VmSnapshot, ControlError> {
        let there = self.known(vm)?;
        let asked = std::slice::from_ref(&disk);
        let new = self.open(there.device, vm, asked).await?.pop();
        let new = Box::new(new.expect("one was opened"));
        let name = vm.to_owned();
        let added = self.ask(there.device, |reply| Command::AddDisk {
            vm: name,
            disk: new,
            reply,
        });
        let (snapshot, volumes) = self.settle(added.await, asked)?;
        self.offer(there.device, volumes, &snapshot);
        self.change_vm(vm, |vm| vm.disks.push(disk));
        self.note_disks_of(vm).await;
        Ok(snapshot)
    }

    /// Takes a disk from a VM. What could not be flushed is said.
    ///
    /// # Errors
    /// When there is no such disk, it is the only one, or clients are connected and it is not
    /// forced.
    pub async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> Result<Vec<String>, ControlError> {
        let there = self.known(vm)?;
        if there.disks.len() == 1 && there.disks[0].export == export {
            return Err(ControlError::LastDisk(export.to_owned()));
        }
        let (name, asked) = (vm.to_owned(), export.to_owned());
        let removed = self.ask(there.device, |reply| Command::RemoveDisk {
            vm: name,
            export: asked,
            force,
            reply,
        });
        let disks = removed.await??;
        self.change_vm(vm, |vm| vm.disks.retain(|disk| disk.export != export));
        let failed = self.close(disks).await;
        self.forget_disks_of(vm, vec![export.to_owned()]).await;
        Ok(failed)
    }

    /// Gives a disk another size in bytes; answers with what is in force. `force`: even a
    /// smaller one. One that it has already is made durable.
    ///
    /// # Errors
    /// When there is no such disk, the size cannot be had, or it is smaller and that is not
    /// forced. Then it stays as it was, but for [`ControlError::NotDurable`].
    pub async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        let there = self.known(vm)?;
        let disk = there.disks.iter().find(|disk| disk.export == export);
        let create = disk.map_or(Create::No, |disk| disk.create);
        let read_only = disk.is_some_and(|disk| disk.read_only);
        let (name, asked) = (vm.to_owned(), export.to_owned());
        let started = self.ask(there.device, |reply| Command::StartResize {
            vm: name,
            export: asked,
            size,
            force,
            reply,
        });
        let Resizing {
            file,
            tail,
            before,
            serial,
        } = started.await??;
        let given = spawn_blocking(move || {
            if let Some(tail) = tail {
                tail.discard();
            }
            match file {
                Some(file) => {
                    let sizes = Sizes { before, size };
                    give_size(&file, create, read_only, sizes, File::sync_all)
                }
                None => Ok(()),
            }
        });
        let given = given
            .await
            .unwrap_or_else(|_| Err(NotGiven::no("it panicked".into())));
        let has_it = given.as_ref().map_or_else(|not| not.has_it, |()| true);
        let (name, asked) = (vm.to_owned(), export.to_owned());
        let finished = self.ask(there.device, |reply| Command::FinishResize {
            vm: name,
            export: asked,
            serial,
            size: if has_it { size } else { before },
            reply,
        });
        let (snapshot, volumes) = finished.await??;
        self.offer(there.device, volumes, &snapshot);
        if has_it {
            // What the configuration leaves out is not said for it.
            let is_kept_whole = !self.is_configured(vm);
            self.change_vm(vm, |vm| {
                let disk = vm.disks.iter_mut().find(|disk| disk.export == export);
                if let Some(disk) = disk.filter(|disk| is_kept_whole || disk.size.is_some()) {
                    disk.size = Some(size);
                }
            });
        }
        given.map_err(|not| not.error(export, size))?;
        Ok(snapshot)
    }

    /// Once nobody has been removed for as long as it takes to look, or at least not many.
    fn give_memory_back(&self) {
        let trimming = self.shared.trimming.clone();
        if trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let over = OnDrop(trimming);
        tokio::spawn(async move {
            tokio::time::sleep(TRIM_AFTER).await;
            // Who is removed from here on is the next one's.
            drop(over);
            let _ = spawn_blocking(sys::trim_heap).await;
        });
    }

    pub(super) fn known(&self, vm: &str) -> Result<VmConfig, ControlError> {
        self.vm(vm)
            .ok_or_else(|| ControlError::UnknownVm(vm.to_owned()))
    }

    pub(super) fn change_vm(&self, name: &str, change: impl FnOnce(&mut VmConfig)) {
        if let Some(vm) = self.vms().iter_mut().find(|vm| vm.name == name) {
            change(vm);
        }
    }

    fn offer(&self, device: usize, volumes: Vec<Volume>, vm: &VmSnapshot) {
        let entry = &self.devices()[device];
        for volume in volumes {
            let offer = entry.offer(volume, vm.connections.clone());
            self.shared.catalogue.put(offer);
        }
    }

    /// Opens the disks of a VM, all of them or none.
    async fn open(
        &self,
        device: usize,
        vm: &str,
        disks: &[DiskConfig],
    ) -> Result<Vec<NewDisk>, ControlError> {
        refuse_taken(&self.vms(), disks)?;
        let own = self.store().map(|store| store.path().to_owned());
        let device = self.devices()[device].config.clone();
        let (name, asked) = (vm.to_owned(), disks.to_vec());
        let files = self.shared.files.clone();
        let opening = move || {
            let mut opened: Vec<NewDisk> = Vec::new();
            for disk in &asked {
                if is_same_file(disk.path.as_deref(), own.as_deref()) {
                    return Err(ControlError::Disk {
                        what: format!("export {:?}: its file is the daemon's store", disk.export),
                        help: None,
                    });
                }
                // Disks opened in this call are not in `files` yet, so they are compared here.
                if let Some(other) = opened.iter().find(|new| takes_file(&new.disk, disk)) {
                    return Err(ControlError::Disk {
                        what: format!(
                            "export {:?}: its file is that of export {:?}; a disk needs a file of its own",
                            disk.export, other.disk.export
                        ),
                        help: None,
                    });
                }
                let one = open_disk(&device, &name, disk, &files);
                opened.push(one.map_err(|error| refused(&error))?);
            }
            Ok(opened)
        };
        let opened = match disks.iter().any(|disk| disk.path.is_some()) {
            true => bounded::call_async(self.shared.open_within, opening).await,
            false => Ok(opening()),
        };
        let opened = opened.map_err(|error| ControlError::GaveUp {
            what: format!("VM {vm:?}: opening its disks: {error}"),
        })??;
        // Added only after the deadline was met: a result that comes too late is dropped and must
        // leave no entry.
        for (new, disk) in opened.iter().zip(disks) {
            if let Some(path) = &disk.path {
                self.shared.files.add(vm, &new.disk, path);
            }
        }
        Ok(opened)
    }

    /// Whether the loop has taken what was opened. What it has not is closed by now.
    fn settle<T>(
        &self,
        taken: Result<Result<T, crate::command::CommandError>, ControlError>,
        disks: &[DiskConfig],
    ) -> Result<T, ControlError> {
        let taken = taken.and_then(|taken| Ok(taken?));
        if taken.is_err() {
            let files = &self.shared.files;
            disks.iter().for_each(|disk| files.remove(&disk.export));
        }
        taken
    }

    /// Flushes and closes disks that the loop has given back; what could not be flushed.
    async fn close(&self, disks: Vec<Disk>) -> Vec<String> {
        for disk in &disks {
            self.shared.catalogue.remove(&disk.export);
        }
        let files = self.shared.files.clone();
        let closed = spawn_blocking(move || {
            let mut failed = Vec::new();
            for disk in disks {
                if let Err(error) = flush(&disk) {
                    let what = format!("export {:?} could not be flushed: {error}", disk.export);
                    tracing::error!("{what}");
                    failed.push(what);
                }
                let export = disk.export.clone();
                // The lock goes before somebody else may have the file.
                drop(disk);
                files.remove(&export);
            }
            failed
        });
        let panicked = |_| vec!["closing the disks panicked".to_owned()];
        closed.await.unwrap_or_else(panicked)
    }
}

/// Puts a flag down, even where the runtime ends first.
struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn refused(error: &SetupError) -> ControlError {
    let help = match error {
        SetupError::Disk { source, .. } => source.help(),
        _ => None,
    };
    let what = error.to_string();
    ControlError::Disk { what, help }
}

/// Returns true if a disk that is asked for has the same file as an open one, and at least one of
/// them writes.
fn takes_file(open: &Disk, asked: &DiskConfig) -> bool {
    let (Medium::File(file), Some(path)) = (&open.medium, &asked.path) else {
        return false;
    };
    let is_same = |meta| sys::identity(&meta) == file.facts.identity;
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
    match &disk.medium {
        Medium::File(open) if !disk.read_only => open.file.sync_data(),
        _ => Ok(()),
    }
}

/// Bytes of a disk that is given another size.
#[derive(Clone, Copy)]
struct Sizes {
    before: u64,
    size: u64,
}

/// Why a file was not given its size, durably.
#[derive(Debug)]
struct NotGiven {
    what: String,
    /// It has the size all the same, until a crash may undo that.
    has_it: bool,
}

impl NotGiven {
    fn no(what: String) -> NotGiven {
        let has_it = false;
        NotGiven { what, has_it }
    }

    fn error(self, export: &str, size: u64) -> ControlError {
        let NotGiven { what, has_it } = self;
        match has_it {
            true => ControlError::NotDurable(format!(
                "export {export:?} has {size} bytes now, but a crash may undo that: {what}"
            )),
            false => ControlError::Disk {
                what: format!("export {export:?} cannot be given {size} bytes: {what}"),
                help: None,
            },
        }
    }
}

/// Gives a disk's file its size, durably: `sync` is what makes it so, also where it has that size
/// already, for nobody knows whether that is durable. A file that cannot be made longer has the size
/// that it had. One that was made shorter stays so: what was cut off is gone.
fn give_size(
    file: &File,
    create: Create,
    read_only: bool,
    Sizes { before, size }: Sizes,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), NotGiven> {
    let failed = |what: &str, error: &io::Error| format!("cannot {what} its file: {error}");
    let no = |what: &str, error: io::Error| NotGiven::no(failed(what, &error));
    let meta = file.metadata().map_err(|error| no("inspect", error))?;
    if !meta.is_file() {
        let has = sys::block_device_size(file).map_err(|error| no("measure", error))?;
        return match has >= size {
            true => Ok(()),
            false => {
                let has = format_bytes(has);
                Err(NotGiven::no(format!("the block device has {has}")))
            }
        };
    }
    let has = meta.len();
    if read_only {
        if has == size {
            // Whoever made it longer has done this already, and answers for it.
            return Ok(());
        }
        let has = format_bytes(has);
        let what = format!("it is served read-only, and its file has {has}");
        return Err(NotGiven::no(what));
    }
    if has != before && has != size {
        let (has, before) = (format_bytes(has), format_bytes(before));
        let what = format!("its file has {has} where the disk has {before}");
        return Err(NotGiven::no(what));
    }
    let given = || {
        if size > has && create == Create::Preallocated {
            sys::allocate(file, 0, has, size - has)?;
        }
        // Also where it has that length: a change whose `sync` failed may be clean by now for the
        // kernel, and durable nowhere. Setting the length makes it one to be written again.
        file.set_len(size)?;
        sync(file)
    };
    given().map_err(|error| {
        if size > before && has == before {
            let _ = file.set_len(before);
        }
        // Whatever could be undone: its length is what is served. What somebody else made longer is
        // not, as long as a crash may take that back.
        let is_so = || file.metadata().is_ok_and(|meta| meta.len() == size);
        let has_it = !(size > before && has == size) && is_so();
        let what = failed("resize", &error);
        NotGiven { what, has_it }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 8 KiB.
    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        file
    }

    /// A disk of `before` bytes is given a size, on a disk that fails. What is said, and how long its
    /// file is then.
    fn unsynced(file: &File, before: u64, size: u64) -> (NotGiven, u64) {
        let sizes = Sizes { before, size };
        let broken = |_: &File| Err(io::Error::from_raw_os_error(libc::EIO));
        let not = give_size(file, Create::No, false, sizes, broken).unwrap_err();
        (not, file.metadata().unwrap().len())
    }

    #[test]
    fn a_file_that_is_shorter_is_said_to_be_so_even_if_that_is_not_durable() {
        let (not, len) = unsynced(&file(), 8192, 4096);
        assert_eq!((not.has_it, len), (true, 4096));
        let error = not.error("disk", 4096);
        assert!(matches!(&error, ControlError::NotDurable(_)), "{error}");
        let said = error.to_string();
        assert!(said.contains("\"disk\" has 4096 bytes now"), "{said}");
        assert!(said.contains("Input/output error"), "{said}");
    }

    #[test]
    fn a_size_that_is_not_durable_is_not_made_so_by_asking_for_it_again() {
        let file = file();
        unsynced(&file, 8192, 4096);
        let (not, len) = unsynced(&file, 4096, 4096);
        assert_eq!((not.has_it, len), (true, 4096));
        let error = not.error("disk", 4096);
        assert!(matches!(&error, ControlError::NotDurable(_)), "{error}");
        // The disk is well again, and is asked to write it.
        let synced = std::cell::Cell::new(0);
        let well = |_: &File| {
            synced.set(synced.get() + 1);
            Ok(())
        };
        let (before, size) = (4096, 4096);
        give_size(&file, Create::No, false, Sizes { before, size }, well).unwrap();
        assert_eq!(synced.get(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_made_longer_for_good_is_as_long_as_it_was() {
        let (not, len) = unsynced(&file(), 8192, 16384);
        assert_eq!((not.has_it, len), (false, 8192));
        let error = not.error("disk", 16384);
        assert!(matches!(&error, ControlError::Disk { .. }), "{error}");
    }

    #[test]
    fn what_somebody_else_made_longer_is_not_served_before_it_is_durable_nor_cut_off() {
        let (not, len) = unsynced(&file(), 4096, 8192);
        assert_eq!((not.has_it, len), (false, 8192));
    }
}
