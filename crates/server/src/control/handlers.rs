//! Handlers of devices, VMs, policies, statistics, health and metrics; one function per route.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_api::health::{Reason, Severity};
use tidegate_api::query::{BUCKETS_OF_MAX, ChangeQuery, StatsQuery};
use tidegate_api::stats::StatsView;
use tidegate_core::bandwidth_samples::SECONDS_KEPT;
use tidegate_core::precision::INTERVAL_S;
use tidegate_core::time::Nanos;
use tidegate_units as units;

use super::error::{ApiError, ApiResult, json};
use super::path::Path;
use super::plane::Plane;
use super::view;
use super::{ANSWER_TIMEOUT, Api, BODY_BYTES_MAX};
use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::config::{self, VmConfig};
use crate::daemon::ControlError;
use crate::health;
use crate::metrics::{self, Exposition};

/// Example of a body of `PUT .../policy`.
pub(super) const POLICY: &str = "{\"name\": \"mclock\", \"cost_size\": \"16 KiB\"}";
/// Example of a body of `PATCH .../objective`.
pub(super) const OBJECTIVE: &str = "{\"reservation\": \"120 IOPS\", \"limit\": null}";

pub(super) type Body = Result<Bytes, BytesRejection>;

impl<P: Plane> Api<P> {
    /// Returns a snapshot of a device, which is later than the call and shared by all who ask
    /// meanwhile: requests without end must not occupy its loop.
    ///
    /// # Errors
    /// 503 if the event loop does not answer.
    pub(super) async fn snapshot(
        &self,
        device: usize,
        name: &str,
    ) -> ApiResult<Arc<DeviceSnapshot>> {
        let (plane, at) = (self.plane.clone(), name.to_owned());
        let make = move || async move {
            let snapshot = in_time(&at, plane.snapshot(device)).await;
            snapshot.map(Arc::new)
        };
        self.of_devices.get(name, make).await?
    }

    /// Returns snapshots of all devices, shared as a single [`snapshot`](Self::snapshot) is.
    ///
    /// # Errors
    /// 503 if an event loop does not answer.
    pub(super) async fn snapshots(&self) -> ApiResult<Vec<Arc<DeviceSnapshot>>> {
        let api = self.clone();
        let make = move || async move {
            let mut all = Vec::new();
            for (index, (name, _)) in api.plane.devices().iter().enumerate() {
                all.push(api.snapshot(index, name).await?);
            }
            Ok::<_, ApiError>(all)
        };
        self.snapshots.get(make).await?
    }

    /// Returns snapshots of the devices that a VM, a device or both together name: one, or all if
    /// neither is given.
    ///
    /// # Errors
    /// 404 if there is no such device, or no such VM on it; 503 if an event loop does not answer.
    async fn snapshots_of(
        &self,
        vm: Option<&str>,
        device: Option<&str>,
    ) -> ApiResult<Vec<Arc<DeviceSnapshot>>> {
        let named = device.map(|name| self.device(name)).transpose()?;
        let devices = self.plane.devices();
        let of_vm = match vm {
            Some(vm) => Some((vm, self.vm_config(vm)?.device)),
            None => None,
        };
        let index = match (of_vm, named) {
            (None, None) => return self.snapshots().await,
            (Some((vm, of_vm)), Some(index)) if of_vm != index => {
                return Err(ApiError::not_found("vm", vm, &devices[index].1));
            }
            (Some((_, index)), _) | (None, Some(index)) => index,
        };
        Ok(vec![self.snapshot(index, &devices[index].0).await?])
    }

    /// Returns the reasons why the daemon is less than healthy, shared as
    /// [`snapshots`](Self::snapshots) are.
    async fn health_reasons(&self) -> ApiResult<Vec<Reason>> {
        let api = self.clone();
        let make = move || async move {
            let mut reasons = api.plane.problems();
            let history = api.plane.history().map(|history| history.status());
            reasons.extend(history.and_then(health::history_failed));
            let membership = api.plane.membership().map(|it| it.status().view);
            reasons.extend(membership.and_then(|view| health::not_in_cluster(&view)));
            for (index, (name, _)) in api.plane.devices().iter().enumerate() {
                match api.snapshot(index, name).await {
                    // A stuck loop is a finding of the request, not a failure of it.
                    Err(error) => {
                        reasons.push(health::loop_not_answering(name, error.body.error.what));
                    }
                    Ok(device) => reasons.extend(health::device_reasons(&device)),
                }
            }
            reasons
        };
        self.health.get(make).await
    }

    /// Returns the index of a device.
    ///
    /// # Errors
    /// 404 with the names of the devices that exist.
    pub(super) fn device(&self, name: &str) -> ApiResult<usize> {
        let devices = self.plane.devices();
        let found = devices.iter().position(|(device, _)| device == name);
        found.ok_or_else(|| {
            let known: Vec<String> = devices.into_iter().map(|(name, _)| name).collect();
            ApiError::not_found("device", name, &known)
        })
    }

    /// Returns a snapshot of one VM, shared as that of a device is.
    ///
    /// # Errors
    /// 404 with the names of the VMs that exist, or 503 if the event loop does not answer.
    pub(super) async fn vm_snapshot(&self, vm: &str) -> ApiResult<VmSnapshot> {
        self.vm_config(vm)?;
        let (plane, at) = (self.plane.clone(), vm.to_owned());
        let make = move || async move { in_time(&at, plane.vm_snapshot(&at)).await };
        self.of_vms.get(vm, make).await?
    }

    /// Returns the configuration of a VM that is served.
    ///
    /// # Errors
    /// 404 with the names of the VMs that exist.
    fn vm_config(&self, vm: &str) -> ApiResult<VmConfig> {
        self.plane.vm(vm).ok_or_else(|| {
            let devices = self.plane.devices();
            let known: Vec<String> = devices.into_iter().flat_map(|(_, vms)| vms).collect();
            ApiError::not_found("vm", vm, &known)
        })
    }
}

/// Waits for an answer of an event loop, for at most [`ANSWER_TIMEOUT`]. `at` is the object that an
/// error names.
pub(super) async fn in_time<T>(
    at: &str,
    answer: impl Future<Output = Result<T, ControlError>>,
) -> ApiResult<T> {
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|error| ApiError::control(&error, at)),
        Err(_) => {
            let what = format!(
                "the event loop did not answer in {} s",
                ANSWER_TIMEOUT.as_secs()
            );
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, at))
        }
    }
}

pub(super) fn ok<T: Serialize>(body: &T) -> Response {
    json(StatusCode::OK, body)
}

/// Parses the query string of a URI; `allowed` is the hint in the error 400.
pub(super) fn parse_query<T: DeserializeOwned>(uri: &Uri, allowed: &str) -> ApiResult<T> {
    let query = Query::try_from_uri(uri).map_err(|rejection| {
        ApiError::new(StatusCode::BAD_REQUEST, rejection.body_text(), "query").allowing(allowed)
    })?;
    Ok(query.0)
}

/// Parses the query string of a change.
pub(super) fn change_query(uri: &Uri) -> ApiResult<ChangeQuery> {
    parse_query(uri, "?force=true or ?persist=true")
}

/// Parses a body as JSON, whatever content type it declares; `example` is the hint in the error
/// 400.
pub(super) fn parse_body(body: Body, example: &str) -> ApiResult<serde_json::Value> {
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too large",
            "body",
        )
        .allowing(format!("at most {BODY_BYTES_MAX} bytes")),
        status => ApiError::new(status, rejection.body_text(), "body"),
    })?;
    // The content type is not checked, because `curl -d` declares a form unless told otherwise.
    serde_json::from_slice(&body).map_err(|error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("not JSON: {error}"),
            "body",
        )
        .allowing(format!("such as {example}"))
    })
}

pub(super) async fn devices<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let all = api.snapshots().await?;
    let views = all.iter().map(|device| view::device(device));
    Ok(ok(&views.collect::<Vec<_>>()))
}

pub(super) async fn device<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let device = api.device(&name)?;
    let snapshot = api.snapshot(device, &name).await?;
    Ok(ok(&view::device(&snapshot)))
}

pub(super) async fn set_policy<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    body: Body,
) -> ApiResult<Response> {
    // Name and policy are checked before the lock, so that a wrong request waits for no change.
    let device = api.device(&name)?;
    let example = format!("\"mclock\" or {POLICY}");
    let policy = config::policy::read(&parse_body(body, &example)?)?;
    let _one_at_a_time = api.lock_changes(&name).await?;
    let now = in_time(&name, api.plane.set_policy(device, policy)).await?;
    let view = view::device(&now);
    let (policy, params) = (&view.policy.name, view.policy.params_in_words());
    tracing::info!(device = name, policy, params, "policy changed");
    Ok(ok(&view))
}

pub(super) async fn vms<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let all = api.snapshots().await?;
    let vms = all.iter().flat_map(|device| &device.vms);
    Ok(ok(&api.views(vms)))
}

pub(super) async fn vm<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    Ok(ok(&api.view(&api.vm_snapshot(&name).await?)))
}

pub(super) async fn endpoints<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let vm = api.vm_config(&name)?;
    Ok(ok(&view::disk_endpoints(&vm, &api.plane.listeners())))
}

pub(super) async fn set_objective<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let change = parse_body(body, OBJECTIVE)?;
    let (own, vm) = (api.clone(), name.clone());
    // The future holds the lock on changes, so no other client changes the objective between
    // reading and writing it.
    api.change(&name, async move {
        let (config, _) = own.existing_vm(&vm).await?;
        let was = config.promised();
        let promised = config::schedule::merge(&was, &change)?;
        own.admit(&vm, None, config.background, &promised, query)
            .await?;
        let now = own
            .promise(&vm, promised.clone(), was.clone(), query)
            .await?;
        Ok(ok(&own.view_of_change(&now, &was, &promised)))
    })
    .await
}

pub(super) async fn policies() -> Response {
    ok(&view::policies())
}

pub(super) async fn policy(Path(name): Path<String>) -> ApiResult<Response> {
    let all = view::policies();
    match all.iter().find(|info| info.name == name) {
        Some(info) => Ok(ok(info)),
        None => {
            let known: Vec<String> = all.into_iter().map(|info| info.name).collect();
            Err(ApiError::not_found("policy", &name, &known))
        }
    }
}

/// Returns the requested statistical interval in seconds, 1 to [`SECONDS_KEPT`].
fn interval_of(query: &StatsQuery) -> ApiResult<u32> {
    let Some(text) = &query.interval else {
        return Ok(INTERVAL_S);
    };
    let refused = |what: String| {
        let allowed = format!("whole seconds up to {SECONDS_KEPT} s, such as ?interval=10s");
        ApiError::new(StatusCode::BAD_REQUEST, what, "interval").allowing(allowed)
    };
    let time = units::parse_duration(text).map_err(|error| refused(error.to_string()))?;
    let seconds = time.0 / Nanos::SECOND.0;
    // Precision is recorded by the second, so a fraction of one cannot be answered.
    let whole = time.0.is_multiple_of(Nanos::SECOND.0);
    if whole && (1..=SECONDS_KEPT as u64).contains(&seconds) {
        Ok(seconds as u32)
    } else {
        Err(refused(format!("{text:?} is not a statistical interval")))
    }
}

pub(super) async fn stats<P: Plane>(State(api): State<Api<P>>, uri: Uri) -> ApiResult<Response> {
    let query = stats_query(&uri)?;
    let interval = interval_of(&query)?;
    let only = query.vm.as_deref();
    let all = api.snapshots_of(only, query.device.as_deref()).await?;
    let buckets = if query.buckets {
        view::Buckets::All
    } else {
        view::Buckets::Of(query.buckets_of.iter().map(String::as_str).collect())
    };
    let vms = all
        .iter()
        .flat_map(|device| view::stats(device, only, &buckets, interval));
    let vms = vms.collect();
    let has_devices = !query.buckets_of.is_empty();
    let devices = all.iter().filter(|_| has_devices);
    let devices = devices.map(|device| view::device_times(device)).collect();
    Ok(ok(&StatsView { vms, devices }))
}

/// Parses the query of `GET /v1/stats`, in which `buckets_of` may be repeated.
fn stats_query(uri: &Uri) -> ApiResult<StatsQuery> {
    let allowed = "?buckets=true, ?buckets_of=NAME, ?interval=10s, ?vm=NAME or ?device=NAME";
    let parts = uri.query().unwrap_or_default().split('&');
    let (of, rest): (Vec<&str>, Vec<&str>) =
        parts.partition(|part| part.starts_with("buckets_of="));
    let query_of = |parts: &[&str]| -> Uri {
        let query = format!("/?{}", parts.join("&"));
        query.parse().expect("parts of a query are a query")
    };
    let mut query: StatsQuery = parse_query(&query_of(&rest), allowed)?;
    let of: Vec<(String, String)> = parse_query(&query_of(&of), allowed)?;
    if of.len() > BUCKETS_OF_MAX {
        let what = format!("buckets of {} VMs", of.len());
        let error = ApiError::new(StatusCode::BAD_REQUEST, what, "query");
        let allowed = format!("at most {BUCKETS_OF_MAX} VMs, or ?buckets=true for all");
        return Err(error.allowing(allowed));
    }
    query.buckets_of = of.into_iter().map(|(_, name)| name).collect();
    Ok(query)
}

pub(super) async fn health<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let reasons = api.health_reasons().await?;
    let health = health::report(reasons, api.plane.uptime());
    let code = match health.status {
        Severity::Ok | Severity::Degraded => StatusCode::OK,
        Severity::Failing => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok(json(code, &health))
}

pub(super) async fn readiness<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let reasons = api.health_reasons().await?;
    let membership = api.plane.membership().map(|it| it.status().view);
    let is_taken_over = api.plane.change_gate().is_closed();
    let readiness = health::readiness(&reasons, is_taken_over, membership);
    let code = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok(json(code, &readiness))
}

pub(super) async fn metrics<P: Plane>(
    State(api): State<Api<P>>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    metrics_as(State(api), Exposition::accepted(&headers)).await
}

/// Answers with the metrics in a format.
///
/// # Errors
/// 503 if an event loop does not answer.
pub(super) async fn metrics_as<P: Plane>(
    State(api): State<Api<P>>,
    exposition: Exposition,
) -> ApiResult<Response> {
    let all = api.snapshots().await?;
    let history = api.plane.history().map(|history| history.status());
    let text = metrics::render(
        all,
        api.scheduled(),
        api.plane.handshakes(),
        history,
        api.plane.membership().map(|it| it.status()),
    );
    let content_type = [(CONTENT_TYPE, exposition.content_type())];
    Ok((content_type, exposition.convert(text)).into_response())
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    let what = format!("there is no {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, what, "path").allowing(
        "/v1/devices, /v1/vms, /v1/jobs, /v1/disks/{export}/faults and .../known, /v1/policies, \
         /v1/recordings, /v1/whatif, /v1/report, /v1/stats, /v1/events, /v1/history, /v1/tokens, \
         /v1/budget, /healthz, /readyz or /metrics",
    )
}
