//! Health of the daemon.
//!
//! A reason that concerns one disk, VM or medium never makes the whole daemon unhealthy: a
//! supervisor that restarted the daemon would take down every other VM. The HTTP status is 503 only
//! if the daemon itself cannot go on ([`Severity::Failing`]). A silent event loop is such a case,
//! although it serves one device: only a restart recovers it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::MembershipView;

/// Body of the answer to `GET /healthz`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Worst severity of all reasons: `ok`, `degraded` or `failing`.
    pub status: Severity,
    /// Reasons as sentences that name their subject, for people.
    pub problems: Vec<String>,
    /// Reasons with their kind and subject, for programs; in the same order as `problems`.
    #[serde(default)]
    pub reasons: Vec<Reason>,
    /// Version of the daemon; absent from daemons without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Seconds since the daemon started; absent from daemons without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_s: Option<u64>,
}

/// Body of the answer to `GET /readyz`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// True if the daemon accepts changes, such as new VMs, and all its devices answer.
    pub ready: bool,
    /// Reasons why it is not ready, for people; empty if it is.
    pub problems: Vec<String>,
    /// Membership in a cluster, which does not change `ready`; absent from one that joins none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<MembershipView>,
}

/// Severity of a [`Reason`], and of the daemon as a whole; ordered from good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Some disk or VM is not served properly; the daemon serves all others.
    Degraded,
    /// The daemon itself cannot go on.
    Failing,
}

/// Kind of a [`Reason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// A persisted VM could not be served after a restart.
    VmNotServed,
    /// The event loop of a device does not answer.
    LoopSilent,
    /// A disk refuses requests, after a failed fsync or because its server may have lost data.
    DiskFailed,
    /// A change of a disk found no space in the last ten minutes, as on a full file system.
    DiskFull,
    /// The server that has the bytes of a disk cannot be reached; requests wait.
    DiskUnreachable,
    /// No I/O of a disk completes while the device completes I/Os of other disks.
    DiskHung,
    /// Another process had the lock of a disk's file when the daemon started, so that the disk is
    /// not served.
    DiskLocked,
    /// An I/O of a disk has been in flight for at least 10 s (`OLD_IO` of the server).
    OldIo,
    /// The history cannot be written to its directory; it goes on in memory.
    HistoryFailed,
    /// The daemon joins a cluster and is not registered there: it takes no starts of placers, and
    /// serves its VMs as before.
    NotInCluster,
    /// Other hosts that share the device are not heard; each holds to its entitlement.
    HostSilent,
}

impl ReasonKind {
    /// Returns the severity of a reason of this kind.
    pub fn severity(self) -> Severity {
        match self {
            ReasonKind::LoopSilent => Severity::Failing,
            ReasonKind::VmNotServed
            | ReasonKind::DiskFailed
            | ReasonKind::DiskFull
            | ReasonKind::DiskUnreachable
            | ReasonKind::DiskHung
            | ReasonKind::DiskLocked
            | ReasonKind::OldIo
            | ReasonKind::HistoryFailed
            | ReasonKind::NotInCluster
            | ReasonKind::HostSilent => Severity::Degraded,
        }
    }
}

/// Cause that makes the daemon less than healthy, and its subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// Kind of the cause.
    pub kind: ReasonKind,
    /// Name of the device concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Name of the VM concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// NBD export name of the disk concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Explanation for people, without the subject.
    #[serde(rename = "what")]
    pub explanation: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn reasons_omit_absent_subjects() {
        let silent = Reason {
            kind: ReasonKind::LoopSilent,
            device: Some("disk0".to_owned()),
            vm: None,
            export: None,
            explanation: "no answer".to_owned(),
        };
        let health = Health {
            status: silent.kind.severity(),
            problems: vec!["device disk0: no answer".to_owned()],
            reasons: vec![silent],
            version: Some("0.1.0".to_owned()),
            uptime_s: Some(7),
        };
        let text = r#"{"status":"failing","problems":["device disk0: no answer"],"reasons":[{"#;
        let reason = r#""kind":"loop_silent","device":"disk0","what":"no answer"}],"#;
        let daemon = r#""version":"0.1.0","uptime_s":7}"#;
        round_trip(&health, &format!("{text}{reason}{daemon}"));
        let early: Health = serde_json::from_str(r#"{"status":"ok","problems":[]}"#)
            .expect("daemons that give no reasons");
        assert_eq!((early.status, early.reasons), (Severity::Ok, Vec::new()));
    }

    #[test]
    fn only_a_silent_loop_makes_the_daemon_fail() {
        assert_eq!(ReasonKind::LoopSilent.severity(), Severity::Failing);
        let degraded = [
            (ReasonKind::VmNotServed, "vm_not_served"),
            (ReasonKind::DiskFailed, "disk_failed"),
            (ReasonKind::DiskFull, "disk_full"),
            (ReasonKind::DiskUnreachable, "disk_unreachable"),
            (ReasonKind::DiskHung, "disk_hung"),
            (ReasonKind::DiskLocked, "disk_locked"),
            (ReasonKind::OldIo, "old_io"),
            (ReasonKind::HistoryFailed, "history_failed"),
            (ReasonKind::NotInCluster, "not_in_cluster"),
        ];
        for (kind, name) in degraded {
            round_trip(&kind, &format!("{name:?}"));
            assert_eq!(kind.severity(), Severity::Degraded);
        }
        assert!(Severity::Ok < Severity::Degraded && Severity::Degraded < Severity::Failing);
    }
}
