//! TLS with clients of other projects, and certificates made with the commands of `docs/tls.md`.

use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::daemon::{Backing, Daemon, Scratch, noise, wait_for};
use crate::tool::{Running, arg, have, run};

pub(crate) const PAGE: &str = include_str!("../../../../docs/tls.md");

const LEN: usize = 3 << 20;

/// Returns a block of a page that contains a text, of one language.
pub(crate) fn block(page: &str, language: &str, containing: &str) -> String {
    let blocks = page.split("```").skip(1).step_by(2);
    let mut found = blocks.filter_map(|block| block.strip_prefix(language));
    let found = found.find(|block| block.contains(containing));
    // The machine has no other name that is its own everywhere.
    found
        .expect("the page has it")
        .replace("storage.example", "localhost")
}

/// Runs a block of the page in a directory.
pub(crate) fn carry_out(scratch: &Scratch, commands: &str) {
    run(scratch, "sh", &["-e", "-c", commands]);
}

/// Daemon with the listener of the page on a free port, its VM `oltp` and another VM.
struct Server {
    daemon: Daemon,
    port: String,
}

impl Server {
    fn start(more: &str) -> Server {
        Server::start_on("", Backing::Memory, more)
    }

    /// Serves disks of `backing`, with `head` before the listener and `more` in its TLS table.
    fn start_on(head: &str, backing: Backing, more: &str) -> Server {
        let scratch = Scratch::new();
        carry_out(&scratch, &block(PAGE, "sh", "openssl req"));
        let list = block(PAGE, "sh", "-gencrl");
        let unrevoked = list.lines().filter(|line| !line.contains("-revoke"));
        carry_out(
            &scratch,
            &["cd tls"]
                .into_iter()
                .chain(unrevoked)
                .collect::<Vec<_>>()
                .join("\n"),
        );
        let page = block(PAGE, "toml", "[listen.tls]");
        let (listen, _) = page.split_once("[[device]]").expect("listeners come first");
        // The list is in force from the start; nothing is revoked yet.
        let crl = "client_ca = \"tls/ca.pem\"\nclient_crl = \"tls/crl.pem\"";
        let listen = listen
            .replace("0.0.0.0:10809", "127.0.0.1:0")
            .replace("client_ca = \"tls/ca.pem\"", &format!("{crl}\n{more}"));
        let vms = ["oltp", "other"].map(|name| backing.vm(name, &format!("{LEN} B"), ""));
        let config = [head, &listen, &backing.device(""), &vms.concat()].concat();
        let daemon = Daemon::start_in(scratch, &config);
        let mut port = None;
        wait_for("the port", || {
            let log = daemon.log();
            let line = log
                .lines()
                .find_map(|line| line.split_once("on 127.0.0.1:"));
            port = line.map(|(_, port)| port.to_owned());
            port.is_some()
        });
        let port = port.expect("waited for");
        Server { daemon, port }
    }

    fn scratch(&self) -> &Scratch {
        self.daemon.scratch()
    }

    fn uri(&self, export: &str) -> String {
        let directory = self.daemon.path("tls/host-a");
        let (port, directory) = (&self.port, directory.display());
        format!("nbds://localhost:{port}/{export}?tls-certificates={directory}")
    }

    /// Runs nbdinfo, which must fail, and returns what it says.
    fn refused(&self, uri: &str) -> String {
        let done = Running::start(self.scratch(), "nbdinfo", &["--size", uri]).wait();
        assert!(!done.status.success(), "{uri} is served: {}", done.out);
        done.err
    }
}

#[test]
fn libnbd_and_qemu_read_and_write_over_tls() {
    if !have(&["openssl", "nbdinfo", "nbdcopy", "qemu-img"]) {
        return;
    }
    let server = Server::start("");
    let (scratch, uri) = (server.scratch(), server.uri("oltp"));
    let info = run(scratch, "nbdinfo", &[&uri]);
    assert!(
        info.contains("newstyle-fixed with TLS, using structured"),
        "{info}"
    );
    assert!(info.contains(&format!("export-size: {LEN}")), "{info}");
    let image = server.daemon.path("in.raw");
    fs::write(&image, noise(1, LEN)).expect("the directory is ours");
    run(scratch, "nbdcopy", &["--flush", arg(&image), &uri]);
    let copy = server.daemon.path("out.raw");
    run(scratch, "nbdcopy", &[&uri, arg(&copy)]);
    assert!(fs::read(&copy).expect("nbdcopy wrote it") == noise(1, LEN));

    let directory = server.daemon.path("tls/host-a");
    let tls = format!(
        "tls-creds-x509,id=tls0,dir={},endpoint=client",
        arg(&directory)
    );
    let (port, raw) = (
        &server.port,
        format!("driver=raw,file.filename={}", arg(&image)),
    );
    let disk = format!("driver=nbd,host=localhost,port={port},export=oltp,tls-creds=tls0");
    let compare = ["compare", "--object", &tls, "--image-opts", &disk, &raw];
    let out = run(scratch, "qemu-img", &compare);
    assert!(out.contains("Images are identical"), "{out}");
    let qcow2 = server.daemon.path("out.qcow2");
    let convert = ["convert", "--object", &tls, "--image-opts", "-O", "qcow2"];
    run(
        scratch,
        "qemu-img",
        &[&convert[..], &[&disk, arg(&qcow2)]].concat(),
    );
    fs::write(&image, noise(2, LEN)).expect("the directory is ours");
    let convert = [
        "convert",
        "-n",
        "--object",
        &tls,
        "--image-opts",
        "--target-image-opts",
    ];
    run(
        scratch,
        "qemu-img",
        &[&convert[..], &[&raw, &disk]].concat(),
    );
    run(scratch, "nbdcopy", &[&uri, arg(&copy)]);
    assert!(fs::read(&copy).expect("nbdcopy wrote it") == noise(2, LEN));
    server.daemon.stop();
}

#[test]
fn a_client_over_tls_connects_again_to_the_daemon_that_takes_over() {
    if !have(&["openssl", "qemu-io", "stdbuf"]) {
        return;
    }
    let mut server = Server::start_on("[daemon]\ntakeover = true\n", Backing::File, "");
    let directory = server.daemon.path("tls/host-a");
    let tls = format!(
        "tls-creds-x509,id=tls0,dir={},endpoint=client",
        arg(&directory)
    );
    let disk = format!(
        "driver=nbd,host=localhost,port={},export=oltp,tls-creds=tls0,reconnect-delay=60",
        server.port
    );
    let args = ["-oL", "qemu-io", "--object", &tls, "--image-opts", &disk];
    let (mut commands, input) = UnixStream::pair().expect("sockets");
    let input = Stdio::from(OwnedFd::from(input));
    let running = Running::start_with(server.scratch(), "stdbuf", &args, input);
    let mut ask = |command: &str, times: usize| {
        writeln!(commands, "{command}").expect("it reads");
        wait_for(command, || {
            let done = |word| running.out().matches(word).count();
            done("wrote 65536/65536") + done("read 65536/65536") == times
        });
    };
    ask("write -P 5 0 64k", 1);
    let ended = server.daemon.take_over();
    assert!(ended.is_ok_and(|status| status.success()), "{ended:?}");
    ask("read -P 5 0 64k", 2);
    ask("write -P 6 64k 64k", 3);
    ask("read -P 6 64k 64k", 4);
    drop(commands);
    let out = running.succeed();
    let failed = ["failed", "error"].iter().any(|word| out.contains(word));
    assert!(!failed, "{out}");
    server.daemon.stop();
}

/// Server of another project that offers a disk of the daemon, whose client it is over TLS.
struct Relay {
    _server: Running,
    uri: String,
}

impl Relay {
    /// Starts a program that serves NBD on a unix socket, the argument behind `args`.
    fn start(scratch: &Scratch, program: &str, args: &[&str], socket: &str) -> Relay {
        let path = scratch.join(socket);
        let server = Running::start(scratch, program, &[args, &[arg(&path)]].concat());
        wait_for(program, || path.exists());
        let uri = format!("nbd+unix:///?socket={}", path.display());
        Relay {
            _server: server,
            uri,
        }
    }

    /// Starts nbdkit on an export of a server over TLS.
    fn nbdkit(server: &Server, export: &str, certificates: &str, socket: &str) -> Relay {
        let (port, export) = (format!("port={}", server.port), format!("export={export}"));
        let directory = server.daemon.path(certificates);
        let certificates = format!("tls-certificates={}", directory.display());
        let plugin = [
            "nbd",
            "hostname=localhost",
            &port,
            &export,
            "tls=require",
            &certificates,
        ];
        let args = [&["--foreground"], &plugin[..], &["--unix"]].concat();
        Relay::start(server.scratch(), "nbdkit", &args, socket)
    }

    /// Writes a disk by the relay and reads it past it, and the other way round.
    fn passes_bytes(&self, server: &Server, seed: u64) {
        let scratch = server.scratch();
        let [image, copy] = ["in.raw", "out.raw"].map(|name| server.daemon.path(name));
        let direct = server.uri("oltp");
        for (seed, to, from) in [(seed, &self.uri, &direct), (seed + 1, &direct, &self.uri)] {
            fs::write(&image, noise(seed, LEN)).expect("the directory is ours");
            run(scratch, "nbdcopy", &["--flush", arg(&image), to]);
            run(scratch, "nbdcopy", &[from, arg(&copy)]);
            assert!(fs::read(&copy).expect("nbdcopy wrote it") == noise(seed, LEN));
        }
    }
}

#[test]
fn nbdkit_and_qemu_nbd_are_clients_over_tls() {
    if !have(&["openssl", "nbdkit", "qemu-nbd", "nbdinfo", "nbdcopy"]) {
        return;
    }
    let server = Server::start("");
    let scratch = server.scratch();
    let nbdkit = Relay::nbdkit(&server, "oltp", "tls/host-a", "nbdkit.sock");
    nbdkit.passes_bytes(&server, 1);
    // Neither an export of another VM, nor a client without a certificate.
    carry_out(
        scratch,
        "mkdir ca-alone && cp tls/ca.pem ca-alone/ca-cert.pem",
    );
    for (export, certificates) in [("other", "tls/host-a"), ("oltp", "ca-alone")] {
        let socket = format!("{export}-refused.sock");
        let relay = Relay::nbdkit(&server, export, certificates, &socket);
        server.refused(&relay.uri);
    }

    let directory = server.daemon.path("tls/host-a");
    let tls = format!(
        "tls-creds-x509,id=tls0,dir={},endpoint=client",
        arg(&directory)
    );
    let disk = format!(
        "driver=raw,file.driver=nbd,file.host=localhost,file.port={},file.export=oltp,\
         file.tls-creds=tls0",
        server.port
    );
    let args = [
        "--persistent",
        "--object",
        &tls,
        "--image-opts",
        &disk,
        "--socket",
    ];
    let qemu = Relay::start(scratch, "qemu-nbd", &args, "qemu.sock");
    qemu.passes_bytes(&server, 3);
    let list = [
        "--list",
        "--object",
        &tls,
        "--tls-creds",
        "tls0",
        "--bind",
        "localhost",
    ];
    let list = [&list[..], &["--port", &server.port]].concat();
    let listed = run(scratch, "qemu-nbd", &list);
    assert!(
        listed.contains("export: 'oltp'") && !listed.contains("other"),
        "{listed}"
    );
    server.daemon.stop();
}

#[test]
fn clients_see_their_own_exports_and_revoked_ones_none() {
    if !have(&["openssl", "nbdinfo"]) {
        return;
    }
    let server = Server::start("");
    let scratch = server.scratch();
    let list = |uri: &str| run(scratch, "nbdinfo", &["--list", uri]);
    let listed = list(&server.uri(""));
    assert!(
        listed.contains("export=\"oltp\"") && !listed.contains("other"),
        "{listed}"
    );
    let [foreign, none] = ["other", "third"].map(|name| {
        let said = server.refused(&server.uri(name));
        said.replace(name, "NAME")
    });
    assert_eq!(foreign, none);
    // Without TLS, without a certificate, and by a name that is not the server's.
    let port = &server.port;
    server.refused(&format!("nbd://localhost:{port}/oltp"));
    server.refused(&server.uri("oltp").replace("localhost", "127.0.0.1"));
    let ca_alone = server.daemon.path("ca-alone");
    fs::create_dir(&ca_alone).expect("the directory is ours");
    fs::copy(
        server.daemon.path("tls/ca.pem"),
        ca_alone.join("ca-cert.pem"),
    )
    .expect("made above");
    let directory = arg(&ca_alone);
    server.refused(&format!(
        "nbds://localhost:{port}/oltp?tls-certificates={directory}"
    ));

    // With the listener's own certificate.
    carry_out(
        scratch,
        "mkdir listener && cp tls/ca.pem listener/ca-cert.pem\n\
         cp tls/server.pem listener/client-cert.pem && cp tls/server.key listener/client-key.pem",
    );
    let listener = server.daemon.path("listener");
    let directory = arg(&listener);
    server.refused(&format!(
        "nbds://localhost:{port}/?tls-certificates={directory}"
    ));
    wait_for("the reason in the log", || {
        let cut_off = ["client cut off", "usage for client authentication"];
        server.daemon.logged(&cut_off)
    });

    carry_out(
        scratch,
        &format!("cd tls\n{}", block(PAGE, "sh", "-gencrl")),
    );
    run(scratch, "nbdinfo", &["--size", &server.uri("oltp")]);
    server.daemon.signal("HUP");
    wait_for("the revocation", || {
        let args = ["--size", &server.uri("oltp")];
        !Running::start(scratch, "nbdinfo", &args)
            .wait()
            .status
            .success()
    });
    assert!(server.daemon.logged(&["SIGHUP", "read again"]));
    assert!(server.daemon.logged(&["client cut off", "TLS"]));
    server.daemon.stop();
}

#[test]
fn without_tls_there_are_the_plain_exports_alone() {
    if !have(&["openssl", "nbdinfo"]) {
        return;
    }
    let server = Server::start("plain_exports = [\"other\"]");
    let (scratch, port) = (server.scratch(), &server.port);
    let plain = |export: &str| format!("nbd://localhost:{port}/{export}");
    let listed = run(scratch, "nbdinfo", &["--list", &plain("")]);
    assert!(
        listed.contains("export=\"other\"") && !listed.contains("oltp"),
        "{listed}"
    );
    let [hidden, none] = ["oltp", "none"].map(|name| {
        let said = server.refused(&plain(name));
        said.replace(name, "NAME")
    });
    assert_eq!(hidden, none);
    let over_tls = run(scratch, "nbdinfo", &["--list", &server.uri("")]);
    assert!(
        over_tls.contains("\"oltp\"") && over_tls.contains("\"other\""),
        "{over_tls}"
    );
    server.daemon.stop();
}

#[test]
fn check_reads_the_files_as_the_start_does() {
    if !have(&["openssl"]) {
        return;
    }
    let server = Server::start("");
    let file = server.daemon.path("tidegate.toml");
    let check = || {
        let args = ["check", arg(&file)];
        Running::start(server.scratch(), env!("CARGO_BIN_EXE_tidegate"), &args).wait()
    };
    let sound = check();
    assert!(sound.status.success(), "{}", sound.err);
    assert!(sound.out.contains("127.0.0.1:0 (TLS)"), "{}", sound.out);
    assert!(!sound.err.contains("every user can read"), "{}", sound.err);
    carry_out(server.scratch(), "chmod 644 tls/server.key");
    let exposed = check();
    assert!(exposed.status.success(), "{}", exposed.err);
    let warned = "server.key: every user can read it (mode 0644)";
    assert!(exposed.err.contains(warned), "{}", exposed.err);
    carry_out(server.scratch(), "mv tls/ca.key tls/server.key");
    let refused = check();
    assert!(!refused.status.success());
    assert!(
        refused.err.contains("server.key: is not the key of"),
        "{}",
        refused.err
    );
    let (daemon, status) = server.daemon.restart_in_vain();
    assert!(!status.success());
    assert!(
        daemon.logged(&["server.key: is not the key of"]),
        "{}",
        daemon.log()
    );
}
