//! Requests and answers of Tidegate's control API: HTTP/1.1 and JSON on a unix socket, or on TCP
//! with a token.
//!
//! The daemon answers with these types and the command line reads them; any other client may use
//! them too. `docs/api.md` describes what each request does; this crate defines its JSON.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/devices` | | list of [`DeviceView`] |
//! | `GET /v1/devices/{name}` | | [`DeviceView`] |
//! | `GET /v1/devices/{name}/history` | | [`HistoryView`] |
//! | `GET /v1/devices/{name}/interference` | | [`InterferenceView`] |
//! | `PUT /v1/devices/{name}/policy` | [`PolicyRequest`], or a name | [`DeviceView`] |
//! | `PUT /v1/devices/{name}/recording` | [`RecordingRequest`] | [`RecordingsView`] |
//! | `GET /v1/recordings` | | [`RecordingsView`] |
//! | `POST /v1/whatif` | [`WhatIfRequest`] | [`WhatIfView`] |
//! | `GET /v1/whatif`, `DELETE` | | [`WhatIfView`] |
//! | `GET /v1/events` | | server-sent events with [`LiveView`] |
//! | `GET /v1/vms` | | list of [`VmView`] |
//! | `GET /v1/vms/{name}` | | [`VmView`] |
//! | `PUT /v1/vms/{name}` | [`VmRequest`] | [`VmView`] |
//! | `DELETE /v1/vms/{name}` | | [`Removed`] |
//! | `GET /v1/vms/{name}/endpoints` | | list of [`DiskEndpointsView`] |
//! | `GET /v1/vms/{name}/history` | | [`HistoryView`] |
//! | `GET /v1/vms/{name}/explain` | | [`ExplainView`] |
//! | `GET /v1/history` | | [`HistoryStatusView`] |
//! | `PATCH /v1/vms/{name}/objective` | [`ObjectiveChange`] | [`VmView`] |
//! | `POST /v1/vms/{name}/schedule` | [`ScheduleEntry`] | [`VmView`] |
//! | `DELETE /v1/vms/{name}/schedule`, `.../{number}` | | [`VmView`] |
//! | `PUT /v1/vms/{name}/disks/{export}` | [`DiskRequest`] | [`VmView`] |
//! | `PATCH /v1/vms/{name}/disks/{export}` | [`SizeRequest`] | [`VmView`] |
//! | `DELETE /v1/vms/{name}/disks/{export}` | | [`Removed`] |
//! | `GET /v1/vms/{name}/job`, `DELETE` | | [`VmTransfersView`] |
//! | `PUT /v1/vms/{name}/job` | [`TransferRequest`] | [`VmTransfersView`] |
//! | `GET /v1/jobs` | | list of [`VmTransfersView`] |
//! | `GET /v1/disks/{export}/faults`, `DELETE`, `DELETE .../{number}` | | [`DiskFaultsView`] |
//! | `POST /v1/disks/{export}/faults` | [`FaultRequest`] | [`DiskFaultsView`] |
//! | `DELETE /v1/disks/{export}/known` | | [`Removed`] |
//! | `GET /v1/tokens` | | list of [`TokenView`] |
//! | `POST /v1/tokens` | [`TokenRequest`] | [`NewTokenView`] |
//! | `DELETE /v1/tokens/{name}` | | [`Removed`] |
//! | `GET /v1/policies` | | list of [`PolicyInfoView`] |
//! | `GET /v1/policies/{name}` | | [`PolicyInfoView`] |
//! | `GET /v1/stats` | | [`StatsView`] |
//! | `GET /v1/budget` | | list of [`DeviceBudgetView`] |
//! | `GET /healthz` | | [`Health`] |
//! | `GET /readyz` | | [`Readiness`] |
//! | any, with a status of 400 or more | | [`ErrorBody`] |
//!
//! Not covered: `GET` and `PUT /v1/vms/{name}/learnt` carry a binary file that only the daemon
//! reads, `GET /v1/devices/{name}/recording` a recording, `GET /v1/report` and
//! `GET /v1/whatif/report` pages for a browser, and `GET /metrics` Prometheus text.
//! [`query`] has the parameters behind `?`.
//!
//! Measured figures carry their unit in their name: `_ns` nanoseconds, `_s` seconds, `_bytes`
//! bytes, `_percent` per cent. Configured rates, sizes and times are text with units, spelled as in
//! the configuration, so that a value that was read can be written back.
//!
//! # Compatibility
//!
//! Within `/v1` answers may gain fields and never lose one. Answer types therefore ignore unknown
//! fields and have defaults for fields that older daemons do not send. The daemon refuses requests
//! with unknown fields.
//!
//! [`DeviceView`]: device::DeviceView
//! [`PolicyRequest`]: policy::PolicyRequest
//! [`RecordingRequest`]: recording::RecordingRequest
//! [`RecordingsView`]: recording::RecordingsView
//! [`VmView`]: vm::VmView
//! [`VmRequest`]: vm::VmRequest
//! [`Removed`]: vm::Removed
//! [`TokenView`]: access::TokenView
//! [`TokenRequest`]: access::TokenRequest
//! [`NewTokenView`]: access::NewTokenView
//! [`DiskEndpointsView`]: endpoint::DiskEndpointsView
//! [`ObjectiveChange`]: change::ObjectiveChange
//! [`ScheduleEntry`]: change::ScheduleEntry
//! [`DiskRequest`]: disk::DiskRequest
//! [`SizeRequest`]: disk::SizeRequest
//! [`VmTransfersView`]: transfer::VmTransfersView
//! [`TransferRequest`]: transfer::TransferRequest
//! [`DiskFaultsView`]: fault::DiskFaultsView
//! [`FaultRequest`]: fault::FaultRequest
//! [`PolicyInfoView`]: policy::PolicyInfoView
//! [`StatsView`]: stats::StatsView
//! [`DeviceBudgetView`]: budget::DeviceBudgetView
//! [`Health`]: health::Health
//! [`Readiness`]: health::Readiness
//! [`HistoryView`]: history::HistoryView
//! [`ExplainView`]: explain::ExplainView
//! [`InterferenceView`]: interference::InterferenceView
//! [`LiveView`]: live::LiveView
//! [`HistoryStatusView`]: history::HistoryStatusView
//! [`WhatIfRequest`]: what_if::WhatIfRequest
//! [`WhatIfView`]: what_if::WhatIfView
//! [`ErrorBody`]: error::ErrorBody

pub mod access;
pub mod attainment;
pub mod budget;
pub mod change;
pub mod cluster;
pub mod device;
pub mod disk;
pub mod endpoint;
pub mod error;
pub mod explain;
pub mod fault;
pub mod health;
pub mod history;
pub mod interference;
pub mod live;
pub mod objective;
pub mod policy;
pub mod query;
pub mod recording;
pub mod schedule;
pub mod stats;
pub mod transfer;
pub mod tuning;
pub mod vm;
pub mod what_if;

#[cfg(test)]
mod test_json {
    use std::fmt::Debug;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    /// Asserts that `value` serialises to `text` and deserialises from it.
    pub(crate) fn round_trip<T>(value: &T, text: &str)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        assert_eq!(serde_json::to_string(value).expect("plain data"), text);
        let read: T = serde_json::from_str(text).expect("as it was written");
        assert_eq!(read, *value);
    }

    /// Asserts that `text` is refused because `T` does not know its field `field`.
    pub(crate) fn refuses_unknown<T: DeserializeOwned + Debug>(text: &str, field: &str) {
        let error = serde_json::from_str::<T>(text).expect_err("it has an unknown field");
        let expected = format!("unknown field `{field}`");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
