//! Transfers of placers that go on although their placements were ended while the host was lost.

use std::sync::Arc;

use tidegate_server::membership::{Membership, StartedTransfer};
use tokio::task;

use super::MemberSource;
use crate::store::member::OwnPlacements;

/// Looks for transfers that were started for placers, still run, and are not placed here any more,
/// and logs each once. They are not cancelled: a guest may rely on one.
pub(super) fn reconcile(
    membership: &Arc<Membership>,
    source: &Arc<impl MemberSource>,
    own: &OwnPlacements,
) {
    for started in unplaced(membership.started_transfers(), own) {
        let (membership, source) = (membership.clone(), source.clone());
        // An event loop may be slow to answer, and the registration does not wait for it.
        task::spawn(async move {
            if source.is_running(&started).await {
                let StartedTransfer { vm, .. } = &started;
                tracing::warn!(
                    vm,
                    "transfer of a placer runs without a placement, which was ended while the host \
                     was not in the cluster: no placer counts it; end it with \
                     `tidegate transfer cancel {vm}`"
                );
            }
            membership.forget_started(&started);
        });
    }
}

/// Returns the transfers whose placements do not stand. Those with a placement that is not
/// understood may.
fn unplaced(all: Vec<StartedTransfer>, own: &OwnPlacements) -> Vec<StartedTransfer> {
    let stands = |started: &StartedTransfer| match own.begun_ns.get(&started.vm) {
        Some(Some(begun)) => *begun == started.placed_ns,
        Some(None) => true,
        None => false,
    };
    all.into_iter().filter(|it| !stands(it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_unplaced_if_its_placement_is_gone_or_another_one() {
        let started = |vm: &str| StartedTransfer {
            vm: vm.to_owned(),
            placed_ns: 5,
            begun: Default::default(),
        };
        let placements = [
            ("stands", Some(5)),
            ("another", Some(6)),
            ("damaged", None),
            ("not-started", Some(7)),
        ];
        let own = OwnPlacements {
            is_defined: true,
            begun_ns: placements.map(|(vm, begun)| (vm.to_owned(), begun)).into(),
        };
        let all = ["stands", "another", "damaged", "gone"].map(started);
        let unplaced = unplaced(all.into(), &own);
        assert_eq!(unplaced, ["another", "gone"].map(started));
    }
}
