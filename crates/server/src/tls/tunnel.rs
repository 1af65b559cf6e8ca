//! Transport of one connection between a peer, over TLS, and an event loop, over a unix socket. The
//! peer is a client of a listener, or the server of a disk.
//!
//! ```text
//!            read_tls              try_write
//!    peer  ------------> plain text ------------> event loop     nothing is read from the peer
//!    (TCP)                                     (unix socket)      while plain text waits
//!           <------------ records <--------------                nothing is read from the loop
//!             write_tls            try_read                       while records wait
//! ```
//!
//! So each side has to wait for the other, as on a socket between them, and a connection holds a
//! bounded amount of memory: 64 KiB of records and what was decrypted of one.
//!
//! - If the peer sends `close_notify`, the loop reads an end of file behind all that was sent,
//!   and its replies still go out.
//! - If the peer closes TCP without it (truncation), or breaks a rule of TLS, the loop's socket
//!   is closed, and nothing is answered any more.
//! - If the peer sends records without content for long, such as changes of keys, it is cut off:
//!   they take processor time, and hold nothing up that could slow them down.
//! - If a client loses its right to the connection, because its certificate is revoked, both
//!   sockets are closed at once.
//! - If the loop closes its end, what it has sent goes out, then `close_notify`, within [`LINGER`].

use std::convert::Infallible;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::pin;
use std::time::Duration;

use rustls::Connection;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, sleep_until};

use super::clients::Withdrawn;

/// Time for which a client may take what an event loop sent before it closed the connection.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// Bytes read from the loop at a time: the payload of one record.
const PIECE: usize = 16 << 10;
/// Pieces that become records before they are sent together.
const PIECES: usize = 4;
/// Steps after which a tunnel gives way to the others of its thread.
const BURST: usize = 16;
/// Bytes of TCP that may come in a row without plain text: more than a record has, 18,437, and a
/// few changes of keys.
const EMPTY_BYTES_MAX: usize = 64 << 10;

/// Reason why a connection was cut before the loop closed it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error("it broke a rule of TLS: {0}")]
    Rule(rustls::Error),
    #[error("its end was cut off: TCP was closed without close_notify")]
    Truncated,
    #[error("{0}")]
    Io(io::Error),
    #[error("it has not taken its last replies within {LINGER:?}")]
    Slow,
    #[error("it has sent {EMPTY_BYTES_MAX} bytes of TLS records without content")]
    Empty,
    #[error("{0}")]
    Withdrawn(Withdrawn),
}

/// Transport of one connection.
pub(super) struct Tunnel {
    tls: Connection,
    tcp: TcpStream,
    local: UnixStream,
    /// Plain text waits for the loop.
    waits: bool,
    /// Bytes that the peer has sent since its last plain text.
    empty_bytes: usize,
    /// The peer sends nothing more, or nothing that the loop would take.
    peer_ended: bool,
    /// The loop sends nothing more, and `close_notify` is among the records.
    loop_ended: bool,
}

impl Tunnel {
    /// Makes a tunnel of a connection whose handshake is done.
    pub(super) fn new(mut tls: Connection, tcp: TcpStream, local: UnixStream) -> Tunnel {
        // `send` bounds the records itself.
        tls.set_buffer_limit(None);
        Tunnel {
            tls,
            tcp,
            local,
            waits: false,
            empty_bytes: 0,
            peer_ended: false,
            loop_ended: false,
        }
    }

    /// Moves bytes until one side has ended. `closed` ends when the loop has closed the connection;
    /// `withdrawn` says that the client has lost the right to it, and gets nothing more.
    pub(super) async fn run(
        mut self,
        mut closed: oneshot::Receiver<Infallible>,
        withdrawn: oneshot::Receiver<Withdrawn>,
    ) -> Result<(), Cut> {
        let withdrawn = async {
            match withdrawn.await {
                Ok(why) => why,
                // The listener is gone, so that nobody withdraws anything.
                Err(_) => std::future::pending().await,
            }
        };
        let mut withdrawn = pin!(withdrawn);
        let mut deadline = None;
        let mut shut_down = false;
        loop {
            let mut steps = 0;
            while self.advance()? {
                steps += 1;
                if steps == BURST {
                    tokio::select! {
                        biased;
                        why = &mut withdrawn => return Err(Cut::Withdrawn(why)),
                        () = tokio::task::yield_now() => {}
                    }
                    steps = 0;
                    // A peer that goes on sending keeps the tunnel from waiting below.
                    if deadline.is_none() && closed.try_recv() == Err(TryRecvError::Closed) {
                        deadline = Some(Instant::now() + LINGER);
                    }
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return Err(Cut::Slow);
                    }
                }
            }
            if self.loop_ended && !self.tls.wants_write() {
                return Ok(());
            }
            if self.peer_ended && !self.waits && !shut_down {
                shut_down = true;
                // The loop may have closed its end already.
                let _ = self.local.shutdown().await;
            }
            tokio::select! {
                why = &mut withdrawn => return Err(Cut::Withdrawn(why)),
                ready = self.ready() => ready.map_err(Cut::Io)?,
                _ = &mut closed, if deadline.is_none() => deadline = Some(Instant::now() + LINGER),
                () = until(deadline) => return Err(Cut::Slow),
            }
        }
    }

    /// Waits until a socket can do what the tunnel waits for.
    async fn ready(&self) -> io::Result<()> {
        let records_wait = self.tls.wants_write();
        let of_peer = interest(!self.peer_ended && !self.waits, records_wait);
        let of_loop = interest(!self.loop_ended && !records_wait, self.waits);
        let peer = async {
            match of_peer {
                Some(interest) => self.tcp.ready(interest).await.map(drop),
                None => std::future::pending().await,
            }
        };
        let event_loop = async {
            match of_loop {
                Some(interest) => self.local.ready(interest).await.map(drop),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ready = peer => ready,
            ready = event_loop => ready,
        }
    }

    /// Moves what can be moved without waiting. Returns false if that was nothing.
    fn advance(&mut self) -> Result<bool, Cut> {
        let received = self.receive()?;
        let sent = self.send()?;
        Ok(received || sent)
    }

    /// Moves bytes from the peer to the loop.
    fn receive(&mut self) -> Result<bool, Cut> {
        let delivered = self.deliver();
        if self.waits || self.peer_ended {
            return Ok(delivered);
        }
        match self.tls.read_tls(&mut Socket(&self.tcp)) {
            Ok(0) => {
                // The end that came with the last bytes of the handshake was in order.
                let in_order = self.tls.reader().fill_buf().is_ok();
                self.peer_ended = in_order;
                return if in_order {
                    Ok(true)
                } else {
                    Err(Cut::Truncated)
                };
            }
            Ok(n) => self.empty_bytes += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(delivered),
            Err(error) => return Err(Cut::Io(error)),
        }
        match self.tls.process_new_packets() {
            Ok(state) => {
                self.peer_ended = state.peer_has_closed();
                if state.plaintext_bytes_to_read() > 0 {
                    self.empty_bytes = 0;
                }
            }
            Err(error) => {
                // The alert that says why; the peer may be gone.
                let _ = self.tls.write_tls(&mut Socket(&self.tcp));
                return Err(Cut::Rule(error));
            }
        }
        if self.empty_bytes > EMPTY_BYTES_MAX {
            return Err(Cut::Empty);
        }
        self.deliver();
        Ok(true)
    }

    /// Hands plain text to the loop. Returns false if there was none, or the loop took none.
    fn deliver(&mut self) -> bool {
        let mut moved = false;
        self.waits = false;
        loop {
            let mut reader = self.tls.reader();
            // An error says that there is no plain text now.
            let Ok(text) = reader.fill_buf() else {
                return moved;
            };
            if text.is_empty() {
                return moved;
            }
            let len = text.len();
            match self.local.try_write(text) {
                Ok(n) => reader.consume(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waits = true;
                    return moved;
                }
                // The loop has closed its end: what the peer sends is for nobody.
                Err(_) => {
                    reader.consume(len);
                    self.peer_ended = true;
                }
            }
            moved = true;
        }
    }

    /// Moves bytes from the loop to the peer.
    fn send(&mut self) -> Result<bool, Cut> {
        let mut moved = self.flush()?;
        if self.tls.wants_write() || self.loop_ended {
            return Ok(moved);
        }
        // On the stack, so that a connection without traffic has no buffer.
        let mut piece = [0; PIECE];
        for _ in 0..PIECES {
            match self.local.try_read(&mut piece) {
                Ok(n) if n > 0 => {
                    let mut writer = self.tls.writer();
                    writer
                        .write_all(&piece[..n])
                        .expect("records have no bound");
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Closed; with an error if it left bytes of the peer unread.
                Ok(_) | Err(_) => {
                    self.loop_ended = true;
                    self.peer_ended = true;
                    self.waits = false;
                    self.tls.send_close_notify();
                }
            }
            moved = true;
            if self.loop_ended {
                break;
            }
        }
        self.flush()?;
        Ok(moved)
    }

    /// Sends records as far as the peer takes them.
    fn flush(&mut self) -> Result<bool, Cut> {
        let mut moved = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(_) => moved = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Cut::Io(error)),
            }
        }
        Ok(moved)
    }
}

fn interest(reads: bool, writes: bool) -> Option<Interest> {
    match (reads, writes) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Socket of a peer, for calls that do not wait.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(to)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream};
    use std::os::unix::net::UnixStream as StdUnixStream;
    use std::sync::Arc;

    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
        SupportedCipherSuite, Tls13CipherSuite,
    };

    use super::*;

    /// Returns cryptography whose keys encrypt only some records each.
    fn short_lived_keys(records: u64) -> CryptoProvider {
        let mut provider = ring::default_provider();
        let suites = provider.cipher_suites.iter().filter_map(|suite| {
            let suite = suite.tls13()?;
            let mut short = Tls13CipherSuite {
                common: rustls::crypto::CipherSuiteCommon { ..suite.common },
                ..*suite
            };
            short.common.confidentiality_limit = records;
            Some(SupportedCipherSuite::Tls13(Box::leak(Box::new(short))))
        });
        provider.cipher_suites = suites.collect();
        provider
    }

    /// Sockets of a client and of a server between which a handshake was done. The server's keys
    /// are short-lived.
    pub(in crate::tls) fn connected(
        records: u64,
    ) -> (
        StreamOwned<ClientConnection, StdTcpStream>,
        (ServerConnection, StdTcpStream),
    ) {
        let own = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("made");
        let certificate = own.cert.der().clone();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
        let server = ServerConfig::builder_with_provider(Arc::new(short_lived_keys(records)))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("suites")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("they belong together");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("suites")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = StdTcpListener::bind("127.0.0.1:0").expect("loopback");
        let tcp = StdTcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
        let (mut accepted, _) = listener.accept().expect("connected");
        let accepting = std::thread::spawn(move || {
            let mut tls = ServerConnection::new(Arc::new(server)).expect("sound");
            while tls.is_handshaking() {
                tls.complete_io(&mut accepted).expect("a handshake");
            }
            (tls, accepted)
        });
        let name = ServerName::try_from("a.example").expect("a name");
        let tls = ClientConnection::new(Arc::new(client), name).expect("sound");
        let mut client = StreamOwned::new(tls, tcp);
        while client.conn.is_handshaking() {
            client
                .conn
                .complete_io(&mut client.sock)
                .expect("a handshake");
        }
        (client, accepting.join().expect("a server"))
    }

    /// A key encrypts 2^24 records with AES-GCM, which a connection that stays for days exceeds.
    #[tokio::test]
    async fn bytes_are_kept_when_keys_have_to_change() {
        const LEN: usize = 64 << 10;
        // A record has 16 KiB, so keys change with each piece and within it.
        let (mut client, (tls, tcp)) = connected(3);
        let (mut of_loop, local) = StdUnixStream::pair().expect("a pair");
        let echo = std::thread::spawn(move || {
            let mut from = of_loop.try_clone().expect("a descriptor");
            io::copy(&mut from, &mut of_loop).expect("an end in order")
        });
        let test = std::thread::spawn(move || {
            for round in 0..64 {
                let sent: Vec<u8> = (0..LEN).map(|i| (i / 251 + i + round) as u8).collect();
                client.write_all(&sent).expect("taken");
                let mut back = vec![0; LEN];
                client.read_exact(&mut back).expect("echoed");
                assert!(back == sent, "round {round}");
            }
            client.conn.send_close_notify();
            client.flush().expect("taken");
            let end = client.read(&mut [0; 1]).expect("close_notify");
            assert_eq!(end, 0);
        });
        tcp.set_nonblocking(true).expect("a socket");
        local.set_nonblocking(true).expect("a socket");
        let tunnel = Tunnel::new(
            tls.into(),
            TcpStream::from_std(tcp).expect("a socket"),
            UnixStream::from_std(local).expect("a socket"),
        );
        let (_open, closed) = oneshot::channel();
        let (_right, withdrawn) = oneshot::channel();
        tunnel
            .run(closed, withdrawn)
            .await
            .expect("an end in order");
        assert_eq!(echo.join().expect("echoed"), 64 * LEN as u64);
        test.join().expect("all came back");
    }
}
