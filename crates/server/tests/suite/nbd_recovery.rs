//! NBD clients whose daemon is killed under load: what was answered is there, what was not is there
//! or not, sector by sector, and no byte is another's.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_nbd::Command;

use crate::common::process::{Process, served_directory, wait_for_end_of_test};
use crate::common::{Client, Server, request, single};
use tidegate_server::config::DeviceKind;

const SECTOR: usize = 512;
const SECTORS: u64 = 4096;
const SIZE: u64 = SECTORS * SECTOR as u64;
/// Longest write, in sectors.
const WRITE_MAX: u64 = 256;
/// Most writes in flight.
const DEPTH: usize = 24;
/// A daemon that was killed holds its file until its last I/O has ended.
const START_TIMEOUT: Duration = Duration::from_secs(60);

const NAME: &str = "nbd_recovery::what_was_answered_is_there_although_the_daemon_is_killed";

/// Bytes of a sector that the write `stamp` made: both are in every word.
fn content(stamp: u64, sector: u64) -> Vec<u8> {
    let word = if stamp == 0 { 0 } else { stamp << 16 | sector };
    word.to_le_bytes().repeat(SECTOR / 8)
}

/// Write that was sent and not answered.
struct Pending {
    first: u64,
    sectors: u64,
    stamp: u64,
}

impl Pending {
    fn range(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.sectors
    }
}

/// Client with a copy of the disk.
struct Writer {
    client: Client,
    rng: Pcg64,
    /// Last write of each sector that was answered.
    copy: Vec<u64>,
    pending: BTreeMap<u64, Pending>,
    stamp: u64,
}

impl Writer {
    /// Sends a write to sectors that no other write in flight has.
    fn write(&mut self) {
        let sectors = self.rng.random_range(1..=WRITE_MAX);
        let first = self.rng.random_range(0..SECTORS - sectors);
        self.stamp += 1;
        let new = Pending {
            first,
            sectors,
            stamp: self.stamp,
        };
        let meets = |other: &Pending| other.first < first + sectors && first < other.range().end;
        if self.pending.values().any(meets) {
            return;
        }
        let bytes: Vec<u8> = (new.range())
            .flat_map(|sector| content(new.stamp, sector))
            .collect();
        let command = Command::Write;
        let asked = request(
            command,
            new.stamp,
            first * SECTOR as u64,
            bytes.len() as u32,
        );
        self.client.send(asked, &bytes);
        self.pending.insert(new.stamp, new);
    }

    fn answered(&mut self, cookie: u64) {
        let write = self.pending.remove(&cookie).expect("it was sent");
        for sector in write.range() {
            self.copy[sector as usize] = write.stamp;
        }
    }

    /// Takes the answers that a killed daemon has sent.
    fn take_last_answers(&mut self) {
        while let Some(answer) = self.client.receive_if_any_whole() {
            answer.result.expect("the write succeeds");
            self.answered(answer.cookie);
        }
    }

    /// Reads the disk from the next daemon. Each sector must be whole, and as its last answered
    /// write or one that was in flight made it.
    fn check(&mut self, client: Client) {
        self.client = client;
        let unanswered = std::mem::take(&mut self.pending);
        let bytes = self.client.read(0, SIZE as u32);
        for (sector, found) in (0..SECTORS).zip(bytes.chunks(SECTOR)) {
            let written = self.copy[sector as usize];
            let flying = unanswered.values().find(|it| it.range().contains(&sector));
            let flying = flying.map(|write| write.stamp);
            let is = |stamp: &u64| found == content(*stamp, sector);
            let stamp = [Some(written), flying].into_iter().flatten().find(is);
            self.copy[sector as usize] = stamp.unwrap_or_else(|| {
                let word = &found[..8];
                panic!("sector {sector}: {word:x?} is neither {written} nor {flying:?}")
            });
        }
    }
}

/// Connects once the daemon listens.
fn connect(dir: &Path) -> Client {
    let socket = dir.join("nbd");
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => return Client::on(stream, "disk", true),
            Err(error) => assert!(Instant::now() < until, "no daemon: {error}"),
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Kills the daemon under load so many times. Returns the number of writes that were in flight.
fn kill_under_load(seed: u64, kills: usize) -> usize {
    // On a file system that is not in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut daemon = Process::start(NAME, dir.path());
    let mut writer = Writer {
        client: connect(dir.path()),
        rng: Pcg64::seed_from_u64(seed),
        copy: vec![0; SECTORS as usize],
        pending: BTreeMap::new(),
        stamp: 0,
    };
    let mut in_flight = 0;
    for _ in 0..kills {
        for _ in 0..writer.rng.random_range(10..200) {
            if writer.pending.len() < DEPTH && writer.rng.random_range(0..3) > 0 {
                writer.write();
            } else if !writer.pending.is_empty() {
                let answer = writer.client.receive();
                answer.result.expect("the write succeeds");
                writer.answered(answer.cookie);
            }
        }
        // Some of them find no sectors that are free.
        for _ in 0..DEPTH {
            writer.write();
        }
        // At any time of the writes that were just sent.
        std::thread::sleep(Duration::from_micros(writer.rng.random_range(0..300)));
        daemon.kill();
        writer.take_last_answers();
        in_flight += writer.pending.len();
        daemon = Process::start(NAME, dir.path());
        writer.check(connect(dir.path()));
    }
    in_flight
}

#[test]
fn what_was_answered_is_there_although_the_daemon_is_killed() {
    if let Some(dir) = served_directory() {
        let path = dir.join("disk.raw");
        let server = Server::start(single(&dir, DeviceKind::File, Some(path), SIZE));
        wait_for_end_of_test();
        return server.stop().expect("an end in order");
    }
    // A quick disk may have answered all writes at each of eight kills.
    assert!(
        (1..=8).any(|seed| kill_under_load(seed, 8) > 0),
        "no write was in flight at any kill"
    );
}

#[test]
#[ignore = "a hundred kills, some minutes"]
fn what_was_answered_is_there_although_the_daemon_is_killed_a_hundred_times() {
    assert!(
        kill_under_load(2, 100) > 0,
        "no write was in flight at any kill"
    );
}
