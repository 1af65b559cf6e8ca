//! The control API: HTTP and JSON on a unix socket.
//!
//! The routes, each with the role that it requires, are in `routes`; `access` says who has which
//! role.
//!
//! Each change answers with the state in force afterwards, and with the parts of it that the policy
//! in force does not enforce. Changes are serialised, so that two clients that each change a part
//! of an objective do not undo each other. No handler is on the path of an I/O: it asks an event
//! loop by message, and a loop that does not answer in time is an error of that request alone.

mod access;
mod admit;
mod answer_body;
mod budget;
mod connections;
mod dashboard;
mod disk_limits;
mod error;
mod events;
mod explain;
mod faults;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod handlers;
mod history;
mod learnt_vm_state;
mod limited_disks;
mod openapi;
mod pages;
mod path;
mod placements;
mod plane;
mod put_conflicts;
mod recorded_starts;
mod recordings;
mod reload;
mod request_body;
mod routes;
mod schedule;
mod scrapes;
mod shared;
mod sockets;
#[cfg(test)]
mod tests;
mod tls_clients;
mod tokens;
mod transfer_rates;
mod transfers;
pub mod view;
mod vms_and_disks;
mod watched_stream;
mod what_if;

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tidegate_api::budget::DeviceBudgetView;
use tidegate_api::health::Reason;
use tokio::sync::{Mutex, Notify, Semaphore};

use error::{ApiError, ApiResult};
use events::{Events, SubscribersMax};
use schedule::{Clock, Held};
use shared::{Shared, SharedByName};
use what_if::WhatIfRuns;

use crate::calculation::Program;
use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::tokens::Tokens;

pub use budget::device_budgets;
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
    /// Tokens of clients on TCP.
    tokens: Arc<Tokens>,
    /// Snapshots of all devices.
    snapshots: Shared<ApiResult<Vec<Arc<DeviceSnapshot>>>>,
    /// Snapshots of single devices.
    of_devices: SharedByName<ApiResult<Arc<DeviceSnapshot>>>,
    /// Snapshots of single VMs.
    of_vms: SharedByName<ApiResult<VmSnapshot>>,
    /// Reasons of `/healthz`.
    health: Shared<Vec<Reason>>,
    /// Budgets of all devices.
    budgets: Shared<ApiResult<Vec<DeviceBudgetView>>>,
    /// Subscribers of `/v1/events`.
    events: Events,
    maker: Option<Arc<Maker>>,
    what_ifs: WhatIfRuns,
    /// Permits of reports that are made.
    reports: Arc<Semaphore>,
}

/// Means of making what-if runs and reports.
#[derive(Debug)]
pub(crate) struct Maker {
    /// Program that makes calculations.
    program: Program,
    /// Control socket of this daemon, which the program asks.
    socket: PathBuf,
}

impl<P> Api<P> {
    fn new(plane: P, clock: Clock) -> Api<P> {
        Api {
            plane,
            changing: Arc::default(),
            clock,
            rescheduled: Arc::default(),
            held: Arc::default(),
            tokens: Arc::new(Tokens::load(None)),
            snapshots: Shared::exact(),
            of_devices: SharedByName::default(),
            of_vms: SharedByName::default(),
            health: Shared::exact(),
            budgets: Shared::reused_for(budget::REUSED_FOR),
            events: Events::new(SubscribersMax::beside(usize::MAX, usize::MAX)),
            maker: None,
            what_ifs: WhatIfRuns::default(),
            reports: Arc::new(Semaphore::new(pages::REPORTS_MAX)),
        }
    }

    /// Replaces the tokens, of which there are none at first.
    fn with_tokens(self, tokens: Tokens) -> Api<P> {
        let tokens = Arc::new(tokens);
        Api { tokens, ..self }
    }

    /// Replaces the events, which have no subscribers yet.
    fn with_events(self, events: Events) -> Api<P> {
        Api { events, ..self }
    }

    /// Adds the means of what-if runs and reports, which cannot be made without.
    fn with_maker(self, maker: Option<Maker>) -> Api<P> {
        let maker = maker.map(Arc::new);
        Api { maker, ..self }
    }

    /// Returns the means of what-if runs and reports.
    ///
    /// # Errors
    /// 503 if the daemon has none, because it is part of another program.
    fn maker(&self) -> ApiResult<&Maker> {
        self.maker.as_deref().ok_or_else(|| {
            let what = "this daemon makes no what-if runs and reports: it is not `tidegate serve`";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "daemon")
        })
    }

    /// Returns the VMs whose schedules are not in force, with the reasons.
    fn held(&self) -> MutexGuard<'_, Held> {
        // A panic cannot leave the map half changed: it is always replaced as a whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
