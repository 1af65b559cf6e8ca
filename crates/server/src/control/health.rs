//! `/healthz`: whether the daemon goes on, and every reason for somebody to look at it.
//!
//! One [`Reason`] a cause. A reason of one disk, one VM or one medium never makes the daemon as a whole
//! unhealthy: a supervisor that restarted it would take every other VM down with that one. The HTTP status is
//! 503 only where the daemon itself cannot go on ([`Severity::Failing`]).

use serde::{Deserialize, Serialize};
use tidegate_core::engine::SILENCE_WITHOUT_DATA;
use tidegate_core::time::Nanos;

use super::error::ApiError;
use crate::command::{DeviceSnapshot, DiskSnapshot, VmSnapshot};

/// Age from which on an I/O with the device is a reason of its own, whatever others do: twice what a lone flush
/// is given before its disk is taken to hang.
const OLD_IO: Nanos = Nanos(2 * SILENCE_WITHOUT_DATA.0);

/// The answer of `/healthz`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, `degraded` or `failing`.
    pub status: Severity,
    /// The reasons as sentences that name their subject.
    pub problems: Vec<String>,
    /// The reasons for programs, in the same order.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// A part is not served as it should be; the daemon goes on.
    Degraded,
    /// The daemon itself cannot go on.
    Failing,
}

/// The kind of a [`Reason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// A persisted VM could not be served after a restart.
    VmNotServed,
    /// The event loop of a device does not answer.
    LoopSilent,
    /// A disk refuses requests after a failed fsync.
    DiskFailed,
    /// No I/O of a disk ends while the device goes on for others.
    DiskHung,
    /// An I/O of a disk has been with the device for ten seconds or longer.
    OldIo,
}

impl ReasonKind {
    /// How bad a reason of this kind is.
    pub fn severity(self) -> Severity {
        match self {
            ReasonKind::LoopSilent => Severity::Failing,
            ReasonKind::VmNotServed
            | ReasonKind::DiskFailed
            | ReasonKind::DiskHung
            | ReasonKind::OldIo => Severity::Degraded,
        }
    }
}

/// A cause for the daemon to be less than healthy, and what it is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// What went wrong.
    pub kind: ReasonKind,
    /// The device concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The VM concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// The disk concerned, by its NBD export name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// An explanation for people, without the subject.
    pub what: String,
}

impl Reason {
    /// Returns the reason why a persisted VM is not served.
    pub(crate) fn not_served(vm: &str, why: &str) -> Reason {
        Reason {
            kind: ReasonKind::VmNotServed,
            device: None,
            vm: Some(vm.to_owned()),
            export: None,
            what: format!("is kept and not served: {why}"),
        }
    }

    /// Returns the reason that a device's loop gave no snapshot.
    pub(super) fn silent(device: &str, error: &ApiError) -> Reason {
        Reason {
            kind: ReasonKind::LoopSilent,
            device: Some(device.to_owned()),
            vm: None,
            export: None,
            what: error.body.error.what.clone(),
        }
    }

    /// Returns every reason that a device's snapshot gives, in the order of its VMs and their disks.
    pub(super) fn of_device(device: &DeviceSnapshot) -> Vec<Reason> {
        let disks = device
            .vms
            .iter()
            .flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
        disks
            .flat_map(|(vm, disk)| Reason::of_disk(vm, disk))
            .collect()
    }

    fn of_disk(vm: &VmSnapshot, disk: &DiskSnapshot) -> Vec<Reason> {
        let reason = |kind, what| Reason {
            kind,
            device: Some(vm.device.clone()),
            vm: Some(vm.name.clone()),
            export: Some(disk.export.clone()),
            what,
        };
        let failed = disk.failed.clone();
        let failed = failed.map(|why| reason(ReasonKind::DiskFailed, why));
        let seconds = |age: Nanos| age.0 / Nanos::SECOND.0;
        let late = match (disk.hung, disk.oldest_io) {
            (Some(silence), _) => {
                let silence = seconds(silence);
                let what =
                    format!("hangs: no I/O of it has ended for {silence} s, and others go on");
                Some(reason(ReasonKind::DiskHung, what))
            }
            (None, Some(age)) if age >= OLD_IO => {
                let what = format!("an I/O has been with the device for {} s", seconds(age));
                Some(reason(ReasonKind::OldIo, what))
            }
            _ => None,
        };
        failed.into_iter().chain(late).collect()
    }

    /// Returns the reason as a sentence that names its subject.
    fn sentence(&self) -> String {
        let what = &self.what;
        match (&self.device, &self.vm, &self.export) {
            (_, Some(vm), Some(export)) => format!("vm {vm}, export {export}: {what}"),
            (_, Some(vm), None) => format!("vm {vm} {what}"),
            (Some(device), None, _) => format!("device {device}: {what}"),
            (None, None, _) => what.clone(),
        }
    }
}

impl Health {
    /// Returns the verdict on these reasons: the worst of them.
    pub(super) fn new(reasons: Vec<Reason>) -> Health {
        let severities = reasons.iter().map(|reason| reason.kind.severity());
        Health {
            status: severities.max().unwrap_or(Severity::Ok),
            problems: reasons.iter().map(Reason::sentence).collect(),
            reasons,
        }
    }
}
