//! Clients over TLS whose daemon is taken over: what was received is answered before the connection
//! is closed, and they connect again.

use std::path::Path;
use std::time::Instant;

use tidegate_core::objective::{Limit, Rate};
use tidegate_nbd::Command;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{Config, DeviceKind, TlsConfig};

use super::authority::Authority;
use super::bridge::{PATIENCE, TlsClient};
use super::{tls, with_tls};
use crate::common::process::{Process, served_directory, wait_for_end_of_test};
use crate::common::{Client, Server, request, wait};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Writes in flight, which the limit has wait for longer than a daemon takes to start.
const WRITES: u64 = 60;
const WRITES_PER_S: u64 = 20;

/// Configuration of a disk in a file, whose VM has a limit.
fn limited(dir: &Path, tls: TlsConfig) -> Config {
    let mut config = with_tls(dir, 4 * MIB, tls);
    config.devices[0].kind = DeviceKind::File;
    config.devices[0].scheduling.policy = PolicySpec::named("limit").expect("registered");
    config.vms[0].disks[0].path = Some(dir.join("disk.raw"));
    config.vms[0].objective.limit = Limit::of_all(Rate::iops(WRITES_PER_S));
    config
}

/// Body of the process of the new daemon.
fn take_over(dir: &Path) {
    let tls = TlsConfig {
        certificate: dir.join("server.pem"),
        private_key: dir.join("server.key"),
        client_ca: None,
        client_crl: None,
        plain_exports: Vec::new(),
        clients: Vec::new(),
        place: None,
    };
    let taken = Server::start_taking_over(limited(dir, tls), &dir.join("takeover.sock"));
    let server = taken.unwrap_or_else(|error| panic!("{error}"));
    wait_for_end_of_test();
    server.stop().unwrap();
}

#[test]
fn requests_in_flight_are_answered_before_the_connection_is_closed_for_the_next_daemon() {
    const NAME: &str = "tls::takeover::requests_in_flight_are_answered_before_the_connection_is_\
                        closed_for_the_next_daemon";
    if let Some(dir) = served_directory() {
        return take_over(&dir);
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let authority = Authority::new("ca");
    let config = limited(dir.path(), tls(dir.path(), &authority));
    let server = Server::start_offering(config, &dir.path().join("takeover.sock"));
    let (address, tls) = (
        server.addresses[1].clone(),
        TlsClient::new(&authority, None),
    );
    let connect = || Client::on(tls.connect(&address).expect("TLS").greet(), "disk", true);
    let mut client = connect();
    for cookie in 0..WRITES {
        // Apart, so that none is merged with another.
        let write = request(Command::Write, cookie, 2 * cookie * BLOCK, BLOCK as u32);
        client.send(write, &[cookie as u8 + 1; BLOCK as usize]);
    }
    let until = Instant::now() + PATIENCE;
    let received = || {
        let vm = wait(server.handle.vm_snapshot("disk")).unwrap();
        u64::from(vm.pending) + u64::from(vm.in_flight) + vm.stats.latency.count()
    };
    while received() < WRITES {
        assert!(Instant::now() < until, "{} were received", received());
    }
    let _next = Process::start(NAME, dir.path());
    let mut answered = Vec::new();
    while let Some(answer) = client.receive_if_any() {
        answer.result.expect("the write succeeds");
        answered.push(answer.cookie);
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..WRITES).collect::<Vec<_>>());
    server.wait().unwrap();

    let mut client = connect();
    for cookie in 0..WRITES {
        let found = client.read(2 * cookie * BLOCK, BLOCK as u32);
        assert_eq!(found, [cookie as u8 + 1; BLOCK as usize]);
    }
    client.disconnect();
}
