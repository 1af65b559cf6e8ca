//! An idle client holds no buffers.

use std::time::{Duration, Instant};

use crate::common::{Server, disk, single, vm};
use tidegate_server::config::DeviceKind;

#[test]
fn idle_clients_keep_no_payload_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    config.devices[0].scheduling.buffer_memory = 128 << 10;
    config.devices[0].scheduling.buffer_memory_per_vm = 128 << 10;
    config
        .vms
        .push(vm("other", 0, vec![disk("other", None, 1 << 20)]));
    let server = Server::start(config);
    let mut idle: Vec<_> = (0..4).map(|_| server.connect("disk")).collect();
    for client in &mut idle {
        client.read(0, 32 << 10);
    }
    // The clients have all their replies, so no request is in flight.
    let mut busy = server.connect("other");
    busy.stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(busy.read(0, 64 << 10).len(), 64 << 10);
}

#[test]
fn an_idle_client_does_not_delay_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 1 << 20));
    let mut client = server.connect("disk");
    client.read(0, 4096);
    let begun = Instant::now();
    server.stop().unwrap();
    eprintln!("stopped after {:?}", begun.elapsed());
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    drop(client);
}

#[test]
#[ignore = "takes more than a minute"]
fn an_idle_client_stays() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 1 << 20));
    let mut client = server.connect("disk");
    client.read(0, 4096);
    std::thread::sleep(Duration::from_secs(64));
    assert_eq!(client.read(0, 4096).len(), 4096);
}
