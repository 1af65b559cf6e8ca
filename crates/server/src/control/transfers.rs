//! `/v1/vms/{name}/job` and `/v1/jobs`: deadline transfers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use tidegate_api::cluster::PlacementClaim;
use tidegate_api::query::TransferQuery;
use tidegate_api::transfer::VmTransfersView;
use tokio::task::JoinHandle;

use super::Api;
use super::admit::Proposal;
use super::error::{ApiError, ApiResult, json};
use super::handlers::{Body, in_time, ok, parse_body, parse_query};
use super::path::Path;
use super::plane::Plane;
use super::view::{self, DisplayTime};
use crate::command::VmSnapshot;
use crate::config;
use crate::feasibility;
use crate::membership::{Membership, StartRefusal, StartedTransfer};
use crate::transfer::{self, Due, TransferOrder};

/// Example of a body.
pub(super) const TRANSFER: &str = "{\"size\": \"2 GiB\", \"deadline\": \"60 s\"}";

impl<P: Plane> Api<P> {
    /// Returns the present time and the host's time zone, for the times in answers.
    pub(super) fn display_time(&self) -> DisplayTime {
        DisplayTime {
            now: self.clock.now(),
            zone: self.clock.zone(),
        }
    }

    fn transfers(&self, vm: &VmSnapshot) -> VmTransfersView {
        view::vm_transfers(vm, &self.display_time())
    }

    /// Returns the maximum rate in bytes per second of a transfer of a VM so that it fits beside
    /// the objectives on its device; `None` if its own rate fits, or nothing is known about the
    /// device.
    async fn fitting_rate(
        &self,
        vm: &str,
        order: &TransferOrder,
    ) -> ApiResult<Option<(u64, String)>> {
        let index = self.plane.vm(vm).map(|vm| vm.device);
        let configs = self.plane.device_configs();
        let Some((index, device)) = index.and_then(|at| Some((at, configs.get(at)?))) else {
            return Ok(None);
        };
        // Without a profile the answer is known, and the event loop need not be asked.
        if feasibility::device(device).is_none() {
            return Ok(None);
        }
        let snapshot = in_time(vm, self.plane.snapshot(index)).await?;
        let running = snapshot.vms.iter().filter_map(|other| {
            let transfer = other.transfers.running?.status.transfer;
            Some((
                other.name.as_str(),
                transfer.required_bytes_per_s(snapshot.taken_at),
            ))
        });
        let running: Vec<_> = running.collect();
        let needs = match order.due {
            Due::In(span) => Some(span),
            Due::At(due) => Some(transfer::between(self.clock.now(), due)),
            // The deadline follows from the device's speed, which only its event loop knows.
            Due::Tolerance(_) => None,
        };
        let proposal = Proposal {
            device,
            vms: &self.plane.vms_of(index),
            vm,
            background: false,
        };
        let needs = needs.map(|span| order.needs(span));
        Ok(proposal.fitting_transfer(needs, &running))
    }

    /// Writes the transfers of the VM's device to the store. Returns the reason if that fails,
    /// which is no reason to refuse the change: the worst case is that a restart loses a transfer
    /// or brings it back.
    async fn record_transfers(&self, vm: &str) -> Option<String> {
        let why = match in_time(vm, self.plane.persist_transfers(vm)).await {
            Ok(true) => return None,
            Ok(false) => "the configuration names no store".to_owned(),
            Err(error) => {
                let why = error.body.error.what;
                tracing::warn!(vm, "its transfer is not persisted: {why}");
                why
            }
        };
        Some(why)
    }
}

// Transfers that a cluster has placed. Each admission is checked against etcd before the transfer
// begins, and once more after it: a placement that another session ends in between would run
// without anyone counting it.

fn membership<P: Plane>(api: &Api<P>, vm: &str) -> ApiResult<Arc<Membership>> {
    api.plane.membership().ok_or_else(|| {
        let what = "this daemon has joined no cluster: its configuration has no [cluster]";
        ApiError::new(StatusCode::CONFLICT, what, vm)
    })
}

/// Has etcd confirm a placement.
///
/// # Errors
/// 409 if it is not one of this host's, 503 if it cannot be confirmed at present.
async fn check_placement<P: Plane>(
    api: &Api<P>,
    vm: &str,
    claim: &PlacementClaim,
) -> ApiResult<()> {
    let checked = membership(api, vm)?.check_start(vm, claim).await;
    checked.map_err(|refusal| {
        tracing::info!(vm, "start by a placer refused: {}", refusal.why);
        refused_start(refusal, vm)
    })
}

/// Refuses a placement that was decided before VMs reserved more.
///
/// # Errors
/// 409 with both reservations.
fn check_reserved<P: Plane>(api: &Api<P>, vm: &str, claim: &PlacementClaim) -> ApiResult<()> {
    let now = api.clock.now();
    let configs = api.plane.device_configs();
    let devices = configs.iter().enumerate();
    let of_placement = devices.filter(|(_, device)| {
        let named = claim.device.as_ref();
        named.is_none_or(|name| *name == device.name)
    });
    let reserved = of_placement
        .map(|(at, device)| feasibility::standing_reservation(device, &api.plane.vms_of(at), now));
    let reserved = reserved.fold(0_u64, u64::saturating_add);
    if reserved <= claim.reserved_bytes_per_s {
        return Ok(());
    }
    membership(api, vm)?.count_refused();
    let what = format!(
        "the VMs of host {:?} reserve {reserved} B/s, more than the {} B/s that the placement \
             was decided on; place the transfer again",
        claim.host, claim.reserved_bytes_per_s
    );
    Err(ApiError::new(StatusCode::CONFLICT, what, vm))
}

/// Cancels the transfer that began at a time if its placement was ended meanwhile. A placement that
/// cannot be confirmed at present was confirmed before.
///
/// # Errors
/// 409 if the placement has ended.
async fn check_still_placed<P: Plane>(
    api: Api<P>,
    vm: String,
    claim: PlacementClaim,
    begun: Timestamp,
) -> ApiResult<()> {
    let checked = membership(&api, &vm)?.check_start(&vm, &claim).await;
    let Some(refusal) = checked.err().filter(|refusal| refusal.is_final) else {
        return Ok(());
    };
    tracing::warn!(vm, "transfer of a placer cancelled: {}", refusal.why);
    cancel_begun(&api, &vm, begun).await?;
    Err(refused_start(refusal, &vm))
}

/// Cancels the transfer of a VM that began at a time; does nothing if another one runs, which may
/// be the operator's.
///
/// # Errors
/// The event loop does not answer, or another change takes too long.
async fn cancel_begun<P: Plane>(api: &Api<P>, vm: &str, begun: Timestamp) -> ApiResult<()> {
    let (own, name) = (api.clone(), vm.to_owned());
    let cancelled = api.change(vm, async move {
        let Some(device) = own.plane.vm(&name).map(|vm| vm.device) else {
            return Ok(());
        };
        // Without a limit of its own: a loop that was silent may begin the transfer only now, and
        // answers in the order in which it was asked.
        let there = own.plane.snapshot(device).await;
        let there = there.map_err(|error| ApiError::control(&error, &name))?;
        let running = there.vms.iter().find(|vm| vm.name == name);
        let running = running.and_then(|vm| vm.transfers.running);
        let is_it = |begun_at| transfer::to_the_millisecond(begun_at) == begun;
        if !running.is_some_and(|transfer| is_it(transfer.since.begun)) {
            return Ok(());
        }
        in_time(&name, own.plane.cancel_transfer(&name)).await?;
        own.record_transfers(&name).await;
        Ok(())
    });
    let cancelled = cancelled.await;
    if let Err(error) = &cancelled {
        let why = &error.body.error.what;
        tracing::warn!(vm, "transfer of a placer runs without a placement: {why}");
    }
    cancelled
}

/// Follows a start for a placer up in a task of its own, because the client may hang up: checks the
/// placement once more, or cancels a transfer that begins after its start was given up.
fn follow_up<P: Plane>(
    api: &Api<P>,
    vm: &str,
    claim: PlacementClaim,
    at: Timestamp,
    outcome: &ApiResult<VmSnapshot>,
) -> Option<JoinHandle<ApiResult<()>>> {
    let (api, vm) = (api.clone(), vm.to_owned());
    let begun = transfer::to_the_millisecond(at);
    match outcome {
        Ok(now) => {
            if let (Some(membership), Some(running)) =
                (api.plane.membership(), now.transfers.running)
            {
                let started = StartedTransfer {
                    vm: vm.clone(),
                    placed_ns: claim.begun_ns,
                    begun: running.since.begun,
                };
                membership.started(started, |vm| api.plane.vm(vm).is_some());
            }
            Some(tokio::spawn(check_still_placed(api, vm, claim, begun)))
        }
        Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => {
            tokio::spawn(async move { cancel_begun(&api, &vm, begun).await });
            None
        }
        // Refused for good, so nothing has begun.
        Err(_) => None,
    }
}

fn refused_start(refusal: StartRefusal, vm: &str) -> ApiError {
    let status = if refusal.is_final {
        StatusCode::CONFLICT
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    ApiError::new(status, refusal.why, vm)
}

pub(super) async fn list<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let all = api.snapshots().await?;
    let vms = all.iter().flat_map(|device| &device.vms);
    let have = vms.filter(|vm| vm.transfers.running.is_some() || vm.transfers.last.is_some());
    Ok(ok(&have.map(|vm| api.transfers(vm)).collect::<Vec<_>>()))
}

pub(super) async fn show<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    Ok(ok(&api.transfers(&api.vm_snapshot(&name).await?)))
}

pub(super) async fn begin<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query: TransferQuery = parse_query(&uri, "?replace=true")?;
    let at = api.display_time();
    let body = parse_body(body, TRANSFER)?;
    let (mut order, claim) = config::transfer::placed_from_json(&body, at.now, &at.zone)?;
    order.replace = query.replace;
    // Outside of the change, which would keep others waiting for etcd.
    if let Some(claim) = &claim {
        check_placement(&api, &name, claim).await?;
    }
    let (own, vm, placed) = (api.clone(), name.clone(), claim.clone());
    let begun = api.change(&name, async move {
        // Checked first, because its error lists the VMs that exist.
        own.vm_snapshot(&vm).await?;
        if let Some(claim) = &placed {
            // The lease may have ended in the wait for other changes.
            let joined = membership(&own, &vm)?.check_joined();
            joined.map_err(|refusal| refused_start(refusal, &vm))?;
            check_reserved(&own, &vm, claim)?;
        }
        let fitting = if query.force {
            None
        } else {
            own.fitting_rate(&vm, &order).await?
        };
        order.most = fitting.as_ref().map(|(most, _)| *most);
        // The transfer begins only now: the wait for other changes is no part of its time.
        let at = own.clock.now();
        let begun = own.plane.begin_transfer(&vm, order, at);
        let begun = async {
            let in_the_way = fitting.map_or(String::new(), |(_, promise)| promise);
            begun
                .await
                .map_err(|error| error.naming_promise(in_the_way))
        };
        let now = in_time(&vm, begun).await;
        let check = placed.and_then(|claim| follow_up(&own, &vm, claim, at, &now));
        let now = now?;
        let not_kept = own.record_transfers(&vm).await;
        let mut view = own.transfers(&now);
        if let Some((why, transfer)) = not_kept.zip(view.transfer.as_mut()) {
            let note = format!("a restart of the daemon would lose it: {why}");
            transfer.notes.push(note);
        }
        Ok((json(StatusCode::CREATED, &view), check))
    });
    let (begun, check) = begun.await?;
    if let Some(check) = check {
        // A panic of the task is printed, and leaves what a start without the answer of etcd does.
        check.await.unwrap_or(Ok(()))?;
    }
    Ok(begun)
}

pub(super) async fn cancel<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let (own, vm) = (api.clone(), name.clone());
    api.change(&name, async move {
        // Checked first, because its error lists the VMs that exist.
        own.vm_snapshot(&vm).await?;
        let now = in_time(&vm, own.plane.cancel_transfer(&vm)).await?;
        own.record_transfers(&vm).await;
        Ok(ok(&own.transfers(&now)))
    })
    .await
}
