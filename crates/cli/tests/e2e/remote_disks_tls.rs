//! TLS to NBD servers of other projects: what is refused and how it is reported, certificates that
//! change, servers that stay silent.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;

use crate::daemon::{Daemon, Scratch, wait_for};
use crate::media::get;
use crate::remote_disks::{
    Transport, WITH_CERTIFICATE, config, disk, issue, nbdkit, port_with_tls, served, unreachable,
};
use crate::tls::carry_out;
use crate::tool::{Running, have, qemu_io};

const TOOLS: [&str; 3] = ["nbdkit", "qemu-io", "openssl"];

/// Makes a certificate for `localhost` whose time is over, in the directory of the server.
const EXPIRE: &str = "\
cat > ca.cnf <<'END'
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
serial = serial
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
END
: > index.txt
echo 01 > serial
openssl req -new -key tls/server.key -subj /CN=server -addext subjectAltName=DNS:localhost -out csr
openssl ca -config ca.cnf -batch -notext -cert tls/ca.pem -keyfile tls/ca.key -in csr \\
    -startdate 20200101000000Z -enddate 20210101000000Z -out server/server-cert.pem
";

/// Makes another authority, `other.pem`, and a certificate and key of it for clients.
const OTHER: &str = "\
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=Other \\
    -addext keyUsage=critical,keyCertSign,cRLSign -keyout other.key -out other.pem
openssl req -x509 -CA other.pem -CAkey other.key -newkey ec \\
    -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=client \\
    -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:host-a.example \\
    -keyout foreign.key -out foreign.pem
";

/// Starts a daemon that cannot open its disk, and waits for its end.
fn failed_start(scratch: Scratch, text: &str) -> Daemon {
    let text = format!("[daemon]\nopen_timeout = \"1 s\"\n{text}");
    let mut daemon = Daemon::begin_in(scratch, &text);
    assert!(!daemon.wait().success(), "{}", daemon.log());
    daemon
}

/// Runs a script, has a daemon fail to open its disk on nbdkit, and returns its log. `change` makes
/// the configuration from one that works.
fn refusal(script: &str, change: impl Fn(String) -> String) -> String {
    let scratch = Scratch::new();
    let transport = Transport::Tls(port_with_tls(&scratch));
    disk(&scratch, 1 << 20);
    carry_out(&scratch, script);
    let _server = nbdkit(&scratch, transport);
    let text = change(config(&scratch, transport, ""));
    failed_start(scratch, &text).log()
}

#[test]
fn what_is_refused_is_said_with_what_would_be_right() {
    if !have(&TOOLS) {
        return;
    }
    let with = |table: &str| {
        let table = format!("tls = {{ {table} }}\n");
        move |text: String| text.replace(WITH_CERTIFICATE, &table)
    };
    let same = |text: String| text;
    let own = "certificate = \"tls/host-a/client-cert.pem\", private_key = \
               \"tls/host-a/client-key.pem\"";
    let elsewhere = format!("ca = \"other.pem\", {own}");
    let misnamed = format!("ca = \"tls/ca.pem\", server_name = \"other.example\", {own}");
    let foreign = "ca = \"tls/ca.pem\", certificate = \"foreign.pem\", private_key = \
                   \"foreign.key\"";
    for (log, expected) in [
        (
            refusal(EXPIRE, same),
            "the server's certificate has expired: renew it",
        ),
        (
            refusal(OTHER, with(&elsewhere)),
            "the server's certificate comes from no authority in",
        ),
        (
            refusal("", with(&misnamed)),
            "the server's certificate is not for other.example",
        ),
        (
            refusal("", with("ca = \"tls/ca.pem\"")),
            "the server requires a client's certificate: set `certificate` and `private_key`",
        ),
        (
            refusal(OTHER, with(foreign)),
            "it may have refused the certificate in",
        ),
        (
            refusal("rm tls/ca.pem", same),
            "tls/ca.pem: No such file or directory",
        ),
        (
            refusal("", |text: String| {
                text.replace("nbds://", "nbd://")
                    .replace(WITH_CERTIFICATE, "")
            }),
            "the server requires TLS: write nbds://",
        ),
    ] {
        assert!(log.contains(expected), "no {expected:?} in:\n{log}");
    }
}

#[test]
fn a_server_without_tls_gets_nothing_in_plain_text() {
    if !have(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let number = port_with_tls(&scratch);
    disk(&scratch, 1 << 20);
    let port = format!("--port={number}");
    let args = ["-f", "-v", "--ipaddr=127.0.0.1", &port, "file", "disk.raw"];
    let server = Running::start(&scratch, "nbdkit", &args);
    wait_for("nbdkit", || server.err().contains("bound to IP"));
    let text = config(&scratch, Transport::Tls(number), "");
    let daemon = failed_start(scratch, &text);
    assert!(
        daemon.logged(&["the server does not offer TLS"]),
        "{}",
        daemon.log()
    );
    let said = server.err();
    assert!(said.contains("NBD_OPT_STARTTLS"), "{said}");
    assert!(!said.contains("NBD_OPT_GO"), "{said}");
}

#[test]
fn certificates_are_read_again_for_each_connection_and_a_bad_one_is_in_the_health() {
    if !have(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let transport = Transport::Tls(port_with_tls(&scratch));
    let (_, mut server, daemon) = served(scratch, transport, 1 << 20, "");
    let uri = daemon.uri("a");
    qemu_io(daemon.scratch(), &uri, &["write -P 5 0 64k"]);
    server.kill();
    carry_out(daemon.scratch(), EXPIRE);
    server = nbdkit(daemon.scratch(), transport);
    let args = ["-f", "raw", "-c", "write -P 6 4k 4k", "-c", "flush", &uri];
    let writer = Running::start_with(daemon.scratch(), "qemu-io", &args, Stdio::null());
    wait_for("the reason in the health", || {
        let (status, health) = get(&daemon, "/healthz");
        assert_eq!(status, 200, "other disks are served");
        health.contains("\"disk_unreachable\"") && health.contains("has expired")
    });
    // All files are others now, those of the authority and of the client as well.
    server.kill();
    issue(daemon.scratch());
    server = nbdkit(daemon.scratch(), transport);
    writer.succeed();
    assert_eq!(unreachable(&daemon), None);
    server.kill();
    let bytes = fs::read(daemon.path("disk.raw")).expect("nbdkit wrote it");
    assert!(bytes[..4096] == [5; 4096] && bytes[8192..65536] == [5; 57344]);
    assert!(bytes[4096..8192] == [6; 4096]);
    daemon.stop();
}

#[test]
fn a_server_that_is_silent_in_its_handshake_holds_up_no_other_disk() {
    if !have(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let port = port_with_tls(&scratch);
    let transport = Transport::Tls(port);
    let socket = scratch.join("other.sock");
    let args = ["-f", "--unix", "other.sock", "memory", "1M"];
    let _other = Running::start(&scratch, "nbdkit", &args);
    wait_for("the other server", || socket.exists());
    let more = format!(
        "[[vm]]\nname = \"b\"\n[[vm.disk]]\nuri = \"nbd+unix:///?socket={}\"\n",
        socket.display()
    );
    let (_, mut server, daemon) = served(scratch, transport, 1 << 20, &more);
    qemu_io(daemon.scratch(), &daemon.uri("a"), &["write -P 5 0 4k"]);
    server.kill();
    let silent = TcpListener::bind(("127.0.0.1", port)).expect("the server is gone");
    let uri = daemon.uri("a");
    let args = ["-f", "raw", "-c", "read -P 5 0 4k", &uri];
    let reader = Running::start(daemon.scratch(), "qemu-io", &args);
    let (stream, _) = silent.accept().expect("the daemon connects");
    for round in 1..20 {
        let write = format!("write -P {round} 0 64k");
        let read = format!("read -P {round} 0 64k");
        qemu_io(daemon.scratch(), &daemon.uri("b"), &[&write, &read]);
    }
    drop((stream, silent));
    let server = nbdkit(daemon.scratch(), transport);
    reader.succeed();
    daemon.stop();
    drop(server);
}

#[test]
fn a_disk_of_qemu_nbd_is_served_over_tls() {
    if !have(&["qemu-nbd", "qemu-io", "openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    let number = port_with_tls(&scratch);
    disk(&scratch, 1 << 20);
    let port = number.to_string();
    let args = [
        "--persistent",
        "--format=raw",
        "--bind=127.0.0.1",
        "--port",
        &port,
        "--object",
        "tls-creds-x509,id=tls0,endpoint=server,dir=server",
        "--tls-creds=tls0",
        "disk.raw",
    ];
    let _server = Running::start(&scratch, "qemu-nbd", &args);
    let text = config(&scratch, Transport::Tls(number), "");
    // The request waits for the server.
    let daemon = Daemon::start_in(scratch, &text);
    let commands = ["write -P 7 64k 512k", "flush", "read -P 7 64k 512k"];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    daemon.stop();
}
