//! JSON row that holds a cluster's state, format 1.

use serde::{Deserialize, Serialize};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use crate::record::{Entitlement, HostRecord, Placement, RunningTransfer, Settings, Transfer};
use crate::state::ClusterState;
use crate::store::{Revision, Snapshot, StoreError};

/// Format that is written, and the only one that is read.
const VERSION: u32 = 1;

/// State of a cluster. Fields with a default are absent in rows of earlier releases of format 1.
/// Fields keep the names that they had when the format was made, because files have them.
#[derive(Serialize, Deserialize)]
pub(super) struct StateRow {
    version: u32,
    #[serde(default = "first_revision")]
    revision: u64,
    hosts: Vec<HostRow>,
    running: Vec<RunningRow>,
    waiting: Vec<WaitingRow>,
    /// [`Settings::last_number`].
    numbered: u64,
    /// [`Settings::grace`].
    #[serde(default)]
    grace: Option<u32>,
}

/// Revision of a row without one: an unknown number of commits, but at least one.
fn first_revision() -> u64 {
    Revision::EMPTY.next().0
}

#[derive(Serialize, Deserialize)]
struct HostRow {
    name: String,
    /// Bytes per second.
    bandwidth: u64,
    /// Bytes per second, by the number of transfers.
    loss: Vec<u64>,
    #[serde(rename = "jobs")]
    transfers: usize,
    #[serde(default)]
    socket: Option<String>,
    #[serde(default)]
    device: Option<String>,
    /// [`HostRecord::steady_since`] in nanoseconds.
    #[serde(default)]
    steady_ns: u64,
    #[serde(default)]
    drained: bool,
    /// [`HostRecord::rates_recorded_at`] in nanoseconds.
    #[serde(default)]
    learnt_ns: u64,
}

#[derive(Serialize, Deserialize)]
struct RunningRow {
    name: String,
    host: String,
    bytes: u64,
    deadline_ns: u64,
    begun_ns: u64,
    moved: u64,
    as_of_ns: u64,
    /// [`Placement::reported`] in bytes.
    told: u64,
    /// [`Placement::reported_at`] in nanoseconds.
    told_ns: u64,
    /// [`Class::name`].
    class: String,
    lowered_for: Vec<String>,
    #[serde(default)]
    limit: Option<u64>,
    /// Time of the request; `None` in rows of earlier releases, read as `begun_ns`.
    #[serde(default)]
    arrived_ns: Option<u64>,
    #[serde(default)]
    start: bool,
}

#[derive(Serialize, Deserialize)]
struct WaitingRow {
    name: String,
    bytes: u64,
    deadline_ns: u64,
    arrived_ns: u64,
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    start: bool,
}

impl StateRow {
    pub(super) fn new(snapshot: &Snapshot) -> StateRow {
        let state = &snapshot.state;
        StateRow {
            version: VERSION,
            revision: snapshot.revision.0,
            hosts: state.hosts.iter().map(HostRow::new).collect(),
            running: state.running.iter().map(RunningRow::new).collect(),
            waiting: state.waiting.iter().map(WaitingRow::new).collect(),
            numbered: state.settings.last_number,
            grace: state.settings.grace,
        }
    }

    /// Returns the state of the row.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: a transfer has an I/O class that does not exist.
    pub(super) fn into_snapshot(self) -> Result<Snapshot, StoreError> {
        let state = ClusterState {
            hosts: self.hosts.into_iter().map(HostRow::into_record).collect(),
            running: self
                .running
                .into_iter()
                .map(RunningRow::into_record)
                .collect::<Result<_, _>>()?,
            waiting: self
                .waiting
                .into_iter()
                .map(WaitingRow::into_record)
                .collect(),
            settings: Settings {
                last_number: self.numbered,
                grace: self.grace,
            },
            ..ClusterState::default()
        };
        Ok(Snapshot {
            revision: Revision(self.revision),
            state,
        })
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<StateRow, StoreError> {
        let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
        let row: StateRow = serde_json::from_slice(bytes).map_err(damaged)?;
        match row.version {
            VERSION => Ok(row),
            found => Err(StoreError::Version {
                found,
                known: VERSION,
            }),
        }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(self).map_err(|error| StoreError::Backend(error.into()))
    }
}

impl HostRow {
    fn new(host: &HostRecord) -> HostRow {
        HostRow {
            name: host.name.clone(),
            bandwidth: host.bandwidth,
            loss: host.loss.clone(),
            transfers: host.max_transfers,
            socket: host.socket.clone(),
            device: host.device.clone(),
            steady_ns: host.steady_since.0,
            drained: host.drained,
            learnt_ns: host.rates_recorded_at.0,
        }
    }

    fn into_record(self) -> HostRecord {
        HostRecord {
            socket: self.socket,
            device: self.device,
            steady_since: Nanos(self.steady_ns),
            drained: self.drained,
            rates_recorded_at: Nanos(self.learnt_ns),
            ..HostRecord::new(self.name, self.bandwidth, self.loss, self.transfers)
        }
    }
}

impl RunningRow {
    fn new(running: &RunningTransfer) -> RunningRow {
        let RunningTransfer {
            transfer,
            placement,
            entitlement,
            ..
        } = running;
        RunningRow {
            name: transfer.name.clone(),
            host: placement.host.clone(),
            bytes: transfer.bytes,
            deadline_ns: transfer.deadline.0,
            begun_ns: placement.begun.0,
            moved: placement.moved,
            as_of_ns: placement.as_of.0,
            told: placement.reported,
            told_ns: placement.reported_at.0,
            class: entitlement.class.name().to_owned(),
            lowered_for: entitlement.lowered_for.clone(),
            limit: transfer.limit,
            arrived_ns: Some(transfer.arrived.0),
            start: transfer.start,
        }
    }

    fn into_record(self) -> Result<RunningTransfer, StoreError> {
        let mut classes = Class::ALL.into_iter();
        // No default: the next commit would store it, and the transfer would lose its class.
        let class = (classes.find(|class| class.name() == self.class)).ok_or_else(|| {
            StoreError::Damaged(format!(
                "job {:?} has I/O class {:?}; allowed are {}",
                self.name,
                self.class,
                Class::ALL.map(Class::name).join(", ")
            ))
        })?;
        Ok(RunningTransfer {
            transfer: Transfer {
                name: self.name,
                bytes: self.bytes,
                deadline: Nanos(self.deadline_ns),
                arrived: Nanos(self.arrived_ns.unwrap_or(self.begun_ns)),
                limit: self.limit,
                start: self.start,
            },
            placement: Placement {
                host: self.host,
                begun: Nanos(self.begun_ns),
                moved: self.moved,
                as_of: Nanos(self.as_of_ns),
                reported: self.told,
                reported_at: Nanos(self.told_ns),
            },
            entitlement: Entitlement {
                class,
                lowered_for: self.lowered_for,
            },
            live: false,
        })
    }
}

impl WaitingRow {
    fn new(transfer: &Transfer) -> WaitingRow {
        WaitingRow {
            name: transfer.name.clone(),
            bytes: transfer.bytes,
            deadline_ns: transfer.deadline.0,
            arrived_ns: transfer.arrived.0,
            limit: transfer.limit,
            start: transfer.start,
        }
    }

    fn into_record(self) -> Transfer {
        Transfer {
            name: self.name,
            bytes: self.bytes,
            deadline: Nanos(self.deadline_ns),
            arrived: Nanos(self.arrived_ns),
            limit: self.limit,
            start: self.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row of a version without revisions.
    const EARLIER: &str = r#"{"version":1,"hosts":[{"name":"a","bandwidth":60,"loss":[],"jobs":4}],
        "running":[{"name":"x","host":"a","bytes":9,"deadline_ns":8,"begun_ns":7,"moved":6,
        "as_of_ns":5,"told":4,"told_ns":3,"class":"idle","lowered_for":["y"]}],
        "waiting":[],"numbered":2}"#;

    #[test]
    fn rows_with_and_without_a_revision_are_read() {
        let row = StateRow::from_bytes(EARLIER.as_bytes()).expect("format 1");
        let snapshot = row.into_snapshot().expect("known classes");
        assert_eq!(snapshot.revision, Revision(1));
        let running = &snapshot.state.running[0];
        assert_eq!(running.entitlement.class, Class::Idle);
        assert_eq!(running.transfer.arrived, Nanos(7));
        let again = Snapshot {
            revision: Revision(17),
            ..snapshot
        };
        let bytes = StateRow::new(&again).to_bytes().expect("JSON");
        let read = StateRow::from_bytes(&bytes).expect("format 1");
        assert_eq!(read.into_snapshot().expect("known classes"), again);
    }

    #[test]
    fn an_unknown_class_is_an_error_that_names_the_transfer() {
        let other = EARLIER.replace("\"class\":\"idle\"", "\"class\":\"urgent\"");
        let row = StateRow::from_bytes(other.as_bytes()).expect("format 1");
        let error = row.into_snapshot().expect_err("an unknown class");
        assert_eq!(
            error.to_string(),
            "the stored state is damaged: job \"x\" has I/O class \"urgent\"; allowed are \
             idle, best-effort, realtime"
        );
    }

    #[test]
    fn rows_of_other_formats_and_damaged_rows_are_refused() {
        let other = EARLIER.replace("\"version\":1", "\"version\":2");
        let refused = StateRow::from_bytes(other.as_bytes()).map(drop);
        assert!(matches!(refused, Err(StoreError::Version { found: 2, .. })));
        let refused = StateRow::from_bytes(&EARLIER.as_bytes()[1..]).map(drop);
        assert!(matches!(refused, Err(StoreError::Damaged(_))));
    }
}
