//! Sessions of vhost-user front-ends during a hand-over: they rest in the running daemon, and go on
//! in the new one.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::frontend::vhost_user::{Session, Summons};
use crate::listener::{FrontEnd, VhostUserListener};
use crate::ownership::Ownership;
use crate::takeover::{Reader, SessionPlan};

/// Time for sessions to come to the end of the message that they handle, while I/O goes on.
/// Front-ends of those that have not are closed.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Has the sessions of all front-ends rest, before clients are paused. Blocks.
pub(super) fn rest(listeners: &[Weak<VhostUserListener>]) -> Vec<Summons> {
    let listeners = listeners.iter().filter_map(Weak::upgrade);
    let asked: Vec<_> = listeners.flat_map(|listener| listener.rest()).collect();
    let until = Instant::now() + REST_TIMEOUT;
    asked.iter().for_each(|session| session.await_rest(until));
    asked
}

/// Session of another daemon that was checked and that is to go on here.
pub(super) struct Resumed {
    listener: String,
    export: String,
    peer: String,
    socket: UnixStream,
    front_end: Result<FrontEnd, String>,
}

impl Resumed {
    /// Makes the session that goes on, if its disk is what the driver knows. One whose state cannot
    /// be used here ends when it begins: its front-end connects again.
    ///
    /// # Errors
    /// If files are missing, or the disk is not served here, or differs.
    pub(super) fn open(
        shared: &Shared,
        plan: SessionPlan,
        parts: &mut Reader<OwnedFd>,
        lock: Ownership,
    ) -> Result<Resumed, String> {
        let SessionPlan {
            export,
            peer,
            session,
        } = plan;
        let state = session.try_map(|number| parts.descriptor(number))?;
        let list = shared.disks.offered();
        let entry = list
            .find(&export)
            .ok_or_else(|| format!("{peer} uses export {export:?}, which is not served here"))?;
        Session::check_volume(&state, &entry.volume).map_err(|what| {
            format!("{peer} uses export {export:?} with {what}, unlike what is served here")
        })?;
        let permit = entry.connections.admit();
        let permit = permit.map_err(|why| format!("export {export:?}: {why}"))?;
        let socket = state
            .socket
            .try_clone()
            .map_err(|error| error.to_string())?;
        Ok(Resumed {
            listener: state.listener.clone(),
            socket: socket.into(),
            front_end: FrontEnd::resumed(state, (entry, &list), (peer.clone(), permit), lock),
            export,
            peer,
        })
    }

    /// Begins the session, which is this daemon's now.
    pub(super) fn begin(self, listeners: &[Arc<VhostUserListener>]) {
        let begin =
            |front_end| VhostUserListener::begin_handed(listeners, &self.listener, front_end);
        if let Err(why) = self.front_end.and_then(begin) {
            tracing::warn!(
                export = self.export,
                peer = self.peer,
                "front-end cut off: {why}"
            );
            // The other daemon has the connection as long as its process runs.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}
