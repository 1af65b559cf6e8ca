//! Long requests are not starved of payload memory by many short ones.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Server, disk, request, single, vm};
use tidegate_nbd::Command;
use tidegate_server::config::DeviceKind;

const MIB: u64 = 1 << 20;
const READ: Command = Command::Read { df: false };

#[test]
fn a_long_request_gets_memory_beside_many_short_ones() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| Some(dir.path().join(name));
    let mut config = single(dir.path(), DeviceKind::File, path("disk.raw"), MIB);
    config.devices[0].scheduling.buffer_memory = MIB;
    config.devices[0].scheduling.buffer_memory_per_vm = MIB;
    config
        .vms
        .push(vm("other", 0, vec![disk("other", path("other.raw"), MIB)]));
    let names = ["a", "b", "c", "d"];
    for name in names {
        config
            .vms
            .push(vm(name, 0, vec![disk(name, path(name), MIB)]));
    }
    let server = Server::start(config);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in names {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut client = server.connect(name);
                let ask = |cookie| request(READ, cookie, 0, 128 << 10);
                (0..8).for_each(|i| client.send(ask(i), &[]));
                while !done.load(Ordering::Relaxed) {
                    let cookie = client.receive().cookie;
                    client.send(ask(cookie), &[]);
                }
                (0..8).for_each(|_| drop(client.receive()));
            });
        }
        scope.spawn(|| {
            let mut client = server.connect("other");
            std::thread::sleep(std::time::Duration::from_millis(100));
            client
                .stream
                .set_read_timeout(Some(std::time::Duration::from_secs(10)))
                .unwrap();
            let results: Vec<_> = (0..20)
                .map_while(|_| {
                    let mut ask = || client.read(0, MIB as u32).len();
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut ask)).ok()
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            assert_eq!(results, [MIB as usize; 20]);
        });
    });
}
