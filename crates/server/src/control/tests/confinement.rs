//! Clients below the role `admin` reach no file of the host and change nothing but objectives,
//! schedules and transfers, whatever they send: random sequences of requests to a daemon, with
//! hostile names and paths, beside files that nobody may open.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tempfile::TempDir;
use tidegate_api::access::Role;
use tokio::runtime::Runtime;

use super::*;
use crate::config;
use crate::control::routes::routes;
use crate::daemon::{Daemon, DaemonHandle};

/// Words in the files that nobody may open.
const CANARY: &str = "canary-7f3a91";
const SEQUENCES: u64 = 48;
const REQUESTS: usize = 48;

const CONFIG: &str = r#"
[store]
path = "store.redb"
[paths]
allow = ["disks"]
[[listen]]
unix = "nbd"
[[device]]
name = "disk0"
kind = "file"
[[device]]
name = "ram"
kind = "memory"
[[vm]]
name = "oltp"
device = "disk0"
[[vm.disk]]
path = "disks/oltp.raw"
size = "1 MiB"
[[vm]]
name = "bulk"
device = "ram"
[[vm.disk]]
size = "1 MiB"
"#;

/// Observer of directories: sees each file in them that is opened, made, changed or removed.
struct Observer(OwnedFd);

impl Observer {
    fn of(directories: &[&Path]) -> Observer {
        // SAFETY: takes and returns integers.
        let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the call has just opened the descriptor, which nobody else owns.
        let observer = Observer(unsafe { OwnedFd::from_raw_fd(fd) });
        for directory in directories {
            let path = std::ffi::CString::new(directory.as_os_str().as_bytes()).expect("no NUL");
            let events = libc::IN_OPEN
                | libc::IN_ACCESS
                | libc::IN_MODIFY
                | libc::IN_ATTRIB
                | libc::IN_CREATE
                | libc::IN_DELETE
                | libc::IN_MOVE;
            // SAFETY: the path is a C string of ours.
            let watch =
                unsafe { libc::inotify_add_watch(observer.0.as_raw_fd(), path.as_ptr(), events) };
            assert!(watch >= 0, "{}", io::Error::last_os_error());
        }
        observer
    }

    /// Returns true if anything has happened since the last call.
    fn has_seen(&self) -> bool {
        let mut seen = false;
        let mut events = [0_u8; 4096];
        loop {
            let (fd, at, len) = (self.0.as_raw_fd(), events.as_mut_ptr(), events.len());
            // SAFETY: the buffer is ours and as long as the call is told.
            let n = unsafe { libc::read(fd, at.cast(), len) };
            if n <= 0 {
                return seen;
            }
            seen = true;
        }
    }
}

/// Daemon with files around it, and its API without a socket.
struct Served {
    api: Api<DaemonHandle>,
    handle: DaemonHandle,
    runtime: Runtime,
    observer: Observer,
    // Dropped last, with the sockets and the store.
    _daemon: Daemon,
    dir: TempDir,
}

impl Served {
    fn start() -> Served {
        // Where there is one, a file system in memory: each change of the store waits for it.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        let (disks, outside) = (dir.path().join("disks"), dir.path().join("outside"));
        for directory in [&disks, &outside] {
            fs::create_dir(directory).expect("writable");
            // Long enough to be a disk.
            let content = CANARY.repeat(1 << 10);
            fs::write(directory.join("canary.raw"), content).expect("writable");
        }
        fs::write(disks.join("oltp.raw"), vec![7; 1 << 20]).expect("writable");
        std::os::unix::fs::symlink(outside.join("canary.raw"), disks.join("link.raw"))
            .expect("writable");
        let loaded = config::parse(CONFIG, "test.toml", dir.path());
        let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let daemon = runtime.block_on(async { Daemon::start(config) });
        let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        let handle = daemon.handle();
        let tokens = Tokens::load(handle.store().cloned());
        Served {
            api: Api::new(handle.clone(), Clock::system()).with_tokens(tokens),
            handle,
            runtime,
            // After the start, which has opened the disk of the configuration.
            observer: Observer::of(&[&disks, &outside]),
            _daemon: daemon,
            dir,
        }
    }

    fn ask(
        &self,
        caller: Caller,
        (method, path, body): (&str, &str, &str),
    ) -> Option<(u16, String)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .extension(caller);
        // Texts that are no request do not come through a socket either.
        let request = request.body(Body::from(body.to_owned())).ok()?;
        Some(self.runtime.block_on(async {
            let answer = router(self.api.clone()).oneshot(request).await;
            let (head, body) = answer.expect("infallible").into_parts();
            // Events have no end.
            let is_endless =
                (head.headers.get(CONTENT_TYPE)).is_some_and(|kind| kind == "text/event-stream");
            let body = match is_endless {
                true => Bytes::new(),
                false => body.collect().await.expect("a body").to_bytes(),
            };
            (
                head.status.as_u16(),
                String::from_utf8_lossy(&body).into_owned(),
            )
        }))
    }

    /// Returns all that only an administrator may change.
    fn state(&self) -> String {
        let mut vms = self.handle.vms().configs();
        for vm in &mut vms {
            (vm.objective, vm.schedule) = (Objective::default(), None);
        }
        let devices = self.handle.devices().configs();
        let admin = |path| self.ask(Caller::admin(), ("GET", path, ""));
        let faults = admin("/v1/disks/oltp/faults");
        format!("{vms:?} {devices:?} {faults:?} {:?}", admin("/v1/tokens"))
    }

    /// Returns the files around the daemon with their content and times; of the store only that it
    /// is there, and nothing of the history, whose thread makes its directory in its own time.
    fn files(&self) -> BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)> {
        let mut files = BTreeMap::new();
        for directory in ["", "disks", "outside"] {
            let entries = fs::read_dir(self.dir.path().join(directory)).expect("readable");
            for entry in entries {
                let path = entry.expect("readable").path();
                if path.ends_with("store.history") {
                    continue;
                }
                let meta = fs::symlink_metadata(&path).expect("it is there");
                let is_store = path.ends_with("store.redb");
                let content = if meta.is_file() && !is_store {
                    fs::read(&path).expect("readable")
                } else {
                    Vec::new()
                };
                let times = if meta.is_file() && !is_store {
                    (meta.mtime_nsec(), meta.ctime_nsec())
                } else {
                    (0, 0)
                };
                files.insert(path, (meta.ino(), times.0, times.1, content));
            }
        }
        files
    }
}

/// Draws requests of clients that know the daemon and its host.
struct Attacker {
    rng: Pcg64,
    dir: String,
    routes: Vec<(String, &'static str)>,
}

impl Attacker {
    fn new(seed: u64, dir: &Path) -> Attacker {
        let routes = routes::<DaemonHandle>();
        Attacker {
            rng: Pcg64::seed_from_u64(seed),
            dir: dir.display().to_string(),
            routes: (routes.iter())
                .map(|route| (route.method.to_string(), route.path))
                .collect(),
        }
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from.choose(&mut self.rng).expect("not empty")
    }

    /// Returns the path of a file of the host.
    fn host_path(&mut self) -> String {
        let name = self.pick(&[
            "outside/canary.raw",
            "disks/canary.raw",
            "disks/link.raw",
            "disks/../outside/canary.raw",
            "disks/new.raw",
            "store.redb",
            "disks",
        ]);
        let dir = self.dir.clone();
        match self.rng.random_range(0..4) {
            0 => name.to_owned(),
            1 => format!("/proc/self/cwd/../../../{dir}/{name}"),
            2 => "/etc/passwd".to_owned(),
            _ => format!("{dir}/{name}"),
        }
    }

    /// Returns a segment of a path in a URL.
    fn segment(&mut self) -> String {
        if self.rng.random_bool(0.6) {
            return self
                .pick(&["oltp", "oltp", "bulk", "disk0", "ram", "1", "mclock"])
                .to_owned();
        }
        if self.rng.random_bool(0.5) {
            return tidegate_api::query::percent_encode(&self.host_path()).to_string();
        }
        let hostile = [
            "..",
            "%2e%2e",
            "%2e%2e%2foutside%2fcanary.raw",
            "%00",
            "%ff",
            "",
            "*",
            "oltp%00",
            "oltp%2fdisks%2foltp",
            "-",
            "%1b%5b2J",
            "{name}",
            "new",
        ];
        self.pick(&hostile).to_owned()
    }

    fn body(&mut self) -> String {
        let path = self.host_path();
        let name = self.pick(&["new", "oltp", "../x", "bulk"]);
        let body = match self.rng.random_range(0..14) {
            0 => json!({ "disk": [{ "path": path, "size": "1 MiB", "create": "sparse" }] }),
            1 => json!({ "device": "disk0", "disk": [{ "path": path, "export": name }] }),
            2 => json!({ "path": path, "size": "1 MiB", "create": "preallocated" }),
            3 => json!({ "path": path, "format": "raw" }),
            4 => json!({ "size": "2 MiB" }),
            5 => json!({ "weight": 7, "limit": "500 IOPS", "disk": [{ "path": path }] }),
            6 => json!({ "weight": 100 + self.rng.random_range(0..900), "limit": "500 IOPS" }),
            7 => json!({ "size": "1 MiB", "deadline": "60 s", "path": path }),
            8 => json!({ "size": "1 MiB", "deadline": "60 s" }),
            9 => json!({ "name": name, "role": "admin" }),
            // Allowed to operators, so that sequences go on from changed states.
            _ => json!({ "weight": 100 + self.rng.random_range(0..900) }),
        };
        match self.rng.random_range(0..10) {
            0 => format!("{body}{body}"),
            1 => json!({ "operations": ["write"], "error": "EIO" }).to_string(),
            2 => json!({ "from": "18:00", "until": "24:00", "weight": 300 }).to_string(),
            3 => "\"fifo\"".to_owned(),
            _ => body.to_string(),
        }
    }

    fn request(&mut self) -> (String, String, String) {
        let all = self.routes.clone();
        let (mut method, mut template) = all.choose(&mut self.rng).expect("not empty").clone();
        if self.rng.random_bool(0.2) {
            (method, template) = ("PATCH".to_owned(), "/v1/vms/{name}/objective");
        }
        if self.rng.random_bool(0.1) {
            // Allowed to operators, so that sequences go on from changed states.
            let body = json!({ "weight": 100 + self.rng.random_range(0..900) });
            let path = "/v1/vms/oltp/objective".to_owned();
            return ("PATCH".to_owned(), path, body.to_string());
        }
        let mut path = String::new();
        for part in template.split('/').skip(1) {
            path.push('/');
            match part.starts_with('{') {
                true => path.push_str(&self.segment()),
                false => path.push_str(part),
            }
        }
        if self.rng.random_bool(0.1) {
            path = format!("{path}/{}", self.segment());
        }
        let query = [
            "",
            "",
            "?force=true",
            "?persist=true",
            "?force=true&persist=true",
        ];
        path.push_str(self.pick(&query));
        let other = ["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"];
        let method = if self.rng.random_bool(0.2) {
            self.pick(&other).to_owned()
        } else {
            method
        };
        (method, path, self.body())
    }
}

#[test]
fn below_admin_no_sequence_of_requests_reaches_a_file_or_changes_a_disk() {
    let served = Served::start();
    let (files, state) = (served.files(), served.state());
    assert!(
        served.observer.has_seen(),
        "this process has just read them"
    );
    let mut changes = 0;
    let mut done = BTreeMap::<(Role, u16), u32>::new();
    for seed in 0..SEQUENCES {
        let role = if seed % 3 == 0 {
            Role::Read
        } else {
            Role::Operate
        };
        let mut attacker = Attacker::new(seed, served.dir.path());
        for _ in 0..REQUESTS {
            let (method, path, body) = attacker.request();
            let request = (method.as_str(), path.as_str(), body.as_str());
            let Some((status, answer)) = served.ask(Caller::with(Some(role)), request) else {
                continue;
            };
            assert!(!answer.contains(CANARY), "seed {seed}: {request:?}");
            assert!(!answer.contains("root:x:"), "seed {seed}: {request:?}");
            assert_ne!(status, 500, "seed {seed}: {request:?}: {answer}");
            assert!(!served.observer.has_seen(), "seed {seed}: {request:?}");
            *done.entry((role, status)).or_default() += 1;
            let asks = ["GET", "HEAD"].contains(&method.as_str());
            changes += u32::from(!asks && status == 200);
        }
        assert_eq!(served.state(), state, "seed {seed}");
    }
    assert_eq!(served.files(), files);
    served.observer.has_seen();
    // Neither did everything fail for another reason, nor was nothing changed that may be.
    for (role, status, least) in [
        (Role::Read, 200, 100),
        (Role::Read, 403, 100),
        (Role::Operate, 200, 200),
        (Role::Operate, 403, 200),
    ] {
        let times = done.get(&(role, status)).copied().unwrap_or_default();
        assert!(times >= least, "{role} {status}: {done:?}");
    }
    assert!(changes >= 30, "only {changes} changes");
}

#[test]
fn the_observer_sees_what_an_administrator_opens() {
    let served = Served::start();
    served.observer.has_seen();
    let path = served.dir.path().join("disks/canary.raw");
    let body = json!({ "path": path, "format": "raw" }).to_string();
    let request = ("PUT", "/v1/vms/oltp/disks/new", body.as_str());
    let (status, answer) = served.ask(Caller::admin(), request).expect("a request");
    assert_eq!(status, 201, "{answer}");
    assert!(served.observer.has_seen());
}
