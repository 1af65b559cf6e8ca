//! Store in a file of the daemon's kind, an embedded database (redb).
//!
//! Everything but what was learnt is one row of JSON, format 1; what was learnt of a host is a row
//! under its name. Tidegates from before there were revisions wrote the same row without one, and
//! read rows with one.

mod row;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tidegate_server::store::{self, Store};

use super::{ClusterStore, Revision, Snapshot, StoreError};
use crate::change::Change;
use crate::state::ClusterState;
use row::StateRow;

/// Device and part under which the file has the state.
const STATE: (&str, &str) = ("", "place");
/// Part under which the file has what was learnt of a host; the device is the host's name.
const LEARNT: &str = "priority-database";

/// Store in a file, which one process at a time has open.
#[derive(Debug)]
pub struct RedbStore {
    store: Store,
    /// Held from the comparison of revisions to the end of the write: the file's own lock keeps
    /// other processes out, not other threads of this one.
    commit: Mutex<()>,
}

impl RedbStore {
    /// Opens the store in this file, which is made if there is none.
    ///
    /// # Errors
    /// As [`Store::open`], as [`StoreError::Backend`] of a [`store::StoreError`].
    pub fn open(path: &Path) -> Result<RedbStore, StoreError> {
        Ok(RedbStore {
            // A file of a newer build is refused before anything is written to it.
            store: Store::open_known(path, |copy| present(copy).map(drop))?,
            commit: Mutex::default(),
        })
    }

    fn present(&self) -> Result<Snapshot, StoreError> {
        present(&self.store)
    }
}

/// State of the cluster in a store's file.
fn present(store: &Store) -> Result<Snapshot, StoreError> {
    match store.device(STATE.0, STATE.1)? {
        Some((_, bytes)) => StateRow::from_bytes(&bytes).map(StateRow::into_snapshot),
        None => Ok(Snapshot {
            revision: Revision::EMPTY,
            state: ClusterState::default(),
        }),
    }
}

impl ClusterStore for RedbStore {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        Ok(Some(self.present()?).filter(|present| present.revision != known))
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let learnt = self.store.device(host, LEARNT)?;
        Ok(learnt.map(|(_, bytes)| bytes))
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        let _only = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
        let Snapshot {
            revision: present,
            mut state,
        } = self.present()?;
        if present != revision {
            return Err(StoreError::Conflict { present });
        }
        if changes.is_empty() {
            return Ok(revision);
        }
        Change::apply(changes, &mut state)?;
        let snapshot = Snapshot {
            revision: revision.next(),
            state,
        };
        let bytes = StateRow::new(&snapshot).to_bytes()?;
        let mut rows = vec![row(STATE.0, STATE.1, &bytes)];
        for change in changes {
            if let Change::PutLearnt { host, database } = change {
                rows.push(row(host, LEARNT, database));
            }
        }
        self.store.apply(&rows)?;
        Ok(snapshot.revision)
    }
}

fn row<'a>(device: &'a str, part: &'a str, state: &'a [u8]) -> store::Change<'a> {
    store::Change::PutDevice {
        device,
        part,
        identity: "",
        state: Some(state),
    }
}

impl From<store::StoreError> for StoreError {
    fn from(error: store::StoreError) -> StoreError {
        StoreError::Backend(error.into())
    }
}
