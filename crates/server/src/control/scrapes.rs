//! Listeners of metrics: `/metrics`, `/healthz` and `/readyz` alone, for clients that are not
//! trusted with the control API.
//!
//! An answer asks every event loop. A client may send requests without end, and the loops must not
//! be occupied by them, so an answer is used for [`ANSWER_INTERVAL`] and shared by all who ask
//! meanwhile ([`shared`](super::shared)).

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers;
use super::plane::Plane;
use super::shared::Shared;
use crate::metrics::Exposition;

/// Connections that a listener of metrics serves at a time.
pub(super) const SCRAPERS_MAX: usize = 32;
/// Time for which an answer is used, from its beginning.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);

/// Paths that are served.
#[derive(Clone, Copy)]
enum Page {
    Health,
    Metrics(Exposition),
    Readiness,
}

#[derive(Clone)]
struct Scrapes<P> {
    api: Api<P>,
    health: Shared<ApiResult<Answer>>,
    text_metrics: Shared<ApiResult<Answer>>,
    open_metrics: Shared<ApiResult<Answer>>,
    readiness: Shared<ApiResult<Answer>>,
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    async fn of(response: Response) -> ApiResult<Answer> {
        let (head, body) = response.into_parts();
        // A body of the daemon's own, which is in memory already.
        let body = to_bytes(body, usize::MAX).await.map_err(|error| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::new(status, error.to_string(), "body")
        })?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
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
        health: Shared::reused_for(ANSWER_INTERVAL),
        text_metrics: Shared::reused_for(ANSWER_INTERVAL),
        open_metrics: Shared::reused_for(ANSWER_INTERVAL),
        readiness: Shared::reused_for(ANSWER_INTERVAL),
    };
    let answer = |page| {
        get(move |State(scrapes): State<Scrapes<P>>| async move { scrapes.page(page).await })
    };
    let metrics = async |State(scrapes): State<Scrapes<P>>, headers: HeaderMap| {
        let page = Page::Metrics(Exposition::accepted(&headers));
        scrapes.page(page).await
    };
    Router::new()
        .route("/healthz", answer(Page::Health))
        .route("/metrics", get(metrics))
        .route("/readyz", answer(Page::Readiness))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(scrapes)
}

impl<P: Plane> Scrapes<P> {
    /// Returns the answer to a request for a page, at most [`ANSWER_INTERVAL`] old unless it takes
    /// longer to make.
    async fn page(&self, page: Page) -> ApiResult<Answer> {
        let shared = match page {
            Page::Health => &self.health,
            Page::Metrics(Exposition::Text) => &self.text_metrics,
            Page::Metrics(Exposition::OpenMetrics) => &self.open_metrics,
            Page::Readiness => &self.readiness,
        };
        let state = State(self.api.clone());
        let make = move || async move {
            let response = match page {
                Page::Health => handlers::health(state).await.into_response(),
                Page::Metrics(exposition) => handlers::metrics_as(state, exposition)
                    .await
                    .into_response(),
                Page::Readiness => handlers::readiness(state).await.into_response(),
            };
            Answer::of(response).await
        };
        shared.get(make).await?
    }
}

async fn no_such_path(uri: Uri) -> ApiError {
    let what = format!("there is no {} on a listener of metrics", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, what, "path").allowing("/metrics, /healthz or /readyz")
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let what = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what, "method").allowing("GET")
}
