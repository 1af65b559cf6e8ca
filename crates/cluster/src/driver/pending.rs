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
    socket: String,
    request: Request,
    /// Placement for the daemon to check; `None` if it has not joined the cluster.
    claim: Option<PlacementClaim>,
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
            socket: host.socket.clone().unwrap_or_default(),
            request,
            claim: has_joined.then(|| PlacementClaim {
                host: host.name.clone(),
                begun_ns: self.session.now.0,
                reserved_bytes_per_s: self.state.reserved(host),
                device: host.device.clone(),
            }),
        }
    }

    /// Starts what the last commit has placed, and sends its events.
    pub(super) fn finish_pending(&mut self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Event(event) => (self.session.notify)(event),
                Pending::Waited(start, event) => self.start_waited(&start, event),
                Pending::Requested(start) => match self.start(&start) {
                    Ok(()) => {}
                    Err(DaemonError::Unanswered(why)) if start.claim.is_some() => {
                        self.leave_to_daemon(start, &why.to_string());
                    }
                    Err(error) => {
                        self.remove_unstarted(start);
                        outcome = Err(error.into());
                    }
                },
            }
        }
        outcome
    }

    fn start(&self, start: &Start) -> Result<(), DaemonError> {
        let daemons = self.session.daemons;
        let Start {
            transfer,
            socket,
            request,
            claim,
        } = start;
        daemons.start(socket, transfer, request, claim.as_ref())
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

    /// Removes a transfer that its daemon did not start: it must not occupy the host.
    fn remove_unstarted(&mut self, start: Start) {
        for _ in 0..REMOVE_ATTEMPTS {
            match self.try_remove(&start) {
                Ok(()) => return,
                Err(StoreError::Conflict { .. }) => {}
                Err(_) => break,
            }
        }
        if start.claim.is_some() {
            return self.leave_to_daemon(start, "it could not be removed from the cluster again");
        }
        let transfer = start.transfer;
        (self.session.notify)(ClusterEvent::NotStarted { transfer });
    }

    /// Removes a running transfer from the stored state as it is now. Waiting transfers are left to
    /// the next session, which asks the daemons what runs on the host.
    fn try_remove(&mut self, start: &Start) -> Result<(), StoreError> {
        let store = self.session.store;
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
        if state
            .end_running(&start.transfer, self.session.now)
            .is_none()
        {
            return Ok(());
        }
        let changes = difference(&stored.state, &state);
        store.commit(stored.revision, &changes).map(drop)
    }
}
