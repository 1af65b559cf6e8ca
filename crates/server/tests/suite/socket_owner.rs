//! Owner and group of unix sockets, for NBD and for vhost-user.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate_server::config::{Config, DeviceKind, SocketOwner};

use crate::common::vhost_guest::{ALL, Guest, listen};
use crate::common::{Server, disk, single, vm, wait};

const MIB: u64 = 1 << 20;

/// Configuration whose listeners' sockets belong to an owner.
fn owned(dir: &Path, user: &str, group: &str) -> (Config, PathBuf) {
    let mut config = single(dir, DeviceKind::Memory, None, MIB);
    listen(&mut config, dir);
    for listener in &mut config.listeners {
        listener.owner = SocketOwner {
            user: (!user.is_empty()).then(|| user.to_owned()),
            group: (!group.is_empty()).then(|| group.to_owned()),
            place: None,
        };
    }
    (config, dir.join("disk.vhost"))
}

/// Returns user, group and permissions of a file.
fn access(path: &Path) -> (u32, u32, u32) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o777)
}

/// Returns true if this process may give files to other users.
fn may_give_away(test: &str) -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    let may = std::os::unix::fs::chown(file.path(), Some(12_345), Some(23_456)).is_ok();
    if !may {
        eprintln!("skipped: {test}: it takes root to give a file to another user");
    }
    may
}

#[test]
fn sockets_belong_to_the_owner_and_the_group_that_are_set() {
    if !may_give_away("sockets_belong_to_the_owner_and_the_group_that_are_set") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let own = access(dir.path());
    // By number, by name, and only one of them.
    for (user, group, expected) in [
        ("12345", "23456", (12_345, 23_456)),
        ("root", "23456", (0, 23_456)),
        ("12345", "root", (12_345, 0)),
        ("", "23456", (own.0, 23_456)),
        ("", "", (own.0, own.1)),
    ] {
        let (config, socket) = owned(dir.path(), user, group);
        let server = Server::start(config);
        for path in [&socket, &server.socket] {
            assert_eq!(access(path), (expected.0, expected.1, 0o600), "{path:?}");
        }
        // The socket of a disk that is added later, too.
        let late = dir.path().join("late.vhost");
        wait(
            server
                .handle
                .add_vm(vm("late", 0, vec![disk("late", None, MIB)])),
        )
        .unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !late.exists() {
            assert!(Instant::now() < until, "no socket of the new disk");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(access(&late), (expected.0, expected.1, 0o600));
        let mut guest = Guest::start(&late, ALL, 1);
        guest.write(0, &[1; 512]);
        guest.leave();
        server.connect("disk").disconnect();
        server.stop().unwrap();
    }
}

#[test]
fn an_owner_that_is_not_known_is_an_error_and_leaves_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    for (user, group, missing) in [
        (
            "nobody-of-this-name",
            "",
            "there is no user \"nobody-of-this-name\"",
        ),
        ("", "no-group-of-it", "there is no group \"no-group-of-it\""),
    ] {
        let (config, _) = owned(dir.path(), user, group);
        let nbd = dir.path().join("nbd");
        let error = Server::try_start(config)
            .err()
            .expect("refused")
            .to_string();
        assert!(error.contains(missing), "{error}");
        assert!(error.contains(&nbd.display().to_string()), "{error}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_owner_that_takes_root_is_an_error_for_others() {
    if may_give_away("an_owner_that_takes_root_is_an_error_for_others") {
        eprintln!("skipped: root may give files to anybody");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (config, _) = owned(dir.path(), "0", "");
    let error = Server::try_start(config)
        .err()
        .expect("refused")
        .to_string();
    assert!(error.contains("cannot change owner or group"), "{error}");
}
