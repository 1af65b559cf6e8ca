//! Schedules: objectives that change by the clock.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::objective::ObjectiveView;

/// Schedule of a VM, with the entry that is due now and the next change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScheduleView {
    /// IANA time zone of the schedule; `null`: the host's.
    pub timezone: Option<String>,
    /// Present time in the schedule's time zone: `2026-11-22T18:30:00+01:00[Europe/Berlin]`.
    pub now: String,
    /// Objective outside of all entries.
    pub base: ObjectiveView,
    /// Entries as JSON tables with the keys of the configuration; each deserializes as a
    /// [`ScheduleEntry`](crate::change::ScheduleEntry). Kept as values, so that entries of a newer
    /// daemon are shown whole.
    pub entries: Vec<Value>,
    /// Number, from 1, of the entry that is due now; `null`: the base objective is due.
    pub entry: Option<usize>,
    /// Reason why the objective that is due was not applied; absent where it was.
    #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
    pub not_applied_because: Option<String>,
    /// Next change; `null`: no further change is scheduled.
    pub next: Option<NextChangeView>,
}

/// Next change of an objective by its schedule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NextChangeView {
    /// Time of the change in the schedule's time zone.
    pub at: String,
    /// Seconds until the change, rounded up.
    pub in_s: u64,
    /// Number, from 1, of the entry that comes into force; `null`: the base objective does.
    pub entry: Option<usize>,
    /// Whole objective from the change on.
    pub objective: ObjectiveView,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn schedules_have_the_entry_in_force_and_the_next_change() {
        let base = ObjectiveView::default();
        let written = serde_json::to_string(&base).expect("plain data");
        let mut schedule = ScheduleView {
            timezone: None,
            now: "2026-11-22T18:30:00+01:00[Europe/Berlin]".to_owned(),
            base: base.clone(),
            entries: vec![json!({ "from": "18:00", "target": "50 MB/s" })],
            entry: Some(1),
            not_applied_because: None,
            next: None,
        };
        let head = r#"{"timezone":null,"now":"2026-11-22T18:30:00+01:00[Europe/Berlin]","base":"#;
        let entries = r#""entries":[{"from":"18:00","target":"50 MB/s"}],"entry":1"#;
        round_trip(
            &schedule,
            &format!(r#"{head}{written},{entries},"next":null}}"#),
        );
        schedule.not_applied_because = Some("it does not fit".to_owned());
        schedule.next = Some(NextChangeView {
            at: "2026-11-22T23:00:00+01:00[Europe/Berlin]".to_owned(),
            in_s: 16_200,
            entry: None,
            objective: base,
        });
        let next = r#""next":{"at":"2026-11-22T23:00:00+01:00[Europe/Berlin]","in_s":16200"#;
        let tail = format!(r#"{next},"entry":null,"objective":{written}}}}}"#);
        round_trip(
            &schedule,
            &format!(r#"{head}{written},{entries},"held":"it does not fit",{tail}"#),
        );
    }
}
