//! Checks of the transfers that a cluster has placed.
//!
//! Each start is checked against etcd before the transfer begins, and confirmed after it: a
//! placement that another session ends in between would run without anyone counting it. A transfer
//! goes on while etcd does not tell, and is confirmed or cancelled once it does.
//!
//! ```text
//!   placer: PUT /v1/vms/NAME/job ----------+                      +--stands--> goes on
//!                                          +--> check --> begin --+--ended---> cancelled
//!   recorded starts (`recorded_starts`) ---+            ^         |
//!                                                       +--pause--+ not told
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use jiff::Timestamp;
use tidegate_api::cluster::PlacementClaim;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::in_time;
use super::plane::Plane;
use crate::command::VmSnapshot;
use crate::feasibility;
use crate::membership::{Membership, PlacedTransfer, StartRefusal};
use crate::transfer;

/// Pause before a transfer that etcd has not confirmed is checked again; it doubles up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two checks of a transfer that has begun.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Confirmation of a placement, under way in a task of its own, because the client may hang up.
pub(super) type ConfirmationTask = JoinHandle<ApiResult<()>>;

/// Placements that a daemon which has joined a cluster is asked to start.
#[derive(Clone)]
pub(super) struct Placements<P> {
    api: Api<P>,
    membership: Arc<Membership>,
}

impl<P: Plane> Placements<P> {
    /// Creates the checks of a daemon; `vm` is what the error is about.
    ///
    /// # Errors
    /// 409 if the daemon has joined no cluster.
    pub(super) fn new(api: &Api<P>, vm: &str) -> ApiResult<Placements<P>> {
        let membership = api.plane.membership().ok_or_else(|| {
            let what = "this daemon has joined no cluster: its configuration has no [cluster]";
            ApiError::new(StatusCode::CONFLICT, what, vm)
        })?;
        let api = api.clone();
        Ok(Placements { api, membership })
    }

    /// Has etcd confirm a placement.
    ///
    /// # Errors
    /// 409 if it is not one of this host's, 503 if it cannot be confirmed at present.
    pub(super) async fn check(&self, vm: &str, claim: &PlacementClaim) -> ApiResult<()> {
        let checked = self.membership.check_start(vm, claim).await;
        checked.map_err(|refusal| {
            tracing::info!(vm, "start by a placer refused: {}", refusal.why);
            refused_start(refusal, vm)
        })
    }

    /// Checks by this host's clock alone that the daemon is registered.
    ///
    /// # Errors
    /// 503 if it is not.
    pub(super) fn check_joined(&self, vm: &str) -> ApiResult<()> {
        let joined = self.membership.check_joined();
        joined.map_err(|refusal| refused_start(refusal, vm))
    }

    /// Refuses a placement that was decided before VMs reserved more.
    ///
    /// # Errors
    /// 409 with both reservations.
    pub(super) fn check_reserved(&self, vm: &str, claim: &PlacementClaim) -> ApiResult<()> {
        let now = self.api.clock.now();
        let configs = self.api.plane.device_configs();
        let devices = configs.iter().enumerate();
        let of_placement = devices.filter(|(_, device)| {
            let named = claim.device.as_ref();
            named.is_none_or(|name| *name == device.name)
        });
        let reserved = of_placement.map(|(at, device)| {
            feasibility::standing_reservation(device, &self.api.plane.vms_of(at), now)
        });
        let reserved = reserved.fold(0_u64, u64::saturating_add);
        if reserved <= claim.reserved_bytes_per_s {
            return Ok(());
        }
        self.membership.count_refused();
        let what = format!(
            "the VMs of host {:?} reserve {reserved} B/s, more than the {} B/s that the placement \
             was decided on; place the transfer again",
            claim.host, claim.reserved_bytes_per_s
        );
        Err(ApiError::new(StatusCode::CONFLICT, what, vm))
    }

    /// Begins to confirm the placement of a transfer that has begun. The transfer is
    /// cancelled if its placement was ended meanwhile, and goes on if the host was drained.
    pub(super) fn confirm(
        &self,
        vm: &str,
        claim: &PlacementClaim,
        now: &VmSnapshot,
    ) -> ConfirmationTask {
        let running = now.transfers.running.map(|running| running.since);
        // Another one that runs now is the operator's.
        let begun = running
            .filter(|since| since.placed_ns == Some(claim.begun_ns))
            .map(|since| transfer::to_the_millisecond(since.begun));
        self.spawn_confirmation(vm, claim, begun)
    }

    /// Begins to confirm the placement of a transfer whose beginning was given up, as its event
    /// loop did not answer in time: it may begin later, and its placement is removed by then, or
    /// stands.
    pub(super) fn confirm_late(
        &self,
        vm: &str,
        claim: &PlacementClaim,
        error: &ApiError,
        at: Timestamp,
    ) {
        // Otherwise it was refused for good, so nothing has begun.
        if error.status == StatusCode::SERVICE_UNAVAILABLE {
            let begun = transfer::to_the_millisecond(at);
            let (own, vm, claim) = (self.clone(), vm.to_owned(), claim.clone());
            tokio::spawn(async move { own.confirm_late_beginning(&vm, &claim, begun).await });
        }
    }

    fn spawn_confirmation(
        &self,
        vm: &str,
        claim: &PlacementClaim,
        begun: Option<Timestamp>,
    ) -> ConfirmationTask {
        let (own, vm, claim) = (self.clone(), vm.to_owned(), claim.clone());
        tokio::spawn(async move { own.confirm_or_cancel(&vm, &claim, begun).await })
    }

    /// Cancels the transfer that began at a time if its placement was ended meanwhile. While etcd
    /// does not tell, the transfer goes on, and is checked again later.
    ///
    /// # Errors
    /// 409 if the placement has ended.
    async fn confirm_or_cancel(
        &self,
        vm: &str,
        claim: &PlacementClaim,
        begun: Option<Timestamp>,
    ) -> ApiResult<()> {
        let Err(refusal) = self.membership.confirm_begun(vm, claim).await else {
            return Ok(());
        };
        match begun {
            Some(begun) if refusal.has_ended => {
                let cancelled = self.cancel_unplaced(vm, begun, &refusal).await;
                cancelled.inspect_err(|_| self.retry_confirmation(vm, claim, begun))?;
            }
            Some(begun) => {
                let why = &refusal.why;
                tracing::warn!(
                    vm,
                    "a job runs whose placement is not confirmed: {why}; it is tried again"
                );
                self.retry_confirmation(vm, claim, begun);
            }
            None => {}
        }
        if refusal.has_ended {
            return Err(refused_start(refusal, vm));
        }
        Ok(())
    }

    /// Begins to confirm a placement, unless a task does that already: placers repeat their starts.
    fn retry_confirmation(&self, vm: &str, claim: &PlacementClaim, begun: Timestamp) {
        let transfer = PlacedTransfer {
            vm: vm.to_owned(),
            placed_ns: claim.begun_ns,
        };
        let Some(confirmation) = self.membership.begin_confirmation(&transfer) else {
            return;
        };
        let (own, claim) = (self.clone(), claim.clone());
        tokio::spawn(async move {
            own.confirm_repeatedly(&transfer.vm, &claim, begun).await;
            drop(confirmation);
        });
    }

    /// Checks the placement of the transfer that began at a time until etcd answers, or the
    /// transfer does not run any more.
    async fn confirm_repeatedly(&self, vm: &str, claim: &PlacementClaim, begun: Timestamp) {
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match runs(&self.api, vm, begun).await {
                Ok(false) => return,
                Ok(true) => {}
                // The event loop has ended, and its transfers with it.
                Err(_) => return,
            }
            let Err(refusal) = self.membership.confirm_begun(vm, claim).await else {
                tracing::info!(vm, "the placement of a job that runs is confirmed");
                return;
            };
            let is_cancelled =
                refusal.has_ended && self.cancel_unplaced(vm, begun, &refusal).await.is_ok();
            if is_cancelled {
                return;
            }
        }
    }

    /// Cancels the transfer that began at a time, because its placement has ended.
    async fn cancel_unplaced(
        &self,
        vm: &str,
        begun: Timestamp,
        refusal: &StartRefusal,
    ) -> ApiResult<()> {
        cancel_begun(&self.api, vm, begun).await?;
        tracing::warn!(vm, "transfer of a placer cancelled: {}", refusal.why);
        Ok(())
    }

    /// Waits until the event loop of a VM answers, and checks a transfer that has begun at a time.
    async fn confirm_late_beginning(&self, vm: &str, claim: &PlacementClaim, begun: Timestamp) {
        let Some(device) = self.api.plane.vm(vm).map(|vm| vm.device) else {
            return;
        };
        // Without a limit of its own: the loop answers in the order in which it was asked, so the
        // transfer has begun by then, or does not begin.
        let Ok(now) = self.api.plane.snapshot(device).await else {
            return;
        };
        let mut of_vm = now.vms.iter().filter(|it| it.name == vm);
        let has_begun = of_vm.any(|it| it.transfers.begun_placements.contains(claim.begun_ns));
        // Otherwise the loop has refused it, and its recorded start must stay to be tried again.
        if has_begun {
            // Before the start in etcd is deleted, as for one that begins in time.
            self.api.record_transfers(vm).await;
            // What it refuses is logged.
            let _ = self.confirm_or_cancel(vm, claim, Some(begun)).await;
        }
    }
}

/// Cancels the transfer of a VM that began at a time; does nothing if another one runs, which
/// may be the operator's.
///
/// # Errors
/// The event loop does not answer, or another change takes too long.
async fn cancel_begun<P: Plane>(api: &Api<P>, vm: &str, begun: Timestamp) -> ApiResult<()> {
    let (own, name) = (api.clone(), vm.to_owned());
    let cancelled = api.change(vm, async move {
        // A loop that was silent may begin the transfer only now.
        if !runs(&own, &name, begun).await? {
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

/// Returns whether the transfer of a VM runs that began at a time. Waits for the event loop without
/// a limit, which answers in the order in which it was asked.
///
/// # Errors
/// The event loop has ended.
async fn runs<P: Plane>(api: &Api<P>, vm: &str, begun: Timestamp) -> ApiResult<bool> {
    let Some(device) = api.plane.vm(vm).map(|vm| vm.device) else {
        return Ok(false);
    };
    let there = api.plane.snapshot(device).await;
    let there = there.map_err(|error| ApiError::control(&error, vm))?;
    let vm = there.vms.iter().find(|it| it.name == vm);
    let running = vm.and_then(|vm| vm.transfers.running);
    Ok(running.is_some_and(|it| transfer::to_the_millisecond(it.since.begun) == begun))
}

fn refused_start(refusal: StartRefusal, vm: &str) -> ApiError {
    let status = if refusal.is_final {
        StatusCode::CONFLICT
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    ApiError::new(status, refusal.why, vm)
}
