//! Long requests are not starved of payload memory by many short ones.
//!
//! Four clients with 8 requests of 128 KiB each ask for 4 MiB at a time of the 1 MiB that there is,
//! and a request of the fifth client needs all of it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Server, disk, request, single, vm};
use tidegate_nbd::Command;
use tidegate_server::config::DeviceKind;

const MIB: u64 = 1 << 20;
/// Outstanding requests of each client with short requests.
const SHORT_REQUESTS: u64 = 8;
/// Long requests, one at a time.
const LONG_REQUESTS: usize = 20;
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
        .push(vm("long", 0, vec![disk("long", path("long.raw"), MIB)]));
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
                (0..SHORT_REQUESTS).for_each(|i| client.send(ask(i), &[]));
                while !done.load(Ordering::Relaxed) {
                    let cookie = client.receive().cookie;
                    client.send(ask(cookie), &[]);
                }
                (0..SHORT_REQUESTS).for_each(|_| drop(client.receive()));
            });
        }
        scope.spawn(|| {
            let mut client = server.connect("long");
            // Lets the short requests fill the memory first.
            std::thread::sleep(std::time::Duration::from_millis(100));
            client
                .stream
                // A request that starves fails the test instead of hanging it.
                .set_read_timeout(Some(std::time::Duration::from_secs(10)))
                .unwrap();
            let results: Vec<_> = (0..LONG_REQUESTS)
                .map_while(|_| {
                    // A read that times out panics; `done` must still be set, or the other threads
                    // never end.
                    let mut ask = || client.read(0, MIB as u32).len();
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut ask)).ok()
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            assert_eq!(results, [MIB as usize; LONG_REQUESTS]);
        });
    });
}
