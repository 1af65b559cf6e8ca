//! Driver: runs the state machine of `tidegate-place` on the state of a cluster.
//!
//! A single operation is one [`Session`]: open, change, save. Opening builds the state machine from
//! the stored state. For many operations a cluster is kept: [`Cluster::continue_at`] goes on at a
//! later time, and [`Cluster::refresh`] brings it up to date after another writer was faster.

mod daemon_transfers;
mod keep;
mod names;
mod operations;
mod own_clock;
mod pending;
mod progress;
mod resume;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use tidegate_core::time::Nanos;
use tidegate_place::{
    Answer, Event, Explanation, HostId, Outcome, Pcos, Placement, PriorityDatabase, Request,
    RequestId, Running, Update,
};

use crate::change::{Change, difference};
use crate::clock::ClockReading;
use crate::cluster_event::ClusterEvent;
use crate::daemons::{DaemonSelection, Daemons};
use crate::error::Error;
use crate::part::Touched;
use crate::record::Transfer;
use crate::state::ClusterState;
use crate::store::{ClusterStore, Revision, Snapshot, StoreError};
use daemon_transfers::ReportedRates;
use names::Names;
use own_clock::OwnClock;
use pending::Pending;
use resume::Databases;

/// Environment of one session on a cluster.
pub struct Session<'a> {
    /// Store of the cluster's state.
    pub store: &'a dyn ClusterStore,
    /// Daemons of its hosts.
    pub daemons: &'a dyn Daemons,
    /// Callback for events. Those of changes are sent once the changes are stored.
    pub notify: &'a mut dyn FnMut(ClusterEvent),
    /// Time since 1970-01-01 00:00 UTC, read just before the session is opened.
    pub now: Nanos,
    /// Daemons that are asked for their transfers.
    pub ask: DaemonSelection<'a>,
    /// Read-only session: nothing is stored or started, and waiting transfers cause no events.
    pub read_only: bool,
}

/// Cluster during one session.
pub struct Cluster<'a> {
    session: Session<'a>,
    clock: OwnClock,
    /// Stored state with its revision.
    stored: Snapshot,
    state: ClusterState,
    /// State machine that places transfers (meta-scheduler PCOS).
    pcos: Pcos,
    names: Names,
    /// Stored priority databases.
    databases: Databases,
    /// Hosts whose priority database has learnt since the state was loaded.
    learnt: Vec<HostId>,
    /// Hosts that were closed for one request.
    closed: Vec<HostId>,
    /// Records that the next save stores, if they differ from those that are stored.
    touched: Touched,
    /// True for a cluster that is kept for many decisions.
    is_kept: bool,
    /// True after a [`Cluster::refresh`] that failed, and after a load of which this cluster has
    /// taken nothing: the store may be ahead of it.
    is_stale: bool,
    /// Events and starts that follow the next commit, in order.
    pending: Vec<Pending>,
    lost_race: bool,
    /// Hosts that have joined and whose daemons do not answer on this machine, by name.
    unreached: BTreeSet<String>,
}

impl<'a> Cluster<'a> {
    /// Loads the state, applies `change`, asks the daemons and resumes the state machine.
    ///
    /// # Errors
    /// The store or a daemon fails, or `change` does.
    pub fn open<E: Into<Error>>(
        session: Session<'a>,
        change: impl FnOnce(&mut ClusterState) -> Result<(), E>,
    ) -> Result<Cluster<'a>, Error> {
        let reading = ClockReading::new(session.now);
        let stored = session.store.load(Revision::EMPTY)?;
        let stored = stored.unwrap_or_else(|| Snapshot {
            revision: Revision::EMPTY,
            state: ClusterState::default(),
        });
        let mut state = stored.state.clone();
        // Taken before `change`, which may add hosts whose daemons have never answered.
        let stored_hosts: Vec<_> = state.hosts.iter().map(|host| host.name.clone()).collect();
        change(&mut state).map_err(Into::into)?;
        // After `change`, which may have repaired the times.
        let clock = OwnClock::new(reading, &state);
        let now = session.now;
        let answers = daemon_transfers::ask_daemons(
            &mut state,
            session.daemons,
            now,
            session.ask,
            &stored_hosts,
            session.notify,
        )?;
        let databases = session.store.learnt_by_all(&state.hosts)?;
        let (pcos, names) = resume::resume(&state, &databases, now)?;
        let touched = Touched {
            everything: true,
            ..Touched::default()
        };
        let mut cluster = Cluster {
            session,
            clock,
            stored,
            state,
            pcos,
            names,
            databases,
            learnt: Vec::new(),
            closed: Vec::new(),
            touched,
            is_kept: false,
            is_stale: false,
            pending: Vec::new(),
            lost_race: false,
            unreached: answers.unreached,
        };
        cluster.record_rates(answers.rates);
        Ok(cluster)
    }

    /// Feeds the rates that daemons reported to the hosts' priority databases.
    fn record_rates(&mut self, reported: Vec<ReportedRates>) {
        for ReportedRates { host, rates } in reported {
            let update = Update {
                measured: &rates,
                ..Update::default()
            };
            self.pcos.update(self.session.now, host, &update);
            self.learnt.push(host);
        }
    }

    /// Rebuilds the state machine from the current state.
    fn rebuild(&mut self) -> Result<(), Error> {
        self.learnt.clear();
        let now = self.session.now;
        (self.pcos, self.names) = resume::resume(&self.state, &self.databases, now)?;
        Ok(())
    }

    /// Builds the state machine of the present state, as a new session would have it.
    #[cfg(test)]
    pub(crate) fn resumed(&self) -> Result<Pcos, StoreError> {
        let resumed = resume::resume(&self.state, &self.databases, self.session.now);
        resumed.map(|(pcos, _)| pcos)
    }

    /// Commits all changes, then starts what was placed and sends the events; a read-only session
    /// stores nothing. Nothing is started or sent for changes that are not stored, so a session
    /// that [has lost a race](Cluster::lost_race) may be run again from its beginning.
    ///
    /// # Errors
    /// Another writer has committed since the session was opened, the clock differs from those of
    /// others or a stored time is ahead of it, the store fails, or a daemon does not start a
    /// requested transfer, which is then removed from the store again.
    pub fn save(&mut self) -> Result<(), Error> {
        if self.session.read_only {
            self.open_closed();
            return Ok(());
        }
        if self.is_stale {
            // The store may be ahead of the hosts that decisions were made on.
            self.lost_race = true;
            let present = self.stored.revision;
            return Err(StoreError::Conflict { present }.into());
        }
        self.check_clock()?;
        self.copy_progress();
        // Daemons own live transfers; a stored copy would be out of date in the next session.
        let mut part = self.state.part(&self.touched);
        part.drop_live();
        let mut stored = self.stored.state.part(&self.touched);
        let mut changes = difference(&stored, &part);
        // New records get the positions that they have in the store.
        Change::apply(&changes, &mut stored).map_err(StoreError::from)?;
        // The removal of a host may end a membership, which the decisions do not.
        part.memberships.clone_from(&stored.memberships);
        debug_assert_eq!(stored, part, "the changes lead to what was decided");
        let mut learnt = Databases::new();
        for host in &self.learnt {
            // A host that learnt may have been removed in this session.
            if let (Some(record), Some(database)) =
                (self.state.hosts.get(host.0), self.database(*host))
            {
                learnt.insert(record.name.clone(), database.export().as_bytes().to_vec());
            }
        }
        let put = |(host, database): (&String, &Vec<u8>)| Change::PutLearnt {
            host: host.clone(),
            database: database.clone(),
        };
        changes.extend(learnt.iter().map(put));
        let revision = self.stored.revision;
        // A kept cluster that has decided nothing new has nothing to ask the store for.
        if !(self.is_kept && changes.is_empty()) {
            let committed = self.session.store.commit(revision, &changes);
            self.lost_race = matches!(committed, Err(StoreError::Conflict { .. }));
            self.stored.revision = committed?;
            self.clock.committed(self.session.now);
        }
        // Later saves of the session commit only what has changed since this one.
        self.stored.state.adopt(&stored, &self.touched);
        self.state.adopt_memberships(&stored, &self.touched);
        let names: Vec<&str> = stored.transfer_names().collect();
        (self.state.running).adopt(names.iter().copied(), &stored.running);
        (self.state.waiting).adopt(names.iter().copied(), &stored.waiting);
        self.databases.append(&mut learnt);
        self.learnt.clear();
        if self.is_kept {
            self.touched = Touched {
                everything: self.has_daemons(),
                ..Touched::default()
            };
        }
        self.open_closed();
        self.finish_pending()
    }

    /// Returns true if the last [`Cluster::save`] failed because another writer was first. A new
    /// session decides on the state as it is then.
    pub fn lost_race(&self) -> bool {
        self.lost_race
    }

    /// Copies the estimated progress of transfers from the state machine to the state, on hosts on
    /// which the estimate does not merely continue from the stored one.
    fn copy_progress(&mut self) {
        for host in self.changed_hosts() {
            // Before the copy: estimates go on from what is stored, as those of another session do.
            if self.pcos.host(host).is_some() {
                self.pcos.fix_progress(self.session.now, host);
            }
            let view = self.pcos.host(host);
            for running in view.map_or(&[][..], |view| view.running()) {
                let Some(name) = self.names.name(running.id) else {
                    continue;
                };
                // Names of daemons' transfers may be those of others, of which the first counts.
                if self.names.id(name) != Some(running.id) {
                    continue;
                }
                if let Some(progress) = running.vm.transfer
                    && let Some(own) = self.state.running.get_mut(name)
                {
                    (own.placement.moved, own.placement.as_of) = (progress.moved, running.as_of);
                    self.touched.add_transfer(name);
                }
            }
        }
    }

    /// Time of the session.
    pub fn now(&self) -> Nanos {
        self.session.now
    }

    /// Revision of the stored state that the session is based on.
    pub fn revision(&self) -> Revision {
        self.stored.revision
    }

    /// State with live transfers and all changes of the session.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// State machine of the session.
    pub fn pcos(&self) -> &Pcos {
        &self.pcos
    }

    /// Returns the decision of a host on a request now, with its figures; `None`: the host does not
    /// exist.
    pub fn explain(&mut self, host: HostId, request: &Request) -> Option<Explanation> {
        self.pcos.explain(self.session.now, host, request)
    }

    /// Returns the shortest deadline, at least the request's own, with which a request would be
    /// placed now, and the host.
    pub fn nearest(&mut self, request: &Request) -> Option<(HostId, Nanos)> {
        self.pcos.nearest(self.session.now, request)
    }

    /// Name of a request; `"?"` if it has none.
    pub fn name_of(&self, id: RequestId) -> &str {
        self.names.name(id).unwrap_or("?")
    }

    /// Priority database of a host.
    pub fn database(&self, host: HostId) -> Option<PriorityDatabase> {
        Some(self.pcos.host(host)?.database().clone())
    }
}

// Removal of a host, and the transfers that ran there.

impl Cluster<'_> {
    /// Removes a host and saves. With `requeue` its transfers ask for another host for the
    /// remaining bytes, otherwise they are dropped. The learnt priority database of the host stays
    /// in the store.
    ///
    /// # Errors
    /// There is no such host, or the store fails.
    pub fn remove_host(&mut self, name: &str, requeue: bool) -> Result<(), Error> {
        // Save first: `rebuild` discards what the databases have learnt in this session.
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
        self.touched.everything = true;
        // Removal shifts the indices of later hosts, which the state machine uses as numbers.
        self.rebuild()?;
        for (limit, transfer, running) in lost {
            if requeue {
                self.requeue(transfer, &running, limit)
            } else {
                self.pending.push(ClusterEvent::Lost { transfer }.into());
            }
        }
        self.retry_and_save()
    }

    /// Requests a host for the remaining bytes of a transfer in the remaining time.
    fn requeue(&mut self, transfer: String, running: &Running, limit: Option<u64>) {
        let Some(progress) = running.vm.transfer else {
            return;
        };
        let now = self.session.now;
        let Ok(request) = Request::new(progress.bytes_left(), progress.due_time().since(now))
        else {
            // `Request::new` refuses 0 bytes and a deadline that has passed.
            let event = match progress.bytes_left() {
                0 => ClusterEvent::Done { transfer },
                _ => ClusterEvent::Overdue { transfer },
            };
            return self.pending.push(event.into());
        };
        // A limit below the newly needed rate would be refused; the transfer is late anyway, so it
        // is requested without the limit.
        let limited = limit.and_then(|limit| request.limited(limit).ok());
        let request = limited.unwrap_or(request);
        let left = request.bytes();
        let Answer { id, outcome } = self.pcos.request(now, request);
        if !matches!(outcome, Outcome::Refused(_)) {
            self.names.add(id, &transfer);
        }
        let again = Transfer::new(&transfer, &request, now);
        let event = match outcome {
            Outcome::Placed(placement) => {
                self.record_start(again, &placement);
                ClusterEvent::Moved {
                    transfer,
                    host: self.state.hosts[placement.host.0].name.clone(),
                    left,
                    class: placement.class,
                }
            }
            Outcome::Waiting => {
                self.touched.add_transfer(&transfer);
                self.state.waiting.push(again);
                ClusterEvent::Requeued { transfer, left }
            }
            Outcome::Refused(_) => ClusterEvent::Unplaced { transfer, left },
        };
        self.pending.push(event.into());
    }
}

// Transfers that wait: tried again, placed, started, discarded.

impl Cluster<'_> {
    /// Tries all waiting transfers on every host, for instance after hosts were added.
    pub fn retry_waiting(&mut self) {
        self.pcos.retry_all(self.session.now);
        self.apply_events();
    }

    /// Tries all waiting transfers on every host, and saves.
    ///
    /// # Errors
    /// The store fails.
    pub fn retry_and_save(&mut self) -> Result<(), Error> {
        self.retry_waiting();
        self.save()
    }

    /// Drops the transfers that have waited until their deadline.
    pub fn discard_overdue(&mut self) {
        self.pcos.handle_timeout(self.session.now);
        self.apply_events();
    }

    /// Applies the results of waiting transfers to the state, and sends events.
    fn apply_events(&mut self) {
        while let Some(event) = self.pcos.poll_event() {
            let id = match &event {
                Event::Placed(placement) => placement.id,
                Event::Discarded(id) => *id,
            };
            let name = self.name_of(id).to_owned();
            if matches!(event, Event::Discarded(_)) {
                self.names.remove(id);
            }
            // The request may have left the list earlier in this session.
            let Some(waited) = self.state.waiting.remove(&name) else {
                continue;
            };
            self.touched.add_transfer(&name);
            let pending = match event {
                Event::Discarded(_) => ClusterEvent::Discarded { transfer: name }.into(),
                Event::Placed(placement) => self.record_placement(waited, &placement),
            };
            if !self.session.read_only {
                self.pending.push(pending);
            }
        }
    }

    /// Records that a waiting transfer was placed. Returns its event, or the start that follows on
    /// its host's daemon if it was requested so.
    fn record_placement(&mut self, transfer: Transfer, placement: &Placement) -> Pending {
        let (name, request) = (transfer.name.clone(), transfer.request().ok());
        let is_to_start = transfer.start;
        if request.is_some() {
            self.record_start(transfer, placement);
        }
        let request = request.filter(|_| is_to_start);
        let start = request.map(|request| self.start_on(&name, placement.host, request));
        let host = self.state.hosts[placement.host.0].name.clone();
        Pending::placed_after_wait(name, host, placement, start)
    }
}
