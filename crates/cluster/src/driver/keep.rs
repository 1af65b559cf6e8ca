//! Cluster that is kept for many decisions: brought up to date with its store, instead of loaded
//! for each of them.
//!
//! ```text
//!   open --> continue_at --> decide --> save --> stored
//!               ^                        | another writer was first
//!               +------- refresh <-------+
//! ```

use tidegate_core::time::Nanos;

use super::{Cluster, daemon_transfers};
use crate::daemons::DaemonSelection;
use crate::error::Error;
use crate::part::Touched;
use crate::store::{Revision, Update};

/// Hosts whose figures are computed anew with each decision, round robin. With 100 decisions a
/// second each of 1,000 hosts has its turn every 5 s.
const HOSTS_PER_DECISION: usize = 2;

impl Cluster<'_> {
    /// Goes on at a later time, without a look at the store: another writer that has been faster is
    /// found by the next [`Cluster::save`]. Waiting transfers may be placed, for which that is
    /// needed as well.
    pub fn continue_at(&mut self, now: Nanos) {
        self.session.now = now;
        self.clock.set(now);
        self.go_on(now);
    }

    fn go_on(&mut self, now: Nanos) {
        self.is_kept = true;
        self.pcos.refresh_next(now, HOSTS_PER_DECISION);
        self.apply_events();
    }

    /// Brings the cluster up to date with its store, as of `now`. Changes that are not saved are
    /// undone, and decisions have to be made again; starts that were to follow a save whose outcome
    /// is not known are dropped. Waiting transfers are tried on hosts that have changed. Costs what
    /// has changed, not the size of the state, unless hosts came or went, or have a daemon, which
    /// is asked again.
    ///
    /// # Errors
    /// The store or a daemon fails. The next call loads everything.
    pub fn refresh(&mut self, now: Nanos) -> Result<(), Error> {
        self.session.now = now;
        self.clock.set(now);
        self.pending.clear();
        self.lost_race = false;
        // The store may have gone on from what this cluster knows: everything is loaded.
        let known = if std::mem::replace(&mut self.is_stale, true) {
            Revision::EMPTY
        } else {
            self.stored.revision
        };
        let mut touched = std::mem::take(&mut self.touched);
        // If something below fails, the next call resumes everything.
        self.touched.everything = true;
        let mut hosts = self.touched_hosts(&touched);
        hosts.extend(self.learnt.drain(..));
        hosts.extend(std::mem::take(&mut self.closed));
        let mut update = self.session.store.changes_since(known)?;
        if let Some(Update::Part {
            revision,
            touched: changed,
            part,
            learnt,
        }) = &mut update
        {
            hosts.extend(self.touched_hosts(changed));
            self.stored.state.adopt(part, changed);
            self.stored.state.raise_last(part);
            self.stored.revision = *revision;
            self.clock.look_at_part(part, &self.stored.state);
            let learners = learnt.keys().filter_map(|host| self.state.host(host));
            hosts.extend(learners);
            self.databases.append(learnt);
            touched.transfers.append(&mut changed.transfers);
            touched.hosts.append(&mut changed.hosts);
        }
        if let Some(Update::State(snapshot)) = update {
            self.databases = self.session.store.learnt_by_all(&snapshot.state.hosts)?;
            self.stored = snapshot;
            self.clock.look_at(&self.stored.state);
            touched.everything = true;
        }
        if touched.everything || self.has_daemons() {
            self.load_again()?;
        } else {
            let stored = self.stored.state.part(&touched);
            self.state.adopt(&stored, &touched);
            hosts.extend(self.touched_hosts(&touched));
            self.resume_part(&touched, &hosts)?;
        }
        let is_resumed = touched.everything || self.has_daemons();
        self.touched = Touched::default();
        self.touched.everything = self.has_daemons();
        self.is_stale = false;
        // Waiting transfers may have room now, and no later decision would say so: later ones
        // compare with the rates of today.
        if is_resumed {
            self.pcos.retry_all(now);
        } else {
            hosts
                .iter()
                .for_each(|host| self.pcos.retry_host(now, *host));
        }
        // The clock was read before the load, which may have taken long.
        self.go_on(now);
        Ok(())
    }

    /// Returns whether there are daemons whose transfers count.
    pub(super) fn has_daemons(&self) -> bool {
        let mut hosts = self.stored.state.hosts.iter();
        self.session.ask != DaemonSelection::None && hosts.any(|host| host.socket.is_some())
    }

    /// Takes the whole stored state, asks the daemons, and resumes the state machine.
    fn load_again(&mut self) -> Result<(), Error> {
        self.state = self.stored.state.clone();
        let hosts = self.state.hosts.iter();
        let hosts: Vec<_> = hosts.map(|host| host.name.clone()).collect();
        let session = &mut self.session;
        let answers = daemon_transfers::ask_daemons(
            &mut self.state,
            session.daemons,
            session.now,
            session.ask,
            &hosts,
            &mut *session.notify,
        )?;
        self.unreached = answers.unreached;
        self.rebuild()?;
        self.record_rates(answers.rates);
        Ok(())
    }
}
