//! `/v1/tokens`: tokens of the API, which give their role to requests on TCP.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use tidegate_api::access::{NewTokenView, TokenRequest, TokenView};
use tidegate_api::vm::Removed;
use tidegate_config::is_name;
use tidegate_core::time::Nanos;
use tidegate_units as units;

use super::Api;
use super::error::{ApiError, ApiResult, json};
use super::handlers::{Body, ok, parse_body};
use super::path::Path;
use super::plane::Plane;
use crate::store::TokenRecord;
use crate::tokens::new_secret;

/// Example of a body.
pub(super) const TOKEN: &str =
    "{\"name\": \"dashboard\", \"role\": \"read\", \"expires_after\": \"720 h\"}";
/// Most tokens: each is compared with the secret of each request.
const TOKENS_MAX: usize = 256;
/// Shortest and longest time for which a token is valid, unless it is valid for good.
const VALID_FOR: [Nanos; 2] = [Nanos::SECOND, Nanos(10 * 8_766 * 3_600 * 1_000_000_000)];

fn view(token: &TokenRecord, now: Timestamp) -> TokenView {
    TokenView {
        name: token.name.clone(),
        role: token.role,
        created: token.created.to_string(),
        expires: token.expires.map(|time| time.to_string()),
        expired: token.expires.is_some_and(|expires| expires <= now),
        last_used: token.last_used.map(|time| time.to_string()),
    }
}

fn invalid(what: String, at: &str, allowed: &str) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, what, at).allowing(allowed)
}

/// Returns the time from which a token that is added now is refused; `None` for never.
fn expiry(after: Option<&str>, now: Timestamp) -> ApiResult<Option<Timestamp>> {
    let Some(text) = after else {
        return Ok(None);
    };
    let refused = |what: String| {
        let allowed = "a time from 1 s to 10 years, such as \"720 h\"; leave it out for a token \
                       that does not expire";
        invalid(what, "expires_after", allowed)
    };
    let time = units::parse_duration(text).map_err(|error| refused(error.to_string()))?;
    let [least, most] = VALID_FOR;
    if !(least..=most).contains(&time) {
        return Err(refused(format!(
            "{text:?} is no time for which a token may be valid"
        )));
    }
    let seconds = i64::try_from(time.0 / Nanos::SECOND.0).expect("ten years at most");
    Ok(Some(now + SignedDuration::from_secs(seconds)))
}

pub(super) async fn list<P: Plane>(State(api): State<Api<P>>) -> Response {
    let now = api.clock.now();
    let tokens = api.tokens.list();
    ok(&tokens
        .iter()
        .map(|token| view(token, now))
        .collect::<Vec<_>>())
}

pub(super) async fn add<P: Plane>(State(api): State<Api<P>>, body: Body) -> ApiResult<Response> {
    let request: TokenRequest = serde_json::from_value(parse_body(body, TOKEN)?)
        .map_err(|error| invalid(error.to_string(), "body", &format!("such as {TOKEN}")))?;
    let TokenRequest { name, role, .. } = request;
    if !is_name(&name) {
        let what = format!("{name:?} is no name of a token");
        let allowed = "letters, digits, `-`, `_`, `.`; at most 64";
        return Err(invalid(what, "name", allowed));
    }
    // Whole seconds, as they are stored.
    let now = Timestamp::from_second(api.clock.now().as_second()).expect("a second of a time");
    let expires = expiry(request.expires_after.as_deref(), now)?;
    let own = api.clone();
    let at = name.clone();
    api.change(&at, async move {
        let tokens = &own.tokens;
        if tokens.list().len() >= TOKENS_MAX {
            let what = format!("there are {TOKENS_MAX} tokens");
            let error = ApiError::new(StatusCode::CONFLICT, what, "tokens");
            return Err(error.allowing("revoke one that is not needed"));
        }
        let (secret, hash) = new_secret().map_err(|error| {
            let what = format!("the kernel has no random numbers: {error}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, what, "tokens")
        })?;
        let record = TokenRecord {
            name,
            hash,
            role,
            created: now,
            expires,
            last_used: None,
        };
        let token = view(&record, now);
        let added = tokens.add(record).await;
        added.map_err(|error| ApiError::control(&error, &token.name))?;
        tracing::info!(token = token.name, %role, expires = token.expires, "token added");
        Ok(json(StatusCode::CREATED, &NewTokenView { secret, token }))
    })
    .await
}

pub(super) async fn revoke<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let (own, at) = (api.clone(), name.clone());
    api.change(&at, async move {
        let tokens = &own.tokens;
        let revoked = tokens.revoke(&name).await;
        if !revoked.map_err(|error| ApiError::control(&error, &name))? {
            let known: Vec<_> = tokens.list().into_iter().map(|token| token.name).collect();
            return Err(ApiError::not_found("token", &name, &known));
        }
        tracing::info!(token = name, "token revoked");
        let (removed, not_flushed) = (name, Vec::new());
        Ok(ok(&Removed {
            removed,
            not_flushed,
        }))
    })
    .await
}
