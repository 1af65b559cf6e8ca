//! Store of everything that survives a restart: VMs that were added or changed with `--persist`,
//! their transfers, learnt state of controllers, and the disks that were served. One file, an
//! embedded database (redb), used by one daemon at a time.
//!
//! ```text
//!   absent --make beside it, link--> open --change: one transaction, one fsync--> open
//!                                     | ^
//!               an error of the disk  v |  next use: recovered, checked, upgraded
//!                                    shut
//! ```
//!
//! A change is durable when its call returns, and atomic in a crash. If the disk refuses a change,
//! for example because it is full, the caller gets the error and the store is shut; the next use
//! opens it again with the changes that were acknowledged. Every call may wait for the disk: the
//! control plane makes them on threads that may block, event loops never make them.

mod change;
#[cfg(test)]
mod crash_tests;
mod error;
mod file;
mod record;
mod schema;
#[cfg(test)]
mod tests;
mod token_record;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable};

use crate::ring::sys;
use change::make_change;
use schema::{DEVICES, DISKS, LEARNT, STEPS, SchemaError, TOKENS, TRANSFERS, VMS};

pub use change::Change;
pub use error::StoreError;
pub(crate) use record::absolute;
pub use record::{KnownDisk, Scope, VmRecord};
pub use token_record::{TokenError, TokenRecord};

/// Store of a daemon. See the module's documentation.
pub struct Store {
    path: PathBuf,
    open: Box<Opener>,
    /// Open database; `None` after an error, until the next use.
    database: Mutex<Option<Opened>>,
    /// True while another process may have the file.
    is_released: AtomicBool,
}

/// Function that opens the database, recovered and checked.
type Opener = dyn Fn() -> Result<Opened, DatabaseError> + Send + Sync;

struct Opened {
    database: Database,
    /// Device and inode of the file; `None` for a database in memory.
    identity: Option<(bool, u64, u64)>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.path).finish()
    }
}

impl Store {
    /// Opens the store in a file, which is created if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read and written, is no store, is in use, was written by a newer
    /// Tidegate, or is damaged. The file is not changed then.
    pub fn open(path: impl Into<PathBuf>) -> Result<Store, StoreError> {
        Store::open_known(path, |_| Ok(()))
    }

    /// Opens the store in a file unless `known` refuses a copy of it. Opening a redb file writes to
    /// it, so a store that this build cannot read would otherwise be changed.
    ///
    /// # Errors
    /// Those of [`Store::open`] and of `known`.
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
            file::create(&path)?;
        }
        file::check_is_database(&path)?;
        // If the copy cannot be read, opening the file gives the better error.
        let copied = file::read_consistent(&path);
        match copied.map(|bytes| Store::with_opener(path.clone(), move || file::in_memory(&bytes)))
        {
            Ok(Ok(copy)) => known(&copy)?,
            Ok(Err(error @ StoreError::Newer { .. })) => return Err(error.into()),
            Ok(Err(_)) | Err(_) => {}
        }
        let place = path.clone();
        Ok(Store::with_opener(path, move || file::open(&place))?)
    }

    /// Returns the VMs in a store, ordered by name, from a copy: the file is not touched and may be
    /// in use by a daemon. Returns none if the file does not exist.
    ///
    /// # Errors
    /// Those of [`Store::open`], except that the store may be in use.
    pub fn read_vms(path: impl Into<PathBuf>) -> Result<Vec<VmRecord>, StoreError> {
        let path = path.into();
        let failed = |source| StoreError::Io {
            path: path.clone(),
            what: "read the store",
            source,
        };
        if !path.try_exists().map_err(failed)? {
            return Ok(Vec::new());
        }
        file::check_is_database(&path)?;
        let bytes = file::read_consistent(&path).map_err(failed)?;
        Store::with_opener(path, move || file::in_memory(&bytes))?.vms()
    }

    fn with_opener(
        path: PathBuf,
        open: impl Fn() -> Result<Opened, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Store, StoreError> {
        let store = Store {
            path,
            open: Box::new(open),
            database: Mutex::default(),
            is_released: AtomicBool::new(false),
        };
        // Opened once at once, so that a broken store is an error at start instead of at the first
        // change.
        store.with("open the store", |_| Ok(()))?;
        Ok(store)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a VM's record, replacing one of the same name.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn put_vm(&self, vm: &VmRecord) -> Result<(), StoreError> {
        self.apply(&[Change::PutVm(vm)]).map(drop)
    }

    /// Deletes a VM's record. Returns true if there was one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn remove_vm(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.apply(&[Change::RemoveVm(name)])? > 0)
    }

    /// Writes the state that a policy's controller has learnt of a VM on a device.
    ///
    /// # Errors
    /// If the file cannot be written.
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

    /// Deletes the learnt states of a VM. Returns true if there were any.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget_learnt(&self, vm: &str) -> Result<bool, StoreError> {
        Ok(self.apply(&[Change::ForgetLearnt { vm }])? > 0)
    }

    /// Applies changes in one transaction, in this order: all of them or none. Returns the number
    /// of changes that altered a record; if that is 0, nothing is written.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn apply(&self, changes: &[Change<'_>]) -> Result<usize, StoreError> {
        self.with("write to the store", |database| {
            let write = database.begin_write()?;
            let mut changed = 0;
            for change in changes {
                changed += usize::from(make_change(&write, change)?);
            }
            match changed {
                // An empty commit would still cost an fsync.
                0 => write.abort()?,
                _ => write.commit()?,
            }
            Ok(changed)
        })
    }

    /// Returns the record of a VM.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn vm(&self, name: &str) -> Result<Option<VmRecord>, StoreError> {
        self.with("read the store", |database| {
            let vms = database.begin_read()?.open_table(VMS)?;
            let kept = vms.get(name)?;
            kept.map(|kept| VmRecord::from_row(name, kept.value()))
                .transpose()
        })
    }

    /// Returns the records of all VMs, ordered by name.
    ///
    /// # Errors
    /// If the file cannot be read.
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

    /// Returns the state that a policy's controller has learnt of a VM on a device.
    ///
    /// # Errors
    /// If the file cannot be read.
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

    /// Returns a learnt state of a device itself, by the state's name, with the identity of the
    /// block devices on which it was learnt.
    ///
    /// # Errors
    /// If the file cannot be read.
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

    /// Returns the deadline transfers of a device's VMs as JSON, by name of the VM.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn transfers(&self, device: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.with("read the store", |database| {
            let transfers = database.begin_read()?.open_table(TRANSFERS)?;
            let mut kept = Vec::new();
            for entry in transfers.range((device, "")..)? {
                let (key, words) = entry?;
                let (on, vm) = key.value();
                // Keys are ordered by device first, so the device's transfers are together.
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

    /// Returns the tokens of the control API, ordered by name; an error in place of one that this
    /// build does not understand.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn tokens(&self) -> Result<Vec<Result<TokenRecord, TokenError>>, StoreError> {
        self.with("read the store", |database| {
            let tokens = database.begin_read()?.open_table(TOKENS)?;
            let mut records = Vec::new();
            for entry in tokens.iter()? {
                let (name, row) = entry?;
                records.push(TokenRecord::from_row(name.value(), row.value()));
            }
            Ok(records)
        })
    }

    /// Deletes the records of disks with this export name or path. Returns true if there were any.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget_disk(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.apply(&[Change::ForgetDisk { name }])? > 0)
    }

    /// Closes the file, which another process may open then. Every use fails until
    /// [`Store::reclaim`].
    pub fn release(&self) {
        let mut guard = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_released.store(true, Ordering::Relaxed);
        *guard = None;
    }

    /// Ends [`Store::release`]: the next use opens the file again.
    pub fn reclaim(&self) {
        self.is_released.store(false, Ordering::Relaxed);
    }

    /// Runs `act` on the database: opens it if it is shut, and shuts it if `act` fails. `what`
    /// names the action in errors.
    fn with<T>(
        &self,
        what: &'static str,
        act: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        // A panic inside leaves the database as a crash would, from which redb recovers.
        let mut guard = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match guard.take() {
            Some(opened) => opened,
            None if self.is_released.load(Ordering::Relaxed) => {
                let path = self.path.clone();
                return Err(StoreError::InUse { path });
            }
            None => self.reopen()?,
        };
        let opened = guard.insert(opened);
        if let Some(identity) = opened.identity {
            self.check_identity(identity)?;
        }
        act(&opened.database).map_err(|error| {
            // Closed: redb refuses further writes after an I/O error, and reopening recovers.
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

    /// Checks that the path still leads to the open file, because writes to an unlinked file would
    /// be lost at the next start.
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
