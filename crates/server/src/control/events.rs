//! `GET /v1/events`: live figures as server-sent events, made once a second for all subscribers.
//!
//! ```text
//!   first subscriber --> task: a snapshot each second --event--> channel of each subscriber
//!   last subscriber leaves, nobody polls --> the task ends
//! ```
//!
//! Without subscribers there is no task, so nothing is asked or made. Dashboards and control
//! sockets have places for subscribers of their own. A client that wants one event gets the last
//! one, if there is one, and needs no place: so a page without a place polls. Its request keeps
//! the task going for the next one, whose event then has rates. A subscriber that
//! takes events more slowly than they are made misses some; one that takes no bytes at all is
//! disconnected as any other client ([`watched_stream`](super::watched_stream)).

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tidegate_api::query::EventsQuery;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::Api;
use super::access::Caller;
use super::error::{ApiError, ApiResult};
use super::handlers::parse_query;
use super::plane::Plane;
use super::view;

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// Most subscribers of a pool at a time, because each holds a place for connections for as long as
/// it likes.
pub(super) const SUBSCRIBERS_MAX: usize = 16;
/// Part of a listener's places that subscribers may have: one in this number.
const OF_PLACES: usize = 4;
/// Events that wait for a subscriber: the next ones are not for it.
const WAITING_MAX: usize = 2;

/// Time for which events are made for a client that has asked for one, until it asks again.
const POLLED_FOR: Duration = Duration::from_secs(3);

/// Listeners whose subscribers have places together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pool {
    /// Listeners of the control API.
    Control,
    /// Listeners of `[[dashboard]]`.
    Dashboards,
}

impl Pool {
    /// Returns the pool of a client's listener.
    fn of(caller: &Caller) -> Pool {
        match caller {
            Caller::Process { .. } | Caller::Remote(_) => Pool::Control,
            Caller::Visitor(_) => Pool::Dashboards,
        }
    }
}

/// Most subscribers of each pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubscribersMax {
    control: usize,
    dashboards: usize,
}

impl SubscribersMax {
    /// Bounds subscribers so that they leave others most of a listener's places.
    pub(super) fn beside(control_places: usize, dashboard_places: usize) -> SubscribersMax {
        let part = |places: usize| (places / OF_PLACES).clamp(1, SUBSCRIBERS_MAX);
        SubscribersMax {
            control: part(control_places),
            dashboards: part(dashboard_places),
        }
    }

    fn of(self, pool: Pool) -> usize {
        match pool {
            Pool::Control => self.control,
            Pool::Dashboards => self.dashboards,
        }
    }
}

/// Subscribers of events with the task that serves them.
#[derive(Clone)]
pub(super) struct Events {
    state: Arc<Mutex<EventsState>>,
    max: SubscribersMax,
}

/// Client that follows the events.
struct Subscriber {
    number: u64,
    pool: Pool,
    sender: mpsc::Sender<Bytes>,
}

#[derive(Default)]
struct EventsState {
    subscribers: Vec<Subscriber>,
    /// Number of the next subscriber.
    next: u64,
    /// Task that makes the events; `None` while nobody follows or polls them.
    task: Option<AbortHandle>,
    /// Last event, for those who subscribe between two or want no other.
    last: Option<Bytes>,
    /// Time of the last request for one event.
    polled: Option<Instant>,
}

impl EventsState {
    /// Returns true if nobody follows the events or has polled them lately.
    fn is_unused(&self) -> bool {
        let is_polled = (self.polled).is_some_and(|polled| polled.elapsed() < POLLED_FOR);
        self.subscribers.is_empty() && !is_polled
    }
}

impl Events {
    /// Makes events for at most `max` subscribers at a time.
    pub(super) fn new(max: SubscribersMax) -> Events {
        Events {
            state: Arc::default(),
            max,
        }
    }

    /// Returns the last event, and has the next ones made for a while; `None` while there is none,
    /// or if the task that makes them has failed.
    fn poll(&self) -> Option<Bytes> {
        let mut state = self.lock();
        state.polled = Some(Instant::now());
        let is_made = (state.task.as_ref()).is_some_and(|task| !task.is_finished());
        state.last.clone().filter(|_| is_made)
    }

    /// Adds a subscriber, and starts the task if it is the first.
    ///
    /// # Errors
    /// 503 if there are as many as there may be.
    fn subscribe<P: Plane>(&self, api: &Api<P>, pool: Pool) -> ApiResult<Subscription> {
        let mut state = self.lock();
        let in_pool = state.subscribers.iter().filter(|it| it.pool == pool);
        let max = self.max.of(pool);
        if in_pool.count() >= max {
            let who = match pool {
                Pool::Control => "clients of the control API",
                Pool::Dashboards => "pages of the dashboard",
            };
            let what = format!("{max} other {who} follow the events");
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "events");
            return Err(error.allowing("GET /v1/events?count=1, as often as once a second"));
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        if let Some(last) = &state.last {
            // There is room: the channel is new.
            let _ = sender.try_send(last.clone());
        }
        let number = state.next;
        state.next += 1;
        state.subscribers.push(Subscriber {
            number,
            pool,
            sender,
        });
        // A task that has failed is replaced.
        if state.task.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = tokio::spawn(follow(api.clone(), self.clone()));
            state.task = Some(task.abort_handle());
        }
        drop(state);
        Ok(Subscription {
            events: self.clone(),
            number,
            receiver,
        })
    }

    /// Sends an event to all subscribers that have room for it.
    fn send(&self, event: Bytes) {
        let mut state = self.lock();
        for subscriber in &state.subscribers {
            let _ = subscriber.sender.try_send(event.clone());
        }
        state.last = Some(event);
    }

    fn remove(&self, number: u64) {
        let mut state = self.lock();
        state.subscribers.retain(|it| it.number != number);
        if state.is_unused() {
            if let Some(task) = state.task.take() {
                task.abort();
            }
            state.last = None;
        }
    }

    /// Ends the task that calls this if it has become of no use; returns true if so.
    fn end_unused(&self) -> bool {
        let mut state = self.lock();
        let is_unused = state.is_unused();
        if is_unused {
            state.task = None;
            state.last = None;
        }
        is_unused
    }

    fn lock(&self) -> MutexGuard<'_, EventsState> {
        // Each field is valid by itself, so a panic elsewhere does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subscribers = self.lock().subscribers.len();
        f.debug_struct("Events")
            .field("subscribers", &subscribers)
            .finish_non_exhaustive()
    }
}

/// Subscriber, which is removed when this is dropped.
struct Subscription {
    events: Events,
    number: u64,
    receiver: mpsc::Receiver<Bytes>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.events.remove(self.number);
    }
}

/// Answer that goes on until the client leaves, or until `left` events were sent.
struct EventBody {
    subscription: Subscription,
    left: Option<u32>,
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == Some(0) {
            return Poll::Ready(None);
        }
        let event = self.subscription.receiver.poll_recv(cx);
        if event.is_ready() {
            self.left = self.left.map(|left| left - 1);
        }
        event.map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Makes an event each second until the task is aborted, or of no use.
async fn follow<P: Plane>(api: Api<P>, events: Events) {
    let mut seconds = tokio::time::interval(PERIOD);
    // After a loop that was stuck, events are a second apart again.
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = None;
    loop {
        seconds.tick().await;
        if events.end_unused() {
            return;
        }
        match api.snapshots().await {
            Ok(now) => {
                let live = view::live(before.as_deref(), &now, api.clock.now());
                events.send(event("sample", &live));
                before = Some(now);
            }
            // Rates go on from the last snapshots once the loop answers again.
            Err(error) => events.send(event("problem", &error.body)),
        }
    }
}

/// Returns an event in the format of `text/event-stream`.
fn event<T: Serialize>(name: &str, data: &T) -> Bytes {
    // JSON on one line, because a line feed would end the field.
    let data = serde_json::to_string(data).expect("views are plain data");
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

pub(super) async fn events<P: Plane>(
    State(api): State<Api<P>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> ApiResult<Response> {
    let query: EventsQuery = parse_query(&uri, "?count=10")?;
    if query.count == Some(0) {
        let what = "an answer of no events";
        let error = ApiError::new(StatusCode::BAD_REQUEST, what, "query");
        return Err(error.allowing("?count=1 and more, or no count for events without end"));
    }
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    if query.count == Some(1)
        && let Some(last) = api.events.poll()
    {
        return Ok((headers, last).into_response());
    }
    let body = EventBody {
        subscription: api.events.subscribe(&api, Pool::of(&caller))?,
        left: query.count,
    };
    Ok((headers, Body::new(body)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_event_of_a_task_that_has_failed_is_polled_by_nobody() {
        let events = Events::new(SubscribersMax::beside(64, 64));
        let task = tokio::spawn(std::future::pending::<()>());
        events.lock().task = Some(task.abort_handle());
        events.send(Bytes::from_static(b"last"));
        assert_eq!(events.poll(), Some(Bytes::from_static(b"last")));
        task.abort();
        assert!(task.await.is_err(), "it has ended");
        assert_eq!(events.poll(), None, "it would be the last one for ever");
    }
}
