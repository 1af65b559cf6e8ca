//! Recordings of every request of a device.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `PUT /v1/devices/{name}/recording`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingRequest {
    /// True to record from now on, false to end the recording.
    pub on: bool,
}

/// State of all recordings.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingsView {
    /// Directory of the files; absent if the configuration names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Maximum size of all files in bytes; the oldest are removed first.
    pub max_bytes: u64,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// Devices whose disks are on the storage of the directory, so that recordings are written
    /// beside the I/O of their VMs; looked up when a recording is switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_storage_of: Vec<String>,
    /// Devices in the order of the configuration.
    pub devices: Vec<DeviceRecordingView>,
}

/// Recording of a device.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceRecordingView {
    /// Name of the device.
    pub device: String,
    /// True while its requests are recorded.
    pub on: bool,
    /// Time at which the recording was switched on (RFC 3339); absent while it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Reason why the recording stopped by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Requests recorded since it was switched on.
    pub requests: u64,
    /// Requests since then that are missing, because the recorder could not keep up.
    pub dropped: u64,
    /// Bytes written since then.
    pub written_bytes: u64,
    /// Number of files of this and earlier recordings.
    pub files: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
    /// Beginning of the oldest file (RFC 3339); absent without files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// End of the newest file (RFC 3339); the present while the recording is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl DeviceRecordingView {
    /// Returns the bytes a request since the recording was switched on; `None` without a request.
    pub fn bytes_a_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.written_bytes as f64 / self.requests as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    #[test]
    fn what_a_recording_does_not_have_is_absent() {
        let device = DeviceRecordingView {
            device: "disk0".to_owned(),
            ..DeviceRecordingView::default()
        };
        let of_device = concat!(
            r#"{"device":"disk0","on":false,"requests":0,"dropped":0,"written_bytes":0,"#,
            r#""files":0,"bytes":0}"#
        );
        round_trip(&device, of_device);
        assert_eq!(device.bytes_a_request(), None);
        let all = RecordingsView {
            max_bytes: 7,
            devices: vec![device],
            ..RecordingsView::default()
        };
        let text = format!(r#"{{"max_bytes":7,"bytes":0,"devices":[{of_device}]}}"#);
        round_trip(&all, &text);
    }

    #[test]
    fn a_recording_shows_its_size_a_request() {
        let device = DeviceRecordingView {
            requests: 1000,
            written_bytes: 12_500,
            ..DeviceRecordingView::default()
        };
        assert_eq!(device.bytes_a_request(), Some(12.5));
        round_trip(&RecordingRequest { on: true }, r#"{"on":true}"#);
        refuses_unknown::<RecordingRequest>(r#"{"on":true,"of":1}"#, "of");
    }
}
