//! Membership of a daemon in a cluster, and transfers that a cluster has placed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a daemon that joins a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MembershipState {
    /// The daemon has not registered since it started.
    Waiting,
    /// The daemon is registered under a lease.
    Joined,
    /// The daemon was registered, and its lease has ended or cannot be confirmed in time.
    Lost,
}

impl MembershipState {
    /// Returns the name of the state, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MembershipState::Waiting => "waiting",
            MembershipState::Joined => "joined",
            MembershipState::Lost => "lost",
        }
    }
}

/// Membership of a daemon whose configuration has `[cluster]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MembershipView {
    /// Name of the host in the cluster.
    pub host: String,
    /// State of the membership.
    pub state: MembershipState,
    /// Time of the last change of the state.
    pub since: String,
    /// Reason why the daemon is not joined; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Placement by a cluster, which a daemon checks before it starts the transfer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementClaim {
    /// Name of the host that the transfer is placed on.
    pub host: String,
    /// Time at which it was placed, in nanoseconds since 1970; with the VM's name it identifies the
    /// placement.
    pub begun_ns: u64,
    /// Bytes a second that the host's VMs had reserved when the placement was decided.
    pub reserved_bytes_per_s: u64,
    /// Device that these are reserved on; absent: all devices of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    #[test]
    fn a_membership_has_a_reason_only_where_the_daemon_is_not_joined() {
        let mut view = MembershipView {
            host: "a".to_owned(),
            state: MembershipState::Joined,
            since: "t".to_owned(),
            reason: None,
        };
        round_trip(&view, r#"{"host":"a","state":"joined","since":"t"}"#);
        view.state = MembershipState::Lost;
        view.reason = Some("away".to_owned());
        let lost = r#"{"host":"a","state":"lost","since":"t","reason":"away"}"#;
        round_trip(&view, lost);
        for state in [
            MembershipState::Waiting,
            MembershipState::Joined,
            MembershipState::Lost,
        ] {
            round_trip(&state, &format!("{:?}", state.name()));
        }
    }

    #[test]
    fn a_claim_refuses_unknown_keys() {
        let claim = PlacementClaim {
            host: "a".to_owned(),
            begun_ns: 7,
            reserved_bytes_per_s: 5,
            device: None,
        };
        let text = r#"{"host":"a","begun_ns":7,"reserved_bytes_per_s":5}"#;
        round_trip(&claim, text);
        refuses_unknown::<PlacementClaim>(&text.replace("host", "hosts"), "hosts");
    }
}
