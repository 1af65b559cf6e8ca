//! `tidegate vhost-user-blk`, started as a management program starts a back-end, with a front-end
//! of the tests.

use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use vhost::VhostBackend;
use vhost::vhost_user::Frontend;

use crate::common::{stderr, stdout, tidegate};
use vhost_guest::{ALL, FLUSH_REQUEST, Guest, OUT, connect, memory, negotiate, read_config};

#[allow(dead_code, unreachable_pub)]
#[path = "../../../server/tests/suite/common/vhost_guest.rs"]
mod vhost_guest;

const MIB: u64 = 1 << 20;
/// Time after which something does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Back-end that runs; killed when dropped.
struct Backend(Child);

impl Backend {
    /// Starts the program with a socket, or nothing, as its descriptor 3.
    fn start(args: &[&str], socket: Option<OwnedFd>) -> Backend {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" vhost-user-blk \"$@\" 3<&0 0</dev/null"])
            .arg(program)
            .args(args)
            .stdin(socket.map_or(Stdio::null(), Stdio::from))
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        Backend(child)
    }

    /// Starts the program on a disk with a socket at a path, and waits for the socket.
    fn listening(disk: &Path, more: &[&str]) -> (Backend, PathBuf) {
        let socket = disk.with_extension("sock");
        let words = ["--blk-file", text(disk), "--socket-path", text(&socket)];
        let mut backend = Backend::start(&[&words, more].concat(), None);
        until("the socket", || {
            assert_eq!(backend.0.try_wait().expect("our child"), None);
            socket.exists()
        });
        (backend, socket)
    }

    fn terminate(&self) {
        let kill = format!("kill -TERM {}", self.0.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.expect("there is a shell").success());
    }

    fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        until("the program to end", || {
            status = self.0.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("waited for")
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// Makes a disk of zeroes in a directory.
fn disk(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("disk.raw");
    let file = File::create(&path).expect("a file");
    file.set_len(4 * MIB).expect("room");
    path
}

fn bytes_at(path: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = File::open(path).expect("a file");
    file.read_exact_at(&mut bytes, at).expect("inside");
    bytes
}

#[test]
fn capabilities_are_printed_whatever_else_is_given() {
    let expected: serde_json::Value =
        serde_json::json!({ "type": "block", "features": ["read-only", "blk-file"] });
    let all = [
        "--socket-path",
        "/nowhere/s",
        "--fd",
        "7",
        "--blk-file",
        "/nowhere/b",
        "--read-only",
        "-o",
        "table",
    ];
    let unknown = ["--num-queues", "4", "argument", "-x", "--help"];
    let wrong = ["--fd", "none", "--fd", "--log", "loud", "-o", "csv"];
    let asked = ["--print-capabilities"];
    for more in [&[][..], &all, &unknown, &wrong] {
        for options in [[&asked, more].concat(), [more, &asked].concat()] {
            let done = tidegate(&[&["vhost-user-blk"], &options[..]].concat());
            assert!(done.status.success(), "{options:?}: {}", stderr(&done));
            assert_eq!(stderr(&done), "");
            let printed: serde_json::Value = serde_json::from_str(&stdout(&done)).expect("JSON");
            assert_eq!(printed, expected);
        }
    }
    // Capabilities are printed for the command alone, not for an argument of the same name.
    for words in [
        &["vm", "show", "vhost-user-blk", "--print-capabilities"][..],
        &["vhost-user-blk", "--unknown", "--", "--print-capabilities"],
    ] {
        let done = tidegate(words);
        assert_eq!(done.status.code(), Some(2), "{words:?}");
        assert_eq!(stdout(&done), "");
    }
}

#[test]
fn the_description_for_management_programs_names_a_link_that_is_the_command() {
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/vhost-user");
    let file = contrib.join("50-tidegate-vhost-user-blk.json");
    let description = fs::read(file).expect("a file");
    let description: serde_json::Value = serde_json::from_slice(&description).expect("JSON");
    let binary = Path::new(description["binary"].as_str().expect("a path"));
    assert!(binary.is_absolute());
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join(binary.file_name().expect("a name"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &link).expect("our directory");
    let done = Command::new(link).arg("--print-capabilities").output();
    let done = done.expect("it runs");
    let printed: serde_json::Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    assert_eq!(printed["type"], description["type"]);
}

/// Runs the program, which must fail with a message that contains these texts.
fn is_refused(words: &[&str], what: &str, help: &str) {
    let mut backend = Backend::start(words, None);
    assert_eq!(backend.ends().code(), Some(1), "{words:?}");
    let mut printed = String::new();
    let log = backend.0.stderr.as_mut().expect("piped");
    std::io::Read::read_to_string(log, &mut printed).expect("text");
    // Warnings may come first: the last program's lock may still be held.
    let is_error = |line: &str| line.starts_with("error: ");
    assert!(printed.lines().any(is_error), "{printed}");
    assert!(
        printed.contains(what) && printed.contains(help),
        "{printed}"
    );
}

#[test]
fn wrong_sockets_are_answered_with_right_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(&dir);
    let free = dir.path().join("free.sock");
    let taken = dir.path().join("taken.sock");
    let _listener = UnixListener::bind(&taken).expect("a socket");
    let disk = ["--blk-file", text(&disk)];
    let is_refused = |words: &[&str], what, help| {
        is_refused(&[&disk[..], words].concat(), what, help);
    };
    is_refused(&[], "no socket", "--socket-path PATH, or");
    is_refused(
        &["--fd", "0", "--socket-path", text(&free)],
        "two sockets: --socket-path and --fd",
        "give one of them",
    );
    is_refused(
        &["--socket-path", text(&taken)],
        "another process listens on this socket",
        "choose another place",
    );
    is_refused(
        &["--socket-path", "/nowhere/at/all.sock"],
        "No such file or directory",
        "",
    );
    is_refused(
        &["--fd", "987"],
        "descriptor 987 is not open",
        "a socket pair",
    );
    is_refused(
        &["--fd", "0"],
        "descriptor 0 is not a unix stream socket",
        "a socket pair",
    );
    assert!(!free.exists());
    assert!(taken.exists(), "another's socket stays");
}

#[test]
fn wrong_disks_are_answered_with_right_ones_before_there_is_a_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(&dir);
    let image = dir.path().join("image.qcow2");
    fs::write(&image, [&b"QFI\xfb"[..], &[0; 4092]].concat()).expect("a file");
    let missing = dir.path().join("missing.raw");
    let free = dir.path().join("free.sock");
    let socket = ["--socket-path", text(&free)];
    is_refused(&socket, "no disk", "--blk-file PATH");
    for (path, what, help) in [
        (
            &*missing,
            "cannot open: No such file",
            "block device that exists",
        ),
        (Path::new("/"), "is a directory", "name a file in it"),
        (&image, "looks like a qcow2 image", "--format raw"),
    ] {
        let words = [&socket[..], &["--blk-file", text(path)]].concat();
        is_refused(&words, what, help);
        assert!(!free.exists());
    }
    let (_backend, _socket) = Backend::listening(&image, &["--format", "raw"]);
    let (_backend, _socket) = Backend::listening(&disk, &[]);
    let words = [&socket[..], &["--blk-file", text(&disk)]].concat();
    is_refused(&words, "in use by another process", "one process at a time");
}

#[test]
fn sockets_that_carry_no_front_end_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(&dir);
    let (datagrams, _other) = UnixDatagram::pair().expect("a socket pair");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    for socket in [OwnedFd::from(datagrams), OwnedFd::from(tcp)] {
        let words = ["--fd", "3", "--blk-file", text(&disk)];
        let mut backend = Backend::start(&words, Some(socket));
        assert_eq!(backend.ends().code(), Some(1));
    }
}

#[test]
fn front_ends_come_and_go_at_a_path_until_the_program_is_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(&dir);
    let (mut backend, socket) = Backend::listening(&disk, &[]);
    let mode = fs::metadata(&socket).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    for round in 1..4u8 {
        let mut guest = Guest::start(&socket, ALL, 2);
        assert_eq!(guest.read(8, 4096), vec![round - 1; 4096]);
        guest.write(8, &[round; 4096]);
        if round % 2 == 0 {
            guest.leave();
        }
    }
    let mut guest = Guest::start(&socket, ALL, 1);
    guest.write(0, &[9; 512]);
    let (flushed, _) = guest.ask(FLUSH_REQUEST, 0, &[]);
    assert_eq!(flushed.status, 0);
    backend.terminate();
    assert!(backend.ends().success());
    assert!(guest.is_cut_off());
    assert!(!socket.exists(), "the socket is removed");
    assert_eq!(bytes_at(&disk, 4096, 4096), [3; 4096]);
    assert_eq!(bytes_at(&disk, 0, 1024), [[9; 512], [0; 512]].concat());
}

#[test]
fn the_program_ends_with_the_front_end_of_an_inherited_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(&dir);
    let words = ["--fd", "3", "--blk-file", text(&disk)];
    let check = |mut backend: Backend, frontend: Frontend, round: u8| {
        let frontend = negotiate(frontend, ALL).expect("a back-end");
        let mut guest = Guest::with_frontend(frontend, ALL, memory(1), 1);
        guest.write(8, &[round; 4096]);
        assert_eq!(guest.read(8, 4096), vec![round; 4096]);
        assert_eq!(backend.0.try_wait().expect("our child"), None);
        if round.is_multiple_of(2) {
            guest.leave();
        } else {
            drop(guest);
        }
        assert!(backend.ends().success());
        assert_eq!(bytes_at(&disk, 4096, 4096), vec![round; 4096]);
    };
    for round in 1..3 {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let backend = Backend::start(&words, Some(theirs.into()));
        check(backend, Frontend::from_stream(ours, 64), round);
    }
    for round in 3..5 {
        let path = dir.path().join(format!("{round}.sock"));
        let listener = UnixListener::bind(&path).expect("a socket");
        let backend = Backend::start(&words, Some(listener.into()));
        let frontend = Frontend::connect(&path, 64).expect("it listens");
        frontend.get_features().expect("it is served");
        // Another front-end would not be served, so it is not left waiting. A process that another
        // test starts at this moment may hold the socket until it has become its program.
        until("the socket to be closed", || {
            UnixStream::connect(&path).is_err()
        });
        check(backend, frontend, round);
    }
    // A program whose front-end never comes ends by a signal.
    let listener = UnixListener::bind(dir.path().join("last.sock")).expect("a socket");
    let mut backend = Backend::start(&words, Some(listener.into()));
    until("the disk to be locked", || is_locked(&disk));
    backend.terminate();
    assert!(backend.ends().success());
}

/// Returns true if another process serves the disk.
fn is_locked(disk: &Path) -> bool {
    let locks = fs::read_to_string("/proc/locks").expect("Linux");
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(disk).expect("a file"));
    locks
        .lines()
        .any(|line| line.contains(&format!(":{inode} ")))
}

#[test]
fn a_disk_that_is_read_only_is_not_written() {
    const RO: u8 = 1 << 5;
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(&dir);
    fs::set_permissions(&disk, Permissions::from_mode(0o400)).expect("our file");
    let (_backend, socket) = Backend::listening(&disk, &["--read-only"]);
    let frontend = connect(&socket, ALL | u64::from(RO)).expect("a back-end");
    let mut guest = Guest::with_frontend(frontend, ALL, memory(1), 1);
    assert_eq!(
        read_config(&mut guest.frontend)[..8],
        (4 * MIB / 512).to_le_bytes()
    );
    assert_eq!(guest.ask(OUT, 0, &[1; 512]).0.status, 1);
    assert_eq!(guest.read(0, 512), [0; 512]);
    // Two may read a disk at a time, as in `tidegate serve`.
    let second = dir.path().join("second.raw");
    std::os::unix::fs::symlink(&disk, &second).expect("our directory");
    let (_other, socket) = Backend::listening(&second, &["--read-only"]);
    let mut other = Guest::start(&socket, ALL, 1);
    assert_eq!(other.read(0, 512), [0; 512]);
    guest.leave();
    other.leave();
}
