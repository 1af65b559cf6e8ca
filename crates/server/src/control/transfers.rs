//! `/v1/vms/{name}/job` and `/v1/jobs`: deadline transfers.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use tidegate_api::query::TransferQuery;
use tidegate_api::transfer::VmTransfersView;

use super::Api;
use super::admit::Proposal;
use super::error::{ApiResult, json};
use super::handlers::{Body, in_time, ok, parse_body, parse_query};
use super::path::Path;
use super::plane::Plane;
use super::view::{self, DisplayTime};
use crate::command::VmSnapshot;
use crate::config;
use crate::feasibility;
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
    let mut order = config::transfer::from_json(&parse_body(body, TRANSFER)?, at.now, &at.zone)?;
    order.replace = query.replace;
    let (own, vm) = (api.clone(), name.clone());
    api.change(&name, async move {
        // Checked first, because its error lists the VMs that exist.
        own.vm_snapshot(&vm).await?;
        let fitting = if query.force {
            None
        } else {
            own.fitting_rate(&vm, &order).await?
        };
        order.most = fitting.as_ref().map(|(most, _)| *most);
        // The transfer begins only now: the wait for other changes is no part of its time.
        let begun = own.plane.begin_transfer(&vm, order, own.clock.now());
        let begun = async {
            let in_the_way = fitting.map_or(String::new(), |(_, promise)| promise);
            begun
                .await
                .map_err(|error| error.naming_promise(in_the_way))
        };
        let now = in_time(&vm, begun).await?;
        let not_kept = own.record_transfers(&vm).await;
        let mut view = own.transfers(&now);
        if let Some((why, transfer)) = not_kept.zip(view.transfer.as_mut()) {
            let note = format!("a restart of the daemon would lose it: {why}");
            transfer.notes.push(note);
        }
        Ok(json(StatusCode::CREATED, &view))
    })
    .await
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
