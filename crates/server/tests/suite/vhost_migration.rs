//! Live migration of guests with disks by vhost-user: every page that the device writes is in the
//! dirty log, also where it is set, replaced and removed while requests are in flight.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use vhost::VhostBackend;

use crate::common::vhost_guest::{
    ALL, AVAILABLE, DATA_MAX, EVENT_IDX, GET_ID, Guest, IN, INDIRECT_DESC, LOG_ALL, OUT, PAGE,
    QUEUE_BYTES,
};
use crate::common::vhost_log::{Copy, Log};
use crate::common::{Server, disk, vm};
use crate::vhost_user::backing;

const MIB: u64 = 1 << 20;
/// Bytes of the disks.
const SIZE: u64 = 4 * MIB;

/// Places that a disk's bytes can be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Memory,
    /// File on tmpfs: I/O ends at submission.
    Tmpfs,
    /// File on another file system: the kernel writes to guest memory later.
    File,
}

impl Place {
    const ALL: [Place; 3] = [Place::Memory, Place::Tmpfs, Place::File];

    fn directory(self) -> tempfile::TempDir {
        let at = match self {
            Place::Tmpfs => "/dev/shm",
            _ => env!("CARGO_TARGET_TMPDIR"),
        };
        tempfile::tempdir_in(at).unwrap()
    }
}

/// Daemon with a disk that has bytes other than zero everywhere.
fn daemon(place: Place) -> (Server, std::path::PathBuf, tempfile::TempDir) {
    let dir = place.directory();
    let (config, socket) = backing(dir.path(), place != Place::Memory, SIZE);
    let server = Server::start(config);
    let mut client = server.connect("disk");
    let chunk = 256 << 10;
    for at in (0..SIZE).step_by(chunk) {
        let bytes: Vec<u8> = (0..chunk).map(|n| 1 + (n % 251) as u8).collect();
        client.write(at, &bytes);
    }
    client.disconnect();
    (server, socket, dir)
}

/// Keeps queues busy with random requests.
struct Load {
    rng: Pcg64,
    queues: usize,
}

impl Load {
    fn new(seed: u64, queues: usize) -> Load {
        let rng = Pcg64::seed_from_u64(seed);
        Load { rng, queues }
    }

    /// Submits so many requests, and takes answers where a queue is full.
    fn go_on(&mut self, guest: &mut Guest, requests: usize) {
        for _ in 0..requests {
            let queue = self.rng.random_range(0..self.queues);
            while !guest.has_room(queue) {
                guest.answers(queue);
            }
            let len = self.rng.random_range(1..=DATA_MAX / 512) * 512;
            let sector = self.rng.random_range(0..(SIZE as usize - len) / 512) as u64;
            match self.rng.random_range(0..8) {
                0 => guest.submit(queue, OUT, sector, &vec![self.rng.random(); len]),
                1 => guest.submit(queue, GET_ID, 0, &[0xff; 20]),
                // Refused: beyond the end of the disk.
                2 => guest.submit(queue, IN, SIZE / 512, &[0; 512]),
                _ => guest.submit(queue, IN, sector, &vec![0; len]),
            };
            guest.kick(queue, 1);
        }
    }

    /// Stops the queues and takes the answers that came before.
    fn stop(&self, guest: &mut Guest) -> Vec<u16> {
        let stop = |queue| {
            let base = guest.stop_queue(queue);
            guest.take_answers(queue);
            base
        };
        (0..self.queues).map(stop).collect()
    }
}

#[test]
fn a_copy_of_guest_memory_by_the_log_is_whole() {
    for place in Place::ALL {
        let (server, socket, _dir) = daemon(place);
        let plain = ALL & !EVENT_IDX & !INDIRECT_DESC;
        for (seed, features, queues) in [(1, ALL, 2), (2, plain, 1)] {
            let mut guest = Guest::start(&socket, features, queues);
            let mut load = Load::new(seed, queues);
            load.go_on(&mut guest, 50);
            // The log is set while requests are in flight.
            let log = Log::of(&guest);
            log.set(&guest).unwrap();
            guest.set_logged(true);
            let mut copy = Copy::begin(&guest);
            for _ in 0..40 {
                load.go_on(&mut guest, 10);
                copy.update(&guest, &log);
            }
            load.stop(&mut guest);
            copy.update(&guest, &log);
            let differs = copy.differs_at(&guest);
            assert_eq!(differs, None, "{place:?}, seed {seed}: {differs:#x?}");
            drop(guest);
        }
        server.stop().unwrap();
    }
}

#[test]
fn a_log_is_replaced_and_switched_off_and_on_under_load() {
    let (server, socket, _dir) = daemon(Place::File);
    let mut guest = Guest::start(&socket, ALL, 2);
    let mut load = Load::new(3, 2);
    for round in 0..10 {
        let mut log = Log::of(&guest);
        log.set(&guest).unwrap();
        guest.set_logged(true);
        let mut copy = Copy::begin(&guest);
        for _ in 0..3 {
            load.go_on(&mut guest, 30);
            // As QEMU does: once the device has the next log, what is in the old one is taken.
            let next = Log::of(&guest);
            next.set(&guest).unwrap();
            copy.update(&guest, &log);
            log = next;
        }
        if round % 2 == 0 {
            let bases = load.stop(&mut guest);
            copy.update(&guest, &log);
            assert_eq!(copy.differs_at(&guest), None, "round {round}");
            // The migration fails, and the guest goes on.
            for (queue, base) in bases.into_iter().enumerate() {
                guest.restart_at(queue, base);
            }
        }
        guest.set_logged(false);
        log.take();
        load.go_on(&mut guest, 30);
        assert_eq!(log.take(), BTreeSet::new(), "it is off");
    }
    drop(guest);
    server.stop().unwrap();
}

/// Pages at which two copies of guest memory differ.
fn changed(guest: &Guest, before: &[u8]) -> BTreeSet<u64> {
    let after = all(guest);
    let pages = before
        .chunks(PAGE as usize)
        .zip(after.chunks(PAGE as usize));
    let differ = (0u64..).zip(pages).filter(|(_, (a, b))| a != b);
    differ.map(|(page, _)| page).collect()
}

fn all(guest: &Guest) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; QUEUE_BYTES as usize];
    guest.memory.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Pages of a slot's data up to `len` bytes.
fn data_pages(guest: &Guest, slot: u16, len: u64) -> BTreeSet<u64> {
    let at = guest.data(0, slot);
    (at / PAGE..(at + len).div_ceil(PAGE)).collect()
}

#[test]
fn each_kind_of_request_marks_what_it_writes_and_not_much_more() {
    let (server, socket, _dir) = daemon(Place::File);
    let mut guest = Guest::start(&socket, ALL, 1);
    let log = Log::of(&guest);
    log.set(&guest).unwrap();
    guest.set_logged(true);
    let requests = [
        (IN, 0, 4096, 4096),
        (IN, 8, 65536, 65536),
        (GET_ID, 0, 20, 20),
        (GET_ID, 0, 65536, 20),
        (IN, SIZE / 512, 512, 0),
        (OUT, 0, 8192, 0),
    ];
    for (kind, sector, len, written) in requests {
        let slot = guest.submit(0, kind, sector, &vec![0; len]);
        let before = all(&guest);
        guest.kick(0, 1);
        guest.answers(0);
        let (marked, changed) = (log.take(), changed(&guest, &before));
        let missing: Vec<_> = changed.difference(&marked).collect();
        // The driver's own wish for notifications is on the page of the available ring.
        assert!(
            missing.iter().all(|&&page| page == AVAILABLE / PAGE),
            "{kind} of {len} bytes: pages {missing:?} are not marked"
        );
        let data = data_pages(&guest, slot, written);
        assert!(data.is_subset(&marked), "{kind} of {len} bytes");
        let others = data_pages(&guest, slot, DATA_MAX as u64);
        let others: BTreeSet<_> = others.difference(&data).copied().collect();
        assert!(
            kind == IN || others.is_disjoint(&marked),
            "{kind}: too much"
        );
        assert!(!marked.contains(&(AVAILABLE / PAGE)), "it is the driver's");
    }
    drop(guest);
    server.stop().unwrap();
}

#[test]
fn a_read_that_fails_half_way_is_marked() {
    let (server, socket, dir) = daemon(Place::File);
    let mut guest = Guest::start(&socket, ALL, 1);
    let log = Log::of(&guest);
    log.set(&guest).unwrap();
    guest.set_logged(true);
    let path = dir.path().join("disk.raw");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(32 << 10).unwrap();
    log.take();
    let slot = guest.submit(0, IN, 0, &vec![0; DATA_MAX]);
    let before = all(&guest);
    guest.kick(0, 1);
    let answers = guest.answers(0);
    assert_eq!((answers[0].slot, answers[0].status), (slot, 1));
    let changed = changed(&guest, &before);
    let half = data_pages(&guest, slot, 32 << 10);
    // Unless the daemon has noticed first that the file is shorter, and reads nothing.
    if !changed.is_disjoint(&half) {
        assert!(half.is_subset(&log.take()));
    }
    drop(guest);
    server.stop().unwrap();
}

#[test]
fn logs_that_make_no_sense_end_the_session_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, socket) = backing(dir.path(), false, MIB);
    config
        .vms
        .push(vm("other", 0, vec![disk("other", None, MIB)]));
    let server = Server::start(config);
    let mut neighbour = server.connect("other");
    type Case = (&'static str, fn(&mut Guest, &Log));
    let cases: [Case; 7] = [
        ("no bytes", |guest, log| {
            let _ = log.set_part(guest, 0, 0);
        }),
        ("beyond its file", |guest, log| {
            let _ = log.set_part(guest, PAGE, 4 * PAGE);
        }),
        ("wraps around", |guest, log| {
            let _ = log.set_part(guest, u64::MAX - 3, 2);
        }),
        ("too short for the memory", |guest, log| {
            let _ = log.set_part(guest, 0, 16);
        }),
        ("a ring that is logged elsewhere", |guest, log| {
            log.set(guest).unwrap();
            guest.frontend.set_features(ALL | LOG_ALL).unwrap();
            let mut addresses = guest.addresses(0);
            addresses.flags = 1;
            for at in [u64::MAX - 8, 1 << 40] {
                addresses.log_addr = Some(at);
                let _ = guest.frontend.set_vring_addr(0, &addresses);
            }
        }),
        ("cut short", |guest, log| {
            log.set(guest).unwrap();
            guest.set_logged(true);
            log.file().set_len(0).unwrap();
            guest.submit(0, IN, 0, &[0; 4096]);
            guest.kick_anyway(0);
        }),
        ("cut short, a queue that is idle", |guest, log| {
            log.set(guest).unwrap();
            guest.set_logged(true);
            log.file().set_len(0).unwrap();
            guest.kick_anyway(0);
        }),
    ];
    for (what, act) in cases {
        let mut guest = Guest::start(&socket, ALL, 1);
        act(&mut guest, &Log::new(4 * PAGE));
        assert!(guest.is_cut_off(), "{what}");
        drop(guest);
        neighbour.write(0, &[7; 512]);
        assert_eq!(neighbour.read(0, 512), [7; 512], "{what}");
    }
    let mut next = Guest::start(&socket, ALL, 1);
    next.write(0, &[1; 512]);
    next.leave();
    neighbour.disconnect();
    server.stop().unwrap();
}
