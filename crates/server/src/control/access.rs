//! Roles of the clients of the API.
//!
//! ```text
//!   accept: credentials of the process, by the kernel --Rules--> Caller
//!   request: Caller --authenticate--> Granted --check: the role of the route--> handler
//! ```
//!
//! The credentials of a process are those with which it connected: a connection that is passed on
//! keeps its role.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tidegate_api::access::Role;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::plane::Plane;
use super::watched_stream::Activity;
use crate::config::{AccessConfig, Account};
use crate::listener::{BindError, Credentials, group_number, user_number};
use crate::log_limit;
use crate::ring::sys;

/// Roles that a unix socket gives, with accounts by number.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    everyone: Option<Role>,
    root: Role,
    /// User of the daemon; `None` if others may count as that user.
    own: Option<u32>,
    users: Vec<(u32, Role)>,
    groups: Vec<(u32, Role)>,
}

impl Rules {
    /// Looks the accounts up, which may block. `socket` names the socket in errors.
    ///
    /// # Errors
    /// If an account is not known.
    pub(super) fn look_up(config: &AccessConfig, socket: &Path) -> Result<Rules, BindError> {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for (account, role) in &config.accounts {
            match account {
                Account::User(name) => users.push((user_number(name, socket)?, *role)),
                Account::Group(name) => groups.push((group_number(name, socket)?, *role)),
            }
        }
        Ok(Rules {
            everyone: config.everyone,
            root: config.root,
            own: distinct(sys::own_user(), sys::overflow_user()),
            users,
            groups,
        })
    }

    /// Returns the highest role that applies to a process; `None` if none does.
    fn role_of(&self, process: &Credentials) -> Option<Role> {
        let is_root = process.user == 0 || Some(process.user) == self.own;
        let users = self.users.iter().filter(|(user, _)| process.user == *user);
        let groups = (self.groups.iter())
            .filter(|(group, _)| process.group == *group || process.groups.contains(group));
        let listed = users.chain(groups).map(|(_, role)| *role);
        let all = listed
            .chain(self.everyone)
            .chain(is_root.then_some(self.root));
        all.max()
    }

    /// Returns the client that a process is.
    pub(super) fn caller(&self, process: Option<&Credentials>) -> Caller {
        Caller::Process {
            user: process.map(|process| process.user),
            role: process.and_then(|process| self.role_of(process)),
        }
    }
}

/// Returns the user of the daemon, unless it is the overflow user: the kernel shows every process
/// of a user namespace as that one if the process's user is not mapped.
fn distinct(own: u32, overflow: u32) -> Option<u32> {
    (own != overflow).then_some(own)
}

/// Client at the other end of a connection, as an extension of its requests.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// Process of this host, connected to a unix socket.
    Process {
        /// User of the process; `None` if the kernel does not say.
        user: Option<u32>,
        /// Role that the socket gives the process.
        role: Option<Role>,
    },
    /// Client on TCP, which has the role of the token that each of its requests has.
    Remote(SocketAddr),
    /// Client of a dashboard's listener: it has the role of the token that a request has, and may
    /// read without one.
    Visitor(SocketAddr),
}

#[cfg(any(test, feature = "fuzzing"))]
impl Caller {
    /// Returns an administrator, for requests without a socket.
    pub(super) fn admin() -> Caller {
        Caller::with(Some(Role::Admin))
    }

    /// Returns a client with a role.
    pub(super) fn with(role: Option<Role>) -> Caller {
        Caller::Process {
            user: Some(1000),
            role,
        }
    }
}

impl Caller {
    /// Returns the client if any request of it may be answered.
    ///
    /// # Errors
    /// 403 for a process without a role, whose connection need not be kept.
    pub(super) fn admitted(self) -> ApiResult<Caller> {
        match self {
            Caller::Process { user, role: None } => Err(no_role(&process_name(user))),
            admitted => Ok(admitted),
        }
    }
}

/// Returns the name of a process for people.
fn process_name(user: Option<u32>) -> String {
    match user {
        Some(user) => format!("user {user}"),
        None => "a process without credentials".to_owned(),
    }
}

/// Makes the error for a process that has no role.
fn no_role(who: &str) -> ApiError {
    forbidden(
        &format!("{who} has no role at this socket"),
        "a user or group that has one: `role`, `read`, `operate` and `admin` of [control] and \
         [[control.listen]]",
    )
}

/// Role of a request, as an extension of it.
#[derive(Clone, Debug)]
struct Granted {
    role: Role,
    /// Client for people.
    who: String,
}

/// Finds the role of a request's client; refuses a client that has none.
pub(super) async fn authenticate<P: Plane>(
    State(api): State<Api<P>>,
    mut request: Request,
    next: Next,
) -> Response {
    let granted = match request.extensions().get::<Caller>() {
        Some(Caller::Process { user, role }) => of_process(*user, *role),
        Some(Caller::Remote(address)) => {
            let granted = of_token(&api, *address, request.headers());
            if let Some(activity) = request.extensions().get::<Arc<Activity>>() {
                activity.showed_token(granted.is_ok());
            }
            granted
        }
        Some(Caller::Visitor(address)) => {
            of_visitor(&api, *address, request.method(), request.headers())
        }
        // A listener that names no caller would be a bug; nobody gains by it.
        None => Err(forbidden("the client is not known", "a configured socket")),
    };
    match granted {
        Ok(granted) => {
            request.extensions_mut().insert(granted);
            next.run(request).await
        }
        Err(refusal) => {
            let needs_token = refusal.status == StatusCode::UNAUTHORIZED;
            let mut answer = refusal.into_response();
            if needs_token {
                let scheme = HeaderValue::from_static("Bearer");
                answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            }
            answer
        }
    }
}

fn of_process(user: Option<u32>, role: Option<Role>) -> ApiResult<Granted> {
    let who = process_name(user);
    match role {
        Some(role) => Ok(Granted { role, who }),
        None => Err(no_role(&who)),
    }
}

/// Header in which the page sends its token: `Authorization` may have a password for a proxy in
/// front.
const TOKEN: HeaderName = HeaderName::from_static("x-tidegate-token");

/// Finds the role of a client of a dashboard's listener. Without a token no request changes
/// anything, whatever its route requires: a page of another site cannot send one.
fn of_visitor<P: Plane>(
    api: &Api<P>,
    address: SocketAddr,
    method: &Method,
    headers: &HeaderMap,
) -> ApiResult<Granted> {
    if let Some(secret) = headers.get(TOKEN) {
        return of_secret(api, address, secret.to_str().ok());
    }
    if (headers.get(AUTHORIZATION)).is_some_and(|header| !is_of_another_scheme(header)) {
        return of_token(api, address, headers);
    }
    if [Method::GET, Method::HEAD].contains(method) {
        return Ok(Granted {
            role: Role::Read,
            who: "a visitor without a token".to_owned(),
        });
    }
    Err(unauthorized(address, "a change needs a token"))
}

/// Finds the role of the token in the headers of a request.
fn of_token<P: Plane>(
    api: &Api<P>,
    address: SocketAddr,
    headers: &HeaderMap,
) -> ApiResult<Granted> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(unauthorized(address, "a request on TCP needs a token"));
    };
    let secret = (header.to_str().ok())
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| is_bearer(scheme));
    of_secret(api, address, secret.map(|(_, secret)| secret))
}

/// Returns true if the scheme of `Authorization` is that of tokens. Its name is the same in
/// capitals (RFC 9110, section 11.1).
fn is_bearer(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("bearer")
}

/// Returns true if `Authorization` is for somebody else, such as a proxy that asks for passwords.
fn is_of_another_scheme(header: &HeaderValue) -> bool {
    let scheme = (header.to_str().ok()).and_then(|text| text.split(' ').next());
    scheme.is_some_and(|scheme| !is_bearer(scheme))
}

/// Finds the role of a secret; `None` is one that cannot be read.
fn of_secret<P: Plane>(
    api: &Api<P>,
    address: SocketAddr,
    secret: Option<&str>,
) -> ApiResult<Granted> {
    let token = secret.and_then(|secret| (api.tokens).authenticate(secret.trim(), api.clock.now()));
    match token {
        Some((name, role)) => Ok(Granted {
            role,
            who: format!("token {name:?}"),
        }),
        // The answer is the same for an unknown, an expired and a revoked token, so that clients
        // learn nothing of tokens that are not theirs.
        None => Err(unauthorized(address, "the token is not valid")),
    }
}

/// Passes a request on if its client has the role `needed` of its route, or a higher one.
pub(super) async fn check(
    needed: Role,
    path: &'static str,
    request: Request,
    next: Next,
) -> Response {
    let granted = request.extensions().get::<Granted>();
    let refusal = match granted {
        Some(granted) if granted.role >= needed => return next.run(request).await,
        Some(Granted { role, who }) => {
            let method = request.method();
            forbidden(
                &format!("{who} has the role {role}, and {method} {path} needs {needed}"),
                &format!("a client with the role {needed}"),
            )
        }
        None => forbidden("the client is not known", "a configured socket"),
    };
    refusal.into_response()
}

/// Passes a request on unless it is a change and another daemon takes over.
pub(super) async fn wait_at_gate<P: Plane>(
    State(api): State<Api<P>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let Some(_under_way) = api.plane.change_gate().enter() else {
        return refused_at_gate("daemon").into_response();
    };
    next.run(request).await
}

/// Returns the refusal of a change while another daemon takes over. `at` is what was to change.
pub(super) fn refused_at_gate(at: &str) -> ApiError {
    let what = "a new daemon takes over, and would not know of a change";
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, at);
    error.allowing("try again in some seconds")
}

/// Makes the error for a client whose role is too low, and logs it.
fn forbidden(what: &str, allowed: &str) -> ApiError {
    if log_limit::FORBIDDEN.allows(Instant::now()) {
        tracing::warn!("control client refused: {what}");
    }
    ApiError::new(StatusCode::FORBIDDEN, what, "role").allowing(allowed)
}

/// Makes the error for a request without a valid token, and logs it.
fn unauthorized(address: SocketAddr, what: &str) -> ApiError {
    if log_limit::UNAUTHORIZED.allows(Instant::now()) {
        tracing::warn!(%address, "control client refused: {what}");
    }
    let allowed = "the header `Authorization: Bearer SECRET`; `tidegate token add` makes a token";
    ApiError::new(StatusCode::UNAUTHORIZED, what, "authorization").allowing(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(user: u32, group: u32, groups: &[u32]) -> Credentials {
        Credentials {
            user,
            group,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn a_process_has_the_highest_role_that_applies_to_it() {
        let rules = Rules {
            everyone: None,
            root: Role::Admin,
            own: distinct(900, 65534),
            users: vec![(1000, Role::Operate), (1001, Role::Read)],
            groups: vec![(50, Role::Read), (51, Role::Admin)],
        };
        for (who, expected) in [
            (process(0, 0, &[]), Some(Role::Admin)),
            (process(900, 900, &[]), Some(Role::Admin)),
            (process(1000, 1, &[]), Some(Role::Operate)),
            (process(1001, 1, &[]), Some(Role::Read)),
            (process(1002, 1, &[]), None),
            // Numbers of users are no numbers of groups.
            (process(50, 1000, &[1001, 0]), None),
            (process(1002, 50, &[]), Some(Role::Read)),
            (process(1002, 1, &[7, 50]), Some(Role::Read)),
            (process(1001, 1, &[51]), Some(Role::Admin)),
            (process(1000, 50, &[]), Some(Role::Operate)),
        ] {
            assert_eq!(rules.role_of(&who), expected, "{who:?}");
        }
        let open = Rules {
            everyone: Some(Role::Operate),
            root: Role::Read,
            ..rules
        };
        for (who, expected) in [
            (process(1002, 1, &[]), Role::Operate),
            (process(1001, 1, &[]), Role::Operate),
            (process(0, 0, &[]), Role::Operate),
            (process(900, 51, &[]), Role::Admin),
        ] {
            assert_eq!(open.role_of(&who), Some(expected), "{who:?}");
        }
        let as_nobody = Rules {
            own: distinct(65534, 65534),
            everyone: None,
            ..open
        };
        let unmapped = process(65534, 65534, &[]);
        assert_eq!(as_nobody.role_of(&unmapped), None);
        assert_eq!(as_nobody.role_of(&process(0, 0, &[])), Some(Role::Read));
        let unknown = as_nobody.caller(None);
        assert!(
            matches!(unknown, Caller::Process { role: None, .. }),
            "the kernel does not say who it is"
        );
    }
}
