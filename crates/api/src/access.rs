//! Roles on the control API, and the tokens that give them on TCP.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rights of a client of the control API. Each role has those of the roles before it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
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

/// Body of `POST /v1/tokens`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Name, unique over all tokens.
    pub name: String,
    /// Role of requests with the token.
    pub role: Role,
    /// Time for which the token is valid, such as `720 h`; for good if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<String>,
}

/// Token of the control API, without its secret: item of `GET /v1/tokens`. Times are in UTC:
/// `2026-12-01T18:00:00Z`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Name.
    pub name: String,
    /// Role of requests with the token.
    pub role: Role,
    /// Time at which the token was added.
    pub created: String,
    /// Time from which the token is refused; `null` for never.
    pub expires: Option<String>,
    /// True once the token is refused for its age.
    pub expired: bool,
    /// Time of a use, at most an hour before the last one; `null` if there was none.
    pub last_used: Option<String>,
}

/// Answer to `POST /v1/tokens`: the only one that has the secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewTokenView {
    /// Secret, which clients send as `Authorization: Bearer SECRET`.
    pub secret: String,
    /// The token.
    pub token: TokenView,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    #[test]
    fn roles_are_ordered_and_have_one_name_everywhere() {
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Admin);
        for role in Role::ALL {
            round_trip(&role, &format!("\"{role}\""));
        }
    }

    #[test]
    fn tokens_have_times_and_the_secret_only_when_they_are_new() {
        let token = TokenView {
            name: "ci".to_owned(),
            role: Role::Operate,
            created: "2026-12-01T18:00:00Z".to_owned(),
            expires: None,
            expired: false,
            last_used: None,
        };
        let text = concat!(
            r#"{"name":"ci","role":"operate","created":"2026-12-01T18:00:00Z","#,
            r#""expires":null,"expired":false,"last_used":null}"#
        );
        round_trip(&token, text);
        let new = NewTokenView {
            secret: "s".to_owned(),
            token,
        };
        round_trip(&new, &format!("{{\"secret\":\"s\",\"token\":{text}}}"));
        let mut request = TokenRequest {
            name: "ci".to_owned(),
            role: Role::Read,
            expires_after: None,
        };
        round_trip(&request, r#"{"name":"ci","role":"read"}"#);
        request.expires_after = Some("1 h".to_owned());
        round_trip(
            &request,
            r#"{"name":"ci","role":"read","expires_after":"1 h"}"#,
        );
        refuses_unknown::<TokenRequest>(r#"{"expires":"1 h"}"#, "expires");
    }
}
