//! Reasons why the daemon, a disk or a VM is not as it should be.

use serde::{Deserialize, Serialize};
use tidegate_core::engine::SILENCE_WITHOUT_DATA;
use tidegate_core::time::Nanos;

use crate::command::{DeviceSnapshot, DiskSnapshot, VmSnapshot};

/// Age from which an I/O with the device is reported as [`ReasonKind::OldIo`]: twice the time after
/// which a disk with only flushes in flight is taken to hang.
const OLD_IO: Nanos = Nanos(2 * SILENCE_WITHOUT_DATA.0);

/// Severity of a [`Reason`], and of the daemon as a whole; ordered from good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Some disk or VM is not served as it should be; the daemon goes on.
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
    /// Returns the severity of a reason of this kind.
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

/// Cause that makes the daemon less than healthy, and its subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    pub(crate) fn silent(device: &str, why: String) -> Reason {
        Reason {
            kind: ReasonKind::LoopSilent,
            device: Some(device.to_owned()),
            vm: None,
            export: None,
            what: why,
        }
    }

    /// Returns the reasons in a device's snapshot, ordered by VM and disk.
    pub(crate) fn of_device(device: &DeviceSnapshot) -> Vec<Reason> {
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

    /// Returns the reason as a sentence that begins with its subject.
    pub(crate) fn sentence(&self) -> String {
        let what = &self.what;
        match (&self.device, &self.vm, &self.export) {
            (_, Some(vm), Some(export)) => format!("vm {vm}, export {export}: {what}"),
            (_, Some(vm), None) => format!("vm {vm} {what}"),
            (Some(device), None, _) => format!("device {device}: {what}"),
            (None, None, _) => what.clone(),
        }
    }
}
