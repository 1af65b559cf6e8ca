//! The control API: HTTP and JSON on a unix socket.
//!
//! ```text
//!   GET   /v1/devices              GET   /v1/vms                     GET  /v1/policies
//!   GET   /v1/devices/{name}       GET   /v1/vms/{name}              GET  /v1/policies/{name}
//!   PUT   /v1/devices/{name}/policy
//!                                  PATCH /v1/vms/{name}/objective    GET  /v1/stats
//!   GET, POST, DELETE /v1/disks/{export}/faults    DELETE /v1/disks/{export}/faults/{number}
//!   DELETE /v1/disks/{export}/known
//!   GET   /healthz                 GET   /metrics
//!
//!   POST, DELETE /v1/vms/{name}/schedule    DELETE /v1/vms/{name}/schedule/{number}
//!   GET, PUT, DELETE    /v1/vms/{name}/transfer         GET  /v1/transfers
//!   GET                 /v1/vms/{name}/endpoints
//!   PUT, DELETE         /v1/vms/{name}             GET, PUT  /v1/vms/{name}/learnt
//!   PUT, PATCH, DELETE  /v1/vms/{name}/disks/{export}
//! ```
//!
//! Each change answers with the state in force afterwards, and with the parts of it that the policy
//! in force does not enforce. Changes are serialised, so that two clients that each change a part
//! of an objective do not undo each other. No handler is on the path of an I/O: it asks an event
//! loop by message, and a loop that does not answer in time is an error of that request alone.

mod admit;
mod connections;
mod error;
mod faults;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod handlers;
mod learnt_vm_state;
mod path;
mod plane;
mod put_conflicts;
mod schedule;
mod scrapes;
mod sockets;
#[cfg(test)]
mod tests;
mod transfers;
pub mod view;
mod vms_and_disks;

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, patch, post, put};
use tokio::sync::{Mutex, Notify};

use plane::Plane;
use schedule::{Clock, Held};

pub use sockets::{SocketError, Sockets};

/// Maximum size of a request's body in bytes. An objective takes a few hundred, the learnt state of
/// a VM some ten thousand.
const BODY_BYTES_MAX: usize = 128 << 10;
/// Deadline for an answer of an event loop. A loop that misses it is stuck, possibly with its VMs'
/// I/O.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Deadline for a change of VMs or disks, after which the client gets 503: files are created and
/// flushed, and I/Os in flight end first.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// State that the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Api<P> {
    plane: P,
    /// Lock that is held during a change, which serialises changes.
    changing: Arc<Mutex<()>>,
    clock: Clock,
    /// Signal that a schedule has changed, so that the time of its next entry has to be computed
    /// anew.
    rescheduled: Arc<Notify>,
    held: Arc<std::sync::Mutex<Held>>,
}

impl<P> Api<P> {
    fn new(plane: P, clock: Clock) -> Api<P> {
        Api {
            plane,
            changing: Arc::default(),
            clock,
            rescheduled: Arc::default(),
            held: Arc::default(),
        }
    }

    /// Returns the VMs whose schedules are not in force, with the reasons.
    fn held(&self) -> MutexGuard<'_, Held> {
        // A panic cannot leave the map half changed: it is always replaced as a whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn router<P: Plane>(api: Api<P>) -> Router {
    use {handlers as h, schedule as s, vms_and_disks as v};
    Router::new()
        .route("/v1/devices", get(h::devices::<P>))
        .route("/v1/devices/{name}", get(h::device::<P>))
        .route("/v1/devices/{name}/policy", put(h::set_policy::<P>))
        .route("/v1/vms", get(h::vms::<P>))
        .route(
            "/v1/vms/{name}",
            get(h::vm::<P>)
                .put(v::put_vm::<P>)
                .delete(v::delete_vm::<P>),
        )
        .route(
            "/v1/vms/{name}/disks/{export}",
            put(v::put_disk::<P>)
                .patch(v::resize_disk::<P>)
                .delete(v::delete_disk::<P>),
        )
        .route("/v1/vms/{name}/endpoints", get(h::endpoints::<P>))
        .route("/v1/vms/{name}/objective", patch(h::set_objective::<P>))
        .route(
            "/v1/vms/{name}/schedule",
            post(s::add::<P>).delete(s::clear::<P>),
        )
        .route("/v1/vms/{name}/schedule/{number}", delete(s::remove::<P>))
        .route(
            "/v1/vms/{name}/learnt",
            get(learnt_vm_state::export::<P>).put(learnt_vm_state::import::<P>),
        )
        .route(
            "/v1/vms/{name}/job",
            get(transfers::show::<P>)
                .put(transfers::begin::<P>)
                .delete(transfers::cancel::<P>),
        )
        .route("/v1/jobs", get(transfers::list::<P>))
        .route(
            "/v1/disks/{export}/faults",
            get(faults::list::<P>)
                .post(faults::add::<P>)
                .delete(faults::clear::<P>),
        )
        .route(
            "/v1/disks/{export}/faults/{number}",
            delete(faults::remove::<P>),
        )
        .route("/v1/disks/{export}/known", delete(v::forget_disk::<P>))
        .route("/v1/policies", get(h::policies))
        .route("/v1/policies/{name}", get(h::policy))
        .route("/v1/stats", get(h::stats::<P>))
        .route("/healthz", get(h::health::<P>))
        .route("/metrics", get(h::metrics::<P>))
        .fallback(h::no_such_path)
        .method_not_allowed_fallback(h::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}
