//! The control API and metrics over TLS, by the commands of `docs/tls.md` and
//! `docs/tls-control.md`.

use std::fs;
use std::process::Stdio;

use crate::daemon::{Backing, Daemon, Scratch, wait_for};
use crate::tls::{block, carry_out};
use crate::tool::{Finished, Running, have, run};

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
    let said = served.fails(&list.replace(own, ""));
    assert!(said.contains("--tls-certificate PATH"), "{said}");
    // With one that is not for clients.
    let listeners = "--tls-certificate tls/server.pem --tls-key tls/server.key";
    let said = served.fails(&list.replace(own, listeners));
    assert!(said.contains("client_ca"), "{said}");
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

/// Certificates of listeners that are no daemon's: of another authority than the page's, with
/// another name, expired, and one that clients trust.
const IMPOSTORS: &str = "\
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 \
    -subj /CN=other -keyout other.key -out other.pem 2>/dev/null
issue() {  # FILE CA CAKEY NAME START END
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=impostor \
        -keyout $1.key -out impostor.csr 2>/dev/null
    printf '%s\\n' '[ca]' 'default_ca=d' '[d]' 'database=index' 'new_certs_dir=.' \
        'rand_serial=yes' 'default_md=sha256' 'policy=p' 'unique_subject=no' \
        'x509_extensions=n' '[p]' 'commonName=supplied' '[n]' \"subjectAltName=DNS:$4\" \
        > issue.conf
    openssl ca -batch -config issue.conf -cert $2 -keyfile $3 -in impostor.csr \
        -startdate $5 -enddate $6 -notext -out $1.pem 2>/dev/null
}
: > index
issue foreign other.pem other.key localhost 20200101000000Z 20990101000000Z
issue named tls/ca.pem tls/ca.key impostor.example 20200101000000Z 20990101000000Z
issue expired tls/ca.pem tls/ca.key localhost 20200101000000Z 20210101000000Z
issue trusted tls/ca.pem tls/ca.key localhost 20200101000000Z 20990101000000Z
";

/// Listener that is no daemon. It prints what it is sent, answers nothing, and ends with its first
/// connection.
struct Impostor {
    server: Running,
    address: String,
}

impl Impostor {
    /// Starts a listener with a certificate of [`IMPOSTORS`].
    fn start(scratch: &Scratch, name: &str) -> Impostor {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let files = ["-cert", &certificate, "-key", &key];
        let args = ["s_server", "-accept", "127.0.0.1:0", "-naccept", "1"];
        let args = [&args[..], &files].concat();
        // At the end of its input it would end.
        let server = Running::start_with(scratch, "openssl", &args, Stdio::piped());
        let mut port = None;
        wait_for("the port", || {
            let out = server.out();
            let mut lines = out.lines();
            let found = lines.find_map(|line| line.strip_prefix("ACCEPT 127.0.0.1:"));
            port = found.map(str::to_owned);
            port.is_some()
        });
        let address = format!("localhost:{}", port.expect("waited for"));
        Impostor { server, address }
    }
}

#[test]
fn a_client_that_does_not_trust_the_daemon_sends_no_token() {
    if !have(&["openssl"]) {
        return;
    }
    let served = Served::start();
    let scratch = served.daemon.scratch();
    let [list, ..] = &client_commands()[..] else {
        panic!("a command");
    };
    let token = fs::read_to_string(served.daemon.path("ops.token")).expect("made above");
    let token = token.trim();
    carry_out(scratch, IMPOSTORS);
    let program = concat!(env!("CARGO_BIN_EXE_tidegate"), " ");
    let ask = |impostor: &Impostor| {
        let command = list.replace("localhost:9808", &impostor.address);
        Running::start(
            scratch,
            "sh",
            &["-c", &command.replace("tidegate ", program)],
        )
    };
    for name in ["foreign", "named", "expired"] {
        let impostor = Impostor::start(scratch, name);
        let said = ask(&impostor).wait();
        assert!(!said.status.success(), "{name}: {}", said.out);
        assert!(
            said.err.contains("no TLS with the daemon"),
            "{name}: {}",
            said.err
        );
        let got = impostor.server.wait().out;
        assert!(
            !got.contains(token) && !got.contains("/v1/vms"),
            "{name}: {got}"
        );
    }
    // A token that is sent would be seen.
    let impostor = Impostor::start(scratch, "trusted");
    let mut client = ask(&impostor);
    wait_for("the token", || impostor.server.out().contains(token));
    client.kill();
    served.daemon.stop();
}

/// `openssl s_client` tells an end in order, by `close_notify`, from one that may have cut off the
/// last bytes.
#[test]
fn connections_of_the_api_end_in_order_when_the_daemon_stops() {
    if !have(&["openssl"]) {
        return;
    }
    let mut served = Served::start();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let script = format!(
                "printf 'GET /v1/vms HTTP/1.1\\r\\nhost: t\\r\\n%s: Bearer %s\\r\\n\\r\\n' \
                     authorization \"$(cat ops.token)\" \
                 | openssl s_client -connect {} -CAfile tls/ca.pem \
                     -cert tls/host-a/client-cert.pem -key tls/host-a/client-key.pem \
                     -verify_return_error -ign_eof",
                served.control
            );
            Running::start(served.daemon.scratch(), "sh", &["-c", &script])
        })
        .collect();
    for client in &clients {
        wait_for("the answer", || client.out().contains("\"name\": \"oltp\""));
    }
    served.daemon.signal("TERM");
    for client in clients {
        let done = client.wait();
        assert!(done.status.success(), "{}{}", done.out, done.err);
        assert!(done.out.contains("closed"), "{}", done.out);
        assert!(!done.err.contains("unexpected eof"), "{}", done.err);
    }
    assert!(served.daemon.wait().success());
}

/// Bytes that connections of a local port have sent and that their peers have not received.
fn unsent_bytes(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").expect("every Linux has it");
    let local = format!(":{port:04X}");
    let rows = table.lines().map(|row| row.split_whitespace());
    let rows = rows.filter_map(|mut row| Some((row.nth(1)?.to_owned(), row.nth(2)?.to_owned())));
    let of_port = rows.filter(|(address, _)| address.ends_with(&local));
    let queues = of_port.map(|(_, queues)| queues.split(':').next().map(str::to_owned));
    queues
        .flatten()
        .map(|sent| u64::from_str_radix(&sent, 16).expect("a hexadecimal number"))
        .sum()
}

/// A client that takes no replies has five seconds for them when the daemon stops. A second signal
/// ends this wait, too.
#[test]
fn a_second_signal_ends_the_daemon_while_clients_of_the_api_take_no_replies() {
    if !have(&["openssl"]) {
        return;
    }
    let mut served = Served::start();
    // More replies than sockets hold.
    let script = format!(
        "exec openssl s_client -quiet -connect {} -CAfile tls/ca.pem \
             -cert tls/host-a/client-cert.pem -key tls/host-a/client-key.pem \
             -verify_return_error < requests",
        served.control
    );
    let token = fs::read_to_string(served.daemon.path("ops.token")).expect("it was added");
    let request = format!(
        "GET /openapi.json HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    fs::write(served.daemon.path("requests"), request.repeat(5_000)).expect("it can be made");
    let client = Running::start(served.daemon.scratch(), "sh", &["-c", &script]);
    wait_for("a reply", || client.out().contains("HTTP/1.1 200"));
    let stop = format!("kill -STOP {}", client.pid());
    run(served.daemon.scratch(), "sh", &["-c", &stop]);
    // Until the daemon can send nothing more.
    let port = served.control.rsplit(':').next().expect("a port");
    let port: u16 = port.parse().expect("a number");
    let mut unsent = [0, 1, 2, 3];
    wait_for("full sockets", || {
        unsent.rotate_left(1);
        unsent[3] = unsent_bytes(port);
        unsent[3] > 0 && unsent.iter().all(|&bytes| bytes == unsent[3])
    });
    served.daemon.signal("TERM");
    wait_for("the end of the disks", || {
        served.daemon.logged(&["stopped:"])
    });
    assert!(
        served.daemon.exited().is_none(),
        "it does not wait for the client"
    );
    served.daemon.signal("TERM");
    assert!(served.daemon.wait().success());
    let log = served.daemon.log();
    assert!(
        served
            .daemon
            .logged(&["SIGTERM again", "replies of the API"]),
        "{log}"
    );
}
