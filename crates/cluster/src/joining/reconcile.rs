//! Transfers of placers that go on although their placements were ended while the host was lost.

use std::sync::Arc;

use tidegate_server::membership::{Membership, PlacedTransfer};
use tokio::task;

use super::MemberSource;
use crate::store::member::OwnPlacements;

/// Looks for transfers that were started for placers, still run, and are not placed here any more,
/// and logs them. They are not cancelled: a guest may rely on one. Those whose placements are to be
/// confirmed yet are left out.
pub(super) fn reconcile(
    source: &Arc<impl MemberSource>,
    membership: &Arc<Membership>,
    own: OwnPlacements,
) {
    let (source, membership) = (source.clone(), membership.clone());
    // An event loop may be slow to answer, and the registration does not wait for it.
    task::spawn(async move {
        let unplaced = unplaced(source.placed_transfers().await, &own);
        let known = unplaced.iter().filter(|it| !membership.is_confirming(it));
        for PlacedTransfer { vm, .. } in known {
            tracing::warn!(
                vm,
                "transfer of a placer runs without a placement, which was ended while the host \
                 was not in the cluster: no placer counts it; end it with `tidegate transfer \
                 cancel {vm}`"
            );
        }
    });
}

/// Returns the transfers whose placements do not stand. Those with a placement that is not
/// understood may.
fn unplaced(all: Vec<PlacedTransfer>, own: &OwnPlacements) -> Vec<PlacedTransfer> {
    let stands = |placed: &PlacedTransfer| match own.begun_ns.get(&placed.vm) {
        Some(Some(begun)) => *begun == placed.placed_ns,
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
        let started = |vm: &str| PlacedTransfer {
            vm: vm.to_owned(),
            placed_ns: 5,
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
