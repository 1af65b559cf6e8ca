//! Access to a running daemon by its sockets and addresses.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use crate::common::{CONFIG, drain_stderr, serve_with_start};

/// Daemon with the tests' configuration and further sections.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
    /// Log of the start.
    log: String,
}

impl Daemon {
    fn start(sections: &str) -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("t.toml");
        std::fs::write(&config, format!("{CONFIG}{sections}")).expect("writable");
        let (child, rest, log) = serve_with_start(&config);
        drain_stderr(rest);
        Daemon { child, dir, log }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the TCP addresses that the log of the start has after these words.
    fn addresses(&self, words: &str) -> Vec<String> {
        let lines = self.log.lines().filter_map(|line| line.split_once(words));
        let addresses = lines.map(|(_, address)| address.trim().to_owned());
        addresses.filter(|it| !it.contains('/')).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request without a body and returns the answer, head and body.
fn exchange(mut stream: impl Read + Write, method: &str, path: &str, headers: &str) -> String {
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n"
    )
    .expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn unix(path: PathBuf) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it listens");
    let timeout = Some(Duration::from_secs(30));
    stream.set_read_timeout(timeout).expect("a time-out");
    stream
}

fn tcp(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    let timeout = Some(Duration::from_secs(30));
    stream.set_read_timeout(timeout).expect("a time-out");
    stream
}

#[test]
fn metrics_and_health_have_listeners_that_serve_nothing_else() {
    let daemon = Daemon::start(
        "[[metrics]]\ntcp = \"127.0.0.1:0\"\n[[metrics]]\nunix = \"m.sock\"\nmode = \"0666\"\n",
    );
    let addresses = daemon.addresses("metrics at ");
    assert_eq!(addresses.len(), 1, "{}", daemon.log);
    let mode = std::fs::metadata(daemon.path("m.sock"))
        .expect("it is there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o666);
    for (path, expected) in [
        ("/metrics", "tidegate_vm"),
        ("/healthz", "\"status\": \"ok\""),
    ] {
        for answer in [
            exchange(tcp(&addresses[0]), "GET", path, ""),
            exchange(unix(daemon.path("m.sock")), "GET", path, ""),
            // As before.
            exchange(unix(daemon.path("control.sock")), "GET", path, ""),
        ] {
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.contains(expected), "{answer}");
        }
    }
    for (method, path) in [("GET", "/v1/vms"), ("DELETE", "/v1/vms/oltp")] {
        let answer = exchange(tcp(&addresses[0]), method, path, "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    let answer = exchange(unix(daemon.path("control.sock")), "GET", "/v1/vms/oltp", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
