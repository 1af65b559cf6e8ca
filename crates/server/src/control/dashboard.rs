//! Listeners of `[[dashboard]]`: the page, and the API for it.
//!
//! ```text
//!   request --guard: Host, Origin, Sec-Fetch-Site--> "/" and "/assets/": files of the binary
//!                                                +-> all else: router of the API
//!   answer  <--headers against scripts and frames of others--
//! ```
//!
//! A browser sends requests for pages of any site, also such whose name an attacker has resolve to
//! the loopback address (DNS rebinding). So the name in `Host` has to be one that belongs to the
//! listener, and a request that a page of another origin makes is refused. A client without a token
//! has the role `read` and may change nothing ([`access`](super::access)).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tidegate_dashboard::Asset;

use super::access::Caller;
use super::error::{ApiError, ApiResult};
use crate::log_limit;

/// Connections that a listener of the dashboard serves at a time.
pub(super) const VISITORS_MAX: usize = 64;

/// Content that the page may have: its own files alone, and no code or style within a document.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; \
    form-action 'none'";

/// Headers of every answer, beside its content policy.
const HEADERS: [(HeaderName, &str); 5] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Relation of the page that makes a request to its target, as browsers tell it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the client at an address.
pub(super) fn visitor(address: SocketAddr) -> Caller {
    Caller::Visitor(address)
}

/// Makes the router of a listener that browsers may also reach under `host_names`. `api` is the
/// router of the API.
pub(super) fn router(api: Router, host_names: &[String]) -> Router {
    let host_names: Arc<[String]> = host_names.into();
    Router::new()
        .route("/", get(file))
        .route("/assets/{name}", get(file))
        .method_not_allowed_fallback(no_such_method)
        .fallback_service(api)
        .layer(middleware::from_fn_with_state(host_names, guard))
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let what = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what, "method").allowing("GET")
}

/// Answers with a file of the page.
async fn file(uri: Uri) -> ApiResult<Response> {
    let Some(Asset {
        content_type,
        bytes,
        is_hashed,
        ..
    }) = tidegate_dashboard::asset(uri.path())
    else {
        let what = format!("the page has no file {}", uri.path());
        let error = ApiError::new(StatusCode::NOT_FOUND, what, "path");
        return Err(error.allowing("/, which names its files"));
    };
    // A name with a hash is never that of another content.
    let caching = if *is_hashed {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let headers = [(CONTENT_TYPE, *content_type), (CACHE_CONTROL, caching)];
    Ok((headers, *bytes).into_response())
}

/// Refuses requests that are not for this listener or come from pages of others, and adds the
/// headers.
async fn guard(State(host_names): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    let checked = check(request.uri(), request.headers(), &host_names);
    let mut answer = match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = answer.headers_mut();
    // A report has a content policy of its own, which allows less.
    let policy = HeaderValue::from_static(CONTENT_POLICY);
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(policy);
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// Checks where a request is sent to and which page has made it.
fn check(uri: &Uri, headers: &HeaderMap, host_names: &[String]) -> ApiResult<()> {
    let host = only(headers, &HOST).filter(|host| {
        // A target with an authority counts before the header.
        let target = uri.authority().map_or(*host, Authority::as_str);
        is_ours(host, host_names) && target.eq_ignore_ascii_case(host)
    });
    let Some(host) = host else {
        let allowed = "an address of loopback, localhost, or one of `host_names` in [[dashboard]]";
        return Err(refused("Host does not name this listener", "host", allowed));
    };
    let allowed = "the page of this listener, or a client that is no browser";
    if headers.contains_key(ORIGIN) {
        let origin = only(headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
        let is_own = origin.is_some_and(|(scheme, rest)| {
            // A proxy in front may have TLS.
            ["http", "https"].contains(&scheme) && rest.eq_ignore_ascii_case(host)
        });
        if !is_own {
            return Err(refused("a page of another origin asks", "origin", allowed));
        }
    }
    // A link to the page may be followed from anywhere. Nothing else is for other sites, and those
    // on other ports of this host count as such.
    let is_followed = uri.path() == "/";
    let site = headers.get(SEC_FETCH_SITE);
    if !is_followed && site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(refused("a page of another origin asks", "origin", allowed));
    }
    Ok(())
}

/// Returns the value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.to_str().ok())?
}

/// Returns true if a value of `Host` belongs to the listener. The port does not count: no name of
/// an attacker has another one, and tunnels have ports of their own.
fn is_ours(host: &str, host_names: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = (bare.parse::<IpAddr>()).is_ok_and(|ip| ip.to_canonical().is_loopback());
    let mut names = std::iter::once("localhost").chain(host_names.iter().map(String::as_str));
    // A name before `@` would be one of a user.
    !host.contains('@') && (is_loopback || names.any(|ours| name.eq_ignore_ascii_case(ours)))
}

/// Makes the error for a request that is not for this listener or comes from another page, and
/// logs it.
fn refused(what: &str, at: &str, allowed: &str) -> ApiError {
    if log_limit::FORBIDDEN.allows(Instant::now()) {
        tracing::warn!("a request to the dashboard was refused: {what}");
    }
    ApiError::new(StatusCode::FORBIDDEN, what, at).allowing(allowed)
}
