//! etcd for tests: started on free loopback ports in a directory of its own, ended by its process.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_cluster::store::{EtcdOptions, EtcdStore, EtcdTls, EtcdUser};

/// Time for etcd to begin to answer.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Time-out of calls, shorter than that of the program: many tests wait for one.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns true if etcd and etcdctl are installed. A test that needs them returns early otherwise,
/// which it says; with `CI=true` it fails.
pub(crate) fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let Some(missing) = ["etcd", "etcdctl"].iter().find(|name| !has(name)) else {
        return true;
    };
    assert!(
        std::env::var_os("CI").as_deref() != Some(OsStr::new("true")),
        "needs {missing}, and nothing is skipped in CI: make setup"
    );
    let test = thread::current().name().unwrap_or("?").to_owned();
    let _ = io::stderr().write_all(format!("skipped: needs {missing} ({test})\n").as_bytes());
    false
}

/// Server of a cluster of one; killed when dropped.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    client_port: u16,
    peer_port: u16,
    /// Port on which it says, in the clear, whether it serves.
    health_port: u16,
    tls: Option<TlsFiles>,
    child: Mutex<Option<Child>>,
}

/// Files of a server that asks clients for certificates.
pub(crate) struct TlsFiles {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Certificate and key of a client.
    pub(crate) client: (PathBuf, PathBuf),
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::start_in(tempfile::tempdir().expect("a directory"), None)
    }

    pub(crate) fn start_in(dir: tempfile::TempDir, tls: Option<TlsFiles>) -> Server {
        let mut server = Server {
            dir,
            client_port: 0,
            peer_port: 0,
            health_port: 0,
            tls,
            child: Mutex::default(),
        };
        // Another program may take a port between the choice and the start.
        for _ in 0..8 {
            (server.client_port, server.peer_port) = (free_port(), free_port());
            server.health_port = free_port();
            if server.try_spawn() {
                return server;
            }
        }
        panic!("etcd does not start: {}", server.log());
    }

    /// Server that all tests share, each below a prefix of its own.
    pub(crate) fn shared() -> Arc<Server> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED
            .lock()
            .unwrap_or_else(|panicked| panicked.into_inner());
        // Ended with the last test that uses it: a static would outlive the tests.
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Server::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Prefix that no other test of the server uses.
    pub(crate) fn new_prefix() -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        format!("/tidegate-{}/", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.client_port)
    }

    pub(crate) fn client_port(&self) -> u16 {
        self.client_port
    }

    pub(crate) fn options(&self, prefix: &str) -> EtcdOptions {
        let read = |path: &Path| fs::read(path).expect("a file of the test");
        EtcdOptions {
            endpoints: vec![self.url()],
            prefix: prefix.to_owned(),
            user: None,
            call_timeout: CALL_TIMEOUT,
            tls: self.tls.as_ref().map(|tls| EtcdTls {
                authority: read(&tls.authority),
                identity: Some((read(&tls.client.0), read(&tls.client.1))),
            }),
        }
    }

    pub(crate) fn store(&self, prefix: &str) -> EtcdStore {
        EtcdStore::new(&self.options(prefix)).expect("valid")
    }

    /// Server that is not running yet, at a port that was free.
    pub(crate) fn not_started() -> Server {
        Server {
            dir: tempfile::tempdir().expect("a directory"),
            client_port: free_port(),
            peer_port: free_port(),
            health_port: free_port(),
            tls: None,
            child: Mutex::default(),
        }
    }

    pub(crate) fn store_as(&self, prefix: &str, name: &str, password: &str) -> EtcdStore {
        let user = EtcdUser {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let options = EtcdOptions {
            user: Some(user),
            ..self.options(prefix)
        };
        EtcdStore::new(&options).expect("valid")
    }

    /// Stops the server's process, which then answers nothing and keeps its connections.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets the process of a paused server go on.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let child = self.child.lock().expect("one thread");
        let pid = child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("installed").success());
    }

    /// Kills the server, as a power cut would.
    pub(crate) fn kill(&self) {
        let child = self.child.lock().expect("one thread").take();
        let mut child = child.expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    /// Starts the server again with what it has stored.
    pub(crate) fn restart(&self) {
        assert!(
            self.try_spawn(),
            "etcd does not start again: {}",
            self.log()
        );
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Starts the server and waits until it answers; false: it ended.
    fn try_spawn(&self) -> bool {
        let log = fs::File::create(self.dir.path().join("log")).expect("writable");
        let client = self.url();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(self.dir.path().join("data"))
            .args(["--name", "one", "--logger", "zap", "--log-level", "warn"])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args([
                "--listen-metrics-urls",
                &format!("http://127.0.0.1:{}", self.health_port),
            ])
            // A cluster of one elects itself, and the sooner the better.
            .args(["--heartbeat-interval", "10", "--election-timeout", "100"])
            .args(["--bcrypt-cost", "4"]);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.certificate);
            command.arg("--key-file").arg(&tls.key);
            command.arg("--trusted-ca-file").arg(&tls.authority);
            command.arg("--client-cert-auth");
        }
        command.stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().expect("etcd is installed");
        let end = Instant::now() + START_LIMIT;
        loop {
            if child.try_wait().expect("it is ours").is_some() {
                return false;
            }
            // It listens before it serves.
            if self.is_healthy().unwrap_or(false) {
                break;
            }
            assert!(Instant::now() < end, "etcd does not serve: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        *self.child.lock().expect("one thread") = Some(child);
        true
    }

    fn is_healthy(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.health_port))?;
        stream.set_read_timeout(Some(START_LIMIT))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains("\"health\":\"true\""))
    }

    /// Runs `etcdctl` with the server, and returns what it prints.
    pub(crate) fn etcdctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url(), "--command-timeout", "60s"])
            .args(args);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.authority);
            command.arg("--cert").arg(&tls.client.0);
            command.arg("--key").arg(&tls.client.1);
        }
        let output = command.output().expect("etcdctl is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {args:?}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self
            .child
            .get_mut()
            .unwrap_or_else(|panicked| panicked.into_inner());
        if let Some(child) = child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
