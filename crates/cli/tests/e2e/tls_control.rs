//! The control API and metrics over TLS, by the commands of `docs/tls.md` and
//! `docs/tls-control.md`.

use crate::daemon::{Backing, Daemon, Scratch};
use crate::tls::{block, carry_out};
use crate::tool::{Finished, Running, have};

const PAGE: &str = include_str!("../../../../docs/tls-control.md");

/// Daemon with the listeners of the page on free ports.
struct Served {
    daemon: Daemon,
    control: String,
    metrics: String,
}

impl Served {
    fn start() -> Served {
        let scratch = Scratch::new();
        carry_out(&scratch, &block(crate::tls::PAGE, "sh", "openssl req"));
        let page = block(PAGE, "toml", "[control.listen.tls]");
        let listeners = page
            .replace("0.0.0.0:9808", "127.0.0.1:0")
            .replace("0.0.0.0:9809", "127.0.0.1:0");
        let backing = Backing::Memory;
        let config = [
            listeners,
            backing.device(""),
            backing.vm("oltp", "1 MiB", ""),
        ];
        let daemon = Daemon::start_in(scratch, &config.concat());
        let address = |words: &str| {
            let log = daemon.log();
            let mut lines = log.lines().filter_map(|line| line.split_once(words));
            let port = lines.find_map(|(_, address)| address.strip_prefix("127.0.0.1:"));
            let port = port.expect("the log of the start has it");
            format!("localhost:{port}")
        };
        let (control, metrics) = (address("control API at "), address("metrics at "));
        let served = Served {
            daemon,
            control,
            metrics,
        };
        let add = block(PAGE, "sh", "token add");
        let socket = served.daemon.path("control.sock");
        let done = served.run(&format!(
            "export TIDEGATE_SOCKET={}\n{add}",
            socket.display()
        ));
        assert!(done.status.success(), "{}", done.err);
        served
    }

    /// Runs commands of the page, or variants of them, against this daemon.
    fn run(&self, commands: &str) -> Finished {
        let commands = commands
            .replace("localhost:9808", &self.control)
            .replace("localhost:9809", &self.metrics)
            .replace("curl ", "curl --silent --show-error --fail-with-body ");
        let program = env!("CARGO_BIN_EXE_tidegate");
        let script = format!("tidegate() {{ {program} \"$@\"; }}\n{commands}");
        Running::start(self.daemon.scratch(), "sh", &["-e", "-c", &script]).wait()
    }

    /// Runs commands that must fail, and returns what they print.
    fn fails(&self, commands: &str) -> String {
        let done = self.run(commands);
        assert!(!done.status.success(), "{commands}: {}", done.out);
        done.out + &done.err
    }
}

/// Returns the commands of the page for a client, one a line.
fn client_commands() -> Vec<String> {
    let all = block(PAGE, "sh", "--tls-certificate").replace("\\\n", "");
    let lines = all.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn another_host_operates_and_watches_over_tls() {
    if !have(&["openssl", "curl"]) {
        return;
    }
    let served = Served::start();
    let [list, api, metrics] = &client_commands()[..] else {
        panic!("three commands: {:?}", client_commands());
    };
    for (command, expected) in [
        (list, "oltp"),
        (api, "\"name\": \"oltp\""),
        (metrics, "tidegate_vm_"),
    ] {
        let done = served.run(command);
        assert!(done.status.success(), "{command}: {}", done.err);
        assert!(done.out.contains(expected), "{command}: {}", done.out);
    }

    // Without a certificate, which client_ca asks for.
    let own = "--cert tls/host-a/client-cert.pem --key tls/host-a/client-key.pem";
    served.fails(&api.replace(own, ""));
    served.fails(&metrics.replace(own, ""));
    let own = "--tls-certificate tls/host-a/client-cert.pem --tls-key tls/host-a/client-key.pem";
    served.fails(&list.replace(own, ""));
    // With the certificate and no token, or a revoked one.
    let header = "-H \"Authorization: Bearer $(cat ops.token)\"";
    let said = served.fails(&api.replace(header, ""));
    assert!(said.contains("401"), "{said}");
    let said = served.fails(&list.replace("--token-file ops.token", ""));
    assert!(said.contains("--token-file PATH"), "{said}");
    let socket = served.daemon.path("control.sock");
    let revoke = format!("tidegate --socket {} token revoke ops", socket.display());
    let revoked = served.run(&revoke);
    assert!(revoked.status.success(), "{}", revoked.err);
    let said = served.fails(list);
    assert!(said.contains("the token is not valid"), "{said}");
    served.daemon.stop();
}

#[test]
fn clients_that_do_not_trust_the_daemon_say_what_to_do() {
    if !have(&["openssl"]) {
        return;
    }
    let served = Served::start();
    let [list, ..] = &client_commands()[..] else {
        panic!("a command");
    };
    // Another authority, whose file is there.
    let other = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 \
                 -subj /CN=other -keyout other.key -out other.pem 2>/dev/null\n";
    let untrusting = list.replace("--tls-ca tls/ca.pem", "--tls-ca other.pem");
    let said = served.fails(&format!("{other}{untrusting}"));
    assert!(
        said.contains("--tls-ca has to name the authority"),
        "{said}"
    );
    // A name that is not in the certificate.
    let port = served.control.replace("localhost:", "127.0.0.1:");
    let said = served.fails(&list.replace("localhost:9808", &port));
    assert!(said.contains("the name or address that is in it"), "{said}");
    // No TLS: a name may be another host's.
    let own = "--tls-certificate tls/host-a/client-cert.pem --tls-key tls/host-a/client-key.pem";
    let plain = list.replace("--tls-ca tls/ca.pem", "").replace(own, "");
    let said = served.fails(&plain);
    assert!(said.contains("to this host alone, without TLS"), "{said}");
    assert!(said.contains("add --tls-ca PATH"), "{said}");
    served.daemon.stop();
}
