//! Carrier over NATS core.
//!
//! A message goes to the subject `tidegate.CLUSTER.shares.ARRAY.HOST`, and a host subscribes to
//! those of all hosts at its arrays. Where each user may publish to the subject of its own host
//! alone, the server has checked who sends.
//!
//! The client has a thread with a runtime of its own, and reaches the caller by two bounded queues.
//! A message is not kept while the server is away: the next one, 30 ms later, says more. What
//! arrives and is not taken in time makes room for what arrives later.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::connection::State as ConnectionState;
use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::select_all;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tidegate_core::time::Nanos;
use tokio::sync::{mpsc, oneshot};

use crate::message::LENGTH_MAX;
use crate::name::Name;
use crate::options::{Login, NatsOptions};
use crate::transport::{Received, Transport, TransportStatus};

/// Messages that wait to be sent, at most.
const OUTGOING_MAX: usize = 64;
/// Messages that have arrived and wait to be taken, at most: some from each of 256 hosts.
const INCOMING_MAX: usize = 1024;
/// Interval of the client's pings. Three that stay unanswered end a connection that is dead
/// without a sign; TCP alone would take many minutes.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Time for a connection, with TLS and login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause between two attempts to connect.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time for a place in the client's queue, which is full while the server does not read.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(100);
/// Time for what is still to be sent at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Error of setting up the client; servers that are away are none.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// A file has not what it should have.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        what: String,
    },
    /// Not the address of a server.
    #[error("{server:?} is no address of a NATS server: {what}")]
    Server {
        /// Text that was to be an address.
        server: String,
        /// Reason.
        what: String,
    },
    /// The thread or its runtime could not be started.
    #[error("cannot start the thread of the NATS client: {0}")]
    Thread(io::Error),
}

/// Connection to NATS core.
#[derive(Debug)]
pub struct NatsTransport {
    prefix: String,
    host: Name,
    outgoing: Option<mpsc::Sender<(String, Bytes)>>,
    /// Dropped at the end.
    end: Option<oneshot::Sender<()>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    incoming: Mutex<VecDeque<Received>>,
    status: Mutex<TransportStatus>,
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, TransportStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn incoming(&self) -> MutexGuard<'_, VecDeque<Received>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: &Event) {
        let mut status = self.status();
        match event {
            Event::Connected => {
                status.is_connected = true;
                status.connections += 1;
                status.last_error.clear();
            }
            Event::Disconnected | Event::Closed => status.is_connected = false,
            Event::ServerError(error) => status.last_error = error.to_string(),
            Event::ClientError(error) => status.last_error = error.to_string(),
            Event::SlowConsumer(_) => status.dropped += 1,
            Event::LameDuckMode | Event::Draining => {}
        }
    }
}

/// Functions that the client calls on its thread.
pub struct Callbacks {
    /// Clock by which messages arrive.
    pub clock: fn() -> Nanos,
    /// Called after a message has arrived or the state of the connection has changed.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

impl NatsTransport {
    /// Starts a client that connects, now and whenever the connection is lost, for as long as it
    /// lives. Subscribes to the messages of all hosts at `arrays`.
    ///
    /// # Errors
    /// If a file of the options cannot be used or the thread cannot be started.
    pub fn start(
        options: &NatsOptions,
        [cluster, host]: [&Name; 2],
        arrays: &[Name],
        callbacks: Callbacks,
    ) -> Result<NatsTransport, NatsError> {
        let shared = Arc::new(Shared::default());
        let callbacks = Arc::new(callbacks);
        let servers = (options.servers.iter()).map(|server| {
            let parsed: Result<ServerAddr, _> = server.parse();
            parsed.map_err(|error| NatsError::Server {
                server: server.clone(),
                what: error.to_string(),
            })
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let connect = connect_options(options, host, &shared, &callbacks)?;
        let prefix = format!("tidegate.{cluster}.shares.");
        let subjects = arrays.iter().map(|array| format!("{prefix}{array}.*"));
        let subjects: Vec<String> = subjects.collect();
        let (outgoing, queue) = mpsc::channel(OUTGOING_MAX);
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(NatsError::Thread)?;
        let task = Task {
            shared: shared.clone(),
            callbacks,
            prefix: prefix.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("nats".to_owned())
            .spawn(move || {
                runtime.block_on(task.run(connect, servers, subjects, (queue, ended)));
                // Look-ups of names may hang for longer than anybody waits.
                runtime.shutdown_background();
            })
            .map_err(NatsError::Thread)?;
        Ok(NatsTransport {
            prefix,
            host: host.clone(),
            outgoing: Some(outgoing),
            end: Some(end),
            shared,
            thread: Some(thread),
        })
    }
}

impl Transport for NatsTransport {
    fn publish(&mut self, _now: Nanos, array: &Name, message: &[u8]) {
        let subject = format!("{}{array}.{}", self.prefix, self.host);
        let message = Bytes::copy_from_slice(message);
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_none_or(|queue| queue.try_send((subject, message)).is_err()) {
            self.shared.status().unsent += 1;
        }
    }

    fn receive(&mut self, _now: Nanos) -> Option<Received> {
        self.shared.incoming().pop_front()
    }

    fn status(&self) -> TransportStatus {
        self.shared.status().clone()
    }
}

impl Drop for NatsTransport {
    /// Sends what is still to be sent, for at most half a second, and ends the thread.
    fn drop(&mut self) {
        self.outgoing = None;
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Work of the client's thread.
struct Task {
    shared: Arc<Shared>,
    callbacks: Arc<Callbacks>,
    prefix: String,
}

impl Task {
    /// Works until the queue ends, and for [`FLUSH_TIMEOUT`] after that at most, wherever the
    /// client waits then.
    async fn run(
        self,
        options: ConnectOptions,
        servers: Vec<ServerAddr>,
        subjects: Vec<String>,
        (queue, ended): (mpsc::Receiver<(String, Bytes)>, oneshot::Receiver<()>),
    ) {
        let late = async {
            // Its other end is dropped, which is an error here.
            let _ = ended.await;
            tokio::time::sleep(FLUSH_TIMEOUT).await;
        };
        tokio::select! {
            () = self.work(options, servers, subjects, queue) => {}
            () = late => {}
        }
    }

    async fn work(
        &self,
        options: ConnectOptions,
        servers: Vec<ServerAddr>,
        subjects: Vec<String>,
        mut queue: mpsc::Receiver<(String, Bytes)>,
    ) {
        // It retries by itself, so this fails for wrong options alone.
        let client = match options.connect(servers).await {
            Ok(client) => client,
            Err(error) => {
                self.shared.status().last_error = error.to_string();
                tracing::error!("exchange: no NATS client: {error}");
                return;
            }
        };
        let mut subscribers: Vec<Subscriber> = Vec::new();
        for subject in subjects {
            match client.subscribe(subject).await {
                Ok(subscriber) => subscribers.push(subscriber),
                Err(error) => self.shared.status().last_error = error.to_string(),
            }
        }
        let mut arriving = select_all(subscribers);
        loop {
            tokio::select! {
                outgoing = queue.recv() => match outgoing {
                    Some((subject, message)) => self.send(&client, subject, message).await,
                    None => break,
                },
                Some(message) = arriving.next() => self.arrived(&message.subject, message.payload),
            }
        }
        // The server may be away, and then nothing comes of it.
        let _ = client.flush().await;
    }

    /// Sends a message, unless the server is away: the client would keep it until it is old. A
    /// server that does not read is away, too, before the client notices.
    async fn send(&self, client: &Client, subject: String, message: Bytes) {
        let is_connected = client.connection_state() == ConnectionState::Connected;
        let publish = tokio::time::timeout(PUBLISH_TIMEOUT, client.publish(subject, message));
        if !is_connected || !matches!(publish.await, Ok(Ok(()))) {
            self.shared.status().unsent += 1;
        }
    }

    fn arrived(&self, subject: &str, payload: Bytes) {
        let rest = subject.strip_prefix(&self.prefix);
        // The subscription has a fixed number of parts; longer messages are not copied.
        let Some((array, host)) = rest.and_then(|rest| rest.split_once('.')) else {
            return;
        };
        let bytes = &payload[..payload.len().min(LENGTH_MAX + 1)];
        let received = Received {
            array: array.to_owned(),
            host: host.to_owned(),
            at: (self.callbacks.clock)(),
            bytes: bytes.to_vec(),
        };
        let mut incoming = self.shared.incoming();
        if incoming.len() >= INCOMING_MAX {
            incoming.pop_front();
            self.shared.status().dropped += 1;
        }
        incoming.push_back(received);
        drop(incoming);
        (self.callbacks.wake)();
    }
}

fn connect_options(
    options: &NatsOptions,
    host: &Name,
    shared: &Arc<Shared>,
    callbacks: &Arc<Callbacks>,
) -> Result<ConnectOptions, NatsError> {
    let (shared, callbacks) = (shared.clone(), callbacks.clone());
    let mut connect = ConnectOptions::new()
        .name(format!("tidegate {host}"))
        .no_echo()
        .retry_on_initial_connect()
        .max_reconnects(None)
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .subscription_capacity(INCOMING_MAX)
        .client_capacity(OUTGOING_MAX)
        .reconnect_delay_callback(|attempt| {
            let delay = Duration::from_millis(20).saturating_mul(attempt.min(1000) as u32);
            delay.min(RECONNECT_DELAY_MAX)
        })
        .event_callback(move |event| {
            shared.event(&event);
            (callbacks.wake)();
            std::future::ready(())
        });
    if let Some(ca) = &options.ca {
        let certificate = options.certificate.as_ref();
        connect = connect
            .require_tls(true)
            .tls_client_config(tls_config(ca, certificate)?);
    }
    connect = match &options.login {
        Login::None => connect,
        Login::Password { user, file } => {
            connect.user_and_password(user.clone(), read_secret(file)?)
        }
        Login::Nkey(file) => connect.nkey(read_secret(file)?),
        Login::Credentials(file) => {
            let text = read_secret(file)?;
            let read = connect.credentials(&text);
            read.map_err(|error| content(file, error.to_string()))?
        }
    };
    Ok(connect)
}

fn tls_config(ca: &Path, own: Option<&(PathBuf, PathBuf)>) -> Result<ClientConfig, NatsError> {
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, NatsError> {
        let text = read(path)?;
        let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|error| content(path, format!("not PEM: {error}")))?;
        if all.is_empty() {
            return Err(content(path, "no certificate in it".to_owned()));
        }
        Ok(all)
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        (roots.add(certificate)).map_err(|error| content(ca, error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots);
    let Some((chain, key)) = own else {
        return Ok(builder.with_no_client_auth());
    };
    let parsed = PrivateKeyDer::from_pem_slice(&read(key)?);
    let parsed = parsed.map_err(|error| content(key, format!("no private key: {error}")))?;
    let config = builder.with_client_auth_cert(certificates(chain)?, parsed);
    config.map_err(|error| content(chain, error.to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, NatsError> {
    std::fs::read(path).map_err(|source| NatsError::File {
        path: path.to_owned(),
        source,
    })
}

/// Reads a text without the white space around it, such as the last end of line.
fn read_secret(path: &Path) -> Result<String, NatsError> {
    let text = String::from_utf8(read(path)?);
    let text = text.map_err(|_| content(path, "not UTF-8".to_owned()))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(content(path, "empty".to_owned()));
    }
    Ok(text.to_owned())
}

fn content(path: &Path, what: String) -> NatsError {
    NatsError::Content {
        path: path.to_owned(),
        what,
    }
}
