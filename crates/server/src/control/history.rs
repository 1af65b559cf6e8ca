//! Handlers of the history: of VMs, of devices, and of its own state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::{Timestamp, Zoned};
use tidegate_api::history::{
    BehindMicrosView, HistoriesView, HistoryFilesView, HistoryStatusView, HistoryView,
    IntervalView, LatencyView, SpanView,
};
use tidegate_api::query::HistoryQuery;
use tidegate_config::moment::{self, Moment};
use tidegate_core::time::Nanos;
use tidegate_history::budget::{FINE_WINDOWS, WINDOW_MS};
use tidegate_history::column::{Column, Unit};
use tidegate_history::latency::{Latency, upper_bound_ns};
use tidegate_history::query::{Answer, Interval, Request, Step};
use tidegate_history::recorder;
use tidegate_history::sample::{Key, Kind};
use tokio::time::{Instant, timeout_at};

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{ok, parse_query};
use super::path::Path;
use super::plane::Plane;
use crate::history::History;

/// Most intervals of an answer.
const INTERVALS_MAX: u64 = 1000;
/// Intervals that an answer has at most where the query names no step.
const INTERVALS_USUAL: u64 = 360;
/// Steps that are chosen where the query names none, in seconds.
const STEPS_S: [u64; 7] = [10, 30, 60, 300, 900, 1800, 3600];
/// Span of a query that names no begin.
const SPAN_MS: u64 = 15 * 60 * 1000;
/// Most VMs of a query of several.
const VMS_MAX: usize = 32;
/// Most intervals of a query of several VMs, of all together.
const INTERVALS_OF_VMS_MAX: u64 = 12_000;
const SEVERAL_ALLOWED: &str =
    "?vm=NAME for each of 1 to 32 VMs, ?from=-15m, ?to=2026-11-28T14:02:00Z, ?step=10s";
const ALLOWED: &str = "?from=-15m, ?to=2026-11-28T14:02:00Z, ?step=10s, ?buckets=true";

/// Parses a time of a query.
pub(super) fn parse_time(text: &str, now: &Zoned, key: &str) -> ApiResult<Timestamp> {
    let moment = Moment::parse(text, now).map_err(|_| {
        let what = format!("{key} is {text:?}, which is no time");
        ApiError::new(StatusCode::BAD_REQUEST, what, "query").allowing(moment::ALLOWED)
    })?;
    Ok(moment.at(now.timestamp()))
}

/// Returns the begin and the end of a query in milliseconds since 1970.
pub(super) fn span_of([from, to]: [&Option<String>; 2], now: &Zoned) -> ApiResult<(u64, u64)> {
    let time = |text: &Option<String>, key| -> ApiResult<Option<u64>> {
        let time = |text: &String| parse_time(text, now, key);
        let time = text.as_ref().map(time).transpose()?;
        Ok(time.map(|time| u64::try_from(time.as_millisecond()).unwrap_or(0)))
    };
    let now_ms = u64::try_from(now.timestamp().as_millisecond()).unwrap_or(0);
    let to_ms = time(to, "to")?.unwrap_or(now_ms);
    let from_ms = time(from, "from")?.unwrap_or(to_ms.saturating_sub(SPAN_MS));
    if from_ms >= to_ms {
        let what = "the span ends before it begins";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, what, "query")
            .allowing("a from that is earlier than to"));
    }
    Ok((from_ms, to_ms))
}

/// Returns the span and the step of a query. `oldest_fine_ms`: begin of the oldest point of 1 s.
fn steps_of(
    query: &HistoryQuery,
    now: &Zoned,
    oldest_fine_ms: Option<u64>,
) -> ApiResult<(u64, u64, Step)> {
    let wrong = |what: String, allowed: String| {
        Err(ApiError::new(StatusCode::BAD_REQUEST, what, "query").allowing(allowed))
    };
    let (from_ms, to_ms) = span_of([&query.from, &query.to], now)?;
    let now_ms = u64::try_from(now.timestamp().as_millisecond()).unwrap_or(0);
    let span = to_ms - from_ms;
    let step_s = match &query.step {
        Some(step) => match moment::parse_span(step)
            .filter(|step| step.0.is_multiple_of(Nanos::SECOND.0))
            .map(|step| step.0 / Nanos::SECOND.0)
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
    /// Returns the history.
    ///
    /// # Errors
    /// 409 if it is turned off.
    pub(super) fn history(&self) -> ApiResult<Arc<History>> {
        self.plane.history().ok_or_else(|| {
            let what = "the history is turned off in the configuration";
            ApiError::new(StatusCode::CONFLICT, what, "history")
                .allowing("enabled = true in [history], and a restart")
        })
    }

    /// Answers queries of the history, at least one. Returns the answers, and whether there are
    /// points of the first query's series at any time.
    ///
    /// # Errors
    /// 409 if the history is turned off, or 503 if its disk does not answer.
    pub(super) async fn ask_history(&self, asked: Vec<Request>) -> ApiResult<(Vec<Answer>, bool)> {
        let read = move |history: &History| {
            let answers: Vec<Answer> = asked.iter().map(|it| history.query(it)).collect();
            let has_points = !answers[0].intervals.is_empty() || history.has(&asked[0].key);
            (answers, has_points)
        };
        self.read_history(read).await
    }

    /// Reads the history on a thread for files, few at a time.
    ///
    /// # Errors
    /// 409 if the history is turned off; 503 if other queries take too long, or its disk does not
    /// answer.
    async fn read_history<T: Send + 'static>(
        &self,
        read: impl FnOnce(&History) -> T + Send + 'static,
    ) -> ApiResult<T> {
        let history = self.history()?;
        let until = Instant::now() + super::ANSWER_TIMEOUT;
        let unavailable = |what| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "history");
        let Ok(permit) = timeout_at(until, history.queries().acquire_owned()).await else {
            let what = "other queries of the history take long";
            return Err(unavailable(what).allowing("try again later"));
        };
        // Reads files, which may take long or hang.
        let answered = tokio::task::spawn_blocking(move || {
            // Held until the files are read, although the client may have left.
            let _permit = permit;
            read(&history)
        });
        match timeout_at(until, answered).await {
            Ok(Ok(answered)) => Ok(answered),
            _ => Err(unavailable(
                "the history cannot be read: its disk does not answer",
            )),
        }
    }

    /// Answers a query of a series. `known`: names of those that are served.
    async fn history_of(&self, key: Key, uri: &Uri, known: Vec<String>) -> ApiResult<Response> {
        let query: HistoryQuery = parse_query(uri, ALLOWED)?;
        let history = self.history()?;
        let (from_ms, to_ms, step) = steps_of(&query, &Zoned::now(), history.oldest_fine_ms())?;
        let request = Request {
            key: key.clone(),
            from_ms,
            to_ms,
            step,
        };
        let (mut answers, has_points) = self.ask_history(vec![request.clone()]).await?;
        // A VM that was removed has its history until it ages out.
        if !has_points && !known.iter().any(|name| **name == *key.name) {
            let kind = if key.kind == Kind::Vm { "vm" } else { "device" };
            return Err(ApiError::not_found(kind, &key.name, &known));
        }
        Ok(ok(&view(&request, answers.remove(0), query.buckets)))
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

/// Parses a query of several VMs; each counts once.
fn several(uri: &Uri) -> ApiResult<(Vec<String>, HistoryQuery)> {
    let pairs: Vec<(String, String)> = parse_query(uri, SEVERAL_ALLOWED)?;
    let wrong = |what: String| {
        let error = ApiError::new(StatusCode::BAD_REQUEST, what, "query");
        Err(error.allowing(SEVERAL_ALLOWED))
    };
    let mut vms: Vec<String> = Vec::new();
    let mut query = HistoryQuery::default();
    for (name, value) in pairs {
        let field = match name.as_str() {
            "vm" if vms.contains(&value) => continue,
            "vm" => {
                vms.push(value);
                continue;
            }
            "from" => &mut query.from,
            "to" => &mut query.to,
            "step" => &mut query.step,
            "buckets" if ["true", "false"].contains(&value.as_str()) => {
                query.buckets = value == "true";
                continue;
            }
            _ => return wrong(format!("unknown parameter {name:?}")),
        };
        if field.replace(value).is_some() {
            return wrong(format!("{name} is there twice"));
        }
    }
    match vms.len() {
        1..=VMS_MAX => Ok((vms, query)),
        n => wrong(format!("{n} VMs")),
    }
}

pub(super) async fn vms<P: Plane>(State(api): State<Api<P>>, uri: Uri) -> ApiResult<Response> {
    let (vms, query) = several(&uri)?;
    let history = api.history()?;
    let (from_ms, to_ms, step) = steps_of(&query, &Zoned::now(), history.oldest_fine_ms())?;
    let step_ms = match step {
        Step::Fine => 1000,
        Step::Every(ms) => ms,
    };
    let intervals = (to_ms - from_ms) / step_ms * vms.len() as u64;
    if intervals > INTERVALS_OF_VMS_MAX {
        let what = format!("the answer would have up to {intervals} intervals");
        let error = ApiError::new(StatusCode::BAD_REQUEST, what, "query");
        let allowed = format!("at most {INTERVALS_OF_VMS_MAX} of all VMs: fewer VMs, longer steps");
        return Err(error.allowing(allowed));
    }
    let devices = api.plane.devices();
    let served: BTreeSet<String> = devices.into_iter().flat_map(|(_, vms)| vms).collect();
    let read = move |history: &History| {
        let mut requests = vms.iter().map(|vm| Request {
            key: recorder::vm(vm),
            from_ms,
            to_ms,
            step,
        });
        let first = requests.next().expect("one VM at least");
        let others = requests.clone().map(|request| request.key).collect();
        let answers = history.query_several(&first, others);
        let mut all = HistoriesView::default();
        for (request, answer) in std::iter::once(first).chain(requests).zip(answers) {
            let name = &*request.key.name;
            let has_points = || !answer.intervals.is_empty() || history.has(&request.key);
            if served.contains(name) || has_points() {
                all.vms.push(view(&request, answer, query.buckets));
            } else {
                all.missing.push(name.to_owned());
            }
        }
        // Made here, because it is long.
        ok(&all)
    };
    api.read_history(read).await
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

fn view(request: &Request, answer: Answer, with_buckets: bool) -> HistoryView {
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
        buckets: if with_buckets {
            buckets(&answer.latency)
        } else {
            Vec::new()
        },
    }
}

/// Returns the upper bounds of a histogram in nanoseconds with their counts.
fn buckets(latency: &Latency) -> Vec<(u64, u64)> {
    let cells = latency.cells().iter();
    let bounds = cells.map(|&(bucket, n)| (upper_bound_ns(bucket), n));
    bounds.collect()
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

    fn now() -> Zoned {
        let now = Timestamp::from_millisecond(NOW as i64).expect("a time");
        now.to_zoned(jiff::tz::TimeZone::UTC)
    }

    fn query(from: &str, to: &str, step: &str) -> HistoryQuery {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        HistoryQuery {
            from: given(from),
            to: given(to),
            step: given(step),
            buckets: false,
        }
    }

    #[test]
    fn the_step_follows_from_the_span() {
        let step = |from: &str, oldest| {
            let (.., step) = steps_of(&query(from, "", ""), &now(), oldest).expect("a span");
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
    fn a_query_of_several_vms_names_each_once_and_few() {
        let of = |query: &str| {
            let uri: Uri = format!("/v1/history/vms?{query}").parse().expect("a URI");
            several(&uri)
        };
        let (vms, query) = of("vm=b&vm=a%26c&vm=b&from=-1h&step=10s").expect("right");
        assert_eq!(vms, ["b", "a&c"]);
        assert_eq!(query.from.as_deref(), Some("-1h"));
        assert_eq!((query.to, query.step.as_deref()), (None, Some("10s")));
        let many = (0..33).map(|i| format!("vm={i}")).collect::<Vec<_>>();
        assert!(of(&many[..32].join("&")).is_ok());
        for wrong in [
            "",
            "from=-1h",
            "vm=a&from=-1h&from=-2h",
            "vm=a&x=1",
            &many.join("&"),
        ] {
            let error = of(wrong).expect_err(wrong);
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{wrong}");
        }
    }

    #[test]
    fn answers_are_bounded_and_say_what_is_allowed() {
        let of = |from, to, step| steps_of(&query(from, to, step), &now(), None);
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
