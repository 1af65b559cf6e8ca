//! TLS of listeners on TCP: certificates, exports of a client of NBD, and the transport of a
//! connection between a client's socket and an event loop, or the control API.
//!
//! ```text
//!   client --TCP--> listener: NBD options in plain text
//!                      | NBD_OPT_STARTTLS
//!                      v
//!                   TLS handshake, NBD options over TLS      thread "tls handshake"
//!                      | NBD_OPT_GO
//!                      v
//!   client <--TLS--> tunnel <--socket pair--> event loop     threads "tls"
//! ```
//!
//! An event loop knows nothing of TLS: it receives and sends at its end of a pair of unix sockets,
//! and a tunnel moves the bytes between the other end and the client. Where nothing has TLS
//! there are no such threads. The control API and the listeners of metrics have threads of their
//! own: a flood of handshakes at a listener of NBD does not keep an operator out.
//!
//! For a disk on a server the daemon is the client (`relay`): a connector's thread shakes hands,
//! and a tunnel does the rest on threads of disks.
//!
//! Sessions are not resumed, because a session that is resumed does not verify the client's
//! certificate again, which may have been revoked.

mod access;
mod clients;
mod credentials;
mod listeners;
mod relay;
mod threads;
mod tunnel;

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use tidegate_nbd::TlsMode;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::blocking_call::{self, NotDone};
use crate::config::TlsConfig;

pub(crate) use access::Access;
use clients::{Admission, Client, OpenClients, Rules};
use credentials::Loaded;
pub use credentials::{TlsFileError, check, client_config, exposed_key};
pub use listeners::TlsOpenError;
pub(crate) use listeners::{Configured, TlsListeners};
pub(crate) use relay::{Credentials, Relay};
pub use relay::{ServerTlsError, check_server};
pub(crate) use threads::TlsThreads;

/// TLS of a listener.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    /// Address of the listener, for messages.
    name: String,
    /// Exports that everybody has, also without TLS; fixed at the start.
    plain_exports: Vec<String>,
    current: RwLock<Current>,
    threads: Arc<TlsThreads>,
    open: Arc<OpenClients>,
}

/// Content of the files when they were read last.
#[derive(Clone, Debug)]
struct Current {
    server: Arc<ServerConfig>,
    rules: Arc<Rules>,
}

impl Current {
    /// Reads the files. `before` has the rules in force; `None` at the start.
    fn load(config: TlsConfig, before: Option<&Rules>) -> Result<Current, TlsFileError> {
        let Loaded {
            server,
            revoked,
            authorities,
        } = credentials::load(&config)?;
        if let Some(warning) = exposed_key(&config.private_key) {
            tracing::warn!("{warning}");
        }
        let generation = before.map_or(0, |before| before.generation + 1);
        let same = before.filter(|before| before.authorities == authorities);
        let rules = Arc::new(Rules {
            generation,
            config,
            revoked,
            authorities,
            authorities_since: same.map_or(generation, |before| before.authorities_since),
        });
        Ok(Current { server, rules })
    }
}

/// Connection whose TLS handshake is done.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    pub(crate) stream: TlsStream<TcpStream>,
    admission: Admission,
}

/// Time for the files of a listener, or the configuration, to be read again. A file system that
/// hangs answers later or never.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Error of reading the files of a listener again.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Files(TlsFileError),
    #[error("the files could not be read: {0}")]
    NotDone(NotDone),
}

impl ListenerTls {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// If one cannot be read or has not what it should.
    pub(crate) fn open(
        name: String,
        config: TlsConfig,
        threads: Arc<TlsThreads>,
    ) -> Result<ListenerTls, TlsFileError> {
        let plain_exports = config.plain_exports.clone();
        let current = RwLock::new(Current::load(config, None)?);
        Ok(ListenerTls {
            name,
            plain_exports,
            current,
            threads,
            open: Arc::default(),
        })
    }

    fn current(&self) -> Current {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the section of the configuration in force.
    fn section(&self) -> TlsConfig {
        self.current().rules.config.clone()
    }

    /// Reads the files of a section again, for connections from now on, and ends those of clients
    /// that the section would not admit any more. Returns the number of connections that end.
    /// At most one call of a listener runs at a time.
    ///
    /// # Errors
    /// As for [`ListenerTls::open`], or if the files are not read within [`READ_WITHIN`]; what was
    /// read before stays in force.
    async fn reload(self: &Arc<Self>, section: TlsConfig) -> Result<usize, ReloadError> {
        let before = self.current().rules;
        let load = move || Current::load(section, Some(&before));
        let read = blocking_call::call_async(READ_WITHIN, load).await;
        // What is read too late is dropped here: only this task puts rules into force.
        let fresh = (read.map_err(ReloadError::NotDone)?).map_err(ReloadError::Files)?;
        let own = self.clone();
        // Verifying the certificates of many clients takes a while, and blocks on nothing.
        let applied = tokio::task::spawn_blocking(move || own.put_into_force(fresh)).await;
        applied.map_err(|_| ReloadError::NotDone(NotDone::Panicked))
    }

    fn put_into_force(&self, fresh: Current) -> usize {
        let rules = fresh.rules.clone();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.open.end_refused(&rules)
    }

    /// Returns the mode in which the listener negotiates.
    pub(crate) fn mode(&self) -> TlsMode {
        if self.plain_exports.is_empty() {
            TlsMode::Forced
        } else {
            TlsMode::Selective
        }
    }

    /// Returns what a client may open before TLS.
    pub(crate) fn plain_access(&self) -> Access {
        Access::plain(&self.plain_exports)
    }

    /// Carries through the TLS handshake of a client.
    ///
    /// # Errors
    /// If the client breaks a rule of TLS, or has no valid certificate where one is needed.
    pub(crate) async fn accept(&self, tcp: TcpStream) -> io::Result<(Box<TlsConnection>, Access)> {
        let Current { server, rules } = self.current();
        let stream = TlsAcceptor::from(server).accept(tcp).await?;
        let (_, connection) = stream.get_ref();
        let certificate = connection
            .peer_certificates()
            .and_then(|chain| chain.first());
        let access = Access::of_client(&rules.config, certificate);
        let admission = Admission {
            generation: rules.generation,
            at: UnixTime::now(),
        };
        Ok((Box::new(TlsConnection { stream, admission }), access))
    }

    /// Runs the handshake of a client on the thread for handshakes.
    pub(crate) fn spawn_handshake(
        &self,
        handshake: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        self.threads.spawn_handshake(handshake)
    }

    /// Begins to move bytes between a client and an event loop, and returns the loop's socket,
    /// which is in blocking mode. `export` names the VM and the disk that a client of NBD has
    /// opened; `closed` ends when the loop has closed the connection.
    ///
    /// # Errors
    /// If there are no descriptors left, or the client lost the right to the connection since it
    /// was admitted.
    pub(crate) fn tunnel(
        &self,
        connection: TlsConnection,
        peer: String,
        export: Option<(String, String)>,
        closed: oneshot::Receiver<Infallible>,
    ) -> io::Result<OwnedFd> {
        let TlsConnection { stream, admission } = connection;
        let (_, of_client) = stream.get_ref();
        let chain = of_client.peer_certificates().unwrap_or_default();
        let chain = chain
            .iter()
            .map(|certificate| certificate.clone().into_owned());
        let client = Client {
            chain: chain.collect(),
            export,
            admission,
        };
        let rules = || self.current().rules;
        let registered = self.open.register(client, rules);
        let registered = registered.map_err(io::Error::other)?;
        self.threads.tunnel(stream, peer, closed, registered)
    }
}
