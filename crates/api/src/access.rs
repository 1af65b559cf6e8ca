//! Roles on the control API.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Rights of a client of the control API. Each role has those of the roles before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads state, statistics, metrics and health.
    Read,
    /// Changes objectives, schedules and deadline transfers of VMs that are served.
    Operate,
    /// Adds, resizes and removes VMs and disks, and changes policies.
    Admin,
}

impl Role {
    /// All roles, from the lowest.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// Returns the role's name on the wire and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn roles_are_ordered_and_have_one_name_everywhere() {
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Admin);
        for role in Role::ALL {
            round_trip(&role, &format!("\"{role}\""));
        }
    }
}
