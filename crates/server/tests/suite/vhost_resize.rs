//! Resizes of vhost-user disks: the front-end is notified, and waited for by nobody.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vhost::vhost_user::{Frontend, VhostUserFrontend};

use crate::common::vhost_guest::{ALL, Guest, IN, OUT, connect, read_config};
use crate::common::{Server, wait};
use crate::vhost_user::backing;

const MIB: u64 = 1 << 20;
/// Time after which a notice counts as missing.
const PATIENCE: Duration = Duration::from_secs(30);
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, version 1, no reply wanted, without a body.
const NOTICE: [u8; 12] = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Hands a socket for notices to the back-end; returns the front-end's end and a copy of the
/// other's.
fn channel(frontend: &mut Frontend) -> (UnixStream, UnixStream) {
    let (own, given) = UnixStream::pair().unwrap();
    frontend.set_backend_request_fd(&given).unwrap();
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    (own, given)
}

fn expect_notice(channel: &mut UnixStream) {
    let mut message = [0; 12];
    channel.read_exact(&mut message).expect("a notice");
    assert_eq!(message, NOTICE);
}

/// Returns the size in bytes by the configuration space.
fn size(guest: &mut Guest) -> u64 {
    let space = read_config(&mut guest.frontend);
    512 * u64::from_le_bytes(space[..8].try_into().unwrap())
}

fn resize(server: &Server, size: u64) {
    wait(server.handle.resize_disk("disk", "disk", size, true)).unwrap();
}

#[test]
fn a_front_end_is_notified_of_each_size_and_the_new_end_is_served() {
    for file in [false, true] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (config, socket) = backing(dir.path(), file, 4 * MIB);
        let server = Server::start(config);
        let mut guest = Guest::start(&socket, ALL, 1);
        let (mut notices, _given) = channel(&mut guest.frontend);
        let mut copy = vec![0; 4 * MIB as usize];
        for mib in [6, 9, 3, 5] {
            let (was, is) = (copy.len(), mib * MIB as usize);
            let last = (is.min(was) - 4096) as u64;
            guest.write(last / 512, &[mib as u8; 4096]);
            copy[last as usize..][..4096].fill(mib as u8);
            resize(&server, is as u64);
            copy.resize(is, 0);
            expect_notice(&mut notices);
            assert_eq!(size(&mut guest), is as u64);
            // The new end takes writes, and nothing is beyond it.
            let end = is as u64 - 4096;
            guest.write(end / 512, &[0x50 | mib as u8; 4096]);
            copy[end as usize..].fill(0x50 | mib as u8);
            for kind in [IN, OUT] {
                assert_eq!(guest.ask(kind, is as u64 / 512, &[0; 512]).0.status, 1);
                assert_eq!(guest.ask(kind, is as u64 / 512 - 1, &[0; 1024]).0.status, 1);
            }
            for (at, bytes) in copy.chunks(64 << 10).enumerate() {
                let sector = at as u64 * 128;
                assert_eq!(guest.read(sector, bytes.len()), bytes, "{sector}");
            }
        }
        guest.leave();
        server.stop().unwrap();
    }
}

#[test]
fn a_front_end_that_reads_no_notices_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = backing(dir.path(), false, MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 1);
    let (mut notices, mut given) = channel(&mut guest.frontend);
    // It fills the socket, which is in blocking mode again afterwards.
    given.set_nonblocking(true).unwrap();
    let mut filled = 0;
    while given.write(&[0; 12]).is_ok() {
        filled += 12;
    }
    assert_eq!(given.write(&[0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    given.set_nonblocking(false).unwrap();
    for mib in [2, 3] {
        resize(&server, mib * MIB);
        guest.write(mib * MIB / 512 - 1, &[mib as u8; 512]);
    }
    notices.read_exact(&mut vec![0; filled]).unwrap();
    resize(&server, 4 * MIB);
    expect_notice(&mut notices);
    // Neither does one that has closed the socket.
    drop((notices, given));
    resize(&server, 5 * MIB);
    assert_eq!(size(&mut guest), 5 * MIB);
    let (mut notices, _given) = channel(&mut guest.frontend);
    resize(&server, 6 * MIB);
    expect_notice(&mut notices);
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn a_session_that_does_not_read_the_size_is_notified_when_it_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = backing(dir.path(), false, MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 1);
    assert_eq!(size(&mut guest), MIB);
    guest.leave();
    resize(&server, 2 * MIB);
    // As QEMU does when it connects again: its guest knows the old size.
    let mut frontend = loop {
        match connect(&socket, ALL) {
            Ok(frontend) => break frontend,
            Err(_) => std::thread::yield_now(),
        }
    };
    let (mut notices, _given) = channel(&mut frontend);
    let mut guest = Guest::untold(frontend, ALL, 1);
    expect_notice(&mut notices);
    assert_eq!(size(&mut guest), 2 * MIB);
    guest.leave();
    server.stop().unwrap();
}
