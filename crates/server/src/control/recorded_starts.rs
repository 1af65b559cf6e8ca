//! Starts that placers have recorded in the cluster, carried out as if the placers had asked.

use axum::http::StatusCode;
use jiff::Timestamp;
use tidegate_api::cluster::PlacementClaim;
use tidegate_core::time::Nanos;

use super::Api;
use super::plane::Plane;
use super::transfers::begin_transfer;
use crate::config;
use crate::membership::{RecordedStart, StartRefusal};
use crate::transfer::{Due, TransferOrder};

/// Carries out the starts that placers have recorded in the cluster, until the future is dropped;
/// does nothing for a daemon that joins none.
pub(super) async fn follow_recorded_starts<P: Plane>(api: Api<P>) {
    let starts = api.plane.membership().and_then(|it| it.take_starts());
    let Some(mut starts) = starts else {
        return std::future::pending().await;
    };
    while let Some(start) = starts.recv().await {
        // A start waits for etcd, and another one may not have to.
        let api = api.clone();
        tokio::spawn(async move { start_recorded(&api, start).await });
    }
}

async fn start_recorded<P: Plane>(api: &Api<P>, start: RecordedStart) {
    let RecordedStart {
        vm,
        bytes,
        deadline,
        claim,
        reply,
    } = start;
    let started = match recorded_order(&claim, bytes, deadline) {
        Some(order) => {
            let begun = begin_transfer(api, &vm, order, Some(claim), false).await;
            begun.map(drop).map_err(|error| StartRefusal {
                is_final: error.status != StatusCode::SERVICE_UNAVAILABLE,
                has_ended: false,
                why: error.body.error.what,
            })
        }
        None => Err(StartRefusal::invalid(
            "its size or deadline is out of range",
        )),
    };
    // The thread of the cluster may have ended.
    let _ = reply.send(started);
}

/// Returns the order for a recorded start, which is due when it was placed for by the placer's
/// clock; `None` if its figures are out of the range that the control API takes.
fn recorded_order(claim: &PlacementClaim, bytes: u64, deadline: Nanos) -> Option<TransferOrder> {
    if !config::transfer::is_in_range(bytes, deadline) {
        return None;
    }
    let due = i128::from(claim.begun_ns) + i128::from(deadline.0);
    Some(TransferOrder {
        bytes,
        due: Due::At(Timestamp::from_nanosecond(due).ok()?),
        replace: false,
        most: None,
        placed_ns: Some(claim.begun_ns),
    })
}
