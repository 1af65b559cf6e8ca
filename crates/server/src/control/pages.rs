//! `/v1/report` and pages of what-if runs: self-contained HTML with a content policy of its own.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, Zoned};
use tidegate_api::query::ExplainQuery;

use super::error::{ApiError, ApiResult};
use super::handlers::parse_query;
use super::history::span_of;
use super::plane::Plane;
use super::{Api, Maker};
use crate::calculation::{Begun, Calculation, Order, ReportOrder};

/// Reports that are made at a time.
pub(super) const REPORTS_MAX: usize = 1;
/// Time that a request waits for reports of others.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);

/// Content that a page may have: the style sheet of all pages alone, by its hash. There is no
/// script, and nothing is loaded.
static CONTENT_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = tidegate_report::page_style();
    let digest = ring::digest::digest(&ring::digest::SHA256, style.as_bytes());
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; frame-ancestors 'none'; \
         form-action 'none'",
        STANDARD.encode(digest)
    );
    HeaderValue::from_str(&policy).expect("plain text")
});

/// Makes the answer that is a page.
pub(super) fn page(text: Bytes) -> Response {
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY.clone()),
    ];
    (headers, text).into_response()
}

pub(super) async fn report<P: Plane>(State(api): State<Api<P>>, uri: Uri) -> ApiResult<Response> {
    let query: ExplainQuery = parse_query(&uri, "?from=-1h or ?to=2026-11-28T14:02:00Z")?;
    let (from_ms, to_ms) = span_of([&query.from, &query.to], &Zoned::now())?;
    api.history()?;
    let Maker { program, socket } = api.maker()?;
    let unavailable = |what: String| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "report");
    let turn = tokio::time::timeout(TURN_TIMEOUT, api.reports.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        let what = "reports of other clients are being made";
        return Err(unavailable(what.to_owned()).allowing("one at a time: try again"));
    };
    let order = Order::Report(ReportOrder {
        socket: socket.clone(),
        from: time(from_ms),
        to: time(to_ms),
    });
    let begun = Calculation::begin(program, &order, |_, _| {});
    // Dropped with this future, which ends the process of a client that has left.
    let Begun {
        calculation: _calculation,
        input,
        results,
    } = begun.map_err(|error| unavailable(format!("no process for the report: {error}")))?;
    drop(input);
    match results.await {
        Ok(Ok(results)) => Ok(page(results.page.into())),
        Ok(Err(problem)) => {
            let error = unavailable(problem.what);
            Err(match problem.allowed {
                Some(allowed) => error.allowing(allowed),
                None => error,
            })
        }
        Err(_) => Err(unavailable("the report is lost: this is a bug".to_owned())),
    }
}

/// Returns a time in milliseconds since 1970 as queries have it.
fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    time.to_string()
}
