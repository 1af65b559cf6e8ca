//! Isolation of request slots and payload memory: a crowd of busy or misbehaving VMs uses up what
//! the device has, and a VM with a small load is served in time all the same.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::common::{Client, Server, config, device, disk, request, vm, wait};
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_nbd::Command;
use tidegate_nbd::client::encode_request;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{Config, DeviceKind};

const MIB: u64 = 1 << 20;
const READ: Command = Command::Read { df: false };
/// Reads, and as many writes, of the VM with the small load. Without guaranteed parts each of them
/// waited 0.1 s or more for a reply to the crowd.
const READS: u64 = 400;
/// Deadline for all of [`READS`]: many times the measured time, and a fraction of the time without
/// guaranteed parts.
const PATIENCE: Duration = Duration::from_secs(25);

fn limit(total: Rate) -> Objective {
    Objective {
        limit: Limit::of_all(total),
        ..Objective::default()
    }
}

fn megabyte_per_second() -> Objective {
    limit(Rate {
        bytes_per_s: Some(1_000_000),
        ..Rate::NONE
    })
}

/// Configuration of a memory device with the default bounds, `vms` busy VMs and the VM `good`.
pub(crate) fn crowd(dir: &std::path::Path, vms: usize, objective: Objective) -> Config {
    let mut config = config(dir);
    let mut device = device("device", DeviceKind::Memory);
    device.scheduling.policy = PolicySpec::named("mclock").unwrap();
    device.scheduling.max_io = 1 << 20;
    (
        device.scheduling.max_requests,
        device.scheduling.max_pending_per_vm,
    ) = (16_384, 1024);
    (
        device.scheduling.buffer_memory,
        device.scheduling.buffer_memory_per_vm,
    ) = (256 * MIB, 64 * MIB);
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

/// Asserts that the reads and writes of VM `good`, one at a time, end within [`PATIENCE`].
pub(crate) fn is_served(server: &Server) {
    let mut good = server.connect("good");
    let began = Instant::now();
    for n in 0..READS {
        good.write(n * 4096, &[n as u8; 4096]);
        assert_eq!(good.read(n * 4096, 4096), [n as u8; 4096]);
        assert!(began.elapsed() < PATIENCE, "{n} in {:?}", began.elapsed());
    }
}

/// Sends requests without reading their replies.
pub(crate) fn fill(client: &mut Client, command: Command, count: u64, len: u32) {
    let payload = match command {
        Command::Write => vec![1; len as usize],
        _ => Vec::new(),
    };
    client.stream.set_nonblocking(true).unwrap();
    for n in 0..count {
        let offset = n * u64::from(len) % (32 * MIB);
        let mut bytes = encode_request(&request(command, n, offset, len)).to_vec();
        bytes.extend_from_slice(&payload);
        // Ends early once the daemon and the socket buffers take no more.
        if client.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    client.stream.set_nonblocking(false).unwrap();
}

/// One client of each of the first `vms` VMs of the crowd, all of which have begun to `misbehave`.
fn connect_all(server: &Server, vms: usize, misbehave: impl Fn(&mut Client)) -> Vec<Client> {
    let mut busy: Vec<_> = (0..vms)
        .map(|n| server.connect(&format!("busy{n}")))
        .collect();
    busy.iter_mut().for_each(misbehave);
    busy
}

#[test]
fn beside_reads_that_wait_for_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 5, megabyte_per_second()));
    let _busy = connect_all(&server, 5, |client| fill(client, READ, 64, 1 << 20));
    is_served(&server);
}

#[test]
fn beside_writes_that_wait_for_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 5, megabyte_per_second()));
    let _busy = connect_all(&server, 5, |client| {
        fill(client, Command::Write, 64, 1 << 20);
    });
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
    let _busy = connect_all(&server, 20, |client| fill(client, READ, 1024, 4096));
    is_served(&server);
}

#[test]
fn beside_clients_that_take_no_replies() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(crowd(dir.path(), 8, Objective::default()));
    let _busy = connect_all(&server, 8, |client| fill(client, READ, 64, 1 << 20));
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
    // A write whose payload did not arrive completely has changed nothing.
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
    // Clients come in groups of 100; each read and write is 20 times as large as its VM's part.
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

/// Connects to `busy0` and stops in the middle of a write of `len` bytes.
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
    // Another VM waits for memory meanwhile, longer than a borrower would be tolerated.
    let mut other = server.connect("busy1");
    fill(&mut other, READ, 256, 1 << 20);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        is_served(&server);
    }
    goes_on(stopped, 1 << 20);
}

/// Runs for ten minutes, under `make test-long` only.
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
    // The VM's part is smaller than the largest request, so that the write is held in the reserve.
    config.devices[0].scheduling.buffer_memory = 64 * MIB;
    let server = Server::start(config);
    let mut slow = stop_in_a_write(&server, 32 << 20);
    // While no other VM waits for the reserve, the connection stays open.
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
    config.devices[0].scheduling.max_pending_per_vm = 1;
    let server = Server::start(config);
    let mut client = server.connect("busy0");
    // The limit is 2 requests a second: the first starts at once, the second after 0.5 s, and the
    // third gets no slot until then.
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
    // Waits of the second and third request are 0.5 s and 1 s. The fourth arrived while the client
    // was stalled, and was read only when the third had got its slot; its time is that of the
    // client.
    let waited = Duration::from_millis(1500) + fourth;
    assert!(
        counted + Duration::from_millis(250) >= waited,
        "{counted:?} of {waited:?}"
    );
}
