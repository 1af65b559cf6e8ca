//! In-memory store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ClusterStore, Revision, Snapshot, StoreError};
use crate::change::Change;
use crate::state::ClusterState;

/// Store whose contents end with the process.
#[derive(Default, Debug)]
pub struct MemoryStore(Mutex<Contents>);

#[derive(Default, Debug)]
struct Contents {
    revision: Revision,
    state: ClusterState,
    learnt: BTreeMap<String, Vec<u8>>,
}

impl MemoryStore {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        // Contents are replaced as a whole, so a writer that panicked has left them valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterStore for MemoryStore {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        let contents = self.contents();
        Ok((contents.revision != known).then(|| Snapshot {
            revision: contents.revision,
            state: contents.state.clone(),
        }))
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.contents().learnt.get(host).cloned())
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        let mut contents = self.contents();
        if contents.revision != revision {
            let present = contents.revision;
            return Err(StoreError::Conflict { present });
        }
        if changes.is_empty() {
            return Ok(revision);
        }
        // On a copy: a refused commit must leave the state unchanged.
        let touched = Change::touched(changes);
        let mut part = contents.state.part(&touched);
        Change::apply(changes, &mut part)?;
        contents.state.adopt(&part, &touched);
        contents.revision = revision.next();
        for change in changes {
            if let Change::PutLearnt { host, database } = change {
                contents.learnt.insert(host.clone(), database.clone());
            }
        }
        Ok(contents.revision)
    }
}
