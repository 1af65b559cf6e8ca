//! Events and starts that follow a commit.
//!
//! A transfer is started on its host's daemon only once its placement is stored: of two sessions
//! that place it at the same time, one commits, and only that one starts it. For a daemon that has
//! joined the cluster the start is stored with the placement, so one that is not answered is left
//! to the daemon; a placement whose start is refused, or cannot be sent, is removed again.

use tidegate_api::cluster::PlacementClaim;
use tidegate_place::{HostId, Placement, Request};

use super::Cluster;
use crate::change::difference;
use crate::cluster_event::{ClusterEvent, Started};
use crate::daemons::DaemonError;
use crate::error::Error;
use crate::record::RunningTransfer;
use crate::store::{Revision, StoreError};

/// Attempts to remove a transfer that its daemon did not start, against other writers.
const REMOVE_ATTEMPTS: usize = 16;

/// Event, or start of a transfer, after a commit.
pub(super) enum Pending {
    Event(ClusterEvent),
    /// Start of a transfer that the caller waits for.
    Requested(Start),
    /// Start of a transfer that had waited, with the event that gets its result.
    Waited(Start, ClusterEvent),
}

/// Transfer to be started on a daemon.
pub(super) struct Start {
    transfer: String,
    socket: Option<String>,
    request: Request,
    /// Placement for the daemon to check; `None` if it has not joined the cluster.
    claim: Option<PlacementClaim>,
    /// True if the daemon answers on this machine, as far as is known.
    is_reached: bool,
}

/// Outcome of the removal of a placement whose start was refused or could not be sent.
enum Removal {
    Done,
    /// The daemon has found the record of the start meanwhile, and started the transfer.
    HasBegun,
    /// No answer says that it is removed.
    Failed,
}

impl From<ClusterEvent> for Pending {
    fn from(event: ClusterEvent) -> Pending {
        Pending::Event(event)
    }
}

impl Pending {
    /// Creates the event of a transfer that was placed after a wait on a host of this name, with
    /// its start if there is one.
    pub(super) fn placed_after_wait(
        transfer: String,
        host: String,
        placement: &Placement,
        start: Option<Start>,
    ) -> Pending {
        let event = ClusterEvent::Placed {
            transfer,
            host,
            waited: placement.waited,
            class: placement.class,
            started: Started::NotAsked,
        };
        match start {
            Some(start) => Pending::Waited(start, event),
            None => event.into(),
        }
    }
}

impl Cluster<'_> {
    /// Creates the start of a transfer that is placed on a host now.
    pub(super) fn start_on(&self, transfer: &str, host: HostId, request: Request) -> Start {
        let host = &self.state.hosts[host.0];
        let has_joined = self.state.memberships.contains_key(&host.name);
        Start {
            transfer: transfer.to_owned(),
            socket: host.socket.clone(),
            request,
            claim: has_joined.then(|| PlacementClaim {
                host: host.name.clone(),
                begun_ns: self.session.now.0,
                reserved_bytes_per_s: self.state.reserved(host),
                device: host.device.clone(),
            }),
            is_reached: !self.unreached.contains(&host.name),
        }
    }

    /// Starts what the last commit has placed, and sends its events.
    pub(super) fn finish_pending(&mut self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Event(event) => (self.session.notify)(event),
                Pending::Waited(start, event) => self.start_waited(&start, event),
                Pending::Requested(start) => outcome = self.start_requested(start),
            }
        }
        outcome
    }

    /// Starts a transfer that the caller waits for, or removes it again.
    fn start_requested(&mut self, start: Start) -> Result<(), Error> {
        let error = match self.start(&start) {
            Ok(()) => return Ok(()),
            Err(why @ (DaemonError::Unanswered(_) | DaemonError::NotAsked(_)))
                if start.claim.is_some() =>
            {
                self.leave_to_daemon(start, &why.to_string());
                return Ok(());
            }
            Err(error) => error,
        };
        match self.remove_unstarted(&start) {
            Removal::Done => Err(error.into()),
            Removal::HasBegun => {
                self.leave_to_daemon(start, &error.to_string());
                Ok(())
            }
            Removal::Failed => {
                let transfer = start.transfer.clone();
                self.report_not_removed(start);
                let source = error;
                Err(Error::NotRemoved { transfer, source })
            }
        }
    }

    fn start(&self, start: &Start) -> Result<(), DaemonError> {
        let daemons = self.session.daemons;
        let Start {
            transfer,
            socket,
            request,
            claim,
            is_reached,
        } = start;
        if !is_reached {
            let why = "its daemon is not reached from this machine, and finds the start in etcd";
            return Err(DaemonError::NotAsked(why));
        }
        daemons.start(socket.as_deref(), transfer, request, claim.as_ref())
    }

    fn start_waited(&mut self, start: &Start, mut event: ClusterEvent) {
        let result = match self.start(start) {
            Ok(()) => Started::Yes,
            Err(error) if start.claim.is_some() => Started::LeftToDaemon(error.to_string()),
            Err(error) => Started::Failed(error.to_string()),
        };
        if let ClusterEvent::Placed { started, .. } = &mut event {
            *started = result;
        }
        (self.session.notify)(event);
    }

    /// Says that a start is left to its daemon.
    fn leave_to_daemon(&mut self, start: Start, why: &str) {
        (self.session.notify)(ClusterEvent::StartLeftToDaemon {
            transfer: start.transfer,
            host: start.claim.map_or_else(String::new, |claim| claim.host),
            why: why.to_owned(),
        });
    }

    /// Says that a placement is stored whose start was refused or could not be sent.
    fn report_not_removed(&mut self, start: Start) {
        (self.session.notify)(ClusterEvent::NotStarted {
            transfer: start.transfer,
            tried_by: start.claim.map(|claim| claim.host),
        });
    }

    /// Removes a transfer that its daemon did not start: it must not occupy the host.
    fn remove_unstarted(&mut self, start: &Start) -> Removal {
        for _ in 0..REMOVE_ATTEMPTS {
            match self.try_remove(start) {
                Ok(()) => return Removal::Done,
                Err(StoreError::Conflict { .. }) => {}
                Err(StoreError::HasBegun { .. }) => return Removal::HasBegun,
                Err(_) => break,
            }
        }
        Removal::Failed
    }

    /// Removes a running transfer from the stored state as it is now. Waiting transfers are left to
    /// the next session, which asks the daemons what runs on the host.
    fn try_remove(&mut self, start: &Start) -> Result<(), StoreError> {
        let store = self.session.store;
        // Later commits would be compared with what is loaded here, and not with what they were
        // decided on.
        self.is_stale = true;
        let Some(stored) = store.load(Revision::EMPTY)? else {
            return Ok(());
        };
        // Another session may have ended it, and placed one of that name elsewhere since.
        let own = self.stored.state.running(&start.transfer);
        let there = stored.state.running(&start.transfer);
        let key = |it: &RunningTransfer| (it.placement.host.clone(), it.placement.begun);
        if own.map(key) != there.map(key) || there.is_none() {
            return Ok(());
        }
        let mut state = stored.state.clone();
        let neighbours = stored.state.running.iter().map(RunningTransfer::name);
        let ended = state.end_running(&start.transfer, neighbours, self.session.now);
        if ended.is_none() {
            return Ok(());
        }
        let changes = difference(&stored.state, &state);
        // Without a claim no start was recorded, so the daemon cannot begin the transfer by itself.
        let removed = match start.claim {
            Some(_) => store.commit_unless_begun(stored.revision, &changes, &start.transfer),
            None => store.commit(stored.revision, &changes),
        };
        removed.map(drop)
    }
}
