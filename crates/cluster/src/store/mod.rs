//! Stores of a cluster's state, with optimistic concurrency.
//!
//! Each state has a [`Revision`]. A writer loads a state, decides, and commits its changes for the
//! revision that it has loaded; if somebody else was first the commit fails with the revision that
//! is present, and the writer begins again with that. No lock is held between load and commit.
//!
//! | implementation | writers |
//! |---|---|
//! | [`RedbStore`] | one process at a time has the file open |
//! | [`MemoryStore`] | threads of one process; nothing is kept: tests, and runs that only look |
//!
//! A third one is a file beside these that passes `tests/suite/conformance.rs`. With etcd each
//! record would be a key below one prefix (`hosts/NAME`, `transfers/NAME`, `placements/NAME`,
//! `entitlements/NAME`, `learnt/NAME`, `settings`) and the revision a key that every commit
//! increments, so that a commit is one transaction: compare the revision key, put and delete the
//! rest. Records carry the number of their first put there, since a state has an order.

mod memory;
mod redb;

use crate::change::Change;
use crate::state::{ClusterState, Inconsistent};

pub use memory::MemoryStore;
pub use redb::RedbStore;

/// Number of a state; each commit makes a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Revision(pub u64);

impl Revision {
    /// Revision of a store to which nothing was ever committed.
    pub const EMPTY: Revision = Revision(0);

    /// Returns the revision of the next commit.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

/// State of a cluster at a revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Revision of the commit that made the state.
    pub revision: Revision,
    /// State without live transfers.
    pub state: ClusterState,
}

/// Store of one cluster's state.
///
/// A commit is durable when it returns, and there whole or not at all after a crash.
pub trait ClusterStore: Send + Sync {
    /// Returns the present state, or `None` if its revision is `known`. [`Revision::EMPTY`] loads
    /// whatever there is; the result is `None` then if nothing was ever committed.
    ///
    /// # Errors
    /// If the store cannot be read, or holds something else.
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError>;

    /// Returns what the priority database of a host has learnt, as it was put last; hosts that were
    /// deleted included. It may be of a later revision than a state that was loaded before, and a
    /// commit for that state fails then.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Makes changes to the state of a revision, all of them or none, in their order. Returns the
    /// revision of the result, which is that of the argument if there are no changes.
    ///
    /// # Errors
    /// - [`StoreError::Conflict`] if the present revision is another one,
    /// - [`StoreError::Inconsistent`] if the result would break a rule of states,
    /// - others if the store cannot be written.
    ///
    /// Nothing is changed then, except that the result of a write that failed is known only after
    /// the next load.
    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError>;
}

/// Failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer committed since the state was loaded.
    #[error("another writer has changed the cluster meanwhile: it is at revision {}", present.0)]
    Conflict {
        /// Revision at present.
        present: Revision,
    },
    /// Changes that would break a rule of states.
    #[error("the changes do not fit the cluster: {0}")]
    Inconsistent(#[from] Inconsistent),
    /// Stored bytes that no Tidegate writes.
    #[error("what is kept cannot be: {0}")]
    Damaged(String),
    /// State of another format.
    #[error("what is kept has version {found}, this Tidegate knows {known}")]
    Version {
        /// Version of the stored state.
        found: u32,
        /// Only version that is understood.
        known: u32,
    },
    /// Failure of the database below.
    #[error("{0}")]
    Backend(Box<dyn std::error::Error + Send + Sync>),
}
