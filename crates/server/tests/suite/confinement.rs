//! Threads that work on what guests and clients send are confined, and none of their calls is
//! refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tidegate_server::config::{Config, DeviceKind, ListenAddress, ListenConfig};

use crate::common::control::{ControlApi, http};
use crate::common::vhost_guest::{ALL, Guest, OUT, listen};
use crate::common::{Client, Server, single};
use crate::tls::{Authority, TlsClient, tls};

const PATIENCE: Duration = Duration::from_secs(30);

/// Configuration of a disk in a file, offered by vhost-user, and over TLS by NBD.
fn offered_in_all_ways(dir: &std::path::Path, authority: &Authority) -> Config {
    let path = dir.join("disk.raw");
    let mut config = single(dir, DeviceKind::File, Some(path), 1 << 20);
    config.listeners.push(ListenConfig {
        address: ListenAddress::Tcp(([127, 0, 0, 1], 0).into()),
        tls: Some(tls(dir, authority)),
        ..config.listeners[0].clone()
    });
    listen(&mut config, dir);
    config
}

/// Returns the modes of seccomp of this process's threads, by their names: 2 is a filter.
fn modes() -> BTreeMap<String, Vec<String>> {
    let mut modes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").expect("it is mounted") {
        let read = |name| fs::read_to_string(task.as_ref().expect("a task").path().join(name));
        // A thread may end meanwhile.
        let (Ok(name), Ok(status)) = (read("comm"), read("status")) else {
            continue;
        };
        let mut lines = status.lines();
        let mode = lines.find_map(|line| line.strip_prefix("Seccomp:"));
        let mode = mode.expect("the kernel has seccomp").trim().to_owned();
        modes.entry(name.trim().to_owned()).or_default().push(mode);
    }
    modes
}

#[test]
fn threads_that_work_on_what_clients_send_are_confined() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let config = offered_in_all_ways(dir.path(), &authority);
    let server = Server::start(config.clone());
    let api = ControlApi::start(config, &server);
    let mut guest = Guest::start_recorded(&dir.path().join("disk.vhost"), ALL, 1);
    guest.submit(0, OUT, 0, &[7; 512]);
    guest.kick(0, 1);
    assert_eq!(guest.answers(0).len(), 1);
    let bridge = TlsClient::new(&authority, None).connect(&server.addresses[1]);
    let mut client = Client::on(bridge.expect("TLS").greet(), "disk", true);
    assert_eq!(client.read(0, 512), [7; 512]);

    let kinds = ["loop device", "tls", "tls handshake", "vhost-user"];
    let begun = Instant::now();
    loop {
        let modes = modes();
        let confined = |name: &&str| {
            let of_kind = modes.get(*name).expect("there are threads of the kind");
            of_kind.iter().all(|mode| mode == "2")
        };
        if kinds.iter().all(confined) {
            break;
        }
        // Threads of other tests may have just begun.
        assert!(begun.elapsed() < PATIENCE, "{modes:?}");
        std::thread::yield_now();
    }
    // What they do needs none of the calls that are refused.
    let socket = UnixStream::connect(&api.names[0]).expect("it listens");
    let metrics = http(socket, "GET", "/metrics", "", "").expect("an answer");
    let none = "tidegate_sandbox_violations_total 0.0";
    assert!(metrics.contains(none), "{metrics}");
    drop((guest, client, api));
    server.stop().unwrap();
}
