//! Driver: runs the state machine of `tidegate-place` on a cluster's state.
//!
//! Each operation is one [`Session`]: open, change, save. The state machine is made anew of the
//! stored state every time; nothing but the store outlives a session.

mod live;
mod names;
mod operations;
mod progress;
mod resume;
#[cfg(test)]
mod tests;

use tidegate_core::time::Nanos;
use tidegate_place::{
    Answer, Event, HostId, Outcome, Pcos, Placement, PriorityDatabase, Rejection, Request,
    RequestId, Running, Update,
};

use crate::change::{Change, difference};
use crate::daemons::{Ask, Daemons};
use crate::error::Error;
use crate::notice::{Notice, Started};
use crate::record::Transfer;
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

// Removal of a host, and the transfers that ran there.

impl Cluster<'_> {
    /// Removes a host, and saves. Its transfers look for another host for what is left of them if
    /// `requeue` says so, and are lost otherwise. What was learnt of the host stays in the store.
    ///
    /// # Errors
    /// If there is no such host, or the store fails.
    pub fn remove_host(&mut self, name: &str, requeue: bool) -> Result<(), Error> {
        // What daemons have taught is not in what the state machine is made of again.
        self.save()?;
        let host = self.state.known_host(name)?;
        let lost = self.pcos.remove_host(self.session.now, host);
        let limit = |name: &str| self.state.running(name)?.transfer.limit;
        let lost: Vec<_> = lost
            .iter()
            .map(|running| (self.name_of(running.id).to_owned(), *running))
            .map(|(name, running)| (limit(&name), name, running))
            .collect();
        self.state.hosts.remove(host.0);
        let all = &mut self.state.running;
        all.retain(|running| running.placement.host != name);
        self.rebuild()?;
        for (limit, transfer, running) in lost {
            if requeue {
                self.requeue(transfer, &running, limit)
            } else {
                (self.session.notify)(Notice::Lost { transfer })
            }
        }
        self.retry_and_save()
    }

    /// Asks for a host for what is left of a transfer, in the time that is left.
    fn requeue(&mut self, transfer: String, running: &Running, limit: Option<u64>) {
        let Some(job) = running.tenant.job else {
            return;
        };
        let now = self.session.now;
        let Ok(request) = Request::new(job.left(), job.due().since(now)) else {
            return (self.session.notify)(match job.left() {
                0 => Notice::Done { transfer },
                _ => Notice::Overdue { transfer },
            });
        };
        // One whose limit is too low for what is left is late anyway: it is asked for without.
        let limited = limit.and_then(|limit| request.limited(limit).ok());
        let request = limited.unwrap_or(request);
        let left = request.bytes();
        let Answer { id, outcome } = self.pcos.request(now, request);
        self.names.add(id, &transfer);
        let again = Transfer::new(&transfer, &request, now);
        let notice = match outcome {
            Outcome::Placed(placement) => {
                self.begin(again, &placement);
                Notice::Moved {
                    transfer,
                    host: self.state.hosts[placement.host.0].name.clone(),
                    left,
                    class: placement.class,
                }
            }
            Outcome::Waiting => {
                self.state.waiting.push(again);
                Notice::Requeued { transfer, left }
            }
            Outcome::Refused(_) => Notice::Homeless { transfer, left },
        };
        (self.session.notify)(notice);
    }
}

// Transfers that wait: tried again, placed, started, discarded.

impl Cluster<'_> {
    /// Tries all transfers that wait on every host: hosts may have come.
    pub fn retry_waiting(&mut self) {
        self.pcos.retry_all(self.session.now);
        self.settle_waiting();
    }

    /// Tries all transfers that wait on every host, and saves.
    ///
    /// # Errors
    /// If the store fails.
    pub fn retry_and_save(&mut self) -> Result<(), Error> {
        self.retry_waiting();
        self.save()
    }

    /// Discards the transfers that have waited until their deadline.
    pub fn discard_overdue(&mut self) {
        self.pcos.handle_timeout(self.session.now);
        self.settle_waiting();
    }

    /// Records what came of those that waited, and notifies of it.
    fn settle_waiting(&mut self) {
        while let Some(event) = self.pcos.poll_event() {
            let id = match &event {
                Event::Placed(placement) => placement.id,
                Event::Discarded(id) => *id,
            };
            let name = self.name_of(id).to_owned();
            let mut all = self.state.waiting.iter();
            let Some(at) = all.position(|transfer| transfer.name == name) else {
                continue;
            };
            let waited = self.state.waiting.remove(at);
            let notice = match event {
                Event::Discarded(_) => Notice::Discarded { transfer: name },
                Event::Placed(placement) => self.placed(waited, &placement),
            };
            if !self.session.just_looking {
                (self.session.notify)(notice);
            }
        }
    }

    fn placed(&mut self, transfer: Transfer, placement: &Placement) -> Notice {
        let (name, request) = (transfer.name.clone(), transfer.request().ok());
        let start = transfer.start && !self.session.just_looking;
        if request.is_some() {
            self.begin(transfer, placement);
        }
        let host = &self.state.hosts[placement.host.0];
        let started = match request.filter(|_| start) {
            None => Started::NotAsked,
            Some(request) => {
                let socket = host.socket.as_deref().unwrap_or_default();
                match self.session.daemons.start(socket, &name, &request) {
                    Ok(()) => Started::Yes,
                    Err(error) => Started::Failed(error.to_string()),
                }
            }
        };
        Notice::Placed {
            transfer: name,
            host: host.name.clone(),
            waited: placement.waited,
            class: placement.class,
            started,
        }
    }
}
