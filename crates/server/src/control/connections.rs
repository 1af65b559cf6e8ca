//! Connections of the control API: their number is bounded, and idle ones make room for new ones.
//!
//! ```text
//!   Idle --bytes--> Reading --all of the head--> Serving --answer--> Answering --all sent--> Idle
//!     |
//!     +-- a new connection needs the place: closed
//! ```
//!
//! Each listener serves a maximum of connections at a time. Past that, the one that has been
//! idle for longest is closed. If all have a request in progress, a new connection is answered with
//! 503 and `Retry-After`. No request in progress is ever cut off.
//!
//! If a request is answered before its body was read (404, 405, 413, 503), the rest of the body is
//! read and discarded first, up to [`DISCARDED_MAX`] bytes. Closing a socket with unread bytes
//! resets the connection, and the client would see that instead of the answer.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{CONNECTION, EXPECT, RETRY_AFTER};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::error::ApiError;

/// Most connections that the control API serves at a time on a listener. Each takes a descriptor,
/// and disks and VMs need descriptors as well.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Most connections that are being answered with 503 at a time; further ones wait in the listen
/// backlog.
const TURNED_AWAY_MAX: usize = 64;
/// Idle time after which a connection may be closed for a new one. A client that has just connected
/// or been answered is probably about to send a request.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// Deadline for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Deadline for a connection that is answered with 503, from accept to close.
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a request's body that are read and discarded.
const DISCARDED_MAX: u64 = 16 << 20;
/// Deadline for discarding a request's body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds after which a client that got 503 may try again (`Retry-After`).
const RETRY_AFTER_S: u16 = 1;

/// Connections of one listener. Dropping it closes all of them.
pub(super) struct Connections {
    router: Router,
    max: usize,
    open: Vec<Open>,
    served: JoinSet<()>,
    turned_away: JoinSet<()>,
}

/// Connection from the accepting task's point of view.
struct Open {
    activity: Arc<Activity>,
    /// True once the connection was asked to close if it is idle.
    leaving: bool,
    task: tokio::task::AbortHandle,
}

impl Connections {
    /// Makes the connections of a listener that serves at most `max` at a time.
    pub(super) fn new(router: Router, max: usize) -> Connections {
        Connections {
            router,
            max,
            open: Vec::new(),
            served: JoinSet::new(),
            turned_away: JoinSet::new(),
        }
    }

    /// Serves a new connection, or answers it with 503. Waits while [`TURNED_AWAY_MAX`] connections
    /// are being answered so.
    ///
    /// `caller` describes the client to the handlers: it is an extension of each request.
    pub(super) async fn add(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        caller: impl Clone + Send + Sync + 'static,
    ) {
        // Reaps finished tasks; nothing else joins them.
        while self.served.try_join_next().is_some() {}
        while self.turned_away.try_join_next().is_some() {}
        if !self.make_room() {
            // Waiting here stops accepting, so that further clients queue in the kernel's backlog.
            if self.turned_away.len() >= TURNED_AWAY_MAX {
                self.turned_away.join_next().await;
            }
            assert!(
                self.turned_away.len() < TURNED_AWAY_MAX,
                "more connections are answered with 503 than the maximum"
            );
            self.turned_away
                .spawn(turn_away(Box::pin(stream), self.max));
            return;
        }
        let activity = Arc::new(Activity::new());
        let router = self.router.clone();
        let served = serve(Box::pin(stream), caller, router, activity.clone());
        let task = self.served.spawn(served);
        self.open.push(Open {
            activity,
            leaving: false,
            task,
        });
    }

    /// Returns true if there is a place for one more connection, after closing the one that has
    /// been idle for longest if necessary.
    fn make_room(&mut self) -> bool {
        self.open.retain(|open| !open.task.is_finished());
        for open in &mut self.open {
            // A request arrived before the connection saw that it should close: it stays.
            open.leaving &= open.activity.idle_since().is_some();
        }
        let staying = || {
            self.open
                .iter()
                .enumerate()
                .filter(|(_, open)| !open.leaving)
        };
        if staying().count() < self.max {
            return true;
        }
        let idle = staying().filter_map(|(at, open)| Some((open.activity.idle_since()?, at)));
        // The pair orders by time first, so the minimum is the one that has been idle for longest.
        match idle.min() {
            Some((since, at)) if since.elapsed() >= IDLE_MIN => {
                self.open[at].leaving = true;
                self.open[at].activity.leave.notify_one();
                true
            }
            _ => false,
        }
    }
}

/// Current phase of a connection, shared between the connection and the accepting task.
#[derive(Debug)]
struct Activity {
    phase: Mutex<Phase>,
    /// Signal to close the connection if it is idle.
    leave: Notify,
}

/// Phases in the module's diagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle { since: Instant },
    Reading,
    Serving,
    Answering,
}

impl Activity {
    fn new() -> Activity {
        Activity {
            phase: Mutex::new(Phase::Idle {
                since: Instant::now(),
            }),
            leave: Notify::new(),
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Idle { since } => Some(since),
            Phase::Reading | Phase::Serving | Phase::Answering => None,
        }
    }

    fn received(&self) {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Idle { .. }) {
            *phase = Phase::Reading;
        }
    }

    fn sent_all(&self) {
        let mut phase = self.phase();
        if *phase == Phase::Answering {
            *phase = Phase::Idle {
                since: Instant::now(),
            };
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        // Every phase is a valid state, so a panic elsewhere does no harm.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stream that records in [`Activity`] when bytes are received and when all were sent.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        // A read of no bytes is the end of the stream, not the beginning of a request.
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes the stream once its own buffer is empty.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // hyper flushes while reading, too; `sent_all` counts only after an answer.
        self.activity.sent_all();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Serves a connection until the client closes it, or until it is idle and asked to make room.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    caller: impl Clone + Send + Sync + 'static,
    router: Router,
    activity: Arc<Activity>,
) {
    let watched = Watched {
        stream,
        activity: activity.clone(),
    };
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        *activity.phase() = Phase::Serving;
        request.extensions_mut().insert(caller.clone());
        let (router, activity) = (router.clone(), activity.clone());
        async move {
            let answer = answer(request, |request| router.call(request)).await;
            *activity.phase() = Phase::Answering;
            answer
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
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

/// Answers a connection's request with 503.
async fn turn_away(stream: impl AsyncRead + AsyncWrite + Unpin, max: usize) {
    let service = service_fn(|request: Request<Incoming>| {
        answer(request, move |_| async move { Ok(too_many(max)) })
    });
    let answer =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A client that sends no request within the deadline gets no answer.
    let _ = timeout(TURNED_AWAY_TIMEOUT, answer).await;
}

fn too_many(max: usize) -> Response {
    let what = format!("{max} other clients have requests in progress");
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "connection");
    let mut answer = error
        .allowing(format!("ask again in {RETRY_AFTER_S} s"))
        .into_response();
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Passes a request to `ask`, and discards what is left of its body before the answer is sent.
async fn answer<F>(
    request: Request<Incoming>,
    ask: impl FnOnce(Request<Shared>) -> F,
) -> Result<Response, Infallible>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    // With `Expect: 100-continue` the client sends the body only after an interim response, which
    // hyper sends when the body is first read.
    let waits = request.headers().contains_key(EXPECT);
    let (head, body) = request.into_parts();
    let body = Shared(Arc::new(Mutex::new(Unread {
        body,
        asked_for: false,
        ended: false,
    })));
    let answer = ask(Request::from_parts(head, body.clone())).await;
    if !waits || body.lock().asked_for {
        // After the deadline, the connection is closed once the answer is sent.
        let _ = timeout(DISCARD_TIMEOUT, body.discard()).await;
    }
    answer
}

/// Request body that a handler and [`answer`] share: the handler reads any part of it, `answer`
/// discards the rest.
#[derive(Clone)]
struct Shared(Arc<Mutex<Unread>>);

struct Unread {
    body: Incoming,
    asked_for: bool,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        // `poll_frame` cannot leave the body half read: a panic there is one of hyper's own state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn discard(mut self) {
        let mut left = DISCARDED_MAX;
        while left > 0 {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await;
            let Some(Ok(frame)) = frame else { return };
            let len = frame.data_ref().map_or(0, |data| data.len() as u64);
            left = left.saturating_sub(len);
        }
    }
}

impl Body for Shared {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut unread = self.lock();
        unread.asked_for = true;
        if unread.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut unread.body).poll_frame(cx));
        // After an error or the end hyper must not be polled again.
        unread.ended = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let unread = self.lock();
        unread.ended || unread.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Connects a client to `connections` through an in-memory stream.
    async fn connect(connections: &mut Connections) -> DuplexStream {
        let (client, server) = duplex(1 << 16);
        connections.add(server, ()).await;
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

    /// Answers `/fast` at once, and `/slow` after a notification of `go`.
    fn router(go: Arc<Notify>) -> Router {
        let slow = move || async move {
            go.notified().await;
            "was slow"
        };
        Router::new()
            .route("/fast", get(async || "was fast"))
            .route("/slow", get(slow))
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
}
