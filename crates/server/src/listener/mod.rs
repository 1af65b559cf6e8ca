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
//! The handshake is asynchronous and runs on the control thread, or where a listener has TLS, on
//! a thread of its own. Then the socket goes to the event loop of the export's device, with any
//! bytes received beyond the handshake; with TLS that is one end of a pair, and the other goes to
//! a tunnel ([`tls`](crate::tls)). `half_open` limits
//! connections during the handshake, [`connections`](crate::connections) limits them afterwards.

mod disk_user;
mod export_list;
mod front_end;
mod half_open;
mod inherited;
mod own_socket;
mod passed_sockets;
mod socket;
mod socket_file;
mod vhost_user;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_nbd::{Export, Exports, Fatal, Limits, Opened, Session, Step, TlsMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::connections::ConnectionPermit;
use crate::frontend::{Opening, nbd};
use crate::log_limit;
use crate::tls::{Access, ListenerTls};

pub use export_list::{ExportCatalogue, ExportEntry, ExportList};
pub(crate) use front_end::FrontEnd;
pub(crate) use half_open::{Entry, HalfOpen};
pub use half_open::{
    HALF_OPEN_CONTROL_MAX, HALF_OPEN_MAX, HALF_OPEN_METRICS_MAX, HALF_OPEN_PER_PEER,
    HalfOpenTables, HandshakeCounts, SILENCE_MIN,
};
pub use inherited::{InheritedSocket, InheritedSockets};
pub use own_socket::{InheritError, OwnSocket};
pub use passed_sockets::{PassedError, take_over_passed};
pub use socket::{BindError, Bound, check_owner};
pub(crate) use socket::{
    Credentials, Detached, Listener, Peer, PeerKey, Stream, group_number, user_number,
};
pub use vhost_user::VhostUserListener;

/// Deadline for a whole handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
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
    #[error("TLS: {0}")]
    Tls(io::Error),
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

/// Accepts clients of one listener until the future is dropped. `tls` is the listener's, if it has
/// one.
pub(crate) async fn accept_clients(
    bound: Arc<Bound>,
    list: ExportList,
    tls: Option<Arc<ListenerTls>>,
    half_open: Arc<HalfOpen>,
) {
    let service = Arc::new(ClientService {
        list,
        tls,
        half_open,
    });
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
                service.half_open.make_room_after(&error);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        // Each client gets a task, so that a slow handshake does not delay the next `accept`.
        let entry = Arc::new(service.half_open.add(peer.key()));
        let task = begin_handshake(stream, peer, &service, entry.clone());
        entry.set_task(task);
    }
}

/// Begins the handshake of a client: on this thread, or on that for TLS.
fn begin_handshake(
    stream: Stream,
    peer: Peer,
    service: &Arc<ClientService>,
    entry: Arc<half_open::Entry>,
) -> AbortHandle {
    let own = service.clone();
    let Some(tls) = &service.tls else {
        let task = async move { handle_client(stream, peer, &own, &entry).await };
        return tokio::spawn(task).abort_handle();
    };
    let detached = stream.detach();
    tls.spawn_handshake(async move {
        match detached.and_then(Detached::attach_tcp).map(Stream::Tcp) {
            Ok(stream) => handle_client(stream, peer, &own, &entry).await,
            Err(error) => log_lost(peer, &error),
        }
    })
}

/// Logs that a client cannot be passed to the thread that would serve it. Clients can cause that:
/// each connection takes descriptors.
fn log_lost(peer: Peer, error: &io::Error) {
    if log_limit::LOST.allows(Instant::now()) {
        tracing::warn!(%peer, "client lost: {error}");
    }
}

/// Exports of a listener for its clients, with TLS if it has some.
struct ClientService {
    list: ExportList,
    tls: Option<Arc<ListenerTls>>,
    half_open: Arc<HalfOpen>,
}

async fn handle_client(
    stream: Stream,
    peer: Peer,
    service: &ClientService,
    entry: &half_open::Entry,
) {
    let half_open = &service.half_open;
    match timeout(HANDSHAKE_TIMEOUT, handshake(stream, peer, service, entry)).await {
        Ok(Ok(Some(chosen))) => chosen.hand_over(peer, service),
        Ok(Ok(None)) => tracing::debug!(%peer, "client left during the handshake"),
        Ok(Err(HandshakeError::Gone)) => tracing::debug!(%peer, "client gone in the handshake"),
        Ok(Err(error)) => half_open.cut_off(&peer, error),
        Err(_) => half_open.cut_off_late(&peer, "no export chosen"),
    }
}

/// Client that has chosen an export.
struct Chosen {
    stream: Stream,
    session: Session,
    opened: Opened,
    /// Bytes received beyond the handshake.
    leftover: Vec<u8>,
    listed: ExportEntry,
    permit: ConnectionPermit,
}

impl Chosen {
    /// Hands the client over to the event loop of its export.
    fn hand_over(mut self, peer: Peer, service: &ClientService) {
        let is_tunnelled = matches!(self.stream, Stream::Tls(_));
        let fd = match (self.stream, &service.tls) {
            (Stream::Tls(stream), Some(tls)) => {
                let export = (self.listed.vm.clone(), self.listed.volume.name.clone());
                let closed = self.permit.end();
                tls.tunnel(*stream, peer.to_string(), Some(export), closed)
            }
            (stream, _) => stream.into_fd(),
        };
        let fd = match fd {
            Ok(fd) => fd,
            Err(error) => return log_lost(peer, &error),
        };
        let opening = Opening::Nbd(nbd::Opening {
            fd,
            session: self.session,
            style: self.opened.style,
            allocation_context: self.opened.allocation_context,
            leftover: self.leftover,
            skip: 0,
            is_tunnelled,
        });
        self.listed
            .hand_over(opening, peer.to_string(), self.permit);
    }
}

/// Exports that a listener offers to one client, and the permit of the export that it chose.
struct HandshakeExports<'a> {
    list: &'a ExportList,
    half_open: &'a HalfOpen,
    peer: Peer,
    /// Exports that the client may open; it sees no others.
    access: Access,
    over_tls: bool,
    /// Result of [`Exports::admit`], which takes `&self`; the lock is never contended, and makes
    /// this type `Sync` because the handshake may move between threads.
    admitted: Mutex<Option<(ExportEntry, ConnectionPermit)>>,
}

impl HandshakeExports<'_> {
    /// Returns the volume that the client names, if it may open it.
    fn find(&self, name: &str) -> Option<ExportEntry> {
        let listed = self.list.find(name)?;
        let allowed = self.access.allows(&listed.vm, &listed.volume.name);
        if !allowed && self.over_tls {
            // Only the log can say so: to the client the export does not exist.
            self.refused(
                &listed.volume.name,
                "its certificate does not have this export",
            );
        }
        allowed.then_some(listed)
    }

    /// Counts and logs that the client was refused an export.
    fn refused(&self, export: &str, why: &str) {
        self.half_open.refused.fetch_add(1, Ordering::Relaxed);
        if log_limit::REFUSED.allows(Instant::now()) {
            tracing::warn!(%export, peer = %self.peer, "client refused: {why}");
        }
    }
}

impl Exports for HandshakeExports<'_> {
    fn lookup(&self, name: &str) -> Option<Export> {
        let listed = self.find(name)?;
        Some(nbd::export(listed.volume))
    }

    fn admit(&self, export: &Export) -> Result<(), String> {
        let listed = self.find(&export.name);
        // The name may belong to another disk since the client looked it up.
        let Some(listed) = listed.filter(|listed| listed.volume.serial == export.id) else {
            return Err("it has just been removed".to_owned());
        };
        let refused = |why: String| {
            self.refused(&export.name, &why);
            why
        };
        let activation = listed.volume.activation.as_ref();
        if let Some(why) = activation.and_then(|activation| activation.state().refusal()) {
            // A client is no sign that the disk's guest runs here, so it never has the lock taken.
            return Err(refused(why.to_owned()));
        }
        let permit = listed.connections.admit();
        let permit = permit.map_err(|why| refused(why.to_string()))?;
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        *admitted = Some((listed, permit));
        Ok(())
    }

    fn list(&self, f: &mut dyn FnMut(&str, &str)) {
        self.list.for_each(|vm, volume| {
            if self.access.allows(vm, &volume.name) {
                f(&volume.name, "");
            }
        });
    }
}

/// Runs the handshake. `None` if the client ended it in order.
async fn handshake(
    mut stream: Stream,
    peer: Peer,
    service: &ClientService,
    entry: &half_open::Entry,
) -> Result<Option<Chosen>, HandshakeError> {
    let tls = service.tls.as_ref();
    let mut exports = HandshakeExports {
        list: &service.list,
        half_open: &service.half_open,
        peer,
        access: tls.map_or(Access::All, |tls| tls.plain_access()),
        over_tls: false,
        admitted: Mutex::default(),
    };
    let mode = tls.map_or(TlsMode::Off, |tls| tls.mode());
    let mut session = Session::with_tls(Limits::default(), mode);
    let mut input = Vec::with_capacity(RECEIVE_BYTES);
    loop {
        // The server speaks first in NBD, so output is sent before input is read.
        send_output(&mut stream, &mut session).await?;
        let (used, step) = session.handle(&input, &exports)?;
        input.drain(..used);
        match step {
            Step::NeedMore(_) => {
                receive(&mut stream, &mut input).await?;
                entry.heard();
            }
            Step::Output => {}
            Step::StartTls => {
                send_output(&mut stream, &mut session).await?;
                // The session has refused bytes that came in plain text behind the option.
                assert!(input.is_empty(), "plain text is taken into TLS");
                (stream, exports.access) = start_tls(stream, tls).await?;
                session.tls_established();
                exports.over_tls = true;
                entry.heard();
            }
            Step::Opened(opened) => {
                send_output(&mut stream, &mut session).await?;
                let admitted = exports.admitted.into_inner();
                let admitted = admitted.unwrap_or_else(PoisonError::into_inner);
                let (listed, permit) =
                    admitted.expect("an export is opened only once the client is admitted");
                return Ok(Some(Chosen {
                    stream,
                    session,
                    opened: *opened,
                    // The rest of the input is the client's first requests.
                    leftover: input,
                    listed,
                    permit,
                }));
            }
            Step::Disconnect(_) => {
                send_output(&mut stream, &mut session).await?;
                if let Stream::Tls(stream) = &mut stream {
                    // Tells the client that this is the end; it may have gone already.
                    let _ = stream.stream.shutdown().await;
                }
                return Ok(None);
            }
            Step::Request(_) | Step::Rejected(_) => {
                unreachable!("requests come after the export was chosen")
            }
        }
    }
}

async fn receive(stream: &mut Stream, input: &mut Vec<u8>) -> Result<(), HandshakeError> {
    let mut piece = [0; RECEIVE_BYTES];
    match stream.read(&mut piece).await? {
        0 => Err(HandshakeError::Gone),
        n => {
            input.extend_from_slice(&piece[..n]);
            Ok(())
        }
    }
}

async fn send_output(stream: &mut Stream, session: &mut Session) -> io::Result<()> {
    if !session.output().is_empty() {
        stream.write_all(session.output()).await?;
        session.consume_output(session.output().len());
        // Records of TLS may be left in a buffer.
        stream.flush().await?;
    }
    Ok(())
}

/// Goes from plain text to TLS. Returns what the client may open, too.
async fn start_tls(
    stream: Stream,
    tls: Option<&Arc<ListenerTls>>,
) -> Result<(Stream, Access), HandshakeError> {
    let (Stream::Tcp(tcp), Some(tls)) = (stream, tls) else {
        unreachable!("only a listener on TCP offers TLS, and once");
    };
    let accepted = tls.accept(tcp).await.map_err(HandshakeError::Tls)?;
    let (stream, access) = accepted;
    Ok((Stream::Tls(stream), access))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_lost_do_not_flood_the_log() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let writer = Mutex::new(log.reopen().expect("a file"));
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        tracing::subscriber::with_default(subscriber, || {
            let none_free = io::Error::from_raw_os_error(libc::EMFILE);
            for _ in 0..1000 {
                log_lost(Peer::Unix { uid: 0, pid: None }, &none_free);
            }
        });
        let lines = std::fs::read_to_string(log.path()).expect("text");
        let lines = lines.matches("client lost").count();
        // A second window may begin meanwhile.
        let limit = log_limit::LINES_PER_WINDOW as usize;
        assert!((limit..=2 * limit).contains(&lines), "{lines} lines");
    }

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
