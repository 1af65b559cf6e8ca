//! Fuzz target `control_requests`: requests of the API to a daemon, without a socket.

use std::sync::{LazyLock, Mutex, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::Api;
use super::access::Caller;
use super::routes::router;
use super::schedule::Clock;
use crate::config;
use crate::daemon::{Daemon, DaemonHandle};

/// Most requests of an input.
const REQUESTS_MAX: usize = 16;
/// Most bytes of an answer: metrics of all VMs are the longest.
const ANSWER_MAX: usize = 4 << 20;
/// VMs beyond those of the configuration with which a daemon is replaced by a new one.
const STRANGERS_MAX: usize = 8;

const CONFIG: &str = r#"
[store]
path = "store"
[[listen]]
unix = "nbd"
[[listen]]
vhost_user = "vhost-{vm}-{disk}"
[[device]]
name = "disk0"
kind = "memory"
[[device]]
name = "disk1"
kind = "memory"
policy = "vfair"
[[vm]]
name = "oltp"
device = "disk0"
[vm.objective]
reservation = "100 IOPS"
[[vm.disk]]
size = "1 MiB"
[[vm]]
name = "bulk"
device = "disk0"
[[vm.disk]]
size = "1 MiB"
[[vm]]
name = "dss"
device = "disk1"
[[vm.disk]]
size = "1 MiB"
"#;

/// Daemon that the inputs of a process have in turn.
static SERVED: LazyLock<Mutex<Served>> = LazyLock::new(|| Mutex::new(Served::start()));

/// Sends the requests of an input, which are separated by zero bytes: a line with method and path,
/// then the body.
///
/// # Panics
/// If a handler or a loop panics, an error has no message, the daemon fails where the request is at
/// fault, or a request that is refused changes something.
pub fn control_requests(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    for request in text.split('\0').take(REQUESTS_MAX) {
        served.ask(request);
    }
    if served.handle.vms().configs().len() > STRANGERS_MAX || served.lacks_a_vm() {
        *served = Served::start();
    }
}

struct Served {
    handle: DaemonHandle,
    api: Api<DaemonHandle>,
    runtime: Runtime,
    // Dropped last, with the sockets and the store.
    _daemon: Daemon,
    _dir: TempDir,
}

impl Served {
    fn start() -> Served {
        // Where there is one, a file system in memory: each change of the store waits for it.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        let loaded = config::parse(CONFIG, "fuzz.toml", dir.path());
        let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let daemon = runtime.block_on(async { Daemon::start(config) });
        let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        let handle = daemon.handle();
        Served {
            api: Api::new(handle.clone(), Clock::system()),
            handle,
            runtime,
            _daemon: daemon,
            _dir: dir,
        }
    }

    fn lacks_a_vm(&self) -> bool {
        let names = ["oltp", "bulk", "dss"];
        names.iter().any(|name| self.handle.vm(name).is_none())
    }

    /// Sends one request and checks the answer.
    fn ask(&self, request: &str) {
        let (line, body) = request.split_once('\n').unwrap_or((request, ""));
        let (method, path) = line.split_once(' ').unwrap_or(("GET", line));
        // A disk of a file would be made wherever the input says.
        let names_a_file = serde_json::from_str(body).is_ok_and(|body| has_key(&body, "path"));
        let request = Request::builder().method(method).uri(path);
        let request = request.extension(Caller::admin());
        let Ok(request) = request.body(Body::from(body.to_owned())) else {
            return;
        };
        if names_a_file {
            return;
        }
        let is_question = *request.method() == Method::GET;
        let before = self.state();
        let (status, answer) = self.runtime.block_on(async {
            let service = TowerToHyperService::new(router(self.api.clone()));
            let answer = service.call(request).await.expect("infallible");
            let (head, body) = answer.into_parts();
            // Events have no end.
            let is_endless =
                (head.headers.get(CONTENT_TYPE)).is_some_and(|kind| kind == "text/event-stream");
            let bytes = match is_endless {
                true => Bytes::new(),
                false => to_bytes(body, ANSWER_MAX).await.expect("a bounded answer"),
            };
            (head.status, bytes)
        });
        assert!(
            !status.is_server_error() || is_unhealthy(path, status),
            "{line}: {status}"
        );
        if status.is_client_error() {
            let error: Value = serde_json::from_slice(&answer).expect("errors are JSON");
            let what = error["error"]["what"].as_str().unwrap_or_default();
            assert!(!what.is_empty(), "{line}: {status} without a message");
        }
        if status.is_client_error() || is_question {
            assert_eq!(self.state(), before, "{line}: {status} changed something");
        }
    }

    /// Returns what requests may change.
    fn state(&self) -> String {
        let (vms, devices) = (self.handle.vms().configs(), self.handle.devices().configs());
        format!("{vms:?} {devices:?}")
    }
}

/// Returns true for the answer of a daemon that says that it is not well.
fn is_unhealthy(path: &str, status: StatusCode) -> bool {
    path.starts_with("/healthz") && status == StatusCode::SERVICE_UNAVAILABLE
}

fn has_key(json: &Value, key: &str) -> bool {
    match json {
        Value::Object(map) => map
            .iter()
            .any(|(name, value)| name == key || has_key(value, key)),
        Value::Array(values) => values.iter().any(|value| has_key(value, key)),
        _ => false,
    }
}
