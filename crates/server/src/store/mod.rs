//! Store of everything that survives a restart: VMs that were added or changed with `--persist`,
//! their jobs, learnt state of controllers, and the disks that were served. One file, an embedded
//! database (redb), used by one daemon at a time.
//!
//! ```text
//!   absent --make beside it, link--> open --change: one transaction, one fsync--> open
//!                                     | ^
//!               an error of the disk  v |  next use: recovered, checked, upgraded
//!                                    shut
//! ```
//!
//! A change is durable when its call returns, and there whole or not at all after a crash. Where
//! the disk refuses one (it is full), the caller is told and the store shuts; the next use opens
//! it again with what was acknowledged. Every call may wait for the disk: the control plane makes
//! them on threads that may block, event loops never.

mod change;
#[cfg(test)]
mod crash_tests;
mod error;
mod file;
mod record;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable};

use crate::ring::sys;
use change::make_change;
use schema::{DEVICES, DISKS, JOBS, LEARNT, STEPS, SchemaError, VMS};

pub use change::Change;
pub use error::StoreError;
pub(crate) use record::whole;
pub use record::{KnownDisk, Scope, VmRecord};

/// The store.
pub struct Store {
    path: PathBuf,
    open: Box<Opener>,
    /// `None`: shut after an error.
    database: Mutex<Option<Opened>>,
}

/// Opens what is there, recovered and checked.
type Opener = dyn Fn() -> Result<Opened, DatabaseError> + Send + Sync;

struct Opened {
    database: Database,
    /// Its filesystem and inode; `None` in memory.
    identity: Option<(bool, u64, u64)>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.path).finish()
    }
}

impl Store {
    /// Opens the store in this file, which is made where there is none.
    ///
    /// # Errors
    /// When it cannot be read and written, holds something else, another process has it open, a
    /// newer Tidegate wrote it, or it is damaged. It is left as it was.
    pub fn open(path: impl Into<PathBuf>) -> Result<Store, StoreError> {
        Store::open_known(path, |_| Ok(()))
    }

    /// Opens the store in this file as [`Store::open`] does, unless `known` refuses a copy of it:
    /// opening the file itself writes to it, and what this build cannot read stays as it is.
    ///
    /// # Errors
    /// As [`Store::open`], and those of `known`.
    pub fn open_known<E: From<StoreError>>(
        path: impl Into<PathBuf>,
        known: impl FnOnce(&Store) -> Result<(), E>,
    ) -> Result<Store, E> {
        let path = path.into();
        let failed = |what| {
            let path = path.clone();
            move |source| StoreError::Io { path, what, source }
        };
        if !path.try_exists().map_err(failed("look for the store"))? {
            file::make(&path)?;
        }
        file::refuse_others(&path)?;
        // A copy that cannot be read says nothing that opening the file would not say better.
        let copied = file::copy(&path);
        match copied.map(|bytes| Store::over(path.clone(), move || file::in_memory(&bytes))) {
            Ok(Ok(copy)) => known(&copy)?,
            Ok(Err(error @ StoreError::Newer { .. })) => return Err(error.into()),
            Ok(Err(_)) | Err(_) => {}
        }
        let place = path.clone();
        Ok(Store::over(path, move || file::open(&place))?)
    }

    /// The VMs that are kept in this file, by name, without opening it: it is not touched, and may
    /// be a daemon's that runs. None where there is no such file.
    ///
    /// # Errors
    /// As [`Store::open`], but for who has it open.
    pub fn look(path: impl Into<PathBuf>) -> Result<Vec<VmRecord>, StoreError> {
        let path = path.into();
        let failed = |source| StoreError::Io {
            path: path.clone(),
            what: "read the store",
            source,
        };
        if !path.try_exists().map_err(failed)? {
            return Ok(Vec::new());
        }
        file::refuse_others(&path)?;
        let bytes = file::copy(&path).map_err(failed)?;
        Store::over(path, move || file::in_memory(&bytes))?.vms()
    }

    fn over(
        path: PathBuf,
        open: impl Fn() -> Result<Opened, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Store, StoreError> {
        let store = Store {
            path,
            open: Box::new(open),
            database: Mutex::default(),
        };
        // Whatever is wrong with it is for the start to find, not for the first change.
        store.with("open the store", |_| Ok(()))?;
        Ok(store)
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a VM, in place of what was kept under its name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put_vm(&self, vm: &VmRecord) -> Result<(), StoreError> {
        self.apply(&[Change::PutVm(vm)]).map(drop)
    }

    /// Forgets the VM of this name. Whether it was there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn remove_vm(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.apply(&[Change::RemoveVm(name)])? > 0)
    }

    /// Keeps what a policy's controller has learnt of a VM on a device.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put_learnt(
        &self,
        device: &str,
        policy: &str,
        vm: &str,
        state: &[u8],
    ) -> Result<(), StoreError> {
        let change = Change::PutLearnt {
            device,
            policy,
            vm,
            state,
        };
        self.apply(&[change]).map(drop)
    }

    /// Forgets what was learnt of a VM. Whether there was anything.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forget_learnt(&self, vm: &str) -> Result<bool, StoreError> {
        Ok(self.apply(&[Change::ForgetLearnt { vm }])? > 0)
    }

    /// Makes several changes in one transaction, in this order: all of them or none. Returns how
    /// many of them changed anything; where none did, nothing is written.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn apply(&self, changes: &[Change<'_>]) -> Result<usize, StoreError> {
        self.with("write to the store", |database| {
            let write = database.begin_write()?;
            let mut changed = 0;
            for change in changes {
                changed += usize::from(make_change(&write, change)?);
            }
            match changed {
                0 => write.abort()?,
                _ => write.commit()?,
            }
            Ok(changed)
        })
    }

    /// What is kept of a VM.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn vm(&self, name: &str) -> Result<Option<VmRecord>, StoreError> {
        self.with("read the store", |database| {
            let vms = database.begin_read()?.open_table(VMS)?;
            let kept = vms.get(name)?;
            kept.map(|kept| VmRecord::from_row(name, kept.value()))
                .transpose()
        })
    }

    /// Every VM that is kept, by name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn vms(&self) -> Result<Vec<VmRecord>, StoreError> {
        self.with("read the store", |database| {
            let vms = database.begin_read()?.open_table(VMS)?;
            let mut records = Vec::new();
            for entry in vms.iter()? {
                let (name, kept) = entry?;
                records.push(VmRecord::from_row(name.value(), kept.value())?);
            }
            Ok(records)
        })
    }

    /// What a policy's controller has learnt of a VM on a device.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn learnt(
        &self,
        device: &str,
        policy: &str,
        vm: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.with("read the store", |database| {
            let learnt = database.begin_read()?.open_table(LEARNT)?;
            let state = learnt.get((vm, device, policy))?;
            Ok(state.map(|state| state.value().to_owned()))
        })
    }

    /// What was learnt of a device itself, under the name of what it is about: which device that
    /// was, and the state.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn device(
        &self,
        device: &str,
        part: &str,
    ) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        self.with("read the store", |database| {
            let devices = database.begin_read()?.open_table(DEVICES)?;
            let kept = devices.get((device, part))?;
            Ok(kept.map(|kept| {
                let (identity, state) = kept.value();
                (identity.to_owned(), state.to_owned())
            }))
        })
    }

    /// The jobs that are kept of VMs of a device, in words, with the VMs' names.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn jobs(&self, device: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.with("read the store", |database| {
            let jobs = database.begin_read()?.open_table(JOBS)?;
            let mut kept = Vec::new();
            for entry in jobs.range((device, "")..)? {
                let (key, words) = entry?;
                let (on, vm) = key.value();
                if on != device {
                    break;
                }
                kept.push((vm.to_owned(), words.value().to_owned()));
            }
            Ok(kept)
        })
    }

    /// Returns the disks that were created or served, ordered by path.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn disks(&self) -> Result<Vec<KnownDisk>, StoreError> {
        self.with("read the store", |database| {
            let disks = database.begin_read()?.open_table(DISKS)?;
            let mut known = Vec::new();
            for entry in disks.iter()? {
                let (path, row) = entry?;
                let (export, vm) = row.value();
                known.push(KnownDisk {
                    path: path.value().to_owned(),
                    export: export.to_owned(),
                    vm: vm.to_owned(),
                });
            }
            Ok(known)
        })
    }

    /// Deletes the records of disks with this export name or path. Returns true if there were any.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget_disk(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.apply(&[Change::ForgetDisk { name }])? > 0)
    }

    /// Does something with the database, which is opened where it is shut, and shut where that
    /// fails.
    fn with<T>(
        &self,
        what: &'static str,
        act: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        // A panic in there leaves the database as a crash would, and it is made for those.
        let mut guard = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match guard.take() {
            Some(opened) => opened,
            None => self.reopen()?,
        };
        let opened = guard.insert(opened);
        if let Some(identity) = opened.identity {
            self.check_identity(identity)?;
        }
        act(&opened.database).map_err(|error| {
            *guard = None;
            self.classify(what, error)
        })
    }

    fn reopen(&self) -> Result<Opened, StoreError> {
        let what = "open the store";
        let opened = (self.open)().map_err(|error| self.classify(what, error.into()))?;
        match schema::upgrade(&opened.database, STEPS) {
            Ok(()) => Ok(opened),
            Err(SchemaError::Newer(found, known)) => Err(StoreError::Newer {
                path: self.path.clone(),
                found,
                known,
            }),
            Err(SchemaError::Foreign) => Err(StoreError::NotAStore {
                path: self.path.clone(),
                found: "the database of another program".to_owned(),
            }),
            Err(SchemaError::Database(error)) => Err(self.classify(what, error)),
        }
    }

    /// What is written to a file that no path leads to any more is lost at the next start.
    fn check_identity(&self, identity: (bool, u64, u64)) -> Result<(), StoreError> {
        let there = std::fs::metadata(&self.path).map(|meta| sys::identity(&meta));
        match there {
            Ok(there) if there == identity => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.classify("look for the store", error.into()))
            }
            _ => Err(StoreError::Replaced {
                path: self.path.clone(),
            }),
        }
    }

    fn classify(&self, what: &'static str, error: redb::Error) -> StoreError {
        let path = self.path.clone();
        match error {
            redb::Error::Io(source) => StoreError::Io { path, what, source },
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => {
                StoreError::InUse { path }
            }
            redb::Error::UpgradeRequired(version) => StoreError::NotAStore {
                path,
                found: format!("a database of redb's format {version}"),
            },
            other => StoreError::Damaged {
                path,
                why: other.to_string(),
            },
        }
    }
}
