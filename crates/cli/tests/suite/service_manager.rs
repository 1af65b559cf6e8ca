//! A daemon under a service manager, which is played by the test: notifications, watchdog, and
//! sockets that are passed.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::nbd::Disk;
use crate::common::{CONFIG, stderr, tidegate};

/// Time after which something does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Service manager with a daemon, which is killed when this is dropped.
struct Manager {
    child: Child,
    notifications: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Manager {
    /// Starts a daemon with variables, and with sockets as its descriptors 3 and 4.
    fn start(
        dir: tempfile::TempDir,
        config: &str,
        variables: &[(&str, &str)],
        sockets: Option<[OwnedFd; 2]>,
    ) -> Manager {
        let file = dir.path().join("t.toml");
        std::fs::write(&file, config).expect("writable");
        let path = dir.path().join("notify");
        let notifications = UnixDatagram::bind(&path).expect("a free path");
        notifications
            .set_read_timeout(Some(PATIENCE))
            .expect("not zero");
        // The variable names the process, whose number it is only to have.
        let run = "exec env LISTEN_PID=$$ \"$0\" serve \"$1\" 3<&0 4<&1 0</dev/null 1>/dev/null";
        let mut command = Command::new("sh");
        if let Some([first, second]) = sockets {
            command
                .stdin(Stdio::from(first))
                .stdout(Stdio::from(second));
            command.env("LISTEN_FDS", "2");
        }
        let child = command
            .args(["-c", run, env!("CARGO_BIN_EXE_tidegate")])
            .arg(&file)
            .env("NOTIFY_SOCKET", &path)
            .envs(variables.iter().copied())
            .stderr(std::fs::File::create(dir.path().join("log")).expect("writable"))
            .spawn()
            .expect("there is a shell");
        Manager {
            child,
            notifications,
            dir,
        }
    }

    /// Returns the lines of the next notification.
    fn next(&self) -> Vec<String> {
        let mut lines = [0; 4096];
        let received = self.notifications.recv(&mut lines);
        let len = received.unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        let text = std::str::from_utf8(&lines[..len]).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the next notification that is not the watchdog's.
    fn next_change(&self) -> Vec<String> {
        let mut lines = self.next();
        while lines == ["WATCHDOG=1"] {
            lines = self.next();
        }
        lines
    }

    /// Waits until the log has a text. It is written beside what the daemon does.
    fn wait_for_log(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "no {text:?} in {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).expect("text")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let socket = self.path("control.sock");
        let socket = socket.to_str().expect("plain");
        let output = tidegate(&[&["--socket", socket, "-o", "json"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_manager_is_told_when_the_daemon_serves_how_much_and_when_it_ends() {
    let mut manager = Manager::start(directory(), CONFIG, &[], None);
    let ready = ["READY=1", "STATUS=serving 2 VMs on 1 device"];
    assert_eq!(manager.next(), ready);
    // Whoever waited for that finds everything there.
    let mut disk = Disk::open(&manager.path("nbd.sock"), "oltp");
    disk.read(0, 4096).expect("it is served");
    assert_eq!(manager.json(&["vm", "list"])[1]["name"], "bulk");
    manager.json(&["vm", "remove", "bulk"]);
    assert_eq!(manager.next(), ["STATUS=serving 1 VM on 1 device"]);
    manager.terminate();
    let stopping = manager.next();
    assert_eq!(stopping[0], "STOPPING=1");
    assert!(
        stopping[2].starts_with("EXTEND_TIMEOUT_USEC="),
        "{stopping:?}"
    );
    assert!(manager.child.wait().expect("it ends").success());
}

#[test]
fn the_watchdog_goes_on_while_a_disk_hangs() {
    let watchdog = [("WATCHDOG_USEC", "200000")];
    let manager = Manager::start(directory(), CONFIG, &watchdog, None);
    assert_eq!(manager.next_change()[0], "READY=1");
    manager.json(&["disk", "fault", "add", "oltp", "--stall", "1 h"]);
    let mut disk = Disk::open(&manager.path("nbd.sock"), "oltp");
    disk.send_write(0, 4096).expect("taken");
    for _ in 0..5 {
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
    }
}

#[test]
fn sockets_that_are_passed_are_those_of_the_listeners_with_their_addresses() {
    let dir = directory();
    let control = UnixListener::bind(dir.path().join("control.sock")).expect("bound");
    let nbd = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nbd.local_addr().expect("bound");
    let unix = "unix = \"nbd.sock\"";
    assert!(CONFIG.contains(unix));
    let config = CONFIG.replace(unix, &format!("tcp = \"{address}\""));
    // A client that comes before the daemon is there waits.
    let path = dir.path().join("control.sock");
    let early = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    let names = [("LISTEN_FDNAMES", "control:nbd")];
    let sockets = Some([control.into(), nbd.into()]);
    let mut manager = Manager::start(dir, &config, &names, sockets);
    assert_eq!(manager.next()[0], "READY=1");
    assert_eq!(manager.json(&["vm", "list"])[0]["name"], "oltp");
    ask_health(early);
    std::net::TcpStream::connect(address).expect("the daemon listens");
    manager.wait_for_log(&format!("listening on {address}"));
    manager.terminate();
    assert!(manager.child.wait().expect("it ends").success());
    let log = manager.log();
    assert!(!log.contains("no listener of the configuration"), "{log}");
    assert!(path.exists(), "the file is the service manager's");
}

/// Asks the API on a connection, and reads its answer.
fn ask_health(mut stream: std::os::unix::net::UnixStream) {
    use std::io::{Read as _, Write as _};
    let request = b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    stream.write_all(request).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_passed_socket_of_another_kind_is_refused_and_one_of_nobody_is_said() {
    let bind = |dir: &Path, name: &str| -> OwnedFd {
        UnixListener::bind(dir.join(name)).expect("bound").into()
    };
    let dir = directory();
    let sockets = [
        bind(dir.path(), "control.sock"),
        bind(dir.path(), "nbd.sock"),
    ];
    let names = [("LISTEN_FDNAMES", "nbd:nbd")];
    let mut refused = Manager::start(dir, CONFIG, &names, Some(sockets));
    assert!(!refused.child.wait().expect("it ends").success());
    let log = refused.log();
    assert!(
        log.contains("is named \"nbd\", but the configuration"),
        "{log}"
    );
    assert!(log.contains("in [control]"), "{log}");

    let dir = directory();
    let sockets = [bind(dir.path(), "other.sock"), bind(dir.path(), "nbd.sock")];
    let names = [("LISTEN_FDNAMES", "tidegate.socket:nbd")];
    let manager = Manager::start(dir, CONFIG, &names, Some(sockets));
    assert_eq!(manager.next()[0], "READY=1");
    manager.wait_for_log("no listener of the configuration has the address");
    assert!(manager.log().contains("other.sock"), "{}", manager.log());
    // Its mode is the umask's, and the configuration's default is 0600.
    manager.wait_for_log("nbd.sock: the socket of the service manager has the mode");
}
