//! Listeners of the dashboard: who may ask what, and from where.

use axum::Router;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use tidegate_api::access::Role;

use super::tokens::WithStore;
use super::*;
use crate::control::dashboard;

const OURS: &str = "127.0.0.1:9807";

/// Dashboard of a simulated daemon.
struct Page {
    daemon: WithStore,
    router: Router,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Page {
    fn new() -> Page {
        let daemon = WithStore::new();
        let names = ["storage.example".to_owned()];
        let router = dashboard::router(router(daemon.api.clone()), &names);
        Page { daemon, router }
    }

    /// Sends a request with these headers.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let address = "127.0.0.1:40000".parse().expect("an address");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .extension(dashboard::visitor(address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("good");
        let answer = self.router.clone().oneshot(request).await;
        let answer = answer.expect("infallible");
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.into_body().collect().await.expect("a body");
        Answer {
            status,
            headers,
            body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask("GET", path, headers, "").await
    }

    fn state(&self) -> String {
        format!("{:?}", self.daemon.plane.with(|devices| devices.clone()))
    }
}

#[tokio::test]
async fn a_host_that_is_not_the_listeners_is_refused() {
    let page = Page::new();
    for host in [
        OURS,
        "127.0.0.1",
        "127.8.9.1:1",
        "localhost:9807",
        "LOCALHOST",
        "[::1]:9807",
        "[::ffff:127.0.0.1]:9807",
        "storage.example",
        "Storage.Example:8443",
    ] {
        for path in ["/", "/v1/vms"] {
            let answer = page.get(path, &[(HOST.as_str(), host)]).await;
            assert_eq!(
                answer.status,
                StatusCode::OK,
                "{host} {path}: {}",
                answer.body
            );
        }
    }
    // Names that resolve to the loopback address are anybody's.
    for host in [
        "attacker.example:9807",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "storage.example.attacker.example",
        "localhost@attacker.example",
        "attacker.example@localhost",
        "192.0.2.1:9807",
        "0.0.0.0:9807",
        "[::2]:9807",
        "localhost:9807/x",
        "",
    ] {
        for path in ["/", "/assets/x", "/v1/vms", "/v1/nothing", "/healthz"] {
            let answer = page.get(path, &[(HOST.as_str(), host)]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{host} {path}");
            assert!(answer.body.contains("\"host\""), "{}", answer.body);
            assert!(!answer.body.contains("oltp"), "{}", answer.body);
        }
    }
    for headers in [&[][..], &[("host", OURS), ("host", "attacker.example")]] {
        let answer = page.get("/v1/vms", headers).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    // The target of a request counts before its header.
    let uri: Uri = "http://attacker.example/v1/vms".parse().expect("a URI");
    let answer = page.get(&uri.to_string(), &[("host", OURS)]).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn pages_of_other_origins_read_and_change_nothing() {
    let page = Page::new();
    let secret = page.daemon.token("ops", Role::Operate).await;
    let bearer = format!("Bearer {secret}");
    let before = page.state();
    let own = [("host", OURS), ("origin", "http://127.0.0.1:9807")];
    assert_eq!(page.get("/v1/vms", &own).await.status, StatusCode::OK);
    let by_proxy = [
        ("host", "storage.example"),
        ("origin", "https://storage.example"),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(page.get("/v1/vms", &by_proxy).await.status, StatusCode::OK);
    for header in [
        (ORIGIN.as_str(), "http://attacker.example"),
        (ORIGIN.as_str(), "null"),
        (ORIGIN.as_str(), "http://127.0.0.1:3000"),
        (ORIGIN.as_str(), "http://localhost:9807"),
        (ORIGIN.as_str(), "file://127.0.0.1:9807"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [("host", OURS), header, ("authorization", bearer.as_str())];
        for (method, path, body) in [
            ("GET", "/v1/vms", ""),
            ("GET", "/v1/events?count=1", ""),
            ("GET", "/assets/x", ""),
            ("PATCH", "/v1/vms/oltp/objective", "{\"weight\": 7}"),
        ] {
            let answer = page.ask(method, path, &headers, body).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{header:?} {path}");
            assert!(answer.body.contains("\"origin\""), "{}", answer.body);
        }
    }
    assert_eq!(page.state(), before);
    // A link from elsewhere leads to the page, which has nothing secret.
    let link = [("host", OURS), ("sec-fetch-site", "cross-site")];
    assert_eq!(page.get("/", &link).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_visitor_without_a_token_reads_and_changes_nothing() {
    let page = Page::new();
    let before = page.state();
    for path in ["/v1/vms", "/v1/devices/disk0", "/v1/stats", "/healthz"] {
        let answer = page.get(path, &[("host", OURS)]).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
    }
    for path in ["/v1/tokens", "/v1/devices/disk0/recording"] {
        let answer = page.get(path, &[("host", OURS)]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    for (method, path) in [
        ("PATCH", "/v1/vms/oltp/objective"),
        ("PUT", "/v1/devices/disk0/policy"),
        ("PUT", "/v1/devices/disk0/recording"),
        ("POST", "/v1/tokens"),
        ("DELETE", "/v1/vms/oltp"),
        ("OPTIONS", "/v1/vms"),
        ("PUT", "/v1/nothing"),
    ] {
        let answer = page
            .ask(method, path, &[("host", OURS)], "{\"weight\": 7}")
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path}");
        assert!(answer.body.contains("needs a token"), "{}", answer.body);
    }
    for wrong in ["Bearer tidegate_0", "bearer  ", "Bearer"] {
        let headers = [("host", OURS), (AUTHORIZATION.as_str(), wrong)];
        let answer = page.get("/v1/vms", &headers).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    assert_eq!(page.state(), before);
}

#[tokio::test]
async fn passwords_for_a_proxy_are_no_token_and_a_token_has_a_header_beside_them() {
    let page = Page::new();
    let secret = page.daemon.token("ops", Role::Operate).await;
    let basic = [("host", OURS), (AUTHORIZATION.as_str(), "Basic YTpi")];
    assert_eq!(page.get("/v1/vms", &basic).await.status, StatusCode::OK);
    let path = "/v1/vms/oltp/objective";
    let body = "{\"weight\": 7}";
    let before = page.state();
    let answer = page.ask("PATCH", path, &basic, body).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}", answer.body);
    for wrong in ["tidegate_0", "", "Basic YTpi"] {
        let headers = [basic[0], basic[1], ("x-tidegate-token", wrong)];
        let answer = page.get("/v1/vms", &headers).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
    assert_eq!(page.state(), before);
    let headers = [basic[0], basic[1], ("x-tidegate-token", secret.as_str())];
    let answer = page.ask("PATCH", path, &headers, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
}

#[tokio::test]
async fn a_visitor_has_the_role_of_its_token() {
    let page = Page::new();
    for role in Role::ALL {
        let secret = page.daemon.token(role.name(), role).await;
        let bearer = format!("Bearer {secret}");
        let headers = [("host", OURS), ("authorization", bearer.as_str())];
        let body = "{\"weight\": 7}";
        let path = "/v1/vms/oltp/objective";
        let changed = page.ask("PATCH", path, &headers, body).await;
        let listed = page.get("/v1/tokens", &headers).await;
        let expected = match role {
            Role::Read => (StatusCode::FORBIDDEN, StatusCode::FORBIDDEN),
            Role::Operate => (StatusCode::OK, StatusCode::FORBIDDEN),
            Role::Admin => (StatusCode::OK, StatusCode::OK),
        };
        assert_eq!((changed.status, listed.status), expected, "{role}");
    }
}

#[tokio::test]
async fn every_answer_forbids_code_and_frames_of_others() {
    let page = Page::new();
    for (path, headers) in [
        ("/", &[("host", OURS)][..]),
        ("/v1/vms", &[("host", OURS)]),
        ("/v1/nothing", &[("host", OURS)]),
        ("/assets/none.js", &[("host", OURS)]),
        ("/", &[("host", "attacker.example")]),
    ] {
        let answer = page.get(path, headers).await;
        let header = |name: &str| {
            let value = answer.headers.get(name).expect("it is there");
            value.to_str().expect("text").to_owned()
        };
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin");
        assert!(answer.headers.contains_key(CACHE_CONTROL), "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn files_have_their_types_and_are_cached_by_their_names() {
    let page = Page::new();
    for asset in tidegate_dashboard::assets() {
        let answer = page.get(asset.path, &[("host", OURS)]).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", asset.path);
        assert_eq!(answer.headers[CONTENT_TYPE], asset.content_type);
        let caching = answer.headers[CACHE_CONTROL].to_str().expect("text");
        assert_eq!(caching.contains("immutable"), asset.is_hashed);
        assert_eq!(answer.body.as_bytes(), asset.bytes, "{}", asset.path);
        let answer = page.ask("POST", asset.path, &[("host", OURS)], "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    }
    let api = page.get("/v1/vms", &[("host", OURS)]).await;
    assert_eq!(api.headers[CACHE_CONTROL], "no-store");
    for path in [
        "/assets/none",
        "/assets/..%2fCargo.toml",
        "/index.html",
        "/assets/",
    ] {
        let answer = page.get(path, &[("host", OURS)]).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
}
