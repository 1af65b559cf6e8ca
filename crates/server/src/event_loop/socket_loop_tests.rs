//! Several loops a device, in a whole daemon: bytes against shadow copies while connections move,
//! flushes across loops, clients that vanish at every moment, removal and resize.
//!
//! In test builds connections move every few turns wherever they are dealt to several loops.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_nbd::client::{encode_disconnect, encode_request};
use tidegate_nbd::{Command, Request};

use super::fault_tests::{BLOCK, MIB, noise, places, plan, two_disks};
use crate::command::VmSnapshot;
use crate::common::shadow::run;
use crate::common::{Client, Server, request, single, wait};
use crate::config::{Config, DeviceKind, Loops};
use crate::ring::faults::{self, Fault, What};

/// Deadline for any step of these tests, long enough for a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

fn several(mut config: Config) -> Config {
    config.devices[0].loops = Loops::Count(3);
    config
}

/// Takes snapshots of the first VM until one satisfies `wanted`.
fn until(server: &Server, what: &str, wanted: impl Fn(&VmSnapshot) -> bool) -> VmSnapshot {
    let begun = Instant::now();
    loop {
        let mut now = wait(server.handle.snapshot(0)).expect("the loop runs");
        let vm = now.vms.swap_remove(0);
        if wanted(&vm) {
            return vm;
        }
        assert!(begun.elapsed() < STEP_TIMEOUT, "{what} never came: {vm:?}");
        std::thread::yield_now();
    }
}

/// Waits until nothing is held for clients of the first VM, of which there are none any more.
fn until_nothing_is_held(server: &Server) {
    until(server, "the end of all that clients held", |vm| {
        vm.clients == 0 && vm.holdings.slots == 0 && vm.holdings.payload == 0
    });
}

#[test]
fn connections_that_move_lose_no_byte_where_calls_fail_and_fall_short() {
    for place in places() {
        let mut config = several(two_disks(&place, 6 * MIB, noise(11)));
        // Little, so that connections wait for memory on both sides.
        config.devices[0].scheduling.buffer_memory = 2 << 20;
        config.devices[0].scheduling.buffer_memory_per_vm = 1 << 20;
        let server = Server::start(config);
        std::thread::scope(|scope| {
            for (part, block) in [(0, 1), (1, 512), (2, 1), (3, BLOCK), (4, 512), (5, BLOCK)] {
                let mut client = Client::connect(&server.socket, "disk", part % 2 == 0);
                let plan = plan(part, part * MIB, MIB, block, 300);
                scope.spawn(move || run(&mut client, &plan));
            }
        });
        until_nothing_is_held(&server);
        server.stop().expect("every disk is flushed");
    }
}

/// Calls of a file in order: the block of a write, or a sync.
type Calls = Arc<Mutex<Vec<Option<u64>>>>;

/// Configuration with one disk, whose calls are noted.
fn noted(dir: &Path, calls: &Calls) -> Config {
    let path = dir.join("disk.raw");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(MIB).unwrap();
    let noted = calls.clone();
    faults::set(&file, move |call| {
        match call.what {
            What::Write => noted.lock().unwrap().push(Some(call.offset / BLOCK)),
            What::Sync => noted.lock().unwrap().push(None),
            What::Read | What::Allocate => {}
        }
        Fault::None
    });
    several(single(dir, DeviceKind::File, Some(path), MIB))
}

#[test]
fn a_flush_on_any_connection_covers_what_was_answered_on_all_others() {
    // A directory where syncs are system calls, which they are not on tmpfs.
    let here = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
    let calls = Calls::default();
    let server = Server::start(noted(dir.path(), &calls));
    let mut clients: Vec<Client> = (0..5).map(|_| server.connect("disk")).collect();
    for round in 0..60 {
        calls.lock().unwrap().clear();
        // Each client writes a block of its own, and one flushes when all have their answers.
        for (block, client) in (0..).zip(&mut clients) {
            client.write(block * BLOCK, &[round as u8 + 1; BLOCK as usize]);
        }
        let flushes = round % clients.len();
        assert_eq!(clients[flushes].flush(), Ok(()));
        let calls = calls.lock().unwrap().clone();
        let sync = calls.iter().rposition(Option::is_none).expect("a sync");
        for block in 0..clients.len() as u64 {
            assert!(
                calls[..sync].contains(&Some(block)),
                "round {round}: block {block} was answered and is not covered: {calls:?}"
            );
        }
    }
    server.stop().expect("every disk is flushed");
}

/// Bytes of a client that sends everything at once: writes with payloads, reads and a flush.
fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |request: Request, payload: &[u8]| {
        bytes.extend_from_slice(&encode_request(&request));
        bytes.extend_from_slice(payload);
    };
    add(request(Command::Write, 1, 0, 600), &[1; 600]);
    add(request(Command::Read { df: false }, 2, 0, 100_000), &[]);
    add(request(Command::Flush, 3, 0, 0), &[]);
    add(request(Command::Write, 4, 4096, 700), &[2; 700]);
    add(request(Command::Read { df: false }, 5, 4096, 512), &[]);
    bytes
}

#[test]
fn a_client_that_vanishes_at_any_byte_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [DeviceKind::Memory, DeviceKind::File] {
        let path = matches!(kind, DeviceKind::File).then(|| dir.path().join("vanish.raw"));
        let server = Server::start(several(single(dir.path(), kind, path, MIB)));
        let stream = stream();
        let mut witness = server.connect("disk");
        for end in (0..=stream.len()).step_by(7) {
            let mut client = server.connect("disk");
            client.stream.write_all(&stream[..end]).unwrap();
            drop(client);
            witness.write(MIB - BLOCK, &[end as u8; BLOCK as usize]);
            assert_eq!(
                witness.read(MIB - BLOCK, BLOCK as u32),
                vec![end as u8; BLOCK as usize]
            );
        }
        drop(witness);
        until_nothing_is_held(&server);
        server.stop().expect("every disk is flushed");
    }
}

#[test]
fn an_orderly_client_has_all_its_replies_before_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(several(single(dir.path(), DeviceKind::Memory, None, MIB)));
    for _ in 0..40 {
        let mut client = server.connect("disk");
        for cookie in 0..20 {
            let read = request(Command::Read { df: false }, cookie, cookie * BLOCK, 8192);
            client.send(read, &[]);
        }
        client.stream.write_all(&encode_disconnect()).unwrap();
        for _ in 0..20 {
            assert_eq!(client.receive().result.map(|bytes| bytes.len()), Ok(8192));
        }
    }
    until_nothing_is_held(&server);
    server.stop().expect("every disk is flushed");
}

#[test]
fn a_vm_with_clients_in_all_loops_is_resized_and_removed_under_load() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [DeviceKind::Memory, DeviceKind::File] {
        let path = matches!(kind, DeviceKind::File).then(|| dir.path().join("moved.raw"));
        let server = Server::start(several(single(dir.path(), kind, path, 4 * MIB)));
        let mut clients: Vec<Client> = (0..6).map(|_| server.connect("disk")).collect();
        for client in &mut clients {
            for cookie in 0..32 {
                let read = request(Command::Read { df: false }, cookie, cookie * BLOCK, 65_536);
                client.send(read, &[]);
            }
        }
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                for client in &mut clients {
                    for _ in 0..32 {
                        let answer = client.receive();
                        assert_eq!(answer.result.map(|bytes| bytes.len()), Ok(65_536));
                    }
                }
            });
            for size in [8 * MIB, 4 * MIB] {
                let resized = wait(server.handle.resize_disk("disk", "disk", size, true));
                resized.expect("it is resized");
            }
            reads.join().expect("every read was answered");
        });
        for client in &mut clients {
            client.send(request(Command::Write, 1, 0, 4096), &[7; 1000]);
        }
        let removed = wait(server.handle.remove_vm("disk", true));
        assert_eq!(removed.map_err(|error| error.to_string()), Ok(Vec::new()));
        for client in &mut clients {
            let mut rest = Vec::new();
            // An end of file, or a reset where bytes of the write were not read.
            let _ = client.stream.read_to_end(&mut rest);
        }
        server.stop().expect("every disk is flushed");
    }
}
