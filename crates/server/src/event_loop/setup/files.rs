//! Registry of the files behind disks: two disks on the same file are detected however the path is
//! spelt, through links and bind mounts too.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::SetupError;
use crate::backing::{Disk, LockedFile};
use crate::config::DiskConfig;
use crate::disk_file_monitor::Watched;
use crate::ring::sys;
use crate::store::absolute;

/// File identity as [`sys::identity`] returns it: file system and inode, or block device.
type Identity = (bool, u64, u64);

/// Files that the disks of a daemon have open, over all its devices. Clones share one registry. Its
/// lock is never held during a system call.
#[derive(Clone, Debug, Default)]
pub struct Files {
    used: Arc<Mutex<HashMap<Identity, Vec<User>>>>,
    /// Absolute paths of disks that the store knows to have been created or served before.
    known: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// Open files of another daemon's disks, which disks here are opened with.
    inherited: Arc<Mutex<HashMap<Identity, LockedFile>>>,
}

/// File of one open disk, as [`Files`] knows it. A later disk is another one, even if it has the
/// same export name or path.
#[derive(Clone, Debug)]
pub struct DiskFile {
    /// Path of the file as configured.
    pub(crate) path: PathBuf,
    /// Address that no other disk's state has while this is alive.
    watched: Weak<Watched>,
}

impl DiskFile {
    /// Returns the file of an open disk; `None` for a disk without a file.
    pub(crate) fn of(disk: &Disk) -> Option<DiskFile> {
        let watched = disk.medium.watched()?;
        Some(DiskFile {
            path: watched.path().to_owned(),
            watched: Arc::downgrade(watched),
        })
    }
}

/// Disk that uses a file.
#[derive(Clone, Debug)]
pub struct User {
    pub(super) vm: String,
    pub(super) export: String,
    pub(super) path: PathBuf,
    read_only: bool,
    watched: Weak<Watched>,
}

impl Files {
    /// Replaces the paths of disks that were created or served before.
    pub(crate) fn set_known(&self, paths: impl Iterator<Item = PathBuf>) {
        *self.lock_known() = paths.collect();
    }

    /// Has the next disks use these open files of another daemon. Files whose identity the kernel
    /// does not tell are left out.
    pub(crate) fn inherit(&self, files: impl IntoIterator<Item = LockedFile>) {
        let mut inherited = self.lock_inherited();
        for locked in files {
            if let Ok(meta) = locked.file.metadata() {
                inherited.insert(sys::identity(&meta), locked);
            }
        }
    }

    /// Takes the open file of another daemon at a path, if there is one.
    pub(super) fn take_inherited(&self, path: &Path) -> Option<LockedFile> {
        if self.lock_inherited().is_empty() {
            return None;
        }
        let meta = std::fs::metadata(path).ok()?;
        self.lock_inherited().remove(&sys::identity(&meta))
    }

    /// Closes the open files of another daemon that no disk has taken. Their locks end once the
    /// other daemon has closed them, too.
    pub(crate) fn drop_inherited(&self) {
        self.lock_inherited().clear();
    }

    fn lock_inherited(&self) -> MutexGuard<'_, HashMap<Identity, LockedFile>> {
        self.inherited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a disk at this path was created or served before, so that no new file may be
    /// created in its place.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.lock_known().contains(&absolute(path))
    }

    fn lock_known(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the observed state of each file, for the media watcher.
    pub(crate) fn watched(&self) -> Vec<Weak<Watched>> {
        let files = self.lock_used();
        let users = files.values().flatten();
        users.map(|user| user.watched.clone()).collect()
    }

    /// Refuses a file that another disk uses, unless both only read. The locks on files cannot name
    /// the other disk.
    pub(super) fn refuse_shared(
        &self,
        vm: &str,
        disk: &DiskConfig,
        path: &Path,
    ) -> Result<(), SetupError> {
        // A missing file is in no use; opening reports every other error.
        let Ok(meta) = std::fs::metadata(path) else {
            return Ok(());
        };
        let files = self.lock_used();
        let users = files.get(&sys::identity(&meta));
        let other = (users.into_iter().flatten()).find(|user| !(user.read_only && disk.read_only));
        match other {
            Some(user) => Err(SetupError::SameFile {
                vm: vm.to_owned(),
                export: disk.export.clone(),
                path: path.to_owned(),
                place: disk.place.clone().map(Box::new),
                first: Box::new(user.clone()),
            }),
            None => Ok(()),
        }
    }

    /// Records the file of a disk that was opened.
    pub(crate) fn add(&self, vm: &str, disk: &Disk, path: &Path) {
        let medium = &disk.medium;
        if let (Some(identity), Some(watched)) = (medium.identity(), medium.watched()) {
            self.lock_used().entry(identity).or_default().push(User {
                vm: vm.to_owned(),
                export: disk.export.clone(),
                path: path.to_owned(),
                read_only: disk.read_only,
                watched: Arc::downgrade(watched),
            });
        }
    }

    /// Removes a disk that has been closed. Another disk that has its export name by now stays.
    pub(crate) fn remove(&self, file: &DiskFile) {
        self.lock_used().retain(|_, users| {
            users.retain(|user| !user.watched.ptr_eq(&file.watched));
            !users.is_empty()
        });
    }

    fn lock_used(&self) -> MutexGuard<'_, HashMap<Identity, Vec<User>>> {
        // A panic cannot leave the map half changed: each change is one call.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Prepared;
    use super::*;

    #[test]
    fn two_disks_on_one_file_are_refused_by_name_unless_neither_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("real")).expect("writable");
        std::os::unix::fs::symlink("real", dir.path().join("link")).expect("writable");
        let open = |flags: &str| {
            let text = format!(
                "[[listen]]\nunix = \"s\"\n\
                 [[device]]\nname = \"disk0\"\nkind = \"file\"\n\
                 [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"real/d\"\n{flags}\n\
                 [[vm]]\nname = \"b\"\n[[vm.disk]]\npath = \"link/d\"\n{flags}\n"
            );
            let loaded = crate::config::parse(&text, "t", dir.path());
            let config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
            Prepared::open(&config, 0, &Files::default())
        };
        let refused = open("create = \"sparse\"\nsize = \"1 MiB\"").expect_err("one file");
        assert_eq!(refused.place().map(|place| place.line), Some(15));
        let message = refused.to_string();
        assert!(message.contains("VM \"b\", export \"b\""), "{message}");
        assert!(
            message.contains("real/d, which export \"a\" of VM \"a\" uses"),
            "{message}"
        );
        assert!(open("read_only = true").is_ok());
    }
}
