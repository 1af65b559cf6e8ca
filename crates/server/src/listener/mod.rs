//! Listeners for NBD clients, and the handshake up to the choice of an export; and sockets for
//! front-ends of vhost-user, which have one for each disk (`vhost_user`).
//!
//! ```text
//!   accept --> half-open: handshake (10 s at most) --> admitted by its VM --> event loop
//!                  |                                       |
//!                  |                                       +--> refused: max_connections reached
//!                  +--> protocol violation, timeout, disconnect, displaced by others: closed
//! ```
//!
//! The handshake is asynchronous and runs on the control thread. Then the socket goes to the event
//! loop of the export's device, with any bytes received beyond the handshake. `half_open` limits
//! connections during the handshake, [`connections`](crate::connections) limits them afterwards.

mod disk_user;
mod export_list;
mod half_open;
mod own_socket;
mod socket;
mod vhost_user;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_nbd::{Export, Exports, Fatal, Limits, Opened, Session, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::connections::ConnectionPermit;
use crate::frontend::{Opening, nbd};
use crate::log_limit;

pub use export_list::{ExportCatalogue, ExportEntry, ExportList};
pub use half_open::{HALF_OPEN_MAX, HALF_OPEN_PER_PEER, HalfOpen, HandshakeCounts, SILENCE_MIN};
pub use own_socket::{InheritError, OwnSocket};
use socket::Peer;
pub(crate) use socket::Stream;
pub use socket::{BindError, Bound};
pub(crate) use socket::{Credentials, Listener, group_number, user_number};
pub use vhost_user::VhostUserListener;

/// Deadline for a whole handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`, which most likely found no free descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);
/// Bytes received at a time during the handshake; must be less than a loop's receive buffer, which
/// takes over what was received beyond the handshake.
const RECEIVE_BYTES: usize = 4096;

/// Error of a handshake.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Rule(#[from] Fatal),
    #[error("gone during the handshake")]
    Gone,
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        match error.kind() {
            // `nbdinfo --list` closes its socket without waiting for the reply to NBD_OPT_ABORT.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => HandshakeError::Gone,
            _ => HandshakeError::Io(error),
        }
    }
}

/// Accepts clients of one listener until the future is dropped.
pub async fn accept_clients(bound: Arc<Bound>, list: ExportList, half_open: Arc<HalfOpen>) {
    let list = Arc::new(list);
    let listener = match Listener::new(&bound) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(listener = %bound.name(), "cannot listen: {error}"),
    };
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if log_limit::NOT_ACCEPTED.allows(Instant::now()) {
                    tracing::warn!(listener = %bound.name(), "cannot accept: {error}");
                }
                // Without this a flood of half-open connections could hold all descriptors.
                half_open.make_room_after(&error);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        // Each client gets a task, so that a slow handshake does not delay the next `accept`.
        let entry = Arc::new(half_open.add(peer.key()));
        let (list, half_open, own) = (list.clone(), half_open.clone(), entry.clone());
        let task =
            tokio::spawn(async move { handle_client(stream, peer, &list, &half_open, &own).await });
        entry.set_task(task.abort_handle());
    }
}

async fn handle_client(
    mut stream: Stream,
    peer: Peer,
    list: &ExportList,
    half_open: &HalfOpen,
    entry: &half_open::Entry,
) {
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    let exports = HandshakeExports {
        list,
        half_open,
        peer,
        admitted: Mutex::default(),
    };
    match timeout(HANDSHAKE_TIMEOUT, handshake(&mut stream, &exports, entry)).await {
        Ok(Ok(Some((session, opened, leftover)))) => {
            let admitted = exports.admitted.into_inner();
            let admitted = admitted.unwrap_or_else(PoisonError::into_inner);
            let (listed, permit) =
                admitted.expect("an export is opened only once the client is admitted");
            let fd = match stream.into_fd() {
                Ok(fd) => fd,
                Err(error) => return tracing::warn!(%peer, "client lost: {error}"),
            };
            let opening = Opening::Nbd(nbd::Opening {
                fd,
                session,
                opened,
                leftover,
            });
            listed.hand_over(opening, peer.to_string(), permit);
        }
        Ok(Ok(None)) => tracing::debug!(%peer, "client left during the handshake"),
        Ok(Err(HandshakeError::Gone)) => tracing::debug!(%peer, "client gone in the handshake"),
        Ok(Err(error)) => {
            count(&half_open.failed);
            if log_limit::HANDSHAKE_FAILED.allows(Instant::now()) {
                tracing::warn!(%peer, "client cut off: {error}");
            }
        }
        Err(_) => {
            count(&half_open.timed_out);
            if log_limit::HANDSHAKE_SLOW.allows(Instant::now()) {
                tracing::warn!(%peer, "client cut off: no export chosen in {HANDSHAKE_TIMEOUT:?}");
            }
        }
    }
}

/// Exports that a listener offers to one client, and the permit of the export that it chose.
struct HandshakeExports<'a> {
    list: &'a ExportList,
    half_open: &'a HalfOpen,
    peer: Peer,
    /// Result of [`Exports::admit`], which takes `&self`; the lock is never contended, and makes
    /// this type `Sync` because the handshake may move between threads.
    admitted: Mutex<Option<(ExportEntry, ConnectionPermit)>>,
}

impl Exports for HandshakeExports<'_> {
    fn lookup(&self, name: &str) -> Option<Export> {
        let listed = self.list.find(name)?;
        Some(nbd::export(listed.volume))
    }

    fn admit(&self, export: &Export) -> Result<(), String> {
        let listed = self.list.find(&export.name);
        // The name may belong to another disk since the client looked it up.
        let Some(listed) = listed.filter(|listed| listed.volume.serial == export.id) else {
            return Err("it has just been removed".to_owned());
        };
        let refused = |why: String| {
            self.half_open.refused.fetch_add(1, Ordering::Relaxed);
            if log_limit::REFUSED.allows(Instant::now()) {
                tracing::warn!(export = %export.name, peer = %self.peer, "client refused: {why}");
            }
            why
        };
        let activation = listed.volume.activation.as_ref();
        if let Some(why) = activation.and_then(|activation| activation.state().refusal()) {
            disk_user::try_to_activate(&listed);
            return Err(refused(why.to_owned()));
        }
        let permit = listed.connections.admit();
        let permit = permit.map_err(|why| refused(why.to_string()))?;
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        *admitted = Some((listed, permit));
        Ok(())
    }

    fn list(&self, f: &mut dyn FnMut(&str, &str)) {
        self.list.for_each(|volume| f(&volume.name, ""));
    }
}

/// Runs the handshake. Returns the session, the chosen export and the bytes received beyond the
/// handshake; `None` if the client ended it in order.
async fn handshake(
    stream: &mut Stream,
    exports: &HandshakeExports<'_>,
    entry: &half_open::Entry,
) -> Result<Option<(Session, Opened, Vec<u8>)>, HandshakeError> {
    let mut session = Session::new(Limits::default());
    let mut input = Vec::with_capacity(RECEIVE_BYTES);
    loop {
        // The server speaks first in NBD, so output is sent before input is read.
        if !session.output().is_empty() {
            stream.write_all(session.output()).await?;
            session.consume_output(session.output().len());
        }
        let (used, step) = session.handle(&input, exports)?;
        input.drain(..used);
        match step {
            Step::NeedMore(_) => {
                let mut piece = [0; RECEIVE_BYTES];
                let n = stream.read(&mut piece).await?;
                if n == 0 {
                    return Err(HandshakeError::Gone);
                }
                entry.heard();
                input.extend_from_slice(&piece[..n]);
            }
            Step::Output => {}
            Step::StartTls => unreachable!("TLS is not offered"),
            Step::Opened(opened) => {
                stream.write_all(session.output()).await?;
                session.consume_output(session.output().len());
                // The rest of the input is the client's first requests.
                return Ok(Some((session, *opened, input)));
            }
            Step::Disconnect(_) => {
                stream.write_all(session.output()).await?;
                return Ok(None);
            }
            Step::Request(_) | Step::Rejected(_) => {
                unreachable!("requests come after the export was chosen")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_closes_its_socket_is_gone_and_no_error() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset] {
            assert!(matches!(
                HandshakeError::from(io::Error::from(kind)),
                HandshakeError::Gone
            ));
        }
        let other = io::Error::from(io::ErrorKind::TimedOut);
        assert!(matches!(HandshakeError::from(other), HandshakeError::Io(_)));
    }
}
