//! Handlers of the history: of VMs, of devices, and of its own state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use tidegate_api::history::{
    BehindMicrosView, HistoryFilesView, HistoryStatusView, HistoryView, IntervalView, LatencyView,
    SpanView,
};
use tidegate_api::query::HistoryQuery;
use tidegate_history::budget::{FINE_WINDOWS, WINDOW_MS};
use tidegate_history::column::{Column, Unit};
use tidegate_history::query::{Answer, Interval, Request, Step};
use tidegate_history::recorder;
use tidegate_history::sample::{Key, Kind};

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{ok, parse_query};
use super::path::Path;
use super::plane::Plane;
use crate::history::{History, wall_ms};

/// Most intervals of an answer.
const INTERVALS_MAX: u64 = 1000;
/// Intervals that an answer has at most where the query names no step.
const INTERVALS_USUAL: u64 = 360;
/// Steps that are chosen where the query names none, in seconds.
const STEPS_S: [u64; 7] = [10, 30, 60, 300, 900, 1800, 3600];
/// Span of a query that names no begin.
const SPAN_MS: u64 = 15 * 60 * 1000;
const ALLOWED: &str = "?from=-15m, ?to=2026-11-28T14:02:00Z, ?step=10s";

/// Parses a span of time such as `15m`, `90 s` or `2 h`, in milliseconds.
fn parse_span(text: &str) -> Option<u64> {
    let text = text.trim();
    let minutes = text
        .strip_suffix('m')
        .filter(|number| number.trim_end().ends_with(|c: char| c.is_ascii_digit()));
    let spelled = match minutes {
        Some(number) => format!("{}min", number.trim_end()),
        None => text.to_owned(),
    };
    match spelled.strip_suffix('d') {
        Some(days) => days.trim_end().parse::<u64>().ok()?.checked_mul(86_400_000),
        None => Some(tidegate_units::parse_duration(&spelled).ok()?.0 / 1_000_000),
    }
}

/// Parses a time of a query in milliseconds since 1970.
fn parse_time(text: &str, now_ms: u64, key: &str) -> ApiResult<u64> {
    let text = text.trim();
    let before = text.strip_prefix('-').map(|span| (span, true));
    let time = match before {
        _ if text == "now" => Some(now_ms),
        Some((span, _)) => parse_span(span).map(|span| now_ms.saturating_sub(span)),
        None => text
            .parse::<u64>()
            .ok()
            .and_then(|s| s.checked_mul(1000))
            .or_else(|| {
                let time: Timestamp = text.parse().ok()?;
                u64::try_from(time.as_millisecond()).ok()
            }),
    };
    time.ok_or_else(|| {
        let what = format!("{key} is {text:?}, which is no time");
        ApiError::new(StatusCode::BAD_REQUEST, what, "query").allowing(
            "now, a time before now such as -15m or -2h, RFC 3339 such as 2026-11-28T14:02:00Z, \
             or seconds since 1970",
        )
    })
}

/// Returns the span and the step of a query. `oldest_fine_ms`: begin of the oldest point of 1 s.
fn span_of(
    query: &HistoryQuery,
    now_ms: u64,
    oldest_fine_ms: Option<u64>,
) -> ApiResult<(u64, u64, Step)> {
    let wrong = |what: String, allowed: String| {
        Err(ApiError::new(StatusCode::BAD_REQUEST, what, "query").allowing(allowed))
    };
    let time = |text: &Option<String>, key, default| match text {
        Some(text) => parse_time(text, now_ms, key),
        None => Ok(default),
    };
    let to_ms = time(&query.to, "to", now_ms)?;
    let from_ms = time(&query.from, "from", to_ms.saturating_sub(SPAN_MS))?;
    if from_ms >= to_ms {
        let what = "the span ends before it begins".to_owned();
        return wrong(what, "a from that is earlier than to".to_owned());
    }
    let span = to_ms - from_ms;
    let step_s = match &query.step {
        Some(step) => match parse_span(step)
            .filter(|ms| ms % 1000 == 0)
            .map(|ms| ms / 1000)
        {
            Some(s) if s == 1 || s > 0 && s % 10 == 0 => s,
            _ => {
                let what = format!("step is {step:?}");
                return wrong(
                    what,
                    "1s, or a multiple of 10 s such as 10s, 1m or 1h".to_owned(),
                );
            }
        },
        None => {
            let has_fine = oldest_fine_ms.is_some_and(|oldest| from_ms >= oldest);
            let recent = now_ms.saturating_sub(from_ms) <= FINE_WINDOWS as u64 * WINDOW_MS;
            let usual = |step: &u64| span / (step * 1000) <= INTERVALS_USUAL;
            match STEPS_S.into_iter().find(usual) {
                Some(10) if (has_fine || recent) && usual(&1) => 1,
                Some(step) => step,
                // The shortest multiple of an hour that has no more intervals.
                None => (span / (3_600_000 * INTERVALS_USUAL) + 1) * 3600,
            }
        }
    };
    let step = if step_s == 1 {
        Step::Fine
    } else {
        Step::Every(step_s * 1000)
    };
    let intervals = span / (step_s * 1000);
    if intervals > INTERVALS_MAX {
        let what = format!("the answer would have up to {intervals} intervals");
        let least = span / 1000 / INTERVALS_MAX / 10 * 10 + 10;
        return wrong(
            what,
            format!("at most {INTERVALS_MAX}: ?step={least}s, or a shorter span"),
        );
    }
    Ok((from_ms, to_ms, step))
}

impl<P: Plane> Api<P> {
    fn history(&self) -> ApiResult<Arc<History>> {
        self.plane.history().ok_or_else(|| {
            let what = "the history is turned off in the configuration";
            ApiError::new(StatusCode::CONFLICT, what, "history")
                .allowing("enabled = true in [history], and a restart")
        })
    }

    /// Answers a query of a series. `known`: names of those that are served.
    async fn history_of(&self, key: Key, uri: &Uri, known: Vec<String>) -> ApiResult<Response> {
        let query: HistoryQuery = parse_query(uri, ALLOWED)?;
        let history = self.history()?;
        let (from_ms, to_ms, step) = span_of(&query, wall_ms(), history.oldest_fine_ms())?;
        let request = Request {
            key: key.clone(),
            from_ms,
            to_ms,
            step,
        };
        let asked = request.clone();
        let answered = async {
            // Held until the files are read, although the client may have left.
            let permit = history.queries().acquire_owned().await;
            // Reads files, which may take long or hang.
            let answered = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let answer = history.query(&asked);
                let has_points = !answer.intervals.is_empty() || history.has(&asked.key);
                (answer, has_points)
            });
            answered.await
        };
        let in_time = tokio::time::timeout(super::ANSWER_TIMEOUT, answered).await;
        let Ok(Ok((answer, has_points))) = in_time else {
            let what = "the history cannot be read: its disk does not answer";
            return Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                what,
                "history",
            ));
        };
        // A VM that was removed has its history until it ages out.
        if !has_points && !known.iter().any(|name| **name == *key.name) {
            let kind = if key.kind == Kind::Vm { "vm" } else { "device" };
            return Err(ApiError::not_found(kind, &key.name, &known));
        }
        Ok(ok(&view(&request, answer)))
    }
}

pub(super) async fn vm<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let devices = api.plane.devices();
    let known = devices.into_iter().flat_map(|(_, vms)| vms).collect();
    api.history_of(recorder::vm(&name), &uri, known).await
}

pub(super) async fn device<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let devices = api.plane.devices();
    let known = devices.into_iter().map(|(name, _)| name).collect();
    api.history_of(recorder::device(&name), &uri, known).await
}

pub(super) async fn status<P: Plane>(State(api): State<Api<P>>) -> Response {
    ok(&api
        .plane
        .history()
        .map_or_else(HistoryStatusView::default, |history| {
            let status = history.status();
            HistoryStatusView {
                enabled: true,
                oldest_1s_ms: status.oldest_fine_ms,
                oldest_10s_ms: status.oldest_ms,
                memory_bytes: status.memory_bytes,
                delayed: status.delayed,
                files: status.files.map(|files| HistoryFilesView {
                    directory: files.directory.display().to_string(),
                    bytes: files.bytes,
                    max_bytes: files.bytes_max,
                    dropped: files.dropped,
                    failing: files.failing,
                    on_devices: files.on_served,
                }),
            }
        }))
}

fn view(request: &Request, answer: Answer) -> HistoryView {
    let name = request.key.name.to_string();
    let (vm, device) = match request.key.kind {
        Kind::Vm => (Some(name), None),
        Kind::Device => (None, Some(name)),
    };
    let span = |running: &tidegate_history::query::Running| SpanView {
        from_ms: running.from_ms,
        to_ms: running.to_ms,
    };
    HistoryView {
        vm,
        device,
        from_ms: request.from_ms,
        to_ms: request.to_ms,
        step_s: match request.step {
            Step::Fine => 1,
            Step::Every(ms) => ms / 1000,
        },
        intervals: answer.intervals.iter().map(interval).collect(),
        recorded: answer.running.iter().map(span).collect(),
    }
}

fn interval(interval: &Interval) -> IntervalView {
    let counters = Column::ALL
        .into_iter()
        .filter(|column| column.unit() != Unit::Bucket);
    let values: BTreeMap<String, u64> = counters
        .map(|column| (column.name().to_owned(), interval.values[column]))
        .filter(|(_, value)| *value > 0)
        .collect();
    let quantile = |column| interval.quantile_ns(column);
    let latency = quantile(Column::P50).map(|p50_ns| LatencyView {
        p50_ns,
        p99_ns: quantile(Column::P99).unwrap_or(0),
        p999_ns: quantile(Column::P999).unwrap_or(0),
        max_ns: quantile(Column::Longest).unwrap_or(0),
    });
    let behind = interval.behind.iter().map(|(vm, waited)| BehindMicrosView {
        vm: vm.to_string(),
        waited_us: *waited,
    });
    IntervalView {
        from_ms: interval.from_ms,
        to_ms: interval.to_ms,
        observed_ms: interval.observed_ms,
        values,
        latency,
        behind: behind.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn query(from: &str, to: &str, step: &str) -> HistoryQuery {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        HistoryQuery {
            from: given(from),
            to: given(to),
            step: given(step),
        }
    }

    #[test]
    fn times_are_relative_absolute_or_seconds() {
        let of = |text| parse_time(text, NOW, "from").ok();
        assert_eq!(of("now"), Some(NOW));
        assert_eq!(of("-15m"), Some(NOW - 900_000));
        assert_eq!(of("-15 min"), Some(NOW - 900_000));
        assert_eq!(of("-90s"), Some(NOW - 90_000));
        assert_eq!(of("-500ms"), Some(NOW - 500));
        assert_eq!(of("-2h"), Some(NOW - 7_200_000));
        assert_eq!(of("-1d"), Some(NOW - 86_400_000));
        assert_eq!(of("1700000000"), Some(1_700_000_000_000));
        assert_eq!(of("2023-11-14T22:13:20Z"), Some(1_700_000_000_000));
        for wrong in [
            "",
            "15m",
            "-",
            "-x",
            "yesterday",
            "-1",
            "99999999999999999999",
        ] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_step_follows_from_the_span() {
        let step = |from: &str, oldest| {
            let (.., step) = span_of(&query(from, "", ""), NOW, oldest).expect("a span");
            step
        };
        assert_eq!(step("-5m", Some(NOW - 900_000)), Step::Fine);
        assert_eq!(step("-15m", Some(NOW - 900_000)), Step::Every(10_000));
        assert_eq!(step("-1h", Some(NOW - 900_000)), Step::Every(10_000));
        assert_eq!(step("-3h", None), Step::Every(30_000));
        assert_eq!(step("-1d", None), Step::Every(300_000));
        assert_eq!(step("-90d", None), Step::Every(7 * 3_600_000));
    }

    #[test]
    fn answers_are_bounded_and_say_what_is_allowed() {
        let of = |from, to, step| span_of(&query(from, to, step), NOW, None);
        assert!(of("-15m", "", "1s").is_ok_and(|(.., step)| step == Step::Fine));
        assert!(of("-1d", "", "5m").is_ok_and(|(.., step)| step == Step::Every(300_000)));
        for (from, to, step) in [
            ("-1d", "", "10s"),
            ("-1h", "", "1s"),
            ("-1h", "", "15s"),
            ("-1h", "", "0s"),
            ("-1h", "-2h", ""),
            ("-1h", "", "500ms"),
        ] {
            let error = of(from, to, step).expect_err("it is wrong");
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
            assert!(error.body.error.allowed.is_some(), "{from} {to} {step}");
        }
    }
}
