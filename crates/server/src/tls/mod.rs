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
//! Sessions are not resumed, because a session that is resumed does not verify the client's
//! certificate again, which may have been revoked.

mod access;
mod clients;
mod credentials;
mod listeners;
mod threads;
mod tunnel;

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::ServerConfig;
use tidegate_nbd::TlsMode;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{TlsClientConfig, TlsConfig};

pub(crate) use access::Access;
use clients::{Client, OpenClients, Rules};
use credentials::Loaded;
pub use credentials::{TlsFileError, check, client_config, exposed_key};
pub use listeners::TlsOpenError;
pub(crate) use listeners::{Configured, TlsListeners};
pub(crate) use threads::TlsThreads;

/// TLS of a listener.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    /// Address of the listener, for messages.
    name: String,
    config: TlsConfig,
    current: RwLock<Current>,
    /// Held while the files are read, so that what was read last is in force.
    reading: Mutex<()>,
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
    fn load(config: &TlsConfig, generation: u64) -> Result<Current, TlsFileError> {
        let Loaded { server, revoked } = credentials::load(config)?;
        let rules = Arc::new(Rules {
            generation,
            config: config.clone(),
            revoked,
        });
        Ok(Current { server, rules })
    }
}

/// Connection whose TLS handshake is done.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    pub(crate) stream: TlsStream<TcpStream>,
    /// Generation of the rules by which the client was admitted.
    generation: u64,
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
        let current = RwLock::new(Current::load(&config, 0)?);
        if let Some(warning) = exposed_key(&config) {
            tracing::warn!("{warning}");
        }
        Ok(ListenerTls {
            name,
            config,
            current,
            reading: Mutex::default(),
            threads,
            open: Arc::default(),
        })
    }

    fn current(&self) -> Current {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again, for connections from now on, and ends those of clients that would not
    /// be admitted any more. `clients` says which exports clients have from now on; `None` leaves
    /// that as it is. Returns the number of connections that end.
    ///
    /// # Errors
    /// As for [`ListenerTls::open`]; what was read before stays in force.
    fn reload(&self, clients: Option<Vec<TlsClientConfig>>) -> Result<usize, TlsFileError> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current().rules;
        let config = TlsConfig {
            clients: clients.unwrap_or_else(|| before.config.clients.clone()),
            ..before.config.clone()
        };
        let fresh = Current::load(&config, before.generation + 1)?;
        let rules = fresh.rules.clone();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(self.open.end_refused(&rules))
    }

    /// Reads the files again and logs the outcome.
    fn reload_and_log(&self, clients: Option<Vec<TlsClientConfig>>) {
        let listener = &self.name;
        match self.reload(clients) {
            Ok(ended) => tracing::info!(
                %listener,
                ended,
                "SIGHUP: certificates were read again; connections that end because their \
                 client lost the right to them: {ended}"
            ),
            Err(error) => tracing::error!(
                %listener,
                help = error.help(),
                "SIGHUP: certificates stay as they were: {error}"
            ),
        }
    }

    /// Returns the mode in which the listener negotiates.
    pub(crate) fn mode(&self) -> TlsMode {
        if self.config.plain_exports.is_empty() {
            TlsMode::Forced
        } else {
            TlsMode::Selective
        }
    }

    /// Returns what a client may open before TLS.
    pub(crate) fn plain_access(&self) -> Access {
        Access::plain(&self.config)
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
        let generation = rules.generation;
        Ok((Box::new(TlsConnection { stream, generation }), access))
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
        let TlsConnection { stream, generation } = connection;
        let (_, of_client) = stream.get_ref();
        let chain = of_client.peer_certificates().unwrap_or_default();
        let chain = chain
            .iter()
            .map(|certificate| certificate.clone().into_owned());
        let client = Client {
            chain: chain.collect(),
            export,
        };
        let rules = || self.current().rules;
        let registered = self.open.register(client, generation, rules);
        let registered = registered.map_err(io::Error::other)?;
        self.threads.tunnel(stream, peer, closed, registered)
    }
}
