//! Clients that disconnect, violate the protocol, stop midway or never read do not harm others.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, disk, request, single, vm, wait};
use tidegate_core::profile::{Curve, Profile};
use tidegate_nbd::Command;
use tidegate_nbd::client::encode_request;
use tidegate_server::config::{Config, DeviceKind};

const MIB: u64 = 1 << 20;

fn two_vms(dir: &std::path::Path) -> Config {
    let mut config = single(dir, DeviceKind::File, Some(dir.join("disk.raw")), 4 * MIB);
    config.vms.push(vm(
        "victim",
        0,
        vec![disk("victim", Some(dir.join("victim.raw")), 4 * MIB)],
    ));
    config
}

const READ: Command = Command::Read { df: false };

/// Repeats `harm` while another VM's client verifies its data.
fn while_another_verifies(harm: impl Fn(&Server, u64) + Sync) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(two_vms(dir.path()));
    std::thread::scope(|scope| {
        let server = &server;
        let verifier = scope.spawn(move || {
            let mut client = server.connect("victim");
            let plan = Plan {
                seed: 3,
                start: 0,
                size: 4 * MIB,
                block: 1,
                blocks_max: 32 << 10,
                depth: 16,
                requests: 1500,
            };
            run(&mut client, &plan);
        });
        let mut round = 0;
        while round < 10 || (!verifier.is_finished() && round < 200) {
            harm(server, round);
            round += 1;
        }
        verifier.join().unwrap();
    });
    // All request slots and buffers of the clients are released.
    server.connect("disk").read(0, 4096);
    server.stop().unwrap();
}

#[test]
fn clients_killed_in_mid_flight() {
    while_another_verifies(|server, round| {
        let mut client = server.connect("disk");
        for i in 0..32u64 {
            let at = i * 65_536;
            if (i + round).is_multiple_of(2) {
                client.send(request(READ, i, at, 65_536), &[]);
            } else {
                client.send(request(Command::Write, i, at, 10_000), &[7; 10_000]);
            }
        }
    });
}

#[test]
fn clients_that_stop_half_way() {
    while_another_verifies(|server, round| {
        let mut client = server.connect("disk");
        let mut bytes = encode_request(&request(Command::Write, 1, 0, 100_000)).to_vec();
        bytes.resize(bytes.len() + 60_000, 1);
        let n = [1, 27, 28, 29, 5000, bytes.len()][round as usize % 6];
        client.stream.write_all(&bytes[..n]).unwrap();
    });
}

#[test]
fn clients_that_talk_nonsense_are_cut_off() {
    while_another_verifies(|server, round| {
        let mut client = server.connect("disk");
        client.stream.write_all(&[round as u8 | 1; 200]).unwrap();
        assert!(client.is_cut_off());
        // A client that sends garbage before it chooses an export.
        let mut raw = UnixStream::connect(&server.socket).unwrap();
        let _ = raw.write_all(&[0xff; 4096]);
    });
}

#[test]
fn clients_that_never_read() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(two_vms(dir.path()));
    let mut silent: Vec<Client> = (0..4).map(|_| server.connect("disk")).collect();
    for client in &mut silent {
        // Sends until the server stops reading, which is long before the end.
        client.stream.set_nonblocking(true).unwrap();
        for i in 0..2000u64 {
            let head = encode_request(&request(READ, i, 0, 1 << 20));
            if client.stream.write_all(&head).is_err() {
                break;
            }
        }
    }
    let mut client = server.connect("victim");
    let plan = Plan {
        seed: 9,
        start: 0,
        size: 4 * MIB,
        block: 512,
        blocks_max: 64,
        depth: 8,
        requests: 500,
    };
    run(&mut client, &plan);
    drop(silent);
    server.stop().unwrap();
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    let config = || single(dir.path(), DeviceKind::File, Some(path.clone()), MIB);
    let server = Server::start(config());
    let error = Server::try_start(config())
        .err()
        .expect("the disk is locked")
        .to_string();
    assert!(
        error.contains("VM \"disk\"") && error.contains("in use"),
        "{error}"
    );
    let mut other = config();
    other.vms[0].disks[0].path = Some(dir.path().join("other.raw"));
    let error = Server::try_start(other)
        .err()
        .expect("the socket is taken")
        .to_string();
    assert!(error.contains("another process listens"), "{error}");
    server.connect("disk").write(0, b"still here");
    let socket = server.socket.clone();
    server.stop().unwrap();
    assert!(!socket.exists(), "the socket is removed");
    // A stale socket file does not prevent binding.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let server = Server::start(config());
    assert_eq!(server.connect("disk").read(0, 10), b"still here");
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let config = single(
        dir.path(),
        DeviceKind::File,
        Some(dir.path().join("d")),
        MIB,
    );
    let server = Server::start(config);
    let mut client = server.connect("disk");
    for i in 0..50 {
        client.send(request(Command::Write, i, i * 512, 512), &[i as u8; 512]);
    }
    client.send(request(READ, 99, 0, 512), &[]);
    // The reply to this request shows that the server has taken all of them.
    while client.receive().cookie != 99 {}
    server.stop().unwrap();
    assert!(client.is_cut_off());
}

#[test]
fn the_listener_shows_only_its_exports() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, MIB);
    config
        .vms
        .push(vm("hidden", 0, vec![disk("hidden", None, 2 * MIB)]));
    config.listeners[0].exports = vec!["disk".into()];
    let server = Server::start(config);
    assert_eq!(
        server.connect("").negotiated.size,
        MIB,
        "the first one is the default"
    );
    let socket = server.socket.clone();
    let opened = std::panic::catch_unwind(|| drop(Client::connect(&socket, "hidden", true)));
    let why = opened.expect_err("it is not this listener's");
    let why = why.downcast_ref::<String>().expect("a message");
    assert!(why.contains("Refused"), "{why}");
    // Not because nobody is served any more.
    server.connect("disk").disconnect();
}

#[test]
fn a_changed_objective_is_answered_with_its_own_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = two_vms(dir.path());
    // 1000 I/Os a second, of whatever size.
    let curve = Curve::new(&[(4096, 1000.0), (128 << 10, 1000.0)]).unwrap();
    let profile = Profile::new([curve.clone(), curve], None, Vec::new(), Vec::new());
    config.devices[0].scheduling.profile = Some(Arc::new(profile));
    let server = Server::start(config);
    for (iops, fits) in [(100_000, false), (100, true), (100_000, false)] {
        let objective = tidegate_core::objective::Objective {
            reservation: tidegate_core::objective::Rate::iops(iops),
            ..tidegate_core::objective::Objective::default()
        };
        let verdict = || {
            let vm = wait(server.handle.set_objective("victim", objective)).unwrap();
            vm.feasibility.map(|verdict| verdict.fits)
        };
        // Unknown while the device was checked too recently, and never that of the one before.
        let known = std::iter::repeat_with(verdict).find_map(|known| {
            std::thread::sleep(Duration::from_millis(20));
            known
        });
        assert_eq!(known, Some(fits), "{iops} IOPS");
    }
    server.stop().unwrap();
}

#[test]
fn control_reads_back_what_is_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(two_vms(dir.path()));
    let objective = tidegate_core::objective::Objective {
        weight: 700,
        ..tidegate_core::objective::Objective::default()
    };
    let vm = wait(server.handle.set_objective("victim", objective)).unwrap();
    assert_eq!(vm.objective, objective);
    assert!(wait(server.handle.set_objective("nobody", objective)).is_err());
    let policy = tidegate_policies::policy::PolicySpec::named("mclock").unwrap();
    let device = wait(server.handle.set_policy(0, policy)).unwrap();
    assert_eq!(device.policy.name(), "mclock");
    let mut by_time = tidegate_policies::policy::PolicySpec::named("sfq").unwrap();
    by_time.set("cost", 3).unwrap();
    let refused = wait(server.handle.set_policy(0, by_time)).unwrap_err();
    let message = refused.to_string();
    assert!(
        message.contains("the device has none: add profile = "),
        "{message}"
    );
    let snapshot = wait(server.handle.snapshot(0)).unwrap();
    assert_eq!(snapshot.policy.name(), "mclock", "nothing has changed");
    let mut client = server.connect("victim");
    client.write(0, b"under another policy");
    assert_eq!(client.read(0, 20), b"under another policy");
    let snapshot = wait(server.handle.snapshot(0)).unwrap();
    assert_eq!(snapshot.vms[1].clients, 1);
    assert_eq!(snapshot.vms[1].stats.total_ops(), 2);
}

#[test]
fn a_full_store_answers_so_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(dir.path())
        .output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        return eprintln!("skipped: may not mount a filesystem");
    }
    let outcome = std::panic::catch_unwind(|| {
        let path = dir.path().join("disk.raw");
        let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), 8 * MIB));
        let mut client = server.connect("disk");
        let answer = client.ask(Command::Write, 0, 4 << 20, &vec![1; 4 << 20]);
        assert_eq!(answer.result, Err(tidegate_nbd::NbdError::Enospc));
        assert!(client.ask(Command::Trim, 0, 4 << 20, &[]).result.is_ok());
        client.write(5 * MIB, b"room again");
        assert_eq!(client.read(5 * MIB, 10), b"room again");
        client.flush().unwrap();
        server.stop().unwrap();
    });
    let unmounted = std::process::Command::new("umount")
        .arg("-l")
        .arg(dir.path())
        .status();
    assert!(unmounted.is_ok_and(|s| s.success()));
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
