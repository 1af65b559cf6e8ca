//! Disks of a VM.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::change::LimitValue;
use crate::fault::FaultRequest;
use crate::objective::LimitView;

/// Disk of a VM at the time of the answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskView {
    /// NBD export name.
    pub export: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Reason why the disk refuses requests; `null` while the disk is healthy.
    pub failed: Option<String>,
    /// Reason why the server that has the disk's bytes cannot be reached, while requests wait for
    /// it; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// State of a disk that this daemon does not serve now, because its guest is on its way here or
    /// has migrated; absent while the disk is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<Inactive>,
    /// Age of the disk's oldest I/O in flight in nanoseconds; absent while none is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_io_ns: Option<u64>,
    /// Nanoseconds since an I/O of the disk last completed, while the disk hangs; absent otherwise.
    /// A hung disk gets one I/O at a time, and other disks go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hung_for_ns: Option<u64>,
    /// Limit of the disk, beside that of its VM; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitView>,
    /// Name of the limit that it shares with other disks of its device; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_group: Option<String>,
    /// Number of fault rules in force.
    #[serde(default)]
    pub fault_rules: u32,
    /// Requests into which a fault was injected since the daemon started, by rules in force and by
    /// removed ones.
    #[serde(default)]
    pub faults_injected: u64,
}

/// State of a disk that a daemon has open, but does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Inactive {
    /// The disk waits for a guest to arrive.
    Incoming,
    /// The guest has gone to another host.
    HandedOver,
    /// Another process had locked the file when the daemon started.
    LockedElsewhere,
}

impl Inactive {
    /// Returns the notice that `vm show` has for a disk in this state.
    pub fn notice(self) -> &'static str {
        match self {
            Inactive::Incoming => {
                "incoming: its file is not locked, and is served once a guest runs here"
            }
            Inactive::HandedOver => "handed over with its guest: another host may have its file",
            Inactive::LockedElsewhere => {
                "not served: another process had locked its file when the daemon started; it is \
                 served once a guest runs here by vhost-user, or after a restart of the daemon \
                 once no other host uses the file"
            }
        }
    }
}

/// Returns the notice of a disk that hangs, as `vm show`, `/healthz` and the log word it;
/// `silence` is the formatted time since an I/O of the disk last completed.
pub fn hang_notice(silence: &str) -> String {
    format!("hangs: no I/O completed for {silence}; it gets one I/O at a time, other disks go on")
}

/// Body of `PUT /v1/vms/{name}/disks/{export}`, and disk of a [`VmRequest`](crate::vm::VmRequest):
/// a `[[vm.disk]]` of the configuration.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DiskRequest {
    /// NBD export name; the VM's name where left out for the only disk of a VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Path of the disk's file, relative to the daemon's configuration file; absent on devices that
    /// keep disks in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size of the disk: `20 GiB`; the size of its file where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Creation of a missing file: `no`, `sparse` or `preallocated`; default: `no`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<String>,
    /// Format of the file: `raw`, the only one that is served; where left out, a file that looks
    /// like an image of another format is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Exports the disk read-only; default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Waits for a guest that migrates here, whose other host has the file; default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming: Option<bool>,
    /// Logical block size, to which requests are aligned: `1 B`, `512 B` or `4 KiB`; default:
    /// `512 B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<String>,
    /// Limit of the disk, beside that of its VM; default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitValue>,
    /// Name of a `[[device.limit_group]]` whose limit it shares with other disks; default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_group: Option<String>,
    /// Fault rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fault: Vec<FaultRequest>,
    /// Further keys as typed; the daemon refuses those that it does not know.
    #[serde(flatten)]
    #[schema(ignore)]
    pub other: BTreeMap<String, Value>,
}

/// Body of `PATCH /v1/vms/{name}/disks/{export}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeRequest {
    /// New size of the disk: `40 GiB`.
    pub size: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    #[test]
    fn optional_disk_fields_are_absent() {
        let mut disk = DiskView {
            export: "oltp".to_owned(),
            size_bytes: 1 << 30,
            failed: None,
            unreachable: None,
            inactive: None,
            oldest_io_ns: None,
            hung_for_ns: None,
            limit: None,
            limit_group: None,
            fault_rules: 0,
            faults_injected: 0,
        };
        let head = r#"{"export":"oltp","size_bytes":1073741824,"#;
        let rules = r#""fault_rules":0,"faults_injected":0}"#;
        round_trip(&disk, &format!(r#"{head}"failed":null,{rules}"#));
        // Daemons without fault rules.
        let early = r#"{"export":"oltp","size_bytes":1073741824,"failed":null}"#;
        let early: DiskView = serde_json::from_str(early).expect("complete");
        assert_eq!(early, disk);
        disk.failed = Some("fsync: EIO".to_owned());
        disk.unreachable = Some("no server".to_owned());
        disk.inactive = Some(Inactive::HandedOver);
        disk.oldest_io_ns = Some(11);
        disk.hung_for_ns = Some(6);
        let state = concat!(
            r#""failed":"fsync: EIO","unreachable":"no server","inactive":"handed_over","#,
            r#""oldest_io_ns":11,"hung_for_ns":6,"#
        );
        round_trip(&disk, &format!("{head}{state}{rules}"));
    }

    #[test]
    fn disk_requests_have_the_keys_of_the_configuration() {
        let text = |text: &str| Some(text.to_owned());
        let mut disk = DiskRequest {
            export: text("logs"),
            path: text("/vm/logs.raw"),
            size: text("20 GiB"),
            create: text("sparse"),
            format: text("raw"),
            read_only: Some(false),
            incoming: Some(true),
            block_size: text("4 KiB"),
            limit: Some(LimitValue::Total("500 IOPS".to_owned())),
            limit_group: text("logs"),
            fault: vec![FaultRequest {
                error: text("EIO"),
                ..FaultRequest::default()
            }],
            other: BTreeMap::new(),
        };
        let place = r#"{"export":"logs","path":"/vm/logs.raw","size":"20 GiB","create":"sparse","#;
        let form = r#""format":"raw","read_only":false,"incoming":true,"block_size":"4 KiB","#;
        let limits = r#""limit":"500 IOPS","limit_group":"logs","#;
        let fault = &format!(r#"{limits}"fault":[{{"error":"EIO"}}]"#);
        round_trip(&disk, &format!("{place}{form}{fault}}}"));
        disk.other.insert("colour".to_owned(), "red".into());
        round_trip(&disk, &format!(r#"{place}{form}{fault},"colour":"red"}}"#));
        round_trip(&DiskRequest::default(), "{}");
        let size = SizeRequest {
            size: "40 GiB".to_owned(),
        };
        round_trip(&size, r#"{"size":"40 GiB"}"#);
        refuses_unknown::<SizeRequest>(r#"{"size":"40 GiB","sice":"40 GiB"}"#, "sice");
    }
}
