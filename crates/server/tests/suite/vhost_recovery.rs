//! Guests whose requests are in flight when their session or the daemon ends without order: the
//! next one does exactly those, and the guest sees a pause.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::common::Server;
use crate::common::process::{Process, served_directory, wait_for_end_of_test};
use crate::common::vhost_guest::{
    ALL, CONFIG_WCE, EVENT_IDX, Guest, INDIRECT_DESC, OUT, read_config, region,
};
use crate::vhost_user::{backing, run_beside};

const MIB: u64 = 1 << 20;
const SECTORS: usize = (4 * MIB / 512) as usize;
/// Features of a driver that is notified and kicked by flags.
const PLAIN: u64 = ALL & !EVENT_IDX & !INDIRECT_DESC;

/// Makes a temporary directory on a file system that is not in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn every_byte_is_as_in_a_copy_although_sessions_vanish() {
    for file in [false, true] {
        let dir = on_disk();
        let (config, socket) = backing(dir.path(), file, 4 * MIB);
        let server = Server::start(config);
        for (seed, features, queues) in [(1, ALL, 1), (2, ALL, 4), (3, PLAIN, 2)] {
            let mut guest = Guest::start_recorded(&socket, features, queues);
            zero(&mut guest);
            let mut rng = Pcg64::seed_from_u64(seed);
            run_beside(&mut guest, queues, SECTORS, 600, seed, |guest| {
                if rng.random_range(0..12) == 0 {
                    guest.reconnect(&socket);
                }
            });
            guest.leave();
        }
        server.stop().unwrap();
    }
}

fn zero(guest: &mut Guest) {
    for first in (0..SECTORS).step_by(128) {
        guest.write(first as u64, &[0; 64 << 10]);
    }
}

const NAME: &str = "vhost_recovery::every_byte_is_as_in_a_copy_although_the_daemon_is_killed";

/// Body of the process that is killed: serves until its standard input ends.
fn serve(dir: &Path) {
    let (config, socket) = backing(dir, true, 4 * MIB);
    // The socket of a daemon that was killed is there until the next one replaces it, and its lock
    // until its last I/O has ended.
    let server = Server::start(config);
    assert!(socket.exists());
    wait_for_end_of_test();
    server.stop().unwrap();
}

#[test]
fn every_byte_is_as_in_a_copy_although_the_daemon_is_killed() {
    if let Some(dir) = served_directory() {
        return serve(&dir);
    }
    for (seed, features, queues) in [(4, ALL, 4), (5, PLAIN, 1)] {
        assert!(kill_under_load(seed, features, queues, 400) > 5);
    }
}

#[test]
#[ignore = "a hundred kills, some minutes"]
fn every_byte_is_as_in_a_copy_although_the_daemon_is_killed_a_hundred_times() {
    let mut kills = 0;
    for seed in 100.. {
        let (features, queues) = if seed % 2 == 0 { (ALL, 4) } else { (PLAIN, 1) };
        kills += kill_under_load(seed, features, queues, 800);
        if kills >= 100 {
            return;
        }
    }
}

/// Makes requests against a copy while the daemon is killed now and then. Returns the number of
/// kills.
fn kill_under_load(seed: u64, features: u64, queues: usize, requests: usize) -> usize {
    let dir = on_disk();
    let socket = dir.path().join("disk.vhost");
    let mut daemon = Process::start(NAME, dir.path());
    let mut guest = Guest::start_recorded(&socket, features, queues);
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut kills, mut in_flight) = (0, 0);
    run_beside(&mut guest, queues, SECTORS, requests, seed, |guest| {
        if rng.random_range(0..25) == 0 {
            // At any time of a request that was just sent.
            std::thread::sleep(Duration::from_micros(rng.random_range(0..300)));
            daemon.kill();
            kills += 1;
            in_flight += (0..queues)
                .map(|queue| guest.in_flight(queue))
                .sum::<usize>();
            daemon = Process::start(NAME, dir.path());
            guest.reconnect(&socket);
        }
    });
    guest.leave();
    assert!(in_flight > kills, "{kills} {in_flight}");
    kills
}

#[test]
fn requests_that_are_left_are_answered_before_a_queue_stops() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = Guest::start_recorded(&socket, ALL, 1);
    for round in 0..10u8 {
        for n in 0..8 {
            guest.submit(0, OUT, n * 128, &[round; 64 << 10]);
        }
        guest.kick(0, 8);
        guest.reconnect(&socket);
        let base = guest.stop_queue(0);
        let answered = guest.take_answers(0).len();
        let waiting = guest.in_flight(0);
        assert!(answered + waiting <= 8);
        guest.restart_at(0, base);
        while guest.in_flight(0) > 0 {
            guest.answers(0);
        }
        assert_eq!(guest.read(7 * 128, 64 << 10), vec![round; 64 << 10]);
    }
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn requests_that_are_left_are_answered_before_a_disabled_queue_stops() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = Guest::start_recorded(&socket, ALL, 1);
    guest.write(0, &[1; 512]);
    guest.stop_queue(0);
    guest.begin_again(&socket).unwrap();
    // Requests that a daemon took before it was killed, by the record.
    let (_, record) = guest.record.as_ref().unwrap();
    let record = record.try_clone().unwrap();
    for n in 0..8u16 {
        let slot = guest.submit(0, OUT, u64::from(n) * 128, &[n as u8 + 2; 64 << 10]);
        // An entry of 16 bytes for each descriptor, behind 16 bytes of the queue: the mark, and the
        // counter at byte 8.
        let entry = 16 + 16 * u64::from(3 * slot);
        let counter = u64::from(n).to_le_bytes();
        record.write_all_at(&counter, entry + 8).unwrap();
        record.write_all_at(&[1], entry).unwrap();
    }
    let table = [region(&guest.memory)];
    guest.frontend.set_mem_table(&table).unwrap();
    let used = 1;
    guest.restart_disabled_at(0, used);
    assert_eq!(guest.take_answers(0), [], "a queue that is disabled");
    assert_eq!(guest.stop_queue(0), used + 8);
    let answers = guest.take_answers(0);
    assert!(answers.iter().all(|answer| answer.status == 0));
    assert_eq!(guest.in_flight(0), 0, "the index says that all were taken");
    guest.go_on(0);
    for n in 0..8u8 {
        let (sector, expected) = (u64::from(n) * 128, [n + 2; 64 << 10]);
        assert_eq!(guest.read(sector, 64 << 10), expected);
    }
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn the_cache_mode_survives_a_session() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, MIB);
    let server = Server::start(config);
    let flags = VhostUserConfigFlags::WRITABLE;
    let features = ALL | CONFIG_WCE;
    let mut guest = Guest::start_recorded(&socket, features, 1);
    for mode in [0, 1] {
        guest.frontend.set_config(32, flags, &[mode]).unwrap();
        guest.reconnect(&socket);
        let space = read_config(&mut guest.frontend);
        assert_eq!(space[32], mode);
    }
    guest.leave();
    server.stop().unwrap();
}
