//! Addition, removal and resizing of VMs and disks while the daemon runs.
//!
//! Files are opened, resized, flushed and closed on threads that may block. An event loop only ever
//! gets a disk that is ready, and gives back one without I/O in flight. Callers serialise changes,
//! and run each as a task of its own, so that a client of the API that hangs up leaves no change
//! half done.

use std::fs::File;

use tokio::task::spawn_blocking;

use super::resize::{ResizeError, Sizes, set_file_size};
use super::shared::Shared;
use crate::backing::Disk;
use crate::command::{Command, ControlError, NewVm, Resizing, VmSnapshot};
use crate::config::{Create, DiskConfig, VmConfig};
use crate::event_loop::DiskFile;

/// Changes of VMs and disks, over all parts of the daemon.
#[derive(Clone, Copy)]
pub(super) struct Changes<'a> {
    shared: &'a Shared,
}

impl<'a> Changes<'a> {
    pub(super) fn new(shared: &'a Shared) -> Changes<'a> {
        Changes { shared }
    }

    /// Adds a VM, creates and opens its files as at start, and returns its snapshot.
    ///
    /// # Errors
    /// If a name is in use, a disk cannot be opened, or the device is full. Nothing has changed
    /// then, except that files that were created are left.
    pub(super) async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        let Shared {
            devices,
            vms,
            disks,
            persistence,
            ..
        } = self.shared;
        if let Some(there) = vms.get(&vm.name) {
            let by = devices.name(there.device).to_owned();
            return Err(ControlError::Taken {
                what: "VM",
                name: vm.name,
                by: format!("device {by:?}"),
            });
        }
        vms.refuse_taken_exports(&vm.disks)?;
        let device = &devices.entries()[vm.device];
        // Before the event loop is asked: opening may block for as long as `open_timeout`.
        let opened = disks.open(&device.config(), &vm.name, &vm.disks).await?;
        let files: Vec<_> = opened
            .iter()
            .filter_map(|new| DiskFile::of(&new.disk))
            .collect();
        let new = Box::new(NewVm {
            name: vm.name.clone(),
            background: vm.background,
            objective: vm.objective,
            max_connections: vm.max_connections,
            disks: opened,
        });
        let added = (devices.ask(vm.device, |reply| Command::AddVm { vm: new, reply })).await;
        // The loop may still refuse, for example if the device is full.
        let (snapshot, volumes) = disks.release_if_refused(added, &files)?;
        disks.publish(device, volumes, &snapshot);
        // After the loop has agreed: until then no answer of the API may name the VM.
        vms.add(vm.clone());
        persistence.record_disks_of(disks.files(), vm).await;
        Ok(snapshot)
    }

    /// Removes a VM. Returns the disks that could not be flushed, with the reasons.
    ///
    /// # Errors
    /// If the VM is not served, or clients are connected and `force` is not set.
    pub(super) async fn remove_vm(
        &self,
        name: &str,
        force: bool,
    ) -> Result<Vec<String>, ControlError> {
        let Shared {
            devices,
            vms,
            disks,
            ..
        } = self.shared;
        let device = vms.device_of(name)?;
        let asked = name.to_owned();
        let removed = devices.ask(device, |reply| Command::RemoveVm {
            vm: asked,
            force,
            reply,
        });
        let closing = removed.await??;
        // From here on the name is free, even while the disks are still being flushed.
        vms.remove(name);
        let failed = self.close(name, closing).await;
        disks.schedule_trim();
        Ok(failed)
    }

    /// Adds a disk to a VM and returns the VM's snapshot.
    ///
    /// # Errors
    /// Those of [`Changes::add_vm`].
    pub(super) async fn add_disk(
        &self,
        vm: &str,
        disk: DiskConfig,
    ) -> Result<VmSnapshot, ControlError> {
        let Shared {
            devices,
            vms,
            disks,
            persistence,
            ..
        } = self.shared;
        let there = vms.find(vm)?;
        let asked = std::slice::from_ref(&disk);
        vms.refuse_taken_exports(asked)?;
        let device = &devices.entries()[there.device];
        let new = disks.open(&device.config(), vm, asked).await?.pop();
        let new = Box::new(new.expect("one was opened"));
        let file = DiskFile::of(&new.disk);
        let name = vm.to_owned();
        let added = devices.ask(there.device, |reply| Command::AddDisk {
            vm: name,
            disk: new,
            reply,
        });
        let (snapshot, volumes) = disks.release_if_refused(added.await, file.as_slice())?;
        disks.publish(device, volumes, &snapshot);
        vms.change(vm, |vm| vm.disks.push(disk));
        if let Some(vm) = vms.get(vm) {
            persistence.record_disks_of(disks.files(), vm).await;
        }
        Ok(snapshot)
    }

    /// Removes a disk of a VM. Returns the reason if it could not be flushed.
    ///
    /// # Errors
    /// If there is no such disk, it is the only one of its VM, or clients are connected and `force`
    /// is not set.
    pub(super) async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> Result<Vec<String>, ControlError> {
        let Shared { devices, vms, .. } = self.shared;
        let there = vms.find(vm)?;
        // A VM without disks could not be connected to, so the VM is to be removed instead.
        if there.disks.len() == 1 && there.disks[0].export == export {
            return Err(ControlError::LastDisk(export.to_owned()));
        }
        let (name, asked) = (vm.to_owned(), export.to_owned());
        let removed = devices.ask(there.device, |reply| Command::RemoveDisk {
            vm: name,
            export: asked,
            force,
            reply,
        });
        let closing = removed.await??;
        vms.change(vm, |vm| vm.disks.retain(|disk| disk.export != export));
        Ok(self.close(vm, closing).await)
    }

    /// Changes the size of a disk, in bytes, and returns the VM's snapshot. A smaller size requires
    /// `force`. If the disk has the size already, it is made durable.
    ///
    /// # Errors
    /// If there is no such disk, the size is not possible, or it is smaller and `force` is not set.
    /// The size has not changed then, except with [`ControlError::NotDurable`].
    pub(super) async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        let Shared { devices, vms, .. } = self.shared;
        let there = vms.find(vm)?;
        let (name, asked) = (vm.to_owned(), export.to_owned());
        let started = devices.ask(there.device, |reply| Command::StartResize {
            vm: name,
            export: asked,
            size,
            force,
            reply,
        });
        let resizing = started.await??;
        let (before, serial) = (resizing.before, resizing.serial);
        let disk = there.disks.iter().find(|disk| disk.export == export);
        // The loop has stopped I/O beyond a smaller size, so the file can be truncated.
        let given = resize_file(resizing, disk, size).await;
        // The size that the file has counts, even if it may not be durable.
        let has_new_size = given
            .as_ref()
            .map_or_else(|not| not.has_new_size, |()| true);
        let (name, asked) = (vm.to_owned(), export.to_owned());
        // Sent after a failure as well: the loop waits for it.
        let finished = devices.ask(there.device, |reply| Command::FinishResize {
            vm: name,
            export: asked,
            serial,
            size: if has_new_size { size } else { before },
            reply,
        });
        let (snapshot, volumes) = finished.await??;
        let device = &devices.entries()[there.device];
        self.shared.disks.publish(device, volumes, &snapshot);
        if has_new_size {
            self.update_size(vm, export, size);
        }
        given.map_err(|not| not.error(export, size))?;
        Ok(snapshot)
    }

    /// Updates a disk's size in the VM's configuration. If the configuration file gives no size,
    /// none is added.
    fn update_size(&self, vm: &str, export: &str, size: u64) {
        let vms = &self.shared.vms;
        let is_whole = !vms.is_configured(vm);
        vms.change(vm, |vm| {
            let disk = vm.disks.iter_mut().find(|disk| disk.export == export);
            if let Some(disk) = disk.filter(|disk| is_whole || disk.size.is_some()) {
                disk.size = Some(size);
            }
        });
    }

    /// Closes disks that were removed from a VM and deletes the store's records of them, so that
    /// new files may be created in their place. Disks of a VM in the configuration file keep their
    /// records, because the next start serves them again. Returns the disks that could not be
    /// flushed, with the reasons.
    async fn close(&self, vm: &str, removed: Vec<Disk>) -> Vec<String> {
        let Shared {
            vms,
            disks,
            persistence,
            ..
        } = self.shared;
        let closed = disks.close(removed).await;
        if !vms.is_configured(vm) {
            let paths = closed.files.iter().map(|file| file.path.clone()).collect();
            persistence.forget_paths(disks.files(), paths).await;
        }
        // Last: a disk that is opened on one of the files from here on has a record of its own.
        disks.release(&closed.files);
        closed.failed
    }
}

/// Resizes the file of a disk, or discards the tail of a disk in memory.
async fn resize_file(
    resizing: Resizing,
    disk: Option<&DiskConfig>,
    size: u64,
) -> Result<(), ResizeError> {
    let create = disk.map_or(Create::No, |disk| disk.create);
    let read_only = disk.is_some_and(|disk| disk.read_only);
    let given = spawn_blocking(move || {
        if let Some(tail) = resizing.tail {
            tail.discard();
        }
        let before = resizing.before;
        match resizing.file {
            Some(file) => {
                let sizes = Sizes { before, size };
                set_file_size(&file, create, read_only, sizes, File::sync_all)
            }
            None => Ok(()),
        }
    });
    let panicked = |_| Err(ResizeError::no("the call panicked".into()));
    given.await.unwrap_or_else(panicked)
}
