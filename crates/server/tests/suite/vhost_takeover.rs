//! Guests whose daemon is taken over by a new one, with requests in flight: their sessions go on,
//! and no front-end connects again.

use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_core::objective::{Limit, Rate};
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::Config;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::common::Server;
use crate::common::process::{Process, served_directory, wait_for_end_of_test};
use crate::common::vhost_guest::{ALL, CONFIG_WCE, EVENT_IDX, Guest, INDIRECT_DESC, read_config};
use crate::vhost_user::{backing, emulated, on_disk, run_beside};

const MIB: u64 = 1 << 20;
const SECTORS: usize = (4 * MIB / 512) as usize;
/// Features of a driver that is notified and kicked by flags.
const PLAIN: u64 = ALL & !EVENT_IDX & !INDIRECT_DESC;
/// Directory with this file: the disk's device is emulated and its VM has a limit, so that requests
/// stay in flight.
const SLOW: &str = "slow";

/// Body of the process of a daemon: takes over from the one that runs, if there is one, and serves
/// until it is taken over.
fn serve(dir: &Path) {
    let config = |backing: fn(&Path, bool, u64) -> (Config, _)| backing(dir, true, 4 * MIB).0;
    let is_slow = dir.join(SLOW).exists();
    let mut config = config(if is_slow { emulated } else { backing });
    if is_slow {
        config.devices[0].scheduling.policy = PolicySpec::named("limit").expect("registered");
        config.vms[0].objective.limit = Limit::of_all(Rate::iops(8));
    }
    let offer = dir.join("takeover.sock");
    let server = if offer.exists() {
        Server::start_taking_over(config, &offer).unwrap_or_else(|error| panic!("{error}"))
    } else {
        Server::start_offering(config, &offer)
    };
    let handle = server.handle.clone();
    std::thread::spawn(move || {
        wait_for_end_of_test();
        handle.shut_down();
    });
    server.wait().unwrap();
}

/// Has a new daemon take over; returns it.
fn take_over(name: &str, dir: &Path, mut running: Process) -> Process {
    let next = Process::start(name, dir);
    assert!(running.ends(), "it was not taken over");
    next
}

/// Makes requests against a copy while the daemon is taken over now and then. Returns the number of
/// takeovers, and of requests that were in flight when a daemon had ended.
fn under_load(name: &str, slow: bool, seed: u64, features: u64, queues: usize) -> (usize, usize) {
    let dir = on_disk();
    if slow {
        std::fs::write(dir.path().join(SLOW), "").unwrap();
    }
    let socket = dir.path().join("disk.vhost");
    let mut daemon = Some(Process::start(name, dir.path()));
    let mut guest = Guest::start_recorded(&socket, features, queues);
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut takeovers, mut in_flight) = (0, 0);
    let (requests, pause) = if slow { (90, 12) } else { (400, 40) };
    run_beside(&mut guest, queues, SECTORS, requests, seed, |guest| {
        if rng.random_range(0..pause) == 0 {
            daemon = Some(take_over(name, dir.path(), daemon.take().unwrap()));
            takeovers += 1;
            let all = 0..queues;
            in_flight += all.map(|queue| guest.unanswered(queue)).sum::<usize>();
        }
    });
    // By the connection that it began with.
    assert_eq!(
        read_config(&mut guest.frontend)[..8],
        (SECTORS as u64).to_le_bytes()
    );
    guest.leave();
    (takeovers, in_flight)
}

#[test]
fn every_byte_is_as_in_a_copy_although_the_daemon_is_taken_over() {
    const NAME: &str =
        "vhost_takeover::every_byte_is_as_in_a_copy_although_the_daemon_is_taken_over";
    if let Some(dir) = served_directory() {
        return serve(&dir);
    }
    for (slow, seed, features, queues) in
        [(false, 1, ALL, 4), (true, 2, ALL, 2), (true, 3, PLAIN, 1)]
    {
        let (takeovers, in_flight) = under_load(NAME, slow, seed, features, queues);
        assert!(takeovers > 3, "{takeovers} takeovers");
        let enough = !slow || in_flight > takeovers;
        assert!(enough, "{in_flight} in flight at {takeovers} takeovers");
    }
}

#[test]
#[ignore = "fifty takeovers on each kind of disk"]
fn every_byte_is_as_in_a_copy_although_the_daemon_is_taken_over_fifty_times() {
    const NAME: &str = "vhost_takeover::every_byte_is_as_in_a_copy_although_the_daemon_is_taken_\
                        over_fifty_times";
    if let Some(dir) = served_directory() {
        return serve(&dir);
    }
    for slow in [false, true] {
        let mut takeovers = 0;
        for seed in 100.. {
            takeovers += under_load(NAME, slow, seed, ALL, 4).0;
            if takeovers >= 50 {
                break;
            }
        }
    }
}

#[test]
fn what_a_session_has_set_up_goes_over() {
    const NAME: &str = "vhost_takeover::what_a_session_has_set_up_goes_over";
    if let Some(dir) = served_directory() {
        return serve(&dir);
    }
    let dir = on_disk();
    let socket = dir.path().join("disk.vhost");
    let daemon = Process::start(NAME, dir.path());
    let mut guest = Guest::start_recorded(&socket, ALL | CONFIG_WCE, 2);
    let flags = VhostUserConfigFlags::WRITABLE;
    guest.frontend.set_config(32, flags, &[0]).unwrap();
    guest.write(0, &[1; 512]);
    let base = guest.stop_queue(1);
    let daemon = take_over(NAME, dir.path(), daemon);
    assert_eq!(read_config(&mut guest.frontend)[32], 0, "the cache mode");
    assert_eq!(guest.read(0, 512), [1; 512]);
    // The other queue is not started by the new daemon, and can be.
    guest.restart_at(1, base);
    guest.renew_eventfds(0);
    guest.write(1, &[2; 512]);
    let daemon = take_over(NAME, dir.path(), daemon);
    assert_eq!(guest.read(1, 512), [2; 512]);
    let base = guest.stop_queue(0);
    guest.restart_at(0, base);
    assert_eq!(guest.read(0, 512), [1; 512]);
    // The place at the socket is the front-end's until it leaves.
    guest.leave();
    let mut next = Guest::start_recorded(&socket, ALL, 1);
    assert_eq!(next.read(1, 512), [2; 512]);
    // A crash of a daemon that has taken over is one like any other.
    let mut daemon = take_over(NAME, dir.path(), daemon);
    daemon.kill();
    std::fs::remove_file(dir.path().join("takeover.sock")).unwrap();
    let _daemon = Process::start(NAME, dir.path());
    next.reconnect(&socket);
    assert_eq!(next.read(1, 512), [2; 512]);
    next.leave();
}
