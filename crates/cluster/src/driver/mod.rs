//! Driver: runs the state machine of `tidegate-place` on a cluster's state.
//!
//! Each operation is one [`Session`]: open, change, save. The state machine is made anew of the
//! stored state every time; nothing but the store outlives a session.

mod live;
mod names;
mod operations;
mod progress;
mod removal;
mod resume;
#[cfg(test)]
mod tests;
mod waiting;

use tidegate_core::time::Nanos;
use tidegate_place::{HostId, Pcos, PriorityDatabase, Rejection, Request, RequestId, Update};

use crate::change::{Change, difference};
use crate::daemons::{Ask, Daemons};
use crate::error::Error;
use crate::notice::Notice;
use crate::state::ClusterState;
use crate::store::{ClusterStore, Revision, Snapshot};
use live::Taught;
use names::Names;

/// Surroundings of one session on a cluster.
pub struct Session<'a> {
    /// Store of the cluster's state.
    pub store: &'a dyn ClusterStore,
    /// Daemons of its hosts.
    pub daemons: &'a dyn Daemons,
    /// Listener for what happens beside what was asked for.
    pub notify: &'a mut dyn FnMut(Notice),
    /// Time since the beginning of 1970.
    pub now: Nanos,
    /// Daemons that are asked for their transfers.
    pub ask: Ask<'a>,
    /// Nothing is stored and started, and nobody is notified of transfers that waited.
    pub just_looking: bool,
}

/// Cluster during one session.
pub struct Cluster<'a> {
    session: Session<'a>,
    /// State as it is stored, and its revision.
    stored: Snapshot,
    state: ClusterState,
    pcos: Pcos,
    names: Names,
    /// Hosts of which more is known than is stored.
    learnt: Vec<HostId>,
}

impl<'a> Cluster<'a> {
    /// Loads the state, changes it, asks the daemons, and makes the state machine go on.
    ///
    /// # Errors
    /// If the store or a daemon fails, or `change` does.
    pub fn open<E: Into<Error>>(
        session: Session<'a>,
        change: impl FnOnce(&mut ClusterState) -> Result<(), E>,
    ) -> Result<Cluster<'a>, Error> {
        let stored = session.store.load(Revision::EMPTY)?;
        let stored = stored.unwrap_or_else(|| Snapshot {
            revision: Revision::EMPTY,
            state: ClusterState::default(),
        });
        let mut state = stored.state.clone();
        let known: Vec<_> = state.hosts.iter().map(|host| host.name.clone()).collect();
        change(&mut state).map_err(Into::into)?;
        let (now, ask) = (session.now, (session.ask, known.as_slice()));
        let taught = live::ask_daemons(&mut state, session.daemons, now, ask, session.notify)?;
        let (pcos, names) = resume::resume(&state, session.store, now)?;
        let mut cluster = Cluster {
            session,
            stored,
            state,
            pcos,
            names,
            learnt: Vec::new(),
        };
        cluster.learn(taught);
        Ok(cluster)
    }

    /// Teaches hosts' databases the rates that daemons have reported.
    fn learn(&mut self, taught: Vec<Taught>) {
        for Taught { host, rates } in taught {
            let update = Update {
                had: &rates,
                ..Update::default()
            };
            self.pcos.update(self.session.now, host, &update);
            self.learnt.push(host);
        }
    }

    /// Makes the state machine anew of the state as it is now.
    fn rebuild(&mut self) -> Result<(), Error> {
        self.learnt.clear();
        let (store, now) = (self.session.store, self.session.now);
        (self.pcos, self.names) = resume::resume(&self.state, store, now)?;
        Ok(())
    }

    /// Commits all that has changed; stores nothing if the session is just looking.
    ///
    /// # Errors
    /// If another writer has committed since the session was opened, or the store fails.
    pub fn save(&mut self) -> Result<(), Error> {
        if self.session.just_looking {
            return Ok(());
        }
        self.take_progress();
        let mut state = self.state.clone();
        state.drop_live();
        let mut changes = difference(&self.stored.state, &state);
        for host in std::mem::take(&mut self.learnt) {
            if let (Some(record), Some(database)) =
                (self.state.hosts.get(host.0), self.database(host))
            {
                changes.push(Change::PutLearnt {
                    host: record.name.clone(),
                    database: database.export().as_bytes().to_vec(),
                });
            }
        }
        let revision = self.stored.revision;
        let revision = self.session.store.commit(revision, &changes)?;
        self.stored = Snapshot { revision, state };
        Ok(())
    }

    /// Takes over how far the state machine takes transfers to be.
    fn take_progress(&mut self) {
        for host in self.pcos.hosts() {
            for running in host.running() {
                let name = self.names.name(running.id);
                let mut all = self.state.running.iter_mut();
                let own = name.and_then(|name| all.find(|known| known.name() == name));
                if let (Some(own), Some(job)) = (own, running.tenant.job) {
                    (own.placement.moved, own.placement.as_of) = (job.moved, running.as_of);
                }
            }
        }
    }

    /// Returns the time of the session.
    pub fn now(&self) -> Nanos {
        self.session.now
    }

    /// Returns the state, with live transfers and all changes of the session.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Returns the state machine.
    pub fn pcos(&self) -> &Pcos {
        &self.pcos
    }

    /// Returns the reason for which a host would not take a request now; `None`: it would.
    pub fn rejection(&mut self, host: HostId, request: &Request) -> Option<Rejection> {
        self.pcos.rejection(self.session.now, host, request)
    }

    /// Returns the shortest deadline, no shorter than its own, with which a request would be placed
    /// now, and the host that would take it.
    pub fn nearest(&mut self, request: &Request) -> Option<(HostId, Nanos)> {
        self.pcos.nearest(self.session.now, request)
    }

    /// Returns the name of a request; `"?"` if it has none.
    pub fn name_of(&self, id: RequestId) -> &str {
        self.names.name(id).unwrap_or("?")
    }

    /// Returns the priority database of a host.
    pub fn database(&self, host: HostId) -> Option<PriorityDatabase> {
        Some(self.pcos.host(host)?.database().clone())
    }
}
