//! Connections of the control API: their number is bounded, and idle ones make room for new ones.
//!
//! ```text
//!   Idle --bytes--> Reading --all of the head--> Serving
//!     |                                            |
//!     | <--all sent-- Answering <--all of the answer made
//!     |
//!     +-- a new connection needs the place: closed
//! ```
//!
//! Each listener serves a maximum of connections at a time ([`places`]), and at most three
//! quarters of them for one client: a user at a unix socket, an address at TCP. Past either, the
//! one that has been idle for longest is closed. If all have a request in progress, a new
//! connection is answered with 503 and `Retry-After`; where too many are being answered so,
//! further ones are closed at once.
//!
//! A request in progress is never cut off for another client. Its client has deadlines, so that it
//! cannot hold its place by doing nothing: for the head and the body of a request, and for progress
//! while it takes the answer ([`watched_stream`](super::watched_stream),
//! [`request_body`](super::request_body)).
//!
//! On TCP a connection is a *stranger* as long as its last request has not shown a valid token. No
//! request of a stranger changes or reads anything, so strangers are cut off in any phase. A new
//! connection is one, and displaces another where three quarters of the places, or all of them, are
//! taken: the oldest of the client that has most. So a quarter of the places is not for strangers;
//! clients without a token that have many connections keep none out that has few; and a client that
//! sends its token without delay is served.
//!
//! If a request is answered before its body was read (404, 405, 413, 503), the rest of the body is
//! read and discarded first, up to [`DISCARDED_MAX`] bytes. Closing a socket with unread bytes
//! resets the connection, and the client would see that instead of the answer.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
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
use tokio::time::{Instant, timeout};

use super::answer_body::AnswerBody;
use super::error::ApiError;
use super::request_body::{BODY_TIMEOUT, RequestBody};
use super::watched_stream::{Activity, WatchedStream};
use crate::listener::PeerKey;

/// Most connections that the control API serves at a time on a listener.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Part of the process's descriptors that the connections of the control API may take, those of
/// metrics, and those of the dashboard: one in this number, over all listeners of each. Most are
/// for disks and VMs.
const OF_FILES: usize = 16;
/// Fewest connections that a listener serves at a time, however few descriptors there are.
const CONNECTIONS_MIN: usize = 8;

/// Returns the number of connections that each of `listeners` serves at a time, at most `max`, in a
/// process that may have `files` descriptors.
pub(super) fn places(max: usize, files: usize, listeners: usize) -> usize {
    let share = files / OF_FILES / listeners.max(1);
    max.min(share.max(CONNECTIONS_MIN))
}

/// Connections that are being answered with 503 at a time, and those of clients without a role that
/// are being answered with 403, as a part of the places: one in this number for either. Further
/// ones are closed without an answer.
const PLACES_FOR_ANSWER: usize = 4;
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
    /// Connections are strangers until they have shown a token.
    need_token: bool,
    open: Vec<Open>,
    served: JoinSet<()>,
    /// Connections that are being answered with 503.
    turned_away: Answered,
    /// Connections that are being answered with 403.
    refused: Answered,
}

/// Connection from the accepting task's point of view.
struct Open {
    client: PeerKey,
    activity: Arc<Activity>,
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
    /// Makes the connections of a listener that serves at most `max` at a time, and that knows its
    /// clients before their first request, or serves everybody.
    pub(super) fn new(router: Router, max: usize) -> Connections {
        Connections {
            router,
            max,
            need_token: false,
            open: Vec::new(),
            served: JoinSet::new(),
            turned_away: Answered::new(max / PLACES_FOR_ANSWER),
            refused: Answered::new(max / PLACES_FOR_ANSWER),
        }
    }

    /// Makes the connections of a listener that knows its clients by the token of each request.
    pub(super) fn that_need_tokens(router: Router, max: usize) -> Connections {
        Connections {
            need_token: true,
            ..Connections::new(router, max)
        }
    }

    /// Serves a new connection, or answers it with 503, or closes it while as many connections as
    /// may be are being answered so.
    ///
    /// `client` is the identity by which the connections of a client are counted; `caller`
    /// describes the client to the handlers: it is an extension of each request.
    pub(super) fn add(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        client: PeerKey,
        caller: impl Clone + Send + Sync + 'static,
    ) {
        // Reaps finished tasks; nothing else joins them.
        while self.served.try_join_next().is_some() {}
        if let Err(full) = self.make_room(client) {
            let answer = move || too_many(full);
            return self.turned_away.add(Box::pin(stream), client, answer);
        }
        let activity = Arc::new(Activity::new(self.need_token));
        let router = self.router.clone();
        let served = serve(Box::pin(stream), caller, router, activity.clone());
        let task = self.served.spawn(served);
        self.open.push(Open {
            client,
            activity,
            task,
        });
    }

    /// Answers the first request of a client without rights with `refusal` and closes its
    /// connection, which takes no place of others.
    pub(super) fn refuse(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        client: PeerKey,
        refusal: ApiError,
    ) {
        let answer = move || refusal.clone().into_response();
        self.refused.add(Box::pin(stream), client, answer);
    }

    /// Makes sure that there is a place for one more connection of a client, by closing a stranger
    /// or the one that has been idle for longest if necessary: of those of the client, if it has
    /// its share. Closes several if one that was asked before has stayed, for a request that had
    /// just arrived: then there is one too many.
    fn make_room(&mut self, client: PeerKey) -> Result<(), Full> {
        self.open.retain(|open| !open.task.is_finished());
        loop {
            let at = if let Some(full) = self.full(client) {
                let of = matches!(full, Full::Client { .. }).then_some(client);
                let victim = self.oldest_stranger(of).or_else(|| self.longest_idle(of));
                victim.ok_or(full)?
            } else if self.strangers().count() >= share_of(self.max) {
                self.oldest_stranger(None).expect("there are many")
            } else {
                return Ok(());
            };
            self.open[at].activity.ask_to_leave();
        }
    }

    /// Returns the connections that were not asked to close, with their indices.
    fn staying(&self) -> impl Iterator<Item = (usize, &Open)> {
        (self.open.iter().enumerate()).filter(|(_, open)| !open.activity.is_leaving())
    }

    /// Returns the strangers among them, with their indices and the times of their beginnings.
    fn strangers(&self) -> impl Iterator<Item = (usize, &Open, Instant)> {
        self.staying()
            .filter_map(|(at, open)| Some((at, open, open.activity.stranger_since()?)))
    }

    /// Returns the places that are all taken, so that a new connection of a client needs one of
    /// them; `None` if there is a free one.
    fn full(&self, client: PeerKey) -> Option<Full> {
        let share = share_of(self.max);
        let own = self.staying().filter(|(_, open)| open.client == client);
        if own.count() >= share {
            Some(Full::Client { max: share })
        } else if self.staying().count() >= self.max {
            Some(Full::Listener { max: self.max })
        } else {
            None
        }
    }

    /// Returns the oldest stranger of the client that has most of them; with `of`, of that client.
    fn oldest_stranger(&self, of: Option<PeerKey>) -> Option<usize> {
        let mut numbers: HashMap<PeerKey, usize> = HashMap::new();
        for (_, open, _) in self.strangers() {
            *numbers.entry(open.client).or_default() += 1;
        }
        let strangers = self.strangers();
        let candidates = strangers.filter(|(_, open, _)| of.is_none_or(|of| open.client == of));
        let order =
            |(_, open, since): &(usize, &Open, Instant)| (Reverse(numbers[&open.client]), *since);
        candidates.min_by_key(order).map(|(at, ..)| at)
    }

    /// Returns the connection that has been idle for longest, and for [`IDLE_MIN`]; with `of`, of
    /// that client.
    fn longest_idle(&self, of: Option<PeerKey>) -> Option<usize> {
        let candidates = self
            .staying()
            .filter(|(_, open)| of.is_none_or(|of| open.client == of));
        let idle = candidates.filter_map(|(at, open)| Some((open.activity.idle_since()?, at)));
        // The pair orders by time first, so the minimum is the one that has been idle for longest.
        let (since, at) = idle.min()?;
        (since.elapsed() >= IDLE_MIN).then_some(at)
    }
}

/// Returns the number of places that one client may have.
const fn share_of(places: usize) -> usize {
    places - places / LEFT_TO_OTHERS
}

/// Connections that get one answer and are closed then.
struct Answered {
    max: usize,
    /// Clients of the connections, with their tasks.
    clients: Vec<(PeerKey, tokio::task::AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Answered {
    /// Makes the set of at most `max` connections at a time.
    fn new(max: usize) -> Answered {
        Answered {
            max,
            clients: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Answers a connection. Closes it without an answer if as many as may be are being answered,
    /// or if the client has its share of them: clients that ask nothing hold up none.
    fn add(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: PeerKey,
        answer: impl Fn() -> Response + Send + Sync + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.clients.retain(|(_, task)| !task.is_finished());
        let own = self.clients.iter().filter(|(key, _)| *key == client);
        if own.count() >= share_of(self.max) || self.tasks.len() >= self.max {
            return;
        }
        let task = self.tasks.spawn(answer_once(stream, answer));
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
        // Records there whether the request has a valid token.
        request.extensions_mut().insert(activity.clone());
        let (router, activity) = (router.clone(), activity.clone());
        async move {
            let answer = answer(request, |request| router.call(request)).await;
            answer.map(|answer| answer.map(|body| AnswerBody::new(body, activity)))
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
            () = activity.asked_to_leave() => {
                // Bytes may have arrived since the signal was sent; then the request is served, if
                // the client is no stranger.
                if activity.gives_way() {
                    return tracing::debug!("a control client made room for another one");
                }
                activity.stays();
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
