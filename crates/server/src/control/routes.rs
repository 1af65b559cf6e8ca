//! Routes of the API: the one table of methods and paths, each with the role that it requires and
//! the description that `GET /openapi.json` has of it.

use std::sync::OnceLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::handler::Handler;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::Value;
use tidegate_api::access::{NewTokenView, Role, TokenRequest, TokenView};
use tidegate_api::budget::DeviceBudgetView;
use tidegate_api::change::{DiskLimitsChange, GroupLimitChange, ObjectiveChange, ScheduleEntry};
use tidegate_api::device::DeviceView;
use tidegate_api::disk::{DiskRequest, SizeRequest};
use tidegate_api::endpoint::DiskEndpointsView;
use tidegate_api::explain::ExplainView;
use tidegate_api::fault::{DiskFaultsView, FaultRequest};
use tidegate_api::health::{Health, Readiness};
use tidegate_api::history::{HistoriesView, HistoryStatusView, HistoryView};
use tidegate_api::interference::InterferenceView;
use tidegate_api::policy::{PolicyChoice, PolicyInfoView};
use tidegate_api::query::{
    ChangeQuery, EventsQuery, ExplainQuery, HistoriesQuery, HistoryQuery, LearntQuery,
    RecordingQuery, StatsQuery, TransferQuery,
};
use tidegate_api::recording::{RecordingRequest, RecordingsView};
use tidegate_api::stats::StatsView;
use tidegate_api::transfer::{TransferRequest, VmTransfersView};
use tidegate_api::vm::{Removed, VmRequest, VmView};
use tidegate_api::what_if::{WhatIfRequest, WhatIfView};
use tidegate_config::diagnostic::join_alternatives;

use super::error::ApiError;
use super::openapi::{Description, about, document_json};
use super::plane::Plane;
use super::{
    Api, BODY_BYTES_MAX, access, budget, disk_limits as d, events, explain, faults, handlers as h,
    history, learnt_vm_state as l, pages, recordings as r, schedule as s, tokens, transfers as t,
    vms_and_disks as v, what_if as w,
};
use crate::metrics::Exposition;

/// Method and path with its handler and the lowest role that may use it.
pub(super) struct Route<P> {
    pub(super) method: Method,
    /// Path with its parameters in braces.
    pub(super) path: &'static str,
    pub(super) role: Role,
    pub(super) description: Description,
    handler: MethodRouter<Api<P>>,
}

/// Makes a route. There is no other way to add one, so none is without a role and a description.
fn route<P, H, T>(
    role: Role,
    method: Method,
    path: &'static str,
    handler: H,
    description: Description,
) -> Route<P>
where
    P: Plane,
    H: Handler<T, Api<P>>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("one of the usual methods");
    Route {
        method,
        path,
        role,
        description,
        handler: on(filter, handler),
    }
}

/// Returns all routes of the API.
pub(super) fn routes<P: Plane>() -> Vec<Route<P>> {
    let mut routes = devices();
    routes.extend(recordings());
    routes.extend(state());
    routes.extend(vms());
    routes.extend(objectives());
    routes.extend(transfers());
    routes.extend(disks());
    routes.extend(disk_limits());
    routes.extend(faults());
    routes.extend(tokens());
    routes.extend(calculations());
    routes
}

const ADMIN: Role = Role::Admin;
const OPERATE: Role = Role::Operate;
const READ: Role = Role::Read;

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

fn devices<P: Plane>() -> Vec<Route<P>> {
    const DEVICE: &str = "/v1/devices/{name}";
    const POLICY: &str = "/v1/devices/{name}/policy";
    const HISTORY: &str = "/v1/devices/{name}/history";
    const INTERFERENCE: &str = "/v1/devices/{name}/interference";
    let all = about("list_devices", "All devices.").answers_list::<DeviceView>();
    let one = about(
        "show_device",
        "A device: policy with its parameters, depth, counters.",
    )
    .answers::<DeviceView>();
    let past = about(
        "device_history",
        "What a device did in a span of the past, by interval.",
    )
    .query::<HistoryQuery>()
    .answers::<HistoryView>();
    let interference = about(
        "device_interference",
        "The time of each VM's requests by class, and behind which VMs they waited.",
    )
    .answers::<InterferenceView>();
    let policy = about("set_policy", "Changes the policy of a device.")
        .takes::<PolicyChoice>(h::POLICY)
        .answers::<DeviceView>();
    vec![
        route(READ, GET, "/v1/devices", h::devices::<P>, all),
        route(READ, GET, DEVICE, h::device::<P>, one),
        route(READ, GET, HISTORY, history::device::<P>, past),
        route(READ, GET, INTERFERENCE, explain::device::<P>, interference),
        // A policy decides which promises are kept to all VMs of the device.
        route(ADMIN, PUT, POLICY, h::set_policy::<P>, policy),
    ]
}

fn recordings<P: Plane>() -> Vec<Route<P>> {
    const RECORDING: &str = "/v1/devices/{name}/recording";
    let status = about("list_recordings", "Recordings of all devices.").answers::<RecordingsView>();
    let switch = about(
        "switch_recording",
        "Switches the recording of a device on or off.",
    )
    .takes::<RecordingRequest>(r::SWITCH)
    .answers::<RecordingsView>();
    let dump = about(
        "dump_recording",
        "One recording of the requests in a span of time, as a file.",
    )
    .query::<RecordingQuery>()
    .answers_as("application/octet-stream");
    vec![
        route(READ, GET, "/v1/recordings", r::status::<P>, status),
        route(OPERATE, PUT, RECORDING, r::switch::<P>, switch),
        // Addresses of all requests tell more of a guest than its counters.
        route(OPERATE, GET, RECORDING, r::dump::<P>, dump),
    ]
}

/// Routes about the daemon itself, and about all devices and VMs together.
fn state<P: Plane>() -> Vec<Route<P>> {
    let all = about("list_policies", "All policies.").answers_list::<PolicyInfoView>();
    let one = about(
        "show_policy",
        "A policy: what it enforces, its parts and its parameters with their ranges.",
    )
    .answers::<PolicyInfoView>();
    let stats = about(
        "stats",
        "Counters of all VMs since they were added, or of one VM or device.",
    )
    .query::<StatsQuery>()
    .answers::<StatsView>();
    let live = about(
        "events",
        "Live figures once a second as server-sent events: `sample` with a `LiveView`, or \
         `problem` with an `ErrorBody`.",
    )
    .query::<EventsQuery>()
    .answers_as("text/event-stream");
    let past =
        about("history_status", "State of the history itself.").answers::<HistoryStatusView>();
    let of_vms = about(
        "vm_histories",
        "What several VMs did in a span of the past, by interval.",
    )
    .query::<HistoriesQuery>()
    .answers::<HistoriesView>();
    let health = about(
        "health",
        "Health: 200 while it is `ok` or `degraded`, 503 while it is `failing`.",
    )
    .answers::<Health>()
    .answers_with::<Health>(StatusCode::SERVICE_UNAVAILABLE);
    let readiness = about(
        "readiness",
        "Readiness for changes, such as new VMs: 200, or 503 with the reasons.",
    )
    .answers::<Readiness>()
    .answers_with::<Readiness>(StatusCode::SERVICE_UNAVAILABLE);
    let budgets = about(
        "budget",
        "Largest promises that each device has room for, by part of the objective.",
    )
    .answers_list::<DeviceBudgetView>();
    let metrics = about(
        "metrics",
        "Metrics in the text format of Prometheus, or in OpenMetrics for those who accept it.",
    )
    .answers_as(Exposition::Text.content_type());
    let document = about("openapi", "This description of the API, OpenAPI 3.1.").answers_file();
    vec![
        route(READ, GET, "/v1/policies", h::policies, all),
        route(READ, GET, "/v1/policies/{name}", h::policy, one),
        route(READ, GET, "/v1/stats", h::stats::<P>, stats),
        route(READ, GET, "/v1/events", events::events::<P>, live),
        route(READ, GET, "/v1/history", history::status::<P>, past),
        route(READ, GET, "/v1/history/vms", history::vms::<P>, of_vms),
        route(READ, GET, "/v1/budget", budget::list::<P>, budgets),
        route(READ, GET, "/healthz", h::health::<P>, health),
        route(READ, GET, "/readyz", h::readiness::<P>, readiness),
        route(READ, GET, "/metrics", h::metrics::<P>, metrics),
        route(READ, GET, "/openapi.json", openapi::<P>, document),
    ]
}

fn vms<P: Plane>() -> Vec<Route<P>> {
    const VM: &str = "/v1/vms/{name}";
    const ENDPOINTS: &str = "/v1/vms/{name}/endpoints";
    const EXPLAIN: &str = "/v1/vms/{name}/explain";
    const LEARNT: &str = "/v1/vms/{name}/learnt";
    const HISTORY: &str = "/v1/vms/{name}/history";
    let all = about("list_vms", "All VMs.").answers_list::<VmView>();
    let one = about("show_vm", "A VM: objective, schedule, disks, clients.").answers::<VmView>();
    let put = about(
        "put_vm",
        "Adds a VM (201), or changes one that exists (200).",
    )
    .query::<ChangeQuery>()
    .takes::<VmRequest>(v::VM)
    .answers::<VmView>()
    .answers_with::<VmView>(StatusCode::CREATED);
    let delete = about("delete_vm", "Removes a VM.")
        .query::<ChangeQuery>()
        .answers::<Removed>();
    let endpoints = about(
        "vm_endpoints",
        "Disks of a VM, each with the sockets and addresses that offer it.",
    )
    .answers_list::<DiskEndpointsView>();
    let past = about(
        "vm_history",
        "What a VM did in a span of the past, by interval.",
    )
    .query::<HistoryQuery>()
    .answers::<HistoryView>();
    let why = about("explain_vm", "Why a VM was slow: sentences and figures.")
        .query::<ExplainQuery>()
        .answers::<ExplainView>();
    let export = about(
        "export_learnt_state",
        "State that the policy has learnt of a VM, as a file.",
    )
    .answers_file();
    let import = about(
        "import_learnt_state",
        "Imports a file of learnt state into the policy.",
    )
    .query::<LearntQuery>()
    .takes_file()
    .answers::<VmView>();
    vec![
        route(READ, GET, "/v1/vms", h::vms::<P>, all),
        route(READ, GET, VM, h::vm::<P>, one),
        route(ADMIN, PUT, VM, v::put_vm::<P>, put),
        route(ADMIN, DELETE, VM, v::delete_vm::<P>, delete),
        route(READ, GET, ENDPOINTS, h::endpoints::<P>, endpoints),
        route(READ, GET, HISTORY, history::vm::<P>, past),
        route(READ, GET, EXPLAIN, explain::vm::<P>, why),
        route(READ, GET, LEARNT, l::export::<P>, export),
        // Learnt state of a VM also decides on the promises to its neighbours.
        route(ADMIN, PUT, LEARNT, l::import::<P>, import),
    ]
}

fn objectives<P: Plane>() -> Vec<Route<P>> {
    const OBJECTIVE: &str = "/v1/vms/{name}/objective";
    const SCHEDULE: &str = "/v1/vms/{name}/schedule";
    const ENTRY: &str = "/v1/vms/{name}/schedule/{number}";
    let change = |id, summary| {
        about(id, summary)
            .query::<ChangeQuery>()
            .answers::<VmView>()
    };
    let objective = change(
        "set_objective",
        "Changes parts of an objective: a merge patch, in which `null` removes a part.",
    )
    .takes::<ObjectiveChange>(h::OBJECTIVE);
    let add = change(
        "add_schedule_entry",
        "Adds an entry to the schedule of a VM.",
    )
    .takes::<ScheduleEntry>(s::ENTRY_EXAMPLE);
    let clear = change("clear_schedule", "Removes the schedule of a VM.");
    let remove = change("remove_schedule_entry", "Removes an entry of a schedule.");
    vec![
        route(OPERATE, PATCH, OBJECTIVE, h::set_objective::<P>, objective),
        route(OPERATE, POST, SCHEDULE, s::add::<P>, add),
        route(OPERATE, DELETE, SCHEDULE, s::clear::<P>, clear),
        route(OPERATE, DELETE, ENTRY, s::remove::<P>, remove),
    ]
}

fn transfers<P: Plane>() -> Vec<Route<P>> {
    const TRANSFER: &str = "/v1/vms/{name}/job";
    let all = about(
        "list_transfers",
        "Deadline transfers of all VMs that have one, or had one.",
    )
    .answers_list::<VmTransfersView>();
    let one = about(
        "show_transfer",
        "The transfer of a VM with its forecast, and the last one that ended.",
    )
    .answers::<VmTransfersView>();
    let begin = about(
        "begin_transfer",
        "Begins a transfer that ends by a deadline.",
    )
    .query::<TransferQuery>()
    .takes::<TransferRequest>(t::TRANSFER)
    .answers_with::<VmTransfersView>(StatusCode::CREATED);
    let cancel =
        about("cancel_transfer", "Cancels the transfer of a VM.").answers::<VmTransfersView>();
    vec![
        route(READ, GET, "/v1/jobs", t::list::<P>, all),
        route(READ, GET, TRANSFER, t::show::<P>, one),
        route(OPERATE, PUT, TRANSFER, t::begin::<P>, begin),
        route(OPERATE, DELETE, TRANSFER, t::cancel::<P>, cancel),
    ]
}

/// Routes that open, make, resize or forget files of the host.
fn disks<P: Plane>() -> Vec<Route<P>> {
    const DISK: &str = "/v1/vms/{name}/disks/{export}";
    const KNOWN: &str = "/v1/disks/{export}/known";
    let put = about(
        "put_disk",
        "Adds a disk to a VM (201); one that is the same is there already (200).",
    )
    .query::<ChangeQuery>()
    .takes::<DiskRequest>(v::DISK)
    .answers::<VmView>()
    .answers_with::<VmView>(StatusCode::CREATED);
    let resize = about("resize_disk", "Resizes a disk.")
        .query::<ChangeQuery>()
        .takes::<SizeRequest>(v::SIZE)
        .answers::<VmView>();
    let delete = about(
        "delete_disk",
        "Removes a disk, unless it is the only one of its VM.",
    )
    .query::<ChangeQuery>()
    .answers::<Removed>();
    let forget = about(
        "forget_disk",
        "Forgets that a disk was served before, so that a new file may be made in its place.",
    )
    .answers::<Removed>();
    vec![
        route(ADMIN, PUT, DISK, v::put_disk::<P>, put),
        route(ADMIN, PATCH, DISK, v::resize_disk::<P>, resize),
        route(ADMIN, DELETE, DISK, v::delete_disk::<P>, delete),
        route(ADMIN, DELETE, KNOWN, v::forget_disk::<P>, forget),
    ]
}

/// Routes that change what disks are limited to.
fn disk_limits<P: Plane>() -> Vec<Route<P>> {
    const DISK: &str = "/v1/vms/{name}/disks/{export}/limits";
    const GROUP: &str = "/v1/devices/{name}/limit_groups/{group}";
    let disk = about(
        "set_disk_limits",
        "Changes the limits of a disk: a merge patch, in which `null` removes one.",
    )
    .query::<ChangeQuery>()
    .takes::<DiskLimitsChange>(d::DISK)
    .answers::<VmView>();
    let group = about(
        "set_group_limit",
        "Changes a limit that disks share, until the daemon ends.",
    )
    .takes::<GroupLimitChange>(d::GROUP)
    .answers::<DeviceView>();
    vec![
        route(OPERATE, PATCH, DISK, d::set_disk::<P>, disk),
        route(OPERATE, PATCH, GROUP, d::set_group::<P>, group),
    ]
}

/// Routes that fail requests of guests on purpose.
fn faults<P: Plane>() -> Vec<Route<P>> {
    const FAULTS: &str = "/v1/disks/{export}/faults";
    const FAULT: &str = "/v1/disks/{export}/faults/{number}";
    let rules = |id, summary| about(id, summary).answers::<DiskFaultsView>();
    let list = rules("list_faults", "Fault rules of a disk.");
    let add =
        rules("add_fault", "Adds a fault rule to a disk.").takes::<FaultRequest>(faults::RULE);
    let clear = rules("clear_faults", "Removes all fault rules of a disk.");
    let remove = rules("remove_fault", "Removes a fault rule.");
    vec![
        route(READ, GET, FAULTS, faults::list::<P>, list),
        route(ADMIN, POST, FAULTS, faults::add::<P>, add),
        route(ADMIN, DELETE, FAULTS, faults::clear::<P>, clear),
        route(ADMIN, DELETE, FAULT, faults::remove::<P>, remove),
    ]
}

fn tokens<P: Plane>() -> Vec<Route<P>> {
    const TOKEN: &str = "/v1/tokens/{name}";
    let list =
        about("list_tokens", "All tokens, without their secrets.").answers_list::<TokenView>();
    let add = about(
        "add_token",
        "Adds a token; its secret is in this answer alone.",
    )
    .takes::<TokenRequest>(tokens::TOKEN)
    .answers_with::<NewTokenView>(StatusCode::CREATED);
    let revoke = about("revoke_token", "Revokes a token.").answers::<Removed>();
    vec![
        route(ADMIN, GET, "/v1/tokens", tokens::list::<P>, list),
        route(ADMIN, POST, "/v1/tokens", tokens::add::<P>, add),
        route(ADMIN, DELETE, TOKEN, tokens::revoke::<P>, revoke),
    ]
}

/// Routes of what a process beside the daemon makes.
fn calculations<P: Plane>() -> Vec<Route<P>> {
    const WHAT_IF: &str = "/v1/whatif";
    let show = about(
        "show_what_if",
        "The last what-if run, and what bounds a run.",
    )
    .answers::<WhatIfView>();
    let start = about(
        "start_what_if",
        "Starts a what-if run: a recorded span is replayed.",
    )
    .takes::<WhatIfRequest>(w::EXAMPLE)
    .answers_with::<WhatIfView>(StatusCode::ACCEPTED);
    let cancel = about("cancel_what_if", "Cancels the what-if run.").answers::<WhatIfView>();
    let page = about(
        "what_if_report",
        "Report of the last what-if run, a page for a browser.",
    )
    .answers_as("text/html");
    let report = about(
        "report",
        "Report of the history in a span, a page for a browser.",
    )
    .query::<ExplainQuery>()
    .answers_as("text/html");
    vec![
        route(READ, GET, WHAT_IF, w::show::<P>, show),
        // Takes CPU time and memory of the host, within bounds.
        route(OPERATE, POST, WHAT_IF, w::start::<P>, start),
        route(OPERATE, DELETE, WHAT_IF, w::cancel::<P>, cancel),
        route(READ, GET, "/v1/whatif/report", w::page::<P>, page),
        route(READ, GET, "/v1/report", pages::report::<P>, report),
    ]
}

/// Returns the description of the API in OpenAPI as JSON.
pub(super) fn description<P: Plane>() -> Value {
    let described = |route: Route<P>| (route.method, route.path, route.role, route.description);
    document_json(routes().into_iter().map(described))
}

async fn openapi<P: Plane>() -> Response {
    // One text serves all planes, and it is made when the first client asks.
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let text = serde_json::to_vec_pretty(&description::<P>()).expect("plain data");
        Bytes::from(text)
    });
    ([(CONTENT_TYPE, "application/json")], text.clone()).into_response()
}

/// Answers a request to a path of the API with a method that the path does not have. `matched`: the
/// path as routes have it.
async fn no_such_method<P: Plane>(
    matched: Option<MatchedPath>,
    method: Method,
    uri: Uri,
) -> ApiError {
    let what = format!("{} does not support {method}", uri.path());
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what, "method");
    let routes = routes::<P>();
    let is_here = |path| matched.as_ref().is_some_and(|at| at.as_str() == path);
    let here = routes.iter().filter(|route| is_here(route.path));
    let methods: Vec<String> = here.map(|route| route.method.to_string()).collect();
    error.allowing(join_alternatives(&methods))
}

/// Makes the router of the API. A request without an [`access::Caller`] is refused.
pub(super) fn router<P: Plane>(api: Api<P>) -> Router {
    let mut router = Router::new();
    for Route {
        path,
        role,
        handler,
        ..
    } in routes()
    {
        // The role is checked before the handler or an extractor sees the request.
        let check = move |request: Request, next: Next| access::check(role, path, request, next);
        router = router.route(path, handler.route_layer(middleware::from_fn(check)));
    }
    router
        .fallback(h::no_such_path)
        .method_not_allowed_fallback(no_such_method::<P>)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(
            api.clone(),
            access::wait_at_gate::<P>,
        ))
        // Outermost: a client without a role does not learn which paths there are.
        .layer(middleware::from_fn_with_state(
            api.clone(),
            access::authenticate::<P>,
        ))
        .with_state(api)
}
