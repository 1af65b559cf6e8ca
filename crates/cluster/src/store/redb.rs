//! Store in a file with the embedded database redb, in the format of the daemon's store.
//!
//! One JSON row (format 1) holds everything but the learnt priority databases, which have one row
//! per host. Releases before revisions omit the revision; they can still read rows that have it.

mod row;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_server::store::{self, Store};

use super::{ClusterStore, Revision, Snapshot, StoreError};
use crate::change::Change;
use crate::state::ClusterState;
use row::StateRow;

/// Device and part of the row with the state. The daemon's store keys rows by (device, part); no
/// host has the empty name, so its rows hold what belongs to the whole cluster.
const STATE: (&str, &str) = ("", "place");
/// Part of the rows with learnt priority databases; their device is the host's name.
const LEARNT: &str = "priority-database";

/// Store in a file, which only one process at a time can open.
#[derive(Debug)]
pub struct RedbStore {
    store: Store,
    /// State of the last commit, by which the next one is compared, instead of that of the file.
    /// `None`: there was none yet, or an error, after which another process may have had the file.
    ///
    /// Held from the comparison of revisions to the end of the write: the file's own lock excludes
    /// other processes, but not other threads of this one.
    last: Mutex<Option<Snapshot>>,
}

impl RedbStore {
    /// Opens the store in `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Every error of [`Store::open`], as [`StoreError::Backend`].
    pub fn open(path: &Path) -> Result<RedbStore, StoreError> {
        Ok(RedbStore {
            // A file of a newer version is refused before anything is written to it.
            store: Store::open_known(path, |copy| read_snapshot(copy).map(drop))?,
            last: Mutex::default(),
        })
    }

    fn last(&self) -> MutexGuard<'_, Option<Snapshot>> {
        // Taken out while it is changed, so a thread that panicked has left it valid.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the last commit after an error.
    fn checked<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        read.inspect_err(|_| *self.last() = None)
    }

    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.checked(read_snapshot(&self.store))
    }
}

/// Reads the state of the cluster from a store file.
fn read_snapshot(store: &Store) -> Result<Snapshot, StoreError> {
    match store.device(STATE.0, STATE.1)? {
        Some((_, bytes)) => StateRow::from_bytes(&bytes)?.into_snapshot(),
        None => Ok(Snapshot {
            revision: Revision::EMPTY,
            state: ClusterState::default(),
        }),
    }
}

impl ClusterStore for RedbStore {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        Ok(Some(self.snapshot()?).filter(|snapshot| snapshot.revision != known))
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let learnt = self.store.device(host, LEARNT);
        let learnt = self.checked(learnt.map_err(StoreError::from))?;
        Ok(learnt.map(|(_, bytes)| bytes))
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        let mut last = self.last();
        let mut snapshot = match last.take() {
            Some(last) => last,
            None => read_snapshot(&self.store)?,
        };
        let present = snapshot.revision;
        // Compared also without changes, so that a stale writer learns of the conflict.
        if present != revision || changes.is_empty() {
            *last = Some(snapshot);
            return if present == revision {
                Ok(revision)
            } else {
                Err(StoreError::Conflict { present })
            };
        }
        Change::apply(changes, &mut snapshot.state)?;
        snapshot.revision = revision.next();
        let bytes = StateRow::new(&snapshot).to_bytes()?;
        let mut rows = vec![row(STATE.0, STATE.1, &bytes)];
        for change in changes {
            if let Change::PutLearnt { host, database } = change {
                rows.push(row(host, LEARNT, database));
            }
        }
        self.store.apply(&rows)?;
        *last = Some(snapshot);
        Ok(revision.next())
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
