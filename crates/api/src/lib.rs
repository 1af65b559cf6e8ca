//! Requests and answers of Tidegate's control API: HTTP/1.1 and JSON on a unix socket.
//!
//! The daemon answers with these types and the command line reads them; a program of its own can
//! do the same. `docs/api.md` says what each request does, this crate what its JSON looks like.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/devices` | | list of [`DeviceView`] |
//! | `GET /v1/devices/{name}` | | [`DeviceView`] |
//! | `PUT /v1/devices/{name}/policy` | [`PolicyRequest`], or a name | [`DeviceView`] |
//! | `GET /v1/vms` | | list of [`VmView`] |
//! | `GET /v1/vms/{name}` | | [`VmView`] |
//! | `PUT /v1/vms/{name}` | [`VmRequest`] | [`VmView`] |
//! | `DELETE /v1/vms/{name}` | | [`Removed`] |
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
//! | `GET /v1/policies` | | list of [`PolicyInfoView`] |
//! | `GET /v1/policies/{name}` | | [`PolicyInfoView`] |
//! | `GET /v1/stats` | | [`StatsView`] |
//! | `GET /healthz` | | [`Health`] |
//! | any, with a status of 400 or more | | [`ErrorBody`] |
//!
//! `GET` and `PUT /v1/vms/{name}/learnt` carry a file that only the daemon reads, `GET /metrics`
//! Prometheus text; neither is here. The types of [`query`] are what may stand behind `?`.
//!
//! Figures carry their unit in their name: `_ns` nanoseconds, `_s` seconds, `_bytes` bytes,
//! `_percent` per cent. Rates, sizes and times that were configured are text with units, exactly as
//! the configuration takes them: what was read can be written back.
//!
//! # Compatibility
//!
//! Within `/v1` answers may gain fields and none is removed, so every type of an answer ignores
//! fields that it does not know, and has a default for those that earlier daemons do not send. The
//! daemon refuses requests with fields that it does not know.
//!
//! [`DeviceView`]: device::DeviceView
//! [`PolicyRequest`]: policy::PolicyRequest
//! [`VmView`]: vm::VmView
//! [`VmRequest`]: vm::VmRequest
//! [`Removed`]: vm::Removed
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
//! [`Health`]: health::Health
//! [`ErrorBody`]: error::ErrorBody

pub mod attainment;
pub mod change;
pub mod device;
pub mod disk;
pub mod error;
pub mod fault;
pub mod health;
pub mod objective;
pub mod policy;
pub mod query;
pub mod schedule;
pub mod stats;
pub mod transfer;
pub mod tuning;
pub mod vm;

#[cfg(test)]
mod test_json {
    use std::fmt::Debug;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    /// Asserts that a value is written as this text, and read back from it.
    pub(crate) fn round_trip<T>(value: &T, text: &str)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        assert_eq!(serde_json::to_string(value).expect("plain data"), text);
        let read: T = serde_json::from_str(text).expect("as it was written");
        assert_eq!(read, *value);
    }

    /// Asserts that a request with a field that its type does not know is refused by name.
    pub(crate) fn refuses_unknown<T: DeserializeOwned + Debug>(text: &str) {
        let error = serde_json::from_str::<T>(text).expect_err("it names an unknown field");
        assert!(error.to_string().contains("unknown field"), "{error}");
    }
}
