//! Connections of the control API: their number is bounded, and idle ones make room for new ones.
//!
//! ```text
//!   Idle --bytes--> Reading --all of the head--> Serving --answer--> Answering --all sent--> Idle
//!     |
//!     +-- a new connection needs the place: closed
//! ```
//!
//! Each listener serves a maximum of connections at a time, and at most three quarters of them for
//! one client: a user at a unix socket, an address at TCP. Past either, the one that has been idle
//! for longest is closed. If all have a request in progress, a new connection is answered with 503
//! and `Retry-After`.
//!
//! A request in progress is never cut off for another client. Its client has deadlines, so that it
//! cannot hold its place by doing nothing: for the head and the body of a request, and for progress
//! while it takes the answer ([`watched_stream`](super::watched_stream),
//! [`request_body`](super::request_body)).
//!
//! If a request is answered before its body was read (404, 405, 413, 503), the rest of the body is
//! read and discarded first, up to [`DISCARDED_MAX`] bytes. Closing a socket with unread bytes
//! resets the connection, and the client would see that instead of the answer.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONNECTION, EXPECT, RETRY_AFTER};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::error::ApiError;
use super::request_body::{BODY_TIMEOUT, RequestBody};
use super::watched_stream::{Activity, WatchedStream};
use crate::listener::PeerKey;

/// Most connections that the control API serves at a time on a listener. Each takes a descriptor,
/// and disks and VMs need descriptors as well.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Most connections that are being answered with 503 at a time; further ones wait in the listen
/// backlog.
const TURNED_AWAY_MAX: usize = 64;
/// Most connections of clients without a role that are being answered with 403 at a time; further
/// ones are closed without an answer.
const REFUSED_MAX: usize = 64;
/// Part of the places that one client leaves to others: one in this number.
const LEFT_TO_OTHERS: usize = 4;
/// Idle time after which a connection may be closed for a new one. A client that has just connected
/// or been answered is probably about to send a request.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// Time after which an idle connection is closed even if nobody needs its place.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Deadline for a connection that is answered with 503 or 403, from accept to close.
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds after which a client that got 503 may try again (`Retry-After`).
const RETRY_AFTER_S: u16 = 1;

/// Connections of one listener. Dropping it closes all of them.
pub(super) struct Connections {
    router: Router,
    max: usize,
    open: Vec<Open>,
    served: JoinSet<()>,
    turned_away: TurnedAway,
    refused: JoinSet<()>,
}

/// Connection from the accepting task's point of view.
struct Open {
    client: PeerKey,
    activity: Arc<Activity>,
    /// True once the connection was asked to close if it is idle.
    leaving: bool,
    task: tokio::task::AbortHandle,
}

/// Reason why there is no place for a connection.
#[derive(Clone, Copy)]
enum Full {
    /// All places have requests in progress.
    Listener { max: usize },
    /// All places that one client may have, have its own requests in progress.
    Client { max: usize },
}

impl Connections {
    /// Makes the connections of a listener that serves at most `max` at a time.
    pub(super) fn new(router: Router, max: usize) -> Connections {
        Connections {
            router,
            max,
            open: Vec::new(),
            served: JoinSet::new(),
            turned_away: TurnedAway::default(),
            refused: JoinSet::new(),
        }
    }

    /// Serves a new connection, or answers it with 503. Waits while [`TURNED_AWAY_MAX`] connections
    /// are being answered so.
    ///
    /// `client` is the identity by which the connections of a client are counted; `caller`
    /// describes the client to the handlers: it is an extension of each request.
    pub(super) async fn add(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        client: PeerKey,
        caller: impl Clone + Send + Sync + 'static,
    ) {
        // Reaps finished tasks; nothing else joins them.
        while self.served.try_join_next().is_some() {}
        if let Err(full) = self.make_room(client) {
            return self.turned_away.add(Box::pin(stream), client, full).await;
        }
        let activity = Arc::new(Activity::new());
        let router = self.router.clone();
        let served = serve(Box::pin(stream), caller, router, activity.clone());
        let task = self.served.spawn(served);
        self.open.push(Open {
            client,
            activity,
            leaving: false,
            task,
        });
    }

    /// Answers the first request of a client without rights with `refusal` and closes its
    /// connection, which takes no place of others.
    pub(super) fn refuse(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        refusal: ApiError,
    ) {
        while self.refused.try_join_next().is_some() {}
        if self.refused.len() < REFUSED_MAX {
            let answer = move || refusal.clone().into_response();
            self.refused.spawn(answer_once(Box::pin(stream), answer));
        }
    }

    /// Makes sure that there is a place for one more connection of a client, by closing the one
    /// that has been idle for longest if necessary: of those of the client, if it has its share.
    fn make_room(&mut self, client: PeerKey) -> Result<(), Full> {
        self.open.retain(|open| !open.task.is_finished());
        for open in &mut self.open {
            // A request arrived before the connection saw that it should close: it stays.
            open.leaving &= open.activity.idle_since().is_some();
        }
        let share = share_of(self.max);
        let staying = || (self.open.iter().enumerate()).filter(|(_, open)| !open.leaving);
        let own = staying().filter(|(_, open)| open.client == client).count();
        let full = if own >= share {
            Full::Client { max: share }
        } else if staying().count() >= self.max {
            Full::Listener { max: self.max }
        } else {
            return Ok(());
        };
        let idle = staying()
            .filter(|(_, open)| matches!(full, Full::Listener { .. }) || open.client == client)
            .filter_map(|(at, open)| Some((open.activity.idle_since()?, at)));
        // The pair orders by time first, so the minimum is the one that has been idle for longest.
        match idle.min() {
            Some((since, at)) if since.elapsed() >= IDLE_MIN => {
                self.open[at].leaving = true;
                self.open[at].activity.leave.notify_one();
                Ok(())
            }
            _ => Err(full),
        }
    }
}

/// Returns the number of places that one client may have.
const fn share_of(places: usize) -> usize {
    places - places / LEFT_TO_OTHERS
}

/// Connections that are being answered with 503.
#[derive(Default)]
struct TurnedAway {
    /// Clients of the connections, with their tasks.
    clients: Vec<(PeerKey, tokio::task::AbortHandle)>,
    tasks: JoinSet<()>,
}

impl TurnedAway {
    /// Answers a connection with 503. Waits while [`TURNED_AWAY_MAX`] are being answered; closes
    /// the connection without an answer if the client has its share of them, so that others need
    /// not wait for one that takes no answers.
    async fn add(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: PeerKey,
        full: Full,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.clients.retain(|(_, task)| !task.is_finished());
        let own = self.clients.iter().filter(|(key, _)| *key == client);
        if own.count() >= share_of(TURNED_AWAY_MAX) {
            return;
        }
        // Waiting here stops accepting, so that further clients queue in the kernel's backlog.
        if self.tasks.len() >= TURNED_AWAY_MAX {
            self.tasks.join_next().await;
        }
        assert!(
            self.tasks.len() < TURNED_AWAY_MAX,
            "more connections are answered with 503 than the maximum"
        );
        let task = self
            .tasks
            .spawn(answer_once(stream, move || too_many(full)));
        self.clients.push((client, task));
    }
}

/// Serves a connection until the client closes it, or until it is idle and asked to make room.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    caller: impl Clone + Send + Sync + 'static,
    router: Router,
    activity: Arc<Activity>,
) {
    let watched = WatchedStream::new(stream, activity.clone());
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        activity.serving();
        request.extensions_mut().insert(caller.clone());
        let (router, activity) = (router.clone(), activity.clone());
        async move {
            let answer = answer(request, |request| router.call(request)).await;
            activity.answering();
            answer
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .serve_connection(TokioIo::new(watched), service);
    let mut connection = pin!(connection);
    loop {
        tokio::select! {
            // Biased, so that bytes that have arrived are seen before the connection is taken to be
            // idle.
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a control client went away");
                }
                return;
            }
            () = activity.leave.notified() => {
                // Bytes may have arrived since the signal was sent; then the request is served.
                if activity.idle_since().is_some() {
                    return tracing::debug!("an idle control client made room for another one");
                }
            }
        }
    }
}

/// Answers a connection's request with `response`, which closes the connection.
async fn answer_once(stream: impl AsyncRead + AsyncWrite + Unpin, response: impl Fn() -> Response) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = closing(response());
        answer(request, |_| async { Ok(response) })
    });
    let answer =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A client that sends no request within the deadline gets no answer.
    let _ = timeout(TURNED_AWAY_TIMEOUT, answer).await;
}

fn too_many(full: Full) -> Response {
    let what = match full {
        Full::Listener { max } => format!("{max} other clients have requests in progress"),
        Full::Client { max } => {
            format!("{max} connections of this user or address have requests in progress")
        }
    };
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "connection");
    let mut answer = error
        .allowing(format!("ask again in {RETRY_AFTER_S} s"))
        .into_response();
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
    answer
}

/// Adds the header that closes the connection behind an answer.
fn closing(mut answer: Response) -> Response {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

/// Passes a request to `ask`, and discards what is left of its body before the answer is sent.
async fn answer<F>(
    request: Request<Incoming>,
    ask: impl FnOnce(Request<RequestBody>) -> F,
) -> Result<Response, Infallible>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    // With `Expect: 100-continue` the client sends the body only after an interim response, which
    // hyper sends when the body is first read.
    let waits = request.headers().contains_key(EXPECT);
    let (head, body) = request.into_parts();
    let body = RequestBody::new(body);
    let answer = ask(Request::from_parts(head, body.clone())).await;
    if !waits || body.was_asked_for() {
        body.discard().await;
    }
    if body.is_late() {
        let error = ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body of the request did not arrive in time",
            "body",
        );
        let allowed = format!("the whole body within {} s", BODY_TIMEOUT.as_secs());
        return Ok(closing(error.allowing(allowed).into_response()));
    }
    answer
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::routing::{get, put};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::Notify;
    use tokio::time::{Instant, sleep};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Bytes that a stream takes before its client reads any of them.
    const STREAM_BYTES: usize = 1 << 16;
    /// Bytes of the answer at `/large`.
    const LARGE: usize = 1 << 20;

    /// Connects a client to `connections` through an in-memory stream, as one of users that have no
    /// more places than their share.
    async fn connect(connections: &mut Connections) -> DuplexStream {
        let user = connections.open.len() / share_of(CONNECTIONS_MAX);
        connect_as(connections, user as u32).await
    }

    /// Connects a client of a user.
    async fn connect_as(connections: &mut Connections, user: u32) -> DuplexStream {
        let (client, server) = duplex(STREAM_BYTES);
        connections.add(server, PeerKey::User(user), ()).await;
        client
    }

    /// Reads until the text received ends with `end`, or the connection is closed; returns the
    /// text.
    async fn hear(client: &mut DuplexStream, end: &str) -> String {
        let mut heard = Vec::new();
        let listen = async {
            loop {
                let mut piece = [0; 4096];
                let n = client.read(&mut piece).await.unwrap_or_default();
                heard.extend_from_slice(&piece[..n]);
                if n == 0 || heard.ends_with(end.as_bytes()) {
                    break;
                }
            }
        };
        let heard_all = timeout(PATIENCE, listen).await;
        heard_all.expect("an answer, or the end");
        String::from_utf8(heard).expect("text")
    }

    async fn ask(client: &mut DuplexStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n");
        client
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
    }

    /// Answers `/fast` at once, `/slow` after a notification of `go`, `/large` with [`LARGE`]
    /// bytes, and `/taken` once it has the body.
    fn router(go: Arc<Notify>) -> Router {
        let slow = move || async move {
            go.notified().await;
            "was slow"
        };
        Router::new()
            .route("/fast", get(async || "was fast"))
            .route("/slow", get(slow))
            .route("/large", get(async || "x".repeat(LARGE)))
            .route("/taken", put(async |_: Bytes| "was taken"))
            .fallback(async || (StatusCode::NOT_FOUND, "not here"))
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_in_progress_is_cut_off_and_who_has_no_place_is_told_when_to_ask_again() {
        let go = Arc::new(Notify::new());
        let mut connections = Connections::new(router(go.clone()), CONNECTIONS_MAX);
        let mut working = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let mut client = connect(&mut connections).await;
            ask(&mut client, "/slow").await;
            working.push(client);
        }
        tokio::time::sleep(IDLE_MIN * 2).await;
        let mut extra = connect(&mut connections).await;
        ask(&mut extra, "/fast").await;
        let answer = hear(&mut extra, "}\n").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
        for client in &mut working {
            go.notify_one();
            let answer = hear(client, "was slow").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        // All connections are idle now.
        tokio::time::sleep(IDLE_MIN * 2).await;
        let mut next = connect(&mut connections).await;
        ask(&mut next, "/fast").await;
        let answer = hear(&mut next, "was fast").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_has_been_idle_for_longest_makes_room() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(connect(&mut connections).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The two oldest connections stay: the first has just had an answer, the second has sent
        // half a request.
        ask(&mut idle[0], "/fast").await;
        hear(&mut idle[0], "was fast").await;
        idle[1].write_all(b"GET /fa").await.expect("it reads");
        tokio::time::sleep(IDLE_MIN).await;
        let mut next = connect(&mut connections).await;
        assert_eq!(hear(&mut idle[2], "").await, "", "closed");
        ask(&mut next, "/fast").await;
        hear(&mut next, "was fast").await;
        idle[1]
            .write_all(b"st HTTP/1.1\r\nhost: t\r\n\r\n")
            .await
            .expect("it reads");
        for at in [0, 1] {
            if at == 0 {
                ask(&mut idle[0], "/fast").await;
            }
            let answer = hear(&mut idle[at], "was fast").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_have_just_come_are_not_taken_for_idle() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let mut fresh = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            fresh.push(connect(&mut connections).await);
        }
        let mut extra = connect(&mut connections).await;
        ask(&mut extra, "/fast").await;
        let answer = hear(&mut extra, "}\n").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        ask(&mut fresh[0], "/fast").await;
        hear(&mut fresh[0], "was fast").await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_a_body_that_nobody_wants() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let mut client = connect(&mut connections).await;
        let body = vec![b'x'; 1 << 20];
        for (method, path, status) in [("PUT", "/none", "404"), ("PUT", "/fast", "405")] {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            client.write_all(head.as_bytes()).await.expect("it reads");
            // The body is larger than the stream's buffer: writing all of it ends only if the
            // server reads it.
            let sent = timeout(PATIENCE, client.write_all(&body)).await;
            sent.expect("all is read")
                .expect("the connection stays open");
            let end = if status == "404" {
                "not here"
            } else {
                "\r\n\r\n"
            };
            let answer = hear(&mut client, end).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
        // The connection can be used for the next request.
        ask(&mut client, "/fast").await;
        let answer = hear(&mut client, "was fast").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_to_be_told_is_not_told_to_go_on() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let mut client = connect(&mut connections).await;
        let head =
            "PUT /none HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        client.write_all(head.as_bytes()).await.expect("it reads");
        let answer = hear(&mut client, "not here").await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_whole_head_is_closed() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let start = Instant::now();
        let mut silent = connect(&mut connections).await;
        silent.write_all(b"G").await.expect("it reads");
        assert_eq!(hear(&mut silent, "").await, "");
        // A byte now and then is no head either.
        let mut slow = connect(&mut connections).await;
        while slow.write_all(b"G").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
            assert!(start.elapsed() < IDLE_MAX, "a byte a second holds a place");
        }
        // Time between requests counts as idle, and the deadline is that of each request.
        let mut patient = connect(&mut connections).await;
        for _ in 0..3 {
            for part in ["GET /fa", "st HTTP/1.1\r\nhos", "t: t\r\n\r\n"] {
                sleep(Duration::from_secs(4)).await;
                patient.write_all(part.as_bytes()).await.expect("it reads");
            }
            hear(&mut patient, "was fast").await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_whole_body_is_told_so_and_closed() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let head = b"PUT /taken HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n";
        let start = Instant::now();
        for sends_some in [false, true] {
            let client = connect(&mut connections).await;
            let (mut reading, mut writing) = tokio::io::split(client);
            let mut heard = String::new();
            let hear = timeout(PATIENCE, reading.read_to_string(&mut heard));
            let send = async {
                writing.write_all(head).await.expect("it reads");
                while sends_some && writing.write_all(b"x").await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            };
            let (ended, ()) = tokio::join!(hear, send);
            ended.expect("the end in time").expect("text");
            assert!(heard.starts_with("HTTP/1.1 408"), "{sends_some}: {heard}");
            assert!(heard.contains("connection: close\r\n"), "{heard}");
            assert!(heard.contains("within 10 s"), "{heard}");
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        // Within the deadline, it may take its time.
        let mut client = connect(&mut connections).await;
        client.write_all(head).await.expect("it reads");
        for _ in 0..4 {
            sleep(Duration::from_secs(2)).await;
            client.write_all(&[b'x'; 25]).await.expect("it reads");
        }
        let answer = hear(&mut client, "was taken").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_answer_is_closed() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let mut client = connect(&mut connections).await;
        for _ in 0..100 {
            ask(&mut client, "/large").await;
        }
        sleep(IDLE_MAX).await;
        let mut heard = Vec::new();
        let ended = timeout(PATIENCE, client.read_to_end(&mut heard)).await;
        ended.expect("the end").expect("what was sent before");
        assert!(heard.len() <= STREAM_BYTES, "{}", heard.len());
        // One that takes a part now and then gets all.
        let mut slow = connect(&mut connections).await;
        ask(&mut slow, "/large").await;
        let mut heard = 0;
        while heard < LARGE {
            sleep(Duration::from_secs(9)).await;
            let mut piece = [0; STREAM_BYTES];
            let n = slow.read(&mut piece).await.expect("it is open");
            assert!(n > 0, "closed after {heard}");
            heard += n;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_leaves_a_quarter_of_the_places_to_others() {
        let go = Arc::new(Notify::new());
        let mut connections = Connections::new(router(go.clone()), CONNECTIONS_MAX);
        let share = share_of(CONNECTIONS_MAX);
        let mut working = Vec::new();
        for _ in 0..share {
            let mut client = connect_as(&mut connections, 1).await;
            ask(&mut client, "/slow").await;
            working.push(client);
        }
        // Further connections of the client are turned away, and those without a request closed, so
        // that others need not wait for the deadline of their answers.
        let start = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..2 * TURNED_AWAY_MAX {
            silent.push(connect_as(&mut connections, 1).await);
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing was waited for");
        let answer = {
            ask(&mut silent[0], "/fast").await;
            hear(&mut silent[0], "}\n").await
        };
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("192 connections of this user"), "{answer}");
        let last = silent.last_mut().expect("there are some");
        assert_eq!(hear(last, "").await, "");
        let mut other = connect_as(&mut connections, 2).await;
        ask(&mut other, "/fast").await;
        hear(&mut other, "was fast").await;
        // Once one of its own is idle, that makes room for another of its own.
        sleep(TURNED_AWAY_TIMEOUT).await;
        go.notify_one();
        hear(&mut working[0], "was slow").await;
        sleep(IDLE_MIN).await;
        let mut next = connect_as(&mut connections, 1).await;
        assert_eq!(hear(&mut working[0], "").await, "", "closed");
        ask(&mut next, "/fast").await;
        hear(&mut next, "was fast").await;
        ask(&mut other, "/fast").await;
        hear(&mut other, "was fast").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_rights_is_told_so_once_and_takes_no_place() {
        let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
        let mut refused = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let (client, server) = duplex(STREAM_BYTES);
            let error = ApiError::new(StatusCode::FORBIDDEN, "no role", "role");
            connections.refuse(server, error);
            refused.push(client);
        }
        let first = &mut refused[0];
        ask(first, "/fast").await;
        ask(first, "/fast").await;
        let answer = hear(first, "").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains("no role"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        // Closed at once, because too many others have not asked.
        let last = refused.last_mut().expect("there are some");
        assert_eq!(hear(last, "").await, "");
        assert!(connections.open.is_empty());
        let mut next = connect(&mut connections).await;
        ask(&mut next, "/fast").await;
        hear(&mut next, "was fast").await;
    }
}
