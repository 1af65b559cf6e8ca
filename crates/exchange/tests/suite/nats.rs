//! The carrier over NATS core, with `nats-server` on loopback: logins, TLS, permissions, and a
//! server that dies and comes back.
//!
//! Without `nats-server` these tests say that they are skipped; with `CI=true` they fail instead.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use tidegate_core::time::Nanos;
use tidegate_exchange::nats::{Callbacks, NatsTransport};
use tidegate_exchange::options::{Login, NatsOptions};
use tidegate_exchange::{Received, Transport};

use crate::array_world::name;

/// Nothing here takes this long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);

fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let has = |dir: PathBuf| dir.join("nats-server").is_file();
    if env::split_paths(&path).any(has) {
        return true;
    }
    assert!(
        env::var_os("CI").as_deref() != Some(OsStr::new("true")),
        "needs nats-server, and nothing is skipped in CI: make setup"
    );
    let test = thread::current().name().unwrap_or("?").to_owned();
    let line = format!("skipped: needs nats-server ({test})\n");
    let _ = io::stderr().write_all(line.as_bytes());
    false
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// `nats-server` on a port of its own; killed when dropped.
struct Server {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts a server; `more` is its configuration beside the port.
    fn start(dir: tempfile::TempDir, more: &str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let config = format!("listen: \"127.0.0.1:{port}\"\n{more}\n");
        fs::write(dir.path().join("nats.conf"), config).expect("the directory is ours");
        drop(listener);
        let mut server = Server {
            dir,
            port,
            child: None,
        };
        server.spawn();
        server
    }

    fn spawn(&mut self) {
        let child = Command::new("nats-server")
            .arg("-c")
            .arg(self.dir.path().join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("it is installed"));
        let port = self.port;
        wait_for("nats-server", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }

    /// Returns the path of a file in the server's directory, with this text.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("the directory is ours");
        path
    }

    fn options(&self, login: Login) -> NatsOptions {
        NatsOptions {
            servers: vec![format!("nats://127.0.0.1:{}", self.port)],
            ca: None,
            certificate: None,
            login,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn connect(options: &NatsOptions, host: &str) -> NatsTransport {
    let callbacks = Callbacks {
        clock: || Nanos::from_secs(1),
        wake: Box::new(|| ()),
    };
    let names = [&name("east"), &name(host)];
    NatsTransport::start(options, names, &[name("san")], callbacks).expect("sound options")
}

/// Sends from one to the other until a message arrives there.
fn assert_delivers(from: &mut NatsTransport, to: &mut NatsTransport, host: &str) {
    let mut arrived: Option<Received> = None;
    wait_for("a message", || {
        from.publish(Nanos::ZERO, &name("san"), b"text");
        arrived = to.receive(Nanos::ZERO);
        arrived.is_some()
    });
    let expected = Received {
        array: "san".to_owned(),
        host: host.to_owned(),
        at: Nanos::from_secs(1),
        bytes: b"text".to_vec(),
    };
    assert_eq!(arrived, Some(expected));
}

#[test]
fn messages_go_on_after_the_server_was_killed() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start(tempfile::tempdir().expect("a directory"), "");
    let options = server.options(Login::None);
    let (mut a, mut b) = (connect(&options, "a"), connect(&options, "b"));
    assert_delivers(&mut a, &mut b, "a");
    assert_eq!(a.receive(Nanos::ZERO), None, "no echo");
    server.kill();
    wait_for("the loss of the server", || !a.status().is_connected);
    let unsent = a.status().unsent;
    wait_for("a message that cannot be sent", || {
        a.publish(Nanos::ZERO, &name("san"), b"old");
        a.status().unsent > unsent
    });
    while b.receive(Nanos::ZERO).is_some() {}
    server.spawn();
    // A message that could not be sent is not sent later.
    assert_delivers(&mut a, &mut b, "a");
    assert_delivers(&mut b, &mut a, "b");
    assert!(a.status().connections >= 2);
}

#[test]
fn a_host_may_publish_under_its_own_name_alone() {
    if !is_installed() {
        return;
    }
    let keys = nkeys::KeyPair::new_user();
    let users = format!(
        "authorization {{ users = [\n\
         {{ user: a, password: \"secret\", permissions: {{ \
         publish: \"tidegate.east.shares.*.a\", \
         subscribe: \"tidegate.east.shares.*.*\" }} }}\n\
         {{ nkey: {}, permissions: {{ \
         publish: \"tidegate.east.shares.*.b\", subscribe: \"tidegate.east.shares.*.*\" }} }}\n\
         ] }}",
        keys.public_key()
    );
    let server = Server::start(tempfile::tempdir().expect("a directory"), &users);
    let file = server.file("a.password", "secret\n");
    let password = Login::Password {
        user: "a".to_owned(),
        file,
    };
    let seed = keys.seed().expect("a pair has its seed");
    let nkey = Login::Nkey(server.file("b.nkey", &format!("{seed}\n")));
    let mut a = connect(&server.options(password.clone()), "a");
    let mut b = connect(&server.options(nkey), "b");
    assert_delivers(&mut a, &mut b, "a");
    assert_delivers(&mut b, &mut a, "b");
    // The user of `a` under the name of `c`: the server lets nothing of it through.
    let mut c = connect(&server.options(password), "c");
    wait_for("the connection", || c.status().is_connected);
    wait_for("the refusal", || {
        c.publish(Nanos::ZERO, &name("san"), b"text");
        !c.status().last_error.is_empty()
    });
    assert!(
        c.status().last_error.contains("ermission"),
        "{:?}",
        c.status()
    );
    assert!(!has_message_of(&mut b, "c"));
    let wrong = Login::Password {
        user: "a".to_owned(),
        file: server.file("wrong", "guess"),
    };
    let refused = connect(&server.options(wrong), "a");
    wait_for("the refusal", || !refused.status().last_error.is_empty());
    assert!(!refused.status().is_connected, "{:?}", refused.status());
}

fn has_message_of(transport: &mut NatsTransport, host: &str) -> bool {
    std::iter::from_fn(|| transport.receive(Nanos::ZERO)).any(|received| received.host == host)
}

/// Writes an authority, and a certificate of it for 127.0.0.1, as PEM files.
fn certificates(dir: &Path) -> PathBuf {
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issued = authority.self_signed(&authority_key).expect("sound");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let server = server.signed_by(&key, &issuer).expect("sound");
    let write = |name: &str, text: &str| {
        fs::write(dir.join(name), text).expect("the directory is ours");
        dir.join(name)
    };
    write("server.pem", &server.pem());
    write("server.key", &key.serialize_pem());
    write("ca.pem", &issued.pem())
}

#[test]
fn only_a_server_with_a_certificate_of_the_authority_is_trusted() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let ca = certificates(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let more = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        file("server.pem"),
        file("server.key")
    );
    let server = Server::start(dir, &more);
    let with = |ca: PathBuf| NatsOptions {
        servers: vec![format!("tls://127.0.0.1:{}", server.port)],
        ca: Some(ca),
        ..server.options(Login::None)
    };
    let (mut a, mut b) = (connect(&with(ca.clone()), "a"), connect(&with(ca), "b"));
    assert_delivers(&mut a, &mut b, "a");
    let other = tempfile::tempdir().expect("a directory");
    let c = connect(&with(certificates(other.path())), "c");
    // It asks again and again; a while without a connection has to do.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(c.status().connections, 0, "{:?}", c.status());
}

/// Accepts a client, answers its first ping, and reads nothing more.
fn deaf_server(listener: &TcpListener) -> TcpStream {
    let (mut client, _) = listener.accept().expect("a client");
    let info = "INFO {\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.10.0\",\
                \"go\":\"go\",\
                \"host\":\"127.0.0.1\",\"port\":4222,\"proto\":1,\"headers\":true,\
                \"max_payload\":1048576,\"client_id\":1}\r\n";
    client.write_all(info.as_bytes()).expect("it reads");
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(b"PING\r\n") {
        client.read_exact(&mut byte).expect("it writes");
        read.push(byte[0]);
    }
    client.write_all(b"PONG\r\n").expect("it reads");
    client
}

#[test]
fn a_server_that_does_not_read_does_not_keep_the_client_from_ending() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let options = NatsOptions {
        servers: vec![format!("nats://127.0.0.1:{port}")],
        ca: None,
        certificate: None,
        login: Login::None,
    };
    let mut a = connect(&options, "a");
    // Held, so that the connection stays.
    let _deaf = deaf_server(&listener);
    wait_for("the connection", || a.status().is_connected);
    wait_for("a full queue", || {
        (0..100).for_each(|_| a.publish(Nanos::ZERO, &name("san"), &[0; 4096]));
        thread::sleep(Duration::from_millis(20));
        a.status().unsent > 2000
    });
    let (ended, end) = std::sync::mpsc::channel();
    thread::spawn(move || {
        drop(a);
        ended.send(())
    });
    assert_eq!(end.recv_timeout(DEADLINE), Ok(()));
}
