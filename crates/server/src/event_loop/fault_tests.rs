//! Faults in system calls on files, under a whole daemon: every byte is compared with a copy, and
//! every error must reach the right client.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_nbd::{Command, NbdError, Request};

use crate::backing::nbd::peer;
use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, disk, request, single, vm, wait};
use crate::config::{Config, DeviceKind};
use crate::ring::faults::{self, Call, Fault, What};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const BLOCK: u64 = 4096;

/// Directories on a file system with direct I/O and on one in memory.
fn directories() -> Vec<tempfile::TempDir> {
    let here = std::env::current_exe().unwrap();
    [here.parent().unwrap(), Path::new("/dev/shm")]
        .into_iter()
        .filter_map(|parent| tempfile::tempdir_in(parent).ok())
        .collect()
}

/// Creates a file in the directory, with faults.
fn faulty(
    dir: &Path,
    name: &str,
    size: u64,
    faults: impl FnMut(Call) -> Fault + Send + 'static,
) -> std::path::PathBuf {
    let path = dir.join(name);
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    faults::set(&file, faults);
    path
}

/// Storage for the disks of a test: files on each kind of file system, an emulated disk on a file,
/// and an NBD server.
pub(super) fn places() -> Vec<(tempfile::TempDir, DeviceKind)> {
    let model = tidegate_device::catalogue::load("nvme-1tb").unwrap();
    let emulated = DeviceKind::Emulated {
        model: Box::new(model),
    };
    let mut places: Vec<_> = (directories().into_iter())
        .map(|dir| (dir, DeviceKind::File))
        .collect();
    places.extend(
        directories()
            .into_iter()
            .take(1)
            .map(|dir| (dir, emulated.clone())),
    );
    let remote = tempfile::tempdir().unwrap();
    peer::serve(remote.path());
    places.push((remote, DeviceKind::File));
    places
}

/// Configuration with the disk `disk`, whose file has these faults, and with a disk `other` of
/// another VM, without faults.
pub(super) fn two_disks(
    (dir, kind): &(tempfile::TempDir, DeviceKind),
    size: u64,
    faults: impl FnMut(Call) -> Fault + Send + 'static,
) -> Config {
    let path = faulty(dir.path(), "disk.raw", size, faults);
    let mut config = single(dir.path(), kind.clone(), Some(path), size);
    let other = disk("other", Some(dir.path().join("other.raw")), 4 * MIB);
    config.vms.push(vm("other", 0, vec![other]));
    config
}

pub(super) fn plan(seed: u64, start: u64, size: u64, block: u64, requests: usize) -> Plan {
    Plan {
        seed,
        start,
        size,
        block,
        blocks_max: (64 << 10) / block,
        depth: 16,
        requests,
    }
}

/// Random short transfers, interruptions and delays. Transfers at one offset are cut to less than
/// a block once: two results in a row without progress mean the end of the file, and of two
/// requests at one offset (a read, and the block that an unaligned write reads first) a call does
/// not say whose it is.
pub(super) fn noise(seed: u64) -> impl FnMut(Call) -> Fault + Send + 'static {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut cut = HashSet::new();
    move |call| {
        let transfer = matches!(call.what, What::Read | What::Write) && call.len > 1;
        match rng.random_range(0..10) {
            0 | 1 => Fault::Error(libc::EINTR),
            2 => Fault::Error(libc::EAGAIN),
            3 => Fault::Late(Duration::from_micros(rng.random_range(1..2000))),
            4 | 5 if transfer && cut.insert((call.what, call.offset)) => {
                Fault::Short(rng.random_range(1..call.len as usize))
            }
            6 if transfer && call.len > BLOCK => {
                Fault::Short((rng.random_range(1..call.len.div_ceil(BLOCK)) * BLOCK) as usize)
            }
            _ => Fault::None,
        }
    }
}

#[test]
fn short_and_interrupted_calls_lose_no_byte() {
    for place in places() {
        let config = two_disks(&place, 4 * MIB, noise(1));
        let server = Server::start(config);
        std::thread::scope(|scope| {
            for (part, block) in [(0, 1), (1, 512), (2, 1), (3, BLOCK)] {
                let mut client = Client::connect(&server.socket, "disk", part % 2 == 0);
                let plan = plan(part, part * MIB, MIB, block, 400);
                scope.spawn(move || run(&mut client, &plan));
            }
        });
        server.stop().unwrap();
    }
}

/// Injects errors for the blocks that cannot be accessed ([`BAD_BLOCKS`]) and for those without
/// space ([`FULL_BLOCKS`]).
pub(super) const BAD_BLOCKS: [u64; 3] = [5, 130, 131];
pub(super) const FULL_BLOCKS: [u64; 2] = [60, 200];
pub(super) const BLOCKS: u64 = 256;

fn touches(blocks: &[u64], offset: u64, len: u64) -> bool {
    let span = offset / BLOCK..(offset + len).div_ceil(BLOCK);
    blocks.iter().any(|block| span.contains(block))
}

pub(super) fn block_faults(call: Call) -> Fault {
    let changes = matches!(call.what, What::Write | What::Allocate);
    if touches(&BAD_BLOCKS, call.offset, call.len) {
        Fault::Error(libc::EIO)
    } else if changes && touches(&FULL_BLOCKS, call.offset, call.len) {
        Fault::Error(libc::ENOSPC)
    } else {
        Fault::None
    }
}

/// Returns the error that a request must be answered with; if both kinds apply, either is right.
fn expected_errors(request: &Request) -> Vec<NbdError> {
    let (offset, len) = (request.offset, u64::from(request.len));
    let mut errors = Vec::new();
    if touches(&BAD_BLOCKS, offset, len) {
        errors.push(NbdError::Eio);
    }
    let reads = matches!(request.command, Command::Read { .. });
    if !reads && touches(&FULL_BLOCKS, offset, len) {
        errors.push(NbdError::Enospc);
    }
    errors
}

/// Requests of one client, with the data that reads must return. A failed change leaves any data.
pub(super) struct Driver {
    rng: Pcg64,
    shadow: Vec<Option<u8>>,
    pending: HashMap<u64, (Request, Vec<Option<u8>>)>,
    pub(super) failed: usize,
}

impl Driver {
    pub(super) fn new(seed: u64) -> Driver {
        Driver {
            rng: Pcg64::seed_from_u64(seed),
            shadow: vec![Some(0); (BLOCKS * BLOCK) as usize],
            pending: HashMap::new(),
            failed: 0,
        }
    }

    /// Chooses a request: mostly short adjacent ones, which the engine merges, and some that it
    /// splits.
    fn choose(&mut self, cookie: u64, block: u64) -> Request {
        let blocks = BLOCKS * BLOCK / block;
        let longest = if self.rng.random_bool(0.1) {
            512 << 10
        } else {
            16 << 10
        };
        let len = self.rng.random_range(1..=longest / block);
        let mut at = self.rng.random_range(0..=blocks - len);
        if self.rng.random_bool(0.2) {
            // At or beside a block with faults.
            let places = [&BAD_BLOCKS[..], &FULL_BLOCKS].concat();
            let place = places[self.rng.random_range(0..places.len())] * BLOCK / block;
            at = place
                .saturating_sub(self.rng.random_range(0..=len))
                .min(blocks - len);
        }
        let command = match self.rng.random_range(0..16) {
            0..6 => Command::Read { df: false },
            6..14 => Command::Write,
            14 => Command::Trim,
            _ => Command::WriteZeroes {
                no_hole: self.rng.random_bool(0.5),
                fast_zero: false,
            },
        };
        let mut request = Request {
            cookie,
            command,
            fua: false,
            offset: at * block,
            len: (len * block) as u32,
        };
        // A durable write that fails would fail the disk for good.
        let durable = !matches!(command, Command::Read { .. })
            && !expected_errors(&request).contains(&NbdError::Eio);
        request.fua = durable && self.rng.random_bool(0.1);
        request
    }

    fn overlaps(&self, request: &Request) -> bool {
        let end = |r: &Request| r.offset + u64::from(r.len);
        let meet = |other: &Request| other.offset < end(request) && request.offset < end(other);
        self.pending.values().any(|(other, _)| meet(other))
    }

    fn send(&mut self, client: &mut Client, request: Request) {
        let range = request.offset as usize..request.offset as usize + request.len as usize;
        let mut payload = Vec::new();
        let fails = !expected_errors(&request).is_empty();
        let mut expected = Vec::new();
        match request.command {
            Command::Read { .. } => expected = self.shadow[range].to_vec(),
            Command::Write => {
                payload = vec![0; request.len as usize];
                self.rng.fill_bytes(&mut payload);
                for (byte, new) in self.shadow[range].iter_mut().zip(&payload) {
                    *byte = (!fails).then_some(*new);
                }
            }
            Command::WriteZeroes { .. } if !fails => self.shadow[range].fill(Some(0)),
            _ => self.shadow[range].fill(None),
        }
        client.send(request, &payload);
        self.pending.insert(request.cookie, (request, expected));
    }

    fn check(&mut self, client: &mut Client) {
        let answer = client.receive();
        let (request, expected) = self
            .pending
            .remove(&answer.cookie)
            .expect("asked for, once");
        let errors = expected_errors(&request);
        match answer.result {
            Err(error) => {
                self.failed += 1;
                assert!(
                    errors.contains(&error),
                    "{request:?}: {error}, due are {errors:?}"
                );
            }
            Ok(data) => {
                assert!(
                    errors.is_empty(),
                    "{request:?} went well, due are {errors:?}"
                );
                let mut bytes = data.iter().zip(&expected);
                let wrong = bytes.position(|(got, want)| want.is_some_and(|want| want != *got));
                assert_eq!((data.len(), wrong), (expected.len(), None), "{request:?}");
            }
        }
    }

    pub(super) fn run(&mut self, client: &mut Client, block: u64, requests: u64) {
        let mut cookie = 0;
        while cookie < requests || !self.pending.is_empty() {
            if cookie >= requests || self.pending.len() >= 16 {
                self.check(client);
                continue;
            }
            // Adjacent requests in sequence.
            let mut next = self.choose(cookie + 1, block);
            for _ in 0..self.rng.random_range(1..4) {
                let end = next.offset + u64::from(next.len);
                if end > BLOCKS * BLOCK || self.overlaps(&next) {
                    break;
                }
                cookie += 1;
                next.cookie = cookie;
                next.fua &= !expected_errors(&next).contains(&NbdError::Eio);
                self.send(client, next);
                next.offset = end;
            }
            if self.pending.len() > 8 {
                self.check(client);
            }
        }
    }
}

#[test]
fn an_error_reaches_the_requests_that_touch_a_bad_block() {
    // Summed over all runs, because the numbers of one run depend on timing.
    let (mut merged, mut split) = (0, 0);
    for (place, block) in places()
        .iter()
        .flat_map(|place| [(place, 512), (place, BLOCK)])
    {
        let mut noise = noise(block);
        let faults = move |call| match block_faults(call) {
            Fault::None => noise(call),
            fault => fault,
        };
        let mut config = two_disks(place, BLOCKS * BLOCK, faults);
        // Requests wait while the device is busy, so many are merged and split.
        config.devices[0].scheduling.depth = 1;
        config.devices[0].scheduling.max_io = 128 << 10;
        let server = Server::start(config);
        let mut driver = Driver::new(block);
        std::thread::scope(|scope| {
            let mut other = server.connect("other");
            scope.spawn(move || run(&mut other, &plan(9, 0, 4 * MIB, 1, 1000)));
            driver.run(&mut server.connect("disk"), block, 1200);
        });
        assert!(
            driver.failed > 30,
            "{} requests met a bad place",
            driver.failed
        );
        let snapshot = wait(server.handle.snapshot(0)).unwrap();
        merged += snapshot.vms[0].stats.merged;
        split += snapshot.vms[0].stats.split;
        assert_eq!(snapshot.vms[0].disks[0].failed, None);
        assert_eq!(server.connect("disk").flush(), Ok(()));
        server.stop().unwrap();
    }
    assert!(merged > 0 && split > 0, "{merged} merged, {split} split");
}

#[test]
fn a_failed_flush_fails_its_disk_and_no_other() {
    // On tmpfs a flush has nothing to do, and cannot fail.
    let durable = |(dir, _): &(tempfile::TempDir, _)| !dir.path().starts_with("/dev/shm");
    for place in places().into_iter().filter(durable) {
        let mut failures = 1;
        let config = two_disks(&place, MIB, move |call| match call.what {
            What::Sync if std::mem::take(&mut failures) > 0 => Fault::Error(libc::EIO),
            _ => Fault::None,
        });
        let server = Server::start(config);
        let (mut client, mut other) = (server.connect("disk"), server.connect("other"));
        client.write(0, &[1; 4096]);
        other.write(0, &[2; 4096]);
        assert_eq!(client.flush(), Err(NbdError::Eio));
        assert_eq!(other.flush(), Ok(()));
        // The kernel now reports success, although it has dropped the data.
        assert_eq!(client.flush(), Err(NbdError::Eio));
        let write = client.ask(Command::Write, 0, 512, &[3; 512]);
        assert_eq!(write.result, Err(NbdError::Eio));
        assert_eq!(client.read(0, 4096), [1; 4096]);
        other.write(4096, &[4; 4096]);
        assert_eq!(other.flush(), Ok(()));
        let vms = wait(server.handle.snapshot(0)).unwrap().vms;
        assert!(vms[0].disks[0].failed.is_some());
        assert!(vms[1].disks[0].failed.is_none());
        server.stop().unwrap();
    }
}

/// Reads from the missing part of a truncated file fail until the file is whole again; another VM's
/// disk is not affected.
#[test]
fn a_file_that_was_cut_short_is_an_error_until_it_is_whole_again() {
    for dir in directories() {
        for left in [0, 1, 700, BLOCK, 100_000] {
            let path = dir.path().join(format!("{left}.raw"));
            let mut config = single(dir.path(), DeviceKind::File, Some(path.clone()), MIB);
            let other = dir.path().join(format!("{left}.other"));
            config
                .vms
                .push(vm("other", 0, vec![disk("other", Some(other), MIB)]));
            let server = Server::start(config);
            let (mut client, mut other) = (server.connect("disk"), server.connect("other"));
            client.write(0, &vec![7; MIB as usize]);
            other.write(0, &vec![9; MIB as usize]);
            let cut = |size| {
                let file = OpenOptions::new().write(true).open(&path);
                file.unwrap().set_len(size).unwrap();
            };
            cut(left);
            let read = Command::Read { df: false };
            let answer = client.ask(read, 0, MIB as u32, &[]);
            assert_eq!(answer.result, Err(NbdError::Eio), "{left} bytes are left");
            // After the first failed read, writes that would extend the file again are refused.
            for (command, at, payload) in [
                (Command::Write, left + 3, &[8; 10][..]),
                (Command::Write, 900_000, &[8; 4096]),
                (Command::Flush, 0, &[]),
            ] {
                let answer = client.ask(command, at, payload.len() as u32, payload);
                assert_eq!(answer.result, Err(NbdError::Eio), "{left} bytes are left");
            }
            assert_eq!(std::fs::metadata(&path).unwrap().len(), left);
            let now = wait(server.handle.snapshot(0)).unwrap();
            let lost = now.vms[0].disks[0].failed.as_deref().expect("it says so");
            assert!(lost.contains("shorter"), "{lost}");
            assert!(now.vms[1].disks[0].failed.is_none());
            assert!(other.read(0, MIB as u32) == vec![9; MIB as usize]);
            cut(MIB);
            let until = std::time::Instant::now() + Duration::from_secs(30);
            while client.ask(read, 0, 4096, &[]).result.is_err() {
                assert!(std::time::Instant::now() < until, "it is whole again");
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut expected = vec![0; MIB as usize];
            expected[..left as usize].fill(7);
            assert!(client.read(0, MIB as u32) == expected);
            client.write(900_001, &[8; 5000]);
            server.stop().unwrap();
        }
    }
}

#[test]
fn late_requests_are_finished_and_answered_before_the_end() {
    const WRITES: u64 = 200;
    for place in places() {
        let mut rng = Pcg64::seed_from_u64(8);
        let late = move |_| Fault::Late(Duration::from_micros(rng.random_range(1..30_000)));
        let server = Server::start(two_disks(&place, WRITES * BLOCK, late));
        let mut client = server.connect("disk");
        for at in 0..WRITES {
            let request = request(Command::Write, at, at * BLOCK, BLOCK as u32);
            client.send(request, &[at as u8 | 1; BLOCK as usize]);
        }
        // Some requests are answered, some are with the kernel, some wait.
        let mut answered = vec![client.receive()];
        std::thread::scope(|scope| {
            scope.spawn(|| server.stop().unwrap());
            while let Some(answer) = client.receive_if_any() {
                answered.push(answer);
            }
        });
        let bytes = std::fs::read(place.0.path().join("disk.raw")).unwrap();
        for answer in &answered {
            assert_eq!(answer.result, Ok(vec![]));
            let block = &bytes[(answer.cookie * BLOCK) as usize..][..BLOCK as usize];
            assert!(block.iter().all(|byte| *byte == answer.cookie as u8 | 1));
        }
        // A request that was not answered was not read from the socket, so it was not written
        // either.
        let written = bytes.chunks(BLOCK as usize).filter(|block| block[0] != 0);
        assert_eq!(written.count(), answered.len());
    }
}

/// Returns the data that a client writes into a sector: the sector's number and the client's.
fn sector_pattern(sector: u64, client: u64) -> Vec<u8> {
    [sector.to_le_bytes(), client.to_le_bytes()]
        .concat()
        .repeat(32)
}

/// The writes and reads of a vanished client stay with the kernel for a while, and so does their
/// memory, while another client requests memory all the time.
#[test]
fn the_memory_of_a_vanished_client_is_not_reused_while_io_is_in_flight() {
    const SECTORS: u64 = 4096;
    for place in places() {
        let (mut rng, mut noise) = (Pcg64::seed_from_u64(5), noise(7));
        let late = move |call| match (block_faults(call), rng.random_bool(0.3)) {
            (Fault::None, true) => noise(call),
            (Fault::None, false) => Fault::Late(Duration::from_micros(rng.random_range(1..20_000))),
            (fault, _) => fault,
        };
        let mut config = two_disks(&place, SECTORS * 512, late);
        // Little memory, so that requests wait for it; but enough for all that the other client
        // sends at once, because it does not read while it writes.
        config.devices[0].scheduling.buffer_memory = 3 << 20;
        config.devices[0].scheduling.buffer_memory_per_vm = 2 << 20;
        let server = Server::start(config);
        std::thread::scope(|scope| {
            let mut other = server.connect("other");
            let other = scope.spawn(move || run(&mut other, &plan(3, 0, 4 * MIB, 512, 3000)));
            let mut rng = Pcg64::seed_from_u64(6);
            let mut round = 1;
            while round <= 20 || (!other.is_finished() && round < 400) {
                let mut client = server.connect("disk");
                for cookie in 0..32 {
                    let len = rng.random_range(1..64);
                    let first = rng.random_range(0..=SECTORS - len);
                    let reads = rng.random_bool(0.3);
                    let (command, payload) = if reads {
                        (Command::Read { df: false }, Vec::new())
                    } else {
                        (
                            Command::Write,
                            (first..first + len)
                                .flat_map(|at| sector_pattern(at, round))
                                .collect(),
                        )
                    };
                    let request = request(command, cookie, first * 512, (len * 512) as u32);
                    client.send(request, &payload);
                }
                // Sometimes after the first request has started or was answered.
                if round % 3 == 0 {
                    client.receive();
                }
                round += 1;
            }
            other.join().unwrap();
        });
        // Only these clients write here, so what they left must still be there.
        server.stop().unwrap();
        let bytes = std::fs::read(place.0.path().join("disk.raw")).unwrap();
        let mut written = 0;
        for (sector, found) in (0..).zip(bytes.chunks(512)) {
            if found.iter().any(|byte| *byte != 0) {
                let client = u64::from_le_bytes(found[8..16].try_into().unwrap());
                assert!(
                    client > 0 && found == sector_pattern(sector, client),
                    "sector {sector}: {found:?}"
                );
                written += 1;
            }
        }
        assert!(written > SECTORS / 4, "only {written} sectors were written");
    }
}
