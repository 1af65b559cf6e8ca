//! Activation of a disk's file: the lock, which moves to another daemon with a migrating guest.
//!
//! ```text
//!   Active --requests fail, I/O ends, data durable, lock released--> HandedOver
//!   Incoming, HandedOver, LockedElsewhere --lock taken, caches dropped, file checked--> Active
//! ```
//!
//! A disk whose guest could not be started returns to the state before in the same way.
//!
//! A daemon reads and writes the file only between taking the lock and releasing it: the event
//! loop refuses I/O unless the disk is active, is told that it is only once the lock is held, and
//! lets go of the lock only after its I/O has ended. So two daemons never write at a time, in
//! whatever order they are asked to.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use super::file_lock::{LockedFile, can_punch, lock_file, mark_raw, open_same};
use super::inspect::{measure, refuse_foreign};
use super::{OpenError, cache_mode};
use crate::config::DiskConfig;
use crate::disk_file_monitor::Watched;
use crate::ownership::Ownership;
use crate::ring::sys;

/// State of a disk whose file may be served by several daemons, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ActivationState {
    /// The lock is held, and the disk is served.
    Active,
    /// The disk waits for a guest to arrive, and has not been active yet.
    Incoming,
    /// The guest has gone to another daemon.
    HandedOver,
    /// Another process had the lock when this daemon started: the guest may have gone there before.
    /// Like the others, the state ends only when a guest's queues start here.
    LockedElsewhere,
}

impl ActivationState {
    /// All states, indexed by their discriminant.
    const ALL: [ActivationState; 4] = [
        ActivationState::Active,
        ActivationState::Incoming,
        ActivationState::HandedOver,
        ActivationState::LockedElsewhere,
    ];

    /// Returns the reason why requests for a disk in this state fail; `None` for an active one.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            ActivationState::Active => None,
            ActivationState::Incoming => {
                Some("the disk is incoming: it is served once its guest runs here, by vhost-user")
            }
            ActivationState::HandedOver => Some(
                "the disk was handed over to another host with its guest; it is served again once \
                 its guest runs here",
            ),
            ActivationState::LockedElsewhere => Some(
                "the file of the disk was locked by another process when the daemon started; it is \
                 served once its guest runs here, by vhost-user; for NBD clients, restart the \
                 daemon once no other host uses the file",
            ),
        }
    }
}

/// Length of a file whose lock was not released yet.
const NEVER_RELEASED: u64 = u64::MAX;

/// Findings of [`Activation::lock`] that the disk's event loop needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// True if the file system can punch holes.
    pub can_punch: bool,
}

/// Arrival of a disk from another daemon, with a guest that migrated or for one that starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// True if the guest's driver knows a write-back cache; `None` if nobody has told.
    pub writeback: Option<bool>,
}

/// Front-ends that use a disk.
#[derive(Default, Debug)]
pub struct Users {
    /// Number of front-ends with queues that run, or are about to.
    pub count: u32,
    /// True while the lock is being released: it is held until what was written is durable, and no
    /// front-end may count on it.
    pub is_releasing: bool,
}

/// Lock of a writable disk's file, and who uses the disk by vhost-user.
#[derive(Debug)]
pub struct Activation {
    path: PathBuf,
    config: DiskConfig,
    /// File that is served, whose lock it is; gone when the disk is closed.
    file: Weak<File>,
    watched: Arc<Watched>,
    state: AtomicU8,
    /// True from taking the lock until what was written is durable and the lock is released.
    is_locked: AtomicBool,
    /// Cache mode that the guest's driver knows, which is handed over with the file.
    cache_mode: Mutex<Option<bool>>,
    /// True from taking the lock until a front-end has learnt of the arrival.
    has_arrived: AtomicBool,
    /// Length of the file in bytes when the lock was last released, 0 of a block device;
    /// [`NEVER_RELEASED`] before.
    released_len: AtomicU64,
    /// Claim on a block device while the lock is held.
    claim: Mutex<Option<File>>,
    /// Ownership of the lock, which ends when another daemon has taken over from this one.
    ownership: Ownership,
    /// Held while the state changes, which may block.
    users: Mutex<Users>,
}

/// Tells volumes apart: there is one of a disk.
impl PartialEq for Activation {
    fn eq(&self, other: &Activation) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Activation {}

impl Activation {
    /// Makes the activation of an open file, which is locked or waits for a guest, with the claim
    /// on a block device.
    pub(super) fn new(
        path: &Path,
        config: &DiskConfig,
        (is_locked, ownership): (bool, Ownership),
        (file, claim): (&Arc<File>, Option<File>),
        watched: Arc<Watched>,
    ) -> Activation {
        let state = if is_locked {
            ActivationState::Active
        } else {
            ActivationState::Incoming
        };
        Activation {
            path: path.to_owned(),
            config: config.clone(),
            file: Arc::downgrade(file),
            watched,
            state: AtomicU8::new(state as u8),
            is_locked: AtomicBool::new(is_locked),
            cache_mode: Mutex::default(),
            has_arrived: AtomicBool::new(false),
            released_len: AtomicU64::new(NEVER_RELEASED),
            claim: Mutex::new(claim),
            ownership,
            users: Mutex::default(),
        }
    }

    fn claim(&self) -> MutexGuard<'_, Option<File>> {
        // Changed by single assignments.
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cache mode that the guest's driver knows: true for a write-back cache.
    fn cache_mode(&self) -> MutexGuard<'_, Option<bool>> {
        // Changed by single assignments.
        (self.cache_mode.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the cache mode that goes with the file when it is handed over; `None` if it is unknown.
    pub fn set_cache_mode(&self, writeback: Option<bool>) {
        *self.cache_mode() = writeback;
    }

    /// Returns the arrival of the disk since the last call, for the front-end that uses it first.
    pub fn take_arrival(&self) -> Option<Arrival> {
        let arrived = self.has_arrived.swap(false, Ordering::AcqRel);
        arrived.then(|| Arrival {
            writeback: *self.cache_mode(),
        })
    }

    /// Returns true if a front-end's driver is the one that used the disk last: the disk is active,
    /// and has not arrived since.
    pub fn is_settled(&self) -> bool {
        self.state() == ActivationState::Active && !self.has_arrived.load(Ordering::Acquire)
    }

    /// Ends the claim on a block device, because its disk is closed.
    pub(super) fn drop_claim(&self) {
        drop(self.claim().take());
    }

    /// Returns the state.
    pub fn state(&self) -> ActivationState {
        ActivationState::ALL[usize::from(self.state.load(Ordering::Acquire))]
    }

    /// Returns true while the lock is held, so that closing the disk has to flush it.
    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Acquire)
    }

    /// Sets the state. The caller holds the [users](Activation::users).
    pub fn set_state(&self, state: ActivationState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Returns the front-ends that use the disk. No state changes while the guard is held.
    pub fn users(&self) -> MutexGuard<'_, Users> {
        // A panic leaves the lock of the file as it was, and the state with it.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the front-ends that use the disk, as [`Activation::users`] does; `None` while the
    /// state changes.
    pub(crate) fn try_users(&self) -> Option<MutexGuard<'_, Users>> {
        match self.users.try_lock() {
            Ok(users) => Some(users),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the ownership of the lock.
    pub(crate) fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Takes the lock of an active disk's file again, which another daemon had, too, and may have
    /// released.
    ///
    /// # Errors
    /// If another process has locked the file meanwhile.
    pub(crate) fn lock_again(&self) -> Result<(), OpenError> {
        let file = self.file()?;
        match sys::lock(&file, true) {
            Ok(true) => Ok(()),
            Ok(false) => Err(OpenError::InUse {
                path: self.path.clone(),
            }),
            Err(source) => Err(OpenError::Io {
                path: self.path.clone(),
                what: "lock",
                source,
            }),
        }
    }

    /// Returns copies of the open file and of the claim on a block device, for another daemon: the
    /// lock is held until all copies are closed.
    ///
    /// # Errors
    /// If the disk was closed, or the process has no free descriptor.
    pub(crate) fn locked_file(&self) -> std::io::Result<LockedFile> {
        let gone = || std::io::Error::other("the disk was removed");
        let file = self.file.upgrade().ok_or_else(gone)?.try_clone()?;
        let claim = self.claim().as_ref().map(File::try_clone).transpose()?;
        let ownership = Ownership::default();
        Ok(LockedFile {
            file,
            claim,
            ownership,
        })
    }

    fn file(&self) -> Result<Arc<File>, OpenError> {
        let gone = || OpenError::Io {
            path: self.path.clone(),
            what: "serve",
            source: std::io::Error::other("the disk was removed"),
        };
        self.file.upgrade().ok_or_else(gone)
    }

    /// Takes the lock, waiting for another process to release it for a bounded time, and forgets
    /// what is cached of the file. May block.
    ///
    /// # Errors
    /// If another process has the lock, or the file is not what it was when it was opened. The lock
    /// is not held then.
    pub fn lock(&self) -> Result<Found, OpenError> {
        let file = self.file()?;
        let claim = lock_file(&self.path, &file, true)?;
        let found = self.check(&file).inspect_err(|_| sys::unlock(&file))?;
        *self.claim() = claim;
        self.set_cache_mode(cache_mode::take(&file));
        self.has_arrived.store(true, Ordering::Release);
        self.is_locked.store(true, Ordering::Release);
        Ok(found)
    }

    /// Drops caches of a locked file and checks that it is the one that was opened.
    fn check(&self, file: &File) -> Result<Found, OpenError> {
        let failed = |what| {
            move |source| OpenError::Io {
                path: self.path.clone(),
                what,
                source,
            }
        };
        sys::drop_caches(file).map_err(failed("drop the cache of"))?;
        let meta = file.metadata().map_err(failed("inspect"))?;
        let identity = sys::identity(&meta);
        // Checks that the path leads to this file, and reads it without direct I/O.
        let plain = open_same(&self.path, identity, false, 0).map_err(failed("open"))?;
        let (block_device, ..) = identity;
        let size = self.expected_len(meta.len());
        let expected = DiskConfig {
            size: Some(size),
            ..self.config.clone()
        };
        measure(&self.path, &plain, block_device, false, &expected)?;
        // Content that was written here before the lock was released may look like any format.
        let was_served = self.released_len.load(Ordering::Acquire) != NEVER_RELEASED;
        if !was_served {
            refuse_foreign(&self.path, &plain, &self.config)?;
            mark_raw(&self.path, &plain, &self.config);
        }
        let can_punch = block_device || can_punch(file, size);
        Ok(Found { can_punch })
    }

    /// Returns the length in bytes that a file of `len` bytes, or the part of a block device that
    /// is served, should have: the size of the disk. A file that was longer while the disk was
    /// served may be so again: another process has extended it, for a resize. A length that has
    /// changed since the lock was released is that of another disk than the guest knows.
    fn expected_len(&self, len: u64) -> u64 {
        let size = self.watched.size();
        let was_longer = len > size && len == self.released_len.load(Ordering::Acquire);
        if was_longer { len } else { size }
    }

    /// Makes what was written durable, leaves the driver's cache mode with the file, and releases
    /// the lock. To be called once no I/O is in flight and none can begin. May block.
    ///
    /// # Errors
    /// If the data may not be durable; the lock is still held then.
    pub fn unlock(&self) -> std::io::Result<()> {
        // Without the disk nothing is locked: closing it has flushed it.
        if let Some(file) = self.file.upgrade() {
            sys::sync_data(&file)?;
            let writeback = *self.cache_mode();
            cache_mode::put(&file, writeback)?;
            // Under the lock, because the next owner may resize the disk.
            let len = file.metadata()?.len();
            self.released_len.store(len, Ordering::Release);
            self.is_locked.store(false, Ordering::Release);
            self.drop_claim();
            if self.ownership.is_own() {
                sys::unlock(&file);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "activation_tests.rs"]
mod tests;
