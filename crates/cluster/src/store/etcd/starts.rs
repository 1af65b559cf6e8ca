//! Recorded starts of transfers: `starts/HOST/TRANSFER`.
//!
//! A commit that places a transfer to be started on a daemon that has joined puts the start with
//! it, so that the start is not lost with the placer, the daemon or the connection between them.
//! The daemon deletes it once the transfer has begun; a commit that ends the placement, too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_api::cluster::PlacementClaim;
use tidegate_core::time::Nanos;

use super::keys::STARTS;
use super::value::SCHEMA;
use crate::change::Change;
use crate::record::{RunningTransfer, Transfer};
use crate::state::ClusterState;

/// Value of `starts/HOST/TRANSFER`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartValue {
    schema: u32,
    /// Name of the host, which with slashes in it cannot be told by the key.
    pub(crate) host: String,
    /// Time of the placement.
    pub(crate) begun_ns: u64,
    bytes: u64,
    /// From the time of the placement on.
    deadline_ns: u64,
    reserved_bytes_per_s: u64,
    device: Option<String>,
}

impl StartValue {
    /// Creates the value of a placed transfer; `None` if no daemon is to start it, or one that has
    /// never joined. Names with slashes have none, because two of them could have one key; served
    /// VMs have no such names, and `[cluster]` takes no such host.
    fn recorded(running: &RunningTransfer, state: &ClusterState) -> Option<StartValue> {
        let host = &running.placement.host;
        recorded_key(&running.transfer, host).filter(|_| state.memberships.contains_key(host))?;
        let record = &state.hosts[state.host(host)?.0];
        Some(StartValue {
            schema: SCHEMA,
            host: host.clone(),
            begun_ns: running.placement.begun.0,
            bytes: running.transfer.bytes,
            deadline_ns: running.transfer.deadline.0,
            reserved_bytes_per_s: state.reserved(record),
            device: record.device.clone(),
        })
    }

    /// Creates a value of a placement.
    #[cfg(test)]
    pub(crate) fn for_test(begun_ns: u64) -> StartValue {
        StartValue {
            schema: SCHEMA,
            host: "a".to_owned(),
            begun_ns,
            bytes: 1,
            deadline_ns: 1,
            reserved_bytes_per_s: 0,
            device: None,
        }
    }

    /// Size of the transfer in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Deadline, from the time of the placement on.
    pub(crate) fn deadline(&self) -> Nanos {
        Nanos(self.deadline_ns)
    }

    /// Returns the placement as a placer claims it.
    pub(crate) fn claim(&self) -> PlacementClaim {
        PlacementClaim {
            host: self.host.clone(),
            begun_ns: self.begun_ns,
            reserved_bytes_per_s: self.reserved_bytes_per_s,
            device: self.device.clone(),
        }
    }
}

/// Returns the key of a start, without the prefix.
pub(super) fn start_key(host: &str, transfer: &str) -> String {
    format!("{STARTS}{host}/{transfer}")
}

/// Returns the key of the start of a placed transfer, without the prefix; `None`: none is recorded
/// with its placement on any host.
pub(super) fn recorded_key(transfer: &Transfer, host: &str) -> Option<String> {
    let is_named = !host.contains('/') && !transfer.name.contains('/');
    (transfer.start && is_named).then(|| start_key(host, &transfer.name))
}

/// Returns the starts that a commit puts, and deletes (`None`), by key.
pub(super) fn start_writes(
    before: &ClusterState,
    after: &ClusterState,
    changes: &[Change],
) -> BTreeMap<String, Option<StartValue>> {
    let mut writes = BTreeMap::new();
    for change in changes {
        let name = match change {
            Change::PutPlacement { transfer, .. }
            | Change::DeletePlacement { transfer }
            | Change::DeleteTransfer(transfer) => transfer,
            _ => continue,
        };
        let (was, is) = (before.running(name), after.running(name));
        let placed = |it: &RunningTransfer| (it.placement.host.clone(), it.placement.begun);
        if was.map(placed) == is.map(placed) {
            continue;
        }
        if let Some(was) = was.filter(|was| was.transfer.start) {
            writes.insert(start_key(&was.placement.host, name), None);
        }
        // After the deletes: the transfer may be placed on the same host again.
        if let Some(value) = is.and_then(|is| StartValue::recorded(is, after)) {
            writes.insert(start_key(&value.host, name), Some(value));
        }
    }
    writes
}
