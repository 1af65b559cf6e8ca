//! TLS to the server of a disk: credentials, handshake, and the transport between the server and an
//! event loop.
//!
//! ```text
//!   connector thread              threads "disk tls"             event loop
//!   files, TCP, STARTTLS,
//!   TLS handshake, NBD options
//!        | Relay::start --------> tunnel <----socket pair-----> Wire
//!        v                          ^ TLS
//!   next connection  <--- cut --- server
//! ```
//!
//! An event loop sees a unix socket, so that neither a handshake nor a record of one disk's server
//! holds up another disk. What a disk has sent and its server has not got lies in the tunnel;
//! before the next connection is made it is discarded ([`Relay::cut`]), because an old write must
//! not come after a newer one.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, SignatureScheme};
use socket2::SockRef;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::credentials::{TlsFileError, client_config};
use super::threads::{runtime, tunnel_threads};
use super::tunnel::Tunnel;
use crate::config::NbdTlsConfig;
use crate::log_limit::SERVER_LOST;

/// Error of TLS to the server of a disk.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// A file cannot be read or has not what it should.
    #[error(transparent)]
    Files(#[from] TlsFileError),
    /// One side refused the other, in words that say what would be right.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Authorities, certificate and name for one connection, from files that were just read.
pub(crate) struct Credentials {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// File of the authorities, and of the certificate that the server is shown, for messages.
    ca: PathBuf,
    own: Option<PathBuf>,
    asked: Arc<Asked>,
}

/// Resolver without a certificate, which notes that the server asked for one.
#[derive(Debug, Default)]
struct Asked(AtomicBool);

impl ResolvesClientCert for Asked {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Reads the files of TLS to the server of a disk and checks that they fit each other.
///
/// # Errors
/// If one cannot be read or has not what it should.
pub fn check_server(tls: &NbdTlsConfig) -> Result<(), TlsFileError> {
    load(tls).map(drop)
}

fn load(tls: &NbdTlsConfig) -> Result<Arc<ClientConfig>, TlsFileError> {
    let own = tls.own.as_ref();
    let own = own.map(|(chain, key)| (chain.as_path(), key.as_path()));
    client_config(&tls.ca, own)
}

impl Credentials {
    /// Reads the files for a connection to `host`.
    ///
    /// # Errors
    /// If one cannot be read or has not what it should.
    pub(crate) fn load(tls: &NbdTlsConfig, host: &str) -> Result<Credentials, ServerTlsError> {
        let mut config = Arc::unwrap_or_clone(load(tls)?);
        // A session that is resumed would not verify the server's certificate again.
        config.resumption = Resumption::disabled();
        let asked = Arc::new(Asked::default());
        if tls.own.is_none() {
            config.client_auth_cert_resolver = asked.clone();
        }
        let name = tls.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            let what = format!("no certificate can be for {name:?}: set `server_name` under `tls`");
            ServerTlsError::Refused(what)
        })?;
        Ok(Credentials {
            config: Arc::new(config),
            name,
            ca: tls.ca.clone(),
            own: tls.own.as_ref().map(|(chain, _)| chain.clone()),
            asked,
        })
    }

    /// Carries through the TLS handshake. Blocks for as long as the stream does.
    ///
    /// # Errors
    /// If one side refuses the other, or the stream fails.
    pub(crate) fn shake_hands(
        &self,
        stream: &mut (impl Read + Write),
    ) -> Result<ClientConnection, ServerTlsError> {
        let tls = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut tls = tls.map_err(|error| ServerTlsError::Refused(self.in_words(&error)))?;
        while tls.is_handshaking() {
            tls.complete_io(stream)
                .map_err(|error| self.explain(error))?;
        }
        Ok(tls)
    }

    /// Returns the error of a stream over TLS in words. With TLS 1.3 a client learns after its
    /// handshake that the server does not take its certificate.
    pub(crate) fn explain(&self, error: io::Error) -> ServerTlsError {
        let inner = error.get_ref();
        if let Some(inner) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return ServerTlsError::Refused(self.in_words(inner));
        }
        let is_over = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        );
        // GnuTLS closes the connection without an alert.
        match &self.own {
            None if is_over && self.asked.0.load(Ordering::Relaxed) => {
                ServerTlsError::Refused(NEEDS_CERTIFICATE.to_owned())
            }
            Some(own) if is_over => ServerTlsError::Refused(format!(
                "the server closed the connection behind the handshake of TLS: it may have \
                 refused the certificate in {}, which has to be valid, for clients, and of an \
                 authority that the server knows",
                own.display()
            )),
            _ => ServerTlsError::Io(error),
        }
    }

    fn in_words(&self, error: &rustls::Error) -> String {
        let refused = |alert: &AlertDescription| match &self.own {
            None if self.asked.0.load(Ordering::Relaxed) => NEEDS_CERTIFICATE.to_owned(),
            None => format!("the server refused TLS with the alert {alert:?}"),
            Some(own) => format!(
                "the server refused the certificate in {} with the alert {alert:?}: it has to be \
                 valid, for clients, and of an authority that the server knows",
                own.display()
            ),
        };
        match error {
            rustls::Error::InvalidCertificate(error) => self.certificate_in_words(error),
            rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
            | rustls::Error::PeerIncompatible(_) => {
                format!("the server does not have TLS 1.3, which is required: {error}")
            }
            rustls::Error::AlertReceived(alert) => refused(alert),
            error => format!("the server broke a rule of TLS: {error}"),
        }
    }

    fn certificate_in_words(&self, error: &CertificateError) -> String {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired: renew it, or set this host's clock"
                    .to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: set the clocks of both hosts".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                let names = match error {
                    CertificateError::NotValidForNameContext { presented, .. } => {
                        format!(" (it has {})", presented.join(", "))
                    }
                    _ => String::new(),
                };
                format!(
                    "the server's certificate is not for {}{names}: issue one for this name, or \
                     set `server_name` under `tls` to a name that it has",
                    self.name.to_str()
                )
            }
            CertificateError::UnknownIssuer => format!(
                "the server's certificate comes from no authority in {}: name the file of its \
                 authority as `ca` under `tls`",
                self.ca.display()
            ),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "the server's certificate is not one for servers: issue one whose \
                 extendedKeyUsage has serverAuth, or without this extension"
                    .to_owned()
            }
            error => {
                let error = rustls::Error::InvalidCertificate(error.clone());
                format!("the server's certificate cannot be verified: {error}")
            }
        }
    }
}

/// Message for a server that asked for a certificate and ended the connection without one.
const NEEDS_CERTIFICATE: &str = "the server requires a client's certificate: set `certificate` and \
                                 `private_key` under `tls`";

/// Threads that encrypt and decrypt for all disks; they end with the last connection.
struct Threads(Option<Runtime>);

impl Threads {
    /// Returns the threads of the process, which are started if there are none.
    fn shared(is_confined: bool) -> io::Result<Arc<Threads>> {
        static SHARED: Mutex<Weak<Threads>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = shared.upgrade() {
            return Ok(threads);
        }
        let runtime = runtime("disk tls", tunnel_threads(), is_confined)?;
        let threads = Arc::new(Threads(Some(runtime)));
        *shared = Arc::downgrade(&threads);
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Without waiting: the last connection may be dropped anywhere.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sockets of a tunnel, with the state of TLS. Fields are dropped in this order, so that the end is
/// known once the sockets are closed.
struct Ends {
    tls: ClientConnection,
    tcp: TcpStream,
    local: UnixStream,
    ended: Sender<Infallible>,
}

/// Transport of a disk's connection over TLS. If it is dropped it ends in order, once the loop has
/// closed its socket.
pub(crate) struct Relay {
    /// Socket to the server.
    tcp: TcpStream,
    task: AbortHandle,
    /// Ends when the tunnel has, and its sockets are closed.
    ended: Receiver<Infallible>,
    /// Tells the tunnel by its end that the loop has closed the connection.
    open: oneshot::Sender<Infallible>,
    _threads: Arc<Threads>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Relay {
    /// Begins to move bytes between a server and an event loop, and returns the loop's socket,
    /// which is in blocking mode. `server` names the server in the log.
    ///
    /// # Errors
    /// If there are no descriptors left, or no threads.
    pub(crate) fn start(
        tls: ClientConnection,
        tcp: TcpStream,
        server: String,
        is_confined: bool,
    ) -> io::Result<(OwnedFd, Relay)> {
        let threads = Threads::shared(is_confined)?;
        let own = tcp.try_clone()?;
        tcp.set_nonblocking(true)?;
        let (of_loop, local) = UnixStream::pair()?;
        local.set_nonblocking(true)?;
        let (ended_sender, ended) = channel();
        let (open, closed) = oneshot::channel();
        let ends = Ends {
            tls,
            tcp,
            local,
            ended: ended_sender,
        };
        let runtime = threads.0.as_ref().expect("taken when they are dropped");
        let task = runtime.spawn(run(ends, closed, server)).abort_handle();
        let relay = Relay {
            tcp: own,
            task,
            ended,
            open,
            _threads: threads,
        };
        Ok((of_loop.into(), relay))
    }

    /// Breaks the connection off, and returns when nothing of it can reach the server any more that
    /// has not left this host.
    pub(crate) fn cut(self) {
        // Closing then discards what was not acknowledged, instead of going on to send it.
        let _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
        self.task.abort();
        // The end comes as an error, because nothing is ever sent.
        let _ = self.ended.recv();
    }

    /// Waits at most `within` for the end in order of a connection whose socket the loop has
    /// closed, then breaks it off.
    pub(crate) fn finish(self, within: Duration) {
        drop(self.open);
        if self.ended.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            let _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
            self.task.abort();
        }
    }
}

/// Runs a tunnel to its end.
async fn run(ends: Ends, closed: oneshot::Receiver<Infallible>, server: String) {
    let Ends {
        tls,
        tcp,
        local,
        ended,
    } = ends;
    // Before the tunnel, and so dropped after it.
    let _ended = ended;
    // Nobody withdraws the right to a server.
    let (_, withdrawn) = oneshot::channel();
    let tunnel = tokio::net::TcpStream::from_std(tcp).and_then(|tcp| {
        let local = tokio::net::UnixStream::from_std(local)?;
        Ok(Tunnel::new(tls.into(), tcp, local))
    });
    let ended = match tunnel {
        Ok(tunnel) => tunnel.run(closed, withdrawn).await,
        Err(error) => Err(super::tunnel::Cut::Io(error)),
    };
    if let Err(cut) = ended
        && SERVER_LOST.allows(Instant::now())
    {
        tracing::warn!(%server, "TLS connection cut: {cut}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::tls::tunnel::tests::connected;

    /// Ends of a connection over TLS: the loop's socket with its relay, and the server's.
    fn relayed() -> (UnixStream, Relay, (rustls::ServerConnection, TcpStream)) {
        let (client, server) = connected(1 << 20);
        let (tls, tcp) = client.into_parts();
        let started = Relay::start(tls, tcp, "a server".to_owned(), false);
        let (of_loop, relay) = started.expect("threads and descriptors");
        (UnixStream::from(of_loop), relay, server)
    }

    #[test]
    fn nothing_follows_a_connection_that_was_cut() {
        let (mut of_loop, relay, (_, mut tcp)) = relayed();
        of_loop.set_nonblocking(true).expect("a socket");
        // The server does not read, so that some is left in the tunnel or in the socket.
        while of_loop.write(&[7; 64 << 10]).is_ok() {}
        relay.cut();
        let mut bytes = [0; 64 << 10];
        let end = loop {
            match tcp.read(&mut bytes) {
                Ok(0) => panic!("an end in order, behind what was to be discarded"),
                Ok(_) => {}
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(end, io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn what_was_sent_before_an_end_in_order_arrives() {
        let (mut of_loop, relay, (tls, tcp)) = relayed();
        let reader = std::thread::spawn(move || {
            let mut server = rustls::StreamOwned::new(tls, tcp);
            let mut bytes = Vec::new();
            server.read_to_end(&mut bytes).expect("an end in order");
            bytes
        });
        of_loop.write_all(&[7; 300_000]).expect("taken");
        drop(of_loop);
        relay.finish(Duration::from_secs(60));
        assert_eq!(reader.join().expect("read"), [7; 300_000]);
    }
}
