//! Tokens: requests on TCP have their role, and none without one.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use tidegate_api::access::{NewTokenView, Role, TokenView};

use super::*;
use crate::store::Store;
use crate::tokens::Tokens;

/// Simulated daemon with a store of tokens.
pub(super) struct WithStore {
    pub(super) plane: Pretended,
    pub(super) api: Api<Pretended>,
    _dir: tempfile::TempDir,
}

impl WithStore {
    pub(super) fn new() -> WithStore {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path().join("s.redb")).expect("a store");
        let plane = Pretended::new();
        let api = Api::new(plane.clone(), Clock::system());
        WithStore {
            plane,
            api: api.with_tokens(Tokens::load(Some(Arc::new(store)))),
            _dir: dir,
        }
    }

    /// Adds a token and returns its secret.
    pub(super) async fn token(&self, name: &str, role: Role) -> String {
        let body = json!({ "name": name, "role": role }).to_string();
        let (status, new) = ask_api(&self.api, "POST", "/v1/tokens", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{new}");
        let new: NewTokenView = serde_json::from_value(new).expect("what the CLI reads");
        new.secret
    }

    async fn tokens(&self) -> Vec<TokenView> {
        let (_, list) = ask_api(&self.api, "GET", "/v1/tokens", "").await;
        serde_json::from_value(list).expect("what the CLI reads")
    }

    /// Sends a request on TCP with this header `Authorization`.
    async fn remote(
        &self,
        (method, path, body): (&str, &str, &str),
        authorization: Option<&str>,
    ) -> (StatusCode, HeaderMap, Value) {
        let address = "127.0.0.1:1".parse().expect("an address");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .extension(Caller::Remote(address));
        if let Some(text) = authorization {
            request = request.header(AUTHORIZATION, text);
        }
        let request = request.body(Body::from(body.to_owned())).expect("good");
        let router = router(self.api.clone());
        let answer = router.oneshot(request).await.expect("infallible");
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.into_body().collect().await.expect("a body");
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
        (status, headers, body)
    }
}

#[tokio::test]
async fn a_request_on_tcp_has_the_role_of_its_token() {
    let daemon = WithStore::new();
    let secrets = [
        (Role::Read, daemon.token("reader", Role::Read).await),
        (Role::Operate, daemon.token("ops", Role::Operate).await),
        (Role::Admin, daemon.token("boss", Role::Admin).await),
    ];
    for (role, secret) in &secrets {
        let bearer = format!("Bearer {secret}");
        for (needed, request) in [
            (Role::Read, ("GET", "/v1/vms", "")),
            (
                Role::Operate,
                ("PATCH", "/v1/vms/oltp/objective", "{\"weight\": 7}"),
            ),
            (Role::Admin, ("GET", "/v1/tokens", "")),
        ] {
            let (status, _, body) = daemon.remote(request, Some(&bearer)).await;
            if *role >= needed {
                assert_eq!(status, StatusCode::OK, "{role} {request:?}: {body}");
                continue;
            }
            assert_eq!(status, StatusCode::FORBIDDEN, "{role} {request:?}");
            let what = body["error"]["what"].as_str().unwrap_or_default();
            assert!(what.contains(&format!("has the role {role}")), "{what}");
            assert!(what.ends_with(&format!("needs {needed}")), "{what}");
            assert!(what.starts_with("token \""), "{what}");
        }
    }
}

#[tokio::test]
async fn a_request_on_tcp_without_a_valid_token_is_refused_whatever_it_asks() {
    let daemon = WithStore::new();
    let secret = daemon.token("ops", Role::Admin).await;
    let flipped = format!("Bearer {}", secret.replace(['0', '1'], "2"));
    let cut = format!("Bearer {}", &secret[..secret.len() - 1]);
    let basic = format!("Basic {secret}");
    for authorization in [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some(secret.as_str()),
        Some(&flipped),
        Some(&cut),
        Some(&basic),
        Some("Bearer ops"),
    ] {
        for request in [
            ("GET", "/v1/vms", ""),
            ("GET", "/metrics", ""),
            ("GET", "/nothing", ""),
            ("DELETE", "/v1/vms/oltp", ""),
            (
                "POST",
                "/v1/tokens",
                "{\"name\": \"x\", \"role\": \"admin\"}",
            ),
        ] {
            let (status, headers, body) = daemon.remote(request, authorization).await;
            assert_eq!(
                status,
                StatusCode::UNAUTHORIZED,
                "{authorization:?}: {body}"
            );
            assert_eq!(headers[WWW_AUTHENTICATE], "Bearer");
            assert_eq!(body["error"]["where"], "authorization");
            assert!(!body.to_string().contains(&secret), "{body}");
        }
    }
    assert!(
        daemon
            .plane
            .vms(|vms| vms.iter().any(|vm| vm.name == "oltp"))
    );
    assert_eq!(daemon.tokens().await.len(), 1);
    // The scheme is the same in other letters.
    let lower = format!("bearer {secret}");
    let (status, ..) = daemon.remote(("GET", "/v1/vms", ""), Some(&lower)).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_revoked_token_is_refused_from_the_next_request_on() {
    let daemon = WithStore::new();
    let secret = format!("Bearer {}", daemon.token("ops", Role::Admin).await);
    let get = ("GET", "/v1/vms", "");
    let (status, ..) = daemon.remote(get, Some(&secret)).await;
    assert_eq!(status, StatusCode::OK);
    let used = &daemon.tokens().await[0];
    assert!(used.last_used.is_some(), "{used:?}");
    let revoke = ("DELETE", "/v1/tokens/ops", "");
    let (status, _, body) = daemon.remote(revoke, Some(&secret)).await;
    assert_eq!((status, &body["removed"]), (StatusCode::OK, &json!("ops")));
    let (status, ..) = daemon.remote(get, Some(&secret)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, body) = ask_api(&daemon.api, "DELETE", "/v1/tokens/ops", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
}

#[tokio::test]
async fn a_token_has_a_name_a_role_and_perhaps_an_end() {
    let daemon = WithStore::new();
    for (body, at, what) in [
        (
            json!({ "name": "a b", "role": "read" }),
            "name",
            "is no name",
        ),
        (
            json!({ "name": "\u{1b}[2J", "role": "read" }),
            "name",
            "\\u{1b}",
        ),
        (json!({ "name": "", "role": "read" }), "name", "is no name"),
        (
            json!({ "name": "a", "role": "root" }),
            "body",
            "unknown variant",
        ),
        (json!({ "name": "a" }), "body", "missing field `role`"),
        (
            json!({ "name": "a", "role": "read", "x": 1 }),
            "body",
            "unknown field",
        ),
        (
            json!({ "name": "a", "role": "read", "expires_after": "0 s" }),
            "expires_after",
            "is no time for which",
        ),
        (
            json!({ "name": "a", "role": "read", "expires_after": "90000 h" }),
            "expires_after",
            "is no time for which",
        ),
        (
            json!({ "name": "a", "role": "read", "expires_after": "30" }),
            "expires_after",
            "30",
        ),
    ] {
        let text = body.to_string();
        let (status, error) = ask_api(&daemon.api, "POST", "/v1/tokens", &text).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {error}");
        assert_eq!(error["error"]["where"], at, "{error}");
        let said = error["error"]["what"].as_str().unwrap_or_default();
        assert!(said.contains(what), "{said}");
    }
    assert_eq!(daemon.tokens().await, []);
    let body = json!({ "name": "ci", "role": "read", "expires_after": "1 h" }).to_string();
    let (status, _) = ask_api(&daemon.api, "POST", "/v1/tokens", &body).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, error) = ask_api(&daemon.api, "POST", "/v1/tokens", &body).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    let token = &daemon.tokens().await[0];
    let time = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
    let expires = time(token.expires.as_deref().expect("it has an end"));
    assert_eq!(expires.duration_since(time(&token.created)).as_hours(), 1);
    assert!(!token.expired);
}

#[tokio::test]
async fn without_a_store_no_token_is_made() {
    let plane = Pretended::new();
    let body = json!({ "name": "ci", "role": "read" }).to_string();
    let (status, error) = ask(&plane, "POST", "/v1/tokens", &body).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    assert!(error.to_string().contains("[store]"), "{error}");
}
