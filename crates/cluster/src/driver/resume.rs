//! Reconstruction of [`Pcos`], the state machine that places transfers on hosts, from a stored
//! state.

use tidegate_core::learnt_state::Blob;
use tidegate_core::time::Nanos;
use tidegate_place::{Bandwidth, HostSpec, Pcos, VmState, WAITING_CAPACITY};

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
    let mut learnt = store.learnt_by_all(&state.hosts)?;
    for host in &state.hosts {
        let damaged = |why: String| StoreError::Damaged(format!("host {}: {why}", host.name));
        let reserved = state.reserved(host);
        let left = host.bandwidth_beside(reserved);
        let left = left.map_err(|error| damaged(error.to_string()))?;
        let is_full = left.is_none();
        let mut spec = HostSpec::new(left.unwrap_or_else(Bandwidth::least));
        spec.transfers = host.max_transfers;
        if let Some(learnt) = learnt.remove(&host.name) {
            let imported = spec.database.import(&Blob::from_bytes(learnt));
            imported.map_err(|error| damaged(error.to_string()))?;
        }
        if reserved > 0 {
            // Rates were measured beside other VMs than those of today.
            spec.database.cap_at_bandwidth();
        }
        let id = pcos.add_host(now, spec);
        if host.drained || is_full || state.is_lost(&host.name) {
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
