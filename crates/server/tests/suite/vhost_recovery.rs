//! Guests whose requests are in flight when their session or the daemon ends without order: the
//! next one does exactly those, and the guest sees a pause.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::common::Server;
use crate::common::vhost_guest::{
    ALL, CONFIG_WCE, EVENT_IDX, Guest, INDIRECT_DESC, OUT, read_config,
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
const DIRECTORY: &str = "TIDEGATE_TEST_DIRECTORY";

/// Daemon in a process of its own, which can be killed.
struct Process(Child);

impl Process {
    /// Starts this test's binary as the daemon of the disk in a directory.
    fn start(dir: &Path) -> Process {
        let test = std::env::current_exe().expect("this test has a file");
        let child = Command::new(test)
            .args(["--exact", NAME, "--nocapture"])
            .env(DIRECTORY, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Process(child)
    }

    /// Kills the daemon as it is.
    fn kill(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Body of the process that is killed: serves until its standard input ends.
fn serve(dir: &Path) {
    let (config, socket) = backing(dir, true, 4 * MIB);
    // The socket of a daemon that was killed is there until the next one replaces it, and its lock
    // until its last I/O has ended.
    let server = Server::start(config);
    assert!(socket.exists());
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    server.stop().unwrap();
}

#[test]
fn every_byte_is_as_in_a_copy_although_the_daemon_is_killed() {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return serve(Path::new(&dir));
    }
    for (seed, features, queues) in [(4, ALL, 4), (5, PLAIN, 1)] {
        let dir = on_disk();
        let socket = dir.path().join("disk.vhost");
        let mut daemon = Process::start(dir.path());
        let mut guest = Guest::start_recorded(&socket, features, queues);
        let mut rng = Pcg64::seed_from_u64(seed);
        let (mut kills, mut in_flight) = (0, 0);
        run_beside(&mut guest, queues, SECTORS, 400, seed, |guest| {
            if rng.random_range(0..25) == 0 {
                // At any time of a request that was just sent.
                std::thread::sleep(Duration::from_micros(rng.random_range(0..300)));
                daemon.kill();
                kills += 1;
                in_flight += (0..queues)
                    .map(|queue| guest.in_flight(queue))
                    .sum::<usize>();
                daemon = Process::start(dir.path());
                guest.reconnect(&socket);
            }
        });
        guest.leave();
        assert!(kills > 5 && in_flight > kills, "{kills} {in_flight}");
    }
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
