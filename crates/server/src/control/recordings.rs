//! `/v1/recordings` and `/v1/devices/{name}/recording`: recordings of requests.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body as AnswerBody, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use jiff::Timestamp;
use tidegate_api::query::RecordingQuery;
use tidegate_api::recording::RecordingRequest;
use tokio::sync::mpsc;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{Body, in_time, ok, parse_body, parse_query};
use super::path::Path;
use super::plane::Plane;
use crate::daemon::ControlError;
use crate::recording::{Range, RecordingError, Recordings};

/// Pieces of a dump that wait for the client, some 64 KiB each.
const PIECES: usize = 4;

fn refused(error: &RecordingError) -> ApiError {
    if let RecordingError::NoAnswer(_) = error {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return ApiError::new(status, error.to_string(), "recording");
    }
    ApiError::control(&ControlError::Recording(error.to_string()), "recording")
}

fn failed() -> ApiError {
    let what = "the recordings could not be read: this is a bug";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, what, "recording")
}

pub(super) async fn status<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let recordings = api.plane.recordings();
    let status = recordings.with_files(Recordings::status).await;
    Ok(ok(&status.map_err(|error| refused(&error))?))
}

pub(super) async fn switch<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    body: Body,
) -> ApiResult<Response> {
    let device = api.device(&name)?;
    let example = "{\"on\": true}";
    let body = parse_body(body, example)?;
    let request: RecordingRequest = serde_json::from_value(body).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, error.to_string(), "body").allowing(example)
    })?;
    let (own, at) = (api.clone(), name.clone());
    api.change(&name, async move {
        in_time(&at, own.plane.set_recording(device, request.on)).await?;
        status(State(own)).await
    })
    .await
}

/// Returns a time of a query in nanoseconds since 1970.
fn time(name: &str, text: Option<&str>, default: u64) -> ApiResult<u64> {
    let Some(text) = text else {
        return Ok(default);
    };
    let time: Timestamp = text.parse().map_err(|_| {
        let what = format!("{name}={text:?} is not a time");
        ApiError::new(StatusCode::BAD_REQUEST, what, "query")
            .allowing("a time such as 2026-03-01T14:02:00Z")
    })?;
    Ok(u64::try_from(time.as_nanosecond()).unwrap_or(0))
}

pub(super) async fn dump<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let device = api.device(&name)?;
    let allowed = "?vm=NAME, ?from=TIME or ?to=TIME";
    let query: RecordingQuery = parse_query(&uri, allowed)?;
    let range = Range {
        from: time("from", query.from.as_deref(), 0)?,
        to: time("to", query.to.as_deref(), u64::MAX)?,
        vm: query.vm,
    };
    let recordings = api.plane.recordings();
    let (sender, mut receiver) = mpsc::channel(PIECES);
    // Ends by itself once the client is gone: nobody takes the next piece.
    let reading = tokio::task::spawn_blocking(move || {
        let send = |bytes: &mut Vec<u8>| {
            let piece = Bytes::from(std::mem::take(bytes));
            sender.blocking_send(Ok(piece)).is_ok()
        };
        let dumped = recordings.dump(device, &range, send);
        if let Err(RecordingError::Directory { source, .. }) = &dumped {
            tracing::error!("a dump of recordings ended early: {source}");
            // Without the end of the chunked body the client knows that it is not whole.
            let _ = sender.blocking_send(Err(std::io::Error::other("cannot be read")));
        }
        dumped
    });
    let Some(first) = receiver.recv().await else {
        return match reading.await {
            Ok(Err(error)) => Err(refused(&error)),
            Ok(Ok(_)) => {
                let what = format!("there is no recording of device {name:?} in this range");
                Err(ApiError::new(StatusCode::NOT_FOUND, what, "recording")
                    .allowing("GET /v1/recordings has what there is"))
            }
            Err(_) => Err(failed()),
        };
    };
    let body = AnswerBody::new(Pieces {
        first: Some(first),
        rest: receiver,
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// Body whose pieces come from another thread.
struct Pieces {
    first: Option<std::io::Result<Bytes>>,
    rest: mpsc::Receiver<std::io::Result<Bytes>>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let piece = match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.rest.poll_recv(cx),
        };
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
