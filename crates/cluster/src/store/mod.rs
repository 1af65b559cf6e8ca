//! Stores of a cluster's state, with optimistic concurrency.
//!
//! Each state has a [`Revision`]. A writer loads a state, decides, and commits its changes against
//! the loaded revision. If another writer was first, the commit fails with the present revision,
//! and the writer starts again. No lock is held between load and commit.
//!
//! | implementation | writers |
//! |---|---|
//! | [`RedbStore`] | one process at a time has the file open |
//! | [`MemoryStore`] | threads of one process; not persistent: tests and read-only runs |
//! | `EtcdStore`, feature `etcd` | any number of processes on any hosts |
//!
//! Another implementation is a file beside these that passes `tests/suite/conformance.rs`.

#[cfg(feature = "etcd")]
mod etcd;
mod memory;
mod redb;

use std::collections::BTreeMap;

use crate::change::Change;
use crate::clock::PublishedClock;
use crate::part::Touched;
use crate::record::HostRecord;
use crate::state::{ClusterState, Inconsistent};

#[cfg(feature = "etcd")]
pub(crate) use etcd::member;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdOptions, EtcdStore, EtcdTls, EtcdUser, EtcdWatch, MemberStatus, WatchEvent};
pub use memory::MemoryStore;
pub use redb::RedbStore;

/// Number of a state; every commit increments it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Revision(pub u64);

impl Revision {
    /// Revision of an empty store.
    pub const EMPTY: Revision = Revision(0);

    /// Revision of the next commit.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

/// State of a cluster with its revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Revision of the commit that created the state.
    pub revision: Revision,
    /// State without live transfers.
    pub state: ClusterState,
}

/// Changes of a state that other writers have committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// Whole state.
    State(Snapshot),
    /// Records that have changed; no host has come, gone or moved.
    Part {
        /// Present revision.
        revision: Revision,
        /// Names of the records.
        touched: Touched,
        /// Records, at their positions; those that are not there were deleted.
        part: ClusterState,
        /// Learnt priority databases by host.
        learnt: BTreeMap<String, Vec<u8>>,
    },
}

/// Store of one cluster's state.
///
/// A commit is durable when it returns, and atomic with respect to crashes.
pub trait ClusterStore: Send + Sync {
    /// Returns the present state, or `None` if its revision is `known`. With [`Revision::EMPTY`]
    /// the result is `None` only for an empty store.
    ///
    /// # Errors
    /// The store cannot be read or contains something else.
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError>;

    /// Returns the priority database of a host, as last committed, also for deleted hosts. It may
    /// be newer than an earlier loaded state, whose commit would fail then.
    ///
    /// # Errors
    /// The store cannot be read.
    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Returns what has changed since the state of `known`; `None`: nothing, so that a commit on it
    /// holds unless another writer comes first. A store that can tell single records does so.
    ///
    /// # Errors
    /// The store cannot be read or contains something else.
    fn changes_since(&self, known: Revision) -> Result<Option<Update>, StoreError> {
        Ok(self.load(known)?.map(Update::State))
    }

    /// Returns the priority databases of `hosts` that have one, by name, as
    /// [`learnt`](ClusterStore::learnt) does one by one.
    ///
    /// # Errors
    /// The store cannot be read.
    fn learnt_by_all(&self, hosts: &[HostRecord]) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        let mut all = BTreeMap::new();
        for host in hosts {
            if let Some(database) = self.learnt(&host.name)? {
                all.insert(host.name.clone(), database);
            }
        }
        Ok(all)
    }

    /// Returns the wall clocks of hosts whose daemons are registered, as they have published them;
    /// none in a store in which no daemon registers.
    ///
    /// # Errors
    /// The store cannot be read.
    fn clocks(&self) -> Result<Vec<PublishedClock>, StoreError> {
        Ok(Vec::new())
    }

    /// Applies changes to the state of `revision`, in order and all or nothing. Returns the
    /// resulting revision, which is `revision` itself if there are no changes.
    ///
    /// # Errors
    /// - [`StoreError::Conflict`]: the present revision is a different one.
    /// - [`StoreError::Inconsistent`]: the result would violate an invariant of states.
    /// - Others: the store cannot be written.
    ///
    /// Nothing is changed after an error, except that the outcome of a failed write and of
    /// [`StoreError::OutcomeUnknown`] is only known after the next load.
    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError>;

    /// Applies changes that remove a placed transfer as [`commit`](ClusterStore::commit) does, but
    /// only as long as no daemon has confirmed that it has begun. The host's daemon had joined when
    /// the transfer was placed, so its start was recorded.
    ///
    /// # Errors
    /// As for `commit`, and [`StoreError::HasBegun`]: nothing is changed, because the transfer has
    /// begun.
    fn commit_unless_begun(
        &self,
        revision: Revision,
        changes: &[Change],
        transfer: &str,
    ) -> Result<Revision, StoreError> {
        // No daemon has a part in stores that do not record starts.
        let _ = transfer;
        self.commit(revision, changes)
    }
}

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer has committed since the state was loaded.
    #[error("another writer has changed the cluster meanwhile: it is at revision {}", present.0)]
    Conflict {
        /// Present revision.
        present: Revision,
    },
    /// Changes that would violate an invariant of states.
    #[error("the changes do not fit the cluster: {0}")]
    Inconsistent(#[from] Inconsistent),
    /// Stored bytes that are not a valid state.
    #[error("the stored state is damaged: {0}")]
    Damaged(String),
    /// Stored state of another format.
    #[error("the stored state has format {found}, this version of Tidegate reads format {known}")]
    Version {
        /// Format of the stored state.
        found: u32,
        /// Format that this version reads.
        known: u32,
    },
    /// Record whose value is damaged, or does not fit other records.
    #[error("key {key} is damaged: {why}")]
    DamagedRecord {
        /// Key of the record.
        key: String,
        /// Reason.
        why: String,
    },
    /// Record of another schema.
    #[error("key {key} has schema {found}, this version of Tidegate reads schema {known}")]
    RecordVersion {
        /// Key of the record.
        key: String,
        /// Schema of the stored record.
        found: u32,
        /// Schema that this version reads.
        known: u32,
    },
    /// Shared store that cannot be reached; nothing was changed.
    #[error("etcd does not answer: {why}")]
    Unavailable {
        /// URLs of all members that were asked.
        endpoints: String,
        /// URL of the last one, and its error.
        why: String,
    },
    /// Commit whose answer was lost. The next load shows its outcome.
    #[error("etcd did not say whether the change was stored: {0}")]
    OutcomeUnknown(String),
    /// Removal of a transfer that its daemon has started; nothing was changed.
    #[error("job {transfer:?} has begun")]
    HasBegun {
        /// Name of the transfer.
        transfer: String,
    },
    /// User without the necessary rights.
    #[error("etcd refuses access: {0}")]
    Denied(String),
    /// Commit that is too large for the store; nothing was changed.
    #[error("the change is too large for etcd: {0}")]
    TooLarge(String),
    /// Error of the underlying database.
    #[error("{0}")]
    Backend(Box<dyn std::error::Error + Send + Sync>),
}
