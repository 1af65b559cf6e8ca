//! Calls to the members of an etcd cluster: one after the other until one answers.

use std::error::Error as _;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, Client, ConnectOptions, Error as EtcdError, Identity, TlsOptions, WatchResponse,
    WatchStream,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::EtcdOptions;
use crate::store::StoreError;

/// Time for a TCP connection to one member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for one attempt of a call at one member, and for the authentication of the user.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait between two attempts; waits are random, so that hosts do not ask at the same time.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Interval of HTTP/2 pings by which a connection that has died silently is found.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Members of an etcd cluster.
pub(super) struct Members {
    runtime: Runtime,
    urls: Vec<String>,
    options: ConnectOptions,
    call_timeout: Duration,
    attempt_timeout: Duration,
    connections: Mutex<Connections>,
    /// Watch that a store follows; `None`: to be opened.
    pub(super) stream: Mutex<Option<Stream>>,
}

/// Connections to the members, made when they are needed.
struct Connections {
    /// Index of the member that is asked first.
    current: usize,
    clients: Vec<Option<Client>>,
}

/// Watch that a store follows.
pub(super) struct Stream {
    pub(super) stream: WatchStream,
    /// First message, which the acknowledgement may have brought.
    pub(super) first: Option<WatchResponse>,
    /// First revision of etcd whose events are still to come.
    pub(super) next: i64,
    /// Member that the stream is from.
    pub(super) member: usize,
}

/// Answer to a call.
pub(super) struct Reply<T> {
    pub(super) value: T,
    /// True if an earlier attempt, whose answer was lost, may have been carried out as well.
    pub(super) may_be_done: bool,
}

/// Failed call.
pub(super) struct Failure {
    /// Error for the caller.
    pub(super) error: StoreError,
    /// True if a member may have carried out the call, although its answer was lost.
    pub(super) may_be_done: bool,
}

impl Failure {
    /// Creates the failure of a call that changes nothing.
    pub(super) fn before_anything(error: StoreError) -> Failure {
        Failure {
            error,
            may_be_done: false,
        }
    }
}

/// Reason why an attempt failed.
enum Attempt {
    /// Another attempt or another member may succeed.
    Again {
        why: String,
        /// True if the request did not leave this host.
        unsent: bool,
    },
    /// Every attempt would fail.
    Never(StoreError),
}

impl Members {
    /// Creates the members without connecting to them.
    ///
    /// # Errors
    /// There is no URL, a URL or a file of TLS is not valid, or the operating system gives no event
    /// queue.
    pub(super) fn new(options: &EtcdOptions) -> Result<Members, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Backend(error.into()))?;
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others would let a watch wait for ever.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = &options.user {
            connect = connect.with_user(&user.name, &user.password);
        }
        if let Some(tls) = &options.tls {
            let mut config =
                TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.authority));
            if let Some((certificate, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            connect = connect.with_tls(config);
        }
        let urls = options.endpoints.clone();
        if urls.is_empty() {
            return Err(StoreError::Backend("no member of etcd is named".into()));
        }
        let clients = vec![None; urls.len()];
        Ok(Members {
            runtime,
            urls,
            options: connect,
            call_timeout: options.call_timeout,
            attempt_timeout: ATTEMPT_TIMEOUT,
            connections: Mutex::new(Connections {
                current: 0,
                clients,
            }),
            stream: Mutex::default(),
        })
    }

    /// Shortens the time for one attempt of a call at one member, and for the authentication.
    pub(super) fn with_attempt_timeout(self, limit: Duration) -> Members {
        Members {
            attempt_timeout: limit.min(ATTEMPT_TIMEOUT),
            ..self
        }
    }

    /// URLs of the members.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Runs a future to its end; calls of the members may be made in it.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Ends the connections. A look-up of a name may block its thread for long, and is not awaited.
    pub(super) fn shut_down(self) {
        self.runtime.shutdown_background();
    }

    /// Makes a call at the members, one after the other, until one answers or the time is up. An
    /// operation may be carried out more than once.
    ///
    /// # Errors
    /// No member answers, or one refuses.
    pub(super) fn call<T>(
        &self,
        operation: impl AsyncFn(Client) -> Result<T, EtcdError>,
    ) -> Result<Reply<T>, Failure> {
        self.block_on(self.try_members(operation))
    }

    /// Makes a call as [`Members::call`] does, on the runtime that [`Members::block_on`] runs.
    ///
    /// # Errors
    /// No member answers, or one refuses.
    pub(super) async fn try_members<T>(
        &self,
        operation: impl AsyncFn(Client) -> Result<T, EtcdError>,
    ) -> Result<Reply<T>, Failure> {
        let end = Instant::now() + self.call_timeout;
        let (mut may_be_done, mut attempts) = (false, 0);
        loop {
            let at = self.connections().current;
            match self.attempt(at, &operation).await {
                Ok(value) => return Ok(Reply { value, may_be_done }),
                Err(Attempt::Never(error)) => {
                    return Err(Failure { error, may_be_done });
                }
                Err(Attempt::Again { why, unsent }) => {
                    may_be_done |= !unsent;
                    attempts += 1;
                    self.leave(at);
                    if attempts >= self.urls.len() && Instant::now() >= end {
                        let error = StoreError::Unavailable {
                            endpoints: self.urls.join(", "),
                            why: format!("{}: {why}", self.urls[at]),
                        };
                        return Err(Failure { error, may_be_done });
                    }
                }
            }
            sleep(LONGEST_PAUSE.mul_f64(rand::random::<f64>())).await;
        }
    }

    /// Makes a call at one member, without another attempt.
    ///
    /// # Errors
    /// A sentence: the member does not answer, or refuses.
    pub(super) fn call_at<T>(
        &self,
        at: usize,
        operation: impl AsyncFn(Client) -> Result<T, EtcdError>,
    ) -> Result<T, String> {
        let result = self.block_on(self.attempt(at, &operation));
        result.map_err(|failed| match failed {
            Attempt::Again { why, .. } => why,
            Attempt::Never(error) => error.to_string(),
        })
    }

    async fn attempt<T>(
        &self,
        at: usize,
        operation: &impl AsyncFn(Client) -> Result<T, EtcdError>,
    ) -> Result<T, Attempt> {
        let client = self.connect(at).await?;
        match timeout(self.attempt_timeout, operation(client)).await {
            Ok(result) => result.map_err(classify),
            Err(_) => Err(self.late(false)),
        }
    }

    /// Returns the connection to a member, which is made if there is none.
    async fn connect(&self, at: usize) -> Result<Client, Attempt> {
        if let Some(client) = &self.connections().clients[at] {
            return Ok(client.clone());
        }
        let connect = Client::connect([&self.urls[at]], Some(self.options.clone()));
        // With a user this waits for the authentication, otherwise the first call connects.
        let client = match timeout(self.attempt_timeout, connect).await {
            Ok(client) => client.map_err(classify)?,
            Err(_) => return Err(self.late(true)),
        };
        self.connections().clients[at] = Some(client.clone());
        Ok(client)
    }

    fn late(&self, unsent: bool) -> Attempt {
        let seconds = self.attempt_timeout.as_secs_f64();
        let why = format!("no answer within {seconds:.1} s");
        Attempt::Again { why, unsent }
    }

    /// Gives up the connection to a member, and asks the next one from now on.
    pub(super) fn leave(&self, at: usize) {
        let mut connections = self.connections();
        // With a new connection the user is authenticated again: a restart of etcd, or a change of
        // its users, has made the old token worthless.
        connections.clients[at] = None;
        if connections.current == at {
            connections.current = (at + 1) % self.urls.len();
        }
    }

    /// Index of the member that is asked first.
    pub(super) fn current(&self) -> usize {
        self.connections().current
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        // Each change is a single assignment, so a thread that panicked has left them valid.
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error for a watch or a call that failed for good; `None`: try again.
pub(super) fn permanent(error: EtcdError) -> Result<String, StoreError> {
    match classify(error) {
        Attempt::Again { why, .. } => Ok(why),
        Attempt::Never(error) => Err(error),
    }
}

/// Sorts an error by its text where etcd uses one gRPC code for several cases. The texts are those
/// of `rpctypes` in etcd 3.4 and 3.5.
fn classify(error: EtcdError) -> Attempt {
    let unsent = is_refused(&error);
    let text = text(&error);
    let has = |part: &str| text.contains(part);
    if has("permission denied")
        || has("authentication failed")
        || has("user name is empty")
        || has("authentication is not enabled")
    {
        return Attempt::Never(StoreError::Denied(text));
    }
    if has("too many operations") || has("request is too large") {
        return Attempt::Never(StoreError::TooLarge(text));
    }
    if has("database space exceeded") {
        return Attempt::Never(StoreError::Backend(
            "etcd's database is full: compact and defragment it, then disarm its alarm".into(),
        ));
    }
    match &error {
        EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) => {
            Attempt::Never(StoreError::Backend(text.into()))
        }
        // Everything else may be different at another member, or after a new authentication.
        _ => Attempt::Again { why: text, unsent },
    }
}

/// Returns whether the connection was refused, so that nothing was sent.
fn is_refused(error: &EtcdError) -> bool {
    let mut next = source(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionRefused;
        }
        next = error.source();
    }
    false
}

/// Returns the cause of an error. The client's own type names none.
fn source(error: &EtcdError) -> Option<&(dyn std::error::Error + 'static)> {
    match error {
        EtcdError::GRpcStatus(status) => status.source(),
        EtcdError::TransportError(error) => error.source(),
        EtcdError::IoError(error) => Some(error),
        _ => None,
    }
}

/// Returns the text of an error with that of its innermost cause.
fn text(error: &EtcdError) -> String {
    let own = match error {
        EtcdError::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut innermost = source(error);
    while let Some(next) = innermost.and_then(|error| error.source()) {
        innermost = Some(next);
    }
    match innermost.map(ToString::to_string) {
        Some(cause) if !own.contains(&cause) => format!("{own}: {cause}"),
        _ => own,
    }
}
