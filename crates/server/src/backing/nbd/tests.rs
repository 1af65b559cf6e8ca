//! Disks on a server, under a whole daemon: cuts, servers that are killed, that change or
//! misbehave, and the end of disks whose server is away. The tests of the event loop cover bytes,
//! errors and flushes together with those of all other disks.

mod connections;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_nbd::{Abilities, Command, NbdError};

use super::peer::{ALL, Peer, config_of};
use crate::command::DiskSnapshot;
use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, request, single, wait};
use crate::config::{Config, DeviceKind, ListenAddress};
use crate::ring::faults::{Call, Fault, Faults, What};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;

/// Abilities of a server whose connections share a cache.
const SHARED: Abilities = Abilities {
    multi_conn: true,
    ..ALL
};

/// Fault that makes the server break the connection instead of carrying out a call.
const CUT_BEFORE_CALL: Fault = Fault::Error(libc::EINTR);
/// Fault that makes the server carry out a call, and break the connection instead of answering.
const CUT_BEFORE_ANSWER: Fault = Fault::Error(libc::EAGAIN);

/// Server of a file, and a daemon with the disk `disk` there.
struct Setup {
    dir: tempfile::TempDir,
    file: File,
    peer: Arc<Peer>,
}

impl Setup {
    fn new(abilities: Abilities, faults: impl FnMut(Call) -> Fault + Send + 'static) -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        let file = File::options();
        let file = file
            .clone()
            .read(true)
            .write(true)
            .create(true)
            .open(path)
            .unwrap();
        file.set_len(SIZE).unwrap();
        let faults: Faults = Arc::new(std::sync::Mutex::new(faults));
        let own = file.try_clone().unwrap();
        let peer = Peer::start(&dir.path().join("server"), own, abilities, Some(faults));
        Setup { dir, file, peer }
    }

    fn without_faults() -> Setup {
        Setup::new(ALL, |_| Fault::None)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("server")
    }

    fn config(&self) -> Config {
        on_socket(self.dir.path(), &self.socket())
    }

    fn start(&self) -> Server {
        Server::start(self.config())
    }

    /// Returns what a durable range has.
    fn durable(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }
}

/// Returns the configuration of a daemon whose disk is on the server at a socket.
fn on_socket(dir: &Path, socket: &Path) -> Config {
    let mut config = single(dir, DeviceKind::Nbd, None, SIZE);
    let disk = &mut config.vms[0].disks[0];
    (disk.nbd, disk.size) = (Some(config_of(socket)), None);
    config
}

/// Returns the configuration of a daemon with this many connections to the server at a socket.
fn connecting(dir: &Path, socket: &Path, connections: u32) -> Config {
    let mut config = on_socket(dir, socket);
    let nbd = config.vms[0].disks[0].nbd.as_mut().expect("on a server");
    nbd.connections = connections;
    config
}

/// Returns faults that break the connection at every call whose number is a multiple of `every`,
/// alternately before and after the call.
fn cuts(every: u32) -> impl FnMut(Call) -> Fault + Send + 'static {
    let mut calls = 0;
    move |_| {
        calls += 1;
        match (calls % every, calls / every % 2) {
            (0, 0) => CUT_BEFORE_CALL,
            (0, _) => CUT_BEFORE_ANSWER,
            _ => Fault::None,
        }
    }
}

/// Returns faults that break the connection before the second call is carried out.
fn cut_at_second() -> impl FnMut(Call) -> Fault + Send + 'static {
    let mut calls = 0;
    move |_| {
        calls += 1;
        if calls == 2 {
            CUT_BEFORE_CALL
        } else {
            Fault::None
        }
    }
}

fn disk_now(server: &Server) -> DiskSnapshot {
    let snapshot = wait(server.handle.snapshot(0)).unwrap();
    snapshot.vms[0].disks[0].clone()
}

fn failure(server: &Server) -> Option<String> {
    disk_now(server).failed
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_loses_nothing() {
    let few = Abilities {
        trim: false,
        write_zeroes: false,
        ..ALL
    };
    for (abilities, connections) in [(ALL, 1), (few, 1), (ALL, 4), (SHARED, 2), (SHARED, 4)] {
        let setup = Setup::new(abilities, cuts(20));
        let server = Server::start(connecting(setup.dir.path(), &setup.socket(), connections));
        let expected = if abilities.multi_conn { connections } else { 1 };
        assert_eq!(setup.peer.serving(), expected as usize, "connections");
        let plan = Plan {
            seed: 4,
            start: 0,
            size: SIZE,
            block: 1,
            blocks_max: 128 << 10,
            depth: 16,
            requests: 600,
        };
        run(&mut server.connect("disk"), &plan);
        assert_eq!(failure(&server), None);
        server.stop().unwrap();
        assert!(setup.peer.cuts() > 5, "{} cuts", setup.peer.cuts());
        assert_eq!(setup.peer.overlaps(), 0);
    }
}

#[test]
fn a_long_log_is_sent_again_while_requests_come() {
    const WRITES: u64 = 4000;
    const LEN: usize = 512;
    for connections in [1, 4] {
        let setup = Setup::without_faults();
        setup.peer.offer(vec![SHARED.into()]);
        let server = Server::start(connecting(setup.dir.path(), &setup.socket(), connections));
        let mut client = server.connect("disk");
        // With gaps, so that each is a range of its own.
        let write = |client: &mut Client, at: u64, byte: u8| {
            let offset = at * 2 * LEN as u64;
            let write = request(Command::Write, at, offset, LEN as u32);
            client.send(write, &[byte; LEN]);
        };
        let byte = |at: u64| 1 + (at % 251) as u8;
        for first in (0..WRITES).step_by(50) {
            (first..first + 50).for_each(|at| write(&mut client, at, byte(at)));
            (0..50).for_each(|_| assert!(client.receive().result.is_ok()));
        }
        setup.peer.kill();
        let before = setup.peer.requests();
        for at in 0..50 {
            write(&mut client, 79 * at, 255);
        }
        (0..50).for_each(|_| assert!(client.receive().result.is_ok()));
        assert!(setup.peer.requests() >= before + WRITES as usize);
        for at in 0..WRITES {
            let expected = if at % 79 == 0 && at < 50 * 79 {
                255
            } else {
                byte(at)
            };
            let read = client.read(at * 2 * LEN as u64, 2 * LEN as u32);
            assert!(read[..LEN] == [expected; LEN] && read[LEN..] == [0; LEN]);
        }
        assert_eq!(client.flush(), Ok(()));
        assert_eq!((failure(&server), setup.peer.overlaps()), (None, 0));
        assert_eq!(setup.durable(2 * LEN as u64, LEN), [byte(1); LEN]);
        server.stop().unwrap();
    }
}

#[test]
fn a_flush_whose_answer_was_lost_is_repeated_with_what_it_covers() {
    let mut flushes = 0;
    let setup = Setup::new(ALL, move |call| match call.what {
        What::Sync => {
            flushes += 1;
            match flushes {
                1 => CUT_BEFORE_ANSWER,
                // The second cut is the one of a server that is killed.
                2 => CUT_BEFORE_CALL,
                _ => Fault::None,
            }
        }
        _ => Fault::None,
    });
    let server = setup.start();
    let mut client = server.connect("disk");
    client.write(0, &[1; 4096]);
    client.write(1024, &[2; 1024]);
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(setup.peer.cuts(), 2);
    assert_eq!(setup.durable(0, 1024), [1; 1024]);
    assert_eq!(setup.durable(1024, 1024), [2; 1024]);
    assert_eq!(setup.durable(2048, 2048), [1; 2048]);
    server.stop().unwrap();
}

#[test]
fn what_was_acknowledged_is_durable_after_an_orderly_end() {
    let setup = Setup::without_faults();
    let server = setup.start();
    server.connect("disk").write(4096, &[7; 4096]);
    assert_eq!(
        setup.durable(4096, 4096),
        [0; 4096],
        "in the volatile cache"
    );
    server.stop().unwrap();
    assert_eq!(setup.durable(4096, 4096), [7; 4096]);
}

#[test]
fn a_write_with_fua_is_durable_when_it_is_answered() {
    let setup = Setup::without_faults();
    let server = setup.start();
    let mut client = server.connect("disk");
    let mut write = request(Command::Write, 1, 512, 512);
    write.fua = true;
    client.send(write, &[5; 512]);
    assert!(client.receive().result.is_ok());
    assert_eq!(setup.durable(512, 512), [5; 512]);
    server.stop().unwrap();
}

#[test]
fn an_export_that_is_not_what_the_disk_needs_is_refused_in_words() {
    let refusal = |abilities, change: fn(&mut Config)| {
        let setup = Setup::new(abilities, |_| Fault::None);
        let mut config = setup.config();
        change(&mut config);
        let refused = Server::try_start(config).err().expect("refused");
        refused.to_string()
    };
    let no_flush = Abilities {
        flush: false,
        ..ALL
    };
    let read_only = Abilities {
        read_only: true,
        ..ALL
    };
    for (abilities, change, expected) in [
        (
            no_flush,
            (|_| ()) as fn(&mut Config),
            "does not offer flushes",
        ),
        (
            read_only,
            |_| (),
            "the export is read-only: set `read_only = true`",
        ),
        (
            ALL,
            |config| config.vms[0].disks[0].size = Some(2 * SIZE),
            "the export has 4 MiB, and the disk needs 8 MiB",
        ),
    ] {
        let message = refusal(abilities, change);
        assert!(message.contains(expected), "{message}");
    }
    let setup = Setup::new(no_flush, |_| Fault::None);
    let mut config = setup.config();
    config.vms[0].disks[0].read_only = true;
    let server = Server::start(config);
    assert_eq!(server.connect("disk").read(0, 512), [0; 512]);
    server.stop().unwrap();
}

#[test]
fn requests_of_a_disk_that_has_failed_end_at_once() {
    let setup = Setup::new(ALL, |call| match call.what {
        What::Sync => Fault::Error(libc::EIO),
        _ => Fault::None,
    });
    let server = setup.start();
    let mut client = server.connect("disk");
    client.write(0, &[1; 512]);
    assert_eq!(client.flush(), Err(NbdError::Eio));
    // Forgotten, each would end with the upkeep that comes once a second.
    let begun = Instant::now();
    for _ in 0..100 {
        let write = client.ask(Command::Write, 0, 512, &[2; 512]);
        assert_eq!(write.result, Err(NbdError::Eio));
    }
    assert!(begun.elapsed() < Duration::from_secs(50), "a second each");
}

#[test]
fn two_disks_that_write_to_one_export_are_refused() {
    let setup = Setup::without_faults();
    let mut config = setup.config();
    let mut second = config.vms[0].disks[0].clone();
    second.export = "second".to_owned();
    // By another name of the same socket.
    let link = setup.dir.path().join("link");
    std::os::unix::fs::symlink(setup.socket(), &link).unwrap();
    second.nbd = Some(config_of(&link));
    config.vms[0].disks.push(second);
    let refused = Server::try_start(config)
        .err()
        .expect("refused")
        .to_string();
    assert!(
        refused.contains("another disk of this daemon has it"),
        "{refused}"
    );
    // The refusal has let the first one go.
    setup.start().stop().unwrap();
}

#[test]
fn an_export_that_shrinks_fails_the_disk_in_words() {
    let setup = Setup::new(ALL, cut_at_second());
    let server = setup.start();
    let mut client = server.connect("disk");
    client.write(0, &[1; 512]);
    setup.peer.shrink(SIZE / 2);
    let write = client.ask(Command::Write, 0, 512, &[2; 512]);
    assert_eq!(write.result, Err(NbdError::Eio));
    let why = failure(&server).expect("failed");
    assert_eq!(
        why,
        "after a reconnect: the export has 2 MiB, and the disk needs 4 MiB"
    );
    assert_eq!(client.flush(), Err(NbdError::Eio));
    let read = client.ask(Command::Read { df: false }, 0, 512, &[]);
    assert_eq!(read.result, Err(NbdError::Eio), "what it has may be old");
}

/// Server that goes away: its socket is removed, and its connections are cut.
fn away() -> (Setup, Server, Client) {
    let setup = Setup::new(ALL, cut_at_second());
    let server = setup.start();
    let mut client = server.connect("disk");
    client.write(0, &[1; 512]);
    std::fs::rename(setup.socket(), setup.dir.path().join("gone")).unwrap();
    client.send(request(Command::Write, 7, 512, 512), &[2; 512]);
    wait_until("the cut", || setup.peer.cuts() == 1);
    (setup, server, client)
}

#[test]
fn requests_wait_for_a_server_that_is_away() {
    let (setup, server, mut client) = away();
    let gone = setup.dir.path().join("gone");
    let unreachable = || disk_now(&server).unreachable;
    wait_until("the server to be missed", || unreachable().is_some());
    let why = unreachable().expect("waited for");
    assert!(why.starts_with("its server cannot be reached: "), "{why}");
    std::fs::rename(gone, setup.socket()).unwrap();
    assert!(client.receive().result.is_ok());
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(setup.durable(0, 512), [1; 512]);
    assert_eq!(setup.durable(512, 512), [2; 512]);
    assert_eq!(unreachable(), None);
    server.stop().unwrap();
}

#[test]
fn a_disk_whose_acknowledged_changes_are_refused_later_fails_and_is_not_read() {
    let mut calls = 0;
    let setup = Setup::new(ALL, move |_| {
        calls += 1;
        match calls {
            2 => CUT_BEFORE_CALL,
            // The first change once more.
            3 => Fault::Error(libc::ENOSPC),
            _ => Fault::None,
        }
    });
    let server = setup.start();
    let mut client = server.connect("disk");
    client.write(0, &[1; 512]);
    for _ in 0..2 {
        let read = client.ask(Command::Read { df: false }, 0, 512, &[]);
        assert_eq!(read.result, Err(NbdError::Eio), "it could be old");
    }
    let write = client.ask(Command::Write, 0, 512, &[2; 512]);
    assert_eq!(write.result, Err(NbdError::Eio));
    assert_eq!(client.flush(), Err(NbdError::Eio));
    let why = failure(&server).expect("failed");
    let expected = "sending acknowledged writes again after a reconnect failed: No space left";
    assert!(why.starts_with(expected), "{why}");
}

#[test]
fn the_end_does_not_wait_for_a_server_that_is_away() {
    let (_setup, server, mut client) = away();
    server.handle.shut_down();
    assert_eq!(client.receive().result, Err(NbdError::Eio));
    server.stop().unwrap();
}

#[test]
fn a_disk_can_be_removed_while_its_server_is_away() {
    let (_setup, server, _client) = away();
    let removed = wait(server.handle.remove_vm("disk", true));
    let removed = removed.expect("removed");
    let failed = format!("{removed:?}");
    assert!(
        failed.contains("1 acknowledged change that was not flushed"),
        "{failed}"
    );
    server.stop().unwrap();
}

#[test]
fn a_disk_on_a_server_cannot_be_resized() {
    let setup = Setup::without_faults();
    let server = setup.start();
    let resized = wait(server.handle.resize_disk("disk", "disk", 8 * MIB, false));
    let message = resized.expect_err("refused").to_string();
    assert!(message.contains("its server decides"), "{message}");
    server.connect("disk").write(0, &[1; 4096]);
    server.stop().unwrap();
}

#[test]
fn a_disk_whose_server_is_its_daemon_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Its own socket, which another server has before the daemon.
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    let link = dir.path().join("link");
    let ListenAddress::Unix { path, .. } = single(dir.path(), DeviceKind::Nbd, None, SIZE)
        .listeners
        .remove(0)
        .address
    else {
        panic!("the first listener is a unix socket")
    };
    let _peer = Peer::start(&path, file, ALL, None);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut config = on_socket(dir.path(), &link);
    let own: Arc<[_]> = config
        .listeners
        .iter()
        .map(|it| it.address.clone())
        .collect();
    let nbd = config.vms[0].disks[0].nbd.as_mut().expect("on a server");
    nbd.own_listeners = own;
    let refused = Server::try_start(config)
        .err()
        .expect("refused")
        .to_string();
    assert!(
        refused.contains("the disk would be its own server"),
        "{refused}"
    );
}

/// Serves the handshake to each connection, then answers with what `answer` makes of the first
/// bytes of each request; the first connections are those of a server that misbehaves.
fn misbehave(socket: &Path, through: &Path, answers: Vec<Vec<u8>>) {
    let listener = UnixListener::bind(socket).unwrap();
    let through = through.to_owned();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = UnixStream::connect(&through).unwrap();
            let answer = answers.next();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
            });
            std::thread::spawn(move || {
                let (mut from, mut to, mut buffer) = (client, server, [0; 4096]);
                while let Ok(n) = from.read(&mut buffer)
                    && n > 0
                {
                    let is_request = buffer[..4] == 0x2560_9513_u32.to_be_bytes();
                    if let Some(answer) = answer.as_ref().filter(|_| is_request) {
                        let mut bytes = answer.clone();
                        // The cookie of the request, where the answer leaves room for it.
                        if bytes.len() >= 16 && bytes[8..16] == [0xcc; 8] {
                            bytes[8..16].copy_from_slice(&buffer[8..16]);
                        }
                        let _ = from.write_all(&bytes);
                        continue;
                    }
                    if to.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn a_server_that_answers_what_it_must_not_is_cut_and_asked_again() {
    let setup = Setup::without_faults();
    let head = |magic: u32, error: u32, cookie: [u8; 8]| {
        [&magic.to_be_bytes()[..], &error.to_be_bytes(), &cookie].concat()
    };
    const SIMPLE: u32 = 0x6744_6698;
    let own = [0xcc; 8];
    let answers = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        head(SIMPLE, 0, [0xff; 8]),
        head(SIMPLE, 0, [0; 8]),
        // A structured reply, which was not negotiated.
        head(0x668e_33ef, 0, own),
        // Twice.
        [head(SIMPLE, 5, own), head(SIMPLE, 5, own)].concat(),
        head(SIMPLE, 108, own),
    ];
    let count = answers.len();
    let socket = setup.dir.path().join("hostile");
    misbehave(&socket, &setup.socket(), answers);
    let server = Server::start(on_socket(setup.dir.path(), &socket));
    let mut client = server.connect("disk");
    let mut errors = 0;
    for round in 0..=count as u8 {
        let write = client.ask(Command::Write, 0, 512, &[round; 512]);
        match write.result {
            Ok(_) => assert_eq!(client.read(0, 512), [round; 512]),
            // The answer that comes twice is an error once.
            Err(error) => {
                assert_eq!(error, NbdError::Eio);
                errors += 1;
            }
        }
    }
    assert!(errors <= 1, "{errors} errors");
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(failure(&server), None);
    server.stop().unwrap();
}

#[test]
fn a_server_that_accepts_nothing_is_not_waited_for_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full");
    let listener = UnixListener::bind(&path).unwrap();
    // The queue of a listener that accepts nothing is full at some point.
    let socket = socket2::SockRef::from(&listener);
    socket.listen(0).unwrap();
    let _queued: Vec<_> = (0..2)
        .map_while(|_| {
            let client = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
            let client = client.unwrap();
            client.set_nonblocking(true).unwrap();
            let address = socket2::SockAddr::unix(&path).unwrap();
            client.connect(&address).is_ok().then_some(client)
        })
        .collect();
    let mut config = on_socket(dir.path(), &path);
    config.daemon.open_within = Duration::from_secs(1);
    let refused = Server::try_start(config).err().expect("refused");
    let message = refused.to_string();
    assert!(message.contains("accepts no connections"), "{message}");
}
