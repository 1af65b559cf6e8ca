//! Changes of objectives and of their schedules.

use std::collections::BTreeMap;

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Change of one part: the value of a field of a merge patch (RFC 7396).
///
/// A field of this type needs `#[serde(default, skip_serializing_if = "Change::is_keep")]`: JSON
/// has no value for [`Change::Keep`], so serializing it is an error.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Change<T> {
    /// The part stays as it is: the field is absent.
    #[default]
    Keep,
    /// The part is removed: the field is `null`.
    Remove,
    /// The part is replaced, or merged where it is a table.
    Set(T),
}

impl<T> Change<T> {
    /// Returns true if the part stays as it is.
    pub fn is_keep(&self) -> bool {
        matches!(self, Change::Keep)
    }
}

impl<T> From<Option<T>> for Change<T> {
    /// Sets the part to `Some` value, and keeps it for `None`.
    fn from(value: Option<T>) -> Change<T> {
        value.map_or(Change::Keep, Change::Set)
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // Written as `null`, it would be read as `Remove`.
            Change::Keep => Err(serde::ser::Error::custom(
                "a part that is kept has no value",
            )),
            Change::Remove => serializer.serialize_none(),
            Change::Set(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Change<T>, D::Error> {
        let value = Option::deserialize(deserializer)?;
        Ok(value.map_or(Change::Remove, Change::Set))
    }
}

/// Body of `PATCH /v1/vms/{name}/objective`, and objective of a
/// [`VmRequest`](crate::vm::VmRequest): a merge patch of the parts.
///
/// Text may be `none` where `null` is allowed. The whole of the new objective is checked; where
/// anything is wrong nothing changes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveChange {
    /// Minimum rate while the VM has requests: `120 IOPS @ 16 KiB`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub reservation: Change<String>,
    /// Maximum rates. The daemon also takes one text, which becomes `total`: [`LimitValue`].
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<LimitValue>)]
    pub limit: Change<LimitChange>,
    /// Rate that is held precisely.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub target: Change<String>,
    /// Share of the throughput that reservations leave, 1 to 10000.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u32>)]
    pub weight: Change<u32>,
    /// Group that shares one weight with the VM in it.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<GroupChange>)]
    pub group: Change<GroupChange>,
    /// Bound on the time from a request's arrival to its reply.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub latency: Change<String>,
    /// I/O priority class, as in `ionice`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub priority: Change<String>,
    /// Workload that plans assume.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<ExpectsChange>)]
    pub expects: Change<ExpectsChange>,
    /// Entries that replace the whole schedule.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<Vec<ScheduleEntry>>, no_recursion)]
    pub schedule: Change<Vec<ScheduleEntry>>,
    /// Time zone of the schedule; removed: the host's.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub timezone: Change<String>,
}

impl ObjectiveChange {
    /// Returns true if every part stays as it is.
    pub fn is_empty(&self) -> bool {
        *self == ObjectiveChange::default()
    }
}

/// Change of a [`LimitView`](crate::objective::LimitView).
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitChange {
    /// Maximum rate of reads and writes together.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub total: Change<String>,
    /// Maximum rate of reads.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub read: Change<String>,
    /// Maximum rate of writes.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub write: Change<String>,
    /// Rates above the limit that may be used for a limited time.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<BurstChange>)]
    pub burst: Change<BurstChange>,
}

/// Limit of an [`ObjectiveChange`] as the daemon takes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LimitValue {
    /// Maximum rate of reads and writes together.
    Total(String),
    /// Rates by direction.
    Rates(LimitChange),
}

/// Body of `PATCH /v1/vms/{name}/disks/{export}/limits`: a merge patch of a disk's limits.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskLimitsChange {
    /// Limit of the disk, beside that of its VM.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<LimitValue>)]
    pub limit: Change<LimitValue>,
    /// Name of a `[[device.limit_group]]` whose limit it shares with other disks.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub limit_group: Change<String>,
}

/// Body of `PATCH /v1/devices/{name}/limit_groups/{group}`: a merge patch of a limit that disks
/// share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupLimitChange {
    /// Limit of all disks of the group together.
    #[schema(value_type = Option<LimitValue>)]
    pub limit: Change<LimitValue>,
}

/// Change of a [`BurstView`](crate::objective::BurstView).
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstChange {
    /// Rate of reads and writes together.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub total: Change<String>,
    /// Rate of reads.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub read: Change<String>,
    /// Rate of writes.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub write: Change<String>,
    /// Longest time for which these rates may be used.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub length: Change<String>,
}

/// Change of a [`GroupView`](crate::objective::GroupView).
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupChange {
    /// Name of the group.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub name: Change<String>,
    /// Weight of the group, 1 to 10000.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u32>)]
    pub weight: Change<u32>,
}

/// Change of an [`ExpectsView`](crate::objective::ExpectsView).
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectsChange {
    /// Reads among the requests: `70 %`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub reads: Change<String>,
    /// Access pattern: `random`, `sequential` or `40 % sequential`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub access: Change<String>,
    /// Size of a request: `16 KiB`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>)]
    pub size: Change<String>,
    /// Request rate per second up to which a latency bound is promised.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u64>)]
    pub iops: Change<u64>,
    /// Requests that may arrive at once within the rate `iops`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u32>)]
    pub burst: Change<u32>,
}

/// Entry of a schedule, and body of `POST /v1/vms/{name}/schedule`: a time, and the parts of the
/// objective that differ then.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ScheduleEntry {
    /// Date and time of an entry that holds once: `2026-12-01T18:00`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Time of day at which a recurring entry begins; midnight where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Time of day, or date and time, at which the entry ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Days of the week, `mon` to `sun`, on which the entry begins; every day where empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// Applies the entry even if it does not fit the device at its time.
    #[serde(skip_serializing_if = "is_false")]
    pub force: bool,
    /// Parts of the objective while the entry holds. `timezone` among them applies to the whole
    /// schedule and is allowed in requests only; `schedule` is refused.
    #[serde(flatten)]
    pub parts: ObjectiveChange,
    /// Further keys as typed; the daemon refuses those that it does not know. Without this field
    /// serde would drop them, because it cannot deny unknown keys beside a flattened field.
    #[serde(flatten)]
    #[schema(ignore)]
    pub other: BTreeMap<String, Value>,
}

/// Returns true for a flag that is omitted from the JSON; takes a reference as serde requires.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn absent_parts_are_kept_null_removes_and_values_replace() {
        assert!(ObjectiveChange::default().is_empty());
        round_trip(&ObjectiveChange::default(), "{}");
        let change = ObjectiveChange {
            reservation: text("120 IOPS").into(),
            limit: Change::Set(LimitChange {
                total: text("500 IOPS").into(),
                burst: Change::Remove,
                ..LimitChange::default()
            }),
            weight: Change::Set(7),
            latency: Change::Remove,
            ..ObjectiveChange::default()
        };
        assert!(!change.is_empty());
        let head = r#"{"reservation":"120 IOPS","limit":{"total":"500 IOPS","burst":null},"#;
        round_trip(&change, &format!(r#"{head}"weight":7,"latency":null}}"#));
        let group = ObjectiveChange {
            group: Change::Set(GroupChange {
                name: Change::Keep,
                weight: Change::Set(200),
            }),
            expects: Change::Set(ExpectsChange {
                access: text("random").into(),
                ..ExpectsChange::default()
            }),
            schedule: Change::Remove,
            timezone: text("UTC").into(),
            ..ObjectiveChange::default()
        };
        let head = r#"{"group":{"weight":200},"expects":{"access":"random"},"#;
        round_trip(
            &group,
            &format!(r#"{head}"schedule":null,"timezone":"UTC"}}"#),
        );
    }

    #[test]
    fn misspelt_parts_are_refused() {
        refuses_unknown::<ObjectiveChange>(r#"{"limt":null}"#, "limt");
        refuses_unknown::<ObjectiveChange>(r#"{"limit":{"reads":"5 MB/s"}}"#, "reads");
        refuses_unknown::<ObjectiveChange>(r#"{"limit":{"burst":{"lenght":"5 s"}}}"#, "lenght");
        refuses_unknown::<ObjectiveChange>(r#"{"group":{"title":"servers"}}"#, "title");
        refuses_unknown::<ObjectiveChange>(r#"{"expects":{"writes":"70 %"}}"#, "writes");
    }

    #[test]
    fn schedule_entries_have_times_beside_parts_and_retain_unknown_keys() {
        let evening = ScheduleEntry {
            from: Some("18:00".to_owned()),
            until: Some("23:00".to_owned()),
            days: vec!["mon".to_owned()],
            force: true,
            parts: ObjectiveChange {
                target: Change::Set("50 MB/s".to_owned()),
                limit: Change::Remove,
                ..ObjectiveChange::default()
            },
            ..ScheduleEntry::default()
        };
        let time = r#"{"from":"18:00","until":"23:00","days":["mon"],"force":true,"#;
        round_trip(
            &evening,
            &format!(r#"{time}"limit":null,"target":"50 MB/s"}}"#),
        );
        let once = ScheduleEntry {
            at: Some("2026-12-01T18:00".to_owned()),
            ..ScheduleEntry::default()
        };
        round_trip(&once, r#"{"at":"2026-12-01T18:00"}"#);
        let misspelt = ScheduleEntry {
            other: BTreeMap::from([("form".to_owned(), Value::from("18:00"))]),
            ..ScheduleEntry::default()
        };
        round_trip(&misspelt, r#"{"form":"18:00"}"#);
    }

    #[test]
    fn a_kept_part_is_never_serialized_as_its_removal() {
        assert!(serde_json::to_string(&Change::<u32>::Keep).is_err());
        assert_eq!(
            serde_json::to_string(&Change::<u32>::Remove).expect("plain data"),
            "null"
        );
    }
}
