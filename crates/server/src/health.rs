//! Health report: reasons why the daemon, a disk or a VM is degraded or failing.

use std::time::Duration;

use tidegate_api::cluster::{MembershipState, MembershipView};
use tidegate_api::disk::{Inactive, hang_notice};
use tidegate_api::health::{Health, Readiness, Reason, ReasonKind, Severity};
use tidegate_core::engine::OTHER_SILENCE_TIMEOUT;
use tidegate_core::time::Nanos;
use tidegate_exchange::Presence;
use tidegate_units::human::duration;

use crate::backing::ActivationState;
use crate::command::{DeviceSnapshot, DiskSnapshot, VmSnapshot};
use crate::history::Status;

/// Age from which an I/O with the device is reported as [`ReasonKind::OldIo`]: twice the time after
/// which a disk with only flushes in flight is taken to hang.
const OLD_IO: Nanos = Nanos(2 * OTHER_SILENCE_TIMEOUT.0);

/// Returns the health report of a daemon that has run for `uptime`, with these reasons; its status
/// is the worst severity among them.
pub(crate) fn report(reasons: Vec<Reason>, uptime: Duration) -> Health {
    let severities = reasons.iter().map(|reason| reason.kind.severity());
    Health {
        status: severities.max().unwrap_or(Severity::Ok),
        problems: reasons.iter().map(sentence).collect(),
        reasons,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        uptime_s: Some(uptime.as_secs()),
    }
}

/// Returns whether a daemon with these reasons is ready for changes, which it refuses while another
/// daemon takes over.
///
/// A membership in a cluster is reported beside it: VMs can be added while etcd is away.
pub(crate) fn readiness(
    reasons: &[Reason],
    takeover: bool,
    cluster: Option<MembershipView>,
) -> Readiness {
    let takeover = takeover.then(|| "another daemon is taking over".to_owned());
    let failing = (reasons.iter())
        .filter(|reason| reason.kind.severity() == Severity::Failing)
        .map(sentence);
    let problems: Vec<_> = takeover.into_iter().chain(failing).collect();
    Readiness {
        ready: problems.is_empty(),
        problems,
        cluster,
    }
}

/// Returns the reason why a persisted VM is not served.
pub(crate) fn not_served(vm: &str, why: &str) -> Reason {
    Reason {
        kind: ReasonKind::VmNotServed,
        device: None,
        vm: Some(vm.to_owned()),
        export: None,
        explanation: format!("is in the store but not served: {why}"),
    }
}

/// Returns the reason why the history is not written to its files; `None` if it is, or has none.
pub(crate) fn history_failed(status: Status) -> Option<Reason> {
    // Without the directory: clients of metrics are not to learn paths of the host.
    let why = status.files?.failing?;
    Some(Reason {
        kind: ReasonKind::HistoryFailed,
        device: None,
        vm: None,
        export: None,
        explanation: format!("the history cannot be written: {why}"),
    })
}

/// Returns the reason why a daemon is not registered in its cluster; `None` if it is.
pub(crate) fn not_in_cluster(membership: &MembershipView) -> Option<Reason> {
    if membership.state == MembershipState::Joined {
        return None;
    }
    let MembershipView { host, since, .. } = membership;
    let why = membership.reason.as_deref().unwrap_or_default();
    Some(Reason {
        kind: ReasonKind::NotInCluster,
        device: None,
        vm: None,
        export: None,
        explanation: format!(
            "host {host} is not in the cluster since {since}: {why}; VMs and transfers keep their \
             objectives, new placements wait"
        ),
    })
}

/// Returns the reason for a device whose event loop gave no snapshot.
pub(crate) fn loop_not_answering(device: &str, why: String) -> Reason {
    Reason {
        kind: ReasonKind::LoopSilent,
        device: Some(device.to_owned()),
        vm: None,
        export: None,
        explanation: why,
    }
}

/// Returns the reasons that a device's snapshot shows, ordered by VM and disk.
pub(crate) fn device_reasons(device: &DeviceSnapshot) -> Vec<Reason> {
    let disks = device
        .vms
        .iter()
        .flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
    disks
        .flat_map(|(vm, disk)| disk_reasons(vm, disk))
        .chain(exchange_reason(device))
        .collect()
}

/// Returns the reason for hosts that share the device and are not heard; `None`: all are.
fn exchange_reason(device: &DeviceSnapshot) -> Option<Reason> {
    let exchange = device.exchange.as_ref()?;
    let silent = exchange.peers.iter();
    let silent = silent.filter(|peer| peer.presence == Presence::Silent);
    let silent: Vec<&str> = silent.map(|peer| peer.name.as_str()).collect();
    if silent.is_empty() {
        return None;
    }
    let array = &exchange.array;
    let explanation = if exchange.is_cut_off {
        let why = if exchange.transport.is_connected {
            "no other host is heard"
        } else {
            "the NATS server is away"
        };
        format!("exchange of array {array}: {why}; this host holds to its entitlement")
    } else {
        let hosts = silent.join(", ");
        format!("exchange of array {array}: silent hosts keep their entitlements: {hosts}")
    };
    Some(Reason {
        kind: ReasonKind::HostSilent,
        device: Some(device.name.clone()),
        vm: None,
        export: None,
        explanation,
    })
}

fn disk_reasons(vm: &VmSnapshot, disk: &DiskSnapshot) -> Vec<Reason> {
    let reason = |kind, what| Reason {
        kind,
        device: Some(vm.device.clone()),
        vm: Some(vm.name.clone()),
        export: Some(disk.export.clone()),
        explanation: what,
    };
    let failed = disk.failed.clone();
    let failed = failed.map(|why| reason(ReasonKind::DiskFailed, why));
    let away = disk.unreachable.clone();
    let away = away.map(|why| reason(ReasonKind::DiskUnreachable, why));
    let full = disk.no_space.clone();
    let full = full.map(|why| reason(ReasonKind::DiskFull, why));
    let locked = (disk.activation == Some(ActivationState::LockedElsewhere)).then(|| {
        let what = Inactive::LockedElsewhere.notice().to_owned();
        reason(ReasonKind::DiskLocked, what)
    });
    let seconds = |age: Nanos| age.0 / Nanos::SECOND.0;
    let late = match (disk.hung, disk.oldest_io) {
        // A hung disk has an old I/O as well; it is reported once.
        (Some(silence), _) => {
            let what = hang_notice(&duration(silence.0));
            Some(reason(ReasonKind::DiskHung, what))
        }
        (None, Some(age)) if age >= OLD_IO => {
            let what = format!("an I/O has been with the device for {} s", seconds(age));
            Some(reason(ReasonKind::OldIo, what))
        }
        _ => None,
    };
    let lasting = failed.into_iter().chain(full).chain(away).chain(locked);
    lasting.chain(late).collect()
}

/// Returns a reason as one sentence that begins with the device, VM or export it is about.
fn sentence(reason: &Reason) -> String {
    let what = &reason.explanation;
    match (&reason.device, &reason.vm, &reason.export) {
        (_, Some(vm), Some(export)) => format!("vm {vm}, export {export}: {what}"),
        (_, Some(vm), None) => format!("vm {vm} {what}"),
        (Some(device), None, _) => format!("device {device}: {what}"),
        (None, None, _) => what.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::sample_snapshot::snapshot;
    use crate::exchange::sample_snapshot::exchange;
    use crate::history::FilesState;

    #[test]
    fn a_history_that_cannot_be_written_degrades_the_daemon() {
        let status = |failing: Option<&str>| Status {
            oldest_fine_ms: None,
            oldest_ms: None,
            memory_bytes: 0,
            delayed: 0,
            files: Some(FilesState {
                directory: "/srv/history".into(),
                failing: failing.map(str::to_owned),
                ..FilesState::default()
            }),
        };
        assert_eq!(history_failed(status(None)), None);
        let report = report(
            history_failed(status(Some("no space left")))
                .into_iter()
                .collect(),
            Duration::ZERO,
        );
        assert_eq!(report.status, Severity::Degraded);
        let expected = "the history cannot be written: no space left";
        assert_eq!(report.problems, [expected]);
    }

    #[test]
    fn a_daemon_outside_its_cluster_is_degraded_and_ready() {
        let mut view = MembershipView {
            host: "a".to_owned(),
            state: MembershipState::Joined,
            since: "12:00".to_owned(),
            reason: None,
        };
        assert_eq!(not_in_cluster(&view), None);
        view.state = MembershipState::Lost;
        view.reason = Some("etcd does not answer".to_owned());
        let reasons: Vec<_> = not_in_cluster(&view).into_iter().collect();
        let readiness = readiness(&reasons, false, Some(view.clone()));
        assert!(readiness.ready && readiness.problems.is_empty());
        assert_eq!(readiness.cluster, Some(view));
        let report = report(reasons, Duration::ZERO);
        assert_eq!(report.status, Severity::Degraded);
        let problem = &report.problems[0];
        assert!(
            problem.contains("since 12:00: etcd does not answer"),
            "{problem}"
        );
    }

    #[test]
    fn a_full_file_system_degrades_a_disk_beside_other_reasons() {
        let mut device = snapshot("disk0", &["a"]);
        device.vms[0].disks[0].no_space = Some("a change found no space".to_owned());
        let kinds = |device: &DeviceSnapshot| -> Vec<ReasonKind> {
            device_reasons(device).iter().map(|it| it.kind).collect()
        };
        assert_eq!(kinds(&device), [ReasonKind::DiskFull]);
        device.vms[0].disks[0].failed = Some("flush failed".to_owned());
        assert_eq!(
            kinds(&device),
            [ReasonKind::DiskFailed, ReasonKind::DiskFull]
        );
    }

    #[test]
    fn a_disk_is_degraded_while_another_process_has_locked_it_and_not_as_it_migrates() {
        let mut device = snapshot("ssd", &["web", "db"]);
        let states = [
            ActivationState::Active,
            ActivationState::Incoming,
            ActivationState::HandedOver,
        ];
        for state in states {
            device.vms[1].disks[0].activation = Some(state);
            assert_eq!(
                report(device_reasons(&device), Duration::ZERO).status,
                Severity::Ok
            );
        }
        device.vms[1].disks[0].activation = Some(ActivationState::LockedElsewhere);
        let reasons = device_reasons(&device);
        let [reason] = &reasons[..] else {
            panic!("one reason: {reasons:?}");
        };
        assert_eq!(reason.kind, ReasonKind::DiskLocked);
        assert_eq!(reason.export.as_deref(), Some("db"));
        let report = report(reasons, Duration::from_secs(90));
        assert_eq!(
            (report.status, report.uptime_s),
            (Severity::Degraded, Some(90))
        );
        let problem = &report.problems[0];
        assert!(problem.starts_with("vm db, export db: not served: another process"));
    }

    #[test]
    fn silent_hosts_degrade_the_daemon_and_are_named() {
        let mut device = snapshot("ssd", &["web"]);
        let mut exchange = exchange();
        device.exchange = Some(exchange.clone());
        assert_eq!(device_reasons(&device), []);
        exchange.peers[1].presence = Presence::Silent;
        device.exchange = Some(exchange.clone());
        let silent = report(device_reasons(&device), Duration::ZERO);
        assert_eq!(silent.status, Severity::Degraded);
        let expected = "device ssd: exchange of array san: silent hosts keep their entitlements: c";
        assert_eq!(silent.problems, [expected]);
        exchange.is_cut_off = true;
        exchange.transport.is_connected = false;
        device.exchange = Some(exchange);
        let away = report(device_reasons(&device), Duration::ZERO);
        let expected = "device ssd: exchange of array san: the NATS server is away; this host \
                        holds to its entitlement";
        assert_eq!(away.problems, [expected]);
        assert!(
            readiness(&away.reasons, false, None).ready,
            "VMs may be added"
        );
    }
}
