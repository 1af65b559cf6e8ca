//! `/v1/recordings` and `/v1/devices/{name}/recording`: recordings of requests.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body as AnswerBody, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use jiff::Zoned;
use tidegate_api::query::RecordingQuery;
use tidegate_api::recording::RecordingRequest;
use tokio::sync::mpsc;

use super::error::{ApiError, ApiResult};
use super::handlers::{Body, in_time, ok, parse_body, parse_query};
use super::history::parse_time;
use super::path::Path;
use super::plane::Plane;
use super::{ANSWER_TIMEOUT, Api};
use crate::config::VmConfig;
use crate::daemon::ControlError;
use crate::recording::{Dumped, Range, RecordingError, Recordings, Sink, Unrecorded};

/// Example of a body.
pub(super) const SWITCH: &str = "{\"on\": true}";

/// Pieces of a dump that wait for the client, some 64 KiB each.
const PIECES: usize = 4;

pub(super) fn refused(error: &RecordingError) -> ApiError {
    if let RecordingError::NoAnswer(_) | RecordingError::Busy = error {
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
    let body = parse_body(body, SWITCH)?;
    let request: RecordingRequest = serde_json::from_value(body).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, error.to_string(), "body").allowing(SWITCH)
    })?;
    let (own, at) = (api.clone(), name.clone());
    api.change(&name, async move {
        in_time(&at, own.plane.set_recording(device, request.on)).await?;
        status(State(own)).await
    })
    .await
}

/// Returns a time of a query in nanoseconds since 1970.
fn time(name: &str, text: Option<&str>, now: &Zoned, default: u64) -> ApiResult<u64> {
    let Some(text) = text else {
        return Ok(default);
    };
    let time = parse_time(text, now, name)?;
    // Times before 1970 and after 2554 are the first and the last that there are.
    Ok(u64::try_from(time.as_nanosecond().max(0)).unwrap_or(u64::MAX))
}

/// Returns the range of a query at a time. `vms`: those of the device.
pub(super) fn range(query: &RecordingQuery, now: &Zoned, vms: &[VmConfig]) -> ApiResult<Range> {
    let range = Range {
        from: time("from", query.from.as_deref(), now, 0)?,
        to: time("to", query.to.as_deref(), now, u64::MAX)?,
        vm: query.vm.clone(),
        unrecorded: Unrecorded::new(vms),
    };
    let Some(from) = query.from.as_deref() else {
        return Ok(range);
    };
    let what = if i128::from(range.from) > now.timestamp().as_nanosecond() {
        format!("the range begins in the future, at {from}")
    } else if range.from >= range.to {
        let to = query.to.as_deref().unwrap_or_default();
        format!("the range ends at {to}, not after its beginning at {from}")
    } else {
        return Ok(range);
    };
    Err(ApiError::new(StatusCode::BAD_REQUEST, what, "query")
        .allowing("from before to, and not after now"))
}

pub(super) async fn dump<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let device = api.device(&name)?;
    let allowed = "?vm=NAME, ?from=TIME or ?to=TIME";
    let query: RecordingQuery = parse_query(&uri, allowed)?;
    let range = range(&query, &Zoned::now(), &api.plane.vms_of(device))?;
    let vm = range.vm.clone();
    let (sender, mut receiver) = mpsc::channel(PIECES);
    let begun = (api.plane.recordings()).begin_dump(device, range, Client(sender));
    let reading = begun.map_err(|error| refused(&error))?;
    let Ok(first) = tokio::time::timeout(ANSWER_TIMEOUT, receiver.recv()).await else {
        let what = "the recordings cannot be read: their disk does not answer";
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            what,
            "recording",
        ));
    };
    let Some(Ok(first)) = first else {
        // Nothing was read, or the reading failed before it had anything.
        let what = match reading.await {
            Ok(Err(error)) => return Err(refused(&error)),
            Ok(Ok(Dumped::UnknownVm)) => {
                let vm = vm.unwrap_or_default();
                format!("there is no VM {vm:?} in the recordings of device {name:?} in this range")
            }
            Ok(Ok(Dumped::NoFile | Dumped::Sent)) => {
                format!("there is no recording of device {name:?} in this range")
            }
            Err(_) => return Err(failed()),
        };
        return Err(ApiError::new(StatusCode::NOT_FOUND, what, "recording")
            .allowing("GET /v1/recordings has what there is"));
    };
    let body = AnswerBody::new(Pieces {
        first: Some(Ok(first)),
        rest: receiver,
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// Client that takes a dump.
struct Client(mpsc::Sender<std::io::Result<Bytes>>);

impl Sink for Client {
    fn take(&mut self, bytes: &mut Vec<u8>) -> bool {
        let piece = Bytes::from(std::mem::take(bytes));
        self.0.blocking_send(Ok(piece)).is_ok()
    }

    fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    fn fail(&mut self) {
        // Without the end of the chunked body the client knows that the dump is not whole.
        let _ = (self.0).blocking_send(Err(std::io::Error::other("cannot be read")));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_can_have_no_request_is_refused() {
        let now: Zoned = "2026-03-01T12:00:00+00:00[UTC]".parse().expect("a time");
        let range = |from: Option<&str>, to: Option<&str>| {
            let query = RecordingQuery {
                vm: None,
                from: from.map(str::to_owned),
                to: to.map(str::to_owned),
            };
            range(&query, &now, &[])
        };
        let (ten, noon, two) = (
            "2026-03-01T10:00:00Z",
            "2026-03-01T12:00:00Z",
            "2026-03-01T14:00:00Z",
        );
        for (from, to) in [
            (None, None),
            (Some(ten), Some(two)),
            (Some(noon), None),
            (None, Some(ten)),
            (Some(ten), Some("2999-01-01T00:00:00Z")),
        ] {
            let range = range(from, to).expect("a range");
            assert!(range.from < range.to, "{range:?}");
        }
        for (from, to, why) in [
            (Some(noon), Some(ten), "not after its beginning"),
            (Some(ten), Some(ten), "not after its beginning"),
            (Some(two), None, "in the future"),
            (
                Some("2999-01-01T00:00:00Z"),
                Some("3000-01-01T00:00:00Z"),
                "in the future",
            ),
        ] {
            let refused = range(from, to).expect_err(why);
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
            assert!(refused.body.error.what.contains(why), "{:?}", refused.body);
        }
    }
}
