//! Deadline transfers: amounts of data that VMs are to move by a deadline. Paths and fields of
//! `/v1` use the older name `job`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::PlacementClaim;

/// Deadline transfers of a VM.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VmTransfersView {
    /// Name of the VM.
    pub vm: String,
    /// Name of its device.
    pub device: String,
    /// Name of the policy in force on the device.
    pub policy: String,
    /// Running transfer; absent where none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "job")]
    pub transfer: Option<TransferView>,
    /// Transfer that ended last; absent where none has ended since the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EndedTransferView>,
    /// Transfers that have ended since the daemon started.
    pub ended: EndedTransfersView,
}

/// Running deadline transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransferView {
    /// Bytes to read and write in total.
    pub size_bytes: u64,
    /// Bytes read and written so far.
    pub moved_bytes: u64,
    /// Bytes a second that the VM moved over the last interval; absent before the first ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// Time at which the transfer began, in the host's time zone; unique among the VM's transfers.
    pub begun: String,
    /// Deadline, in the host's time zone.
    pub due: String,
    /// Seconds until the deadline; negative after the deadline.
    pub due_in_s: f64,
    /// Forecast end at the present bandwidth; absent: never, or not yet known.
    #[serde(rename = "done", default, skip_serializing_if = "Option::is_none")]
    pub forecast_end: Option<String>,
    /// Seconds until `forecast_end`; absent where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_in_s: Option<f64>,
    /// Seconds from `forecast_end` to the deadline; negative: late; absent where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_s: Option<f64>,
    /// I/O priority class of the VM at present: `realtime`, `best-effort` or `idle`.
    pub class: String,
    /// True if the policy in force enforces deadlines, as far as the device can meet them.
    pub enforced: bool,
    /// True if the scheduler has stopped favouring the transfer, because its deadline cannot be met
    /// at present even with all other VMs slowed down.
    pub given_up: bool,
    /// True if the transfer would meet its deadline alone on the idle device.
    pub possible: bool,
    /// Shortest duration in seconds, with the whole device for the transfer; absent where the
    /// device's throughput is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_deadline_s: Option<f64>,
    /// Forecast for people: `done at 14:03:10, 40 s early`.
    pub forecast: String,
    /// Notes for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Ended deadline transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EndedTransferView {
    /// Bytes to read and write in total.
    pub size_bytes: u64,
    /// Bytes that had been read and written when the transfer ended.
    pub moved_bytes: u64,
    /// Time at which the transfer began, in the host's time zone.
    pub begun: String,
    /// Deadline, in the host's time zone.
    pub due: String,
    /// Time at which the transfer ended, in the host's time zone.
    pub ended: String,
    /// Seconds from the end to the deadline; negative: late.
    pub early_s: f64,
    /// `met`, `missed` or `cancelled`.
    pub outcome: String,
    /// Result for people: `met at 14:03:10, 40 s early`.
    #[serde(rename = "said")]
    pub result: String,
}

/// Numbers of ended deadline transfers by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct EndedTransfersView {
    /// Transfers done by their deadlines.
    pub met: u64,
    /// Transfers done after their deadlines.
    pub missed: u64,
    /// Transfers cancelled before they were done.
    pub cancelled: u64,
}

/// Body of `PUT /v1/vms/{name}/job`. Exactly one of `deadline`, `by` and `tolerance` is required.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// Bytes to read and write in total: `2 GiB`.
    pub size: String,
    /// Time from now to the deadline: `60 s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Deadline as a time of day or date: `14:03`, `2026-12-01T06:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Extra time allowed, as a fraction of the shortest possible duration: 0.3 is 30 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Placement by a cluster, which is checked before the transfer begins; absent for a transfer
    /// that no cluster has placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementClaim>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    fn running() -> TransferView {
        TransferView {
            size_bytes: 2_000_000_000,
            moved_bytes: 0,
            bytes_per_s: None,
            begun: "2026-11-22T13:00:00+01:00[Europe/Berlin]".to_owned(),
            due: "2026-11-22T13:01:00+01:00[Europe/Berlin]".to_owned(),
            due_in_s: 60.0,
            forecast_end: None,
            done_in_s: None,
            early_s: None,
            class: "best-effort".to_owned(),
            enforced: false,
            given_up: false,
            possible: true,
            least_deadline_s: None,
            forecast: "not known".to_owned(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn unknown_forecasts_of_a_transfer_are_absent() {
        let times = r#""begun":"2026-11-22T13:00:00+01:00[Europe/Berlin]","#;
        let due = r#""due":"2026-11-22T13:01:00+01:00[Europe/Berlin]","due_in_s":60.0,"#;
        let state = r#""class":"best-effort","enforced":false,"given_up":false,"possible":true,"#;
        let text = r#""forecast":"not known"}"#;
        let bytes = r#"{"size_bytes":2000000000,"moved_bytes":0,"#;
        round_trip(&running(), &format!("{bytes}{times}{due}{state}{text}"));
        let known = TransferView {
            bytes_per_s: Some(50_000_000),
            forecast_end: Some("2026-11-22T13:00:40+01:00[Europe/Berlin]".to_owned()),
            done_in_s: Some(40.0),
            early_s: Some(20.125),
            least_deadline_s: Some(20.0),
            notes: vec!["it is past its deadline".to_owned()],
            ..running()
        };
        let rate = r#""bytes_per_s":50000000,"#;
        let done = r#""done":"2026-11-22T13:00:40+01:00[Europe/Berlin]","done_in_s":40.0,"#;
        let early = r#""early_s":20.125,"#;
        let text = r#""least_deadline_s":20.0,"forecast":"not known","notes":["#;
        let notes = r#""it is past its deadline"]}"#;
        let head = format!("{bytes}{rate}{times}{due}{done}{early}");
        round_trip(&known, &format!("{head}{state}{text}{notes}"));
    }

    #[test]
    fn transfers_of_a_vm_are_the_running_one_the_last_one_and_counts() {
        let mut vm = VmTransfersView {
            vm: "oltp".to_owned(),
            device: "disk0".to_owned(),
            policy: "pridyn".to_owned(),
            transfer: None,
            last: None,
            ended: EndedTransfersView::default(),
        };
        let head = r#"{"vm":"oltp","device":"disk0","policy":"pridyn","#;
        let none = r#""ended":{"met":0,"missed":0,"cancelled":0}}"#;
        round_trip(&vm, &format!("{head}{none}"));
        vm.last = Some(EndedTransferView {
            size_bytes: 2,
            moved_bytes: 1,
            begun: "a".to_owned(),
            due: "b".to_owned(),
            ended: "c".to_owned(),
            early_s: -5.0,
            outcome: "missed".to_owned(),
            result: "missed by 5 s".to_owned(),
        });
        let last = r#""last":{"size_bytes":2,"moved_bytes":1,"begun":"a","due":"b","ended":"c","#;
        let result = r#""early_s":-5.0,"outcome":"missed","said":"missed by 5 s"},"#;
        round_trip(&vm, &format!("{head}{last}{result}{none}"));
        vm.transfer = Some(running());
        let job = serde_json::to_string(&running()).expect("plain data");
        round_trip(&vm, &format!(r#"{head}"job":{job},{last}{result}{none}"#));
    }

    #[test]
    fn requests_have_one_form_of_deadline_and_refuse_unknown_keys() {
        let mut request = TransferRequest {
            size: "2 GiB".to_owned(),
            tolerance: Some(0.3),
            ..TransferRequest::default()
        };
        round_trip(&request, r#"{"size":"2 GiB","tolerance":0.3}"#);
        (request.tolerance, request.by) = (None, Some("14:03".to_owned()));
        round_trip(&request, r#"{"size":"2 GiB","by":"14:03"}"#);
        (request.by, request.deadline) = (None, Some("60 s".to_owned()));
        round_trip(&request, r#"{"size":"2 GiB","deadline":"60 s"}"#);
        refuses_unknown::<TransferRequest>(r#"{"size":"2 GiB","dedline":"60 s"}"#, "dedline");
    }
}
