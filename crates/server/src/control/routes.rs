//! Routes of the API: the one table of methods and paths with the role that each requires.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::routing::{MethodFilter, MethodRouter, on};
use tidegate_api::access::Role;

use super::plane::Plane;
use super::{
    Api, BODY_BYTES_MAX, access, events, explain, faults, handlers as h, history,
    learnt_vm_state as l, recordings as r, schedule as s, tokens, transfers as t,
    vms_and_disks as v,
};

/// Method and path with its handler and the lowest role that may use it.
pub(super) struct Route<P> {
    #[cfg(test)]
    pub(super) method: Method,
    /// Path with its parameters in braces.
    pub(super) path: &'static str,
    pub(super) role: Role,
    handler: MethodRouter<Api<P>>,
}

/// Makes a route. There is no other way to add one, so none is without a role.
fn route<P, H, T>(role: Role, method: Method, path: &'static str, handler: H) -> Route<P>
where
    P: Plane,
    H: Handler<T, Api<P>>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("one of the usual methods");
    Route {
        #[cfg(test)]
        method,
        path,
        role,
        handler: on(filter, handler),
    }
}

/// Returns all routes of the API.
pub(super) fn routes<P: Plane>() -> Vec<Route<P>> {
    let mut routes = devices();
    routes.extend(vms());
    routes.extend(objectives());
    routes.extend(disks());
    routes.extend(tokens());
    routes
}

const ADMIN: Role = Role::Admin;
const OPERATE: Role = Role::Operate;
const READ: Role = Role::Read;

fn devices<P: Plane>() -> Vec<Route<P>> {
    const POLICY: &str = "/v1/devices/{name}/policy";
    const HISTORY: &str = "/v1/devices/{name}/history";
    const RECORDING: &str = "/v1/devices/{name}/recording";
    const INTERFERENCE: &str = "/v1/devices/{name}/interference";
    vec![
        route(READ, Method::GET, "/v1/devices", h::devices::<P>),
        route(READ, Method::GET, "/v1/devices/{name}", h::device::<P>),
        route(READ, Method::GET, HISTORY, history::device::<P>),
        route(READ, Method::GET, INTERFERENCE, explain::device::<P>),
        route(READ, Method::GET, "/v1/history", history::status::<P>),
        // A policy decides which promises are kept to all VMs of the device.
        route(ADMIN, Method::PUT, POLICY, h::set_policy::<P>),
        route(READ, Method::GET, "/v1/recordings", r::status::<P>),
        route(OPERATE, Method::PUT, RECORDING, r::switch::<P>),
        // Addresses of all requests tell more of a guest than its counters.
        route(OPERATE, Method::GET, RECORDING, r::dump::<P>),
        route(READ, Method::GET, "/v1/policies", h::policies),
        route(READ, Method::GET, "/v1/policies/{name}", h::policy),
        route(READ, Method::GET, "/v1/stats", h::stats::<P>),
        route(READ, Method::GET, "/v1/events", events::events::<P>),
        route(READ, Method::GET, "/healthz", h::health::<P>),
        route(READ, Method::GET, "/metrics", h::metrics::<P>),
    ]
}

fn vms<P: Plane>() -> Vec<Route<P>> {
    const VM: &str = "/v1/vms/{name}";
    const LEARNT: &str = "/v1/vms/{name}/learnt";
    const HISTORY: &str = "/v1/vms/{name}/history";
    vec![
        route(READ, Method::GET, "/v1/vms", h::vms::<P>),
        route(READ, Method::GET, VM, h::vm::<P>),
        route(ADMIN, Method::PUT, VM, v::put_vm::<P>),
        route(ADMIN, Method::DELETE, VM, v::delete_vm::<P>),
        route(
            READ,
            Method::GET,
            "/v1/vms/{name}/endpoints",
            h::endpoints::<P>,
        ),
        route(READ, Method::GET, HISTORY, history::vm::<P>),
        route(
            READ,
            Method::GET,
            "/v1/vms/{name}/explain",
            explain::vm::<P>,
        ),
        route(READ, Method::GET, LEARNT, l::export::<P>),
        // Learnt state of a VM also decides on the promises to its neighbours.
        route(ADMIN, Method::PUT, LEARNT, l::import::<P>),
    ]
}

fn objectives<P: Plane>() -> Vec<Route<P>> {
    const OBJECTIVE: &str = "/v1/vms/{name}/objective";
    const SCHEDULE: &str = "/v1/vms/{name}/schedule";
    const ENTRY: &str = "/v1/vms/{name}/schedule/{number}";
    const TRANSFER: &str = "/v1/vms/{name}/job";
    vec![
        route(OPERATE, Method::PATCH, OBJECTIVE, h::set_objective::<P>),
        route(OPERATE, Method::POST, SCHEDULE, s::add::<P>),
        route(OPERATE, Method::DELETE, SCHEDULE, s::clear::<P>),
        route(OPERATE, Method::DELETE, ENTRY, s::remove::<P>),
        route(READ, Method::GET, "/v1/jobs", t::list::<P>),
        route(READ, Method::GET, TRANSFER, t::show::<P>),
        route(OPERATE, Method::PUT, TRANSFER, t::begin::<P>),
        route(OPERATE, Method::DELETE, TRANSFER, t::cancel::<P>),
    ]
}

/// Routes that open, make, resize or forget files of the host, and those that fail requests of
/// guests.
fn disks<P: Plane>() -> Vec<Route<P>> {
    const DISK: &str = "/v1/vms/{name}/disks/{export}";
    const FAULTS: &str = "/v1/disks/{export}/faults";
    const FAULT: &str = "/v1/disks/{export}/faults/{number}";
    const KNOWN: &str = "/v1/disks/{export}/known";
    vec![
        route(ADMIN, Method::PUT, DISK, v::put_disk::<P>),
        route(ADMIN, Method::PATCH, DISK, v::resize_disk::<P>),
        route(ADMIN, Method::DELETE, DISK, v::delete_disk::<P>),
        route(READ, Method::GET, FAULTS, faults::list::<P>),
        route(ADMIN, Method::POST, FAULTS, faults::add::<P>),
        route(ADMIN, Method::DELETE, FAULTS, faults::clear::<P>),
        route(ADMIN, Method::DELETE, FAULT, faults::remove::<P>),
        route(ADMIN, Method::DELETE, KNOWN, v::forget_disk::<P>),
    ]
}

fn tokens<P: Plane>() -> Vec<Route<P>> {
    vec![
        route(ADMIN, Method::GET, "/v1/tokens", tokens::list::<P>),
        route(ADMIN, Method::POST, "/v1/tokens", tokens::add::<P>),
        route(
            ADMIN,
            Method::DELETE,
            "/v1/tokens/{name}",
            tokens::revoke::<P>,
        ),
    ]
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
        .method_not_allowed_fallback(h::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        // Outermost: a client without a role does not learn which paths there are.
        .layer(middleware::from_fn_with_state(
            api.clone(),
            access::authenticate::<P>,
        ))
        .with_state(api)
}
