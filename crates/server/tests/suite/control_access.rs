//! Processes of other users at a socket of the control API.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_api::access::Role;
use tidegate_server::config::{
    AccessConfig, Account, Config, ControlListenConfig, DeviceKind, ListenAddress, SocketOwner,
};

use crate::common::control::ControlApi;
use crate::common::{Server, read, single};

const PATIENCE: Duration = Duration::from_secs(30);
const STRANGER: u32 = 12_345;
const OPERATOR: u32 = 12_346;

/// Configuration with a socket at which everybody may connect and one user has a role.
fn with_people(dir: &Path) -> Config {
    let mut config = single(dir, DeviceKind::Memory, None, 1 << 20);
    config.control.others.push(ControlListenConfig {
        address: ListenAddress::Unix {
            path: dir.join("people"),
            mode: 0o666,
        },
        owner: SocketOwner::default(),
        access: AccessConfig {
            everyone: None,
            root: Role::Read,
            accounts: vec![(Account::User(OPERATOR.to_string()), Role::Operate)],
        },
        tls: None,
        place: None,
    });
    config
}

/// Connects as a user, whose number only root can take; `None` if this is not root.
fn connect_as(user: u32, path: PathBuf) -> Option<UnixStream> {
    let connecting = std::thread::spawn(move || {
        // The C library's function would change the user of all threads.
        // SAFETY: takes no memory; concerns this thread alone, which ends below.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        if changed != 0 {
            return None;
        }
        let stream = UnixStream::connect(path).expect("the mode admits everybody");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(stream)
    });
    connecting.join().expect("no panic")
}

/// Sends a request after which the connection would stay open.
fn ask(stream: &mut UnixStream) {
    let request = b"GET /v1/vms HTTP/1.1\r\nhost: t\r\n\r\n";
    stream.write_all(request).expect("it is open");
}

/// Reads until the text received ends with `end`.
fn hear(stream: &mut UnixStream, end: &str) -> String {
    let mut heard = Vec::new();
    while !heard.ends_with(end.as_bytes()) {
        let mut piece = [0; 4096];
        let n = read(stream, &mut piece).expect("an answer");
        assert!(n > 0, "closed after {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&piece[..n]);
    }
    String::from_utf8(heard).expect("text")
}

#[test]
fn a_user_without_a_role_is_answered_once_and_has_no_connection() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).expect("its owner");
    let config = with_people(dir.path());
    let server = Server::start(config.clone());
    let api = ControlApi::start(config, &server);
    let people = || PathBuf::from(&api.names[1]);
    let Some(mut stranger) = connect_as(STRANGER, people()) else {
        // Past the harness, which captures the output of tests that pass.
        let _ = io::stderr().write_all(b"skipped: it takes root to be another user\n");
        return;
    };
    ask(&mut stranger);
    let mut answer = String::new();
    let ended = stranger.read_to_string(&mut answer);
    ended.expect("the connection is closed behind the answer");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let who = format!("user {STRANGER} has no role at this socket");
    assert!(answer.contains(&who), "{answer}");

    // One with a role keeps its connection.
    let mut operator = connect_as(OPERATOR, people()).expect("root");
    for _ in 0..2 {
        ask(&mut operator);
        let answer = hear(&mut operator, "]\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    drop(api);
    server.stop().unwrap();
}
