//! Roles: each route requires one, and a client with a lower one changes nothing.

use tidegate_api::access::Role;

use super::*;
use crate::control::routes::{Route, routes};

const METHODS: [&str; 5] = ["GET", "PUT", "POST", "PATCH", "DELETE"];

/// Returns a path of the route, for a VM and a disk that there are.
fn filled(route: &Route<Pretended>) -> String {
    let names = route.path.replace("/policies/{name}", "/policies/mclock");
    let names = names.replace("/devices/{name}", "/devices/disk0");
    let names = names.replace("{name}", "oltp").replace("{export}", "oltp");
    let names = names.replace("{number}", "1");
    // Without a number of events the answer has no end.
    names.replace("/v1/events", "/v1/events?count=1")
}

/// Sends a request as a client; `None` is a request that no socket has named a client for.
async fn ask_as(
    plane: &Pretended,
    caller: Option<Caller>,
    (method, path, body): (&str, &str, &str),
) -> (StatusCode, Value) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(caller) = caller {
        request = request.extension(caller);
    }
    let request = request.body(Body::from(body.to_owned())).expect("good");
    let router = router(Api::new(plane.clone(), Clock::system()));
    let answer = router.oneshot(request).await.expect("infallible");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a body");
    let body = serde_json::from_slice(&body.to_bytes());
    (status, body.unwrap_or(Value::Null))
}

/// Returns all that requests may change.
fn state(plane: &Pretended) -> String {
    let vms = plane.vms(|vms| format!("{vms:?}"));
    let devices = plane.with(|devices| format!("{devices:?}"));
    let stored = plane.stored.lock().expect("no test thread has panicked");
    format!("{vms} {devices} {stored:?}")
}

/// Returns the rows of the table of requests in the documentation: method and path, and role.
fn documented() -> BTreeSet<(String, String)> {
    let page = include_str!("../../../../../docs/api.md");
    let (_, table) = page.split_once("## Requests").expect("a section");
    let (table, _) = table.split_once("\n## ").expect("a section behind it");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
    })
    .collect()
}

#[test]
fn every_route_has_a_role_in_the_documentation() {
    let routes = routes::<Pretended>();
    let table: BTreeSet<_> = (routes.iter())
        .map(|route| {
            let request = format!("{} {}", route.method, route.path);
            (request, route.role.to_string())
        })
        .collect();
    assert_eq!(table.len(), routes.len(), "a route is there twice");
    assert_eq!(table, documented(), "docs/api.md");
}

#[test]
fn a_role_below_admin_reaches_no_host_path_and_no_configuration() {
    // Written down a second time, because a mistake here is a hole.
    let below_admin: BTreeSet<_> = routes::<Pretended>()
        .iter()
        .filter(|route| route.role < Role::Admin && route.method != "GET")
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    let expected = [
        "DELETE /v1/vms/{name}/job",
        "DELETE /v1/vms/{name}/schedule",
        "DELETE /v1/vms/{name}/schedule/{number}",
        "DELETE /v1/whatif",
        // Rates alone, and names of limit groups that the configuration has.
        "PATCH /v1/devices/{name}/limit_groups/{group}",
        "PATCH /v1/vms/{name}/disks/{export}/limits",
        "PATCH /v1/vms/{name}/objective",
        "POST /v1/vms/{name}/schedule",
        // The files go to the directory that the configuration names.
        "PUT /v1/devices/{name}/recording",
        "PUT /v1/vms/{name}/job",
        // Reads recordings that the daemon has made, in a process with bounds.
        "POST /v1/whatif",
    ];
    assert_eq!(below_admin, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn a_client_with_too_low_a_role_is_told_which_it_needs_and_changes_nothing() {
    let plane = Pretended::new();
    let before = state(&plane);
    let mut refused = 0;
    for route in routes::<Pretended>() {
        let path = filled(&route);
        let (method, needed) = (route.method.as_str(), route.role);
        for role in [None, Some(Role::Read), Some(Role::Operate)] {
            if role >= Some(needed) {
                continue;
            }
            let request = (method, path.as_str(), "{\"weight\": 7}");
            let (status, body) = ask_as(&plane, Some(Caller::with(role)), request).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
            let what = body["error"]["what"].as_str().unwrap_or_default();
            let expected = match role {
                None => "user 1000 has no role at this socket".to_owned(),
                Some(role) => format!(
                    "user 1000 has the role {role}, and {method} {} needs {needed}",
                    route.path
                ),
            };
            assert_eq!(what, expected);
            assert_eq!(body["error"]["where"], "role");
            refused += 1;
        }
        let (status, body) = ask_as(&plane, None, (method, &path, "")).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
    }
    assert_eq!(state(&plane), before);
    assert!(refused > 40, "only {refused}");
}

#[tokio::test]
async fn a_client_with_the_role_of_a_route_or_a_higher_one_may_use_it() {
    for route in routes::<Pretended>() {
        let (method, path) = (route.method.as_str(), filled(&route));
        for role in Role::ALL.into_iter().filter(|role| *role >= route.role) {
            let plane = Pretended::new();
            let caller = Some(Caller::with(Some(role)));
            let (status, body) = ask_as(&plane, caller, (method, &path, "{}")).await;
            assert_ne!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
            assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn what_is_no_route_is_nothing_to_anybody() {
    let plane = Pretended::new();
    let before = state(&plane);
    let routes = routes::<Pretended>();
    let there: BTreeSet<_> = (routes.iter())
        .map(|route| (route.method.to_string(), filled(route)))
        .collect();
    let mut paths: BTreeSet<_> = routes.iter().map(filled).collect();
    let unknown = [
        "/",
        "/v1",
        "/v1/vms/oltp/",
        "//v1/vms",
        "/v1/tokens/../vms/oltp",
    ];
    paths.extend(unknown.map(str::to_owned));
    for path in &paths {
        for method in METHODS {
            if there.contains(&(method.to_owned(), path.clone())) {
                continue;
            }
            for role in [
                None,
                Some(Role::Read),
                Some(Role::Operate),
                Some(Role::Admin),
            ] {
                let caller = Some(Caller::with(role));
                let (status, body) = ask_as(&plane, caller, (method, path, "{}")).await;
                let expected: &[StatusCode] = match role {
                    // A client without a role does not learn which paths there are.
                    None => &[StatusCode::FORBIDDEN],
                    Some(_) => &[StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED],
                };
                assert!(
                    expected.contains(&status),
                    "{method} {path}: {status} {body}"
                );
            }
        }
    }
    assert_eq!(state(&plane), before);
}
