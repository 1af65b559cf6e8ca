//! Long reads of disks in memory, whose replies are sent from the disk itself: what else happens to
//! the disk while a client leaves its replies unread.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_nbd::Command;
use tidegate_server::config::{Config, DeviceKind};

use crate::common::{Client, Server, disk, request, single, vm, wait};

const MIB: u64 = 1 << 20;
const READ: Command = Command::Read { df: false };
/// Reads that are left unread: far more than a socket takes.
const UNREAD: u64 = 4;

/// Directory, kind and file of a disk whose bytes are in memory.
struct Place {
    dir: tempfile::TempDir,
    kind: DeviceKind,
    in_file: bool,
}

impl Place {
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.in_file.then(|| self.dir.path().join(name))
    }

    /// Configuration with one disk of 4 MiB.
    fn config(&self) -> Config {
        single(
            self.dir.path(),
            self.kind.clone(),
            self.path("disk"),
            4 * MIB,
        )
    }
}

/// Memory, and a file on tmpfs.
fn places() -> [Place; 2] {
    [DeviceKind::Memory, DeviceKind::File].map(|kind| Place {
        dir: tempfile::tempdir_in("/dev/shm").expect("tmpfs"),
        in_file: matches!(kind, DeviceKind::File),
        kind,
    })
}

/// Bytes of the disk's first 4 MiB.
fn content() -> Vec<u8> {
    (0..4 * MIB).map(|at| (at / 511) as u8).collect()
}

/// Fills the disk and asks for its fourth MiB many times; the answers are left unread.
fn leave_unread(server: &Server) -> Client {
    server.connect("disk").write(0, &content());
    leave_unread_at(server, 3 * MIB)
}

/// Asks for the MiB at `offset` many times; the answers are left unread.
fn leave_unread_at(server: &Server, offset: u64) -> Client {
    let mut client = server.connect("disk");
    for n in 0..UNREAD {
        client.send(request(READ, n, offset, MIB as u32), &[]);
    }
    // Other connections are served after what has arrived, so this one's requests have been.
    let mut other = server.connect("disk");
    for _ in 0..UNREAD {
        other.read(0, 4096);
    }
    client
}

/// Waits until the loop has begun to make the disk smaller: its requests keep to the new size.
fn wait_until_pending(server: &Server, size: u64) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < until, "the resize does not begin");
        let now = wait(server.handle.snapshot(0)).expect("the loop runs");
        let disk = now.vms.iter().find(|vm| vm.name == "disk").expect("served");
        if disk.disks[0].size == size {
            return;
        }
        thread::yield_now();
    }
}

/// Takes the replies that were left unread.
fn take_unread(client: &mut Client) -> Vec<Vec<u8>> {
    let replies = (0..UNREAD).map(|_| client.receive().result.expect("read in time"));
    replies.collect()
}

fn fourth() -> Vec<u8> {
    content().split_off(3 << 20)
}

#[test]
fn replies_that_are_unread_have_the_newest_bytes_and_all_others_their_own() {
    for place in places() {
        let server = Server::start(place.config());
        let mut client = leave_unread(&server);
        server.connect("disk").write(3 * MIB + 4096, &[251; 100]);
        let replies = take_unread(&mut client);
        let mut new = fourth();
        new[4096..4196].fill(251);
        for reply in &replies {
            assert!(*reply == fourth() || *reply == new, "bytes of neither time");
        }
        // The bytes were not copied when the device had read them, or this test tests nothing.
        assert!(replies.contains(&new));
        server.stop().unwrap();
    }
}

#[test]
fn a_disk_whose_bytes_move_or_go_is_resized_once_unread_replies_have_been_sent() {
    let sizes = [2 * MIB, 64 * MIB];
    for (size, place) in sizes
        .into_iter()
        .flat_map(|size| places().map(|place| (size, place)))
    {
        let server = Server::start(place.config());
        let mut client = leave_unread(&server);
        thread::scope(|scope| {
            let resize = scope
                .spawn(|| wait(server.handle.resize_disk("disk", "disk", size, true)).map(drop));
            // Memory grows at other addresses, and a file where it is.
            if size < 4 * MIB || !place.in_file {
                if size < 4 * MIB {
                    wait_until_pending(&server, size);
                }
                // Time to do what it must not do.
                thread::sleep(Duration::from_millis(50));
                assert!(
                    !resize.is_finished(),
                    "the bytes of the replies may be gone"
                );
            }
            // Meanwhile the disk is served, with copies.
            let mut other = server.connect("disk");
            assert!(other.read(0, 1 << 20) == content()[..1 << 20]);
            for reply in take_unread(&mut client) {
                assert!(reply == fourth());
            }
            resize.join().unwrap().expect("it is resized");
        });
        // Replies from what stays where it is delay nothing.
        let mut client = leave_unread_at(&server, 0);
        for size in [size, size - 4096] {
            wait(server.handle.resize_disk("disk", "disk", size, true)).expect("again");
        }
        take_unread(&mut client);
        let size = size - 4096;
        let mut again = server.connect("disk");
        assert_eq!(again.negotiated.size, size);
        let kept = size.min(4 * MIB) as usize;
        assert!(again.read(0, kept as u32) == content()[..kept]);
        if size > 4 * MIB {
            again.write(size - MIB, &[7; 1 << 20]);
            assert!(again.read(size - MIB, 1 << 20) == [7; 1 << 20]);
            assert!(again.read(8 * MIB, 1 << 20) == [0; 1 << 20]);
        }
        server.stop().unwrap();
    }
}

#[test]
fn removal_by_force_waits_for_no_client_and_leaks_nothing_to_the_next() {
    for place in places() {
        let mut config = place.config();
        let other = disk("other", place.path("other"), 4 * MIB);
        config.vms.push(vm("other", 0, vec![other]));
        let server = Server::start(config);
        let mut client = leave_unread(&server);
        thread::scope(|scope| {
            let resize = scope
                .spawn(|| wait(server.handle.resize_disk("disk", "disk", 2 * MIB, true)).map(drop));
            wait_until_pending(&server, 2 * MIB);
            wait(server.handle.remove_vm("disk", true)).expect("by force");
            resize.join().unwrap().expect_err("the disk is gone");
        });
        // The next disk has the memory of the removed one.
        let next = vm("next", 0, vec![disk("next", place.path("next"), 4 * MIB)]);
        wait(server.handle.add_vm(next)).expect("there is room");
        let mut next = server.connect("next");
        next.write(0, &[251; 4 << 20]);
        assert!(next.read(0, 4 << 20) == [251; 4 << 20]);
        // Whole replies that the socket had taken before are the old disk's.
        while let Some(answer) = client.receive_if_any_whole() {
            assert!(answer.result.expect("read in time") == fourth());
        }
        server.stop().unwrap();
    }
}

#[test]
fn a_file_that_is_cut_short_under_its_replies_ends_its_own_clients_only() {
    let [_, place] = places();
    let mut config = place.config();
    let other = disk("other", place.path("other"), 4 * MIB);
    config.vms.push(vm("other", 0, vec![other]));
    let server = Server::start(config);
    let mut client = leave_unread(&server);
    let file = std::fs::File::options()
        .write(true)
        .open(place.path("disk").unwrap());
    file.unwrap().set_len(MIB).unwrap();
    let mut replies = 0;
    while let Some(answer) = client.receive_if_any_whole() {
        match answer.result {
            Ok(bytes) => assert!(bytes == fourth()),
            Err(error) => assert_eq!(error, tidegate_nbd::NbdError::Eio),
        }
        replies += 1;
    }
    assert!(replies < UNREAD, "bytes that are gone were sent");
    let mut again = server.connect("disk");
    assert!(again.ask(READ, 3 * MIB, MIB as u32, &[]).result.is_err());
    let mut other = server.connect("other");
    other.write(0, &content());
    assert!(other.read(0, 4 << 20) == content());
    server.stop().unwrap();
}

#[test]
fn what_follows_the_end_of_a_file_in_its_last_page_is_not_read() {
    let [_, place] = places();
    let server = Server::start(place.config());
    let mut client = server.connect("disk");
    client.write(0, &content());
    let file = std::fs::File::options()
        .write(true)
        .open(place.path("disk").unwrap());
    file.unwrap().set_len(MIB + 100).unwrap();
    let answer = client.ask(READ, MIB - (12 << 10), 16 << 10, &[]);
    assert_eq!(answer.result, Err(tidegate_nbd::NbdError::Eio));
    server.stop().unwrap();
}

#[test]
fn a_resize_that_waits_for_a_client_ends_with_the_daemon() {
    for place in places() {
        let server = Server::start(place.config());
        let client = leave_unread(&server);
        let handle = server.handle.clone();
        let resize =
            thread::spawn(move || wait(handle.resize_disk("disk", "disk", MIB, true)).map(drop));
        wait_until_pending(&server, MIB);
        server.stop().unwrap();
        resize
            .join()
            .unwrap()
            .expect_err("nobody would note the size");
        if let Some(path) = place.path("disk") {
            assert_eq!(std::fs::metadata(path).unwrap().len(), 4 * MIB);
        }
        drop(client);
    }
}
