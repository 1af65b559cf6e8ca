//! Listeners of metrics: `/metrics` and `/healthz` alone, for clients that are not trusted with the
//! control API.
//!
//! An answer asks every event loop. A client may send requests without end, and the loops must not
//! be occupied by them, so an answer is made at most every [`ANSWER_INTERVAL`] and shared by all
//! who ask meanwhile.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Api;
use super::error::ApiError;
use super::handlers;
use super::plane::Plane;

/// Connections that a listener of metrics serves at a time.
pub(super) const SCRAPERS_MAX: usize = 32;
/// Time between two answers that are made.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);

/// Paths that are served.
#[derive(Clone, Copy)]
enum Page {
    Health,
    Metrics,
}

#[derive(Clone)]
struct Scrapes<P> {
    api: Api<P>,
    health: Arc<Shared>,
    metrics: Arc<Shared>,
}

/// Answer that clients share. The lock is held while an answer is made.
#[derive(Default)]
struct Shared(Mutex<Last>);

#[derive(Default)]
struct Last {
    /// Time at which the last answer was begun, even if its client left before it was complete.
    begun: Option<Instant>,
    answer: Option<Answer>,
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    async fn of(response: Response) -> Result<Answer, axum::Error> {
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            // A body of the daemon's own, which is in memory already.
            body: to_bytes(body, usize::MAX).await?,
        })
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.status, self.headers, Body::from(self.body)).into_response()
    }
}

/// Makes the router of the listeners of metrics, which share their answers.
pub(super) fn router<P: Plane>(api: Api<P>) -> Router {
    let scrapes = Scrapes {
        api,
        health: Arc::default(),
        metrics: Arc::default(),
    };
    let health =
        |State(scrapes): State<Scrapes<P>>| async move { scrapes.page(Page::Health).await };
    let metrics =
        |State(scrapes): State<Scrapes<P>>| async move { scrapes.page(Page::Metrics).await };
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(scrapes)
}

impl<P: Plane> Scrapes<P> {
    /// Returns the answer to a request for a page, at most [`ANSWER_INTERVAL`] old.
    async fn page(&self, page: Page) -> Response {
        let shared = match page {
            Page::Health => &self.health,
            Page::Metrics => &self.metrics,
        };
        let mut last = shared.0.lock().await;
        if let Some(begun) = last.begun {
            let next = begun + ANSWER_INTERVAL;
            if let Some(answer) = &last.answer
                && Instant::now() < next
            {
                return answer.clone().into_response();
            }
            // Only if the client of the last one left before it was complete.
            tokio::time::sleep_until(next).await;
        }
        last.begun = Some(Instant::now());
        last.answer = None;
        let state = State(self.api.clone());
        let response = match page {
            Page::Health => handlers::health(state).await,
            Page::Metrics => handlers::metrics(state).await.into_response(),
        };
        match Answer::of(response).await {
            Ok(answer) => last.answer.insert(answer).clone().into_response(),
            Err(error) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                ApiError::new(status, error.to_string(), "body").into_response()
            }
        }
    }
}

async fn no_such_path(uri: Uri) -> ApiError {
    let what = format!("there is no {} on a listener of metrics", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, what, "path").allowing("/metrics or /healthz")
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let what = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what, "method").allowing("GET")
}
