//! VMs that misbehave, or are only busy, take no slot and no memory from others: a crowd that uses up
//! what there is, and a VM beside it that asks for little.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::{Client, Server, config, device, disk, request, vm, wait};
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_core::policy::PolicySpec;
use tidegate_nbd::Command;
use tidegate_nbd::client::encode_request;
use tidegate_server::config::{Config, DeviceKind};

const MIB: u64 = 1 << 20;
const READ: Command = Command::Read { df: false };
/// Reads of the VM that asks for little. Each of them waited for a reply to the crowd once, for a tenth
/// of a second and more.
const READS: u64 = 400;
/// Far more than it takes, and far less than it took.
const PATIENCE: Duration = Duration::from_secs(25);

fn limit(total: Rate) -> Objective {
    Objective {
        limit: Limit {
            total,
            ..Limit::NONE
        },
        ..Objective::default()
    }
}

fn megabyte_per_second() -> Objective {
    limit(Rate {
        bytes_per_s: Some(1_000_000),
        ..Rate::NONE
    })
}

/// A device of the daemon's defaults, in memory, with a crowd and `good`.
fn crowd(dir: &std::path::Path, vms: usize, objective: Objective) -> Config {
    let mut config = config(dir);
    let mut device = device("device", DeviceKind::Memory);
    device.policy = PolicySpec::named("mclock").unwrap();
    device.max_io = 1 << 20;
    (device.max_requests, device.max_pending_per_vm) = (16_384, 1024);
    (device.buffer_memory, device.buffer_memory_per_vm) = (256 * MIB, 64 * MIB);
    config.devices.push(device);
    for n in 0..vms {
        let name = format!("busy{n}");
        let mut busy = vm(&name, 0, vec![disk(&name, None, 64 * MIB)]);
        busy.objective = objective;
        config.vms.push(busy);
    }
    config
        .vms
        .push(vm("good", 0, vec![disk("good", None, 64 * MIB)]));
    config
}

/// The good VM's reads and writes, one after the other, are answered in time.
fn is_served(server: &Server) {
    let mut good = server.connect("good");
    let began = Instant::now();
    for n in 0..READS {
        good.write(n * 4096, &[n as u8; 4096]);
        assert_eq!(good.read(n * 4096, 4096), [n as u8; 4096]);
        assert!(began.elapsed() < PATIENCE, "{n} in {:?}", began.elapsed());
    }
}

/// Sends requests that nobody waits for.
fn fill(client: &mut Client, command: Command, count: u64, len: u32) {
    let payload = match command {
        Command::Write => vec![1; len as usize],
        _ => Vec::new(),
    };
    client.stream.set_nonblocking(true).unwrap();
    for n in 0..count {
        let offset = n * u64::from(len) % (32 * MIB);
        let mut bytes = encode_request(&request(command, n, offset, len)).to_vec();
        bytes.extend_from_slice(&payload);
        // As far as the daemon and the socket take it.
        if client.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    client.stream.set_nonblocking(false).unwrap();
}

#[test]
fn beside_reads_that_wait_for_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 5, megabyte_per_second()));
    let mut busy: Vec<_> = (0..5)
        .map(|n| server.connect(&format!("busy{n}")))
        .collect();
    for client in &mut busy {
        fill(client, READ, 64, 1 << 20);
    }
    is_served(&server);
}

#[test]
fn beside_writes_that_wait_for_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 5, megabyte_per_second()));
    let mut busy: Vec<_> = (0..5)
        .map(|n| server.connect(&format!("busy{n}")))
        .collect();
    for client in &mut busy {
        fill(client, Command::Write, 64, 1 << 20);
    }
    is_served(&server);
}

#[test]
fn beside_more_requests_than_there_are_slots() {
    let dir = tempfile::tempdir().unwrap();
    let ten = limit(Rate {
        ops: Some(OpsRate {
            per_s: 10,
            norm: None,
        }),
        ..Rate::NONE
    });
    let server = Server::start(crowd(dir.path(), 20, ten));
    let mut busy: Vec<_> = (0..20)
        .map(|n| server.connect(&format!("busy{n}")))
        .collect();
    for client in &mut busy {
        fill(client, READ, 1024, 4096);
    }
    is_served(&server);
}

#[test]
fn beside_clients_that_take_no_replies() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 8, Objective::default()));
    let mut busy: Vec<_> = (0..8)
        .map(|n| server.connect(&format!("busy{n}")))
        .collect();
    for client in &mut busy {
        fill(client, READ, 64, 1 << 20);
    }
    is_served(&server);
}

#[test]
fn beside_writes_that_never_come_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 4, Objective::default()));
    let mut busy: Vec<_> = (0..8)
        .map(|n| server.connect(&format!("busy{}", n / 2)))
        .collect();
    for client in &mut busy {
        client.send(request(Command::Write, 1, 0, 32 << 20), &[9]);
    }
    is_served(&server);
    drop(busy);
    // What never came whole has changed nothing.
    let mut client = server.connect("busy0");
    assert_eq!(client.read(0, 4096), [0; 4096]);
}

#[test]
fn beside_64_vms_of_each_kind() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = crowd(dir.path(), 256, Objective::default());
    for (n, vm) in config.vms.iter_mut().take(256).enumerate() {
        if n % 4 < 2 {
            vm.objective = megabyte_per_second();
        }
    }
    let server = Server::start(config);
    let mut busy: Vec<_> = (0..256)
        .map(|n| server.connect(&format!("busy{n}")))
        .collect();
    for (n, client) in busy.iter_mut().enumerate() {
        match n % 4 {
            0 => fill(client, READ, 64, 1 << 20),
            1 => fill(client, Command::Write, 64, 64 << 10),
            2 => fill(client, READ, 64, 256 << 10),
            _ => client.send(request(Command::Write, 1, 0, 8 << 20), &[9]),
        }
    }
    is_served(&server);
}

#[test]
fn a_thousand_vms_whose_parts_are_smaller_than_their_requests() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = crowd(dir.path(), 1000, Objective::default());
    for vm in &mut config.vms {
        vm.disks[0].size = Some(MIB);
    }
    let server = Server::start(config);
    // A hundred at a time: each write and each read is twenty times as long as a VM's part.
    for first in (0..1000).step_by(100) {
        let mut clients: Vec<_> = (first..first + 100)
            .map(|n| server.connect(&format!("busy{n}")))
            .collect();
        std::thread::scope(|scope| {
            for (n, client) in clients.iter_mut().enumerate() {
                scope.spawn(move || {
                    let data = vec![n as u8; 1 << 20];
                    client.write(0, &data);
                    assert!(client.read(0, 1 << 20) == data, "client {n}");
                });
            }
        });
    }
}

/// A client of `busy0` that stops in the middle of a write of `len` bytes.
fn stop_in_a_write(server: &Server, len: u32) -> Client {
    let mut client = server.connect("busy0");
    client.send(request(Command::Write, 7, 0, len), &vec![5; 1000]);
    client
}

fn goes_on(mut client: Client, len: u32) {
    client
        .stream
        .write_all(&vec![5; len as usize - 1000])
        .unwrap();
    assert_eq!(client.receive().result, Ok(vec![]));
}

#[test]
fn a_client_within_its_part_is_not_cut_off_for_being_slow() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 2, Objective::default()));
    let stopped = stop_in_a_write(&server, 1 << 20);
    // Others wait for memory meanwhile, for longer than one beyond its part would be borne.
    let mut other = server.connect("busy1");
    fill(&mut other, READ, 256, 1 << 20);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        is_served(&server);
    }
    goes_on(stopped, 1 << 20);
}

/// Takes ten minutes: `make test-long`.
#[test]
#[ignore = "takes ten minutes"]
fn a_client_that_is_stopped_for_ten_minutes_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 2, Objective::default()));
    let stopped = stop_in_a_write(&server, 1 << 20);
    let mut reader = server.connect("busy1");
    fill(&mut reader, READ, 16, 1 << 20);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(601) {
        is_served(&server);
        std::thread::sleep(Duration::from_secs(1));
    }
    goes_on(stopped, 1 << 20);
    for _ in 0..16 {
        assert_eq!(reader.receive().result.map(|data| data.len()), Ok(1 << 20));
    }
}

#[test]
fn beyond_its_part_a_slow_client_is_closed_once_another_vm_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = crowd(dir.path(), 2, Objective::default());
    // Parts are smaller than the largest request, which so is held in the one reserve.
    config.devices[0].buffer_memory = 64 * MIB;
    let server = Server::start(config);
    let mut slow = stop_in_a_write(&server, 32 << 20);
    // Nobody else wants it: it stays.
    is_served(&server);
    slow.stream.write_all(&[5; 1000]).unwrap();
    let mut other = server.connect("busy1");
    other.write(0, &vec![3; 32 << 20]);
    assert!(slow.is_cut_off());
    let mut again = server.connect("busy0");
    assert_eq!(again.read(0, 4096), [0; 4096], "it never came whole");
}

#[test]
fn bytes_that_come_while_nothing_is_received_have_waited() {
    let dir = tempfile::tempdir().unwrap();
    let two = limit(Rate {
        ops: Some(OpsRate {
            per_s: 2,
            norm: None,
        }),
        ..Rate::NONE
    });
    let mut config = crowd(dir.path(), 1, two);
    config.devices[0].max_pending_per_vm = 1;
    let server = Server::start(config);
    let mut client = server.connect("busy0");
    // One goes at once, one after half a second; the third has no slot until then.
    for n in 0..3 {
        client.send(request(READ, n, 0, 4096), &[]);
    }
    let stalled = || {
        let now = wait(server.handle.snapshot(0)).expect("it answers");
        now.vms[0].stalled == 1
    };
    while !stalled() {
        std::thread::yield_now();
    }
    let sent = Instant::now();
    client.send(request(READ, 3, 0, 4096), &[]);
    for _ in 0..4 {
        assert!(client.receive().result.is_ok());
    }
    let fourth = sent.elapsed();
    let now = wait(server.handle.snapshot(0)).expect("it answers");
    let counted = Duration::from_nanos(now.vms[0].stats.latency.sum().0);
    // Half a second, a second, and what the client saw of the fourth, which was read only when the third
    // was taken, half a second after it had come.
    let waited = Duration::from_millis(1500) + fourth;
    assert!(
        counted + Duration::from_millis(250) >= waited,
        "{counted:?} of {waited:?}"
    );
}
