//! What shall survive a restart: VMs that were added or changed with `--persist`, and what
//! controllers have learnt. One file, an embedded database (redb), one daemon at a time.
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

#[cfg(test)]
mod crash_tests;
mod error;
mod record;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, Table, WriteTransaction};

use crate::ring::sys;
use schema::{LEARNT, LearntKey, STEPS, SchemaError, VMS};

pub use error::StoreError;
pub use record::{Scope, VmRecord};

/// Memory for pages of the file. Everything in it is read once, at start.
const CACHE: usize = 1 << 20;
/// What every file of redb begins with.
const MAGIC: &[u8; 9] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// One of several changes that are made together.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Keeps a VM, in place of what was kept under its name.
    PutVm(&'a VmRecord),
    /// Forgets the VM of this name; not what its controllers have learnt.
    RemoveVm(&'a str),
    /// Keeps what a policy's controller has learnt of a VM on a device.
    PutLearnt {
        /// The device's name.
        device: &'a str,
        /// The policy's name.
        policy: &'a str,
        /// The VM's name.
        vm: &'a str,
        /// What the controller exported.
        state: &'a [u8],
    },
    /// Keeps what a policy's controller has learnt of these VMs on a device, and nothing of others.
    ReplaceLearnt {
        /// The device's name.
        device: &'a str,
        /// The policy's name.
        policy: &'a str,
        /// What it exported, with the VMs' names.
        states: &'a [(&'a str, &'a [u8])],
    },
    /// Forgets what was learnt of a VM, on every device by every policy.
    ForgetLearnt {
        /// The VM's name.
        vm: &'a str,
    },
}

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
        let path = path.into();
        let failed = |what| {
            let path = path.clone();
            move |source| StoreError::Io { path, what, source }
        };
        if !path.try_exists().map_err(failed("look for the store"))? {
            make(&path)?;
        }
        refuse_others(&path)?;
        let file = path.clone();
        Store::over(path, move || open_file(&file))
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
            kept.map(|kept| record(name, kept.value())).transpose()
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
                records.push(record(name.value(), kept.value())?);
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

/// Makes one of the changes. Whether anything changed by it.
fn make_change(write: &WriteTransaction, change: &Change<'_>) -> Result<bool, redb::Error> {
    match *change {
        Change::PutVm(vm) => {
            let mut vms = write.open_table(VMS)?;
            let kept = (vm.version, vm.scope.to_byte(), vm.text.as_str());
            if (vms.get(vm.name.as_str())?).is_some_and(|there| there.value() == kept) {
                return Ok(false);
            }
            vms.insert(vm.name.as_str(), kept)?;
            Ok(true)
        }
        Change::RemoveVm(name) => Ok(write.open_table(VMS)?.remove(name)?.is_some()),
        Change::PutLearnt {
            device,
            policy,
            vm,
            state,
        } => put_learnt(&mut write.open_table(LEARNT)?, (vm, device, policy), state),
        Change::ReplaceLearnt {
            device,
            policy,
            states,
        } => {
            let mut learnt = write.open_table(LEARNT)?;
            let names: BTreeSet<&str> = states.iter().map(|(vm, _)| *vm).collect();
            let mut changed = false;
            learnt.retain(|(vm, on, by), _| {
                let stays = (on, by) != (device, policy) || names.contains(vm);
                changed |= !stays;
                stays
            })?;
            for (vm, state) in states {
                changed |= put_learnt(&mut learnt, (vm, device, policy), state)?;
            }
            Ok(changed)
        }
        Change::ForgetLearnt { vm } => {
            let mut learnt = write.open_table(LEARNT)?;
            let mut forgotten = false;
            // A name followed by NUL is the next one in order; no VM's name has one in it.
            let next = format!("{vm}\0");
            learnt.retain_in((vm, "", "")..(next.as_str(), "", ""), |_, _| {
                forgotten = true;
                false
            })?;
            Ok(forgotten)
        }
    }
}

fn put_learnt(
    learnt: &mut Table<'_, LearntKey, &'static [u8]>,
    key: (&str, &str, &str),
    state: &[u8],
) -> Result<bool, redb::Error> {
    if (learnt.get(key)?).is_some_and(|there| there.value() == state) {
        return Ok(false);
    }
    learnt.insert(key, state)?;
    Ok(true)
}

fn record(name: &str, (version, scope, text): (u32, u8, &str)) -> Result<VmRecord, redb::Error> {
    let scope = Scope::from_byte(scope)
        .ok_or_else(|| redb::Error::Corrupted(format!("VM {name:?} has the scope {scope}")))?;
    Ok(VmRecord {
        name: name.to_owned(),
        scope,
        version,
        text: text.to_owned(),
    })
}

/// Makes an empty store beside its place and puts it there whole, so that no crash leaves half of
/// one. Where another process was faster, its store stands.
fn make(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io {
        path: path.to_owned(),
        what: "make the store",
        source,
    };
    // A name that nobody else has, should another daemon be making one.
    let unique = RandomState::new().build_hasher().finish();
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".new-{unique:016x}"));
    let beside = PathBuf::from(beside);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&beside).map_err(failed)?;
    let made = fill(file)
        .and_then(|()| match std::fs::hard_link(&beside, path) {
            Err(error) => match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                // What filesystems without hard links say.
                io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
                    std::fs::rename(&beside, path)
                }
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        })
        .and_then(|()| sync_directory(path));
    // Where it was renamed it is not there any more.
    let _ = std::fs::remove_file(&beside);
    made.map_err(failed)
}

/// Makes an empty file a database with today's schema.
fn fill(file: File) -> io::Result<()> {
    let other = |error: redb::Error| match error {
        redb::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    };
    let backend = FileBackend::new(file).map_err(|e| other(e.into()))?;
    let database = (builder().create_with_backend(backend)).map_err(|e| other(e.into()))?;
    schema::upgrade(&database, STEPS).map_err(|error| match error {
        SchemaError::Database(error) => other(error),
        // Only where somebody wrote to it in between.
        refused => io::Error::other(format!("{refused:?}")),
    })?;
    database.close().map_err(|error| other(error.into()))
}

/// Makes the name of a new file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Refuses what is no database, before anything could write to it.
fn refuse_others(path: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        what: "read the store",
        source,
    };
    let not = |found: &str| StoreError::NotAStore {
        path: path.to_owned(),
        found: found.to_owned(),
    };
    let meta = std::fs::metadata(path).map_err(io)?;
    if !meta.is_file() {
        return Err(not("not a regular file"));
    }
    if meta.len() == 0 {
        return Err(not("an empty file"));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(io)?;
    let length = MAGIC.len() as u64;
    file.take(length).read_to_end(&mut start).map_err(io)?;
    match start == MAGIC {
        true => Ok(()),
        false => Err(not("a file of another kind")),
    }
}

fn open_file(path: &Path) -> Result<Opened, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // After a failed fsync memory may hold what the disk does not: whatever is kept from here on
    // is to be what a restart of the machine would find.
    file.sync_data()?;
    sys::drop_cached(&file)?;
    let identity = Some(sys::identity(&file.metadata()?));
    let database = builder().create_with_backend(FileBackend::new(file)?)?;
    Ok(Opened { database, identity })
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    // A file that was changed from outside is refused; without this it may be trusted.
    builder.set_check_integrity_on_open(true);
    builder
}
