//! JSON values of the keys in etcd, schema 1.
//!
//! Each value is an object with the field `schema`. A value of another schema, or with a field that
//! its schema does not have, is refused: to read it in part and write it back would lose the rest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use crate::record::{Entitlement, HostRecord, Placement, Settings, Transfer};
use crate::store::{Revision, StoreError};

/// Schema of all values that are written, and the only one that is read.
pub(super) const SCHEMA: u32 = 1;

/// Number of commits whose identifiers are in [`RevisionValue::commits`]: a writer that lost the
/// answer to its commit recognises it until as many others have followed.
const REMEMBERED_COMMITS: usize = 256;

/// Value of the key `revision`, which every commit puts.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct RevisionValue {
    schema: u32,
    /// [`Revision`] of the state.
    pub(super) revision: u64,
    /// Identifiers of the last commits, newest first.
    commits: Vec<String>,
}

/// Outcome of a commit that etcd has refused, of which an earlier attempt may have been carried
/// out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommitOutcome {
    /// The commit was carried out, and has created this revision.
    Stored(Revision),
    /// The commit was not carried out, and will not be.
    NotStored,
    /// An attempt may have been carried out, and its identifier forgotten since.
    Forgotten,
}

impl RevisionValue {
    /// Value of an empty store, which has no such key.
    pub(super) fn empty() -> RevisionValue {
        RevisionValue {
            schema: SCHEMA,
            revision: Revision::EMPTY.0,
            commits: Vec::new(),
        }
    }

    /// Returns the value that a commit with the identifier `commit` puts.
    pub(super) fn after(&self, commit: &str) -> RevisionValue {
        self.after_with(commit, REMEMBERED_COMMITS)
    }

    /// Returns the value that a commit puts if the last `remembered` identifiers are kept.
    pub(super) fn after_with(&self, commit: &str, remembered: usize) -> RevisionValue {
        let mut commits = vec![commit.to_owned()];
        let before = self.commits.iter().take(remembered.saturating_sub(1));
        commits.extend(before.cloned());
        RevisionValue {
            schema: SCHEMA,
            revision: Revision(self.revision).next().0,
            commits,
        }
    }

    /// Returns the value, in JSON, without the identifiers of commits.
    #[cfg(test)]
    pub(super) fn without_commits(&self) -> Vec<u8> {
        let forgetful = RevisionValue {
            commits: Vec::new(),
            ..self.clone()
        };
        write(&forgetful).expect("JSON")
    }

    /// Returns the outcome of a refused commit that was decided on the state of `decided_on`. With
    /// `may_be_done` an earlier attempt may have been carried out.
    pub(super) fn outcome_of(
        &self,
        commit: &str,
        decided_on: Revision,
        may_be_done: bool,
    ) -> CommitOutcome {
        if let Some(later) = self.commits.iter().position(|known| known == commit) {
            let created = self.revision.saturating_sub(later as u64);
            return CommitOutcome::Stored(Revision(created));
        }
        // An attempt that was carried out has created the revision after the one that it compares.
        // The identifier is there unless as many others as are kept have followed.
        let followed_by = self.revision.checked_sub(decided_on.next().0);
        let is_forgotten = followed_by.is_some_and(|n| n >= self.commits.len() as u64);
        if may_be_done && is_forgotten {
            CommitOutcome::Forgotten
        } else {
            CommitOutcome::NotStored
        }
    }
}

/// Value of `settings`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsValue {
    schema: u32,
    last_number: u64,
    grace_thousandths: Option<u32>,
}

/// Value of `hosts/NAME`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostValue {
    schema: u32,
    /// Position among the hosts: they are sorted by it.
    pub(super) order: u64,
    bandwidth_bytes_per_s: u64,
    loss_bytes_per_s: Vec<u64>,
    max_transfers: usize,
    socket: Option<String>,
    device: Option<String>,
    drained: bool,
    steady_since_ns: u64,
    rates_recorded_at_ns: u64,
}

/// Value of `transfers/NAME`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferValue {
    schema: u32,
    /// Position in the queue while it waits for a host.
    pub(super) order: u64,
    bytes: u64,
    deadline_ns: u64,
    arrived_ns: u64,
    limit_bytes_per_s: Option<u64>,
    start: bool,
}

/// Value of `placements/NAME`, by the transfer's name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementValue {
    schema: u32,
    /// Position among the placements.
    pub(super) order: u64,
    host: String,
    begun_ns: u64,
    moved_bytes: u64,
    as_of_ns: u64,
    reported_bytes: u64,
    reported_at_ns: u64,
}

/// Value of `entitlements/NAME`, by the transfer's name; absent for the default one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntitlementValue {
    schema: u32,
    /// [`Class::name`].
    class: String,
    lowered_for: Vec<String>,
}

/// Value of `learnt/HOST`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LearntValue {
    schema: u32,
    /// Priority database in base64.
    database: String,
}

/// Reads the value of a key, which errors name.
///
/// # Errors
/// The value has another schema, or is not one of schema 1.
pub(super) fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, StoreError> {
    #[derive(Deserialize)]
    struct AnySchema {
        schema: u32,
    }
    let damaged = |error: serde_json::Error| damaged(key, &error.to_string());
    // First the schema alone: a value of another one has other fields.
    let AnySchema { schema } = serde_json::from_slice(value).map_err(damaged)?;
    if schema != SCHEMA {
        return Err(StoreError::RecordVersion {
            key: key.to_owned(),
            found: schema,
            known: SCHEMA,
        });
    }
    serde_json::from_slice(value).map_err(damaged)
}

/// Writes a value.
///
/// # Errors
/// None for the types of this module; the serialiser could fail for others.
pub(super) fn write<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::Backend(error.into()))
}

/// Returns the error for a key whose value is damaged.
pub(super) fn damaged(key: &str, why: &str) -> StoreError {
    StoreError::DamagedRecord {
        key: key.to_owned(),
        why: why.to_owned(),
    }
}

impl SettingsValue {
    pub(super) fn new(settings: &Settings) -> SettingsValue {
        SettingsValue {
            schema: SCHEMA,
            last_number: settings.last_number,
            grace_thousandths: settings.grace,
        }
    }

    pub(super) fn into_record(self) -> Settings {
        Settings {
            last_number: self.last_number,
            grace: self.grace_thousandths,
        }
    }
}

impl HostValue {
    pub(super) fn new(host: &HostRecord, order: u64) -> HostValue {
        HostValue {
            schema: SCHEMA,
            order,
            bandwidth_bytes_per_s: host.bandwidth,
            loss_bytes_per_s: host.loss.clone(),
            max_transfers: host.max_transfers,
            socket: host.socket.clone(),
            device: host.device.clone(),
            drained: host.drained,
            steady_since_ns: host.steady_since.0,
            rates_recorded_at_ns: host.rates_recorded_at.0,
        }
    }

    pub(super) fn into_record(self, name: &str) -> HostRecord {
        let (bandwidth, loss) = (self.bandwidth_bytes_per_s, self.loss_bytes_per_s);
        HostRecord {
            socket: self.socket,
            device: self.device,
            steady_since: Nanos(self.steady_since_ns),
            rates_recorded_at: Nanos(self.rates_recorded_at_ns),
            drained: self.drained,
            ..HostRecord::new(name.to_owned(), bandwidth, loss, self.max_transfers)
        }
    }
}

impl TransferValue {
    pub(super) fn new(transfer: &Transfer, order: u64) -> TransferValue {
        TransferValue {
            schema: SCHEMA,
            order,
            bytes: transfer.bytes,
            deadline_ns: transfer.deadline.0,
            arrived_ns: transfer.arrived.0,
            limit_bytes_per_s: transfer.limit,
            start: transfer.start,
        }
    }

    pub(super) fn into_record(self, name: &str) -> Transfer {
        Transfer {
            name: name.to_owned(),
            bytes: self.bytes,
            deadline: Nanos(self.deadline_ns),
            arrived: Nanos(self.arrived_ns),
            limit: self.limit_bytes_per_s,
            start: self.start,
        }
    }
}

impl PlacementValue {
    pub(super) fn new(placement: &Placement, order: u64) -> PlacementValue {
        PlacementValue {
            schema: SCHEMA,
            order,
            host: placement.host.clone(),
            begun_ns: placement.begun.0,
            moved_bytes: placement.moved,
            as_of_ns: placement.as_of.0,
            reported_bytes: placement.reported,
            reported_at_ns: placement.reported_at.0,
        }
    }

    pub(super) fn into_record(self) -> Placement {
        Placement {
            host: self.host,
            begun: Nanos(self.begun_ns),
            moved: self.moved_bytes,
            as_of: Nanos(self.as_of_ns),
            reported: self.reported_bytes,
            reported_at: Nanos(self.reported_at_ns),
        }
    }
}

impl EntitlementValue {
    pub(super) fn new(entitlement: &Entitlement) -> EntitlementValue {
        EntitlementValue {
            schema: SCHEMA,
            class: entitlement.class.name().to_owned(),
            lowered_for: entitlement.lowered_for.clone(),
        }
    }

    /// Returns the record of the value at `key`.
    ///
    /// # Errors
    /// The I/O class does not exist.
    pub(super) fn into_record(self, key: &str) -> Result<Entitlement, StoreError> {
        let mut classes = Class::ALL.into_iter();
        let class = classes.find(|class| class.name() == self.class);
        let class = class.ok_or_else(|| {
            let names = Class::ALL.map(Class::name).join(", ");
            let why = format!("I/O class {:?}; allowed are {names}", self.class);
            damaged(key, &why)
        })?;
        Ok(Entitlement {
            class,
            lowered_for: self.lowered_for,
        })
    }
}

impl LearntValue {
    pub(super) fn new(database: &[u8]) -> LearntValue {
        LearntValue {
            schema: SCHEMA,
            database: STANDARD.encode(database),
        }
    }

    /// Returns the bytes of the database at `key`.
    ///
    /// # Errors
    /// The text is not base64.
    pub(super) fn into_bytes(self, key: &str) -> Result<Vec<u8>, StoreError> {
        let bytes = STANDARD.decode(self.database);
        bytes.map_err(|error| damaged(key, &error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_recognised_until_as_many_others_as_are_remembered_have_followed() {
        let of_mine = |value: &RevisionValue, may_be_done| {
            value.outcome_of("mine", Revision::EMPTY, may_be_done)
        };
        let stored = CommitOutcome::Stored(Revision(1));
        let mut value = RevisionValue::empty().after("mine");
        assert_eq!(of_mine(&value, true), stored);
        for n in 0..REMEMBERED_COMMITS - 1 {
            value = value.after(&format!("other-{n}"));
            assert_eq!(of_mine(&value, true), stored, "{n}");
        }
        let third = value.outcome_of("other-3", Revision(4), true);
        assert_eq!(third, CommitOutcome::Stored(Revision(5)));
        let value = value.after("last");
        assert_eq!(of_mine(&value, true), CommitOutcome::Forgotten);
        // The only attempt was refused, so none was carried out.
        assert_eq!(of_mine(&value, false), CommitOutcome::NotStored);
        // The commit would be the oldest one that is remembered.
        let on_the_first = value.outcome_of("another", Revision(1), true);
        assert_eq!(on_the_first, CommitOutcome::NotStored);
        // A history that was restored from before the commit.
        let restored = value.outcome_of("another", Revision(900), true);
        assert_eq!(restored, CommitOutcome::NotStored);
    }

    #[test]
    fn values_of_another_schema_and_damaged_ones_are_refused_with_their_key() {
        let refused = |text: &str| {
            let read = read::<SettingsValue>("/t/settings", text.as_bytes());
            read.map(drop).expect_err("refused").to_string()
        };
        let newer = refused(r#"{"schema":2,"numbers":[]}"#);
        assert_eq!(
            newer,
            "key /t/settings has schema 2, this version of Tidegate reads schema 1"
        );
        for text in [
            r#"{"last_number":2}"#,
            r#"{"schema":1,"last_number":2,"grace_thousandths":null,"more":1}"#,
            r#"{"schema":1,"last_number":-2,"grace_thousandths":null}"#,
            "[",
            "",
        ] {
            let message = refused(text);
            assert!(
                message.contains("key /t/settings is damaged: "),
                "{message}"
            );
        }
        let urgent = EntitlementValue {
            schema: SCHEMA,
            class: "urgent".to_owned(),
            lowered_for: Vec::new(),
        };
        let message = urgent
            .into_record("/t/entitlements/x")
            .expect_err("unknown");
        assert!(
            message.to_string().contains("idle, best-effort, realtime"),
            "{message}"
        );
        let learnt = LearntValue {
            schema: SCHEMA,
            database: "%".to_owned(),
        };
        assert!(learnt.into_bytes("/t/learnt/a").is_err());
    }
}
