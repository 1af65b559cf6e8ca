//! Daemons that have joined a cluster, for `tidegate cluster status`.

use serde::Serialize;
use serde_json::Value;
use tidegate_cluster::{ClusterState, MemberDevice, Membership};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::bytes_per_s;

use super::super::place::events::utc;

/// Daemon of a host, as it has published itself.
#[derive(Serialize)]
pub(super) struct JoinedDaemon {
    host: String,
    /// `joined`, `left` in order, or `lost`.
    state: &'static str,
    /// Time of the registration, or of the last word of a daemon that is gone.
    since: String,
    /// False if the cluster has no host of this name, so that nothing is placed there.
    defined: bool,
    reserved_bytes_per_s: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vms: Option<usize>,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    device: String,
    reserved_bytes_per_s: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    vms: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// Answer of `GET /v1/budget` for the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Value>,
}

/// Returns the daemons that have joined, by host.
pub(super) fn all(state: &ClusterState) -> Vec<JoinedDaemon> {
    let all = state.memberships.iter();
    all.map(|(host, membership)| daemon(state, host, membership))
        .collect()
}

fn daemon(state: &ClusterState, host: &str, membership: &Membership) -> JoinedDaemon {
    let there = membership.daemon.as_ref();
    let since = there.map_or(membership.written, |daemon| daemon.joined);
    let devices = match there {
        Some(daemon) => daemon.devices.iter().map(device).collect(),
        None => {
            let reserved = membership.reserved.iter();
            reserved
                .map(|(name, rate)| gone_device(name, *rate))
                .collect()
        }
    };
    JoinedDaemon {
        host: host.to_owned(),
        state: match (there, membership.has_left) {
            (Some(_), _) => "joined",
            (None, true) => "left",
            (None, false) => "lost",
        },
        since: utc(since),
        defined: state.host(host).is_some(),
        reserved_bytes_per_s: membership.reserved_on(None),
        instance: there.map(|daemon| daemon.instance.clone()),
        version: there.map(|daemon| daemon.version.clone()),
        api: there.and_then(|daemon| daemon.api.clone()),
        vms: there.map(|daemon| daemon.vms),
        devices,
    }
}

fn device(device: &MemberDevice) -> Device {
    Device {
        device: device.name.clone(),
        reserved_bytes_per_s: device.reserved_bytes_per_s,
        vms: Some(device.vms),
        policy: device.policy.clone(),
        budget: device.budget.clone(),
    }
}

fn gone_device(name: &str, reserved_bytes_per_s: u64) -> Device {
    Device {
        device: name.to_owned(),
        reserved_bytes_per_s,
        vms: None,
        policy: None,
        budget: None,
    }
}

/// Returns the daemons as a table.
pub(super) fn table(daemons: &[JoinedDaemon]) -> Table {
    let mut table = Table::new([
        ("DAEMON OF", Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Left),
        ("VERSION", Align::Left),
        ("VMS", Align::Right),
        ("RESERVED", Align::Right),
        ("DEVICES", Align::Left),
    ]);
    for daemon in daemons {
        let state = match (daemon.state, daemon.defined) {
            ("joined", true) => Cell::from("joined"),
            ("joined", false) => Cell::from("joined, not a host").tone(Tone::Warn),
            (gone, _) => Cell::from(gone).tone(Tone::Bad),
        };
        let devices = daemon.devices.iter().map(|device| device.device.as_str());
        table.row([
            Cell::from(daemon.host.as_str()).tone(Tone::Strong),
            state,
            daemon.since.as_str().into(),
            daemon.version.clone().unwrap_or_default().into(),
            daemon
                .vms
                .map(|vms| vms.to_string())
                .unwrap_or_default()
                .into(),
            bytes_per_s(daemon.reserved_bytes_per_s as f64).into(),
            devices.collect::<Vec<_>>().join(", ").into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;

    #[test]
    fn a_daemon_is_joined_or_left_or_lost() {
        let mut state = ClusterState::default();
        let reserved = [("sda".to_owned(), 7)];
        let membership = Membership {
            reserved: reserved.into(),
            written: Nanos::from_secs(60),
            ..Membership::default()
        };
        state.memberships.insert("a".to_owned(), membership.clone());
        let left = Membership {
            has_left: true,
            ..membership
        };
        state.memberships.insert("b".to_owned(), left);
        let all = all(&state);
        let states: Vec<_> = all.iter().map(|daemon| daemon.state).collect();
        assert_eq!(states, ["lost", "left"]);
        assert_eq!(all[0].since, "1970-01-01T00:01:00Z");
        assert_eq!((all[0].reserved_bytes_per_s, all[0].defined), (7, false));
    }
}
