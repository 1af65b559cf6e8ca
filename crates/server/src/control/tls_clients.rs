//! Clients over TLS: the handshake, and the stream that the control API serves.
//!
//! ```text
//!   accept --> half-open: TLS handshake, 10 s at most,       thread "tls handshake"
//!                 |       with the wait for a place
//!                 +--> tunnel <--socket pair--> Connections  threads "tls"
//!                 |
//!                 +--> protocol violation, no valid certificate, timeout: closed
//! ```
//!
//! The number of half-open clients is bounded, and a flood displaces itself
//! ([`HalfOpenTables`](crate::listener::HalfOpenTables)). The control thread sees plain text alone.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::listener::{Detached, Entry, HANDSHAKE_TIMEOUT, HalfOpen, Peer, Stream};
use crate::tls::{ListenerTls, TlsConnection};

/// Clients whose handshake is done and that the control thread takes next; further ones wait for
/// their turn within the deadline of the handshake.
const READY_MAX: usize = 16;

/// Clients of one listener with TLS.
pub(super) struct TlsClients {
    tls: Arc<ListenerTls>,
    half_open: Arc<HalfOpen>,
    sender: mpsc::Sender<Ready>,
    ready: mpsc::Receiver<Ready>,
}

/// Client whose handshake is done, between two runtimes. It has one descriptor until the control
/// thread takes it.
struct Ready {
    connection: TlsConnection,
    peer: Peer,
    address: SocketAddr,
    /// Half-open until the control thread takes the client.
    _entry: Arc<Entry>,
}

/// Plain text of a client: one end of a pair of sockets, whose other end is a tunnel's.
pub(super) struct TlsClientStream {
    local: UnixStream,
    /// Tells the tunnel, when it is dropped, that nobody reads the client's requests any more.
    _open: oneshot::Sender<Infallible>,
}

impl TlsClients {
    /// Makes the clients of a listener, of which there are none yet.
    pub(super) fn new(tls: Arc<ListenerTls>, half_open: Arc<HalfOpen>) -> TlsClients {
        let (sender, ready) = mpsc::channel(READY_MAX);
        TlsClients {
            tls,
            half_open,
            sender,
            ready,
        }
    }

    /// Begins the handshake of a client that was accepted.
    pub(super) fn begin(&self, stream: Stream, peer: Peer, address: SocketAddr) {
        let entry = Arc::new(self.half_open.add(peer.key()));
        let (tls, half_open, sender) = (
            self.tls.clone(),
            self.half_open.clone(),
            self.sender.clone(),
        );
        let detached = stream.detach();
        let task = tls.clone().spawn_handshake({
            let entry = entry.clone();
            async move {
                let hand_over = async {
                    let ready = Ready {
                        connection: shake(detached, &tls, &entry).await?,
                        peer,
                        address,
                        _entry: entry.clone(),
                    };
                    // Fails if the API is served no more.
                    drop(sender.send(ready).await);
                    Ok::<_, io::Error>(())
                };
                match timeout(HANDSHAKE_TIMEOUT, hand_over).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => half_open.cut_off(&peer, format_args!("TLS: {error}")),
                    Err(_) => half_open.cut_off_late(&peer, "no TLS handshake, or no place,"),
                }
                drop(entry);
            }
        });
        entry.set_task(task);
    }

    /// Frees a descriptor after an `accept` that found none.
    pub(super) fn make_room_after(&self, error: &io::Error) {
        self.half_open.make_room_after(error);
    }

    /// Waits for the next client whose handshake is done, and starts its tunnel; `None` if it
    /// cannot be served, which is logged. Cancellation safe.
    pub(super) async fn next(&mut self) -> Option<(TlsClientStream, SocketAddr)> {
        let ready = self.ready.recv().await;
        let ready = ready.expect("this value has a sender");
        let (peer, address) = (ready.peer, ready.address);
        let stream = self.begin_tunnel(ready);
        stream
            .inspect_err(|error| self.half_open.cut_off(&peer, format_args!("TLS: {error}")))
            .ok()
            .map(|stream| (stream, address))
    }

    fn begin_tunnel(&self, ready: Ready) -> io::Result<TlsClientStream> {
        let (open, closed) = oneshot::channel();
        let peer = ready.peer.to_string();
        let local = self.tls.tunnel(ready.connection, peer, None, closed)?;
        let local = StdUnixStream::from(local);
        local.set_nonblocking(true)?;
        Ok(TlsClientStream {
            local: UnixStream::from_std(local)?,
            _open: open,
        })
    }
}

/// Carries through the handshake of a client.
async fn shake(
    detached: io::Result<Detached>,
    tls: &ListenerTls,
    entry: &Entry,
) -> io::Result<TlsConnection> {
    let tcp = detached?.attach_tcp()?;
    // Clients that are silent make room before those that have sent something.
    tcp.readable().await?;
    entry.heard();
    // Which exports a client of NBD would have does not matter.
    let (connection, _) = tls.accept(tcp).await?;
    entry.heard();
    Ok(*connection)
}

impl AsyncRead for TlsClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.local).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.local).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.local).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.local).poll_shutdown(cx)
    }
}
