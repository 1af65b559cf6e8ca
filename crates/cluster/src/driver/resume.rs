//! Reconstruction of [`Pcos`], the state machine that places transfers on hosts, from a stored
//! state.

use tidegate_core::learnt_state::Blob;
use tidegate_core::time::Nanos;
use tidegate_place::{HostSpec, Pcos, VmState, WAITING_CAPACITY};

use super::names::Names;
use crate::state::ClusterState;
use crate::store::{ClusterStore, StoreError};

/// Builds the state machine of a state, with the stored priority databases (rates that the I/O
/// classes had on each host). The numbers of hosts are their indices in the state.
pub(super) fn resume(
    state: &ClusterState,
    store: &dyn ClusterStore,
    now: Nanos,
) -> Result<(Pcos, Names), StoreError> {
    let mut pcos = Pcos::new(WAITING_CAPACITY).with_grace(state.grace());
    let mut names = Names::default();
    for host in &state.hosts {
        let damaged = |why: String| StoreError::Damaged(format!("host {}: {why}", host.name));
        let bandwidth = host.bandwidth();
        let mut spec = HostSpec::new(bandwidth.map_err(|error| damaged(error.to_string()))?);
        spec.transfers = host.max_transfers;
        if let Some(learnt) = store.learnt(&host.name)? {
            let imported = spec.database.import(&Blob::from_bytes(learnt));
            imported.map_err(|error| damaged(error.to_string()))?;
        }
        let id = pcos.add_host(now, spec);
        if host.drained {
            pcos.close_host(now, id);
        }
    }
    for running in &state.running {
        let host = state.host(&running.placement.host).ok_or_else(|| {
            StoreError::Damaged(
                "a running transfer is placed on a host that does not exist".to_owned(),
            )
        })?;
        let vm = VmState {
            class: running.entitlement.class,
            transfer: Some(running.progress()),
        };
        let id = pcos.resume(host, vm, running.placement.as_of);
        // Limits are declared by the operator and not part of the learnt database.
        if let Some(limit) = running.transfer.limit {
            pcos.limit(host, id, limit);
        }
        names.add(id, running.name());
    }
    for transfer in &state.waiting {
        let request = transfer.request();
        let request = request.map_err(|error| StoreError::Damaged(error.to_string()))?;
        let id = pcos.resume_waiting(transfer.arrived, request);
        names.add(id, &transfer.name);
    }
    // Rates of all hosts are computed once, after all transfers and limits are known.
    pcos.refresh_all(now);
    Ok((pcos, names))
}
