//! Access to a running daemon by its sockets and addresses.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use crate::common::{CONFIG, drain_stderr, serve_with_start, stderr, stdout, tidegate};

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

/// Sends a request with a body to a socket and returns the answer.
fn change(path: PathBuf, method: &str, of: &str, body: &str) -> String {
    let mut stream = unix(path);
    let len = body.len();
    write!(
        stream,
        "{method} {of} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-length: {len}\r\n\r\n{body}"
    )
    .expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn sockets_have_roles() {
    let daemon = Daemon::start(
        "[[control.listen]]\nunix = \"read.sock\"\nrole = \"read\"\nroot_role = \"read\"\n\
         [[control.listen]]\nunix = \"operate.sock\"\nmode = \"0640\"\nrole = \"operate\"\n\
         root_role = \"read\"\n",
    );
    let weight = "{\"weight\": 7}";
    let objective = "/v1/vms/oltp/objective";
    let vm = "{\"disk\": [{\"size\": \"1 MiB\"}]}";
    let mode = std::fs::metadata(daemon.path("operate.sock"))
        .expect("it is there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o640);
    for (socket, (reads, operates, administers)) in [
        ("read.sock", ("200", "403", "403")),
        ("operate.sock", ("200", "200", "403")),
        ("control.sock", ("200", "200", "201")),
    ] {
        let path = || daemon.path(socket);
        for (answer, expected) in [
            (exchange(unix(path()), "GET", "/v1/vms", ""), reads),
            (change(path(), "PATCH", objective, weight), operates),
            (change(path(), "PUT", "/v1/vms/new", vm), administers),
        ] {
            let status = format!("HTTP/1.1 {expected}");
            assert!(answer.starts_with(&status), "{socket}: {answer}");
        }
    }
    let socket = daemon.path("read.sock");
    let socket = socket.to_str().expect("plain");
    let output = tidegate(&["--socket", socket, "vm", "remove", "oltp"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("has the role read"), "{message}");
    assert!(message.contains("needs admin"), "{message}");
}

/// Daemon with the API on TCP and a token with the role `operate`.
struct OnTcp {
    daemon: Daemon,
    address: String,
    secret: String,
}

impl OnTcp {
    fn start() -> OnTcp {
        let daemon = Daemon::start(
            "[store]\npath = \"s.redb\"\n[[control.listen]]\ntcp = \"127.0.0.1:0\"\n",
        );
        let mut started = OnTcp {
            address: daemon.addresses("control API at ").remove(0),
            secret: String::new(),
            daemon,
        };
        let add = [
            "token",
            "add",
            "ops",
            "--role",
            "operate",
            "--expires",
            "30d",
        ];
        let secret = started.local(&add);
        assert_eq!(secret.lines().count(), 1, "{secret}");
        std::fs::write(started.daemon.path("ops.token"), &secret).expect("writable");
        started.secret = secret.trim().to_owned();
        started
    }

    /// Runs a command at the control socket and returns its output.
    fn local(&self, args: &[&str]) -> String {
        let control = self.daemon.path("control.sock");
        let control = control.to_str().expect("plain");
        let output = tidegate(&[&["--socket", control], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Runs a command on TCP, with the token.
    fn remote(&self, args: &[&str]) -> Output {
        let file = self.daemon.path("ops.token");
        let file = file.to_str().expect("plain");
        tidegate(&[&["--tcp", &self.address, "--token-file", file], args].concat())
    }
}

#[test]
fn tokens_give_roles_on_tcp() {
    let served = OnTcp::start();
    let list = served.remote(&["vm", "list"]);
    assert!(list.status.success(), "{}", stderr(&list));
    assert!(stdout(&list).contains("oltp"));
    let set = served.remote(&["vm", "set", "oltp", "--weight", "7"]);
    assert!(set.status.success(), "{}", stderr(&set));
    for args in [&["vm", "remove", "oltp"][..], &["token", "list"]] {
        let output = served.remote(args);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(
            said.contains("token \"ops\" has the role operate"),
            "{said}"
        );
        assert!(said.contains("needs admin"), "{said}");
    }
    let listed = served.local(&["token", "list"]);
    assert!(
        listed.contains("ops") && listed.contains("operate"),
        "{listed}"
    );
    assert!(!listed.contains(&served.secret), "{listed}");
    served.local(&["token", "revoke", "ops"]);
    let output = served.remote(&["vm", "list"]);
    let said = stderr(&output);
    assert!(said.contains("the token is not valid"), "{said}");
}

#[test]
fn without_a_token_nothing_is_served_on_tcp_and_no_token_leaves_the_host() {
    let served = OnTcp::start();
    let wrong = format!("authorization: Bearer {}x\r\n", served.secret);
    for headers in ["", &wrong] {
        for path in ["/v1/vms", "/metrics", "/nothing"] {
            let answer = exchange(tcp(&served.address), "GET", path, headers);
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
            assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
        }
    }
    // At the socket the process counts, whatever it presents.
    let control = served.daemon.path("control.sock");
    let answer = exchange(unix(control), "GET", "/v1/tokens", &wrong);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let file = served.daemon.path("ops.token");
    let file = file.to_str().expect("plain");
    let away = tidegate(&[
        "--tcp",
        "192.0.2.1:9808",
        "--token-file",
        file,
        "vm",
        "list",
    ]);
    let said = stderr(&away);
    assert!(said.contains("to this host alone"), "{said}");
    let without = tidegate(&["--tcp", &served.address, "vm", "list"]);
    let said = stderr(&without);
    assert!(said.contains("--token-file"), "{said}");
}

/// Runs `tidegate` as another user, with these supplementary groups.
fn as_user(user: &str, groups: &str, args: &[&str]) -> Output {
    Command::new("setpriv")
        .args(["--reuid", user, "--regid", user, "--groups", groups])
        .arg(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .env_remove("TIDEGATE_SOCKET")
        .output()
        .expect("setpriv runs")
}

#[test]
fn a_process_has_the_role_of_its_user_and_of_its_groups() {
    let runs = Command::new("setpriv")
        .args(["--reuid", "12345", "--regid", "12345", "--clear-groups"])
        .args([env!("CARGO_BIN_EXE_tidegate"), "--version"])
        .output();
    if !runs.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: it takes root and setpriv to be another user");
        return;
    }
    let daemon = Daemon::start(
        "[[control.listen]]\nunix = \"people.sock\"\nmode = \"0666\"\n\
         read = [\"group:23456\"]\noperate = [\"user:12346\"]\n",
    );
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(daemon.dir.path(), open).expect("its owner");
    let socket = daemon.path("people.sock");
    let socket = socket.to_str().expect("plain");
    let list = ["--socket", socket, "vm", "list"];
    let set = ["--socket", socket, "vm", "set", "oltp", "--weight", "7"];
    let remove = ["--socket", socket, "vm", "remove", "oltp"];
    for (user, groups, (lists, sets)) in [
        ("12345", "1", (false, false)),
        ("12345", "1,23456", (true, false)),
        ("23456", "1", (true, false)),
        ("12346", "1", (true, true)),
    ] {
        let of = |args: &[&str]| as_user(user, groups, args);
        let output = of(&list);
        let said = stderr(&output);
        assert_eq!(output.status.success(), lists, "{user} {groups}: {said}");
        if !lists {
            assert!(
                said.contains("user 12345 has no role at this socket"),
                "{said}"
            );
        }
        assert_eq!(of(&set).status.success(), sets, "{user} {groups}");
        assert!(!of(&remove).status.success(), "{user} {groups}");
    }
    // The default socket is closed to all of them.
    let control = daemon.path("control.sock");
    let control = control.to_str().expect("plain");
    let output = as_user("12346", "1", &["--socket", control, "vm", "list"]);
    assert!(
        stderr(&output).contains("permission denied"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_account_that_is_not_known_is_an_error_at_its_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("t.toml");
    let section = "[[control.listen]]\nunix = \"p.sock\"\n\
                   read = [\"user:nobody-of-this-name\"]\n";
    std::fs::write(&config, format!("{CONFIG}{section}")).expect("writable");
    let output = tidegate(&["serve", config.to_str().expect("plain")]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("there is no user \"nobody-of-this-name\""),
        "{message}"
    );
    assert!(message.contains("p.sock"), "{message}");
    assert!(!dir.path().join("control.sock").exists());
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
