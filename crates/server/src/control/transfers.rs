//! `/v1/vms/{name}/job` and `/v1/jobs`: deadline transfers.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use tidegate_api::cluster::PlacementClaim;
use tidegate_api::query::TransferQuery;
use tidegate_api::transfer::VmTransfersView;

use super::Api;
use super::admit::Proposal;
use super::error::{ApiError, ApiResult, json};
use super::handlers::{Body, in_time, ok, parse_body, parse_query};
use super::path::Path;
use super::placements::{ConfirmationTask, Placements};
use super::plane::Plane;
use super::transfer_rates::{TransferRate, transfer_rates};
use super::view::{self, DisplayTime};
use crate::command::VmSnapshot;
use crate::config;
use crate::feasibility;
use crate::transfer::{Due, TransferOrder};

/// Example of a body.
pub(super) const TRANSFER: &str = "{\"size\": \"2 GiB\", \"deadline\": \"60 s\"}";

/// Highest rate of a transfer that fits, with what it has to fit beside.
struct FittingRate {
    /// Bytes per second.
    most: u64,
    /// Running transfers on the device.
    running: Vec<TransferRate>,
    /// Time at which it was computed.
    at: Timestamp,
}

impl FittingRate {
    /// Returns the promise that a transfer of a VM at `needs` bytes per second would break, in
    /// words; empty if it is not known.
    fn broken_promise<P: Plane>(
        &self,
        api: &Api<P>,
        (vm, order): (&str, &TransferOrder),
        needs: u64,
    ) -> String {
        let index = api.plane.vm(vm).map(|vm| vm.device);
        let configs = api.plane.device_configs();
        let Some((index, device)) = index.and_then(|at| Some((at, configs.get(at)?))) else {
            return String::new();
        };
        let proposal = Proposal {
            device,
            vms: &api.plane.vms_of(index),
            running: &self.running,
            vm,
            background: false,
        };
        proposal.broken_by_transfer(order, needs, self.at)
    }
}

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

    /// Returns the maximum rate of a transfer of a VM so that it fits beside the objectives on its
    /// device, until it ends; `None` if its own rate fits, or nothing is known about the device.
    async fn fitting_rate(
        &self,
        vm: &str,
        order: &TransferOrder,
    ) -> ApiResult<Option<FittingRate>> {
        let index = self.plane.vm(vm).map(|vm| vm.device);
        let configs = self.plane.device_configs();
        let Some((index, device)) = index.and_then(|at| Some((at, configs.get(at)?))) else {
            return Ok(None);
        };
        // Without a profile the answer is known, and the event loop need not be asked.
        if feasibility::device(device).is_none() {
            return Ok(None);
        }
        let running = self.running_transfers(index, vm).await?;
        let at = self.clock.now();
        let proposal = Proposal {
            device,
            vms: &self.plane.vms_of(index),
            running: &running,
            vm,
            background: false,
        };
        let most = proposal.fitting_transfer(order, at);
        Ok(most.map(|most| FittingRate { most, running, at }))
    }

    /// Returns the rates that the running transfers of a device need. `vm` is the VM that a change
    /// is about.
    ///
    /// # Errors
    /// 503 if the event loop does not answer.
    pub(super) async fn running_transfers(
        &self,
        device: usize,
        vm: &str,
    ) -> ApiResult<Vec<TransferRate>> {
        let snapshot = in_time(vm, self.plane.snapshot(device)).await?;
        Ok(transfer_rates(&snapshot))
    }

    /// Writes the transfers of the VM's device to the store. Returns the reason if that fails,
    /// which is no reason to refuse the change: the worst case is that a restart loses a transfer
    /// or brings it back.
    pub(super) async fn record_transfers(&self, vm: &str) -> Option<String> {
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

/// Begins a transfer, with a claim once etcd has confirmed the placement. One that a cluster
/// has placed and that has begun already is left as it is. `force` leaves out the check that it
/// fits beside the objectives on its device.
///
/// # Errors
/// There is no such VM, it has another transfer, the transfer does not fit, or the placement
/// does not stand or cannot be confirmed.
pub(super) async fn begin_transfer<P: Plane>(
    api: &Api<P>,
    name: &str,
    order: TransferOrder,
    claim: Option<PlacementClaim>,
    force: bool,
) -> ApiResult<VmTransfersView> {
    // Outside of the change, which would keep others waiting for etcd.
    let placed = match claim {
        Some(claim) => {
            let placements = Placements::new(api, name)?;
            // One that has begun is confirmed, also on a host that takes no others.
            let now = api.vm_snapshot(name).await?;
            if !now.transfers.begun_placements.contains(claim.begun_ns) {
                placements.check(name, &claim).await?;
            }
            Some((placements, claim))
        }
        None => None,
    };
    let (own, vm) = (api.clone(), name.to_owned());
    let begun = api.change(name, async move {
        begin_checked(&own, &vm, order, placed.as_ref(), force).await
    });
    let (view, check) = begun.await?;
    if let Some(check) = check {
        // A panic of the task is printed, and leaves the placement unconfirmed.
        check.await.unwrap_or(Ok(()))?;
    }
    Ok(view)
}

/// Begins a transfer under the lock of changes. Returns the VM's transfers, and the confirmation of
/// a placement, which is under way.
async fn begin_checked<P: Plane>(
    api: &Api<P>,
    vm: &str,
    mut order: TransferOrder,
    placed: Option<&(Placements<P>, PlacementClaim)>,
    force: bool,
) -> ApiResult<(VmTransfersView, Option<ConfirmationTask>)> {
    // Checked first, because its error lists the VMs that exist.
    let before = api.vm_snapshot(vm).await?;
    if let Some((placements, claim)) = placed {
        if before.transfers.begun_placements.contains(claim.begun_ns) {
            // A start that is repeated because its answer was lost, or that etcd still has.
            let check = placements.confirm(vm, claim, &before);
            return Ok((api.transfers(&before), Some(check)));
        }
        if let Due::At(due) = order.due
            && due <= api.clock.now()
        {
            let what = format!("the deadline of {vm:?}, {due}, passed before it could be started");
            return Err(ApiError::new(StatusCode::CONFLICT, what, vm));
        }
        // The lease may have ended in the wait for other changes.
        placements.check_joined(vm)?;
        placements.check_reserved(vm, claim)?;
    }
    let fitting = if force {
        None
    } else {
        api.fitting_rate(vm, &order).await?
    };
    order.most = fitting.as_ref().map(|fitting| fitting.most);
    // The transfer begins only now: the wait for other changes is no part of its time.
    let at = api.clock.now();
    let begun = api.plane.begin_transfer(vm, order, at);
    let begun = async {
        // The event loop knows what a transfer with a tolerance needs.
        let broken = |needs| {
            let fitting = fitting.as_ref();
            fitting.map_or_else(String::new, |it| {
                it.broken_promise(api, (vm, &order), needs)
            })
        };
        begun.await.map_err(|error| error.naming_promise(broken))
    };
    let now = in_time(vm, begun).await;
    if let (Err(error), Some((placements, claim))) = (&now, placed) {
        placements.confirm_late(vm, claim, error, at);
    }
    let now = now?;
    let not_kept = api.record_transfers(vm).await;
    let check = placed.map(|(placements, claim)| placements.confirm(vm, claim, &now));
    let mut view = api.transfers(&now);
    if let Some((why, transfer)) = not_kept.zip(view.transfer.as_mut()) {
        let note = format!("a restart of the daemon would lose it: {why}");
        transfer.notes.push(note);
    }
    Ok((view, check))
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
    let begun = begin_transfer(&api, &name, order, claim, query.force).await?;
    Ok(json(StatusCode::CREATED, &begun))
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
