//! Transfers reported by the daemons of hosts.
//!
//! A transfer that was placed under the name of a VM is identified with that VM's transfer on the
//! host's daemon. All others are counted under the name `HOST/VM`, and requested in every session.

use std::collections::BTreeSet;

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::HostId;

use crate::cluster_event::ClusterEvent;
use crate::daemons::{DaemonError, DaemonSelection, Daemons, LiveTransfer, VmTransfer};
use crate::record::{Entitlement, HostRecord, Placement, RunningTransfer, Transfer};
use crate::state::ClusterState;

/// Interval over which a daemon averages the rates of transfers. A second report inside it repeats
/// the first and must not be recorded again.
const RATE_INTERVAL: Nanos = Nanos::from_secs(3);

/// Rates of all transfers of a host over its daemon's last interval.
#[derive(Debug)]
pub(super) struct ReportedRates {
    pub(super) host: HostId,
    pub(super) rates: Vec<(Class, u64)>,
}

/// Answers of the daemons of hosts.
#[derive(Default, Debug)]
pub(super) struct Answers {
    pub(super) rates: Vec<ReportedRates>,
    /// Hosts that have joined and whose daemons do not answer here, by name.
    pub(super) unreached: BTreeSet<String>,
}

/// Asks the daemons of hosts, and merges their transfers into the state. The daemon of a drained
/// host may be gone, and that of a registered one may be out of reach from this machine.
/// `stored_hosts` are the names of the hosts in the stored state.
pub(super) fn ask_daemons(
    state: &mut ClusterState,
    daemons: &dyn Daemons,
    now: Nanos,
    which: DaemonSelection<'_>,
    stored_hosts: &[String],
    notify: &mut dyn FnMut(ClusterEvent),
) -> Result<Answers, DaemonError> {
    let hosts = state.hosts.clone();
    let mut answers = Answers::default();
    for (at, host) in hosts.iter().enumerate() {
        let socket = host.socket.as_deref();
        let Some(socket) = socket.filter(|_| which.includes(&host.name)) else {
            continue;
        };
        let transfers = match ask(state, daemons, host, socket) {
            Ok(transfers) => transfers,
            Err(error) if state.is_registered(&host.name) => {
                merge_published(state, host, now);
                notify(ClusterEvent::DaemonNotReached {
                    host: host.name.clone(),
                    why: error.to_string(),
                    as_of: oldest_progress(state, &host.name),
                });
                answers.unreached.insert(host.name.clone());
                continue;
            }
            Err(error) => {
                let is_away = matches!(
                    error,
                    DaemonError::Unavailable(_) | DaemonError::OtherHost { .. }
                );
                // A host is often drained because its daemon is to be stopped.
                if is_away && host.drained {
                    let host = host.name.clone();
                    notify(ClusterEvent::DrainedDaemonUnreachable { host });
                    continue;
                }
                // Nothing is placed there, and `cluster hosts` shows it.
                if is_away && state.is_lost(&host.name) {
                    continue;
                }
                let is_unavailable = matches!(error, DaemonError::Unavailable(_));
                if is_unavailable && stored_hosts.contains(&host.name) {
                    let host = host.name.clone();
                    notify(ClusterEvent::DaemonUnreachable { host });
                }
                return Err(error);
            }
        };
        let rates = merge_transfers(state, host, transfers, now);
        let is_new = now.since(host.rates_recorded_at) >= RATE_INTERVAL;
        if let Some(rates) = rates.filter(|rates| is_new && !rates.is_empty()) {
            state.hosts[at].rates_recorded_at = now;
            let host = HostId(at);
            answers.rates.push(ReportedRates { host, rates });
        }
    }
    Ok(answers)
}

/// Returns the time that the progress of the transfers of a host refers to, the oldest of all;
/// `None`: none runs there.
fn oldest_progress(state: &ClusterState, host: &str) -> Option<Nanos> {
    let there = state.running.iter();
    let there = there.filter(|running| running.placement.host == host);
    there.map(|running| running.placement.as_of).min()
}

/// Asks the daemon at the socket of a host for its transfers, if it is that host's daemon.
fn ask(
    state: &ClusterState,
    daemons: &dyn Daemons,
    host: &HostRecord,
    socket: &str,
) -> Result<Vec<VmTransfer>, DaemonError> {
    let says = daemons.host(socket)?;
    if !is_daemon_of(state, host, says.as_deref()) {
        return Err(DaemonError::OtherHost {
            host: host.name.clone(),
            socket: socket.to_owned(),
            says,
        });
    }
    daemons.transfers(socket)
}

/// Returns whether a daemon that says it is the host `says` is that of `host`.
fn is_daemon_of(state: &ClusterState, host: &HostRecord, says: Option<&str>) -> bool {
    match says {
        Some(name) if name == host.name => true,
        // A daemon that has joined says so: this one is another, found at the same path.
        _ if state.memberships.contains_key(&host.name) => false,
        // Hosts with one socket are devices of one daemon, which has the name of one of them.
        Some(name) => {
            let mut others = state.hosts.iter();
            others.any(|other| other.name == name && other.socket == host.socket)
        }
        None => true,
    }
}

/// Merges the transfers of a host into the state. Returns the class and rate in bytes per second of
/// each; `None` if not all rates are known.
fn merge_transfers(
    state: &mut ClusterState,
    host: &HostRecord,
    transfers: Vec<VmTransfer>,
    now: Nanos,
) -> Option<Vec<(Class, u64)>> {
    let mut rates = Some(Vec::new());
    for reported in transfers {
        let on_hosts_device = host
            .device
            .as_ref()
            .is_none_or(|name| *name == reported.device);
        if let (true, Some(live)) = (on_hosts_device, reported.transfer) {
            merge_transfer(state, &host.name, &reported.vm, &live, now);
            // One unknown rate makes the whole interval useless for learning.
            rates = rates.zip(live.bytes_per_s).map(|(mut rates, rate)| {
                rates.push((live.class, rate));
                rates
            });
        }
    }
    let placed_here = (state.running.iter())
        .filter(|running| running.placement.host == host.name)
        .count();
    // A placed transfer that its daemon does not know has no rate, so the interval is incomplete.
    rates.filter(|rates| rates.len() == placed_here)
}

/// Merges the transfers that the daemon of a host has published, if it has: those that are later
/// than what is stored of a transfer under the name of the same VM.
fn merge_published(state: &mut ClusterState, host: &HostRecord, now: Nanos) {
    let membership = state.memberships.get(&host.name);
    let daemon = membership.and_then(|membership| membership.daemon.clone());
    let devices = daemon.into_iter().flat_map(|daemon| daemon.devices);
    let devices =
        devices.filter(|device| host.device.as_ref().is_none_or(|own| *own == device.name));
    for published in devices.flat_map(|device| device.transfers.unwrap_or_default()) {
        // The clocks of hosts need not agree.
        let as_of = published.as_of.min(now);
        let placed = state.running(&published.vm);
        let placed = placed.filter(|running| running.placement.host == host.name);
        if placed.is_some_and(|running| running.placement.as_of > as_of) {
            continue;
        }
        let late = published.as_of.since(published.due).as_secs_f64();
        let live = LiveTransfer {
            bytes: published.bytes,
            moved: published.moved,
            due_in_s: published.due.since(published.as_of).as_secs_f64() - late,
            class: published.class,
            bytes_per_s: None,
        };
        merge_transfer(state, &host.name, &published.vm, &live, as_of);
    }
}

/// Merges one transfer as of a time: as progress of a transfer that was placed under its VM's name,
/// else as a transfer of its own.
fn merge_transfer(
    state: &mut ClusterState,
    host: &str,
    vm: &str,
    live: &LiveTransfer,
    as_of: Nanos,
) {
    let own = state.running.get_mut(vm);
    if let Some(running) = own.filter(|running| running.placement.host == host) {
        running.entitlement.class = live.class;
        // A daemon also counts what its VM moves beyond the placed size.
        running.placement.moved = live.moved.min(running.transfer.bytes);
        running.placement.as_of = as_of;
        return;
    }
    let mut name = format!("{host}/{vm}");
    // Taken only by a job that is stored under such a name, which stays.
    while state.has_transfer(&name) {
        name.push('*');
    }
    state.running.push(RunningTransfer {
        transfer: Transfer {
            name,
            bytes: live.bytes,
            // A deadline is relative to `arrived`, and the daemon reports the remaining time: the
            // transfer counts as requested then. One that is late is due then.
            deadline: Nanos::from_secs_f64(live.due_in_s.max(0.0)),
            arrived: as_of,
            limit: None,
            start: false,
        },
        placement: Placement {
            moved: live.moved,
            reported: live.moved,
            ..Placement::new(host, as_of)
        },
        entitlement: Entitlement {
            class: live.class,
            lowered_for: Vec::new(),
        },
        live: true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: LiveTransfer = LiveTransfer {
        bytes: 900,
        moved: 300,
        due_in_s: 20.0,
        class: Class::RealTime,
        bytes_per_s: Some(50),
    };

    /// Cluster of one host, `a`, whose transfers are those of the device `sdb`.
    fn state() -> (ClusterState, HostRecord) {
        let host = HostRecord::new("a".to_owned(), 60, Vec::new(), 4);
        let host = HostRecord {
            device: Some("sdb".to_owned()),
            ..host
        };
        let mut state = ClusterState::default();
        state.add_host(host.clone()).expect("new");
        (state, host)
    }

    fn vm_transfer(vm: &str, device: &str, transfer: LiveTransfer) -> VmTransfer {
        VmTransfer {
            vm: vm.to_owned(),
            device: device.to_owned(),
            transfer: Some(transfer),
        }
    }

    #[test]
    fn rates_of_the_hosts_device_are_recorded_only_if_all_are_known() {
        let (mut state, host) = state();
        let now = Nanos::from_secs(10);
        let all = vec![
            vm_transfer("dss", "sdb", LIVE),
            vm_transfer("far", "sdc", LIVE),
        ];
        let rates = merge_transfers(&mut state, &host, all, now);
        assert_eq!(rates, Some(vec![(Class::RealTime, 50)]));
        let names: Vec<_> = state.transfer_names().collect();
        assert_eq!(names, ["a/dss"]);
        assert!(state.running[0].live);
        let unknown = LiveTransfer {
            bytes_per_s: None,
            ..LIVE
        };
        assert_eq!(
            merge_transfers(
                &mut state,
                &host,
                vec![vm_transfer("x", "sdb", unknown)],
                now
            ),
            None
        );
    }

    #[test]
    fn a_stored_job_of_the_name_of_a_live_one_stays() {
        let (mut state, host) = state();
        merge_transfer(&mut state, "a", "dss", &LIVE, Nanos(1));
        let mut stored = state.running.remove("a/dss").expect("it was merged");
        stored.live = false;
        state.running.push(stored);
        let reported = vec![vm_transfer("dss", "sdb", LIVE)];
        merge_transfers(&mut state, &host, reported, Nanos(7));
        let all = state.running.iter();
        let all: Vec<_> = all.map(|it| (it.name(), it.live)).collect();
        assert_eq!(all, [("a/dss", false), ("a/dss*", true)]);
    }

    #[test]
    fn a_placed_transfer_takes_the_progress_of_its_vms_transfer() {
        let (mut state, host) = state();
        merge_transfer(&mut state, "a", "dss", &LIVE, Nanos(1));
        let mut running = state.running.remove("a/dss").expect("it was merged");
        running.transfer.name = "dss".to_owned();
        running.live = false;
        state.running.push(running);
        let further = LiveTransfer {
            moved: 1_000,
            class: Class::Idle,
            ..LIVE
        };
        merge_transfers(
            &mut state,
            &host,
            vec![vm_transfer("dss", "sdb", further)],
            Nanos(7),
        );
        assert_eq!(state.running.len(), 1);
        let own = &state.running[0];
        assert_eq!((own.placement.moved, own.placement.as_of), (900, Nanos(7)));
        assert_eq!((own.entitlement.class, own.live), (Class::Idle, false));
    }
}
