//! Data integrity: reads return what was written, on every backing, at several queue depths and
//! numbers of clients.

use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, device, disk, request, single, vm};
use tidegate_core::queue_depth::DepthTuning;
use tidegate_nbd::Command;
use tidegate_server::config::{Config, DeviceKind};

const MIB: u64 = 1 << 20;

/// Runs several clients, each on its part of the disk and at its own queue depth.
fn clients_verify(server: &Server, export: &str, size: u64, block: u64, requests: usize) {
    let parts = [(1, 0), (4, 1), (32, 2), (100, 3)];
    std::thread::scope(|scope| {
        for (depth, part) in parts {
            scope.spawn(move || {
                let mut client = Client::connect(&server.socket, export, part % 2 == 0);
                let plan = Plan {
                    seed: 7 + part,
                    start: part * size / 4,
                    size: size / 4,
                    block,
                    blocks_max: (64 << 10) / block,
                    depth,
                    requests,
                };
                run(&mut client, &plan);
                client.disconnect();
            });
        }
    });
}

/// Creates a temporary directory on a file system that is not in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn memory_keeps_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 4 * MIB));
    clients_verify(&server, "disk", 4 * MIB, 1, 1500);
    server.stop().unwrap();
}

#[test]
fn a_file_keeps_bytes_that_are_whole_blocks() {
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let mut config = single(dir.path(), DeviceKind::File, Some(path), 8 * MIB);
    config.vms[0].disks[0].block_size = 4096;
    let server = Server::start(config);
    clients_verify(&server, "disk", 8 * MIB, 4096, 600);
    server.stop().unwrap();
}

#[test]
fn a_file_keeps_bytes_that_are_parts_of_blocks() {
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), 2 * MIB));
    for block in [1, 512] {
        clients_verify(&server, "disk", 2 * MIB, block, 500);
    }
    server.stop().unwrap();
}

#[test]
fn clients_that_share_blocks_do_not_undo_each_other() {
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), MIB));
    // Sixteen clients on sixteenths of the same few blocks.
    std::thread::scope(|scope| {
        for part in 0..16u64 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect("disk");
                for round in 0..40u8 {
                    for block in 0..4u64 {
                        let at = block * 4096 + part * 256;
                        client.write(at, &[round ^ part as u8; 256]);
                        assert_eq!(client.read(at, 256), [round ^ part as u8; 256]);
                    }
                }
            });
        }
    });
    server.stop().unwrap();
}

/// Clients that did not negotiate block sizes write to strips of their own within shared blocks.
#[test]
fn clients_that_never_asked_for_block_sizes_share_blocks() {
    const STRIP: u64 = 100;
    const CLIENTS: u64 = 8;
    const SIZE: u64 = 64 << 10;
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let mut config = single(dir.path(), DeviceKind::File, Some(path), SIZE);
    config.vms[0].disks[0].block_size = 4096;
    let server = Server::start(config);
    let strips = |part| (0..SIZE / (STRIP * CLIENTS)).map(move |n| (n * CLIENTS + part) * STRIP);
    std::thread::scope(|scope| {
        for part in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::connect_untold(&server.socket, "disk");
                for round in 0..4u8 {
                    // All strips of a round are in flight at a time.
                    for at in strips(part) {
                        let data = [round << 4 | part as u8; STRIP as usize];
                        let write = request(Command::Write, at, at, STRIP as u32);
                        let fua = (at / STRIP).is_multiple_of(7);
                        client.send(tidegate_nbd::Request { fua, ..write }, &data);
                    }
                    strips(part).for_each(|_| _ = client.receive().result.expect("written"));
                }
            });
        }
    });
    let mut client = Client::connect_untold(&server.socket, "disk");
    for part in 0..CLIENTS {
        for at in strips(part) {
            let expected = [3 << 4 | part as u8; STRIP as usize];
            assert_eq!(client.read(at, STRIP as u32), expected, "at {at}");
        }
    }
    server.stop().unwrap();
}

/// Writes of a part of a block do not undo a concurrent write, zeroing or trim of the whole block.
#[test]
fn writes_of_parts_of_blocks_undo_nothing_that_is_done_to_the_whole() {
    const BLOCK: usize = 64 << 10;
    const STRIP: std::ops::Range<usize> = 5000..5100;
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let server = Server::start(single(
        dir.path(),
        DeviceKind::File,
        Some(path),
        BLOCK as u64,
    ));
    let mut whole = server.connect("disk");
    let mut part = Client::connect_untold(&server.socket, "disk");
    let zero = Command::WriteZeroes {
        no_hole: true,
        fast_zero: false,
    };
    for round in 0..300u32 {
        let of_whole = (round % 200) as u8 + 1;
        let of_part = [0xff; STRIP.end - STRIP.start];
        let written = vec![of_whole; BLOCK];
        let (command, payload, expected) = match round % 3 {
            0 => (zero, &[][..], 0),
            _ => (Command::Write, &written[..], of_whole),
        };
        let of_strip = request(Command::Write, 2, STRIP.start as u64, of_part.len() as u32);
        // Both orders of arrival are tested.
        if round % 2 == 0 {
            part.send(of_strip, &of_part);
        }
        whole.send(request(command, 1, 0, BLOCK as u32), payload);
        if round % 2 == 1 {
            part.send(of_strip, &of_part);
        }
        part.receive().result.expect("written");
        whole.receive().result.expect("written");
        let now = whole.read(0, BLOCK as u32);
        for (at, &byte) in now.iter().enumerate() {
            let may_be_the_parts = STRIP.contains(&at) && byte == 0xff;
            assert!(
                byte == expected || may_be_the_parts,
                "round {round}, byte {at}: {byte}"
            );
        }
    }
    server.stop().unwrap();
}

#[test]
fn a_file_in_memory_keeps_bytes() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        return eprintln!("skipped: there is no /dev/shm");
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("disk.raw");
    let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), 4 * MIB));
    clients_verify(&server, "disk", 4 * MIB, 1, 1500);
    server.stop().unwrap();
}

/// The loop looks for completions before it sleeps.
#[test]
fn a_device_tuned_for_latency_keeps_bytes() {
    for place in [
        on_disk(),
        tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| on_disk()),
    ] {
        let path = place.path().join("disk.raw");
        let mut config = single(place.path(), DeviceKind::File, Some(path), 4 * MIB);
        config.devices[0].scheduling.tuning = DepthTuning::Latency;
        let server = Server::start(config);
        clients_verify(&server, "disk", 4 * MIB, 1, 1500);
        server.stop().unwrap();
    }
}

#[test]
fn an_emulated_disk_keeps_bytes() {
    emulated_keeps_bytes(tidegate_device::catalogue::load("hdd-7200-1tb").unwrap());
}

/// Later commands postpone the completion of earlier ones, so that the loop's timer sometimes
/// expires too early and has to be set again.
#[test]
fn an_emulated_disk_whose_commands_share_its_interface_keeps_bytes() {
    let sharing = "interface_sharing = \"interleaved\"\n[ssd.write_buffer]";
    let text = include_str!("../../../../devices/ssd-sata-300gb.toml");
    let text = text.replace("[ssd.write_buffer]", sharing);
    let model = tidegate_device::catalogue::parse(&text, "interleaved").unwrap();
    emulated_keeps_bytes(model);
}

fn emulated_keeps_bytes(model: tidegate_device::catalogue::Entry) {
    let dir = on_disk();
    let kind = DeviceKind::Emulated {
        model: Box::new(model),
    };
    let mut config = single(dir.path(), kind, None, MIB);
    let path = dir.path().join("other.raw");
    config
        .vms
        .push(vm("file", 0, vec![disk("file", Some(path), MIB)]));
    let server = Server::start(config);
    clients_verify(&server, "disk", MIB, 512, 12);
    clients_verify(&server, "file", MIB, 1, 12);
    server.stop().unwrap();
}

#[test]
fn little_memory_delays_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut config: Config = single(dir.path(), DeviceKind::Memory, None, 4 * MIB);
    config.devices[0].scheduling.buffer_memory = 128 << 10;
    config.devices[0].scheduling.buffer_memory_per_vm = 96 << 10;
    config.devices[0].scheduling.max_pending_per_vm = 3;
    config.devices[0].scheduling.max_requests = 4;
    let server = Server::start(config);
    clients_verify(&server, "disk", 4 * MIB, 1, 300);
    server.stop().unwrap();
}

#[test]
fn the_longest_requests_pass() {
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), 64 * MIB));
    let mut client = server.connect("disk");
    let data: Vec<u8> = (0..32 * MIB as u32).map(|i| (i / 7) as u8).collect();
    client.write(MIB + 1, &data);
    assert!(client.read(MIB + 1, 32 << 20) == data);
    // Longer than the maximum: refused, and the connection stays open.
    let long = client.ask(Command::Read { df: false }, 0, (32 << 20) + 1, &[]);
    assert!(long.result.is_err());
    assert_eq!(client.read(0, 1), [0]);
}

#[test]
fn bytes_survive_a_restart() {
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let config = || single(dir.path(), DeviceKind::File, Some(path.clone()), MIB);
    let server = Server::start(config());
    let mut client = server.connect("disk");
    client.write(4000, b"across two blocks, unaligned");
    drop(client);
    server.stop().unwrap();
    let server = Server::start(config());
    assert_eq!(
        server.connect("disk").read(4000, 28),
        b"across two blocks, unaligned"
    );
}

#[test]
fn block_status_finds_holes_and_data() {
    let dir = on_disk();
    let path = dir.path().join("disk.raw");
    let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), 4 * MIB));
    let mut client = server.connect("disk");
    client.write(MIB, &vec![1; MIB as usize]);
    client.flush().unwrap();
    let answer = client.ask(Command::BlockStatus { one: false }, 0, 4 << 20, &[]);
    let total: u64 = answer.extents.iter().map(|e| u64::from(e.len)).sum();
    assert_eq!(total, 4 * MIB);
    let mut at = 0;
    for extent in &answer.extents {
        let end = at + u64::from(extent.len);
        assert!(
            !extent.hole || end <= MIB || at >= 2 * MIB,
            "data called a hole: {answer:?}"
        );
        at = end;
    }
    let one = client.ask(Command::BlockStatus { one: true }, 5000, 100, &[]);
    assert_eq!(one.extents.len(), 1);
    client.disconnect();
}

#[test]
fn disks_of_several_devices_and_vms_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, MIB);
    config.devices.push(device("second", DeviceKind::Memory));
    config.vms[0].disks.push(disk("disk-b", None, MIB));
    config
        .vms
        .push(vm("other", 1, vec![disk("other", None, MIB)]));
    let server = Server::start(config);
    for (i, export) in ["disk", "disk-b", "other"].iter().enumerate() {
        server
            .connect(export)
            .write(0, &vec![i as u8 + 1; MIB as usize]);
    }
    for (i, export) in ["disk", "disk-b", "other"].iter().enumerate() {
        assert!(
            server
                .connect(export)
                .read(0, 1 << 20)
                .iter()
                .all(|b| *b == i as u8 + 1)
        );
    }
}
